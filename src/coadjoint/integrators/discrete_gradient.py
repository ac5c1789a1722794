"""TMK with a discrete gradient: any energy is conserved."""

from functools import partial

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..algebras.base import Element, LieAlgebra, State
from ..drivers import Increment
from ..numerics import validation
from ..numerics.rootfind import SolveInfo
from ..stabilisers import without_stabiliser
from ..systems import System
from .base import Claims, Cost, OrbitMethod
from .implicit import ImplicitSolve, KnownFlow, truncated
from .tmk import at_zero, local_inverse, near_root

_ROUND_OFF = 4 * 2.0**-52
_OUTER, _WEIGHT = 0.15**0.5, 5 / 18  # the outer nodes of three-point Gauss–Legendre on [−½, ½], and their weight


class DiscreteGradient(OrbitMethod):
    """TMK with a discrete gradient, which conserves the energy without noise.

    The step is

        σ = (∇̄h(μ_n, μ_{n+1}) + g(m)) dt + Σ_i ∂h_i(m) ΔS^i,   μ_{n+1} = flow(sσ, μ_n),   m = ½ (μ_n + μ_{n+1}).

    A discrete gradient satisfies <Δ, ∇̄h> = h(μ_{n+1}) − h(μ_n) with Δ = μ_{n+1} − μ_n. The flow conserves <μ, σ>.
    Without noise and forcing g the energy change is therefore <Δ, σ>/dt = 0. With a forcing it is −<Δ, g(m)>, the work
    of the forcing. For quadratic h both kinds equal ∂h(m), and the method is TMK. The two kinds are

        ∇̄h = ∂h(m) + (N/|Δ|²) Δ,   N = h(μ_{n+1}) − h(μ_n) − <Δ, ∂h(m)>

    ("gonzalez", for any h) and ∇̄h = ∫₀¹ ∂h(μ_n + ξΔ) dξ ("average", the average vector field). Near an equilibrium N
    is all round-off. It is then computed as the integral ∫ <Δ, ∂h(m + ξΔ) − ∂h(m)> dξ over [−½, ½], without
    cancellation.

    For a function h(μ, g) of the group element the gradient is that of both arguments, and the energy is conserved too.

    References: Gonzalez, Time integration and discrete Hamiltonian systems (1996); McLachlan, Quispel and Robidoux,
    Geometric integration using discrete gradients (1999).

    Parameters
    ----------
    kind : {"gonzalez", "average"}, default "gonzalez"
        The discrete gradient.
    nodes : int, default 3
        Gauss–Legendre nodes. "average" conserves polynomials h of degree up to 2·nodes.
    tol : float, default 1e-14
        The tolerance of the last correction, relative to the unknown.
    solver : {"auto", "chord", "newton", "fixed_point", "products"}, default "auto"
        The solver of the implicit equation. "auto" selects the chord method up to dimension 16 and fixed-point
        iteration above. Above dimension 64 it selects the inversion-free solver ("products") if the method supports it.
    max_steps : int, default 30
        The largest number of iterations.
    fallbacks : bool, default True
        Use Newton's method and then homotopy if the solver fails, up to dimension 64.
    drift_free : bool, default True
        Apply the round-off correction after each step.
    remove_stabiliser : bool, optional
        On `SO3` and its products, leave out of ∂h the part along μ, which moves nothing. On a single `SO3` the
        default is True. In a product it is False with noise or dissipation; otherwise a run selects the gradient that
        changes more slowly at the initial state. Other algebras, and systems with a torque, are not affected.
    """  # fmt: skip

    kind: str = eqx.field(static=True)
    nodes: int = eqx.field(static=True)
    solve: ImplicitSolve
    drift_free: bool = eqx.field(static=True)
    remove_stabiliser: bool | None = eqx.field(static=True)

    def __init__(
        self,
        kind: str = "gonzalez",
        nodes: int = 3,
        tol: float = 1e-14,
        solver: str = "auto",
        max_steps: int = 30,
        fallbacks: bool = True,
        drift_free: bool = True,
        remove_stabiliser: bool | None = None,
    ):
        self.kind = validation.choice("kind", kind, ("gonzalez", "average"))
        self.nodes = validation.count("nodes", nodes)
        self.solve = ImplicitSolve(tol, solver, max_steps, fallbacks)
        self.drift_free = drift_free
        self.remove_stabiliser = remove_stabiliser

    @property
    def claims(self) -> Claims:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Gonzalez's gradient conserves any energy, the average gradient polynomial ones."""
        gonzalez = self.kind == "gonzalez"
        return Claims(
            order=2,
            strong_commuting=1.0,
            strong=0.5,
            weak=1.0,
            casimirs=True,
            cost=Cost(0, 0, "iteration", 1, 3 if gonzalez else self.nodes),
            energy="any" if gonzalez else "polynomial",
            symmetric=True,
        )

    def sigma(
        self, system: System, mu: State, t: Float[Array, ""], dt: Float[Array, ""], dS: Increment
    ) -> tuple[Element, SolveInfo, KnownFlow]:
        """The root of f(σ) = σ − ∇̄h dt − Σ_i ∂h_i(m) ΔS^i; at σ = 0 it has the Jacobian of TMK's equation."""
        algebra, s = system.algebra, system.sign
        S = truncated(system, dS)

        def f(sigma, lam):
            change = algebra.change(s * sigma, mu)
            end = mu + change
            mean = gonzalez(system, mu, end) if self.kind == "gonzalez" else average(system, mu, end, self.nodes)
            m, slope = mu + 0.5 * change, None
            if system.has_attitude:  # <s ∇̄_θ h, ξ> is the rate of h along g exp(sξ t)
                slope, mean = s * mean[0], mean[1]
            mean = without_stabiliser(system, mean, m)
            mean = system.add_torque(mean + system.force(m) if system.forces else mean, m, slope)
            noise = system.noise(m, lam * S) if system.noises else 0.0
            return sigma - lam * dt * mean - noise, change

        starts = [partial(start, system, mu, dt, S) for start in (at_zero, near_root)]
        return self.solve(system, f, *starts, local=local_inverse(system, mu, dt))


def gonzalez(system: System, start: State, end: State) -> Element:
    """∂h(m) + (N/|Δ|²) Δ."""
    algebra = system.algebra
    m, delta = 0.5 * (start + end), end - start
    centre = system.energy_differential(m)
    gradient = system.energy_differential
    outer = gradient(m - _OUTER * delta) - centre + (gradient(m + _OUTER * delta) - centre)
    before, after = system.energy(start), system.energy(end)
    difference = after - before - algebra.pairing(delta, centre)
    integral = _WEIGHT * algebra.pairing(delta, outer)
    size2, length2 = _square(algebra, centre) * _square(algebra, m), _square(algebra, delta)
    scale = jnp.abs(before) + jnp.abs(after) + jnp.sqrt(jnp.where(size2 > 0, size2, 1.0))
    N = jnp.where(jnp.abs(difference - integral) <= _ROUND_OFF * scale, integral, difference)
    quotient = jnp.where(length2 > 0, N / jnp.where(length2 > 0, length2, 1.0), 0.0)
    return centre + quotient * delta


def average(system: System, start: State, end: State, nodes: int) -> Element:
    """∫₀¹ ∂h(μ_n + ξΔ) dξ."""
    x, w = np.polynomial.legendre.leggauss(nodes)
    m, delta = 0.5 * (start + end), end - start
    total = jnp.zeros_like(start)
    for xi, weight in zip(x, w, strict=True):
        total = total + 0.5 * weight * system.energy_differential(m + (0.5 * xi) * delta)
    return total


def _square(algebra: LieAlgebra, x: Array) -> Float[Array, ""]:
    c = algebra.coordinates(x)
    return c @ c
