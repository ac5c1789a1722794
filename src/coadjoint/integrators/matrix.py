"""The implicit step of skew-Hermitian matrices by products alone: no eigenvalues, no inverse, no U is ever formed.

For W' = [P, W] + …, that is W_{n+1} = e^σ W e^{−σ} or cay(σ) W cay(σ)ᴴ, put S = σ/2 and a = S (Cayley) or tanh S (exp:
e^σ = cay(2 tanh(σ/2))). Both maps and both rules are one pair of equations for a and D:

    (1 − a)(W + D)(1 + a) = W,
    S = ½ ζ(W + M),   M = D (midpoint)  or  D − a(W + D)a = ½ (W_{n+1} − W) (trapezoidal),
    W_{n+1} = (1 + a)(W + D)(1 − a) = W + 2 [a, W + D] = cay(2a) W cay(2a)ᴴ.

The defect of the first equation at some (a, D) is r = t − tᴴ + q − D with t = a(W + D) and q = ta, in double
precision; t also gives the new state. All else are corrections, which are small and so may be less exact. With
X = (1 − a)⁻¹ = 1 + E, E = a + a² + … to a few digits, g = Er and f = gEᴴ,

    d = X r Xᴴ = r + g − gᴴ + f   (D moves by d for this a; M by d, or by d + f; [a, D] by g − gᴴ + 2f),
    δ = ½ ζ(W + M) − S            (S moves by δ; D then by G − Gᴴ, G = X δ (W + D); M as well, less G a − h.c.).

a is skew-Hermitian to the last bit, so cay(2a) is unitary, and what the spectrum of W can lose in a step is r times
the relative error of its correction: steps go on until that is round-off, however large the tolerance on σ. The
iteration on S contracts like dt ‖DP‖, which for fluids gains two derivatives, whatever the noise.

Reference: the isospectral midpoint is that of Modin and Viviani (2020); the iteration is iterative refinement.
"""  # fmt: skip

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Complex, Float, Int

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

_DEFECT = 1e-11  # of the conjugation, over ‖W‖: its last correction has at least five digits
_ROUND_OFF = 2e-16
_FOLLOWED = 100.0  # a δ up to so many tolerances is followed to first order, without another evaluation
_INNER = 6  # times that what δ calls for is followed in turn
_SINGLE = {False: 1e-6, True: 4e-4}  # relative errors of corrections to S, on a CPU and on a GPU …
_DIGITS = {False: 1e-6, True: 2e-5}  # … and of those to D
_PAST = 3  # steps from which S is extrapolated


class Rule(NamedTuple):
    """Which of the schemes it is, and how exactly it is solved."""

    mean: bool  # trapezoidal; else midpoint
    exp: bool  # τ = exp; else Cayley
    tol: float  # on σ, relative
    most: int  # evaluations in double precision


class Past(NamedTuple):
    """S/dt of the last steps of a path without noise, the latest first, and how many there are."""

    rates: Complex[Array, "3 n n"]
    known: Int[Array, ""]


class Solved(NamedTuple):
    """The new state, S, and how it was found."""

    change: Complex[Array, "n n"]  # W_{n+1} − W
    S: Complex[Array, "n n"]
    iterations: Int[Array, ""]  # evaluations in double precision
    residual: Float[Array, ""]  # what is left to correct of σ, and of the conjugation, each relative
    converged: Bool[Array, ""]


class _At(NamedTuple):
    """Where the iteration stands, what an evaluation there gave, and whether it goes on from there."""

    S: Pair
    a: Pair | None  # if it is not S
    D: Pair
    E: Pair
    stale: Bool[Array, ""]  # whether a must be computed anew
    reach: Float[Array, ""]  # what the series of a leaves out, relative
    t: Pair
    u: Pair  # what [a, D] moves by
    delta: Pair
    r: Float[Array, ""]  # ‖r‖
    rate: Float[Array, ""]  # at which δ fell when it was followed
    k: Int[Array, ""]
    going: Bool[Array, ""]


Field = Callable[[Complex[Array, "n n"]], Complex[Array, "n n"]]


def no_past(n: int) -> Past:
    """Before the first step."""
    return Past(jnp.zeros((_PAST, n, n), jnp.complex64), jnp.zeros((), int))


def extrapolated(past: Past, dt: Float[Array, ""]) -> Pair:
    """S of the next step, from those of the last ones: 3S₁ − 3S₂ + S₃."""
    a, b, c = past.rates
    return pair(dt.astype(F32) * (3.0 * (a - b) + c)).astype(F32)


def remembered(past: Past, S: Complex[Array, "n n"], dt: Float[Array, ""]) -> Past:
    """With one more step."""
    rate = (S / dt).astype(past.rates.dtype)
    return Past(jnp.concatenate([rate[None], past.rates[:-1]]), past.known + 1)


class _Step:
    """One step of a rule from W, for a field ½ζ without its constant part N."""

    def __init__(self, rule: Rule, W: Complex[Array, "n n"], field: Field, N: Complex[Array, "n n"] | None):
        self.rule, self.n, self.field, self.matrix = rule, W.shape[-1], field, W
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

    def follow(self, delta: Pair, a: Pair, X: Pair, E: Pair, level: Level) -> tuple[Pair, Pair]:
        """What D and M move by when S moves by δ; X is W + D."""
        y = product(delta, X, level)
        G = y + product(E, y, Level.LEAST)
        dD = skew(G)
        return dD, dD - skew(product(G, a, Level.LEAST)) if self.rule.mean else dD

    def start(self, guess: Pair | None) -> tuple[_At, Float[Array, ""]]:
        """S, D and E to a few digits; how many digits corrections will have."""
        exp, mean, w = self.rule.exp, self.rule.mean, self.w
        zero = jnp.zeros_like(self.W)
        if guess is None:  # D is [S, W] to first order
            s = self.rough_half_zeta(None)
            s = s + self.linear(skew(product(s, w, Level.LEAST)))
        else:
            s = (guess if self.N is None else guess + self.N).astype(F32)
        E, digits = one_less(s, exp)
        F = product(E, w, Level.FINE)
        FE = symmetric_product(F, dagger(E), Level.LOW)
        D = skew(F) + FE
        M = D + FE if mean else D
        delta = self.rough_half_zeta(M) - s
        dD, dM = self.follow(delta, s, w + D, E, Level.LEAST)
        moved_E = E + delta
        if guess is None:  # δ is not so small that what is of second order in s and δ could be left out
            z = product(s, delta, Level.LEAST)
            moved_E = moved_E + z + dagger(z)
        more = self.linear(dM)
        S = made_skew((s + delta + more).astype(F64))
        rate = norm(more) / jnp.maximum(norm(delta), 1e-300)
        yes, nought = jnp.ones((), bool), jnp.zeros(())
        none = zero, zero.astype(F32), zero.astype(F32), nought, rate
        moved = (D + dD).astype(F64), moved_E
        return _At(S, S if exp else None, *moved, yes, nought, *none, jnp.zeros((), int), yes), digits

    def evaluate(self, at: _At, tol: Float[Array, ""], defect: Float[Array, ""]) -> _At:
        """The defects of both equations in double precision; then, unless these are small, on to the next place."""
        a, reach = at.a, at.reach
        if a is not None:
            a, reach = lax.cond(at.stale, tanh, lambda S: (at.a, at.reach), at.S)
        b = at.S if a is None else a
        t = product(b, self.W + at.D, Level.DOUBLE)
        q = symmetric_product(t, b, Level.DOUBLE)
        r = (skew(t) + q - at.D).astype(F32)
        g = product(at.E, r, Level.FINE)
        f = symmetric_product(g, dagger(at.E), Level.LOW)
        d = r + skew(g) + f
        M = at.D - q + (d + f) if self.rule.mean else at.D + d
        delta = (self.half_zeta(M) - at.S).astype(F32)
        size, k = norm(r), at.k + 1
        enough = jnp.clip(tol / jnp.maximum(at.rate, 1e-300), tol, _FOLLOWED * tol)  # followed, δ leaves rate δ
        going = ((norm(delta) > enough) | (size > defect)) & (k < self.rule.most)
        at = at._replace(a=a, reach=reach, t=t, u=d + f - r, delta=delta, r=size, k=k, going=going)
        return lax.cond(going, lambda at: self.next(at, b, d, _FOLLOWED * tol), lambda at: at, at)

    def next(self, at: _At, b: Pair, d: Pair, tol: Float[Array, ""]) -> _At:
        """Where corrections lead: δ is followed, and what that calls for in turn, as far as it is exact enough."""
        X, size = (self.W + at.D).astype(F32), norm(at.delta)
        enough = jnp.maximum(tol, _SINGLE[on_gpu()] * size)

        def further(state: tuple) -> tuple:
            more, delta, dD, _, left, k = state
            moved, dM = self.follow(more, b, X, at.E, Level.LOW)
            more = self.linear(dM)
            return more, delta + more, dD + moved, left, norm(more), k + 1

        going = lambda state: (state[4] > enough) & (state[5] < _INNER)
        first = at.delta, at.delta, d, size, size, jnp.zeros((), int)
        _, delta, dD, before, left, k = lax.while_loop(going, further, first)
        S = made_skew(at.S + delta)
        rate = jnp.where(k > 0, left / jnp.maximum(before, 1e-300), at.rate)
        at = at._replace(D=at.D + dD, E=at.E + delta, rate=rate)
        if at.a is None:
            return at._replace(S=S)
        a = at.a
        change = tanh_derivative(at.S, delta, Level.LOW)
        at = at._replace(D=at.D + skew(product(change - delta, X, Level.LEAST)))
        beyond = norm(change - delta) ** 2 / jnp.maximum(norm(delta), 1e-300)  # a bound on what that leaves out
        stale = beyond > 0.1 * self.rule.tol * norm(S)
        return at._replace(S=S, a=made_skew(a + change), stale=stale)

    def end(self, at: _At, tol: Float[Array, ""]) -> tuple[Pair, Float[Array, ""]]:
        """What [a, W + D] moves by, δ followed to first order where it is above the tolerance; what is left of δ."""

        def followed(at: _At) -> tuple[Pair, Float[Array, ""]]:
            b = at.S if at.a is None else at.a
            da = at.delta if at.a is None else tanh_derivative(at.S, at.delta, Level.LEAST)
            y = product(da, (self.W + at.D).astype(F32), Level.LOW)
            z = product(b, skew(y + product(at.E, y, Level.LEAST)), Level.LEAST)
            return at.u + made_skew(skew(y) + skew(z)), at.rate * norm(at.delta)

        return lax.cond(norm(at.delta) > tol, followed, lambda at: (at.u, norm(at.delta)), at)


def products_step(
    rule: Rule,
    W: Complex[Array, "n n"],
    field: Field,
    N: Complex[Array, "n n"] | None = None,
    guess: Pair | None = None,
) -> Solved:
    """One step from W. `field(X)` + N = ½ζ(X), skew-Hermitian, N what does not depend on X; `guess` is of S − N."""
    step = _Step(rule, W, field, N)
    at, digits = step.start(guess)
    scale = norm(at.S)
    tol = rule.tol * scale
    defect = step.size * jnp.clip(_ROUND_OFF / digits, 10 * _ROUND_OFF, _DEFECT)
    at = lax.while_loop(lambda at: at.going, lambda at: step.evaluate(at, tol, defect), at)
    u, left = step.end(at, tol)
    change = skew(2.0 * at.t + u)  # u is skew-Hermitian but for rounding
    exact = (at.r <= defect) & (at.reach <= max(rule.tol, 1e-13))
    of_spectrum = at.r * digits / jnp.where(step.size > 0, step.size, 1.0)
    residual = jnp.maximum(left / jnp.where(scale > 0, scale, 1.0), of_spectrum)
    converged = exact & (left <= tol) & jnp.isfinite(left)
    return Solved(unpair(change, step.n), unpair(at.S + at.delta, step.n), at.k, residual, converged)


def one_less(s: Pair, exp: bool) -> tuple[Pair, Float[Array, ""]]:
    """E = (1 − a)⁻¹ − 1 and its relative error: s + s² + …, or for a = tanh s, (e^{2s} − 1)/2.

    To s⁷, but to s⁴ on a GPU, whose products are no more exact than that.
    """
    c = (1.0, 2 / 3, 1 / 3, 2 / 15, 2 / 45, 4 / 315) if exp else (1.0,) * 6
    B = symmetric_product(s, s, Level.LOW, 1)
    if on_gpu():
        C = product(c[1] * s + c[2] * B, B, Level.LEAST)
        return s + B + C, (norm(C) / jnp.maximum(norm(B), 1e-300)) ** 4 + _DIGITS[True]
    B2 = symmetric_product(B, B, Level.LEAST, 1)
    B3 = symmetric_product(B2, B, Level.LEAST, 1)
    even = c[0] * B + c[2] * B2 + c[4] * B3
    odd = s + product(s, c[1] * B + c[3] * B2 + c[5] * B3, Level.LEAST)
    square = norm(B3) / jnp.maximum(norm(B2), 1e-300)  # about ‖s‖²
    return odd + even, square**3.5 + _DIGITS[False]


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
    H = c[0] * B + symmetric_product(B, inner, Level.DOUBLE, 1)
    rho = norm(B3) / jnp.maximum(norm(B2), 1e-300)
    return S + symmetric_product(S, H, Level.DOUBLE), 1.5e-3 * rho**7


def tanh_derivative(S: Pair, delta: Pair, level: Level) -> Pair:
    """The derivative of tanh in the direction δ, to second order in S: δ − ⅓ (SSδ + SδS + δSS)."""
    z = product(S, delta, level)
    return delta - skew(skew(product(S, z, level)) + product(z, S, level)) / 6
