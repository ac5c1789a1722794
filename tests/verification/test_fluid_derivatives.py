"""Derivatives through fluids: the tangent-linear run and its adjoint agree, and both agree with differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coadjoint as cj


def fluid(name, n):
    """A system without noise, its flow, its initial state and two smaller fields."""
    torus = name == "torus"
    surface = cj.fluids.Torus(n) if torus else cj.fluids.Sphere(n)
    omega, *others = (cj.fluids.random_field(surface, key=k, peak=2, slope=2.0, rms=1.0) for k in range(3))
    model = cj.models.sine_euler if torus else cj.models.euler_sphere
    system, W0 = model(n, omega=omega, **({"noise_modes": None} if torus else {"noise_shells": None}))
    flow = cj.fluids.of(system)
    return system, flow, jnp.asarray(W0), *(jnp.asarray(flow.vorticity_matrix(x)) for x in others)


def inner(A, B):
    """<A, B> = Re tr(A†B)."""
    return float(jnp.real(jnp.vdot(A, B)))


CASES = [
    pytest.param("torus", 9, cj.IsospectralMidpoint(), 1e-12, marks=pytest.mark.slow),
    ("sphere", 9, cj.IsospectralMidpoint(), 1e-12),
    *(
        pytest.param(name, n, method, 1e-12, marks=pytest.mark.slow)
        for name in ("torus", "sphere")
        for n, method in ((9, cj.TMK()), (33, cj.TMK()), (33, cj.LieMidpoint()))
    ),
]


@pytest.mark.parametrize(("name", "n", "method", "tolerance"), CASES)
def test_the_adjoint_is_the_transpose_of_the_tangent_run(name, n, method, tolerance):
    """<M u, v> = <u, Mᵀ v> to round-off of the sums, and M u is the central difference."""
    system, _, W0, u, v = fluid(name, n)
    run = lambda W: cj.solve(system, W, dt=0.1, steps=3, integrator=method).mu[-1]

    @jax.jit
    def both(W, u, v):
        _, back = jax.vjp(run, W)
        return jax.jvp(run, (W,), (u,))[1], jnp.conj(back(jnp.conj(v))[0])

    Mu, Mv = both(W0, u, v)
    scale = float(jnp.linalg.norm(Mu) * jnp.linalg.norm(v))
    assert abs(inner(Mu, v) - inner(u, Mv)) < tolerance * scale
    step = 1e-5
    forward, backward = (cj.solve(system, W0 + s * u, dt=0.1, steps=3, integrator=method) for s in (step, -step))
    difference = (np.asarray(forward.mu[-1]) - np.asarray(backward.mu[-1])) / (2 * step)
    assert np.linalg.norm(difference - Mu) < 1e-7 * np.linalg.norm(Mu)
