"""The fields of a fluid's states: vorticity, stream function, velocity, and their diagnostics."""

import abc
from typing import TYPE_CHECKING, Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from stepcompiler.device_arrays import to_device

from ..algebras.su import dagger
from ..numerics import validation
from .sphere import index
from .surface import Coefficients, Matrix, Surface, compiled, diagnostic

if TYPE_CHECKING:
    import xarray


class FluidFlow(eqx.Module):
    """The interface of a flow on a surface: the matrix of potential vorticity is the state, or a part of it.

    Method arguments
    ----------------
    mu : array
        A state. It may have leading axes.
    W : array, shape (n, n)
        A matrix of potential vorticity. It may have leading axes.
    vorticity, advected : array
        The coefficients of ω, and of the advected field.
    points : int or array, optional
        The size of the grid. On the sphere it is the number of latitudes, or an array of latitudes.
    """

    state_axes: ClassVar[int] = 2  # of one state

    surface: Surface
    screening: float = eqx.field(static=True, default=0.0)
    background: Matrix | None = None  # B, the matrix of b

    @abc.abstractmethod
    def vortical(self, mu: Array) -> Matrix:
        """The matrix of potential vorticity in a state."""

    @abc.abstractmethod
    def pictures(self, mu: Any) -> dict[str, Coefficients]:
        """The coefficients of the fields that figures show, by name."""

    @abc.abstractmethod
    def diagnostics(self, mu: Array) -> dict[str, Array]:
        """Diagnostics of a state by name, for `solve(save=flow.diagnostics)`: see `to_xarray`."""

    def vorticity_matrix(self, vorticity: Coefficients) -> Matrix:
        """The matrix of potential vorticity for these coefficients of ω."""
        q = vorticity if not self.screening else vorticity * (1 + self.screening * self.surface.inverse_eigenvalues())
        W = self.surface.matrix(q)
        return W if self.background is None else W + self.background

    # The equation.

    @eqx.filter_jit
    def stream(self, W: Matrix) -> Matrix:
        """∂h/∂W = rate P."""
        moving = W if self.background is None else W - self.background
        P = self.surface.inverse(moving, self.screening)
        return P if self.surface.rate == 1.0 else self.surface.rate * P

    @eqx.filter_jit
    def hamiltonian(self, W: Matrix) -> Float[Array, ""]:
        """½ <W − B, rate P>: the energy times rate/norm of the surface."""
        moving = W if self.background is None else W - self.background
        return 0.5 * jnp.sum((jnp.conj(moving) * self.stream(W)).real)

    def damping(self, viscosity: Any, hyperviscosity: Any, order: Any, drag: Any, stirring: Any) -> Any:
        """D(W, dt) of ∂ω/∂t = −(ν(−Δ) + ν_p(−Δ)ᵖ + α)ω + f, exactly; None if all of these are 0.

        With screening, q − b changes by λ/(λ + F) times that.

        Parameters
        ----------
        viscosity, drag : float
            ν and α.
        hyperviscosity, order : float, int
            ν_p and p.
        stirring : array or None
            The field f.
        """
        rates = {"viscosity": viscosity, "hyperviscosity": hyperviscosity, "drag": drag}
        for name, value in rates.items():
            if validation.finite(name, value) < 0:
                raise ValueError(f"{name} must not be below 0, not {value!r}.")
        p = validation.count("hyperviscosity_order", order, least=2)
        if not any(rates.values()) and stirring is None:
            return None
        lam = self.surface.eigenvalues
        share = lam * self.surface.inverse_eigenvalues(self.screening)
        gamma = share * (float(viscosity) * lam + float(hyperviscosity) * lam**p + float(drag))
        f = None if stirring is None else share * self.surface.as_coefficients("stirring", stirring)

        def damp(W: Matrix, dt: Float[Array, ""]) -> Matrix:
            q = self._moving(W)
            change = jnp.expm1(-gamma * dt)
            new = change * q
            if f is not None:
                new = new - jnp.where(gamma > 0, change / jnp.where(gamma > 0, gamma, 1.0), -dt) * f
            return W + self.surface.matrix(new)

        return damp

    # Coefficients.

    def _moving(self, mu: Array) -> Coefficients:
        W = self.vortical(mu)
        return self.surface.coefficients(W if self.background is None else W - self.background)

    @compiled
    def stream_coefficients(self, mu: Array) -> Coefficients:
        """The coefficients of ψ."""
        return -self.surface.inverse_eigenvalues(self.screening) * self._moving(mu)

    @compiled
    def vorticity_coefficients(self, mu: Array) -> Coefficients:
        """The coefficients of ω = Δψ."""
        if not self.screening:
            return self._moving(mu)
        return -self.surface.eigenvalues * self.stream_coefficients(mu)

    # Fields on a grid.

    def vorticity(self, mu: Any, points: Any = None) -> np.ndarray:
        """ω on a grid: [x, y] on the torus, [latitude, longitude] on the sphere.

        Parameters
        ----------
        mu : array
            A state, or a stack of states.
        points : int, optional
            The number of points per axis, or of latitudes: see `surface.grid`. The default is n.

        Returns
        -------
        array
        """
        return self.surface.values(self.vorticity_coefficients(self._checked(mu)), points)

    def stream_function(self, mu: Any, points: Any = None) -> np.ndarray:
        """ψ on a grid; arguments as for `vorticity`."""
        return self.surface.values(self.stream_coefficients(self._checked(mu)), points)

    def velocity(self, mu: Any, points: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """u on a grid with curl u = ω: (u_x, u_y) on the torus, (eastward, northward) on the sphere."""
        first, second = self.surface.gradient(self.stream_coefficients(self._checked(mu)), points)
        return (-second, first) if len(self.surface.shape) == 2 else (-first, second)

    def zonal_mean(self, mu: Array, points: Any = None, field: str = "velocity") -> Array:
        """The zonal mean of the velocity along x (on the sphere eastward) or of ω, by y (latitude) of `surface.grid`.

        JAX can trace it, so `solve(save=flow.zonal_mean)` saves a profile at each time.

        Parameters
        ----------
        mu : array
            A state, or a stack of states.
        points : int or array, optional
            The number of points, or an array of latitudes. The default is n.
        field : {"velocity", "vorticity"}, default "velocity"
            The field.

        Returns
        -------
        array, shape (…, points)
        """
        validation.choice("field", field, ("velocity", "vorticity"))
        if field == "vorticity":
            return self.surface.zonal(self.vorticity_coefficients(mu), points)
        return -self.surface.zonal(self.stream_coefficients(mu), points, derivative=True)

    def _checked(self, mu: Any) -> Array:
        W = self.vortical(jnp.asarray(mu))
        self.surface.check_matrix("the state", W)
        return jnp.asarray(mu)

    # Diagnostics.

    @diagnostic
    def energy(self, mu: Array) -> Float[Array, ""]:
        """The mean of ½(|u|² + Fψ²)."""
        if self.surface.large:  # without coefficients, so that a run can save it
            return self.surface.norm / self.surface.rate * self.hamiltonian(self.vortical(mu))
        return jnp.sum(self._energies(mu))

    @diagnostic
    def enstrophy(self, mu: Array) -> Float[Array, ""]:
        """The mean of ½ω²."""
        if self.surface.large:
            W = self.vortical(mu) if self.background is None else self.vortical(mu) - self.background
            moving = self.surface.laplacian(self.surface.inverse(W, self.screening)) if self.screening else W
            return 0.5 * self.surface.norm * jnp.sum(jnp.abs(moving) ** 2)
        return 0.5 * self.surface.weight * jnp.sum(jnp.abs(self.vorticity_coefficients(mu)) ** 2)

    @diagnostic
    def spectrum(self, mu: Array) -> Float[Array, " k"]:
        """E(k), k = 0, 1, 2 …: the energy in each shell of wavenumbers, of degrees l on the sphere."""
        return self.surface.by_shell(self._energies(mu))

    @diagnostic
    def flux(self, mu: Array) -> Float[Array, " k"]:
        """Π(k), k = 0, 1, 2 …: the energy that leaves the shells up to k, by one commutator."""
        surface = self.surface
        product = self.stream(self.vortical(mu)) @ self.vortical(mu)
        rate = surface.coefficients(product - dagger(product))
        gain = surface.weight * (jnp.conj(-self.stream_coefficients(mu)) * rate).real
        return -jnp.cumsum(surface.by_shell(gain))

    @eqx.filter_jit
    def eigenvalues(self, mu: Array) -> Float[Array, " n"]:
        """The eigenvalues of −iW. They determine all Casimirs and are constant."""
        return jnp.linalg.eigvalsh(-1j * self.vortical(mu))

    def _energies(self, mu: Array) -> Any:
        inverse = self.surface.inverse_eigenvalues(self.screening)
        return 0.5 * self.surface.weight * inverse * jnp.abs(self._moving(mu)) ** 2

    def to_xarray(self, run: Any) -> "xarray.Dataset":
        """The diagnostics of a run with `save=flow.diagnostics`, or of its states, as a labelled Dataset.

        Parameters
        ----------
        run : Solution, Ensemble or Stored
            The run.

        Returns
        -------
        xarray.Dataset
        """
        import xarray as xr

        saved = run.saved
        if not isinstance(saved, dict):
            rows = run.mu.reshape(-1, *run.system.algebra.shape)
            if self.surface.large:
                each = [self.diagnostics(x) for x in rows]
                saved = {k: np.stack([x[k] for x in each]) for k in each[0]}
            else:
                saved = jax.jit(lambda x: jax.lax.map(self.diagnostics, x))(rows)
            lead = run.mu.shape[: run.mu.ndim - len(run.system.algebra.shape)]
            saved = {k: np.asarray(x).reshape(*lead, *x.shape[1:]) for k, x in saved.items()}
        unknown = ", ".join(k for k in saved if k not in _ABOUT and k != "eigenvalues")
        if unknown:
            raise ValueError(f"the run saved {unknown}, which no Flow makes: give save=flow.diagnostics.")
        lead = ("time",) if np.ndim(saved["enstrophy"]) == 1 else ("member", "time")
        wavenumber = np.arange(int(self.surface.shells.max()) + 1)
        coords: dict[str, Any] = {"time": run.t, "wavenumber": wavenumber}
        inner = {"spectrum": ("wavenumber",), "flux": ("wavenumber",), "eigenvalues": ("eigenvalue",)}
        data = {
            k: ((*lead, *inner.get(k, ())), np.asarray(x), {"long_name": _ABOUT.get(k, "eigenvalues of −iW")})
            for k, x in saved.items()
        }
        return xr.Dataset(data, coords)


class Flow(FluidFlow):
    """Ideal flow on a surface. The state W is the matrix of potential vorticity q, which the flow advects.

    The equations are

        q = (Δ − F)ψ + b,   ω = Δψ,   W' = rate [P, W],   P = (−Δ + F)⁻¹(W − B).

    Without screening and background q = ω. Energy and enstrophy are means over the surface of ½(|u|² + Fψ²) and of ½ω².
    JAX can trace all methods, so `solve(save=…)` accepts them. `cj.fluids.of` returns the flow of a system, and
    `Flow.create` creates one with checked arguments.

    Parameters
    ----------
    surface : Torus or Sphere
        The surface.
    screening : float, default 0.0
        F = 1/L_d², the inverse squared deformation radius.
    background : array, shape (n, n), optional
        B, the matrix of b: rotation and topography.
    """  # fmt: skip

    @staticmethod
    def create(surface: Surface, screening: Any = 0.0, topography: Any = None, rotation: Any = 0.0) -> "Flow":
        """A flow with checked arguments. `topography` may be coefficients, or values on a grid; `rotation` is Ω."""
        F, omega = validation.finite("screening", screening), validation.finite("rotation", rotation)
        if F < 0:
            raise ValueError(f"screening must not be below 0, not {screening!r}.")
        background = None
        if omega:
            zonal = np.zeros(surface.shape)
            zonal[index(1, 0)] = 2 * omega * np.sqrt(4 * np.pi / 3)
            background = to_device(zonal)
        if topography is not None:
            b = surface.as_coefficients("topography", topography)
            background = b if background is None else background + b
        return Flow(surface, F, None if background is None else surface.matrix(background))

    def state(self, vorticity: Coefficients) -> Matrix:
        """The state of a flow with these coefficients of ω."""
        return self.vorticity_matrix(vorticity)

    def vortical(self, mu: Array) -> Matrix:
        """The matrix of potential vorticity in a state."""
        return mu

    def pictures(self, mu: Any) -> dict[str, Coefficients]:
        """The coefficients of the fields that are drawn of a state, by their names."""
        return {"vorticity $\\omega$": self.vorticity_coefficients(self._checked(mu))}

    def diagnostics(self, mu: Array) -> dict[str, Array]:
        """Energy, enstrophy, E(k) and Π(k), for `solve(save=flow.diagnostics)`: see `to_xarray`."""
        return {
            "energy": self.energy(mu),
            "enstrophy": self.enstrophy(mu),
            "spectrum": self.spectrum(mu),
            "flux": self.flux(mu),
        }


_ABOUT = {
    "energy": "energy, mean over the surface",
    "enstrophy": "enstrophy, mean over the surface",
    "spectrum": "energy by wavenumber",
    "flux": "flux of energy to larger wavenumbers",
    "advected_energy": "energy of the advected field, mean over the surface",
    "cross_helicity": "vorticity times the advected field, mean over the surface",
}


def of(thing: Any) -> FluidFlow:
    """The flow of a system that a model of a fluid returned, or of a run of such a system.

    Parameters
    ----------
    thing : System, Solution, Ensemble or Stored
        The system or the run.

    Returns
    -------
    FluidFlow
        A `Flow`, or an `AdvectingFlow` if the fluid advects another field.

    Raises
    ------
    ValueError
        If the system has no fluid.
    """
    system = getattr(thing, "system", thing)
    found = getattr(system, "flow", None)
    if found is None:
        raise ValueError(
            "there is no fluid in this: give a system as a model such as sine_euler or euler_sphere returned it, or a "
            "run of it; or make Flow(Torus(n)) or Flow(Sphere(n)) by hand."
        )
    return found
