"""coadjoint: stochastic Lie–Poisson systems, integrated with every Casimir conserved to machine precision.

Importing this package turns on float64 in JAX, but imports neither JAX nor the modules of the package: each public
name is imported when it is first used, so that the command line starts quickly.
"""

import os as _os
import sys as _sys
from importlib import import_module as _import_module
from importlib.util import find_spec as _find_spec
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

if "JAX_ENABLE_X64" not in _os.environ:
    if "jax" in _sys.modules:
        _sys.modules["jax"].config.update("jax_enable_x64", True)
    else:  # JAX reads it when it is imported
        _os.environ["JAX_ENABLE_X64"] = "1"
# By default JAX reserves three quarters of a GPU's memory at its first use, which takes a second or more.
_os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

if _TYPE_CHECKING:
    from . import data, drivers, fluids, inputs, models
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
    from .areas import area_drift
    from .baths import double_bracket, heat_bath
    from .controls import Hold, hold
    from .drivers import OU, Brownian, Driver, FractionalBrownian, Increment, Increments, Jumps, Needs
    from .experiments.experiment import resume, run
    from .experiments.schema import ExperimentError
    from .integrators import (
        RKMK,
        TMK,
        TMK15,
        Adaptive,
        BathSplitting,
        BlanesMoan,
        Cayley,
        Claims,
        CommutatorFree,
        Composed,
        Cost,
        DiscreteGradient,
        EulerMaruyamaMK,
        Exp,
        Heun,
        HeunMK,
        ImplicitMidpoint,
        Integrator,
        IsospectralGauss,
        IsospectralMidpoint,
        LieGauss,
        LieMidpoint,
        LieTrotter,
        MoserVeselov,
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
    from .numerics.quaternions import quaternion_to_rotation, rotation_to_quaternion
    from .numerics.rootfind import SolveInfo
    from .report.structure_factor import structure_factor
    from .runtime.ensemble import ensemble
    from .runtime.gradients.info import GradientInfo, last_gradient_info
    from .runtime.prepared import PreparedRun, prepare
    from .runtime.reducers import Covariance, Mean, Quantiles, Reducer
    from .runtime.results import Ensemble, Solution, UnsolvedStepError
    from .runtime.sample import Sample, sample
    from .runtime.solve import solve
    from .runtime.stats import Stats
    from .runtime.time_reducers import Autocovariance, FirstPassage, RunningMax, TimeAverage
    from .store.atomic_io import StoreError
    from .store.reading import Stored, open
    from .study.convergence import Convergence, convergence
    from .study.expectation import expectation
    from .study.levels import Expectation
    from .systems import Noise, System, salt, white_torque
    from .variations import vary

__version__ = "0.1.0"

# The module of each public name. Static checkers read the imports above instead.
_PUBLIC = {
    ".": "data drivers fluids inputs models",
    ".algebras": (
        "CentralExtension LieAlgebra MagneticSU Product SE3 SO3 SU Semidirect StructureConstants "
        "coadjoint_representation"
    ),
    ".areas": "area_drift",
    ".baths": "double_bracket heat_bath",
    ".controls": "Hold hold",
    ".drivers": "Brownian Driver FractionalBrownian Increment Increments Jumps Needs OU",
    ".experiments.experiment": "resume run",
    ".experiments.schema": "ExperimentError",
    ".integrators": (
        "Adaptive BathSplitting BlanesMoan Cayley Claims CommutatorFree Composed Cost DiscreteGradient "
        "EulerMaruyamaMK Exp Heun HeunMK ImplicitMidpoint Integrator IsospectralGauss IsospectralMidpoint LieGauss "
        "LieMidpoint LieTrotter MoserVeselov NinomiyaVictoir RKMK Recommendation Strang TMK TMK15 TMKLevy TMKWeak "
        "Tableau Tau Trapezoidal recommend"
    ),
    ".numerics.quaternions": "quaternion_to_rotation rotation_to_quaternion",
    ".numerics.rootfind": "SolveInfo",
    ".report.structure_factor": "structure_factor",
    ".runtime.ensemble": "ensemble",
    ".runtime.prepared": "PreparedRun prepare",
    ".runtime.reducers": "Covariance Mean Quantiles Reducer",
    ".runtime.gradients.info": "GradientInfo last_gradient_info",
    ".runtime.time_reducers": "Autocovariance FirstPassage RunningMax TimeAverage",
    ".runtime.results": "Ensemble Solution UnsolvedStepError",
    ".runtime.sample": "Sample sample",
    ".runtime.stats": "Stats",
    ".runtime.solve": "solve",
    ".store.atomic_io": "StoreError",
    ".store.reading": "Stored open",
    ".study.convergence": "Convergence convergence",
    ".study.expectation": "expectation",
    ".study.levels": "Expectation",
    ".systems": "Noise System salt white_torque",
    ".variations": "vary",
}
_MODULES = {name: module for module, names in _PUBLIC.items() for name in names.split()}
__all__ = [
    "OU",
    "RKMK",
    "SE3",
    "SO3",
    "SU",
    "TMK",
    "TMK15",
    "Adaptive",
    "Autocovariance",
    "BathSplitting",
    "BlanesMoan",
    "Brownian",
    "Cayley",
    "CentralExtension",
    "Claims",
    "CommutatorFree",
    "Composed",
    "Convergence",
    "Cost",
    "Covariance",
    "DiscreteGradient",
    "Driver",
    "Ensemble",
    "EulerMaruyamaMK",
    "Exp",
    "Expectation",
    "ExperimentError",
    "FirstPassage",
    "FractionalBrownian",
    "GradientInfo",
    "Heun",
    "HeunMK",
    "Hold",
    "ImplicitMidpoint",
    "Increment",
    "Increments",
    "Integrator",
    "IsospectralGauss",
    "IsospectralMidpoint",
    "Jumps",
    "LieAlgebra",
    "LieGauss",
    "LieMidpoint",
    "LieTrotter",
    "MagneticSU",
    "Mean",
    "MoserVeselov",
    "Needs",
    "NinomiyaVictoir",
    "Noise",
    "PreparedRun",
    "Product",
    "Quantiles",
    "Recommendation",
    "Reducer",
    "RunningMax",
    "Sample",
    "Semidirect",
    "Solution",
    "SolveInfo",
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
    "TimeAverage",
    "Trapezoidal",
    "UnsolvedStepError",
    "area_drift",
    "coadjoint_representation",
    "convergence",
    "data",
    "double_bracket",
    "drivers",
    "ensemble",
    "expectation",
    "fluids",
    "heat_bath",
    "hold",
    "inputs",
    "last_gradient_info",
    "models",
    "open",
    "prepare",
    "quaternion_to_rotation",
    "recommend",
    "resume",
    "rotation_to_quaternion",
    "run",
    "salt",
    "sample",
    "solve",
    "structure_factor",
    "vary",
    "white_torque",
]  # fmt: skip


def __getattr__(name: str) -> _Any:
    module = _MODULES.get(name)
    if module is not None and module != ".":
        value = getattr(_import_module(module, __name__), name)
    elif not name.startswith("_") and _find_spec(f"{__name__}.{name}") is not None:
        value = _import_module(f".{name}", __name__)
    else:
        raise AttributeError(f"module 'coadjoint' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
