"""Random programs, and how far apart two correct evaluations of one may be.

`program(seed)` is a function of four numbers, made of a dozen or so operations drawn from a table. `reference`
evaluates it with JAX, operation by operation, and again with every result off by some units in the last place: how far
those come apart is how far round-off may carry, branches that may go either way included.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core as jex

from stepcompiler.jaxprs.equations import CALLS, callee
from stepcompiler.jaxprs.interning import eval_equation

SAMPLES = 6
NOISE = 32 * 2.0**-53
HUGE = 1e280
_FAST = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}  # to compile

UNARY = {
    **{name: getattr(lax, name) for name in "sin cos tanh atan erf sign floor ceil abs neg cbrt logistic".split()},
    **{name: getattr(lax, name) for name in "log sqrt asin acosh rsqrt log1p".split()},  # NaN for some numbers
    "exp": lambda x: lax.exp(jnp.clip(x, -20.0, 20.0)),
    "expm1": lambda x: lax.expm1(jnp.tanh(x)),
    "sinh": lambda x: jnp.sinh(jnp.clip(x, -9.0, 9.0)),
    "asinh": jnp.arcsinh,
    "tan": lambda x: jnp.tan(jnp.tanh(x)),
    "square": lax.square,
    "cube": lambda x: lax.integer_pow(x, 3),
    "inverse square": lambda x: lax.integer_pow(1.0 + x * x, -2),
    "round": jnp.round,
    "exp2": lambda x: jnp.exp2(jnp.clip(x, -20.0, 20.0)),
    "erf_inv": lambda x: lax.erf_inv(0.9 * jnp.tanh(x)),
    "erfc": lambda x: lax.erfc(jnp.clip(x, -5.0, 5.0)),
    "relu": jax.nn.relu,
    "softplus": jax.nn.softplus,
    "frexp": lambda x: jnp.frexp(x)[0],
    "nan_to_num": jnp.nan_to_num,
}
BINARY = {
    **{
        name: getattr(jnp, name)
        for name in "add subtract multiply divide maximum minimum arctan2 hypot logaddexp".split()
    },
    "power": lambda x, y: jnp.power(jnp.abs(x) + 0.1, jnp.clip(y, -5.0, 5.0)),
    "remainder": lambda x, y: x % (jnp.abs(y) + 0.5),
    "quotient": lambda x, y: jnp.floor_divide(x, jnp.abs(y) + 0.5),
    "where": lambda x, y: jnp.where(x < y, x, 2.0 * y),
    "clip": lambda x, y: jnp.clip(x, -jnp.abs(y), jnp.abs(y) + 1.0),
    "linear": lambda x, y: 0.3 * x - 1.7 * y,
    "interp": lambda x, y: (
        jnp.interp(jnp.ravel(x), jnp.array([-1.0, 0.0, 2.0]), jnp.array([3.0, 1.0, 2.0])) + jnp.sum(y)
    ),
    "copysign": lambda x, y: jnp.copysign(x, jnp.nan_to_num(y)),  # the sign of NaN is not specified
}


def _index(x, n):
    return jnp.clip(jnp.floor(3.0 * jnp.ravel(x)[:n]), -1e3, 1e3).astype(int)  # some out of bounds


def _gathered(x, mode):
    flat = jnp.ravel(x)
    return flat.at[_index(x, 3)].get(mode=mode, fill_value=0.7)


def _scattered(x, how, mode):
    flat = jnp.ravel(x)
    index = _index(jnp.sin(x), 3)
    return getattr(flat.at[index], how)(0.5 * flat[: len(index)] + 1.0, mode=mode)


def _linear_solve(x):
    flat = jnp.tanh(jnp.resize(x, (3,)))
    return jnp.linalg.solve(jnp.outer(flat, flat[::-1]) + 2.0 * jnp.eye(3), flat)


MATRIX = np.random.default_rng(5).standard_normal((3, 3))
ARRAYS = {
    "sum": lambda x: jnp.sum(x, axis=0),
    "total": jnp.sum,
    "mean": jnp.mean,
    "largest": jnp.max,
    "product": lambda x: jnp.prod(jnp.tanh(x)),
    "argmax": lambda x: 1.0 * jnp.argmax(x),
    "argmin": lambda x: 1.0 * jnp.argmin(x, axis=-1) if jnp.ndim(x) else x,
    "any": lambda x: jnp.where(jnp.any(x > 1.0), jnp.sum(x), x),
    "all": lambda x: jnp.where(jnp.all(x < 1.0) | (jnp.max(x) > 5.0), x, -x),
    "sort": lambda x: jnp.sort(jnp.ravel(x)),
    "argsort": lambda x: jnp.ravel(x)[jnp.argsort(jnp.ravel(x))[::-1]],
    "cumsum": lambda x: jnp.cumsum(jnp.ravel(x)),
    "cumprod": lambda x: jnp.cumprod(jnp.tanh(jnp.ravel(x))),
    "cummax": lambda x: lax.cummax(jnp.ravel(x), reverse=True),
    "cumlogsumexp": lambda x: lax.cumlogsumexp(jnp.ravel(x)),
    "logsumexp": lambda x: jax.scipy.special.logsumexp(x),
    "softmax": lambda x: jax.nn.softmax(jnp.ravel(x)),
    "matrix": lambda x: MATRIX @ jnp.resize(x, (3,)),
    "outer": lambda x: jnp.outer(jnp.ravel(x)[:3], jnp.ravel(x)[:2]),
    "einsum": lambda x: jnp.einsum("i,ij,j->i", jnp.resize(x, (3,)), MATRIX, jnp.resize(x, (3,))),
    "transpose": jnp.transpose,
    "reverse": lambda x: jnp.ravel(x)[::-1],
    "every second": lambda x: jnp.ravel(x)[::2],
    "pad": lambda x: jnp.pad(jnp.ravel(x), (1, 2), constant_values=0.3)[:6],
    "roll": lambda x: jnp.roll(jnp.ravel(x), 1),
    "halves": lambda x: jnp.stack([jnp.ravel(x)[:1], jnp.ravel(x)[-1:]]),
    "nothing": lambda x: jnp.sum(jnp.ravel(x)[:0]) + x,
    "clipped index": lambda x: _gathered(x, "clip"),
    "filled index": lambda x: _gathered(x, "fill"),
    "slice": lambda x: lax.dynamic_slice(jnp.resize(x, (4,)), (_index(x, 1)[0],), (2,)),
    "set slice": lambda x: lax.dynamic_update_slice(jnp.resize(x, (4,)), jnp.ones(2), (_index(x, 1)[0],)),
    "set": lambda x: _scattered(x, "set", "drop"),
    "add at": lambda x: _scattered(x, "add", "clip"),
    "solve": _linear_solve,
    "whole": lambda x: 1.0 * ((_index(x, 3) * 7 + 3) // 4 % 5 ^ (_index(x, 3) << 2) & 29),
    "bits": lambda x: 1.0 * lax.population_count(jnp.abs(_index(x, 2))) + lax.clz(_index(x, 2)),
    "window": lambda x: lax.reduce_window(jnp.ravel(x), 0.0, lax.add, (2,), (1,), "SAME"),
    "scan": lambda x: lax.scan(lambda c, a: (jnp.sin(c) + a, c * a), jnp.sum(x), jnp.ravel(x)[:3])[1],
    "scan back": lambda x: lax.scan(lambda c, a: (0.5 * c + a, c), 1.0, jnp.ravel(x)[:3], reverse=True)[0] + x,
    "fori": lambda x: lax.fori_loop(0, 3, lambda k, s: jnp.cos(s) + k * s, x),
    "cond": lambda x: lax.cond(jnp.sum(x) > 0.3, lambda y: jnp.sin(y) + 1.0, lambda y: y * 0.5, x),
    "switch": lambda x: lax.switch(_index(x, 1)[0], [jnp.sin, jnp.cos, lambda y: 0.1 * y], x),
    "jit": lambda x: jax.jit(lambda y: jnp.tanh(y) * y + 0.1)(x),
    "checkpoint": lambda x: jax.checkpoint(lambda y: jnp.sin(y) * y)(x),
}


def _shrunk(x):
    still = lambda s: jnp.max(jnp.abs(s)) > 1.0
    return lax.while_loop(still, lambda s: jnp.clip(0.3 * s, -5.0, 5.0), jnp.nan_to_num(x))


def _counted(x):
    still = lambda s: (s[0] < 9) & (s[1] > 0.1)
    return 1.0 * lax.while_loop(still, lambda s: (s[0] + 1, 0.6 * s[1]), (0, jnp.abs(jnp.sum(x))))[0]


LOOPS = {  # these have no gradients in reverse, or none with a native rule
    "while": _shrunk,
    "count": _counted,
    "multiply at": lambda x: _scattered(x, "mul", "drop"),
    "lgamma": lambda x: lax.lgamma(1.5 + x * x),
}


def program(seed: int, differentiable: bool = False):
    """A random function of an array of four numbers."""
    rng = np.random.default_rng(seed)
    pool, plan = [jax.ShapeDtypeStruct((4,), float)], []
    arrays = ARRAYS if differentiable else {**ARRAYS, **LOOPS}
    while len(plan) < rng.integers(6, 16):
        table, count = [(UNARY, 1), (BINARY, 2), (arrays, 1)][rng.choice(3, p=(0.3, 0.35, 0.35))]
        fn = table[rng.choice(list(table))]
        recent = len(pool) - 1 - rng.geometric(0.4, size=count) % len(pool)
        args = [int(i) for i in recent]
        if count == 2 and pool[args[0]].shape != pool[args[1]].shape and () not in (pool[a].shape for a in args):
            continue
        try:
            shape = jax.eval_shape(fn, *(pool[i] for i in args))
        except (TypeError, ValueError, IndexError):
            continue  # an operation that this shape does not have
        if 0 < shape.size <= 12:
            pool.append(jax.ShapeDtypeStruct(shape.shape, float))
            plan.append((fn, args))

    def run(x):
        values = [x]
        for fn, args in plan:
            values.append(jnp.asarray(fn(*(values[i] for i in args)), float))
        return jnp.concatenate([jnp.ravel(v) for v in values[-3:]])

    return run


def gradient(seed: int):
    """The gradient of a random function."""
    fn = program(seed, differentiable=True)
    return jax.grad(lambda x: jnp.sum(jnp.sin(fn(x))))


def reference(fn, x, seed, samples=SAMPLES):
    """fn of each row by JAX: values, how far they may be off, where it is certain whether they are NaN, and which rows
    had huge numbers on the way."""
    rows = np.concatenate([x] * (samples + 1))
    closed = jax.make_jaxpr(jax.vmap(fn))(rows)
    noise = Noise(len(x), seed, samples)
    with np.errstate(all="ignore"):
        run = jax.jit(lambda rows: (_evaluated(closed, [rows], noise)[0], noise.any_huge()), compiler_options=_FAST)
        out, huge = (np.asarray(y) for y in run(rows))
        out = out.reshape(samples + 1, len(x), -1)
        spread = np.where(np.all(out[1:] == out[0], axis=0), 0.0, np.max(np.abs(out[1:] - out[0]), axis=0))
    certain = np.all(np.isnan(out) == np.isnan(out[0]), axis=0)
    bound = 4.0 * spread + 16 * 2.0**-53 * np.abs(out[0])
    return out[0], bound, certain, huge.reshape(samples + 1, len(x)).any(axis=0)


class Noise:
    """Puts floating-point numbers off by some units in the last place, except those of the first rows."""

    def __init__(self, count, seed, samples):
        self.rng = np.random.default_rng(seed)
        self.amount = np.repeat([0.0] + [NOISE] * samples, count)
        self.huge = []

    def __call__(self, y):
        y = jnp.asarray(y)
        axes = [a for a, n in enumerate(y.shape) if n == len(self.amount)]
        if y.dtype != np.float64 or len(axes) != 1:
            return y
        rows = jnp.moveaxis(y, axes[0], -1)
        self.huge.append(jnp.any(jnp.abs(rows) > HUGE, axis=tuple(range(rows.ndim - 1))))
        rows = rows * (1.0 + self.amount * self.rng.choice([-1.0, 1.0], rows.shape))
        return jnp.moveaxis(rows, -1, axes[0])

    def any_huge(self):
        return jnp.any(jnp.stack([jnp.zeros(len(self.amount), bool), *self.huge]), axis=0)


_CHOICES = {"max", "min", "clamp", "reduce_max", "reduce_min"}  # are exact, and gradients look for them among the given


def _evaluated(closed, args, noise):
    env = dict(zip([*closed.jaxpr.constvars, *closed.jaxpr.invars], [*closed.consts, *args], strict=True))
    read = lambda v: v.val if isinstance(v, jex.Literal) else env[v]
    for eqn in closed.jaxpr.eqns:
        values = [read(v) for v in eqn.invars]
        if eqn.primitive.name in CALLS:
            out = _evaluated(callee(eqn), values, noise)
        else:
            out = eval_equation(closed.jaxpr, eqn, values)
            out = out if eqn.primitive.name in _CHOICES else [noise(y) for y in out]
        env.update(zip(eqn.outvars, out, strict=True))
    return [read(v) for v in closed.jaxpr.outvars]
