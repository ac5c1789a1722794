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


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def guessed(fn: Callable, *args: PyTree) -> PyTree:
    """fn of each row of the arguments: first with all that is `likely` taken for true, again if somewhere it was not.

    For a `where` in many rows XLA computes both sides, however seldom one of them is wanted. What fn gives must be
    floating-point numbers. The derivative is that of fn.
    """
    rows, held = jax.vmap(fn), []
    out = jax.vmap(partial(_trusting, held, fn))(*args)
    if not held:
        return rows(*args)
    out = jax.lax.optimization_barrier(out)
    return jax.lax.cond(jnp.all(jnp.isfinite(jax.tree.leaves(out)[0])), lambda: out, lambda: rows(*args))


@guessed.defjvp
def _guessed_jvp(fn, primals, tangents):
    return jax.jvp(jax.vmap(fn), primals, tangents)


def _trusting(held: list[Array], fn: Callable, *args: PyTree) -> PyTree:
    """fn(*args) with all that is `likely` taken for true; if it was not, the first number is NaN.

    So that a compiler has no reason to compute the conditions anew, in which case `held` gets them.
    """
    program, shape = jax.make_jaxpr(fn, return_shape=True)(*args)
    out = _evaluated(program, jax.tree.leaves(args), held)
    if held:
        out[0] = jnp.where(jnp.all(jnp.stack(held)), out[0], jnp.nan)
    return jax.tree.unflatten(jax.tree.structure(shape), out)


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
