"""Spins under radio-frequency pulses: nuclear magnetic resonance in the rotating frame, on so(3)*^n."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .. import inputs
from ..algebras.product import Product
from ..algebras.so3 import SO3
from ..numerics import validation
from ..systems import System, salt
from .origin import model
from .spin_chain import numbers

_EVER = 1e15  # before all and after all pulses


@model
def nmr(
    offsets: Any = (0.0,),
    pulses: Any = ((0.0, 0.01, 1.5707963267948966, 0.0),),
    *,
    strength: Any = 1.0,
    T1: Any = None,
    T2: Any = None,
    alpha: Any = None,
    M0: Any = None,
) -> tuple[System, Array]:
    """Magnetisations under radio-frequency pulses, in the frame that rotates with the carrier (Bloch's equations).

    The equations of each spin are

        M' = Ω×M − (M_x, M_y, 0)/T₂ + (0, 0, 1 − M_z)/T₁,   Ω = (ω₁ cos φ, ω₁ sin φ, Δ),   h = −Ω·M.

    A pulse of the flip angle θ and the duration τ has ω₁ = b θ/τ. It turns M counterclockwise about the axis
    (cos φ, sin φ, 0). The offset Δ of a spin is its Larmor frequency minus that of the carrier, and b the strength of
    the pulses at its place. Noise turns M about the third axis at the rate α dW/dt, independently for each spin.
    Without relaxation all |M| are Casimirs.

    Let the pulses start and end at time steps. Then every method keeps its order, and without relaxation and noise the
    steps of Munthe-Kaas methods are exact rotations.

    Parameters
    ----------
    offsets : array_like, shape (n,), default (0.0,)
        Δ of each spin in rad per unit of time.
    pulses : array_like, shape (k, 4)
        The start, the duration, the flip angle θ and the phase φ of each pulse, in the order of time. The default is a
        pulse of 90° about the x axis.
    strength : float or array_like, shape (n,), default 1.0
        b. Other values than 1 model an inhomogeneous field.
    T1, T2 : float, optional
        Relaxation times. None means no relaxation.
    alpha : float, optional
        α. None means no noise.
    M0 : array_like, shape (n, 3), optional
        The initial magnetisations. The default is (0, 0, 1).

    Returns
    -------
    system : System
        Left-invariant, on so(3)ⁿ. `offsets`, `strength`, flip angles ("angles"), "phases", "T1" and "T2" are in
        `params`; the times of the pulses are fixed.
    mu0 : array, shape (3n,)
        The initial state. `mu.reshape(n, 3)` has one spin per row.

    Raises
    ------
    TypeError, ValueError
        If pulses overlap, or an array has the wrong shape.
    """  # fmt: skip
    n = np.size(offsets)
    params = {"offsets": numbers("offsets", offsets, ((n,),)), "strength": numbers("strength", strength, ((), (n,)))}
    starts, durations = _pulses(pulses)
    times, which = _intervals(starts, durations)
    params |= {"angles": jnp.asarray(pulses)[:, 2], "phases": jnp.asarray(pulses)[:, 3]}
    relaxes = []
    for name, value in (("T1", T1), ("T2", T2)):
        if value is not None:
            params[name] = numbers(name, value, ((),))
            if not validation.is_traced(value) and not params[name] > 0:
                raise ValueError(f"{name} must be above 0, not {value!r}.")
            relaxes.append(name)

    def hamiltonian(mu: Array, p: dict, t: Array) -> Array:
        M = mu.reshape(n, 3)
        rates = p["angles"] / durations
        fields = jnp.stack([rates * jnp.cos(p["phases"]), rates * jnp.sin(p["phases"])], axis=1)
        u = inputs.piecewise(times, jnp.concatenate([jnp.zeros((1, 2)), fields])[which])(t)
        return -jnp.sum(p["strength"] * (M[:, :2] @ u)) - jnp.sum(p["offsets"] * M[:, 2])

    def relaxation(mu: Array, p: dict) -> Array:
        M = mu.reshape(n, 3)
        x, y = (-M[:, a] / p["T2"] if "T2" in p else jnp.zeros(n) for a in (0, 1))
        z = (1.0 - M[:, 2]) / p["T1"] if "T1" in p else jnp.zeros(n)
        return jnp.stack([x, y, z], axis=1).reshape(-1)

    start = np.tile([0.0, 0.0, 1.0], (n, 1)) if M0 is None else numbers("M0", M0, ((n, 3),))
    noise = [] if alpha is None else [salt(validation.finite("alpha", alpha) * np.kron(np.eye(n), [0.0, 0.0, 1.0]))]
    torque = relaxation if relaxes else ()
    return System(Product(SO3(), copies=n), hamiltonian, noise, params=params, torque=torque), jnp.asarray(
        start
    ).ravel()


def _pulses(pulses: Any) -> tuple[np.ndarray, np.ndarray]:
    """The starts and durations."""
    rows = np.asarray(validation.numbers("pulses", pulses, kinds="fiu"), dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1] != 4 or not len(rows) or not np.all(np.isfinite(rows)):
        raise ValueError(
            f"pulses must be rows of 4 finite numbers: start, duration, angle, phase; not {rows.tolist()}."
        )
    if not np.all(rows[:, 1] > 0):
        raise ValueError(f"pulses must have durations above 0, not {rows[:, 1].tolist()}.")
    return rows[:, 0], rows[:, 1]


def _intervals(starts: np.ndarray, durations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The switches, from long before to long after all pulses, and the pulse of each interval from 1; 0 is none."""
    ends = starts + durations
    close = 1e-9 * np.max(durations)
    if np.any(starts[1:] < ends[:-1] - close):
        k = int(np.argmax(starts[1:] < ends[:-1] - close))
        raise ValueError(
            f"pulses must not overlap, but pulse {k} ends at {ends[k]:g} and pulse {k + 1} starts at {starts[k + 1]:g}."
        )
    times, which = [-_EVER], []
    for k, (start, end) in enumerate(zip(starts, ends, strict=True)):
        if start > times[-1] + close:
            times, which = [*times, start], [*which, 0]
        times, which = [*times, end], [*which, k + 1]
    return np.array([*times, _EVER]), np.array([*which, 0])
