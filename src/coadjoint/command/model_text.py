"""Models as text: their parameters, and experiment files with their defaults."""

import contextlib
import inspect
from typing import Any, NamedTuple

import numpy as np

from ..experiments.bath import ABOUT_BATH
from ..experiments.schema import ABOUT_RUN, known_integrators, known_models, parameters


class Parameter(NamedTuple):
    """A parameter of a model: its default as text of an experiment file (empty: unknown), and its origin."""

    value: str
    by_model: bool  # the model computes it, so a file need not contain it


def about_model(name: str) -> tuple[str, dict[str, Parameter]]:
    """The first line of a model's documentation, and its parameters.

    Defaults that the model computes are read from its params. A model with a size is not made: that may take long.
    """
    make = known_models()[name]
    first = (inspect.getdoc(make) or "").partition("\n")[0].rstrip(":.").rstrip()
    chosen: dict[str, Any] = {}
    if not any(p.annotation is int for p in parameters(make).values()):
        with contextlib.suppress(Exception):
            chosen = make()[0].params or {}
    found = {}
    for key, p in parameters(make).items():
        left = p.default is None or p.default is inspect.Parameter.empty
        value = np.asarray(chosen[key]).tolist() if left and key in chosen else p.default
        found[key] = Parameter(toml(value), left)
    return first, found


def toml(value: Any) -> str:
    """A value as text of an experiment file; empty if the model computes it."""
    if value is None or value is inspect.Parameter.empty:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        return f'"{value}"'
    return f"[{', '.join(toml(v) for v in value)}]"


def new(name: str) -> str:
    """The text of an experiment file for a model."""
    first, defaults = about_model(name)
    lines = [f"# {first}", "", "[model]", f'name = "{name}"']
    lines += [f"{'# ' * p.by_model}{key} = {p.value or '…'}" for key, p in defaults.items()]
    run = {"t1": "100.0", "dt": "0.01", "key": "0", "members": "1", "save_every": "10", "integrator": '"TMK"'}
    run["backend"] = '"auto"'
    about = ABOUT_RUN | {"integrator": f"or {', '.join(n for n in known_integrators() if n != 'TMK')}"}
    width = max(len(f"{k} = {v}") for k, v in run.items())
    lines += ["", "[run]", *(f"{f'{k} = {v}':<{width}}  # {about[k]}" for k, v in run.items())]
    lines += ["", "# Friction and temperature instead of the model's noise:", "# [bath]"]
    lines += [f"# {k} = {v}  # {ABOUT_BATH[k]}" for k, v in (("friction", "0.1"), ("temperature", "0.1"))]
    lines += ["", "# One store holds all combinations:", "# [sweep]", "# run.key = [0, 1, 2]"]
    lines += ["# run.dt = { start = 0.01, stop = 0.02, count = 2 }"]
    return "\n".join(lines) + "\n"
