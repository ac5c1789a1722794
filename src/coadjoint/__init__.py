"""coadjoint: stochastic Lie–Poisson systems, integrated with every Casimir kept to machine precision."""

import os as _os
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

import jax as _jax

if "JAX_ENABLE_X64" not in _os.environ:
    _jax.config.update("jax_enable_x64", True)

from . import models as models
from .algebras import SE3 as SE3
from .algebras import SO3 as SO3
from .algebras import SU as SU
from .algebras import LieAlgebra as LieAlgebra
from .algebras import Product as Product
from .algebras import Semidirect as Semidirect
from .algebras import StructureConstants as StructureConstants
from .algebras import coadjoint_representation as coadjoint_representation
from .drivers import Brownian as Brownian
from .drivers import Increments as Increments
from .integrators import RKMK as RKMK
from .integrators import TMK as TMK
from .integrators import TMK15 as TMK15
from .integrators import Adaptive as Adaptive
from .integrators import Cayley as Cayley
from .integrators import Claims as Claims
from .integrators import CommutatorFree as CommutatorFree
from .integrators import Cost as Cost
from .integrators import DiscreteGradient as DiscreteGradient
from .integrators import EulerMaruyamaMK as EulerMaruyamaMK
from .integrators import Exp as Exp
from .integrators import Heun as Heun
from .integrators import HeunMK as HeunMK
from .integrators import ImplicitMidpoint as ImplicitMidpoint
from .integrators import Integrator as Integrator
from .integrators import IsospectralMidpoint as IsospectralMidpoint
from .integrators import LieMidpoint as LieMidpoint
from .integrators import LieTrotter as LieTrotter
from .integrators import Recommendation as Recommendation
from .integrators import Strang as Strang
from .integrators import Tableau as Tableau
from .integrators import Tau as Tau
from .integrators import TMKLevy as TMKLevy
from .integrators import Trapezoidal as Trapezoidal
from .integrators import recommend as recommend
from .running.ensembles import ensemble as ensemble
from .running.reducers import Covariance as Covariance
from .running.reducers import Mean as Mean
from .running.reducers import Quantiles as Quantiles
from .running.solution import Solution as Solution
from .running.solution import UnsolvedStepError as UnsolvedStepError
from .running.solving import solve as solve
from .study.convergence import Convergence as Convergence
from .study.convergence import convergence as convergence
from .systems import Noise as Noise
from .systems import System as System
from .systems import salt as salt

if _TYPE_CHECKING:
    from .experiments.experiment import resume as resume
    from .experiments.experiment import run as run
    from .experiments.schema import ExperimentError as ExperimentError
    from .store.durable import StoreError as StoreError
    from .store.reading import Stored as Stored
    from .store.reading import open as open

__version__ = "0.1.0"


def __getattr__(name: str) -> _Any:
    """What belongs to stores and experiments is imported when it is first used."""
    if name in ("open", "resume", "run", "ExperimentError", "Stored", "StoreError"):
        from .experiments import experiment
        from .store import reading as store

        return getattr(store if name in ("open", "Stored", "StoreError") else experiment, name)
    raise AttributeError(f"module 'coadjoint' has no attribute {name!r}")
