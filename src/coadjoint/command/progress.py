"""Progress of long runs: steps a second, time left, iterations a step, worst residual, current Casimir error."""

import json
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from stepcompiler.jaxprs.interning import Constant

from ..algebras.base import LieAlgebra
from ..runtime.lapack_lock import exclusive_xla, uses_lapack
from ..runtime.multiprocess import is_multiprocess
from ..runtime.plan import Plan
from ..runtime.progress import Health
from ..runtime.results import scaled_errors
from ..runtime.run_state import StepState

_OFTEN, _SELDOM = 0.5, 10.0  # seconds between two looks: in a terminal, elsewhere


class Look(NamedTuple):
    """How a run goes."""

    done: int  # steps, over all members
    total: int
    rate: float  # steps a second
    members: float  # a second
    iterations: float  # a step
    residual: float  # the worst so far
    casimir_error: float | None  # of the worst member in hand, scaled
    unsolved: int

    @property
    def left(self) -> float:
        """Seconds to go."""
        return (self.total - self.done) / max(self.rate, 1e-9)

    def note(self) -> str:
        """In words, without what a bar shows."""
        words = [f"{self.rate:.3g} steps/s", *([f"{self.members:.3g} members/s"] if self.members else [])]
        words += [f"{self.iterations:.1f} iterations/step", f"residual {self.residual:.0e}"]
        if self.casimir_error is not None:
            words.append(f"Casimirs {self.casimir_error:.0e}")
        if self.unsolved:
            words.append(f"{self.unsolved} unsolved")
        return ", ".join(words)


class Bar:
    """A Rich bar in a terminal; elsewhere a plain line every ten seconds, and one at the end.

    `lines`: JSON on standard output in place of both. One bar may serve several runs; `total` is the number of steps
    of all of them, `members` that of their members.
    """

    def __init__(self, lines: bool = False):
        self.lines = lines
        self.total = self.members = self.done = self.before = 0
        self.lock = threading.Lock()
        self.console = Console(file=sys.stderr)
        self.shown = self.console.is_terminal and not lines
        self.began = self.last = time.perf_counter()
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=self.console,
            disable=not self.shown,
        )

    def serving(self, plan: Plan) -> "Served":
        """For one run: what `solve(progress=...)` takes."""
        return Served(self, plan)

    def __enter__(self) -> "Bar":
        self.began = self.last = time.perf_counter()
        self.progress.start()
        self.task = self.progress.add_task("solving", total=self.total, note="")
        return self

    def __exit__(self, *exc: Any) -> None:
        self.progress.stop()

    def begin(self, done: int) -> None:
        """So many steps were done before, and do not count for the speed."""
        with self.lock:
            self.done += done
            self.before += done

    def add(self, more: int, points: StepState, mu0: Array, plan: Plan) -> None:
        """So many more steps are done; the point where a run stands, and where it began."""
        self.count(more, lambda: health_of(plan, points, mu0))

    def count(self, more: int, health: Callable[[], Health]) -> None:
        """So many more steps are done; `health` is asked when it is shown."""
        with self.lock:
            self.done += more
            now = time.perf_counter()
            finished = self.done >= self.total
            if finished or now - self.last > (_OFTEN if self.shown else _SELDOM):
                self.last = now
                self._show(self._look(now, health()))
            elif self.shown:
                self.progress.update(self.task, completed=self.done)

    def _look(self, now: float, health: Health) -> Look:
        rate = (self.done - self.before) / max(now - self.began, 1e-9)
        members = rate * self.members / self.total if self.members > 1 else 0.0
        return Look(self.done, self.total, rate, members, *health)

    def _show(self, look: Look) -> None:
        if self.lines:
            values = {k: v if v is None or np.isfinite(v) else str(v) for k, v in look._asdict().items()}
            print(json.dumps({"event": "progress", **values, "seconds_left": look.left}), flush=True)
            return
        self.progress.update(self.task, completed=self.done, note=look.note())
        if not self.shown:
            left = "" if look.done >= look.total else f", {look.left:.0f} s left"
            print(f"solving: {look.done}/{look.total} steps, {look.note()}{left}", file=sys.stderr, flush=True)


class Served:
    """One of the runs that a bar serves; if it is the only one, the bar begins and ends with it."""

    def __init__(self, bar: Bar, plan: Plan, only: bool = False):
        self.bar, self.plan, self.only = bar, plan, only

    def __enter__(self) -> "Served":
        if self.only:
            self.bar.__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        if self.only:
            self.bar.__exit__(*exc)

    def begin(self, done: int) -> None:
        """So many steps were done before."""
        self.bar.begin(done)

    def add(self, more: int, points: StepState, mu0: Array) -> None:
        """So many more steps are done."""
        self.bar.add(more, points, mu0, self.plan)

    def add_remote(self, more: int, health: Health) -> None:
        """So many more steps are done, elsewhere."""
        self.bar.count(more, lambda: health)


def bar_for(plan: Plan) -> Served:
    """A bar for one run."""
    bar = Bar()
    bar.total, bar.members = size_of([plan])
    return Served(bar, plan, only=True)


def size_of(plans: Sequence[Plan]) -> tuple[int, int]:
    """Steps of all members of all runs, as a bar counts them, and these members."""
    members = [plan.members or 1 for plan in plans]
    return sum(plan.steps * n for plan, n in zip(plans, members, strict=True)), sum(members)


def health_of(plan: Plan, points: StepState, mu0: Array) -> Health:
    """How the members of a tile are."""
    totals = jax.tree.map(np.asarray, points.totals)
    steps = max(float(np.mean(totals.substeps)), 1.0)
    return Health(
        float(np.mean(totals.iterations)) / steps,
        float(np.max(totals.residual)),
        None if is_multiprocess(plan) else casimir_error(plan, points.mu, mu0),
        int(np.sum(totals.unsolved)),
    )


def casimir_error(plan: Plan, mu: Array, mu0: Array) -> float | None:
    """The largest |C(μ) − C(μ₀)| over Casimirs and members, scaled; None if no Casimir is known.

    Where some are not known, the distance from the orbit.
    """
    algebra = plan.system.algebra
    if not algebra.casimir_names and not algebra.watches_orbit:
        return None
    rows = [jnp.asarray(x).reshape(-1, *algebra.shape) for x in (mu, mu0)]
    with exclusive_xla(
        uses_lapack(lambda mu: _error(algebra, mu, mu), jax.ShapeDtypeStruct(algebra.shape, algebra.dtype))
    ):
        return float(np.max(np.asarray(_errors(Constant(algebra), *rows))))


@eqx.filter_jit
def _errors(algebra: Constant, mu: Array, mu0: Array) -> Array:
    return jax.vmap(lambda a, b: _error(algebra.value, a, b))(mu, mu0)


def _error(algebra: LieAlgebra, mu: Array, start: Array) -> Array:
    if algebra.watches_orbit:
        return algebra.orbit_error(mu, start)
    return scaled_errors(algebra.casimirs(mu), algebra.casimirs(start), algebra.casimir_scales(start))
