"""Layers of a quasi-geostrophic fluid: how their stream functions are coupled, and the vertical modes of that."""

from typing import Any, NamedTuple

import numpy as np

from ..numerics import validation


class Stratification(NamedTuple):
    """Relative depths d with mean 1, the coupling G of neighbours, and F₀ of a free surface at the top.

    The potential vorticity is q = Δψ − Kψ + b with the symmetric matrix DK, D = diag(d):

        (Kψ)_i = (G_{i−1}(ψ_i − ψ_{i−1}) + G_i(ψ_i − ψ_{i+1}))/d_i,   and F₀ψ_1/d_1 in addition at the top.
    """  # fmt: skip

    depths: tuple[float, ...]
    coupling: tuple[float, ...]
    free_surface: float = 0.0

    @property
    def layers(self) -> int:
        """The number of layers."""
        return len(self.depths)

    def matrix(self) -> np.ndarray:
        """K."""
        d, G = np.array(self.depths), np.array(self.coupling)
        S = np.zeros((len(d), len(d)))
        for i, g in enumerate(G):
            S[i : i + 2, i : i + 2] += g * np.array([[1.0, -1.0], [-1.0, 1.0]])
        S[0, 0] += self.free_surface
        return S / d[:, None]

    def modes(self) -> tuple[np.ndarray, np.ndarray]:
        """λ and T with (−Δ + K)⁻¹D⁻¹ = T (−Δ + λ)⁻¹ Tᵀ; column m of T is mode m, from the barotropic one on."""
        root = np.sqrt(np.array(self.depths))
        lam, U = np.linalg.eigh(root[:, None] * self.matrix() / root)
        lam = np.where(lam > 1e-12 * max(lam.max(), 1e-300), lam, 0.0)
        return lam, U / root[:, None]


def stratification(layers: Any, depths: Any, radius: Any, coupling: Any, free_surface: Any) -> Stratification:
    """The layers of a model, with checked arguments."""
    count = validation.count("layers", layers)
    d = np.ones(count) if depths is None else _numbers("depths", depths, count)
    if d.min() <= 0:
        raise ValueError(f"depths must be positive, not {depths!r}.")
    d = d / d.mean()
    F = validation.finite("screening", free_surface)
    if F < 0:
        raise ValueError(f"screening must not be below 0, not {free_surface!r}.")
    if coupling is not None:
        G = _numbers("coupling", coupling, count - 1)
        if G.min(initial=0.0) < 0:
            raise ValueError(f"coupling must not be below 0, not {coupling!r}.")
        return Stratification(tuple(d.tolist()), tuple(G.tolist()), F)
    wanted = 1 / validation.positive("deformation_radius", radius) ** 2
    alike = Stratification(tuple(d.tolist()), (1.0,) * (count - 1))
    G = wanted / alike.modes()[0][1] if count > 1 else 0.0  # of the first baroclinic mode
    return alike._replace(coupling=(float(G),) * (count - 1), free_surface=F)


def _numbers(name: str, given: Any, count: int) -> np.ndarray:
    try:
        out = np.broadcast_to(np.asarray(given, float), (count,))
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be {count} numbers, not {given!r}.") from None
    if not np.all(np.isfinite(out)):
        raise ValueError(f"{name} must be finite, not {given!r}.")
    return out


def by_layer(name: str, given: Any, count: int) -> np.ndarray:
    """One number per layer."""
    return _numbers(name, given, count)
