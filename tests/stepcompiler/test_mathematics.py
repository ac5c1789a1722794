"""A mathematics of its own: within 1 ulp of the truth, ends included, the same bits at any width, and no one's libm."""

import mpmath
import numpy as np
import pytest
from jax import lax
from native_steps import called, made

from stepcompiler.mathematics import FUNCTIONS
from stepcompiler.targets import cpu

INF, NAN = np.inf, np.nan
NAMES = "sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh exp expm1 log log1p erf erfc"
TRUTH = {
    **{name: getattr(mpmath, name) for name in NAMES.split()},
    "cbrt": lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)),
    "erf_inv": mpmath.erfinv,
    "exp2": lambda x: mpmath.power(2, x),
    "lgamma": mpmath.loggamma,
    "logistic": lambda x: 1 / (1 + mpmath.exp(-x)),
    "pow": mpmath.power,
}


class Draws:
    """Numbers of one kind or another."""

    def __init__(self, count, seed):
        self.count, self.rng = count, np.random.default_rng(seed)

    def even(self, low, high):
        return self.rng.uniform(low, high, self.count)

    def wide(self, low, high):
        """± 2^low … 2^high."""
        return self.rng.choice([-1.0, 1.0], self.count) * 2.0 ** self.even(low, high)

    def near_one(self):
        return 1.0 - 2.0 ** self.even(-53, -1)


def circle(d):
    """Ordinary angles, small ones, huge ones, and the one of all doubles that is nearest to a multiple of π/2."""
    worst = np.ldexp(6381956970095103.0, 797) * np.ones(8)
    return np.concatenate([d.even(-1, 1), d.even(-30, 30), d.wide(-1070, 30), d.wide(30, 1023.9), worst])


RANGES = {
    "sin": circle,
    "cos": circle,
    "tan": circle,
    "asin": lambda d: np.concatenate([d.even(-1, 1), d.wide(-1070, -1), d.near_one()]),
    "acos": lambda d: np.concatenate([d.even(-1, 1), d.wide(-1070, -1), d.near_one()]),
    "atan": lambda d: np.concatenate([d.even(-3, 3), d.wide(-1070, 1023)]),
    "exp": lambda d: np.concatenate([d.even(-1, 1), d.even(-745.1, 709.7), d.wide(-1070, 0)]),
    "exp2": lambda d: np.concatenate([d.even(-1, 1), d.even(-1074.9, 1023.9), d.wide(-1070, 0)]),
    "expm1": lambda d: np.concatenate([d.even(-1, 1), d.even(-40, 709.7), d.wide(-1070, 0)]),
    "sinh": lambda d: np.concatenate([d.even(-1, 1), d.even(-710.4, 710.4), d.wide(-1070, 0)]),
    "cosh": lambda d: np.concatenate([d.even(-1, 1), d.even(-710.4, 710.4), d.wide(-1070, 0)]),
    "tanh": lambda d: np.concatenate([d.even(-1, 1), d.even(-22, 22), d.wide(-1070, 3)]),
    "logistic": lambda d: np.concatenate([d.even(-1, 1), d.even(-745, 40)]),
    "log": lambda d: np.concatenate([d.even(0.5, 2), d.even(0.99, 1.01), 2.0 ** d.even(-1074, 1023.9)]),
    "log1p": lambda d: np.concatenate([d.even(-1, 1), d.wide(-1070, -1), 2.0 ** d.even(0, 1023), -d.near_one()]),
    "asinh": lambda d: np.concatenate([d.even(-2, 2), d.wide(-1070, 1023)]),
    "acosh": lambda d: np.concatenate([d.even(1, 2), 1.0 + 2.0 ** d.even(-52, 1023)]),
    "atanh": lambda d: np.concatenate([d.even(-1, 1), d.wide(-1070, -1), d.near_one()]),
    "cbrt": lambda d: np.concatenate([d.even(-8, 8), d.wide(-1074, 1023)]),
    "erf": lambda d: np.concatenate([d.even(-1, 1), d.even(-6, 6), d.wide(-1070, 0)]),
    "erfc": lambda d: np.concatenate([d.even(-1, 1), d.even(-6, 27.2), d.wide(-1070, 0)]),
    "erf_inv": lambda d: np.concatenate([d.even(-1, 1), d.wide(-1070, -1), d.near_one()]),
    "lgamma": lambda d: np.concatenate([d.even(0.5, 3), d.even(2, 14), 2.0 ** d.even(-1070, 1000)]),
}
PAIRS = {
    "atan2": lambda d: [(d.even(-1, 1), d.even(-1, 1)), (d.wide(-1070, 1023), d.wide(-1070, 1023))],
    "pow": lambda d: [
        (d.even(0, 3), d.even(-30, 30)),
        (2.0 ** d.even(-1070, 1023), d.even(-1.2, 1.2)),
        (1.0 + d.wide(-40, -10), d.wide(10, 40)),
        (-np.floor(d.even(1, 9)), np.floor(d.even(-99, 99))),
    ],
}


def native(name, args, width=8):
    """A function as native code."""
    args = [np.resize(x, 8 * (-(-len(x) // 8))) for x in args]
    rows = np.stack(args, axis=1)
    primitive = getattr(lax, name)
    out = called(made(lambda x: primitive(*(x[i] for i in range(len(args)))), rows, width=width), rows)[0].ravel()
    return args, out


def errors(name, args, out):
    """The error in ulps of the true value; 0 if the result is ∞ for a number that is too large."""
    result = []
    with mpmath.workdps(40):
        for *xs, y in zip(*args, out, strict=True):
            truth = mpmath.re(TRUTH[name](*(mpmath.mpf(float(x)) for x in xs)))
            if abs(truth) > np.finfo(float).max:
                result.append(0.0 if abs(y) in (INF, np.finfo(float).max) else INF)
                continue
            _, exponent = mpmath.frexp(truth)
            ulp = mpmath.ldexp(1, max(exponent - 53, -1074))
            result.append(float(abs(mpmath.mpf(float(y)) - truth) / ulp) if np.isfinite(y) else INF)
    return np.array(result)


def check(name, count, seed):
    """Whether all are within 1 ulp; the worst."""
    draws = Draws(count, seed)
    cases = PAIRS[name](draws) if name in PAIRS else [(RANGES[name](draws),)]
    worst = 0.0
    for case in cases:
        args, out = native(name, case)
        error = errors(name, args, out)
        at = int(np.argmax(error))
        assert error[at] <= 1.0, (name, [float(x[at]) for x in args], float(out[at]), error[at])
        worst = max(worst, error[at])
    return worst


@pytest.mark.parametrize("name", [*RANGES, *PAIRS])
def test_within_one_ulp(name):
    check(name, 60, 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*RANGES, *PAIRS])
def test_within_one_ulp_at_many_numbers(name):
    print(f"{name}: {check(name, 20_000 if name not in ('erf_inv', 'lgamma') else 2_000, 1):.3f} ulp", flush=True)


ENDS = {
    "sin": {-0.0: -0.0, INF: NAN, -INF: NAN, 5e-324: 5e-324},
    "cos": {0.0: 1.0, INF: NAN},
    "tan": {-0.0: -0.0, INF: NAN, -5e-324: -5e-324},
    "asin": {-0.0: -0.0, 1.0: np.pi / 2, -1.0: -np.pi / 2, 1.1: NAN},
    "acos": {1.0: 0.0, -1.0: np.pi, 0.0: np.pi / 2, -1.1: NAN},
    "atan": {-0.0: -0.0, INF: np.pi / 2, -INF: -np.pi / 2},
    "exp": {0.0: 1.0, INF: INF, -INF: 0.0, 709.8: INF, -745.2: 0.0},
    "exp2": {0.0: 1.0, INF: INF, -INF: 0.0, 1024.0: INF, -1074.0: 5e-324, 10.0: 1024.0, -1076.0: 0.0},
    "expm1": {-0.0: -0.0, INF: INF, -INF: -1.0, 709.8: INF, 5e-324: 5e-324},
    "sinh": {-0.0: -0.0, INF: INF, -INF: -INF, -711.0: -INF},
    "cosh": {0.0: 1.0, -INF: INF, 711.0: INF},
    "tanh": {-0.0: -0.0, INF: 1.0, -INF: -1.0, 30.0: 1.0},
    "logistic": {0.0: 0.5, INF: 1.0, -INF: 0.0},
    "log": {-0.0: -INF, 1.0: 0.0, INF: INF, -1.0: NAN, -INF: NAN},
    "log1p": {-0.0: -0.0, -1.0: -INF, INF: INF, -1.5: NAN},
    "asinh": {-0.0: -0.0, INF: INF, -INF: -INF},
    "acosh": {1.0: 0.0, INF: INF, 0.9: NAN},
    "atanh": {-0.0: -0.0, 1.0: INF, -1.0: -INF, 1.1: NAN},
    "cbrt": {-0.0: -0.0, INF: INF, -INF: -INF, 27.0: 3.0, -8.0: -2.0},
    "erf": {-0.0: -0.0, INF: 1.0, -INF: -1.0},
    "erfc": {0.0: 1.0, INF: 0.0, -INF: 2.0},
    "erf_inv": {-0.0: -0.0, 1.0: INF, -1.0: -INF, 1.1: NAN},
    "lgamma": {1.0: 0.0, 2.0: 0.0, 0.0: INF, -1.0: INF, INF: INF, -INF: INF},
}


@pytest.mark.parametrize("name", ENDS)
def test_ends(name):
    """Zeros with their signs, infinities, what is not defined, and NaN."""
    x = np.array([*ENDS[name], NAN])
    _, out = native(name, [x])
    expected = np.array([*ENDS[name].values(), NAN])
    np.testing.assert_array_equal(out[: len(x)], expected)
    number = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(out[: len(x)])[number], np.signbit(expected)[number])


def test_powers_at_their_ends():
    """As C has them."""
    cases = [
        (0.0, -1.0, INF), (-0.0, -1.0, -INF), (-0.0, -2.0, INF), (-0.0, 3.0, -0.0), (0.0, 0.5, 0.0), (-1.0, INF, 1.0),
        (1.0, NAN, 1.0), (NAN, 0.0, 1.0), (NAN, 1.0, NAN), (-8.0, 1 / 3, NAN), (-2.0, 3.0, -8.0), (0.5, -INF, INF),
        (2.0, -INF, 0.0), (-INF, 3.0, -INF), (-INF, -3.0, -0.0), (-INF, 0.5, INF), (INF, -1.0, 0.0), (1.0, 1e300, 1.0),
        (2.0, 1024.0, INF), (2.0, -1074.0, 5e-324), (-1.0, 2.0**53, 1.0), (5e-324, -1.0, INF), (2.0, -1080.0, 0.0),
    ]  # fmt: skip
    x, y, expected = np.array(cases).T
    _, out = native("pow", [x, y])
    np.testing.assert_array_equal(out[: len(x)], expected)
    number = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(out[: len(x)])[number], np.signbit(expected)[number])


def test_remainders_are_exact():
    """Of numbers of all sizes, as C has them."""
    d = Draws(200, 4)
    x, y = (np.concatenate([d.wide(-1074, 1023), d.even(-30, 30)]) for _ in range(2))
    x, y = np.append(x, [INF, 1.0, 0.0, 5.0, -6.0, NAN]), np.append(y, [1.0, 0.0, 1.0, INF, 3.0, 1.0])
    args, out = native("rem", [x, y])
    with np.errstate(all="ignore"):
        expected = np.fmod(*args)
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(np.signbit(out)[~np.isnan(out)], np.signbit(expected)[~np.isnan(out)])
    args, out = native("nextafter", [x, y])
    np.testing.assert_array_equal(out, np.nextafter(*args))


def test_bits_do_not_depend_on_the_width_and_nothing_is_called_outside(monkeypatch):
    texts, compile_ = [], cpu.compiled
    monkeypatch.setattr(cpu, "compiled", lambda text: (texts.append(text), compile_(text))[1])
    x = np.resize(np.concatenate([RANGES["sin"](Draws(24, 5)), RANGES["log"](Draws(24, 6))]), 160)
    for name in FUNCTIONS:
        if not hasattr(lax, name):
            continue
        args = [x, x[::-1].copy()] if name in ("atan2", "pow", "rem", "nextafter") else [x]
        np.testing.assert_array_equal(native(name, args)[1], native(name, args, width=1)[1])
    for text in texts:
        assert "declare" not in text
        assert "contract" not in text
