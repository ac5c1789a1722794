"""Functions of the group element: the system is on T*G, and every method keeps its order."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import coadjoint as cj

INERTIA, CHI, UP = np.array([1.0, 2.0, 3.0]), np.array([0.2, 0.1, 0.9]), np.array([0.0, 0.0, 1.0])
START = np.array([0.6, -0.3, 0.8])
G0 = cj.quaternion_to_rotation([0.8, 0.2, -0.5, 0.3])
COUNTS = (10, 20, 40, 80)


def kinetic(m):
    """½ π·I⁻¹π."""
    return 0.5 * m @ (m / INERTIA)


# A heavy top in the frame of the body, and the same in the frame of space.
TOP = cj.System(cj.SO3(), lambda m, g: kinetic(m) + 1.3 * g[2] @ CHI)
SPACE = cj.System(cj.SO3(), lambda m, g: kinetic(g.T @ m) + 1.3 * g[2] @ CHI, side="right")
METHODS = {
    "TMK": cj.TMK(),
    "TMK15": cj.TMK15(),
    "TMKLevy": cj.TMKLevy(),
    "TMKWeak": cj.TMKWeak(),
    "HeunMK": cj.HeunMK(),
    "EulerMaruyamaMK": cj.EulerMaruyamaMK(),
    "rk4": cj.RKMK("rk4"),
    "gauss4": cj.RKMK("gauss4"),
    "CommutatorFree 3": cj.CommutatorFree(3),
    "CommutatorFree 4": cj.CommutatorFree(4),
    "LieMidpoint": cj.LieMidpoint(),
    "gonzalez": cj.DiscreteGradient(),
    "average": cj.DiscreteGradient("average"),
    "NinomiyaVictoir": cj.NinomiyaVictoir(),
    "NinomiyaVictoir LieMidpoint": cj.NinomiyaVictoir(cj.LieMidpoint()),
    "BathSplitting": cj.BathSplitting(),
}
FEW = ("rk4", "CommutatorFree 4", "gonzalez")


def hat(w):
    """The matrix of the cross product with w."""
    return np.array([[0, -w[2], w[1]], [w[2], 0, -w[0]], [-w[1], w[0], 0]])


def body(t, y):
    """A rigid body in the field of gravity: π' = π×ω + 1.3 Rᵀe₃×χ, R' = Rω^."""
    m, R = y[:3], y[3:].reshape(3, 3)
    w = m / INERTIA
    return np.concatenate([np.cross(m, w) + 1.3 * np.cross(R.T @ UP, CHI), (R @ hat(w)).ravel()])


def integrate(ode, *start, t1=1.0):
    """The end by DOP853."""
    y = np.concatenate([np.ravel(x) for x in start])
    return solve_ivp(ode, (0, t1), y, method="DOP853", rtol=3e-14, atol=1e-15).y[:, -1]


END = integrate(body, START, G0)


def errors(system, start, method, end, g0, counts=COUNTS):
    """Those of the state and the group element, for several steps."""
    out = []
    for n in counts:
        sol = cj.solve(system, start, t1=1.0, dt=1.0 / n, integrator=method, g0=g0)
        assert sol.stats.backend == "native", sol.stats.reason
        last = np.concatenate([np.ravel(sol.mu[-1]), np.ravel(sol.g[-1])])
        out.append(np.max(np.abs(last - end)))
    return out


def order(found, counts=COUNTS):
    """The slope of errors."""
    return -np.polyfit(np.log(counts), np.log(found), 1)[0]


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in FEW else pytest.mark.slow) for n in METHODS])
def test_every_method_keeps_its_order(name):
    """Of a heavy top as a body with its attitude."""
    method = METHODS[name]
    found = errors(TOP, START, method, END, G0)
    assert abs(order(found) - method.claims.order) < 0.2, found


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n == "rk4" else pytest.mark.slow) for n in METHODS])
def test_right_invariant(name):
    """The same top with its momentum in space: g is trivialised on the right."""
    R, method = END[3:].reshape(3, 3), METHODS[name]
    found = errors(SPACE, G0 @ START, method, np.concatenate([R @ END[:3], R.ravel()]), G0)
    assert abs(order(found) - method.claims.order) < 0.2, found


@pytest.mark.slow
def test_the_heavy_top_of_se3():
    """The same motion as that of the semidirect product, whose second vector is −Rᵀe₃."""
    se3 = cj.System(cj.SE3(), lambda m: kinetic(m[:3]) - 1.3 * CHI @ m[3:])
    run = {"t1": 1.0, "dt": 0.02, "integrator": cj.RKMK("gauss4"), "save_every": 50}
    other = cj.solve(se3, np.concatenate([START, -G0[2]]), **run)
    sol = cj.solve(TOP, START, **run, g0=G0)
    np.testing.assert_allclose(sol.mu[-1], other.mu[-1, :3], atol=1e-8)
    np.testing.assert_allclose(-sol.attitude()[-1, 2], other.mu[-1, 3:], atol=1e-8)


@pytest.mark.parametrize("kind", ["gonzalez", pytest.param("average", marks=pytest.mark.slow)])
def test_discrete_gradients_conserve_the_energy(kind):
    """With `average` up to its quadrature."""
    sol = cj.solve(TOP, START, t1=50.0, dt=0.1, integrator=cj.DiscreteGradient(kind, nodes=5), g0=G0)
    assert np.max(np.abs(sol.energy() - sol.energy()[0])) < (1e-12 if kind == "gonzalez" else 1e-9)
    by_hand = [kinetic(m) + 1.3 * g[2] @ CHI for m, g in zip(sol.mu, sol.g, strict=True)]
    np.testing.assert_allclose(sol.energy(), by_hand, rtol=1e-14)


# Rigid bodies with positions, one and two.


def one(m, g):
    """A body of mass 2 at the end of a spring, whose point of attachment is not its centre."""
    attached = g[:3, 3] + g[:3, :3] @ CHI
    return kinetic(m[:3]) + m[3:] @ m[3:] / 4 + 0.7 * attached @ attached + 0.3 * g[2, 3]


def two(m, g):
    """Two bodies that a spring connects."""
    apart = g[0, :3, 3] + g[0, :3, :3] @ CHI - g[1, :3, 3] + g[1, :3, :3] @ CHI
    return sum(kinetic(x[:3]) + x[3:] @ x[3:] / 4 for x in (m[:6], m[6:])) + 0.7 * apart @ apart


def forces_one(R, p):
    """Force in space, and torque in the body."""
    F = -1.4 * (p + R @ CHI)
    return F - 0.3 * UP, np.cross(CHI, R.T @ F)


def forces_two(R, p):
    """Those of both bodies."""
    F = -1.4 * (p[0] + R[0] @ CHI - p[1] + R[1] @ CHI)
    return [F, -F], [np.cross(CHI, R[0].T @ F), np.cross(-CHI, R[1].T @ -F)]


def newton(t, y):
    """Newton and Euler for two bodies: (π, γ) in the frames of the bodies, R and p."""
    m, R, p = y[:12].reshape(2, 6), y[12:30].reshape(2, 3, 3), y[30:].reshape(2, 3)
    F, T = forces_two(R, p)
    out = []
    for x, Q, f, torque in zip(m, R, F, T, strict=True):
        w = x[:3] / INERTIA
        out += [np.cross(x[:3], w) + torque, np.cross(x[3:], w) + Q.T @ f]
    turns = [Q @ hat(x[:3] / INERTIA) for Q, x in zip(R, m, strict=True)]
    moves = [Q @ x[3:] / 2 for Q, x in zip(R, m, strict=True)]
    return np.concatenate([np.ravel(x) for x in [*out, *turns, *moves]])


def test_se3():
    def ode(t, y):
        m, R, p = y[:6], y[6:15].reshape(3, 3), y[15:]
        F, T = forces_one(R, p)
        w, v = m[:3] / INERTIA, m[3:] / 2
        return np.concatenate([np.cross(m[:3], w) + T, np.cross(m[3:], w) + R.T @ F, (R @ hat(w)).ravel(), R @ v])

    start, p = np.array([*START, 0.4, -0.2, 0.5]), np.array([0.3, -0.4, 0.2])
    g0 = np.block([[G0, p[:, None]], [np.zeros(3), 1.0]])
    end = integrate(ode, start, G0, p)
    g = np.block([[end[6:15].reshape(3, 3), end[15:, None]], [np.zeros(3), 1.0]])
    found = errors(cj.System(cj.SE3(), one), start, cj.RKMK("rk4"), np.concatenate([end[:6], g.ravel()]), g0)
    assert abs(order(found) - 4) < 0.2, found


def test_copies_of_se3():
    start = np.array([*START, 0.4, -0.2, 0.5, -0.3, 0.5, 0.2, 0.1, 0.3, -0.6])
    R, p = np.stack([G0, G0.T]), np.array([[0.3, -0.4, 0.2], [-0.3, 0.1, 0.5]])
    g0 = np.zeros((2, 4, 4))
    g0[:, :3, :3], g0[:, :3, 3], g0[:, 3, 3] = R, p, 1.0
    end = integrate(newton, start, R, p)
    g0_end = np.zeros((2, 4, 4))
    g0_end[:, :3, :3], g0_end[:, :3, 3], g0_end[:, 3, 3] = end[12:30].reshape(2, 3, 3), end[30:].reshape(2, 3), 1.0
    system = cj.System(cj.Product(cj.SE3(), copies=2), two)
    found = errors(system, start, cj.RKMK("rk4"), np.concatenate([end[:12], g0_end.ravel()]), g0)
    assert abs(order(found) - 4) < 0.2, found
    sol = cj.solve(system, start, t1=0.5, dt=0.1, g0=g0)
    assert sol.attitude().shape == (6, 2, 3, 3)
    assert sol.attitude("quaternion").shape == (6, 2, 4)
    assert np.all(np.sum(sol.attitude("quaternion")[1:] * sol.attitude("quaternion")[:-1], -1) > 0.9)


def test_su2():
    """A spinor: the top of SO(3) by unitary matrices."""
    pauli = np.array([[[0, 1], [1, 0]], [[0, -1j], [1j, 0]], [[1, 0], [0, -1]]])
    basis = -0.5j * pauli  # [b_1, b_2] = b_3
    su2 = cj.SU(2)
    momentum = lambda m: jnp.real(jnp.stack([su2.pairing(m, b) for b in basis]))
    R = lambda g: su2.rotation_part(g)
    system = cj.System(su2, lambda m, g: kinetic(momentum(m)) + 1.3 * R(g)[2] @ CHI)
    dual = 2 * np.einsum("i,iab->ab", START, basis)  # <dual, b_i> = START_i
    np.testing.assert_allclose(momentum(dual), START, atol=1e-15)
    w, x, y, z = 0.8, 0.2, -0.5, 0.3
    g0 = (w * np.eye(2) - 1j * (x * pauli[0] + y * pauli[1] + z * pauli[2])) / np.sqrt(w**2 + x**2 + y**2 + z**2)
    np.testing.assert_allclose(R(g0), G0, atol=1e-15)
    found = []
    for n in COUNTS:
        sol = cj.solve(system, dual, t1=1.0, dt=1.0 / n, integrator=cj.RKMK("rk4"), g0=g0)
        end = np.concatenate([momentum(sol.mu[-1]), sol.attitude()[-1].ravel()])
        found.append(np.max(np.abs(end - END)))
    assert abs(order(found) - 4) < 0.2, found


@pytest.mark.slow
def test_other_groups():
    """Semidirect products and structure constants have Ad_g; the attitude is in it."""
    algebra = cj.Semidirect(cj.SO3(), cj.SO3().bracket, dim=3)
    system = cj.System(algebra, lambda m, g: kinetic(m[:3]) + 1.3 * g[2, :3] @ CHI)
    found = []
    for n in (10, 20, 40):
        sol = cj.solve(system, [*START, 0, 0, 0], t1=1.0, dt=1.0 / n, integrator=cj.RKMK("rk4"))
        found.append(np.max(np.abs(sol.mu[-1, :3] - integrate(body, START, np.eye(3))[:3])))
    assert abs(order(found, (10, 20, 40)) - 4) < 0.3, found
    np.testing.assert_allclose(sol.attitude()[-1].ravel(), integrate(body, START, np.eye(3))[3:], atol=1e-7)


# One system with everything: time, params, SALT noise, a torque and a forcing of the group element.
ALL = cj.System(
    cj.SO3(),
    lambda m, p, g, t: kinetic(m) + p["a"] * jnp.cos(t) * g[2] @ CHI,
    [cj.salt(0.1 * np.eye(3)[:2])],
    torque=lambda m, p, t, g: -0.1 * m + p["b"] * (g.T @ UP) * jnp.sin(t),
    forcing=lambda m, p, g: 0.1 * g[0],
    params={"a": 1.3, "b": 0.4},
)
RUN = {"t0": 0.3, "t1": 1.1, "dt": 0.05, "key": 3, "integrator": cj.RKMK("rk4")}


def save(m, t, g):
    """The energy by hand, and the time."""
    return {"energy": kinetic(m) + 1.3 * jnp.cos(t) * g[2] @ CHI, "t": t}


@pytest.fixture(scope="module")
def alone():
    return cj.solve(ALL, START, **RUN, g0=G0)


def test_backends_members_and_saved_functions(alone):
    """Native code, XLA, members with their own g0, and save(m, t, g) agree."""
    assert alone.stats.backend == "native", alone.stats.reason
    xla = cj.solve(ALL, START, **RUN, g0=G0, backend="xla")
    np.testing.assert_allclose(alone.mu, xla.mu, atol=1e-13)
    np.testing.assert_allclose(alone.g, xla.g, atol=1e-13)
    starts = np.stack([np.eye(3), G0, G0.T])
    members = cj.ensemble(ALL, START, members=3, **RUN, g0=starts)
    zero = cj.solve(ALL, START, **RUN)
    np.testing.assert_allclose(members.mu[0], zero.mu, atol=1e-14)
    np.testing.assert_allclose(members.g[1, 0], G0)
    assert members.attitude("quaternion").shape == (3, 17, 4)
    for backend in ("native", "xla"):
        sol = cj.solve(ALL, START, **RUN, g0=G0, save=save, backend=backend)
        assert sol.g is None
        np.testing.assert_allclose(sol.saved["energy"], alone.energy(), rtol=1e-13)
        np.testing.assert_allclose(sol.saved["t"], alone.t, rtol=1e-15)
    reduced = cj.ensemble(ALL, START, members=3, **RUN, g0=starts, save=save, reduce=cj.Mean()).reduced
    energies = members.energy()
    np.testing.assert_allclose(reduced["mean"]["energy"], energies.mean(axis=0), rtol=1e-13)
    assert "energy" in members.to_xarray()
    own = cj.ensemble(ALL, START, members=2, **RUN, g0=G0, params={"a": np.array([1.3, 0.5]), "b": 0.4})
    assert np.max(np.abs(own.mu[1, -1] - own.mu[0, -1])) > 1e-2


def test_stored_and_resumed(alone, tmp_path):
    run = RUN | {"g0": G0, "save_every": 2}
    whole = cj.solve(ALL, START, **run, out=tmp_path / "whole.zarr")
    cj.solve(ALL, START, **(run | {"t1": 0.6}), out=tmp_path / "legs.zarr")
    legs = cj.solve(ALL, START, **run, out=tmp_path / "legs.zarr", resume=True)
    for name in ("mu", "g"):
        a, b = (np.asarray(getattr(x, name)) for x in (whole, legs))
        assert a.tobytes() == b.tobytes()
    np.testing.assert_allclose(np.asarray(whole.energy()), alone.energy()[::2], rtol=1e-13)
    with_save = cj.solve(ALL, START, **run, save=save, out=tmp_path / "saved.zarr")
    np.testing.assert_allclose(np.asarray(with_save.to_xarray()["saved_energy"]), alone.energy()[::2], rtol=1e-13)


@pytest.mark.slow
def test_derivatives(alone):
    """By the start, the group element at the start, and a parameter, against central differences."""
    weights = jnp.array([0.3, -0.2, 0.5])

    @jax.jit
    def end(mu, a, turn):
        g0 = cj.SO3().group_product(G0, cj.SO3().group_exp(turn))
        sol = cj.solve(ALL.with_params({"a": a, "b": 0.4}), mu, **RUN, g0=g0)
        return sol.mu[-1] @ weights + sol.g[-1, 0] @ weights

    at = jnp.asarray(START), jnp.asarray(1.3), jnp.zeros(3)
    found = jax.grad(end, argnums=(0, 1, 2))(*at)
    e = 1e-5
    for k, step in ((0, e * np.eye(3)[1]), (1, e), (2, e * np.eye(3)[0])):
        moved = lambda s, k=k, step=step: end(*(x + s * step if i == k else x for i, x in enumerate(at)))
        difference = (moved(1) - moved(-1)) / (2 * e)
        exact = found[k] if k == 1 else found[k] @ (step / e)
        np.testing.assert_allclose(exact, difference, rtol=1e-7)


@pytest.mark.slow
def test_noise_of_the_group_element():
    """Noise h_i(μ, g), salt(β(g)) and a white torque fixed in space converge along a path, strong order 1."""
    system = cj.System(cj.SO3(), kinetic, [lambda m, g: 0.2 * (g[2] @ CHI)], side="left")
    steps = (0.125, 0.0625, 0.03125, 0.015625)
    fields = {
        "h": system,
        "salt": cj.System(cj.SO3(), kinetic, [cj.salt(lambda g: 0.3 * g[2])]),
        "white": cj.System(cj.SO3(), kinetic, [cj.white_torque(lambda g: 0.3 * g[0])]),
    }
    for name, one in fields.items():
        run = {"members": 64, "t1": 1.0, "driver": cj.Brownian(3, grid=0.125)}
        ends = lambda dt, one=one, run=run: cj.ensemble(one, START, dt=dt, save_every=round(1 / dt), **run).mu[:, -1]
        reference = ends(0.125 / 2**7)
        found = [np.sqrt(np.mean((ends(dt) - reference) ** 2)) for dt in steps]
        assert 0.85 < np.polyfit(np.log(steps), np.log(found), 1)[0] < 2.2, (name, found)


BAD = {
    "default": (lambda: cj.System(cj.SO3(), lambda m, g=1.0: m @ m), TypeError, "receives the group element"),
    "first": (lambda: cj.System(cj.SO3(), lambda g, m: m @ m), TypeError, r"write hamiltonian\(mu, g\)"),
    "params": (lambda: cj.System(cj.SO3(), lambda m, g: m @ m, params=1.0), TypeError, r"hamiltonian\(mu, params, g\)"),
    "classical": (lambda: cj.solve(TOP, START, t1=1.0, dt=0.1, integrator=cj.Heun()), TypeError, "group element g"),
    "Cayley": (
        lambda: cj.solve(TOP, START, t1=1.0, dt=0.1, integrator=cj.IsospectralMidpoint()),
        TypeError,
        r"use a method with tau=Exp\(\)",
    ),
    "Strang": (lambda: cj.solve(TOP, START, t1=1.0, dt=0.1, integrator=cj.Strang()), ValueError, "group element"),
    "dissipation": (
        lambda: cj.System(cj.SO3(), lambda m, g: g[0, 0], dissipation=lambda m, dt: m),
        ValueError,
        "as torque=",
    ),
    "bath": (lambda: cj.heat_bath(TOP, temperature=1.0, friction=0.1), ValueError, "group element"),
    "energy": (lambda: TOP.energy(START), ValueError, r"call at\(t, g, u\)"),
    "no energy": (
        lambda: cj.ensemble(TOP, START, members=2, t1=1.0, dt=0.1, save=lambda m: m[0]).energy(),
        AttributeError,
        "save=",
    ),
    "save": (lambda: cj.solve(TOP, START, t1=1.0, dt=0.1, save=lambda m, g=0: m), TypeError, "save has an argument g"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    make, error, message = BAD[case]
    with pytest.raises(error, match=message):
        make()


def test_words():
    assert "on T*G" in repr(TOP)
    assert all(row.conserves == () or row.conserves == ("time symmetry",) for row in cj.recommend(TOP))
    sol = cj.solve(cj.System(cj.SO3(), kinetic), START, t1=0.2, dt=0.1, save=lambda mu, t: t)
    np.testing.assert_array_equal(sol.saved, sol.t)


def test_quaternions_that_are_no_rotations():
    with pytest.raises(ValueError, match="finite quaternions other than 0"):
        cj.quaternion_to_rotation([0.0, 0.0, 0.0, 0.0])
    with pytest.raises(ValueError, match=r"shape \(\.\.\., 4\), not \(3,\)"):
        cj.quaternion_to_rotation([1.0, 0.0, 0.0])
