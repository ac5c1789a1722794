"""The devices over which one large matrix is distributed: `devices=`."""

from collections.abc import Sequence
from typing import Any

import jax

from ..integrators.base import Integrator, OrbitMethod
from ..integrators.implicit import DENSE
from ..integrators.jump_adapted import user_method
from ..systems import System


def select_devices(devices: Any, system: System, integrator: Integrator, group: bool, backend: str) -> tuple:
    """Return the devices over which the matrix of a run is distributed, or raise an error with the reason."""
    found = _devices(devices)
    algebra = system.algebra
    n, name = algebra.shape[-1], type(algebra).__name__
    if not algebra.is_matrix_conjugation:
        raise ValueError(f"devices= spreads one large matrix of SU(n), n at least 9, and this is {name}: leave it out.")
    if algebra.dim <= DENSE:
        raise ValueError(f"devices= spreads one large matrix of SU(n), n at least 9, and here n is {n}: leave it out.")
    if len(found) > n:
        raise ValueError(f"devices must be at most n = {n}, one per row, not {len(found)}.")
    rule = integrator.products_rule(system) if isinstance(integrator, OrbitMethod) else None
    if len(found) > 1 and rule is None:
        name = type(user_method(integrator)).__name__
        raise ValueError(
            "devices= needs a method that steps without LU and eigenvalues: TMK(), "
            f"LieMidpoint(Cayley()) or IsospectralMidpoint(), not {name} as it is given"
            + (" (the system has dissipation or forcing)." if system.leaves_orbit else ".")
        )
    if len(found) > 1 and group:
        raise ValueError("devices= does not follow the group element, which needs eigenvalues: leave out group=True.")
    if backend not in ("auto", "xla"):
        raise ValueError(f'devices= is for backend="xla", not {backend!r}.')
    config: Any = jax.config
    cache = config.jax_compilation_cache_dir if config.jax_enable_compilation_cache else None
    _check_cache(cache, {device.process_index for device in found}, jax.devices()[0].platform)
    return found


def _devices(devices: Any) -> tuple:
    """Return the given number of devices, or the given devices."""
    there = jax.devices()
    if isinstance(devices, int) and not isinstance(devices, bool):
        if not 1 <= devices <= len(there):
            raise ValueError(
                f"devices must be between 1 and {len(there)}, the devices that JAX sees, not {devices}."
                + (" (On a CPU, XLA_FLAGS=--xla_force_host_platform_device_count=8 makes eight of it.)"
                   if there[0].platform == "cpu" else "")
            )  # fmt: skip
        return tuple(there[:devices])
    if not isinstance(devices, Sequence) or isinstance(devices, str) or not devices:
        raise TypeError(f"devices must be a number of devices, or a list such as jax.devices(), not {devices!r}.")
    for device in devices:
        if device not in there:
            raise ValueError(f"devices: {device!r} is none of the devices that JAX sees, {there}.")
    if len(set(devices)) < len(devices):
        raise ValueError("devices: one of them is named twice.")
    missing = set(range(jax.process_count())) - {device.process_index for device in devices}
    if len({device.process_index for device in devices}) > 1 and missing:
        raise ValueError(f"devices: none of them is of process {min(missing)}; all processes must take part.")
    return tuple(devices)


def _check_cache(folder: str | None, processes: set[int], platform: str) -> None:
    """Raise an error if CPUs of several processes would read programs from JAX's cache: they would crash in Gloo."""
    if folder and len(processes) > 1 and platform == "cpu":
        raise ValueError(
            f"devices: CPUs of several processes cannot run programs from JAX's compilation cache, and "
            f"JAX_COMPILATION_CACHE_DIR is {folder!r}: unset it."
        )
