"""The result of a filter."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxtyping import PyTree

from ..numerics.html import as_html
from ..runtime.variable_names import leaf_dims, named_leaves, state_dims
from ..systems import System

if TYPE_CHECKING:
    import xarray


@dataclass(frozen=True, repr=False)
class FilterResult:
    """The estimates of a filter at the times of the observations.

    Means and spreads are pytrees of the saved values, by default of the states, with a leading axis of times. A spread
    is the standard deviation over members. `params_mean` and `params_spread` have None in place of leaves of params
    that all members share.

    Parameters
    ----------
    system : System
        The model.
    method : str
        The name of the filter.
    t : array, shape (times,)
        The times of the observations.
    mean, spread : pytree
        Estimates after each observation.
    forecast_mean, forecast_spread : pytree
        Estimates before each observation.
    smoothed_mean, smoothed_spread : pytree
        Estimates from the observations up to `lag` windows later, None without a lag.
    params_mean, params_spread : pytree
        Estimates of unknown parameters, None without any.
    log_evidence : array, shape (times,)
        The logarithm of the estimated density of all observations up to each time.
    ess : array, shape (times,), or None
        The effective size of the weights of each observation. `GroupKalman` has none.
    temperatures, acceptance : array, shape (times,), or None
        The number of temperatures, and the share of accepted paths, of a particle filter.
    members : pytree or None
        The saved values of all members, (members, times, ...), with `keep_members=True`.
    member_weights : array, shape (members, times), or None
        The weights of the members, with `keep_members=True`.
    params_members : pytree or None
        The unknown parameters of all members, (members, times, ...), with `keep_members=True`.
    states : array
        The states of the members at the last time, with a leading axis of members.
    g : pytree or None
        The group elements of the members at the last time.
    params : pytree or None
        The parameters at the last time, as `ensemble` takes them.
    weights : array, shape (members,)
        The weights of the members at the last time.
    """

    system: System
    method: str
    t: np.ndarray
    mean: PyTree
    spread: PyTree
    forecast_mean: PyTree
    forecast_spread: PyTree
    smoothed_mean: PyTree
    smoothed_spread: PyTree
    params_mean: PyTree
    params_spread: PyTree
    log_evidence: np.ndarray
    ess: np.ndarray | None
    temperatures: np.ndarray | None
    acceptance: np.ndarray | None
    members: PyTree
    member_weights: np.ndarray | None
    params_members: PyTree
    states: np.ndarray
    g: PyTree
    params: PyTree
    weights: np.ndarray

    def to_xarray(self) -> "xarray.Dataset":
        """The estimates as an xarray Dataset with named dimensions."""
        import xarray as xr

        algebra = self.system.algebra
        data: dict[str, Any] = {}

        def add(name: str, tree: PyTree, lead: tuple[str, ...]) -> None:
            for leaf_name, x in named_leaves(tree, name):
                shape = x.shape[len(lead) :]
                plain = shape == algebra.shape and leaf_name == name
                inner = state_dims(algebra) if plain else leaf_dims(leaf_name, len(shape))
                data[leaf_name] = ((*lead, *inner), x)

        for kind in ("", "forecast_", "smoothed_", "params_"):
            for what in ("mean", "spread"):
                add(f"{kind}{what}", getattr(self, f"{kind}{what}"), ("time",))
        for name in ("log_evidence", "ess", "temperatures", "acceptance"):
            add(name, getattr(self, name), ("time",))
        for name in ("members", "member_weights", "params_members"):
            add(name, getattr(self, name), ("member", "time"))
        coords = {"time": ("time", self.t, {"long_name": "time"}), "member": np.arange(len(self.weights))}
        return xr.Dataset(data, coords, {"filter": self.method, "algebra": type(algebra).__name__})

    def _repr_html_(self) -> str:
        return as_html(self)

    def __repr__(self) -> str:
        """The filter, its times and its statistics in a few lines."""
        lines = [
            f"FilterResult: {self.method}, {len(self.weights)} members",
            f"  time      {self.t[0]:g} to {self.t[-1]:g}, {len(self.t)} observations",
            f"  evidence  log p = {self.log_evidence[-1]:.6g}",
        ]
        if self.ess is not None:
            lines.append(
                f"  sizes     effective size {np.mean(self.ess):.1f} on average, at least {np.min(self.ess):.1f}"
            )
        if self.temperatures is not None and np.any(self.temperatures) and self.acceptance is not None:
            mean = np.mean(self.temperatures)
            lines.append(f"  moves     {mean:.1f} temperatures, acceptance {np.nanmean(self.acceptance):.2f}")
        return "\n".join(lines)


def assemble(
    system: System,
    method: str,
    times: np.ndarray,
    rows: list[dict[str, np.ndarray]],
    late: list[dict[str, np.ndarray]],
    tree: Any,
    state: Any,
    windows: Any,
) -> FilterResult:
    """The result from the rows of all cycles; `late` has the smoothed values of the last ones."""
    smoothed = [row for row in rows if "smoothed_mean.0" in row] + late

    def stacked(name: str, axis: int = 0) -> np.ndarray | None:
        return np.stack([row[name] for row in rows], axis) if name in rows[0] else None

    def values(name: str, source: list[dict[str, np.ndarray]] = rows, axis: int = 0) -> PyTree:
        if not source or f"{name}.0" not in source[0]:
            return None
        count = tree.num_leaves
        return jax.tree.unflatten(tree, [np.stack([r[f"{name}.{i}"] for r in source], axis) for i in range(count)])

    def params(name: str, axis: int = 0) -> PyTree:
        count = len(state.members.params)
        return windows.own_params([np.stack([r[f"{name}.{i}"] for r in rows], axis) for i in range(count)])

    keep = "weights" in rows[0]
    weights = np.exp(state.log_weights - np.max(state.log_weights))
    return FilterResult(
        system=system, method=method, t=times,
        **{f"{kind}{what}": values(f"{kind}{what}") for kind in ("", "forecast_") for what in ("mean", "spread")},
        **{f"smoothed_{what}": values(f"smoothed_{what}", smoothed) for what in ("mean", "spread")},
        params_mean=params("params_mean"), params_spread=params("params_spread"),
        log_evidence=np.stack([row["log_evidence"] for row in rows]),
        ess=stacked("ess"), temperatures=stacked("temperatures"), acceptance=stacked("acceptance"),
        members=values("members", axis=1) if keep else None, member_weights=stacked("weights", 1),
        params_members=params("params_members", 1) if keep else None,
        states=state.members.mu, g=state.members.g, params=windows.params(state.members),
        weights=weights / weights.sum(),
    )  # fmt: skip
