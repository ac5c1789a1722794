"""Hints to the compiler: primitives that state how a part of a program may be computed.

XLA, NumPy and every transformation of JAX treat a hint as the program that it wraps. Native code and `optimistic_map`
use the hint. A hint is recognised by its primitive, never by the name of a function.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import core as jex
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, PyTree

from .jaxprs.equation_types import Equation

likely_p = jex.Primitive("stepcompiler_likely")
no_fma_p = jex.Primitive("stepcompiler_no_fma")
unlikely_p = jex.Primitive("stepcompiler_unlikely")
low_precision_p = jex.Primitive("stepcompiler_low_precision")

HINTS = frozenset([likely_p, no_fma_p, unlikely_p, low_precision_p])


# For use in programs.


def likely(condition: Array) -> Array:
    """Return the condition, marked as nearly always true.

    Native code assumes that it is true and checks this. It discards a step where the assumption fails.
    """
    return likely_p.bind(jnp.asarray(condition, bool))


def no_fma(x: Array) -> Array:
    """Return the product x ≥ −1, rounded before it is added to anything.

    A compiler may fuse either of two products with their sum. This fixes which one. XLA fuses no product with a
    maximum, so there this is max(x, −1).
    """
    return no_fma_p.bind(x)


def unlikely(fn: Callable) -> Callable:
    """Return the function fn(condition, otherwise, *args), marked as one whose condition nearly never holds.

    Where the scalar condition is false, fn must return `otherwise`: the same structure, shapes and types. Native code
    skips fn where the condition holds for no member. Under `vmap` over the condition it computes fn for all elements.
    """
    traced_once = jax.jit(fn)

    def hinted(condition: Array, otherwise: PyTree, *args: PyTree) -> PyTree:
        condition, otherwise = jnp.asarray(condition, bool), jax.tree.map(jnp.asarray, otherwise)
        if condition.ndim:
            raise TypeError(f"`unlikely` needs a scalar condition, not one of the shape {condition.shape}; use `vmap`.")
        program, structure, captured = _traced(traced_once, condition, otherwise, *args)
        held = jax.tree.leaves(otherwise)
        if structure != jax.tree.structure(otherwise) or not _alike(program.out_avals, held):
            found = ", ".join(map(str, program.out_avals))
            raise TypeError(f"A function marked `unlikely` must return the likes of `otherwise`, but returns {found}.")
        operands = [*captured, condition, *held, *jax.tree.leaves(args)]
        bound = unlikely_p.bind(*operands, jaxpr=program, first=len(captured))
        return jax.tree.unflatten(structure, bound)

    return hinted


def low_precision(fn: Callable) -> Callable:
    """Return the function fn of arrays, marked as one for which low precision suffices.

    Native code may compute it in single precision, where numbers above 10³⁸ become infinite. Its derivatives are
    computed in full precision.
    """
    traced_once = jax.jit(fn)

    def hinted(*args: PyTree) -> PyTree:
        program, structure, captured = _traced(traced_once, *args)
        out = low_precision_p.bind(*captured, *map(jnp.asarray, jax.tree.leaves(args)), jaxpr=program)
        return jax.tree.unflatten(structure, out)

    return hinted


def _traced(fn: Callable, *args: PyTree) -> tuple[jex.ClosedJaxpr, Any, list]:
    """The program of a function, its structure of results, and captured arrays: the first arguments of the program."""
    closed, shape = jax.make_jaxpr(fn, return_shape=True)(*args)
    program, captured = _without_constants(closed)
    return program, jax.tree.structure(shape), captured


def _without_constants(closed: jex.ClosedJaxpr) -> tuple[jex.ClosedJaxpr, list]:
    jaxpr = closed.jaxpr
    if closed.consts:
        info = jaxpr.debug_info._replace(arg_names=None)
        jaxpr = jaxpr.replace(constvars=[], invars=[*jaxpr.constvars, *jaxpr.invars], debug_info=info)
    return jex.ClosedJaxpr(jaxpr, []), list(closed.consts)


def _alike(avals: Sequence[Any], held: Sequence[Any]) -> bool:
    return [(a.shape, a.dtype) for a in avals] == [(x.shape, x.dtype) for x in held]


# For interpreters of programs.


def wrapped(eqn: Equation) -> jex.ClosedJaxpr:
    """The program that a hint wraps."""
    if "jaxpr" in eqn.params:
        return eqn.params["jaxpr"]
    return jax.make_jaxpr(_PLAIN[eqn.primitive])(*(v.aval for v in eqn.invars))


def parts_of_unlikely(eqn: Equation, xs: Sequence) -> tuple[Any, list]:
    """Return the condition of an `unlikely` equation, and its results where the condition is false."""
    first = eqn.params["first"]
    return xs[first], list(xs[first + 1 : first + 1 + len(eqn.outvars)])


# Rules for JAX.

_PLAIN: dict[Any, Callable] = {likely_p: lambda x: x, no_fma_p: lambda x: jnp.maximum(x, -1.0)}


def _run(*args: Any, jaxpr: jex.ClosedJaxpr, **_: Any) -> list:
    return jex.jaxpr_as_fun(jaxpr)(*args)


def _boolean(x: Any) -> Any:
    if x.dtype != bool:
        raise TypeError(f"`likely` needs a boolean condition, not {x}.")
    return x


likely_p.def_impl(lambda x: x)
likely_p.def_abstract_eval(_boolean)
no_fma_p.def_impl(_PLAIN[no_fma_p])
no_fma_p.def_abstract_eval(lambda x: x)
for _p in likely_p, no_fma_p:
    mlir.register_lowering(_p, mlir.lower_fun(_PLAIN[_p], multiple_results=False))
    batching.defvectorized(_p)


def _likely_jvp(primals: Sequence, tangents: Sequence) -> tuple:
    return likely_p.bind(*primals), tangents[0]  # of a boolean: a symbolic zero


def _no_fma_jvp(primals: Sequence, tangents: Sequence) -> tuple:
    return no_fma_p.bind(*primals), tangents[0]


ad.primitive_jvps[likely_p] = _likely_jvp
ad.primitive_jvps[no_fma_p] = _no_fma_jvp
ad.primitive_transposes[no_fma_p] = lambda ct, x: [ct]


def _jvp(primals: Sequence, tangents: Sequence, *, jaxpr: jex.ClosedJaxpr, **_: Any) -> tuple:
    """That of the wrapped program, without the hint."""
    moves = [i for i, t in enumerate(tangents) if not isinstance(t, ad.Zero)]

    def along(*moved: Any) -> list:
        given = list(primals)
        for i, x in zip(moves, moved, strict=True):
            given[i] = x
        return _run(*given, jaxpr=jaxpr)

    out, slopes = jax.jvp(along, [primals[i] for i in moves], [tangents[i] for i in moves])
    still = lambda x, dx: ad.Zero(jax.typeof(x).to_tangent_aval()) if dx.dtype == jax.dtypes.float0 else dx
    return out, [still(x, dx) for x, dx in zip(out, slopes, strict=True)]


def _batch(primitive: Any) -> Callable:
    def rule(args: Sequence, dims: Sequence, *, jaxpr: jex.ClosedJaxpr, **params: Any) -> tuple:
        """Move mapped axes to the front. The default results of `unlikely` get the axis, too."""
        mapped = lambda d: d is not None
        size = next(x.shape[d] for x, d in zip(args, dims, strict=True) if mapped(d))
        args = [jnp.moveaxis(x, d, 0) if mapped(d) else x for x, d in zip(args, dims, strict=True)]
        axes = [0 if mapped(d) else None for d in dims]
        if "first" in params:
            first = params["first"] + 1
            for i in range(first, first + len(jaxpr.out_avals)):
                if axes[i] is None:
                    args[i], axes[i] = jnp.broadcast_to(args[i], (size, *jnp.shape(args[i]))), 0
        closed = jax.make_jaxpr(jax.vmap(jex.jaxpr_as_fun(jaxpr), axes))(*args)
        program, captured = _without_constants(closed)
        if "first" in params:
            params = params | {"first": params["first"] + len(captured)}
        out = primitive.bind(*captured, *args, jaxpr=program, **params)
        return out, [0] * len(out)

    return rule


def _transpose(cts: Sequence, *args: Any, jaxpr: jex.ClosedJaxpr, **_: Any) -> list:
    """That of the wrapped program, which is linear in some arguments."""
    linear = [i for i, x in enumerate(args) if ad.is_undefined_primal(x)]

    def of(*moved: Any) -> list:
        given = list(args)
        for i, x in zip(linear, moved, strict=True):
            given[i] = x
        return _run(*given, jaxpr=jaxpr)

    cts = [ad.instantiate_zeros(ct) for ct in cts]
    back = iter(jax.linear_transpose(of, *(args[i].aval for i in linear))(cts))
    return [next(back) if i in linear else None for i in range(len(args))]


for _p in unlikely_p, low_precision_p:
    _p.multiple_results = True
    _p.def_impl(_run)
    _p.def_abstract_eval(lambda *avals, jaxpr, **_: jaxpr.out_avals)
    mlir.register_lowering(_p, mlir.lower_fun(_run, multiple_results=True))
    ad.primitive_jvps[_p] = _jvp
    ad.primitive_transposes[_p] = _transpose
    batching.primitive_batchers[_p] = _batch(_p)
