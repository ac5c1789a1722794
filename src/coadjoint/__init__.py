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
from .convergence import Convergence as Convergence
from .convergence import convergence as convergence
from .drivers import Brownian as Brownian
from .drivers import Increments as Increments
from .ensemble import ensemble as ensemble
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
from .reducers import Covariance as Covariance
from .reducers import Mean as Mean
from .reducers import Quantiles as Quantiles
from .solution import Solution as Solution
from .solution import UnsolvedStepError as UnsolvedStepError
from .solve import solve as solve
from .systems import Noise as Noise
from .systems import System as System
from .systems import salt as salt

if _TYPE_CHECKING:
    from .durable import StoreError as StoreError
    from .experiment import resume as resume
    from .experiment import run as run
    from .schema import ExperimentError as ExperimentError
    from .store import Stored as Stored
    from .store import open as open

__version__ = "0.1.0"


def __getattr__(name: str) -> _Any:
    """What belongs to stores and experiments is imported when it is first used."""
    if name in ("open", "resume", "run", "ExperimentError", "Stored", "StoreError"):
        from . import experiment, store

        return getattr(store if name in ("open", "Stored", "StoreError") else experiment, name)
    raise AttributeError(f"module 'coadjoint' has no attribute {name!r}")
