"""The simple cubic Heisenberg lattice in a heat bath: near k T_c/J = 1.443, where it is published to order.

T_c: Chen, Ferrenberg and Landau, Static critical behavior of three-dimensional classical Heisenberg models (1993). The
correlation length of a periodic lattice over its side, ξ/L with ξ² = (F_0/F_1 − 1)/(4 sin²(π/L)), F_0 and F_1 the
structure factor at k = 0 and 2π/L, is R* (1 + c L^{−ω}) at T_c, both being those of the universality class: R* = 0.564
(Campostrini, Hasenbusch, Pelissetto, Rossi and Vicari, Critical exponents and equation of state of the
three-dimensional Heisenberg universality class, 2002), ω = 0.759 (Hasenbusch, Monte Carlo study of a generalized
icosahedral model on the simple cubic lattice, 2020). So two lattices determine T_c.

Means have little noise where it is known: the friction's generator 𝓛f = Σ_i (T Δ_i f + H_i·∇_i f), H_i = −∂h/∂S_i, has
the mean 0 for every f. So multiples of 𝓛F_0, 𝓛F_1 and 𝓛h are taken away from all that is averaged, those that are
found beside it by regression; f itself goes down at the rate −𝓛f, so that most of its wandering goes with them.

Errors of the step are of order dt² in the law, and in these multiples: two step sizes give what is left without them.
"""

import jax.numpy as jnp
import numpy as np
import pytest

import coadjoint as cj

T_C, R_STAR, OMEGA = 1.443, 0.564, 0.759
FRICTION = 4.0  # fast beside the precession, which keeps the law and forgets nothing
BLOCKS = 8  # pieces of a run, from which the multiples are found


def neighbours(S, xp):
    """Sums over the six neighbours on lattices (copies, L, L, L, 3), as slices of lattices continued on all sides."""
    for axis in (1, 2, 3):
        last, first = (S[(slice(None),) * axis + (end,)] for end in (slice(-1, None), slice(0, 1)))
        S = xp.concatenate([last, S, first], axis)
    c = slice(1, -1)
    ways = (slice(2, None), c, c), (slice(None, -2), c, c)
    return sum(S[:, *(way[k - a] for k in range(3))] for a in range(3) for way in ways)


def measured(S, xp):
    """F_0, F_1 (the mean of three directions), h, 𝓛F_0, 𝓛F_1 and 𝓛h of each lattice.

    With M = Σ S_i e^{ikx}, F = |M|², e = S·H: 𝓛F = −4T (F − N) + 2 (4 + 2 cos k) F − 2 Re Σ e_i S_i·M* e^{ikx},
    𝓛h = −4T h − Σ (|H_i|² − e_i²).
    """
    side = S.shape[1]
    H = neighbours(S, xp)
    e = xp.sum(S * H, axis=-1)

    def factor(k, axis):
        wave = np.exp(1j * k * np.arange(side))
        rest = tuple({1, 2, 3} - {axis})
        M, Q = (xp.tensordot(xp.sum(x, axis=rest), wave, axes=[[1], [0]]) for x in (S, e[..., None] * S))
        F = xp.sum(xp.abs(M) ** 2, axis=-1)
        pull = 2 * (4 + 2 * np.cos(k)) * F - 2 * xp.sum(xp.real(Q * xp.conj(M)), axis=-1)
        return xp.stack([F, pull - 4 * T_C * (F - side**3)])

    (f0, l0), (f1, l1) = factor(0.0, 1), sum(factor(2 * np.pi / side, axis) for axis in (1, 2, 3)) / 3.0
    h = -0.5 * xp.sum(e, axis=(1, 2, 3))
    lh = -4 * T_C * h - xp.sum(H * H, axis=(1, 2, 3, 4)) + xp.sum(e * e, axis=(1, 2, 3))
    return xp.stack([f0, f1, h, l0, l1, lh])


def summed_up(rows, spins):
    """Means over pieces of time of F_0, F_1, h, F_0 h′, F_1 h′, 𝓛F_0, 𝓛F_1, 𝓛h of each lattice, h′ = h + 1.2 a spin."""
    f0, f1, h, *zero = np.moveaxis(np.asarray(rows), 1, 0)
    near = h + 1.2 * spins
    columns = np.stack([f0, f1, h, f0 * near, f1 * near, *zero], axis=-1)
    return np.stack([x.mean(axis=0) for x in np.array_split(columns, BLOCKS)], axis=1)  # (copies, pieces, 8)


def multiples(means):
    """Of what has the mean 0, to be taken away from the rest: those that leave the least."""
    x = means.reshape(-1, means.shape[-1])
    x = x - x.mean(axis=0)
    return np.linalg.lstsq(x[:, 5:], x[:, :5], rcond=None)[0]


def quiet(means, by):
    """F_0, F_1, h, F_0 h′, F_1 h′ of each lattice, without these multiples of what has the mean 0."""
    whole = means.mean(axis=1)
    return whole[:, :5] - whole[:, 5:] @ by


def bathed(side, copies, dt, time, key):
    """By a heat bath at T_c, after a burn-in; lattices side by side are one system: a large one is stepped quickly."""
    shape = copies, side, side, side, 3

    def energy(mu):
        S = mu.reshape(shape)
        return -0.5 * jnp.sum(S * neighbours(S, jnp))

    def gradient(mu):
        return -neighbours(mu.reshape(shape), jnp).reshape(-1)

    bath = cj.heat_bath(
        cj.System(cj.Product(cj.SO3(), copies=copies * side**3), energy, gradient=gradient),
        temperature=T_C,
        friction=FRICTION,
    )
    up, burn, every = np.tile([0.0, 0.0, 1.0], copies * side**3), 0.8 * side**2 / FRICTION, round(0.25 / dt)
    steps = round((burn + time) / (every * dt)) * every
    options = {"dt": dt, "key": key, "save_every": every, "integrator": cj.NinomiyaVictoir()}
    sol = cj.solve(bath, up, t1=steps * dt, save=lambda mu: measured(mu.reshape(shape), jnp), **options)
    return summed_up(sol.saved[round(burn / (every * dt)) :], side**3)


def drawn(side, copies, sweeps, rng):
    """By Monte Carlo at T_c: each spin drawn from its law given its neighbours, and turned about their field."""
    S = np.zeros((copies, side, side, side, 3))
    S[..., 2] = 1.0
    even = np.indices((side,) * 3).sum(axis=0) % 2 == 0
    rows = []
    for n in range(sweeps + sweeps // 10):
        for where in (even, ~even):
            H = neighbours(S, np)[:, where]
            size = np.linalg.norm(H, axis=-1, keepdims=True)
            n_hat, u = H / size, rng.random((*H.shape[:-1], 1))
            z = 1.0 + np.log1p(-u * -np.expm1(-2 * size / T_C)) * T_C / size  # of density exp(z |H|/T)
            side_way = np.cross(n_hat, rng.standard_normal(H.shape))
            side_way /= np.linalg.norm(side_way, axis=-1, keepdims=True)
            S[:, where] = z * n_hat + np.sqrt(1 - z**2) * side_way
        for where in (even, ~even):
            H = neighbours(S, np)[:, where]
            old = S[:, where]
            S[:, where] = 2 * np.sum(old * H, -1, keepdims=True) / np.sum(H * H, -1, keepdims=True) * H - old
        if n >= sweeps // 10:
            rows.append(measured(S, np))
    return summed_up(rows, side**3)


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


def test_what_has_the_mean_zero():
    """𝓛f, by hand, against T Δf + H·∇f by differences on the spheres, at a random state."""
    rng = np.random.default_rng(0)
    S = rng.standard_normal((1, 4, 4, 4, 3))
    S /= np.linalg.norm(S, axis=-1, keepdims=True)
    H, got, eps = neighbours(S, np), measured(S, np)[:, 0], 1e-3
    total = np.zeros(3)
    for at in np.ndindex(4, 4, 4):
        v = S[0][at]
        across = np.linalg.svd(v[None])[2][1:]  # two unit vectors across
        for u in across:
            values = []
            for c in (-eps, 0.0, eps):
                moved = S.copy()
                moved[0][at] = np.cos(c) * v + np.sin(c) * u
                values.append(measured(moved, np)[:3, 0])
            low, mid, high = values
            total += T_C * (low - 2 * mid + high) / eps**2 + (high - low) / (2 * eps) * (H[0][at] @ u)
    np.testing.assert_allclose(got[3:], total, rtol=1e-4, atol=1e-3 * np.abs(total).max())


@pytest.mark.slow
def test_energy_near_the_critical_point():
    """⟨h⟩ a spin of 4³ spins at T_c against an independent Monte Carlo simulation, to 1e-3."""
    energy = lambda means: means[:, 2].mean() / 64
    drawings = drawn(4, 64, 6000, np.random.default_rng(0))
    exact, e0 = jackknife(energy, quiet(drawings, multiples(drawings)))
    coarse, fine = (bathed(4, 64, dt, time, 1) for dt, time in ((0.0125, 150.0), (0.00625, 300.0)))
    by = multiples(coarse)
    steps = [jackknife(energy, quiet(means, by)) for means in (coarse, fine)]
    got, e1 = extrapolated(*steps)
    print(f"<h>/N = {got:.5f}({e1:.5f}), Monte Carlo {exact:.5f}({e0:.5f}); at both steps {steps}")
    assert np.hypot(e0, e1) < 1e-3 * abs(exact)
    assert abs(got - exact) < 4 * np.hypot(e0, e1)


@pytest.mark.slow
def test_critical_temperature():
    """k T_c/J = 1.443 from lattices of 4³ and 8³ spins, to 1e-3."""
    runs = [
        (bathed(4, 64, dt, time, 2), bathed(8, 16, dt, 2 * time, 3)) for dt, time in ((0.025, 125.0), (0.0125, 375.0))
    ]
    by = [multiples(means) for means in runs[0]]
    of = lambda x, y: critical((4, x), (8, y))
    steps = [jackknife(of, *map(quiet, means, by)) for means in runs]
    got, error = extrapolated(*steps)
    print(f"T_c = {got:.4f}({error:.4f}); at both steps {steps}")
    assert error < 1e-3 * T_C
    assert abs(got - T_C) < 4 * error
