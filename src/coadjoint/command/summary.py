"""What a store holds, in words and as JSON; and models as text: lists, and experiment files to begin with."""

import contextlib
import inspect
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..experiments.bath import ABOUT_BATH
from ..experiments.schema import ABOUT_RUN, known_integrators, known_models, parameters
from ..runtime.results import scaled_errors
from ..store.input_arrays import with_arrays
from ..store.locks import store_lock
from ..store.reading import Contents, contents, totals


def summary(path: Path) -> dict[str, Any]:
    """What is in a store, how far its run is, and how well it went."""
    found = contents(path)
    header, config = found.header, found.header["configuration"]
    done, total = sum(c.step for c in found.checkpoints if c is not None), sum(header["steps"]) * header["tiles"]
    stats = {name: value for name, value in totals(found).items() if np.size(value)}
    begun = stats["steps"] > 0
    steps = int(stats["steps"][begun].sum())
    return {
        "store": str(path),
        "kind": header["kind"],
        "model": (header["model"] or (header["experiment"] or {}).get("model", {})).get("name"),
        "algebra": config["system"]["algebra"]["type"],
        "integrator": config["integrator"]["type"],
        "noises": _noises(config),
        "members": header["members"],
        "reduced": config.get("reduce") is not None,
        "sweep": header["axes"],
        "t0": config["t0"],
        "t1": config["t1"],
        "dt": config["dt"],
        "save_every": config["save_every"],
        "saved_times": found.saved,
        "steps_done": done,
        "steps": total,
        "finished": done == total,
        "being_written_by": store_lock(path).owner(),
        "casimir_errors": casimir_errors(found),
        "orbit_error": orbit_error(found),
        "iterations_per_step": float(stats["iterations"][begun].sum() / steps) if steps else 0.0,
        "worst_residual": float(np.max(stats["residual"][begun], initial=0.0)),
        "unsolved": int(stats["unsolved"][begun].sum()),
        "backend": _listed(about["backend"] for about in header["backends"]),
        "reason": " ".join(dict.fromkeys(about["reason"] for about in header["backends"] if about["reason"])),
        "numerics_version": header["numerics_version"],
        "changes": [_change(note) for note in header["history"]],
        "bytes": sum(p.stat().st_size for p in path.rglob("*") if p.is_file()),
        "versions": header["versions"],
        "platform": header["platform"],
        "experiment": header["experiment"],
    }


def _listed(words: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(filter(None, words)))


def _change(note: dict[str, Any]) -> dict[str, Any]:
    """Where a run went on under other conditions, and under which."""
    backends = _listed(about["backend"] for about in note["backends"])
    return {
        "step": min(note["steps"]),
        "versions": note["versions"],
        "processor": note["platform"]["processor"],
        "numerics_version": note["numerics_version"],
        "backend": backends,
    }


def _noises(config: dict[str, Any]) -> int:
    def count(noise: dict[str, Any]) -> int:
        beta = noise.get("beta")
        return len(beta) if isinstance(beta, list) else beta["shape"][0] if beta else noise.get("size", 1)

    return sum(count(n) for n in config["system"]["noise"])


def casimir_errors(found: Contents) -> dict[str, float]:
    """The largest scaled error of each Casimir, over all that is stored."""
    arrays = found.arrays()
    if "casimirs" not in found.header["variables"]:
        return {}
    values, scales = arrays["casimirs"], np.asarray(arrays["casimir_scale"][...])
    dims = found.header["variables"]["casimirs"]["dimensions"]
    axis, rows = dims.index(found.header["time"]), found.header["rows"]
    before = (slice(None),) * axis
    start = np.asarray(values[(*before, slice(0, 1))])
    scales = np.expand_dims(scales, axis)
    worst = np.zeros(start.shape[-1])
    for first in range(0, found.saved, rows):
        some = np.asarray(values[(*before, slice(first, min(first + rows, found.saved)))])
        errors = scaled_errors(some, start, scales)
        worst = np.fmax(worst, np.fmax.reduce(errors.reshape(-1, errors.shape[-1]), axis=0))
    return dict(zip((str(n) for n in arrays["casimir"][...]), worst.tolist(), strict=True))


def orbit_error(found: Contents) -> float | None:
    """The largest distance from the orbit of the start over all that is stored; None where Casimirs tell it all."""
    if "orbit_error" not in found.header["variables"]:
        return None
    values, rows = found.arrays()["orbit_error"], found.header["rows"]
    axis = found.header["variables"]["orbit_error"]["dimensions"].index(found.header["time"])
    before = (slice(None),) * axis
    pieces = (slice(first, min(first + rows, found.saved)) for first in range(0, found.saved, rows))
    return float(max((np.fmax.reduce(np.asarray(values[(*before, x)]), axis=None) for x in pieces), default=0.0))


def verify(path: Path) -> int:
    """Read every chunk that must be there, checking its checksum; how many there are."""
    found = contents(path)
    arrays = found.arrays()
    count = 0
    for name, about in found.header["variables"].items():
        array = arrays[name]
        if about["kind"] == "coordinate":
            np.asarray(array[...])
        for key in (path / name).glob("c*"):
            count += 1
            where = [int(i) for i in key.name.split(".")[1:]]
            if where:
                array.get_block_selection(tuple(where))
            else:
                np.asarray(array[...])
    with_arrays(path, found.header["model"])
    with_arrays(path, found.header["experiment"])
    return count


# Text.


def words(s: dict[str, Any]) -> str:
    """The summary in a few lines."""
    kind = {"solve": "one trajectory", "ensemble": f"{s['members']} members", "sweep": "a sweep"}[s["kind"]]
    noises = {0: "no noise", 1: "1 noise"}.get(s["noises"], f"{s['noises']} noises")
    state = "finished" if s["finished"] else f"{s['steps_done']} of {s['steps']} steps done"
    lines = [
        f"{s['store']}: {s['model'] or 'a system of its own'} on {s['algebra']}, {noises}, {s['integrator']}, {kind}",
        f"  time      {s['t0']:g} to {s['t1']:g}, dt = {s['dt']:g}, {s['saved_times']} times saved ({state})",
    ]
    for name, values in s["sweep"].items():
        shown = ", ".join(map(str, values[:6])) + (f", … ({len(values)} values)" if len(values) > 6 else "")
        lines.append(f"  sweep     {name} = {shown}")
    kept = list(s["casimir_errors"].items())
    more = f", and {len(kept) - 6} more" if len(kept) > 6 else ""
    none = "not kept: members are reduced to statistics" if s["reduced"] else "none known"
    orbit = "" if s["orbit_error"] is None else f"; not all are known: orbit within {s['orbit_error']:.1e}"
    lines.append(f"  casimirs  {', '.join(f'{n} within {e:.1e}' for n, e in kept[:6]) or none}{more}{orbit}")
    lines.append(
        f"  solver    {s['iterations_per_step']:.1f} iterations a step, worst residual {s['worst_residual']:.1e}, "
        f"{s['unsolved']} not solved"
    )
    lines.append(f"  backend   {s['backend'] or 'none yet'}" + (f": {s['reason']}" if s["reason"] else ""))
    size = s["bytes"]
    lines.append(f"  on disk   {size / 1e9:.2f} GB" if size > 1e9 else f"  on disk   {size / 1e6:.2f} MB")
    versions = s["versions"]
    lines.append(f"  made by   coadjoint {versions['coadjoint']}, jax {versions['jax']}, {s['platform']['processor']}")
    for change in s["changes"]:
        lines.append(_went_on(change))
    if s["being_written_by"]:
        lines.append(f"  writing   {s['being_written_by']}")
    return "\n".join(lines)


def _went_on(change: dict[str, Any]) -> str:
    """A line on where a run went on under other conditions."""
    by = [f"coadjoint {change['versions']['coadjoint']}", f"jax {change['versions']['jax']}", change["processor"]]
    by += [f"numerics version {change['numerics_version']}", change["backend"]]
    return f"  then by   {', '.join(by)}, from step {change['step']} on"


class Parameter(NamedTuple):
    """A parameter of a model: its value by default as it is written in a file (empty: unknown), and who chose it."""

    value: str
    by_model: bool  # the model chooses it when it runs, so it need not stand in a file


def about_model(name: str) -> tuple[str, dict[str, Parameter]]:
    """The first line of a model's documentation, and its parameters.

    What a model chooses by itself is read off its params, unless it comes in sizes: then it may take long to make.
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
    """A value as it is written in an experiment file; nothing for what a model chooses by itself."""
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
    """An experiment file for a model, ready to run."""
    first, defaults = about_model(name)
    lines = [f"# {first}", "", "[model]", f'name = "{name}"']
    lines += [f"{'# ' * p.by_model}{key} = {p.value or '…'}" for key, p in defaults.items()]
    run = {"t1": "100.0", "dt": "0.01", "key": "0", "members": "1", "save_every": "10", "integrator": '"TMK"'}
    run["backend"] = '"auto"'
    about = ABOUT_RUN | {"integrator": f"or {', '.join(n for n in known_integrators() if n != 'TMK')}"}
    width = max(len(f"{k} = {v}") for k, v in run.items())
    lines += ["", "[run]", *(f"{f'{k} = {v}':<{width}}  # {about[k]}" for k, v in run.items())]
    lines += ["", "# Friction and temperature, in place of the model's own noise:", "# [bath]"]
    lines += [f"# {k} = {v}  # {ABOUT_BATH[k]}" for k, v in (("friction", "0.1"), ("temperature", "0.1"))]
    lines += ["", "# All combinations go into one store:", "# [sweep]", "# run.key = [0, 1, 2]"]
    lines += ["# run.dt = { start = 0.01, stop = 0.02, count = 2 }"]
    return "\n".join(lines) + "\n"
