"""What a run returns."""

from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ..integrators.base import Integrator
from ..numerics import checks
from ..numerics.functions import Constant
from ..numerics.quaternions import quaternions
from ..systems import System
from .chunk import Tally

if TYPE_CHECKING:
    import xarray

_ROWS = 1024  # rows of saved states that are mapped over at once


class Stats(eqx.Module):
    """How the steps were solved.

    `iterations` is the mean a step, `residual` the worst last correction (scaled by the unknown), `unsolved` the
    number of steps that did not meet the tolerance, `first_unsolved` the first of them (−1: none). `substeps` is
    the mean number of accepted sub-steps a step, 1 unless the method is adaptive. `path` says how the steps were
    computed: in "lanes" (scalar code, fast for small systems), "plain", or in one "scan" (when traced).
    """

    steps: int
    iterations: float | Array
    most_iterations: int | Array
    residual: float | Array
    unsolved: int | Array
    first_unsolved: int | Array
    substeps: float | Array
    path: str

    @staticmethod
    def of(tally: Tally, steps: int, path: str) -> "Stats":
        """From the tally of a run, or of many members."""
        if checks.is_traced(tally):
            return Stats(steps, tally.iterations / max(steps, 1), *tally[1:5], tally.substeps / max(steps, 1), path)
        t = jax.tree.map(lambda x: np.atleast_1d(np.asarray(x)), tally)
        firsts = t.first_unsolved[t.first_unsolved >= 0]
        return Stats(
            steps,
            float(t.iterations.mean() / max(steps, 1)),
            int(t.most.max()),
            float(t.residual.max()),
            int(t.unsolved.sum()),
            int(firsts.min()) if len(firsts) else -1,
            float(t.substeps.mean() / max(steps, 1)),
            path,
        )

    def __repr__(self) -> str:
        """One line."""
        if checks.is_traced(self):
            return f"{self.steps} steps (traced)"
        substeps = f" of {self.substeps:.1f} sub-steps" if self.substeps != 1 else ""
        return (
            f"{self.steps} steps{substeps}, {self.iterations:.1f} iterations a step (at most {self.most_iterations}), "
            f"worst residual {self.residual:.1e}, {self.unsolved} not solved"
        )


class UnsolvedStepError(RuntimeError):
    """A step whose equation could not be solved. `solution` holds all that was computed."""

    def __init__(self, message: str, solution: Any):
        super().__init__(message)
        self.solution = solution


class Saved(eqx.Module):
    """Saved values of a run along `t`, and what can be made of them. States have leading axes `(…, n_saved)`."""

    system: System
    integrator: Integrator
    t: np.ndarray
    values: PyTree
    g: Any  # the group elements, with group=True
    stats: Stats
    dt: float = eqx.field(static=True)
    custom: bool = eqx.field(static=True)  # values come from a `save` function

    @property
    def mu(self) -> Any:
        """The saved states."""
        if self.custom:
            raise AttributeError("the states were not saved, because save= was given: see .saved.")
        return self.values

    @property
    def saved(self) -> Any:
        """What the `save` function returned at each saved time; the states if there was none."""
        return self.values

    def casimirs(self) -> Any:
        """The Casimirs at the saved times, columns named by `system.algebra.casimir_names`."""
        return self._map(Constant(self.system.algebra.casimirs))

    def casimir_errors(self) -> Any:
        """|C(t) − C(0)|, scaled by what each Casimir could be at the start: a Casimir near zero is not divided by."""
        scales = self._map(Constant(self.system.algebra.casimir_scales), self.mu[..., :1, *self._slices])
        values = self.casimirs()
        safe = jnp.where(scales > 0, scales, 1.0) if checks.is_traced(scales) else np.where(scales > 0, scales, 1.0)
        return abs(values - values[..., :1, :]) / safe

    def energy(self) -> Any:
        """The Hamiltonian at the saved times."""
        return self._map(self.system.energy)

    @property
    def _slices(self) -> tuple:
        return (slice(None),) * len(self.system.algebra.shape)

    def attitude(self, form: str = "matrix") -> Any:
        """The attitude g(t) as rotation matrices ("matrix") or unit quaternions (w, x, y, z) ("quaternion").

        For SO3 and SE3 with group=True. Left-invariant: g takes the body frame to space. The sign of a quaternion is
        chosen so that it moves continuously.
        """
        checks.choice("form", form, ("matrix", "quaternion"))
        if self.g is None:
            raise AttributeError("the group elements were not computed: solve with group=True.")
        R = self.system.algebra.rotation_part(self.g)
        return R if form == "matrix" else quaternions(np.asarray(R))

    def _map(self, fn: Any, mu: Any = None) -> Any:
        return map_rows(fn, self.mu if mu is None else mu, len(self.system.algebra.shape))

    def _coordinates(self) -> dict:
        if checks.is_traced(self.values):
            raise TypeError("to_xarray needs numbers, but this run is being traced by JAX.")
        return {"time": ("time", self.t, {"long_name": "time"})}

    def to_xarray(self) -> "xarray.Dataset":
        """The saved values, the Casimirs and the energy as an xarray Dataset with named dimensions."""
        import xarray as xr

        lead = ("member", "time") if self._members is not None else ("time",)
        coords: dict = self._coordinates()
        if self._members is not None:
            coords["member"] = np.arange(self._members)
        data: dict = {}
        if self.custom:
            leaves = jax.tree_util.tree_leaves_with_path(self.saved)
            for path, leaf in leaves:
                name = "saved" + jax.tree_util.keystr(path)
                data[name] = ((*lead, *(f"{name}_{i}" for i in range(leaf.ndim - len(lead)))), np.asarray(leaf))
        else:
            inner = ("component",) if len(self.system.algebra.shape) == 1 else ("row", "column")
            data["mu"] = ((*lead, *inner), np.asarray(self.mu), {"long_name": "state"})
            data["energy"] = (lead, np.asarray(self.energy()), {"long_name": "Hamiltonian"})
            if self.system.algebra.casimir_names:
                coords["casimir"] = list(self.system.algebra.casimir_names)
                data["casimirs"] = ((*lead, "casimir"), np.asarray(self.casimirs()), {"long_name": "Casimirs"})
        if self.g is not None:
            data["g"] = ((*lead, "group_row", "group_column"), np.asarray(self.g), {"long_name": "group element"})
        attrs = {
            "algebra": type(self.system.algebra).__name__,
            "side": self.system.side,
            "integrator": type(self.integrator).__name__,
            "dt": self.dt,
            "steps": self.stats.steps,
            "unsolved_steps": self.stats.unsolved,
            "worst_residual": self.stats.residual,
        }
        return xr.Dataset(data, coords, attrs)

    @property
    def _members(self) -> int | None:
        return None

    def __repr__(self) -> str:
        """What ran, over which time, and how well the Casimirs were kept."""
        noises = {0: "no noise", 1: "1 noise"}.get(self.system.n_noise, f"{self.system.n_noise} noises")
        members = "" if self._members is None else f", {self._members} members"
        lines = [
            f"{type(self).__name__}: {type(self.system.algebra).__name__}, {self.system.side}-invariant, {noises}, "
            f"{type(self.integrator).__name__}{members}",
            f"  time      {self.t[0]:g} to {self.t[-1]:g}, dt = {self.dt:g}, {len(self.t)} times saved",
        ]
        if not checks.is_traced(self.values):
            if not self.custom and self.values is not None:
                errors = np.asarray(self.casimir_errors())
                worst = errors.max(axis=tuple(range(errors.ndim - 1)), initial=0.0)
                names = self.system.algebra.casimir_names
                kept = ", ".join(f"{name} within {e:.1e}" for name, e in zip(names, worst, strict=True))
                lines.append(f"  casimirs  {kept or 'none known'}")
            lines.append(f"  solver    {self.stats!r}")
        return "\n".join(lines)


class Solution(Saved):
    """One trajectory: `t`, `mu` (or `saved`), `casimirs()`, `energy()`, `stats`, `to_xarray()`."""


def map_rows(fn: Any, x: Any, inner: int) -> Any:
    """Map fn over all leading axes of x, in pieces of fixed shape so that it compiles once."""
    if checks.is_traced((x, fn)):
        for _ in range(x.ndim - inner):
            fn = jax.vmap(fn)
        return fn(x)
    x = np.asarray(x)
    lead = x.shape[: x.ndim - inner]
    rows = x.reshape(-1, *x.shape[x.ndim - inner :])
    count = rows.shape[0]
    size = min(_ROWS, max(1, 2**24 // max(rows[:1].size, 1)))
    padded = np.concatenate([rows, np.repeat(rows[-1:], -count % size, axis=0)])
    parts = [np.asarray(mapped(fn, jnp.asarray(padded[i : i + size]))) for i in range(0, len(padded), size)]
    out = np.concatenate(parts)[:count]
    return out.reshape(*lead, *out.shape[1:])


@eqx.filter_jit
def mapped(fn: Any, rows: Float[Array, "rows ..."]) -> Array:
    """fn of each row."""
    return jax.vmap(fn)(rows)
