"""Functions that a user gives: checks of their signatures and of the arrays that they use, before they are called."""

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from .validation import check_unmasked

# Arguments that receive more than their position states, by name, after the state and the params.
MEANINGS = {"t": "the time", "g": "the group element", "u": "the held control"}
SPECIAL = ("t", "g")
_RESERVED = ("params", "t", "g", "time", "dt", "dS")  # names of arguments that state what a function expects


def check_signature(name: str, fn: Callable, *supported: tuple[str, ...], hint: str = "") -> tuple[str, ...]:
    """The first of the supported signatures with which the function can be called.

    - `name`: the argument that took the function, for the message.
    - `supported`: the names of the arguments of each signature.
    - `hint`: a sentence for the end of the message.

    Raises TypeError with the supported signatures and that of the function if there is none, or if a name such as `t`
    shows that the function expects something else than it would receive.
    """
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):  # functions written in C may have none
        return supported[0]
    for arguments in supported:
        try:
            bound = signature.bind(*arguments).arguments
        except TypeError:
            continue
        confused = [(own, given) for own, given in bound.items() if own != given and own in _RESERVED]
        if not confused:
            return arguments
        hint = "The argument {} would receive {}: rename it, if that is meant.".format(*confused[0])
    shown = " or ".join(f"{name}({', '.join(arguments)})" for arguments in supported)
    received = ", ".join(str(p.replace(annotation=p.empty)) for p in signature.parameters.values())
    raise TypeError(f"{name} must have the signature {shown}, not {name}({received}).{hint and ' '}{hint}")


def check_function(name: str, fn: Any, *supported: tuple[str, ...], what: str = "the state", hint: str = "") -> None:
    """Raise unless `fn` is a function with a supported signature; `what` it is a function of, for the message."""
    if not callable(fn):
        raise TypeError(f"{name} must be a function of {what}, not {described(fn)}.")
    check_signature(name, fn, *supported, hint=hint)
    check_captured(name, fn)


def named_arguments(fn: Any) -> dict[str, inspect.Parameter]:
    """The positional arguments of a function by name; none if Python cannot read its signature."""
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        return {}
    kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    return {p.name: p for p in parameters if p.kind in kinds}


def special_arguments(fn: Any, names: Sequence[str] = SPECIAL) -> tuple[str, ...]:
    """Those of the special names, such as `t`, that a function has as arguments without a default, in its order."""
    if not callable(fn):
        return ()
    return tuple(name for name, p in named_arguments(fn).items() if name in names and p.default is p.empty)


def check_special(name: str, fn: Any, arguments: tuple[str, ...], names: Sequence[str] = SPECIAL) -> None:
    """Raise if an argument with a special name is not after `arguments`, or has a default."""
    own = named_arguments(fn)
    found = [special for special in own if special in names]
    for special in found:
        if own[special].default is not own[special].empty:
            raise TypeError(
                f"{name} has an argument {special} with the default {own[special].default!r}: an argument named "
                f"{special} receives {MEANINGS[special]}. Write {name}({', '.join([*arguments, special])}), or give "
                "the argument another name."
            )
    early = [special for special in found if list(own).index(special) < len(arguments)]
    if early:
        raise TypeError(
            f"{name} must have {MEANINGS[early[0]]} {early[0]} as its last argument: write "
            f"{name}({', '.join([*arguments, *found])}), not {name}({', '.join(own)})."
        )


def described(x: Any) -> str:
    """A value in a message, by its type."""
    return f"a {type(x).__name__}" if x is not None else "None"


def check_captured(name: str, fn: Any) -> None:
    """Raise if a function uses an array that JAX would read wrongly or not at all: masked, or of another byte order."""
    for variable, value in _captured(fn):
        if isinstance(value, np.ndarray):
            check_unmasked(f"the array {variable} of {name}", value)
            if not value.dtype.isnative:
                raise TypeError(
                    f"{name} uses the array {variable} of type {value.dtype.str!r}, whose byte order is not that of "
                    f'this machine: write {variable} = {variable}.astype({variable}.dtype.newbyteorder("=")).'
                )


def _captured(fn: Any) -> Iterator[tuple[str, Any]]:
    """The variables that a function takes from outside, by name."""
    if isinstance(fn, functools.partial):
        yield from ((f"argument {k}", x) for k, x in enumerate(fn.args))
        yield from fn.keywords.items()
        fn = fn.func
    fn = inspect.unwrap(fn) if hasattr(fn, "__wrapped__") else fn
    try:
        found = inspect.getclosurevars(fn)
    except (TypeError, ValueError):
        return
    yield from found.nonlocals.items()
    yield from found.globals.items()
