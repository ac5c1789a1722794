"""Root finding for implicit steps: chord, Newton and fixed-point iterations with fallbacks, differentiable."""

import functools
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Bool, Float, PyTree

from stepcompiler.derivatives import custom_derivative
from stepcompiler.hints import low_precision

from .linear_equations import solve_linearized
from .newton_iteration import (
    TINY,
    IterationState,
    SolveInfo,
    Squared,
    SquaredSize,
    Vector,
    dot,
    explicit_info,
    initial_state,
    iterate,
    iterate_near,
    largest,
    select,
)
from .vectors import cross

__all__ = [
    "ROOT",
    "InitialGuess",
    "RootResult",
    "SolveInfo",
    "SquaredSize",
    "dot",
    "explicit_info",
    "implicit",
    "root_residuals",
    "solve_root",
]

ROOT = "root"  # saved by a reverse pass, so that no equation is solved, and no solver compiled, again

_WRITTEN_OUT = 16  # unknowns up to which the Jacobian of a derivative is formed and inverted
_MODERATE = 0.5  # relative to x: the largest change of an explicit step for which the expansion converges


class InitialGuess(NamedTuple):
    """The start of the chord method for f(x) = x − g(x): x with G = Dg(x), or 0 with Dg(0) if f(0) is given.

    In the second case x has only explicit coordinates.
    """

    x: Vector
    G: Float[Array, "n n"]
    at_zero: Vector | None = None
    explicit: Vector | None = None  # if x is near the root: the first term of the expansion that led to it


class RootResult(NamedTuple):
    """x and its report, with the further results of the equation at x − last, where |last| is at most 1e-10.

    `needs_second_order`: whether |x|² |last| counts; None if it never does.
    """

    x: Vector
    info: SolveInfo
    last: Vector | None
    known: PyTree
    needs_second_order: Bool[Array, ""] | None = None


def solve_root(
    f: Callable[[Vector, Float[Array, ""]], tuple[Vector, PyTree]],
    x0: Vector,
    *,
    method: str,
    start: Callable[[], InitialGuess],
    tol: float,
    max_steps: int,
    fallbacks: bool,
    dense: bool,
    fast: bool,
    precondition: Callable[[], Callable[[Vector], Vector]] | None = None,
    squares: SquaredSize = dot,
    extra_squared_norm: Float[Array, "..."] | float = 0.0,
) -> RootResult:
    """The root of f(x, 1) that continues from f(0, 0) = 0, with the derivative of the implicit function theorem.

    `f(x, λ)` gives the two sides' difference in the step's equation, with time step and increments scaled by λ, and
    further results, or None.

    - "chord": x ← x − (1 − G)⁻¹ f(x), with the frozen G of `start()`; if that starts near the root, with 1 + G + G² + …
      in place of the inverse, and only where the first correction is small;
    - "newton": x ← x − Df(x)⁻¹ f(x);
    - "fixed_point": x ← x − f(x), for f of the form x − g(x); or x ← x − P f(x), with P = `precondition()`.

    When that fails and `fallbacks` is set, the root is followed from λ = 0 to λ = 1. Without `dense` no Jacobian is
    formed, and derivatives are solved for by minimal residuals. If `fast`, a root not found is just reported.
    """
    # One trace serves the iterations, which are not differentiated, and the derivative of the root.
    f = eqx.filter_closure_convert(f, x0, jnp.ones(()))
    fixed = _without_derivative(f)

    full = lambda x: fixed(x, jnp.ones(()))
    known = jax.tree.map(lambda y: jnp.zeros(y.shape, y.dtype), jax.eval_shape(full, x0)[1])
    follows = known is not None and tol <= TINY  # for x, from results before its last correction

    def by(inverse: Callable[[Vector], Vector], x: Vector) -> tuple[Vector, PyTree]:
        value, known = full(x)
        return inverse(-value), known if follows else None

    first, left = initial_state(x0, jnp.zeros((), int)), None
    first = first._replace(last=x0, known=known) if follows else first
    rest: dict[str, Any] = {
        "active": jnp.ones((), bool),
        "fast": fast,
        "squares": squares,
        "extra_squared_norm": extra_squared_norm,
    }
    if method == "chord":
        begun = _without_derivative(eqx.filter_closure_convert(start))()
        if begun.at_zero is None:
            s, left = _from_near(by, begun, first, tol, max_steps, rest)
        else:
            inverse = _inverse(jnp.eye(len(begun.G)) - begun.G, fast)
            s = iterate(partial(by, inverse), first.moved(inverse(-begun.at_zero), squares), tol, max_steps - 1, **rest)
    elif method == "newton":
        s = iterate(lambda x: by(_inverse(jax.jacfwd(lambda x: full(x)[0])(x), fast), x), first, tol, max_steps, **rest)
    else:
        inverse = (lambda y: y) if precondition is None else precondition()
        s = iterate(partial(by, inverse), first, tol, max_steps, **rest)
    if not fast:
        s = _fallback(fixed, x0, s, tol, fallbacks, squares)
    if known is not None and not follows:
        s = s._replace(last=jnp.zeros_like(x0), known=full(s.x)[1])
    x, last, known = root_residuals((s.x, s.last, s.known))
    return RootResult(
        implicit(f, x, fast, False), s.info(left), last, known, None if left is None else s.needs_second_order(tol)
    )


def root_residuals(tree: PyTree) -> PyTree:
    """Mark arrays that a reverse pass saves; complex ones as real and imaginary parts, which JAX requires."""

    def mark(x: Array) -> Array:
        if jnp.iscomplexobj(x):
            return jax.lax.complex(checkpoint_name(x.real, ROOT), checkpoint_name(x.imag, ROOT))
        return checkpoint_name(x, ROOT)

    return jax.tree.map(mark, tree)


def _from_near(
    by: Callable, begun: InitialGuess, first: IterationState, tol: float, max_steps: int, rest: dict[str, Any]
) -> tuple[IterationState, Squared]:
    """The chord method from near the root: by a series twice, and after that by an inverse.

    The expansion that has led from an explicit step to x converges to the root that continues from x = 0 if the first
    correction is small, or if the change of the explicit step is not large, both relative to x.
    """
    x, G, _, explicit = begun
    assert explicit is not None
    squares, extra_squared_norm = rest["squares"], rest["extra_squared_norm"]
    series = _series(G)
    moved = first._replace(x=x).moved(by(series, x)[0], squares)
    moderate = lambda: largest(squares(x - explicit)) <= _MODERATE**2 * largest(squares(x) + extra_squared_norm)

    def later() -> Callable[[Vector], tuple[Vector, PyTree]]:
        inverse = low_precision(lambda G: _inverse_matrix(jnp.eye(len(G)) - G))(G)
        return partial(by, low_precision(lambda x: inverse @ x))

    return iterate_near(partial(by, series), later, moved, tol, max_steps - 1, moderate, squares, extra_squared_norm)


def _without_derivative(f: Callable) -> Callable:
    """The same function, of numbers that do not depend on anything."""
    numbers, rest = eqx.partition(f, eqx.is_array)
    return eqx.combine(jax.lax.stop_gradient(numbers), rest)


@custom_derivative
def implicit(f: Callable, x: Vector, fast: bool, krylov: bool) -> Vector:
    """The root x of f(x, 1), to which belong all derivatives of the implicit function theorem, Dx = −(∂f/∂x)⁻¹ Df.

    `krylov`: how the linear equation for Dx is solved (`solve_linearized`).
    """
    return x


@implicit.def_rule
def _implicit_slope(root, primals, tangents):
    """At the root, not at x, which has no derivative: the rule itself is differentiated."""
    (f, _, fast, krylov), (df, *_) = primals, tangents
    one = jnp.ones(())
    _, rhs = eqx.filter_jvp(lambda f: f(root, one)[0], (f,), (df,))

    def along(x: Vector) -> Vector:
        return f(x, one)[0]

    if len(root) <= _WRITTEN_OUT:
        return -_inverse(jax.jacfwd(along)(root), fast)(rhs)
    return -solve_linearized(f, root, rhs, False, krylov)


def _series(G: Float[Array, "n n"]) -> Callable[[Vector], Vector]:
    """x ↦ x + Gx + G²x, which is (1 − G)⁻¹ x to third order in G.

    G is the derivative at a nearby point, and has an error of its own. Each coordinate is a chain of fused operations,
    and no quotient is waited for.
    """

    def plus(y: Vector, x: Vector) -> Vector:
        return functools.reduce(lambda y, j: y + G[:, j] * x[j], range(len(G)), y)

    return low_precision(lambda x: plus(x, plus(x, x)))


def _inverse(J: Float[Array, "n n"], fast: bool) -> Callable[[Vector], Vector]:
    """x ↦ J⁻¹ x: by LAPACK, or, if `fast`, by a product with the inverse, found by elimination written out.

    For order 3 it uses cofactors, with one quotient instead of three. There is no pivoting, because J is near the
    identity for a small step. Otherwise the iteration does not converge and the fallback takes the step.
    """
    if not fast:
        factor = jax.scipy.linalg.lu_factor(J)
        return lambda x: jax.scipy.linalg.lu_solve(factor, x)
    return partial(jnp.matmul, _inverse_matrix(J))


def _inverse_matrix(J: Float[Array, "n n"]) -> Float[Array, "n n"]:
    n = J.shape[0]
    if n == 3:
        u, v, w = J
        columns = [cross(v, w), cross(w, u), cross(u, v)]
        return jnp.stack(columns, axis=1) * (1.0 / (u @ columns[0]))
    one = np.eye(n, dtype=bool)
    a = J
    for k in range(n):
        pivot = 1.0 / a[k, k]
        row = pivot * a[k]
        column = a[:, k]
        rest = jnp.where(one[k], -column[:, None] * pivot, a - column[:, None] * row)
        a = jnp.where(one[k][:, None], jnp.where(one[k], pivot, row), rest)
    return a


def _fallback(
    f: Callable, x0: Vector, s: IterationState, tol: float, fallbacks: bool, squares: SquaredSize
) -> IterationState:
    """The fallback after a failed iteration: homotopy, then the x with the smallest residual."""
    failed = ~s.done
    if fallbacks:
        far = _homotopy(f, jnp.zeros_like(x0), s.iterations, tol, failed)
        s = select(s.done, s._replace(last=None, known=None), far)._replace(last=s.last, known=s.known)
    return _least_bad(lambda x: f(x, jnp.ones(())), x0, s, failed if s.known is not None else ~s.done, squares)


def _homotopy(
    f: Callable[[Vector, Float[Array, ""]], tuple[Vector, PyTree]],
    x0: Vector,
    iterations: Array,
    tol: float,
    active: Array,
) -> IterationState:
    """Follow the curve f(x, λ) = 0 from (x₀, 0) to λ = 1 by its arc length, so that it may turn back on the way.

    From y = (x, λ) a step goes along the tangent t to y + ℓt, and Newton's method back onto the curve in the plane
    across t (Keller 1977); the last step ends on λ = 1, the first one tries to be the last. A step is taken only if the
    curve stays near its tangent; ℓ is doubled after success and halved after failure.
    """
    max_trials, smallest, straight = 300, 1e-5, 0.3
    n = x0.shape[0]
    along = jnp.zeros(n + 1).at[n].set(1.0)  # the direction of λ, and the last unit vector

    def curve(y: Vector) -> Vector:
        return f(y[:n], y[n])[0]

    def bordered(y: Vector, row: Vector, value: Vector) -> Vector:
        return jnp.linalg.solve(jnp.concatenate([jax.jacfwd(curve)(y), row[None]]), value)

    def going(state):
        s, _, length, trials = state
        return active & ~s.done & (length > smallest) & (trials < max_trials)

    def body(state):
        s, t, length, trials = state
        t = bordered(s.x, t, along)
        t = t / jnp.sqrt(t @ t)
        left = (1.0 - s.x[n]) / jnp.where(t[n] > 0, t[n], 1.0)
        last = (t[n] > 0) & ((left <= length) | (trials == 0))
        length = jnp.where(last, left, length)
        guess = s.x + length * t
        row = jnp.where(last, along, t)

        def correction(y: Vector) -> tuple[Vector, None]:
            return -bordered(y, row, jnp.append(curve(y), row @ (y - guess))), None

        trial = iterate(correction, initial_state(guess, s.iterations), jnp.where(last, tol, 1e-6), 10, active)
        away = trial.x - guess
        ok = trial.done & (away @ away <= (straight * length) ** 2) & (last | (trial.x[n] < 1.0))
        kept = trial._replace(x=jnp.where(ok, trial.x, s.x), done=ok & last)
        return kept, jnp.where(ok, t, state[1]), jnp.where(ok, 2.0 * length, 0.5 * length), trials + 1

    start = initial_state(jnp.append(x0, 0.0), iterations)
    s, *_ = jax.lax.while_loop(going, body, (start, along, jnp.ones(()), jnp.zeros((), int)))
    return s._replace(x=s.x[:n])


def _least_bad(
    f: Callable[[Vector], tuple[Vector, PyTree]],
    x0: Vector,
    s: IterationState,
    active: Array,
    squares: SquaredSize,
) -> IterationState:
    """Return the result of a step that did not converge: its last x or an explicit step, by the smaller residual.

    An iteration that has lost its way may be anywhere, and the action of a huge σ costs the Casimirs their digits.
    """

    def body(state):
        s, _ = state
        explicit = x0 - f(x0)[0]
        (last, known), (other, instead) = f(s.x), f(explicit)
        last2, explicit2 = largest(squares(last)), largest(squares(other))
        keep = s.done | (last2 <= explicit2)
        x = jnp.where(keep, s.x, explicit)
        rest2 = jnp.where(keep, last2, explicit2)
        bad = s._replace(size2=largest(squares(x)), step2=rest2, before2=jnp.zeros(()))
        s = select(s.done, s, bad)._replace(x=x)
        if s.known is not None:
            s = s._replace(last=jnp.zeros_like(x), known=select(keep, known, instead))
        return s, jnp.zeros((), bool)

    return jax.lax.while_loop(lambda state: state[1], body, (s, active))[0]
