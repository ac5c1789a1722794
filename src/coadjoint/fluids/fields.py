"""Initial fields, as coefficients of vorticity on a surface; they can be added."""

from typing import Any

import numpy as np

from stepcompiler.device_arrays import to_device

from ..numerics import random, validation
from .harmonics import associated_legendre
from .sphere import Sphere
from .surface import Coefficients, Surface
from .torus import Torus, mirror, wavenumbers


def random_field(
    surface: Surface, key: Any = 0, member: int = 0, *, peak: float = 6.0, slope: float = 3.0, rms: float = 1.0
) -> Coefficients:
    """A random field with the energy spectrum E(k) ∝ 1/((k/p)⁻⁴ + (k/p)^s).

    The energy of every shell is exactly that of the formula. Within a shell the coefficients are Gaussian.

    Parameters
    ----------
    surface : Torus or Sphere
        The surface.
    key : int or JAX key, default 0
        Selects the field.
    member : int, default 0
        Selects another field from the same key.
    peak : float, default 6.0
        p, the wavenumber of the maximum.
    slope : float, default 3.0
        s, the slope beyond the maximum.
    rms : float, default 1.0
        The root mean square of the vorticity.

    Returns
    -------
    array
        Coefficients of the vorticity.
    """
    p, s, rms = validation.positive("peak", peak), validation.finite("slope", slope), validation.positive("rms", rms)
    shells, count = surface.shells, int(np.prod(surface.shape))
    z = np.asarray(random.initial_normals(key, 2, count, member))
    if isinstance(surface, Torus):
        raw = (z[:, 0] + 1j * z[:, 1]).reshape(surface.shape)
        raw = raw + np.conj(mirror(raw))
    else:
        raw = z[:, 0]
    energies = np.bincount(shells.ravel(), (np.abs(raw) ** 2 * surface.inverse_eigenvalues()).ravel())
    k = np.maximum(np.arange(len(energies)), 1e-3) / p
    wanted = 1 / (k**-4.0 + k**s)
    scale = np.where(energies > 0, np.sqrt(wanted / np.where(energies > 0, energies, 1.0)), 0.0)
    scale[0] = 0.0
    return _of_size(surface, raw * scale[shells], rms)


def vortices(surface: Surface, positions: Any, strengths: Any, radius: float = 0.2) -> Coefficients:
    """Gaussian vortices without mean vorticity.

    On the plane each is Γ/(2πr²) exp(−d²/2r²). On torus and sphere it is a point vortex after diffusion for the time
    r²/2.

    Parameters
    ----------
    surface : Torus or Sphere
        The surface.
    positions : array_like, shape (k, 2)
        (x, y) on the torus, (latitude, longitude) on the sphere, in radians.
    strengths : float or array_like, shape (k,)
        The circulations Γ.
    radius : float, default 0.2
        r.

    Returns
    -------
    array
        Coefficients of the vorticity.
    """
    r = validation.positive("radius", radius)
    at = np.atleast_2d(np.asarray(positions, float))
    gamma = np.broadcast_to(np.asarray(strengths, float), at.shape[:1])
    if at.shape[1:] != (2,) or not np.all(np.isfinite(at)):
        raise ValueError(f"positions must be pairs of finite numbers, one for each vortex, not {positions!r}.")
    total = sum(g * point(surface, *x) for g, x in zip(gamma, at, strict=True))
    out = total * np.exp(-0.5 * r**2 * surface.eigenvalues)
    return to_device(np.where(surface.eigenvalues > 0, out, 0.0))


def point(surface: Surface, first: float, second: float) -> np.ndarray:
    """The coefficients of a point vortex of circulation 1."""
    if isinstance(surface, Torus):
        m = wavenumbers(surface.n)
        return np.exp(-1j * (m[:, None] * first + m * second)) / (4 * np.pi**2)
    out = np.zeros(surface.shape)
    for m in range(surface.n):
        l = np.arange(m, surface.n)
        legendre = associated_legendre(m, surface.n, np.array([np.sin(first)]))[0][:, 0]
        scale = np.sqrt(2.0) if m else 1.0
        if m:
            out[l**2 + l - m] = scale * legendre * np.sin(m * second)
        out[l**2 + l + m] = scale * legendre * np.cos(m * second)
    return out


def jet(surface: Surface, *, at: float | None = None, width: float = 0.3, speed: float = 1.0) -> Coefficients:
    """A zonal jet with a Gaussian profile.

    On the torus u_x = U exp((cos(y − y₀) − 1)/w²). On the sphere the eastward velocity is U cos φ exp(−(φ − φ₀)²/2w²).

    Parameters
    ----------
    surface : Torus or Sphere
        The surface.
    at : float, optional
        y₀, by default π, on the torus; the latitude φ₀, by default π/4, on the sphere. In radians.
    width : float, default 0.3
        w.
    speed : float, default 1.0
        U.

    Returns
    -------
    array
        Coefficients of the vorticity.
    """
    w, speed = validation.positive("width", width), validation.finite("speed", speed)
    if isinstance(surface, Torus):
        y0 = np.pi if at is None else validation.finite("at", at)
        y = surface.grid(4 * surface.n)[1]
        u = speed * np.exp((np.cos(y - y0) - 1) / w**2)
        return surface.from_values(np.broadcast_to(u * np.sin(y - y0) / w**2, (len(y), len(y))))
    assert isinstance(surface, Sphere)
    lat0 = np.pi / 4 if at is None else validation.finite("at", at)
    lat, lon = surface.gauss_grid()
    u = speed * np.exp(-((lat - lat0) ** 2) / (2 * w**2))
    curl = u * (2 * np.sin(lat) + np.cos(lat) * (lat - lat0) / w**2)  # −(u cos²φ)'/cos φ
    return surface.from_values(np.repeat(curl[:, None], len(lon), axis=1))


def _of_size(surface: Surface, coefficients: np.ndarray, rms: float) -> Coefficients:
    size = np.sqrt(surface.weight * np.sum(np.abs(coefficients) ** 2))
    return to_device(coefficients * (rms / size))
