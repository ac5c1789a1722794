"""One trajectory."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from . import _checks
from ._intern import Function, intern
from .chunk import Clock, Tally, pieces, scan_one, slots_for, solved
from .drivers import BLOCK, Brownian, Driver, Increments, Needs, Window
from .integrators.base import Integrator
from .integrators.tmk import TMK
from .program import Program, on_best_path
from .solution import Solution, Stats, UnsolvedStepError
from .systems import System


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
) -> Solution:
    """Integrate a system from mu0 at t0 to t1 in steps of dt.

    - `key` (an int or a JAX key) or `driver` gives the path; exactly one of them if the system has noise.
    - `save_every`: every how many steps the state is saved; the start is saved too.
    - `save`: a function of the state, saved in its place (`sol.saved`).
    - `group`: also follow the group element, μ_n = Ad*_{g_n} μ_0 (left) or Ad*_{g_n⁻¹} μ_0 (right): `sol.g`, and the
      attitude of a body as `sol.attitude()`.
    - `throw`: raise `UnsolvedStepError` when a step cannot be solved, with all that was computed in its `solution`;
      with `throw=False` such steps are only counted in `sol.stats`.
    - `progress`: show a progress bar.
    """
    run = prepare(system, t1=t1, dt=dt, t0=t0, key=key, driver=driver, integrator=integrator, save_every=save_every)
    mu0 = system.check_state("mu0", mu0)
    save_fn = trace_save(system, save)
    if _checks.is_traced((system, mu0, run.driver, save_fn)):
        return _solve_traced(run, mu0, save_fn, group, throw)

    return on_best_path(
        system, integrator, group, 1, lambda path: _solve(run, mu0, save_fn, group, throw, progress, path)
    )


def _solve(
    run: "Run", mu0: Array, save_fn: Function | None, group: bool, throw: bool, progress: bool, path: str
) -> Solution:
    """The host loop over chunks."""
    system, integrator = run.system, run.integrator
    program = Program(system, integrator, save_fn, group)
    point, first = program.start(mu0)
    slots, blocks = slots_for(first), run.driver.blocks(system.n_noise)
    stretch = program.open(point, first, slots)
    values = jax.tree.map(lambda x: np.empty((run.n_saved, *x.shape), x.dtype), first)
    _store(values, 0, jax.tree.map(lambda x: np.asarray(x)[None], first))
    done = 0
    with progress_bar(progress, run.steps) as bar:
        for n0, n1 in pieces(run.steps, run.save_every, slots, blocks * BLOCK):
            slot = n0 // run.save_every
            stretch = program.advance(path, run.window(n0 // BLOCK, blocks), run.clock, slot, n1, stretch)
            full, done = n1 // run.save_every - slot, n1
            _store(values, slot + 1, jax.tree.map(lambda x, k=full: np.asarray(x)[:k], stretch.slots))
            bar.update(n1, stretch.point.tally)
            if throw and not solved(stretch.point.tally):
                break
    saved = 1 + done // run.save_every
    values = jax.tree.map(lambda x: x[:saved], values)
    stats = Stats.of(stretch.point.tally, done, path)
    custom = save_fn is not None
    sol = Solution(system, integrator, run.times[:saved], values.values, values.g, stats, run.dt, custom)
    if throw and sol.stats.unsolved:
        raise UnsolvedStepError(unsolved_message(sol.stats, run), sol)
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
        return self.t0 + self.dt * self.save_every * np.arange(self.n_saved)

    @property
    def clock(self) -> Clock:
        """For compiled code."""
        return Clock(jnp.asarray(self.t0), jnp.asarray(self.dt), jnp.asarray(self.save_every))


def prepare(system: Any, *, t1: Any, dt: Any, t0: Any, key: Any, driver: Any, integrator: Any, save_every: Any) -> Run:
    """Check the arguments that `solve` and `ensemble` share."""
    _checks.require_float64()
    if not isinstance(system, System):
        raise TypeError(f"system must be a System, not {type(system).__name__}.")
    if not isinstance(integrator, Integrator):
        hint = f"; did you mean {integrator.__name__}()?" if isinstance(integrator, type) else "."
        raise TypeError(f"integrator must be an Integrator such as TMK(), not {integrator!r}{hint}")
    dt, t0, t1 = _checks.positive("dt", dt), _checks.finite("t0", t0), _checks.finite("t1", t1)
    if not t1 > t0:
        raise ValueError(f"t1 must be above t0 = {t0:g}, not {t1:g}.")
    ratio = (t1 - t0) / dt
    steps = round(ratio)
    if steps < 1 or abs(ratio - steps) > 1e-9 * max(steps, 1):
        raise ValueError(
            f"t1 − t0 must be a whole multiple of dt, but ({t1:g} − {t0:g})/{dt:g} = {ratio:.12g}: "
            f"take t1 = {t0 + max(steps, 1) * dt:.12g}, or dt = {(t1 - t0) / max(steps, 1):.12g}."
        )
    save_every = _checks.count("save_every", save_every)
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


def trace_save(system: System, save: Any) -> Function | None:
    """The save function, traced."""
    if save is None:
        return None
    if not callable(save):
        raise TypeError(f"save must be a function of the state, not {type(save).__name__}.")
    return intern(save, jax.ShapeDtypeStruct(system.algebra.shape, system.algebra.dtype))


def unsolved_message(stats: Stats, run: Run, members: int | None = None) -> str:
    """What could not be solved, and what to do."""
    where = "" if members is None else f" (over {members} members)"
    return (
        f"{stats.unsolved} of {stats.steps} steps could not be solved{where}, first at step {stats.first_unsolved} "
        f"(t = {run.t0 + stats.first_unsolved * run.dt:g}), worst residual {stats.residual:.1e}. Take a smaller dt, "
        "or throw=False to go on regardless; what was computed is in this error's `solution`."
    )


def _store(values: PyTree, at: int, rows: PyTree) -> None:
    def put(a: np.ndarray, x: np.ndarray) -> None:
        a[at : at + len(x)] = x

    jax.tree.map(put, values, rows)


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

    def update(self, done: int, tally: Tally) -> None:
        """Nothing."""

    def add(self, more: int, tally: Tally) -> None:
        """Nothing."""


def progress_bar(show: bool, steps: int, members: int = 1) -> Any:
    """A bar for the terminal, or nothing."""
    if not show:
        return _Quiet()
    from .progress import Bar

    return Bar(steps, members)
