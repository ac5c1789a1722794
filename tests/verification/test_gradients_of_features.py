"""Gradients through each feature of a run, beside central differences of the same run without JAX's transformations."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coadjoint as cj

MU0, INVERSE = np.array([0.5, -0.4, 0.8]), 1.0 / np.arange(1.0, 4.0)
BETA = np.array([0.1, 0.2, 0.3])
SIX = {"mu0": np.r_[MU0, -MU0[::-1]], "p": INVERSE}
CASES = {}


def case(function=None, *, slow=True, **more):
    """Register a function of x, a dict with mu0, p and `more`, at the point to differentiate."""
    if function is None:
        return partial(case, slow=slow, **more)
    marks = [pytest.mark.slow] if slow else []
    CASES[function.__name__] = pytest.param(function, {"mu0": MU0, "p": INVERSE} | more, marks=marks)
    return function


def body(p, noise=(), **options):
    """A rigid body whose energy is not quadratic."""
    h = lambda mu, p: 0.5 * mu @ (mu * p) + 0.05 * jnp.sum(mu**4)
    return cj.System(cj.SO3(), h, list(noise), params=p, **options)


def noisy(x):
    """The same with SALT noise."""
    return body(x["p"], [cj.salt(BETA)])


def end(system, mu0, **options):
    """A number of all saved states."""
    run = cj.solve(system, mu0, **({"dt": 0.05, "steps": 4} | options))
    return weighed(run.mu)


def weighed(mu):
    """A number of some states."""
    x = jnp.asarray(mu).reshape(-1)
    return jnp.sum(jnp.sin(1.3 * x.real + 0.2)) + jnp.sum(jnp.cos(x.imag))


@case(slow=False, a=0.3)
def captured_by_functions(x):
    """Numbers that a Hamiltonian and a noise have captured, instead of params."""
    h = lambda mu: 0.5 * x["a"] * mu @ (mu * x["p"])
    return end(cj.System(cj.SO3(), h, [cj.salt(x["a"] * jnp.asarray(BETA))]), x["mu0"], key=1)


@case
def torque_time_and_attitude(x):
    h = lambda mu, p, t, g: 0.5 * mu @ (mu * p) + 0.1 * jnp.sin(t) * g[0] @ jnp.arange(3.0)
    torque = lambda mu, p, g, t: -0.1 * mu * p[0] + 0.3 * jnp.cos(t) * g[0]
    system = cj.System(cj.SO3(), h, [cj.salt(BETA)], params=x["p"], torque=torque)
    return end(system, x["mu0"], key=1, integrator=cj.RKMK("rk4"))


@case
def the_group_element(x):
    run = cj.solve(body(x["p"]), x["mu0"], dt=0.05, steps=4, group=True)
    return weighed(run.mu) + jnp.sum(jnp.sin(run.g @ jnp.arange(3.0)))


@case
def a_control_that_is_held(x):
    law = cj.hold(lambda mu, p: -p * mu**2, every=2)
    return end(body(x["p"], torque=lambda mu, p, u: u, control=law), x["mu0"], steps=5)


@case(size=0.8, tau=0.3)
def joined_paths(x):
    """Ornstein–Uhlenbeck noise, jumps and Brownian motion side by side."""
    jumps = cj.Jumps(8.0, lambda u: x["size"] * (2 * u - 1), key=3)
    path = cj.drivers.join((cj.OU(x["tau"], key=1), 1), (jumps, 1), (cj.Brownian(2), 1))
    noises = [cj.salt(b) for b in (*np.eye(3)[:2], BETA)]
    return end(body(x["p"], noises), x["mu0"], dt=0.1, driver=path, integrator=cj.HeunMK())


@case(s=0.4)
def fractional_noise(x):
    system = body(x["p"], [cj.salt(x["s"] * jnp.asarray(BETA))])
    return end(system, x["mu0"], steps=8, driver=cj.FractionalBrownian(0.7, key=1))


@case(a=0.4)
def varied_amplitudes(x):
    return end(cj.vary(noisy(x), noise=x["a"]), x["mu0"], key=1)


@case(a=0.4)
def amplitudes_of_time(x):
    system = cj.vary(noisy(x), noise=lambda t: x["a"] * t, params=lambda p, t: p * jnp.cos(t))
    return end(system, x["mu0"], key=1)


@case
def a_composed_method(x):
    return end(body(x["p"]), x["mu0"], dt=0.1, integrator=cj.Composed(cj.TMK(), "yoshida4"))


@case(**SIX)
def a_product_without_stabilisers(x):
    h = lambda mu, p: 0.5 * jnp.sum(p * mu.reshape(2, 3) ** 2) + mu[0] * mu[4] + 0.1 * jnp.sum(mu**4)
    system = cj.System(cj.SO3() ** 2, h, [cj.salt(np.arange(6) / 10.0)], params=x["p"])
    return end(system, x["mu0"], key=1, integrator=cj.LieMidpoint(remove_stabiliser=True))


@case
def a_body_without_stabilisers(x):
    run = cj.solve(
        body(x["p"]), x["mu0"], dt=0.1, steps=4, integrator=cj.LieMidpoint(remove_stabiliser=True), group=True
    )
    return weighed(run.mu) + jnp.sum(jnp.sin(run.g @ jnp.arange(3.0)))


@case(**SIX)
def a_semidirect_algebra(x):
    algebra = cj.Semidirect(cj.SO3(), cj.SO3().bracket, dim=3)
    return end(cj.System(algebra, lambda mu, p: 0.5 * mu[:3] @ (mu[:3] * p) + mu[3] * p[0], params=x["p"]), x["mu0"])


@case
def a_central_extension(x):
    algebra = cj.CentralExtension(cj.StructureConstants(np.zeros((2, 2, 2))), np.array([[0.0, 1.0], [-1.0, 0.0]]))
    h = lambda mu, p: 0.5 * mu[:2] @ (mu[:2] * p[:2]) + 0.1 * p[2] * mu[0] ** 4
    return end(cj.System(algebra, h, params=x["p"]), x["mu0"])


@case(**SIX)
def pairs_of_matrices(x):
    algebra = cj.MagneticSU(2)
    c = algebra.coordinates
    h = lambda mu, p: 0.5 * jnp.sum(p * c(mu).reshape(2, 3) ** 2) + 0.1 * jnp.sum(c(mu) ** 4)
    return end(cj.System(algebra, h, params=x["p"]), algebra.element(x["mu0"]))


@case
def an_event(x):
    return end(body(x["p"]), x["mu0"], dt=0.1, steps=12, until=lambda mu: mu[0] - 0.3)


@case
def saved_times(x):
    return end(noisy(x), x["mu0"], steps=6, save_at=[0.1, 0.25], key=1)


@case
def the_mean_of_an_ensemble(x):
    run = cj.ensemble(noisy(x), x["mu0"], members=3, dt=0.05, steps=4, key=1, reduce=cj.Mean())
    return jnp.sum(jnp.sin(run.reduced["mean"]))


@case
def params_by_member(x):
    params = jnp.stack([x["p"], 1.3 * x["p"], 0.7 * x["p"] ** 2])
    start = jnp.stack([x["mu0"]] * 3)
    return weighed(cj.ensemble(noisy(x), start, members=3, dt=0.05, steps=4, key=1, params=params).mu)


@case
def a_function_that_is_saved(x):
    run = cj.solve(noisy(x), x["mu0"], dt=0.05, steps=4, key=1, save=lambda mu, p: {"h": mu @ (mu * p)})
    return jnp.sum(jnp.sin(run.saved["h"]))


@case
def a_prepared_run(x):
    run = cj.prepare(body(INVERSE, [cj.salt(BETA)]), dt=0.05, steps=4, members=2)
    return weighed(run(x["mu0"], key=1, params=x["p"]).mu)


@case(temperature=0.3, friction=0.2)
def a_heat_bath(x):
    system = cj.heat_bath(body(x["p"]), temperature=x["temperature"], friction=x["friction"])
    return end(system, x["mu0"], key=1)


@case
def friction(x):
    return end(cj.double_bracket(body(x["p"]), friction=0.2), x["mu0"])


@case
def a_network(x):
    """An Equinox module as params, made of the numbers."""
    network = eqx.nn.MLP(3, "scalar", 3, 1, activation=jnp.tanh, key=jax.random.key(0))
    network = jax.tree.map(lambda w: x["p"][0] * w if eqx.is_array(w) else w, network)
    h = lambda mu, net: 0.5 * mu @ (mu / jnp.arange(1.0, 4.0)) + net(mu)
    return end(cj.System(cj.SO3(), h, [cj.salt(BETA)], params=network), x["mu0"], key=1)


PATHS = {
    "key": lambda x, k: {"key": k},
    "OU": lambda x, k: {"driver": cj.OU(0.2 + x["p"][0], key=k)},
    "Jumps": lambda x, k: {"driver": cj.Jumps(8.0, 0.5, key=k), "integrator": cj.HeunMK()},
    "FractionalBrownian": lambda x, k: {"driver": cj.FractionalBrownian(0.7, key=k)},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PATHS)
def test_keys_under_vmap(name):
    """Gradients under `vmap` over keys and states are those of each run alone."""
    keys = jax.random.split(jax.random.key(0), 2)
    states = jnp.stack([MU0, MU0**2])

    def number(x, key):
        return end(noisy(x), x["mu0"], **PATHS[name](x, key))

    point = lambda mu0: {"mu0": mu0, "p": jnp.asarray(INVERSE)}
    every = jax.jit(jax.vmap(lambda mu0, key: jax.grad(number)(point(mu0), key)))(states, keys)
    for k in range(2):
        alone = jax.grad(number)(point(states[k]), keys[k])
        jax.tree.map(lambda a, b, k=k: np.testing.assert_allclose(a[k], b, rtol=1e-11, atol=1e-12), every, alone)


@pytest.mark.parametrize(("function", "point"), CASES.values(), ids=list(CASES))
def test_gradient(function, point):
    """Along one direction, beside differences of fourth order of the run outside of JAX."""
    x = jax.tree.map(lambda a: jnp.asarray(a, float), point)
    rng = np.random.default_rng(5)
    d = {name: jnp.asarray(rng.standard_normal(np.shape(a))) for name, a in point.items()}
    value, slope = jax.jit(jax.value_and_grad(function))(x)
    at = lambda e: float(function(jax.tree.map(lambda a, b: a + e * b, x, d)))
    e = 1e-3
    np.testing.assert_allclose(value, at(0.0), rtol=1e-11)
    numerical = (8 * (at(e) - at(-e)) - (at(2 * e) - at(-2 * e))) / (12 * e)
    np.testing.assert_allclose(sum(jnp.vdot(slope[name], d[name]) for name in d), numerical, rtol=1e-7, atol=1e-8)


@pytest.mark.slow
def test_an_adaptive_method():
    """Forward derivatives, of a run whose choice of steps does not change; those in reverse raise an error."""
    function = lambda mu0: end(
        noisy({"p": INVERSE}), mu0, dt=0.2, steps=3, key=1, integrator=cj.Adaptive(cj.HeunMK(), tol=1e-3, halvings=3)
    )
    mu0, d, e = jnp.asarray(MU0), jnp.asarray(BETA), 1e-5
    slope = jax.jvp(function, (mu0,), (d,))[1]
    np.testing.assert_allclose(slope, (function(mu0 + e * d) - function(mu0 - e * d)) / (2 * e), rtol=1e-7)
    with pytest.raises(TypeError, match="Adaptive has no derivatives in reverse"):
        jax.grad(function)(mu0)
