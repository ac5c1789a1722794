"""Commutator-free methods of order 3 and 4."""

from typing import ClassVar

import equinox as eqx
from jaxtyping import Array, Float, PyTree

from ..algebras.base import State
from ..drivers import Increment
from ..numerics.rootfind import SolveInfo, explicit_info
from ..systems import System
from .base import Claims, Cost, GroupMethod


class CommutatorFree(GroupMethod):
    """Commutator-free methods of order 3 or 4: explicit, without brackets, and without support for noise.

    With F(σ)μ = flow(sσ, μ) and k_i = dt ∂h(μ_i), μ_1 = μ_n, order 3 is

        μ_2 = F(⅓k_1)μ_1,   μ_3 = F(⅔k_2)μ_1,   μ_{n+1} = F(¾k_3 − (1/12)k_1)μ_2,

    and order 4 is

        μ_2 = F(½k_1)μ_1,   μ_3 = F(½k_2)μ_1,   μ_4 = F(k_3 − ½k_1)μ_2,
        μ_{n+1} = F((1/12)(−k_1 + 2k_2 + 2k_3 + 3k_4)) F((1/12)(3k_1 + 2k_2 + 2k_3 − k_4))μ_1.

    Each flow takes a combination of gradients, so order 4 needs 5 flows. The methods of Crouch and Grossman (1993),
    whose flows take one gradient each, need 15.

    Reference: Celledoni, Marthinsen and Owren, Commutator-free Lie group methods (2003).

    Parameters
    ----------
    order : {3, 4}, default 4
        The order.
    drift_free : bool, default True
        Apply the round-off correction after each step.
    remove_stabiliser : bool, optional
        On `SO3` and its products, leave out of ∂h the part along μ, which moves nothing. On a single `SO3` the
        default is True. In a product it is False with noise or dissipation; otherwise a run selects the gradient that
        changes more slowly at the initial state. Other algebras, and systems with a torque, are not affected.
    """  # fmt: skip

    sitewise: ClassVar[bool] = True
    order: int = eqx.field(static=True)
    drift_free: bool = eqx.field(static=True)
    remove_stabiliser: bool | None = eqx.field(static=True)

    def __init__(self, order: int = 4, drift_free: bool = True, remove_stabiliser: bool | None = None):
        if order not in (3, 4):
            raise ValueError(f"order must be 3 or 4, not {order!r}.")
        self.order = order
        self.drift_free = drift_free
        self.remove_stabiliser = remove_stabiliser

    @property
    def claims(self) -> Claims:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Those of the order."""
        cost = Cost(4, 3) if self.order == 3 else Cost(5, 4)
        return Claims(order=self.order, strong_commuting=0.0, strong=0.0, casimirs=True, cost=cost, explicit=True)

    def check(self, system: System) -> None:
        """No noise."""
        if system.n_noise:
            raise ValueError(
                f"CommutatorFree is made for systems without noise, and this one has {system.n_noise}: "
                "TMK() takes any noise, RKMK('rk4') too."
            )

    def step(
        self, system: System, mu: State, t: Float[Array, ""], dt: Float[Array, ""], dS: Increment, carry: PyTree
    ) -> tuple[State, PyTree, SolveInfo]:
        """The stages by plain flows; the flows that make up the step by `act`, which keeps round-off from drifting."""

        reduced, start = self.reduced(system, mu, carry), mu

        def k(m: State, c: float) -> State:
            return dt * reduced.at_node(t, dt, c).drift(m)

        def F(sigma: State, m: State) -> State:
            return system.algebra.flow(system.sign * sigma, m)

        k1 = k(mu, 0.0)
        if self.order == 3:
            first = k1 / 3
            k2 = k(F(first, mu), 1 / 3)
            k3 = k(F(2 * k2 / 3, mu), 2 / 3)
            second = 0.75 * k3 - k1 / 12
        else:
            mu2 = F(0.5 * k1, mu)
            k2 = k(mu2, 0.5)
            k3 = k(F(0.5 * k2, mu), 0.5)
            k4 = k(F(k3 - 0.5 * k1, mu2), 1.0)
            first = (3 * k1 + 2 * k2 + 2 * k3 - k4) / 12
            second = (-k1 + 2 * k2 + 2 * k3 + 3 * k4) / 12
        for sigma in (first, second):
            mu, carry = self.act(system, sigma, mu, carry)
        carry = self.with_phase(reduced, start, mu, t, dt, dS.S, carry)
        return mu, carry, explicit_info(mu)
