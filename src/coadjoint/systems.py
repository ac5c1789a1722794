"""Stochastic Lie–Poisson systems: an algebra, a Hamiltonian, noise, a side."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree

from .algebras.base import Element, LieAlgebra, State
from .algebras.compose import any_array
from .noises import HamiltonianNoise, Noise, ObjectNoise, Salt, SaltOfParams, Stirring, UnplacedSalt
from .noises import salt as salt
from .numerics import checks
from .numerics.arrays import placed
from .numerics.functions import Constant, Function, intern
from .numerics.text import as_html
from .states import check_state, fit_params

_MOST_COMMUTING = 64  # more noises than this are not asked whether they commute


class System(eqx.Module):
    """A stochastic Lie–Poisson system, Stratonovich:

        dμ = s ( ad*_{∂h/∂μ + g} μ dt + Σ_i ad*_{∂h_i/∂μ} μ ∘ dS^i ),  s = +1 left-invariant, −1 right-invariant.

    - `hamiltonian`: any JAX function h(mu), or h(mu, params) when `params` is given; or a list of such functions, whose
      sum it is (splitting methods take the parts one by one).
    - `noise`: a list of `salt(beta)`, of functions like the Hamiltonian, or of objects with `size` and `apply(mu, dS)`,
      or `apply(mu, dS, params)`.
    - `gradient`: ∂h/∂μ by hand, with the arguments of the Hamiltonian; it is checked once against autodiff.
    - `forcing`: a function g(mu), or g(mu, params), that gives an element of the algebra, or a list of such functions,
      whose sum it is: friction, feedback, torques. It is added to ∂h, so that the motion stays on the orbit.
    - `dissipation`: a function D(mu, dt), or D(mu, dt, params), that gives where viscosity and the like take a state in
      the time dt. Every method splits it off (Strang); it leaves the orbit, so that Casimirs change.
    """  # fmt: skip

    _algebra: Constant = eqx.field(static=True)  # whatever arrays it holds
    side: str = eqx.field(static=True)
    h: Function
    parts: tuple[Function, ...]  # of h, if it was given as a list
    grad_h: Function | None
    forces: tuple[Function, ...]
    dissipation: Function | None
    noises: tuple[Noise, ...]
    params: PyTree

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
        dissipation: Callable[..., State] | None = None,
    ):
        checks.require_float64()
        if not isinstance(algebra, LieAlgebra):
            raise TypeError(f"algebra must be a LieAlgebra such as SO3(), not {_describe(algebra)}.")
        self._algebra = Constant(algebra)
        self.side = checks.choice("side", side, ("left", "right"))
        self.params = jax.tree.map(_as_array, params)
        self.parts = ()
        if isinstance(hamiltonian, Sequence) and not isinstance(hamiltonian, str):
            if not hamiltonian:
                raise ValueError("hamiltonian must hold at least one function, but the list is empty.")
            parts = self.parts = tuple(self._trace(f"hamiltonian[{k}]", part) for k, part in enumerate(hamiltonian))
            self.h = self._trace("hamiltonian", lambda *args: sum(part(*args) for part in parts))
        else:
            self.h = self._trace("hamiltonian", hamiltonian)
        self.grad_h = None if gradient is None else self._trace_gradient(gradient)
        given = forcing if isinstance(forcing, Sequence) and not isinstance(forcing, str) else [forcing]
        names = [f"forcing[{k}]" if given is forcing else "forcing" for k in range(len(given))]
        self.forces = tuple(self._trace_force(name, g) for name, g in zip(names, given, strict=True))
        self.dissipation = None if dissipation is None else self._trace_dissipation(dissipation)
        noises = noise if isinstance(noise, Sequence) and not isinstance(noise, str) else [noise]
        self.noises = tuple(self._make_noise(n) for n in noises)

    def _repr_html_(self) -> str:
        return as_html(self)

    def __repr__(self) -> str:
        """One line."""
        noise = {0: "no noise", 1: "1 noise"}.get(self.n_noise, f"{self.n_noise} noises")
        params = "" if self.params is None else ", with params"
        forced = ", with forcing" if self.forces else ""
        algebra = f"{type(self.algebra).__name__} of dimension {self.algebra.dim}, {self.algebra.casimir_words}"
        lossy = "; with dissipation, so that Casimirs are not kept" if self.leaves_orbit else ""
        return f"System: {algebra}; {self.side}-invariant, {noise}{forced}{params}{lossy}"

    @property
    def algebra(self) -> LieAlgebra:
        """The Lie algebra."""
        return self._algebra.value

    @property
    def sign(self) -> int:
        """s: +1 for a left-invariant system, −1 for a right-invariant one."""
        return 1 if self.side == "left" else -1

    @property
    def n_noise(self) -> int:
        """M, the number of driving signals besides time."""
        return sum(n.size for n in self.noises)

    @property
    def additive(self) -> bool:
        """Whether every noise is SALT, so that the noise in σ is additive."""
        return all(n.additive for n in self.noises)

    @property
    def commuting(self) -> bool:
        """Whether the noises are known to be SALT with [β_i, β_j] = 0; asked only outside of compiled code."""
        M = self.n_noise
        if M <= 1 or not self.additive:
            return self.additive
        if any(isinstance(n, SaltOfParams) for n in self.noises):
            return False  # other params may be given
        if M > _MOST_COMMUTING or checks.is_traced(self.noises):
            return False
        with jax.ensure_compile_time_eval():
            return bool(_commute(self))

    @property
    def leaves_orbit(self) -> bool:
        """Whether there is dissipation or stirring, so that Casimirs change."""
        return self.dissipation is not None or any(isinstance(n, Stirring) for n in self.noises)

    def dissipate(self, mu: State, dt: Float[Array, ""]) -> State:
        """D(μ, dt)."""
        return mu if self.dissipation is None else self.dissipation(mu, dt, *self._args)

    def push(self, dS: Float[Array, " M"]) -> State:
        """Σ_i f_i dS^i of stirring that is white in time."""
        total = jnp.zeros(self.algebra.shape, self.algebra.dtype)
        start = 0
        for n in self.noises:
            total = total + n.push(dS[start : start + n.size]) if isinstance(n, Stirring) else total
            start += n.size
        return total

    def energy(self, mu: State) -> Float[Array, ""]:
        """h(μ)."""
        return self.h(mu, *self._args)

    def part_gradient(self, k: int, mu: State) -> Element:
        """∂h_k/∂μ(μ) of part k of h = Σ h_k."""
        return self.algebra.gradient(lambda m: self.parts[k](m, *self._args), mu)

    def energy_gradient(self, mu: State) -> Element:
        """∂h/∂μ(μ)."""
        if self.grad_h is not None:
            return self.grad_h(mu, *self._args)
        return self.algebra.gradient(self.energy, mu)

    def force(self, mu: State) -> Element:
        """g(μ), the sum of what `forcing` gives."""
        total = jnp.zeros(self.algebra.shape, self.algebra.dtype)
        for g in self.forces:
            total = total + g(mu, *self._args)
        return total

    def drift(self, mu: State) -> Element:
        """∂h/∂μ(μ) + g(μ)."""
        dh = self.energy_gradient(mu)
        return dh + self.force(mu) if self.forces else dh

    def noise(self, mu: State, dS: Float[Array, " M"]) -> Element:
        """Σ_i ∂h_i/∂μ(μ) dS^i."""
        total = jnp.zeros(self.algebra.shape, self.algebra.dtype)
        start = 0
        for n in self.noises:
            total = total + n.apply(mu, dS[start : start + n.size], self.params)
            start += n.size
        return total

    def zeta(self, mu: State, dt: Float[Array, ""], dS: Float[Array, " M"]) -> Element:
        """ζ = (∂h/∂μ(μ) + g(μ)) dt + Σ_i ∂h_i/∂μ(μ) dS^i."""
        zeta = self.drift(mu) * dt
        return zeta + self.noise(mu, dS) if self.noises else zeta

    def vector_field(self, mu: State, dt: Float[Array, ""], dS: Float[Array, " M"]) -> State:
        """s ad*_ζ μ: the right-hand side times the increments."""
        return self.sign * self.algebra.ad_star(self.zeta(mu, dt, dS), mu)

    def check_state(self, name: str, mu: Any) -> Array:
        """The state as an array of the algebra's type, or an error that says what is wrong with it."""
        return check_state(self.algebra, name, mu)

    def with_params(self, params: PyTree) -> "System":
        """The same system with other parameters of the same structure, shapes and kinds of number."""
        fitted = fit_params(self.params, params)
        for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(self.params), jax.tree.leaves(fitted), strict=True):
            if a.shape != b.shape:
                name = "params" + jax.tree_util.keystr(path)
                raise ValueError(f"{name} must have shape {a.shape}, as in the system, not {b.shape}.")
        return eqx.tree_at(lambda s: s.params, self, fitted)

    # Tracing what the user gave.

    @property
    def _args(self) -> tuple:
        return () if self.params is None else (self.params,)

    @property
    def _arg_shapes(self) -> tuple:
        state = jax.ShapeDtypeStruct(self.algebra.shape, self.algebra.dtype)
        return (state, *jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), self._args))

    def _call_intern(self, name: str, fn: Any) -> Function:
        if not callable(fn):
            raise TypeError(f"{name} must be a function of the state, not {_describe(fn)}.")
        try:
            return intern(fn, *self._arg_shapes)
        except Exception as error:
            signature = "mu" if self.params is None else "mu, params"
            error.add_note(
                f"This was raised while tracing {name}({signature}) at a state of shape {self.algebra.shape}."
            )
            raise

    def _trace(self, name: str, fn: Any) -> Function:
        function = self._call_intern(name, fn)
        out = jax.eval_shape(function, *self._arg_shapes)
        shape = getattr(out, "shape", None)
        if shape != () or jnp.issubdtype(out.dtype, jnp.complexfloating):
            got = f"shape {shape} and type {out.dtype}" if shape is not None else _describe(out)
            raise ValueError(f"{name} must return one real number, not {got}.")
        if out.dtype != jnp.float64:
            return self._call_intern(name, lambda *args: jnp.asarray(fn(*args), jnp.float64))
        return function

    def _trace_gradient(self, fn: Any) -> Function:
        function = self._call_intern("gradient", fn)
        out = jax.eval_shape(function, *self._arg_shapes)
        if getattr(out, "shape", None) != self.algebra.shape:
            raise ValueError(f"gradient must return shape {self.algebra.shape}, not {getattr(out, 'shape', out)}.")
        if not checks.is_traced((self.params, function.consts, self.h.consts)):
            c = placed(np.random.default_rng(0).standard_normal(self.algebra.dim))
            given, exact = map(np.asarray, _two_gradients(self._algebra, function, self.h, self._args, c))
            worst = float(np.max(np.abs(given - exact)))
            if not worst <= 1e-8 * (1 + float(np.max(np.abs(exact)))):
                raise ValueError(
                    f"gradient does not agree with the derivative of the hamiltonian: at a random state they differ "
                    f"by {worst:.3g}. Given: {given}; by autodiff: {exact}."
                )
        return function

    def _trace_dissipation(self, fn: Any) -> Function:
        state, *params = self._arg_shapes
        shapes = state, jax.ShapeDtypeStruct((), jnp.float64), *params
        if not callable(fn):
            raise TypeError(f"dissipation must be a function D(mu, dt), not {_describe(fn)}.")
        function = intern(fn, *shapes)
        out = jax.eval_shape(function, *shapes)
        if getattr(out, "shape", None) != self.algebra.shape:
            raise ValueError(
                f"dissipation must return a state, shape {self.algebra.shape}, not {getattr(out, 'shape', out)}."
            )
        return function

    def _trace_force(self, name: str, fn: Any) -> Function:
        function = self._call_intern(name, fn)
        out, shape = jax.eval_shape(function, *self._arg_shapes), self.algebra.shape
        if getattr(out, "shape", None) != shape:
            raise ValueError(
                f"{name} must return an element of the algebra, shape {shape}, not {getattr(out, 'shape', out)}."
            )
        if jnp.issubdtype(out.dtype, jnp.complexfloating) and self.algebra.dtype == jnp.float64:
            raise TypeError(f"{name} must return real numbers on a real algebra, not complex ones.")
        if out.dtype != self.algebra.dtype:
            function = self._call_intern(name, lambda *args: jnp.asarray(fn(*args), self.algebra.dtype))
        if not any_array(self.algebra) and not checks.is_traced((self.params, function.consts)):
            c = placed(np.random.default_rng(0).standard_normal(self.algebra.dim))
            # With μ, an element as well, beside which a forcing that vanishes to round-off is none.
            wrong = self.algebra.state_error(np.asarray(_forced(self._algebra, function, self._args, c)))
            if wrong is not None:
                raise ValueError(f"{name} does not give an element of {type(self.algebra).__name__}: {wrong}")
        return function

    def _make_noise(self, noise: Any) -> Noise:
        if isinstance(noise, Salt):
            return self._place_salt(noise)
        if isinstance(noise, UnplacedSalt):
            return self._place_salt_of_params(noise)
        if isinstance(noise, Noise):
            return noise
        if hasattr(noise, "size") and hasattr(noise, "apply"):
            return self._trace_object(noise)
        if callable(noise):
            return HamiltonianNoise(self._algebra, self._trace("noise", noise), self.params is not None)
        raise TypeError(
            "noise must hold salt(beta), functions of the state, or objects with `size` and `apply(mu, dS)`, "
            f"not {_describe(noise)}."
        )

    def _trace_object(self, noise: Any) -> ObjectNoise:
        size = checks.count("noise.size", noise.size)
        state, *params = self._arg_shapes
        takes_params = bool(params) and _takes_three(noise.apply)
        shapes = state, jax.ShapeDtypeStruct((size,), jnp.float64), *(params if takes_params else ())
        field = intern(noise.apply, *shapes)
        out = jax.eval_shape(field, *shapes)
        if getattr(out, "shape", None) != self.algebra.shape:
            got = getattr(out, "shape", type(out).__name__)
            raise ValueError(f"noise.apply(mu, dS) must return shape {self.algebra.shape}, not {got}.")
        additive = bool(getattr(noise, "additive", False))
        return ObjectNoise(size=size, field=field, additive=additive, takes_params=takes_params)

    def _stack(self, beta: Array) -> Array:
        """One field, or a stack of them, as a stack of the algebra's type."""
        shape = self.algebra.shape
        stack = beta[None] if beta.shape == shape else beta
        if stack.shape[1:] != shape or stack.shape[0] == 0:
            raise ValueError(
                f"noise: salt(beta) needs beta of shape {shape}, or a stack of shape "
                f"(M, {', '.join(map(str, shape))}), not {beta.shape}."
            )
        if jnp.iscomplexobj(stack) and self.algebra.dtype == jnp.float64:
            raise TypeError("noise: salt(beta) needs a real beta on a real algebra, not a complex one.")
        return stack.astype(self.algebra.dtype)

    def _place_salt(self, noise: Salt) -> Salt:
        return Salt(self._stack(noise.beta))

    def _place_salt_of_params(self, noise: UnplacedSalt) -> SaltOfParams:
        if self.params is None:
            raise ValueError(
                "noise: salt(...) has a function of params, but the system has none: give System(..., params=...)."
            )

        def fields(params: PyTree) -> Array:
            beta = self._stack(jnp.asarray(noise.beta(params)))
            if noise.scale is None:
                return beta
            scale = jnp.asarray(noise.scale(params))
            if scale.shape not in ((), beta.shape[:1]):
                raise ValueError(
                    f"noise: scale(params) must be one number, or {len(beta)}, one for each field, not of shape "
                    f"{scale.shape}."
                )
            return beta * scale.reshape(-1, *(1,) * (beta.ndim - 1))

        function = intern(fields, self._arg_shapes[1])
        return SaltOfParams(jax.eval_shape(function, self._arg_shapes[1]).shape[0], function)


@eqx.filter_jit
def _forced(algebra: Constant, force: Function, args: tuple, c: Array) -> Array:
    """μ + F(μ) at coordinates c."""
    mu = algebra.value.element(c)
    return mu + force(mu, *args)


@eqx.filter_jit
def _two_gradients(algebra: Constant, grad: Function, h: Function, args: tuple, c: Array) -> tuple[Array, Array]:
    """The gradient that was given and that of h, at the element with coordinates c."""
    mu = algebra.value.element(c)
    return grad(mu, *args), algebra.value.gradient(lambda m: h(m, *args), mu)


@eqx.filter_jit
def _commute(system: System) -> Bool[Array, ""]:
    """Whether all brackets of SALT fields vanish, to round-off."""
    algebra = system.algebra
    zero = jnp.zeros(algebra.shape, algebra.dtype)
    beta = jax.vmap(lambda e: system.noise(zero, e))(jnp.eye(system.n_noise))
    brackets = jax.vmap(lambda a: jax.vmap(lambda b: _size(algebra.bracket(a, b)))(beta))(beta)
    sizes = jax.vmap(_size)(beta)
    return jnp.all(brackets <= 1e-14 * sizes[:, None] * sizes)


def _size(x: Array) -> Float[Array, ""]:
    return jnp.max(jnp.abs(x))


def _takes_three(apply: Callable) -> bool:
    """Whether a function takes a third argument: apply(mu, dS, params)."""
    try:
        inspect.signature(apply).bind(None, None, None)
    except TypeError:
        return False
    return True


def _as_array(x: Any) -> Array:
    """A leaf of params, strongly typed so that a number and an array compile to the same code."""
    return x if isinstance(x, jax.Array) else jnp.asarray(np.asarray(x))


def _describe(x: Any) -> str:
    return f"a {type(x).__name__}" if x is not None else "None"
