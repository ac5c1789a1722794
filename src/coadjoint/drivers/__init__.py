"""Drivers: the increments of the driving path in each step."""

from .base import BLOCK as BLOCK
from .base import Driver as Driver
from .base import Increment as Increment
from .base import JumpRows as JumpRows
from .base import Needs as Needs
from .base import PathOrder as PathOrder
from .base import Window as Window
from .base import joined as joined
from .base import truncation_bound as truncation_bound
from .brownian import AREA_ERROR as AREA_ERROR
from .brownian import Brownian as Brownian
from .brownian import BrownianWindow as BrownianWindow
from .brownian import mean_third as mean_third
from .brownian import mode_count as mode_count
from .fractional import FractionalBrownian as FractionalBrownian
from .given import GivenWindow as GivenWindow
from .given import Increments as Increments
from .given import SampledPaths as SampledPaths
from .given import SampledWindow as SampledWindow
from .joining import Joined as Joined
from .joining import join as join
from .jumps import Jumps as Jumps
from .ornstein_uhlenbeck import OU as OU

__all__ = ["join"]  # the public name that `coadjoint` itself does not have
