"""The implicit step of skew-Hermitian matrices, inversion-free: no eigenvalues, no inverse, no U is ever formed.

For W' = [P, W] + …, that is W_{n+1} = e^σ W e^{−σ} or cay(σ) W cay(σ)ᴴ, put S = σ/2 and a = S (Cayley) or tanh S (exp:
e^σ = cay(2 tanh(σ/2))). Both maps and both rules are one pair of equations for a and D:

    (1 − a)(W + D)(1 + a) = W,
    S = ½ ζ(W + M),   M = D (midpoint, Cayley)  or  M̄ = D − a(W + D)a = ½ (W_{n+1} − W) (trapezoidal),
    W_{n+1} = (1 + a)(W + D)(1 − a) = W + 2 [a, W + D] = cay(2a) W cay(2a)ᴴ.

The midpoint rule of exp takes the mean state of the step, m = φ₁(2x) W with x = ad_S. As x m = ½ (W_{n+1} − W) = M̄
and (x coth x) m = ½ (W_{n+1} + W) = W + M̄, it is W + M with

    M = M̄ − ⅓ x M̄ + 1/45 x³M̄ − 2/945 x⁵M̄ + …

The defect of the first equation at some (a, D) is r = t − tᴴ + q − D with t = a(W + D) and q = ta, in double
precision; t also gives the new state. All else are corrections, which are small and so may be less exact. With
X = (1 − a)⁻¹ = 1 + E, E = a + a² + … to a few digits, g = Er and f = gEᴴ,

    d = X r Xᴴ = r + g − gᴴ + f   (D moves by d for this a; M by d, or by d + f; [a, D] by g − gᴴ + 2f),
    δ = ½ ζ(W + M) − S            (S moves by δ; D then by G − Gᴴ, G = X δ (W + D); M as well, less G a − h.c.).

For a = tanh S, the first evaluation uses a to a few digits, all others in double precision. a is skew-Hermitian to
the last bit, so cay(2a) is unitary. In a step the spectrum of W loses ‖r‖ times the relative error of its correction
d. This error is that of E: whenever a changes, one step of Newton's method improves E and measures its error. A step
is accepted only if the loss is at most `_DRIFT`, far below round-off, because the losses of successive steps have one
sign and add up. This does not depend on the tolerance of σ. The iteration on S contracts like dt ‖DP‖, which for
fluids gains two derivatives, for any noise.

A state may be a stack of k matrices of one size, which ζ couples. They are solved together. The tolerance of σ is
relative to the largest S, the acceptance of the spectrum to each W.

Reference: the isospectral midpoint is that of Modin and Viviani (2020); the iteration is iterative refinement.
"""  # fmt: skip

from collections.abc import Callable
from math import pi
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Complex, Float, Int

from stepcompiler.jaxprs.mixed_precision import single_precision

from ..numerics import sharding
from ..numerics.split_complex import (
    DIGITS,
    F32,
    F64,
    Level,
    Pair,
    dagger,
    norm,
    on_gpu,
    pair,
    product,
    project_skew,
    skew,
    symmetric_product,
    unpair,
)
from .extrapolation import Prediction, StepHistory, append_step, extrapolate
from .su_n_series import approximate_tanh, inverse_minus_one, tanh, tanh_derivative, truncation_error

_ROUND_OFF = 2e-16
_DRIFT = 2e-18  # largest spectral error of the last correction, over ‖W‖
_INNER = 6  # times that what δ calls for is followed in turn …
_LEFT = 0.8  # … until so much of the tolerance is left
_NEXT = 0.004  # of the tolerance: a larger δ is followed where the next steps start from this one, and would inherit it
_SMOOTH = 1000  # size from which ζ moves so little in a step that a start leaves out what is of first order in that
_RATE = 0.1  # no smaller one is relied on where no evaluation follows: that of a δ says little of the next
# On a CPU, and on a GPU:
_FOLLOWED = {False: 2e-9, True: 1e-10}  # δ, over ‖S‖, up to which it is followed without another evaluation
# x coth x = 1 + Σ c_k x²ᵏ, c_k = −2 ζ(2k) (−1)ᵏ/π²ᵏ.
_ZETA = (sum(j ** (-2 * k) for j in range(1, 99)) for k in range(3, 14))
_COTH = (1 / 3, -1 / 45, *(-2 * (-1) ** k * zeta / pi ** (2 * k) for k, zeta in enumerate(_ZETA, 3)))


class Rule(NamedTuple):
    """Which of the schemes it is, and how exactly it is solved."""

    mean: bool  # trapezoidal: the mean of two ends; else midpoint
    exp: bool  # τ = exp; else Cayley
    tol: float  # on σ, relative
    most: int  # evaluations in double precision


class StepResult(NamedTuple):
    """The new state, S, and how it was found."""

    change: Complex[Array, "*k n n"]  # W_{n+1} − W
    S: Complex[Array, "*k n n"]
    iterations: Int[Array, ""]  # evaluations in double precision
    residual: Float[Array, ""]  # what is left to correct of σ, and of the conjugation, each relative
    converged: Bool[Array, ""]
    history: StepHistory | None


class _Iterate(NamedTuple):
    """The state of the iteration."""

    S: Pair
    tanh: Pair | None  # of S, which is a, if that is not S
    D: Pair
    E: Pair
    error: Float[Array, "*k"]  # of E, relative to (1 − a)⁻¹
    stale: Bool[Array, ""]  # whether a is tanh S to a few digits only
    reach: Float[Array, ""]  # what the series of a leaves out, relative
    rate: Float[Array, ""]  # at which δ fell when it was followed
    k: Int[Array, ""]

    @property
    def a(self) -> Pair:
        """S or tanh S."""
        return self.S if self.tanh is None else self.tanh


class _Residuals(NamedTuple):
    """The results of an evaluation, and whether the iteration continues."""

    iterate: _Iterate
    t: Pair
    d: Pair  # what D moves by for this a …
    u: Pair  # … and [a, D]
    delta: Pair
    r: Float[Array, "*k"]  # ‖r‖
    going: Bool[Array, ""]


Field = Callable[[Complex[Array, "*k n n"]], Complex[Array, "*k n n"]]


def _largest(A: Pair) -> Float[Array, ""]:
    """The norm of a matrix, or the largest of a stack."""
    return jnp.max(norm(A))


class _Step:
    """One step of a rule from W, for a field ½ζ without its constant part N."""

    def __init__(self, rule: Rule, W: Complex[Array, "*k n n"], field: Field, N: Complex[Array, "*k n n"] | None):
        self.rule, self.n, self.field, self.matrix = rule, W.shape[-1], field, W
        self.ends, self.path = rule.mean or rule.exp, rule.exp and not rule.mean  # M̄ is wanted; it leads to M
        self.smooth = on_gpu() and self.n >= _SMOOTH
        self.W = pair(W)
        self.w = self.W.astype(F32)
        self.N = None if N is None else pair(N)
        self.size = norm(self.W)

    def half_zeta(self, X: Pair) -> Pair:
        """½ζ(X), in double precision."""
        S = pair(self.field(self.matrix + unpair(X.astype(F64), self.n)))
        return S if self.N is None else S + self.N

    def approximate_half_zeta(self, X: Pair | None) -> Pair:
        """½ζ(W + X), in single precision."""
        w = unpair(self.w if X is None else self.w + X, self.n)
        S = pair(single_precision(self.field, w))
        return (S if self.N is None else S + self.N).astype(F32)

    def linear(self, dX: Pair) -> Pair:
        """What ½ζ moves by when its argument moves by dX, to first order."""
        along = unpair(dX, self.n)
        return pair(single_precision(lambda x: jax.jvp(self.field, (self.matrix,), (x,))[1], along)).astype(F32)

    def state_response(self, delta: Pair, X: Pair, E: Pair, level: Level) -> tuple[Pair, Pair]:
        """δX and G when S moves by δ; X is W + D."""
        y = product(delta, X, level)
        return y, y + product(E, y, Level.LEAST if level is Level.LEAST else Level.LOW)

    def mean_response(self, delta: Pair, y: Pair, G: Pair, a: Pair, ends: Pair) -> Pair:
        """What M moves by; `ends` is M̄."""
        dM = skew(G - product(G, a, Level.LEAST)) if self.ends else skew(G)
        if self.path:  # less a third of [δ, M̄] + [S, dM̄], to second order in S
            dM = dM - skew(product(delta, ends, Level.LEAST) + product(a, skew(y), Level.LEAST)) / 3
        return dM

    def mean_state(self, S: Pair, M: Pair) -> tuple[Pair, Float[Array, ""]]:
        """M of the path from M̄, and about how far it is off, relative to W: the term left out, digits of the others."""
        s, tol = S.astype(F32), 0.01 * self.rule.tol * self.size
        twice = lambda S, z, level: skew(product(S, skew(product(S, z, level)), level))
        x1 = skew(product(S, M, Level.DOUBLE))
        ratio = (norm(x1) / jnp.maximum(norm(M), 1e-300)) ** 2  # of x³M̄ to xM̄, and so on
        exact = lambda x: twice(S, x, Level.DOUBLE)
        rough = lambda x: twice(s, x.astype(F32), Level.FINE).astype(F64)
        x3 = lax.cond(jnp.any(-_COTH[1] * ratio * norm(x1) * DIGITS[on_gpu()] > tol), exact, rough, x1)
        c = jnp.asarray(_COTH)

        def going(state: tuple) -> Bool[Array, ""]:
            k, _, _, size, ratio = state
            return jnp.any(jnp.abs(c[k]) * size * ratio > tol) & (k < len(_COTH) - 1)

        def further(state: tuple) -> tuple:
            k, x, total, size, _ = state
            x = twice(s, x, Level.FINE)
            after = norm(x)
            return k + 1, x, total - c[k].astype(F32) * x, after, after / jnp.maximum(size, 1e-300)

        size, ratio = norm(x3), norm(x3) / jnp.maximum(norm(x1), 1e-300)
        digits = DIGITS[on_gpu()] * _COTH[2] * size * ratio
        first = jnp.asarray(2), x3.astype(F32), jnp.zeros_like(s), size, ratio
        k, _, rest, size, ratio = lax.while_loop(going, further, first)
        left = (jnp.abs(c[k]) * size * ratio + digits) / jnp.where(self.size > 0, self.size, 1.0)
        return M - _COTH[0] * x1 - _COTH[1] * x3 + rest.astype(F64), jnp.max(left)

    def start(self, guess: Pair | None) -> _Iterate:
        """S, D and E to a few digits."""
        exp, w = self.rule.exp, self.w
        if guess is None:
            s = self.approximate_half_zeta(None)
            if not self.smooth:  # D is [S, W] to first order
                s = s + self.linear(skew(product(s, w, Level.LEAST)))
        else:
            s = guess.astype(F32)
        E, _, _ = inverse_minus_one(s, exp)
        F = product(E, w, Level.FINE)
        FE = symmetric_product(F, dagger(E), Level.LOW)
        D = skew(F) + FE
        M = ends = D + FE if self.ends else D
        if self.path:
            M = M - skew(product(s, ends, Level.LEAST)) / 3
        delta = self.approximate_half_zeta(M) - s
        y, G = self.state_response(delta, w + D, E, Level.LEAST)
        more = self.linear(self.mean_response(delta, y, G, s, ends))
        S = project_skew((s + delta + more).astype(F64))
        rate = _largest(more) / jnp.maximum(_largest(delta), 1e-300)
        a = approximate_tanh(S) if exp else S
        return self._first_iterate(
            S, a, (D + skew(G)).astype(F64), E + delta + more, jnp.asarray(exp), jnp.zeros(()), rate
        )

    def from_prediction(self, start: Prediction) -> _Iterate:
        """The same, predicted from earlier steps."""
        S = project_skew(start.S)
        a, reach = tanh(S) if self.rule.exp else (S, jnp.zeros(()))
        return self._first_iterate(S, a, start.D, start.E, jnp.zeros((), bool), reach, start.rate)

    def inverse(self, a: Pair, E: Pair) -> tuple[Pair, Float[Array, "*k"]]:
        """A better E, by a step of Newton's method, X ← X + X(1 − (1 − a)X), and its error relative to X."""
        R = a.astype(F32) - E + product(a, E, Level.FINE)
        return E + R + product(E, R, Level.LEAST), norm(R) ** 2 + DIGITS[on_gpu()]

    def _first_iterate(self, S: Pair, a: Pair, D: Pair, E: Pair, stale: Array, reach: Array, rate: Array) -> _Iterate:
        """Before the first evaluation."""
        E, error = self.inverse(a, E)
        return _Iterate(S, a if self.rule.exp else None, D, E, error, stale, reach, rate, jnp.zeros((), int))

    def unevaluated(self, iterate: _Iterate) -> _Residuals:
        """Return the state before the first evaluation."""
        t, small = jnp.zeros_like(iterate.S), jnp.zeros_like(iterate.E)
        return _Residuals(iterate, t, small, small, small, jnp.zeros_like(self.size), jnp.ones((), bool))

    def evaluate(self, iterate: _Iterate, tol: Float[Array, ""], level: Level) -> _Residuals:
        """The defects of both equations in double precision, and whether they are not small yet.

        `level` is that of Er: of the error of its products no more than ‖E‖ times is one of d.
        """
        t = product(iterate.a, self.W + iterate.D, Level.DOUBLE)
        q = symmetric_product(t, iterate.a, Level.DOUBLE)
        r = (skew(t) + q - iterate.D).astype(F32)
        g = product(iterate.E, r, level)
        f = symmetric_product(g, dagger(iterate.E), Level.LOW)
        d = r + skew(g) + f
        M = iterate.D - q + (d + f) if self.ends else iterate.D + d
        if self.path:
            M, left = self.mean_state(iterate.S, M)
            iterate = iterate._replace(reach=jnp.maximum(iterate.reach, left))
        delta = (self.half_zeta(M) - iterate.S).astype(F32)
        size, iterate = norm(r), iterate._replace(k=iterate.k + 1)
        within = tol / jnp.maximum(iterate.rate, _RATE) ** _INNER  # what can be followed to the tolerance
        enough = jnp.clip(within, tol, jnp.maximum(tol, _FOLLOWED[on_gpu()] / self.rule.tol * tol))
        going = ((_largest(delta) > enough) | ~self.on_orbit(size, iterate) | iterate.stale) & (
            iterate.k < self.rule.most
        )
        return _Residuals(iterate, t, d, d + f - r, delta, size, going)

    def on_orbit(self, r: Float[Array, "*k"], iterate: _Iterate) -> Bool[Array, ""]:
        """Whether the spectrum keeps its digits: the correction of r is wrong by less than round-off, or r is."""
        return jnp.all(r <= self.size * jnp.maximum(_DRIFT / iterate.error, 10 * _ROUND_OFF))

    def propagate(
        self, at: _Residuals, move: Pair, tol: Float[Array, ""], last: bool
    ) -> tuple[Pair, Pair, Pair, Array, Array]:
        """What S must move by when a moves by `move`, and so on until that is below the tolerance: all of it.

        Also what a then moved by times W + D, what D moves by, what is left to move, and the rate at which that fell.
        """
        iterate = at.iterate
        a, X, ends = iterate.a, (self.W + iterate.D).astype(F32), skew(at.t).astype(F32)
        size = _largest(move)
        enough = jnp.maximum(_LEFT * tol, DIGITS[on_gpu()] * iterate.rate * size)

        def further(state: tuple, level: Level) -> tuple:
            more, total, y, G, size, _, k = state
            dy, dG = self.state_response(more, X, iterate.E, level)
            more = self.linear(self.mean_response(more, dy, dG, a, ends))
            after = _largest(more)
            return more, total + more, y + dy, G + dG, after, after / jnp.maximum(size, 1e-300), k + 1

        least = _RATE if last else 0.0
        left = lambda size, rate: size * jnp.maximum(rate, least)
        going = lambda state: (left(*state[4:6]) > enough) & (state[6] < _INNER)
        none, level = jnp.zeros_like(move), Level.FINE
        state = move, none, none, none, size, iterate.rate, jnp.zeros((), int)
        if on_gpu() and not last:  # what comes after the first is smaller, and needs fewer digits
            state, level = further(state, level), Level.LOW
        more, total, y, G, size, rate, _ = lax.while_loop(going, lambda state: further(state, level), state)
        if last or on_gpu():  # a CPU corrects to more digits what D is then off by
            dy, dG = self.state_response(more, X, iterate.E, Level.FINE if last else Level.LEAST)
            y, G = y + dy, G + dG
        return total, y, skew(G), left(size, rate), rate

    def next(self, at: _Residuals, tol: Float[Array, ""]) -> _Iterate:
        """Where corrections lead."""
        iterate, move = at.iterate, at.delta
        S, a, reach = iterate.S + at.delta, iterate.tanh, iterate.reach
        if iterate.tanh is not None:
            near = lambda a: (a + tanh_derivative(iterate.S, at.delta, Level.LOW), reach)
            a, reach = lax.cond(iterate.stale, lambda _: tanh(S), near, iterate.tanh)
            move = (a - iterate.tanh).astype(F32)
        more, _, dD, _, rate = self.propagate(at, move, tol, False)
        S = project_skew(S + more)
        if a is not None:
            change = tanh_derivative(S, more, Level.LEAST)
            beyond = truncation_error(change, more) + jnp.where(iterate.stale, 0.0, truncation_error(move, at.delta))
            near = lambda a: (project_skew(a + change), reach)
            a, reach = lax.cond(beyond > 0.1 * tol, lambda _: tanh(S), near, a)
        E, error = self.inverse(S if a is None else a, iterate.E + move + more)
        return _Iterate(S, a, iterate.D + at.d + dD, E, error, jnp.zeros((), bool), reach, rate, iterate.k)

    def end(self, at: _Residuals, tol: Float[Array, ""]) -> tuple[_Residuals, Float[Array, ""]]:
        """With δ followed to first order where it is above the tolerance; what is left of δ."""

        def propagate(at: _Residuals) -> tuple[_Residuals, Float[Array, ""]]:
            iterate = at.iterate
            move = at.delta if iterate.tanh is None else tanh_derivative(iterate.S, at.delta, Level.LOW)
            more, y, dD, left, rate = self.propagate(at, move, tol, True)
            u = at.u + project_skew(skew(y) + skew(product(iterate.a, dD, Level.LEAST)))
            return at._replace(iterate=iterate._replace(rate=rate), delta=at.delta + more, d=at.d + dD, u=u), left

        return lax.cond(_largest(at.delta) > tol, propagate, lambda at: (at, _largest(at.delta)), at)


def products_step(
    rule: Rule,
    W: Complex[Array, "*k n n"],
    field: Field,
    N: Complex[Array, "*k n n"] | None = None,
    history: StepHistory | None = None,
    dt: Float[Array, ""] | None = None,
) -> StepResult:
    """One step from W. `field(X)` + N = ½ζ(X), skew-Hermitian, N what does not depend on X; `history`: steps before."""
    step = _Step(rule, W, field, N)
    before = None
    if (
        history is not None and dt is not None and sharding.mesh() is None
    ):  # on a mesh the loss of a process is heard late
        before = extrapolate(history, dt, step.size)
        guess = lambda at: lax.cond(at.known < 2, lambda: pair(field(W)), lambda: at.S)
        iterate = lax.cond(before.near, step.from_prediction, lambda at: step.start(guess(at)), before)
    else:
        iterate = step.start(None)
    scale = _largest(iterate.S)
    tol = rule.tol * scale
    again = Level.LOW if step.smooth else Level.FINE
    onward = lambda at: step.next(at, tol)
    if on_gpu():  # where branches, and room to be filled with zeros, cost more than a longer program
        at = step.evaluate(iterate, tol, Level.FINE)
    else:
        at, later = step.unevaluated(iterate), onward
        onward = lambda at: lax.cond(at.iterate.k == 0, lambda at: at.iterate, later, at)
    at = lax.while_loop(lambda at: at.going, lambda at: step.evaluate(onward(at), tol, again), at)
    at, left = step.end(at, tol if before is None else _NEXT * tol)
    iterate = at.iterate
    change = skew(2.0 * at.t + at.u)  # u is skew-Hermitian up to rounding
    exact = step.on_orbit(at.r, iterate) & ~iterate.stale & (iterate.reach <= max(rule.tol, 1e-13))
    of_spectrum = jnp.max(at.r * iterate.error / jnp.where(step.size > 0, step.size, 1.0))
    residual = jnp.maximum(left / jnp.where(scale > 0, scale, 1.0), of_spectrum)
    converged = exact & (left <= tol) & jnp.isfinite(left)
    S = iterate.S + at.delta
    if history is not None and dt is not None and before is not None:
        history = append_step(history, before._replace(S=S, D=iterate.D + at.d, E=iterate.E, rate=iterate.rate), dt)
    return StepResult(unpair(change, step.n), unpair(S, step.n), iterate.k, residual, converged, history)
