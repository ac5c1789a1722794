"""The interface between inversion-free steps of matrices (`su_n_solver`), systems and methods."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Complex, Float

from ..algebras.base import Element, LieAlgebra, State
from ..numerics import sharding
from ..numerics.rootfind import SolveInfo, implicit, root_residuals
from ..numerics.split_complex import on_gpu
from ..systems import System
from .extrapolation import StepHistory, empty_history, reset_history
from .su_n_solver import Rule, products_step
from .tau import Cayley, Exp, Tau

Matrices = Complex[Array, "*k n n"]

__all__ = [
    "ProductsResult",
    "Rule",
    "StepHistory",
    "check_solver",
    "initial_history",
    "reset_history",
    "rule_for",
    "solve",
    "uses_matrix_products",
    "with_derivative",
]

_SMALL = 64  # dimension up to which exponentials are, which is faster there and has fallbacks


class ProductsResult(NamedTuple):
    """σ, and the change of the state."""

    sigma: Element
    change: State


def uses_matrix_products(algebra: LieAlgebra, orbit_memory: Any) -> bool:
    """Whether the carry of a method belongs to the inversion-free solver, instead of the memory of the orbit."""
    return isinstance(orbit_memory, StepHistory) or (orbit_memory is None and algebra.conjugated_shape is not None)


def rule_for(solve: Any, system: System, tau: Tau, mean: bool) -> Rule | None:
    """Return the rule of the inversion-free solver, if the user requests it or matrices are large; else None."""
    settings = getattr(solve, "settings", solve)
    algebra = system.algebra
    if algebra.conjugated_shape is None or not isinstance(tau, Cayley | Exp) or system.has_torque:
        return None
    wanted = settings.solver == "products" or (settings.solver == "auto" and algebra.dim > _SMALL)
    return Rule(mean, isinstance(tau, Exp), settings.tol, settings.max_steps) if wanted else None


def check_solver(solve: Any, system: System) -> None:
    """Raise an error if the inversion-free solver is requested but not supported."""
    if solve.solver == "products" and system.algebra.conjugated_shape is None:
        raise ValueError(
            f'solver="products" is for matrices that are moved by conjugation, SU(n) and copies of one SU(n) '
            f'with n at least 9, not for {type(system.algebra).__name__}: take solver="auto".'
        )


def initial_history(system: System) -> StepHistory | None:
    """The memory of a run before its first step. With noise earlier steps do not help."""
    shape = system.algebra.conjugated_shape
    return empty_history(shape) if shape is not None and system.n_noise == 0 else None


def solve(
    rule: Rule, system: System, mu: State, dt: Float[Array, ""], S: Float[Array, " M"], history: StepHistory | None
) -> tuple[ProductsResult, StepHistory | None, SolveInfo]:
    """One step, without its derivative: W ↦ e^{−sσ} W e^{sσ}, so that half of −sσ is the unknown of `matrix`."""
    numbers, rest = eqx.partition((system, mu, dt, S, history), eqx.is_array)
    system, mu, dt, S, history = eqx.combine(jax.lax.stop_gradient(numbers), rest)
    half, algebra = -0.5 * system.sign, system.algebra

    def field(X: Matrices) -> Matrices:
        X = algebra.from_matrices(_without_trace(X))  # the mean state of a midpoint rule has one, which means nothing
        return half * algebra.to_matrices(dt * system.drift(X) if system.additive else system.zeta(X, dt, S))

    N = half * algebra.to_matrices(system.noise(mu, S)) if system.additive and system.noises else None
    out = products_step(rule, algebra.to_matrices(mu), field, N, history, dt)
    info = SolveInfo(out.iterations, out.residual, out.converged & jnp.all(jnp.isfinite(out.change)))
    found = ProductsResult(algebra.from_matrices(out.S / half), algebra.from_matrices(out.change))
    return root_residuals(found), out.history, info


def _without_trace(X: Matrices) -> Matrices:
    """X − (tr X/n) 1; on a CPU, where that counts, n entries are read for the trace, and the matrix 1 is not."""
    n = X.shape[-1]
    if X.ndim > 2:
        return jax.vmap(_without_trace)(X)
    if on_gpu() or sharding.mesh() is not None:
        return X - (jnp.trace(X) / n) * jnp.eye(n)
    return jnp.where(jnp.eye(n, dtype=bool), X - jnp.mean(jnp.diagonal(X)), X)


def with_derivative(algebra: LieAlgebra, f: Callable, sigma: Element) -> Element:
    """σ, to which belongs the derivative of the root of f."""

    def equation(c: Float[Array, " dim"], lam: Float[Array, ""]) -> tuple[Float[Array, " dim"], None]:
        out = f(algebra.element(c), lam)
        return algebra.coordinates(out[0] if isinstance(out, tuple) else out), None

    c = algebra.coordinates(sigma)
    equation = eqx.filter_closure_convert(equation, c, jnp.ones(()))
    return algebra.element(implicit(equation, c, True, True))
