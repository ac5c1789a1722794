"""Several processes (`jax.distributed`) that run one plan together: what must be done alike, the first of them says."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import jax
import numpy as np

from .executors import ClusterError
from .plan import Plan


def count_processes(plan: Plan) -> int:
    """To how many processes the devices of a plan belong."""
    return len({device.process_index for device in plan.devices}) or 1


def is_multiprocess(plan: Plan) -> bool:
    """Whether the devices of a plan belong to several processes."""
    return count_processes(plan) > 1


def is_coordinator() -> bool:
    """Whether this is the process that decides."""
    return jax.process_index() == 0


def broadcast(value: float) -> float:
    """What the first process says; all must ask."""
    from jax.experimental.multihost_utils import broadcast_one_to_all

    return float(broadcast_one_to_all(np.float64(value)))


def allgather(value: float) -> list[float]:
    """What each process says, in their order; all must ask."""
    from jax.experimental.multihost_utils import process_allgather

    return np.ravel(process_allgather(np.float64(value))).tolist()


def agreed(plan: Plan) -> Callable[[float], float]:
    """What the first process says, of those that run the plan; of one process, what it says itself."""
    return broadcast if is_multiprocess(plan) else lambda value: value


# How the words of an error begin when a collective or the service of jax.distributed has failed.
_UNHEARD = re.compile("(UNKNOWN|INTERNAL|UNAVAILABLE|ABORTED|CANCELLED|DEADLINE_EXCEEDED|FAILED_PRECONDITION): ")
PROCESS_LOST = "another process of this run is gone, or cannot be reached ({})."


@contextmanager
def translate_collective_errors(kept: Callable[[], str]) -> Iterator[None]:
    """Say in a sentence that another process is gone, and what is kept, where JAX says what call of its own failed."""
    try:
        yield
    except (jax.errors.JaxRuntimeError, ValueError) as error:  # a ValueError, if it was while the call began
        words = str(error).strip().partition("\n")[0]
        if not _UNHEARD.match(words):
            raise
        raise ClusterError(PROCESS_LOST.format(words) + kept()) from error
