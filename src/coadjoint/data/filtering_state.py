"""The state of a filter, and the error of a filter that cannot go any further."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import PyTree


class FilterError(RuntimeError):
    """A filter cannot assimilate an observation. `result` contains all cycles before it."""

    def __init__(self, message: str, result: Any = None):
        super().__init__(message)
        self.result = result

    def __reduce__(self) -> tuple:
        """For pickling: both arguments."""
        return type(self), (str(self), self.result)


class Members(NamedTuple):
    """The members of a filter, each array with a leading axis of members."""

    mu: np.ndarray
    g: PyTree = None  # group elements, if the run follows them
    params: tuple[np.ndarray, ...] = ()  # the leaves of params that differ between members


class Segment(NamedTuple):
    """The way of the members between two observations."""

    first: np.ndarray  # the number of the first step
    steps: np.ndarray
    start: Members
    dS: np.ndarray  # (members, steps, M)
    log_likelihood: np.ndarray  # of the observation at the end, (members,)


class FilterState(NamedTuple):
    """All that a filter needs for its next cycle."""

    segments: tuple[Segment, ...]  # the last windows, the oldest first
    members: Members  # at the last observation
    log_weights: np.ndarray  # (members,)
    log_evidence: np.ndarray  # of all observations so far
    rho: np.ndarray  # the correlation of a proposed path with the present one
    orbits: tuple[np.ndarray, ...] = ()  # invariants of the orbits on which the members started
