"""Drivers: the increments of the driving path in each step."""

from .base import BLOCK as BLOCK
from .base import Driver as Driver
from .base import Increment as Increment
from .base import Needs as Needs
from .base import Window as Window
from .base import joined as joined
from .base import truncation_bound as truncation_bound
from .brownian import AREA_ERROR as AREA_ERROR
from .brownian import Brownian as Brownian
from .brownian import BrownianWindow as BrownianWindow
from .brownian import mean_third as mean_third
from .brownian import mode_count as mode_count
from .given import GivenWindow as GivenWindow
from .given import Increments as Increments
from .given import SampledPaths as SampledPaths
from .given import SampledWindow as SampledWindow
