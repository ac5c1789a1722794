"""The exact filter of a point on the sphere that random rotations move, by spherical harmonics.

In a step the point rotates by a vector with distribution N(0, s² I), s² = σ² dt. A harmonic of degree l is multiplied
in the mean by m_l = Σ_k (1 − k² s²) exp(−k² s²/2) / (2l + 1), k = −l … l: the character Σ_k cos(k a) of a rotation by
the angle a, averaged over a Gaussian vector of length a.
"""

from functools import cache
from typing import NamedTuple

import numpy as np


class Exact(NamedTuple):
    """Means after each observation, and the log evidence of the observations up to each."""

    means: np.ndarray
    log_evidence: np.ndarray


def legendre(order: int, top: int, z: np.ndarray) -> np.ndarray:
    """Associated Legendre functions of degrees order … top, with ∫ P² dz = 1, by their three-term recurrence."""
    first = np.full_like(z, np.sqrt(0.5))
    for k in range(1, order + 1):
        first = first * np.sqrt((2 * k + 1) / (2 * k) * (1 - z * z))
    rows = [np.zeros_like(z), first]
    a = lambda l: np.sqrt((l * l - order * order) / (4.0 * l * l - 1))
    for l in range(order + 1, top + 1):
        rows.append((z * rows[-1] - a(l - 1) * rows[-2]) / a(l))
    return np.stack(rows[1:])


class Sphere:
    """Densities on a grid: Gauss points in z, equal angles of longitude."""

    def __init__(self, top: int, latitudes: int):
        self.top, self.n = top, latitudes
        z, self.weights = np.polynomial.legendre.leggauss(latitudes)
        phi = np.pi * np.arange(2 * latitudes) / latitudes
        r = np.sqrt(1 - z * z)
        self.points = np.stack([np.outer(r, np.cos(phi)), np.outer(r, np.sin(phi)), np.outer(z, np.ones_like(phi))], -1)
        self.tables = [legendre(m, top, z) for m in range(top + 1)]

    def integral(self, values: np.ndarray) -> float:
        return float(self.weights @ values.sum(axis=1)) * np.pi / self.n

    def multiplied(self, values: np.ndarray, factors: np.ndarray) -> np.ndarray:
        """The field with each harmonic of degree l multiplied by factors[l]."""
        spectrum = np.fft.rfft(values, axis=1)
        out = np.zeros_like(spectrum)
        for m, P in enumerate(self.tables):
            out[:, m] = P.T @ (factors[m:] * ((P * self.weights) @ spectrum[:, m]))
        return np.fft.irfft(out, n=2 * self.n, axis=1)


@cache
def grid(top: int, latitudes: int) -> Sphere:
    """A grid, computed once."""
    return Sphere(top, latitudes)


def multipliers(s2: float, steps: int, top: int) -> np.ndarray:
    orders = [np.arange(-l, l + 1) for l in range(top + 1)]
    return np.array([np.mean((1 - k * k * s2) * np.exp(-k * k * s2 / 2)) for k in orders]) ** steps


def exact_filter(y, *, sigma, dt, steps, kappa, start, start_kappa, top=40, latitudes=96) -> Exact:
    """Von Mises–Fisher observations y of a point that starts with that distribution about `start`."""
    sphere = grid(top, latitudes)
    x, factors = sphere.points, multipliers(sigma**2 * dt, steps, top)
    density = np.exp(start_kappa * (x @ start - 1))
    density /= sphere.integral(density)
    means, evidence, total = [], [], 0.0
    for one in y:
        likelihood = np.exp(kappa * (x @ one - 1)) * kappa / (2 * np.pi * -np.expm1(-2 * kappa))
        density = sphere.multiplied(density, factors) * likelihood
        mass = sphere.integral(density)
        total += np.log(mass)
        density /= mass
        means.append([sphere.integral(density * x[..., i]) for i in range(3)])
        evidence.append(total)
    return Exact(np.array(means), np.array(evidence))


def von_mises_fisher(mean, kappa, size, rng):
    """A sample about the direction `mean`."""
    u, angle = rng.random(size), 2 * np.pi * rng.random(size)
    w = 1 + np.log(u + (1 - u) * np.exp(-2 * kappa)) / kappa
    _, _, frame = np.linalg.svd(np.reshape(mean, (1, 3)))
    across = np.cos(angle)[:, None] * frame[1] + np.sin(angle)[:, None] * frame[2]
    return w[:, None] * np.asarray(mean) + np.sqrt(1 - w * w)[:, None] * across


FIRST = {"sigma": 0.6, "dt": 0.1, "steps": 5, "kappa": 8.0, "start": np.array([1.0, 0, 0]), "start_kappa": 4.0}
FIRST_OBSERVATIONS = np.array(
    [
        [0.8681823213250511, 0.25719557669440685, -0.42439355823042013],
        [0.6402111428793709, -0.551248320459043, -0.5350280195692314],
        [0.25415659761213344, -0.27319865924324427, -0.9277752510591765],
        [0.0375769099608636, -0.9223480248634209, -0.3845284084022134],
        [0.7612977244350859, -0.1642101533499666, -0.6272645377404498],
        [0.7303849506450442, 0.47169790199466965, -0.4940029484983497],
        [0.9981534695451224, 0.05589308226481379, -0.023782653131489306],
        [0.9696653322072275, -0.19194659607676487, -0.15134611911109552],
        [0.9553102223842965, -0.2617211446916807, -0.1374206004547419],
        [0.74980644355879, 0.1451961916639449, -0.6455295214968911],
        [0.8534374657499852, -0.48869218784813934, -0.18117515721102817],
        [0.3695356681645405, -0.6552571523282857, -0.6588485822074834],
    ]
)
FIRST_MEAN = 0.52242348, -0.53280615, -0.52407744  # after the last observation
FIRST_EVIDENCE = -17.3378439032

SECOND = {"sigma": 0.9, "dt": 0.2, "steps": 3, "kappa": 20.0, "start": np.array([0, 0.6, 0.8]), "start_kappa": 2.0}
SECOND_OBSERVATIONS = np.array(
    [[0, 0, 1.0], [0.6, 0, 0.8], [0.8, 0.6, 0], [0, 1.0, 0], [-0.6, 0.8, 0], [-0.28, 0.96, 0]]
)
