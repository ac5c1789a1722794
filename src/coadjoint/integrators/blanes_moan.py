"""The splittings of Blanes and Moan: explicit Poisson maps of order 4 and 6."""

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, PyTree

from ..algebras.base import State
from ..drivers import Increment
from ..numerics.rootfind import SolveInfo, explicit_info
from ..systems import System
from .base import Claims, Cost
from .splitting import Splitting

# a_1 … and b_1 …, of which the rest follows by symmetry and from Σ a_i = Σ b_i = 1.
_SCHEMES = {
    4: (
        (0.0792036964311957, 0.353172906049774, -0.0420650803577195),
        (0.209515106613362, -0.143851773179818),
    ),
    6: (
        (0.0502627644003922, 0.413514300428344, 0.0450798897943977, -0.188054853819569, 0.541960678450780),
        (0.148816447901042, -0.132385865767784, 0.067307604692185, 0.432666402578175),
    ),
}


class BlanesMoan(Splitting):
    """The splittings of Blanes and Moan, of order 4 or 6: explicit Poisson maps without noise.

    The step applies, for i = 1 … m,

        φ_1(α_{2i}) ∘ … ∘ φ_{K−1}(α_{2i}) ∘ φ_K(b_i) ∘ φ_{K−1}(α_{2i−1}) ∘ … ∘ φ_1(α_{2i−1}),

    where φ_k(c): μ ← flow(s c dt ∂h_k(μ), μ) is an exact flow, α_{2i−1} + α_{2i} = b_i and α_{2i} + α_{2i+1} = a_{i+1}.
    For two parts this is the splitting with coefficients a_i and b_i. Order 4 has m = 6, and order 6 has m = 10.
    `Strang` describes the parts.

    Some coefficients are negative. Friction, noise and forcing would act backwards in time, so systems with any of
    these raise an error. Functions of time are evaluated at t + dt Σ_{j ≤ i} a_j.

    Reference: Blanes and Moan, Practical symplectic partitioned Runge–Kutta and Runge–Kutta–Nyström methods (2002).

    Parameters
    ----------
    order : {4, 6}, default 4
        The order.
    drift_free : bool, default True
        Apply the round-off correction after each flow.

    Examples
    --------
    >>> import coadjoint as cj
    >>> system, mu0 = cj.models.heavy_top(alpha=None)
    >>> sol = cj.solve(system, mu0, t1=1.0, dt=0.1, integrator=cj.BlanesMoan(6))
    >>> bool(sol.casimir_errors().max() < 5e-15)
    True
    """  # fmt: skip

    order: int = eqx.field(static=True, default=4)

    def __init__(self, order: int = 4, drift_free: bool = True):
        if order not in _SCHEMES:
            raise ValueError(f"order must be 4 or 6, not {order!r}.")
        self.order = order
        self.drift_free = drift_free

    @property
    def claims(self) -> Claims:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Those of a symmetric splitting."""
        m = len(coefficients(self.order)[0])
        return Claims(
            order=self.order,
            strong_commuting=0.0,
            strong=0.0,
            casimirs=True,
            cost=Cost(-m, -m, "part", 2 * m, 2 * m),
            symplectic=True,
            symmetric=True,
            explicit=True,
        )

    def check(self, system: System) -> None:
        """Every part must be solvable, and nothing may act backwards in time."""
        for what, present in (("noise", system.n_noise), ("dissipation", system.dissipation)):
            if present:
                raise ValueError(
                    f"BlanesMoan does not support a system with {what}: it has negative steps, in which it would act "
                    "backwards. Use a method that does, such as Strang() or TMK()."
                )
        super().check(system)

    def step(
        self, system: System, mu: State, t: Float[Array, ""], dt: Float[Array, ""], dS: Increment, carry: PyTree
    ) -> tuple[State, PyTree, SolveInfo]:
        """There and back, m times."""

        def part(state: tuple, piece: tuple) -> tuple:
            (mu, carry), (there, back, time) = state, piece
            *outer, last = self.parts(system.at_node(t, dt, time), dt, dS.S)
            for gradient in outer:
                mu, carry = self.act(system, there * gradient(mu), mu, carry)
            mu, carry = self.act(system, (there + back) * last(mu), mu, carry)
            for gradient in reversed(outer):
                mu, carry = self.act(system, back * gradient(mu), mu, carry)
            return (mu, carry), None

        (mu, carry), _ = jax.lax.scan(part, (mu, carry), coefficients(self.order))
        return mu, carry, explicit_info(mu)


def coefficients(order: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """α_{2i−1}, α_{2i}, and the times Σ_{j ≤ i} a_j."""
    half_a, half_b = (list(c) for c in _SCHEMES[order])
    a = [*half_a, 1.0 - 2.0 * sum(half_a), *half_a[::-1]]
    b = [*half_b, 0.5 - sum(half_b)]
    b = [*b, *b[::-1]]
    alpha = [a[0]]
    for i in range(len(b)):
        alpha += [b[i] - alpha[-1], a[i + 1] - (b[i] - alpha[-1])]
    return np.array(alpha[0:-1:2]), np.array(alpha[1::2]), np.cumsum(a)[:-1]
