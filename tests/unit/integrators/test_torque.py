"""Torques: every method keeps its order, by the affine action Ad*_g μ + ν."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import coadjoint as cj
from coadjoint.integrators import ALL

INERTIA, W = np.array([1.0, 2.0, 3.0]), np.array([0.2, 0.1, -0.3])
START = np.array([0.6, -0.3, 0.8])
COUNTS = (10, 20, 40, 80)


def torque(m):
    """Drag, and a torque that is not linear."""
    return -0.3 * m + W * m[1] ** 2


BODY = cj.System(cj.SO3(), lambda m: 0.5 * m @ (m / INERTIA) + 0.1 * jnp.sum(m**4), torque=torque)
TIMED = cj.System(
    cj.SO3(),
    lambda m, t: 0.5 * m @ (m / INERTIA) + jnp.sin(t) * m[0],
    torque=[lambda m, t: torque(m) * jnp.cos(2 * t), lambda m: 0.1 * W],
    forcing=lambda m: 0.1 * jnp.cross(m, W),
    side="right",
)
TOP = cj.System(
    cj.SE3(),
    lambda m: 0.5 * m[:3] @ (m[:3] / INERTIA) - m[5] + 0.2 * m[3] ** 2,
    torque=lambda m: jnp.concatenate([0.1 * m[3:] - 0.2 * m[:3], jnp.array([0.1, 0.2, 0.0]) * m[0]]),
)
METHODS = {
    "TMK": cj.TMK(),
    "HeunMK": cj.HeunMK(),
    "EulerMaruyamaMK": cj.EulerMaruyamaMK(),
    "rk4": cj.RKMK("rk4"),
    "gauss4": cj.RKMK("gauss4"),
    "CommutatorFree 3": cj.CommutatorFree(3),
    "CommutatorFree 4": cj.CommutatorFree(4),
    "LieMidpoint": cj.LieMidpoint(),
    "DiscreteGradient": cj.DiscreteGradient(),
    "ImplicitMidpoint": cj.ImplicitMidpoint(),
    "Trapezoidal": cj.Trapezoidal(),
    "Heun": cj.Heun(),
    "NinomiyaVictoir": cj.NinomiyaVictoir(),
    "BathSplitting": cj.BathSplitting(),
}
REST = {name: method for name, method in ALL.items() if type(method) not in set(map(type, METHODS.values()))}
REST |= {name: method for name, method in ALL.items() if name.startswith(("RKMK", "DiscreteGradient"))}
UNSUPPORTED = ("IsospectralMidpoint", "LieTrotter", "Strang", "BlanesMoan", "LieGauss")
EXACT = {}


def right_hand_side(system):
    """s ad*_{∂h + g} μ + f, written out."""

    def field(m, t):
        now = system.at(t)
        outside = sum(f(m, *now.arguments(m)) for f in system.torques)
        return system.sign * system.algebra.ad_star(now.drift(m), m) + outside

    return jax.jit(field)


def exact(name, system, start):
    """The state at time 1 by DOP853."""
    if name not in EXACT:
        field = right_hand_side(system)
        ode = lambda t, y: np.asarray(field(y, t))
        EXACT[name] = solve_ivp(ode, (0, 1), start, method="DOP853", rtol=3e-14, atol=1e-15).y[:, -1]
    return EXACT[name]


def slope(system, start, method, reference):
    """The measured order."""
    errors = []
    for n in COUNTS:
        sol = cj.solve(system, start, t1=1.0, dt=1.0 / n, integrator=method)
        assert sol.stats.backend == "native", sol.stats.reason
        errors.append(np.max(np.abs(sol.mu[-1] - reference)))
    return -np.polyfit(np.log(COUNTS), np.log(errors), 1)[0]


@pytest.mark.parametrize("name", [*METHODS, *(pytest.param(name, marks=pytest.mark.slow) for name in REST)])
def test_every_method_keeps_its_order(name):
    method = (METHODS | REST)[name]
    if name.startswith(UNSUPPORTED):
        with pytest.raises((TypeError, ValueError), match="a torque"):
            cj.solve(BODY, START, t1=1.0, dt=0.1, integrator=method)
        return
    assert abs(slope(BODY, START, method, exact("body", BODY, START)) - method.claims.order) < 0.25


@pytest.mark.parametrize("name", ["TMK", "rk4", "CommutatorFree 4", "gauss4"])
def test_with_time_and_forcing_right_invariant(name):
    method = METHODS[name]
    assert abs(slope(TIMED, START, method, exact("timed", TIMED, START)) - method.claims.order) < 0.25


@pytest.mark.parametrize("name", ["TMK", "rk4", "CommutatorFree 4"])
def test_on_se3(name):
    start, method = np.array([*START, 0.1, 0.5, 0.9]), METHODS[name]
    assert abs(slope(TOP, start, method, exact("top", TOP, start)) - method.claims.order) < 0.25


def test_closed_forms():
    """A body that is spun up about a principal axis, and one that drag stops."""
    up = cj.System(cj.SO3(), lambda m: 0.5 * m @ (m / INERTIA), torque=lambda m, t: jnp.array([0.0, 0.0, jnp.cos(t)]))
    sol = cj.solve(up, [0.0, 0.0, 0.2], t1=2.0, dt=0.01, integrator=cj.RKMK("rk4"))
    np.testing.assert_allclose(sol.mu[:, 2], 0.2 + np.sin(sol.t), atol=1e-11)
    drag = cj.System(cj.SO3(), lambda m, c: 0.5 * m @ (m / INERTIA), torque=lambda m, c: -c * m, params=0.7)
    sol = cj.solve(drag, START, t1=2.0, dt=0.01, integrator=cj.RKMK("rk4"))
    size = np.linalg.norm(sol.mu, axis=1)
    np.testing.assert_allclose(size, np.linalg.norm(START) * np.exp(-0.7 * sol.t), rtol=1e-10)
    assert "change by a torque, dissipation or stirring" in repr(sol)


ROTATIONS = np.zeros((3, 3, 3))
for i, j, k in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
    ROTATIONS[i, j, k], ROTATIONS[j, i, k] = 1.0, -1.0
ALGEBRAS = {"su3": cj.SU(3), "product": cj.SO3() ** 2, "structure": cj.StructureConstants(ROTATIONS)}


@pytest.mark.parametrize("algebra", ALGEBRAS.values(), ids=ALGEBRAS)
def test_other_algebras(algebra):
    """Matrices, a product and structure constants, natively and by XLA."""
    rng = np.random.default_rng(0)
    a, b, start = (np.asarray(algebra.element(jnp.asarray(rng.standard_normal(algebra.dim)))) for _ in range(3))
    square = lambda m: jnp.sum(algebra.coordinates(m) ** 2 * jnp.arange(1.0, algebra.dim + 1))
    system = cj.System(algebra, lambda m: 0.1 * square(m) + algebra.pairing(m, a), torque=lambda m: b - 0.5 * m)
    rough = cj.solve(system, start, t1=0.5, dt=0.5 / 16, integrator=cj.RKMK("rk4"), backend="xla").mu[-1]
    fine = cj.solve(system, start, t1=0.5, dt=0.5 / 32, integrator=cj.RKMK("rk4")).mu[-1]
    field = right_hand_side(system)
    ode = lambda t, y: np.asarray(algebra.coordinates(field(algebra.element(jnp.asarray(y)), t)))
    begin = np.asarray(algebra.coordinates(jnp.asarray(start)))
    end = solve_ivp(ode, (0, 0.5), begin, method="DOP853", rtol=3e-14, atol=1e-15).y[:, -1]
    errors = [np.max(np.abs(np.asarray(algebra.coordinates(jnp.asarray(x))) - end)) for x in (rough, fine)]
    assert 3.6 < np.log2(errors[0] / errors[1]) < 4.4, errors


def test_attitude():
    """The group element follows with the order of the method: R' = R ω^."""
    hat = lambda w: np.array([[0, -w[2], w[1]], [w[2], 0, -w[0]], [-w[1], w[0], 0]])
    plain = cj.System(cj.SO3(), lambda m: 0.5 * m @ (m / INERTIA), torque=torque)
    field = right_hand_side(plain)

    def ode(t, y):
        m, R = y[:3], y[3:].reshape(3, 3)
        return np.concatenate([np.asarray(field(m, t)), (R @ hat(m / INERTIA)).ravel()])

    begin = np.concatenate([START, np.eye(3).ravel()])
    end = solve_ivp(ode, (0, 1), begin, method="DOP853", rtol=3e-14, atol=1e-15).y[3:, -1].reshape(3, 3)
    errors = []
    for n in COUNTS:
        sol = cj.solve(plain, START, t1=1.0, dt=1.0 / n, integrator=cj.RKMK("rk4"), group=True)
        errors.append(np.max(np.abs(sol.attitude()[-1] - end)))
    assert abs(-np.polyfit(np.log(COUNTS), np.log(errors), 1)[0] - 4) < 0.25, errors


def test_white_noise_in_the_torque():
    """Ornstein and Uhlenbeck: drag c and noise a have the variance a²/2c, also after a store and a resume."""
    system = cj.System(cj.SO3(), lambda m: 0.0 * m[0], [cj.white_torque(0.3 * np.eye(3))], torque=lambda m: -2.0 * m)
    ens = cj.ensemble(system, [1.0, 0, 0], members=4000, t1=4.0, dt=0.02, key=1, save_every=200)
    variance = np.var(ens.mu[:, -1], axis=0)
    np.testing.assert_allclose(variance, 0.09 / 4, rtol=4 * np.sqrt(2 / 4000))
    assert ens.stats.backend == "native", ens.stats.reason


def test_white_torque_and_salt_converge_along_a_path():
    """Strong order 1 of TMK: one SALT noise and one white torque, which do not act on each other."""
    system = cj.System(
        cj.SO3(),
        lambda m: 0.5 * m @ (m / INERTIA),
        [cj.salt([0.0, 0.0, 0.3]), cj.white_torque([0.0, 0.0, 0.2])],
        torque=lambda m: -0.5 * m,
    )
    run = {"members": 64, "t1": 1.0, "driver": cj.Brownian(3, grid=0.125)}
    steps = (0.125, 0.0625, 0.03125, 0.015625)
    ends = lambda dt: cj.ensemble(system, START, dt=dt, save_every=round(1 / dt), **run).mu[:, -1]
    reference = ends(0.125 / 2**7)
    errors = [np.sqrt(np.mean((ends(dt) - reference) ** 2)) for dt in steps]
    assert 0.85 < np.polyfit(np.log(steps), np.log(errors), 1)[0] < 1.3, errors


def test_salt_and_white_torque_that_do_not_commute():
    """TMKLevy is given the areas, and keeps strong order 1."""
    rng, members, fine, counts = np.random.default_rng(0), 64, 512, (8, 16, 32, 64)
    dW = rng.standard_normal((members, fine, 2)) / np.sqrt(fine)
    noise = [cj.salt([0.0, 0.0, 0.5]), cj.white_torque([0.4, 0.0, 0.0])]
    system = cj.System(cj.SO3(), lambda m: 0.5 * m @ (m / INERTIA), noise, side="right")

    def ends(n, method):
        parts = dW.reshape(members, n, -1, 2)
        W = np.cumsum(parts, axis=2) - parts
        areas = np.einsum("pnki,pnkj->pnij", W, parts)
        path = cj.Increments(parts.sum(axis=2), areas=0.5 * (areas - areas.swapaxes(2, 3)), brownian=True)
        run = {"t1": 1.0, "dt": 1.0 / n, "save_every": n, "driver": path, "integrator": method}
        return cj.ensemble(system, START, members=members, **run).mu[:, -1]

    reference = ends(fine, cj.TMK())
    errors = [np.sqrt(np.mean((ends(n, cj.TMKLevy()) - reference) ** 2)) for n in counts]
    assert 0.85 < -np.polyfit(np.log(counts), np.log(errors), 1)[0] < 1.3, errors


AXIS, OTHER = [0.0, 0.0, 0.5], [0.4, 0.0, 0.0]


class Given(cj.Noise):
    """SALT noise whose fields are zero only for some params."""

    size = 2
    additive = True

    def apply(self, mu, dS, p):
        return p * jnp.stack([dS[0], dS[1], 0.0 * dS[0]])


@pytest.mark.parametrize(
    "noise, params, commute",
    [
        ([cj.salt(AXIS), cj.white_torque(AXIS)], None, True),
        ([cj.salt(AXIS), cj.white_torque(OTHER)], None, False),
        ([cj.salt([AXIS, OTHER])], None, False),
        ([cj.white_torque([AXIS, OTHER])], None, True),
        ([cj.white_torque(lambda t: jnp.array([AXIS, OTHER]) * t)], None, True),
        ([cj.salt(AXIS), cj.white_torque(lambda p: p * jnp.array(OTHER))], 0.0, False),
        ([Given()], 0.0, False),
    ],
)
def test_noises_that_commute(noise, params, commute):
    """Areas are left out only if no params, members or times need them."""
    h = (lambda m: m @ m) if params is None else lambda m, p: m @ m
    assert cj.System(cj.SO3(), h, noise, params=params).commuting is commute


def test_derivatives_and_members():
    system = cj.System(cj.SO3(), lambda m, c: 0.5 * m @ (m / INERTIA), torque=lambda m, c: -c * m, params=0.7)
    end = lambda c: cj.solve(system.with_params(c), START, t1=1.0, dt=0.1).mu[-1] @ jnp.arange(3.0)
    np.testing.assert_allclose(jax.grad(end)(0.7), (end(0.7 + 1e-5) - end(0.7 - 1e-5)) / 2e-5, rtol=1e-8)
    two = cj.ensemble(system, START, members=2, params=np.array([0.7, 0.2]), t1=1.0, dt=0.1).mu[:, -1] @ np.arange(3.0)
    np.testing.assert_allclose(two, [end(0.7), end(0.2)], rtol=1e-13)


def test_stored_and_resumed(tmp_path):
    run = {"dt": 0.05, "save_every": 2}
    whole = cj.solve(BODY, START, t1=1.0, **run, out=tmp_path / "whole.zarr")
    cj.solve(BODY, START, t1=0.5, **run, out=tmp_path / "legs.zarr")
    legs = cj.solve(BODY, START, t1=1.0, **run, out=tmp_path / "legs.zarr", resume=True)
    assert np.asarray(whole.mu).tobytes() == np.asarray(legs.mu).tobytes()
    other = cj.System(cj.SO3(), lambda m: 0.5 * m @ (m / INERTIA) + 0.1 * jnp.sum(m**4), torque=lambda m: -m)
    with pytest.raises(cj.StoreError, match="torque"):
        cj.solve(other, START, t1=1.5, **run, out=tmp_path / "legs.zarr", resume=True)


BAD = {
    "shape": (lambda: cj.System(cj.SO3(), lambda m: m @ m, torque=lambda m: m[:2]), ValueError, "torque must return"),
    "signature": (lambda: cj.System(cj.SO3(), lambda m: m @ m, torque=lambda: 1.0), TypeError, r"torque\(mu\)"),
    "Hermitian": (
        lambda: cj.System(cj.SU(3), lambda m: 0.0 * jnp.real(m[0, 0]), torque=lambda m: 1j * m),
        ValueError,
        "torque",
    ),
    "Strang": (
        lambda: cj.solve(BODY, START, t1=1.0, dt=0.1, integrator=cj.Strang()),
        ValueError,
        "a torque is no part",
    ),
    "Cayley": (
        lambda: cj.solve(BODY, START, t1=1.0, dt=0.1, integrator=cj.TMK(tau=cj.Cayley())),
        TypeError,
        r"Cayley\(\) does not support a torque",
    ),
    "white": (lambda: cj.white_torque([np.nan, 0, 0]), ValueError, "finite"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    make, error, message = BAD[case]
    with pytest.raises(error, match=message):
        make()
