"""Coloured noise against closed forms: Kubo's dephasing, and the white limit."""

import jax.numpy as jnp
import numpy as np
import pytest

import coadjoint as cj


@pytest.mark.parametrize("tau", [0.05, 2.0])
def test_dephasing_of_a_spin_follows_kubo(tau):
    """ω(t) = ω₀ + a η(t): E exp(i∫ω dt) = exp(iω₀t − ½ a² Var ∫η dt), motional narrowing to slow modulation."""
    omega, a, members, t = 1.3, 1.1, 16384, 2.0
    system = cj.System(cj.SO3(), lambda m: -omega * m[2], [cj.salt([0.0, 0.0, a])])
    ens = cj.ensemble(system, [1.0, 0.0, 0.0], members=members, t1=t, dt=0.1, driver=cj.OU(tau, key=5), save_every=5)
    times = ens.t[1:]
    variance = tau * (times / tau - 1.0 + np.exp(-times / tau))
    exact = np.exp(-0.5 * a**2 * variance)
    found = (ens.mu[:, 1:, 0] + 1j * ens.mu[:, 1:, 1]) * np.exp(-1j * omega * times)
    error = found.real.std(axis=0) / np.sqrt(members)
    assert np.all(np.abs(found.real.mean(axis=0) - exact) < 3.0 * error)
    assert np.all(np.abs(found.imag.mean(axis=0)) < 3.0 * found.imag.std(axis=0) / np.sqrt(members))


def test_the_limit_of_a_short_correlation_time_is_stratonovich():
    """Isotropic noise of three channels that do not commute: E μ = e^{−a² t} μ₀, which is e^{0} μ₀ in Itô's sense."""
    a, members, t = 0.7, 16384, 1.0
    system = cj.System(cj.SO3(), lambda m: 0.0 * m[0], [cj.salt(a * jnp.eye(3))])
    ens = cj.ensemble(system, [0.0, 0.0, 1.0], members=members, t1=t, dt=0.02, driver=cj.OU(1e-5, key=5), save_every=50)
    z = ens.mu[:, -1, 2]
    assert abs(z.mean() - np.exp(-(a**2) * t)) < 3.0 * z.std() / np.sqrt(members)


@pytest.mark.slow
def test_order_two_on_smooth_paths():
    """Steps well below τ: TMK is of order 2 on one path, refined exactly from a grid."""
    system = cj.System(cj.SO3(), lambda m: 0.5 * (m @ (m / jnp.array([1.0, 2.0, 3.0]))), [cj.salt(jnp.eye(3)[:2])])
    mu0, grid = jnp.array([0.0, 0.6, 0.8]), 1 / 16
    ends = []
    for level in range(0, 9):
        driver = cj.OU(1.0, key=3, grid=grid)
        ens = cj.ensemble(system, mu0, members=64, t1=1.0, dt=grid / 2**level, driver=driver, save_every=16 * 2**level)
        ends.append(ens.mu[:, -1])
    errors = [np.sqrt(np.mean(np.sum((e - ends[-1]) ** 2, axis=1))) for e in ends[:6]]
    slope = np.polyfit(np.arange(6), -np.log2(errors), 1)[0]
    assert 1.9 < slope < 2.1
