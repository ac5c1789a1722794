"""Weights of particles: effective size, systematic resampling, the next temperature."""

import numpy as np
from jaxtyping import Float, Int


def normalised(log_weights: Float[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
    """The weights, with sum 1."""
    w = np.exp(log_weights - np.max(log_weights))
    return w / np.sum(w)


def log_mean(log_weights: Float[np.ndarray, " N"], values: Float[np.ndarray, " N"]) -> float:
    """log Σ W_i exp(values_i) with the normalised weights W."""
    top = np.max(values)
    return float(top + np.log(np.sum(normalised(log_weights) * np.exp(values - top))))


def effective_size(log_weights: Float[np.ndarray, " N"]) -> float:
    """(Σ w)² / Σ w², between 1 and N."""
    w = normalised(log_weights)
    return float(1.0 / np.sum(w * w))


def systematic(weights: Float[np.ndarray, " N"], u: float) -> Int[np.ndarray, " N"]:
    """The numbers of the members that survive, with a single uniform number u.

    Member i appears ⌊N w_i⌋ or ⌈N w_i⌉ times.
    """
    count = len(weights)
    edges = np.cumsum(weights)
    found = np.searchsorted(edges / edges[-1], (u + np.arange(count)) / count, "right")
    return np.minimum(found, int(np.flatnonzero(weights)[-1]))


def next_temperature(log_likelihood: Float[np.ndarray, " N"], reached: float, target: float) -> float:
    """The largest φ ≤ 1 for which the weights exp((φ − reached) log L) have an effective size of at least `target`.

    `target` is a share of the members with a finite likelihood. 60 bisections determine φ.
    """
    finite = log_likelihood[np.isfinite(log_likelihood)]
    enough = lambda step: effective_size(step * finite) >= target * len(finite)
    if enough(1.0 - reached):
        return 1.0
    low, high = 0.0, 1.0 - reached
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if enough(middle) else (low, middle)
    return reached + low
