"""Random systems over the sites of a lattice, each as JAX functions and as the same functions of NumPy.

`Lattice(seed)` draws a Hamiltonian, a forcing and a noise from tables of operations on arrays of these kinds:

    V (N, 3) a vector at each site    S (N,) a number at each site    H (N/2, 3) vectors at half of the sites
    R (3,) one vector                 C () one number

`energy`, `forcing` and `stirred` (noise) take a namespace `xp`, `JaxNamespace` or `NumpyNamespace`. The number of sites
is that of the state, so that one program runs at all sizes.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


class NumpyNamespace:
    """NumPy, with what JAX spells differently."""

    np = np
    where, einsum, roll, flip, cumsum, sort = np.where, np.einsum, np.roll, np.flip, np.cumsum, np.sort

    @staticmethod
    def map(fn, x):
        return np.stack([fn(row) for row in x])

    @staticmethod
    def scan(fn, x):
        carry, out = np.zeros_like(x[0]), []
        for row in x:
            carry, y = fn(carry, row)
            out.append(y)
        return np.stack(out)

    @staticmethod
    def cond(test, yes, no, x):
        return yes(x) if test else no(x)

    @staticmethod
    def add_at(x, index, y):
        out = np.array(x)
        np.add.at(out, index, y)
        return out

    @staticmethod
    def jit(fn):
        return fn


class JaxNamespace:
    """The same of JAX."""

    np = jnp
    where, einsum, roll, flip, cumsum, sort = jnp.where, jnp.einsum, jnp.roll, jnp.flip, jnp.cumsum, jnp.sort
    map, jit = staticmethod(lax.map), staticmethod(jax.jit)

    @staticmethod
    def scan(fn, x):
        return lax.scan(fn, jnp.zeros_like(x[0]), x)[1]

    @staticmethod
    def cond(test, yes, no, x):
        return lax.cond(test, yes, no, x)

    @staticmethod
    def add_at(x, index, y):
        return jnp.asarray(x).at[index].add(y)


MATRIX = np.array([[0.3, -0.7, 0.2], [0.5, 0.1, -0.4], [-0.6, 0.8, 0.9]])
ROW = np.array([0.4, -0.9, 0.7])
A, Z = 8, 3  # rows of a lattice seen as two-dimensional; a site like any other


def grid(v):
    return v.reshape(A, -1, 3)


def shared(v):  # a function of parts of a lattice, so that they are arrays of its sites again
    return v.reshape(-1, 3)


# name: (kinds of operands and of the result, function of the namespace and the operands). What sites do by themselves,
# or with neighbours:
LOCAL = {
    **{f"sin {k}": (k + k, lambda xp, x: xp.np.sin(x)) for k in "VSHRC"},
    **{f"tanh {k}": (k + k, lambda xp, x: xp.np.tanh(x)) for k in "VSHRC"},
    **{f"bump {k}": (k + k, lambda xp, x: x / (1.0 + x * x)) for k in "VSC"},
    **{f"bend {k}": (k + k, lambda xp, x: xp.where(x > 0.3, x, 0.09 + 0.7 * x)) for k in "VS"},
    **{f"mul {k}": (3 * k, lambda xp, x, y: 0.7 * x * y) for k in "VSHRC"},
    **{f"linear {k}": (3 * k, lambda xp, x, y: 0.6 * x - 0.8 * y) for k in "VSHRC"},
    **{f"larger {k}": (3 * k, lambda xp, x, y: xp.np.maximum(x, y)) for k in "VS"},
    **{f"choose {k}": (3 * k, lambda xp, x, y: xp.where(x > y, x * y, y * y)) for k in "VSH"},
    "scale": ("SVV", lambda xp, s, v: s[:, None] * v),
    "scale by einsum": ("SVV", lambda xp, s, v: xp.einsum("i,ia->ia", s, v)),
    "component": ("VS", lambda xp, v: v[:, 1]),
    "components": ("VVV", lambda xp, v, w: xp.np.stack([v[:, 0], w[:, 2], v[:, 1]], axis=1)),
    "column": ("VV", lambda xp, v: v[:, 2:] * v),
    "sum of components": ("VS", lambda xp, v: xp.np.sum(v, axis=1)),
    "largest component": ("VS", lambda xp, v: xp.np.max(v, axis=1)),
    "product of components": ("VS", lambda xp, v: xp.np.prod(xp.np.tanh(v), axis=1)),
    "spread": ("SV", lambda xp, s: xp.np.broadcast_to(s[:, None], (s.shape[0], 3))),
    "dot": ("VVS", lambda xp, v, w: xp.einsum("ia,ia->i", v, w)),
    "matrix": ("VV", lambda xp, v: v @ MATRIX),
    "matrix before": ("VV", lambda xp, v: (MATRIX @ v.T).T),
    "form": ("VVS", lambda xp, v, w: xp.einsum("ia,ab,ib->i", v, MATRIX, w)),
    "row": ("VS", lambda xp, v: v @ ROW),
    "outer": ("VVV", lambda xp, v, w: xp.einsum("iab,ib->ia", xp.einsum("ia,ib->iab", v, w), w) * 0.3),
    "cross": ("VVV", lambda xp, v, w: xp.np.cross(v, w)),
    "cross row": ("VV", lambda xp, v: xp.np.cross(v, ROW)),
    "roll": ("VV", lambda xp, v: xp.roll(v, 1, 0)),
    "roll far": ("SS", lambda xp, s: xp.roll(s, -5)),
    "roll inside": ("VV", lambda xp, v: xp.roll(v, 1, 1)),
    "roll grid": ("VV", lambda xp, v: shared(xp.roll(grid(v), 1, 0))),
    "roll grid's other axis": ("VV", lambda xp, v: shared(xp.roll(grid(v), -2, 1))),
    "roll flat": ("VV", lambda xp, v: xp.roll(v.reshape(-1), 3).reshape(-1, 3)),
    "flip": ("VV", lambda xp, v: xp.flip(v, 0)),
    "flip inside": ("VV", lambda xp, v: xp.flip(v, 1)),
    "flip grid": ("VV", lambda xp, v: shared(xp.flip(grid(v), 1))),
    "swap grid": ("VV", lambda xp, v: shared(grid(v).swapaxes(0, 1))),
    "continued": ("VV", lambda xp, v: (lambda e: e[2:] - e[:-2])(xp.np.concatenate([v[-1:], v, v[:1]]))),
    "neighbours": ("VV", lambda xp, v: xp.np.stack([xp.roll(v, k, 0) for k in (1, -1, 4)]).sum(0)),
    "halves swapped": ("VV", lambda xp, v: xp.np.concatenate([v[v.shape[0] // 2 :], v[: v.shape[0] // 2]])),
    "split": ("VV", lambda xp, v: xp.np.concatenate(xp.np.split(xp.np.sin(v), 4))),
    "jit": ("VV", lambda xp, v: xp.jit(lambda w: xp.np.tanh(w) * w)(v)),
    "map": ("VV", lambda xp, v: xp.map(lambda row: xp.np.tanh(row) * row, v)),
    "map flips": ("VV", lambda xp, v: xp.map(lambda row: row[::-1] * row, v)),
    "map grid": ("VV", lambda xp, v: shared(xp.map(lambda rows: xp.np.sin(rows) * rows, grid(v)))),
    "map two": ("VV", lambda xp, v: xp.map(lambda row: row[0] * row[1], xp.np.stack([v, xp.np.cos(v)], axis=1))),
}
# What reads single sites, parts of the lattice, or all of it:
WIDE = {
    "site": ("VR", lambda xp, v: v[Z]),
    "last site": ("VR", lambda xp, v: v[-1]),
    "number": ("SC", lambda xp, s: s[0]),
    "number of a vector": ("VC", lambda xp, v: v[Z, 1]),
    "by one": ("CVV", lambda xp, c, v: c * v),
    "by one number": ("CSS", lambda xp, c, s: xp.np.tanh(c * s)),
    "by a row": ("RVV", lambda xp, r, v: r * v),
    "by a slice": ("VVV", lambda xp, v, w: v[Z : Z + 1] * w),
    "with a row": ("VRS", lambda xp, v, r: v @ r),
    "row with": ("RVS", lambda xp, r, v: xp.einsum("a,ia->i", r, v)),
    "row times": ("RVS", lambda xp, r, v: r @ v.T),
    "with a site": ("VS", lambda xp, v: v @ v[0]),
    "with every fourth": ("VS", lambda xp, v: xp.einsum("ia,ba->i", v, v[:4])),
    "choose by one": ("CVV", lambda xp, c, v: xp.where(c > 0.1, v, v * v)),
    "clip by one": ("CSS", lambda xp, c, s: xp.np.clip(s, -abs(c), 1.0)),
    "outer row": ("RSV", lambda xp, r, s: xp.np.outer(s, r)),
    "first half": ("VH", lambda xp, v: v[: v.shape[0] // 2]),
    "last half": ("VH", lambda xp, v: v[v.shape[0] // 2 :]),
    "even sites": ("VH", lambda xp, v: v[::2]),
    "odd sites": ("VH", lambda xp, v: v[1::2]),
    "half of pairs": ("VH", lambda xp, v: v.reshape(-1, 6)[:, 3:]),
    "dot of halves": ("HHR", lambda xp, h, k: xp.einsum("ia,ia->a", h, k) / h.shape[0]),
    "join": ("HHV", lambda xp, h, k: xp.np.concatenate([h, k])),
    "interleave": ("HHV", lambda xp, h, k: xp.np.stack([h, k], axis=1).reshape(-1, 3)),
    "repeat": ("HV", lambda xp, h: xp.np.repeat(h, 2, axis=0)),
    "pad": ("HV", lambda xp, h: xp.np.concatenate([h, xp.np.zeros_like(h)])),
    "tile": ("HV", lambda xp, h: xp.np.tile(h, (2, 1))),
    "roll numbers": ("VV", lambda xp, v: xp.roll(v.reshape(-1), 1).reshape(-1, 3)),
    "transpose": ("VV", lambda xp, v: v.reshape(3, -1).T),
    "transposed": ("VV", lambda xp, v: v.T.reshape(-1, 3)),
    "flip numbers": ("VV", lambda xp, v: xp.flip(v.reshape(-1), 0).reshape(-1, 3)),
    "sum over sites": ("VR", lambda xp, v: xp.np.mean(v, axis=0)),
    "mean": ("VC", lambda xp, v: xp.np.mean(v)),
    "largest": ("VR", lambda xp, v: xp.np.max(v, axis=0)),
    "weighted": ("SVR", lambda xp, s, v: xp.einsum("i,ia->a", s, v) / s.shape[0]),
    "moment": ("VV", lambda xp, v: v @ (xp.einsum("ia,ib->ab", v, v) / v.shape[0])),
    "mean field": ("VVV", lambda xp, v, w: w @ (v.T @ w) / v.shape[0]),
    "columns": ("VV", lambda xp, v: shared(grid(v) * xp.np.mean(grid(v), axis=0))),
    "rows": ("VV", lambda xp, v: shared(grid(v) - grid(v)[:, :1])),
    "permuted": ("VV", lambda xp, v: v[(5 * np.arange(v.shape[0]) + 2) % v.shape[0]]),
    "table": ("VV", lambda xp, v: v[(np.arange(v.shape[0])[:, None] + np.array([1, 7])) % v.shape[0]].sum(1)),
    "chosen site": ("VR", lambda xp, v: v[xp.np.argmax(v[:, 0])]),
    "chosen sites": ("SS", lambda xp, s: s[xp.np.floor(xp.np.abs(s) * 7).astype(int) % s.shape[0]]),
    "scattered": ("VV", lambda xp, v: xp.add_at(v, (3 * np.arange(v.shape[0])) % v.shape[0], 0.5 * v)),
    "set a site": ("VV", lambda xp, v: xp.add_at(v, np.array([Z]), v[:1])),
    "running sum": ("VV", lambda xp, v: xp.np.sin(xp.cumsum(v, 0))),
    "running sum inside": ("VV", lambda xp, v: xp.cumsum(v, 1)),
    "sorted": ("SS", lambda xp, s: xp.sort(s)),
    "sorted inside": ("VV", lambda xp, v: xp.sort(v, 1)),
    "by place": ("SS", lambda xp, s: s * np.cos(np.arange(s.shape[0]))),
    "in steps": ("SS", lambda xp, s: s * (np.arange(s.shape[0]) % 2)),
    "map with a row": ("RVV", lambda xp, r, v: xp.map(lambda row: row * r[::-1], v)),
    "map with sites": ("VVV", lambda xp, v, w: xp.map(lambda row: row * w[0], v)),
    "map with products": ("VVV", lambda xp, v, w: xp.map(lambda row: row * (w @ row)[Z], v)),
    "map with numbers": ("SVV", lambda xp, s, v: xp.map(lambda row: row * xp.np.sin(s)[1], v)),
    "map of shifts": ("VV", lambda xp, v: shared(xp.map(lambda rows: xp.roll(rows, 1, 0) * rows, grid(v)))),
    "map of parts": ("VV", lambda xp, v: shared(xp.map(lambda rows: rows * rows[0], grid(v)))),
    "map of sums": ("VV", lambda xp, v: shared(xp.map(lambda rows: rows * xp.np.mean(rows), grid(v)))),
    "map and a whole": ("VVV", lambda xp, v, w: shared(xp.map(lambda rows: rows + grid(w)[0], grid(v)))),
    "scan": ("VV", lambda xp, v: xp.scan(lambda c, row: (0.5 * c + row, c * row), v)),
    "cond": ("VV", lambda xp, v: xp.cond(v[Z, 0] > 0.1, lambda w: xp.np.sin(w), lambda w: w * w, v)),
    "cond of all": ("VV", lambda xp, v: xp.cond(xp.np.sum(v) > 0.1, lambda w: xp.np.sin(w), lambda w: w * w, v)),
}
# Only where no derivative is taken:
CAST = {
    "float32": ("VV", lambda xp, v: (v.astype(np.float32) * np.float32(1.5)).astype(float)),
    "whole": ("SS", lambda xp, s: 0.25 * xp.np.floor(4.0 * s).astype(np.int32)),
    "truth": ("SS", lambda xp, s: (s > 0.0) * s),
    "index": ("VR", lambda xp, v: v[(xp.np.argmin(v[:, 1]) + 1) % v.shape[0]]),
}


def params_of(N, seed):
    """Parameters some of which belong to sites; lengths of others only look so."""
    rng = np.random.default_rng([seed, N])
    shapes = {"J": (N,), "B": (N, 3), "T": (3, N), "K": (2 * N, 3), "F": (3 * N,), "D": (N // 2, 6), "r": (3,), "c": ()}
    return {name: rng.standard_normal(shape) for name, shape in shapes.items()}


INPUTS = {  # what programs start from: kind, and how it is found in the state and the parameters
    "J": ("S", lambda v, p: p["J"]),
    "B": ("V", lambda v, p: p["B"]),
    "c": ("C", lambda v, p: p["c"]),
    "r": ("R", lambda v, p: p["r"]),
    "J0": ("C", lambda v, p: p["J"][0]),
    "B3": ("R", lambda v, p: p["B"][Z]),
    "T": ("V", lambda v, p: p["T"].T),
    "T0": ("S", lambda v, p: p["T"][0]),
    "K first": ("V", lambda v, p: p["K"][: v.shape[0]]),
    "K last": ("V", lambda v, p: p["K"][v.shape[0] :]),
    "K even": ("V", lambda v, p: p["K"][::2]),
    "K pairs": ("V", lambda v, p: p["K"].reshape(-1, 2, 3)[:, 1]),
    "F": ("V", lambda v, p: p["F"].reshape(-1, 3)),
    "F third": ("S", lambda v, p: p["F"][: v.shape[0]]),
    "D": ("V", lambda v, p: p["D"].reshape(-1, 3)),
    "D half": ("H", lambda v, p: p["D"][:, 3:]),
}
SAFE = ["J", "B", "c", "r", "J0", "B3", "K pairs", "F"]


class Expression:
    """A random function of the state and the parameters, of one kind."""

    def __init__(self, rng, kind, wide, casts=False):
        names = rng.choice(SAFE, size=4, replace=False)
        names = np.append(names, rng.choice(list(INPUTS))) if wide > 1 else names
        self.inputs = [INPUTS[name] for name in names]
        kinds, self.plan, self.names = ["V", "V", *(k for k, _ in self.inputs)], [], names.tolist()
        tables = {**LOCAL, **(WIDE if wide else {}), **(CAST if casts else {})}
        left, want = wide, rng.integers(3, 10)
        while len(self.plan) < want or kinds[-1] != kind:
            table = WIDE if left and rng.random() < 0.4 else LOCAL
            table = CAST if casts and rng.random() < 0.1 else table
            name = rng.choice(list(table))
            *given, out = tables[name][0]
            found = [self._one(rng, kinds, k) for k in given]
            if None in found or (len(self.plan) > 60 and out != kind):
                continue
            left -= table is WIDE
            kinds.append(out)
            self.plan.append((tables[name][1], found))
            self.names.append(str(name))
        self.kinds = kinds

    def _one(self, rng, kinds, kind):
        """One of the last values of a kind."""
        places = [i for i, k in enumerate(kinds) if k == kind]
        return None if not places else places[-1 - min(rng.geometric(0.4) - 1, len(places) - 1)]

    def __call__(self, xp, mu, p):
        v = mu.reshape(-1, 3)
        values = [v, 0.8 * v, *(find(v, p) for _, find in self.inputs)]
        for fn, given in self.plan:
            values.append(fn(xp, *(values[i] for i in given)))
        return values[-1]


class Lattice:
    """A random system of spins: its functions, and what they are made of."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        wide = rng.permutation([int(rng.choice([0, 1, 2, 4], p=(0.2, 0.5, 0.2, 0.1))), 0, 0, 0])  # one is not local
        self.seed, self.terms = seed, [Expression(rng, str(rng.choice(["V", "S"])), k) for k in wide[:2]]
        self.force = Expression(rng, "V", wide[2], casts=True) if wide[2] or rng.random() < 0.3 else None
        self.noise = Expression(rng, "V", wide[3]) if wide[3] or rng.random() < 0.2 else None
        self.exact = self.force is None or "float32" not in self.force.names

    @property
    def names(self):
        """The operations."""
        return [e.names for e in (*self.terms, self.force, self.noise) if e is not None]

    def energy(self, xp, mu, p):
        """h."""
        a, b = (term(xp, mu, p) for term in self.terms)
        return xp.np.sum(xp.np.sin(a)) + 0.5 * xp.np.sum(b)

    def forcing(self, xp, mu, p):
        """The element of the algebra that is added to ∂h, flat."""
        return xp.np.tanh(self.force(xp, mu, p)).reshape(-1)

    def stirred(self, xp, mu, dS, p):
        """Σ_i ∂h_i dS_i, flat: an increment for each site."""
        return (xp.np.tanh(self.noise(xp, mu, p)) * dS[:, None]).reshape(-1)
