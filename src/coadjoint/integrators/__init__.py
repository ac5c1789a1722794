"""Integrators, one family a file."""

from .adaptive import Adaptive as Adaptive
from .base import Claims as Claims
from .base import Integrator as Integrator
from .direct import Heun as Heun
from .direct import ImplicitMidpoint as ImplicitMidpoint
from .direct import Trapezoidal as Trapezoidal
from .levy import TMKLevy as TMKLevy
from .munthe_kaas import EulerMaruyamaMK as EulerMaruyamaMK
from .munthe_kaas import HeunMK as HeunMK
from .strong15 import TMK15 as TMK15
from .table import claims_table as claims_table
from .tmk import TMK as TMK

ALL = (TMK, TMKLevy, TMK15, HeunMK, EulerMaruyamaMK, ImplicitMidpoint, Trapezoidal, Heun)
