"""All pairs of terms of a system in one run, along a smooth path, against SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from covering import covering
from scipy.integrate import solve_ivp

import coadjoint as cj

T1, COUNTS = 0.8, (16, 32, 64)
METHODS = {"TMK": cj.TMK(), "HeunMK": cj.HeunMK(), "Heun": cj.Heun(), "gauss2": cj.RKMK("gauss2")}
METHODS |= {"DiscreteGradient": cj.DiscreteGradient()}
ALGEBRAS = {"so(3)": cj.SO3(), "se(3)": cj.SE3(), "su(2)": cj.SU(2), "so(3) × su(2)": cj.SO3() * cj.SU(2)}
FEATURES = {
    "algebra": list(ALGEBRAS),
    "side": ["left", "right"],
    "method": list(METHODS),
    "hamiltonian": ["fixed", "timed"],
    "forcing": [None, "fixed", "timed"],
    "torque": [None, "fixed", "timed"],
    "dissipation": [None, "fixed", "timed"],
    "salt": [None, "fixed", "timed"],
    "function": [None, "fixed", "timed"],  # noise that is a function of the state
    "white torque": [None, "fixed", "timed"],
    "params": [False, True],
}
FEW = {"algebra": ["so(3)"], "method": ["HeunMK", "Heun"], "hamiltonian": ["fixed"]}  # little to compile
FAST = covering(
    {name: FEW.get(name, [v for v in values if v != "fixed"]) for name, values in FEATURES.items()}, lambda case: True
)
SLOW = covering(FEATURES, lambda case: True)
CASES = [*FAST, *(pytest.param(case, marks=pytest.mark.slow) for case in SLOW)]
PATH = np.array([2.0, 3.0, 1.3])  # angular frequencies of S^i
SINES = lambda t: 0.6 * np.sin(PATH * t + 1.0)
RATES = lambda t: 0.6 * PATH * np.cos(PATH * t + 1.0)


class Terms:
    """The terms of a case: functions of coordinates, of a parameter p and of the time; None if it lacks the term."""

    def __init__(self, case):
        self.case, self.algebra = case, ALGEBRAS[case["algebra"]]
        n = self.algebra.dim
        w, *u = 0.5 * np.random.default_rng(0).uniform(-1.0, 1.0, (6, n))
        self.functions = {
            "hamiltonian": lambda c, p, m: 0.5 * jnp.sum((1.5 + w) * c**2) + 0.2 * m * jnp.sum(u[0] * jnp.cos(c)),
            "forcing": lambda c, p, m: p * m * 0.5 * jnp.cos(c + u[1]),
            "torque": lambda c, p, m: p * m * (u[2] - 0.3 * c),
            "dissipation": lambda c, p, m: -p * m * 0.3 * c,
            "salt": lambda c, p, m: p * m * u[3],
            "function": lambda c, p, m: p * m * jnp.sum(u[4] * jnp.sin(c)),
            "white torque": lambda c, p, m: p * m * 0.7 * u[1],
        }

    def given(self, name, result=lambda x: x, between=(), state=True):
        """The term as a user writes it."""
        fn, timed, algebra = self.functions[name], self.case[name] == "timed", self.algebra

        def call(mu, *rest):
            rest, t = (rest[:-1], rest[-1]) if timed else (rest, None)
            p = rest[-1] if self.case["params"] else 0.9
            c = algebra.coordinates(mu) if state else None
            return result(fn(c, p, 1.0 + 0.5 * jnp.sin(2.0 * t) if timed else 1.0), *rest[: len(between)])

        names = [
            *(["mu"] if state else []),
            *between,
            *(["p"] if self.case["params"] else []),
            *(["t"] if timed else []),
        ]
        first = "" if state else "None, "
        return eval(f"lambda {', '.join(names)}: call({first}{', '.join(names)})", {"call": call})

    def system(self):
        """The system."""
        case, element = self.case, self.algebra.element
        options = {name: self.given(name, element) for name in ("forcing", "torque") if case[name]}
        if case["dissipation"]:  # the exact flow of −p m 0.3 c is c exp(rate · dt)
            self.functions["rate"], case["rate"] = lambda c, p, m: -p * m * 0.3, case["dissipation"]
            rate = self.given("rate", lambda x, dt: jnp.exp(x * dt), ("dt",))
            count = rate.__code__.co_argcount
            names = ", ".join(rate.__code__.co_varnames[:count])
            options["dissipation"] = eval(f"lambda {names}: mu * rate({names})", {"rate": rate})
        noise = [cj.salt(self._fields("salt"))] if case["salt"] else []
        noise += [self.given("function")] if case["function"] else []
        noise += [cj.white_torque(self._fields("white torque"))] if case["white torque"] else []
        params = 0.9 if case["params"] else None
        return cj.System(self.algebra, self.given("hamiltonian"), noise, side=case["side"], params=params, **options)

    def _fields(self, name):
        given = self.given(name, self.algebra.element, state=False)
        return given if self.case["params"] or self.case[name] == "timed" else given()

    def exact(self, start):
        """The coordinates of the state at T1, by SciPy."""
        algebra, sign = self.algebra, 1 if self.case["side"] == "left" else -1
        used = [name for name in self.functions if self.case.get(name) and name != "rate"]
        noises = [name for name in ("salt", "function", "white torque") if self.case[name]]

        @jax.jit
        def field(t, c, rates):
            moved = lambda name: 1.0 + 0.5 * jnp.sin(2.0 * t) if self.case[name] == "timed" else 1.0
            term = {name: lambda c, name=name: self.functions[name](c, 0.9, moved(name)) for name in used}
            xi = algebra.gradient(lambda mu: term["hamiltonian"](algebra.coordinates(mu)), algebra.element(c))
            outside = jnp.zeros(algebra.dim)
            for name in ("torque", "dissipation"):
                outside += term[name](c) if name in used else 0.0
            xi = xi + (algebra.element(term["forcing"](c)) if "forcing" in used else 0.0)
            for name, rate in zip(noises, rates, strict=False):
                if name == "function":
                    h = lambda mu: term["function"](algebra.coordinates(mu))
                    xi = xi + algebra.gradient(h, algebra.element(c)) * rate
                elif name == "salt":
                    xi = xi + algebra.element(term[name](c)) * rate
                else:
                    outside += term[name](c) * rate
            return sign * algebra.coordinates(algebra.ad_star(xi, algebra.element(c))) + outside

        ode = lambda t, c: np.asarray(field(t, c, RATES(t)))
        return solve_ivp(ode, (0.0, T1), start, method="DOP853", rtol=1e-11, atol=1e-12).y[:, -1]


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(str(v) for v in case.values()))
def test_terms_together(case):
    """Every method converges to the same solution with order 2."""
    terms = Terms(dict(case))
    system, algebra = terms.system(), terms.algebra
    start = 0.9 * np.cos(1.0 + np.arange(algebra.dim))
    exact, errors = terms.exact(start), []
    for n in COUNTS:
        times = np.linspace(0.0, T1, n + 1)[:, None]
        path = np.diff(SINES(times), axis=0)[:, : system.n_noise]
        given = {"driver": cj.Increments(path)} if system.n_noise else {}
        method = METHODS[case["method"]]
        sol = cj.solve(system, algebra.element(start), t1=T1, dt=T1 / n, integrator=method, **given)
        errors.append(np.max(np.abs(algebra.coordinates(sol.mu[-1]) - exact)))
    slope = -np.polyfit(np.log(COUNTS), np.log(errors), 1)[0]
    assert slope > 1.75 and errors[-1] < 3e-3, errors
