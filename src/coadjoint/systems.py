"""Stochastic Lie–Poisson systems: an algebra, a Hamiltonian, noise, a side."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from stepcompiler.jaxprs.interning import Constant, Function

from .algebras.affine import Affine, paired
from .algebras.base import Element, LieAlgebra, State
from .callables import Tracer, check_params, depends_on_time
from .inputs import Use
from .noises import Noise as Noise
from .noises import Salt as Salt
from .noises import SaltOfParams, Stirring
from .noises import salt as salt
from .noises import white_torque as white_torque
from .numerics import validation
from .numerics.html import as_html
from .numerics.signatures import described
from .params import Fixed, Timed, fit_params, split
from .states import check_state

_NUDGE = 2.0**-50  # four units of round-off
_MOST_COMMUTING = 64  # commutation is not checked for more noises than this


class System(eqx.Module):
    """A stochastic Lie–Poisson system in the Stratonovich sense.

    The equation is

        dμ = s ( ad*_{∂h/∂μ + g} μ dt + Σ_i ad*_{∂h_i/∂μ} μ ∘ dS^i ) + f dt

    with s = +1 for left-invariant systems (bodies) and s = −1 for right-invariant ones (fluids).

    An argument named `t` in the last place of any of these functions receives the time, as in h(mu, t),
    h(mu, params, t), D(mu, dt, t) or `salt(lambda t: ...)`.

    Parameters
    ----------
    algebra : LieAlgebra
        The Lie algebra g. States live in its dual.
    hamiltonian : callable or sequence of callables
        A JAX function h(mu), or h(mu, params), that returns one real number. The Hamiltonian is the sum of a sequence.
        Splitting methods use the parts of a sequence one by one.
    noise : sequence, callable or Noise, default ()
        The noises: `salt(beta)`, functions like the Hamiltonian, or objects with `size` and `apply(mu, dS)` or
        `apply(mu, dS, params)`, such as instances of a subclass of `Noise`.
    side : {"left", "right"}, default "left"
        The sign s. Use "right" for fluids.
    params : pytree, optional
        Parameters of the functions, Equinox modules included. Numbers and arrays can be differentiated and can vary by
        member of an ensemble. All other leaves, such as activation functions and strings, are part of the program.
    gradient : callable, optional
        ∂h/∂μ as a function of your own, with the arguments of the Hamiltonian. It is compared once with the derivative.
    forcing : callable or sequence of callables, default ()
        Warning: a forcing is no external torque or force; it never changes |π| of a body. See `torque` for these.
        Functions g(mu), or g(mu, params), that return an element of the algebra, such as an angular velocity. Their sum
        is added to ∂h, so the motion stays on the coadjoint orbit: orbit-preserving friction or feedback.
    torque : callable or sequence of callables, default ()
        Functions f(mu), or f(mu, params), that return a state: external torques and forces. Their sum is added to the
        right-hand side, so the state leaves its orbit and Casimirs change. Every method keeps its order.
    dissipation : callable, optional
        A function D(mu, dt), or D(mu, dt, params), that returns the state after viscosity has acted for the time dt.
        Every method applies it in half steps (Strang splitting). The state leaves its orbit, so Casimirs change.
    flow : Flow, optional
        The fluid that the states describe. `cj.fluids.of(system)` returns it.

    Raises
    ------
    TypeError, ValueError
        If a function has the wrong signature or result, or if `gradient` is not the derivative of the Hamiltonian.
    """  # fmt: skip

    _algebra: Constant = eqx.field(static=True)  # whatever arrays it holds
    side: str = eqx.field(static=True)
    h: Function
    parts: tuple[Function, ...]  # of h, if it was given as a list
    grad_h: Function | None
    forces: tuple[Function, ...]
    torques: tuple[Function, ...]
    dissipation: Function | None
    noises: tuple[Noise, ...]
    params: PyTree  # its numbers, and None in place of all other leaves …
    _fixed: Fixed = eqx.field(static=True)  # … which the functions are traced with
    timed: bool = eqx.field(static=True)  # whether any function depends on time
    inputs: tuple[Use, ...] = eqx.field(static=True)  # functions of time whose times are known
    time: Float[Array, ""] | None  # at which functions are evaluated, set by `at`
    nudge: Float[Array, ""] | None  # the round-off of times in this run, set by `in_step`
    flow: Any  # a `fluids.Flow`, or None

    def __init__(
        self,
        algebra: LieAlgebra,
        hamiltonian: Callable[..., Float[Array, ""]] | Sequence[Callable[..., Float[Array, ""]]],
        noise: Sequence | Callable | Noise = (),
        *,
        side: Literal["left", "right"] = "left",
        params: PyTree = None,
        gradient: Callable[..., Element] | None = None,
        forcing: Callable[..., Element] | Sequence[Callable[..., Element]] = (),
        torque: Callable[..., State] | Sequence[Callable[..., State]] = (),
        dissipation: Callable[..., State] | None = None,
        flow: Any = None,
    ):
        validation.require_float64()
        if not isinstance(algebra, LieAlgebra):
            raise TypeError(f"algebra must be a LieAlgebra such as SO3(), not {described(algebra)}.")
        self._algebra = Constant(algebra)
        self.side = validation.choice("side", side, ("left", "right"))
        self.params, rest = split(params)
        self.flow = flow
        self._fixed = Fixed.of(rest)
        parts, forces, torques, noises = (_as_list(x) for x in (hamiltonian, forcing, torque, noise))
        if not parts:
            raise ValueError("hamiltonian must hold at least one function, but the list is empty.")
        self.timed = depends_on_time([*parts, gradient, *forces, *torques, dissipation, *noises])
        self.time = self.nudge = None
        trace = Tracer(self._algebra, self.params, rest, self.timed, [])
        if parts is hamiltonian:
            self.parts = tuple(trace.hamiltonian(f"hamiltonian[{k}]", part) for k, part in enumerate(parts))
            self.h = trace.sum(self.parts)
        else:
            self.parts, self.h = (), trace.hamiltonian("hamiltonian", hamiltonian)
        self.grad_h = None if gradient is None else trace.gradient(gradient, self.h)
        names = [f"forcing[{k}]" if forces is forcing else "forcing" for k in range(len(forces))]
        self.forces = tuple(trace.force(name, g) for name, g in zip(names, forces, strict=True))
        names = [f"torque[{k}]" if torques is torque else "torque" for k in range(len(torques))]
        self.torques = tuple(trace.force(name, f, "a state") for name, f in zip(names, torques, strict=True))
        self.dissipation = None if dissipation is None else trace.dissipation(dissipation)
        self.noises = tuple(trace.noise(n) for n in noises)
        self.inputs = tuple(dict.fromkeys(trace.inputs))

    def _repr_html_(self) -> str:
        return as_html(self)

    def __repr__(self) -> str:
        """One line."""
        noise = {0: "no noise", 1: "1 noise"}.get(self.n_noise, f"{self.n_noise} noises")
        params = "" if self.params is None else ", with params"
        kinds = [name for name, has in (("forcing", self.forces), ("torque", self.torques)) if has]
        forced = f", with {' and '.join(kinds)}" if kinds else ""
        algebra = f"{type(self.algebra).__name__} of dimension {self.algebra.dim}, {self.algebra.casimir_words}"
        lossy = "; Casimirs change by dissipation, stirring or a torque" if self.leaves_orbit else ""
        timed = ", time-dependent" if self.timed else ""
        return f"System: {algebra}; {self.side}-invariant, {noise}{forced}{params}{timed}{lossy}"

    @property
    def algebra(self) -> LieAlgebra:
        """The Lie algebra."""
        return self._algebra.value

    @property
    def fixed_params(self) -> PyTree:
        """The leaves of params that are not numbers, with None in place of the numbers."""
        return self._fixed.rest

    @property
    def sign(self) -> int:
        """s: +1 for a left-invariant system, −1 for a right-invariant one."""
        return 1 if self.side == "left" else -1

    @property
    def n_noise(self) -> int:
        """M, the number of driving signals in addition to time."""
        return sum(n.size for n in self.noises)

    @property
    def additive(self) -> bool:
        """Whether every noise is SALT, so that the noise in σ is additive."""
        return all(n.additive for n in self.noises)

    @property
    def commuting(self) -> bool:
        """Whether all noises are SALT with [β_i, β_j] = 0. This property cannot be used inside compiled code."""
        M = self.n_noise
        if M <= 1 or not self.additive:
            return self.additive
        if any(isinstance(n, SaltOfParams) or (self.timed and not isinstance(n, Salt)) for n in self.noises):
            return False  # other params may be given, and fields may change in time
        if M > _MOST_COMMUTING or validation.is_traced(self.noises):
            return False
        with jax.ensure_compile_time_eval():
            return bool(_commute(self))

    @property
    def leaves_orbit(self) -> bool:
        """Whether the system has a torque, dissipation or stirring, so that Casimirs change."""
        return bool(self.torques) or self.dissipation is not None or self._stirred

    @property
    def has_torque(self) -> bool:
        """Whether methods move by the affine action Ad*_g μ + ν: there is a torque, or white noise in it."""
        return bool(self.torques) or (self._stirred and not self.algebra.is_matrix_conjugation)

    @property
    def changes_in_step(self) -> bool:
        """Whether `in_step` returns another system."""
        return self.timed or self.has_torque

    @property
    def is_split(self) -> bool:
        """Whether dissipation, or white stirring of a fluid, is split off around each step."""
        return self.dissipation is not None or (self._stirred and not self.has_torque)

    @property
    def _stirred(self) -> bool:
        return any(isinstance(n, Stirring) for n in self.noises)

    def dissipate(self, mu: State, dt: Float[Array, ""]) -> State:
        """D(μ, dt)."""
        return mu if self.dissipation is None else self.dissipation(mu, dt, *self.arguments)

    def stirring_increment(self, dS: Float[Array, " M"]) -> State:
        """Σ_i f_i dS^i of stirring that is white in time."""
        total = jnp.zeros(self.algebra.shape, self.algebra.dtype)
        start = 0
        for n in self.noises:
            if isinstance(n, Stirring):
                total = total + n.stirring_increment(dS[start : start + n.size], *self.arguments)
            start += n.size
        return total

    def add_torque(self, xi: Element, mu: State) -> Element:
        """The element ξ of the drift, paired with the torque where methods move by the affine action."""
        if not isinstance(self.algebra, Affine):
            return xi
        total = jnp.zeros_like(mu)
        for f in self.torques:
            total = total + f(mu, *self.arguments)
        return paired(xi, self.sign * total)

    def energy(self, mu: State) -> Float[Array, ""]:
        """h(μ)."""
        return self.h(mu, *self.arguments)

    def part_gradient(self, k: int, mu: State) -> Element:
        """∂h_k/∂μ(μ) of part k of h = Σ h_k."""
        return self.algebra.gradient(lambda m: self.parts[k](m, *self.arguments), mu)

    def energy_gradient(self, mu: State) -> Element:
        """∂h/∂μ(μ)."""
        if self.grad_h is not None:
            return self.grad_h(mu, *self.arguments)
        return self.algebra.gradient(self.energy, mu)

    def force(self, mu: State) -> Element:
        """g(μ), the sum of the forcing functions."""
        total = jnp.zeros(self.algebra.shape, self.algebra.dtype)
        for g in self.forces:
            total = total + g(mu, *self.arguments)
        return total

    def drift(self, mu: State) -> Element:
        """∂h/∂μ(μ) + g(μ)."""
        dh = self.energy_gradient(mu)
        return self.add_torque(dh + self.force(mu) if self.forces else dh, mu)

    def one_noise(self, n: Noise, mu: State, dS: Float[Array, " M"]) -> Element:
        """Σ_i ∂h_i/∂μ(μ) dS^i of one of the `noises`."""
        xi = n.apply(mu, dS, *(self.arguments or (None,)))
        if not isinstance(self.algebra, Affine):
            return xi
        stirred = n.stirring_increment(dS, *self.arguments) if isinstance(n, Stirring) else jnp.zeros_like(xi)
        return paired(xi, self.sign * stirred)

    def noise(self, mu: State, dS: Float[Array, " M"]) -> Element:
        """Σ_i ∂h_i/∂μ(μ) dS^i."""
        total: Any = 0.0
        if not self.noises:
            return jnp.zeros(self.algebra.shape, self.algebra.dtype)
        start = 0
        for n in self.noises:
            total = total + self.one_noise(n, mu, dS[start : start + n.size])
            start += n.size
        return total

    def zeta(self, mu: State, dt: Float[Array, ""], dS: Float[Array, " M"]) -> Element:
        """ζ = (∂h/∂μ(μ) + g(μ)) dt + Σ_i ∂h_i/∂μ(μ) dS^i."""
        zeta = self.drift(mu) * dt
        return zeta + self.noise(mu, dS) if self.noises else zeta

    def vector_field(self, mu: State, dt: Float[Array, ""], dS: Float[Array, " M"]) -> State:
        """s ad*_ζ μ, the right-hand side times the increments."""
        return self.sign * self.algebra.ad_star(self.zeta(mu, dt, dS), mu)

    def check_state(self, name: str, mu: Any) -> Array:
        """The state as an array of the algebra's type. An invalid state raises an error that describes the defect."""
        return check_state(self.algebra, name, mu)

    def with_params(self, params: PyTree) -> "System":
        """The same system with other parameters.

        Parameters
        ----------
        params : pytree
            New parameters of the same structure, shapes and types as the old ones. They need no new compilation.

        Returns
        -------
        System

        Raises
        ------
        TypeError, ValueError
            If the structure, a shape or a type differs.
        """
        fitted = fit_params(self.params, self._fixed, params)
        for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(self.params), jax.tree.leaves(fitted), strict=True):
            if a.shape != b.shape:
                name = "params" + jax.tree_util.keystr(path)
                raise ValueError(f"{name} must have shape {a.shape}, as in the system, not {b.shape}.")
        check_params(self, fitted)
        return self.given(fitted)

    def given(self, params: PyTree) -> "System":
        """The same system with other parameters, which are known to fit."""
        return self._with(params=params)

    def at(self, t: Any) -> "System":
        """The system at time t: its functions receive this time. A system that does not depend on time is unchanged."""
        return self._with(time=t) if self.timed else self

    def in_step(self, t: Any, dt: Any, largest: Any) -> "System":
        """The system in the middle of a step from t to t + dt, in a run whose times are at most `largest` in size.

        With a torque its algebra is g ⋉ g* there, and ∂h, forcing, noise and torque are pairs.
        """
        now = self._with(time=t + 0.5 * dt, nudge=_NUDGE * largest) if self.timed else self
        return now._with(_algebra=Constant(Affine(self.algebra))) if self.has_torque else now

    def on_states(self) -> "System":
        """The system with the algebra of its states also inside a step, for equations whose unknown is a state."""
        return self._with(_algebra=Constant(self.algebra.base)) if isinstance(self.algebra, Affine) else self

    def at_node(self, t: Any, dt: Any, c: float) -> "System":
        """The system at the node c of a step, at t + c dt, 0 ≤ c ≤ 1.

        Times are moved by a few units of round-off towards the middle of the step. So a function that jumps at the
        start of a step takes its right limit there, and one that jumps at its end the left limit.
        """
        if not self.timed:
            return self
        return self._with(time=t + c * dt + (0.0 if self.nudge is None else (1.0 - 2.0 * c) * self.nudge))

    def _with(self, **changes: Any) -> "System":
        """A copy with other fields, without the checks of the constructor."""
        new = object.__new__(type(self))
        for field in dataclasses.fields(self):
            object.__setattr__(new, field.name, changes.get(field.name, getattr(self, field.name)))
        return new

    @property
    def arguments(self) -> tuple:
        """The last argument of traced functions, if they have one."""
        if not self.timed:
            return () if self.params is None else (self.params,)
        if self.time is None:
            raise ValueError("the system depends on time: call at(t) first, as in system.at(0.5).energy(mu).")
        return (Timed(self.params, self.time),)


def _as_list(given: Any) -> Sequence:
    """Several functions or noises as they are given, or one as a list."""
    return given if isinstance(given, Sequence) and not isinstance(given, str) else [given]


@eqx.filter_jit
def _commute(system: System) -> Bool[Array, ""]:
    """Whether all brackets of SALT fields vanish, up to round-off."""
    algebra = system.algebra
    zero = jnp.zeros(algebra.shape, algebra.dtype)
    beta = jax.vmap(lambda e: system.noise(zero, e))(jnp.eye(system.n_noise))
    brackets = jax.vmap(lambda a: jax.vmap(lambda b: _size(algebra.bracket(a, b)))(beta))(beta)
    sizes = jax.vmap(_size)(beta)
    return jnp.all(brackets <= 1e-14 * sizes[:, None] * sizes)


def _size(x: Array) -> Float[Array, ""]:
    return jnp.max(jnp.abs(x))
