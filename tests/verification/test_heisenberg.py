"""The simple cubic Heisenberg lattice in a heat bath: near k T_c/J = 1.443, where it is published to order.

T_c: Chen, Ferrenberg and Landau, Static critical behavior of three-dimensional classical Heisenberg models (1993). The
correlation length of a periodic lattice over its side, ξ/L with ξ² = (F_0/F_1 − 1)/(4 sin²(π/L)), F_0 and F_1 the
structure factor at k = 0 and 2π/L, is R* (1 + c L^{−ω}) at T_c, R* = 0.564 and ω = 0.78 being those of the universality
class (Campostrini, Hasenbusch, Pelissetto, Rossi and Vicari, Critical exponents and equation of state of the
three-dimensional Heisenberg universality class, 2002). So two lattices say what T_c is.

Errors of the step are of order dt² in the law: two step sizes give what is left without them.
"""

import jax.numpy as jnp
import numpy as np
import pytest

import coadjoint as cj

T_C, R_STAR, OMEGA = 1.443, 0.564, 0.78
FRICTION = 4.0  # fast beside the precession, which keeps the law and forgets nothing


def neighbours(S, ways, roll):
    """Sums over neighbours on lattices (copies, L, L, L, 3), on one side of each spin or on both."""
    return sum(roll(S, way, axis=a) for a in (1, 2, 3) for way in ways)


def measured(S, xp):
    """F_0, F_1 (the mean of three directions) and the energy of each lattice."""
    side = S.shape[1]
    wave = np.exp(2j * np.pi * np.arange(side) / side)
    planes = [xp.sum(S, axis=tuple({1, 2, 3} - {a})) for a in (1, 2, 3)]  # (copies, L, 3) each
    square = lambda x: xp.sum(xp.abs(x) ** 2, axis=-1)
    waves = [square(xp.tensordot(x, wave, axes=[[1], [0]])) for x in planes]
    h = -xp.sum(S * neighbours(S, (1,), xp.roll), axis=(1, 2, 3, 4))
    return xp.stack([square(xp.sum(planes[0], axis=1)), sum(waves) / 3.0, h])


def summed_up(rows):
    """Means over time of F_0, F_1, h, F_0 h, F_1 h of each lattice."""
    f0, f1, h = np.moveaxis(np.asarray(rows), 1, 0)
    return np.stack([x.mean(axis=0) for x in (f0, f1, h, f0 * h, f1 * h)], axis=1)


def bathed(side, copies, dt, time, key):
    """By a heat bath at T_c, after a burn-in; lattices side by side are one system: a large one is stepped quickly."""
    shape = copies, side, side, side, 3

    def energy(mu):
        S = mu.reshape(shape)
        return -jnp.sum(S * neighbours(S, (1,), jnp.roll))

    def gradient(mu):
        return -neighbours(mu.reshape(shape), (1, -1), jnp.roll).reshape(-1)

    bath = cj.heat_bath(
        cj.System(cj.Product(cj.SO3(), copies=copies * side**3), energy, gradient=gradient),
        temperature=T_C,
        friction=FRICTION,
    )
    up, burn, every = np.tile([0.0, 0.0, 1.0], copies * side**3), 0.8 * side**2 / FRICTION, round(0.25 / dt)
    steps = round((burn + time) / (every * dt)) * every
    options = {"dt": dt, "key": key, "save_every": every, "integrator": cj.NinomiyaVictoir()}
    sol = cj.solve(bath, up, t1=steps * dt, save=lambda mu: measured(mu.reshape(shape), jnp), **options)
    return summed_up(sol.saved[round(burn / (every * dt)) :])


def drawn(side, copies, sweeps, rng):
    """By Monte Carlo at T_c: each spin drawn from its law given its neighbours, and turned about their field."""
    S = np.zeros((copies, side, side, side, 3))
    S[..., 2] = 1.0
    even = np.indices((side,) * 3).sum(axis=0) % 2 == 0
    rows = []
    for n in range(sweeps + sweeps // 10):
        for where in (even, ~even):
            H = neighbours(S, (1, -1), np.roll)[:, where]
            size = np.linalg.norm(H, axis=-1, keepdims=True)
            n_hat, u = H / size, rng.random((*H.shape[:-1], 1))
            z = 1.0 + np.log1p(-u * -np.expm1(-2 * size / T_C)) * T_C / size  # of density exp(z |H|/T)
            side_way = np.cross(n_hat, rng.standard_normal(H.shape))
            side_way /= np.linalg.norm(side_way, axis=-1, keepdims=True)
            S[:, where] = z * n_hat + np.sqrt(1 - z**2) * side_way
        for where in (even, ~even):
            H = neighbours(S, (1, -1), np.roll)[:, where]
            old = S[:, where]
            S[:, where] = 2 * np.sum(old * H, -1, keepdims=True) / np.sum(H * H, -1, keepdims=True) * H - old
        if n >= sweeps // 10:
            rows.append(measured(S, np))
    return summed_up(rows)


def ratio(means, side):
    """ξ/L at T_c, and its derivative by T (by that of the weights exp(−h/T))."""
    f0, f1, _, f0h, f1h = means.mean(axis=0)
    q = f0 / f1
    r = np.sqrt(q - 1.0) / (2 * np.sin(np.pi / side) * side)
    return r, q * (f0h / f0 - f1h / f1) / T_C**2 * r / (2 * (q - 1.0))


def critical(small, large):
    """T_c from lattices of two sides, (side, means) of each, as the corrections L^{−ω} have it."""
    (a, x), (b, y) = small, large
    (r, dr), (q, dq) = ratio(x, a), ratio(y, b)
    factor = (a / b) ** OMEGA
    return T_C - (q - R_STAR - factor * (r - R_STAR)) / (dq - factor * dr)


def jackknife(of, *samples):
    """of(*samples) and its standard error, by leaving out one lattice after the other of each sample."""
    total = 0.0
    for i, x in enumerate(samples):
        parts = [of(*samples[:i], np.delete(x, k, axis=0), *samples[i + 1 :]) for k in range(len(x))]
        total += (len(x) - 1) * np.var(parts)
    return of(*samples), np.sqrt(total)


def extrapolated(coarse, fine):
    """What is left without the errors dt², from values at two steps, one half of the other, with standard errors."""
    return (4 * fine[0] - coarse[0]) / 3, np.hypot(4 * fine[1], coarse[1]) / 3


@pytest.mark.slow
def test_energy_near_the_critical_point():
    """⟨h⟩ a spin of 4³ spins at T_c against Monte Carlo that knows nothing of baths, to 1e-3."""
    energy = lambda means: means[:, 2].mean() / 64
    exact, e0 = jackknife(energy, drawn(4, 64, 6000, np.random.default_rng(0)))
    steps = [jackknife(energy, bathed(4, 64, dt, time, 1)) for dt, time in ((0.0125, 300.0), (0.00625, 1000.0))]
    got, e1 = extrapolated(*steps)
    print(f"<h>/N = {got:.5f}({e1:.5f}), Monte Carlo {exact:.5f}({e0:.5f}); at both steps {steps}")
    assert np.hypot(e0, e1) < 1e-3 * abs(exact)
    assert abs(got - exact) < 4 * np.hypot(e0, e1)


@pytest.mark.slow
def test_critical_temperature():
    """k T_c/J = 1.443 from lattices of 4³ and 8³ spins, to 2e-3."""
    steps = [
        jackknife(lambda x, y: critical((4, x), (8, y)), bathed(4, 64, dt, time, 2), bathed(8, 16, dt, 4 * time, 3))
        for dt, time in ((0.025, 100.0), (0.0125, 200.0))
    ]
    got, error = extrapolated(*steps)
    print(f"T_c = {got:.4f}({error:.4f}); at both steps {steps}")
    assert error < 2e-3 * T_C
    assert abs(got - T_C) < 4 * error
