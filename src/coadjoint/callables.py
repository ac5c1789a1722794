"""Functions of a system that a user passes: checks of their signatures and results, and their tracing."""

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from stepcompiler.device_arrays import to_device
from stepcompiler.jaxprs.interning import Constant, Function, intern

from .algebras.base import LieAlgebra
from .inputs import Use, recorded, uses
from .noises import (
    DeferredSalt,
    HamiltonianNoise,
    Noise,
    ObjectNoise,
    Salt,
    SaltOfParams,
    Stirring,
    UserNoise,
    WhiteTorque,
)
from .numerics import validation
from .numerics.signatures import (
    SPECIAL,
    check_captured,
    check_function,
    check_signature,
    check_special,
    described,
    named_arguments,
    special_arguments,
)
from .params import Context, whole
from .states import any_element, check_elements

_PROBE = 0.125  # the time step, and the increments of noise, at which functions are evaluated once
_CLOSE = 1e-6  # relative to which round-off and numbers of single precision are small
_OF = {
    ("mu",): "the state",
    ("mu", "dt"): "the state and of the time step",
    ("mu", "state"): "the state and of its discrete state",
}
_NO_PARAMS = "The system has no params: give System(..., params=...) to use {}."
_NO_CONTROL = "An argument u receives the held control: give System(..., control=cj.hold(law, every=k)) to use it."


def received_values(algebra: LieAlgebra, names: Collection[str], control: Any = None) -> dict[str, PyTree]:
    """Values of what functions receive by name, with which they are traced and evaluated once."""
    values: dict[str, PyTree] = {}
    if "t" in names:
        values["t"] = to_device(np.float64(_PROBE))
    if "g" in names:
        values["g"] = _group_element(Constant(algebra))
    if "u" in names:
        values["u"] = control
    return values


@eqx.filter_jit
def _group_element(algebra: Constant) -> PyTree:
    """An element of the group that is not special."""
    g = algebra.value
    return g.group_exp(g.element(jnp.asarray(np.random.default_rng(1).uniform(-0.4, 0.4, g.dim))))


def names_received(functions: Sequence[Any], names: Sequence[str] = SPECIAL) -> set[str]:
    """The special names, such as t, of arguments of the functions, `salt` fields and noise objects of a user."""

    def received(x: Any) -> set[str]:
        if isinstance(x, WhiteTorque):
            x = x.fields
        inside = (x.beta, x.scale) if isinstance(x, DeferredSalt) else (x, getattr(x, "apply", None))
        return {name for fn in inside for name in special_arguments(fn, names)}

    return set().union(*map(received, functions))


class Tracer(NamedTuple):
    """Traces the functions of a system with this algebra and these params.

    Traced functions take the state, what else belongs to them, and last the params, if the system has any. If any
    function receives something by name, such as the time, this last argument is a `Context`, for all functions alike.
    """

    algebra: Constant
    params: PyTree  # numbers …
    rest: PyTree = None  # … and the other leaves
    received: dict[str, PyTree] = {}  # noqa: RUF012, what functions receive by name, with values to trace them with
    inputs: list[Use] = []  # noqa: RUF012, given anew by every system: the inputs that its functions evaluate

    @property
    def names(self) -> tuple[str, ...]:
        """The names of arguments that receive something by name."""
        return (*SPECIAL, "u") if "u" in self.received else SPECIAL

    def _call(self, name: str, fn: Callable, with_params: bool = True) -> Callable:
        """The user's function as a function of numbers, with the last argument of traced functions."""
        if self.params is None and not self.received:
            return fn
        own = special_arguments(fn, self.names)

        def call(*args: PyTree) -> PyTree:
            *first, last = args
            params = last.params if self.received else last
            given = [] if self.params is None or not with_params else [whole(params, self.rest)]
            special = [getattr(last, own_name) for own_name in own]
            if "t" not in own:
                return fn(*first, *given, *special)
            with recorded(last.t) as found:
                out = fn(*first, *given, *special)
            self.inputs.extend(uses(name, found))
            return out

        return call

    # Functions of the state.

    def hamiltonian(self, name: str, fn: Any) -> Function:
        """A function h(mu), or h(mu, params), that returns one real number."""
        call = self.checked(name, fn)
        function = self.intern(name, call)
        out = jax.eval_shape(function, *self._shapes())
        shape = getattr(out, "shape", None)
        if shape != () or out.dtype == bool or jnp.issubdtype(out.dtype, jnp.complexfloating):
            got = f"shape {shape} and type {out.dtype}" if shape is not None else described(out)
            raise ValueError(f"{name} must return one real number, not {got}.")
        if out.dtype != jnp.float64:
            return self.intern(name, lambda *args: jnp.asarray(call(*args), jnp.float64))
        return function

    def sum(self, parts: Sequence[Function]) -> Function:
        """The sum of traced Hamiltonians."""
        return intern(lambda *args: sum(part(*args) for part in parts), *self._shapes())

    def gradient(self, fn: Any, h: Function) -> Function:
        """∂h/∂μ by hand, compared with that of h."""
        call = self.checked("gradient", fn)
        function = self._array("gradient", call, self.intern("gradient", call), self._shapes(), "shape")
        if not validation.is_traced((self.params, function.consts, h.consts)):
            given, exact = map(np.asarray, _two_gradients(self.algebra, function, h, self._args, self._random()))
            worst = float(np.max(np.abs(given - exact)))
            if not worst <= 1e-8 * (1 + float(np.max(np.abs(exact)))):
                raise ValueError(
                    f"gradient does not agree with the derivative of the hamiltonian: at a random state they differ "
                    f"by {worst:.3g}. Given: {given}; by autodiff: {exact}."
                )
        return function

    def force(self, name: str, fn: Any, what: str = "an element of the algebra") -> Function:
        """A function g(mu), or g(mu, params), that returns an element of the algebra, or a state."""
        call = self.checked(name, fn)
        function = self._array(name, call, self.intern(name, call), self._shapes(), f"{what}, shape")
        self._check_values(name, function, lambda mu: (mu,))
        return function

    def dissipation(self, fn: Any) -> Function:
        """A function D(mu, dt), or D(mu, dt, params), that returns a state."""
        name, shapes = "dissipation", self._shapes(jax.ShapeDtypeStruct((), jnp.float64))
        call = self.checked(name, fn, ("mu", "dt"))
        return self._array(name, call, self.intern(name, call, shapes), shapes, "a state, shape")

    # Noise.

    def noise(self, noise: Any) -> Noise:
        """The user's noise as a `Noise`."""
        if isinstance(noise, WhiteTorque):
            fields = self.noise(noise.fields)
            return Stirring(size=fields.size, fields=fields, factor=1.0)
        if isinstance(noise, Salt):
            return self._salt(noise)
        if isinstance(noise, DeferredSalt):
            return self._salt_of_params(noise)
        if isinstance(noise, Noise):
            return self._builtin(noise) if type(noise).__module__.startswith("coadjoint.") else self._own_noise(noise)
        if hasattr(noise, "size") and hasattr(noise, "apply"):
            return self._object(noise)
        if callable(noise):
            return HamiltonianNoise(self.algebra, self.hamiltonian("noise", noise), bool(self._args))
        raise TypeError(
            "noise must hold salt(beta), functions of the state, or objects with `size` and `apply(mu, dS)`, "
            f"not {described(noise)}."
        )

    def _builtin(self, noise: Noise) -> Noise:
        """A noise of this library: its `apply` takes params only, unless it is made of traced functions."""
        if not self.received or noise.traced or isinstance(noise, (Salt, Stirring)):
            return noise
        return UserNoise(noise, ("params",), True)

    def _own_noise(self, noise: Noise) -> Noise:
        """A subclass of `Noise` that a user wrote: its arrays stay leaves of the system."""
        apply, size = self._apply(noise)
        if "params" in apply and jax.tree.leaves(self.rest):
            return self._object(noise)
        plain = apply == ("mu", "dS", "params") and not self.received
        own = noise if plain else UserNoise(noise, apply[2:], bool(self.received))
        shapes = self._apply_shapes(size)
        traced = intern(own.apply, *shapes)
        function = self._array("noise.apply", own.apply, traced, shapes, "shape", cast=False)
        self._check_noise(function, size, noise.additive)
        return own

    def _object(self, noise: Any) -> ObjectNoise:
        apply, size = self._apply(noise)

        def call(mu: Array, dS: Array, *last: PyTree) -> Array:
            given = (last[0] if self.received else Context(last[0])) if last else Context(None)
            params = None if self.params is None else whole(given.params, self.rest)
            return noise.apply(mu, dS, *(getattr(given._replace(params=params), a) for a in apply[2:]))

        takes_params = len(apply) > 2 and bool(self._args)
        shapes = self._apply_shapes(size) if takes_params else self._apply_shapes(size)[:2]
        function = self._array("noise.apply", call, intern(call, *shapes), shapes, "shape")
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
        first = ("mu", "dS")
        special = special_arguments(noise.apply, self.names)
        forms = [(*first, *special), (*first, "params", *special)]
        return check_signature("noise.apply", noise.apply, *(forms if self.params is None else forms[::-1])), size

    def _apply_shapes(self, size: int) -> tuple:
        state, *last = self._shapes()
        return state, jax.ShapeDtypeStruct((size,), jnp.float64), *(last or [None])

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
        beta_of, scale_of = (self._of_params(name, fn) for name, fn in (("beta", noise.beta), ("scale", noise.scale)))

        def fields(*last: PyTree) -> Array:
            beta = self._stack(jnp.asarray(beta_of(*last)), "salt(beta(...))")
            if noise.scale is None:
                return beta
            scale = jnp.asarray(scale_of(*last))
            if scale.shape not in ((), beta.shape[:1]):
                raise ValueError(
                    f"noise: scale must return one number, or {len(beta)}, one per field, not an array of shape "
                    f"{scale.shape}."
                )
            if not jnp.issubdtype(scale.dtype, jnp.floating) and not jnp.issubdtype(scale.dtype, jnp.integer):
                raise TypeError(f"noise: scale must be real, not of type {scale.dtype}.")
            return beta * scale.reshape(-1, *(1,) * (beta.ndim - 1))

        shapes = self._shapes()[1:]
        function = intern(fields, *shapes)
        if not any_element(self.algebra.value) and not validation.is_traced((self.params, function.consts)):
            check_elements(self.algebra.value, "beta", _called(function, self._args))
        return SaltOfParams(jax.eval_shape(function, *shapes).shape[0], function)

    def _of_params(self, name: str, fn: Any) -> Callable:
        """`beta` or `scale` of `salt`: a function of params, of the time, or of both, or a constant."""
        if not callable(fn):
            return lambda *last: fn.beta if isinstance(fn, Salt) else fn
        names, special = tuple(named_arguments(fn)), special_arguments(fn, self.names)
        with_params = names != special or not special
        if self.params is None and with_params:
            raise ValueError(
                f"noise: salt(...) has a function {name}({', '.join(names)}) of params, but the system has none: give "
                "System(..., params=...)."
            )
        check_special(name, fn, ("params",) if with_params else (), self.names)
        return self._call(name, fn, with_params)

    # Tracing, and values.

    @property
    def _args(self) -> tuple:
        """The last argument of traced functions, with which functions are evaluated once."""
        if self.received:
            return (Context(self.params, **self.received),)
        return () if self.params is None else (self.params,)

    def law_shapes(self, state: PyTree) -> tuple:
        """Shapes and types of the arguments of a control law with this discrete state."""
        return self._shapes(jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), state))

    def _shapes(self, *between: Any) -> tuple:
        """Shapes and types of the state, of what else a function takes, and of the last argument."""
        algebra = self.algebra.value
        state = jax.ShapeDtypeStruct(algebra.shape, algebra.dtype)
        return (state, *between, *jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), self._args))

    def checked(self, name: str, fn: Any, arguments: tuple[str, ...] = ("mu",)) -> Callable:
        """The user's function as one that can be traced, or an error that states which arguments it must have."""
        own = (*arguments, "params") if self.params is not None else arguments
        hint = "" if self.params is not None else _NO_PARAMS.format(f"{name}({', '.join((*arguments, 'params'))})")
        if callable(fn):
            check_special(name, fn, own, self.names)
            if "u" not in self.received and "u" in named_arguments(fn):
                hint = _NO_CONTROL
        special = special_arguments(fn, self.names)
        check_function(name, fn, (*own, *special), what=_OF[arguments], hint=hint)
        return self._call(name, fn)

    def intern(self, name: str, call: Callable, shapes: tuple | None = None) -> Function:
        try:
            return intern(call, *(shapes or self._shapes()))
        except Exception as error:
            error.add_note(f"This was raised while tracing {name} at a state of shape {self.algebra.value.shape}.")
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
    mu = _element(system._algebra, to_device(np.random.default_rng(0).standard_normal(algebra.dim)))
    for name, stack in _elements(system, params, axes, mu):
        values = np.asarray(stack).reshape(-1, *algebra.shape)
        finite = values[np.all(np.isfinite(values), axis=tuple(range(1, values.ndim)))]
        check_elements(algebra, name, finite, None if name == "beta" else np.asarray(mu))


def _elements(system: Any, params: PyTree, axes: PyTree, mu: Array) -> list[tuple[str, Array]]:
    """The elements that functions of params return at a state, with the names of the functions."""
    betas = [n.beta for n in system.noises if isinstance(n, SaltOfParams)]
    own = lambda noise: not type(noise).__module__.startswith("coadjoint.")
    wrapped = lambda n: (isinstance(n, ObjectNoise) and n.takes_params) or (isinstance(n, UserNoise) and n.takes)
    others = [n for n in system.noises if own(n) or wrapped(n)]
    forces = (*system.forces, *system.torques)
    names = ["forcing"] * len(system.forces) + ["torque"] * len(system.torques)
    names += ["beta"] * len(betas) + ["noise.apply(mu, dS)"] * len(others)
    functions, received = (forces, betas, others), received_values(system.algebra, system.received, system.control_zero)
    return list(zip(names, _all_elements(functions, received, params, axes, mu), strict=True))


@eqx.filter_jit
def _all_elements(functions: tuple, received: dict, params: PyTree, axes: PyTree, mu: Array) -> list[Array]:
    def of(params: PyTree) -> list[Array]:
        forces, betas, others = functions
        last = Context(params, **received) if received else params
        applied = [noise.apply(mu, jnp.full(noise.size, _PROBE), last) for noise in others]
        return [*(g(mu, last) for g in forces), *(beta(last) for beta in betas), *applied]

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
