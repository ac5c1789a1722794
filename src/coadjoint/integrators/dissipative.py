"""Strang splitting of what leaves the orbit around a step that stays on it."""

from typing import Any, ClassVar

from jaxtyping import Array, Float, PyTree

from ..algebras.base import State
from ..drivers import Increment, Needs
from ..numerics.rootfind import SolveInfo
from ..systems import System
from .base import Claims, Integrator


class Dissipative(Integrator):
    """Half a step of the system's `dissipation`, a step of another method, the other half:

        μ ← D(dt/2) μ,   μ ← μ + ½ Σ_i f_i ΔS^i,   μ ← Φ(dt) μ,   μ ← μ + ½ Σ_i f_i ΔS^i,   μ ← D(dt/2) μ,

    D the exact flow of viscosity, drag and steady stirring, f_i stirring that is white in time. Φ keeps the orbit that
    it starts from; D and f_i leave it, so that Casimirs change as they should: none is kept. With a torque Φ moves by
    the affine action, which contains the f_i.

    Reference: Strang, On the construction and comparison of difference schemes (1968).
    """  # fmt: skip

    claims: ClassVar[Claims] = Claims(order=2, strong_commuting=1.0, strong=0.5, weak=1.0, casimirs=False)

    inner: Integrator

    def init(self, system: System, mu: State) -> PyTree:
        """Return no memory: each step begins on another orbit."""
        return None

    def check(self, system: System) -> None:
        """The needs of the inner method."""
        self.inner.check(system)

    def needs(self, system: System) -> Needs:
        """The same."""
        return self.inner.needs(system)

    def init_group(self, system: System, mu: State, carry: PyTree, g0: PyTree = None) -> PyTree:
        """Raise: the steps are not group actions."""
        raise TypeError(
            "group=True needs steps that are group actions, but the system has dissipation or forcing, which moves its "
            "states off their orbits: leave out group=True."
        )

    def fast(self) -> "Dissipative":
        """With the method within so."""
        return Dissipative(inner=self.inner.fast())

    def failure(self, dt: float, residual: float, sigma: float) -> str:
        """The message of the inner method."""
        return self.inner.failure(dt, residual, sigma)

    def step(
        self, system: System, mu: State, t: Float[Array, ""], dt: Float[Array, ""], dS: Increment, carry: Any
    ) -> tuple[State, PyTree, SolveInfo]:
        """Half a step, a step, half a step."""
        kick = self._half_stirring(system, dS)
        mu = system.dissipate(mu, 0.5 * dt) + kick
        mu, _, info = self.inner.step(system, mu, t, dt, dS, self.inner.init(system, mu))
        return system.dissipate(mu + kick, 0.5 * dt), None, info

    def _half_stirring(self, system: System, dS: Increment) -> State | float:
        """½ Σ_i f_i ΔS^i, or 0 if the step of the other method contains it."""
        if system.has_torque:
            return 0.0
        path = dS.S.sum(axis=0) if dS.S.ndim > 1 else dS.S  # the parts of a step that the method within may halve
        return 0.5 * system.stirring_increment(path)


def wrap_dissipation(system: System, integrator: Integrator) -> Integrator:
    """The integrator, with the system's dissipation and stirring around it if it has any."""
    return Dissipative(inner=integrator) if system.is_split else integrator
