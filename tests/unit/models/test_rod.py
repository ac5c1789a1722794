"""An elastic rod, against logarithms of matrices, Reissner's beam and the elastica."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_bvp
from scipy.linalg import expm, logm

import coadjoint as cj

K = np.array([1.1, 0.7, 0.9, 30.0, 12.0, 14.0])
RNG = np.random.default_rng(3)


def hat(x):
    (a, b, c), v = x[:3], x[3:]
    return np.array([[0, -c, b, v[0]], [c, 0, -a, v[1]], [-b, a, 0, v[2]], [0, 0, 0, 0]])


def placed(g, n, clamped=True):
    """Frames in space: displacements from a straight rod of length 2."""
    frames = np.concatenate([np.eye(4)[None], g]) if clamped else g.copy()
    frames[:, 0, 3] += 2.0 / n * np.arange(n + 1)
    return frames


def strains(g, n, clamped=True):
    G = placed(g, n, clamped)
    logs = [logm(np.linalg.solve(a, b)).real / (2.0 / n) for a, b in pairwise(G)]
    return np.array([[x[2, 1], x[0, 2], x[1, 0], x[0, 3] - 1, x[1, 3], x[2, 3]] for x in logs])


def slope(steps, errors):
    return np.polyfit(np.log(steps), np.log(errors), 1)[0]


def bent(count):
    return np.array([expm(hat(0.3 * RNG.normal(size=6))) for _ in range(count)])


@pytest.mark.parametrize("clamped", [True, False])
def test_energy_and_damping_by_logarithms_of_matrices(clamped):
    """h with all its terms; damping takes the power τ Δ Σ ε'ᵀKε', and does not act on rigid motion."""
    n, tau = 3, 0.05
    force, rest, muscle = np.array([0.3, -0.2, 0.5]), RNG.normal(size=(n, 6)), RNG.normal(size=6)
    system, mu0 = cj.models.rod(
        n, length=2.0, radius=[0.3, 0.2, 0.1], density=2.0, stiffness=K, rest_strain=rest, damping=tau,
        actuation=([0.0, 1.0], [np.zeros(6), muscle]), tip_force=force, gravity=(0.1, 0.2, -0.3), clamped=clamped,
    )  # fmt: skip
    N = n if clamped else n + 1
    assert mu0.shape == (6 * N,) and not np.any(mu0)
    g, mu = bent(N), RNG.normal(size=6 * N)
    pi, gamma = mu.reshape(N, 2, 3).swapaxes(0, 1)
    m, inertia = np.asarray(system.params["mass"]), np.asarray(system.params["inertia"])
    total = 2.0 * np.pi * (2.0 / n) * np.array([0.09, 0.04, 0.01])  # masses of the elements
    shared = 0.5 * (np.append(total, 0) + np.append(0, total))
    np.testing.assert_allclose(m, shared[-N:], rtol=1e-14)
    error = strains(g, n, clamped) - rest - 0.25 * muscle
    elastic = 0.5 * (2.0 / n) * np.sum(K * error**2)
    weight = np.sum(m * (g[:, :3, 3] @ [0.1, 0.2, -0.3])) + g[-1, :3, 3] @ force
    expected = 0.5 * np.sum(pi**2 / inertia) + 0.5 * np.sum(gamma**2 / m[:, None]) + elastic - weight
    there = system.at(0.25, jnp.asarray(g))
    np.testing.assert_allclose(float(there.energy(jnp.asarray(mu))), expected, rtol=1e-12)

    speed = RNG.normal(size=(N, 6))
    mu = np.concatenate([speed[:, :3] * inertia, speed[:, 3:] * m[:, None]], axis=1).ravel()
    damping = lambda mu: system.torques[0](jnp.asarray(mu), *there.arguments(jnp.asarray(mu)))
    taken = np.sum(speed.ravel() * np.asarray(damping(mu)))
    ahead, behind = (np.array([a @ expm(e * hat(s)) for a, s in zip(g, speed, strict=True)]) for e in (1e-6, -1e-6))
    rate = (strains(ahead, n, clamped) - strains(behind, n, clamped)) / 2e-6
    np.testing.assert_allclose(taken, -tau * (2.0 / n) * np.sum(K * rate**2), rtol=1e-7)
    if not clamped:
        G, spin = placed(g, n, False), hat(np.arange(1.0, 7.0))
        own = [np.linalg.solve(a, spin @ a) for a in G]  # velocities of one rotation of space
        xi = np.array([[x[2, 1], x[0, 2], x[1, 0], *x[:3, 3]] for x in own])
        rigid = np.concatenate([xi[:, :3] * inertia, xi[:, 3:] * m[:, None]], axis=1).ravel()
        assert np.abs(damping(rigid)).max() < 1e-12


def test_arguments():
    """Errors name the argument."""
    for options, said in [
        ({"radius": 0.0}, "radius must be above 0"), ({"poisson": 0.7}, "poisson must be"),
        ({"stiffness": np.ones(5)}, "stiffness must have"), ({"actuation": 3.0}, "actuation must be an input"),
        ({"clamped": 1}, "clamped must be True or False"), ({"start": np.zeros(3)}, "start"),
        ({"stiffness": -np.ones(6)}, "stiffness must be above 0"), ({"disturbance": np.ones(3)}, "disturbance must"),
    ]:  # fmt: skip
        with pytest.raises((TypeError, ValueError), match=said):
            cj.models.rod(2, **options)
    system, _ = cj.models.rod(2, drag=0.1, disturbance=0.01, actuation=lambda t: 0.1 * t * jnp.ones(6))
    assert "drag" in system.params and "actuation" not in system.params


def shaped(theta):
    """exp to second order, of each row."""
    zero = jnp.zeros(len(theta))
    a, b, c, x, y, z = theta.T
    rows = [[zero, -c, b, x], [c, zero, -a, y], [-b, a, zero, z], [zero] * 4]
    hats = jnp.stack([jnp.stack(row, -1) for row in rows], -2)
    return jnp.eye(4) + hats + 0.5 * hats @ hats


def statics(system, n):
    """A function of loads, one after the other, that returns frames at rest by Newton's method."""

    def potential(theta, g, p):
        frames = g @ shaped(theta.reshape(n, 6))
        return system.with_params(p).at(0.0, frames).energy(jnp.zeros(6 * n))

    slopes = jax.jit(lambda *x: (jax.grad(potential)(*x), jax.hessian(potential)(*x)))

    def found(loads):
        g = np.tile(np.eye(4), (n, 1, 1))
        for load in loads:
            p = system.params | {k: jnp.asarray(v) for k, v in load.items()}
            for _ in range(30):
                force, stiffness = slopes(jnp.zeros(6 * n), jnp.asarray(g), p)
                step = -np.linalg.solve(stiffness, force).reshape(n, 6)
                g = np.array([a @ expm(hat(s)) for a, s in zip(g, step, strict=True)])
                if np.abs(step).max() < 1e-9:  # quadratic convergence: the error is far smaller
                    break
            else:
                raise AssertionError("Newton's method did not converge")
        return g

    return found


def reissner(F, EI, EA, GA):
    """The tip of a cantilever of length 1 with a force F across it: a beam with bending, stretch and shear."""

    def rates(s, y):
        phi, kappa = y[:2]
        c, t = np.cos(phi), np.sin(phi)
        dx = (1 + F * t / EA) * c - F * c / GA * t
        return np.stack([kappa, -F / EI * dx, dx, (1 + F * t / EA) * t + F * c / GA * c])

    s = np.linspace(0, 1, 50)
    ends = lambda a, b: np.array([a[0], b[1], a[2], a[3]])
    sol = solve_bvp(rates, ends, s, np.stack([s * 0, s * 0, s, 0 * s]), tol=1e-10, max_nodes=20000)
    assert sol.success
    return sol.y[2:, -1]


@pytest.mark.slow
def test_static_cantilevers():
    """Order 2 towards Reissner's beam at a large deflection; Euler and Bernoulli's F/3EI; the elastica."""
    EI, EA, GA = 1.0, 200.0, 80.0
    K = np.array([0.8, EI, EI, EA, GA, GA])
    bend = lambda forces, **more: [{"tip_force": [0, 0, F]} | more for F in forces]
    errors, sizes, far, tips = [], (4, 8, 16), [], []
    for n in sizes:
        found = statics(cj.models.rod(n, stiffness=K, gravity=np.zeros(3))[0], n)
        large = found(bend((1.0, 2.0, 3.0, 4.0)))[-1]
        errors.append(np.abs(large[[0, 2], 3] + [1, 0] - reissner(4.0, EI, EA, GA)).max())
        far.append(found(bend([1e-4]))[-1, 2, 3] / 1e-4 - 1 / GA)
        if n < 16:
            hard = K * [1, 1, 1, 1e3, 1e3, 1e3]
            tips.append(found(bend(np.linspace(0.5, 5, 10), stiffness=hard))[-1, [0, 2], 3])
    assert abs(slope(1 / np.array(sizes), errors) - 2.0) < 0.1, errors
    assert abs((4 * far[-1] - far[-2]) / 3 - 1 / 3) < 1e-6, far
    # Mattiasson (1981) for F L²/EI = 5
    np.testing.assert_allclose((4 * tips[1] - tips[0]) / 3, [-0.38763, 0.71379], atol=1e-4)


@pytest.mark.slow
def test_motion():
    """The first bending mode, energy without damping, the circle of a moment at the tip, and rest after drag."""
    n, EI = 8, 1.0
    K = np.array([0.8, EI, EI, 400.0, 150.0, 150.0])
    given = {"radius": 0.1, "density": 1 / (np.pi * 0.01), "stiffness": K, "gravity": np.zeros(3)}
    moved, mu0 = cj.models.rod(n, **given, drag=8.0, tip_moment=(0.0, -0.5 * np.pi, 0.0))
    run = {"integrator": cj.RKMK("rk4"), "dt": 0.004}
    rest = cj.solve(moved, mu0, t1=12.0, save_every=3000, **run)
    g = np.asarray(rest.g)[-1]
    angle = 0.5 * np.pi * np.arange(1, n + 1) / n
    radius = 2 / np.pi
    np.testing.assert_allclose(g[:, 0, 3] + np.arange(1, n + 1) / n, radius * np.sin(angle), atol=1e-8)
    np.testing.assert_allclose(g[:, 2, 3], radius * (1 - np.cos(angle)), atol=1e-8)

    free = moved.with_params(moved.params | {"drag": jnp.asarray(0.0), "tip_moment": jnp.zeros(3)})
    energy = lambda sol, k: float(free.at(0.0, jnp.asarray(sol.g[k])).energy(sol.mu[k]))
    drifts, steps = [], np.array([0.004, 0.002, 0.001, 0.0005])
    for dt in steps:
        sol = cj.solve(
            free, mu0, t1=0.4, dt=dt, g0=jnp.asarray(g), save_every=round(0.4 / dt), integrator=run["integrator"]
        )
        drifts.append(abs(energy(sol, -1) - energy(sol, 0)))
    assert slope(steps, drifts) > 3.8, drifts

    small = np.tile(np.eye(4), (n, 1, 1))
    s = np.arange(1, n + 1) / n
    beta, ratio = 1.8751040687, 0.7340955
    small[:, 2, 3] = 1e-4 * (np.cosh(beta * s) - np.cos(beta * s) - ratio * (np.sinh(beta * s) - np.sin(beta * s)))
    sol = cj.solve(free, mu0, t1=4.0, g0=jnp.asarray(small), save_every=5, **run)
    z, t = np.asarray(sol.g)[:, -1, 2, 3], np.asarray(sol.t)
    spectrum = np.abs(np.fft.rfft(z * np.hanning(len(z)), 2**16))
    frequency = 2 * np.pi * np.fft.rfftfreq(2**16, t[1] - t[0])[spectrum.argmax()]
    assert abs(frequency / 3.5160153 - 1) < 0.04, frequency  # n = 8, shear and rotation of sections lower it
