"""A third evaluation of JAX programs: their jaxprs, equation by equation, by NumPy and SciPy alone.

    evaluate(jax.make_jaxpr(f)(x), [x])                 # the results of f(x), as NumPy arrays
    evaluate(jax.make_jaxpr(f)(x), [x], Noise(0))       # the same with every result off by a small relative error

The rules follow the documentation of `jax.lax`: slices and gathers clamp their indices, scatters drop updates outside
of the array, conversions to integers saturate, integers wrap around. They share no code with `stepcompiler`.
"""

import jax
import numpy as np
from jax.extend import core as jex
from numpy_rules import ELEMENTWISE, EXACT, RULES, Unsupported

from stepcompiler.jaxprs.equations import CALLS, callee, closed, scan_of

MOST_PASSES = 10_000  # through one loop

PRODUCTS = {"mul", "div", "dot_general", "integer_pow", "square", "pow", "reduce_prod", "cumprod"}


class Noise:
    """Relative errors of every floating-point result, to see how far round-off may carry; zeros have any sign.

    Products of complex numbers have errors relative to their absolute value: a real part that cancels need not be 0.
    """

    def __init__(self, seed, double=1e-12, single=1e-6):
        self.rng, self.size = np.random.default_rng(seed), {4: single, 8: double}

    def __call__(self, x, name=""):
        if x.dtype.kind not in "fc":
            return x
        size = self.size.get(x.dtype.itemsize // (2 if x.dtype.kind == "c" else 1), 1e-3)
        signs = self.rng.choice([-1.0, 1.0], x.shape)
        if x.dtype.kind == "c" and name in PRODUCTS:
            return (x + size * np.abs(x) * (signs + 1j * self.rng.choice([-1.0, 1.0], x.shape))).astype(x.dtype)
        y = (x * (1.0 + size * signs)).astype(x.dtype)
        return y if x.dtype.kind == "c" else np.where(y == 0, np.copysign(y, signs), y).astype(x.dtype)


def evaluate(program, args, noise=None):
    """The results of a closed jaxpr."""
    with np.errstate(all="ignore"):
        return _evaluate(program, [np.asarray(x) for x in args], noise)


def _evaluate(program, args, noise):
    jaxpr = program.jaxpr
    env = dict(zip(jaxpr.constvars, map(np.asarray, program.consts), strict=True))
    env.update(zip(jaxpr.invars, args, strict=True))

    def read(v):
        return np.asarray(v.val, getattr(v.aval, "dtype", None)) if isinstance(v, jex.Literal) else env[v]

    for eqn in jaxpr.eqns:
        name, xs = eqn.primitive.name, [read(v) for v in eqn.invars]
        if name in CALLS:
            out = _evaluate(callee(eqn), xs, noise)
        elif name in CONTROL:
            out = CONTROL[name](eqn, xs, noise)
        else:
            out = _apply(name, eqn, xs)
            out = out if noise is None or name in EXACT else [noise(y, name) for y in out]
        env.update(zip(eqn.outvars, out, strict=True))
    return [read(v) for v in jaxpr.outvars]


def _apply(name, eqn, xs):
    avals = [v.aval for v in eqn.outvars]
    if name in ELEMENTWISE:
        out = [ELEMENTWISE[name](*np.broadcast_arrays(*xs))]
    elif name in RULES:
        out = RULES[name](eqn.params, avals[0], *xs)
        out = out if isinstance(out, list) else [out]
    else:
        raise Unsupported(name)
    out = [np.asarray(y).astype(a.dtype) for y, a in zip(out, avals, strict=True)]
    for y, a in zip(out, avals, strict=True):
        assert y.shape == a.shape, (name, y.shape, a.shape)
    return out


# Branches and loops. Calls are in `_evaluate`.


def _cond(eqn, xs, noise):
    branches = eqn.params["branches"]
    return _evaluate(closed(branches[int(np.clip(int(xs[0]), 0, len(branches) - 1))]), xs[1:], noise)


def _while(eqn, xs, noise):
    nc, nb = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
    cond, body = closed(eqn.params["cond_jaxpr"]), closed(eqn.params["body_jaxpr"])
    state = xs[nc + nb :]
    for _ in range(MOST_PASSES):
        (going,) = _evaluate(cond, [*xs[:nc], *state], noise)
        if not np.any(going):
            return state
        new = _evaluate(body, [*xs[nc : nc + nb], *state], noise)
        state = [_frozen(going, a, b) for a, b in zip(new, state, strict=True)] if going.ndim else new
    raise Unsupported("A loop that does not end.")


def _frozen(going, new, old):
    """Of loops side by side, as `vmap` makes them, those that have ended keep what they have."""
    return np.where(going.reshape(going.shape + (1,) * (new.ndim - going.ndim)), new, old)


def _scan(eqn, xs, noise):
    body, nc, nk, length, reverse = scan_of(eqn.params)
    constants, carry, rows = xs[:nc], xs[nc : nc + nk], xs[nc + nk :]
    stacks = [np.zeros(v.aval.shape, v.aval.dtype) for v in eqn.outvars[nk:]]
    for i in range(length)[:: -1 if reverse else 1]:
        out = _evaluate(body, [*constants, *carry, *(r[i] for r in rows)], noise)
        carry = out[:nk]
        for stack, y in zip(stacks, out[nk:], strict=True):
            stack[i] = y
    return [*carry, *stacks]


def _linear_solve(eqn, xs, noise):
    lengths, jaxprs = eqn.params["const_lengths"], eqn.params["jaxprs"]
    start = lengths.matvec + lengths.vecmat
    return _evaluate(closed(jaxprs.solve), [*xs[start : start + lengths.solve], *xs[sum(lengths) :]], noise)


CONTROL = {"cond": _cond, "while": _while, "scan": _scan, "custom_linear_solve": _linear_solve}


def interpreted(fn, *args, noise=None):
    """fn(*args) by NumPy, with the structure of its results."""
    program, shape = jax.make_jaxpr(fn, return_shape=True)(*args)
    return jax.tree.unflatten(jax.tree.structure(shape), evaluate(program, jax.tree.leaves(args), noise))
