"""Programs done by NumPy: bitwise the results of JAX, operation by operation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coadjoint as cj
from coadjoint.states import check_state
from stepcompiler.jaxprs.numpy_eval import numpy_function

NUMBERS = np.array([0.0, -0.0, 1.0, -2.5, 1e300, 3e-300, np.inf, -np.inf, np.nan])
WHOLE = np.array([0, 1, 5, 2**31, 2**32 - 1], np.uint32)
CASES = {
    "reals": (lambda x: (x + 1.0, x - 0.5, x * 3.0, -x, abs(x), jnp.maximum(x, 2.0), jnp.minimum(x, 2.0)), NUMBERS),
    "quotients": (lambda x: (1.0 / x, jnp.sqrt(x), jnp.floor(x), x / 4.0, jnp.isfinite(x), jnp.isinf(x)), NUMBERS),
    "powers": (lambda x: (x**2, x**3, x**7, x**-1, x**-4, jax.lax.integer_pow(x, 0)), NUMBERS),
    "tests": (lambda x: (x < 1.0, x <= 1.0, x > 1.0, x >= 1.0, x == 1.0, x != 1.0), NUMBERS),
    "choices": (lambda x: (jnp.where(x > 0, x, -1.0), jnp.all(x > 0), jnp.any(x > 0, axis=0)), NUMBERS),
    "bits": (lambda n: (n << 3, n >> 5, n ^ 7, n | 8, n & 12, ~n, n + n, n * n), WHOLE),
    "shifts of signed numbers": (lambda n: (n >> 1, jax.lax.shift_right_logical(n, 1)), np.array([-8, 7])),
    "kinds": (lambda n: (n.astype(float), n.astype(jnp.int64), n > 1, (n > 1).astype(jnp.int32)), WHOLE),
    "whole parts": (lambda x: (x[:6].astype(jnp.int32),), np.array([0.0, 1.9, -1.9, 7.5, 1e3, -3.0])),
    "words": (lambda x: (jax.lax.bitcast_convert_type(x, jnp.uint64), x.view(jnp.uint64) << 1), NUMBERS),
    "moves": (lambda x: (x[2:7:2], x.reshape(3, 3).T, jnp.stack([x, x]), jnp.concatenate([x, x[:1]]), x[4]), NUMBERS),
    "quotients of whole numbers": (lambda n: (n // 3, n % 3, jax.lax.div(n, 2), jax.lax.rem(n, 2)), np.arange(-7, 8)),
    "parts of complex numbers": (
        lambda x: (jax.lax.complex(x, x[::-1]), (1j * x).real, jax.lax.complex(x[::-1], x).imag[::-1]),
        NUMBERS,
    ),
    "JAX's own": (lambda x: (jnp.log(x), jnp.exp(x), x @ x, jnp.sum(x), x**3, jnp.pad(x, 1)), NUMBERS[:4]),
    "a call": (lambda x: jax.jit(lambda y: (y, 2.0 * y))(x + 1.0), NUMBERS),
    "a loop": (lambda x: (jax.lax.fori_loop(0, 3, lambda i, y: y + x, x),), NUMBERS),
    "constants": (lambda x: (x + np.arange(9.0), np.arange(3)), NUMBERS),
}


@pytest.mark.parametrize("case", CASES)
def test_it_gives_what_jax_gives(case):
    f, x = CASES[case]
    program = jax.make_jaxpr(f)(x)
    found, expected = numpy_function(program)([x]), jax.tree.leaves(f(jnp.asarray(x)))
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        b = np.asarray(b)
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_array_equal(a, b)
        if a.dtype.kind == "f":
            np.testing.assert_array_equal(np.signbit(a)[~np.isnan(a)], np.signbit(b)[~np.isnan(b)])


ELEMENTWISE = ["reals", "quotients", "powers", "tests", "bits", "shifts of signed numbers", "kinds"]


@pytest.mark.parametrize("case", [*ELEMENTWISE, "quotients of whole numbers"])
def test_single_numbers_give_the_same_as_arrays(case):
    """Python's operators compute them. These warn of overflow, unless that is switched off."""
    f, x = CASES[case]
    one, many = numpy_function(jax.make_jaxpr(f)(x[0])), numpy_function(jax.make_jaxpr(f)(x))
    for k, y in enumerate(x):
        for a, b in zip(one([y]), many([x]), strict=True):
            assert a.dtype == b.dtype and a.shape == ()
            assert a.tobytes() == b[k].tobytes()


def test_every_operation_is_rounded_by_itself():
    """XLA may contract x y + z into one operation; whether it does depends on its version and flags."""
    x, y, z = 1.0 + 2.0**-30, 1.0 - 2.0**-30, -1.0
    program = jax.make_jaxpr(lambda x, y, z: x * y + z)(x, y, z)
    assert numpy_function(program)([x, y, z])[0] == 0.0  # −2⁻⁶⁰ if it were contracted


def test_a_state_of_the_algebra_remains_as_it_is():
    algebra, rng = cj.SU(17), np.random.default_rng(0)
    x = rng.standard_normal((17, 17)) + 1j * rng.standard_normal((17, 17))
    found = check_state(algebra, "mu0", 0.5 * (x - x.conj().T) - 1j * np.imag(np.trace(x)) / 17 * np.eye(17))
    np.testing.assert_array_equal(check_state(algebra, "mu0", found), found)
    np.testing.assert_allclose(found, algebra.element(algebra.coordinates(found)), atol=1e-14)


def test_few_programs_are_compiled_for_a_first_result(compilations):
    """None for what native code reads: that alone had hundreds of operations. Models and starts need some."""
    jax.clear_caches()  # as the tests do now and then
    tops = [cj.models.heavy_top(inertia=inertia) for inertia in ([5.0, 3.0, 2.0], [5.5, 3.5, 2.5])]
    with compilations() as count:
        sol = cj.solve(*tops[0], t1=0.125, dt=0.0125, key=20)  # numbers that no other test has: those are kept
    assert sol.stats.backend == "native"
    with compilations() as again:
        cj.solve(*tops[1], t1=0.375, dt=0.0375, key=21)
    assert count.n <= 6 and again.n == 0


def test_numbers_out_of_range_do_not_run_natively_unnoticed():
    """1/y, u w and u + w are made before the run; where they leave the range, the step is taken as it is written."""
    for scale in 1e-310, 1e300:
        system = cj.System(cj.SO3(), lambda mu, p: p * (p * (mu[0] ** 2 + 2.0 * mu[1] ** 2)) / p, params=scale)
        run = {"t1": 0.01, "dt": 0.01, "throw": False, "integrator": cj.TMK(fallbacks=False)}
        sol = cj.solve(system, [1e-8, 2e-8, 3e-8], **run)
        plain = cj.solve(system, [1e-8, 2e-8, 3e-8], backend="xla", **run)
        np.testing.assert_allclose(sol.mu, plain.mu, rtol=1e-12)
