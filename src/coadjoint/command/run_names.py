"""Names of methods and step sizes of the runs in a store, for text and figures. Imports no JAX."""

from typing import Any


def method_names(header: dict[str, Any]) -> list[str]:
    """The methods that the user chose, without the splitting that coadjoint adds for dissipation and forcing."""
    swept = _swept(header).get("integrator")
    if swept:
        return list(dict.fromkeys(v["name"] if isinstance(v, dict) else str(v) for v in swept))
    return [method_name(header["configuration"]["integrator"])]


def method_name(integrator: dict[str, Any]) -> str:
    """The name of a method from its description in a store."""
    return method_name(integrator["inner"]) if integrator["type"] == "Dissipative" else integrator["type"]


def leaves_orbit(configuration: dict[str, Any]) -> bool:
    """Whether dissipation or forcing changes the Casimirs of a run."""
    return configuration["integrator"]["type"] == "Dissipative"


def step_sizes(header: dict[str, Any]) -> list[float]:
    """The step sizes of all runs."""
    return [float(dt) for dt in _swept(header).get("dt") or [header["configuration"]["dt"]]]


def _swept(header: dict[str, Any]) -> dict[str, Any]:
    """The swept values of [run] by key; a range in the file is a list of values here."""
    sweep = (header.get("experiment") or {}).get("sweep", {})
    keys = {*sweep.get("run", {}), *(name.removeprefix("run.") for name in sweep if name.startswith("run."))}
    return {k: header["axes"].get(k, header["axes"].get(f"run.{k}")) for k in keys}
