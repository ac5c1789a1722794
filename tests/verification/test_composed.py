"""Compositions of symmetric methods: orders 4, 6 and 8, Poisson maps, bounded energy."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import coadjoint as cj
from coadjoint.integrators.composition_schemes import SCHEMES

from .measurement import fitted_order, quartic_body
from .test_poisson_maps import SYSTEMS, defect

START = np.array([0.6, 0.1, 0.8])
DTS = [0.5, 0.4, 0.25, 0.2]
TIMES = [2.0, 4.0, 6.0, 8.0]  # at a single time leading errors may cancel


def body(side, timed):
    """A rigid body with a quartic energy, and with a field that oscillates in time."""
    inertia = np.array([1.0, 2.0, 3.0])
    h = lambda m: 0.5 * m @ (m / inertia) + 0.2 * m[0] ** 3 + 0.3 * m[2] ** 4
    turning = lambda m, t: h(m) + 0.4 * jnp.cos(1.3 * t) * m[1]
    sign = 1.0 if side == "left" else -1.0

    def rate(t, m):
        omega = m / inertia + np.array([0.6 * m[0] ** 2, 0.0, 1.2 * m[2] ** 3])
        if timed:
            omega = omega + np.array([0.0, 0.4 * np.cos(1.3 * t), 0.0])
        return sign * np.cross(m, omega)

    return cj.System(cj.SO3(), turning if timed else h, side=side), rate


def order(system, mu0, exact, integrator, dts, times):
    errors = []
    for dt in dts:
        states = np.asarray(cj.solve(system, mu0, t1=times[-1], dt=dt, save_at=times, integrator=integrator).mu)
        errors.append(np.max(np.abs(states - exact)))
    assert min(errors) > 1e-13  # beside round-off of about 1e-15
    return fitted_order(dts, errors)


def saved(system, mu0, times, method):
    """A reference of order 8 by much smaller steps."""
    return cj.solve(system, mu0, t1=times[-1], dt=1 / 32, save_at=times, integrator=cj.Composed(method, "kahan-li8")).mu


QUICK = [("suzuki4", "left", True), ("kahan-li6", "right", True)]
ALL = [(scheme, side, timed) for scheme in SCHEMES for side in ("left", "right") for timed in (False, True)]


@pytest.mark.parametrize(
    ("scheme", "side", "timed"), [c if c in QUICK else pytest.param(*c, marks=pytest.mark.slow) for c in ALL]
)
def test_order(scheme, side, timed):
    system, rate = body(side, timed)
    exact = solve_ivp(rate, (0.0, 8.0), START, "DOP853", TIMES, rtol=3e-14, atol=1e-15).y.T
    method = cj.Composed(cj.LieMidpoint(), scheme)
    measured, spread = order(system, START, exact, method, DTS, TIMES)
    assert abs(measured - method.claims.order) < (0.75 if scheme[-1] == "8" else 0.3) and spread < 0.3


OTHERS = {
    "TMK": cj.TMK(),
    "Strang": cj.Strang(),
    "DiscreteGradient": cj.DiscreteGradient(),
    "ImplicitMidpoint": cj.ImplicitMidpoint(),
    "Trapezoidal": cj.Trapezoidal(),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_order_of_other_methods(name):
    system, mu0 = quartic_body("left")
    reference = saved(system, mu0, TIMES[:2], cj.LieMidpoint())
    method = cj.Composed(OTHERS[name], "suzuki4")
    measured, spread = order(system, mu0, reference, method, [0.25, 0.2, 0.125, 0.1], TIMES[:2])
    assert abs(measured - 4) < 0.2 and spread < 0.1


CASES = {
    "se(3)": (cj.models.heavy_top, cj.LieMidpoint()),
    "su(3)": (lambda: cj.models.sine_euler(3, key=0), cj.IsospectralMidpoint()),
    "su(9)": (lambda: cj.models.sine_euler(9, key=0), cj.IsospectralMidpoint()),
    "spins": (lambda: cj.models.spin_chain(4), cj.LieMidpoint()),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scheme", "dts"), [("suzuki4", [0.25, 0.2, 0.125, 0.1]), ("kahan-li6", [0.5, 0.4, 0.25, 0.2])]
)
@pytest.mark.parametrize("case", CASES)
def test_order_on_other_algebras(case, scheme, dts):
    model, method = CASES[case]
    system, mu0 = model()
    system = cj.System(system.algebra, system.energy, side=system.side)
    if case.startswith("su"):
        mu0 = mu0 / np.linalg.norm(mu0, 2)
    reference = saved(system, mu0, TIMES[1::2], method)
    measured, spread = order(system, mu0, reference, cj.Composed(method, scheme), dts, TIMES[1::2])
    assert abs(measured - int(scheme[-1])) < 0.4 and spread < 0.2


@pytest.mark.parametrize("where", ["so(3)", pytest.param("se(3)", marks=pytest.mark.slow)])
def test_poisson_map(where):
    """DΦ J DΦᵀ = J(Φ)."""
    system = SYSTEMS[where]
    quiet = cj.System(system.algebra, system.energy, side=system.side)
    assert defect(quiet, cj.Composed(cj.LieMidpoint(fallbacks=False), "yoshida6"), seed=3) < 3e-14


def test_energy_is_bounded():
    """Over 10⁵ large steps the error of the energy does not grow; that of a Runge–Kutta–Munthe-Kaas method does."""
    system, _ = body("left", False)
    run = {"t1": 25_000.0, "dt": 0.25, "save_every": 100}
    error = lambda i: np.abs(cj.solve(system, START, **run, integrator=i).energy() - float(system.energy(START)))
    composed, rk4 = error(cj.Composed(cj.LieMidpoint(), "kahan-li6")), error(cj.RKMK("rk4"))
    assert composed.max() < 1e-8 and composed[-100:].max() < 1.5 * composed[:100].max()
    assert rk4[-1] > 1e3 * composed.max()
