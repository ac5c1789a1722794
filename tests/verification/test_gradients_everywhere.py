"""Gradients by native code for every method and algebra: beside XLA over 1000 steps, and beside central differences."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from algebras import SO4

import coadjoint as cj

pytestmark = pytest.mark.slow
ALGEBRAS = {
    "so(3)": cj.SO3(),
    "se(3)": cj.SE3(),
    "so(4)": cj.StructureConstants(SO4),
    "so(3) × se(3)": cj.SO3() * cj.SE3(),
    "su(3)": cj.SU(3),
}
OWN_PATH = cj.TMKWeak, cj.NinomiyaVictoir, cj.BathSplitting, cj.TMK15, cj.Adaptive  # without a prescribed path
STEPS, DT = 1000, 0.01
CASES = [
    (name, method)
    for name, algebra in ALGEBRAS.items()
    for method, integrator in cj.integrators.ALL.items()
    if not ("Isospectral" in type(integrator).__name__ and not name.startswith("su"))
]


def problem(name, method, steps):
    """A function of start, params, noise amplitude and path, and a point."""
    algebra, integrator = ALGEBRAS[name], cj.integrators.ALL[method]
    rng, dim = np.random.default_rng(1), ALGEBRAS[name].dim
    x = {"mu0": 0.5 * rng.standard_normal(dim), "params": 1.0 / (1.0 + np.arange(dim) / dim), "beta": np.array(0.3)}
    weight = rng.standard_normal(dim) / dim**0.5
    noisy = integrator.claims.strong > 0 or integrator.claims.weak > 0
    if noisy and not isinstance(integrator, OWN_PATH):
        x["dS"] = 0.1 * rng.standard_normal((steps, 1))

    def number(adjoint, x):
        parts = isinstance(integrator, (cj.LieTrotter, cj.Strang, cj.BlanesMoan))

        def h(mu, p):
            c = algebra.coordinates(mu)
            return 0.5 * c @ (p * c) + (0.0 if parts else 0.02 * jnp.sum(p * c**4))

        noise, driver = [], {}
        if noisy:
            noise, driver = [cj.salt(algebra.element(x["beta"] * weight))], {"key": 0}
        if "dS" in x:
            zero = np.zeros((steps, 1))
            driver = {"driver": cj.Increments(x["dS"], Z=zero, areas=np.zeros((steps, 1, 1)))}
        system = cj.System(algebra, h, noise, params=x["params"])
        run = cj.solve(
            system, algebra.element(x["mu0"]), t1=steps * DT, dt=DT, integrator=integrator, save_every=steps // 4,
            adjoint=adjoint, **driver,
        )  # fmt: skip
        return jnp.sum(jnp.sin(jax.vmap(algebra.coordinates)(run.mu)) @ weight)

    return number, x


@pytest.mark.parametrize(("name", "method"), CASES)
def test_gradient(name, method):
    try:
        number, x = problem(name, method, STEPS)
        native = jax.jit(jax.value_and_grad(partial(number, "auto")))(x)
    except (TypeError, ValueError) as error:
        pytest.skip(f"the method does not take the system: {error}")
    info = cj.last_gradient_info()
    if info.backend == "xla":
        assert info.reason
        pytest.skip(info.reason)
    xla = jax.jit(jax.value_and_grad(partial(number, "xla")))(x)
    for a, b in zip(jax.tree.leaves(native), jax.tree.leaves(xla), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-12 * max(1.0, np.max(np.abs(b), initial=0.0)))
    number, x = problem(name, method, 8)
    both = jax.jit(jax.value_and_grad(partial(number, "auto")))
    d = jax.tree.map(lambda a: np.random.default_rng(5).standard_normal(np.shape(a)), x)
    at = lambda e: float(both(jax.tree.map(lambda a, v: a + e * v, x, d))[0])
    e = 1e-3
    numerical = (8 * (at(e) - at(-e)) - (at(2 * e) - at(-2 * e))) / (12 * e)
    found = sum(np.vdot(a, b) for a, b in zip(jax.tree.leaves(both(x)[1]), jax.tree.leaves(d), strict=True))
    np.testing.assert_allclose(found, numerical, rtol=1e-8, atol=1e-8)
