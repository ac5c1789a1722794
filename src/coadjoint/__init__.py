"""coadjoint: stochastic Lie–Poisson systems, integrated with every Casimir kept to machine precision."""

import os as _os
from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

import jax as _jax

if "JAX_ENABLE_X64" not in _os.environ:
    _jax.config.update("jax_enable_x64", True)
# JAX would reserve three quarters of a GPU's memory at its first use, which takes a second or more on a large one.
_os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

from . import fluids, models
from .algebras import (
    SE3,
    SO3,
    SU,
    CentralExtension,
    LieAlgebra,
    MagneticSU,
    Product,
    Semidirect,
    StructureConstants,
    coadjoint_representation,
)
from .baths import double_bracket, heat_bath
from .drivers import Brownian, Driver, Increment, Increments, Needs
from .integrators import (
    RKMK,
    TMK,
    TMK15,
    Adaptive,
    BathSplitting,
    Cayley,
    Claims,
    CommutatorFree,
    Cost,
    DiscreteGradient,
    EulerMaruyamaMK,
    Exp,
    Heun,
    HeunMK,
    ImplicitMidpoint,
    Integrator,
    IsospectralMidpoint,
    LieMidpoint,
    LieTrotter,
    NinomiyaVictoir,
    Recommendation,
    Strang,
    Tableau,
    Tau,
    TMKLevy,
    TMKWeak,
    Trapezoidal,
    recommend,
)
from .numerics.rootfind import Info
from .runtime.ensemble import ensemble
from .runtime.reducers import Covariance, Mean, Quantiles, Reducer
from .runtime.results import Ensemble, Solution, Stats, UnsolvedStepError
from .runtime.sample import Sample, sample
from .runtime.solve import solve
from .study.convergence import Convergence, convergence
from .systems import Noise, System, salt

if _TYPE_CHECKING:
    from .experiments.experiment import resume as resume
    from .experiments.experiment import run as run
    from .experiments.schema import ExperimentError as ExperimentError
    from .store.durable import StoreError as StoreError
    from .store.reading import Stored as Stored
    from .store.reading import open as open

__version__ = "0.1.0"

# What belongs to stores and experiments is imported when it is first used.
_LAZY = {
    "ExperimentError": ".experiments.schema",
    "StoreError": ".store.durable",
    "Stored": ".store.reading",
    "open": ".store.reading",
    "resume": ".experiments.experiment",
    "run": ".experiments.experiment",
}
__all__ = [
    "RKMK",
    "SE3",
    "SO3",
    "SU",
    "TMK",
    "TMK15",
    "Adaptive",
    "BathSplitting",
    "Brownian",
    "Cayley",
    "CentralExtension",
    "Claims",
    "CommutatorFree",
    "Convergence",
    "Cost",
    "Covariance",
    "DiscreteGradient",
    "Driver",
    "Ensemble",
    "EulerMaruyamaMK",
    "Exp",
    "ExperimentError",
    "Heun",
    "HeunMK",
    "ImplicitMidpoint",
    "Increment",
    "Increments",
    "Info",
    "Integrator",
    "IsospectralMidpoint",
    "LieAlgebra",
    "LieMidpoint",
    "LieTrotter",
    "MagneticSU",
    "Mean",
    "Needs",
    "NinomiyaVictoir",
    "Noise",
    "Product",
    "Quantiles",
    "Recommendation",
    "Reducer",
    "Sample",
    "Semidirect",
    "Solution",
    "Stats",
    "StoreError",
    "Stored",
    "Strang",
    "StructureConstants",
    "System",
    "TMKLevy",
    "TMKWeak",
    "Tableau",
    "Tau",
    "Trapezoidal",
    "UnsolvedStepError",
    "coadjoint_representation",
    "convergence",
    "double_bracket",
    "ensemble",
    "fluids",
    "heat_bath",
    "models",
    "open",
    "recommend",
    "resume",
    "run",
    "salt",
    "sample",
    "solve",
]  # fmt: skip


def __getattr__(name: str) -> _Any:
    if name in _LAZY:
        return getattr(_import_module(_LAZY[name], __name__), name)
    raise AttributeError(f"module 'coadjoint' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
