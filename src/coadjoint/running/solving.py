"""One trajectory."""

from collections.abc import Callable
from os import PathLike
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from ..drivers import BLOCK, Brownian, Driver, Increments, Needs, Window
from ..integrators.base import Integrator
from ..integrators.tmk import TMK
from ..numerics import checks
from ..numerics.functions import Function, intern
from ..systems import System
from .chunk import Clock, Point, Record, pieces, record, scan_one, slots_for, solved, start
from .program import Program, on_best_path
from .solution import Solution, Stats, UnsolvedStepError, mapped

if TYPE_CHECKING:
    from ..store.reading import Stored


def solve(
    system: System,
    mu0: Any,
    *,
    t1: float,
    dt: float,
    t0: float = 0.0,
    key: Any = None,
    driver: Driver | None = None,
    integrator: Integrator = TMK(),
    save_every: int = 1,
    save: Callable[[Any], PyTree] | None = None,
    group: bool = False,
    throw: bool = True,
    progress: bool = False,
    out: str | PathLike | None = None,
    resume: bool = False,
) -> "Solution | Stored":
    """Integrate a system from mu0 at t0 to t1 in steps of dt.

    - `key` (an int or a JAX key) or `driver` gives the path; exactly one of them if the system has noise.
    - `save_every`: every how many steps the state is saved; the start is saved too.
    - `save`: a function of the state, saved in its place (`sol.saved`).
    - `group`: also follow the group element, μ_n = Ad*_{g_n} μ_0 (left) or Ad*_{g_n⁻¹} μ_0 (right): `sol.g`, and the
      attitude of a body as `sol.attitude()`.
    - `throw`: raise `UnsolvedStepError` when a step cannot be solved, with all that was computed in its `solution`;
      with `throw=False` such steps are only counted in `sol.stats`.
    - `progress`: show a progress bar.
    - `out`: write a Zarr store while running, with a checkpoint every second or so; results then stay on disk and are
      read when asked for. `resume`: go on from the last checkpoint of such a store, to a larger t1 if that is given.
    """
    job = solve_job(
        system, mu0, t1=t1, dt=dt, t0=t0, key=key, driver=driver, integrator=integrator, save_every=save_every,
        save=save, group=group, throw=throw, progress=progress, stored=check_out(out, resume),
    )  # fmt: skip
    traced = checks.is_traced((system, job.mu0, job.run.driver, job.save))
    if out is not None:
        return recorded(job, out, resume, traced)
    return _solve_traced(job.run, job.mu0, job.save, group, throw) if traced else job.execute(None)


class Job(NamedTuple):
    """A run that is ready to go, and what a store must know of it."""

    run: "Run"
    mu0: Array
    save: Function | None
    group: bool
    record: Record  # shapes of what is saved of one state
    custom: bool  # a `save` function was given; with a store, the state is saved beside what it returns
    energy: Callable[[Array, np.ndarray], Array]  # of states and the members they belong to
    execute: Callable[[Any], Any]  # run it, into a store or (None) in memory
    throw: bool
    members: int | None = None
    tile: int = 1
    params: PyTree = None
    reduce: Any = None


def solve_job(
    system: Any, mu0: Any, *, save: Any, group: bool, throw: bool, progress: Any, stored: bool, **options: Any
) -> Job:
    """The checked arguments of `solve`."""
    run = prepare(system, **options)
    mu0 = system.check_state("mu0", mu0)
    save_fn = trace_save(system, save, stored)

    def execute(store: Any) -> Any:
        def on(path: str) -> Any:
            return _solve(run, mu0, save_fn, group, throw, progress, path, store)

        return on_best_path(system, run.integrator, group, 1, on)

    shapes = record_shapes(run, save_fn, group)
    energy = lambda mu, _: mapped(system.energy, mu)
    return Job(run, mu0, save_fn, group, shapes, save is not None, energy, execute, throw)


def check_out(out: Any, resume: Any) -> bool:
    """Whether results go to a store."""
    if out is None and resume:
        raise ValueError("resume=True goes on with a store: give its name as out=.")
    if out is not None and not isinstance(out, (str, PathLike)):
        raise TypeError(f"out must be the name of a store such as 'run.zarr', not {out!r}.")
    return out is not None


def recorded(job: Job, out: Any, resume: bool, traced: bool) -> "Stored":
    """The job, run into a store."""
    if traced:
        raise TypeError("out= stores numbers, but this run is being traced by JAX (differentiated, compiled, mapped).")
    from ..store.recording import record_run

    return record_run(job, out, resume)


def record_shapes(run: "Run", save: Callable[[Array], PyTree] | None, group: bool) -> Record:
    """Shapes and types of what is saved of one state."""
    algebra = run.system.algebra

    def first(mu: Array) -> Record:
        return record(run.integrator, save, start(run.system, run.integrator, mu, group))

    return jax.eval_shape(first, jax.ShapeDtypeStruct(algebra.shape, algebra.dtype))


class _Values:
    """Keeps all that is saved, in memory."""

    def __init__(self, run: "Run", first: Record):
        self.run, self.saved = run, 0
        self.values = jax.tree.map(lambda x: np.empty((run.n_saved, *x.shape), x.dtype), first)

    def begin(self, point: Point) -> tuple[int, Point]:
        """The step to begin with, and the point before it."""
        return 0, point

    def add(self, at: int, rows: Record) -> None:
        """What was saved from the saved time `at` on."""

        def put(a: np.ndarray, x: np.ndarray) -> None:
            a[at : at + len(x)] = x
            self.saved = at + len(x)

        jax.tree.map(put, self.values, rows)

    def mark(self, n: int, point: Point) -> None:
        """All is well up to step n."""

    def note(self) -> str:
        """What an error should say besides."""
        return ""

    def result(self, integrator: Integrator, stats: Stats, custom: bool) -> Solution:
        """As much as there is."""
        kept = jax.tree.map(lambda x: x[: self.saved], self.values)
        times = self.run.times[: self.saved]
        return Solution(self.run.system, integrator, times, kept.values, kept.g, stats, self.run.dt, custom)


def _solve(
    run: "Run", mu0: Array, save_fn: Function | None, group: bool, throw: bool, progress: Any, path: str, store: Any
) -> Any:
    """The host loop over chunks."""
    program = Program(run.system, run.integrator, save_fn, group)
    point, first = program.start(mu0)
    slots, blocks = slots_for(first), run.driver.blocks(run.system.n_noise)
    keep = _Values(run, first) if store is None else store.part(path)
    done, point = keep.begin(point)
    if done == 0:
        keep.add(0, jax.tree.map(lambda x: np.asarray(x)[None], first))
    stretch = program.open(point, first, slots)._replace(n=jnp.asarray(done, int))
    with progress_bar(progress, run) as bar:
        bar.begin(done)
        for n0, n1 in pieces(run.steps, run.save_every, slots, blocks * BLOCK, done):
            slot = n0 // run.save_every
            stretch = program.advance(path, run.window(n0 // BLOCK, blocks), run.clock, slot, n1, stretch)
            full, done = n1 // run.save_every - slot, n1
            keep.add(slot + 1, jax.tree.map(lambda x, k=full: np.asarray(x)[:k], stretch.slots))
            bar.add(n1 - n0, stretch.point, mu0)
            if throw and not solved(stretch.point.tally):
                break
            keep.mark(n1, stretch.point)
    stats = Stats.of(stretch.point.tally, done, path)
    sol = keep.result(run.integrator, stats, save_fn is not None)
    if throw and stats.unsolved:
        raise UnsolvedStepError(unsolved_message(stats, run) + keep.note(), sol)
    return sol


class Run(eqx.Module):
    """The checked arguments of a run."""

    system: System
    integrator: Integrator
    driver: Driver
    t0: float
    dt: float
    steps: int
    save_every: int
    needs: Needs = eqx.field(static=True)  # what the method asks of the path

    @property
    def n_saved(self) -> int:
        """Saved times, the start included."""
        return self.steps // self.save_every + 1

    def window(self, first: int, blocks: int) -> Window:
        """The stretch of the path from block `first` on."""
        return self.driver.window(self.system.n_noise, self.dt, first, blocks, self.needs)

    @property
    def times(self) -> np.ndarray:
        """The saved times."""
        return self.times_between(0, self.n_saved)

    def times_between(self, first: int, last: int) -> np.ndarray:
        """The saved times first … last − 1."""
        return self.t0 + self.dt * self.save_every * np.arange(first, last)

    @property
    def clock(self) -> Clock:
        """For compiled code."""
        return Clock(jnp.asarray(self.t0), jnp.asarray(self.dt), jnp.asarray(self.save_every))


def prepare(system: Any, *, t1: Any, dt: Any, t0: Any, key: Any, driver: Any, integrator: Any, save_every: Any) -> Run:
    """Check the arguments that `solve` and `ensemble` share."""
    checks.require_float64()
    if not isinstance(system, System):
        raise TypeError(f"system must be a System, not {type(system).__name__}.")
    if not isinstance(integrator, Integrator):
        hint = f"; did you mean {integrator.__name__}()?" if isinstance(integrator, type) else "."
        raise TypeError(f"integrator must be an Integrator such as TMK(), not {integrator!r}{hint}")
    dt, t0, t1 = checks.positive("dt", dt), checks.finite("t0", t0), checks.finite("t1", t1)
    if not t1 > t0:
        raise ValueError(f"t1 must be above t0 = {t0:g}, not {t1:g}.")
    ratio = (t1 - t0) / dt
    if not ratio < 2**62:
        raise ValueError(f"a run has at most 2^62 steps, but (t1 − t0)/dt = {ratio:g}: take a larger dt.")
    steps = round(ratio)
    if steps < 1 or abs(ratio - steps) > 1e-9 * max(steps, 1):
        raise ValueError(
            f"t1 − t0 must be a whole multiple of dt, but ({t1:g} − {t0:g})/{dt:g} = {ratio:.12g}: "
            f"take t1 = {t0 + max(steps, 1) * dt:.12g}, or dt = {(t1 - t0) / max(steps, 1):.12g}."
        )
    save_every = checks.count("save_every", save_every)
    if steps % save_every:
        raise ValueError(f"save_every must divide the number of steps, {steps}, but is {save_every}.")
    integrator.check(system)
    needs = integrator.needs(system)
    driver = _driver(system, key, driver, steps)
    driver.check(system.n_noise, steps, dt, needs)
    return Run(system, integrator, driver, t0, dt, steps, save_every, needs)


def _driver(system: System, key: Any, driver: Any, steps: int) -> Driver:
    if key is not None and driver is not None:
        raise ValueError("give key or driver, not both: key=k is short for driver=Brownian(k).")
    if driver is not None and not isinstance(driver, Driver):
        raise TypeError(f"driver must be Brownian(key) or Increments(dS), not {type(driver).__name__}.")
    if driver is not None:
        return driver
    if system.n_noise == 0:
        return Increments(np.zeros((steps, 0)))
    if key is None:
        raise ValueError(f"the system has {system.n_noise} noise(s): give key= (an int or a JAX key) or driver=.")
    return Brownian(key)


def trace_save(system: System, save: Any, stored: bool = False) -> Function | None:
    """The save function, traced; for a store, which also keeps Casimirs and energy, with the state beside its value."""
    if save is None:
        return None
    if not callable(save):
        raise TypeError(f"save must be a function of the state, not {type(save).__name__}.")
    both = (lambda mu: (save(mu), mu)) if stored else save
    return intern(both, jax.ShapeDtypeStruct(system.algebra.shape, system.algebra.dtype))


def unsolved_message(stats: Stats, run: Run, members: int | None = None) -> str:
    """What could not be solved, and what to do."""
    where = "" if members is None else f" (over {members} members)"
    return (
        f"{stats.unsolved} of {stats.steps} steps could not be solved{where}, first at step {stats.first_unsolved} "
        f"(t = {run.t0 + stats.first_unsolved * run.dt:g}), worst residual {stats.residual:.1e}. Take a smaller dt, "
        "or throw=False to go on regardless; what was computed is in this error's `solution`."
    )


def _solve_traced(run: Run, mu0: Any, save_fn: Function | None, group: bool, throw: bool) -> Solution:
    """A run inside a transformation of JAX's: one plain scan."""
    window = run.window(0, -(-run.steps // BLOCK))
    point, values = scan_one(
        run.system, run.integrator, window, save_fn, run.clock, mu0, run.steps, run.save_every, group
    )
    if throw:
        values = eqx.error_if(values, ~solved(point.tally), "a step could not be solved: take a smaller dt.")
    stats = Stats.of(point.tally, run.steps, "scan")
    return Solution(run.system, run.integrator, run.times, values.values, values.g, stats, run.dt, save_fn is not None)


class _Quiet:
    """No progress bar."""

    def __enter__(self) -> "_Quiet":
        return self

    def __exit__(self, *exc: Any) -> None:
        pass

    def begin(self, done: int) -> None:
        """So many steps were done before."""

    def add(self, more: int, point: Point, mu0: Array) -> None:
        """So many more steps are done; the point where the run stands, and where it began."""


def progress_bar(progress: Any, run: Run, members: int = 1) -> Any:
    """Nothing, a bar for the terminal, or what `progress(run, members)` returns."""
    if progress is False:
        return _Quiet()
    if progress is True:
        from ..command.progress import bar_for as progress
    return progress(run, members)
