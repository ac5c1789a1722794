"""Orders of convergence, measured on shared paths."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from ..drivers import BLOCK, Brownian, Increment, Needs, SampledPaths, joined, truncation_bound
from ..integrators.base import Integrator
from ..integrators.tmk15 import TMK15
from ..integrators.tmk_levy import TMKLevy
from ..numerics import validation
from ..runtime.ensemble import ensemble
from ..systems import System

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_RESAMPLES = 400
_BATCH_BYTES = 2**28  # of sampled paths at a time
_PLATEAU = 1e-12  # errors below this, scaled by the state, are round-off


def convergence(
    system: System,
    mu0: Any,
    integrators: Integrator | Sequence[Integrator] | Mapping[str, Integrator],
    dts: Sequence[float],
    paths: int = 200,
    key: Any = 0,
    *,
    t1: float,
    t0: float = 0.0,
    observable: Callable[[Any], Any] | None = None,
    reference: Integrator | tuple[Integrator, float] | None = None,
) -> "Convergence":
    """Measure orders of convergence: errors at t1 on shared Brownian paths, against a reference on the same paths.

    The order is the slope of a log–log fit. Its standard error comes from resampling the paths. Use noise of a
    realistic amplitude: under weak noise the deterministic error hides the leading stochastic term.

    Parameters
    ----------
    system : System
        The system.
    mu0 : array_like
        The initial state.
    integrators : Integrator, sequence, or dict
        One method, several, or a dictionary with names of your choice.
    dts : sequence of float
        At least two step sizes, integer multiples of the reference's step.
    paths : int, default 200
        The number of Brownian paths. A system without noise has one.
    key : int or JAX key, default 0
        Selects the paths.
    t1 : float
        The final time.
    t0 : float, default 0.0
        The initial time.
    observable : callable, optional
        A real function f of the state. The study then also measures the weak error |E f(μ) − E f(μ_ref)|.
    reference : Integrator or (Integrator, float), optional
        The reference method, and its step. The default is the method of highest order with an eighth of the smallest
        step. Integrals of the path are sampled on the grid of the reference.

    Returns
    -------
    Convergence

    Raises
    ------
    ValueError
        If `dts` are not multiples of the reference's step, or if a method is adaptive.
    """
    named = _named(integrators)
    steps = np.sort(np.array([validation.positive("dts", dt) for dt in np.atleast_1d(np.asarray(dts, object))]))[::-1]
    if len(np.unique(steps)) != len(steps) or len(steps) < 2:
        raise ValueError(f"dts must be at least two different step sizes, not {dts!r}.")
    paths = validation.count("paths", paths) if system.n_noise else 1
    judge, fine = _reference(system, named, reference, float(steps[-1]))
    runs = [("", judge, fine)] + [(name, i, float(dt)) for name, i in named.items() for dt in steps]
    needs = [integrator.needs(system) for _, integrator, _ in runs]
    if any(n.halvings for n in needs):
        raise ValueError("an adaptive method has no order in dt: measure the method inside it.")
    Z, areas, third = (any(getattr(n, what) for n in needs) for what in ("Z", "areas", "third"))
    asked = Needs(Z, areas, third, signs=max(n.signs for n in needs))
    counts = {dt: _steps(t0, t1, dt, fine) for _, _, dt in runs}
    size = _batch(system.n_noise, counts[fine], paths, asked)
    results = []
    for first in range(0, paths, size):
        drivers: dict[float, Any] = dict.fromkeys(counts)
        if system.n_noise:
            drivers = _paths(Brownian(key, grid=fine, depth=0), system.n_noise, fine, counts, first, size, asked)
        row = []
        for _, integrator, dt in runs:
            how = {"driver": drivers[dt], "integrator": integrator, "save_every": counts[dt]}
            sol = ensemble(system, mu0, members=size, t0=t0, t1=t1, dt=dt, **how)
            row.append(np.asarray(sol.mu)[:, -1])
        results.append(row)
    exact, *rest = (np.concatenate(x)[:paths] for x in zip(*results, strict=True))
    states = {name: rest[k * len(steps) : (k + 1) * len(steps)] for k, name in enumerate(named)}
    axes = tuple(range(1, exact.ndim))
    errors = np.array([[np.sqrt(np.sum(np.abs(x - exact) ** 2, axes)) for x in row] for row in states.values()])
    weak = None if observable is None else _differences(observable, states, exact)
    scale = float(np.max(np.abs(exact)))
    return Convergence(tuple(named), steps, errors, weak, scale, f"{type(judge).__name__}, dt = {fine:g}")


def _differences(observable: Callable, states: Mapping[str, Sequence[np.ndarray]], exact: np.ndarray) -> np.ndarray:
    """f(μ) − f(μ_ref) for each integrator, step and path."""
    f = jax.jit(jax.vmap(lambda mu: jnp.asarray(observable(mu), float)))
    if np.ndim(target := np.asarray(f(exact))) != 1:
        raise ValueError(f"observable must return one real number, not shape {target.shape[1:]}.")
    return np.array([[np.asarray(f(x)) - target for x in row] for row in states.values()])


@dataclass(frozen=True, repr=False)
class Convergence:
    """The result of `convergence`: errors and measured orders.

    Attributes
    ----------
    names : tuple of str
        The names of the methods.
    dts : array, shape (K,)
        Step sizes, from large to small.
    errors : array, shape (methods, K, paths)
        |μ − μ_ref| of each method, step and path.
    differences : array, shape (methods, K, paths), or None
        f(μ) − f(μ_ref), if an observable was passed.
    scale : float
        The size of the state. Errors below 1e-12 times this are treated as round-off.
    reference : str
        The reference method and its step.
    """

    names: tuple[str, ...]
    dts: np.ndarray
    errors: np.ndarray
    differences: np.ndarray | None
    scale: float
    reference: str

    @property
    def rms(self) -> np.ndarray:
        """Strong errors: the root of the mean square over paths, (integrators, dts)."""
        return np.sqrt(np.mean(self.errors**2, axis=2))

    @property
    def weak_errors(self) -> np.ndarray:
        """|E f(μ) − E f(μ_ref)|, (integrators, dts)."""
        return np.abs(np.mean(self._differences, axis=2))

    @property
    def weak_standard_errors(self) -> np.ndarray:
        """Standard errors of `weak_errors` over the paths, (integrators, dts)."""
        paths = self._differences.shape[2]
        return np.std(self._differences, axis=2, ddof=min(1, paths - 1)) / np.sqrt(paths)

    @property
    def weak_resolved(self) -> np.ndarray:
        """Whether each weak order is resolved: all weak errors of the fit exceed two standard errors."""
        used = self.weak_errors > _PLATEAU * self.scale
        return np.all((self.weak_errors > 2.0 * self.weak_standard_errors) | ~used, axis=1) & (used.sum(axis=1) > 1)

    @property
    def _differences(self) -> np.ndarray:
        if self.differences is None:
            raise AttributeError("there are no weak errors: give observable=.")
        return self.differences

    @property
    def order(self) -> np.ndarray:
        """Measured strong orders, one per method."""
        return self._orders(self.errors**2, 0.5)[0]

    @property
    def order_error(self) -> np.ndarray:
        """Standard errors of `order`."""
        return self._orders(self.errors**2, 0.5)[1]

    @property
    def weak_order(self) -> np.ndarray:
        """Measured weak orders, one per method."""
        return self._orders(self._differences, 1.0)[0]

    @property
    def weak_order_error(self) -> np.ndarray:
        """Standard errors of `weak_order`."""
        return self._orders(self._differences, 1.0)[1]

    def _orders(self, samples: np.ndarray, power: float) -> tuple[np.ndarray, np.ndarray]:
        """Slopes of log |mean|^power against log dt, and their spread over resampled paths."""
        pick = np.random.default_rng(0).integers(0, samples.shape[2], (_RESAMPLES, samples.shape[2]))
        slopes = []
        for row in samples:
            keep = np.abs(np.mean(row, axis=1)) ** power > _PLATEAU * self.scale
            if keep.sum() < 2:
                slopes.append((np.nan, np.nan))
                continue
            x, row = np.log(self.dts[keep]), row[keep]
            x = (x - x.mean()) / np.sum((x - x.mean()) ** 2)
            means = np.stack([row.mean(axis=1), *(row[:, p].mean(axis=1) for p in pick)])
            fits = power * np.log(np.abs(means)) @ x
            slopes.append((fits[0], np.std(fits[1:])))
        out = np.array(slopes)
        return out[:, 0], out[:, 1]

    def table(self) -> str:
        """The errors and orders as a Markdown table, weak errors with standard errors.

        A weak order is "not resolved" if one of its errors is below two standard errors: take more paths.
        """
        kinds = [("strong", self.rms, self.order, self.order_error)]
        if self.differences is not None:
            kinds.append(("weak", self.weak_errors, self.weak_order, self.weak_order_error))
        head = ["integrator", "error", *(f"dt = {dt:g}" for dt in self.dts), "order"]
        rows = [head, ["---"] * len(head)]
        for i, name in enumerate(self.names):
            for kind, errors, order, spread in kinds:
                cells, last = [f"{e:.2e}" for e in errors[i]], f"{order[i]:.2f} ± {spread[i]:.2f}"
                if kind == "weak":
                    cells = [f"{e} ± {s:.0e}" for e, s in zip(cells, self.weak_standard_errors[i], strict=True)]
                    last = last if self.weak_resolved[i] else "not resolved"
                rows.append([name, kind, *cells, last])
        return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"

    def __repr__(self) -> str:
        """The table, and the reference."""
        return f"{self.table()}{self.errors.shape[2]} paths; reference: {self.reference}"

    def plot(self, weak: bool = False) -> "Figure":
        """Plot errors against step sizes on logarithmic axes, with the measured orders and lines of slope ½, 1, 1½, ….

        Parameters
        ----------
        weak : bool, default False
            Plot weak errors instead of strong ones.

        Returns
        -------
        matplotlib.figure.Figure
            Save it by `.savefig("orders.pdf")`.
        """
        from ..report import plotting

        errors, order = (self.weak_errors, self.weak_order) if weak else (self.rms, self.order)
        spread = self.weak_order_error if weak else self.order_error
        with plotting.style():
            fig = plotting.figure(plotting.COLUMN, 2.8)
            ax = fig.subplots()
            for i, name in enumerate(self.names):
                label = f"{name}: {order[i]:.2f} ± {spread[i]:.2f}"
                ax.loglog(self.dts, errors[i], marker="osD^vP"[i % 6], markersize=3.5, label=label)
            for half in sorted({round(2 * p) for p in order if np.isfinite(p) and p > 0.25}):
                near = int(np.nanargmin(np.abs(order - half / 2)))
                line = 0.6 * errors[near, 0] * (self.dts / self.dts[0]) ** (half / 2)
                ax.loglog(self.dts, line, "--", color="0.5", linewidth=0.7, zorder=1)
                ax.annotate(f"{half / 2:g}", (self.dts[-1], line[-1]), xytext=(-3, 0), textcoords="offset points",
                            ha="right", va="center", fontsize=7, color="0.4")  # fmt: skip
            ax.set(xlabel="dt", ylabel="weak error" if weak else "strong error (rms)")
            ax.set_xticks(self.dts, [f"{dt:.2g}" for dt in self.dts])
            ax.set_xticks([], minor=True)
            ax.margins(x=0.12)
            ax.legend()
        return fig


def _named(integrators: Any) -> dict[str, Integrator]:
    if isinstance(integrators, Mapping):
        named = dict(integrators)
    else:
        several = [integrators] if isinstance(integrators, Integrator) else list(integrators)
        named = {}
        for integrator in several:
            name = base = type(integrator).__name__
            count = 1
            while name in named:
                count += 1
                name = f"{base} ({count})"
            named[name] = integrator
    for integrator in named.values():
        if not isinstance(integrator, Integrator):
            raise TypeError(f"integrators must be Integrators such as TMK(), not {integrator!r}.")
    if not named:
        raise ValueError("give at least one integrator.")
    return named


def _reference(system: System, named: dict[str, Integrator], given: Any, smallest: float) -> tuple[Integrator, float]:
    if isinstance(given, tuple):
        judge, dt = given
        return judge, validation.positive("reference", dt)
    if given is not None:
        return given, smallest / 8
    if system.n_noise == 0:
        return max(named.values(), key=lambda i: i.claims.order), smallest / 8
    return (TMK15() if system.additive else TMKLevy()), smallest / 8


def _steps(t0: float, t1: float, dt: float, fine: float) -> int:
    ratio, count = dt / fine, (t1 - t0) / dt
    if abs(ratio - round(ratio)) > 1e-9 * ratio:
        raise ValueError(f"dts must be whole multiples of the reference's step, {fine:g}, but {dt:g} is not.")
    if abs(count - round(count)) > 1e-9 * count or round(count) < 1:
        raise ValueError(f"dts must divide t1 − t0 = {t1 - t0:g}, but {dt:g} does not.")
    return round(count)


def _batch(n_noise: int, steps: int, paths: int, needs: Needs) -> int:
    """The number of paths that are sampled at a time: a power of two."""
    M = n_noise
    numbers = M + needs.Z * M + (needs.areas or needs.third) * M**2 + needs.third * M**3 + needs.signs
    most = max(1, _BATCH_BYTES // max(8 * steps * numbers, 1))
    return min(paths, 1 << (most.bit_length() - 1))


def _paths(
    driver: Brownian, n_noise: int, fine: float, counts: dict[float, int], first: int, size: int, needs: Needs
) -> dict[float, SampledPaths]:
    """Paths first … first + size − 1 on all grids: sampled on the finest, combined by Chen's relation."""
    blocks = -(-counts[fine] // BLOCK)
    window = driver.window(n_noise, fine, 0, blocks, needs)
    drawn = jax.tree.map(np.asarray, _draw(window, jnp.arange(first, first + size), jnp.arange(blocks)))
    path = jax.tree.map(lambda x: x.reshape(size, -1, *x.shape[3:])[:, : counts[fine]], drawn)
    paths = {fine: path}
    for dt in sorted(counts)[1:]:
        last = max(d for d in paths if abs(dt / d - round(dt / d)) <= 1e-9 * dt / d)
        q = round(dt / last)
        part = jax.tree.map(lambda x, q=q: x.reshape(size, -1, q, *x.shape[2:]), paths[last])
        pieces = [jax.tree.map(lambda x, k=k: x[:, :, k], part) for k in range(q)]
        whole = pieces[0]
        for piece in pieces[1:]:
            whole = joined(whole, piece, last)
        bound = np.broadcast_to(np.asarray(truncation_bound(jnp.asarray(dt))), whole.bound.shape)
        paths[dt] = eqx.tree_at(lambda i: i.bound, whole, bound)

    def rows(path: Increment) -> Increment:
        def cut(x: Any) -> Array:
            x = np.pad(x, [(0, 0), (0, blocks * BLOCK - x.shape[1])] + [(0, 0)] * (x.ndim - 2))
            return jnp.asarray(x.reshape(size, blocks, BLOCK, *x.shape[2:]))

        return jax.tree.map(cut, path)

    return {dt: SampledPaths(rows(path), counts[dt]) for dt, path in paths.items()}


@eqx.filter_jit
def _draw(window: Any, members: Int[Array, " P"], blocks: Int[Array, " B"]) -> Increment:
    return jax.vmap(lambda k: jax.lax.map(lambda b: window.block(k, b), blocks))(members)
