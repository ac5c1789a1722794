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

Vector = Float[Array, " n"]
Linear = Callable[[Vector], Vector]


@custom_derivative
def solve_linearized(f: Callable, root: Vector, b: Vector, transpose: bool) -> Vector:
    """y with A y = b, or with Aᵀ y = b if `transpose`, where A is the Jacobian of f(x, 1)[0] at the root.

    The iteration y ← y + (b − A y) contracts as the fixed-point iteration x ← x − f(x) does, with no A formed. If it
    fails, elimination takes its place, and GMRES for more than 64 unknowns.
    """
    along = lambda x: f(x, jnp.ones(()))[0]
    _, linear = jax.linearize(along, root)
    matvec: Linear = linear
    if transpose:
        back = jax.linear_transpose(linear, root)
        matvec = lambda y: back(y)[0]

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
            # JAX's batched GMRES is the one that a GPU runs well
            y = jax.scipy.sparse.linalg.gmres(matvec, b, tol=1e-14, restart=20, maxiter=20, solve_method="batched")[0]
        else:
            J = jax.jacfwd(along)(root)
            y = jnp.linalg.solve(J.T if transpose else J, b)
        return y, jnp.zeros((), bool)

    return jax.lax.while_loop(lambda state: state[1], otherwise, (y + rest, ~likely(converged)))[0]


@solve_linearized.def_rule
def _slope(out, primals, tangents):
    """A⁻¹ (δb − δA y)."""
    (f, root, _, transpose), (df, droot, db, _) = primals, tangents

    def product(f: Callable, root: Vector) -> Vector:
        along = lambda x: f(x, jnp.ones(()))[0]
        return jax.vjp(along, root)[1](out)[0] if transpose else jax.jvp(along, (root,), (out,))[1]

    moved = eqx.filter_jvp(product, (f, root), (df, droot))[1]
    moved = jnp.zeros_like(out) if moved is None else moved
    return solve_linearized(f, root, -moved if db is None else db - moved, transpose)


@solve_linearized.def_transpose(2)
def _transposed(f, root, ct, transpose):
    return solve_linearized(f, root, ct, not transpose)
