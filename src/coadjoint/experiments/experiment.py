"""Experiments as files: read them, check them, run them into a store, resume them."""

import contextlib
import copy
import hashlib
import itertools
import json
import os
import shutil
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..integrators.tmk import TMK
from ..runtime.backends import prepare_program
from ..runtime.executors import executor_for
from ..runtime.plan import Plan
from ..runtime.planning import plan_ensemble, plan_solve
from ..store.atomic_io import StoreError
from ..store.header import TOTALS
from ..store.input_arrays import with_arrays
from ..store.locks import store_lock
from ..store.reading import Stored, read_header
from ..store.recorder import recording
from ..store.schema import Axis
from .bath import check_bath, in_bath
from .driver import driver_of
from .schema import (
    ExperimentError,
    check_model,
    check_run,
    check_sweep,
    check_values,
    first_line,
    make_model,
    nearest,
    shown,
    with_files,
)

_SECTIONS = ("model", "run", "sweep", "bath")
_RESERVED = {"time", "sample", "member", "batch", "component", "matrix", "row", "column", "casimir"}
_RESERVED |= {"mu", "energy", "casimirs"}


@dataclass(frozen=True)
class Experiment:
    """The checked contents of an experiment file: a model, a run, and swept parameters."""

    tables: dict[str, Any]  # as in the file
    source: str  # the file, for messages
    factory: Any = None  # the user's own model, if it is passed as a function
    folder: Path | None = None  # where modules with the user's own models are looked up

    def __post_init__(self) -> None:
        """Check everything that can be checked without making the model."""
        with _naming(self.source):
            if not isinstance(self.tables, dict):
                raise ExperimentError(f"an experiment is a table, not {shown(self.tables)}.")
            for section in self.tables:
                if section not in _SECTIONS:
                    raise ExperimentError(f"[{section}] is not known: {nearest(section, _SECTIONS)}.")
            for section in ("model", "run"):
                if section not in self.tables:
                    raise ExperimentError(f"[{section}] is missing.")
            check_values("", self.tables)
            self.axes  # noqa: B018, checks the sweep
            for tables in self.combinations()[:1]:
                check_model(tables["model"], self.factory, self.folder)
                check_run(tables["run"])
                if "bath" in tables:
                    check_bath(tables["bath"])

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The swept parameters and their dimensions."""
        swept = check_sweep(self.tables.get("sweep", {}))
        last = [name.split(".")[-1] for name in swept]
        taken = _RESERVED | set(TOTALS)
        names = [n if last.count(n) == 1 and n not in taken else full for n, full in zip(last, swept, strict=True)]
        return tuple(Axis(full, name, tuple(v)) for (full, v), name in zip(swept.items(), names, strict=True))

    def combinations(self) -> list[dict[str, Any]]:
        """The tables of each run: one for each combination of swept values."""
        out = []
        for values in itertools.product(*(a.values for a in self.axes)):
            tables = copy.deepcopy({k: v for k, v in self.tables.items() if k != "sweep"})
            for axis, value in zip(self.axes, values, strict=True):
                _put(tables, axis.parameter, value)
            out.append(tables)
        return out

    def plans(self) -> list[Plan]:
        """The plans of all runs."""
        with _naming(self.source):
            plans: list[Plan] = []
            made: dict[str, Any] = {}
            for tables in self.combinations():
                make, arguments = check_model(tables["model"], self.factory, self.folder)
                bath = check_bath(tables["bath"]) if "bath" in tables else None
                key = json.dumps([arguments, bath], default=_fingerprint)
                if key not in made:
                    system, mu0 = make_model(make, arguments)
                    made[key] = system if bath is None else in_bath(system, bath), mu0
                system, mu0 = made[key]
                plans.append(_plan(system, mu0, check_run(tables["run"])))
            _check_alike(plans, self.axes)
            return plans


def load(path: str | Path, settings: Sequence[str] = ()) -> Experiment:
    """The experiment in a TOML file; settings such as `run.dt=0.005` replace its values."""
    path = Path(path)
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ExperimentError(f"{path} does not exist. `coadjoint new MODEL > {path}` makes one.") from None
    except IsADirectoryError:
        raise ExperimentError(f"{path} is a folder, not an experiment file.") from None
    except OSError as error:
        raise ExperimentError(f"{path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise ExperimentError(f"{path} is no TOML file: it is not text in UTF-8.") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ExperimentError(f"{path} is no TOML file: {first_line(error)}.") from None
    for setting in settings:
        tables = _with_setting(tables, setting)
    with _naming(str(path)):
        return Experiment(with_files(tables, path.parent), str(path), folder=path.parent)


def run(
    experiment: "str | Path | dict[str, Any] | Experiment",
    out: str | Path,
    *,
    progress: Any = False,
    on: Any = None,
    replace: bool = False,
) -> Stored:
    """Run an experiment into a new store.

    Parameters
    ----------
    experiment : str, Path, dict or Experiment
        An experiment file (TOML), or its tables as a dictionary.
    out : str or Path
        The store.
    progress : bool, default False
        Whether to show a progress bar.
    on : optional
        A cluster: a `distributed.Client`, the address of a Dask scheduler, or "local:8" for eight processes here.
    replace : bool, default False
        Whether to replace an existing store of this name. The experiment is checked first.

    Returns
    -------
    Stored
        The run, whose results are read from the store.

    Raises
    ------
    ExperimentError
        If the experiment is not valid.
    StoreError
        If the store exists and `replace` is false, or another process writes it.
    """
    if isinstance(experiment, dict):
        experiment = Experiment(with_files(experiment, Path()), "experiment")
    elif not isinstance(experiment, Experiment):
        experiment = load(experiment)
    return _execute(experiment, Path(out), False, progress, on, replace)


def resume(
    path: str | Path,
    *,
    t1: float | None = None,
    save_at: Any = None,
    model: Any = None,
    backend: str | None = None,
    progress: Any = False,
    on: Any = None,
) -> Stored:
    """Resume the run of a store from its last checkpoint.

    The run must use a model of `coadjoint.models`, or you pass your own model again. coadjoint never calls a function
    because a store names it.

    Parameters
    ----------
    path : str or Path
        The store.
    t1 : float, optional
        A later final time, by default that of the store.
    save_at : sequence of float, optional
        For a run with `save_at`: its saved times, and more after the earlier final time.
    model : callable or str, optional
        Your own model: the function, or its name "module:function".
    backend : str, optional
        A backend in place of the one that the run was started with.
    progress : bool, default False
        Whether to show a progress bar.
    on : optional
        A cluster, as in `run`.

    Returns
    -------
    Stored

    Raises
    ------
    StoreError
        If the store is damaged, or does not describe its system.
    """
    path = Path(path)
    header = read_header(path, "resume")
    tables = with_arrays(path, header["experiment"])
    if tables is None:
        call = "ensemble" if header["kind"] == "ensemble" else "solve"
        raise StoreError(
            f"{path} does not describe its system, which was created in Python: resume with "
            f'{call}(..., out="{path}", resume=True), with the same arguments.'
        )
    name = tables["model"]["name"]
    factory = None if isinstance(model, str) else model
    if ":" in name and factory is None and model != name:
        raise StoreError(
            f"{path} has a model of your own, {name}: allow the call with "
            f"resume({str(path)!r}, model={name!r}) or `coadjoint resume {path} --model {name}`."
        )
    swept = check_sweep(tables.get("sweep", {}))
    if save_at is not None:
        save_at = np.asarray(save_at).tolist()
    for key, value in {"t1": t1, "save_at": save_at, "backend": backend}.items():
        if value is None:
            continue
        if f"run.{key}" in swept:
            raise StoreError(f"{path} is a sweep over run.{key}, which cannot be {'extended' if t1 else 'changed'}.")
        tables["run"][key] = value
    return _execute(Experiment(tables, str(path), factory, path.parent), path, True, progress, on)


def _execute(
    experiment: Experiment, path: Path, resumed: bool, progress: Any, on: Any, replace: bool = False
) -> Stored:
    """Run all runs of an experiment; `progress` is true, false, or a `Bar` for all runs."""
    plans = experiment.plans()
    with _naming(experiment.source):
        try:
            programs = [prepare_program(plan) for plan in plans]
        except ValueError as error:
            raise ExperimentError(f"run.{first_line(error)}") from None

    if replace:
        _remove(path)

    def all_runs(watch: Any) -> Stored:
        with executor_for(on, plans, programs, path, progress) as place:
            with recording(plans, programs, experiment.axes, path, resumed, experiment.tables, place) as store:
                # A cluster has all runs before it at once; here each has all cores for itself.
                parts = [[k] for k in range(len(plans))] if place is None else [list(range(len(plans)))]
                results = [result for runs in parts for result in store.execute(runs, watch)]
        return Stored(path, None, None) if experiment.axes else results[0]

    if not progress:
        return all_runs(False)
    from ..command.progress import Bar, size_of

    bar = Bar() if progress is True else progress
    bar.total, bar.members = size_of(plans)
    with bar:
        return all_runs(bar.serving)


def _remove(path: Path) -> None:
    """Remove a store of this name, if there is one and no process writes it."""
    if not os.path.lexists(path):
        return
    read_header(path, "open")  # raises if it is not a store
    if owner := store_lock(path).owner():
        raise StoreError(f"{path} is being written by {owner}: wait for that run, or choose another name.")
    shutil.rmtree(path)


def _plan(system: Any, mu0: Any, run: dict[str, Any]) -> Plan:
    options: dict[str, Any] = {"t0": 0.0, "save_every": 1, "group": False, "throw": True, "members": 1, "key": None}
    options |= {"integrator": TMK(), "backend": "auto", "mu0": mu0, "reduce": None} | run
    driver, grid, depth = options.pop("driver", "Brownian"), options.pop("grid", None), options.pop("depth", None)
    key, members, mu0, reduce = (options.pop(name) for name in ("key", "members", "mu0", "reduce"))
    try:
        if system.n_noise and key is None:
            raise ExperimentError("run.key is missing: the model has noise, and the key says which path it takes.")
        driver = driver_of(driver, key, grid, depth) if system.n_noise else None
        options |= {"key": None, "driver": driver, "save": None, "stored": True}
        if members == 1 and reduce is None:
            return plan_solve(system, mu0, **options)
        return plan_ensemble(system, mu0, members=members, params=None, reduce=reduce, **options)
    except ExperimentError:
        raise
    except (TypeError, ValueError) as error:
        raise ExperimentError(f"run: {first_line(error)}") from None


def _fingerprint(array: Any) -> str:
    """The hash of an array among the arguments of a model."""
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def _check_alike(plans: list[Plan], axes: tuple[Axis, ...]) -> None:
    """Raise if the runs of a sweep have different shapes."""
    names = ", ".join(f"sweep.{a.parameter}" for a in axes)

    def shape(plan: Plan) -> Any:
        saved = plan.snapshot_shape if plan.reduce is None else plan.accumulator_shape
        leaves = [(x.shape, x.dtype) for x in jax.tree.leaves(saved)]
        return jax.tree.structure(saved), leaves, plan.system.algebra.casimir_names

    if any(shape(plan) != shape(plans[0]) for plan in plans[1:]):
        raise ExperimentError(f"{names} changes the shape of the state: write one store for each value.")


def _put(tables: dict[str, Any], name: str, value: Any) -> None:
    """Set a parameter by its full name; an integrator given by its name becomes a table for its options."""
    *path, last = name.split(".")
    table: dict[str, Any] = tables
    for word in path:
        inner: Any = table.setdefault(word, {})
        if word == "integrator" and isinstance(inner, str):
            inner = table[word] = {"name": inner}
        if not isinstance(inner, dict):
            raise ExperimentError(f"{name} cannot be set: {word} is {shown(inner)}, not a table.")
        table = inner
    table[last] = value


def _with_setting(tables: dict[str, Any], setting: str) -> dict[str, Any]:
    """The tables with `model.inertia=[4, 2, 1]` or the like; other text is a string."""
    name, sign, text = setting.partition("=")
    name, text = name.strip(), text.strip()
    if not sign or name.partition(".")[0] not in _SECTIONS or not name.partition(".")[2]:
        raise ExperimentError(f"--set {setting}: write section.key=value, as in run.dt=0.005 or model.inertia=[4,2,1].")
    try:
        value = tomllib.loads(f"x = {text}")["x"]
    except (tomllib.TOMLDecodeError, RecursionError):
        value = text
    tables = copy.deepcopy(tables)
    _put(tables, name, value)
    return tables


@contextlib.contextmanager
def _naming(source: str) -> Iterator[None]:
    """Name the file in errors."""
    try:
        yield
    except ExperimentError as error:
        if str(error).startswith(f"{source}: "):
            raise
        raise ExperimentError(f"{source}: {error}") from error.__cause__
