"""`ensemble`: many trajectories."""

from collections.abc import Callable
from os import PathLike
from typing import TYPE_CHECKING, Any, Unpack, overload

from jaxtyping import PyTree

from ..drivers import Driver
from ..integrators.base import Integrator
from ..integrators.tmk import TMK
from ..systems import System
from .planning import plan_ensemble
from .reducers import Reducer
from .results import Ensemble
from .solve import is_stored, run_plan
from .typed_options import EnsembleOptions

if TYPE_CHECKING:
    from ..store.reading import Stored


@overload
def ensemble(system: System, mu0: Any, *, out: None = None, **options: Unpack[EnsembleOptions]) -> Ensemble: ...
@overload
def ensemble(system: System, mu0: Any, *, out: str | PathLike, **options: Unpack[EnsembleOptions]) -> "Stored": ...
def ensemble(
    system: System,
    mu0: Any,
    *,
    members: int,
    dt: float,
    t1: float | None = None,
    steps: int | None = None,
    t0: float = 0.0,
    key: Any = None,
    driver: Driver | None = None,
    integrator: Integrator = TMK(),
    params: PyTree = None,
    reduce: Reducer | None = None,
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
    on: Any = None,
) -> "Ensemble | Stored":
    """Integrate many trajectories of a system.

    The path of member k depends on the seed and k alone, so results do not depend on the number of members, threads or
    workers. Members are stepped together in batches of 1024. Matrices of dimension above 64 are stepped one per core on
    a CPU; on a GPU, coadjoint steps as many together as its memory holds.

    Parameters
    ----------
    system : System
        The system to integrate.
    mu0 : array
        One initial state for all members, or a stack with a leading axis of members.
    members : int
        The number of trajectories.
    dt, t1, steps, t0, save_every, save_at : optional
        The time grid and the saved times, as in `solve`.
    key, driver, integrator : optional
        The path and the method, as in `solve`. `Increments` of shape (steps, M) drive all members alike, and those of
        shape (members, steps, M) drive each member by its own path.
    save, group, throw, progress, out, resume, backend, adjoint, adjoint_memory : optional
        As in `solve`.
    until, direction : optional
        The event that ends a trajectory, as in `solve`. Each member has its own `event_time` and `event_state`.
    params : pytree, optional
        Parameters in place of `system.params`. Any leaf may have a leading axis of members.
    reduce : Reducer, optional
        A reducer such as `Mean()`, `Quantiles(...)` or `TimeAverage()`, or a dict of several. Only its statistics are
        saved, as `reduced`.
    g0 : array, optional
        The initial group element, one for all members or with a leading axis of members.
    on : str or distributed.Client, optional
        A Dask cluster that computes the members, with bitwise identical results. Pass a client, the address of a
        scheduler such as "tcp://10.0.0.1:8786", or "local:8" for eight processes on this machine.

    Returns
    -------
    Ensemble or Stored
        A `Stored` with `out`, otherwise an `Ensemble`.

    Raises
    ------
    ValueError, TypeError
        If an argument is invalid, before anything is compiled.
    UnsolvedStepError
        If a step does not converge. Its `solution` contains the members computed before it.

    Examples
    --------
    >>> import coadjoint as cj
    >>> system, mu0 = cj.models.heavy_top(alpha=(0.1, 0.0, 0.0))
    >>> cj.ensemble(system, mu0, members=8, t1=1.0, dt=0.1, key=0, reduce=cj.Mean()).reduced["mean"].shape
    (11, 6)
    """
    plan = plan_ensemble(
        system, mu0, members=members, t1=t1, steps=steps, dt=dt, t0=t0, key=key, driver=driver, integrator=integrator,
        params=params, reduce=reduce, save_every=save_every, save_at=save_at, save=save, until=until,
        direction=direction, group=group, g0=g0, throw=throw, backend=backend, stored=is_stored(out, resume),
        adjoint=adjoint, adjoint_memory=adjoint_memory,
    )  # fmt: skip
    return run_plan(plan, out, resume, progress, on)
