"""Several processes (`jax.distributed`) that run one plan together: what must be done alike, the first of them says."""

from collections.abc import Callable

import jax
import numpy as np

from .plan import Plan


def several(plan: Plan) -> bool:
    """Whether the devices of a plan belong to several processes."""
    return len({device.process_index for device in plan.devices}) > 1


def first() -> bool:
    """Whether this is the process that decides, and writes."""
    return jax.process_index() == 0


def said(value: float) -> float:
    """What the first process says; all must ask."""
    from jax.experimental.multihost_utils import broadcast_one_to_all

    return float(broadcast_one_to_all(np.float64(value)))


def agreed(plan: Plan) -> Callable[[float], float]:
    """What the first process says, of those that run the plan; of one process, what it says itself."""
    return said if several(plan) else lambda value: value
