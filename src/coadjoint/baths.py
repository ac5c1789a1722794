"""Friction and temperature on coadjoint orbits: double brackets and heat baths.

Let e_1 … e_M be any elements of the algebra and ν♯ = Σ_i e_i <ν, e_i>. The friction θ adds the element

    g(μ) = s θ (ad*_{∂h} μ)♯

to the gradient. On the orbit h then falls at the rate θ Σ_i <ad*_{∂h}μ, e_i>². Add the noises σ e_i ∘ dWⁱ with
σ² = 2θT. The density exp(−h/T) with respect to the Liouville measure of the orbit is then stationary:
X_i = s ad*_{e_i} μ is a Hamiltonian vector field, so its divergence is zero, and
−div(p V) + ½σ² Σ_i X_i X_i p = 0 for V = −θ Σ_i X_i(h) X_i. No invariant metric is needed.
For so(3), left: dΠ = Π×Ω dt + θ Π×(Π×Ω) dt + σ Σ_i Π×e_i ∘ dWⁱ.

References: Bloch, Krishnaprasad, Marsden and Ratiu, The Euler–Poincaré equations and double bracket dissipation (1996);
Arnaudon, De Castro and Holm, Noise and dissipation on coadjoint orbits (2018).
"""  # fmt: skip

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from stepcompiler.jaxprs.interning import Constant, Function, intern

from .algebras.base import Element, LieAlgebra, State
from .algebras.product import Product
from .inputs import uses_of
from .noises import Noise
from .numerics import validation
from .numerics.signatures import check_function
from .params import Context
from .states import check_elements
from .systems import System

_LARGEST = 200  # largest dimension for the check that exp(−h/T) can be normalised


def double_bracket(system: System, *, friction: Any, fields: Any = None) -> System:
    """Add friction that stays on the orbit to a system (double-bracket damping).

    The forcing is

        g = s θ (ad*_{∂h} μ)♯,   ν♯ = Σ_i e_i <ν, e_i>.

    It lowers the energy h along the orbit. The new system has the parameters {"friction": θ} and, if the original
    system has parameters, "system". So θ can vary by member and can be differentiated.

    Parameters
    ----------
    system : System
        The system without friction.
    friction : float, array_like or callable
        θ > 0, a rate per unit of h, or a function θ(t) of time. On a `Product` also one for each factor, site after
        site: none below 0, and not all 0.
    fields : array_like, optional
        e_1 … e_M, a stack of elements of the algebra, or one element. The default is a basis that is orthonormal in the
        pairing, for which ν♯ = ν in coordinates.

    Returns
    -------
    System

    Raises
    ------
    TypeError, ValueError
        If `friction` is no positive number or array by factor, or if `fields` are not elements of the algebra.
    """
    _check_system("double_bracket", system)
    return _bathed(system, {"friction": friction}, _fields(system, fields))


def heat_bath(system: System, *, temperature: Any, friction: Any, fields: Any = None) -> System:
    """Put a system into a heat bath: friction θ, and noise σ e_i ∘ dWⁱ with σ² = 2θT.

    The equation is

        dμ = s ( ad*_{∂h + g} μ dt + σ Σ_i ad*_{e_i} μ ∘ dWⁱ ),   g = s θ (ad*_{∂h} μ)♯,   ν♯ = Σ_i e_i <ν, e_i>.

    The distribution exp(−h/T) on each orbit is stationary. It is the only stationary distribution if the fields reach
    the whole orbit. The new system has the parameters {"temperature": T, "friction": θ} and, if the original system has
    parameters, "system". So T and θ can vary by member and can be differentiated.

    Parameters
    ----------
    system : System
        The system without friction and noise.
    temperature : float, array_like or callable
        T > 0, in the units of h, or a function T(t) of time, as in annealing. On a `Product`, such as a spin lattice,
        also one temperature for each factor, site after site. No temperature may be below 0, and not all may be 0.
    friction : float, array_like or callable
        θ > 0, a rate per unit of h, or a function θ(t) of time; on a `Product` also one for each factor. A site with
        θ = 0 has no contact with the bath. exp(−h/T) is stationary if all sites in contact have the same temperature.
    fields : array_like, optional
        e_1 … e_M, a stack of elements of the algebra, or one element. The default is a basis that is orthonormal in the
        pairing, so M is the dimension of the algebra. Rates by factor need the default.

    Returns
    -------
    System

    Raises
    ------
    TypeError, ValueError
        If `temperature` or `friction` is no positive number or array by factor, or if `fields` are not elements of the
        algebra.

    Warns
    -----
    UserWarning
        If exp(−h/T) appears not to be normalisable, or if the system has noise or forcing of its own.
    """  # fmt: skip
    _check_system("heat_bath", system)
    own = [
        what for what, has in (("noise", system.n_noise), ("forcing", system.forces), ("torque", system.torques)) if has
    ]
    if own:
        validation.warn(
            f"heat_bath: the system has {' and '.join(own)} of its own beside the bath, so that exp(−h/T) need not be "
            "stationary (for a model, alpha=None leaves its noise out).",
            UserWarning,
        )
    word = _unbounded(system.at(0.0))
    if word is not None:
        validation.warn(f"heat_bath: exp(−h/T) may not be normalisable on the orbits: {word}", UserWarning)
    return _bathed(system, {"friction": friction, "temperature": temperature}, _fields(system, fields))


class _BathNoise(Noise):
    """σ Σ_i e_i dWⁱ with σ² = 2θT. Without fields it is the element with the coordinates σ dW."""

    traced: ClassVar[bool] = True
    algebra: Constant = eqx.field(static=True)
    size: int = eqx.field(static=True)
    fields: Array | None
    sigma2: Function  # of the last argument of the system's functions
    additive: bool = eqx.field(default=True, static=True, init=False)

    def __init__(self, algebra: LieAlgebra, fields: Array | None, sigma2: Function):
        self.algebra, self.fields, self.sigma2 = Constant(algebra), fields, sigma2
        self.size = algebra.dim if fields is None else len(fields)

    def apply(self, mu: State, dS: Float[Array, " M"], params: PyTree = None) -> Element:
        """σ Σ_i e_i dWⁱ."""
        sigma2 = self.sigma2(params)
        if jnp.ndim(sigma2):  # by factor, where 0 has a derivative of 0
            positive = sigma2 > 0.0
            sigma = jnp.where(positive, jnp.sqrt(jnp.where(positive, sigma2, 1.0)), 0.0)
            return self.algebra.value.element(_spread(self.algebra.value, sigma) * dS)
        sigma = jnp.sqrt(sigma2)
        if self.fields is None:
            return self.algebra.value.element(sigma * dS)
        return jnp.tensordot(sigma * dS, self.fields, axes=1)

    @property
    def groups(self) -> Sequence[np.ndarray]:
        """The groups of the basis."""
        return super().groups if self.fields is not None else self.algebra.value.commuting_blocks


class _Inner(Noise):
    """The noise of a system inside a bath, whose params are one entry of the params of the bath."""

    traced: ClassVar[bool] = True
    noise: Noise
    timed: tuple[bool, bool] = eqx.field(static=True)  # whether the bath depends on time, and the system inside
    size: int = eqx.field(static=True)
    additive: bool = eqx.field(static=True)

    def __init__(self, noise: Noise, timed: tuple[bool, bool]):
        self.noise, self.timed, self.size, self.additive = noise, timed, noise.size, noise.additive

    def apply(self, mu: State, dS: Float[Array, " M"], params: PyTree = None) -> Element:
        """Σ_i ∂h_i/∂μ(μ) dS^i."""
        given = params if self.timed[0] else Context(params)
        own = given.params.get("system")
        return self.noise.apply(mu, dS, Context(own, given.t) if self.timed[1] else own)

    @property
    def groups(self) -> Sequence[np.ndarray]:
        """The groups of the noise inside."""
        return self.noise.groups


def _bathed(system: System, rates: dict[str, Any], fields: Array | None) -> System:
    """The system with friction, and with noise if the rates have a temperature."""
    algebra, s = system.algebra, system.sign
    sites = len(algebra.factors) if isinstance(algebra, Product) and fields is None else None
    functions = {name: _function_of_time(name, rate, sites) for name, rate in rates.items() if callable(rate)}
    params = {name: _positive(name, rate, sites) for name, rate in rates.items() if name not in functions}
    if system.params is not None:
        params["system"] = system.params
    timed = system.timed or bool(functions)

    def rate(name: str, p: PyTree, t: Any) -> Array:
        return functions[name](t) if name in functions else p[name]

    def inside(p: PyTree, t: Any) -> System:
        return (system if system.params is None else system.given(p["system"])).at(t)

    def of_bath(function: Callable) -> Callable:
        """A function of (mu, params, t) with the arguments that functions of the bath have."""
        return (lambda mu, p, t: function(mu, p, t)) if timed else lambda mu, p: function(mu, p, None)

    def inner(function: Callable) -> Callable:
        return of_bath(lambda mu, p, t: function(mu, *inside(p, t).arguments(mu)))

    def friction(mu: State, p: PyTree, t: Any) -> Element:
        pull = algebra.ad_star(inside(p, t).energy_gradient(mu), mu)
        if fields is not None:
            pull = jnp.tensordot(jax.vmap(lambda e: algebra.pairing(pull, e))(fields), fields, axes=1)
        return s * _spread(algebra, rate("friction", p, t)) * pull

    noise: list[Noise] = [_Inner(n, (timed, system.timed)) for n in system.noises]
    if "temperature" in rates:
        last = Context(params, np.zeros(())) if timed else params

        def sigma2(last: PyTree) -> Array:
            given = last if timed else Context(last)
            return 2.0 * rate("friction", given.params, given.t) * rate("temperature", given.params, given.t)

        noise.append(_BathNoise(algebra, fields, intern(sigma2, last)))
    new = System(
        algebra,
        [inner(h) for h in system.parts] if system.parts else inner(system.h),
        noise,
        side=system.side,  # pyright: ignore[reportArgumentType]
        params=params,
        gradient=None if system.grad_h is None else inner(system.grad_h),
        forcing=[*(inner(g) for g in system.forces), of_bath(friction)],
        torque=[inner(f) for f in system.torques],
    )
    used = [use for name, function in functions.items() for use in uses_of(name, function)]
    return new._with(inputs=tuple(dict.fromkeys((*system.inputs, *used))))


def _spread(algebra: LieAlgebra, rate: Any) -> Any:
    """A rate by factor as one by coordinate."""
    if jnp.ndim(rate) == 0:
        return rate
    assert isinstance(algebra, Product)
    parts, first = [], 0
    for dim, count in algebra.summands:
        parts.append(jnp.broadcast_to(rate[first : first + count, None], (count, dim)).reshape(-1))
        first += count
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts)


def _function_of_time(name: str, rate: Callable, sites: int | None) -> Callable:
    """A function rate(t) that returns a number above 0, or one for each factor."""
    check_function(name, rate, ("t",), what="time")
    value = np.asarray(rate(0.0))
    if value.shape == () and not value > 0:
        raise ValueError(f"{name}(t) must return a number above 0, but {name}(0) is {value}.")
    if value.shape:
        _by_factor(f"{name}(0)", value, sites)
    return lambda t: jnp.asarray(rate(t), float)


def _by_factor(name: str, value: Any, sites: int | None) -> np.ndarray:
    """One number for each factor."""
    found = np.asarray(validation.numbers(name, value, "a number above 0, or one for each factor", "fiu"), float)
    if sites is None:
        hint = "rates by factor need a Product and the default fields"
        raise TypeError(f"{name} must be a number above 0, not {value!r}: {hint}.")
    if found.shape != (sites,):
        raise ValueError(f"{name} must be one number, or one for each of {sites} factors, not of shape {found.shape}.")
    if not (np.all(np.isfinite(found)) and np.all(found >= 0) and np.any(found > 0)):
        raise ValueError(f"{name} must be finite, not below 0 and not 0 everywhere, but is {found}.")
    return found


def _check_system(name: str, system: Any) -> None:
    if not isinstance(system, System):
        raise TypeError(f"{name} takes a System, not {type(system).__name__}.")
    if system.has_attitude or system.laws:
        raise ValueError(
            f"{name} supports functions of the state, params and time, but the system has a function of "
            f"{'the group element g' if system.has_attitude else 'the control u'}: give friction as torque= and noise "
            "as white_torque(...)."
        )


def _positive(name: str, value: Any, sites: int | None) -> Any:
    """A positive number, or one for each factor. Traced numbers are not checked, so that they can be differentiated."""
    if validation.is_traced(value):
        return value
    hint = "; double_bracket(system, friction=...) has friction and no noise" if name == "temperature" else ""
    if np.ndim(value) == 1:
        return _by_factor(name, value, sites)
    if np.ndim(value) != 0 or isinstance(value, (bool, str)) or not np.isreal(value):
        raise TypeError(f"{name} must be a number above 0, not {value!r}.")
    if not (np.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be a number above 0, not {value!r}{hint}.")
    return np.float64(value)


def _fields(system: System, fields: Any) -> Array | None:
    """The fields as a stack. Invalid fields raise an error that describes the defect."""
    if fields is None:
        return None
    algebra = system.algebra
    stack = jnp.asarray(validation.numbers("fields", fields))
    stack = stack[None] if stack.shape == algebra.shape else stack
    if stack.shape[1:] != algebra.shape or len(stack) == 0:
        shape = ", ".join(map(str, algebra.shape))
        raise ValueError(f"fields must have shape (M, {shape}), M elements of the algebra, not {stack.shape}.")
    if jnp.iscomplexobj(stack) and algebra.dtype == jnp.float64:
        raise TypeError("fields must be real on a real algebra, not complex.")
    stack = stack.astype(algebra.dtype)
    if not validation.is_traced(stack):
        if not np.all(np.isfinite(np.asarray(stack))):
            raise ValueError("fields must be finite: they have a NaN or an infinity.")
        check_elements(algebra, "fields", stack)
    return stack


def _unbounded(system: System) -> str | None:
    """Why exp(−h/T) may not be normalisable: a path on an orbit to large states along which h does not grow."""
    if system.algebra.dim > _LARGEST or validation.is_traced(system):
        return None
    size, energy = (np.asarray(x) for x in _far_away(system))
    far = size[:, 1] > 3.0 * size[:, 0]
    bad = np.flatnonzero(far & ~(energy[:, 1] > energy[:, 0] + 1e-9 * np.abs(energy[:, 0])))
    if not len(bad):
        return None
    (a, b), (h0, h1) = size[bad[0]], energy[bad[0]]
    return f"along one from |μ| = {a:.3g} to {b:.3g} the energy goes from {h0:.3g} to {h1:.3g}, and not up."


@eqx.filter_jit
def _far_away(system: System) -> tuple[Float[Array, "k 2"], Float[Array, "k 2"]]:
    """The sizes and energies of random states, and of the states that random directions lead to."""
    algebra = system.algebra
    starts, ways = (jnp.asarray(x) for x in np.random.default_rng(0).standard_normal((2, 16, algebra.dim)))

    def one(start: Array, way: Array) -> tuple[Array, Array]:
        mu = algebra.element(start)
        both = mu, algebra.flow(algebra.element(10.0 * way), mu)
        sizes = jnp.stack([jnp.linalg.norm(algebra.coordinates(m)) for m in both])
        return sizes, jnp.stack([system.energy(m) for m in both])

    return jax.vmap(one)(starts, ways)
