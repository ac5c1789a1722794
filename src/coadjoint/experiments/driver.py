"""The driver of an experiment file: `run.driver`."""

from typing import Any

from .. import drivers
from ..drivers import Driver
from .schema import ExperimentError, from_table

_NAMES = ("Brownian", "FractionalBrownian", "Jumps", "OU")


def driver_of(value: Any, key: int, grid: float | None, depth: int | None) -> Driver:
    """The driver that a name, or a table with a name and options, describes; key, grid and depth are those of [run]."""
    table = {"name": value} if isinstance(value, str) else value
    for name in ("key", "grid", "depth"):
        if isinstance(table, dict) and name in table:
            raise ExperimentError(f"run.driver.{name} is not known: give it as run.{name}.")
    given = {k: v for k, v in (("key", key), ("grid", grid), ("depth", depth)) if v is not None}
    known = {name: getattr(drivers, name) for name in _NAMES}
    return from_table("run.driver", table | given if isinstance(table, dict) else table, known, "Brownian")
