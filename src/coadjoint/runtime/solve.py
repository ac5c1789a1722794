"""`solve`: one trajectory."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from os import PathLike
from typing import TYPE_CHECKING, Any, Unpack, overload

from jaxtyping import PyTree

from ..drivers import Driver
from ..integrators.base import Integrator
from ..integrators.tmk import TMK
from ..numerics import validation
from ..systems import System
from .backends import BACKENDS, prepare_program
from .backends.base import Program
from .executors import Executor, executor_for
from .loop import execute
from .multiprocess import is_coordinator, is_multiprocess, translate_collective_errors
from .plan import Plan
from .planning import plan_solve
from .results import Solution
from .sinks import Memory, Output
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
    dt: float,
    t1: float | None = None,
    steps: int | None = None,
    t0: float = 0.0,
    key: Any = None,
    driver: Driver | None = None,
    integrator: Integrator = TMK(),
    save_every: int = 1,
    save_at: Any = None,
    save: Callable[[Any], PyTree] | None = None,
    until: Callable[..., Any] | None = None,
    direction: str = "both",
    group: bool = False,
    g0: Any = None,
    throw: bool = True,
    progress: bool = False,
    out: str | PathLike | None = None,
    resume: bool = False,
    backend: str = "auto",
    adjoint: str = "auto",
    adjoint_memory: int = 2**28,
    devices: Any = None,
) -> "Solution | Stored":
    """Integrate one trajectory of a system.

        dμ = s · (ad*_{∂h/∂μ} μ dt + Σ_i ad*_{∂h_i/∂μ} μ ∘ dS^i),   μ(t0) = mu0.

    Parameters
    ----------
    system : System
        The system to integrate.
    mu0 : array
        The initial state: `system.algebra.dim` coordinates, or an n×n skew-Hermitian matrix for `SU(n)`.
    dt : float
        The time step.
    t1 : float, optional
        The final time. t1 − t0 must be a multiple of dt.
    steps : int, optional
        The number of steps, in place of `t1`. JAX can then trace `dt` and `t0`. Derivatives with respect to them are
        those at this number of steps, with the increments of `driver=Increments(dS)` fixed.
    t0 : float, default 0.0
        The initial time.
    key : int or JAX key, optional
        The seed of a Brownian path: `key=0` is short for `driver=Brownian(0)`.
    driver : Driver, optional
        The path that drives the noise. A system with noise needs either `key` or `driver`.
    integrator : Integrator, default TMK()
        The method.
    save_every : int, default 1
        The number of steps between saved states. The initial state is saved, too.
    save_at : sequence of float, optional
        The times to save instead, in increasing order, such as those of observations. They must be on the grid
        t0 + n dt. `sol.t` has exactly these times.
    save : callable, optional
        A function save(mu). Its values are saved in place of the states, as `sol.saved`. A function save(mu, params)
        also receives the params of the system. Arguments named `t` and `g` receive the time and the group element,
        and `u` the value of the control.
    until : callable, optional
        A function f(mu) that vanishes at an event. It may have the arguments of `save`. At the first change of its
        sign the trajectory ends: from there on the state at the event is saved. `sol.event_time` and `sol.event_state`
        are NaN if there was no event.
    direction : {"both", "up", "down"}, default "both"
        The change of sign that is an event: from negative to positive ("up"), from positive to negative ("down"), or
        either.
    group : bool, default False
        Whether to reconstruct the group element g: μ_n = Ad*_{g_n} μ_0 (left) or Ad*_{g_n⁻¹} μ_0 (right). It is saved
        as `sol.g`, and the attitude of a body as `sol.attitude()`. Runs of a system on T*G save it anyway, unless
        `save` is given.
    g0 : array, optional
        The initial group element, a matrix such as `sol.g[0]`, by default the identity. Only with `group=True` or on
        T*G. Then
        μ_n = Ad*_{g_n} ν (left) or Ad*_{g_n⁻¹} ν (right), where ν is the momentum in space.
    throw : bool, default True
        Whether a step that does not converge raises `UnsolvedStepError`. Otherwise such steps are counted in
        `sol.stats`. Runs that JAX differentiates, compiles or maps use fallback solvers only with `throw=False`.
    progress : bool, default False
        Whether to show a progress bar.
    out : path, optional
        The name of a Zarr store. coadjoint writes results and checkpoints to it during the run.
    resume : bool, default False
        Whether to resume the run of the store `out` from its last checkpoint, to a larger t1 if you pass one.
    backend : {"auto", "native", "native-gpu", "xla"}, default "auto"
        The code that computes the steps: machine code generated for the system, or XLA. "auto" selects the fastest
        one that supports the run. `sol.stats.backend` names it, and `sol.stats.reason` why a faster one was not used.
    adjoint : {"auto", "native", "xla"}, default "auto"
        The code that differentiates the run inside `jax.grad`. The native adjoint is machine code for each step. XLA
        differentiates a scan. "auto" selects native code if it supports the run. `last_gradient_info()` reports the
        choice.
    adjoint_memory : int, default 2**28
        The bytes that a native forward pass may save for the adjoint. If all steps need more, it saves checkpoints, and
        the adjoint repeats the steps between them.
    devices : int or sequence of devices, optional
        The devices over which one large matrix of SU(n), n ≥ 9, is distributed.

    Returns
    -------
    Solution or Stored
        A `Stored` with `out`, otherwise a `Solution`.

    Raises
    ------
    ValueError, TypeError
        If an argument is invalid, before anything is compiled.
    UnsolvedStepError
        If a step does not converge. Its `solution` contains the steps before it.

    Examples
    --------
    >>> import coadjoint as cj
    >>> system, mu0 = cj.models.heavy_top()
    >>> cj.solve(system, mu0, t1=1.0, dt=0.1, key=0).mu.shape
    (11, 6)
    """
    plan = plan_solve(
        system, mu0, t1=t1, steps=steps, dt=dt, t0=t0, key=key, driver=driver, integrator=integrator,
        save_every=save_every,        save_at=save_at, save=save, until=until, direction=direction,
        group=group, g0=g0, throw=throw, backend=backend, devices=devices,
        stored=is_stored(out, resume),
        adjoint=adjoint, adjoint_memory=adjoint_memory,
    )  # fmt: skip
    return run_plan(plan, out, resume, progress)


def is_stored(out: Any, resume: Any) -> bool:
    """Whether results go to a store."""
    if out is None and resume:
        raise ValueError("resume=True needs a store: pass its name as out=.")
    if out is not None and not isinstance(out, (str, PathLike)):
        raise TypeError(f"out must be the name of a store such as 'run.zarr', not {out!r}.")
    return out is not None


def run_plan(plan: Plan, out: Any, resume: bool, progress: Any, on: Any = None) -> Any:
    """Choose a backend, open the output, and run; a run that JAX traces is one scan instead."""
    validation.choice("backend", plan.backend, BACKENDS)
    if plan.traced:
        if on is not None:
            raise TypeError("on= sends numbers to a cluster, but this run is being traced by JAX.")
        if out is not None:
            raise TypeError(
                "out= stores numbers, but this run is being traced by JAX (differentiated, compiled, mapped)."
            )
        return run_traced(plan)
    program = prepare_program(plan)
    silent = is_multiprocess(plan) and not is_coordinator()
    with (
        executor_for(on, [plan], [program], out, progress) as executor,
        open_output(plan, program, out, resume, executor) as output,
    ):
        return execute(plan, program, output, progress and not silent, executor)


def open_output(
    plan: Plan, program: Program, out: Any, resume: bool, executor: Executor | None
) -> AbstractContextManager[Output]:
    """Open the destination of the results: memory, or a store."""
    if out is None:
        return _memory(plan)
    if is_multiprocess(plan):
        from ..store.multiprocess_store import multiprocess_output

        return multiprocess_output(plan, program, out, resume)
    from ..store.recorder import store_output

    return store_output(plan, program, out, resume, executor)


@contextmanager
def _memory(plan: Plan) -> Iterator[Output]:
    """Save the results in the memory of each process."""
    hint = " Its results are lost: with out= it could resume from its last checkpoint."
    with translate_collective_errors(lambda: hint) if is_multiprocess(plan) else nullcontext():
        yield Memory(plan)
