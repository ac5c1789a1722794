"""The contents of a store as text and as JSON. This module imports no JAX, so that `coadjoint info` starts quickly."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from ..numerics.scaled_errors import scaled_errors
from ..store.checkpoints import Checkpoints
from ..store.locks import store_lock
from ..store.reading import Contents, contents, totals
from .run_names import leaves_orbit, method_names, step_sizes


def summary(path: Path) -> dict[str, Any]:
    """The contents of a store, the progress of its run, and the statistics of its solver."""
    found = contents(path)
    header, config = found.header, found.header["configuration"]
    done, total = sum(c.step for c in found.checkpoints if c is not None), sum(header["steps"]) * header["n_batches"]
    stats = {name: value for name, value in totals(found).items() if np.size(value)}
    begun = stats["steps"] > 0
    steps = int(stats["steps"][begun].sum())
    return {
        "store": str(path),
        "kind": header["kind"],
        "model": (header["model"] or (header["experiment"] or {}).get("model", {})).get("name"),
        "algebra": config["system"]["algebra"]["type"],
        "integrator": ", ".join(method_names(header)),
        "noises": _noises(config),
        "members": header["members"],
        "runs": len(header["steps"]),
        "reduced": config.get("reduce") is not None,
        "sweep": header["axes"],
        "t0": config["t0"],
        "t1": config["t1"],
        "dt": config["dt"],
        "dt_of_runs": step_sizes(header),
        "save_every": config["save_every"],
        "saved_times": found.saved,
        "steps_done": done,
        "steps": total,
        "finished": done == total,
        "being_written_by": store_lock(path).owner(),
        "leaves_orbit": leaves_orbit(config),
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
    """The conditions under which a run was resumed, and the step."""
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
    """The largest scaled change of each Casimir over all saved times."""
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
    """The largest distance from the initial orbit; None if the Casimirs determine the orbit."""
    if "orbit_error" not in found.header["variables"]:
        return None
    values, rows = found.arrays()["orbit_error"], found.header["rows"]
    axis = found.header["variables"]["orbit_error"]["dimensions"].index(found.header["time"])
    before = (slice(None),) * axis
    pieces = (slice(first, min(first + rows, found.saved)) for first in range(0, found.saved, rows))
    return float(max((np.fmax.reduce(np.asarray(values[(*before, x)]), axis=None) for x in pieces), default=0.0))


def verify(path: Path) -> int:
    """Read all files of a store and compare them with its manifest; return their number."""
    found = contents(path)
    checkpoints = Checkpoints(found.manifest, found.header["plans"], found.header["n_batches"])
    for checkpoint in found.checkpoints:
        if checkpoint is not None:
            checkpoints.whole(checkpoint)
    return found.manifest.check_all()


# Text.


def words(s: dict[str, Any]) -> str:
    """The summary as a few lines of text."""
    each = "" if s["members"] is None else f" of {s['members']} members"
    kind = "one trajectory" if s["members"] is None else f"{s['members']} members"
    kind = f"a sweep of {s['runs']} runs{each}" if s["kind"] == "sweep" else kind
    noises = {0: "no noise", 1: "1 noise"}.get(s["noises"], f"{s['noises']} noises")
    state = "finished" if s["finished"] else f"{s['steps_done']} of {s['steps']} steps done"
    times = f"{s['saved_times']} times saved ({state})"
    lines = [
        f"{s['store']}: {s['model'] or 'your own system'} on {s['algebra']}, {noises}, {s['integrator']}, {kind}",
        f"  time      {s['t0']:g} to {s['t1']:g}, dt = {_range(s['dt_of_runs'])}, {times}",
    ]
    for name, values in s["sweep"].items():
        shown = ", ".join(map(str, values[:6])) + (f", … ({len(values)} values)" if len(values) > 6 else "")
        lines.append(f"  sweep     {name} = {shown}")
    kept = list(s["casimir_errors"].items())
    more = f", and {len(kept) - 6} more" if len(kept) > 6 else ""
    none = "not saved: members are reduced to statistics" if s["reduced"] else "none known"
    orbit = "" if s["orbit_error"] is None else f"; not all are known: orbit within {s['orbit_error']:.1e}"
    shown = ", ".join(f"{n} within {e:.1e}" for n, e in kept[:6])
    if s["leaves_orbit"]:
        shown, more, orbit = "not conserved: the system has dissipation or forcing", "", ""
    lines.append(f"  casimirs  {shown or none}{more}{orbit}")
    lines.append(
        f"  solver    {s['iterations_per_step']:.1f} iterations per step, largest residual {s['worst_residual']:.1e}, "
        f"{s['unsolved']} steps not converged"
    )
    lines.append(f"  backend   {s['backend'] or 'none yet'}" + (f": {s['reason']}" if s["reason"] else ""))
    size = s["bytes"]
    lines.append(f"  on disk   {size / 1e9:.2f} GB" if size > 1e9 else f"  on disk   {size / 1e6:.2f} MB")
    versions = s["versions"]
    lines.append(f"  made by   coadjoint {versions['coadjoint']}, jax {versions['jax']}, {s['platform']['processor']}")
    for change in s["changes"]:
        lines.append(_resumed(change))
    if s["being_written_by"]:
        lines.append(f"  writing   {s['being_written_by']}")
    return "\n".join(lines)


def _range(values: list[float]) -> str:
    """One value, or the smallest and the largest."""
    low, high = min(values), max(values)
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def _resumed(change: dict[str, Any]) -> str:
    """A line on a resumption under other conditions."""
    by = [f"coadjoint {change['versions']['coadjoint']}", f"jax {change['versions']['jax']}", change["processor"]]
    by += [f"numerics version {change['numerics_version']}", change["backend"]]
    return f"  then by   {', '.join(by)}, from step {change['step']} on"
