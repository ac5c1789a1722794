"""The discrete Moser–Veselov algorithm for the free rigid body, preprocessed to order 4, 6 or 8."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..algebras.base import Element, State
from ..drivers import Increment
from ..numerics import validation
from ..numerics.rootfind import InitialGuess, SolveInfo
from ..systems import System
from .base import Claims, Cost, OrbitMethod
from .implicit import ImplicitSolve
from .tau import Cayley, Tau

Vector = Float[Array, " 3"]


class MoserVeselov(OrbitMethod):
    """The discrete Moser–Veselov algorithm for the free rigid body, h = ½ Σ π_i²/I_i on so(3).

    The step is the rotation by the quaternion (1, y), that is σ = 2y, with

        y_1 = ½ dt (1 + |y|²) π_1/Ĩ_1 + s ((Ĩ_2 − Ĩ_3)/Ĩ_1) y_2 y_3   (and cyclic),   π_{n+1} = Ad*_{cay(sσ)} π_n.

    With Ĩ = I this is the original algorithm, of order 2. It conserves energy and momentum, and follows an orbit of the
    body exactly, at another speed. The preprocessed algorithm corrects the speed with the moments of inertia

        1/Ĩ_i = (1 + dt² s_3 + dt⁴ s_5 + …)/I_i + dt² d_3 + dt⁴ d_5 + …

    where s_k and d_k are polynomials of the energy and of |π|², which are constant. π and the attitude have the same
    order.

    References: Moser and Veselov, Discrete versions of some classical integrable systems (1991); Hairer and Vilmart,
    Preprocessed discrete Moser–Veselov algorithm for the full dynamics of a rigid body (2006).

    Parameters
    ----------
    order : {2, 4, 6, 8}, default 6
        The order. 2 is the algorithm without preprocessing.
    tol : float, default 1e-14
        The tolerance of the last correction, relative to the unknown.
    max_steps : int, default 30
        The largest number of iterations.
    fallbacks : bool, default True
        Use Newton's method and then homotopy if the solver fails.
    drift_free : bool, default True
        Apply the round-off correction after each step.

    Examples
    --------
    >>> import coadjoint as cj
    >>> system, mu0 = cj.models.rigid_body(alpha=None)
    >>> sol = cj.solve(system, mu0, t1=100.0, dt=0.1, integrator=cj.MoserVeselov(8))
    >>> bool(abs(sol.energy() - sol.energy()[0]).max() < 1e-13)
    True
    """  # fmt: skip

    tau: ClassVar[Tau] = Cayley()

    order: int = eqx.field(static=True)
    solve: ImplicitSolve
    drift_free: bool = eqx.field(static=True)

    def __init__(
        self,
        order: int = 6,
        tol: float = 1e-14,
        max_steps: int = 30,
        fallbacks: bool = True,
        drift_free: bool = True,
    ):
        if order not in (2, 4, 6, 8):
            raise ValueError(f"order must be 2, 4, 6 or 8, not {order!r}.")
        self.order = order
        self.solve = ImplicitSolve(tol, "chord", max_steps, fallbacks)
        self.drift_free = drift_free

    @property
    def claims(self) -> Claims:  # pyright: ignore[reportIncompatibleVariableOverride]
        """A Poisson map that conserves the energy of its only kind of system."""
        return Claims(
            order=self.order,
            strong_commuting=0.0,
            strong=0.0,
            casimirs=True,
            cost=Cost(1, 1),
            energy="quadratic",
            momentum=True,
            symplectic=True,
            symmetric=True,
        )

    def check(self, system: System) -> None:
        """Raise unless the system is a free rigid body in principal axes."""
        name = f"MoserVeselov({self.order})"
        others = {
            "noise": system.n_noise,
            "dissipation": system.dissipation,
            "a torque": system.has_torque,
            "forcing": system.forces,
            "a Hamiltonian that depends on time": system.timed,
        }
        for what, present in others.items():
            if present:
                raise ValueError(
                    f"{name} integrates the free rigid body, not a system with {what}: LieGauss() is a Poisson map "
                    "for any Hamiltonian, and RKMK('rk4') supports forcing and torques."
                )
        algebra = system.algebra
        if algebra.shape != (3,) or not np.array_equal(algebra.bracket(*np.eye(3)[:2]), np.eye(3)[2]):
            raise ValueError(
                f"{name} is for one rigid body on SO3, not for {type(algebra).__name__} of dimension {algebra.dim}: "
                "take LieGauss(), which supports every algebra."
            )
        if validation.is_traced(system):
            return
        inverse = np.asarray(_inverse_inertia(system))
        x = jnp.array([0.3, -0.7, 1.1])
        if not np.all(inverse > 0) or jnp.max(jnp.abs(system.energy_gradient(x) - inverse * x)) > 1e-12 * inverse.max():
            raise ValueError(
                f"{name} needs h = ½ (π_1²/I_1 + π_2²/I_2 + π_3²/I_3) with positive moments of inertia, but the "
                "hamiltonian is another function: turn the body to its principal axes, or take LieGauss(), which "
                "supports every Hamiltonian."
            )

    def sigma(
        self, system: System, mu: State, t: Float[Array, ""], dt: Float[Array, ""], dS: Increment
    ) -> tuple[Element, SolveInfo]:
        """σ = 2y."""
        inverse = modified_inverse_inertia(self.order, _inverse_inertia(system), mu, dt)
        ratio = system.sign * (jnp.roll(1.0 / inverse, -1) - jnp.roll(1.0 / inverse, 1)) * inverse
        first = dt * inverse * mu

        def rule(sigma: Vector, lam: Float[Array, ""]) -> Vector:
            size = 1.0 + 0.25 * (sigma @ sigma)
            return (lam * size) * first + 0.5 * ratio * jnp.roll(sigma, -1) * jnp.roll(sigma, 1)

        def start() -> InitialGuess:
            slope = jax.jacfwd(lambda x: rule(x, jnp.ones(())))(first)
            return InitialGuess(jnp.zeros(3), slope, -first)

        return self.solve(system, lambda sigma, lam: sigma - rule(sigma, lam), start)


def _inverse_inertia(system: System) -> Vector:
    """1/I_i, from ∂h at (1, 1, 1)."""
    return system.energy_gradient(jnp.ones(3))


def modified_inverse_inertia(order: int, inverse: Vector, mu: Vector, dt: Float[Array, ""]) -> Vector:
    """1/Ĩ_i for a step of the given order (Hairer and Vilmart, section 3)."""
    if order == 2:
        return inverse
    inertia = 1.0 / inverse
    p = {k: jnp.sum(inertia**k) for k in (-3, -2, -1, 1, 2, 3)}
    det = inertia[0] * inertia[1] * inertia[2]
    mixed = lambda a, b: jnp.sum(inertia**a) * jnp.sum(inertia**b) - jnp.sum(inertia ** (a + b))  # Σ_{i≠j} I_iᵃ I_jᵇ
    h2 = 0.5 * dt * dt
    C, H = h2 * jnp.sum(mu * mu), h2 * jnp.sum(mu * mu * inverse)
    s = 1.0 + p[1] / (6 * det) * C - p[-1] / 3 * H
    d = -C / (3 * det) + p[1] / (6 * det) * H
    if order >= 6:
        m = mixed(1, -1)
        s += (p[2] / det - p[-1]) / (30 * det) * C**2 + (1 - m) / (30 * det) * C * H
        s += (3 * p[1] / det + 2 * p[-2]) / 60 * H**2
        d += -p[1] / (60 * det**2) * C**2 + (p[-1] / 10 - p[2] / (60 * det)) / det * C * H - (9 + m) / (60 * det) * H**2
    if order >= 8:
        low, high = mixed(1, -2), mixed(2, -1)
        s += (4 * det + 17 * p[3] - 15 * det * m) / (2520 * det**3) * C**3
        s += (9 * p[1] + 10 * det * p[-2] - 6 * high) / (420 * det**2) * C**2 * H
        s += ((6 * low - 100 * p[-1]) * det + 53 * p[2]) / (2520 * det**2) * C * H**2
        s += (15 - det * p[-3] - 2 * m) / (630 * det) * H**3
        d += (34 * det * p[-1] - 19 * p[2]) / (2520 * det**3) * C**3
        d += (p[3] + 2 * det * m - 85 * det) / (1260 * det**3) * C**2 * H
        d += (47 * p[1] + 13 * high - 38 * det * p[-2]) / (2520 * det**2) * C * H**2
        d += (9 * det * p[-1] + det * low - 11 * p[2]) / (1260 * det**2) * H**3
    return s * inverse + d
