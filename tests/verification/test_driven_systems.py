"""Systems that time drives, against exact solutions: Rabi, Kepler, Debye, and a clock that runs unevenly."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.special import ellipj

import coadjoint as cj

INERTIA = np.array([1.0, 2.0, 3.0])
COUNTS = (20, 40, 80, 160)


def order(errors):
    """The slope of errors at the steps 1/COUNTS."""
    return -np.polyfit(np.log(COUNTS), np.log(errors), 1)[0]


def test_rabi():
    """A spin in a field that rotates: 1 − 2 Ω²/Ω_R² sin²(½ Ω_R t), Ω_R² = Ω² + (ω₀ − ω)²."""
    strength, own, drive = 1.3, 4.0, 3.4
    field = lambda t: jnp.array([strength * jnp.cos(drive * t), strength * jnp.sin(drive * t), own])
    spin = cj.System(cj.SO3(), lambda m, t: -field(t) @ m)
    rabi = np.hypot(strength, own - drive)
    errors = []
    for n in COUNTS:
        sol = cj.solve(spin, [0.0, 0.0, 1.0], t1=3.0, dt=3.0 / n, integrator=cj.RKMK("rk4"))
        exact = 1.0 - 2.0 * (strength / rabi) ** 2 * np.sin(0.5 * rabi * sol.t) ** 2
        errors.append(np.max(np.abs(sol.mu[:, 2] - exact)))
        assert np.max(sol.casimir_errors()) < 1e-14
    assert abs(order(errors) - 4) < 0.2, errors


def test_elliptic_solution_with_an_uneven_clock():
    """h = f(t) ½ π·I⁻¹π is a free body at the time ∫ f; a rotor of prescribed speed about an axis adds a phase."""
    start = np.array([0.9, 0.0, 1.4])
    clock = lambda t: t + 0.6 * np.sin(2 * t) / 2
    a, b, c = 1 / INERTIA
    energy, size2 = 0.5 * start @ (start / INERTIA), start @ start
    errors = []
    body = cj.System(cj.SO3(), lambda m, t: (1 + 0.6 * jnp.cos(2 * t)) * 0.5 * m @ (m / INERTIA))
    for n in COUNTS:
        sol = cj.solve(body, start, t1=2.0, dt=2.0 / n, integrator=cj.RKMK("rk4"))
        # Axes ordered with I₁ < I₂ < I₃: for 2h > |π|²/I₂ the motion is about the first axis.
        first, second, third = 2 * energy - size2 * c, a - c, 2 * energy
        about_first = third > size2 * b
        rate = np.sqrt((a - b) * first if about_first else (b - c) * (size2 * a - third))
        k2 = ((b - c) * (size2 * a - third)) / ((a - b) * first)
        _, cn, dn, _ = ellipj(rate * clock(sol.t), k2 if about_first else 1 / k2)
        one = np.sqrt(first / second) * (dn if about_first else cn)
        np.testing.assert_allclose(one[0], start[0], rtol=1e-12)
        errors.append(np.max(np.abs(sol.mu[:, 0] - one)))
    assert abs(order(errors) - 4) < 0.2, errors
    symmetric = np.array([1.0, 1.0, 3.0])
    rotor = cj.System(cj.SO3(), lambda m, t: 0.5 * m @ (m / symmetric) - 0.4 * (1 + jnp.sin(t)) * m[2] / 3)
    sol = cj.solve(rotor, start, t1=2.0, dt=0.01, integrator=cj.RKMK("rk4"))
    rate = start[2] * (1 / 3 - 1)
    phase = rate * sol.t - 0.4 * (sol.t + 1 - np.cos(sol.t)) / 3
    np.testing.assert_allclose(sol.mu[:, 0], 0.9 * np.cos(phase), atol=1e-9)


def test_a_rotor_of_prescribed_speed():
    """With the momentum (1 − I₃/J₃) q₃(t) of a rotor on axis 3, a body of I₃ moves as a free one of J₃."""
    I, J3, start = np.array([1.0, 2.0, 3.0]), 4.0, np.array([0.2, 0.4, 1.5])
    a, b, c = 1.0, 0.5, 1.0 / J3
    energy, size2 = 0.5 * start @ (start * [a, b, c]), start @ start
    # About axis 3: q₁ = A cn, q₂ = B sn, q₃ = C dn, at a time that is shifted to start at q₂ = 0.
    rate2, k2 = (
        (b - c) * (size2 * a - 2 * energy),
        (a - b) * (2 * energy - size2 * c) / ((b - c) * (size2 * a - 2 * energy)),
    )
    amplitude = np.sqrt((size2 * a - 2 * energy) / (a - c))
    start = np.array([np.sqrt((2 * energy - size2 * c) / (a - c)), 0.0, amplitude])

    def exact(t):
        sn, cn, dn, _ = ellipj(np.sqrt(rate2) * t, k2)
        return np.array([start[0] * cn, np.sqrt((2 * energy - size2 * c) / (b - c)) * sn, amplitude * dn])

    times = np.linspace(0.0, 3.0, 3001)
    speed = cj.inputs.cubic(times, (1 - I[2] / J3) * exact(times)[2])

    def h(m, t):
        own = m - speed(t) * jnp.array([0.0, 0.0, 1.0])
        return 0.5 * own @ (own / I)

    errors = []
    for n in COUNTS:
        sol = cj.solve(cj.System(cj.SO3(), h), start, t1=3.0, dt=3.0 / n, integrator=cj.RKMK("rk4"))
        errors.append(np.max(np.abs(sol.mu.T - exact(sol.t))))
    assert abs(order(errors) - 4) < 0.2 and errors[-1] < 1e-7, errors


def anomaly(t, e, iterations=12):
    """The distance and the direction of a body on a Kepler orbit with a = GM = 1 that starts at the pericentre."""
    E = t + e * jnp.sin(t)
    for _ in range(iterations):
        E = E - (E - e * jnp.sin(E) - t) / (1 - e * jnp.cos(E))
    r = 1 - e * jnp.cos(E)
    return r, jnp.array([jnp.cos(E) - e, np.sqrt(1 - e * e) * jnp.sin(E), 0.0]) / r


def test_gravity_gradient_on_an_elliptic_orbit():
    """h(π, g, t) with the potential (3/2r³) o·Io, o = gᵀr/r, against Newton's equations of orbit and body."""
    e, start = 0.3, np.array([0.1, -0.2, 2.9])

    def h(m, g, t):
        r, direction = anomaly(t, e)
        o = g.T @ direction
        return 0.5 * m @ (m / INERTIA) + 1.5 * o @ (INERTIA * o) / r**3

    def newton(t, y):
        m, R, x, v = y[:3], y[3:12].reshape(3, 3), y[12:15], y[15:]
        w, r = m / INERTIA, np.linalg.norm(x)
        o = R.T @ x / r
        hat = np.array([[0, -w[2], w[1]], [w[2], 0, -w[0]], [-w[1], w[0], 0]])
        torque = 3.0 / r**3 * np.cross(o, INERTIA * o)
        return np.concatenate([np.cross(m, w) + torque, (R @ hat).ravel(), v, -x / r**3])

    orbit = [1 - e, 0, 0, 0, np.sqrt((1 + e) / (1 - e)), 0]
    y = np.concatenate([start, np.eye(3).ravel(), orbit])
    end = solve_ivp(newton, (0, 2.0), y, method="DOP853", rtol=3e-14, atol=1e-15).y[:12, -1]
    errors = []
    for n in COUNTS:
        sol = cj.solve(cj.System(cj.SO3(), h), start, t1=2.0, dt=2.0 / n, integrator=cj.RKMK("rk4"))
        assert sol.stats.backend == "native", sol.stats.reason
        errors.append(np.max(np.abs(np.concatenate([sol.mu[-1], sol.g[-1].ravel()]) - end)))
    assert abs(order(errors) - 4) < 0.2, errors


@pytest.mark.slow
def test_debye():
    """The response of a spin in a bath to a weak alternating field: χ₀/(1 + iωτ), χ₀ = |m|²/3T, τ = 1/2θT."""
    temperature, friction, field, omega = 1.0, 0.5, 0.25, 1.2
    spin = cj.System(cj.SO3(), lambda m, t: -field * jnp.cos(omega * t) * m[2])
    bath = cj.heat_bath(spin, temperature=temperature, friction=friction)
    rng, members, period = np.random.default_rng(0), 100_000, 2 * np.pi / omega
    starts = rng.standard_normal((members, 3))
    starts /= np.linalg.norm(starts, axis=1, keepdims=True)
    run = {"members": members, "t1": 3 * period, "dt": period / 100, "key": 1, "integrator": cj.HeunMK()}
    ens = cj.ensemble(bath, starts, **run, save=lambda m: m[2], save_every=10)
    last = slice(10, None)  # after the first period, which is 5 relaxation times
    phase = np.exp(-1j * omega * ens.t[last])[:-1]
    own = 2 * np.mean(ens.saved[:, last][:, :-1] * phase, axis=1) / field
    found, error = own.mean(), np.array([own.real.std(), own.imag.std()]) / np.sqrt(members)
    tau = 1 / (2 * friction * temperature)
    exact = 1 / (3 * temperature) / (1 + 1j * omega * tau)
    assert abs(found.real - exact.real) < 4 * error[0] + 0.01 * abs(exact), (found, exact, error)
    assert abs(found.imag - exact.imag) < 4 * error[1] + 0.01 * abs(exact), (found, exact, error)
