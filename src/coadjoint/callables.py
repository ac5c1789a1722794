"""Functions of a system that a user passes: checks of their signatures and results, and their tracing."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from stepcompiler.device_arrays import to_device
from stepcompiler.jaxprs.interning import Constant, Function, intern

from .noises import DeferredSalt, HamiltonianNoise, Noise, ObjectNoise, Salt, SaltOfParams, WithoutParams
from .numerics import validation
from .numerics.signatures import check_captured, check_function, check_signature, described
from .params import whole
from .states import any_element, check_elements

_PROBE = 0.125  # the time step, and the increments of noise, at which functions are evaluated once
_CLOSE = 1e-6  # relative to which round-off and numbers of single precision are small
_OF = {("mu",): "the state", ("mu", "dt"): "the state and of the time step"}
_NO_PARAMS = "The system has no params: give System(..., params=...) to use {}."


class Tracer(NamedTuple):
    """Traces the functions of a system with this algebra and these params."""

    algebra: Constant
    params: PyTree  # numbers …
    rest: PyTree = None  # … and the other leaves

    def of_traced(self) -> "Tracer":
        """The tracer for functions that call traced ones, which take numbers only."""
        return self._replace(rest=None)

    def _whole(self, fn: Callable) -> Callable:
        """A function of numbers, from a function of the user's params, its last argument."""
        if not jax.tree.leaves(self.rest):
            return fn
        return lambda *args: fn(*args[:-1], whole(args[-1], self.rest))

    # Functions of the state.

    def hamiltonian(self, name: str, fn: Any) -> Function:
        """A function h(mu), or h(mu, params), that returns one real number."""
        function = self._trace(name, fn)
        out = jax.eval_shape(function, *self._shapes())
        shape = getattr(out, "shape", None)
        if shape != () or out.dtype == bool or jnp.issubdtype(out.dtype, jnp.complexfloating):
            got = f"shape {shape} and type {out.dtype}" if shape is not None else described(out)
            raise ValueError(f"{name} must return one real number, not {got}.")
        if out.dtype != jnp.float64:
            return self._trace(name, lambda *args: jnp.asarray(fn(*args), jnp.float64))
        return function

    def gradient(self, fn: Any, h: Function) -> Function:
        """The user's ∂h/∂μ, compared with the derivative of h."""
        function = self._array("gradient", self._whole(fn), self._trace("gradient", fn), self._shapes(), "shape")
        if not validation.is_traced((self.params, function.consts, h.consts)):
            given, exact = map(np.asarray, _two_gradients(self.algebra, function, h, self._args, self._random()))
            worst = float(np.max(np.abs(given - exact)))
            if not worst <= 1e-8 * (1 + float(np.max(np.abs(exact)))):
                raise ValueError(
                    f"gradient does not agree with the derivative of the hamiltonian: at a random state they differ "
                    f"by {worst:.3g}. Given: {given}; by autodiff: {exact}."
                )
        return function

    def force(self, name: str, fn: Any) -> Function:
        """A function g(mu), or g(mu, params), that returns an element of the algebra."""
        what = "an element of the algebra, shape"
        function = self._array(name, self._whole(fn), self._trace(name, fn), self._shapes(), what)
        self._check_values(name, function, lambda mu: (mu,))
        return function

    def dissipation(self, fn: Any) -> Function:
        """A function D(mu, dt), or D(mu, dt, params), that returns a state."""
        name, shapes = "dissipation", self._shapes(jax.ShapeDtypeStruct((), jnp.float64))
        traced = self._trace(name, fn, ("mu", "dt"), shapes)
        return self._array(name, self._whole(fn), traced, shapes, "a state, shape")

    # Noise.

    def noise(self, noise: Any) -> Noise:
        """The user's noise as a `Noise`."""
        if isinstance(noise, Salt):
            return self._salt(noise)
        if isinstance(noise, DeferredSalt):
            return self._salt_of_params(noise)
        if isinstance(noise, Noise):
            return noise if type(noise).__module__.startswith("coadjoint.") else self._own_noise(noise)
        if hasattr(noise, "size") and hasattr(noise, "apply"):
            return self._object(noise)
        if callable(noise):
            return HamiltonianNoise(self.algebra, self.hamiltonian("noise", noise), self.params is not None)
        raise TypeError(
            "noise must hold salt(beta), functions of the state, or objects with `size` and `apply(mu, dS)`, "
            f"not {described(noise)}."
        )

    def _own_noise(self, noise: Noise) -> Noise:
        """A user's subclass of `Noise`. Its arrays remain leaves of the system."""
        apply, _ = self._apply(noise)
        if len(apply) == 3 and jax.tree.leaves(self.rest):
            return self._object(noise)
        size = noise.size
        if apply == ("mu", "dS"):
            noise = WithoutParams(noise)
        shapes = self._apply_shapes(size)
        function = self._array("noise.apply", noise.apply, intern(noise.apply, *shapes), shapes, "shape", cast=False)
        self._check_noise(function, size, noise.additive)
        return noise

    def _object(self, noise: Any) -> ObjectNoise:
        apply, size = self._apply(noise)
        takes_params = apply == ("mu", "dS", "params") and self.params is not None
        fn = noise.apply if len(apply) == 2 or takes_params else lambda mu, dS: noise.apply(mu, dS, None)
        fn = self._whole(fn) if takes_params else fn
        shapes = self._apply_shapes(size) if takes_params else self._apply_shapes(size)[:2]
        function = self._array("noise.apply", fn, intern(fn, *shapes), shapes, "shape")
        additive = bool(getattr(noise, "additive", False))
        self._check_noise(function, size, additive, takes_params)
        return ObjectNoise(size=size, field=function, additive=additive, takes_params=takes_params)

    def _check_noise(self, function: Function, size: int, additive: bool, with_params: bool = True) -> None:
        """Raise if a user's noise is not an element of the algebra, not linear in dS, or not additive as it claims."""
        name, dS = "noise.apply(mu, dS)", _PROBE * (1.0 + jnp.arange(size))
        self._check_values(name, function, lambda mu: (mu, dS), with_params)
        if validation.is_traced((self.params, function.consts)):
            return
        mu, other = _element(self.algebra, self._random()), _element(self.algebra, self._random()[::-1])
        args = self._args if with_params else ()
        one, two, elsewhere = (
            np.asarray(_called(function, (m, s * dS, *args))) for m, s in ((mu, 1.0), (mu, 2.0), (other, 1.0))
        )
        close = _CLOSE * np.max(np.abs(one), initial=0.0)
        if not np.all(np.isfinite([one, two, elsewhere])):
            return
        if np.any(np.abs(two - 2.0 * one) > close):
            raise ValueError(f"{name} must be linear in dS, but doubling dS does not double its value.")
        if additive and np.any(np.abs(elsewhere - one) > close):
            raise ValueError("noise.additive is True, but noise.apply(mu, dS) depends on mu: set additive = False.")

    def _apply(self, noise: Any) -> tuple[tuple[str, ...], int]:
        """The signature of `apply`, and `size`."""
        size = validation.count("noise.size", noise.size)
        if not callable(noise.apply):
            raise TypeError(f"noise.apply must be a function apply(mu, dS), not {described(noise.apply)}.")
        check_captured("noise.apply", noise.apply)
        both = ("mu", "dS"), ("mu", "dS", "params")
        return check_signature("noise.apply", noise.apply, *(both if self.params is None else both[::-1])), size

    def _apply_shapes(self, size: int) -> tuple:
        state, *params = self._shapes()
        return state, jax.ShapeDtypeStruct((size,), jnp.float64), *(params or [None])

    def _stack(self, beta: Array, name: str = "salt(beta)") -> Array:
        """One field, or a stack of fields, as a stack of the algebra's type."""
        algebra = self.algebra.value
        stack = beta[None] if beta.shape == algebra.shape else beta
        if stack.shape[1:] != algebra.shape or stack.shape[0] == 0:
            raise ValueError(
                f"noise: {name} needs beta of shape {algebra.shape}, or a stack of shape "
                f"(M, {', '.join(map(str, algebra.shape))}), not {beta.shape}."
            )
        if jnp.iscomplexobj(stack) and algebra.dtype == jnp.float64:
            raise TypeError(f"noise: {name} needs a real beta on a real algebra, not a complex one.")
        return stack.astype(algebra.dtype)

    def _salt(self, noise: Salt) -> Salt:
        stack = self._stack(noise.beta)
        check_elements(self.algebra.value, "beta", stack)
        return Salt(stack)

    def _salt_of_params(self, noise: DeferredSalt) -> SaltOfParams:
        if self.params is None:
            raise ValueError(
                "noise: salt(...) has a function of params, but the system has none: give System(..., params=...)."
            )

        def fields(params: PyTree) -> Array:
            beta = self._stack(jnp.asarray(noise.beta(params)), "salt(beta(params))")
            if noise.scale is None:
                return beta
            scale = jnp.asarray(noise.scale(params))
            if scale.shape not in ((), beta.shape[:1]):
                raise ValueError(
                    f"noise: scale(params) must be one number, or {len(beta)}, one for each field, not of shape "
                    f"{scale.shape}."
                )
            if not jnp.issubdtype(scale.dtype, jnp.floating) and not jnp.issubdtype(scale.dtype, jnp.integer):
                raise TypeError(f"noise: scale(params) must be real, not of type {scale.dtype}.")
            return beta * scale.reshape(-1, *(1,) * (beta.ndim - 1))

        function = intern(self._whole(fields), self._shapes()[1])
        if not any_element(self.algebra.value) and not validation.is_traced((self.params, function.consts)):
            check_elements(self.algebra.value, "beta", _called(function, self._args))
        return SaltOfParams(jax.eval_shape(function, self._shapes()[1]).shape[0], function)

    # Tracing, and values.

    @property
    def _args(self) -> tuple:
        return () if self.params is None else (self.params,)

    def _shapes(self, *between: Any) -> tuple:
        """Shapes and types of the state, of the other arguments of a function, and of the params."""
        algebra = self.algebra.value
        state = jax.ShapeDtypeStruct(algebra.shape, algebra.dtype)
        return (state, *between, *jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), self._args))

    def _trace(self, name: str, fn: Any, arguments: tuple[str, ...] = ("mu",), shapes: tuple | None = None) -> Function:
        whole = (*arguments, "params")
        hint = "" if self.params is not None else _NO_PARAMS.format(f"{name}({', '.join(whole)})")
        check_function(name, fn, arguments if self.params is None else whole, what=_OF[arguments], hint=hint)
        try:
            return intern(fn if self.params is None else self._whole(fn), *(shapes or self._shapes()))
        except Exception as error:
            signature = ", ".join(arguments if self.params is None else whole)
            error.add_note(
                f"This was raised while tracing {name}({signature}) at a state of shape {self.algebra.value.shape}."
            )
            raise

    def _array(
        self, name: str, fn: Callable, function: Function, shapes: tuple, what: str, cast: bool = True
    ) -> Function:
        """A function that returns an array of the algebra's shape, and of its type if it can be converted."""
        algebra, out = self.algebra.value, jax.eval_shape(function, *shapes)
        if getattr(out, "shape", None) != algebra.shape:
            got = getattr(out, "shape", described(out))
            raise ValueError(f"{name} must return {what} {algebra.shape}, not {got}.")
        if jnp.issubdtype(out.dtype, jnp.complexfloating) and algebra.dtype == jnp.float64:
            raise TypeError(f"{name} must return real numbers on a real algebra, not complex ones.")
        if out.dtype == algebra.dtype or not cast:
            return function
        return intern(lambda *args: jnp.asarray(fn(*args), algebra.dtype), *shapes)

    def _random(self) -> Array:
        """The coordinates at which functions are evaluated once."""
        return to_device(np.random.default_rng(0).standard_normal(self.algebra.value.dim))

    def _check_values(self, name: str, function: Function, args: Callable, with_params: bool = True) -> None:
        """Raise if a function returns something other than an element of the algebra at a random state."""
        if any_element(self.algebra.value) or validation.is_traced((self.params, function.consts)):
            return
        mu = _element(self.algebra, self._random())
        given = (*args(mu), *(self._args if with_params else ()))
        value = np.asarray(_called(function, given))[None]
        if not np.all(np.isfinite(value)):
            return
        check_elements(self.algebra.value, name, value, np.asarray(mu))


def check_params(system: Any, params: PyTree, axes: PyTree = None) -> None:
    """Raise if a function of other params returns no element of the algebra; `axes`: leaves that lead with members."""
    algebra = system.algebra
    if any_element(algebra) or validation.is_traced((system, params)):
        return
    mu = _element(system._algebra, placed(np.random.default_rng(0).standard_normal(algebra.dim)))
    for name, stack in _elements(system, params, axes, mu):
        values = np.asarray(stack).reshape(-1, *algebra.shape)
        finite = values[np.all(np.isfinite(values), axis=tuple(range(1, values.ndim)))]
        check_elements(algebra, name, finite, None if name == "beta" else np.asarray(mu))


def _elements(system: Any, params: PyTree, axes: PyTree, mu: Array) -> list[tuple[str, Array]]:
    """The elements that functions of params return at a state, with the names of the functions."""
    betas = [n.beta for n in system.noises if isinstance(n, SaltOfParams)]
    own = lambda noise: not type(noise).__module__.startswith("coadjoint.")
    others = [n for n in system.noises if own(n) or (isinstance(n, ObjectNoise) and n.takes_params)]
    names = ["forcing"] * len(system.forces) + ["beta"] * len(betas) + ["noise.apply(mu, dS)"] * len(others)
    return list(zip(names, _all_elements((system.forces, betas, others), params, axes, mu), strict=True))


@eqx.filter_jit
def _all_elements(functions: tuple, params: PyTree, axes: PyTree, mu: Array) -> list[Array]:
    def of(params: PyTree) -> list[Array]:
        forces, betas, others = functions
        applied = [noise.apply(mu, jnp.full(noise.size, _PROBE), params) for noise in others]
        return [*(g(mu, params) for g in forces), *(beta(params) for beta in betas), *applied]

    return of(params) if axes is None else jax.vmap(of, in_axes=(axes,))(params)


@eqx.filter_jit
def _called(function: Function, args: tuple) -> Array:
    return function(*args)


@eqx.filter_jit
def _element(algebra: Constant, c: Array) -> Array:
    return algebra.value.element(c)


@eqx.filter_jit
def _two_gradients(algebra: Constant, grad: Function, h: Function, args: tuple, c: Array) -> tuple[Array, Array]:
    """The user's gradient and that of h, at the element with coordinates c."""
    mu = algebra.value.element(c)
    return grad(mu, *args), algebra.value.gradient(lambda m: h(m, *args), mu)
