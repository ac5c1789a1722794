"""Fits the polynomials of `stepcompiler/mathematics` and writes them down.

    python tools/coefficients.py            # writes src/stepcompiler/mathematics/coefficients.py
    python tools/coefficients.py --check    # fits anew, and says whether the file has the same numbers

Each is a minimax fit by Remez's exchange in 60 digits, of the error of what the polynomial is used for, rounded.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import mpmath as mp

INTO = Path(__file__).parents[1] / "src" / "stepcompiler" / "mathematics" / "coefficients.py"
mp.mp.dps = 60
QUARTER = mp.pi / 4
HALF_LOG2 = mp.log(2) / 2
SQUARE = ((mp.sqrt(2) - 1) / (mp.sqrt(2) + 1)) ** 2  # of s = f/(2 + f) where 1 + f = √2


class Fit(NamedTuple):
    """f(x) on [low, high] by a polynomial of some degree; `weight` times its error is what counts."""

    says: str
    f: Callable
    low: float
    high: float
    degree: int
    weight: Callable = lambda x: 1
    bits: int = 58  # the error is at most 2^-bits
    pairs: int = 0  # so many of the coefficients, the lowest, are unevaluated sums of two


def _by_series(f: Callable, terms: Callable, near: float) -> Callable:
    """f(x), near 0 by the sum of terms(k, x), where f itself would be 0/0 or lose digits."""
    return lambda x: mp.fsum(terms(k, x) for k in range(60)) if abs(x) < near else f(x)


def _erfc_shape(t: Any) -> Any:
    """erfc(x) exp(x²) (1 + 2x) at x = 4 (1 + t)/(1 − t)."""
    if t == 1:
        return 2 / mp.sqrt(mp.pi)
    x = 4 * (1 + t) / (1 - t)
    if x < 200:
        with mp.workdps(100 + int(x * x / 2)):
            return mp.erfc(x) * mp.exp(x * x) * (1 + 2 * x)
    return (
        (1 + 2 * x)
        / (x * mp.sqrt(mp.pi))
        * mp.fsum((-1) ** k * mp.fac2(2 * k - 1) / (2 * x * x) ** k for k in range(9))
    )


def _erfinv_shape(w: Any) -> Any:
    """erfinv(x)/x where w = −log(1 − x²)."""
    x = mp.sqrt(-mp.expm1(-w))
    return mp.erfinv(x) / x if w > 0 else mp.sqrt(mp.pi) / 2


def _stirling(v: Any) -> Any:
    """x (log Γ(x) − (x − ½) log x + x − ½ log 2π) at v = 1/x²."""
    if v < mp.mpf("1e-4"):
        return mp.fsum(mp.bernoulli(2 * k) / (2 * k * (2 * k - 1)) * v ** (k - 1) for k in range(1, 12))
    x = 1 / mp.sqrt(v)
    return x * (mp.loggamma(x) - (x - mp.mpf(1) / 2) * mp.log(x) + x - mp.log(2 * mp.pi) / 2)


fac, half, third = mp.factorial, mp.mpf(1) / 2, mp.mpf(1) / 3
FITS = {
    "EXP": Fit(
        "(e^r − 1 − r)/r²",
        _by_series(lambda r: (mp.exp(r) - 1 - r) / r**2, lambda k, r: r**k / fac(k + 2), 0.01),
        -HALF_LOG2, HALF_LOG2, 10, lambda r: r**2 + mp.mpf("1e-3"), 59,
    ),
    "SINH": Fit(
        "(sinh r − r)/r³ in r²",
        _by_series(lambda z: (mp.sinh(mp.sqrt(z)) / mp.sqrt(z) - 1) / z, lambda k, z: z**k / fac(2 * k + 3), 0.01),
        0, HALF_LOG2**2, 5, lambda z: z + mp.mpf("1e-3"), 59,
    ),
    "COSH": Fit(
        "(cosh r − 1)/r² in r²",
        _by_series(lambda z: (mp.cosh(mp.sqrt(z)) - 1) / z, lambda k, z: z**k / fac(2 * k + 2), 0.01),
        0, HALF_LOG2**2, 6, lambda z: z + mp.mpf("1e-3"), 59,
    ),
    "LOG": Fit(
        "(log((1 + s)/(1 − s)) − 2s)/s³ in s²",
        _by_series(
            lambda z: 2 * (mp.atanh(mp.sqrt(z)) / mp.sqrt(z) - 1) / z, lambda k, z: 2 * z**k / (2 * k + 3), 0.01
        ),
        0, SQUARE, 7, lambda z: z + mp.mpf("1e-3"), 59,
    ),
    "ATANH": Fit(
        "(artanh(s)/s − 1 − s²/3 − s⁴/5)/s⁶ in s²",
        _by_series(
            lambda z: (mp.atanh(mp.sqrt(z)) / mp.sqrt(z) - 1 - z / 3 - z**2 / 5) / z**3,
            lambda k, z: z**k / (2 * k + 7), 0.05,
        ),
        0, SQUARE, 7, lambda z: z**3 + mp.mpf("1e-7"), 69,
    ),
    "SIN": Fit(
        "(sin r − r)/r³ in r²",
        _by_series(
            lambda z: (mp.sin(mp.sqrt(z)) / mp.sqrt(z) - 1) / z, lambda k, z: -((-z) ** k) / fac(2 * k + 3), 0.01
        ),
        0, QUARTER**2, 5, lambda z: z + mp.mpf("1e-3"), 57,
    ),
    "COS": Fit(
        "(cos r − 1 + r²/2)/r⁴ in r²",
        _by_series(
            lambda z: (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2, lambda k, z: (-z) ** k / fac(2 * k + 4), 0.05
        ),
        0, QUARTER**2, 5, lambda z: z**2 + mp.mpf("1e-3"), 58,
    ),
    "ATAN": Fit(
        "(arctan(u)/u − 1)/u² in u²",
        _by_series(
            lambda z: (mp.atan(mp.sqrt(z)) / mp.sqrt(z) - 1) / z, lambda k, z: -((-z) ** k) / (2 * k + 3), 0.01
        ),
        0, (mp.sqrt(2) - 1) ** 2, 12, lambda z: z + mp.mpf("1e-3"), 58,
    ),
    "ASIN": Fit(
        "(arcsin(s)/s − 1)/s² in s²",
        _by_series(
            lambda z: (mp.asin(mp.sqrt(z)) / mp.sqrt(z) - 1) / z,
            lambda k, z: z**k * mp.fac2(2 * k + 1) / mp.fac2(2 * k + 2) / (2 * k + 3), 0.01,
        ),
        0, 0.25, 13, lambda z: z + mp.mpf("1e-3"), 58,
    ),
    "ERF": Fit(
        "erf(x)/x − 1 in x²",
        lambda z: mp.erf(mp.sqrt(z)) / mp.sqrt(z) - 1 if z else 2 / mp.sqrt(mp.pi) - 1,
        0, 1, 13, bits=58, pairs=2,
    ),
    "ERFC": Fit("erfc(x) exp(x²) (1 + 2x) in t = (x − 4)/(x + 4)", _erfc_shape, -1, 0.76, 24, bits=57, pairs=5),
    "ERFINV": Fit("erfinv(x)/x in w − 3, w = −log(1 − x²)", lambda v: _erfinv_shape(v + 3), -3, 3.25, 9, bits=22),
    "ERFINV_TAIL": Fit(
        "erfinv(x)/x in √w − 4", lambda v: _erfinv_shape((v + 4) ** 2), -1.5, 2.1, 9, bits=21
    ),
    "CBRT": Fit("m^(−1/3) in m − 2", lambda v: (v + 2) ** -third, -1.5, 2, 6, lambda v: (v + 2) ** third, bits=8),
    "LGAMMA": Fit(
        "log Γ(2 + v)/v", lambda v: mp.loggamma(2 + v) / v if abs(v) > 1e-20 else mp.psi(0, 2) + v * mp.psi(1, 2) / 2,
        -0.5, 0.5, 20, bits=60, pairs=3,
    ),
    "STIRLING": Fit("x (log Γ(x) − (x − ½) log x + x − ½ log 2π) in 1/x²", _stirling, 0, 1 / mp.mpf(100), 7, bits=56),
}  # fmt: skip
CONSTANTS = {
    "LN2": ("log 2", mp.log(2), 2),
    "LOG2E": ("1/log 2", 1 / mp.log(2), 2),
    "HALF_PI": ("π/2", mp.pi / 2, 3),
    "TWO_OVER_PI": ("2/π", 2 / mp.pi, 1),
    "PI": ("π", mp.pi, 2),
    "HALF_LOG_2PI": ("½ log 2π", mp.log(2 * mp.pi) / 2, 2),
    "LOG_PI": ("log π", mp.log(mp.pi), 2),
    "THIRD": ("1/3", third, 2),
    "FIFTH": ("1/5", mp.mpf(1) / 5, 2),
    "TWO_OVER_ROOT_PI": ("2/√π", 2 / mp.sqrt(mp.pi), 1),
}
LN2_SHORT_BITS = 41  # of log 2: so that its product with an exponent is exact
LIMBS = 38  # of 32 bits each: 2/π, for arguments up to 2^1024


def remez(f: dict, points: list, weight: dict, degree: int) -> list:
    """The polynomial that is nearest to f at these points, and its error: f and weight are given as tables."""
    count = degree + 2
    picked = [points[round(k * (len(points) - 1) / (count - 1))] for k in range(count)]
    for _ in range(30):
        rows = mp.matrix(count, count)
        right = mp.matrix(count, 1)
        for i, x in enumerate(picked):
            for j in range(degree + 1):
                rows[i, j] = x**j
            rows[i, degree + 1] = (-1) ** i / weight[x]
            right[i] = f[x]
        solution = mp.lu_solve(rows, right)
        c = [solution[j] for j in range(degree + 1)]
        error = {x: weight[x] * (f[x] - mp.polyval(c[::-1], x)) for x in points}
        found = _alternating(points, error, count)
        if found == picked or len(found) < count:
            break
        picked = found
    return c


def _alternating(points: list, error: dict, count: int) -> list:
    """The extremes of the error, of alternating signs, as many as are wanted."""
    runs: list[list] = []
    for x in points:
        if error[x] == 0:
            continue
        if runs and (error[runs[-1][-1]] > 0) == (error[x] > 0):
            runs[-1].append(x)
        else:
            runs.append([x])
    best = [max(run, key=lambda x: abs(error[x])) for run in runs]
    while len(best) > count:  # the less extreme of the two ends goes
        best = best[1:] if abs(error[best[0]]) < abs(error[best[-1]]) else best[:-1]
    return best


def fitted(fit: Fit) -> list:
    """The coefficients, lowest first; the first `pairs` of them exact to twice the digits."""
    low, high, count = mp.mpf(fit.low), mp.mpf(fit.high), 24 * (fit.degree + 2)
    points = [(low + high) / 2 - (high - low) / 2 * mp.cos(mp.pi * (k + half) / count) for k in range(count)]
    f, weight = {x: mp.mpf(fit.f(x)) for x in points}, {x: mp.mpf(fit.weight(x)) for x in points}
    exact = remez(f, points, weight, fit.degree)
    out = [tuple(parts(c, 2)) if k < fit.pairs else float(c) for k, c in enumerate(exact)]
    rounded = [mp.fsum(c) if isinstance(c, tuple) else mp.mpf(c) for c in out]
    bits = float(-mp.log(max(weight[x] * abs(f[x] - mp.polyval(rounded[::-1], x)) for x in points), 2))
    print(f"  {fit.says}: degree {fit.degree}, error 2^-{bits:.1f}", flush=True)
    if bits < fit.bits:
        raise ValueError(
            f"{fit.says}: the error is 2^-{bits:.1f}, and at most 2^-{fit.bits} is wanted: raise the degree."
        )
    return out


def parts(x: Any, count: int) -> list[float]:
    """x as an unevaluated sum of floating-point numbers."""
    out = []
    for _ in range(count):
        out.append(float(x))
        x = x - mp.mpf(out[-1])
    return out


def text() -> str:
    """The file."""
    lines = [
        '"""Coefficients of `mathematics`, lowest first, written by tools/coefficients.py: do not edit."""',
        "",
        "# Constants as unevaluated sums.",
    ]
    for name, (says, x, count) in CONSTANTS.items():
        lines += [f"{name} = {_tuple(parts(x, count))}  # {says}"]
    short = mp.floor(mp.log(2) * 2**LN2_SHORT_BITS) / 2**LN2_SHORT_BITS
    lines.append(
        f"LN2_SHORT = {_tuple([float(short), float(mp.log(2) - short)])}  # log 2, {LN2_SHORT_BITS} bits and the rest"
    )
    with mp.workprec(LIMBS * 32 + 64):
        shifted: Any = mp.floor(mp.ldexp(2 / mp.pi, 32 * LIMBS - 24))
        digits = int(shifted)
    limbs = [digits >> 32 * (LIMBS - 1 - k) & 0xFFFFFFFF for k in range(LIMBS)]
    lines += [
        "# 2^−24 2/π, digits to the base 2³² after the point.",
        *_wrapped("TWO_OVER_PI_DIGITS", [f"0x{x:08X}" for x in limbs]),
    ]
    lines += ["", "# Polynomials."]
    for name, fit in FITS.items():
        lines += [f"# {fit.says}", *_wrapped(name, [repr(c) for c in fitted(fit)])]
    return "\n".join(lines) + "\n"


def _tuple(xs: list[float]) -> str:
    return f"({', '.join(map(repr, xs))}{',' if len(xs) == 1 else ''})"


def _wrapped(name: str, entries: list[str]) -> list[str]:
    return [f"{name} = (", *(f"    {e}," for e in entries), ")"]


def main() -> None:
    """Write, or check."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true")
    new = text()
    if not parser.parse_args().check:
        INTO.write_text(new)
    elif new != INTO.read_text():
        raise SystemExit(f"{INTO.name} is not what this script writes.")


if __name__ == "__main__":
    main()
