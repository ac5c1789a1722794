"""Rules for primitives: the results of native code are those of XLA, for programs of all sorts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from native_steps import compiled

import coadjoint as cj
from stepcompiler.errors import NotCompilable

W = np.array([1.0, 2.0, 3.0, 4.0])
X = np.random.default_rng(1).standard_normal((8, 4))
POINTS, VALUES = jnp.array([-1.0, 0.0, 2.0]), jnp.array([3.0, 1.0, 2.0])


def whole(x):
    return jnp.floor(3 * x).astype(int)  # also out of bounds


def small(x):
    return (50 * x).astype(jnp.int8)


PROGRAMS = {
    "empty sum": lambda x: 0.5 * x @ x + jnp.sum(x[0:0]),
    "empty product": lambda x: jnp.prod(x[0:0]) * x + jnp.max(x[0:0], initial=-3.0),
    "empty minimum": lambda x: x * jnp.all(x[0:0] > 0) + jnp.any(x[0:0] > 0) + jnp.min(x[:0], initial=1.0),
    "sort": lambda x: jnp.sum(jnp.sort(x) * W),
    "argsort": lambda x: x[jnp.argsort(x)] * W,
    "two keys": lambda x: x[jnp.lexsort((x, jnp.floor(x)))] * W,
    "interp": lambda x: jnp.interp(x, POINTS, VALUES),
    "interp between numbers that vary": lambda x: jnp.interp(x, jnp.sort(x), W * x),
    "erf_inv": lambda x: jax.scipy.special.erfinv(jnp.tanh(x)),
    "ndtri": lambda x: jax.scipy.special.ndtri(jax.nn.sigmoid(x)),
    "cumlogsumexp": lambda x: lax.cumlogsumexp(x) + lax.cumlogsumexp(x, reverse=True),
    "quantiles": lambda x: jnp.median(x) + jnp.quantile(x, 0.3),
    "slice from somewhere": lambda x: lax.dynamic_slice(jnp.outer(x, x), (jnp.argmax(x), whole(x)[0]), (2, 3)),
    "slice set somewhere": lambda x: lax.dynamic_update_slice(x, 2 * x[:2], (whole(x)[0],)),
    "take": lambda x: jnp.take(x, whole(x)),
    "take or fill": lambda x: jnp.take(x, whole(x), mode="fill", fill_value=7.0),
    "take from columns": lambda x: jnp.take(jnp.outer(x, x), whole(x), axis=1, mode="clip"),
    "two indices": lambda x: jnp.outer(x, x)[jnp.argsort(x), jnp.argmax(x)],
    "set": lambda x: x.at[jnp.argsort(x)].set(W * x),
    "set if inside": lambda x: x.at[whole(x)].set(W, mode="drop"),
    "set, clipped": lambda x: x.at[whole(x)].add(W * x, mode="clip"),
    "add": lambda x: x.at[whole(x)].add(W * x),
    "multiply": lambda x: x.at[jnp.argmax(x)].mul(3.0),
    "least": lambda x: x.at[jnp.argmax(x)].min(0.3).at[0].max(0.1),
    "row": lambda x: jnp.outer(x, x).at[jnp.argmax(x)].set(W),
    "searchsorted": lambda x: 1.0 * jnp.searchsorted(jnp.sort(x), x),
    "windows": lambda x: (
        lax.reduce_window(x, 0.0, lax.add, (2,), (1,), "SAME")
        + lax.reduce_window(x, -jnp.inf, lax.max, (3,), (1,), "SAME")
    ),
    "reduce": lambda x: lax.reduce(x, np.float64(1.0), lambda a, b: a * b + a, (0,)) + x,
    "solve": lambda x: jnp.linalg.solve(jnp.outer(x, x) + jnp.diag(W), x),
    "pivots": lambda x: jnp.linalg.solve(jnp.roll(jnp.outer(x, x) + jnp.diag(W), 1, axis=0), x),
    "determinant": lambda x: jnp.linalg.det(jnp.outer(x, x) + jnp.diag(x)),
    "cholesky": lambda x: jnp.linalg.cholesky(jnp.outer(x, x) + 3 * jnp.eye(4)),
    "expm": lambda x: jax.scipy.linalg.expm(jnp.outer(x, x) / 8),
    "softmax": lambda x: jax.scipy.special.logsumexp(x) + jax.nn.softplus(x) + jax.nn.relu(x) + jax.nn.softmax(x),
    "float32": lambda x: jnp.asarray(jnp.asarray(x, jnp.float32) * 2, float),
    "whole numbers": lambda x: 1.0 * (whole(10 * x) // 3 % 5 + jnp.gcd(12, whole(10 * x))),
    "parts": lambda x: jnp.frexp(x)[0] + jnp.frexp(x)[1] + jnp.ldexp(x, 3) + jnp.modf(x)[0] + jnp.copysign(x, -x),
    "functions": lambda x: jnp.unwrap(4 * x) + jnp.heaviside(x, 0.5) + jnp.logaddexp(x, 2 * x) + jnp.hypot(x, x),
    "polynomial": lambda x: jnp.polyval(W, x) + jnp.trapezoid(x) + jnp.diff(x).sum() + jnp.kron(x, x)[:4],
    "branches": lambda x: jnp.select([x > 0, x < -1], [x, 2 * x], 0.0) + jnp.std(x) + jnp.cov(x),
    "branch out of bounds": lambda x: lax.switch(whole(x)[0], [jnp.sin, jnp.cos, jnp.tanh], x),
    "zeros of two signs": lambda x: jnp.arctan2(jnp.where(x > 0, -0.0, 0.0), -1.0),
    "product of another type": lambda x: 1.0 * jnp.dot(small(x), small(x), preferred_element_type=jnp.int32),
    "long product": lambda x: jnp.einsum("i,i", x.astype(jnp.float32), jnp.float32(W), preferred_element_type=float),
    "map": lambda x: lax.map(jnp.sin, x) + lax.associative_scan(jnp.add, x),
}
GRADIENTS = "empty sum", "sort", "interp", "erf_inv", "take", "set", "add", "solve", "slice from somewhere", "softmax"


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_xla_has_it(name):
    fn = PROGRAMS[name]
    out, valid = compiled(lambda x: 1.0 * fn(x), X, width=8)
    assert valid.all()
    np.testing.assert_allclose(out, jax.jit(jax.vmap(fn))(X).reshape(len(X), -1), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name):
    fn = jax.grad(lambda x: jnp.sum(PROGRAMS[name](x) ** 2))
    np.testing.assert_allclose(compiled(fn, X)[0], jax.jit(jax.vmap(fn))(X), rtol=1e-12, atol=1e-12)


def test_order_of_special_numbers():
    """NaN is last and largest, zeros are equal whatever their sign; in the total order −0 comes before 0."""
    x = np.array([[0.0, np.nan, -0.0, -np.inf], [np.nan, 1.0, np.nan, np.inf], [-0.0, 0.0, -1.0, -0.0]])
    for fn in (
        lambda x: jnp.concatenate([jnp.sort(x), 1.0 / jnp.sort(x)]),
        lambda x: 1.0 * jnp.argsort(x, stable=True),
        lambda x: 1.0 * jnp.stack([jnp.argmax(x), jnp.argmin(x)]),
        lambda x: 1.0 * jnp.searchsorted(jnp.array([-1.0, -0.0, 0.0, 2.0]), x),
    ):
        np.testing.assert_array_equal(compiled(fn, x)[0], jax.vmap(fn)(x))


def test_integers_at_their_limits():
    """Division by zero and of the least number by −1, shifts by more bits than there are, and conversions."""
    info = np.iinfo(np.int64)
    x = np.array([[info.min, -1], [info.min, 0], [7, 0], [-7, 2], [5, 64], [-5, 63], [-5, 70], [1, 3], [info.max, -2]])
    for fn in (
        lambda x: lax.div(x[0], x[1]),
        lambda x: lax.rem(x[0], x[1]),
        lambda x: lax.shift_left(x[0], x[1]),
        lambda x: lax.shift_right_arithmetic(x[0], x[1]),
        lambda x: lax.shift_right_logical(x[0], x[1]),
        lambda x: lax.population_count(x) + lax.clz(x) + lax.sign(x) + lax.abs(x),
        lambda x: lax.bitcast_convert_type(x.astype(jnp.float64), jnp.int64),
        lambda x: x.astype(jnp.int32).astype(jnp.int64) + x.astype(jnp.uint8).astype(jnp.int64),
    ):
        np.testing.assert_array_equal(compiled(fn, x)[0].view(np.int64), jax.vmap(fn)(x).reshape(len(x), -1))


@pytest.mark.parametrize("dtype", [jnp.int64, jnp.int32, jnp.uint32, jnp.uint64])
def test_numbers_that_no_integer_holds(dtype):
    x = np.array([[np.nan], [np.inf], [-np.inf], [1e300], [-1e300], [-1.5], [2.5], [-0.0], [1e10], [-1e10]])
    fn = lambda x: x.astype(dtype).astype(jnp.int64)
    for width in (1, 10):
        np.testing.assert_array_equal(compiled(fn, x, width=width)[0].view(np.int64), jax.vmap(fn)(x))


@pytest.mark.parametrize("bits", [(8, 23), (5, 10), (8, 7), (11, 52), (11, 20)])
def test_reduced_precision(bits):
    limits = [3.4028235e38, 3.40282356e38, 65519.0, 65520.0, 6.1e-5, 5.9e-8, 1e-38, 1e-45, 1e39, -1e39]
    special = [0.0, -0.0, np.inf, -np.inf, np.nan]
    x = np.concatenate([limits, special, np.random.default_rng(0).standard_normal(30)])[:, None]
    fn = lambda x: lax.reduce_precision(x, *bits)
    np.testing.assert_array_equal(compiled(fn, x)[0], jax.vmap(fn)(x))


def test_indices_of_few_bits_in_long_arrays():
    """Bounds beyond 127 do not wrap around."""
    read = lambda x: lax.dynamic_slice(jnp.tile(x, 50), (jnp.int8(5),), (2,))
    write = lambda x: lax.dynamic_update_slice(jnp.tile(x, 50), W, (jnp.int8(90),))[88:96]
    np.testing.assert_array_equal(compiled(read, X)[0], X[:, 1:3])
    np.testing.assert_array_equal(compiled(write, X)[0], [[*x[:2], *W, *x[2:]] for x in X])


def test_refusals_are_sentences():
    for fn, what in (
        (lambda x: jnp.linalg.eigvalsh(jnp.outer(x, x)), "eigenvalues of a Hermitian matrix (`eigh`)"),
        (lambda x: jnp.linalg.eigvalsh(x[:, None] * (1 + 1j * x)), "eigenvalues of a Hermitian matrix (`eigh`)"),
        (lambda x: jnp.sin(x.astype(jnp.float32)), "the JAX operation `sin` of numbers of type float32"),
        (lambda x: x.astype(jnp.float16), "numbers of type float16"),
        (lambda x: x * jax.random.normal(jax.random.key(0)), "random keys of JAX"),
        (lambda x: jax.pure_callback(np.sin, x, x), "`jax.pure_callback`"),
        (
            lambda x: x.astype(jnp.float32),
            "numbers of type float32 in the state, in parameters by member or in the path",
        ),
    ):
        with pytest.raises(NotCompilable) as refusal:
            compiled(fn, X)
        assert str(refusal.value) == f"A step uses {what}, which native code does not support."


@pytest.mark.parametrize("width", [1, 4])
def test_hamiltonians_that_ended_in_errors_run_natively(width):
    for h in (lambda m: 0.5 * m @ m + jnp.sum(m[0:0]), lambda m: jnp.sum(jnp.sort(m) * W[:3])):
        system = cj.System(cj.SO3(), h)
        assert cj.solve(system, np.array([0.1, 0.2, 0.4]), t1=0.1, dt=0.01).stats.backend == "native"


def test_a_table_is_not_searched_one_by_one():
    table = jnp.arange(100.0)
    with pytest.raises(
        NotCompilable, match=r"one of 100 elements at a computed index; native code supports at most 64\."
    ):
        compiled(lambda x: table[whole(x)], X)
