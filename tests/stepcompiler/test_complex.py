"""Complex numbers as pairs: programs with complex numbers have the same results in native code and in JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from native_steps import compiled

import coadjoint as cj
from coadjoint.algebras.su import exp_skew

X = np.random.default_rng(1).standard_normal((8, 4))
A = np.random.default_rng(2).standard_normal((2, 2)) + 1j * np.random.default_rng(3).standard_normal((2, 2))


def z(x):
    return lax.complex(x[:2], x[2:])


def matrix(x):
    return jnp.outer(z(x), jnp.conj(z(x))) + A


def looped(x):
    still = lambda s: jnp.sum(jnp.abs(s)) > 0.5
    return lax.while_loop(still, lambda s: s * (0.5 + 0.1j), z(x))


def scanned(x):
    total, rows = lax.scan(lambda c, a: (c * a + 1j, c), z(x)[0], matrix(x).ravel())
    return jnp.append(rows, total)


PROGRAMS = {
    "sums and products": lambda x: z(x) * (2 - 1j) + z(x) ** 3 - 1j * z(x)[::-1] * x[0],
    "quotients": lambda x: z(x) / (z(x) + 1j) + 1.0 / z(x) + z(x) / 3.0 + z(x) ** -2,
    "parts": lambda x: jnp.real(z(x)) * 1j + jnp.imag(z(x)) + jnp.conj(z(x)) + jnp.abs(z(x)),
    "matrices": lambda x: matrix(x) @ A @ jnp.conj(matrix(x)).T + jnp.trace(matrix(x)),
    "vectors": lambda x: jnp.vdot(z(x), A @ z(x)) * jnp.ones(2),
    "exponentials": lambda x: jnp.exp(z(x)) + jnp.exp(1j * x[:2]),
    "transforms": lambda x: jnp.fft.fft2(matrix(x)) + jnp.fft.ifft(z(x)),
    "choice": lambda x: jnp.where(x[:2] > 0, z(x), 1j) + jnp.where(z(x) == z(x)[0], 1.0, z(x)),
    "places": lambda x: jnp.zeros(4, complex).at[jnp.array([2, 0])].set(z(x)).at[1].add(1j)[::-1],
    "products of all": lambda x: jnp.prod(matrix(x), axis=0),
    "loop": looped,
    "scan": scanned,
    "branch": lambda x: lax.cond(x[0] > 0, lambda y: y * 1j, lambda y: y + 1.0, z(x)),
    "gradient": jax.grad(lambda x: jnp.sum(jnp.abs(matrix(x)) ** 2) + jnp.real(z(x)[0] ** 2 * A[0, 0])),
    "real throughout": lambda x: jnp.real((x + 0j) @ (x + 0j)) * x,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_xla_has_it(name):
    def fn(x):
        y = jnp.ravel(PROGRAMS[name](x))
        return jnp.concatenate([jnp.real(y), jnp.imag(y)])

    expected = jax.jit(jax.vmap(fn))(X)
    for width in 1, 8:
        out, valid = compiled(fn, X, width=width)
        assert valid.all()
        np.testing.assert_allclose(out, expected, rtol=1e-13, atol=1e-13)


BRANCHES = "log log1p sqrt arcsin arccos arctan arcsinh arccosh arctanh".split()
FUNCTIONS = {
    **{name: (getattr(jnp, name), getattr(np, name)) for name in BRANCHES},
    **{
        name: (getattr(jnp, name), getattr(np, name))
        for name in "sin cos tan sinh cosh tanh exp exp2 expm1 conj abs angle sign square negative reciprocal".split()
    },
    "sort": (jnp.sort, np.sort),
    "largest": (lambda z: jnp.maximum(z, z[::-1]), lambda z: np.maximum(z, z[..., ::-1])),
    "running product": (jnp.cumprod, lambda z: np.cumprod(z, -1)),
    "quotient": (lambda z: z / z[::-1], lambda z: z / z[..., ::-1]),
    "power": (lambda z: z ** (0.3 + 0.2j), lambda z: z ** (0.3 + 0.2j)),
    "whole power": (lambda z: z**-3, lambda z: z**-3.0),
    "logistic": (jax.nn.sigmoid, lambda z: 1 / (1 + np.exp(-z))),
    "reciprocal root": (lax.rsqrt, lambda z: 1 / np.sqrt(z)),
    "single": (lambda z: z.astype(jnp.complex64) * 3, lambda z: z.astype(np.complex64) * 3),
    "truth": (lambda z: z.astype(bool) * (1 + 1j), lambda z: z.astype(bool) * (1 + 1j)),
    "out of bounds": (lambda z: z.at[jnp.array([5, 0])].get(mode="fill", fill_value=2j), lambda z: z[:, :1] * [0, 1]),
}
SPECIAL = np.array([1, -1, 2, -2, 1j, -1j, 2j, -2j, 0.5, -0.5, 1 + 1e-9j, 1e-9 - 1j, 1e100 + 1e99j, 1e-100 - 1e-99j])


def numbers():
    """Of all sizes, near 1 and near the branch points, on the axes."""
    rng = np.random.default_rng(4)
    noise = rng.standard_normal((3, 40, 2)) + 1j * rng.standard_normal((3, 40, 2))
    rows = [noise[0], 1e-8 * noise[1], 9.0 * noise[2], 1 + 1e-8 * noise[0], 1j + 1e-8 * noise[1], noise[2].real + 0j]
    return np.concatenate([*rows, np.stack([SPECIAL, SPECIAL[::-1]], axis=1)])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_as_numpy_has_them(name):
    """To a few units in the last place of |f(z)|, on both sides of a branch cut too."""
    fn, by_numpy = FUNCTIONS[name]
    given = numbers()
    x = np.concatenate([given.real, given.imag], axis=1)
    x = x[: len(x) // 8 * 8]

    def parts(x):
        y = jnp.ravel(fn(z(x))).astype(complex)
        return jnp.concatenate([y.real, y.imag])

    out = compiled(parts, x, width=8)[0]
    with np.errstate(all="ignore"):
        expected = np.asarray(by_numpy(given[: len(x)]), complex)
        if name == "out of bounds":
            expected[:, 0] = 2j
        error = np.hypot(out[:, :2] - expected.real, out[:, 2:] - expected.imag) / np.maximum(np.abs(expected), 1e-290)
    sure = np.isfinite(expected) & (np.abs(expected) < 1e300)
    sure &= (name != "log1p") | (np.abs(given[: len(x)]) > 0.05)  # where NumPy itself loses digits
    assert sure.mean() > 0.75
    np.testing.assert_array_less(error[sure], {"power": 1e-13, "single": 1e-6}.get(name, 2e-15))


def test_real_transforms():
    """Of real numbers and back, odd and even lengths."""
    rows = np.random.default_rng(0).standard_normal((8, 20))
    fn = lambda x: jnp.fft.irfft2(jnp.fft.rfft2(x.reshape(4, 5)) * (1 + 0.5j), (3, 4)).ravel()
    expected = np.fft.irfft2(np.fft.rfft2(rows.reshape(8, 4, 5)) * (1 + 0.5j), (3, 4)).reshape(8, -1)
    np.testing.assert_allclose(compiled(fn, rows)[0], expected, atol=1e-13)


def test_the_sign_of_zero_chooses_the_side_of_a_cut():
    """−x and x̄ of a real number lie below the cut."""
    sides = [(1, lambda x: x + 0j), (-1, lambda x: -(-x + 0j)), (-1, lambda x: jnp.conj(x + 0j))]
    for below, side in sides:
        fn = lambda x, side=side: jnp.sqrt(side(x[:1])).imag + jnp.log(side(x[:1])).imag
        x = -np.abs(X) - 1.0
        np.testing.assert_allclose(compiled(fn, x)[0][:, 0], below * (np.sqrt(-x[:, 0]) + np.pi), rtol=1e-14)


def test_loops_that_vmap_makes_one_of_end_each_by_itself():
    """Also inside each other."""

    def inner(c):
        return lax.while_loop(lambda s: jnp.abs(s) > 0.5, lambda s: s * (0.6 + 0.2j), c)

    def outer(c):
        return lax.while_loop(lambda s: s[1] < 3 * jnp.abs(c), lambda s: (inner(s[0] + c), s[1] + 1.0), (c, 0.0))[0]

    def fn(x):
        y = jax.vmap(outer)(3 * z(x))
        return jnp.concatenate([y.real, y.imag])

    for width in 1, 8:
        np.testing.assert_allclose(compiled(fn, X, width=width)[0], jax.vmap(fn)(X), rtol=1e-13, atol=1e-13)


def test_constants_that_are_complex_are_folded():
    """A product with 1 costs nothing, with i a change of sign."""
    compiled(lambda x, a: jnp.real(a @ z(x)), X, shared=(np.eye(2) + 0j,), limit=0)
    compiled(lambda x: jnp.imag(1j * z(x)), X, limit=2)  # the real part, of which there is no use, is −Im z


ALGEBRAS = [pytest.param(cj.SU(2), marks=pytest.mark.slow), cj.SU(3), cj.SU(2) * cj.SO3()]


@pytest.mark.parametrize("algebra", ALGEBRAS, ids=["SU(2)", "SU(3)", "SU(2) × SO3"])
def test_matrix_algebras_run_natively(algebra):
    """One trajectory and members with the bits of one another, and near those of XLA."""
    weights = np.linspace(1.0, 2.0, algebra.dim)
    h = lambda mu: 0.5 * jnp.sum(weights * algebra.coordinates(mu) ** 2)
    element = jax.jit(algebra.element)
    noise = cj.salt(element(0.1 * np.ones(algebra.dim)))
    mu0 = np.asarray(element(np.sin(np.arange(1.0, algebra.dim + 1))))
    system, run = cj.System(algebra, h, [noise]), {"t1": 0.5, "dt": 0.01, "key": 0}
    one = cj.solve(system, mu0, **run)
    many = cj.ensemble(system, mu0, members=8, **run)
    assert one.stats.backend == many.stats.backend == "native", one.stats.reason
    np.testing.assert_array_equal(many.mu[0], one.mu)
    run |= {"backend": "xla", "integrator": cj.TMK(fallbacks=False)}  # which no step needs: half the program
    np.testing.assert_allclose(one.mu, cj.solve(system, mu0, **run).mu, rtol=0, atol=1e-13)
    assert max(one.orbit_error()) < 1e-14


exponential = jax.jit(lambda algebra, c: (lambda sigma: (sigma, exp_skew(sigma)))(algebra.element(c)), static_argnums=0)


@pytest.mark.parametrize("n", [2, 3, 5])
@pytest.mark.parametrize("size", [0.0, 1e-9, 0.04, 0.3, 1.0, 7.0, 40.0])
def test_small_exponentials_need_no_eigenvalues(n, size):
    """A Taylor polynomial gives what the eigenvalues give, unitary to round-off, and so do its derivatives."""
    algebra = cj.SU(n)
    c = np.random.default_rng(n).standard_normal(algebra.dim)
    sigma, u = map(np.asarray, exponential(algebra, size * c / np.linalg.norm(c)))
    lam, v = np.linalg.eigh(-1j * sigma)
    np.testing.assert_allclose(u, (v * np.exp(1j * lam)) @ v.conj().T, rtol=0, atol=(4 + size) * 2e-15)
    np.testing.assert_allclose(u.conj().T @ u, np.eye(n), rtol=0, atol=(1 + size) * 2e-15)
