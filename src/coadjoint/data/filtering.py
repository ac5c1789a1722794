"""The cycles of a filter: checks of its arguments, the loop over observations, progress, failures."""

import abc
import hashlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree

from ..integrators.base import Integrator
from ..integrators.tmk import TMK
from ..numerics import validation
from ..numerics.signatures import described
from ..runtime.saved_times import check_save_at
from ..runtime.saved_values import MemberFunction, more_arguments, trace
from ..systems import System
from .filter_result import FilterResult, assemble
from .filtering_state import FilterError, FilterState, Members
from .observations import Observation, TracedObservation
from .resampling import normalised
from .windows import Draws, Windows

Row = dict[str, np.ndarray]  # the results of a cycle by name


class Problem(NamedTuple):
    """The checked arguments of a run of a filter."""

    system: System
    windows: Windows
    observation: TracedObservation
    y: np.ndarray  # (times, …)
    times: np.ndarray
    ends: np.ndarray  # the number of steps up to each observation
    draws: Draws
    save: MemberFunction
    keep_members: bool

    def log_likelihood(self, members: Members, k: int) -> np.ndarray:
        """log p(y_k | μ) of each member."""
        return self.windows.evaluate(self.observation.density, members, int(self.ends[k]), self.y[k])

    def window(self, k: int) -> tuple[int, int]:
        """The first step and the number of steps before observation k."""
        first = int(self.ends[k - 1]) if k else 0
        return first, int(self.ends[k]) - first

    def increments(self, k: int, cycle: int, move: int) -> np.ndarray:
        """New Brownian increments before observation k, (members, steps, M)."""
        first, steps = self.window(k)
        z = self.draws.normals(cycle, move, 0, self.system.n_noise, first, steps)
        return np.sqrt(self.windows.dt) * z

    def statistics(self, name: str, members: Members, n: int, log_weights: np.ndarray) -> Row:
        """Mean and spread of the saved values after n steps."""
        values = jax.tree.leaves(self.windows.evaluate(self.save, members, n))
        return _moments(name, values, normalised(log_weights))

    def summary(self, state: FilterState, k: int) -> Row:
        """The results of cycle k: statistics of the members and of their params, and the members if required."""
        n = int(self.ends[k])
        values = jax.tree.leaves(self.windows.evaluate(self.save, state.members, n))
        weights = normalised(state.log_weights)
        row = _moments("", values, weights) | _moments("params_", list(state.members.params), weights)
        if self.keep_members:
            row |= {f"members.{i}": x for i, x in enumerate(values)} | {"weights": weights}
            row |= {f"params_members.{i}": x for i, x in enumerate(state.members.params)}
        return row | {"log_evidence": state.log_evidence}


def _moments(name: str, values: list[np.ndarray], weights: np.ndarray) -> Row:
    """Weighted means, and unbiased standard deviations."""
    row: Row = {}
    rest = max(1.0 - float(np.sum(weights * weights)), 1e-300)
    for i, x in enumerate(values):
        mean = np.tensordot(weights, x, 1)
        row[f"{name}mean.{i}"] = mean
        row[f"{name}spread.{i}"] = np.sqrt(np.tensordot(weights, np.abs(x - mean) ** 2, 1) / rest)
    return row


class Filter(abc.ABC):
    """The interface of filters: `run` is shared, and each filter defines the assimilation of one observation."""

    def __init__(self, observation: Observation, members: int, lag: int):
        if not isinstance(observation, Observation):
            raise TypeError(
                "observation must be an observation such as cj.data.Gaussian(function, std=0.1), not "
                f"{described(observation)}."
            )
        self.observation = observation
        self.members = validation.count("members", members)
        self.lag = validation.count("lag", lag, least=0)

    @abc.abstractmethod
    def _settings(self) -> dict[str, Any]:
        """The settings, for the configuration of a store."""

    @abc.abstractmethod
    def _assimilate(self, problem: Problem, state: FilterState, k: int) -> tuple[FilterState, Row]:
        """Forecast up to observation k and assimilate it."""

    def _check(self, system: System) -> None:  # noqa: B027, a filter may support every system
        """Raise if the filter does not support a system."""

    def _start(self, problem: "Problem", state: FilterState) -> FilterState:
        """The state before the first cycle."""
        return state

    def run(
        self,
        system: System,
        mu0: Any,
        observations: Any,
        *,
        times: Any,
        dt: float,
        key: Any,
        t0: float = 0.0,
        integrator: Integrator = TMK(),
        params: PyTree = None,
        g0: Any = None,
        group: bool = False,
        save: Callable[..., PyTree] | None = None,
        keep_members: bool = False,
        out: Any = None,
        resume: bool = False,
        progress: bool = False,
        backend: str = "auto",
    ) -> FilterResult:
        """Assimilate observations one after the other.

        Parameters
        ----------
        system : System
            The model. Its noise must be driven by Brownian motion. The filter samples the increments.
        mu0 : array
            The initial state, or a sample of the initial distribution with a leading axis of members.
        observations : array_like, shape (times, ...)
            The measured values.
        times : array_like
            The times of the observations: increasing multiples of `dt` after t0, at any intervals. The first may be t0.
        dt : float
            The time step.
        key : int or JAX key
            The seed of all random numbers.
        t0 : float, default 0.0
            The initial time.
        integrator : Integrator, default TMK()
            The method. It must need only the increments of the path.
        params : pytree, optional
            Parameters in place of the system's. Leaves with a leading axis of members are unknown parameters that the
            filter estimates: give a sample of their prior distribution.
        g0 : array, optional
            The initial group element, one for all members or with a leading axis of members.
        group : bool, default False
            Whether to follow the group element, for observations with an argument `g`.
        save : callable, optional
            A function of the state, as in `solve`. Means and spreads are those of its values instead of the states.
        keep_members : bool, default False
            Whether the result has the values of all members at each time.
        out : path, optional
            A new folder, to which the filter writes the results and its state after each cycle.
        resume : bool, default False
            Whether to resume the run in `out`. Further observations may follow those of the earlier run. The result is
            bitwise identical to that of an uninterrupted run.
        progress : bool, default False
            Whether to show a progress bar.
        backend : str, default "auto"
            As in `solve`.

        Returns
        -------
        FilterResult

        Raises
        ------
        ValueError, TypeError
            If an argument is invalid, before anything is compiled.
        FilterError
            If the filter collapses, no member has a finite likelihood, or a step fails. Its `result` contains all
            earlier cycles, and so does the folder `out`.
        """
        from .filter_store import open_store

        problem, state, config = self._prepare(
            system, mu0, observations, times=times, dt=dt, key=key, t0=t0, integrator=integrator, params=params,
            g0=g0, group=group, save=save, keep_members=keep_members, backend=backend,
        )  # fmt: skip
        with open_store(out, resume, config, state) as store, _bar(progress, len(problem.y)) as bar:
            rows, state = store.rows, store.state
            if rows:
                bar(len(rows), rows[-1])
            for k in range(len(rows), len(problem.y)):
                try:
                    state, row = self._cycle(problem, state, k)
                except FilterError as error:
                    done = self._result(problem, rows, state) if rows else None
                    kept = f" The result of {k} cycles is in `result` of this error" + (
                        f" and in {out}." if out is not None else "."
                    )
                    raise FilterError(
                        f"the filter failed at observation {k}, time {problem.times[k]:g}: {error}{kept}", done
                    ) from error
                rows.append(row)
                store.add(row, state)
                bar(k + 1, row)
        return self._result(problem, rows, state)

    def _prepare(
        self, system: System, mu0: Any, observations: Any, *, times: Any, dt: Any, key: Any, t0: Any, integrator: Any,
        params: Any, g0: Any, group: bool, save: Any, keep_members: bool, backend: str,
    ) -> tuple[Problem, FilterState, dict[str, Any]]:  # fmt: skip
        """Check all arguments."""
        from ..store.fingerprint import describe

        if not isinstance(system, System):
            raise TypeError(f"system must be a System, not {described(system)}.")
        if validation.is_traced((system, mu0, observations, times, dt, key, t0, params, g0)):
            raise TypeError(
                "filters do not run inside jax.jit, jax.vmap or jax.grad, but an argument of run is traced. Call run "
                "with numbers. For gradients, differentiate cj.ensemble."
            )
        if system.laws:
            raise ValueError("filters do not support a held control: give its values as params or as an input of time.")
        self._check(system)
        dt, t0 = validation.positive("dt", dt), validation.finite("t0", t0)
        y, given, ends = _check_observations(observations, times, t0, dt)
        traced = self.observation._traced(system, y)
        if save is not None and not callable(save):
            raise TypeError(f"save must be a function of the state, not a {type(save).__name__}.")
        state_shape = jax.ShapeDtypeStruct(system.algebra.shape, system.algebra.dtype)
        takes = (False, ()) if save is None else more_arguments(
            "save", save, ("mu",), system.params is not None, ("t", "g")
        )  # fmt: skip
        saved = trace("save", system, save or (lambda mu: mu), takes, [state_shape])
        group = bool(group or g0 is not None)
        if {"g"} & {*traced.names, *saved.names} and not (group or system.has_attitude):
            raise ValueError(
                "observation or save has the argument g, so the run must follow the group: give group=True."
            )
        windows = Windows(
            system, members=self.members, dt=dt, t0=t0, integrator=integrator, group=group, backend=backend
        )
        members, run = windows.start(mu0, params, g0)
        draws = Draws(key, self.members)
        N = self.members
        state = FilterState((), members, np.zeros(N), np.zeros(()), np.array(0.9))
        problem = Problem(system, windows, traced, y, given, ends, draws, saved, bool(keep_members))
        config = {
            "filter": {"type": type(self).__name__, "members": N, "lag": self.lag, **self._settings()},
            "observation": describe({**self.observation._describe(), "density": traced.density.function}),
            "run": {name: value for name, value in run.items() if name not in ("t1", "driver", "save", "save_every")},
            "observations": [hashlib.sha256(one.tobytes()).hexdigest() for one in y],
            "times": given.tolist(),
            "key": [int(draws.key.a), int(draws.key.b)],
            "save": describe(saved.function),
            "keep_members": bool(keep_members),
        }
        return problem, self._start(problem, state), config

    def _cycle(self, problem: Problem, state: FilterState, k: int) -> tuple[FilterState, Row]:
        """Assimilate observation k, and add statistics of the members and of the states `lag` windows earlier."""
        state, row = self._assimilate(problem, state, k)
        row |= problem.summary(state, k)
        if self.lag and k >= self.lag:
            first = state.segments[0]
            row |= problem.statistics("smoothed_", first.start, int(first.first), state.log_weights)
        return state, row

    def _result(self, problem: Problem, rows: list[Row], state: FilterState) -> FilterResult:
        """The result of the cycles so far."""
        late = [problem.statistics("smoothed_", s.start, int(s.first), state.log_weights) for s in state.segments[1:]]
        ends = {name: x for name, x in rows[-1].items() if name.split(".")[0] in ("mean", "spread")}
        late = [*late, {f"smoothed_{name}": x for name, x in ends.items()}] if self.lag else []
        tree = problem.save.function.code.out_tree
        times = problem.times[: len(rows)]
        return assemble(problem.system, type(self).__name__, times, rows, late, tree, state, problem.windows)


def _check_observations(
    observations: Any, times: Any, t0: float, dt: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The observations, their times and the numbers of steps up to them."""
    y = np.asarray(validation.numbers("observations", observations, "an array of real numbers", "fiu"), np.float64)
    given = np.asarray(validation.numbers("times", times, "a list of times", "fiu"), np.float64)
    if given.ndim != 1 or not len(given):
        raise ValueError(f"times must be a list of times, not an array of shape {given.shape}.")
    if y.ndim < 1 or len(y) != len(given):
        raise ValueError(
            f"observations must have shape (times, ...) with {len(given)} times, not shape {y.shape}: give one "
            "observation per time."
        )
    if not np.all(np.isfinite(y)):
        at = [int(i) for i in np.argwhere(~np.isfinite(y))[0]]
        raise ValueError(
            f"observations must be finite, but observations{at} is {y[tuple(at)]}: leave out times without data."
        )
    if not np.all(np.isfinite(given)):
        raise ValueError("times must be finite.")
    if np.min(given) < t0 - 1e-9 * dt:
        raise ValueError(f"times must not be before t0 = {t0:g}, but times[{np.argmin(given)}] = {np.min(given):g}.")
    steps = int(np.rint((np.max(given) - t0) / dt))
    try:
        _, ends = check_save_at(given, t0, dt, steps + 1)
    except ValueError as error:
        raise ValueError(str(error).replace("save_at", "times")) from None
    return y, given, ends


def _bar(progress: bool, cycles: int) -> AbstractContextManager[Callable[[int, Row], None]]:
    """A progress bar, or a function that does nothing."""
    if not progress:
        return nullcontext(lambda done, row: None)
    from ..command.filter_progress import filter_bar

    return filter_bar(cycles)
