"""The linear equation behind the derivative of a root, beside NumPy's solver."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coadjoint.algebras import exponentials
from coadjoint.algebras.structure import StructureConstants
from coadjoint.numerics.linear_equations import minimize_residual, solve_linearized
from coadjoint.numerics.rootfind import implicit

N = 20
G = np.random.default_rng(0).standard_normal((N, N)) / np.sqrt(N)
B = np.random.default_rng(1).standard_normal(N)


# Fixed points converge; they do not, and elimination takes their place; the same by minimal residuals.
@pytest.mark.parametrize(("size", "krylov"), [(0.3, False), (3.0, False), (0.3, True), (3.0, True)])
def test_both_equations_and_their_derivatives(size, krylov):
    f = lambda scale: lambda x, lam: (x - scale * G @ jnp.tanh(x), None)
    root = 0.1 * B

    def one(scale, b, transpose):
        return solve_linearized(
            jax.tree_util.Partial(lambda s, x, lam: f(s)(x, lam), scale), root, b, transpose, krylov
        )

    def exact(scale, b, transpose):
        J = jnp.eye(N) - scale * G * (1.0 - jnp.tanh(root) ** 2)
        return jnp.linalg.solve(J.T if transpose else J, b)

    def results(solve):
        weigh = lambda scale, b: sum(jnp.sum(jnp.sin((1 + t) * solve(scale, b, t))) for t in (0, 1))
        value, slopes = jax.value_and_grad(weigh, (0, 1))(size, B)
        batch = jax.vmap(jax.grad(weigh), (None, 0))(size, jnp.stack([B, 2 * B]))
        return value, slopes, batch, jax.jvp(jax.grad(weigh), (size, B), (1.0, 0 * B))[1]

    for a, b in zip(*(jax.tree.leaves(jax.jit(lambda s=s: results(s))()) for s in (one, exact)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)


def test_minimal_residuals_of_a_singular_equation_are_nan():
    """A y = b with A = diag(1, …, 1, 0) and b outside of its range."""
    A = jnp.ones(N).at[-1].set(0.0)
    assert np.all(np.isnan(minimize_residual(lambda y: A * y, jnp.asarray(B))))
    assert np.all(minimize_residual(lambda y: A * y, jnp.zeros(N)) == 0.0)


def test_a_root_of_many_unknowns_is_differentiable_in_reverse():
    """A step with more than 16 unknowns."""

    def root(p):
        f = jax.tree_util.Partial(lambda p, x, lam: (x - p * jnp.tanh(G @ x) - B, None), p)
        x = jnp.asarray(B)
        for _ in range(60):
            x = x - jax.lax.stop_gradient(f(x, 1.0)[0])
        return jnp.sum(implicit(f, jax.lax.stop_gradient(x), True, False) ** 2)

    slope, e = jax.jit(jax.grad(root))(0.2), 1e-5
    np.testing.assert_allclose(slope, (root(0.2 + e) - root(0.2 - e)) / (2 * e), rtol=1e-8)


def test_generic_flows_are_transposed_by_series():
    """exp(ad*_σ) μ of a user's constants, beside the exponential of a matrix."""
    so4 = np.zeros((6, 6, 6))
    for i, j, k in ((0, 1, 2), (3, 4, 2), (0, 4, 5), (3, 1, 5)):  # two commuting so(3), mixed
        for a, b, c in ((i, j, k), (j, k, i), (k, i, j)):
            so4[a, b, c], so4[b, a, c] = 1.0, -1.0
    algebra, (x, y, z) = StructureConstants(so4), np.random.default_rng(2).standard_normal((3, 6))
    dense = lambda s, m: jax.scipy.linalg.expm(algebra.ad(s).T) @ m
    flow = lambda s, m: exponentials.flow(algebra, s, m)
    results = lambda fn: jax.jit(lambda s, m: jax.vjp(fn, s, m)[1](jnp.asarray(z)))(x, y)
    for a, b in zip(results(flow), results(dense), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-10)
