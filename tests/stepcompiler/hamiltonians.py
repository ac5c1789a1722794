"""Random programs as Python text: Hamiltonians h(mu, p), or forcings g(mu, p), as a user might write them.

    text = source(7)                      # the same text for the same seed
    h = function(text)                    # h(mu, p), with mu of shape (3,) and p as `params(7)`

Programs nest calls, branches, loops, slices, updates, whole numbers, complex and single-precision numbers inside each
other. Numbers stay of order 1. A program may be printed, pasted and shortened by hand.
"""

import textwrap
from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from statements import COMPLEX, NESTED, PLAIN, Var, lines, spelled

NAMES = (
    "inner rotated likely rounded rough seldom unlikely guessed step".split()
)  # some were special to the compiler once


class Kinds(NamedTuple):
    """What programs may contain."""

    while_loops: bool = False  # of floating-point numbers, outside of stop_gradient: no reverse derivative
    complex_numbers: bool = True
    right_rules: bool = False  # a function with a rule of its own has the right derivative
    names: tuple[str, ...] = tuple(NAMES)


def params(seed, members=None):
    """Parameters of a program, of all members, or by member."""
    rng, lead = np.random.default_rng([seed, 1]), () if members is None else (members,)
    p = {"a": rng.standard_normal((*lead, 3)), "k": 0.5 + rng.random(lead), "m": rng.standard_normal((*lead, 2, 3))}
    p["n"] = rng.integers(-2, 5, (*lead, 2))
    p["z"] = np.where(rng.random((*lead, 4)) < 0.5, np.array([0.0, -0.0, 1.0, -1.0]), 0.5)
    return jax.tree.map(jnp.asarray, p)


def function(text):
    """The function that a text defines last, called h."""
    scope = {"jax": jax, "jnp": jnp, "np": np, "lax": lax}
    exec(compile(text, "<program>", "exec"), scope)
    return scope["h"]


@cache
def source(seed, kinds=Kinds(), vector=False):
    """The text of a program: of a Hamiltonian, or with `vector` of a forcing."""
    return Writer(np.random.default_rng(seed), kinds).program(vector)


class Writer:
    """Writes statements, each with random ones of the variables in scope."""

    def __init__(self, rng, kinds):
        self.rng, self.kinds, self.lines, self.depth, self.count = rng, kinds, [], 0, 0
        self.scope = []

    # Drawing.

    def pick(self, *options):
        return options[self.rng.integers(len(options))]

    def number(self):
        return self.pick("0.3", "-0.7", "1.0", "1.6", "-1.2", "2.0", "0.5", "-0.4")

    def chance(self, p):
        return self.rng.random() < p

    def var(self, kind="f", ndim=None, least=1):
        """A variable of this kind, recent ones more often; made from another if there is none."""
        fits = lambda v: (
            v.kind == kind and (ndim is None or len(v.shape) == ndim) and (not v.shape or min(v.shape) >= least)
        )
        found = [v for v in self.scope if fits(v)]
        if found and not self.chance(0.05):
            return found[-1 - min(int(self.rng.geometric(0.25)) - 1, len(found) - 1)]
        return self.made(kind, ndim)

    def made(self, kind, ndim):
        some = [v for v in self.scope if v.kind == "f"]
        x = some[self.rng.integers(len(some))]
        n = {None: x.shape, 0: (), 1: (4,), 2: (2, 3)}[ndim]
        flat = f"jnp.resize({x.name}, {n})" if n else f"jnp.sum({x.name})"
        text = {
            "f": f"jnp.sin({flat})",
            "i": self.pick(f"jnp.floor(3 * {flat}).astype({self.integer()})", f"jnp.int32(4 * {flat})"),
            "b": f"{flat} > {self.number()}",
            "c": f"jnp.exp({self.number()}j * {flat})",
        }[kind]
        return self.let(text, kind, n)

    def phrase(self, table, **values):
        return spelled(self.pick(*lines(table))[0], **values)

    def integer(self):
        return self.pick("jnp.int32", "int", "jnp.int64", "jnp.int8", "jnp.uint8", "jnp.uint32")

    # Writing.

    def line(self, text):
        self.lines.append("    " * self.depth + text)

    def fresh(self, stem="v"):
        self.count += 1
        return f"{stem}{self.count}"

    def let(self, text, kind, shape):
        name = self.fresh({"f": "x", "i": "i", "b": "b", "c": "z"}[kind])
        self.line(f"{name} = {text}")
        self.scope.append(Var(name, kind, tuple(shape)))
        return self.scope[-1]

    def program(self, vector):
        self.line("def h(mu, p):")
        self.depth = 1
        self.scope = [Var("mu", "f", (3,)), Var('p["a"]', "f", (3,)), Var("mu", "f", (3,)), Var("mu[1]", "f", ())]
        extra = [Var('p["k"]', "f", ()), Var('p["m"]', "f", (2, 3)), Var('p["n"]', "i", (2,)), Var('p["z"]', "f", (4,))]
        self.scope = [*(e for e in extra if self.chance(0.7)), *self.scope]
        if self.chance(0.5):
            values = self.pick("[0.0, 1.0, -0.0, 0.7]", "[-1.0, 0.5, 2.0]", "[1.0, 1.0, 0.0]", "[[0.2, -0.9, 1.0]] * 2")
            text = f"jnp.asarray(np.array({values}))"
            self.let(text, "f", np.shape(eval(values)))
        start = len(self.scope)
        for _ in range(self.rng.integers(4, 10)):
            self.statement()
        used = [v for v in self.scope[start:] if v.kind in "fc" and not v.name.startswith("p[")][-5:]
        used = used or [Var("mu", "f", (3,))]
        if vector:
            parts = [self.real(v, "jnp.resize({}, (3,))") for v in used]
            self.line(f"return jnp.sin({' + '.join(parts)}) - 0.3 * mu")
        else:
            parts = [self.real(v, "jnp.sum(jnp.sin({}))" if self.chance(0.7) else "jnp.mean({})") for v in used]
            self.line(
                f"return jnp.tanh(0.5 * ({' + '.join(parts)})) + 0.5 * jnp.sum(mu**2 * jnp.array([1.0, 2.0, 3.0]))"
            )
        return "\n".join(self.lines) + "\n"

    def real(self, v, form):
        name = self.pick(f"jnp.real({v.name})", f"jnp.abs({v.name})") if v.kind == "c" else v.name
        return form.format(name)

    def statement(self):
        nested = self.depth < 4 and self.chance(0.4 if self.depth < 3 else 0.2)
        table = NESTED if nested else PLAIN
        rule = table[self.rng.integers(len(table))]
        if rule in COMPLEX and not self.kinds.complex_numbers:
            return self.statement()
        before = len(self.lines), list(self.scope)
        if rule(self) is None and nested is False:
            del self.lines[before[0] :]
            self.scope = before[1]

    def body(self, arguments, results, name=None, decorators=(), statements=None):
        """An inner function whose last line returns variables of the kinds and shapes of `results`; its name."""
        name = name or self.fresh(self.rng.choice(self.kinds.names))
        for d in decorators:
            self.line(d)
        self.line(f"def {name}({', '.join(a.name for a in arguments)}):")
        self.depth += 1
        outside = self.scope
        self.scope = [*outside, *arguments, *arguments]
        for _ in range(self.rng.integers(1, 4) if statements is None else statements):
            self.statement()
        self.line(f"return {self.tuple_of([self.fitted(r) for r in results])}")
        self.depth -= 1
        self.scope = outside
        return name

    def tuple_of(self, parts):
        return parts[0] if len(parts) == 1 else f"({', '.join(parts)})"

    def fitted(self, like):
        """An expression of this kind and shape, made of a recent variable."""
        v = self.var(like.kind)
        if v.shape == like.shape:
            same = v.name
        elif like.shape == ():
            same = f"jnp.{'any' if like.kind == 'b' else 'sum'}({v.name})"
        else:
            same = f"jnp.resize({v.name}, {like.shape})"
        if like.kind == "f":
            return f"jnp.{self.pick('sin', 'tanh', 'cos')}({same})"
        if like.kind == "c":
            return f"{same} / (1 + jnp.abs({same}))"
        return f"({same}).astype(bool)" if like.kind == "b" else f"jnp.asarray({same} % 5, int)"

    def arguments(self, count=None):
        """Names for arguments, and the variables that are given for them."""
        given = [self.var(self.pick("f", "f", "f", "i")) for _ in range(count or self.rng.integers(1, 3))]
        return [Var(self.fresh("y"), v.kind, v.shape) for v in given], [v.name for v in given]

    def shape(self):
        return self.pick((), (), (3,), (2,), (4,), (2, 3))


def pasted(seed, text):
    """A failing program with what is needed to run it alone."""
    head = "import jax, jax.numpy as jnp, numpy as np\nfrom jax import lax\nimport coadjoint as cj\n"
    return textwrap.indent(f"# program {seed}\n{head}\n{text}", "    ")
