"""Data for workers: the plan of a run, its functions as traced programs, and its output.

Classes and functions of a notebook or a script, which a worker cannot import, are sent by value (cloudpickle). Those of
modules are sent by name, with a hash of the module's source. So a worker with different code is detected.
"""

import hashlib
import io
import pickle
import sys
import uuid
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import stepcompiler
from stepcompiler.jaxprs.jaxpr_pickle import by_value

from ..runtime.backends.base import Program
from ..runtime.distribution import Distribution, Remote
from ..runtime.plan import Plan
from ..store.provenance import machine, numerics_version, versions

_VERSIONS = ("coadjoint", "jax", "jaxlib", "numpy", "equinox", "llvmlite")
_KNOWN = {
    *_VERSIONS,
    *("stepcompiler", "builtins", "cloudpickle", "collections", "functools", "pathlib", "jaxtyping", "ml_dtypes"),
}


class RunPackage(NamedTuple):
    """A run for workers, without arrays that have an axis of members."""

    token: str  # unique
    data: bytes
    about: dict[str, Any]  # the environment that a worker needs (`differences`)


def pack(plan: Plan, program: Program, distribution: Distribution, about: dict[str, Any]) -> RunPackage:
    """Return the package of a run, with the name of the chosen backend."""
    bare = replace(without_members(plan), backend=program.backend)
    data, modules = serialize((bare, distribution.remote()))
    return RunPackage(uuid.uuid4().hex, data, about | {"modules": modules, "batch_size": plan.batch_size})


def unpack(package: RunPackage) -> tuple[Plan, Remote]:
    """Return the plan and its output."""
    return pickle.loads(package.data)


def without_members(plan: Plan) -> Plan:
    """Return the plan without arrays that have an axis of members."""
    nothing: Any = None
    return replace(
        plan,
        mu0=nothing if plan.mu0_by_member else np.asarray(plan.mu0),
        params=nothing if _by_member(plan.axes) else plan.params,
        g0=nothing if plan.g0_by_member else plan.g0,
        mu0_given=None,
    )


def pack_members(plan: Plan, numbers: range) -> bytes | None:
    """Return the arrays of the members of some batches; None if members do not differ."""
    if not (plan.mu0_by_member or plan.g0_by_member or _by_member(plan.axes)):
        return None
    own = plan.restrict(numbers)
    numbers = jax.tree.map(np.asarray, (own.mu0, own.params, own.g0))
    return serialize(numbers)[0]


def with_members(plan: Plan, numbers: range, own: bytes) -> Plan:
    """Return the plan of some batches, with the arrays of their members."""
    mu0, params, g0 = pickle.loads(own)
    return replace(plan, mu0=mu0, params=params, g0=g0, member_offset=numbers.start * plan.batch_size)


def _by_member(axes: Any) -> bool:
    return any(a == 0 for a in jax.tree.leaves(axes))


# The environment that a worker needs.


def environment(modules: Iterable[str] = ()) -> dict[str, Any]:
    """Return versions, hashes of the code of coadjoint and of other modules, and the machine of this process."""
    found = versions(_VERSIONS)
    return {
        "versions": found | {"python": ".".join(found["python"].split(".")[:2])},
        "numerics_version": numerics_version(),
        "code": _code(),
        "modules": {name: _source(name) for name in modules},
        "platform": machine(),
    }


def differences(wanted: dict[str, Any], found: dict[str, Any], platform: bool) -> list[str]:
    """Return the reasons why a process cannot compute the run; its machine matters if XLA computes."""

    def compare(name: str, a: Any, b: Any) -> list[str]:
        return [] if a == b else [f"{name} is {b!s}, not {a!s}"]

    out = [d for name, a in wanted["versions"].items() for d in compare(name, a, found["versions"].get(name))]
    out += compare("the numerics version", wanted["numerics_version"], found["numerics_version"])
    if not out and wanted["code"] != found["code"]:
        out.append("its coadjoint has the same version, but other code")
    for name, source in wanted["modules"].items():
        there = found["modules"].get(name)
        if there != source:
            out.append(f"module {name} is missing" if there is None else f"module {name} has other code")
    if platform:
        out += [d for name, a in wanted["platform"].items() for d in compare(name, a, found["platform"].get(name))]
    return out


@cache
def _code() -> str:
    """A hash of the source of coadjoint and its compiler."""
    digest = hashlib.sha256()
    for root in (Path(__file__).parents[1], Path(stepcompiler.__file__).parent):
        for path in sorted(root.rglob("*.py")):
            digest.update(str(path.relative_to(root.parent)).encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _source(name: str) -> str | None:
    """A hash of the source of a module; None if there is no such module."""
    try:
        file = import_module(name).__file__
    except Exception:
        return None
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16] if file else ""


def serialize(thing: Any) -> tuple[bytes, dict[str, str | None]]:
    """Return an object as bytes, and the modules outside coadjoint that it names, with hashes of their source."""
    import cloudpickle  # type: ignore[import-not-found]

    names: set[str] = set()

    class Pickler(cloudpickle.Pickler):
        def reducer_override(self, obj: Any) -> Any:
            name = getattr(obj, "__module__", None) if isinstance(obj, type) or callable(obj) else None
            if isinstance(name, str) and name.split(".")[0] not in _KNOWN and name in sys.modules:
                names.add(name)
            return super().reducer_override(obj)

    out = io.BytesIO()
    token = by_value.set(True)
    try:
        Pickler(out).dump(thing)
    finally:
        by_value.reset(token)
    own = {name for name in names - {"__main__"} if name.split(".")[0] not in sys.stdlib_module_names}
    return out.getvalue(), {name: _source(name) for name in sorted(own)}
