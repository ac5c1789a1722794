"""Compositions of a symmetric method with itself: Poisson maps of order 4, 6 and 8."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ..algebras.base import State
from ..drivers import Increment
from ..numerics.rootfind import SolveInfo
from ..systems import System
from .base import Claims, Cost, GroupMethod, Integrator, OrbitCarry, step_from
from .composition_schemes import get_scheme, leaves_the_step, order_of
from .extrapolation import StepHistory
from .midpoint import LieMidpoint
from .tmk import TMK


class Composed(Integrator):
    """A symmetric method of order 2, composed to order 4, 6 or 8.

    The step is

        Φ = φ(γ_m dt) ∘ … ∘ φ(γ_2 dt) ∘ φ(γ_1 dt),   Σ γ_i = 1,   γ_{m+1−i} = γ_i,

    with φ(h) a step of length h of the method. Φ conserves what φ conserves: Casimirs, the Poisson structure, and the
    energy of a discrete gradient. So `Composed(LieMidpoint(), "kahan-li8")` is a Poisson map of order 8.

    Every scheme of order above 2 has steps γ_i < 0, which go back in time. Friction, noise, forcing and torques would
    act backwards in them, so systems with any of these raise an error. Functions of time are evaluated at the time of
    each part. Yoshida's schemes leave the interval of the step, so they do not support an input that switches.

    The schemes are those of Suzuki (1990), Yoshida (1990), McLachlan (1995), and Kahan and Li (1997). A textbook is
    Hairer, Lubich and Wanner, Geometric Numerical Integration (2006), section V.3.

    Parameters
    ----------
    integrator : Integrator, default LieMidpoint()
        A symmetric method: `LieMidpoint`, `IsospectralMidpoint`, `Strang`, `TMK`, `DiscreteGradient`,
        `ImplicitMidpoint` or `Trapezoidal`.
    scheme : str or sequence of float, default "suzuki4"
        "suzuki4", "suzuki6", "yoshida4", "yoshida6", "yoshida8", "mclachlan4", "kahan-li6" or "kahan-li8". The number
        is the order. Or coefficients γ_i of your own, which must be symmetric and add up to 1. coadjoint finds their
        order from the order conditions.

    Raises
    ------
    TypeError
        If the method is not symmetric.
    ValueError
        If the scheme is unknown, or the coefficients are not symmetric or do not add up to 1.

    Examples
    --------
    >>> import coadjoint as cj
    >>> cj.Composed(cj.LieMidpoint(), "kahan-li6").claims.order
    6
    """  # fmt: skip

    substeps: ClassVar[bool] = True
    integrator: Integrator
    scheme: tuple[float, ...] = eqx.field(static=True)

    def __init__(self, integrator: Integrator = LieMidpoint(), scheme: Any = "suzuki4"):
        if not isinstance(integrator, Integrator):
            raise TypeError(f"integrator must be an Integrator such as LieMidpoint(), not {integrator!r}.")
        if not integrator.claims.symmetric or integrator.claims.order != 2 or isinstance(integrator, Composed):
            raise TypeError(
                f"integrator must be a symmetric method of order 2, such as LieMidpoint() or TMK(), not {integrator!r}."
            )
        self.integrator = integrator
        self.scheme = get_scheme(scheme)

    @property
    def claims(self) -> Claims:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The order of the scheme, and the invariants of the method."""
        c, m = self.integrator.claims, len(self.scheme)
        factor = lambda count: count * m if count > 0 else count
        cost = Cost(factor(c.cost.flows), factor(c.cost.gradients), c.cost.each, factor(c.cost.flows_each),
                    factor(c.cost.gradients_each))  # fmt: skip
        without_noise = {"strong": 0.0, "strong_commuting": 0.0, "weak": 0.0, "weak_commuting": 0.0}
        return Claims(**{**vars(c), **without_noise, "order": order_of(self.scheme), "cost": cost})

    def check(self, system: System) -> None:
        """Raise if something would act backwards in time."""
        self.integrator.check(system)
        backwards = {
            "noise": system.n_noise,
            "dissipation": system.dissipation,
            "a torque": system.torques,
            "forcing": system.forces,
        }
        for name, present in backwards.items():
            if present:
                raise ValueError(
                    f"Composed does not support a system with {name}: the scheme has negative steps, in which it would "
                    "act backwards. Use a method that does, such as TMK() or RKMK('rk4')."
                )
        if system.has_attitude and not isinstance(self.integrator, TMK):
            raise ValueError(
                "Composed supports functions with an argument g only with TMK(): other methods are not symmetric "
                "there, so that the order would fall. Use Composed(TMK(), ...) or RKMK('rk4')."
            )
        switching = next((use.name for use in system.inputs if len(use.switches.value)), None)
        if switching is not None and leaves_the_step(self.scheme):
            raise ValueError(
                f"this scheme of Composed evaluates an input of {switching} outside the time step, but the input "
                "switches. Use a scheme that stays inside, such as 'suzuki4' or 'kahan-li6'."
            )

    @property
    def group_method(self) -> GroupMethod | None:
        """That of the method."""
        return self.integrator.group_method

    def init(self, system: System, mu: State) -> PyTree:
        """The carry of the method; each part of a step extrapolates from the same part of earlier steps."""
        carry = self.integrator.init(system, mu)
        if not _extrapolates(carry):
            return carry
        copies = lambda x: jnp.broadcast_to(x, (len(self.scheme), *x.shape))
        return carry._replace(orbit_memory=jax.tree.map(copies, carry.orbit_memory))

    def init_group(self, system: System, mu: State, carry: PyTree, g0: PyTree = None) -> PyTree:
        """With the group element of the method."""
        return self.integrator.init_group(system, mu, carry, g0)

    def group(self, carry: PyTree) -> Array | None:
        """The group element of the method."""
        return self.integrator.group(carry)

    def fast(self) -> "Composed":
        """The same composition of the method without its fallbacks."""
        return eqx.tree_at(lambda c: c.integrator, self, self.integrator.fast())

    def failure(self, dt: float, residual: float, sigma: float) -> str:
        """The reason of the method."""
        return self.integrator.failure(dt, residual, sigma)

    def step(
        self, system: System, mu: State, t: Float[Array, ""], dt: Float[Array, ""], dS: Increment, carry: PyTree
    ) -> tuple[State, PyTree, SolveInfo]:
        """One part after the other."""
        gamma = np.array(self.scheme)
        begin = np.cumsum(gamma) - gamma
        histories = carry.orbit_memory if _extrapolates(carry) else None

        def part(state: tuple, piece: tuple) -> tuple:
            (mu, carry), (c, a, history) = state, piece
            here = system.at_node(t, dt, a + 0.5 * c)
            own = carry if histories is None else carry._replace(orbit_memory=history)
            mu, own, info = step_from(self.integrator, here, mu, t + a * dt, c * dt, dS, own)
            after = None
            if histories is not None:
                after, own = own.orbit_memory, own._replace(orbit_memory=None)
            return (mu, own), (after, info)

        first = carry if histories is None else carry._replace(orbit_memory=None)
        (mu, last), (after, infos) = jax.lax.scan(part, (mu, first), (gamma, begin, histories))
        if histories is not None:
            last = last._replace(orbit_memory=after)
        return mu, last, _together(infos)


def _extrapolates(carry: PyTree) -> bool:
    """Whether steps start from earlier ones, which must have had the same length."""
    return isinstance(carry, OrbitCarry) and isinstance(carry.orbit_memory, StepHistory)


def _together(infos: SolveInfo) -> SolveInfo:
    """The statistics of a step from those of its parts."""
    return SolveInfo(jnp.sum(infos.iterations), jnp.max(infos.residual), jnp.all(infos.converged), jnp.ones((), int))
