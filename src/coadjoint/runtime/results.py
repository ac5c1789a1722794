"""The results of runs."""

from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from stepcompiler.device_arrays import to_device
from stepcompiler.jaxprs.interning import Constant

from ..algebras.base import LieAlgebra
from ..integrators.base import Integrator
from ..integrators.jump_adapted import user_method
from ..numerics import validation
from ..numerics.html import as_html
from ..numerics.modules import made
from ..numerics.quaternions import quaternions
from ..numerics.scaled_errors import scaled_errors
from ..systems import System
from .events import Events
from .lapack_lock import LARGE, exclusive_xla
from .member_params import energy_of_members
from .plan import Plan
from .run_state import Snapshot
from .stats import Stats
from .variable_names import event_variables, group_variables, leaf_dims, named_leaves, reduced_dims, state_dims

if TYPE_CHECKING:
    import xarray

_EXTREME = 200  # states of size 2^200 or 2^-200, fifth powers of which overflow, are scaled before they are compared
_NAMED = 4  # Casimirs that are named in a line
_ROWS = 1024  # rows of saved states that are mapped over at once …
_LARGE, _FEW = 256, 16  # … and of those that have so many numbers


class RunSummary(NamedTuple):
    """How a run ended."""

    stats: Stats
    computed: int  # the number of members computed: all unless a step did not converge
    reduced: PyTree  # the result of the reducer, if there is one
    events: Events | None = None  # with `until`


class UnsolvedStepError(RuntimeError):
    """A step did not converge. `solution` contains the steps before it; it is None if JAX differentiates the run."""

    def __init__(self, message: str, solution: Any):
        super().__init__(message)
        self.solution = solution

    def __reduce__(self) -> tuple:
        """For pickling: both arguments."""
        return type(self), (str(self), self.solution)


class Saved(eqx.Module):
    """Saved values of a run along `t`, and diagnostics. States have leading axes `(…, n_saved)`."""

    system: System
    integrator: Integrator
    t: np.ndarray
    values: PyTree
    g: Any  # the group elements, with group=True
    stats: Stats
    fixed_dt: float | None = eqx.field(static=True)  # the time step …
    traced_dt: Any  # … or that which JAX traces
    custom: bool = eqx.field(static=True)  # values come from a `save` function
    events: Events | None  # with `until`

    @property
    def dt(self) -> Any:
        """The time step."""
        return self.traced_dt if self.fixed_dt is None else self.fixed_dt

    @property
    def event_time(self) -> Any:
        """The time of the event of a run with `until`, of each member in an ensemble; NaN if there was none."""
        return self._events.time

    @property
    def event_state(self) -> Any:
        """The state at the event of a run with `until`, of each member in an ensemble; NaN if there was none."""
        return self._events.state

    @property
    def _events(self) -> Events:
        if self.events is None:
            raise AttributeError("the run had no event: give until= a function that vanishes there.")
        return self.events

    @property
    def mu(self) -> Any:
        """The saved states."""
        if self.custom:
            raise AttributeError("the states were not saved, because save= was given: see .saved.")
        return self.values

    @property
    def saved(self) -> Any:
        """The values of the `save` function at each saved time; the states without one."""
        return self.values

    def casimirs(self) -> Any:
        """The Casimirs at the saved times, columns named by `system.algebra.casimir_names`."""
        return self._map(Constant(self.system.algebra.casimirs))

    def casimir_errors(self) -> Any:
        """|C(t) − C₀|, divided by the scale of each Casimir at the first saved time, when it is C₀.

        A Casimir near zero is not divided by.
        """
        mu = moderate(self.mu, len(self.system.algebra.shape))
        scales = self._map(Constant(self.system.algebra.casimir_scales), mu[..., :1, *self._slices])
        values = self._map(Constant(self.system.algebra.casimirs), mu)
        return scaled_errors(values, values[..., :1, :], scales)

    def orbit_error(self) -> Any:
        """How far each saved state is from the orbit of the first, scaled: the largest error of any Casimir.

        For matrices it is the largest change of an eigenvalue over ‖W‖₂. Where not all Casimirs are known, the spectrum
        of the state in the adjoint representation stands for the others.
        """
        inner = len(self.system.algebra.shape)
        x = moderate(self.mu, inner)
        xp: Any = jnp if validation.is_traced(x) else np
        pairs = xp.stack([x, xp.broadcast_to(x[..., :1, *self._slices], x.shape)], axis=-inner - 1)
        return map_rows(Constant(OrbitError(self.system.algebra)), pairs, inner + 1)

    def energy(self) -> Any:
        """The Hamiltonian at the saved times."""
        system = self.system
        if not system.received:
            return self._map(system.energy)
        self._check_energy()
        alone = self._members is None
        members, g = jax.tree.map(lambda x: x[None] if alone else x, (self.mu, self.g))
        values = energy_of_members(system, None, None, members, self.t, g)
        return values[0] if alone else values

    @property
    def _has_energy(self) -> bool:
        """Whether h can be computed from the saved values."""
        needed = self.system.h_receives
        return not ("u" in needed or ("g" in needed and self.g is None))

    def _check_energy(self) -> None:
        if not self._has_energy:
            what = "control u" if "u" in self.system.h_receives else "group element g"
            raise AttributeError(
                f"the energy depends on the {what}, which was not saved: compute it by save=, from a function with "
                "the arguments that it needs."
            )

    @property
    def _slices(self) -> tuple:
        return (slice(None),) * len(self.system.algebra.shape)

    def attitude(self, form: str = "matrix") -> Any:
        """The attitude g(t) as rotation matrices ("matrix") or unit quaternions (w, x, y, z) ("quaternion").

        For SO3, SE3, SU(2), and products and semidirect products of these, with group=True or a system on T*G. A
        product of equal factors has an axis of factors before rows and columns. Left-invariant: g takes the body frame
        to space. The sign of a quaternion is chosen so that it moves continuously.

        Parameters
        ----------
        form : {"matrix", "quaternion"}, default "matrix"
            The form of the attitude.
        """
        validation.choice("form", form, ("matrix", "quaternion"))
        if self.g is None:
            raise AttributeError("the group elements were not computed: solve with group=True.")
        R = self.system.algebra.rotation_part(self.g)
        if form == "matrix":
            return R
        return jax.tree.map(lambda x: quaternions(x, 0 if self._members is None else 1), R)

    def _map(self, fn: Any, mu: Any = None) -> Any:
        return map_rows(fn, self.mu if mu is None else mu, len(self.system.algebra.shape))

    def _coordinates(self) -> dict:
        if validation.is_traced(self.values):
            raise TypeError("to_xarray needs numbers, but this run is being traced by JAX.")
        return {"time": ("time", self.t, {"long_name": "time"})}

    def to_xarray(self) -> "xarray.Dataset":
        """The saved values, the Casimirs and the energy as an xarray Dataset with named dimensions."""
        import xarray as xr

        coords: dict = self._coordinates()
        algebra = self.system.algebra
        data: dict = {}
        lead = ("member", "time") if self._members is not None else ("time",)
        if self._members is not None and self.values is not None:
            coords["member"] = np.arange(self._members)
        if self.values is None:
            data |= self._reduced_variables()
        elif self.custom:
            for name, leaf in named_leaves(self.saved):
                data[name] = ((*lead, *leaf_dims(name, leaf.ndim - len(lead))), np.asarray(leaf))
        else:
            data["mu"] = ((*lead, *state_dims(algebra)), np.asarray(self.mu), {"long_name": "state"})
            if self._has_energy:
                data["energy"] = (lead, np.asarray(self.energy()), {"long_name": "Hamiltonian"})
            if algebra.casimir_names:
                coords["casimir"] = list(algebra.casimir_names)
                data["casimirs"] = ((*lead, "casimir"), np.asarray(self.casimirs()), {"long_name": "Casimirs"})
            if algebra.watches_orbit:
                data["orbit_error"] = (lead, np.asarray(self.orbit_error()), {"long_name": "distance from the orbit"})
        if self.events is not None:
            data |= event_variables(self.events, algebra, lead[:-1])
        for name, dims, leaf in group_variables(self.g, len(lead)):
            data[name] = ((*lead, *dims), np.asarray(leaf), {"long_name": "group element"})
        attrs = {
            "algebra": type(self.system.algebra).__name__,
            "side": self.system.side,
            "integrator": type(user_method(self.integrator)).__name__,
            "dt": self.dt,
            "steps": self.stats.steps,
            "unsolved_steps": self.stats.unsolved,
            "worst_residual": self.stats.residual,
            "backend": self.stats.backend,
        }
        return xr.Dataset(data, coords, attrs)

    def _reduced_variables(self) -> dict:
        """Return the result of a reducer, for a Dataset."""
        return {}

    @property
    def _members(self) -> int | None:
        return None

    def _kept(self) -> str:
        """Return a line on the errors of the Casimirs: some of them, and the orbit if they do not determine it."""
        algebra = self.system.algebra
        names = algebra.casimir_names
        words = []
        if names:
            errors = np.asarray(self.casimir_errors())
            worst = errors.max(axis=tuple(range(errors.ndim - 1)), initial=0.0)
            words = [f"{name} within {e:.1e}" for name, e in zip(names[:_NAMED], worst, strict=False)]
            if len(names) > _NAMED:
                words.append(f"{len(names) - _NAMED} more within {worst[_NAMED:].max():.1e}")
        if len(names) != algebra.index or algebra.known_casimirs < algebra.index:
            if algebra.known_casimirs < algebra.index:
                words.append(algebra.casimir_words)
            if names or algebra.watches_orbit:
                words.append(f"orbit within {np.max(self.orbit_error(), initial=0.0):.1e}")
            else:
                words.append("nothing was measured")
        return ", ".join(words) or "there are none"

    def __repr__(self) -> str:
        """Return the method, the interval of time and the errors of the Casimirs as text."""
        noises = {0: "no noise", 1: "1 noise"}.get(self.system.n_noise, f"{self.system.n_noise} noises")
        members = "" if self._members is None else f", {self._members} members"
        lines = [
            f"{type(self).__name__}: {type(self.system.algebra).__name__}, {self.system.side}-invariant, {noises}, "
            f"{type(user_method(self.integrator)).__name__}{members}",
            f"  time      {f'{self.t[0]:g} to {self.t[-1]:g}, ' if len(self.t) else ''}dt = {self.dt:g}, "
            f"{len(self.t)} times saved",
        ]
        if not validation.is_traced(self.values):
            if not self.custom and self.values is not None:
                lost = "change by a torque, dissipation or stirring: " if self.system.leaves_orbit else ""
                lines.append(f"  casimirs  {lost}{self._kept()}")
            if self.events is not None:
                found = np.isfinite(self.events.time)
                lines.append(f"  events    {np.count_nonzero(found)} of {np.size(found)} stopped")
            lines.append(f"  solver    {self.stats!r}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return as_html(self)


class OrbitError(eqx.Module):
    """`orbit_error` of pairs of states."""

    algebra: LieAlgebra

    def __call__(self, pair: Array) -> Array:
        return self.algebra.orbit_error(pair[0], pair[1])


class Solution(Saved):
    """One trajectory, as `solve` returns it.

    Parameters
    ----------
    system : System
        The system.
    integrator : Integrator
        The method.
    t : array, shape (n_saved,)
        The saved times.
    values : array or pytree
        The saved states (`mu`), or the values of `save` (`saved`), with a leading axis of saved times.
    g : array or pytree or None
        The group elements, if the run had `group=True`.
    stats : Stats
        The statistics of the solver.
    fixed_dt : float or None
        The time step `dt`, unless JAX traces it.
    traced_dt : array or None
        The time step `dt` that JAX traces.
    custom : bool
        Whether `values` are the values of a `save` function.
    events : Events or None
        The time and the state of the event, if the run had `until`.
    """


class Ensemble(Saved):
    """Many trajectories, as `ensemble` returns them.

    Parameters
    ----------
    system, integrator, t, stats, fixed_dt, traced_dt, custom, events : optional
        As in `Solution`.
    values : array or pytree
        The saved states (`mu`), or the values of `save` (`saved`), with axes (members, n_saved, …).
    g : array or pytree or None
        The group elements of each member, if the run had `group=True`.
    members : int
        The number of members.
    reduced : pytree
        The statistics, with a leading axis of saved times, if the run had `reduce`. Members are not saved then.
    params : pytree
        The parameters passed to `ensemble`, if any.
    axes : pytree
        For each leaf of `params`, 0 if it leads with members, otherwise None.
    """

    members: int = eqx.field(static=True)
    reduced: PyTree
    params: PyTree  # parameters that replace the system's, if any …
    axes: PyTree = eqx.field(static=True)  # … and, leaf by leaf, whether they lead with members (0) or not (None)

    @property
    def mu(self) -> Any:
        """The saved states of every member."""
        self._check_members()
        return Saved.mu.fget(self)  # type: ignore[attr-defined]

    @property
    def saved(self) -> Any:
        """The values of the `save` function for every member; the states without one."""
        self._check_members()
        return self.values

    def energy(self) -> Any:
        """The Hamiltonian at the saved times, with the params of each member."""
        if self.params is None:
            return Saved.energy(self)
        self._check_energy()
        return energy_of_members(self.system, self.params, self.axes, self.mu, self.t, self.g)

    def _check_members(self) -> None:
        if self.reduced is not None:
            raise AttributeError("the members were not saved, because reduce= was given: see .reduced.")

    def _reduced_variables(self) -> dict:
        """Return the result of a reducer, for a Dataset."""

        def variable(name: str, leaf: Any) -> tuple:
            dims = reduced_dims(name, leaf.shape[1:], self.system.algebra, self.custom)
            return ("time", *dims), np.asarray(leaf), {"long_name": f"{name} over members"}

        return {name: variable(name, leaf) for name, leaf in named_leaves(self.reduced, "")}

    @property
    def _members(self) -> int | None:
        return self.members


def make_result(plan: Plan, outcome: RunSummary, values: Snapshot, times: np.ndarray) -> "Solution | Ensemble":
    """Return the object that the user receives, with the members that were computed."""
    fixed, traced = (None, plan.dt) if validation.is_traced(plan.dt) else (plan.dt, None)
    what = {
        "system": plan.system, "integrator": plan.integrator, "t": times, "stats": outcome.stats, "fixed_dt": fixed,
        "traced_dt": traced, "custom": plan.custom, "events": outcome.events,
    }  # fmt: skip
    if plan.members is None:
        return made(Solution, values=values.values, g=values.g, **what)
    computed = outcome.computed
    kept = jax.tree.map(lambda x: x[:computed], values) if computed < plan.members else values
    own = {"members": computed, "reduced": outcome.reduced, "params": plan.params, "axes": plan.axes}
    return made(Ensemble, values=kept.values, g=kept.g, **what, **own)


def moderate(x: Any, inner: int) -> Any:
    """States, those of trajectories with an extreme start divided by a power of two, so that their powers are finite.

    Relative errors of invariants remain bitwise identical: the coadjoint action is linear.
    """
    if validation.is_traced(x):
        return x
    x = np.asarray(x)
    start = x[(..., slice(1), *(slice(None),) * inner)]
    exponent = np.frexp(np.max(np.abs(start), axis=tuple(range(x.ndim - inner, x.ndim)), keepdims=True))[1]
    exponent = np.where(np.abs(exponent) > _EXTREME, exponent, 0)
    if not np.any(exponent):
        return x
    if np.iscomplexobj(x):
        return np.ldexp(x.real, -exponent) + 1j * np.ldexp(x.imag, -exponent)
    return np.ldexp(x, -exponent)


def map_rows(fn: Any, x: Any, inner: int) -> Any:
    """Map fn over all leading axes of x, in pieces of fixed shape so that it compiles once."""
    if validation.is_traced((x, fn)):
        for _ in range(x.ndim - inner):
            fn = jax.vmap(fn)
        return fn(x)
    x = np.asarray(x)
    lead = x.shape[: x.ndim - inner]
    rows = x.reshape(-1, *x.shape[x.ndim - inner :])
    count = rows.shape[0]
    size = min(_ROWS, max(1, 2**24 // max(rows[:1].size, 1)))
    if rows[:1].size >= _LARGE:  # two matrices must not wait for a thousand
        size = min(size, _FEW, 1 << max(count - 1, 0).bit_length())
    padded = np.concatenate([rows, np.repeat(rows[-1:], -count % size, axis=0)])
    with exclusive_xla(small=inner < 2 or x.shape[-1] < LARGE):  # eigenvalues of matrices, perhaps
        parts = [np.asarray(mapped(fn, to_device(padded[i : i + size]))) for i in range(0, len(padded), size)]
    out = np.concatenate(parts)[:count]
    return out.reshape(*lead, *out.shape[1:])


@eqx.filter_jit
def mapped(fn: Any, rows: Float[Array, "rows ..."]) -> Array:
    """fn of each row."""
    return jax.vmap(fn)(rows)
