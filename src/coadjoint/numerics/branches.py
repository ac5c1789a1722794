"""Branches that are hardly ever taken."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import core as jex
from jaxtyping import Array, PyTree

from .jaxprs import CALLS, applied, called


@jax.jit
def likely(condition: Array) -> Array:
    """The condition itself, marked as one that is nearly always true.

    A program may take it for true, so that the other branch costs nothing, if it says where it was not: what it
    computed there is not valid. Everywhere else this is the identity.
    """
    return condition


def seldom(fn: Callable) -> Callable:
    """A function fn(condition, otherwise, *args) that is `otherwise` where the condition, a single one, does not hold.

    It is marked as one whose condition nearly never holds: a program may pass by all of it where that is so. Everywhere
    else it is done, whatever the condition.
    """

    @jax.jit
    def seldom(args: tuple, otherwise: PyTree, condition: Array) -> PyTree:  # what it is marked by comes last
        return fn(condition, otherwise, *args)

    return lambda condition, otherwise, *args: seldom(args, otherwise, condition)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def guessed(fn: Callable, *args: PyTree) -> PyTree:
    """fn of each row of each part of the arguments: first with all that is `likely` taken for true.

    The parts where it was not are done again. For a `where` in many rows XLA computes both sides, however seldom one of
    them is wanted; a part should fit in a cache. The derivative is that of fn.
    """

    def trusting(part: tuple) -> tuple[PyTree, Array | None]:
        out, held = jax.vmap(partial(_trusting, fn))(*part)
        return out, jnp.all(jnp.stack([jnp.all(x) for x in held])) if held else None

    out, right = jax.lax.map(trusting, args)
    if right is None:
        return out

    def again(state: tuple) -> tuple:
        mended = lambda x: jax.lax.cond(x[0], lambda: x[1], lambda: jax.vmap(fn)(*x[2]))
        return jax.lax.map(mended, (right, state[0], args)), jnp.ones((), bool)

    # A loop, for a branch would copy what it is to leave as it is.
    return jax.lax.while_loop(lambda state: ~state[1], again, (out, jnp.all(right)))[0]


@guessed.defjvp
def _guessed_jvp(fn, primals, tangents):
    return jax.jvp(lambda *args: jax.lax.map(lambda part: jax.vmap(fn)(*part), args), primals, tangents)


def _trusting(fn: Callable, *args: PyTree) -> tuple[PyTree, list[Array]]:
    """fn(*args) with all that is `likely` taken for true, and whether it was."""
    program, shape = jax.make_jaxpr(fn, return_shape=True)(*args)
    held: list[Array] = []
    out = _evaluated(program, jax.tree.leaves(args), held)
    return jax.tree.unflatten(jax.tree.structure(shape), out), held


def _evaluated(program: jex.ClosedJaxpr, args: list, held: list[Array]) -> list:
    """A program's results; `held` gets the conditions. Inside of loops nothing is taken for true."""
    jaxpr = program.jaxpr
    env = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*program.consts, *args], strict=True))

    def read(v: Any) -> Any:
        return v.val if isinstance(v, jex.Literal) else env[v]

    for eqn in jaxpr.eqns:
        xs = [read(v) for v in eqn.invars]
        if eqn.params.get("name") == "likely":
            held.append(jnp.all(xs[0]))
            out = [jnp.ones_like(xs[0])]
        elif eqn.primitive.name in CALLS:
            out = _evaluated(called(eqn), xs, held)
        else:
            out = applied(eqn.primitive, eqn.params, xs)
        env.update(zip(eqn.outvars, out, strict=True))
    return [read(v) for v in jaxpr.outvars]
