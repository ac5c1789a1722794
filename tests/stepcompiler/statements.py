"""Statements of random programs: each writes one variable, or returns None if the variables in scope do not suit it.

The writer `w` is that of `hamiltonians`.
"""

from typing import NamedTuple

import numpy as np
import phrases

MOST = 12  # elements of an array


class Var(NamedTuple):
    name: str
    kind: str  # f, i, b or c
    shape: tuple[int, ...]


def spelled(text, **values):
    """A phrase with values for the names in braces."""
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", str(value))
    return text


# Statements without others inside. Each writes one variable, or returns None.


def lines(table):
    """Phrases and shapes of a table."""
    return [tuple(line.strip().split("  # ")) for line in table.strip().splitlines()]


def _plain(table, kind):
    """An operation on each element of one variable."""

    def rule(w):
        x, y = w.var(kind), w.var(kind)
        y = y if y.shape == x.shape else x
        to = "f" if table is phrases.COMPLEX_BACK else kind
        return w.let(w.phrase(table, x=x.name, z=x.name, u=y.name), to, x.shape)

    return rule


def binary(w):
    x, y = w.var(), w.var()
    if {x.shape, y.shape} not in ({x.shape}, {(), x.shape}, {(), y.shape}, {(3,), (2, 3)}):
        return None
    return w.let(w.phrase(phrases.BINARY, x=x.name, y=y.name), "f", np.broadcast_shapes(x.shape, y.shape))


def bounded(w):
    x = w.scope[-1]
    return w.let(f"jnp.{w.pick('tanh', 'sin')}({x.name})", "f", x.shape) if x.kind == "f" else None


def _shaped(table, ndim):
    """An operation that makes an array of another shape, at indices that are computed or not."""

    def rule(w):
        x, i, k = w.var(ndim=ndim, least=2), w.var("i", ndim=0), w.var("i", ndim=1)
        n, m, part = x.shape[0], x.shape[-1], int(w.rng.integers(1, x.shape[0] + 1))
        text, shape = lines(table)[w.rng.integers(len(lines(table)))]
        shape = k.shape if shape == "shape of k" else eval(shape, {"n": n, "m": m, "l": part, "max": max})
        mode = w.pick("clip", "fill", "drop", "promise_in_bounds")
        values = {"x": x.name, "i": i.name, "k": k.name, "n": n, "l": part, "mode": mode, "shape": k.shape}
        values |= {"j": f"jnp.clip({i.name}, 0, {n - 1})" if mode == "promise_in_bounds" else i.name}
        values |= {"how": w.pick("set", "add", "multiply", "min", "max"), "fill": mode.replace("drop", "fill")}
        return w.let(spelled(text, **values), "f", shape) if 0 < np.prod(shape) <= MOST else None

    return rule


def whole(w):
    i, j = w.var("i"), w.var("i")
    j = j if i.shape == j.shape or () in (i.shape, j.shape) else i
    text = w.phrase(phrases.WHOLE)
    shape = (
        ()
        if text.startswith(("jnp.sum", "jnp.max("))
        else np.broadcast_shapes(i.shape, j.shape if "{j}" in text else ())
    )
    return w.let(spelled(text, i=i.name, j=j.name), "i", shape)


def truth(w):
    if w.chance(0.5):
        x, y = w.var(), w.var()
        y = x if x.shape != y.shape else y
        test = w.pick("<", ">", "<=", ">=", "!=", "==")
        return w.let(f"{x.name} {test} {w.pick(w.number(), '0.5 * ' + y.name)}", "b", x.shape)
    a, b = w.var("b"), w.var("b")
    b = a if a.shape != b.shape else b
    return w.let(w.phrase(phrases.TRUTH, a=a.name, b=b.name), "b", a.shape)


def mixed(w):
    """Truth values and whole numbers in real ones."""
    x, i, b = w.var(), w.var("i"), w.var("b")
    b = b.name if b.shape in ((), x.shape) else f"jnp.any({b.name})"
    i = i.name if i.shape in ((), x.shape) else f"jnp.sum({i.name})"
    return w.let(w.phrase(phrases.MIXED, x=x.name, i=i, b=b), "f", x.shape)


def complex_made(w):
    x = w.var()
    return w.let(w.phrase(phrases.COMPLEX_MADE, x=x.name), "c", x.shape)


unary, single = _plain(phrases.UNARY, "f"), _plain(phrases.SINGLE, "f")
complex_more, complex_back = _plain(phrases.COMPLEX_MORE, "c"), _plain(phrases.COMPLEX_BACK, "c")
array, matrix, dynamic = _shaped(phrases.ARRAY, 1), _shaped(phrases.MATRIX, 2), _shaped(phrases.DYNAMIC, 1)


# Statements with others inside.


def call(w):
    shape = w.shape()
    args, given = w.arguments()
    wrap = w.pick("jit", "jit", "jit", "checkpoint", "named_call", "custom_jvp", "custom_vjp", "", "stop_gradient")
    if wrap == "stop_gradient":
        name = w.body(args, [Var("", "f", shape)])
        return w.let(f"lax.stop_gradient({name}({', '.join(given)}))", "f", shape)
    if wrap in ("custom_jvp", "custom_vjp"):
        return custom(w, shape, wrap)
    name = w.body(args, [Var("", "f", shape)], decorators=[f"@jax.{wrap}"] if wrap else [])
    return w.let(f"{name}({', '.join(given)})", "f", shape)


def custom(w, shape, wrap):
    """A function with a derivative of its own, which need not be the right one."""
    if w.kinds.right_rules:
        return custom_right(w, shape, wrap)
    x = w.var()
    arg = [Var(w.fresh("y"), "f", x.shape)]
    outside, w.scope = w.scope, [v for v in w.scope if v.name.startswith("np.")]  # captures nothing that is traced
    name = w.body(arg, [Var("", "f", shape)], decorators=[f"@jax.{wrap}"])
    factor = w.body([Var(w.fresh("y"), "f", x.shape)], [Var("", "f", shape)], statements=1)
    rule = w.fresh("rule")
    if wrap == "custom_jvp":
        w.line(
            f"{name}.defjvp(lambda primals, tangents: ({name}(*primals), {factor}(*primals) * jnp.sum(tangents[0])))"
        )
    else:
        w.line(f"{rule} = lambda kept, c: (jnp.sum({factor}(kept) * c) * jnp.cos(kept),)")
        w.line(f"{name}.defvjp(lambda y: ({name}(y), y), {rule})")
    w.scope = outside
    return w.let(f"{name}({x.name})", "f", shape)


def custom_right(w, shape, wrap):
    """A function with a rule that is its derivative."""
    x = w.var()
    arg = [Var(w.fresh("y"), "f", x.shape)]
    outside, w.scope = w.scope, [v for v in w.scope if v.name.startswith("np.")]
    plain, own = w.body(arg, [Var("", "f", shape)]), w.fresh("own")
    w.line(f"{own} = jax.{wrap}({plain})")
    if wrap == "custom_jvp":
        w.line(f"{own}.defjvp(lambda primals, tangents: jax.jvp({plain}, primals, tangents))")
    else:
        w.line(f"{own}.defvjp(lambda y: ({plain}(y), y), lambda kept, c: jax.vjp({plain}, kept)[1](c))")
    w.scope = outside
    return w.let(f"{own}({x.name})", "f", shape)


def cond(w):
    shape, b = w.shape(), w.var("b")
    args, given = w.arguments()
    names = [w.body(args, [Var("", "f", shape)]) for _ in range(2)]
    test = b.name if b.shape == () else f"jnp.{w.pick('any', 'all')}({b.name})"
    return w.let(f"lax.cond({test}, {', '.join(names)}, {', '.join(given)})", "f", shape)


def switch(w):
    shape, i = w.shape(), w.var("i")
    args, given = w.arguments()
    names = [w.body(args, [Var("", "f", shape)]) for _ in range(w.rng.integers(1, 4))]
    index = i.name if i.shape == () else f"{i.name}.ravel()[0]"
    return w.let(f"lax.switch({index}, [{', '.join(names)}], {', '.join(given)})", "f", shape)


def scan(w):
    n = int(w.rng.integers(1, 5))
    carry, row = Var(w.fresh("c"), "f", w.shape()), Var(w.fresh("r"), "f", ())
    kinds = [Var("", "f", carry.shape), Var("", w.pick("f", "f", "i"), ())]
    k = Var(w.fresh("k"), "i", ())
    two = w.chance(0.4)
    rows = f"jnp.resize({w.var().name}, ({n},))"
    if two:
        name = w.fresh(w.rng.choice(w.kinds.names))
        inner = w.body([carry, row, k], kinds)
        w.line(f"def {name}(c, rows):")
        w.line(f"    return {inner}(c, *rows)")
        rows = f"({rows}, jnp.arange({n}))"
    else:
        name = w.body([carry, row], kinds)
    init = f"jnp.resize({w.var().name}, {carry.shape})" if carry.shape else f"jnp.sum({w.var().name})"
    options = w.pick("", ", reverse=True", ", unroll=2")
    out, ys = w.fresh("x"), w.fresh("x")
    w.line(f"{out}, {ys} = lax.scan({name}, jnp.asarray({init}, float), {rows}{options})")
    w.scope += [Var(out, "f", carry.shape), Var(ys, kinds[1].kind, (n,))]
    return w.scope[-1]


def fori(w):
    shape = w.shape()
    args = [Var(w.fresh("k"), "i", ()), Var(w.fresh("c"), "f", shape)]
    name = w.body(args, [Var("", "f", shape)])
    init = w.fitted(Var("", "f", shape))
    i = w.var("i")
    if w.kinds.while_loops and w.chance(0.6):
        upper = f"jnp.clip(jnp.sum({i.name}), 0, 4).astype(int)"
        return w.let(f"lax.fori_loop(0, {upper}, {name}, {init})", "f", shape)
    return w.let(f"lax.fori_loop({w.pick('0, 3', '1, 3', '0, 1', '0, 0')}, {name}, {init})", "f", shape)


def loop(w):
    """A while loop whose end depends on the numbers; inside of stop_gradient if it is to be differentiated."""
    shape = w.shape()
    carry = Var(w.fresh("c"), "f", shape)
    name = w.body([carry], [Var("", "f", shape)], statements=int(w.rng.integers(0, 2)))
    limit, init = int(w.rng.integers(1, 6)), w.fitted(Var("", "f", shape))
    init = init if w.kinds.while_loops else f"lax.stop_gradient({init})"
    test = w.pick("jnp.sum(s[1]) < 0.9", "jnp.max(s[1]) > 0.2", "jnp.any(s[1] > 0.1)", "s[0] >= 0")
    body, more = f"lambda s: (s[0] + 1, {name}(s[1]))", f"lambda s: (s[0] < {limit}) & ({test})"
    if not w.kinds.while_loops:
        body = f"lambda s: (s[0] + 1, lax.stop_gradient({name}(s[1])))"
    first = w.pick("0", f"jnp.asarray({w.var('i').name}, int).ravel()[0] % 3")
    out, passes = w.fresh("x"), w.fresh("i")
    w.line(f"{passes}, {out} = lax.while_loop({more}, {body}, ({first}, {init}))")
    w.scope += [Var(passes, "i", ()), Var(out, "f", shape)]
    return w.scope[-1]


def mapped(w):
    """One function of each element: what is inside sees one, and is batched."""
    x = w.var(ndim=w.pick(1, 2))
    rest = x.shape[1:]
    shape = w.pick((), (2,), (3,))
    if x.shape[0] * max(np.prod(shape), 1) > MOST:
        shape = ()
    name = w.body([Var(w.fresh("y"), "f", rest)], [Var("", "f", shape)])
    how = w.pick(
        f"jax.vmap({name})({x.name})", f"lax.map({name}, {x.name})", f"jax.vmap({name}, out_axes=-1)({x.name})"
    )
    out = (*shape, x.shape[0]) if "out_axes" in how else (x.shape[0], *shape)
    return w.let(how, "f", out)


def derivative(w):
    """The derivative of an inner function, inside."""
    x = w.var(ndim=1)
    name = w.body([Var(w.fresh("y"), "f", x.shape)], [Var("", "f", ())])
    how = w.pick("jax.grad({f})({x})", "jax.jacfwd({f})({x})", "jax.jvp({f}, ({x},), (jnp.ones({n}),))[1] * {x}")
    return w.let(how.format(f=name, x=x.name, n=x.shape), "f", x.shape)


COMPLEX = {complex_made, complex_more, complex_back}
PLAIN = [unary, unary, binary, binary, bounded, array, array, array, matrix, dynamic, dynamic, dynamic]
PLAIN += [whole, whole, truth, mixed, mixed, single, complex_made, complex_more, complex_back]
NESTED = [call, call, cond, cond, switch, scan, fori, loop, mapped, derivative]
