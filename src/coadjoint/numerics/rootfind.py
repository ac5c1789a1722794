"""Root finding for implicit steps: chord, Newton and fixed-point iterations with fallbacks, differentiable.

Every iteration is a `while_loop` that starts only if there is work left, so that under `vmap` a fallback nobody needs
costs nothing and a member that has converged is frozen while its neighbours go on.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

Vector = Float[Array, " n"]

_MARGIN = 1e-3  # what is foreseen must be this much below tol: it has a sign, and adds up over steps in the energy
_FAST = 0.0625  # the squared rate ¼, below which the next correction can be foreseen
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
    size2: Float[Array, ""]  # |x|²
    step2: Float[Array, ""]  # |last correction|²
    before2: Float[Array, ""]  # |the one before|², or 0
    iterations: Int[Array, ""]
    done: Bool[Array, ""]  # converged
    lost: Bool[Array, ""]  # diverging: stop iterating

    def error(self) -> Float[Array, ""]:
        """What is left to correct, scaled by x: the last correction times the rate at which corrections fall."""
        fast = self.step2 < _FAST * self.before2
        left2 = jnp.where(fast, self.step2 * self.step2, self.step2)
        scale2 = jnp.where(fast, self.before2 * self.size2, self.size2)
        return jnp.where(self.step2 > 0, jnp.sqrt(left2 / jnp.where(scale2 > 0, scale2, 1.0)), 0.0)


def explicit_info(x: Array) -> Info:
    """The report of a step with nothing to solve: it fails only if the result is not finite."""
    ok = jnp.all(jnp.isfinite(x))
    return Info(jnp.zeros((), int), jnp.zeros(()), ok)


def _iterate(
    correction: Callable[[Vector], Vector],
    start: _State,
    tol: float | Array,
    max_steps: int,
    active: Bool[Array, ""],
    in_lanes: bool = False,
) -> _State:
    """x ← x + correction(x) until what is left to correct, scaled by x, is below tol, or no longer falls at round-off.

    What is left after a correction δ is at most δ, and about ρδ when corrections fall fast, at the rate ρ < ¼
    (Hairer and Wanner, Solving ODEs II, IV.8). Where a correction is not finite, x stays what it was; not so in lanes,
    where x would then have to wait for its norm, and nothing becomes of such a step anyway.
    """
    limit = start.iterations + max_steps

    def going(s: _State) -> Array:
        return active & ~s.done & ~s.lost & (s.iterations < limit)

    def body(s: _State) -> _State:
        step = correction(s.x)
        x = s.x + step
        size2, step2, before2 = x @ x, step @ step, s.step2
        small = step2 <= tol**2 * size2
        foreseen = (step2 < _FAST * before2) & (step2 * step2 <= (_MARGIN * tol) ** 2 * size2 * before2)
        stalled = (step2 <= _STALLED**2 * size2) & (step2 >= before2)
        finite = jnp.isfinite(step2)
        lost = ~finite | ((step2 > 16.0 * before2) & (s.iterations > start.iterations + 3))
        if not in_lanes:
            x = jnp.where(finite, x, s.x)
        step2 = jnp.where(finite, step2, jnp.inf)
        return _State(x, size2, step2, before2, s.iterations + 1, finite & (small | foreseen | stalled), lost)

    return jax.lax.while_loop(going, body, start)


def _fresh(x: Vector, iterations: Int[Array, ""]) -> _State:
    zero, false = jnp.zeros(()), jnp.zeros((), bool)
    return _State(x, zero, zero, zero, iterations, false, false)


def _select(flag: Array, a: _State, b: _State) -> _State:
    return jax.tree.map(lambda u, v: jnp.where(flag, u, v), a, b)


def solve_root(
    f: Callable[[Vector, Float[Array, ""]], Vector],
    x0: Vector,
    *,
    method: str,
    jacobian0: Callable[[], Float[Array, "n n"]] | None,
    tol: float,
    max_steps: int,
    fallbacks: bool,
    dense: bool,
    in_lanes: bool,
) -> tuple[Vector, Info]:
    """The root of f(x, 1) that continues from f(0, 0) = 0, with the derivative of the implicit function theorem.

    `f(x, λ)` is the step's equation with time step and increments scaled by λ. Methods:

    - "chord": x ← x − J₀⁻¹ f(x), with the frozen J₀ = `jacobian0()`;
    - "newton": x ← x − Df(x)⁻¹ f(x);
    - "fixed_point": x ← x − f(x), for f of the form x − g(x).

    When that fails and `fallbacks` is set, the root is followed from λ = 0 to λ = 1. `dense` says whether a Jacobian
    may be formed; if not, derivatives are solved for by GMRES. `in_lanes` says that the program will be evaluated lane
    by lane.
    """

    def full(x: Vector) -> Vector:
        return f(x, jnp.ones(()))

    def solve(_: Any, x0: Vector) -> tuple[Vector, tuple[Array, Array, Array]]:
        true = jnp.ones((), bool)
        start = _fresh(x0, jnp.zeros((), int))
        if method == "chord":
            assert jacobian0 is not None
            apply_inverse = _inverse(jacobian0(), in_lanes)
            first = -apply_inverse(full(x0))
            start = start._replace(x=x0 + first, step2=first @ first, iterations=start.iterations + 1)
            s = _iterate(lambda x: -apply_inverse(full(x)), start, tol, max_steps - 1, true, in_lanes)
        elif method == "newton":
            newton = lambda x: -_inverse(jax.jacfwd(full)(x), in_lanes)(full(x))
            s = _iterate(newton, start, tol, max_steps, true, in_lanes)
        else:
            s = _iterate(lambda x: -full(x), start, tol, max_steps, true, in_lanes)
        if fallbacks:
            far = _homotopy(f, jnp.zeros_like(x0), s.iterations, tol, ~s.done)
            s = _select(s.done, s, far)
        if not in_lanes:
            s = _least_bad(full, x0, s)
        return s.x, (s.iterations.astype(float), s.error(), s.done.astype(float))  # `custom_root` wants floats

    def tangent_solve(g: Callable[[Vector], Vector], y: Vector) -> Vector:
        if dense:
            return jnp.linalg.solve(jax.jacfwd(g)(y), y)
        return jax.scipy.sparse.linalg.gmres(g, y, tol=1e-14, restart=20, maxiter=20, solve_method="batched")[0]

    x, (iterations, residual, converged) = jax.lax.custom_root(full, x0, solve, tangent_solve, has_aux=True)
    return x, jax.lax.stop_gradient(Info(iterations.astype(int), residual, converged > 0))


def _inverse(J: Float[Array, "n n"], in_lanes: bool) -> Callable[[Vector], Vector]:
    """x ↦ J⁻¹ x: by LAPACK, or, in lanes, by a product with the inverse, found by elimination written out.

    The latter does not pivot: J is the identity for a small step, and where it is far from that the iteration does
    not converge and the step is solved otherwise.
    """
    if not in_lanes:
        factor = jax.scipy.linalg.lu_factor(J)
        return lambda x: jax.scipy.linalg.lu_solve(factor, x)
    n = J.shape[0]
    a = [[J[i, j] for j in range(n)] for i in range(n)]
    for k in range(n):
        pivot = 1.0 / a[k][k]
        a[k] = [pivot if j == k else pivot * a[k][j] for j in range(n)]
        for i in range(n):
            if i != k:
                factor = a[i][k]
                a[i] = [-factor * pivot if j == k else a[i][j] - factor * a[k][j] for j in range(n)]
    inverse = jnp.stack([jnp.stack(row) for row in a])
    return lambda x: inverse @ x


def _homotopy(
    f: Callable[[Vector, Float[Array, ""]], Vector], x0: Vector, iterations: Array, tol: float, active: Array
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
        return f(y[:n], y[n])

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

        def correction(y: Vector) -> Vector:
            return -bordered(y, row, jnp.append(curve(y), row @ (y - guess)))

        trial = _iterate(correction, _fresh(guess, s.iterations), jnp.where(last, tol, 1e-6), 10, active)
        away = trial.x - guess
        ok = trial.done & (away @ away <= (straight * length) ** 2) & (last | (trial.x[n] < 1.0))
        kept = trial._replace(x=jnp.where(ok, trial.x, s.x), done=ok & last)
        return kept, jnp.where(ok, t, state[1]), jnp.where(ok, 2.0 * length, 0.5 * length), trials + 1

    start = _fresh(jnp.append(x0, 0.0), iterations)
    s, *_ = jax.lax.while_loop(going, body, (start, along, jnp.ones(()), jnp.zeros((), int)))
    return s._replace(x=s.x[:n])


def _least_bad(f: Callable[[Vector], Vector], x0: Vector, s: _State) -> _State:
    """What an unsolved step is left with: its last x, or one explicit step x₀ − f(x₀), whichever solves f = 0 better.

    An iteration that has lost its way may be anywhere, and the action of a huge σ costs the Casimirs their digits.
    """

    def body(state):
        s, _ = state
        explicit = x0 - f(x0)
        last2, explicit2 = (r @ r for r in (f(s.x), f(explicit)))
        keep = last2 <= explicit2
        x = jnp.where(keep, s.x, explicit)
        rest2 = jnp.where(keep, last2, explicit2)
        return s._replace(x=x, size2=x @ x, step2=rest2, before2=jnp.zeros(())), jnp.zeros((), bool)

    return jax.lax.while_loop(lambda state: state[1], body, (s, ~s.done))[0]
