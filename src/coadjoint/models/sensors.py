"""Sensors of a spacecraft: synthetic measurements, and their log densities for filters."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..algebras.so3 import SO3
from ..numerics import random, validation
from ..numerics.quaternions import quaternion_to_rotation, rotation_to_quaternion


class _Sensor(eqx.Module):
    """Three Gaussian errors."""

    noise: Float[Array, "3"]

    def __init__(self, noise: Any):
        self.noise = jnp.asarray(noise) if validation.is_traced(noise) else _deviations(noise)

    def _error(self, key: Any) -> Float[Array, "3"]:
        return self.noise * random.initial_normals(key, 3, 1)[0]

    def _density(self, error: Array) -> Float[Array, ""]:
        scaled = error / self.noise
        return -0.5 * jnp.sum(scaled * scaled) - jnp.sum(jnp.log(self.noise)) - 1.5 * np.log(2.0 * np.pi)


class Gyro(_Sensor):
    """A gyro measures y = ω + b + noise, with independent Gaussian noise in each sample.

    The bias b changes slowly. The argument `gyro_drift` of `models.spacecraft` adds it to the state as a random walk.

    Parameters
    ----------
    noise : float or array_like, shape (3,)
        The standard deviation of one sample in rad/s.
    """

    def measure(self, key: Any, rate: Any, bias: Any = 0.0) -> Float[Array, "3"]:
        """One synthetic measurement.

        Parameters
        ----------
        key : int or JAX key
            Selects the noise.
        rate : array, shape (3,)
            ω in the body frame.
        bias : array, shape (3,), default 0.0
            b.

        Returns
        -------
        array, shape (3,)
            y.
        """
        return jnp.asarray(rate) + bias + self._error(key)

    def error(self, y: Any, rate: Any, bias: Any = 0.0) -> Float[Array, "3"]:
        """The noise in a measurement y, if ω and b have these values.

        Parameters
        ----------
        y : array, shape (3,)
            The measurement.
        rate, bias : array, shape (3,)
            As for `measure`.

        Returns
        -------
        array, shape (3,)
            y − ω − b.
        """
        return jnp.asarray(y) - rate - bias

    def log_density(self, y: Any, rate: Any, bias: Any = 0.0) -> Float[Array, ""]:
        """The log density of a measurement y, if ω and b have these values.

        Parameters
        ----------
        y : array, shape (3,)
            The measurement.
        rate, bias : array, shape (3,)
            As for `measure`.

        Returns
        -------
        float
        """
        return self._density(self.error(y, rate, bias))


class StarTracker(_Sensor):
    """A star tracker measures the attitude R exp(θ), with a small random rotation θ about the body axes.

    Parameters
    ----------
    noise : float or array_like, shape (3,)
        The standard deviations of θ in rad. About the boresight it is often ten times as large.
    """

    def measure(self, key: Any, attitude: Any) -> Float[Array, "4"]:
        """One synthetic measurement.

        Parameters
        ----------
        key : int or JAX key
            Selects the noise.
        attitude : array, shape (3, 3)
            The rotation R from the body frame to inertial space.

        Returns
        -------
        array, shape (4,)
            A unit quaternion (w, x, y, z) with w ≥ 0.
        """
        return rotation_to_quaternion(jnp.asarray(attitude) @ SO3().group_exp(self._error(key)))

    def error(self, q: Any, attitude: Any) -> Float[Array, "3"]:
        """The rotation vector θ in a measurement q, if the attitude is R: the measured attitude is R exp(θ).

        Parameters
        ----------
        q : array, shape (4,)
            The measured quaternion, with either sign.
        attitude : array, shape (3, 3)
            R.

        Returns
        -------
        array, shape (3,)
            θ, of a length of at most π.
        """
        w, *rest = rotation_to_quaternion(jnp.asarray(attitude).T @ quaternion_to_rotation(jnp.asarray(q)))
        v = jnp.stack(rest)
        x = v @ v
        length = jnp.sqrt(jnp.where(x > 1e-12, x, 1.0))
        half = jnp.where(x > 1e-12, jnp.arctan2(length, w) / length, 1.0 + x / 6.0)
        return 2.0 * half * v

    def log_density(self, q: Any, attitude: Any) -> Float[Array, ""]:
        """The log density of the rotation vector θ of a measurement q, if the attitude is R.

        Parameters
        ----------
        q : array, shape (4,)
            The measured quaternion, with either sign.
        attitude : array, shape (3, 3)
            R.

        Returns
        -------
        float
        """
        return self._density(self.error(q, attitude))


def _deviations(noise: Any) -> Array:
    array = np.asarray(validation.numbers("noise", noise, kinds="fiu"), dtype=np.float64)
    if array.shape not in ((), (3,)) or not np.all(np.isfinite(array)) or not np.all(array > 0):
        raise ValueError(f"noise must be one number above 0 or three, not {array.tolist()}.")
    return jnp.asarray(np.broadcast_to(array, (3,)))
