"""Diagnostics of the saved states during a run: energy, Casimirs, and the distance from the orbit."""

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from stepcompiler.device_arrays import to_device
from stepcompiler.jaxprs.interning import Constant

from ..runtime.lapack_lock import LARGE, exclusive_xla, uses_lapack
from ..runtime.plan import Plan
from ..runtime.results import OrbitError, mapped
from .schema import Layout

DIAGNOSTICS = ("energy", "casimirs", "orbit_error")  # variables that are made here
_BATCH = 2**19  # b states with d numbers are taken together as long as b d² is below


class Diagnostics:
    """Energy and Casimirs of the states of a batch.

    Each state has an index in an array of fixed shape. It depends only on its time and member, so results are bitwise
    identical for any division of a run. They are computed during the run, unless they call LAPACK.
    """

    def __init__(self, plan: Plan, tile: int, layout: Layout):
        self.plan = plan
        self.shape = plan.system.algebra.shape
        self.small = len(self.shape) < 2 or self.shape[-1] < LARGE
        fitting = max(1, _BATCH // (plan.batch_size * math.prod(self.shape) ** 2))
        self.height = min(layout.rows, 1 << (fitting.bit_length() - 1))  # saved times in an array of fixed shape
        self.member = np.minimum(tile * plan.batch_size + np.arange(plan.batch_size), (plan.members or 1) - 1).repeat(
            self.height
        )
        self.start: np.ndarray | None = None  # initial states, if the distance from the orbit is stored
        if "orbit_error" in layout.variables:
            self.start = np.asarray(plan.load_batch(range(tile, tile + 1)).mu0).repeat(self.height, axis=0)
        self.alone, self.variables = _uses_lapack(plan), layout.variables

    def of(self, at: int, states: np.ndarray, g: PyTree = None) -> dict[str, np.ndarray]:
        """By name, of states (member, saved time, …) from the saved time `at` on, with their group elements."""
        width, height = self.plan.batch_size, self.height
        count, new = states.shape[:2]
        out: dict[str, list[np.ndarray]] = {}
        row, stop = at, at + new
        while row < stop:
            start = row // height * height
            end = min(start + height, stop)

            def filled(x: np.ndarray, row: int = row, start: int = start, end: int = end) -> np.ndarray:
                batch = x[:, row - at : end - at]
                if batch.shape[:2] != (width, height):
                    batch = np.broadcast_to(x[0, row - at], (width, height, *x.shape[2:])).copy()
                    batch[:count, row - start : end - start] = x[:, row - at : end - at]
                return batch.reshape(-1, *x.shape[2:])

            times = np.tile(self.plan.times(start, start + height), width)
            for name, value in self._values(filled(states), times, jax.tree.map(filled, g)).items():
                value = value.reshape(width, height, *value.shape[1:])
                out.setdefault(name, []).append(value[:count, row - start : end - start])
            row = end
        return {name: np.concatenate(values, 1) for name, values in out.items()}

    def _values(self, batch: np.ndarray, times: np.ndarray, g: PyTree) -> dict[str, np.ndarray]:
        algebra, states = self.plan.system.algebra, to_device(batch)
        with exclusive_xla(self.alone, small=self.small):
            values: dict[str, Any] = {}
            if "energy" in self.variables:
                values["energy"] = self.plan.energy(states, self.member, times, g)
            if algebra.casimir_names:
                values["casimirs"] = mapped(Constant(algebra.casimirs), states)
            if self.start is not None:
                values["orbit_error"] = mapped(Constant(OrbitError(algebra)), jnp.stack([states, self.start], axis=1))
            return {name: np.asarray(x) for name, x in values.items()}

    def scales(self, states: np.ndarray) -> dict[str, np.ndarray]:
        """Return the scales of the Casimirs of initial states (member, …) by name."""
        algebra = self.plan.system.algebra
        if not algebra.casimir_names:
            return {}
        batch = np.concatenate([states, np.repeat(states[:1], self.plan.batch_size - len(states), axis=0)])
        with exclusive_xla(self.alone, small=self.small):
            scales = np.asarray(mapped(Constant(algebra.casimir_scales), to_device(batch)))
        return {"casimir_scale": scales[: len(states)]}


def _energy(plan: Plan, mu: Any) -> Any:
    return plan.system.anywhere(plan.t0).energy(mu)


def _uses_lapack(plan: Plan) -> bool:
    algebra = plan.system.algebra
    state = jax.ShapeDtypeStruct(algebra.shape, algebra.dtype)
    known = [algebra.casimirs, algebra.casimir_scales] if algebra.casimir_names else []
    if algebra.watches_orbit:
        known.append(lambda mu: algebra.orbit_error(mu, mu))
    return any(uses_lapack(partial(fn), state) for fn in (partial(_energy, plan), *known))
