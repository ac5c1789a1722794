"""The options of `solve` and `ensemble`, for type checkers: the type of the result depends on `out`."""

from collections.abc import Callable
from typing import Any, Required, TypedDict

from jaxtyping import PyTree

from ..drivers import Driver
from ..integrators.base import Integrator


class CommonOptions(TypedDict, total=False):
    """The common options, without `out`."""

    dt: Required[float]
    t1: float | None
    steps: int | None
    t0: float
    key: Any
    driver: Driver | None
    integrator: Integrator
    save_every: int
    save_at: Any
    save: Callable[[Any], PyTree] | None
    until: Callable[..., Any] | None
    direction: str
    group: bool
    g0: Any
    throw: bool
    progress: bool
    resume: bool
    backend: str
    adjoint: str
    adjoint_memory: int


class SolveOptions(CommonOptions, total=False):
    """All but `out`."""

    devices: Any


class EnsembleOptions(CommonOptions, total=False):
    """All but `out`."""

    members: Required[int]
    params: PyTree
    reduce: Any
    on: Any
