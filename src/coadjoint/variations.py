"""Systems whose params and noise amplitudes are functions of time, or numbers that vary by member."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from stepcompiler.jaxprs.interning import Function, intern

from .algebras.base import Element, State
from .noises import Noise, Stirring
from .numerics import validation
from .numerics.signatures import check_function, described
from .params import Context, fit_params
from .systems import System


class VariedNoise(Noise):
    """Noise with other params, times an amplitude."""

    traced: ClassVar[bool] = True
    noise: Noise
    amplitude: Function  # of the last argument of the new system's functions
    params: Function  # of the same: the last argument of the functions of the system inside
    size: int = eqx.field(static=True)
    additive: bool = eqx.field(static=True)

    def __init__(self, noise: Noise, amplitude: Function, params: Function):
        self.noise, self.amplitude, self.params = noise, amplitude, params
        self.size, self.additive = noise.size, noise.additive

    def apply(self, mu: State, dS: Float[Array, " M"], params: PyTree = None) -> Element:
        """Σ_i ∂h_i/∂μ(μ) dS^i, times the amplitude."""
        return self.noise.apply(mu, self.amplitude(params) * dS, self.params(params))

    @property
    def groups(self) -> Sequence[np.ndarray]:
        """The groups of the noise inside."""
        return self.noise.groups


def vary(system: System, *, noise: Any = None, stirring: Any = None, params: Callable | None = None) -> System:
    """Make amplitudes of noise and params of a system functions of time, or numbers that vary by member.

    Amplitudes that are numbers become parameters of the new system, {"noise": a, "stirring": b}. Its params have the
    entry "system" for those of the original system, unless `params` is given:

        ramp = cj.vary(system, noise=lambda t: 0.1 * t)
        many = cj.ensemble(cj.vary(system, stirring=1.0), mu0, params={"stirring": amplitudes}, ...)
        quench = cj.vary(bath, params=lambda t: {"temperature": jnp.exp(-t), "friction": 0.1})

    Parameters
    ----------
    system : System
        The system, such as that of a model or of `heat_bath`.
    noise : float or callable, optional
        A factor of all noise other than stirring: a number, or a function of time.
    stirring : float or callable, optional
        The same for white stirring of fluids and white torques.
    params : callable, optional
        A function of time that returns the params of the original system.

    Returns
    -------
    System

    Raises
    ------
    TypeError, ValueError
        If the system has no such noise or params, or functions of `g` or `u`.
    """
    _check(system, noise, stirring, params)
    rates = {name: rate for name, rate in (("noise", noise), ("stirring", stirring)) if rate is not None}
    numbers = {name: jnp.asarray(rate, float) for name, rate in rates.items() if not callable(rate)}
    if system.params is not None and params is None:
        numbers["system"] = system.params
    timed = system.timed or params is not None or any(map(callable, rates.values()))

    def own(p: PyTree, t: Any) -> PyTree:
        return p.get("system") if params is None else fit_params(system.params, system._fixed, params(t))

    def inside(p: PyTree, t: Any) -> tuple:
        return _last(system, own(p, t), t)

    def of(function: Callable, *first: str) -> Callable:
        """A function of (mu, …, params, t) with the arguments that functions of the new system have."""
        if not timed:
            return (lambda mu, dt, p: function(mu, dt, *inside(p, None))) if first else (
                lambda mu, p: function(mu, *inside(p, None))
            )  # fmt: skip
        if not numbers:
            return (lambda mu, dt, t: function(mu, dt, *inside({}, t))) if first else (
                lambda mu, t: function(mu, *inside({}, t))
            )  # fmt: skip
        return (lambda mu, dt, p, t: function(mu, dt, *inside(p, t))) if first else (
            lambda mu, p, t: function(mu, *inside(p, t))
        )  # fmt: skip

    last = Context(numbers or None, np.zeros(())) if timed else numbers
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(jnp.shape(x), jnp.result_type(x)), last)
    given = lambda x: ((x.params or {}), x.t) if timed else (x, None)

    def amplitude(name: str) -> Function:
        def value(x: PyTree) -> Array:
            p, t = given(x)
            rate = rates.get(name, 1.0)
            return jnp.asarray(rate(t) if callable(rate) else p.get(name, 1.0), float)

        return intern(value, shapes)

    arguments = intern(lambda x: (*inside(*given(x)), None)[0], shapes)
    varied = [
        Stirring(size=n.size, fields=VariedNoise(n.fields, amplitude("stirring"), arguments), factor=n.factor)
        if isinstance(n, Stirring) else VariedNoise(n, amplitude("noise"), arguments)
        for n in system.noises
    ]  # fmt: skip
    return System(
        system.algebra,
        [of(h) for h in system.parts] if system.parts else of(system.h),
        varied,
        side=system.side,  # pyright: ignore[reportArgumentType]
        params=numbers or None,
        gradient=None if system.grad_h is None else of(system.grad_h),
        forcing=[of(f) for f in system.forces],
        torque=[of(f) for f in system.torques],
        dissipation=None if system.dissipation is None else of(system.dissipation, "dt"),
        flow=system.flow,
    )


def _last(system: System, params: PyTree, t: Any) -> tuple:
    """The last argument of traced functions of the system inside, if they have one."""
    if system.timed:
        return (Context(params, t),)
    return () if system.params is None else (params,)


def _check(system: Any, noise: Any, stirring: Any, params: Any) -> None:
    if not isinstance(system, System):
        raise TypeError(f"vary takes a System, not {described(system)}.")
    if system.has_attitude or system.laws:
        raise ValueError("vary does not support functions of g or u: give these functions an argument t or params.")
    has = {"stirring": any(isinstance(n, Stirring) for n in system.noises)}
    has["noise"] = any(not isinstance(n, Stirring) for n in system.noises)
    for name, rate in (("noise", noise), ("stirring", stirring)):
        if rate is None:
            continue
        if not has[name]:
            raise ValueError(f"vary: {name} was given, but the system has no {name}.")
        if callable(rate):
            check_function(name, rate, ("t",), what="time")
        elif not validation.is_traced(rate) and (np.ndim(rate) != 0 or not np.isfinite(float(rate))):
            raise ValueError(f"{name} must be a finite number or a function of time, not {rate!r}.")
    if params is not None:
        if system.params is None:
            raise ValueError("vary: params was given, but the system has none.")
        check_function("params", params, ("t",), what="time")
