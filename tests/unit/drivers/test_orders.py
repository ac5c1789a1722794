"""The orders of methods along drivers: as reported, and measured."""

from typing import Any

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import coadjoint as cj

INERTIA = np.array([1.0, 2.0, 3.0])
START = np.array([0.6, -0.7, 0.9])
FIELD = np.array([0.5, -0.3, 0.2])
SYSTEM = cj.System(cj.SO3(), lambda m: 0.5 * m @ (m / INERTIA), cj.salt(FIELD))
WAVE = 0.3 * np.sin(np.linspace(0.0, 2.0, 41))


def along(driver, method=None, **options):
    """The limit that a run reports."""
    return cj.solve(SYSTEM, START, t1=0.2, dt=0.1, driver=driver, integrator=method or cj.RKMK(), **options).stats


@pytest.mark.parametrize(
    ("driver", "order"),
    [
        (cj.Increments(WAVE[:2]), "2 instead of 4: increments do not"),
        (cj.OU(tau=1.0, key=0), "2 instead of 4: increments do not"),
        (cj.FractionalBrownian(0.7, key=0), "none: no order is claimed along FractionalBrownian"),
        (cj.Increments(WAVE[:2], brownian=True), ""),
        (cj.Jumps(rate=1.0, distribution=0.1, key=0), ""),
        (cj.Brownian(key=0), ""),
        (cj.drivers.join(cj.OU(tau=1.0, key=0)), "2 instead of 4: increments do not"),
    ],
    ids=lambda x: type(x).__name__,
)
def test_runs_report_the_limit(driver, order):
    """`stats.order_limit` has it, and the printed statistics have a line for it."""
    stats = along(driver)
    assert stats.order_limit.startswith(order) and bool(stats.order_limit) == bool(order)
    assert ("order     " in repr(stats)) == bool(order)


def test_no_limit_where_the_method_has_no_more():
    """TMK has order 2 anyway; a system without noise does not follow a path."""
    assert along(cj.Increments(WAVE[:2]), cj.TMK()).order_limit == ""
    quiet = cj.System(cj.SO3(), lambda m: 0.5 * m @ (m / INERTIA))
    assert cj.solve(quiet, START, t1=0.2, dt=0.1, integrator=cj.RKMK()).stats.order_limit == ""


def test_the_order_along_a_smooth_path():
    """RKMK4 has order 2 along the increments of a sine, against DOP853."""

    def rate(t, m):
        return np.cross(m, m / INERTIA + 0.3 * np.cos(t) * FIELD)

    exact = solve_ivp(rate, (0.0, 2.0), START, method="DOP853", rtol=1e-12, atol=1e-12).y[:, -1]
    dt, errors = np.array([0.2, 0.1, 0.05, 0.025]), []
    for h in dt:
        dS = np.diff(0.3 * np.sin(np.linspace(0.0, 2.0, round(2.0 / h) + 1)))
        sol = cj.solve(SYSTEM, START, t1=2.0, dt=h, driver=cj.Increments(dS), integrator=cj.RKMK())
        errors.append(np.abs(sol.mu[-1] - exact).max())
    slope = np.polyfit(np.log(dt), np.log(errors), 1)[0]
    assert abs(slope - 2.0) < 0.1


def test_recommendations_along_a_driver():
    """Orders are those along the path; methods with means over Brownian motion are not in the list."""
    found = cj.recommend(SYSTEM, driver=cj.Increments(WAVE))
    assert {row.order for row in found} == {1, 2} and all(row.strong is None for row in found)
    assert "TMK15" in found.unsupported and "along Increments" in repr(found)
    kicked = cj.recommend(SYSTEM, driver=cj.Jumps(rate=1.0, distribution=0.1, key=0))
    assert (kicked[0].name, kicked[0].order) == ('RKMK("rk4")', 4)
    rough = cj.recommend(SYSTEM, driver=cj.FractionalBrownian(0.7, key=0))
    assert all(row.order is None for row in rough) and "HeunMK" in [row.name for row in rough]
    white = cj.recommend(SYSTEM, driver=cj.Brownian(key=0))
    assert [row.name for row in white] == [row.name for row in cj.recommend(SYSTEM)]
    array: Any = WAVE
    with pytest.raises(TypeError, match="driver must be a driver such as Increments"):
        cj.recommend(SYSTEM, driver=array)
    quiet = cj.System(cj.SO3(), lambda m: 0.5 * m @ (m / INERTIA))
    with pytest.raises(ValueError, match="driver needs a system with noise"):
        cj.recommend(quiet, driver=cj.Brownian(key=0))
