"""Several processes (`jax.distributed`) that run one plan: the first of them, the coordinator, decides for all."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import jax
import numpy as np

from .executors import ClusterError
from .plan import Plan


def count_processes(plan: Plan) -> int:
    """Return the number of processes whose devices a plan uses."""
    return len({device.process_index for device in plan.devices}) or 1


def is_multiprocess(plan: Plan) -> bool:
    """Whether the devices of a plan belong to several processes."""
    return count_processes(plan) > 1


def is_coordinator() -> bool:
    """Whether this is the first process, which decides for all."""
    return jax.process_index() == 0


def broadcast(value: float) -> float:
    """Return the value of the first process. All processes must call this."""
    from jax.experimental.multihost_utils import broadcast_one_to_all

    return float(broadcast_one_to_all(np.float64(value)))


def allgather(value: float) -> list[float]:
    """Return the values of all processes in their order. All processes must call this."""
    from jax.experimental.multihost_utils import process_allgather

    return np.ravel(process_allgather(np.float64(value))).tolist()


def agreed(plan: Plan) -> Callable[[float], float]:
    """Return the value of the first process that runs the plan; the value itself in a single process."""
    return broadcast if is_multiprocess(plan) else lambda value: value


# The start of an error message if a collective or the service of jax.distributed has failed.
_LOST_PROCESS = re.compile("(UNKNOWN|INTERNAL|UNAVAILABLE|ABORTED|CANCELLED|DEADLINE_EXCEEDED|FAILED_PRECONDITION): ")
PROCESS_LOST = "another process of this run is gone, or cannot be reached ({})."


@contextmanager
def translate_collective_errors(kept: Callable[[], str]) -> Iterator[None]:
    """Translate JAX's errors of lost processes into a sentence that states what is saved."""
    try:
        yield
    except (jax.errors.JaxRuntimeError, ValueError) as error:  # a ValueError, if it was while the call began
        words = str(error).strip().partition("\n")[0]
        if not _LOST_PROCESS.match(words):
            raise
        raise ClusterError(PROCESS_LOST.format(words) + kept()) from error
