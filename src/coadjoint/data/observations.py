"""Observations: a function of the state and the distribution of its measured value."""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ..numerics import validation
from ..numerics.signatures import described
from ..runtime.saved_values import MemberFunction, more_arguments, trace
from ..systems import System

_UNIT = 1e-6  # largest error of the length of a unit vector


class Observation(abc.ABC):
    """The interface of an observation: the density of a measured value y for a given state.

    `Gaussian`, `GaussianError`, `VonMisesFisher` and `LogDensity` implement it. A filter traces the user's function
    once per run.
    """

    @abc.abstractmethod
    def _traced(self, system: System, y: np.ndarray) -> "TracedObservation":
        """The observation for a system and values of the shape of `y[0]`. Invalid values raise an error."""

    @abc.abstractmethod
    def _describe(self) -> dict[str, Any]:
        """The numbers that define the distribution, for the configuration of a store."""


class TracedObservation(eqx.Module):
    """An observation of the members of a filter."""

    density: MemberFunction  # log p(y | μ) of (μ, y)
    error: MemberFunction | None  # the vector y − H(μ) of (μ, y), if errors are normally distributed

    @property
    def names(self) -> tuple[str, ...]:
        """The arguments that the functions receive by name."""
        return self.density.names


class NormalErrors(Observation):
    """The interface of observations with normally distributed errors of mean 0, which Kalman filters need."""

    function: Callable[..., Any]
    std: np.ndarray | None
    covariance: np.ndarray | None

    def _set_errors(self, std: Any, covariance: Any) -> None:
        """Check and save the distribution of the errors."""
        kind = type(self).__name__
        if not callable(self.function):
            raise TypeError(f"function must be a function of the state, not {described(self.function)}.")
        if (std is None) == (covariance is None):
            raise ValueError(f"give either std or covariance of the errors of a {kind} observation.")
        self.std = None if std is None else np.asarray(validation.numbers("std", std, kinds="fiu"), np.float64)
        if self.std is not None and not (np.all(np.isfinite(self.std)) and np.all(self.std > 0)):
            raise ValueError(f"std must be finite and above 0, not {std!r}.")
        self.covariance = None if covariance is None else _covariance(covariance)

    def _describe(self) -> dict[str, Any]:
        """The errors."""
        return {"type": type(self).__name__, "std": self.std, "covariance": self.covariance}

    def _error_covariance(self, shape: tuple[int, ...]) -> Float[np.ndarray, "m m"]:
        """R of errors of this shape."""
        m = int(np.prod(shape))
        if self.covariance is not None:
            if len(self.covariance) != m:
                raise ValueError(
                    f"covariance must have shape {(m, m)} for the {m} entries of the observation, not "
                    f"{self.covariance.shape}."
                )
            return self.covariance
        assert self.std is not None
        if self.std.shape not in ((), shape):
            raise ValueError(
                f"std must be a number or have the shape of the observation, {shape}, not {self.std.shape}."
            )
        return np.diag(np.broadcast_to(self.std**2, shape).ravel())

    def _with_errors(
        self, system: System, error: Callable, takes: tuple[bool, tuple[str, ...]], shape: tuple[int, ...],
        errors: tuple[int, ...],
    ) -> TracedObservation:  # fmt: skip
        """The observation from the error of (μ, y, …), for values of a shape and errors of another."""
        R = self._error_covariance(errors)
        chol = np.linalg.cholesky(R)
        whiten = jnp.asarray(np.linalg.inv(chol))
        constant = -float(np.sum(np.log(np.diag(chol)))) - 0.5 * len(R) * np.log(2 * np.pi)
        flat = lambda mu, y, *rest: jnp.ravel(error(mu, y, *rest))

        def density(mu: Array, y: Array, *rest: PyTree) -> Array:
            r = whiten @ flat(mu, y, *rest)
            return constant - 0.5 * jnp.sum(r * r)

        given = [_state(system), _like(shape)]
        return TracedObservation(
            trace("density", system, density, takes, given), trace("error", system, flat, takes, given)
        )


class Gaussian(NormalErrors):
    """An observation y = H(μ) + ε with normally distributed errors ε of mean 0.

    The log density is −½ rᵀ R⁻¹ r − ½ log det(2πR) with r = y − H(μ).

    Parameters
    ----------
    function : callable
        H(mu), a function of the state that returns a real number or an array. It may have the further arguments
        `params`, and by name `t` and `g`, as functions of a system.
    std : float or array_like, optional
        The standard deviation of the errors: one number, or one number per entry of H(μ).
    covariance : array_like, shape (m, m), optional
        The covariance matrix R of the m entries of H(μ), instead of `std`.

    Raises
    ------
    ValueError, TypeError
        If not exactly one of `std` and `covariance` is given, or if it is not positive definite.

    Examples
    --------
    >>> import coadjoint as cj
    >>> magnetometer = cj.data.Gaussian(lambda mu: mu[:2], std=0.1)
    """

    def __init__(self, function: Callable[..., Any], std: Any = None, covariance: Any = None):
        self.function = function
        self._set_errors(std, covariance)

    def _traced(self, system: System, y: np.ndarray) -> TracedObservation:
        """The observation for a system."""
        shape = y.shape[1:]
        takes = _arguments("function", self.function, ("mu",), system)
        _check_shape(trace("function", system, self.function, takes, [_state(system)]), system, shape)
        return self._with_errors(system, lambda mu, y, *rest: y - self.function(mu, *rest), takes, shape, shape)


class GaussianError(NormalErrors):
    """An observation whose error is a function of the state and the measured value, and normally distributed.

    Use it for measured values that cannot be subtracted, such as attitudes. The log density is −½ eᵀ R⁻¹ e −
    ½ log det(2πR) with the error e = e(μ, y). It is a density of e, not of y.

    Parameters
    ----------
    function : callable
        e(mu, y), a function of the state and of one measured value that returns a real number or an array. Its
        derivative by y must not depend on the state where e = 0. It may have further arguments, as that of `Gaussian`.
    std : float or array_like, optional
        The standard deviation of the errors: one number, or one number per entry of e.
    covariance : array_like, shape (m, m), optional
        The covariance matrix R of the m entries of e, instead of `std`.

    Raises
    ------
    ValueError, TypeError
        If not exactly one of `std` and `covariance` is given, or if it is not positive definite.

    Examples
    --------
    >>> import coadjoint as cj
    >>> tracker = cj.models.StarTracker(noise=[1e-4, 1e-4, 1e-3])
    >>> attitude = cj.data.GaussianError(lambda mu, y, g: tracker.error(y, g), std=tracker.noise)
    """

    def __init__(self, function: Callable[..., Any], std: Any = None, covariance: Any = None):
        self.function = function
        self._set_errors(std, covariance)

    def _traced(self, system: System, y: np.ndarray) -> TracedObservation:
        """The observation for a system."""
        shape = y.shape[1:]
        takes = _arguments("function", self.function, ("mu", "y"), system)
        given = [_state(system), _like(shape)]
        out = _shape_of(trace("function", system, self.function, takes, given), system, given)
        _check_real(out)
        return self._with_errors(system, self.function, takes, shape, out.shape)


class VonMisesFisher(Observation):
    """Directions y on the unit sphere, distributed about the direction H(μ) with the density c(κ) exp(κ y·H(μ)).

    c(κ) = κ / (4π sinh κ).

    Parameters
    ----------
    function : callable
        H(mu), a function of the state that returns a unit vector, shape (3,), or several, shape (k, 3). It may have
        further arguments, as that of `Gaussian`.
    concentration : float or array_like
        κ, one number, or one number per vector. For large κ, 1/√κ is the standard deviation of each angle in radians.

    Raises
    ------
    ValueError, TypeError
        If `concentration` is not positive.

    Examples
    --------
    >>> import coadjoint as cj
    >>> sun_sensor = cj.data.VonMisesFisher(lambda mu: mu, concentration=50.0)
    """

    def __init__(self, function: Callable[..., Any], concentration: Any):
        if not callable(function):
            raise TypeError(f"function must be a function of the state, not {described(function)}.")
        self.function = function
        self.concentration = np.asarray(validation.numbers("concentration", concentration, kinds="fiu"), np.float64)
        if not (np.all(np.isfinite(self.concentration)) and np.all(self.concentration > 0)):
            raise ValueError(f"concentration must be finite and above 0, not {concentration!r}.")

    def _describe(self) -> dict[str, Any]:
        """The concentration."""
        return {"type": "VonMisesFisher", "concentration": self.concentration}

    def _traced(self, system: System, y: np.ndarray) -> TracedObservation:
        """The observation for a system."""
        shape = y.shape[1:]
        if shape[-1:] != (3,):
            raise ValueError(f"observations of directions must have shape (times, 3) or (times, k, 3), not {y.shape}.")
        if self.concentration.shape not in ((), shape[:-1]):
            raise ValueError(
                f"concentration must be one number, or one per direction, shape {shape[:-1]}, not "
                f"{self.concentration.shape}."
            )
        lengths = np.linalg.norm(y, axis=-1)
        if np.any(np.abs(lengths - 1) > _UNIT):
            at = tuple(int(i) for i in np.argwhere(np.abs(lengths - 1) > _UNIT)[0])
            raise ValueError(f"observations must be unit vectors, but observations{list(at)} has length {lengths[at]}.")
        takes = _arguments("function", self.function, ("mu",), system)
        _check_shape(trace("function", system, self.function, takes, [_state(system)]), system, shape)
        kappa = np.broadcast_to(self.concentration, shape[:-1])
        constant = float(np.sum(np.log(kappa / (2 * np.pi)) - np.log1p(-np.exp(-2 * kappa))))

        def density(mu: Array, y: Array, *rest: PyTree) -> Array:
            cosine = jnp.sum(y * self.function(mu, *rest), axis=-1)
            return constant + jnp.sum(jnp.asarray(kappa) * (cosine - 1.0))

        return TracedObservation(trace("density", system, density, takes, [_state(system), _like(shape)]), None)


class LogDensity(Observation):
    """An observation with a log density of your own.

    Parameters
    ----------
    function : callable
        A function (mu, y) that returns log p(y | mu) for one observation y. It may have the further arguments `params`,
        and by name `t` and `g`, as functions of a system. Constants that depend on neither mu nor params change the
        evidence only.

    Raises
    ------
    TypeError
        If `function` is not a function.

    Examples
    --------
    >>> import coadjoint as cj
    >>> import jax.numpy as jnp
    >>> robust = cj.data.LogDensity(lambda mu, y: -jnp.sum(jnp.abs(y - mu[:2])) / 0.1)
    """

    def __init__(self, function: Callable[..., Any]):
        if not callable(function):
            raise TypeError(f"function must be a function of the state and the observation, not {described(function)}.")
        self.function = function

    def _describe(self) -> dict[str, Any]:
        """Nothing but the type: the function has a fingerprint."""
        return {"type": "LogDensity"}

    def _traced(self, system: System, y: np.ndarray) -> TracedObservation:
        """The observation for a system."""
        takes = _arguments("function", self.function, ("mu", "y"), system)
        density = trace("function", system, self.function, takes, [_state(system), _like(y.shape[1:])])
        out = _shape_of(density, system, [_state(system), _like(y.shape[1:])])
        if getattr(out, "shape", None) != () or not jnp.issubdtype(out.dtype, jnp.floating):
            raise ValueError(f"the log density must be one real number, not {out}.")
        return TracedObservation(density, None)


def _covariance(given: Any) -> np.ndarray:
    R = np.asarray(validation.numbers("covariance", given, kinds="fiu"), np.float64)
    if R.ndim != 2 or R.shape[0] != R.shape[1] or not np.all(np.isfinite(R)):
        raise ValueError(f"covariance must be a finite square matrix, not an array of shape {R.shape}.")
    if not np.allclose(R, R.T, rtol=1e-12, atol=0) or np.linalg.eigvalsh(R).min() <= 0:
        raise ValueError("covariance must be symmetric and positive definite.")
    return R


def _arguments(name: str, fn: Callable, first: tuple[str, ...], system: System) -> tuple[bool, tuple[str, ...]]:
    return more_arguments(name, fn, first, system.params is not None, ("t", "g"))


def _state(system: System) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(system.algebra.shape, system.algebra.dtype)


def _like(shape: tuple[int, ...]) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float64)


def _shape_of(function: MemberFunction, system: System, first: list) -> Any:
    """Shape and type of the value."""
    algebra = system.algebra
    g = jax.eval_shape(algebra.group_exp, _state(system)) if "g" in function.names else None
    call = lambda *x: function(*x[:-2], params=system.params, t=x[-2], g=x[-1])
    return jax.eval_shape(call, *first, _like(()), g)


def _check_shape(function: MemberFunction, system: System, shape: tuple[int, ...]) -> None:
    """Raise unless H(μ) is real and has the shape of an observation."""
    out = _shape_of(function, system, [_state(system)])
    _check_real(out)
    if out.shape != shape:
        raise ValueError(
            f"observations must have shape (times, {', '.join(map(str, out.shape))}), as the function returns shape "
            f"{out.shape}, but each observation has shape {shape}."
        )


def _check_real(out: Any) -> None:
    """Raise unless a value is one real array."""
    if not isinstance(out, jax.ShapeDtypeStruct) or jnp.issubdtype(out.dtype, jnp.complexfloating):
        raise ValueError(f"the function of an observation must return one real array, not {out}.")
