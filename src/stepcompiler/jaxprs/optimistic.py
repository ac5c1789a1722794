"""Map a function over many rows as if every `likely` condition were true, and repair the parts where one was not."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax.extend import core as jex
from jaxtyping import Array, PyTree

from ..derivatives import custom_derivative
from ..hints import likely_p
from .equation_types import Equation
from .equations import bind
from .interpreter import Interpreter, calls


@custom_derivative
def optimistic_map(fn: Callable, *args: PyTree) -> PyTree:
    """Map fn over the rows of each part of the arguments, first assuming that every `likely` condition is true.

    A part where an assumption failed is computed again without it. For a `where` over many rows XLA computes both
    sides, even if one is hardly ever used. A part should fit in a cache. The derivative is that of fn.
    """

    def trusting(part: tuple) -> tuple[PyTree, Array | None]:
        out, held = jax.vmap(partial(_trusting, fn))(*part)
        return out, jnp.all(jnp.stack([jnp.all(x) for x in held])) if held else None

    out, right = jax.lax.map(trusting, args)
    if right is None:
        return out

    def repair(state: tuple) -> tuple:
        mended = lambda x: jax.lax.cond(x[0], lambda: x[1], lambda: jax.vmap(fn)(*x[2]))
        return jax.lax.map(mended, (right, state[0], args)), jnp.ones((), bool)

    # A loop, because a branch would copy the parts that stay unchanged.
    return jax.lax.while_loop(lambda state: ~state[1], repair, (out, jnp.all(right)))[0]


@optimistic_map.def_rule
def _optimistic_map_slope(out: PyTree, primals: tuple, tangents: tuple) -> PyTree:
    """That of a map without assumptions."""
    fn, args = primals[0], primals[1:]
    along = jax.tree.map(lambda x, t: jnp.zeros_like(x) if t is None else t, args, tangents[1:])
    return jax.jvp(lambda *args: jax.lax.map(lambda part: jax.vmap(fn)(*part), args), args, along)[1]


def _trusting(fn: Callable, *args: PyTree) -> tuple[PyTree, list[Array]]:
    """fn(*args) if every `likely` condition is true, and the conditions."""
    program, shape = jax.make_jaxpr(fn, return_shape=True)(*args)
    held: list[Array] = []

    def equation(jaxpr: jex.Jaxpr, eqn: Equation, xs: list) -> list:
        """One equation; nothing is assumed inside loops."""
        if eqn.primitive is not likely_p:
            return bind(eqn.primitive, eqn.params, xs)
        held.append(jnp.all(xs[0]))
        return [jnp.ones_like(xs[0])]

    trusting = Interpreter(equation, inline=lambda eqn: calls(eqn) and eqn.primitive is not likely_p)
    out = trusting.evaluate(program, jax.tree.leaves(args))
    return jax.tree.unflatten(jax.tree.structure(shape), out), held
