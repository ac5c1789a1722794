"""Stochastic Lie–Poisson systems: an algebra, a Hamiltonian, noise, a side."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from stepcompiler.jaxprs.interning import Constant, Function

from .algebras.affine import Affine, paired
from .algebras.base import Element, LieAlgebra, State
from .algebras.cotangent import Cotangent
from .callables import Tracer, check_params, names_received, received_values
from .controls import Held, Law, as_holds, trace_law
from .inputs import Use
from .noises import HamiltonianNoise, Stirring, commute, is_constant
from .noises import Noise as Noise
from .noises import Salt as Salt
from .noises import salt as salt
from .noises import white_torque as white_torque
from .numerics import validation
from .numerics.html import as_html
from .numerics.modules import with_fields
from .numerics.signatures import MEANINGS, SPECIAL, described
from .params import Context, Fixed, fit_params, split
from .stabilisers import Reduction, Weights, is_reducible, reduced_gradient, reduction_of, reduction_weights
from .states import check_state

_NUDGE = 2.0**-50  # four units of round-off
_MOST_COMMUTING = 64  # commutation is not checked for more noises than this


class System(eqx.Module):
    """A stochastic Lie–Poisson system in the Stratonovich sense.

    The equation is

        dμ = s ( ad*_{∂h/∂μ + g} μ dt + Σ_i ad*_{∂h_i/∂μ} μ ∘ dS^i ) + f dt

    with s = +1 for left-invariant systems (bodies) and s = −1 for right-invariant ones (fluids).

    Functions receive the state, then the params, if the system has any. Further arguments are passed by name, as in
    h(mu, t), h(mu, params, g, t), D(mu, dt, t) or `salt(lambda t: ...)`:

    - `t` receives the time.
    - `g` receives the group element, such as the attitude of a body.
    - `u` receives the value of `control`.

    The group element is a rotation matrix for SO3, a 4×4 matrix for SE3 and a unitary matrix for SU(n). A `Product` has
    one per factor. For other algebras it is the matrix Ad_g.

    If a function has the argument `g`, the system is on T*G, and the equation has the additional term −∂h/∂g dt. The
    derivative is trivialised on the left for left-invariant systems, <∂h/∂g, η> = d/dε h(μ, g exp εη) at ε = 0. For
    right-invariant systems it is trivialised on the right, with h(μ, exp(εη) g). Casimirs change. Runs save g as
    `sol.g`, and `g0=` is its initial value.

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
    control : Hold or dict of Hold, optional
        A feedback law, `hold(law, every=k)`, that is evaluated at every k-th step, or several by name. Functions with
        an argument named `u` receive its value, or the dict of values.
    flow : Flow, optional
        The fluid that the states describe. `cj.fluids.of(system)` returns it.

    Raises
    ------
    TypeError, ValueError
        If a function has the wrong signature or result, or if `gradient` is not the derivative of the Hamiltonian.

    Method arguments
    ----------------
    mu, start : array, shape `algebra.shape`
        The state, and the state at the start of a step.
    x, slope : array or pair of arrays
        A state. Within a step on T*G it is a pair (θ, μ), the momentum μ at the group element g exp θ.
    xi : array, shape `algebra.shape`
        An element of the algebra.
    t, dt : float
        The time and the time step.
    dS : array, shape (M,)
        The increments of the driving path.
    g, u : pytree
        The group element and the value of the control.
    held : tuple
        The values that `control` holds.
    weights : array, shape (factors,), optional
        1 for each factor of a product whose gradient is reduced, 0 for the others. None stands for 1.
    c : float
        A node of the step, 0 ≤ c ≤ 1.
    k, n : int
        The number of a part of the Hamiltonian and of a step. In `one_noise`, n is a noise.
    name : str
        The name of the state in an error message.
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
    received: frozenset[str] = eqx.field(static=True)  # what functions receive by name
    h_receives: frozenset[str] = eqx.field(static=True)  # the same of h …
    noise_receives: frozenset[str] = eqx.field(static=True)  # … and of noise
    laws: tuple[Law, ...]  # of the control
    law_names: tuple[str | None, ...] = eqx.field(static=True)
    inputs: tuple[Use, ...] = eqx.field(static=True)  # functions of time whose times are known
    time: Float[Array, ""] | None  # at which functions are evaluated, set by `at`
    g: PyTree  # the group element, the same; in a step that at its start
    u: PyTree  # the value of the control
    nudge: Float[Array, ""] | None  # the round-off of times in this run, set by `in_step`
    is_noisy_sum: bool = eqx.field(static=True)  # a direct sum with noise, also where the noise is left out
    reduction: Reduction | None  # of ∂h in `drift`, set by `without_stabiliser`
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
        control: Any = None,
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
        holds = as_holds(control)
        names = (*SPECIAL, "u") if holds else SPECIAL
        functions = [*parts, gradient, *forces, *torques, dissipation, *noises]
        laws = names_received([hold.law for hold in holds.values()])
        self.received = frozenset(names_received(functions, names) | laws | ({"u"} if holds else set()))
        self.h_receives, self.noise_receives = (frozenset(names_received(x, names)) for x in (parts, noises))
        self.time = self.g = self.u = self.nudge = self.reduction = None
        if self.has_attitude and dissipation is not None:
            raise ValueError(
                "dissipation does not support functions of the group element g: give drag and damping as torque=."
            )
        values = received_values(algebra, self.received - {"u"})
        trace = Tracer(self._algebra, self.params, rest, values, [])
        self.laws = tuple(trace_law(name, hold, trace) for name, hold in holds.items())
        self.law_names = tuple(holds)
        if holds:
            trace = trace._replace(received=values | {"u": self._named([law.zero for law in self.laws])})
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
        self.is_noisy_sum = bool(self.noises) and self.is_sum
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
        timed = (", time-dependent" if self.timed else "") + (", on T*G" if self.has_attitude else "")
        timed += ", with control" if self.laws else ""
        return f"System: {algebra}; {self.side}-invariant, {noise}{forced}{params}{timed}{lossy}"

    @property
    def algebra(self) -> LieAlgebra:
        """The Lie algebra."""
        return self._algebra.value

    @property
    def is_sum(self) -> bool:
        """Whether the algebra is a direct sum."""
        return sum(count for _, count in self.algebra.summands) > 1

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
        return not self.noise_receives & {"g"} and all(n.additive for n in self.noises)

    @property
    def commuting(self) -> bool:
        """Whether all noises are SALT or white torques and commute. It cannot be used inside compiled code.

        They commute if all [β_i, β_j] and all ad*_{β_i} f_j are zero.
        """
        M = self.n_noise
        if M <= 1 or not self.additive or all(isinstance(n, Stirring) for n in self.noises):
            return self.additive
        fixed = all(is_constant(n, self.params is None and not self.received) for n in self.noises)
        if not fixed or M > _MOST_COMMUTING or validation.is_traced(self.noises):
            return False  # other params may be given, and fields may change in time
        algebra = Affine(self.algebra) if self._stirred else self.algebra
        with jax.ensure_compile_time_eval():
            return bool(commute(self._with(_algebra=Constant(algebra), received=frozenset())))

    @property
    def timed(self) -> bool:
        """Whether any function depends on time."""
        return "t" in self.received

    @property
    def has_attitude(self) -> bool:
        """Whether any function depends on the group element, so that the system is on T*G."""
        return "g" in self.received

    @property
    def leaves_orbit(self) -> bool:
        """Whether the system is on T*G or has a torque, dissipation or stirring, so that Casimirs change."""
        return self.has_torque or self.dissipation is not None or self._stirred

    @property
    def has_torque(self) -> bool:
        """Whether methods move by the affine action Ad*_g μ + ν: there is a torque, or white noise in it, or g."""
        stirred = self._stirred and self.flow is None and not self.algebra.is_matrix_conjugation
        return bool(self.torques) or stirred or self.has_attitude

    @property
    def changes_in_step(self) -> bool:
        """Whether `in_step` returns another system."""
        return bool(self.received) or self.has_torque

    @property
    def is_split(self) -> bool:
        """Whether dissipation, or white stirring of a fluid, is split off around each step."""
        return self.dissipation is not None or (self._stirred and not self.has_torque)

    @property
    def _stirred(self) -> bool:
        return any(isinstance(n, Stirring) for n in self.noises)

    def momentum(self, x: State) -> State:
        """μ of a state. Within a step on T*G a state is a pair (θ, μ), the momentum μ at the group element g exp θ."""
        return x[1] if isinstance(self.algebra, Cotangent) else x

    def dissipate(self, mu: State, dt: Float[Array, ""]) -> State:
        """D(μ, dt)."""
        return mu if self.dissipation is None else self.dissipation(mu, dt, *self.arguments(mu))

    def stirring_increment(self, dS: Float[Array, " M"]) -> State:
        """Σ_i f_i dS^i of stirring that is white in time."""
        total = jnp.zeros(self.algebra.shape, self.algebra.dtype)
        start = 0
        for n in self.noises:
            if isinstance(n, Stirring):
                total = total + n.stirring_increment(dS[start : start + n.size], *self.arguments(total))
            start += n.size
        return total

    def add_torque(self, xi: Element, x: State, slope: State | None = None) -> Element:
        """The element ξ of the drift, paired with the torque where methods move by the affine action.

        `slope`: an approximation of ∂h/∂g.
        """
        if not self._in_pairs:
            return xi
        mu, last = self.momentum(x), self.arguments(x)
        total = jnp.zeros_like(mu)
        for f in self.torques:
            total = total + f(mu, *last)
        if "g" in self.h_receives:
            total = total - (self._group_gradient(self.h, mu, *last) if slope is None else slope)
        return paired(xi, self.sign * total)

    def energy(self, x: State) -> Float[Array, ""]:
        """h(μ)."""
        return self.h(self.momentum(x), *self.arguments(x))

    def part_gradient(self, k: int, x: State) -> Element:
        """∂h_k/∂μ(μ) of part k of h = Σ h_k."""
        last = self.arguments(x)
        return self.algebra.gradient(lambda m: self.parts[k](m, *last), self.momentum(x))

    def energy_gradient(self, x: State) -> Element:
        """∂h/∂μ(μ)."""
        mu, last = self.momentum(x), self.arguments(x)
        if self.grad_h is not None:
            return self.grad_h(mu, *last)
        return self.algebra.gradient(lambda m: self.h(m, *last), mu)

    def energy_differential(self, x: State) -> Array:
        """∂h/∂μ; of a pair (θ, μ), with the derivative of h along exp(εη) θ in its place before it."""
        if not isinstance(self.algebra, Cotangent):
            return self.energy_gradient(x)
        slope = self._group_gradient(self.h, x[1], *self.arguments(x))
        return jnp.stack([self.sign * slope, self.energy_gradient(x)])

    def _group_gradient(self, h: Function, mu: State, last: Context) -> State:
        """∂h/∂g in g*, trivialised on the left or on the right."""
        algebra = self._on_states

        def moved(c: Float[Array, " dim"]) -> Float[Array, ""]:
            k = algebra.group_exp(algebra.element(c))
            g = algebra.group_product(last.g, k) if self.sign == 1 else algebra.group_product(k, last.g)
            return h(mu, last._replace(g=g))

        return algebra.element(jax.grad(moved)(jnp.zeros(algebra.dim)))

    def force(self, x: State) -> Element:
        """The sum of the forcing functions."""
        mu, last = self.momentum(x), self.arguments(x)
        total = jnp.zeros_like(mu)
        for g in self.forces:
            total = total + g(mu, *last)
        return total

    def drift(self, x: State) -> Element:
        """∂h/∂μ(μ), reduced in `without_stabiliser`, with the forcing; with a torque a pair."""
        dh = reduced_gradient(self, x)
        return self.add_torque(dh + self.force(x) if self.forces else dh, x)

    def one_noise(self, n: Noise, x: State, dS: Float[Array, " M"]) -> Element:
        """Σ_i ∂h_i/∂μ(μ) dS^i of one of the `noises`."""
        mu, last = self.momentum(x), self.arguments(x)
        xi = n.apply(mu, dS, *(last or (None,)))
        if not self._in_pairs:
            return xi
        outside = n.stirring_increment(dS, *last) if isinstance(n, Stirring) else jnp.zeros_like(xi)
        if "g" in self.noise_receives and isinstance(n, HamiltonianNoise):
            outside = outside - self._group_gradient(n.h, mu, *last) * dS[0]
        return paired(xi, self.sign * outside)

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
        return System.refitted(self, params)

    def refitted(self, params: PyTree, on_host: bool = False) -> "System":
        """As `with_params`; `on_host` is that of `fit_params`."""
        fitted = fit_params(self.params, self._fixed, params, on_host)
        for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(self.params), jax.tree.leaves(fitted), strict=True):
            if a.shape != b.shape:
                name = "params" + jax.tree_util.keystr(path)
                raise ValueError(f"{name} must have shape {a.shape}, as in the system, not {b.shape}.")
        check_params(self, fitted)
        return System.given(self, fitted)

    def given(self, params: PyTree) -> "System":
        """The same system with other parameters, which are known to fit."""
        return with_fields(self, params=params)

    def at(self, t: Any, g: PyTree = None, u: PyTree = None) -> "System":
        """The system at time t, with the group element g and the control u, which its functions receive.

        What no function depends on, and what is None, remains as it is.
        """
        given = {"t": ("time", t), "g": ("g", g), "u": ("u", u)}
        changes = {field: x for name, (field, x) in given.items() if name in self.received and x is not None}
        return with_fields(self, **changes) if changes else self

    def anywhere(self, t: Any, g: PyTree = None) -> "System":
        """The system at time t, with g, or the identity if it is None, and with zeros as the control."""
        if g is None and self.has_attitude:
            g = self.algebra.group_exp(jnp.zeros(self.algebra.shape, self.algebra.dtype))
        return System.at(self, t, g, self.control_zero)

    def in_step(self, t: Any, dt: Any, largest: Any, held: tuple[Held, ...] = ()) -> "System":
        """The system in the middle of a step from t to t + dt, in a run whose times are at most `largest` in size.

        With a torque its algebra is g ⋉ g* there, and ∂h, forcing, noise and torque are pairs.
        """
        now = self._with(time=t + 0.5 * dt, nudge=_NUDGE * largest) if self.timed else self
        if self.laws:
            now = now._with(u=self._named([law.value for law in held]))
        if not self.has_torque:
            return now
        return now._with(_algebra=Constant(Cotangent(self.algebra) if self.has_attitude else Affine(self.algebra)))

    def on_states(self) -> "System":
        """The system with the algebra of its states also inside a step, for equations whose unknown is a state."""
        return self._with(_algebra=Constant(self._on_states)) if self._in_pairs else self

    @property
    def _in_pairs(self) -> bool:
        return isinstance(self.algebra, Affine | Cotangent)

    @property
    def _on_states(self) -> LieAlgebra:
        return self.algebra.base if isinstance(self.algebra, Affine | Cotangent) else self.algebra

    # The control.

    def start_control(self, mu: State, t: Any, g: PyTree) -> tuple[Held, ...]:
        """The values of the control at the start."""
        return tuple(law.start(mu, *self._law_arguments(t, g)) for law in self.laws)

    def next_control(self, n: Any, held: tuple[Held, ...], mu: State, t: Any, g: PyTree) -> tuple[Held, ...]:
        """The values of the control after step n, which ended at time t."""
        last = self._law_arguments(t, g)
        return tuple(law.after(n, own, mu, *last) for law, own in zip(self.laws, held, strict=True))

    def _law_arguments(self, t: Any, g: PyTree) -> tuple:
        if not self.received - {"u"}:
            return () if self.params is None else (self.params,)
        return (Context(self.params, t if self.timed else None, g if self.has_attitude else None),)

    def _named(self, values: Sequence[PyTree]) -> PyTree:
        """The values of all laws as functions receive them: that of one law, or a dict."""
        return values[0] if self.law_names == (None,) else dict(zip(self.law_names, values, strict=True))

    def control_value(self, held: tuple[Held, ...]) -> PyTree:
        """The value of the control, as functions receive it."""
        return self._named([law.value for law in held]) if held else None

    @property
    def control_zero(self) -> PyTree:
        """Zeros of the shapes of the control."""
        return self._named([law.zero for law in self.laws]) if self.laws else None

    def at_node(self, t: Any, dt: Any, c: float) -> "System":
        """The system at the node c of a step, at t + c dt, 0 ≤ c ≤ 1.

        Times are moved by a few units of round-off towards the middle of the step. So a function that jumps at the
        start of a step takes its right limit there. A function that jumps at the end takes its left limit.
        """
        if not self.timed:
            return self
        now = self._with(time=t + c * dt + (0.0 if self.nudge is None else (1.0 - 2.0 * c) * self.nudge))
        return now if self.reduction is None else now.without_stabiliser(*self.reduction.rule)

    def without_stabiliser(self, start: State, canonical: bool = False, weights: Weights = None) -> "System":
        """The system in a step from `start`, with the reduced ∂h in `drift`; if `canonical`, that of a Hamiltonian."""
        plain = self._with(noises=(), reduction=None)
        return self._with(reduction=reduction_of(plain, start, canonical, weights)) if is_reducible(plain) else self

    def reduction_weights(self, mu: State) -> Weights:
        """Whether a run from μ uses the reduced ∂h, 0 or 1 for each factor; None if both are the same."""
        return reduction_weights(self, mu) if not self.has_torque and is_reducible(self) else None

    def _with(self, **changes: Any) -> "System":
        """A copy with other fields, without the checks of the constructor."""
        return with_fields(self, **changes)

    def arguments(self, x: State) -> tuple:
        """The last argument of traced functions, if they have one, at a state."""
        if not self.received:
            return () if self.params is None else (self.params,)
        for name, value in (("t", self.time), ("g", self.g), ("u", self.u)):
            if name in self.received and value is None:
                what, call = MEANINGS[name].removeprefix("the "), "at(t)" if name == "t" else "at(t, g, u)"
                raise ValueError(f"the system depends on {what}: call {call} first, as in system.{call}.energy(mu).")
        return (Context(self.params, self.time, self._moved_group(x), self.u),)

    def _moved_group(self, x: State) -> PyTree:
        """g exp θ (left) or exp(−θ) g (right) of a pair (θ, μ)."""
        if not isinstance(self.algebra, Cotangent):
            return self.g
        algebra, s = self._on_states, self.sign
        k = algebra.group_exp(s * x[0])
        return algebra.group_product(self.g, k) if s == 1 else algebra.group_product(k, self.g)


def _as_list(given: Any) -> Sequence:
    """Several functions or noises as they are given, or one as a list."""
    return given if isinstance(given, Sequence) and not isinstance(given, str) else [given]
