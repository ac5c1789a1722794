"""`ensemble`: many trajectories."""

from collections.abc import Callable
from os import PathLike
from typing import TYPE_CHECKING, Any, Unpack, overload

from jaxtyping import PyTree

from ..drivers import Driver
from ..integrators.base import Integrator
from ..integrators.tmk import TMK
from ..systems import System
from .plan import plan_ensemble
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
    t1: float,
    dt: float,
    t0: float = 0.0,
    key: Any = None,
    driver: Driver | None = None,
    integrator: Integrator = TMK(),
    params: PyTree = None,
    reduce: Reducer | None = None,
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
    on: Any = None,
) -> "Ensemble | Stored":
    """Integrate `members` trajectories of a system; member k follows its own path, given by (key, k) alone.

    - `mu0`: one state for all, or a stack with a leading axis of members.
    - `params`: replaces the system's params; a leaf may have a leading axis of members.
    - `reduce`: a reducer such as `Mean()`, `Covariance()` or `Quantiles(...)`: only statistics are kept, as `reduced`.
    - `g0`: as in `solve`, one for all, or with a leading axis of members.
    - A given path (`Increments`) drives all members alike.
    - `on`: a Dask cluster that computes, bit for bit the same: a `distributed.Client`, the address of a scheduler such
      as "tcp://10.0.0.1:8786", or "local:8" for eight processes here (docs/guides/dask.md).
    - The rest is as in `solve`.

    Members sit in tiles of fixed size, member k in slot k mod P of tile k div P with P = 1024 (the next power of two
    for fewer members), so that no result depends on how tiles are placed or in which order they run. Matrices of
    dimension above 64 are stepped one by one on a CPU, one a core; on a GPU, as many together as fit.
    """
    plan = plan_ensemble(
        system, mu0, members=members, t1=t1, dt=dt, t0=t0, key=key, driver=driver, integrator=integrator,
        params=params, reduce=reduce, save_every=save_every, save_at=save_at, save=save, group=group, g0=g0,
        throw=throw, backend=backend, stored=is_stored(out, resume),
    )  # fmt: skip
    return run_plan(plan, out, resume, progress, on)
