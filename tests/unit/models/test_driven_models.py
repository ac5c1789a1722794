"""Coupled bodies, hierarchical triples and pulses, against equations written independently."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.linalg import expm
from scipy.spatial.transform import Rotation

import coadjoint as cj

RK4 = cj.RKMK("rk4")
DOP = {"method": "DOP853", "rtol": 1e-12, "atol": 1e-13}

# ------------------------------------------------------------------------------------------------- coupled bodies

MASSES, INERTIA = np.array([1.0, 0.7]), np.array([[0.3, 0.2, 0.4], [0.1, 0.15, 0.2]])
X = np.array([[0.2, 0.0, -0.5], [0.6, 0.1, -1.0]])
JOINTS = np.array([[-1, 0], [0, 1], [1, -1]])
ANCHORS = np.random.default_rng(0).uniform(-0.3, 0.3, (3, 2, 3))
K, LENGTH, BEND, DAMP = np.array([[9.0, 20.0, 5.0], [0.0, 0.4, 0.9], [0.3, 0.8, 0.0], [0.2, 0.5, 0.0]])
FALL = np.array([0.3, 0.0, -2.0])


def newton(t, y):
    """Positions, quaternions (x, y, z, w), velocities in space, rates in the bodies."""
    x, q, v, w = (part.reshape(2, -1) for part in np.split(y, [6, 14, 20]))
    R = [*Rotation.from_quat(q).as_matrix(), np.eye(3)]
    x, speed, spin = np.vstack([x, np.zeros(3)]), np.vstack([v, np.zeros(3)]), np.vstack([w, np.zeros(3)])
    force, torque = np.zeros((3, 3)), np.zeros((3, 3))  # in space
    for (a, b), (ra, rb), k, L, kappa, c in zip(JOINTS, ANCHORS, K, LENGTH, BEND, DAMP, strict=True):
        arms = R[a] @ ra, R[b] @ rb
        d = x[b] + arms[1] - x[a] - arms[0]
        rate = speed[b] + np.cross(R[b] @ spin[b], arms[1]) - speed[a] - np.cross(R[a] @ spin[a], arms[0])
        f = -k * (d - L * d / np.linalg.norm(d)) - c * rate
        turn = Rotation.from_matrix(R[b] @ R[a].T).as_rotvec()
        angle = max(np.linalg.norm(turn), 1e-300)
        bend = -kappa * np.sin(angle) * turn / angle
        for i, arm, sign in ((a, arms[0], -1), (b, arms[1], 1)):
            force[i] += sign * f
            torque[i] += sign * (np.cross(arm, f) + bend)
    dq = [0.5 * np.array([*(s[3] * o + np.cross(s[:3], o)), -s[:3] @ o]) for s, o in zip(q, w, strict=True)]
    dw = [(np.cross(I * o, o) + r.T @ m) / I for I, o, r, m in zip(INERTIA, w, R[:2], torque[:2], strict=True)]
    return np.concatenate([v.ravel(), np.ravel(dq), (force[:2] / MASSES[:, None] + FALL).ravel(), np.ravel(dw)])


def test_multibody():
    """Springs, joints, bending, dampers and gravity: order 4 towards Newton's equations."""
    system, _ = cj.models.multibody(
        MASSES, INERTIA, positions=X, joints=JOINTS, anchors=ANCHORS, stiffness=K, length=LENGTH, bending=BEND,
        damping=DAMP, gravity=FALL,
    )  # fmt: skip
    start = np.random.default_rng(1).uniform(-0.2, 0.2, 12)
    pi, gamma = start.reshape(2, 2, 3).swapaxes(0, 1)
    y = np.concatenate([X.ravel(), np.tile([0, 0, 0, 1], 2), (gamma / MASSES[:, None]).ravel(), (pi / INERTIA).ravel()])
    y = solve_ivp(newton, (0, 1.0), y, **DOP).y[:, -1]
    x, R = y[:6].reshape(2, 3), Rotation.from_quat(y[6:14].reshape(2, 4)).as_matrix()
    expected = np.stack([y[20:].reshape(2, 3) * INERTIA, np.einsum("nij,ni,n->nj", R, y[14:20].reshape(2, 3), MASSES)])
    errors = []
    for n in (40, 80):
        sol = cj.solve(system, start, t1=1.0, dt=1.0 / n, integrator=RK4, save_every=n)
        assert sol.stats.backend == "native", sol.stats.reason
        end = sol.mu[-1].reshape(2, 2, 3).swapaxes(0, 1)
        found = end, sol.attitude()[-1], X + np.asarray(sol.g)[-1, :, :3, 3]
        errors.append(max(np.abs(a - b).max() for a, b in zip(found, (expected, R, x), strict=True)))
    assert errors[0] < 1e-3 and 11 < errors[0] / errors[1] < 22, errors


def test_a_stiff_joint_is_a_pendulum():
    """The period of a compound pendulum."""
    I, m, arm, f = 0.1, 1.0, 0.5, 9.81
    system, _ = cj.models.multibody(
        [m], (I, I, I), positions=[(0, 0, -arm)], joints=[(-1, 0)], anchors=[((0, 0, 0), (0, 0, arm))], stiffness=1e6
    )
    period = 2 * np.pi * np.sqrt((I + m * arm**2) / (m * f * arm))
    rate = 1e-3
    start = np.array([0, I * rate, 0, -m * arm * rate, 0, 0])  # about y through the anchor
    sol = cj.solve(system, start, t1=period, dt=period / 2000, integrator=RK4, save_every=500)
    angle = np.asarray(sol.attitude())[:, 0, 2]
    largest = rate * period / (2 * np.pi)
    np.testing.assert_allclose(angle / largest, [0, 1, 0, -1, 0], atol=1e-2)


# ------------------------------------------------------------------------------------------- hierarchical triples


def averaged(j, e, m2, a2, e2, octupole=True):
    """The tidal potential of the companion to third order, averaged over both orbits by quadrature; G M = a = 1."""
    E = 2 * np.pi * np.arange(200) / 200
    size, n = np.linalg.norm(e), j / np.linalg.norm(j)
    u, v = e / size, np.cross(n, e / size)
    r = np.outer(np.cos(E) - size, u) + np.outer(np.sqrt(1 - size**2) * np.sin(E), v)
    weight = (1 - size * np.cos(E)) / len(E)
    R = np.stack([np.cos(E) - e2, np.sqrt(1 - e2**2) * np.sin(E), 0 * E], 1) * a2
    far, weight2 = np.linalg.norm(R, axis=1), (1 - e2 * np.cos(E)) / len(E)
    along = r @ R.T / far
    square = np.sum(r * r, axis=1)[:, None]
    potential = -m2 * (1.5 * along**2 - 0.5 * square) / far**3
    potential = potential - m2 * (2.5 * along**3 - 1.5 * square * along) / far**4 * octupole
    return weight @ potential @ weight2


def test_secular_energies_are_averages_over_both_orbits():
    """With the unit of time and the ε of the docstring; the quadrupole alone too."""
    m2, a2, e2 = 0.3, 5.0, 0.4
    unit, epsilon = (a2 * np.sqrt(1 - e2**2)) ** 3 / m2, e2 / a2 / (1 - e2**2)
    for k, elements in enumerate([(0.3, 0.8, 0.5, 1.1), (0.7, 2.0, -1.0, 0.3)]):
        system, mu0 = cj.models.lidov_kozai(*elements, octupole=k * epsilon)
        j, e = (np.asarray(x) for x in cj.models.orbit_vectors(mu0))
        assert abs(j @ e) < 1e-15 and abs(j @ j + e @ e - 1) < 1e-15
        np.testing.assert_allclose(system.energy(mu0), unit * averaged(j, e, m2, a2, e2, bool(k)), rtol=1e-12)


def vector_equations(t, y, epsilon):
    """j' and e' with the gradients written out."""
    j, e = y[:3], y[3:]
    x, z = np.eye(3)[[0, 2]]
    c = 15 / 64 * epsilon
    dj = -0.75 * j[2] * z + c * (10 * e[0] * j[2] * z + 10 * e[2] * (j[2] * x + j[0] * z))
    de = -1.5 * e + 3.75 * e[2] * z + c * (
        (8 * e @ e - 1 - 35 * e[2] ** 2 + 5 * j[2] ** 2) * x + e[0] * (16 * e - 70 * e[2] * z) + 10 * j[0] * j[2] * z
    )  # fmt: skip
    return -np.concatenate([np.cross(j, dj) + np.cross(e, de), np.cross(j, de) + np.cross(e, dj)])


def test_lidov_kozai():
    """Order 4 towards the vector equations; Casimirs; the largest eccentricity of the quadrupole."""
    system, mu0 = cj.models.lidov_kozai(0.2, 1.2, 0.4, 0.9, octupole=0.05)
    y = np.concatenate(cj.models.orbit_vectors(np.asarray(mu0)))
    y = solve_ivp(vector_equations, (0, 6.0), y, args=(0.05,), **DOP).y[:, -1]
    errors = []
    for n in (60, 120):
        sol = cj.solve(system, mu0, t1=6.0, dt=6.0 / n, integrator=RK4)
        errors.append(np.abs(np.concatenate(cj.models.orbit_vectors(sol.mu[-1])) - y).max())
    assert errors[0] < 1e-3 and 11 < errors[0] / errors[1] < 22, errors
    assert sol.casimir_errors().max() < 2e-15
    angles = np.array([1.0, 1.2, 1.4, 2.0])
    starts = np.stack([cj.models.lidov_kozai(1e-3, i)[1] for i in angles])
    ens = cj.ensemble(system, starts, members=4, t1=25.0, dt=0.02, integrator=RK4,
                      params={"octupole": np.zeros(4)})  # fmt: skip
    e = np.linalg.norm(cj.models.orbit_vectors(ens.mu)[1], axis=2).max(axis=1)
    np.testing.assert_allclose(e, np.sqrt(1 - 5 / 3 * np.cos(angles) ** 2), atol=1e-4)


def test_flybys():
    """The field of a noise is the torque of a tide on the orbit."""
    system, mu0 = cj.models.lidov_kozai(0.5, 0.9, 0.3, 0.2, flybys=0.7)
    j, e = (np.asarray(x) for x in cj.models.orbit_vectors(mu0))
    E = 2 * np.pi * np.arange(200) / 200
    u, v = e / 0.5, np.cross(j, e) / (0.5 * np.linalg.norm(j))
    r = np.outer(np.cos(E) - 0.5, u) + np.outer(np.sqrt(0.75) * np.sin(E), v)
    T = np.array([[0, 1, 0], [1, 0, 0], [0, 0, 0]]) / np.sqrt(2)
    torque = 0.7 * ((1 - 0.5 * np.cos(E)) / 200) @ np.cross(r, r @ T)
    found = jax.jit(lambda m: -system.algebra.ad_star(system.noise(m, jnp.eye(5)[0]), m))(mu0)
    np.testing.assert_allclose(found[:3] + found[3:], torque, atol=1e-14)


@pytest.mark.slow
def test_flybys_as_jumps():
    """They conserve the Casimirs and change j_z."""
    system, mu0 = cj.models.lidov_kozai(0.5, 0.9, 0.3, 0.2, flybys=0.7)
    stars = cj.Jumps(rate=0.5, distribution=lambda u: 0.1 * jax.scipy.special.ndtri(u), key=1)
    ens = cj.ensemble(system, mu0, members=16, t1=10.0, dt=0.05, driver=stars, save_every=20)
    jz = cj.models.orbit_vectors(ens.mu)[0][:, :, 2]
    assert ens.casimir_errors().max() < 5e-15 and np.ptp(jz[:, -1]) > 0.1
    assert ens.stats.backend == "native", ens.stats.reason


def test_flips_of_the_orbit():
    """At ε = 0.01 j_z changes its sign above the inclination that Muñoz, Lai and Liu (2016) found."""
    epsilon = 0.01
    x = epsilon / 0.1
    limit = np.sqrt(0.26 * x - 0.536 * x**2 + 12.05 * x**3 - 16.78 * x**4)
    angles = np.arccos(limit * np.array([0.4, 0.7, 1.5, 2.0]))
    members, nodes = 4 * 8, np.tile(np.linspace(0, 2 * np.pi, 8, endpoint=False), 4)
    starts = np.stack([cj.models.lidov_kozai(1e-3, i, 0.0, n)[1] for i, n in zip(angles.repeat(8), nodes, strict=True)])
    system, _ = cj.models.lidov_kozai(octupole=epsilon)
    ens = cj.ensemble(system, starts, members=members, t1=500.0, dt=0.01, integrator=RK4, save_every=10)
    flipped = (cj.models.orbit_vectors(ens.mu)[0][:, :, 2].min(axis=1) < 0).reshape(4, 8)
    assert np.all(flipped[:2]) and not np.any(flipped[2:]), flipped.sum(axis=1)


# ----------------------------------------------------------------------------------------------------------- pulses

TRAIN = [(0.1, 0.05, np.pi / 2, 0.3), (0.15, 0.1, 1.2, 1.1), (0.5, 0.1, np.pi, np.pi / 2)]


def rotation(offset, strength, pulse, time):
    """exp(τ Ω^) with and without a pulse."""
    w = np.array([0.0, 0.0, offset])
    if pulse is not None:
        _, duration, angle, phase = pulse
        w[:2] = strength * angle / duration * np.array([np.cos(phase), np.sin(phase)])
    return expm(time * np.array([[0, -w[2], w[1]], [w[2], 0, -w[0]], [-w[1], w[0], 0]]))


def test_pulses_are_rotations():
    """A train with two pulses side by side, with offsets and strengths: steps are exact."""
    offsets, strength = np.array([-2.0, 0.0, 3.0]), np.array([1.0, 0.9, 1.1])
    system, mu0 = cj.models.nmr(offsets, TRAIN, strength=strength)
    exact = []
    for d, b in zip(offsets, strength, strict=True):
        parts = [(None, 0.1), (TRAIN[0], 0.05), (TRAIN[1], 0.1), (None, 0.25), (TRAIN[2], 0.1), (None, 0.4)]
        M = np.array([0.0, 0.0, 1.0])
        for pulse, time in parts:
            M = rotation(d, b, pulse, time) @ M
        exact.append(M)
    sol = cj.solve(system, mu0, t1=1.0, dt=0.05, integrator=RK4)
    np.testing.assert_allclose(sol.mu[-1].reshape(3, 3), exact, atol=1e-14)
    assert sol.stats.backend == "native" and not sol.stats.reason and sol.casimir_errors().max() < 1e-14


def test_relaxation():
    """Free decay in closed form."""
    T1, T2, d = 2.0, 0.7, 3.0
    system, mu0 = cj.models.nmr([d], TRAIN[:1], T1=T1, T2=T2)
    sol = cj.solve(system, mu0, t1=1.15, dt=0.0125, integrator=RK4)
    M = sol.mu[12]  # after the pulse
    decay, turned = np.exp(-1.0 / T2), (M[0] + 1j * M[1]) * np.exp(1j * d)
    expected = [turned.real * decay, turned.imag * decay, 1 + (M[2] - 1) * np.exp(-1.0 / T1)]
    np.testing.assert_allclose(sol.mu[-1], expected, atol=1e-6)


CLOSE = [(0.0, 0.2, 1.0, 0.0), (0.1, 0.1, 1.0, 0.0)]
BAD = {
    "joint": (lambda: cj.models.multibody(joints=[(0, 2), (0, 1)]), ValueError, r"bodies 0 to 1, .* not \(0, 2\)"),
    "itself": (lambda: cj.models.multibody(joints=[(1, 1), (0, 1)]), ValueError, r"not \(1, 1\)"),
    "masses": (lambda: cj.models.multibody((1.0, -1.0)), ValueError, "masses must be numbers above 0"),
    "anchors": (lambda: cj.models.multibody(anchors=np.zeros((1, 2, 3))), ValueError, r"anchors must have shape \(2"),
    "moments": (lambda: cj.models.multibody(inertia=(0, 1, 1)), ValueError, "inertia must be moments above 0"),
    "eccentricity": (lambda: cj.models.lidov_kozai(1.0), ValueError, "eccentricity must be at least 0 and below 1"),
    "octupole": (lambda: cj.models.lidov_kozai(octupole="much"), TypeError, "octupole must be numbers"),
    "overlap": (lambda: cj.models.nmr(pulses=CLOSE), ValueError, "pulse 0 ends at 0.2 and pulse 1 starts at 0.1"),
    "rows": (lambda: cj.models.nmr(pulses=[(0, 1, 2)]), ValueError, "rows of 4 finite numbers"),
    "duration": (lambda: cj.models.nmr(pulses=[(0, 0, 2, 0)]), ValueError, "durations above 0"),
    "T1": (lambda: cj.models.nmr(T1=-1.0), ValueError, "T1 must be above 0"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    make, error, words = BAD[case]
    with pytest.raises(error, match=words):
        make()
