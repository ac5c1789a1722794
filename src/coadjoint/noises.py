"""Noise: the terms of a system that a random path drives."""

import abc
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree

from stepcompiler.jaxprs.interning import Constant, Function

from .algebras.base import Element, State
from .numerics import validation
from .numerics.signatures import MEANINGS, check_function, special_arguments
from .params import Context


class Noise(eqx.Module):
    """The interface of noise: Hamiltonians h_1 … h_M treated together.

    A subclass defines three names:

    - `size`: M, the number of noises.
    - `apply(self, mu, dS)`, or `apply(self, mu, dS, params)`: the element Σ_i ∂h_i/∂μ(μ) dS^i of the algebra. You need
      not form the fields one by one. `params` are those of the system, or None. A last argument `t` receives the time.
    - `additive`: True if no ∂h_i depends on μ (SALT).

    Method arguments
    ----------------
    mu : array, shape `algebra.shape`
        The state.
    dS : array, shape (M,)
        The increments of the driving path.
    params : pytree, optional
        The params of the system.
    """

    traced: ClassVar[bool] = False  # whether `apply` takes the last argument of the system's traced functions as it is
    size: eqx.AbstractVar[int]
    additive: eqx.AbstractVar[bool]

    @abc.abstractmethod
    def apply(self, mu: State, dS: Float[Array, " M"], params: PyTree = None) -> Element:
        """Σ_i ∂h_i/∂μ(μ) dS^i."""

    @property
    def groups(self) -> Sequence[np.ndarray]:
        """A partition of the noises, as masks, into groups that commute. By default each noise is a group."""
        return list(np.eye(self.size))


class Salt(Noise):
    """Stochastic advection by Lie transport: h_i(μ) = <μ, β_i>, so ∂h_i = β_i (Holm 2015)."""

    beta: Array  # (M, *algebra.shape)
    additive: bool = eqx.field(default=True, static=True, init=False)

    def __init__(self, beta: Array):
        self.beta = beta

    @property
    def size(self) -> int:
        """The number of fields."""
        return self.beta.shape[0]

    def apply(self, mu: State, dS: Float[Array, " M"], params: PyTree = None) -> Element:
        """Σ_i β_i dS^i."""
        return jnp.tensordot(dS, self.beta, axes=1)


class SaltOfParams(Noise):
    """SALT noise whose fields are a function of the params: h_i(μ) = <μ, β_i(params)>."""

    traced: ClassVar[bool] = True
    size: int = eqx.field(static=True)
    beta: Function  # of params, and of the time: (M, *algebra.shape)
    additive: bool = eqx.field(default=True, static=True, init=False)

    def __init__(self, size: int, beta: Function):
        self.size, self.beta = size, beta

    def apply(self, mu: State, dS: Float[Array, " M"], params: PyTree = None) -> Element:
        """Σ_i β_i(params) dS^i."""
        return jnp.tensordot(dS, self.beta(params), axes=1)


class DeferredSalt:
    """What `salt` gives for functions of params or of the time, until a system takes it."""

    def __init__(self, beta: Callable | Salt, scale: Callable | None = None):
        self.beta, self.scale = beta, scale


class HamiltonianNoise(Noise):
    """One noise Hamiltonian: any function of the state."""

    traced: ClassVar[bool] = True
    algebra: Constant = eqx.field(static=True)
    h: Function
    takes_params: bool = eqx.field(static=True)
    size: int = eqx.field(default=1, static=True, init=False)
    additive: bool = eqx.field(default=False, static=True, init=False)

    def apply(self, mu: State, dS: Float[Array, "1"], params: PyTree = None) -> Element:
        """∂h_1/∂μ(μ) dS¹."""
        args = (params,) if self.takes_params else ()
        return self.algebra.value.gradient(lambda m: self.h(m, *args), mu) * dS[0]


class MixedNoise(Noise):
    """Noises driven by correlated channels, dS = L dB: as noises that are driven by independent channels dB."""

    traced: ClassVar[bool] = True
    noises: tuple[Noise, ...]
    mixing: Float[Array, "M M"]  # L
    size: int = eqx.field(static=True)
    additive: bool = eqx.field(static=True)

    def apply(self, mu: State, dS: Float[Array, " M"], params: PyTree = None) -> Element:
        """Σ_i ∂h_i/∂μ(μ) (L dB)^i."""
        total: Any = 0.0
        rest = self.mixing @ dS
        for n in self.noises:
            total, rest = total + n.apply(mu, rest[: n.size], params), rest[n.size :]
        return total


def mixed(noises: Sequence[Noise], mixing: np.ndarray) -> tuple[Noise, ...]:
    """The noises as driven by independent channels dB, if their own channels are L dB."""
    if any(isinstance(n, Stirring) for n in noises):
        raise ValueError("correlation is not supported with white noise in a torque or with stirring of a fluid.")
    if all(isinstance(n, Salt) for n in noises):
        beta = jnp.concatenate([n.beta for n in noises if isinstance(n, Salt)])
        return (Salt(jnp.tensordot(jnp.asarray(mixing.T), beta, axes=1)),)
    size, additive = len(mixing), all(n.additive for n in noises)
    return (MixedNoise(noises=tuple(noises), mixing=jnp.asarray(mixing), size=size, additive=additive),)


class Stirring(Noise):
    """White noise Σ_i f_i dS^i that is added to the state itself, so the state leaves its orbit."""

    size: int = eqx.field(static=True)
    fields: Noise  # whose elements, times `factor`, are the f_i
    factor: float = eqx.field(static=True)
    additive: bool = eqx.field(default=True, static=True, init=False)

    def apply(self, mu: State, dS: Float[Array, " M"], params: PyTree = None) -> Element:
        """Zero: stirring does not act along the orbit."""
        return jnp.zeros_like(mu)

    def stirring_increment(self, dS: Float[Array, " M"], params: PyTree = None) -> State:
        """Σ_i f_i dS^i."""
        return self.factor * self.fields.apply(None, dS, params)  # type: ignore[arg-type]


def is_constant(noise: Noise, alone: bool) -> bool:
    """Whether the fields of an additive noise are constants; `alone` if the system's functions get the state only."""
    if isinstance(noise, MixedNoise):
        return all(is_constant(n, alone) for n in noise.noises)
    fields = noise.fields if isinstance(noise, Stirring) else noise
    return alone or isinstance(fields, Salt)


class WhiteTorque:
    """The result of `white_torque`, before a system uses it."""

    def __init__(self, fields: Any):
        self.fields = fields


class ObjectNoise(Noise):
    """A traced user object with `size` and `apply(mu, dS)` or `apply(mu, dS, params)`."""

    traced: ClassVar[bool] = True
    size: int = eqx.field(static=True)
    field: Function
    additive: bool = eqx.field(static=True)
    takes_params: bool = eqx.field(static=True)

    def apply(self, mu: State, dS: Float[Array, " M"], params: PyTree = None) -> Element:
        """Σ_i ∂h_i/∂μ(μ) dS^i."""
        return self.field(mu, dS, *((params,) if self.takes_params else ()))


class UserNoise(Noise):
    """A subclass of `Noise` whose `apply` does not take all that traced functions of the system take."""

    traced: ClassVar[bool] = True
    noise: Noise
    takes: tuple[str, ...] = eqx.field(static=True)  # the arguments of its `apply` after mu and dS
    context: bool = eqx.field(static=True)  # whether the last argument is a `Context`
    size: int = eqx.field(static=True)
    additive: bool = eqx.field(static=True)

    def __init__(self, noise: Noise, takes: tuple[str, ...], context: bool):
        self.noise, self.takes, self.context = noise, takes, context
        self.size, self.additive = noise.size, bool(noise.additive)

    def apply(self, mu: State, dS: Float[Array, " M"], params: PyTree = None) -> Element:
        """Σ_i ∂h_i/∂μ(μ) dS^i."""
        given = params if self.context else Context(params)
        return self.noise.apply(mu, dS, *(getattr(given, name) for name in self.takes))

    @property
    def groups(self) -> Sequence[np.ndarray]:
        """The groups of the noise inside."""
        return self.noise.groups


def salt(beta: Any, scale: Callable[[PyTree], Any] | None = None) -> Any:
    """SALT noise (stochastic advection by Lie transport) with the Hamiltonians h_i(μ) = <μ, β_i>.

    Amplitudes that depend on `params` can be fitted and can vary by member of an ensemble. An argument `t` receives the
    time:

        System(SO3(), h, [salt(lambda p: p["beta"])], params={"beta": beta})
        System(SO3(), h, [salt(beta, scale=lambda p: p["sigma"])], params={"sigma": 0.1})
        System(SO3(), h, [salt(beta, scale=lambda t: 0.1 * jnp.exp(-t))])

    Parameters
    ----------
    beta : array_like or callable
        One element of the algebra, or a stack of M elements along a new first axis. The system distinguishes the two by
        the shape. A function `beta(params)`, `beta(t)` or `beta(params, t)` returns such an array.
    scale : callable, optional
        A function `scale(params)`, `scale(t)` or `scale(params, t)` that returns one number, or M numbers.
        They multiply `beta`.

    Returns
    -------
    Salt
        An entry for `System(…, noise=[…])`.

    Raises
    ------
    TypeError, ValueError
        If `beta` is not finite or not numeric, or if both `beta` and `scale` are functions.
    """  # fmt: skip
    if scale is not None and not callable(scale):
        raise TypeError(
            f"scale must be a function of params, not {type(scale).__name__}: salt({scale!r} * beta) needs none."
        )
    if scale is not None:
        check_function("scale", scale, *_signatures(scale), what="params")
    if callable(beta):
        check_function("beta", beta, *_signatures(beta), what="params")
        if scale is not None:
            raise TypeError(
                "give salt a function beta(params), or an array beta and a function scale(params), not both."
            )
        return DeferredSalt(beta)
    fixed = _fixed_salt(beta)
    return fixed if scale is None else DeferredSalt(fixed, scale)


def white_torque(f: Any, scale: Callable[..., Any] | None = None) -> Any:
    """White noise in the torque, Σ_i f_i dS^i, for `System(…, noise=[…])`. The state leaves its orbit.

    Parameters
    ----------
    f : array_like or callable
        One state, or a stack of M states along a new first axis, or a function of params or of time, as in `salt`.
    scale : callable, optional
        A function of params or of time that returns one number or M numbers. They multiply `f`.

    Returns
    -------
    WhiteTorque
        An entry for `System(…, noise=[…])`.

    Raises
    ------
    TypeError, ValueError
        If `f` is not finite or not numeric, or if both `f` and `scale` are functions.
    """
    return WhiteTorque(salt(f, scale))


def _signatures(fn: Callable) -> list[tuple[str, ...]]:
    """Those that `beta` and `scale` may have. Whether `u` is the control or params is known to the system alone."""
    special = special_arguments(fn, tuple(MEANINGS))
    plain = [("params",)] if special in ((), ("u",)) else []
    return [*plain, special, ("params", *special)] if special else plain


def _fixed_salt(beta: Any) -> Salt:
    array = jnp.asarray(validation.numbers("beta", beta))
    if not validation.is_traced(array) and not np.all(np.isfinite(np.asarray(array))):
        raise ValueError("beta must be finite: it has a NaN or an infinity.")
    return Salt(array)


@eqx.filter_jit
def commute(system: Any) -> Bool[Array, ""]:
    """Whether all brackets of SALT fields vanish, up to round-off."""
    algebra, size = system.algebra, lambda x: jnp.max(jnp.abs(x))
    beta = jax.vmap(lambda e: system.noise(jnp.zeros(algebra.shape, algebra.dtype), e))(jnp.eye(system.n_noise))
    brackets = jax.vmap(lambda a: jax.vmap(lambda b: size(algebra.bracket(a, b)))(beta))(beta)
    sizes = jax.vmap(size)(beta)
    return jnp.all(brackets <= 1e-14 * sizes[:, None] * sizes)
