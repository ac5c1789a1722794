"""Large lattices part by part: what is made of a part is used while it is in a cache.

A step of 10⁶ spins that makes ζ of all of them, and then what is made of that, waits for memory at every stage. Where ζ
of some of them is known by itself, a method hands over what it does with it, and that is done with one part after the
other.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .algebras.base import LieAlgebra, State
from .algebras.product import Product
from .numerics.functions import Constant, Function, intern

if TYPE_CHECKING:
    from .systems import System


class Copies(NamedTuple):
    """Some of the copies of an algebra, or all: what a method must know of them to move them."""

    algebra: LieAlgebra
    sign: int


class Sweep(eqx.Module):
    """ζ of one part of the copies of an algebra after the other; all parts are alike."""

    parts: int = eqx.field(static=True)
    _algebra: Constant = eqx.field(static=True)  # of a part
    drift: Function  # (k, μ) or (k, μ, params) ↦ ∂h + g of the k-th part, from the whole state
    noise: Function | None  # dS or (dS, params) ↦ Σ_i ∂h_i dS^i of a part, from the dS^i that are its own

    @property
    def algebra(self) -> Product:
        """That of a part."""
        return self._algebra.value


def by_parts(
    system: "System", parts: int, drift: Callable[..., Array], noise: Callable[..., Array] | None = None
) -> "System":
    """The same system, which knows its drift and noise part by part: see `Sweep`."""
    whole: Any = system.algebra
    shape = lambda x: jax.ShapeDtypeStruct(jnp.shape(x), jnp.result_type(x))
    mu, dS = (jax.ShapeDtypeStruct(s, jnp.float64) for s in (whole.shape, (system.n_noise // parts,)))
    params = jax.tree.map(shape, _params(system))
    sweep = Sweep(
        parts,
        Constant(Product(*whole.kinds, copies=whole.counts[0] // parts)),
        intern(drift, shape(0), mu, *params),
        None if noise is None else intern(noise, dS, *params),
    )
    return eqx.tree_at(lambda s: s.sweep, system, sweep, is_leaf=lambda x: x is None)


def swept(
    fn: Callable[..., PyTree], system: "System", mu: State, dt: Float[Array, ""], dS: Float[Array, " M"], *own: PyTree
) -> PyTree:
    """fn(copies, ζ(μ), *own): of one part after the other where the system knows ζ so, on processors; else at once.

    All arrays of `own` and of the result have the copies of the algebra along their first axis; a flag in the result is
    whether it holds of all parts. fn knows no other numbers than its arguments.
    """  # fmt: skip
    if system.sweep is None or jax.default_backend() != "cpu":
        return _at_once(fn, system, mu, dt, dS, own)
    return _one_by_one(fn, system, mu, dt, dS, own)


def _params(system: "System") -> tuple:
    return () if system.params is None else (system.params,)


def _at_once(fn: Callable, system: "System", mu: State, dt: Array, dS: Array, own: tuple) -> PyTree:
    return fn(Copies(system.algebra, system.sign), system.zeta(mu, dt, dS), *own)


@eqx.filter_custom_jvp
def _one_by_one(fn: Callable, system: "System", mu: State, dt: Array, dS: Array, own: tuple) -> PyTree:
    sweep: Any = system.sweep
    parts, params = sweep.parts, _params(system)

    def one(number_and_own: tuple) -> PyTree:
        k, dS, own = number_and_own
        zeta = sweep.drift(k, mu, *params) * dt
        zeta = zeta + sweep.noise(dS, *params) if system.noises else zeta
        return fn(Copies(sweep.algebra, system.sign), zeta, *own)

    cut = jax.tree.map(lambda x: x.reshape(parts, len(x) // parts, *x.shape[1:]), (dS, own))
    out = jax.lax.map(one, (jnp.arange(parts), *cut))
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]) if x.ndim > 1 else jnp.all(x), out)


@_one_by_one.def_jvp
def _one_by_one_jvp(primals: tuple, tangents: tuple) -> tuple[PyTree, PyTree]:
    """That of the whole: the derivative of every part would be one of the whole state."""
    (fn, *at), (_, *along) = primals, tangents
    return eqx.filter_jvp(partial(_at_once, fn), at, along)
