"""Declared claims of methods: the table in docs/reference/methods.md, costs, and recommendations made from them."""

import inspect
from collections import Counter
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coadjoint as cj
from coadjoint.drivers import Increment
from coadjoint.integrators import ALL, COMPOSITIONS, SPECIAL, Adaptive, Composed, Integrator, claims_table
from coadjoint.integrators.dissipative import Dissipative
from coadjoint.integrators.jump_adapted import JumpAdapted
from coadjoint.integrators.until import Until

ROOT = Path(__file__).parents[3]


def test_table_is_current():
    """`make docs` writes it; a stale one fails here."""
    text = (ROOT / "docs" / "reference" / "methods.md").read_text(encoding="utf-8")
    assert text.split("<!-- claims -->\n")[1].split("<!-- /claims -->")[0] == claims_table(ALL | SPECIAL | COMPOSITIONS)


AROUND_OTHERS = Adaptive, Composed, Dissipative, JumpAdapted, Until  # of any method


def test_every_integrator_is_in_the_table():
    """A new concrete integrator cannot be left out."""

    def concrete(cls):
        for sub in cls.__subclasses__():
            if sub.__module__.startswith("coadjoint."):
                if not sub.__name__.startswith("_") and not inspect.isabstract(sub) and sub not in AROUND_OTHERS:
                    yield sub
                yield from concrete(sub)

    assert set(concrete(Integrator)) == {type(i) for i in (ALL | SPECIAL).values()}


# ------------------------------------------------------------------------------------------------- costs


ACTIONS = ("flow", "change", "drift_free_flow", "dexp_star", "dcay_star")


def marked(fn, name):
    """fn, whose results pass through an operation of that name, to be found in the traced step."""

    def mark(x):
        return x * 1.0

    mark.__name__ = name
    mark = jax.jit(mark)

    def wrapper(*args):
        out = fn(*args)
        return (mark(out[0]), *out[1:]) if isinstance(out, tuple) else mark(out)

    return wrapper


def counted(jaxpr, loop=False):
    """How often each mark is met outside of loops, and in one pass through them."""
    total = Counter()
    for eqn in jaxpr.eqns:
        name = eqn.params.get("name", "")
        if eqn.primitive.name in ("jit", "pjit") and name in ("action", "gradient"):
            total[name, loop] += eqn.outvars[0].aval.size // 3
        for param in eqn.params.values():
            for inner in param if isinstance(param, tuple) else (param,):
                inner = getattr(inner, "jaxpr", inner)
                if hasattr(inner, "eqns"):
                    times = eqn.params["length"] if eqn.primitive.name == "scan" else 1
                    for mark, count in counted(inner, loop or eqn.primitive.name == "while").items():
                        total[mark] += times * count
    return total


METHODS = ALL | COMPOSITIONS


@pytest.mark.parametrize("name", METHODS)
def test_cost(name, monkeypatch):
    """Actions and gradients of one step on so(3), counted in its program, are those declared."""
    for method in ACTIONS:
        monkeypatch.setattr(cj.SO3, method, marked(getattr(cj.SO3, method), "action"))
    for method in ("energy_gradient", "part_gradient"):
        monkeypatch.setattr(cj.System, method, marked(getattr(cj.System, method), "gradient"))
    monkeypatch.setattr("coadjoint.stabilisers.is_smooth", lambda *_: False)  # no ∂h(0), which is not counted
    parts = [lambda m, i=i: 0.5 * m[i] ** 2 / (i + 1) for i in range(3)]
    integrator, cost = METHODS[name].fast(), METHODS[name].claims.cost
    noise = [cj.salt([0.1, 0.2, 0.3])] if METHODS[name].claims.strong else []
    system = cj.System(cj.SO3(), parts, noise)
    mu, one = jnp.array([0.6, -0.7, 0.9]), jnp.ones(())
    dS = Increment(jnp.ones(len(noise)), one, Z=jnp.ones(len(noise)))
    step = jax.make_jaxpr(lambda mu: integrator.step(system, mu, one, one, dS, integrator.init(system, mu)))(mu)
    count = counted(step.jaxpr)
    outside, inside = ([count[what, where] for what in ("action", "gradient")] for where in (False, True))
    once, each = [cost.flows, cost.gradients], [cost.flows_each, cost.gradients_each]
    if cost.each == "iteration":  # the first one, before the loop, comes with the Jacobian
        assert inside == each
        parts = len(integrator.scheme) if isinstance(integrator, Composed) else 1
        first = [(a - b) / parts for a, b in zip(outside, once, strict=True)]
        assert first[0] <= 1 <= first[1] <= 2
    elif cost.each == "part":  # the noise is a part whose gradient is not one of h
        n = len(parts) + len(noise)
        assert inside == [0, 0]
        assert outside == [once[0] + n * each[0], once[1] + n * each[1] - len(noise)]
    elif cost.each == "noise":
        assert inside == [0, 0]
        assert outside == [a + len(noise) * b for a, b in zip(once, each, strict=True)]
    else:
        assert (inside, outside) == ([0, 0], once)


# ------------------------------------------------------------------------------------------- recommending


def names(system):
    return [row.name for row in cj.recommend(system)]


def test_recommend():
    """The first choice follows the noise, what is listed follows the claims, and it can be used as it is."""
    top, mu0 = cj.models.heavy_top()
    pair, _ = cj.models.heavy_top(alpha=0.5 * np.eye(3)[:2])
    quiet, _ = cj.models.heavy_top(alpha=None)
    assert [r.name for r in cj.recommend(pair)[:3]] == ["TMK15", "TMKLevy", 'RKMK("rk4")']
    assert names(quiet)[0] == 'RKMK("rk4")' and "Strang" in names(quiet) and "TMK" in names(quiet)
    assert not set(names(top)) & {"Heun", "Trapezoidal", "ImplicitMidpoint"}  # they lose the Casimirs
    best = cj.recommend(top)[0]
    assert (best.name, best.strong, best.path) == ("TMK15", 1.5, "ΔZ")
    assert cj.solve(top, mu0, t1=0.1, dt=0.01, key=0, integrator=best.integrator).stats.unsolved == 0


def test_recommend_knows_the_system():
    """Nonlinear noise, energies that are not quadratic, algebras without matrices, many noises."""
    nonlinear = cj.System(cj.SO3(), lambda m: m[0] * m[1], [lambda m: m[0] ** 2, lambda m: m[1] * m[2]])
    found = cj.recommend(nonlinear)
    assert found[0].name == "TMKLevy" and {"TMK15", "Strang", 'RKMK("euler")'} <= set(found.unsupported)
    quartic = cj.recommend(cj.System(cj.SO3(), lambda m: m[0] ** 2 + m[1] ** 4))
    assert {r.name for r in quartic if "energy" in r.conserves} == {'DiscreteGradient("gonzalez")'}
    rough = cj.recommend(cj.System(cj.SO3(), lambda m: jnp.cos(5 * m[0]) + m[1] ** 2))
    assert "no polynomial" in rough.system
    assert "IsospectralMidpoint" in names(cj.models.sine_euler()[0])
    chain = cj.recommend(cj.models.spin_chain(8)[0])
    assert chain[0].name == 'RKMK("rk4")' and [r.path for r in chain[-3:]] == ["log-signature", "areas", "ΔZ"]


def test_recommend_for_a_goal():
    """Paths: strong order. Statistics: no numbers for pairs of noises. A long time: Poisson maps, then energies."""
    pair, _ = cj.models.heavy_top(alpha=0.5 * np.eye(3)[:2])
    quiet, _ = cj.models.heavy_top(alpha=None)
    goals = "paths", "statistics", "long time"
    paths, statistics, long = ([r.name for r in cj.recommend(pair, goal)] for goal in goals)
    assert paths[:2] == ["TMK15", "TMKLevy"]
    assert statistics[:3] == ["BathSplitting", "TMKWeak", "HeunMK"] and statistics[-2:] == ["TMK15", "TMKLevy"]
    one = cj.recommend(cj.models.heavy_top()[0], "statistics")  # one noise: Strang is of weak order 2
    assert {r.name for r in one if r.weak == 2} == {"BathSplitting", "NinomiyaVictoir", "TMKWeak", "TMK15", "Strang"}
    assert long[:2] == ["LieMidpoint", "Strang"]
    assert "Poisson structure" in cj.recommend(quiet, "long time")[0].conserves
    sine = cj.recommend(cj.models.sine_euler(n=5)[0], "long time")
    assert sine[0].name == "IsospectralMidpoint"
    with pytest.raises(ValueError, match="goal must be one of 'paths', 'statistics', 'long time'"):
        cj.recommend(pair, "speed")


def test_recommend_prints_a_table():
    text = repr(cj.recommend(cj.models.heavy_top()[0]))
    head, titles, first, *_, last = text.splitlines()
    assert head == "SE3, dimension 6; h quadratic; 1 SALT noise; for paths:"
    assert titles.split()[:6] == ["integrator", "order", "strong", "weak", "conserves", "path"]
    assert first.split()[:2] == ["1.", "TMK15"] and last.startswith("Not CommutatorFree(3), CommutatorFree(4): ")
    assert max(map(len, text.splitlines())) < 120
    with pytest.raises(TypeError, match="system must be a System, not str"):
        cj.recommend("heavy top")
