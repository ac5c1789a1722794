"""`CalibratedNoise`: SALT noise with fields from data. It can be scaled, saved, and drawn."""

from dataclasses import dataclass, replace
from os import PathLike
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from ..drivers import OU, Brownian, Driver
from ..fluids.sphere import Sphere
from ..fluids.surface import Surface
from ..fluids.torus import Torus
from ..numerics import validation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FORMAT = 1


@dataclass(frozen=True, repr=False, eq=False)
class CalibratedNoise:
    """Noise fields from data: an entry of `System(…, noise=[…])`, or `noise_fields=noise.fields` of a fluid.

    Parameters
    ----------
    fields : array, shape (M, *shape)
        The fields β_k: coefficients of ζ_k on a surface, which move a flow as the stream function −ζ_k does, or else
        elements of the algebra.
    surface : Torus or Sphere, optional
        The surface of the fields. None: they are elements of the algebra.
    variance : array, shape (M,), optional
        The share of the variance that each field explains.
    times : array, shape (M,), optional
        The decorrelation times τ_k.
    components : array, shape (samples, M), optional
        The time series of the fields, of variance 1.
    spacing : float, optional
        The interval between samples.
    coloured : bool, default False
        Whether `driver` returns an Ornstein–Uhlenbeck driver.
    covariance, standard_error : array, shape (d, d), optional
        Σ_k β_k ⊗ β_k in coordinates, and its standard errors, if it was estimated from increments.
    """

    fields: np.ndarray
    surface: Surface | None = None
    variance: np.ndarray | None = None
    times: np.ndarray | None = None
    components: np.ndarray | None = None
    spacing: float = 0.0
    coloured: bool = False
    covariance: np.ndarray | None = None
    standard_error: np.ndarray | None = None

    @property
    def size(self) -> int:
        """M, the number of fields."""
        return len(self.fields)

    @property
    def additive(self) -> bool:
        """True: SALT noise."""
        return True

    def apply(self, mu: Any, dS: Any) -> Any:
        """Σ_k β_k dS^k as an element of the algebra.

        Parameters
        ----------
        mu : array
            The state, on which the result does not depend.
        dS : array, shape (M,)
            The increments.

        Returns
        -------
        array
        """
        total = jnp.tensordot(dS, jnp.asarray(self.fields), axes=1)
        return total if self.surface is None else self.surface.rate * self.surface.matrix(total)

    def __repr__(self) -> str:
        """The fields and the driver."""
        where = "field on" if self.size == 1 else "fields on"
        where = f"{where} {'the algebra' if self.surface is None else self.surface}"
        share = "" if self.variance is None else f", {100 * self.variance.sum():.0f} % of the variance"
        times = "" if self.times is None else f", τ = {self.times.min():.3g} to {self.times.max():.3g}"
        kind = "Ornstein–Uhlenbeck" if self.coloured else "white"
        return f"CalibratedNoise: {self.size} {where}{share}{times}, {kind}"

    def scaled(self, amplitude: float) -> "CalibratedNoise":
        """The same noise with all fields times a number.

        Parameters
        ----------
        amplitude : float
            The factor, such as that of `tuned`.

        Returns
        -------
        CalibratedNoise
        """
        a = validation.positive("amplitude", amplitude)
        square = lambda x: None if x is None else a**2 * x
        return replace(
            self, fields=a * self.fields, covariance=square(self.covariance), standard_error=square(self.standard_error)
        )

    def driver(self, key: Any) -> Driver:
        """The driver: `Brownian(key)`, or `OU(τ, key)` if the noise is coloured.

        Parameters
        ----------
        key : int or JAX key
            The seed.

        Returns
        -------
        Driver
        """
        return OU(tau=self.times, key=key) if self.coloured else Brownian(key)

    def rms_velocity(self) -> float:
        """The root mean square of the velocity per square root of time, of all fields together.

        Returns
        -------
        float
        """
        if self.surface is None:
            raise ValueError("only fields on a surface have a velocity: this noise has elements of an algebra.")
        square = np.sum(self.surface.eigenvalues * np.abs(self.fields) ** 2)
        return float(np.sqrt(self.surface.weight * square))

    def save(self, path: str | PathLike) -> None:
        """Write the noise to a .npz file, which `load_noise` reads.

        Parameters
        ----------
        path : str or Path
            The file.
        """
        arrays = {name: getattr(self, name) for name in _ARRAYS if getattr(self, name) is not None}
        with open(path, "wb") as file:
            np.savez(
                file, format=_FORMAT, surface=_name(self.surface), spacing=self.spacing, coloured=self.coloured,
                **arrays,
            )  # fmt: skip

    def plot(self, theme: str = "light") -> "Figure":
        """Draw the explained variance, the decorrelation times and the first fields.

        Parameters
        ----------
        theme : {"light", "dark"}, default "light"
            The colours.

        Returns
        -------
        matplotlib.figure.Figure
        """
        from .figures import draw_noise

        return draw_noise(self, theme)


_ARRAYS = ("fields", "variance", "times", "components", "covariance", "standard_error")


def load_noise(path: str | PathLike) -> CalibratedNoise:
    """Read a noise that `CalibratedNoise.save` wrote.

    Parameters
    ----------
    path : str or Path
        The .npz file.

    Returns
    -------
    CalibratedNoise

    Raises
    ------
    ValueError
        If the file is not a calibrated noise.
    """
    try:
        with np.load(path, allow_pickle=False) as found:
            data = {name: found[name] for name in found.files}
        if int(data["format"]) != _FORMAT:
            raise ValueError(f"format {int(data['format'])}, but this version reads {_FORMAT}")
        arrays = {name: data[name] for name in _ARRAYS if name in data}
        return CalibratedNoise(
            surface=_surface(str(data["surface"])), spacing=float(data["spacing"]), coloured=bool(data["coloured"]),
            **arrays,
        )  # fmt: skip
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not a calibrated noise: {error}.") from None


def _name(surface: Surface | None) -> str:
    if isinstance(surface, Torus):
        return f"torus {surface.n} {surface.orientation}"
    return "" if surface is None else f"sphere {surface.n}"


def _surface(name: str) -> Surface | None:
    kind, *rest = name.split() or [""]
    if kind == "torus":
        return Torus(int(rest[0]), rest[1])
    return Sphere(int(rest[0])) if kind == "sphere" else None
