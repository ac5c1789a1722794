"""Every feature beside every other: a table of small runs in which all pairs of features occur, and how to run one."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
from algebras import SO4
from covering import covering

import coadjoint as cj

STEPS, DT, MEMBERS = 12, 0.02, 5
SIZE = lambda algebra: min(1.0, 3.0 / algebra.dim**0.5)  # of a random coordinate: steps as large in any dimension

ALGEBRAS = {
    "so(3)": cj.SO3(),
    "se(3)": cj.SE3(),
    "so(4)": cj.StructureConstants(SO4),
    "so(3) × se(3)": cj.SO3() * cj.SE3(),
    "so(3) ⋉ R³": cj.Semidirect(cj.SO3(), cj.SO3().bracket, dim=3),
    "SU(3)": cj.SU(3),
    "SU(9)": cj.SU(9),  # matrices that are not small: by products
}
METHODS = {
    "gauss4": cj.RKMK("gauss4"),
    "TMK15": cj.TMK15(),
    "TMKLevy": cj.TMKLevy(),
    "DiscreteGradient": cj.DiscreteGradient(),
    "LieMidpoint": cj.LieMidpoint(),
    "IsospectralMidpoint": cj.IsospectralMidpoint(),
    "TMK": cj.TMK(),
    "HeunMK": cj.HeunMK(),
    "Strang": cj.Strang(),
    "NinomiyaVictoir": cj.NinomiyaVictoir(),
    "BathSplitting": cj.BathSplitting(),
    "CommutatorFree": cj.CommutatorFree(4),
    "ImplicitMidpoint": cj.ImplicitMidpoint(),
    "Adaptive": cj.Adaptive(cj.HeunMK(), tol=0.05, halvings=2),
}
FEATURES = {
    "algebra": tuple(ALGEBRAS),
    "run": ("solve", "ensemble", "ensemble, many batches"),
    "sink": ("memory", "store", "resume"),
    "save": (False, True),
    "reduce": (False, True),
    "group": (False, True, "g0"),
    "params by member": (False, True),
    "forcing": (False, True),
    "driver": ("Brownian", "Increments", "none"),
    "GPU": (False, True),
    "method": tuple(METHODS),
}


# With these algebras, too many operations:
LONG = ("gauss4", "Strang", "CommutatorFree", "NinomiyaVictoir", "BathSplitting")


def is_native(case):
    """Whether native code must be taken; elsewhere it may be unsupported."""
    if case["method"] == "Adaptive" or case["algebra"] == "SU(9)":
        return False
    if case["algebra"] == "SU(3)" and case["method"] in ("gauss4", "IsospectralMidpoint"):
        return False  # an eigenvalue problem, complex linear systems
    return not (case["algebra"] in ("so(4)", "so(3) ⋉ R³") and case["method"] in LONG)


def allowed(case):
    """What the library takes."""
    alone = case["run"] == "solve"
    if alone and (case["params by member"] or case["reduce"] or case["GPU"]):
        return False
    if case["GPU"] and not is_native(case):
        return False
    if case["method"] == "CommutatorFree" and case["driver"] != "none":
        return False
    if case["method"] == "Strang" and case["forcing"]:
        return False
    if case["method"] == "IsospectralMidpoint" and case["algebra"] in ("so(4)", "so(3) ⋉ R³"):  # no Cayley transform
        return False
    if case["method"] in ("Adaptive", "NinomiyaVictoir") and case["driver"] == "Increments":
        return False
    if case["algebra"] == "SU(9)" and case["method"] in ("Strang", "NinomiyaVictoir", "BathSplitting"):
        return False  # it does, but 80 parts take minutes to compile
    return not (case["group"] and case["method"] == "ImplicitMidpoint")


def table():
    """The cases of `make test`, then the rest of them.

    The first cases cover all pairs of features other than the method, and every method; the others all pairs. What is
    dear to
    compile is taken on so(3) there, as far as it goes.
    """
    rest = {k: v for k, v in FEATURES.items() if k != "method"}

    def fits(case):
        return [m for m in METHODS if allowed(case | {"method": m})]

    fast, left = [], list(METHODS)
    for case in sorted(covering(rest, fits), key=lambda case: case["algebra"] != "so(3)"):
        method = next((m for m in left if m in fits(case)), "HeunMK")
        left = [m for m in left if m != method]
        fast.append(case | {"method": method})
    return fast, covering(FEATURES, allowed, fast)[len(fast) :]


FAST, SLOW = table()


def name(case):
    flags = ("save", "reduce", "group", "params by member", "forcing", "GPU")
    flags = ["g0" if case[k] == "g0" else k for k in flags if case[k]]
    return "; ".join([case[k] for k in ("algebra", "method", "run", "sink", "driver")] + flags)


# --------------------------------------------------------------------------------------------- one case


def noises(case):
    """How many: TMK15 takes more than one only along Brownian paths."""
    if case["driver"] == "none":
        return 0
    return 1 if case["method"] == "TMK15" and case["driver"] == "Increments" else 2


def system(case):
    """The system of a case, made once for all that have it."""
    return _system(case["algebra"], noises(case), case["forcing"])


@cache
def _system(name, M, forcing):
    """A quadratic energy, with a factor in `params`, SALT noise, and friction along a fixed direction."""
    algebra = ALGEBRAS[name]
    weights = np.linspace(0.5, 1.5, algebra.dim)
    beta = 0.3 * SIZE(algebra) * np.random.default_rng(1).standard_normal((M, algebra.dim))

    def energy(mu, k):
        return 0.5 * k * jnp.sum(weights * algebra.coordinates(mu) ** 2)

    def friction(mu, k):
        return 0.2 * k * algebra.ad_star(algebra.element(jnp.asarray(weights)), mu)

    noise = [cj.salt(b) for b in (np.asarray(elements(name)(beta)) if M else [])]
    return cj.System(algebra, energy, noise, params=1.0, forcing=[friction] if forcing else [])


def saved(mu):
    return {"first": jnp.abs(mu).reshape(-1)[0], "squares": jnp.abs(mu) ** 2}


@cache
def group_elements(name):
    """Where the group elements of members start."""
    algebra = ALGEBRAS[name]
    rows = np.random.default_rng(4).standard_normal((MEMBERS, algebra.dim))
    each = jax.jit(jax.vmap(lambda c: algebra.group_exp(algebra.element(c))))(rows)
    return jax.tree.map(np.asarray, each)


def group_element(case):
    """Where the group element starts, by member where the params are."""
    each = group_elements(case["algebra"])
    return each if case["params by member"] else jax.tree.map(lambda x: x[0], each)


@cache
def elements(name):
    """Elements of an algebra from rows of coordinates, as one program."""
    return jax.jit(jax.vmap(ALGEBRAS[name].element))


def run(case, backend, steps, out=None, resume=False):
    """One run of a case; its path begins alike whatever the number of steps."""
    algebra, M = ALGEBRAS[case["algebra"]], noises(case)
    rng = np.random.default_rng(2)
    rows = SIZE(algebra) * rng.standard_normal((MEMBERS, algebra.dim))
    states = np.asarray(elements(case["algebra"])(rows))
    path = np.sqrt(DT) * rng.standard_normal((STEPS, M, M + 2))
    Z, areas = 0.3 * DT * path[..., 1], 0.3 * np.sqrt(DT) * (path[..., 2:] - path[..., 2:].swapaxes(1, 2))
    driver = {
        "none": None,
        "Brownian": cj.Brownian(3),
        "Increments": cj.Increments(path[:steps, :, 0], Z=Z[:steps], areas=areas[:steps], brownian=True),
    }[case["driver"]]
    options = {
        "t1": steps * DT,
        "dt": DT,
        "save_every": 2,
        "driver": driver,
        "integrator": METHODS[case["method"]],
        "group": bool(case["group"]),
        "g0": group_element(case) if case["group"] == "g0" else None,
        "save": saved if case["save"] else None,
        "out": out,
        "resume": resume,
        **backend,
    }
    if case["run"] == "solve":
        return cj.solve(system(case), states[0], **options)
    return cj.ensemble(
        system(case),
        states,
        members=MEMBERS,
        params=np.linspace(0.5, 1.5, MEMBERS) if case["params by member"] else None,
        reduce=cj.Mean() if case["reduce"] else None,
        **options,
    )


def results(case, done):
    """All results, as arrays."""
    if case["reduce"]:
        return jax.tree.map(np.asarray, done.reduced)
    values = done.saved if case["save"] else done.mu
    return jax.tree.map(np.asarray, (values, done.g if case["group"] else None))


def same(a, b, tol=0.0):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert x.shape == y.shape and np.all(np.isfinite(x))
        np.testing.assert_allclose(x, y, rtol=0, atol=tol)
