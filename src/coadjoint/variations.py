"""Systems whose params and noise amplitudes are functions of time, or numbers that vary by member."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from stepcompiler.jaxprs.interning import Function, intern

from .algebras.base import Element, State
from .callables import received_values
from .controls import Hold, Law
from .inputs import uses_of
from .noises import Noise, Stirring
from .numerics import validation
from .numerics.signatures import check_function, check_signature, described
from .params import Context, fit_params
from .systems import System

_KINDS = ("noise", "stirring")


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
    entry "system" for those of the original system, unless `params` is a function of time alone:

        ramp = cj.vary(system, noise=lambda t: 0.1 * t)
        many = cj.ensemble(cj.vary(system, stirring=1.0), mu0, params={"stirring": amplitudes}, ...)
        quench = cj.vary(bath, params=lambda t: {"temperature": jnp.exp(-t), "friction": 0.1})
        cooling = cj.vary(bath, params=lambda p, t: p | {"temperature": p["temperature"] * jnp.exp(-t)})

    Parameters
    ----------
    system : System
        The system, such as that of a model or of `heat_bath`.
    noise : float or callable, optional
        A factor of all noise other than stirring: a number, or a function of time.
    stirring : float or callable, optional
        The same for white stirring of fluids and white torques.
    params : callable, optional
        A function of time, params(t), that returns the params of the original system. A function params(params, t) also
        receives params, which are then the entry "system" of the params of the new system, and can vary by member.

    Returns
    -------
    System

    Raises
    ------
    TypeError, ValueError
        If the system has no such noise or params, or noise that depends on `g` or `u`.
    """
    _check(system, noise, stirring, params)
    rates = {name: rate for name, rate in (("noise", noise), ("stirring", stirring)) if rate is not None}
    numbers = {name: jnp.asarray(rate, float) for name, rate in rates.items() if not callable(rate)}
    of_params = params is not None and _takes_params(params)
    if system.params is not None and (params is None or of_params):
        numbers["system"] = system.params
    timed = params is not None or any(map(callable, rates.values()))
    names = system.received | ({"t"} if timed else set())

    def inside(x: Context, received: frozenset[str] = system.received) -> tuple:
        """The last argument of the functions of the system inside, if they have one, from that of the new ones."""
        own = x.params.get("system") if x.params else None
        if params is not None:
            own = fit_params(system.params, system._fixed, params(own, x.t) if of_params else params(x.t))
        if received:
            return (Context(own, **{name: getattr(x, name) for name in received}),)
        return () if system.params is None else (own,)

    wrap = _Wrapping(bool(numbers), inside, frozenset(names))
    amplitude = lambda name: lambda x: _amplitude(rates.get(name), name, x)
    values = received_values(system.algebra, names, system.control_zero)
    last = Context(numbers or None, **values) if names else numbers
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(jnp.shape(x), jnp.result_type(x)), last)
    context = lambda x: x if names else Context(x)
    arguments = intern(lambda x: (*inside(context(x)), None)[0], shapes)
    by_kind = {name: intern(lambda x, name=name: amplitude(name)(context(x)), shapes) for name in _KINDS}
    varied = [
        Stirring(size=n.size, fields=VariedNoise(n.fields, by_kind["stirring"], arguments), factor=n.factor)
        if isinstance(n, Stirring) else VariedNoise(n, by_kind["noise"], arguments)
        for n in system.noises
    ]  # fmt: skip
    laws = {name: wrap.hold(law, system.received) for name, law in zip(system.law_names, system.laws, strict=True)}
    new = System(
        system.algebra,
        [wrap(h) for h in system.parts] if system.parts else wrap(system.h),
        varied,
        side=system.side,  # pyright: ignore[reportArgumentType]
        params=numbers or None,
        gradient=None if system.grad_h is None else wrap(system.grad_h),
        forcing=[wrap(f) for f in system.forces],
        torque=[wrap(f) for f in system.torques],
        dissipation=None if system.dissipation is None else wrap(system.dissipation, ("mu", "dt")),
        control=(laws.get(None) or laws) if laws else None,
        flow=system.flow,
    )
    h_receives = system.h_receives | ({"t"} if timed else set())
    used = [use for name, rate in rates.items() if callable(rate) for use in uses_of(name, rate)]
    return new._with(inputs=tuple(dict.fromkeys((*system.inputs, *new.inputs, *used))), h_receives=h_receives)


class _Wrapping(NamedTuple):
    """Makes functions of the new system from traced functions of the system inside."""

    has_params: bool
    inside: Callable[..., tuple]
    names: frozenset[str]  # that functions of the new system receive

    def __call__(
        self, function: Callable, first: tuple[str, ...] = ("mu",), received: frozenset[str] | None = None
    ) -> Callable:
        """A function with the arguments `first`, params, and the names; the one inside receives those in `received`."""
        own = sorted(self.names if received is None else self.names - {"u"})

        def call(*args: PyTree) -> PyTree:
            rest = list(args[len(first) :])
            p = rest.pop(0) if self.has_params else None
            x = Context(p, **dict(zip(own, rest, strict=True)))
            return function(*args[: len(first)], *(self.inside(x) if received is None else self.inside(x, received)))

        arguments = (*first, *(["params"] if self.has_params else []), *own)
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        call.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in arguments])  # type: ignore[attr-defined]
        return call

    def hold(self, law: Law, received: frozenset[str]) -> Hold:
        """A law of the control, which does not receive u."""
        own = received - {"u"}
        if law.state is None:
            return Hold(self(lambda mu, *last: law.function(mu, None, *last)[0], ("mu",), own), law.every, None)
        return Hold(self(law.function, ("mu", "state"), own), law.every, law.state)


def _amplitude(rate: Any, name: str, x: Context) -> Array:
    value = rate(x.t) if callable(rate) else (x.params or {}).get(name, 1.0)
    return jnp.asarray(value, float)


def _takes_params(params: Any) -> bool:
    """Whether a function of time also receives params."""
    if not callable(params):
        raise TypeError(f"params must be a function of time, not {described(params)}.")
    return check_signature("params", params, ("t",), ("params", "t")) == ("params", "t")


def _check(system: Any, noise: Any, stirring: Any, params: Any) -> None:
    if not isinstance(system, System):
        raise TypeError(f"vary takes a System, not {described(system)}.")
    if system.noise_receives & {"g", "u"}:
        raise ValueError("vary does not support noise that depends on g or u.")
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
