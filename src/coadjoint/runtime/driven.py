"""The driver of a run, and the system and the method as it requires them."""

from typing import Any

import equinox as eqx
import numpy as np

from ..drivers import Brownian, Driver, Increments
from ..integrators.base import Integrator
from ..integrators.jump_adapted import JumpAdapted
from ..integrators.until import Until
from ..noises import mixed
from ..numerics.modules import method_of
from ..systems import System


def driver_of(system: System, key: Any, driver: Any, steps: int) -> Driver:
    """The driver from `key` and `driver`, of which exactly one is given if the system has noise."""
    if key is not None and driver is not None:
        raise ValueError("give key or driver, not both: key=k is short for driver=Brownian(k).")
    if driver is not None and not isinstance(driver, Driver):
        raise TypeError(
            f"driver must be a Driver such as Brownian(key), OU(tau) or Increments(dS), not {type(driver).__name__}."
        )
    if driver is not None:
        return driver
    if system.n_noise == 0:
        return Increments(np.zeros((steps, 0)))
    if key is None:
        raise ValueError(f"the system has {system.n_noise} noise(s): give key= (an int or a JAX key) or driver=.")
    return Brownian.of_key(key)


def driven(system: System, integrator: Integrator, driver: Driver) -> tuple[System, Integrator, Driver]:
    """The system with independent channels, the method from jump to jump, and the driver of so many channels."""
    if driver.rough and not system.commuting:
        raise ValueError(
            "for hurst at most 1/3 the increments of fractional Brownian motion determine a solution only if all "
            "noises are SALT, salt(beta), and commute: take commuting noises or a larger hurst."
        )
    mixing, tol = method_of(driver, "mixing")(system.n_noise), method_of(driver, "jump_tolerance")()
    if tol is not None:
        integrator = _from_jump_to_jump(integrator, tol)
    bound = method_of(driver, "bound")(system.n_noise)
    return (system if mixing is None else _mixed(system, mixing)), integrator, bound


def _from_jump_to_jump(integrator: Integrator, tol: float) -> Integrator:
    """Return the method from jump to jump, and up to the event if the run has one."""
    if isinstance(integrator, Until):
        return eqx.tree_at(lambda i: i.inner, integrator, JumpAdapted(inner=integrator.inner, tol=tol))
    return JumpAdapted(inner=integrator, tol=tol)


def _mixed(system: System, mixing: Any) -> System:
    """Return the system with independent channels dB instead of the correlated ones, L dB."""
    if "g" in system.noise_receives:
        raise ValueError("correlation is not supported with noise that depends on the group element g.")
    return system._with(noises=mixed(system.noises, mixing))
