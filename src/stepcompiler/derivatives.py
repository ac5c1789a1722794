"""Functions whose derivative is given by a rule, at every order.

`jax.custom_jvp` loses its rule where a `scan` is differentiated in reverse and the result is differentiated again
(JAX 0.10 to 0.12): partial evaluation of the loop replaces the call by the function. Second derivatives are then those
of the function as it is written. A primitive keeps its rule. docs/development/xla.md holds a minimal program.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.core
import numpy as np
from jax.extend import core as jex
from jax.interpreters import ad, batching, mlir
from jaxtyping import PyTree

custom_derivative_p = jex.Primitive("custom_derivative")
custom_derivative_p.multiple_results = True


class custom_derivative:
    """A function of pytrees whose derivative is given by a rule.

    `rule(out, primals, tangents)` returns the tangent of the result `out` as a differentiable function of all three.
    Tangents of leaves that do not change are None. Leaves that are not arrays are constants. The function must not
    capture arrays that are differentiated: pass these as arguments.
    """

    def __init__(self, fn: Callable[..., PyTree]):
        self.fn = fn
        self.rule: Callable[[Any, tuple, tuple], PyTree] | None = None
        self.linear_in: int | None = None
        self.transposed: Callable[..., PyTree] | None = None
        functools.update_wrapper(self, fn)

    def def_rule(self, rule: Callable[[Any, tuple, tuple], PyTree]) -> Callable:
        """Set the rule; usable as a decorator."""
        self.rule = rule
        return rule

    def def_transpose(self, argument: int) -> Callable[[Callable], Callable]:
        """Set the transpose of a function that is linear in one argument; usable as a decorator.

        The transpose takes the cotangent of the result in place of this argument. It returns that of the argument.
        Without it, JAX transposes the function as it is written, which fails for loops of an unknown number of passes.
        """

        def set_transpose(transposed: Callable) -> Callable:
            self.linear_in, self.transposed = argument, transposed
            return transposed

        return set_transpose

    def __call__(self, *args: PyTree) -> PyTree:
        """Call the function; outside of transformations of JAX nothing else happens."""
        leaves, structure = jax.tree.flatten(args)
        if not any(isinstance(x, jax.core.Tracer) for x in leaves):
            return self.fn(*args)
        at = [i for i, x in enumerate(leaves) if isinstance(x, (jax.Array, np.ndarray, np.generic))]
        constants = tuple((i, x) for i, x in enumerate(leaves) if i not in at)
        rule = _Rule(self, structure, constants, tuple(at))
        arrays = [leaves[i] for i in at]
        closed, shape = jax.make_jaxpr(lambda *xs: self.fn(*rule.tree(xs)), return_shape=True)(*arrays)
        rule.out_structure = jax.tree.structure(shape)
        program, captured = _open(closed)
        out = custom_derivative_p.bind(*captured, *arrays, jaxpr=program, rule=rule, first=len(captured))
        return jax.tree.unflatten(rule.out_structure, out)


class _Rule:
    """The rule of a function for arrays, the other leaves of its arguments being constants."""

    def __init__(self, of: custom_derivative, structure: Any, constants: tuple, at: tuple[int, ...]):
        self.of, self.structure, self.constants, self.at = of, structure, constants, at
        self.out_structure: Any = None  # follows from the rest

    def tree(self, arrays: Sequence, constants: bool = True) -> tuple:
        """Return the arguments with these leaves, or their tangents, without the constants."""
        leaves: list[Any] = [None] * self.structure.num_leaves
        for i, x in zip(self.at, arrays, strict=True):
            leaves[i] = x
        for i, x in self.constants if constants else ():
            leaves[i] = x
        return jax.tree.unflatten(self.structure, leaves)

    def __call__(self, out: Sequence, primals: Sequence, tangents: Sequence) -> list:
        """The tangents of the results."""
        assert self.of.rule is not None
        slopes = self.of.rule(
            jax.tree.unflatten(self.out_structure, out), self.tree(primals), self.tree(tangents, constants=False)
        )
        return jax.tree.leaves(slopes)

    @property
    def has_transpose(self) -> bool:
        """Whether the function has a transpose rule."""
        return self.of.transposed is not None

    def transposed(self, arrays: Sequence, cts: Sequence) -> list:
        """The cotangents of the linear argument, from those of the results."""
        assert self.of.transposed is not None and self.of.linear_in is not None
        args = list(self.tree(arrays))
        args[self.of.linear_in] = jax.tree.unflatten(self.out_structure, cts)
        return jax.tree.leaves(self.of.transposed(*args))

    @property
    def _content(self) -> tuple:
        return self.of, self.structure, self.constants, self.at

    def __hash__(self) -> int:
        return hash((self.of, self.structure, self.at))

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, _Rule) and self._content == other._content)

    def __repr__(self) -> str:
        return f"<derivative of {getattr(self.of, '__qualname__', 'a function')}>"


class _Mapped:
    """A rule under `vmap`."""

    def __init__(self, rule: Any, axes: tuple[int | None, ...]):
        self.rule, self.axes = rule, axes

    def __call__(self, out: Sequence, primals: Sequence, tangents: Sequence) -> list:
        moving = [i for i, t in enumerate(tangents) if t is not None]

        def one(out: Sequence, primals: Sequence, moved: Sequence) -> list:
            given = [None] * len(primals)
            for i, t in zip(moving, moved, strict=True):
                given[i] = t
            return self.rule(out, primals, given)

        axes = 0, list(self.axes), [self.axes[i] for i in moving]
        return jax.vmap(one, in_axes=axes)(list(out), list(primals), [tangents[i] for i in moving])

    @property
    def has_transpose(self) -> bool:
        """Whether the function has a transpose rule."""
        return self.rule.has_transpose

    def transposed(self, arrays: Sequence, cts: Sequence) -> list:
        """Return the cotangents of each element, summed for arguments that the elements share."""
        linear = [i for i, x in enumerate(arrays) if x is None]
        axes = [None if x is None else a for x, a in zip(arrays, self.axes, strict=True)]
        out = jax.vmap(self.rule.transposed, (axes, 0))(list(arrays), list(cts))
        return [x if self.axes[i] == 0 else x.sum(0) for i, x in zip(linear, out, strict=True)]

    def __hash__(self) -> int:
        return hash((self.rule, self.axes))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Mapped) and (self.rule, self.axes) == (other.rule, other.axes)

    def __repr__(self) -> str:
        return f"<{self.rule!r}, mapped>"


def _open(closed: jex.ClosedJaxpr) -> tuple[jex.ClosedJaxpr, list]:
    """Return a program whose constants are its first arguments."""
    jaxpr = closed.jaxpr
    if closed.consts:
        info = jaxpr.debug_info._replace(arg_names=None)
        jaxpr = jaxpr.replace(constvars=[], invars=[*jaxpr.constvars, *jaxpr.invars], debug_info=info)
    return jex.ClosedJaxpr(jaxpr, []), list(closed.consts)


def _run(*args: Any, jaxpr: jex.ClosedJaxpr, **_: Any) -> list:
    return jex.jaxpr_as_fun(jaxpr)(*args)


def _jvp(primals: Sequence, tangents: Sequence, *, first: int, rule: Callable, **params: Any) -> tuple:
    still = lambda t: isinstance(t, ad.Zero) or getattr(t, "dtype", None) == jax.dtypes.float0
    moving = [None if still(t) else t for t in tangents]
    if any(t is not None for t in moving[:first]):
        raise TypeError(f"{rule!r}: the function captures an array that is differentiated; pass it as an argument.")
    out = custom_derivative_p.bind(*primals, first=first, rule=rule, **params)
    if all(t is None for t in moving):
        return out, [ad.Zero(jax.typeof(x).to_tangent_aval()) for x in out]
    return out, rule(out, primals[first:], moving[first:])


def _batch(args: Sequence, dims: Sequence, *, jaxpr: jex.ClosedJaxpr, rule: Callable, first: int) -> tuple:
    """All mapped axes lead, and all results are mapped."""
    args = [x if d is None else jax.numpy.moveaxis(x, d, 0) for x, d in zip(args, dims, strict=True)]
    axes = tuple(None if d is None else 0 for d in dims)
    program, captured = _open(jax.make_jaxpr(jax.vmap(jex.jaxpr_as_fun(jaxpr), axes))(*args))
    if any(d is not None for d in axes[:first]):
        raise TypeError(f"{rule!r}: the function captures an array that is mapped; pass it as an argument.")
    mapped = _Mapped(rule, axes[first:])
    out = custom_derivative_p.bind(*captured, *args, jaxpr=program, rule=mapped, first=first + len(captured))
    return out, [0] * len(out)


def _transpose(cts: Sequence, *args: Any, jaxpr: jex.ClosedJaxpr, rule: Any, first: int) -> list:
    """That of the function, which is linear in some arguments."""
    linear = [i for i, x in enumerate(args) if ad.is_undefined_primal(x)]
    if rule.has_transpose:
        arrays = [None if ad.is_undefined_primal(x) else x for x in args[first:]]
        found = iter(rule.transposed(arrays, [ad.instantiate_zeros(ct) for ct in cts]))
        return [next(found) if i in linear else None for i in range(len(args))]

    def of(*moved: Any) -> list:
        given = list(args)
        for i, x in zip(linear, moved, strict=True):
            given[i] = x
        return _run(*given, jaxpr=jaxpr)

    back = iter(jax.linear_transpose(of, *(args[i].aval for i in linear))([ad.instantiate_zeros(ct) for ct in cts]))
    return [next(back) if i in linear else None for i in range(len(args))]


custom_derivative_p.def_impl(_run)
custom_derivative_p.def_abstract_eval(lambda *avals, jaxpr, **_: jaxpr.out_avals)
mlir.register_lowering(custom_derivative_p, mlir.lower_fun(_run, multiple_results=True))
ad.primitive_jvps[custom_derivative_p] = _jvp
ad.primitive_transposes[custom_derivative_p] = _transpose
batching.primitive_batchers[custom_derivative_p] = _batch
