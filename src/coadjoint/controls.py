"""Sample-and-hold control: feedback laws that are evaluated at regular steps and held in between."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from stepcompiler.jaxprs.interning import Function

from .numerics import validation
from .numerics.signatures import described


class Hold(eqx.Module):
    """A feedback law with its sampling interval. `hold` returns one.

    Parameters
    ----------
    law : callable
        The feedback law.
    every : int
        The number of time steps for which a value is held.
    state : pytree
        The discrete state at the start, or None.
    """

    law: Callable = eqx.field(static=True)
    every: int = eqx.field(static=True)
    state: PyTree


def hold(law: Callable, every: int = 1, state: PyTree = None) -> Hold:
    """Evaluate a feedback law at every k-th step, and hold its value in between.

    The law is u = law(mu), or (u, state) = law(mu, state) with a discrete state of its own, such as the integral of an
    error. After these arguments it receives `params`, if the system has any, and the time and the group element as
    arguments named `t` and `g`. Functions of the system receive the value that is held as an argument named `u`:

        law = cj.hold(lambda mu, t: -0.5 * mu, every=10)
        system = cj.System(cj.SO3(), h, torque=lambda mu, u: u, control=law)

    Parameters
    ----------
    law : callable
        The feedback law. It returns a number, an array, or a tree of these.
    every : int, default 1
        k: the number of time steps for which a value is held. The law is evaluated at the steps 0, k, 2k, …
    state : pytree, optional
        The discrete state at the start.

    Returns
    -------
    Hold
        An argument for `System(..., control=...)`.

    Raises
    ------
    TypeError, ValueError
        If `law` is not a function, or `every` is not a positive integer.
    """
    if not callable(law):
        raise TypeError(f"law must be a function of the state, not {described(law)}.")
    numbers = jax.tree.map(lambda x: jnp.asarray(validation.numbers("state", x), float), state)
    return Hold(law, validation.count("every", every), numbers)


class Held(NamedTuple):
    """The value of a law, and its discrete state after that value."""

    value: PyTree
    state: PyTree


class Law(eqx.Module):
    """A traced law. `zero` has the shapes of its values."""

    function: Function  # of μ, the discrete state, and the last argument of traced functions
    every: int = eqx.field(static=True)
    state: PyTree
    zero: PyTree

    def start(self, mu: Array, *last: Any) -> Held:
        """The value at the start."""
        return Held(*self.function(mu, self.state, *last))

    def after(self, n: Array, held: Held, mu: Array, *last: Any) -> Held:
        """The value that is held after step n, which ended with the state μ."""
        new = Held(*self.function(mu, held.state, *last))
        due = (n + 1) % self.every == 0
        return new if self.every == 1 else jax.tree.map(lambda a, b: jnp.where(due, a, b), new, held)


def as_holds(control: Any) -> dict[str | None, Hold]:
    """The laws by name: one law has the name None."""
    if control is None:
        return {}
    named: dict[Any, Any] = dict(control) if isinstance(control, dict) else {None: control}
    for name, law in named.items():
        if not isinstance(law, Hold):
            where = "control" if name is None else f"control[{name!r}]"
            raise TypeError(f"{where} must be hold(law, every=k), not {described(law)}.")
    return named


def trace_law(name: str | None, held: Hold, tracer: Any) -> Law:
    """The law as a traced function, with the checks of other functions of a system."""
    where = "control" if name is None else f"control[{name!r}]"
    stateful = held.state is not None
    arguments = ("mu", "state") if stateful else ("mu",)
    call = tracer.checked(where, held.law, arguments)
    structure = jax.tree.structure(held.state)

    def law(mu: Array, state: PyTree, *last: PyTree) -> tuple[PyTree, PyTree]:
        if not stateful:
            return _numbers(call(mu, *last)), None
        out = call(mu, state, *last)
        if not isinstance(out, tuple) or len(out) != 2 or jax.tree.structure(out[1]) != structure:
            raise ValueError(f"{where} must return (u, state), a state of the structure {structure}, not {out!r}.")
        new = jax.tree.map(lambda a, b: jnp.asarray(a, b.dtype), out[1], state)
        if [x.shape for x in jax.tree.leaves(new)] != [x.shape for x in jax.tree.leaves(state)]:
            raise ValueError(f"{where} must return a state of the shapes of the one at the start.")
        return _numbers(out[0]), new

    function = tracer.intern(where, law, tracer.law_shapes(held.state))
    value, _ = jax.eval_shape(function, *tracer.law_shapes(held.state))
    return Law(function, held.every, held.state, jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), value))


def _numbers(u: PyTree) -> PyTree:
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.result_type(x, float)), u)
