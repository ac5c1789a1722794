"""Checks of arguments: each error states the argument, the value received and the allowed values."""

import math
import operator
import os
import sys
import warnings
from typing import Any

import jax
import jax.core
import numpy as np

_started = _forked = False


def _after_fork() -> None:
    global _forked
    _forked = _started


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def require_float64() -> None:
    """Raise an error unless JAX uses double precision, or in a forked process, which would hang."""
    global _started
    _started = True
    if _forked:
        raise RuntimeError(
            "this process was forked from one in which JAX was already running, and JAX's threads do not survive that: "
            "start processes by spawn, multiprocessing.get_context('spawn'), or make the first system after the fork."
        )
    if not jax.config.read("jax_enable_x64"):
        raise ValueError(
            "coadjoint computes in float64, but JAX is set to float32 (JAX_ENABLE_X64 or jax_enable_x64 is off). "
            "Unset JAX_ENABLE_X64, or call jax.config.update('jax_enable_x64', True)."
        )


def warn(message: str, category: type[Warning] = RuntimeWarning) -> None:
    """Warn at the line of the user that called coadjoint."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "coadjoint":
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def is_traced(tree: Any) -> bool:
    """Whether anything in the tree is being traced (differentiated, compiled or mapped) by JAX."""
    return any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves(tree))


def positive(name: str, value: Any) -> float:
    """A finite number above zero."""
    number = finite(name, value)
    if not number > 0:
        raise ValueError(f"{name} must be above 0, not {value!r}.")
    return number


def finite(name: str, value: Any) -> float:
    """A finite number."""
    if isinstance(value, jax.core.Tracer):
        raise TypeError(f"{name} must be a number known before the run; it cannot be traced or differentiated.")
    try:
        if isinstance(value, (str, bytes, bool, np.bool_)) or np.ma.is_masked(value) or np.ndim(value):
            raise TypeError
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number, not {type(value).__name__}.") from None
    except OverflowError:
        raise ValueError(f"{name} must be below 1.8e308, not a whole number of {len(str(value))} digits.") from None
    if not math.isfinite(number):
        raise ValueError(f"{name} must be finite, not {value!r}.")
    return number


def count(name: str, value: Any, least: int = 1) -> int:
    """Return an integer that is at least `least`."""
    try:
        if isinstance(value, (bool, np.bool_)):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be a whole number, not {value!r}.") from None
    if number < least:
        raise ValueError(f"{name} must be at least {least}, not {value!r}.")
    return number


def numbers(name: str, value: Any, what: str = "an array of numbers", kinds: str = "fiuc") -> Any:
    """An array of numbers in the byte order of this machine, on the host unless it is JAX's.

    - `what`: the kind of array, for the message.
    - `kinds`: the kinds of number, of "f" (real), "i", "u" (whole), "c" (complex).

    Raises TypeError if it is none, ValueError if entries are masked.
    """
    if isinstance(value, jax.Array):
        array: Any = value
    else:
        check_unmasked(name, value)
        try:
            array = np.asarray(value)
        except (TypeError, ValueError, OverflowError):
            raise TypeError(f"{name} must be {what}, not {_short(value)}.") from None
    kind = array.dtype.kind if isinstance(array, np.ndarray) else jax.numpy.dtype(array.dtype).kind
    if kind not in kinds:
        got = f"of type {array.dtype}" if kind in "fiubc" else _short(value)
        raise TypeError(f"{name} must be {what}, not {got}.")
    if isinstance(array, np.ndarray) and not array.dtype.isnative:
        return array.astype(array.dtype.newbyteorder("="))
    return array


def check_unmasked(name: str, value: Any) -> None:
    """Raise if an array has masked entries, which NumPy and JAX would use as if they were not masked."""
    if np.ma.is_masked(value):
        raise ValueError(
            f"{name} has {int(np.ma.count_masked(value))} masked entries: give numbers for them, as {name}.filled(0.0)."
        )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:97]}..."


def vector(name: str, value: Any, length: int) -> np.ndarray:
    """A finite real vector of the given length."""
    given = numbers(name, value, f"{length} numbers", "fiu")
    array = np.asarray(given, dtype=np.float64)
    if array.shape != (length,):
        raise ValueError(f"{name} must be {length} numbers, shape ({length},), not shape {array.shape}.")
    if not np.all(np.isfinite(array)):
        raise ValueError(f"{name} must be finite, not {array}.")
    return array


def choice(name: str, value: Any, allowed: tuple[str, ...]) -> str:
    """One of the allowed words."""
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, not {value!r}.")
    return value
