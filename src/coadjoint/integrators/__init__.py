"""Integrators, one family a file."""

from .adaptive import Adaptive as Adaptive
from .base import Claims as Claims
from .base import Cost as Cost
from .base import Integrator as Integrator
from .blanes_moan import BlanesMoan as BlanesMoan
from .claims_table import claims_table as claims_table
from .classical import Heun as Heun
from .classical import ImplicitMidpoint as ImplicitMidpoint
from .classical import Trapezoidal as Trapezoidal
from .commutator_free import CommutatorFree as CommutatorFree
from .composed import Composed as Composed
from .discrete_gradient import DiscreteGradient as DiscreteGradient
from .gauss import IsospectralGauss as IsospectralGauss
from .gauss import LieGauss as LieGauss
from .midpoint import IsospectralMidpoint as IsospectralMidpoint
from .midpoint import LieMidpoint as LieMidpoint
from .moser_veselov import MoserVeselov as MoserVeselov
from .munthe_kaas import EulerMaruyamaMK as EulerMaruyamaMK
from .munthe_kaas import HeunMK as HeunMK
from .recommend import Recommendation as Recommendation
from .recommend import recommend as recommend
from .rkmk import RKMK as RKMK
from .splitting import LieTrotter as LieTrotter
from .splitting import Strang as Strang
from .tableau import TABLEAUX as TABLEAUX
from .tableau import Tableau as Tableau
from .tau import Cayley as Cayley
from .tau import Exp as Exp
from .tau import Tau as Tau
from .tmk import TMK as TMK
from .tmk15 import TMK15 as TMK15
from .tmk_levy import TMKLevy as TMKLevy
from .tmk_weak import TMKWeak as TMKWeak
from .weak_splitting import BathSplitting as BathSplitting
from .weak_splitting import NinomiyaVictoir as NinomiyaVictoir

# Every method for any system, by the name under which the table of claims shows it and the tests measure it.
ALL: dict[str, Integrator] = {
    "TMK": TMK(),
    "TMKLevy": TMKLevy(),
    "TMK15": TMK15(),
    "TMKWeak": TMKWeak(),
    "HeunMK": HeunMK(),
    "EulerMaruyamaMK": EulerMaruyamaMK(),
    **{f'RKMK("{name}")': RKMK(name) for name in TABLEAUX},
    "LieMidpoint": LieMidpoint(),
    "IsospectralMidpoint": IsospectralMidpoint(),
    **{f"LieGauss({order})": LieGauss(order) for order in (4, 6)},
    'DiscreteGradient("gonzalez")': DiscreteGradient("gonzalez"),
    'DiscreteGradient("average")': DiscreteGradient("average"),
    "LieTrotter": LieTrotter(),
    "Strang": Strang(),
    **{f"BlanesMoan({order})": BlanesMoan(order) for order in (4, 6)},
    "NinomiyaVictoir": NinomiyaVictoir(),
    "BathSplitting": BathSplitting(),
    "CommutatorFree(3)": CommutatorFree(3),
    "CommutatorFree(4)": CommutatorFree(4),
    "ImplicitMidpoint": ImplicitMidpoint(),
    "Trapezoidal": Trapezoidal(),
    "Heun": Heun(),
}

# Methods for particular systems: matrices, and the free rigid body.
SPECIAL: dict[str, Integrator] = {
    **{f"IsospectralGauss({order})": IsospectralGauss(order) for order in (4, 6)},
    **{f"MoserVeselov({order})": MoserVeselov(order) for order in (2, 4, 6, 8)},
}

# Examples of compositions, which exist for every symmetric method and scheme; the table of claims shows them too.
COMPOSITIONS: dict[str, Integrator] = {
    'Composed(LieMidpoint(), "suzuki4")': Composed(LieMidpoint(), "suzuki4"),
    'Composed(DiscreteGradient("gonzalez"), "suzuki4")': Composed(DiscreteGradient("gonzalez"), "suzuki4"),
    'Composed(LieMidpoint(), "kahan-li8")': Composed(LieMidpoint(), "kahan-li8"),
}
