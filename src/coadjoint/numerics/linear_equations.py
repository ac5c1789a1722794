"""The linear equation behind the derivative of a root: A y = b, with the Jacobian A = ∂f/∂x of f(x) = x − g(x)."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from stepcompiler.derivatives import custom_derivative
from stepcompiler.hints import likely

_TOL = 1e-13  # of b − Ay, relative to y; the last correction is added all the same
_MOST = 60  # iterations: fewer are needed if the fixed-point iteration of the equation converged
_FORMED = 64  # unknowns up to which A is formed if the iteration fails
_DIRECTIONS = 20  # that residuals are minimised along
_MOST_RESIDUALS = 400  # iterations that minimise residuals
_SOLVED = 1e-7  # of b − Ay, relative to b: above it y is NaN

Vector = Float[Array, " n"]
Linear = Callable[[Vector], Vector]


@custom_derivative
def solve_linearized(f: Callable, root: Vector, b: Vector, transpose: bool, krylov: bool) -> Vector:
    """y with A y = b, or with Aᵀ y = b if `transpose`, where A is the Jacobian of f(x, 1)[0] at the root.

    The iteration y ← y + (b − A y) contracts as the fixed-point iteration x ← x − f(x) does, with no A formed. If it
    fails, elimination takes its place, and for more than 64 unknowns the minimisation of residuals. `krylov`: minimise
    residuals from the start, a program in which A occurs once.
    """
    along = lambda x: f(x, jnp.ones(()))[0]
    _, linear = jax.linearize(along, root)
    matvec: Linear = linear
    if transpose:
        back = jax.linear_transpose(linear, root)
        matvec = lambda y: back(y)[0]
    if krylov:
        return minimize_residual(matvec, b)

    def improve(state: tuple) -> tuple:
        y, rest, _, k = state
        y = y + rest
        rest = b - matvec(y)
        return y, rest, rest @ rest <= _TOL**2 * (y @ y), k + 1

    going = lambda state: ~state[2] & (state[3] < _MOST)
    first = jnp.zeros_like(b), b, jnp.zeros((), bool), jnp.zeros((), int)
    y, rest, converged, _ = jax.lax.while_loop(going, improve, first)

    def otherwise(_: tuple) -> tuple:
        """A loop of at most one pass: under `vmap` a branch would be both its sides."""
        if len(b) > _FORMED:
            y = minimize_residual(matvec, b)
        else:
            J = jax.jacfwd(along)(root)
            y = jnp.linalg.solve(J.T if transpose else J, b)
        return y, jnp.zeros((), bool)

    return jax.lax.while_loop(lambda state: state[1], otherwise, (y + rest, ~likely(converged)))[0]


def minimize_residual(matvec: Linear, b: Vector) -> Vector:
    """y with A y = b by generalised conjugate residuals; NaN if they do not converge.

    Each iteration takes the residual r as a direction p, makes q = Ap orthogonal to those of the last 20 directions,
    and moves y along p to the smallest |r|. This is GMRES with one product by A in the whole program.
    """
    scale2 = b @ b

    def improve(state: tuple) -> tuple:
        y, r, P, Q, k = state
        p, q = r, matvec(r)
        for _ in range(2):  # twice, as one pass leaves round-off of the size of q
            c = Q @ q
            p, q = p - c @ P, q - c @ Q
        size = jnp.sqrt(q @ q)
        inverse = jnp.where(size > 0, 1.0 / jnp.where(size > 0, size, 1.0), 0.0)
        p, q = inverse * p, inverse * q
        step = q @ r
        put = lambda A, x: jax.lax.dynamic_update_index_in_dim(A, x, k % _DIRECTIONS, 0)
        return y + step * p, r - step * q, put(P, p), put(Q, q), k + 1

    def going(state: tuple) -> Array:
        y, r, _, _, k = state
        return (r @ r > _TOL**2 * (y @ y)) & (k < _MOST_RESIDUALS)

    none = jnp.zeros((_DIRECTIONS, len(b)), b.dtype)
    y, r, *_ = jax.lax.while_loop(going, improve, (jnp.zeros_like(b), b, none, none, jnp.zeros((), int)))
    return jnp.where(r @ r <= _SOLVED**2 * scale2, y + r, jnp.nan)


@solve_linearized.def_rule
def _slope(out, primals, tangents):
    """A⁻¹ (δb − δA y)."""
    (f, root, _, transpose, krylov), (df, droot, db, *_) = primals, tangents

    def product(f: Callable, root: Vector) -> Vector:
        along = lambda x: f(x, jnp.ones(()))[0]
        return jax.vjp(along, root)[1](out)[0] if transpose else jax.jvp(along, (root,), (out,))[1]

    moved = eqx.filter_jvp(product, (f, root), (df, droot))[1]
    moved = jnp.zeros_like(out) if moved is None else moved
    return solve_linearized(f, root, -moved if db is None else db - moved, transpose, krylov)


@solve_linearized.def_transpose(2)
def _transposed(f, root, ct, transpose, krylov):
    return solve_linearized(f, root, ct, not transpose, krylov)
