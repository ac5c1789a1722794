"""Root finding for implicit steps: chord, Newton and fixed-point iterations with fallbacks, differentiable.

Every iteration is a `while_loop` that starts only if there is work left, so that under `vmap` a fallback nobody needs
costs nothing and a member that has converged is frozen while its neighbours go on.

The size |x| of an unknown is Euclid's, but that of a direct sum is that of the largest of its parts: round-off is then
the same beside it however many parts there are, and each part is solved as well as it would be alone.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Bool, Float, Int, PyTree

from .vectors import cross

Vector = Float[Array, " n"]
Squares = Callable[[Vector], Float[Array, "..."]]  # x ↦ |x|² of each part, or of all of x as one number

ROOT = "root"  # what a reverse pass keeps of a step, so that no equation is solved, nor its solver compiled, again

_MARGIN = 1e-3  # what is foreseen must be this much below tol: it has a sign, and adds up over steps in the energy
_FAST = 0.0625  # the squared rate ¼, below which the next correction can be foreseen
_TINY = 1e-10  # a correction δ this small has δ² below round-off
_STALLED = 1e-11  # a residual this small (scaled) that no longer falls has met round-off


class Info(NamedTuple):
    """How a step was solved: iterations, what was left to correct (scaled), whether that met the tolerance.

    `substeps` is how many steps it was made of, where a method divides it.
    """

    iterations: Int[Array, ""]
    residual: Float[Array, ""]
    converged: Bool[Array, ""]
    substeps: Int[Array, ""] | int = 1


class _State(NamedTuple):
    """Where an iteration stands. Sizes are kept squared: roots and quotients would cost as much as the step itself."""

    x: Vector
    size2: Float[Array, ""]  # |x|² before the last correction
    step2: Float[Array, ""]  # |last correction|²
    before2: Float[Array, ""]  # |the one before|², or 0
    iterations: Int[Array, ""]
    done: Bool[Array, ""]  # converged
    lost: Bool[Array, ""]  # diverging: stop iterating
    last: Vector | None = None  # the last correction, with …
    known: PyTree = None  # … what was found beside the equation before it, at x − last

    def moved(self, step: Vector, squares: Squares) -> "_State":
        """After a first correction."""
        return self._replace(x=self.x + step, step2=_largest(squares(step)), iterations=self.iterations + 1)

    def error(self) -> Float[Array, ""]:
        """What is left to correct, scaled by x: the last correction times the rate at which corrections fall."""
        fast = self.step2 < _FAST * self.before2
        left2 = jnp.where(fast, self.step2 * self.step2, self.step2)
        scale2 = jnp.where(fast, self.before2 * self.size2, self.size2)
        return jnp.where(self.step2 > 0, jnp.sqrt(left2 / jnp.where(scale2 > 0, scale2, 1.0)), 0.0)


def dot(x: Vector) -> Float[Array, ""]:
    """|x|², of all of x."""
    return x @ x


def _largest(squares: Float[Array, "..."]) -> Float[Array, ""]:
    return jnp.max(squares) if squares.ndim else squares


def explicit_info(x: Array) -> Info:
    """The report of a step with nothing to solve: it fails only if the result is not finite."""
    ok = jnp.all(jnp.isfinite(x))
    return Info(jnp.zeros((), int), jnp.zeros(()), ok)


def _iterate(
    correction: Callable[[Vector], tuple[Vector, PyTree]],
    start: _State,
    tol: float | Array,
    max_steps: int,
    active: Bool[Array, ""],
    fast: bool = False,
    squares: Squares = dot,
    others2: Float[Array, "..."] | float = 0.0,
) -> _State:
    """x ← x + correction(x) until what is left to correct, scaled by x, is below tol, or no longer falls at round-off.

    What is left after a correction δ is at most δ, and about ρδ when corrections fall fast, at the rate ρ < ¼
    (Hairer and Wanner, Solving ODEs II, IV.8). Where a correction is not finite, x stays what it was; not so if
    `fast`, when x would have to wait for its norm, and such a step is not taken anyway. Where something is known from
    the equation, the last correction δ must be so small that this follows for x to first order in δ and in |x| δ; the
    next term, |x|² δ/6, is foreseen as well. `others2`: the squares of numbers that count in the size of x.
    """
    limit = start.iterations + max_steps

    def going(s: _State) -> Array:
        return active & ~s.done & ~s.lost & (s.iterations < limit)

    def body(s: _State) -> _State:
        step, known = correction(s.x)
        x = s.x + step
        size2, step2 = _largest(squares(s.x) + others2), _largest(squares(step))  # |x|² before: a flow has it at hand
        before2 = s.step2
        small = step2 <= tol**2 * size2
        foreseen = step2 * step2 < (_MARGIN * tol) ** 2 * size2 * before2  # if corrections do not fall, it is small
        stalled = (step2 <= _STALLED**2 * size2) & (step2 >= before2)
        if known is not None:
            foreseen = foreseen & (step2 * size2 <= (6.0 * _MARGIN * tol) ** 2)
        enough = small | foreseen | stalled
        if known is not None:
            enough = enough & (step2 <= _TINY**2) & (step2 * size2 <= tol**2)
        finite = jnp.isfinite(step2)
        lost = ~finite | ((step2 > 16.0 * before2) & (s.iterations > start.iterations + 3))
        if not fast:
            x = jnp.where(finite, x, s.x)
        step2 = jnp.where(finite, step2, jnp.inf)
        last = None if known is None else step
        return _State(x, size2, step2, before2, s.iterations + 1, finite & enough, lost, last, known)

    return jax.lax.while_loop(going, body, start)


def _fresh(x: Vector, iterations: Int[Array, ""]) -> _State:
    zero, false = jnp.zeros(()), jnp.zeros((), bool)
    return _State(x, zero, zero, zero, iterations, false, false)


def _select(flag: Array, a: PyTree, b: PyTree) -> PyTree:
    return jax.tree.map(lambda u, v: jnp.where(flag, u, v), a, b)


class Start(NamedTuple):
    """Where the chord method starts: x, with the Jacobian; or 0, if f(0) is given or x is not `near` the root.

    Then x has explicit coordinates alone.
    """

    x: Vector
    jacobian: Float[Array, "n n"]
    at_zero: Vector | None = None
    near: Bool[Array, ""] | bool = True

    def at(self, zero: Vector, f: Callable[[Vector], Vector]) -> tuple[Vector, Vector]:
        """Where it starts, and the value of f there."""
        if self.at_zero is not None:
            return zero, self.at_zero
        x = jnp.where(self.near, self.x, zero)
        return x, f(x)


class Root(NamedTuple):
    """x and how it was found; what the equation gave besides at x − last, where last is at most 1e-10."""

    x: Vector
    info: Info
    last: Vector | None
    known: PyTree


def solve_root(
    f: Callable[[Vector, Float[Array, ""]], tuple[Vector, PyTree]],
    x0: Vector,
    *,
    method: str,
    start: Callable[[], Start] | None,
    tol: float,
    max_steps: int,
    fallbacks: bool,
    dense: bool,
    fast: bool,
    squares: Squares = dot,
    others2: Float[Array, "..."] | float = 0.0,
) -> Root:
    """The root of f(x, 1) that continues from f(0, 0) = 0, with the derivative of the implicit function theorem.

    `f(x, λ)` gives the two sides' difference in the step's equation, with time step and increments scaled by λ, and
    what it has found besides, or None.

    - "chord": x ← x − J₁⁻¹ f(x), with the frozen J₁ of `start()`;
    - "newton": x ← x − Df(x)⁻¹ f(x);
    - "fixed_point": x ← x − f(x), for f of the form x − g(x).

    When that fails and `fallbacks` is set, the root is followed from λ = 0 to λ = 1. Without `dense` no Jacobian is
    formed, and derivatives are solved for by GMRES. If `fast`, a root not found is just reported.
    """
    # What is traced once serves the iterations, which know no derivatives, and the derivative of the root.
    f = eqx.filter_closure_convert(f, x0, jnp.ones(()))
    fixed = _without_derivative(f)

    def full(x: Vector) -> tuple[Vector, PyTree]:
        return fixed(x, jnp.ones(()))

    known = jax.tree.map(lambda y: jnp.zeros(y.shape, y.dtype), jax.eval_shape(full, x0)[1])
    follows = known is not None and tol <= _TINY  # for x, from what is known before its last correction

    def by(inverse: Callable[[Vector], Vector], x: Vector) -> tuple[Vector, PyTree]:
        value, known = full(x)
        return -inverse(value), known if follows else None

    first = _fresh(x0, jnp.zeros((), int))._replace(last=x0 if follows else None, known=known if follows else None)
    rest = jnp.ones((), bool), fast, squares, others2
    if method == "chord":
        assert start is not None
        begun = _without_derivative(eqx.filter_closure_convert(start))()
        inverse = _inverse(begun.jacobian, fast)
        x, value = begun.at(x0, lambda x: full(x)[0])
        first = first._replace(x=x).moved(-inverse(value), squares)
        s = _iterate(lambda x: by(inverse, x), first, tol, max_steps - 1, *rest)
    elif method == "newton":
        newton = lambda x: by(_inverse(jax.jacfwd(lambda x: full(x)[0])(x), fast), x)
        s = _iterate(newton, first, tol, max_steps, *rest)
    else:
        s = _iterate(lambda x: by(lambda y: y, x), first, tol, max_steps, *rest)
    if not fast:
        s = _otherwise(fixed, x0, s, tol, fallbacks, squares)
    if known is not None and not follows:
        s = s._replace(last=jnp.zeros_like(x0), known=full(s.x)[1])
    x, last, known = checkpoint_name((s.x, s.last, s.known), ROOT)
    return Root(implicit(f, x, dense, fast), Info(s.iterations, s.error(), s.done), last, known)


def _without_derivative(f: Callable) -> Callable:
    """The same function, of numbers that do not depend on anything."""
    numbers, rest = eqx.partition(f, eqx.is_array)
    return eqx.combine(jax.lax.stop_gradient(numbers), rest)


@eqx.filter_custom_jvp
def implicit(f: Callable, x: Vector, dense: bool, fast: bool) -> Vector:
    """The root x of f(x, 1), to which belongs the derivative of the implicit function theorem, Dx = −(∂f/∂x)⁻¹ Df."""
    return x


@implicit.def_jvp
def _implicit_jvp(primals, tangents):
    (f, x, dense, fast), (df, *_) = primals, tangents
    one = jnp.ones(())
    _, rhs = eqx.filter_jvp(lambda f: f(x, one)[0], (f,), (df,))
    root = implicit(f, x, dense, fast)

    def along(x: Vector) -> Vector:
        return f(x, one)[0]

    if dense:
        return root, -_inverse(jax.jacfwd(along)(root), fast)(rhs)
    _, linear = jax.linearize(along, root)

    def by_gmres(matvec: Callable[[Vector], Vector], b: Vector) -> Vector:
        return jax.scipy.sparse.linalg.gmres(matvec, b, tol=1e-14, restart=20, maxiter=20, solve_method="batched")[0]

    # JAX's own rule for gmres has no transpose: its tolerance is made from b outside of it.
    return root, -jax.lax.custom_linear_solve(linear, rhs, by_gmres, by_gmres)


def _inverse(J: Float[Array, "n n"], fast: bool) -> Callable[[Vector], Vector]:
    """x ↦ J⁻¹ x: by LAPACK, or, if `fast`, by a product with the inverse, found by elimination written out.

    Of order 3 that is by cofactors, which wait for one quotient, not for three. There is no pivoting: J is the identity
    for a small step, and where it is far from that the iteration does not converge and the step is solved otherwise.
    """
    if not fast:
        factor = jax.scipy.linalg.lu_factor(J)
        return lambda x: jax.scipy.linalg.lu_solve(factor, x)
    n = J.shape[0]
    if n == 3:
        u, v, w = J
        columns = [cross(v, w), cross(w, u), cross(u, v)]
        a = jnp.stack(columns, axis=1) * (1.0 / (u @ columns[0]))
        return lambda x: a @ x
    one = np.eye(n, dtype=bool)
    a = J
    for k in range(n):
        pivot = 1.0 / a[k, k]
        row = pivot * a[k]
        column = a[:, k]
        rest = jnp.where(one[k], -column[:, None] * pivot, a - column[:, None] * row)
        a = jnp.where(one[k][:, None], jnp.where(one[k], pivot, row), rest)
    return lambda x: a @ x


def _otherwise(f: Callable, x0: Vector, s: _State, tol: float, fallbacks: bool, squares: Squares) -> _State:
    """What is done where the iteration has failed: homotopy, then the least bad that is left."""
    failed = ~s.done
    if fallbacks:
        far = _homotopy(f, jnp.zeros_like(x0), s.iterations, tol, failed)
        s = _select(s.done, s._replace(last=None, known=None), far)._replace(last=s.last, known=s.known)
    return _least_bad(lambda x: f(x, jnp.ones(())), x0, s, failed if s.known is not None else ~s.done, squares)


def _homotopy(
    f: Callable[[Vector, Float[Array, ""]], tuple[Vector, PyTree]],
    x0: Vector,
    iterations: Array,
    tol: float,
    active: Array,
) -> _State:
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

        trial = _iterate(correction, _fresh(guess, s.iterations), jnp.where(last, tol, 1e-6), 10, active)
        away = trial.x - guess
        ok = trial.done & (away @ away <= (straight * length) ** 2) & (last | (trial.x[n] < 1.0))
        kept = trial._replace(x=jnp.where(ok, trial.x, s.x), done=ok & last)
        return kept, jnp.where(ok, t, state[1]), jnp.where(ok, 2.0 * length, 0.5 * length), trials + 1

    start = _fresh(jnp.append(x0, 0.0), iterations)
    s, *_ = jax.lax.while_loop(going, body, (start, along, jnp.ones(()), jnp.zeros((), int)))
    return s._replace(x=s.x[:n])


def _least_bad(
    f: Callable[[Vector], tuple[Vector, PyTree]],
    x0: Vector,
    s: _State,
    active: Array,
    squares: Squares,
) -> _State:
    """What an unsolved step is left with: its last x, or one explicit step, whichever solves f = 0 better.

    An iteration that has lost its way may be anywhere, and the action of a huge σ costs the Casimirs their digits.
    """

    def body(state):
        s, _ = state
        explicit = x0 - f(x0)[0]
        (last, known), (other, instead) = f(s.x), f(explicit)
        last2, explicit2 = _largest(squares(last)), _largest(squares(other))
        keep = s.done | (last2 <= explicit2)
        x = jnp.where(keep, s.x, explicit)
        rest2 = jnp.where(keep, last2, explicit2)
        bad = s._replace(size2=_largest(squares(x)), step2=rest2, before2=jnp.zeros(()))
        s = _select(s.done, s, bad)._replace(x=x)
        if s.known is not None:
            s = s._replace(last=jnp.zeros_like(x), known=_select(keep, known, instead))
        return s, jnp.zeros((), bool)

    return jax.lax.while_loop(lambda state: state[1], body, (s, active))[0]
