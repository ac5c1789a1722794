"""The configuration of a run as plain JSON, which is saved in a store and compared when a run is resumed."""

import dataclasses
import hashlib
import json
from typing import Any

import equinox as eqx
import jax
import numpy as np

from stepcompiler.jaxprs.interning import Constant, Function, intern

from ..algebras.base import LieAlgebra
from ..callables import received_values
from ..drivers import Brownian, Driver, Increments, Joined, Jumps
from ..integrators.until import Until
from ..params import Context
from ..runtime.plan import Plan
from ..systems import Noise, Salt, System
from .header import flat

_LARGEST_SHOWN = 64  # numbers of an array that are written out; of a larger one, its hash


def configuration(plan: Plan, steps: int | None = None) -> dict[str, Any]:
    """All that decides the results of a run. `steps`: as it would be for a run of so many steps."""
    steps = plan.steps if steps is None else steps
    event = plan.integrator if isinstance(plan.integrator, Until) else None
    method = plan.integrator if event is None else event.inner
    config: dict[str, Any] = {
        "system": _system(plan.system),
        "mu0": describe(plan.mu0),
        "t0": plan.t0,
        "t1": plan.t0 + steps * plan.dt,
        "dt": plan.dt,
        "save_every": plan.save_every,
        "save": None if plan.save.function is None else describe(plan.save.function.function),
        "group": plan.group,
        "driver": _driver(plan, steps),
        "integrator": describe(method),
        "members": plan.members,
    }
    if event is not None:
        config["until"] = describe(event.event.function)  # type: ignore[attr-defined]
        config["direction"] = event.direction
    if plan.save_at is not None:
        given, numbers = plan.save_at
        config["save_at"] = describe(given[numbers <= steps])
    if plan.g0 is not None:
        config["g0"] = describe(plan.g0)
    if plan.members is not None:
        config |= {"params": describe(plan.params), "reduce": describe(plan.reduce), "tile": plan.batch_size}
    return config


def describe(x: Any) -> Any:
    """Return a part of a run as JSON: short values, and fingerprints of long ones."""
    if x is None or isinstance(x, (bool, int, str)):
        return x
    if isinstance(x, float):
        return x if np.isfinite(x) else str(x)
    if isinstance(x, (np.ndarray, np.generic, jax.Array)):
        return _array(np.asarray(x))
    if isinstance(x, Constant):
        return describe(x.value)
    if isinstance(x, Function):
        return f"sha256:{x.fingerprint}"
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        given = [f for f in dataclasses.fields(x) if "made" not in f.metadata]  # without derived fields
        fields = {f.name.lstrip("_"): describe(getattr(x, f.name)) for f in given}
        return {"type": _type_name(x), **fields, **_code(x)}
    if isinstance(x, tuple) and hasattr(x, "_asdict"):
        return describe(x._asdict())  # type: ignore[attr-defined]
    if isinstance(x, dict):
        return {str(k): describe(v) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        return [describe(v) for v in x]
    if not jax.tree_util.all_leaves([x]):  # a class that was registered with JAX
        leaves = jax.tree_util.tree_leaves_with_path(x)
        return {"type": _type_name(x), **{jax.tree_util.keystr(path): describe(v) for path, v in leaves}}
    return _type_name(x)


def _type_name(x: Any) -> str:
    """The name of a class; with its module, unless it is one of ours."""
    kind = x if isinstance(x, type) or not hasattr(x, "__class__") else type(x)
    return kind.__name__ if _is_ours(kind) else f"{kind.__module__}.{kind.__qualname__}"


def _is_ours(kind: type) -> bool:
    return kind.__module__.startswith("coadjoint.")


def _array(x: np.ndarray) -> Any:
    if x.size <= _LARGEST_SHOWN and x.dtype.kind in "fiub" and np.all(np.isfinite(x)):
        return x.tolist()
    return {"shape": list(x.shape), "dtype": str(x.dtype), "sha256": hashlib.sha256(x.tobytes()).hexdigest()}


def _code(x: Any) -> dict[str, str]:
    """Return the fingerprint of the code of a user's class."""
    if isinstance(x, LieAlgebra) and not _is_ours(type(x)):
        element = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return {"bracket": describe(intern(x.bracket, element, element))}
    return {}


def _system(system: System) -> dict[str, Any]:
    return {
        "algebra": describe(system.algebra),
        "side": system.side,
        "hamiltonian": describe(system.h),
        "gradient": describe(system.grad_h),
        "forcing": describe(system.forces),
        "torque": describe(system.torques),
        "dissipation": describe(system.dissipation),
        "control": describe(system.laws),
        "noise": [_noise(system, n) for n in system.noises],
        "params": describe(system.params),
    }


def _noise(system: System, noise: Noise) -> Any:
    described = describe(noise)
    described.pop("algebra", None)
    if isinstance(noise, Salt):
        return described
    params = system.params
    if system.received:
        params = Context(params, **received_values(system.algebra, system.received, system.control_zero))
    shapes = (
        jax.ShapeDtypeStruct(system.algebra.shape, system.algebra.dtype),
        jax.ShapeDtypeStruct((noise.size,), np.dtype("float64")),
        jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), params),
    )
    return described | {"apply": describe(intern(noise.apply, *shapes))}


def _driver(plan: Plan, steps: int) -> Any:
    return None if plan.system.n_noise == 0 else _described(plan.driver, plan.system.n_noise, steps)


def _described(driver: Driver, channels: int, steps: int) -> Any:
    """The description of a prescribed path up to a step. A longer path may begin with the same increments."""
    if isinstance(driver, Brownian):
        key = (int(driver.key.a) << 32) | int(driver.key.b)
        return {"type": "Brownian", "key": key, "grid": driver.grid, "depth": driver.depth}
    if isinstance(driver, Increments):
        given = {"dS": driver.dS, "Z": driver.Z, "areas": driver.areas}
        until = (slice(steps),) if driver.members is None else (slice(None), slice(steps))
        cut = {k: None if x is None else _array(np.asarray(x[until])) for k, x in given.items()}
        return {"type": "Increments", **cut}
    if isinstance(driver, Joined):
        each = zip(driver.parts, driver.channels, strict=True)
        return {"type": "Joined", "parts": [_described(p, c, steps) | {"channels": c} for p, c in each]}
    if isinstance(driver, Jumps):
        law = {"distribution": describe(driver.distribution), "rate": driver.rate, "tol": driver.tol}
        return {"type": "Jumps", "key": describe(driver.key), "grid": driver.grid, **law}
    return describe(eqx.filter(driver, eqx.is_array_like)) | {"type": _type_name(driver)}


def differences(stored: dict, given: dict) -> list[str]:
    """Return a sentence for each difference between two configurations, apart from t1, which may increase."""
    old, new = dict(flat(stored)), dict(flat(given))
    return [
        f"{name}: the store has {_shown(old.get(name, _ABSENT))}, this run has {_shown(new.get(name, _ABSENT))}"
        for name in dict.fromkeys([*old, *new])
        if name != "t1" and old.get(name, _ABSENT) != new.get(name, _ABSENT)
    ]


def digest(config: dict) -> str:
    """A hash of a configuration without t1."""
    rest = {k: v for k, v in config.items() if k != "t1"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


_ABSENT = object()


def _shown(value: Any) -> str:
    if value is _ABSENT:
        return "nothing"
    text = json.dumps(value, ensure_ascii=False)
    if isinstance(value, str) and value.startswith("sha256:"):
        return f"one with fingerprint {value[7:15]}"
    return text if len(text) <= 80 else f"{text[:77]}..."
