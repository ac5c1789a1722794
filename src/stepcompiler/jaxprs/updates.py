"""Programs in which arrays are updated at an index, written so that XLA computes them correctly on a CPU.

XLA on a CPU (jaxlib 0.10 to 0.12) computes `dynamic_update_slice` in place when it fuses the operation with others. It
does so even if the update reads other elements of the array that it overwrites and a reshape stands in between
(openxla/xla#49176). The update then reads elements that were overwritten already. A scatter with one window becomes a
`dynamic_update_slice` and fails in the same way. In jaxlib 0.10, two nested slices with a start that is out of range
also give a wrong window (openxla/xla#49121). docs/development/xla.md holds minimal programs.

`evaluate` evaluates a program and replaces exactly these operations: an update whose values may depend on the array
that it changes selects between the array and the update, element by element, and a start is clipped before it is used.
"""

import math
from collections.abc import Sequence
from itertools import count
from typing import Any, NamedTuple

import jax
import jax.core
import jax.numpy as jnp
from jax import lax
from jax.extend import core as jex
from jaxtyping import Array

from .equation_types import Equation
from .equations import closed, eval_equation, inner_programs, while_of
from .interpreter import Interpreter

Origins = frozenset  # numbers of the inputs that an array depends on
_NONE: Origins = frozenset()
_GUARDED = ("dynamic_slice", "dynamic_update_slice")


def guarded(name: str) -> bool:
    """Whether an operation of this name may have to be replaced."""
    return name in _GUARDED or name.startswith("scatter")


class _Traced(NamedTuple):
    """An array and the inputs of the program that it depends on."""

    value: Any
    origins: Origins


def evaluate(jaxpr: jex.Jaxpr, consts: Sequence[Any], *args: Any) -> list:
    """Evaluate a program as `jax.core.eval_jaxpr` does, with updates replaced that XLA may compute wrongly."""
    if not _concerned(jaxpr):
        return jax.core.eval_jaxpr(jaxpr, list(consts), *args)
    numbers = count()
    captured, given = frozenset([next(numbers)]), frozenset([next(numbers)])
    return _evaluate(jaxpr, consts, args, captured, [given] * len(args), numbers)


def _concerned(jaxpr: jex.Jaxpr) -> bool:
    """Whether a program, or a loop or branch in it, has such an operation."""
    inner = (program.jaxpr for eqn in jaxpr.eqns for program in inner_programs(eqn.params))
    return any(guarded(eqn.primitive.name) for eqn in jaxpr.eqns) or any(map(_concerned, inner))


def _evaluate(
    jaxpr: jex.Jaxpr, consts: Sequence, args: Sequence, captured: Origins, given: list[Origins], numbers: count
) -> list:
    def equation(jaxpr: jex.Jaxpr, eqn: Equation, xs: list[_Traced]) -> list[_Traced]:
        values, own = [x.value for x in xs], [x.origins for x in xs]
        if guarded(eqn.primitive.name):
            out = _replaced(jaxpr, eqn, values, own)
        else:
            out = eval_equation(jaxpr, _nested(eqn, own, numbers), values)
        return [_Traced(y, _NONE.union(*own)) for y in out]

    following = Interpreter(
        equation,
        inline=lambda eqn: False,
        constant=lambda x: _Traced(x, captured),
        literal=lambda v: _Traced(v.val, _NONE),
    )
    out = following.evaluate(jex.ClosedJaxpr(jaxpr, list(consts)), list(map(_Traced, args, given)))
    return [x.value for x in out]


def _nested(eqn: Equation, own: list[Origins], numbers: count) -> Equation:
    """An equation whose loop body or branches are written anew, if they have operations to replace."""
    params = dict(eqn.params)
    for key, value in eqn.params.items():
        parts = value if isinstance(value, (tuple, list)) else [value]
        if not any(isinstance(p, (jex.Jaxpr, jex.ClosedJaxpr)) and _concerned(closed(p).jaxpr) for p in parts):
            continue
        new = [_written(p, _passed(eqn, key, own), numbers) for p in parts]
        params[key] = type(value)(new) if isinstance(value, (tuple, list)) else new[0]
    return eqn.replace(params=params)


def _passed(eqn: Equation, key: str, own: list[Origins]) -> list[Origins]:
    """The origins of the inputs of an inner program."""
    name = eqn.primitive.name
    if name == "while":
        of_cond, of_body, state = while_of(eqn.params).split(own)
        return [*of_cond, *state] if key == "cond_jaxpr" else [*of_body, *state]
    return own[1:] if name == "cond" else own


def _written(program: Any, own: list[Origins], numbers: count) -> Any:
    """An inner program with its operations replaced. Each input also has an origin of its own, as in a loop."""
    whole = closed(program)
    if len(own) != len(whole.jaxpr.invars):  # a call of another form: any input may be any other
        own = [_NONE.union(*own)] * len(whole.jaxpr.invars)
    given = [o | {next(numbers)} for o in own]
    captured = frozenset([next(numbers)])

    def run(*args: Any) -> list:
        return _evaluate(whole.jaxpr, whole.consts, args, captured, given, numbers)

    new = jax.make_jaxpr(run)(*(v.aval for v in whole.jaxpr.invars))
    return new if isinstance(program, jex.ClosedJaxpr) else new.jaxpr


def _replaced(jaxpr: jex.Jaxpr, eqn: Equation, values: list, own: list[Origins]) -> list:
    """The value of a slice or an update, by operations that XLA computes correctly."""
    name, array = eqn.primitive.name, values[0]
    if name == "dynamic_slice":
        sizes = eqn.params["slice_sizes"]
        return eval_equation(jaxpr, eqn, [array, *_clipped(array.shape, sizes, values[1:])])
    updates = values[1] if name == "dynamic_update_slice" else values[2]
    rest = _NONE.union(*own[1:])
    if updates.size <= 1 or not own[0] & rest:
        return eval_equation(jaxpr, eqn, values)
    if name == "dynamic_update_slice":
        return [_placed(array, updates, _clipped(array.shape, updates.shape, values[2:]))]
    window = _window(eqn.params["dimension_numbers"], array.ndim, updates)
    if window is None:
        return eval_equation(jaxpr, eqn, values)
    return [_scattered(eqn.params, window, array, values[1], updates)]


def _clipped(shape: Sequence[int], sizes: Sequence[int], starts: Sequence[Any]) -> list:
    """Starts at which a window lies inside an array."""
    return [lax.clamp(*_of_type(s, 0, s, n - k)) for s, n, k in zip(starts, shape, sizes, strict=True)]


def _of_type(like: Any, *numbers: Any) -> list:
    """Numbers of the type of the first."""
    return [lax.convert_element_type(x, jnp.result_type(like)) for x in numbers]


def _placed(array: Array, window: Array, starts: Sequence[Any], valid: Any = None) -> Array:
    """`dynamic_update_slice` at starts inside the array, if it is valid. No operation overwrites what it reads."""
    inside = jnp.full(array.shape, True if valid is None else valid)
    for axis, (start, size) in enumerate(zip(starts, window.shape, strict=True)):
        if size < array.shape[axis]:
            at = lax.broadcasted_iota(jnp.result_type(start), array.shape, axis)
            inside &= (at >= start) & (at < start + size)
    spread = lax.dynamic_update_slice(jnp.zeros_like(array), window, starts)
    return lax.select(inside, spread, array)


def _window(numbers: Any, ndim: int, updates: Array) -> tuple[int, ...] | None:
    """The shape of the window of a scatter in its array; None if it has several windows, which XLA takes in a loop."""
    windows = set(map(int, numbers.update_window_dims))
    if math.prod(n for axis, n in enumerate(updates.shape) if axis not in windows) > 1:
        return None
    sizes = iter([updates.shape[axis] for axis in sorted(windows)])
    single = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    return tuple(1 if axis in single else next(sizes) for axis in range(ndim))


def _scattered(params: dict, window: tuple[int, ...], array: Array, indices: Array, updates: Array) -> Array:
    """A scatter of one window."""
    starts: list[Any] = [jnp.zeros((), indices.dtype)] * array.ndim
    for axis, index in zip(params["dimension_numbers"].scatter_dims_to_operand_dims, indices.reshape(-1), strict=True):
        starts[int(axis)] = index
    inside = _clipped(array.shape, window, starts)
    valid: Any = None
    if params["mode"] == lax.GatherScatterMode.FILL_OR_DROP:
        valid = jnp.all(jnp.stack([a == b for a, b in zip(starts, inside, strict=True)]))
    new = updates.reshape(window)
    if params["update_jaxpr"] is not None:
        old = lax.dynamic_slice(array, inside, window)
        new = _combined(params, old.reshape(-1), new.reshape(-1)).reshape(window)
    return _placed(array, new, inside, valid)


def _combined(params: dict, old: Array, new: Array) -> Array:
    """Old and new elements, combined as a scatter does."""
    program = params["update_jaxpr"]
    consts = (*getattr(program, "consts", ()), *params["update_consts"])
    return jax.vmap(lambda a, b: jax.core.eval_jaxpr(closed(program).jaxpr, consts, a, b)[0])(old, new)
