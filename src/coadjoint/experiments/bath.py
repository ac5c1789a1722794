"""The [bath] of an experiment file: friction, and a temperature."""

import warnings
from typing import Any

from ..baths import double_bracket, heat_bath
from ..systems import System
from .schema import ExperimentError, check_keys, first_line, shown

ABOUT_BATH = {
    "friction": "θ, the rate of energy loss, or one per site",
    "temperature": "T, in units of the energy, or one per site; default: friction only",
    "fields": "elements of the algebra, as rows (a basis)",
}


def check_bath(table: Any) -> dict[str, Any]:
    """The arguments of a bath; an error names the key."""
    check_keys("bath", table, ABOUT_BATH)
    if "friction" not in table:
        raise ExperimentError(f"bath.friction is missing: {ABOUT_BATH['friction']}.")
    for key in ("friction", "temperature"):
        value = table.get(key, 1.0)
        number = isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0
        if not number and not isinstance(value, list):
            raise ExperimentError(f"bath.{key} must be a number above 0, not {shown(value)}; by site, a list.")
    return table


def in_bath(system: System, table: dict[str, Any]) -> System:
    """The system with friction, or in the heat bath, that a table describes."""
    warm = "temperature" in table
    if warm and system.n_noise:
        raise ExperimentError(
            f"bath.temperature: the model has {system.n_noise} noises of its own, with which exp(−h/T) is not "
            'stationary: leave them out, for most models by model.alpha = "none".'
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return (heat_bath if warm else double_bracket)(system, **table)
    except (TypeError, ValueError, UserWarning) as error:
        raise ExperimentError(f"bath.{first_line(error)}") from None
