"""Flows of matrices whose energy is quartic, and random matrices for them."""

import jax.numpy as jnp
import numpy as np

import coadjoint as cj
from coadjoint.fluids import laplacians as dg

METHODS = {
    "isospectral": cj.IsospectralMidpoint,
    "Cayley": lambda **options: cj.TMK(tau=cj.Cayley(), **options),
    "exp": cj.TMK,
    "mean state": cj.LieMidpoint,
}


def skew(n, size, seed=0):
    """A random skew-Hermitian matrix without trace, of operator norm `size`, smooth as fields are."""
    rng = np.random.default_rng(seed)
    m = np.abs(np.where(np.arange(n) <= n // 2, np.arange(n), np.arange(n) - n))
    a = (rng.standard_normal((n, n)) + 1j * rng.standard_normal((n, n))) / (1.0 + m[:, None] + m)
    a = np.fft.ifft2(a)
    a = a - a.conj().T
    a = a - np.trace(a) / n * np.eye(n)
    return jnp.asarray(size * a / np.linalg.norm(a, 2))


def system(n, size, noise=True, side="right", params=None):
    """A quartic energy, so that the gradient is not linear, and SALT noise."""

    def h(W, p=1.0):
        P = dg.apply_symbol(dg.inverse_squared, W)
        energy = 0.5 * jnp.sum((jnp.conj(W) * P).real)
        return p * size * (energy + 0.01 * energy**2)

    fields = [cj.salt(jnp.stack([skew(n, size, seed) for seed in (1, 2)]))] if noise else []
    return cj.System(cj.SU(n), h, fields, side=side, params=params)
