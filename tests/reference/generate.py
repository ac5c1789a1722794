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

from exact_algebra import (
    ad_star,
    add,
    bracket,
    brownian,
    casimirs,
    check,
    check_gradient,
    dexpinv,
    dexpinv_series,
    digits,
    dot,
    exact,
    flow,
    rodrigues,
    scale,
    size,
    tmk_states,
)
from exact_matrices import SineEuler, tmk_matrix_step, trace
from mpmath import mp, mpc, mpf

HERE = Path(__file__).parent


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
