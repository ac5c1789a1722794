"""Traced programs as plain values, so that they can be pickled: names of operations, their parameters, their wiring.

JAX's own objects cannot be pickled. Here a jaxpr becomes tuples of names, numbers, shapes and types, and is traced
anew from these. Other parameters, such as a function in `jax.custom_jvp`, raise an error. If the pickler serialises
functions `by_value`, as cloudpickle does, the traced function is pickled instead.
"""

import itertools
import pickle
import sys
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.core
import numpy as np
from jax.extend import core as jex

from .equation_types import Equation
from .equations import bind, callee
from .interpreter import Interpreter, jits_and_hints

by_value: ContextVar[bool] = ContextVar("by_value", default=False)


class Program(NamedTuple):
    """A jaxpr: variables are numbers, arguments have shapes and types, operations their names."""

    constants: int
    arguments: tuple[tuple, ...]  # (shape, type, weakly typed) of constants, then of arguments
    operations: tuple[tuple, ...]  # (name, inputs, outputs, parameters)
    results: tuple


class _Literal(NamedTuple):
    value: Any


class _Inner(NamedTuple):
    """A jaxpr in the parameters of an operation, closed over these constants, or open."""

    program: Program
    constants: tuple | None


def packed(jaxpr: jex.Jaxpr) -> Program:
    """A jaxpr as plain values, without its `jit`s and hints; TypeError if it has something that is not plain."""
    heads: list[Any] = [*jaxpr.constvars, *jaxpr.invars]
    arguments = tuple((v.aval.shape, str(v.aval.dtype), bool(v.aval.weak_type)) for v in heads)
    operations: list[tuple] = []
    counter = itertools.count(len(heads))

    def literal(v: Any) -> _Literal:
        value = np.asarray(v.val, v.aval.dtype)[()]
        return _Literal(value.item() if v.aval.weak_type else value)

    def equation(jaxpr: jex.Jaxpr, eqn: Equation, inputs: list) -> list[int]:
        name = eqn.primitive.name
        if _primitives().get(name) is not eqn.primitive:
            raise TypeError(_not_picklable(name))
        outputs = [next(counter) for _ in eqn.outvars]
        parameters = {k: _plain(name, v) for k, v in eqn.params.items()}
        operations.append((name, tuple(inputs), tuple(outputs), parameters))
        return outputs

    numbers = Interpreter(equation, inline=lambda eqn: jits_and_hints(eqn) and not callee(eqn).consts, literal=literal)
    heads_alone = jaxpr.replace(constvars=[], invars=heads, debug_info=jaxpr.debug_info._replace(arg_names=None))
    results = numbers.evaluate(jex.ClosedJaxpr(heads_alone, []), range(len(heads)))
    return Program(len(jaxpr.constvars), arguments, tuple(operations), tuple(results))


def unpacked(program: Program) -> jex.Jaxpr:
    """The jaxpr again, traced from its operations."""
    shapes = [jax.ShapeDtypeStruct(shape, dtype, weak_type=weak) for shape, dtype, weak in program.arguments]
    traced = jax.make_jaxpr(lambda *args: _evaluate(program, args))(*shapes).jaxpr
    k = program.constants
    return traced.replace(constvars=traced.invars[:k], invars=traced.invars[k:], debug_info=_no_names(traced, k))


def _no_names(jaxpr: jex.Jaxpr, constants: int) -> Any:
    """Return the debug information of a jaxpr whose first arguments are constants."""
    info = jaxpr.debug_info
    names = info.arg_names
    return info._replace(arg_names=None if names is None else names[constants:])


def _evaluate(program: Program, args: tuple) -> list:
    env: dict[int, Any] = dict(enumerate(args))

    def read(x: Any) -> Any:
        return x.value if isinstance(x, _Literal) else env[x]

    for name, inputs, outputs, parameters in program.operations:
        params = {k: _restored(v) for k, v in parameters.items()}
        env.update(zip(outputs, bind(_primitives()[name], params, map(read, inputs)), strict=True))
    return [read(x) for x in program.results]


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, jex.ClosedJaxpr):
        return _Inner(packed(value.jaxpr), tuple(np.asarray(c) for c in value.consts))
    if isinstance(value, jex.Jaxpr):
        return _Inner(packed(value), None)
    if type(value) in (tuple, list):
        return type(value)(_plain(name, v) for v in value)
    if isinstance(value, jax.Array):
        return np.asarray(value)
    try:
        pickle.dumps(value)
    except Exception:
        raise TypeError(_not_picklable(name)) from None
    return value


def _restored(value: Any) -> Any:
    if isinstance(value, _Inner):
        jaxpr = unpacked(value.program)
        return jaxpr if value.constants is None else jex.ClosedJaxpr(jaxpr, list(value.constants))
    if type(value) in (tuple, list):
        return type(value)(_restored(v) for v in value)
    return value


def _not_picklable(name: str) -> str:
    return (
        f"a function of this system uses the operation {name!r} of JAX, which cannot be pickled: make the system in "
        "the other process (a function that returns it can be sent), or store results with out= and open them there."
    )


@lru_cache(maxsize=1)
def _primitives() -> dict[str, Any]:
    """Return the primitives of JAX by name. Not all are public, so all loaded modules of JAX are searched."""
    modules = [module for name, module in sorted(sys.modules.items()) if name.split(".")[0] == "jax"]
    found = [x for module in modules for x in list(vars(module).values()) if isinstance(x, jex.Primitive)]
    return {p.name: p for p in found}
