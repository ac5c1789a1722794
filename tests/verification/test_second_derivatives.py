"""Derivatives of derivatives through a run: every composition of forward and reverse, against central differences."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from algebras import SO4

import coadjoint as cj

ALGEBRAS = {
    "so(3)": cj.SO3(),
    "se(3)": cj.SE3(),
    "so(4)": cj.StructureConstants(SO4),  # of a user's structure constants
    "so(3) × se(3)": cj.SO3() * cj.SE3(),
    "su(3)": cj.SU(3),
    "su(9)": cj.SU(9),  # steps are solved by products
}
DT, STEPS = 0.2, 3


class Derivatives(NamedTuple):
    """A function of x, its gradient, and second derivatives along u: as numbers, or as functions of a direction."""

    value: jax.Array
    gradient: dict
    forward_forward: jax.Array  # D²f(x)(u, u)
    forward_reverse: dict  # D²f(x)(u, ·)
    reverse_reverse: dict


def derivatives(f, x: dict, u: dict) -> Derivatives:
    """All of them in one program, since to compile it takes the time."""
    gradient = jax.grad(f)
    along = lambda g: lambda x: jax.jvp(g, (x,), (u,))[1]
    dot = lambda a, b: sum(jax.tree.leaves(jax.tree.map(jnp.vdot, a, b)))
    paired = lambda x: dot(gradient(x), u)
    (value, slope), (_, forward_reverse) = jax.jvp(jax.value_and_grad(f), (x,), (u,))
    return Derivatives(value, slope, along(along(f))(x), forward_reverse, jax.grad(paired)(x))


def inputs(algebra, integrator, group: bool = True) -> dict:
    """Start, parameters, noise amplitude, path and g₀ = exp(·): all that a run is differentiated by."""
    rng = np.random.default_rng(1)
    x = {
        "mu0": rng.standard_normal(algebra.dim) * min(1.0, 3.0 / algebra.dim**0.5),
        "params": 1.0 / (1.0 + np.arange(algebra.dim) / algebra.dim),
        "beta": np.array(0.7),
    }
    if takes_increments(integrator):
        x["dS"] = 0.3 * rng.standard_normal((STEPS, 1))
        x["Z"] = 0.03 * rng.standard_normal((STEPS, 1))
    if group:
        x["g0"] = 0.3 * rng.standard_normal(algebra.dim)
    return x


def noisy(integrator) -> bool:
    return integrator.claims.strong > 0 or integrator.claims.weak > 0


def takes_increments(integrator) -> bool:
    return noisy(integrator) and not isinstance(
        integrator, (cj.TMKWeak, cj.NinomiyaVictoir, cj.integrators.BathSplitting, cj.TMK15, cj.Adaptive)
    )


def number(algebra, side, integrator, x: dict, **options):
    """A number made of the run's states and attitudes."""
    weight = np.random.default_rng(3).standard_normal(algebra.dim) / algebra.dim**0.5

    def h(mu, p):
        c = algebra.coordinates(mu)
        nonlinear = (
            0.0 if isinstance(integrator, (cj.LieTrotter, cj.Strang, cj.BlanesMoan)) else 0.1 * jnp.sum(p * c**4)
        )
        return 0.5 * c @ (p * c) + nonlinear

    noise, driver = [], {}
    if noisy(integrator):
        noise = [cj.salt(algebra.element(x["beta"] * weight))]
        driver = {"key": 0}
        if "dS" in x:
            driver = {"driver": cj.Increments(x["dS"], Z=x["Z"], areas=np.zeros((STEPS, 1, 1)), brownian=True)}
    system = cj.System(algebra, h, noise, side=side, params=x["params"])
    group = {"group": True, "g0": algebra.group_exp(algebra.element(x["g0"]))} if "g0" in x else {}
    options = {"t1": STEPS * DT, "dt": DT, "integrator": integrator, **driver, **group, **options}
    run = cj.solve(system, algebra.element(x["mu0"]), **options)
    total = jnp.sum(jnp.sin(jax.vmap(algebra.coordinates)(run.mu)) @ weight)
    for g in jax.tree.leaves(run.g) if group else ():
        angles = jnp.cos(jnp.arange(g.size).reshape(g.shape))
        total = total + jnp.sum(jnp.sin(jnp.real(g) + 2 * jnp.imag(g)) * angles) / g[0].size
    return total


def check(f, x: dict, tolerance: float = 1e-7, third: bool = False) -> None:
    """All compositions agree with each other and with central differences of fourth order."""
    u = jax.tree.map(lambda a: np.random.default_rng(2).standard_normal(np.shape(a)), x)
    u = jax.tree.map(lambda a, b: b / max(np.linalg.norm(b), 1.0) * max(np.linalg.norm(a), 0.1), x, u)
    program = jax.jit(partial(derivatives, f))
    at = lambda e: jax.tree.map(np.asarray, program(jax.tree.map(lambda a, d: a + e * d, x, u), u))
    dot = lambda a, b: sum(np.vdot(v, w) for v, w in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))
    e = 1e-3
    here, points = at(0.0), {k: at(k * e) for k in (-2, -1, 1, 2)}
    difference = lambda of: jax.tree.map(
        lambda a, b, c, d: (8 * (c - b) - (d - a)) / (12 * e), *(of(points[k]) for k in (-2, -1, 1, 2))
    )
    numerical = difference(lambda p: p.gradient)
    scale = max(np.linalg.norm(v) for v in jax.tree.leaves(numerical))
    assert scale > 1e-3, "a direction in which nothing changes tests nothing"
    np.testing.assert_allclose(dot(here.gradient, u), difference(lambda p: p.value), rtol=tolerance, atol=tolerance)
    for name in x:
        for found in (here.forward_reverse, here.reverse_reverse):
            np.testing.assert_allclose(found[name], numerical[name], rtol=0, atol=tolerance * scale, err_msg=name)
    np.testing.assert_allclose(here.forward_forward, dot(here.forward_reverse, u), rtol=tolerance, atol=tolerance)
    if third:
        cubic = jax.jit(lambda x: jax.jvp(lambda x: derivatives(f, x, u).forward_reverse, (x,), (u,))[1])(x)
        numerical = difference(lambda p: p.forward_reverse)
        scale = max(np.linalg.norm(v) for v in jax.tree.leaves(numerical))
        for name in x:
            np.testing.assert_allclose(cubic[name], numerical[name], rtol=0, atol=tolerance * scale, err_msg=name)


def possible(name, integrator) -> bool:
    """Whether the method takes the algebra, without minutes to compile 80 parts."""
    if "Isospectral" in type(integrator).__name__ and name == "so(4)":
        return False
    many = (cj.Strang, cj.BlanesMoan, cj.LieTrotter, cj.NinomiyaVictoir, cj.integrators.BathSplitting)
    return not (name == "su(9)" and isinstance(integrator, many))


CASES = [
    (name, method)
    for name in ALGEBRAS
    for method, integrator in cj.integrators.ALL.items()
    if possible(name, integrator)
]


def test_of_a_run():
    """TMK: a root, a known change and the round-off correction, by start, parameters, noise amplitude and path."""
    check(partial(number, cj.SO3(), "left", cj.TMK()), inputs(cj.SO3(), cj.TMK(), group=False))


MIXED = np.diag([1j, 1j, 1j, -1j, -1j, -1j, 0, 0, 0])  # an element of su(9) with eigenvalues that meet
PARTS = {
    "φ₁ by substeps": (cj.StructureConstants(SO4), "dexp", np.full(6, 0.4)),
    "φ₁ by eigenvectors": (cj.SU(9), "dexp", np.asarray(cj.SU(9).coordinates(jnp.asarray(MIXED)))),
    "exp by eigenvectors": (cj.SU(9), "flow", np.asarray(cj.SU(9).coordinates(jnp.asarray(MIXED)))),
    "many factors": (cj.SO3() ** 4096, "flow", np.full(3 * 4096, 0.4)),
}


@pytest.mark.parametrize("part", PARTS)
def test_of_functions_with_rules(part):
    """Also where eigenvalues meet, at which those of eigenvectors are infinite."""
    algebra, name, sigma = PARTS[part]
    mu = algebra.element(jnp.cos(jnp.arange(algebra.dim)))
    moved = lambda x: getattr(algebra, name)(algebra.element(x["sigma"]), mu)
    check(lambda x: jnp.sum(jnp.sin(algebra.coordinates(moved(x)))), {"sigma": sigma})


@pytest.mark.slow
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize(("name", "method"), CASES)
def test_everywhere(name, method, side):
    """The whole table of algebras, methods and sides; where the method moves along a group, of attitudes too."""
    algebra, integrator = ALGEBRAS[name], cj.integrators.ALL[method]
    x = inputs(algebra, integrator, group=integrator.claims.casimirs)
    check(partial(number, algebra, side, integrator), x)
