"""The keys of an experiment file and their checks; models and integrators are found by inspection."""

import datetime
import difflib
import importlib
import inspect
import math
import os
import sys
import typing
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import numpy as np

from .. import integrators, models
from ..integrators.base import Integrator
from ..integrators.tau import Tau
from ..models.origin import is_field
from ..numerics import validation
from ..numerics.array_files import array_from
from ..runtime import reducers, time_reducers
from ..runtime.backends import BACKENDS
from ..systems import System

_LARGEST_SIZE = 10_000  # of a whole number that a model takes: beyond, a typing error is likelier than a machine for it
_MOST_VALUES = 100_000  # of a range


class ExperimentError(ValueError):
    """An invalid experiment: the message names the file, the key, the value received and the values allowed."""


def known_models() -> dict[str, Callable[..., Any]]:
    """All functions of `coadjoint.models` that return a system and a state."""
    return {name: f for name, f in vars(models).items() if inspect.isfunction(f) and _returns_system(f)}


def _returns_system(function: Callable[..., Any]) -> bool:
    returned = typing.get_type_hints(function).get("return")
    return typing.get_origin(returned) is tuple and typing.get_args(returned)[:1] == (System,)


def known_integrators() -> dict[str, type[Integrator]]:
    """All integrators of `coadjoint.integrators`."""
    found = {name: c for name, c in vars(integrators).items() if inspect.isclass(c) and issubclass(c, Integrator)}
    return {name: c for name, c in found.items() if not inspect.isabstract(c) and not name.startswith("_")}


def known_reducers() -> dict[str, Callable[..., Any]]:
    """All reducers of coadjoint."""
    found = {**vars(reducers), **vars(time_reducers)}
    found = {name: c for name, c in found.items() if inspect.isclass(c) and issubclass(c, eqx.Module)}
    public = lambda c: hasattr(c, "merge") and not c.__name__.startswith("_") and c is not reducers.MultiReducer
    return {name: c for name, c in found.items() if public(c)}


def parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The named parameters of a model, an integrator or a reducer."""
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {name: p for name, p in inspect.signature(function).parameters.items() if p.kind in kinds}


def nearest(word: Any, words: Iterable[str]) -> str:
    """The allowed words, with a suggestion if one of them is similar."""
    words = list(words)
    close = difflib.get_close_matches(str(word), words, n=1)
    return (f"did you mean {close[0]!r}? " if close else "") + f"Allowed: {', '.join(words) or 'no options'}"


def check_keys(where: str, table: Any, allowed: Iterable[str]) -> dict[str, Any]:
    """Raise if a table has keys that are not allowed."""
    if not isinstance(table, dict):
        raise ExperimentError(f"{where} must be a table, not {shown(table)}.")
    for key in table:
        if key not in (allowed := list(allowed)):
            raise ExperimentError(f"{where}.{key} is not known: {nearest(key, allowed)}.")
    return table


def shown(value: Any) -> str:
    """A value as text of a message, shortened."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def check_values(where: str, value: Any) -> None:
    """Raise for numbers that are not finite, for dates and for times."""
    if isinstance(value, (datetime.date, datetime.time)):
        raise ExperimentError(f"{where} must not be a date or a time: {value}.")
    if isinstance(value, float) and not math.isfinite(value):
        raise ExperimentError(f"{where} must be finite, not {value}.")
    if isinstance(value, int) and abs(value) >= 2**64:
        raise ExperimentError(f"{where} must be below 2^64, not {shown(value)}.")
    if isinstance(value, dict):
        for key, inner in value.items():
            check_values(f"{where}.{key}" if where else key, inner)
    if isinstance(value, list):
        for i, inner in enumerate(value):
            check_values(f"{where}[{i}]", inner)


# [model]


def check_model(
    table: Any, factory: Callable[..., Any] | None = None, folder: Path | None = None
) -> tuple[Callable[..., Any], dict[str, Any]]:
    """The function that makes the model, and its arguments; modules of your own are also looked up in `folder`."""
    if not isinstance(table, dict):
        raise ExperimentError(f"model must be a table, not {shown(table)}.")
    name = table.get("name")
    if name is None:
        raise ExperimentError(f"model.name is missing. Allowed: {', '.join(known_models())}, or 'module:function'.")
    if not isinstance(name, str):
        raise ExperimentError(f"model.name must be a word, not {shown(name)}.")
    make = factory or (_own_model(name, folder) if ":" in name else known_models().get(name))
    if make is None:
        raise ExperimentError(
            f"model.name = {name!r} is not known: {nearest(name, known_models())}, or 'module:function' for your own."
        )
    given = {key: value for key, value in table.items() if key != "name"}
    allowed = parameters(make)
    takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in inspect.signature(make).parameters.values())
    if not takes_any:
        check_keys("model", given, allowed)
    for key, p in allowed.items():
        if p.default is inspect.Parameter.empty and key not in given:
            raise ExperimentError(f"model.{key} is missing: {name} needs it.")
        if p.annotation is int and key in given:
            _check_size(f"model.{key}", given[key])
    return make, {key: None if isinstance(value, str) and value == "none" else value for key, value in given.items()}


def _check_size(where: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ExperimentError(f"{where} must be a whole number, not {shown(value)}.")
    if value > _LARGEST_SIZE:
        raise ExperimentError(f"{where} must be at most {_LARGEST_SIZE}, not {value}.")


def _own_model(name: str, folder: Path | None) -> Callable[..., Any]:
    """A function of your own: from a module in the current folder, in the folder of the file, or on Python's path."""
    module, _, attribute = name.partition(":")
    if not all(word.isidentifier() for word in [*module.split("."), attribute]):
        raise ExperimentError(f"model.name = {name!r} must be 'module:function', as in 'mymodule:factory'.")
    before = list(sys.path)
    sys.path[:0] = [os.getcwd(), *([] if folder is None else [str(folder.absolute())])]
    try:
        found = getattr(importlib.import_module(module), attribute, None)
    except Exception as error:
        raise ExperimentError(f"model.name = {name!r}: importing {module} failed: {first_line(error)}") from error
    finally:
        sys.path[:] = before
    if not callable(found):
        raise ExperimentError(f"model.name = {name!r}: {module} has no function {attribute!r}.")
    return found


def make_model(make: Callable[..., Any], arguments: dict[str, Any]) -> tuple[System, Any]:
    """The system and the initial state; an error names the key that caused it."""
    try:
        made = make(**arguments)
    except Exception as error:
        key = _culprit(make, arguments, error)
        raise ExperimentError(f"model.{key}: {first_line(error)}") from error
    if not isinstance(made, tuple) or len(made) != 2 or not isinstance(made[0], System):
        raise ExperimentError(f"model.name: {make.__name__} must return (System, mu0), not {shown(made)}.")
    return made


def _culprit(make: Callable[..., Any], arguments: dict[str, Any], error: Exception) -> str:
    """The key that causes an error: a key in its message, or else a key that fails alone."""
    text = str(error)
    named = [key for key in arguments if text.startswith(key)] or [key for key in arguments if key in text.split()]
    if named:
        return named[0]
    for key, value in arguments.items():
        try:
            make(**{key: value})
        except Exception:
            return key
    return ", ".join(arguments) or "name"


def first_line(error: BaseException) -> str:
    """The first line of the message of an error, or its type if it has no message."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def with_files(tables: Any, folder: Path) -> Any:
    """The tables with arrays in place of the paths of their files, which are relative to a folder."""
    if not isinstance(tables, dict):
        return tables
    table, run = tables.get("model"), tables.get("run")
    make = known_models().get(str(table.get("name"))) if isinstance(table, dict) else None
    fields = [key for key, p in parameters(make).items() if is_field(p)] if make else []
    try:
        if fields and isinstance(table, dict):
            paths = {key: table[key] for key in fields if isinstance(table.get(key), str) and table[key] != "none"}
            tables = tables | {"model": table | {k: array_from(k, path, folder) for k, path in paths.items()}}
        if isinstance(run, dict) and isinstance(run.get("mu0"), str):
            tables = tables | {"run": run | {"mu0": array_from("mu0", run["mu0"], folder)}}
    except ValueError as error:
        section = "run" if first_line(error).startswith("mu0") else "model"
        raise ExperimentError(f"{section}.{first_line(error)}") from None
    return tables


# [run]


def _number(where: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ExperimentError(f"{where} must be a number, not {shown(value)}.")
    return float(value)


def _positive(where: str, value: Any) -> float:
    return validation.positive(where, _number(where, value))


def _flag(where: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ExperimentError(f"{where} must be true or false, not {shown(value)}.")
    return value


def _depth(where: str, value: Any) -> int:
    number = validation.count(where, value, least=0)
    if number > 40:
        raise ExperimentError(f"{where} must be at most 40, not {number}.")
    return number


def _state(where: str, value: Any) -> np.ndarray:
    return validation.numbers(where, value, "numbers")


RUN: Mapping[str, Callable[[str, Any], Any]] = {
    "t0": _number,
    "t1": _number,
    "dt": _positive,
    "key": lambda where, value: validation.count(where, value, least=0),
    "members": validation.count,
    "save_every": validation.count,
    "save_at": lambda where, value: _state(where, value),
    "integrator": lambda where, value: check_integrator(where, value),
    "grid": _positive,
    "depth": _depth,
    "driver": lambda where, value: value,  # `driver_of` checks it
    "group": _flag,
    "g0": lambda where, value: _state(where, value),
    "throw": _flag,
    "backend": lambda where, value: validation.choice(where, value, BACKENDS),
    "mu0": lambda where, value: _state(where, value),
    "reduce": lambda where, value: check_reducer(where, value),
}
ABOUT_RUN = {
    "t0": "initial time (0)",
    "t1": "final time",
    "dt": "step size",
    "key": "key of the random stream; equal keys give equal paths",
    "members": "1 for one trajectory, more for an ensemble",
    "save_every": "number of steps between saved states",
    "save_at": "times to save, on the grid of the steps (in place of save_every)",
    "integrator": "a name, or a table with its options",
    "grid": "base grid of the Brownian path (dt)",
    "depth": "levels below the grid on which integrals of the path are sampled",
    "driver": "driver of the noise: a name (Brownian), or a table with a name and options",
    "group": "also save the group element (false)",
    "g0": "initial group element, with group = true (the identity)",
    "throw": "stop at a step that does not converge (true)",
    "backend": "auto, native-gpu, native or xla",
    "mu0": "initial state (the model's)",
    "reduce": "statistics instead of members: a name, or a table with options",
}


def check_run(table: Any) -> dict[str, Any]:
    """The checked values of [run], with the integrator and the reducer."""
    check_keys("run", table, RUN)
    for key in ("t1", "dt"):
        if key not in table:
            raise ExperimentError(f"run.{key} is missing: {ABOUT_RUN[key]}.")
    checked = {}
    for key, value in table.items():
        try:
            checked[key] = RUN[key](f"run.{key}", value)
        except ExperimentError:
            raise
        except (TypeError, ValueError) as error:
            raise ExperimentError(str(error)) from None
    return checked


def check_integrator(where: str, value: Any) -> Integrator:
    """An integrator from a name, or from a table with a name and options."""
    return from_table(where, value, known_integrators(), "TMK")


def check_reducer(where: str, value: Any) -> Any:
    """A reducer from a name, or from a table with a name and options."""
    return from_table(where, value, known_reducers(), "Mean")


def from_table(where: str, value: Any, known: Mapping[str, Callable[..., Any]], default: str) -> Any:
    """The object that a name, or a table with a name and options, describes."""
    if isinstance(value, str):
        value = {"name": value}
    if not isinstance(value, dict):
        raise ExperimentError(f"{where} must be a name, or a table with a name and options, not {shown(value)}.")
    if (name := value.get("name", default)) not in list(known):
        raise ExperimentError(f"{where} = {shown(name)} is not known: {nearest(name, known)}.")
    options = {k: v for k, v in value.items() if k != "name"}
    allowed = parameters(known[name])
    check_keys(where, options, allowed)
    missing = [key for key, p in allowed.items() if p.default is inspect.Parameter.empty and key not in options]
    if missing:
        raise ExperimentError(f"{where}.{missing[0]} is missing: {name} needs {', '.join(missing)}.")
    made = {k: _option(f"{where}.{k}", allowed[k].annotation, v) for k, v in options.items()}
    try:
        return known[name](**made)
    except (TypeError, ValueError) as error:
        raise ExperimentError(f"{where}.{first_line(error)}") from None


def _option(where: str, kind: Any, value: Any) -> Any:
    """An option, checked against the annotation of its parameter."""
    if inspect.isclass(kind) and issubclass(kind, Integrator):
        return check_integrator(where, value)
    if kind == reducers.Reducer | None:
        return check_reducer(where, value)
    if kind is Tau:
        return from_table(where, value, {"Exp": integrators.Exp, "Cayley": integrators.Cayley}, "Exp")
    if kind is float:
        return _number(where, value)
    if kind is bool:
        return _flag(where, value)
    if kind is int:
        return validation.count(where, value, least=0)
    if kind is str and not isinstance(value, str):
        raise ExperimentError(f"{where} must be a word, not {shown(value)}.")
    return value


# [sweep]

FIXED = ("model.name", "bath.fields", "run.members", "run.group", "run.reduce")


def check_sweep(table: Any) -> dict[str, list[Any]]:
    """The values of each swept parameter by its full name."""
    if not isinstance(table, dict):
        raise ExperimentError(f"sweep must be a table, not {shown(table)}.")
    swept = dict(_swept(table))
    for name, values in swept.items():
        if name.split(".")[0] not in ("model", "bath", "run") or "." not in name:
            raise ExperimentError(f"sweep.{name} is not known: write model.{name} or run.{name}, or bath.{name}.")
        if name in FIXED:
            raise ExperimentError(f"sweep.{name} cannot be swept: write one store for each value.")
        if not values:
            raise ExperimentError(f"sweep.{name} must have at least one value.")
    if math.prod(len(v) for v in swept.values()) > _MOST_VALUES:
        raise ExperimentError(f"sweep.{', '.join(swept)} make more than {_MOST_VALUES} combinations.")
    return swept


def _swept(table: dict[str, Any], prefix: str = "") -> Iterable[tuple[str, list[Any]]]:
    for key, value in table.items():
        name = f"{prefix}{key}"
        if isinstance(value, list):
            yield name, value
        elif isinstance(value, dict) and {"start", "stop"} & set(value):
            yield name, _range(f"sweep.{name}", value)
        elif isinstance(value, dict):
            yield from _swept(value, f"{name}.")
        else:
            raise ExperimentError(
                f"sweep.{name} must be a list of values, or a range such as {{ start = 0.0, stop = 1.0, count = 5 }}, "
                f"not {shown(value)}."
            )


def _range(where: str, table: dict[str, Any]) -> list[float]:
    check_keys(where, table, ("start", "stop", "count", "log"))
    for key in ("start", "stop", "count"):
        if key not in table:
            raise ExperimentError(f"{where}.{key} is missing: a range has start, stop and count.")
    start, stop = (_number(f"{where}.{key}", table[key]) for key in ("start", "stop"))
    try:
        count = validation.count(f"{where}.count", table["count"])
    except (TypeError, ValueError) as error:
        raise ExperimentError(str(error)) from None
    if count > _MOST_VALUES:
        raise ExperimentError(f"{where}.count must be at most {_MOST_VALUES}, not {count}.")
    if _flag(f"{where}.log", table.get("log", False)):
        if not (start > 0 and stop > 0):
            raise ExperimentError(f"{where}.start and stop must be above 0 for log = true, not {start} and {stop}.")
        return np.geomspace(start, stop, count).tolist()
    return np.linspace(start, stop, count).tolist()
