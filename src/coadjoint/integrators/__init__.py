"""Integrators, one family a file."""

from .base import Claims as Claims
from .base import Integrator as Integrator
from .direct import Heun as Heun
from .direct import ImplicitMidpoint as ImplicitMidpoint
from .direct import Trapezoidal as Trapezoidal
from .munthe_kaas import EulerMaruyamaMK as EulerMaruyamaMK
from .munthe_kaas import HeunMK as HeunMK
from .table import claims_table as claims_table
from .tmk import TMK as TMK

ALL = (TMK, HeunMK, EulerMaruyamaMK, ImplicitMidpoint, Trapezoidal, Heun)
