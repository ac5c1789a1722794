"""The iteration of an implicit step: corrections until the remaining error is below a tolerance, and its report.

Every iteration is a `while_loop` that starts only if needed. So under `vmap` an unused fallback costs nothing, and a
member that has converged is frozen while others iterate.

The size |x| of an unknown is its Euclidean norm; for a direct sum it is the largest norm of a part. Then the accuracy
of each part does not depend on the number of parts.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from stepcompiler.hints import unlikely

Vector = Float[Array, " n"]
SquaredSize = Callable[[Vector], Float[Array, "..."]]  # x ↦ |x|² of each part, or of all of x as one number
Squared = tuple[Float[Array, ""], Float[Array, ""]]  # two numbers; their quotient is the square of a scaled size
Correction = Callable[[Vector], tuple[Vector, PyTree]]  # x ↦ its correction, and further results at x

_MARGIN = 1e-3  # safety factor of predicted errors, whose signs are equal, so that they add up over steps in the energy
TINY = 1e-10  # a correction δ this small has δ² below round-off
_FAST = 0.0625  # the squared rate ¼, below which the next correction is predicted
_SMALL = 1 / 32  # beside x: a first correction that shows that x was near the root
_STALLED = 1e-11  # a residual this small (scaled) that no longer falls has met round-off


class SolveInfo(NamedTuple):
    """How an implicit step was solved.

    Parameters
    ----------
    iterations : int
        The number of iterations.
    residual : float
        The last correction, relative to the unknown.
    converged : bool
        Whether it meets the tolerance.
    substeps : int, default 1
        The number of parts of the step, if the method divides it.
    squares : tuple of float, optional
        Squares of the residual and its scale, for comparisons.
    """

    iterations: Int[Array, ""]
    residual: Float[Array, ""]
    converged: Bool[Array, ""]
    substeps: Int[Array, ""] | int = 1
    squares: Squared | None = None

    def worst(self, before: Float[Array, ""]) -> Float[Array, ""]:
        """The larger one of this residual and `before`, an earlier one. It avoids square roots."""
        if self.squares is None:
            return jnp.maximum(before, self.residual)
        left2, scale2 = self.squares
        return _raised(~(left2 <= before * before * scale2), before, left2, scale2)


@unlikely
def _raised(larger: Array, before: Array, left2: Array, scale2: Array) -> Array:
    return jnp.where(larger, jnp.maximum(before, _root_of_quotient(left2, scale2)), before)


def _root_of_quotient(left2: Array, scale2: Array) -> Array:
    """√(left²/scale²), and 0/0 is 0."""
    return jnp.sqrt(left2 / jnp.where(scale2 > 0, scale2, 1.0))


class IterationState(NamedTuple):
    """The state of an iteration. Sizes are squared: roots and quotients would cost as much as the step itself."""

    x: Vector
    size2: Float[Array, ""]  # |x|² before the last correction
    step2: Float[Array, ""]  # |last correction|²
    before2: Float[Array, ""]  # |the one before|², or 0
    iterations: Int[Array, ""]
    done: Bool[Array, ""]  # converged
    lost: Bool[Array, ""]  # diverging: stop iterating
    last: Vector | None = None  # the last correction, with …
    known: PyTree = None  # … and the further results at x − last

    def moved(self, step: Vector, squares: SquaredSize) -> "IterationState":
        """After a first correction."""
        return self._replace(x=self.x + step, step2=largest(squares(step)), iterations=self.iterations + 1)

    def needs_second_order(self, tol: float) -> Bool[Array, ""]:
        """Whether errors of the size |x|² |last correction|/6 are above the tolerance."""
        return self.step2 * self.size2 > (6.0 * _MARGIN * tol) ** 2

    def left(self) -> Squared:
        """The remaining error, scaled by x: the last correction times the rate at which corrections fall."""
        fast = self.step2 < _FAST * self.before2
        left2 = jnp.where(fast, self.step2 * self.step2, self.step2)
        return left2, jnp.where(fast, self.before2 * self.size2, self.size2)

    def info(self, left: Squared | None = None) -> SolveInfo:
        """Return the report for a remaining error."""
        left = self.left() if left is None else left
        return SolveInfo(self.iterations, _root_of_quotient(*left), self.done, squares=left)


def dot(x: Vector) -> Float[Array, ""]:
    """|x|², of all of x."""
    return x @ x


def largest(squares: Float[Array, "..."]) -> Float[Array, ""]:
    """|x|² of the largest part."""
    return jnp.max(squares) if squares.ndim else squares


def explicit_info(x: Array) -> SolveInfo:
    """Return the report of an explicit step: it fails only if the result is not finite."""
    ok = jnp.all(jnp.isfinite(x))
    return SolveInfo(jnp.zeros((), int), jnp.zeros(()), ok)


def iterate(
    correction: Correction,
    start: IterationState,
    tol: float | Array,
    max_steps: int,
    active: Bool[Array, ""],
    fast: bool = False,
    squares: SquaredSize = dot,
    extra_squared_norm: Float[Array, "..."] | float = 0.0,
    needs_second_order: bool = False,
) -> IterationState:
    """x ← x + correction(x) until the remaining error, scaled by x, is below tol, or stagnates at round-off.

    The error after a correction δ is at most δ, and about ρδ if corrections fall at a rate ρ < ¼ (Hairer and Wanner,
    Solving ODEs II, IV.8). If a correction is not finite, x is unchanged, except with `fast`, because such a step is
    discarded. If the equation returns further results, the last correction δ must be so small that they are valid at x
    to first order in δ and in |x| δ. The bound of the next term is |x|² δ/6, or |x|³ δ/24 with `needs_second_order`.
    `extra_squared_norm`: squares of numbers to include in the size of x.
    """
    limit = start.iterations + max_steps

    def going(s: IterationState) -> Array:
        return active & ~s.done & ~s.lost & (s.iterations < limit)

    def body(s: IterationState) -> IterationState:
        new, foreseen, fits = _corrected(correction, s, tol, squares, extra_squared_norm, needs_second_order)
        turns = s.iterations - start.iterations
        done, lost = unlikely(_ended_unforeseen)(~(foreseen & fits), (True, False), new, fits, turns, tol)
        if fast:
            return new._replace(done=done, lost=lost)
        finite = jnp.isfinite(new.step2)
        x, step2 = jnp.where(finite, new.x, s.x), jnp.where(finite, new.step2, jnp.inf)
        return new._replace(x=x, step2=step2, done=finite & done, lost=~finite | lost)

    return jax.lax.while_loop(going, body, start)


def iterate_near(
    correction: Correction,
    later: Callable[[], Correction],
    start: IterationState,
    tol: float | Array,
    max_steps: int,
    moderate: Callable[[], Bool[Array, ""]],
    squares: SquaredSize = dot,
    extra_squared_norm: Float[Array, "..."] | float = 0.0,
) -> tuple[IterationState, Squared]:
    """`iterate` after a first correction near the root: usually one more correction suffices. Return its error, too.

    Otherwise corrections continue as in `later()`. The start was near the root if the first correction was small
    relative to x, or if the change that led to the start was `moderate`.
    """
    s, foreseen, fits = _corrected(correction, start, tol, squares, extra_squared_norm, needs_second_order=True)
    small = s.before2 <= _SMALL**2 * s.size2

    @unlikely
    def rest(
        case: Array, otherwise: tuple[IterationState, Squared], small: Array, fits: Array
    ) -> tuple[IterationState, Squared]:
        s, _ = otherwise
        near = small | moderate()
        done, lost = _ended_unforeseen(case, (True, False), s, fits, 0, tol)
        s = s._replace(done=done & (near | ~case), lost=lost | (case & ~near))
        s = iterate(
            later(),
            s,
            tol,
            max_steps - 1,
            jnp.ones((), bool),
            True,
            squares,
            extra_squared_norm,
            needs_second_order=True,
        )
        return s, select(case, s.left(), otherwise[1])

    s = s._replace(done=jnp.ones((), bool))
    return rest(~(foreseen & fits & small), (s, (s.step2 * s.step2, s.size2 * s.before2)), small, fits)


def _corrected(
    correction: Correction,
    s: IterationState,
    tol: float | Array,
    squares: SquaredSize,
    extra_squared_norm: Float[Array, "..."] | float,
    needs_second_order: bool,
) -> tuple[IterationState, Bool[Array, ""], Bool[Array, ""]]:
    """Return the state after another correction, and whether the predicted error is below the tolerance."""
    step, known = correction(s.x)
    size2, step2 = (
        largest(squares(s.x) + extra_squared_norm),
        largest(squares(step)),
    )  # |x|² before: a flow has it at hand
    before2 = s.step2
    foreseen = step2 * step2 < (_MARGIN * tol) ** 2 * (size2 * before2)  # if corrections do not fall, it is small
    fits = jnp.ones((), bool)
    if known is not None:
        left2, n = (step2 * size2 * size2, 24.0) if needs_second_order else (step2 * size2, 6.0)
        foreseen = foreseen & (left2 <= (n * _MARGIN * tol) ** 2)
        fits = (step2 <= TINY**2) & (left2 <= tol**2)
    last = None if known is None else step
    return (
        IterationState(s.x + step, size2, step2, before2, s.iterations + 1, s.done, s.lost, last, known),
        foreseen,
        fits,
    )


def _ended_unforeseen(
    case: Array, otherwise: tuple, s: IterationState, fits: Array, turns: Array | int, tol: float | Array
) -> tuple[Array, Array]:
    """Whether an iteration ends without a prediction: it has converged or diverged."""
    small = s.step2 <= tol**2 * s.size2
    stalled = (s.step2 <= _STALLED**2 * s.size2) & (s.step2 >= s.before2)
    lost = ~(s.step2 <= 16.0 * s.before2) & (turns > 3)
    return jnp.where(case, (small | stalled) & fits, True), case & lost


def initial_state(x: Vector, iterations: Int[Array, ""]) -> IterationState:
    """Before a first correction, after so many iterations elsewhere."""
    zero, false = jnp.zeros(()), jnp.zeros((), bool)
    return IterationState(x, zero, zero, zero, iterations, false, false)


def select(flag: Array, a: PyTree, b: PyTree) -> PyTree:
    """Return a if the flag is set, else b."""
    return jax.tree.map(lambda u, v: jnp.where(flag, u, v), a, b)
