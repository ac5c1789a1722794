"""Vectors, so(3), se(3) and a step of TMK in 60-digit arithmetic, with mpmath alone."""

import random
from math import sqrt

from mpmath import bernoulli, factorial, lu_solve, matrix, mp, mpf, nstr

mp.dps = 60
SOLVED = mpf(10) ** -52  # the implicit equation is iterated until sigma moves by less than this
CHECKED = mpf(10) ** -40  # self-checks must hold to this


# ---------------------------------------------------------------------------------------------- vectors


def exact(values):
    """Doubles as 60-digit numbers, without rounding."""
    return [mpf(v) for v in values]


def digits(x):
    """A number as 25 significant digits; lists entry by entry."""
    if isinstance(x, list):
        return [digits(a) for a in x]
    return "0.0" if abs(x) < mpf(10) ** -48 else nstr(x, 25)


def add(x, y):
    """x + y, entry by entry."""
    return [a + b for a, b in zip(x, y, strict=True)]


def scale(c, x):
    """c x."""
    return [c * a for a in x]


def dot(x, y):
    """The pairing of coordinate vectors."""
    return sum((a * b for a, b in zip(x, y, strict=True)), mpf(0))


def size(x):
    """Largest entry in absolute value."""
    return max(abs(a) for a in x)


def cross(x, y):
    """x cross y in R^3."""
    return [x[1] * y[2] - x[2] * y[1], x[2] * y[0] - x[0] * y[2], x[0] * y[1] - x[1] * y[0]]


def check(error, what, bound=CHECKED):
    """Stop unless |error| < bound."""
    if not abs(error) < bound:
        raise AssertionError(f"{what}: {nstr(error, 5)}")


# ----------------------------------------------------------------------------- so(3) and se(3): [x, y], ad*


def bracket(x, y):
    """[x, y]: cross product on so(3); (a, v), (b, w) -> (a x b, a x w - b x v) on se(3)."""
    if len(x) == 3:
        return cross(x, y)
    a, v, b, w = x[:3], x[3:], y[:3], y[3:]
    return cross(a, b) + add(cross(a, w), scale(-1, cross(b, v)))


def ad_star(x, mu):
    """ad*_x mu: mu x x on so(3); (pi x a + gamma x v, gamma x a) on se(3)."""
    if len(x) == 3:
        return cross(mu, x)
    a, v, p, g = x[:3], x[3:], mu[:3], mu[3:]
    return add(cross(p, a), cross(g, v)) + cross(g, a)


def flow(x, mu):
    """exp(ad*_x) mu by its Taylor series."""
    total, term, k = list(mu), list(mu), 0
    while size(term) > mpf(10) ** -(mp.dps + 5):
        k += 1
        term = scale(mpf(1) / k, ad_star(x, term))
        total = add(total, term)
    return total


def dexpinv(x, z):
    """sum_k B_k/k! ad_x^k z with B_1 = -1/2, as the inverse of sum_k ad_x^k/(k+1)! (for any |x|)."""
    n = len(x)
    columns = [[mpf(int(i == j)) for i in range(n)] for j in range(n)]
    dexp = matrix(n, n)
    for j, column in enumerate(columns):
        k, term = 0, column
        while size(term) > mpf(10) ** -(mp.dps + 5):
            for i in range(n):
                dexp[i, j] += term[i]
            k += 1
            term = scale(mpf(1) / (k + 1), bracket(x, term))
    return list(lu_solve(dexp, matrix(z)))


def dexpinv_series(x, z, terms):
    """The same by its Bernoulli series, which converges for |x| < 2 pi; a check."""
    total, power = [mpf(0)] * len(z), list(z)
    for k in range(terms):
        total = add(total, scale(bernoulli(k) / factorial(k), power))
        power = bracket(x, power)
    return total


def rodrigues(x, mu):
    """exp(ad*_x) mu on so(3) in closed form: mu turned by the angle |x| about -x; a check."""
    angle = mp.sqrt(dot(x, x))
    first = scale(mp.sin(angle) / angle, cross(mu, x))
    return add(add(mu, first), scale((1 - mp.cos(angle)) / angle**2, cross(cross(mu, x), x)))


def casimirs(mu):
    """|mu|^2 on so(3); pi.gamma and |gamma|^2 on se(3)."""
    return [dot(mu, mu)] if len(mu) == 3 else [dot(mu[:3], mu[3:]), dot(mu[3:], mu[3:])]


# ------------------------------------------------------------------------------------------------- TMK


def tmk_step(mu, side, dt, dS, gradient, noise_gradients):
    """One step for coordinate vectors: fixed-point iteration from sigma = 0."""
    s = {"left": 1, "right": -1}[side]
    sigma = [mpf(0)] * len(mu)
    for _ in range(500):
        m = scale(mpf(1) / 2, add(mu, flow(scale(s, sigma), mu)))
        new = scale(dt, gradient(m))
        for x, g in zip(dS, noise_gradients, strict=True):
            new = add(new, scale(x, g(m)))
        moved = size(add(new, scale(-1, sigma)))
        sigma = new
        if moved < SOLVED:
            return flow(scale(s, sigma), mu)
    raise RuntimeError(f"the implicit equation was not solved: {nstr(moved, 5)}")


def tmk_states(mu0, side, dt, increments, gradient, noise_gradients, keep):
    """States after the numbers of steps in `keep`, and the last; the Casimirs are checked."""
    mu, states = exact(mu0), {}
    for step, dS in enumerate(increments, 1):
        mu = tmk_step(mu, side, mpf(dt), exact(dS), gradient, noise_gradients)
        if step in keep:
            states[str(step)] = digits(mu)
    for before, after in zip(casimirs(exact(mu0)), casimirs(mu), strict=True):
        check(after - before, "a Casimir moved")
    return states, mu


def brownian(steps, n_noise, dt):
    """Increments (steps, n_noise): random.Random(1).gauss(0, 1) * sqrt(dt), row by row."""
    rng = random.Random(1)
    return [[rng.gauss(0, 1) * sqrt(dt) for _ in range(n_noise)] for _ in range(steps)]


def check_gradient(h, gradient, mu):
    """Central differences of h against its gradient."""
    step = mpf(10) ** -20
    for i, g in enumerate(gradient(mu)):
        e = [step * int(i == j) for j in range(len(mu))]
        check((h(add(mu, e)) - h(add(mu, scale(-1, e)))) / (2 * step) - g, "a gradient", mpf(10) ** -35)
