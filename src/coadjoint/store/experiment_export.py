"""Export of a run from Python to the tables of an experiment file, which a store contains."""

import inspect
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from .. import integrators, models
from ..drivers import Brownian
from ..integrators.base import Integrator
from ..integrators.dissipative import Dissipative
from ..integrators.tau import Tau
from ..models.origin import origin
from ..runtime import reducers, time_reducers
from ..runtime.plan import Plan
from .fingerprint import configuration, describe, digest

_REDUCERS = {**vars(reducers), **vars(time_reducers)}
_LARGEST = 4096  # numbers of a start that are written into the tables; a larger one, or a complex one, is an array


def as_tables(plan: Plan) -> dict[str, Any] | None:
    """The tables that make the same run, if there are any: a model of ours, called with plain values."""
    made = origin(plan.system)
    method = plan.integrator.inner if isinstance(plan.integrator, Dissipative) else plan.integrator
    integrator, reducer = _options(method), _options(plan.reduce)
    brownian = plan.system.n_noise == 0 or isinstance(plan.driver, Brownian)
    if made is None or integrator is None or plan.custom or plan.params is not None or not brownian:
        return None
    if plan.members == 1 and plan.reduce is None:  # in a file, one member is a trajectory
        return None
    system, mu0 = getattr(models, made.name)(**made.arguments)
    run: dict[str, Any] = {"t0": plan.t0, "t1": plan.t0 + plan.steps * plan.dt, "dt": plan.dt}
    run |= {"save_every": plan.save_every} if plan.save_at is None else {"save_at": plan.save_at[0].tolist()}
    run |= {"group": plan.group, "members": plan.members or 1}
    run |= {"integrator": integrator, "throw": plan.throw, "backend": plan.backend}
    if isinstance(plan.driver, Brownian) and plan.system.n_noise:
        run["key"] = (int(plan.driver.key.a) << 32) | int(plan.driver.key.b)
        run |= {k: v for k in ("grid", "depth") if (v := getattr(plan.driver, k)) is not None}
    if plan.reduce is not None:
        if reducer is None:
            return None
        run["reduce"] = reducer
    start = np.asarray(plan.mu0_given)
    if not np.array_equal(start, np.asarray(mu0)):
        run["mu0"] = start.tolist() if start.dtype.kind in "fiu" and start.size <= _LARGEST else start
    if plan.g0 is not None:
        if not isinstance(plan.g0, jax.Array | np.ndarray) or plan.g0.dtype != float or plan.g0.size > _LARGEST:
            return None
        run["g0"] = plan.g0.tolist()
    again = replace(plan, system=system)
    same = digest(configuration(again)) == digest(configuration(plan))
    return {"model": {"name": made.name, **made.arguments}, "run": run} if same else None


def _options(thing: Any) -> dict[str, Any] | None:
    """Return the arguments that reproduce an integrator or a reducer of coadjoint; None if they are unknown."""
    kind = type(thing)
    ours = vars(integrators) if isinstance(thing, (Integrator, Tau)) else _REDUCERS
    if ours.get(kind.__name__) is not kind:
        return None
    options: dict[str, Any] = {"name": kind.__name__}
    for name in inspect.signature(kind).parameters:
        holder = thing if hasattr(thing, name) else getattr(thing, "solve", None)
        if not hasattr(holder, name):
            return None
        value = getattr(holder, name)
        if type(value).__name__.startswith("_") and type(value).__module__ == time_reducers.__name__:
            continue  # the default of a reducer
        if value is None:
            continue  # a default too, as the comparison below checks
        options[name] = _plain(value)
        if options[name] is None:
            return None
    return options if describe(made(options)) == describe(thing) else None


def _plain(value: Any) -> Any:
    """A value as numbers, words, lists and tables; None if it is more than that."""
    if isinstance(value, (Integrator, Tau)) or hasattr(value, "merge"):
        return _options(value)
    if isinstance(value, (bool, int, float, str)):
        return value
    return np.asarray(value).tolist() if np.asarray(value).dtype.kind in "fi" else None


def made(options: dict[str, Any]) -> Any:
    """The integrator or reducer that a table with its name and options describes."""
    name = options["name"]
    given = {k: made(v) if isinstance(v, dict) else v for k, v in options.items() if k != "name"}
    return (vars(integrators) if hasattr(integrators, name) else _REDUCERS)[name](**given)
