"""Inputs of the rounding of a run besides its configuration: versions, the machine, and the numerics version."""

import os
import platform
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import jax

import stepcompiler

from ..runtime.executors import cores

_VERSIONS = ("coadjoint", "jax", "jaxlib", "numpy", "zarr", "xarray")


def versions(names: Iterable[str] = _VERSIONS) -> dict[str, str]:
    """Return the versions of Python and of the packages that affect results."""

    def of(name: str) -> str:
        try:
            return version(name)
        except PackageNotFoundError:  # run from a folder, not installed
            return __import__(name).__version__

    return {"python": platform.python_version(), **{name: of(name) for name in names}}


def numerics_version() -> int:
    """Return the version of the native code's rounding."""
    return stepcompiler.NUMERICS_VERSION


def machine() -> dict[str, Any]:
    """Return the machine and the flags of XLA."""
    return {
        "system": platform.system(),
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": cores(),
        "backend": jax.default_backend(),
        "device": jax.devices()[0].device_kind,
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = (line.partition(":")[2].strip() for line in file if line.startswith("model name"))
            return next(names, platform.processor())
    except OSError:
        return platform.processor()
