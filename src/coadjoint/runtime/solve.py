"""`solve`: one trajectory."""

from collections.abc import Callable
from os import PathLike
from typing import TYPE_CHECKING, Any, Unpack, overload

from jaxtyping import PyTree

from ..drivers import Driver
from ..integrators.base import Integrator
from ..integrators.tmk import TMK
from ..systems import System
from .backends import prepare_program
from .backends.base import Program
from .device_selection import with_devices
from .executors import executor_for
from .loop import execute
from .multiprocess import is_coordinator, is_multiprocess, translate_collective_errors
from .plan import Plan, plan_solve
from .results import Solution
from .sinks import Memory
from .traced_run import run_traced
from .typed_options import SolveOptions

if TYPE_CHECKING:
    from ..store.reading import Stored


@overload
def solve(system: System, mu0: Any, *, out: None = None, **options: Unpack[SolveOptions]) -> Solution: ...
@overload
def solve(system: System, mu0: Any, *, out: str | PathLike, **options: Unpack[SolveOptions]) -> "Stored": ...
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
    save_at: Any = None,
    save: Callable[[Any], PyTree] | None = None,
    group: bool = False,
    g0: Any = None,
    throw: bool = True,
    progress: bool = False,
    out: str | PathLike | None = None,
    resume: bool = False,
    backend: str = "auto",
    devices: Any = None,
) -> "Solution | Stored":
    """Integrate a system from mu0 at t0 to t1 in steps of dt.

    - `key` (an int or a JAX key) or `driver` gives the path; exactly one of them if the system has noise.
    - `save_every`: every how many steps the state is saved; the start is saved too.
    - `save_at`: the times to save instead, in increasing order, such as those of observations. They must be on the grid
      t0 + n dt; `sol.t` has exactly these times.
    - `save`: a function of the state, saved in its place (`sol.saved`).
    - `group`: also follow the group element, μ_n = Ad*_{g_n} μ_0 (left) or Ad*_{g_n⁻¹} μ_0 (right): `sol.g`, and the
      attitude of a body as `sol.attitude()`. `g0`: where it starts, as a matrix such as `sol.g[0]`, in place of the
      identity; then μ_n = Ad*_{g_n} ν (left) or Ad*_{g_n⁻¹} ν (right), where ν is the momentum in space.
    - `throw`: raise `UnsolvedStepError` when a step cannot be solved, with all that was computed in its `solution`;
      with `throw=False` such steps are only counted in `sol.stats`. A run that JAX differentiates, compiles or maps
      has no fallbacks for hard steps, which take long to compile, unless `throw=False`.
    - `progress`: show a progress bar.
    - `out`: write a Zarr store while running, with a checkpoint every second or so; results then stay on disk and are
      read when asked for. `resume`: go on from the last checkpoint of such a store, to a larger t1 if that is given.
    - `backend`: "native" (machine code made for the system), "native-gpu" (the same on a GPU, of ensembles), "xla", or
      "auto", the fastest that takes the run;
      `sol.stats.backend` says which it was, and `sol.stats.reason` why not a faster one.
    - `devices`: spread one large matrix, of SU(n) with n at least 9, over so many devices, or over these, such as
      `jax.devices()` of several processes (docs/guides/dask.md).
    """
    plan = plan_solve(
        system, mu0, t1=t1, dt=dt, t0=t0, key=key, driver=driver, integrator=integrator, save_every=save_every,
        save_at=save_at, save=save, group=group, g0=g0, throw=throw, backend=backend, stored=is_stored(out, resume),
    )  # fmt: skip
    return run_plan(with_devices(plan, devices), out, resume, progress)


def is_stored(out: Any, resume: Any) -> bool:
    """Whether results go to a store."""
    if out is None and resume:
        raise ValueError("resume=True goes on with a store: give its name as out=.")
    if out is not None and not isinstance(out, (str, PathLike)):
        raise TypeError(f"out must be the name of a store such as 'run.zarr', not {out!r}.")
    return out is not None


def run_plan(plan: Plan, out: Any, resume: bool, progress: Any, on: Any = None) -> Any:
    """Plan, backend, loop, sink, result: in memory, in a store, or as part of what JAX traces; here or on a cluster."""
    if plan.traced:
        if on is not None:
            raise TypeError("on= sends numbers to a cluster, but this run is being traced by JAX.")
        if out is not None:
            raise TypeError(
                "out= stores numbers, but this run is being traced by JAX (differentiated, compiled, mapped)."
            )
        return run_traced(plan)
    program = prepare_program(plan)
    if is_multiprocess(plan):
        return _run_together(plan, program, out, resume, progress if is_coordinator() else False)
    with executor_for(on, [plan], [program], out, progress) as place:
        if out is None:
            return execute(plan, program, Memory(plan), progress, place)
        from ..store.recorder import record_run

        return record_run(plan, program, out, resume, progress, place)


def _run_together(plan: Plan, program: Program, out: Any, resume: bool, progress: Any) -> Any:
    """On devices of several processes: in the memory of each, or in one store."""
    if out is None:
        with translate_collective_errors(
            lambda: " Nothing of it is kept: with out= it would go on from its last checkpoint."
        ):
            return execute(plan, program, Memory(plan), progress)
    from ..store.multiprocess_store import record_together

    return record_together(plan, program, out, resume, progress)
