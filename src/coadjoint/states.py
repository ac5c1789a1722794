"""States and parameters of the user: arrays of the right type, or an error that describes the defect."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from stepcompiler.cache import LRUCache
from stepcompiler.device_arrays import to_device
from stepcompiler.jaxprs.numpy_eval import numpy_function

from .algebras.base import LieAlgebra
from .algebras.compose import any_array
from .numerics import validation
from .numerics.modules import method_of

_nearest: LRUCache[Any] = LRUCache()  # programs that give the element nearest to a matrix


def check_state(algebra: LieAlgebra, name: str, mu: Any, leading: tuple[int, ...] = ()) -> Array:
    """A state (or a stack of states) as an array of the algebra's type. An invalid one raises an error."""
    return to_device(state_on_host(algebra, name, mu, leading))


def state_on_host(algebra: LieAlgebra, name: str, mu: Any, leading: tuple[int, ...] = ()) -> Any:
    """As `check_state`, but an array of NumPy's unless JAX made it: JAX takes longer to copy it than a short run."""
    validation.require_float64()
    array = validation.numbers(name, mu)
    if array.dtype.kind == "c" and algebra.dtype == jnp.float64:
        raise TypeError(f"{name} is complex, but states of {type(algebra).__name__} are real.")
    shape = (*leading, *algebra.shape)
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape} for {type(algebra).__name__}, not {array.shape}.")
    if not validation.is_traced(array):
        host = np.asarray(array)
        if not np.all(np.isfinite(host)):
            where = tuple(int(i) for i in np.argwhere(~np.isfinite(host))[0])
            raise ValueError(f"{name} must be finite: entry {where} is {host[where]}.")
        rows = host.reshape(-1, *algebra.shape)
        for one in () if method_of(algebra, "are_states")(rows) else rows:
            wrong = method_of(algebra, "state_error")(one)
            if wrong is not None:
                raise ValueError(f"{name} is not a state of {type(algebra).__name__}: {wrong}")
    if isinstance(mu, jax.Array):
        states: Any = mu if mu.dtype == algebra.dtype else jnp.asarray(array, algebra.dtype)
    else:
        states = np.array(array, algebra.dtype)
    if type(algebra).element is LieAlgebra.element:
        return states

    if not (jax.tree.leaves(algebra) or validation.is_traced(states)):
        own = method_of(algebra, "nearest_states")(np.asarray(states).reshape(-1, *algebra.shape))
        if own is not None:
            return own.reshape(states.shape)

    def nearest(x: Array) -> Array:
        return algebra.element(algebra.coordinates(x))  # without the round-off that is no part of the algebra

    all_nearest = jax.vmap(nearest) if leading else nearest
    numbers, structure = jax.tree.flatten(algebra)
    if numbers or validation.is_traced(states):
        return all_nearest(jnp.asarray(states))
    # By NumPy, with the same bits: JAX would compile some fifty programs of one operation each.
    run = _nearest.get((structure, states.shape), lambda: numpy_function(jax.make_jaxpr(all_nearest)(states)))
    return run([states])[0]


def any_element(algebra: LieAlgebra) -> bool:
    """Whether every array of the right shape and type is an element: true if elements are coordinates."""
    return any_array(algebra) or type(algebra).element is LieAlgebra.element


def check_elements(algebra: LieAlgebra, name: str, stack: Any, beside: Any = None) -> None:
    """Raise if an array of a stack is not an element of the algebra; the error names the probable intention.

    `beside`: for the value x of the function `name`, an element relative to which round-off counts as zero.
    """
    if any_element(algebra) or validation.is_traced(stack):
        return
    host, returned, around = np.asarray(stack), beside is not None, 0.0 if beside is None else beside
    for k, one in enumerate(host):
        wrong = type(algebra).state_error(algebra, one + around)
        if wrong is not None:
            which = f"{name}{f'[{k}]' if len(host) > 1 else ''} must {'return' if returned else 'be'}"
            meant = _meant(algebra, "x" if returned else name, one, around)
            raise ValueError(f"{which} an element of {type(algebra).__name__}, but {wrong} {meant}")


def _meant(algebra: LieAlgebra, name: str, x: np.ndarray, beside: Any) -> str:
    """A sentence with the element of the algebra that an array probably stands for."""

    def fits(y: np.ndarray) -> bool:
        return algebra.state_error(y + beside) is None

    if fits(-1j * x):
        return f"The array is Hermitian: give -1j * {name}."
    if x.ndim == 2:
        n = len(x)
        traceless = x - np.trace(x) / n * np.eye(n)
        shown = f"({name} - np.trace({name}) / {n} * np.eye({n}))"
        if np.linalg.norm(traceless) < 1e-10 * np.linalg.norm(x):
            return "It is a multiple of 1, which moves nothing."
        if fits(traceless):
            return f"Give {shown[1:-1]}: the trace moves nothing."
        if fits(-1j * traceless):
            return f"The array is Hermitian: give -1j * {shown}; the trace moves nothing."
    return f"The nearest element is algebra.element(algebra.coordinates({name}))."
