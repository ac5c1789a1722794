"""The implicit step of skew-Hermitian matrices by products alone: no eigenvalues, no inverse, no U is ever formed.

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

Where a = tanh S, the first evaluation has it to a few digits, the others in double precision. a is skew-Hermitian to
the last bit, so cay(2a) is unitary, and what the spectrum of W can lose in a step is r times
the relative error of its correction: steps go on until that is round-off, however large the tolerance on σ. The
iteration on S contracts like dt ‖DP‖, which for fluids gains two derivatives, whatever the noise.

Reference: the isospectral midpoint is that of Modin and Viviani (2020); the iteration is iterative refinement.
"""  # fmt: skip

from collections.abc import Callable
from math import pi
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Complex, Float, Int

from ..numerics import spread
from ..numerics.narrow import roughly
from ..numerics.pairs import (
    F32,
    F64,
    Level,
    Pair,
    dagger,
    made_skew,
    norm,
    on_gpu,
    pair,
    product,
    skew,
    symmetric_product,
    unpair,
)
from .past import Past, Start, extrapolated, remembered

_ROUND_OFF = 2e-16
_INNER = 6  # times that what δ calls for is followed in turn …
_LEFT = 0.8  # … until so much of the tolerance is left
_NEXT = 0.004  # of the tolerance: a larger δ is followed where the next steps start from this one, and would inherit it
_RATE = 0.1  # no smaller one is relied on where no evaluation follows: that of a δ says little of the next
# On a CPU, and on a GPU:
_DIGITS = {False: 1e-7, True: 2e-5}  # relative errors of what products correct …
_FOLLOWED = {False: 2e-9, True: 1e-10}  # … and δ, over ‖S‖, up to which it is followed without another evaluation
# x coth x = 1 + Σ c_k x²ᵏ, c_k = −2 ζ(2k) (−1)ᵏ/π²ᵏ.
_ZETA = (sum(j ** (-2 * k) for j in range(1, 99)) for k in range(3, 14))
_COTH = (1 / 3, -1 / 45, *(-2 * (-1) ** k * zeta / pi ** (2 * k) for k, zeta in enumerate(_ZETA, 3)))


class Rule(NamedTuple):
    """Which of the schemes it is, and how exactly it is solved."""

    mean: bool  # trapezoidal: the mean of two ends; else midpoint
    exp: bool  # τ = exp; else Cayley
    tol: float  # on σ, relative
    most: int  # evaluations in double precision


class Solved(NamedTuple):
    """The new state, S, and how it was found."""

    change: Complex[Array, "n n"]  # W_{n+1} − W
    S: Complex[Array, "n n"]
    iterations: Int[Array, ""]  # evaluations in double precision
    residual: Float[Array, ""]  # what is left to correct of σ, and of the conjugation, each relative
    converged: Bool[Array, ""]
    past: Past | None


class _At(NamedTuple):
    """Where the iteration stands, what an evaluation there gave, and whether it goes on from there."""

    S: Pair
    a: Pair | None  # if it is not S
    D: Pair
    E: Pair
    stale: Bool[Array, ""]  # whether a is tanh S to a few digits only
    reach: Float[Array, ""]  # what the series of a leaves out, relative
    t: Pair
    d: Pair  # what D moves by for this a …
    u: Pair  # … and [a, D]
    delta: Pair
    r: Float[Array, ""]  # ‖r‖
    rate: Float[Array, ""]  # at which δ fell when it was followed
    k: Int[Array, ""]
    going: Bool[Array, ""]


Field = Callable[[Complex[Array, "n n"]], Complex[Array, "n n"]]


class _Step:
    """One step of a rule from W, for a field ½ζ without its constant part N."""

    def __init__(self, rule: Rule, W: Complex[Array, "n n"], field: Field, N: Complex[Array, "n n"] | None):
        self.rule, self.n, self.field, self.matrix = rule, W.shape[-1], field, W
        self.ends, self.path = rule.mean or rule.exp, rule.exp and not rule.mean  # M̄ is wanted; it leads to M
        self.W = pair(W)
        self.w = self.W.astype(F32)
        self.N = None if N is None else pair(N)
        self.size = norm(self.W)

    def half_zeta(self, X: Pair) -> Pair:
        """½ζ(X), in double precision."""
        S = pair(self.field(self.matrix + unpair(X.astype(F64), self.n)))
        return S if self.N is None else S + self.N

    def rough_half_zeta(self, X: Pair | None) -> Pair:
        """½ζ(W + X), in single precision."""
        w = unpair(self.w if X is None else self.w + X, self.n)
        S = pair(roughly(self.field, w))
        return (S if self.N is None else S + self.N).astype(F32)

    def linear(self, dX: Pair) -> Pair:
        """What ½ζ moves by when its argument moves by dX, to first order."""
        along = unpair(dX, self.n)
        return pair(roughly(lambda x: jax.jvp(self.field, (self.matrix,), (x,))[1], along)).astype(F32)

    def follow(self, delta: Pair, a: Pair, X: Pair, ends: Pair, E: Pair, fine: bool) -> tuple[Pair, Pair, Pair]:
        """δX, and what D and M move by when S moves by δ; X is W + D, `ends` is M̄."""
        y = product(delta, X, Level.FINE if fine else Level.LEAST)
        G = y + product(E, y, Level.LOW if fine else Level.LEAST)
        dD = skew(G)
        dM = dD - skew(product(G, a, Level.LEAST)) if self.ends else dD
        if self.path:  # less a third of [δ, M̄] + [S, dM̄], to second order in S
            dM = dM - skew(product(delta, ends, Level.LEAST) + product(a, skew(y), Level.LEAST)) / 3
        return y, dD, dM

    def mean_state(self, S: Pair, M: Pair) -> tuple[Pair, Float[Array, ""]]:
        """M of the path from M̄, and about how far it is off, relative to W: the term left out, digits of the others."""
        s, tol = S.astype(F32), 0.01 * self.rule.tol * self.size
        twice = lambda S, z, level: skew(product(S, skew(product(S, z, level)), level))
        x1 = skew(product(S, M, Level.DOUBLE))
        ratio = (norm(x1) / jnp.maximum(norm(M), 1e-300)) ** 2  # of x³M̄ to xM̄, and so on
        exact = lambda x: twice(S, x, Level.DOUBLE)
        rough = lambda x: twice(s, x.astype(F32), Level.FINE).astype(F64)
        x3 = lax.cond(-_COTH[1] * ratio * norm(x1) * _DIGITS[on_gpu()] > tol, exact, rough, x1)
        c = jnp.asarray(_COTH)

        def going(state: tuple) -> Bool[Array, ""]:
            k, _, _, size, ratio = state
            return (jnp.abs(c[k]) * size * ratio > tol) & (k < len(_COTH) - 1)

        def further(state: tuple) -> tuple:
            k, x, total, size, _ = state
            x = twice(s, x, Level.FINE)
            after = norm(x)
            return k + 1, x, total - c[k].astype(F32) * x, after, after / jnp.maximum(size, 1e-300)

        size, ratio = norm(x3), norm(x3) / jnp.maximum(norm(x1), 1e-300)
        digits = _DIGITS[on_gpu()] * _COTH[2] * size * ratio
        first = jnp.asarray(2), x3.astype(F32), jnp.zeros_like(s), size, ratio
        k, _, rest, size, ratio = lax.while_loop(going, further, first)
        left = (jnp.abs(c[k]) * size * ratio + digits) / jnp.where(self.size > 0, self.size, 1.0)
        return M - _COTH[0] * x1 - _COTH[1] * x3 + rest.astype(F64), left

    def start(self, guess: Pair | None) -> tuple[_At, Float[Array, ""]]:
        """S, D and E to a few digits; how many digits corrections will have."""
        exp, w = self.rule.exp, self.w
        if guess is None:  # D is [S, W] to first order
            s = self.rough_half_zeta(None)
            s = s + self.linear(skew(product(s, w, Level.LEAST)))
        else:
            s = guess.astype(F32)
        E, digits, reach = one_less(s, exp)
        F = product(E, w, Level.FINE)
        FE = symmetric_product(F, dagger(E), Level.LOW)
        D = skew(F) + FE
        M = ends = D + FE if self.ends else D
        if self.path:
            M = M - skew(product(s, ends, Level.LEAST)) / 3
        delta = self.rough_half_zeta(M) - s
        _, dD, dM = self.follow(delta, s, w + D, ends, E, False)
        moved_E = E + delta
        if guess is None:  # δ is not so small that what is of second order in s and δ could be left out
            z = product(s, delta, Level.LEAST)
            moved_E = moved_E + z + dagger(z)
        else:
            digits = digits + reach * norm(delta)
        more = self.linear(dM)
        S = made_skew((s + delta + more).astype(F64))
        rate = norm(more) / jnp.maximum(norm(delta), 1e-300)
        a = rough_tanh(S) if exp else S
        return self._at(S, a, (D + dD).astype(F64), moved_E, jnp.asarray(exp), jnp.zeros(()), rate), digits

    def go_on(self, start: Start) -> tuple[_At, Float[Array, ""]]:
        """The same from what earlier steps predict; E by a step of Newton's, X ← X + X(1 − (1 − a)X)."""
        S = made_skew(start.S)
        a, reach = tanh(S) if self.rule.exp else (S, jnp.zeros(()))
        R = a.astype(F32) - start.E + product(a, start.E, Level.FINE)
        E = start.E + R + product(start.E, R, Level.LEAST)
        digits = norm(R) ** 2 + _DIGITS[on_gpu()]
        return self._at(S, a, start.D, E, jnp.zeros((), bool), reach, start.rate), digits

    def _at(self, S: Pair, a: Pair, D: Pair, E: Pair, stale: Array, reach: Array, rate: Array) -> _At:
        """Before the first evaluation."""
        t, small = jnp.zeros_like(S), jnp.zeros_like(E)
        counts = jnp.zeros(()), rate, jnp.zeros((), int), jnp.ones((), bool)
        return _At(S, a if self.rule.exp else None, D, E, stale, reach, t, small, small, small, *counts)

    def evaluate(self, at: _At, tol: Float[Array, ""], defect: Float[Array, ""]) -> _At:
        """The defects of both equations in double precision; then, unless these are small, on to the next place."""
        b = at.S if at.a is None else at.a
        t = product(b, self.W + at.D, Level.DOUBLE)
        q = symmetric_product(t, b, Level.DOUBLE)
        r = (skew(t) + q - at.D).astype(F32)
        g = product(at.E, r, Level.FINE)
        f = symmetric_product(g, dagger(at.E), Level.LOW)
        d = r + skew(g) + f
        reach = at.reach
        M = at.D - q + (d + f) if self.ends else at.D + d
        if self.path:
            M, left = self.mean_state(at.S, M)
            reach = jnp.maximum(reach, left)
        delta = (self.half_zeta(M) - at.S).astype(F32)
        size, k = norm(r), at.k + 1
        within = tol / jnp.maximum(at.rate, _RATE) ** _INNER  # what can be followed to the tolerance
        enough = jnp.clip(within, tol, jnp.maximum(tol, _FOLLOWED[on_gpu()] / self.rule.tol * tol))
        going = ((norm(delta) > enough) | (size > defect) | at.stale) & (k < self.rule.most)
        at = at._replace(t=t, d=d, u=d + f - r, reach=reach, delta=delta, r=size, k=k, going=going)
        return lax.cond(going, lambda at: self.next(at, tol), lambda at: at, at)

    def followed(self, at: _At, move: Pair, tol: Float[Array, ""], last: bool) -> tuple[Pair, Pair, Pair, Array, Array]:
        """What S must move by when a moves by `move`, and so on until that is below the tolerance: all of it.

        Also what a then moved by times W + D, what D moves by, what is left to move, and the rate at which that fell.
        """
        b, X, ends = at.S if at.a is None else at.a, (self.W + at.D).astype(F32), skew(at.t).astype(F32)
        size = norm(move)
        enough = jnp.maximum(_LEFT * tol, _DIGITS[on_gpu()] * at.rate * size)

        def further(state: tuple) -> tuple:
            more, total, y, dD, size, _, k = state
            dy, moved, dM = self.follow(more, b, X, ends, at.E, True)
            more = self.linear(dM)
            after = norm(more)
            return more, total + more, y + dy, dD + moved, after, after / jnp.maximum(size, 1e-300), k + 1

        least = _RATE if last else 0.0
        left = lambda size, rate: size * jnp.maximum(rate, least)
        going = lambda state: (left(*state[4:6]) > enough) & (state[6] < _INNER)
        none = jnp.zeros_like(move)
        first = move, none, none, none, size, at.rate, jnp.zeros((), int)
        more, total, y, dD, size, rate, _ = lax.while_loop(going, further, first)
        dy, moved, _ = self.follow(more, b, X, ends, at.E, last)
        return total, y + dy, dD + moved, left(size, rate), rate

    def next(self, at: _At, tol: Float[Array, ""]) -> _At:
        """Where corrections lead."""
        S, a, reach, move = at.S + at.delta, at.a, at.reach, at.delta
        if at.a is not None:
            near = lambda a: (a + tanh_derivative(at.S, at.delta, Level.LOW), at.reach)
            a, reach = lax.cond(at.stale, lambda _: tanh(S), near, at.a)
            move = (a - at.a).astype(F32)
        more, _, dD, _, rate = self.followed(at, move, tol, False)
        S = made_skew(S + more)
        if a is not None:
            change = tanh_derivative(S, more, Level.LEAST)
            beyond = left_out(change, more) + jnp.where(at.stale, 0.0, left_out(move, at.delta))
            near = lambda a: (made_skew(a + change), reach)
            a, reach = lax.cond(beyond > 0.1 * tol, lambda _: tanh(S), near, a)
        stale = jnp.zeros((), bool)
        return at._replace(S=S, a=a, D=at.D + at.d + dD, E=at.E + move + more, stale=stale, reach=reach, rate=rate)

    def end(self, at: _At, tol: Float[Array, ""]) -> tuple[_At, Float[Array, ""]]:
        """With δ followed to first order where it is above the tolerance; what is left of δ."""

        def followed(at: _At) -> tuple[_At, Float[Array, ""]]:
            b = at.S if at.a is None else at.a
            move = at.delta if at.a is None else tanh_derivative(at.S, at.delta, Level.LOW)
            more, y, dD, left, rate = self.followed(at, move, tol, True)
            u = at.u + made_skew(skew(y) + skew(product(b, dD, Level.LEAST)))
            return at._replace(delta=at.delta + more, d=at.d + dD, u=u, rate=rate), left

        return lax.cond(norm(at.delta) > tol, followed, lambda at: (at, norm(at.delta)), at)


def products_step(
    rule: Rule,
    W: Complex[Array, "n n"],
    field: Field,
    N: Complex[Array, "n n"] | None = None,
    past: Past | None = None,
    dt: Float[Array, ""] | None = None,
) -> Solved:
    """One step from W. `field(X)` + N = ½ζ(X), skew-Hermitian, N what does not depend on X; `past`: steps before."""
    step = _Step(rule, W, field, N)
    before = None
    if past is not None and dt is not None and spread.mesh() is None:  # on a mesh the loss of a process is heard late
        before = extrapolated(past, dt, step.size)
        guess = lambda at: lax.cond(at.known < 2, lambda: pair(field(W)), lambda: at.S)
        at, digits = lax.cond(before.near, step.go_on, lambda at: step.start(guess(at)), before)
    else:
        at, digits = step.start(None)
    scale = norm(at.S)
    tol = rule.tol * scale
    defect = step.size * jnp.maximum(_ROUND_OFF / digits, 10 * _ROUND_OFF)
    at = lax.while_loop(lambda at: at.going, lambda at: step.evaluate(at, tol, defect), at)
    at, left = step.end(at, tol if before is None else _NEXT * tol)
    change = skew(2.0 * at.t + at.u)  # u is skew-Hermitian but for rounding
    exact = (at.r <= defect) & ~at.stale & (at.reach <= max(rule.tol, 1e-13))
    of_spectrum = at.r * digits / jnp.where(step.size > 0, step.size, 1.0)
    residual = jnp.maximum(left / jnp.where(scale > 0, scale, 1.0), of_spectrum)
    converged = exact & (left <= tol) & jnp.isfinite(left)
    S = at.S + at.delta
    if past is not None and dt is not None and before is not None:
        past = remembered(past, before._replace(S=S, D=at.D + at.d, E=at.E, rate=at.rate), dt)
    return Solved(unpair(change, step.n), unpair(S, step.n), at.k, residual, converged, past)


def one_less(s: Pair, exp: bool) -> tuple[Pair, Float[Array, ""], Float[Array, ""]]:
    """E = (1 − a)⁻¹ − 1, its relative error, and about ‖s‖: s + s² + …, or for a = tanh s, (e^{2s} − 1)/2.

    To s⁷, but to s⁶ on a GPU, whose products are no more exact than that.
    """
    c = (1.0, 2 / 3, 1 / 3, 2 / 15, 2 / 45, 4 / 315) if exp else (1.0,) * 6
    B = symmetric_product(s, s, Level.LOW, 1)
    if on_gpu():
        C = product(c[1] * s + c[2] * B, B, Level.LEAST)
        F = product(c[3] / c[1] * C, B, Level.LEAST)  # for exp the last term half as large again as it is
        size = norm(C) / jnp.maximum(norm(B), 1e-300)
        return s + B + C + F, size**6 + _DIGITS[True], size
    B2 = symmetric_product(B, B, Level.LEAST, 1)
    B3 = symmetric_product(B2, B, Level.LEAST, 1)
    even = c[0] * B + c[2] * B2 + c[4] * B3
    odd = s + product(s, c[1] * B + c[3] * B2 + c[5] * B3, Level.LEAST)
    size = jnp.sqrt(norm(B3) / jnp.maximum(norm(B2), 1e-300))
    return odd + even, size**7 + _DIGITS[False], size


def tanh(S: Pair) -> tuple[Pair, Float[Array, ""]]:
    """tanh S = S + S H(S²) by its series to S¹³, and about how large the first term left out is, relative to S.

    S² and the leading products are in double precision; a term c_k S²ᵏ needs ever fewer digits.
    """
    c = -1 / 3, 2 / 15, -17 / 315, 62 / 2835, -1382 / 155925, 21844 / 6081075
    B = symmetric_product(S, S, Level.DOUBLE, 1)
    b = B.astype(F32)
    B2 = symmetric_product(b, b, Level.FINE, 1)
    B3 = symmetric_product(B2, b, Level.LOW, 1)
    tail = product(B3, c[4] * b + c[5] * B2, Level.LEAST)
    inner = c[1] * B + (c[2] * B2 + c[3] * B3 + tail).astype(F64)
    H = c[0] * B + symmetric_product(B, inner, Level.DOUBLE, 1, 1)
    rho = norm(B3) / jnp.maximum(norm(B2), 1e-300)
    return S + symmetric_product(S, H, Level.DOUBLE, -1, 1), 1.5e-3 * rho**7


def rough_tanh(S: Pair) -> Pair:
    """tanh S to about six digits, skew-Hermitian to the last bit: S − ⅓ S³ + 2/15 S⁵."""
    B = symmetric_product(S, S, Level.LOW, 1)
    H = 2 / 15 * symmetric_product(B, B, Level.LEAST, 1) - B / 3
    return S + symmetric_product(S, H, Level.LOW).astype(F64)


def left_out(change: Pair, delta: Pair) -> Float[Array, ""]:
    """A bound on what the derivative of tanh in the direction δ leaves out, that is S⁴ δ."""
    return norm(change - delta) ** 2 / jnp.maximum(norm(delta), 1e-300)


def tanh_derivative(S: Pair, delta: Pair, level: Level) -> Pair:
    """The derivative of tanh in the direction δ, to second order in S: δ − ⅓ (SSδ + SδS + δSS)."""
    z = product(S, delta, level)
    return delta - skew(skew(product(S, z, level)) + product(z, S, level)) / 6
