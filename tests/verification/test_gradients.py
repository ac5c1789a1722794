"""Derivatives through a run: by the implicit function theorem, reverse and forward, against central differences."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coadjoint as cj
from coadjoint.runtime import scan
from coadjoint.runtime.run_state import TimeGrid
from coadjoint.runtime.saved_values import Save
from coadjoint.runtime.traced_run import scan_run


@cache
def algebra_and_weight(name: str):
    """An algebra, a vector, the map from coordinates, and a function of saved states: programs for all runs."""
    algebra = {"SO3": cj.SO3(), "SE3": cj.SE3(), "SU(3)": cj.SU(3)}[name]
    weight = np.random.default_rng(3).standard_normal(algebra.dim)
    observed = lambda mu: jnp.sum(jnp.sin(jax.vmap(algebra.coordinates)(mu)) @ weight)
    return algebra, weight, jax.jit(algebra.element), jax.jit(observed)


def final(name: str, side: str, noisy: bool, x: dict, integrator=cj.TMK()) -> jax.Array:
    """A number made of a run whose start, parameters, noise amplitude and increments are all in x."""
    algebra, weight, element, observed = algebra_and_weight(name)

    def h(mu, p):
        c = algebra.coordinates(mu)
        return 0.5 * c @ (p * c) + 0.05 * jnp.sum(c**4)

    noise = [cj.salt(element(x["beta"] * weight / 2))] if noisy else []
    system = cj.System(algebra, h, noise, side=side, params=x["params"])
    driver = cj.Increments(x["dS"]) if noisy else None
    mu0 = element(x["mu0"])
    return observed(cj.solve(system, mu0, t1=1.0, dt=0.1, driver=driver, integrator=integrator, save_every=5).mu)


def inputs(name: str) -> dict:
    algebra, *_ = algebra_and_weight(name)
    rng = np.random.default_rng(1)
    return {
        "mu0": rng.standard_normal(algebra.dim) / 2,
        "params": 1.0 / (1.0 + np.arange(algebra.dim)),
        "beta": np.array(0.7),
        "dS": rng.standard_normal((10, 1)) * 0.3,
    }


@pytest.mark.parametrize(
    ("name", "side", "integrator"),
    [
        ("SO3", "left", cj.TMK()),
        pytest.param("SU(3)", "right", cj.TMK(fallbacks=False), marks=pytest.mark.slow),  # half the program
    ],
)
def test_gradients_against_central_differences(name, side, integrator, noisy=True):
    """With respect to the start, parameters, noise amplitude and given increments: 1e-6 relative; reverse = forward."""
    x = inputs(name)
    direction = jax.tree.map(lambda a: np.asarray(np.random.default_rng(2).standard_normal(a.shape)), x)

    def f(x):
        return final(name, side, noisy, x, integrator)

    gradient = jax.tree.map(np.asarray, jax.jit(jax.grad(f))(x))
    for key in ("mu0", "params", *(("beta", "dS") if noisy else ())):
        alone = {k: direction[k] if k == key else np.zeros_like(v) for k, v in x.items()}
        reverse = np.sum(gradient[key] * direction[key])
        plus, minus = (jax.tree.map(lambda a, d, s=s: a + s * d, x, alone) for s in (1e-5, -1e-5))
        numerical = float(f(plus) - f(minus)) / 2e-5
        assert abs(numerical) > 1e-3, "a direction in which nothing changes tests nothing"
        assert abs(reverse - numerical) < 1e-6 * abs(numerical)
    forward = jax.jit(lambda x, d: jax.jvp(f, (x,), (d,))[1])(x, direction)
    reverse = sum(np.sum(gradient[k] * direction[k]) for k in x)
    np.testing.assert_allclose(forward, reverse, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SO3", "SE3", "SU(3)"])
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("noisy", [True, False])
def test_gradients_everywhere(name, side, noisy):
    """The whole table of algebras, sides and noise."""
    test_gradients_against_central_differences(name, side, cj.TMK(), noisy)


@pytest.mark.parametrize("integrator", [cj.HeunMK(), cj.ImplicitMidpoint()], ids=lambda i: type(i).__name__)
def test_other_integrators_too(integrator):
    """Explicit and classical methods."""
    x = inputs("SO3")

    def f(mu0):
        return final("SO3", "left", True, {**x, "mu0": mu0}, integrator)

    direction = np.array([0.3, -0.2, 0.5])
    numerical = (f(x["mu0"] + 1e-5 * direction) - f(x["mu0"] - 1e-5 * direction)) / 2e-5
    np.testing.assert_allclose(np.asarray(jax.jit(jax.grad(f))(x["mu0"])) @ direction, numerical, rtol=1e-6)


def test_through_an_ensemble():
    """The gradient of a mean over members, parameters shared and by member."""

    def mean(p):
        system, mu0 = cj.models.rigid_body(alpha=0.5 * p["alpha"])
        params = {"inertia": p["inertia"]}
        ens = cj.ensemble(system, mu0, members=4, t1=0.5, dt=0.1, key=0, save_every=5, params=params)
        return jnp.mean(jnp.asarray(ens.mu)[:, -1] ** 3)

    p = {"alpha": np.ones(3), "inertia": np.tile([4.0, 2.0, 1.0], (4, 1))}
    d = jax.tree.map(lambda a: np.random.default_rng(0).standard_normal(a.shape), p)
    plus, minus = (jax.tree.map(lambda a, b, s=s: a + s * 1e-5 * b, p, d) for s in (1, -1))
    numerical = (mean(plus) - mean(minus)) / 2e-5
    gradient = jax.jit(jax.grad(mean))(p)
    np.testing.assert_allclose(sum(np.sum(np.asarray(gradient[k]) * d[k]) for k in p), numerical, rtol=1e-6)


def reverse_memory(steps: int, monkeypatch, kept: int) -> int:
    """Bytes of temporaries of a reverse pass over so many steps, as the compiler counts them."""
    monkeypatch.setattr(scan, "_TAPE_BYTES", kept)
    system, mu0 = cj.models.rigid_body()
    integrator = cj.EulerMaruyamaMK()
    window = cj.Increments(np.zeros((steps, 1))).window(1, 0.01, 0, -(-steps // 32))
    clock = TimeGrid(jnp.zeros(()), jnp.asarray(0.01), jnp.asarray(steps))

    def last(mu0):
        return jnp.sum(scan_run(system, integrator, window, Save(None, False), clock, mu0, steps, steps)[1].values[-1])

    return jax.jit(jax.grad(last)).lower(mu0).compile().memory_analysis().temp_size_in_bytes


def test_memory_of_a_reverse_pass(monkeypatch):
    """Points beyond the quarter gigabyte are recomputed: 16 times the steps then cost about 4 times the points."""
    path = 8 * 2  # bytes a step that the given path and the counters take, whatever is kept
    few, many = (reverse_memory(n, monkeypatch, kept=0) - path * n for n in (1024, 16384))
    everything = reverse_memory(16384, monkeypatch, kept=2**28) - path * 16384
    assert many < 0.25 * everything
    assert many < 12 * few


def test_a_reverse_pass_solves_nothing_anew():
    """It keeps the roots of the steps: no time is spent to solve for them, or to compile a solver, twice."""
    system, mu0 = cj.models.heavy_top()

    def last(mu0):
        return jnp.sum(jnp.asarray(cj.solve(system, mu0, t1=0.2, dt=0.1, key=0, adjoint="xla").mu)[-1])

    loops = [str(jax.make_jaxpr(f)(jnp.asarray(mu0))).count(" while[") for f in (last, jax.grad(last))]
    assert loops[0] == loops[1] > 0


def test_reverse_gradient_of_a_fluid():
    """Matrices whose steps are solved by products: the derivative of the root is solved for by GMRES, backwards too."""
    system, W = cj.models.sine_euler(n=9, noise_modes=None)

    @jax.jit
    @jax.value_and_grad  # the differences are of the values that come with it: one program
    def last(scale):
        sol = cj.solve(system, scale * W, t1=0.02, dt=0.01, key=0, save_every=2)
        return jnp.sum(jnp.abs(sol.mu[-1, 0]) ** 2)

    e = 1e-5
    np.testing.assert_allclose(last(1.0)[1], (last(1 + e)[0] - last(1 - e)[0]) / (2 * e), rtol=1e-9)
