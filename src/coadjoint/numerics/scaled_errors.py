"""Errors of Casimirs relative to their scales. Imports no JAX, which figures of a store do not need."""

from typing import Any

import numpy as np


def scaled_errors(values: Any, start: Any, scales: Any) -> Any:
    """Return |C − C₀| / scale, without dividing by the scale of a Casimir that can only be zero."""
    xp: Any = np
    if not isinstance(scales, np.ndarray):
        import jax.numpy as xp
    return abs(values - start) / xp.where(scales > 0, scales, 1.0)
