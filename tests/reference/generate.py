"""Reference solutions in 60-digit arithmetic, written to the JSON files beside this script.

Run it as `python tests/reference/generate.py` (two minutes). It needs mpmath only and shares no code with
`coadjoint`. Conventions are those of docs/reference/conventions.md: `<ad*_x mu, y> = <mu, [x, y]>`,
`flow(x, mu) = exp(ad*_x) mu`, and one step of TMK (s = +1 left, -1 right) is

    sigma = dt grad h(m) + sum_i dS^i grad h_i(m),   m = (mu + flow(s sigma, mu)) / 2,
    mu_next = flow(s sigma, mu).

Inputs are doubles and are written as JSON numbers, which Python reads back exactly. Results are strings of 25
significant digits. Every decimal constant (0.01, 0.3, ...) means the double nearest to it, not the decimal.
"""

import json
import random
import re
from math import sqrt
from pathlib import Path

from mpmath import bernoulli, factorial, lu_solve, matrix, mp, mpc, mpf, nstr, pi

mp.dps = 60
SOLVED = mpf(10) ** -52  # the implicit equation is iterated until sigma moves by less than this
CHECKED = mpf(10) ** -40  # self-checks must hold to this
HERE = Path(__file__).parent


# ---------------------------------------------------------------------------------------------- vectors


def exact(values):
    """Doubles as 60-digit numbers, without rounding."""
    return [mpf(v) for v in values]


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


# ------------------------------------------------------------------------------------------- the files


def digits(x):
    """A number as 25 significant digits; lists entry by entry."""
    if isinstance(x, list):
        return [digits(a) for a in x]
    return "0.0" if abs(x) < mpf(10) ** -48 else nstr(x, 25)


def write(name, about, **content):
    """Write a JSON file with innermost lists on one line."""
    text = json.dumps({"about": about, **content}, indent=1)
    text = re.sub(r"\[[^\[\]{}]*\]", lambda m: re.sub(r"\s+", " ", m.group()), text)
    (HERE / name).write_text(text + "\n")


def salt(beta):
    """The gradient of h(mu) = <mu, beta>."""
    return lambda mu: exact(beta)


def heavy_top():
    """h = pi.I^-1 pi / 2 - chi.gamma on se(3), 100 steps of 0.01."""
    dt, steps, chi, a = 0.01, 100, [0.0, 0.0, 1.0], float(0.5 * sqrt(2))
    mu0 = [-a, a, 0.0, -a, a, 0.0]
    one = [[0.01, 0.02, 0.03, 0.0, 0.0, 0.0]]
    three = [
        [0.5, -0.3, 0.8, 0.4, 0.7, -0.6],
        [-0.6, 0.7, 0.3, 0.8, -0.5, 0.4],
        [0.4, 0.6, -0.5, -0.3, 0.6, 0.7],
    ]

    def product(mu):
        return mpf(0.3) * mu[0] * mu[4] + mpf(0.1) * mu[2] ** 2

    def product_gradient(mu):
        zero = mpf(0)
        return [mpf(0.3) * mu[4], zero, 2 * mpf(0.1) * mu[2], zero, mpf(0.3) * mu[0], zero]

    kinds = [
        ("left, no noise", "left", [], None),
        ("left, one SALT noise", "left", one, None),
        ("left, three SALT noises", "left", three, None),
        ("right, one SALT noise", "right", one, None),
        ("left, nonlinear noise", "left", [], "0.3 * pi1 * gamma2 + 0.1 * pi3**2"),
    ]
    check_gradient(product, product_gradient, exact([0.3, -0.4, 0.9, 0.2, 0.5, -0.7]))
    cases = []
    for inertia in ([4.0, 2.0, 1.0], [4.0, 4.0, 1.0]):

        def h(mu, inertia=inertia):
            return sum(p * p / i for p, i in zip(mu[:3], inertia, strict=True)) / 2 - dot(exact(chi), mu[3:])

        def gradient(mu, inertia=inertia):
            return [p / mpf(i) for p, i in zip(mu[:3], inertia, strict=True)] + scale(-1, exact(chi))

        check_gradient(h, gradient, exact([0.3, -0.4, 0.9, 0.2, 0.5, -0.7]))
        for name, side, betas, nonlinear in kinds:
            noise = [salt(b) for b in betas] + ([product_gradient] if nonlinear else [])
            dS = brownian(steps, len(noise), dt)
            states, last = tmk_states(mu0, side, dt, dS, gradient, noise, (1, 10, 100))
            if not noise:
                check(h(last) - h(exact(mu0)), "the energy moved")
            cases.append(
                {
                    "name": f"{name}, I = {tuple(map(int, inertia))}",
                    "side": side,
                    "inertia": inertia,
                    "salt": betas,
                    "nonlinear_noise": nonlinear,
                    "increments": dS,
                    "states": states,
                }
            )
    about = "TMK on se(3), state (pi, gamma), h = pi.I^-1 pi / 2 - chi.gamma; noises: salt, then nonlinear_noise"
    write("heavy_top.json", about, dt=dt, steps=steps, chi=chi, mu0=mu0, cases=cases)


def rigid_body():
    """A quartic h on so(3) with one nonlinear and two SALT noises, 100 steps of 0.01."""
    dt, steps, inertia, mu0 = 0.01, 100, [1.0, 2.0, 3.0], [0.6, -0.7, 0.9]
    betas = [[0.3, -0.2, 0.5], [-0.4, 0.6, 0.1]]

    def h(mu):
        kinetic = sum(p * p / i for p, i in zip(mu, inertia, strict=True)) / 2
        return kinetic + mpf(0.05) * (mu[0] ** 4 + mu[1] ** 4)

    def gradient(mu):
        quartic = [4 * mpf(0.05) * mu[0] ** 3, 4 * mpf(0.05) * mu[1] ** 3, mpf(0)]
        return add([p / mpf(i) for p, i in zip(mu, inertia, strict=True)], quartic)

    def product(mu):
        return mpf(0.2) * mu[0] * mu[1]

    def product_gradient(mu):
        return [mpf(0.2) * mu[1], mpf(0.2) * mu[0], mpf(0)]

    check_gradient(h, gradient, exact([0.3, -0.4, 0.9]))
    check_gradient(product, product_gradient, exact([0.3, -0.4, 0.9]))
    noise = [product_gradient] + [salt(b) for b in betas]
    dS = brownian(steps, len(noise), dt)
    states, _ = tmk_states(mu0, "left", dt, dS, gradient, noise, (1, 10, 100))

    def reduced(mu):
        """The gradient without its part along mu; its linear part, the gradient at 0, is zero here."""
        g = gradient(mu)
        return add(g, scale(-dot(g, mu) / dot(mu, mu), mu))

    reduced_states, _ = tmk_states(mu0, "left", dt, dS, reduced, noise, (1, 10, 100))
    write(
        "rigid_body.json",
        "TMK on so(3), left; noises: nonlinear_noise, then the salt rows",
        dt=dt,
        steps=steps,
        side="left",
        inertia=inertia,
        hamiltonian="(pi1**2 / I1 + pi2**2 / I2 + pi3**2 / I3) / 2 + 0.05 * (pi1**4 + pi2**4)",
        nonlinear_noise="0.2 * pi1 * pi2",
        salt=betas,
        mu0=mu0,
        increments=dS,
        states=states,
        reduced_states=reduced_states,
    )


def exp_se3():
    """flow and dexpinv on so(3) and se(3), for rotation vectors of length 0 to 6."""
    rng = random.Random(3)
    cases = []
    for length in (0.0, 1e-12, 1e-8, 1e-4, 1e-2, 0.1, 0.3, 0.9, 0.99999, 1.00001, 2.0, 3.1, 5.0, 6.0):
        direction = [rng.gauss(0, 1) for _ in range(3)]
        rotation = [length * d / sqrt(sum(d * d for d in direction)) for d in direction]
        sigma = rotation + [rng.uniform(-1, 1) for _ in range(3)]
        mu, zeta = ([rng.uniform(-1, 1) for _ in range(6)] for _ in range(2))
        x, y, z = exact(sigma), exact(mu), exact(zeta)
        for n in (3, 6):
            check(dot(ad_star(x[:n], y[:n]), z[:n]) - dot(y[:n], bracket(x[:n], z[:n])), "ad*")
            moved = flow(x[:n], y[:n])
            for before, after in zip(casimirs(y[:n]), casimirs(moved), strict=True):
                check(after - before, "a Casimir moved")
            check(size(add(flow(scale(-1, x[:n]), moved), scale(-1, y[:n]))), "exp(-x) exp(x)")
            if length <= 2:
                series = dexpinv_series(x[:n], z[:n], 140)
                check(size(add(dexpinv(x[:n], z[:n]), scale(-1, series))), "dexpinv")
        if length > 0:
            difference = add(flow(x[:3], y[:3]), scale(-1, rodrigues(x[:3], y[:3])))
            check(size(difference), "Rodrigues", mpf(10) ** -35)  # 1 - cos(1e-12) loses 24 digits
        cases.append(
            {
                "angle": length,
                "sigma": sigma,
                "mu": mu,
                "zeta": zeta,
                "flow_se3": digits(flow(x, y)),
                "dexpinv_se3": digits(dexpinv(x, z)),
                "flow_so3": digits(flow(x[:3], y[:3])),
                "dexpinv_so3": digits(dexpinv(x[:3], z[:3])),
            }
        )
    about = "exp(ad*_sigma) mu and dexpinv_sigma(zeta) (B_1 = -1/2); so3: of the first three entries of each"
    write("exp_se3.json", about, cases=cases)


# ------------------------------------------------------------------------------------------ sine-Euler


class SineEuler:
    """The sine-Euler equation on n x n matrices, n odd; a field is a dict mode -> coefficient."""

    def __init__(self, n):
        self.n, self.k, self.eps = n, n // 2, 2 * pi / n
        span = range(-self.k, self.k + 1)
        self.modes = [(a, b) for a in span for b in span if (a, b) != (0, 0)]
        self.basis = {m: self.basis_matrix(m) for m in self.modes}

    def basis_matrix(self, m):
        """T_m[j, (j + m2) mod n] = exp(i eps (m1 m2 + 2 m1 j))."""
        t = mp.zeros(self.n)
        for j in range(self.n):
            t[j, (j + m[1]) % self.n] = mp.expj(self.eps * (m[0] * m[1] + 2 * m[0] * j))
        return t

    def wrap(self, m):
        """A mode taken mod n into [-k, k]^2."""
        return tuple((a + self.k) % self.n - self.k for a in m)

    def to_matrix(self, field):
        """(i / 2 eps) sum_m field_m T_m."""
        total = mp.zeros(self.n)
        for m, c in field.items():
            total += (mpc(0, 1) / (2 * self.eps) * c) * self.basis[m]
        return total

    def to_field(self, w):
        """The coefficients of a matrix, from Tr(T_m^H T_r) = n if m = r, else 0."""
        factor = 2 * self.eps / (mpc(0, 1) * self.n)
        field = {}
        for m, t in self.basis.items():
            entries = [(j, (j + m[1]) % self.n) for j in range(self.n)]
            field[m] = factor * sum(mp.conj(t[e]) * w[e] for e in entries)
        return field

    def stream(self, field):
        """omega_m / |m|^2."""
        return {m: c / (m[0] ** 2 + m[1] ** 2) for m, c in field.items()}

    def gradient(self, w):
        """P = dh/dW for h = -Tr(W P) / 2 and the pairing -Tr."""
        return self.to_matrix(self.stream(self.to_field(w)))

    def fourier_right_side(self, field, psi):
        """sum_r (1/eps) sin(eps m^r) omega_{m+r} psi_{-r}: the paper's sum, psi = omega/|r|^2 or zeta."""
        out = {}
        for m in self.modes:
            total = mpc(0)
            for r in self.modes:
                both = self.wrap((m[0] + r[0], m[1] + r[1]))
                if both != (0, 0):
                    wedge = m[0] * r[1] - m[1] * r[0]
                    total += mp.sin(self.eps * wedge) * field[both] * psi[-r[0], -r[1]]
            out[m] = total / self.eps
        return out

    def check(self, field, zeta):
        """The basis, the energy, and Fourier against matrix form for drift and noise."""
        for m in self.modes:
            for r in self.modes:
                a, b, both = self.basis[m], self.basis[r], self.wrap((m[0] + r[0], m[1] + r[1]))
                factor = mpc(0, -2) * mp.sin(self.eps * (m[0] * r[1] - m[1] * r[0]))
                check(norm(a * b - b * a - factor * self.basis_matrix(both)), "[T_m, T_r]")
        w, stream = self.to_matrix(field), self.stream(field)
        check(norm(w + w.H), "W is not skew-Hermitian")
        check(max(abs(self.to_field(w)[m] - field[m]) for m in self.modes), "to_field")
        for psi in (stream, zeta):
            p = self.to_matrix(psi)
            fourier = self.fourier_right_side(field, psi)
            check(norm(p * w - w * p - self.to_matrix(fourier)), "Fourier and matrix form differ")
        x = self.to_matrix(zeta)
        check(trace(x * self.gradient(w)) - trace(w * self.gradient(x)), "h is not symmetric")
        energy = self.n / (8 * self.eps**2) * sum(mp.re(mp.conj(field[m]) * stream[m]) for m in self.modes)
        check(-trace(w * self.gradient(w)) / 2 - energy, "the energy")


def norm(a):
    """Largest entry in absolute value."""
    return max(abs(x) for x in a)


def trace(a):
    """The trace."""
    return sum(a[j, j] for j in range(a.rows))


def conjugate(sigma, w):
    """e^sigma W e^-sigma, which is flow(-sigma, W) with ad*_x W = [W, x]."""
    power, total, k = mp.eye(w.rows), mp.eye(w.rows), 0
    while norm(power) > mpf(10) ** -(mp.dps + 5):
        k += 1
        power = power * sigma / k
        total += power
    return total * w * total.H


def tmk_matrix_step(model, w, dt, dS, betas):
    """One right-invariant step, as tmk_step: the iteration contracts by 0.27 or better at dt = 0.5 here."""
    sigma, noise = mp.zeros(model.n), mp.zeros(model.n)
    for x, beta in zip(dS, betas, strict=True):
        noise += x * beta
    for _ in range(500):
        new = dt * model.gradient((w + conjugate(sigma, w)) / 2) + noise
        new = (new - new.H) / 2  # skew-Hermitian but for round-off
        moved = norm(new - sigma)
        sigma = new
        if moved < SOLVED:
            return conjugate(sigma, w)
    raise RuntimeError(f"the implicit equation was not solved: {nstr(moved, 5)}")


def split(rows):
    """Real and imaginary parts of a nested list, as strings."""
    return {
        "re": digits([[mp.re(c) for c in r] for r in rows]),
        "im": digits([[mp.im(c) for c in r] for r in rows]),
    }


def table(field, n):
    """A field as rows [n1 % n][n2 % n]."""
    rows = [[mpc(0)] * n for _ in range(n)]
    for m, c in field.items():
        rows[m[0] % n][m[1] % n] = c
    return rows


def sine_euler():
    """Sine-Euler at n = 3 and 5, right-invariant, two SALT noises, 10 steps of 0.5."""
    dt, steps, amplitude, noise_modes = 0.5, 10, 0.1, [[1, 1], [1, -1]]
    cases = []
    for n in (3, 5):
        model, rng = SineEuler(n), random.Random(2)
        omega = {}
        for m in model.modes:
            if m > (0, 0):  # half the modes, in lexicographic order; the others are conjugate
                c = mpc(rng.uniform(-0.5, 0.5), rng.uniform(-0.5, 0.5))
                omega[m], omega[-m[0], -m[1]] = c, mp.conj(c)
        zetas = [dict.fromkeys(model.modes, mpc(0)) for _ in noise_modes]
        for zeta, (a, b) in zip(zetas, noise_modes, strict=True):
            zeta[a, b] = zeta[-a, -b] = mpc(amplitude)
            model.check(omega, zeta)
        betas = [model.to_matrix(zeta) for zeta in zetas]
        w0 = model.to_matrix(omega)

        still = tmk_matrix_step(model, w0, mpf(dt), [], [])
        check(trace(still * model.gradient(still)) - trace(w0 * model.gradient(w0)), "the energy moved")

        dS, w, states = brownian(steps, len(betas), dt), w0, {}
        for step, row in enumerate(dS, 1):
            w = tmk_matrix_step(model, w, mpf(dt), exact(row), betas)
            if step in (1, 5, 10):
                states[str(step)] = {"W": split(w.tolist()), "omega": split(table(model.to_field(w), n))}
        power0, power = w0, w
        for _ in range(2, n + 1):
            power0, power = power0 * w0, power * w
            check(trace(power) - trace(power0), "a Casimir moved")

        doubles = [[complex(c) for c in row] for row in table(omega, n)]
        cases.append(
            {
                "n": n,
                "omega0": {
                    "re": [[c.real for c in r] for r in doubles],
                    "im": [[c.imag for c in r] for r in doubles],
                },
                "W0": split(w0.tolist()),
                "beta": [split(beta.tolist()) for beta in betas],
                "increments": dS,
                "states": states,
            }
        )
    about = "TMK for sine-Euler, right-invariant; omega[n1 % n][n2 % n]; beta: matrices of the SALT noises"
    write(
        "sine_euler.json",
        about,
        dt=dt,
        steps=steps,
        noise_modes=noise_modes,
        amplitude=amplitude,
        cases=cases,
    )


if __name__ == "__main__":
    for make in (exp_se3, rigid_body, heavy_top, sine_euler):
        make()
        print(make.__name__, "written")
