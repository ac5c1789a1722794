"""What a user gives a system: signatures, elements of the algebra, arrays that JAX would read wrongly."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coadjoint as cj

UP = np.array([0.0, 0.3, 1.0])
HERMITIAN = np.array([[0.3, 0.1 + 0.2j, 0.0], [0.1 - 0.2j, -0.5, 0.4j], [0.0, -0.4j, 0.2]])
SKEW = -1j * HERMITIAN
PARAMS = {"k": 1.0, "beta": HERMITIAN}


def square(m, *args):
    return 0.5 * jnp.sum(jnp.abs(m) ** 2)


def su3(noise=(), **options):
    return lambda: cj.System(cj.SU(3), square, noise, **options)


def so3(hamiltonian=square, noise=(), **options):
    return lambda: cj.System(cj.SO3(), hamiltonian, noise, **options)


class Own(cj.Noise):
    size: int
    additive = True

    def apply(self, mu, dS):
        return HERMITIAN * dS[0]


class Bare:
    size = 1

    def __init__(self, apply):
        self.apply = apply


ELEMENTS = {
    "salt": (su3(cj.salt(HERMITIAN)), r"beta must be an element of SU.*Hermitian: give -1j \* beta\."),
    "one of a stack": (su3(cj.salt([SKEW, HERMITIAN])), r"beta\[1\] must be an element of SU"),
    "with a trace": (su3(cj.salt(HERMITIAN + np.eye(3))), r"give -1j \* \(beta - np.trace\(beta\) / 3"),
    "skew with a trace": (su3(cj.salt(SKEW + 1j * np.eye(3))), r"Give beta - np.trace\(beta\) / 3 \* np.eye\(3\)"),
    "neither": (su3(cj.salt(np.triu(np.ones((3, 3)), 1))), r"algebra.element\(algebra.coordinates\(beta\)\)"),
    "salt of params": (su3(cj.salt(lambda p: p["beta"]), params=PARAMS), r"give -1j \* beta"),
    "scaled": (su3(cj.salt(SKEW, scale=lambda p: p["k"] * 1j), params=PARAMS), "scale must be real"),
    "own noise": (su3(Own(1)), r"noise.apply\(mu, dS\) must return an element of SU.*give -1j \* x"),
    "an object": (su3(Bare(lambda mu, dS: 1j * mu * dS[0])), r"noise.apply\(mu, dS\) must return an element of SU"),
    "forcing": (su3(forcing=lambda m: HERMITIAN), r"forcing must return an element of SU.*give -1j \* x"),
    "gradient": (su3(gradient=lambda m: 1j * m), "gradient does not agree"),
    "fields": (
        lambda: cj.heat_bath(su3()(), temperature=1.0, friction=1.0, fields=HERMITIAN),
        r"fields must be an element of SU.*give -1j \* fields",
    ),
    "pairs": (
        lambda: cj.System(cj.MagneticSU(3), square, cj.salt(np.stack([HERMITIAN, HERMITIAN]))),
        r"beta must be an element of MagneticSU.*give -1j \* beta",
    ),
    "initial condition": (lambda: cj.solve(su3()(), HERMITIAN, t1=1.0, dt=0.1), "mu0 is not a state of SU"),
}


@pytest.mark.parametrize("case", ELEMENTS)
def test_an_array_outside_of_the_algebra(case):
    make, words = ELEMENTS[case]
    with pytest.raises((ValueError, TypeError), match=words):
        make()


TURNED = {"k": 1.0, "beta": SKEW}
BY_MEMBER = {"k": 1.0, "beta": np.stack([SKEW, HERMITIAN])}


class OfParams(cj.Noise):
    size = 1
    additive = True

    def apply(self, mu, dS, params):
        return params["beta"] * dS


GIVEN_LATER = {
    "a subclass": ({"noise": OfParams()}, r"noise.apply\(mu, dS\){} must return an"),
    "beta": ({"noise": cj.salt(lambda p: p["beta"])}, r"beta{} must be an .* give -1j \* beta"),
    "forcing": ({"forcing": lambda m, p: p["beta"]}, r"forcing{} must return an element of SU"),
    "noise": ({"noise": Bare(lambda mu, dS, params: params["beta"] * dS)}, r"noise.apply\(mu, dS\){} must return an"),
}


@pytest.mark.parametrize("name", GIVEN_LATER)
def test_params_given_later(name):
    """They are checked as those that the system was made with."""
    options, words = GIVEN_LATER[name]
    system = su3(**options, params=TURNED)()
    system.with_params(TURNED)
    with pytest.raises(ValueError, match=words.format("")):
        system.with_params(PARAMS)
    with pytest.raises(ValueError, match=words.format(r"\[1\]")):
        cj.ensemble(system, SKEW, members=2, params=BY_MEMBER, t1=1.0, dt=0.1, key=1)


def test_noise_that_is_not_what_it_claims():
    curved = Bare(lambda mu, dS: mu[::-1] * dS)
    cj.System(cj.SO3(), square, curved)
    curved.additive = True
    with pytest.raises(ValueError, match=r"noise.additive is True, but .* depends on mu"):
        cj.System(cj.SO3(), square, curved)
    with pytest.raises(ValueError, match=r"must be linear in dS"):
        cj.System(cj.SO3(), square, Bare(lambda mu, dS: UP * dS**2))


def test_elements_pass():
    cj.System(cj.SU(3), square, [cj.salt([SKEW, np.zeros((3, 3))]), cj.salt(lambda p: -1j * p["beta"])], params=PARAMS)


CALLS = {
    "hamiltonian of two": (so3(lambda m, q: m @ m * q), r"hamiltonian\(mu\), not hamiltonian\(m, q\)\. .* params"),
    "a part of two": (so3([square, lambda m, q: m @ m]), r"hamiltonian\[1\] must have the signature"),
    "hamiltonian of three": (so3(lambda m, p, q: m @ m, params=PARAMS), r"hamiltonian\(mu, params\), not"),
    "hamiltonian of nothing": (so3(lambda: 1.0), r"hamiltonian\(mu\), not hamiltonian\(\)"),
    "a keyword": (so3(lambda m, *, q: m @ m), r"not hamiltonian\(m, \*, q\)|not hamiltonian\(m, q\)"),
    "a compiled function": (so3(jax.jit(lambda m, q: m @ m)), r"hamiltonian\(mu\), not hamiltonian\(m, q\)"),
    "gradient of two": (so3(gradient=lambda m, q: m), r"gradient must have the signature gradient\(mu\)"),
    "forcing of two": (so3(forcing=lambda m, q: m), r"forcing must have the signature forcing\(mu\), not"),
    "dissipation of a state": (so3(dissipation=lambda m: m), r"dissipation\(mu, dt\), not dissipation\(m\)"),
    "noise of two": (so3(noise=lambda m, q: m @ m), r"noise must have the signature noise\(mu\)"),
    "apply of time": (so3(noise=Bare(lambda mu: mu)), r"noise.apply\(mu, dS\) or noise.apply\(mu, dS, params\), not"),
    "beta of two": (lambda: cj.salt(lambda p, q: UP), r"beta must have the signature beta\(params\)"),
    "scale of two": (lambda: cj.salt(UP, scale=lambda p, q: 1.0), r"scale must have the signature scale\(params\)"),
    "save of two": (
        lambda: cj.solve(so3()(), UP, t1=1.0, dt=0.1, save=lambda m, p: m),
        r"save must have the signature save\(mu\), not save\(m, p\)",
    ),
    "time in place of params": (
        so3(lambda m, t: m @ m, params=PARAMS),
        r"hamiltonian must have the time t as its last argument: write hamiltonian\(mu, params, t\)",
    ),
    "params in front": (so3(lambda params, m: m @ m, params=PARAMS), "The argument params would receive mu"),
    "dissipation of params": (so3(dissipation=lambda m, params: m), "The argument params would receive dt"),
    "an observable": (
        lambda: cj.sample(so3()(), UP, temperature=1.0, t1=9.0, dt=0.1, key=0, observables={"x": lambda m, p: m[0]}),
        r"observables\['x'\] must have the signature observables\['x'\]\(mu\)",
    ),
}


@pytest.mark.parametrize("case", CALLS)
def test_signatures(case):
    make, words = CALLS[case]
    with pytest.raises(TypeError, match=words) as caught:
        make()
    assert "positional argument" not in str(caught.value)
    assert "future" not in str(caught.value)


class Shaking(cj.Noise):
    size = 3
    additive = True

    def apply(self, mu, dS):
        return 0.1 * jnp.array([1.0, 1.0, 2.0]) * dS


class ShakingOfParams(Shaking):
    def apply(self, mu, dS, params):
        assert params is None or params["k"].shape == ()
        return 0.1 * jnp.array([1.0, 1.0, 2.0]) * dS


class Duck:
    size = 3
    additive = True

    def __init__(self, noise):
        self.apply = noise.apply


@pytest.mark.parametrize("params", [None, {"k": 1.0}])
def test_one_rule_for_noise_of_ones_own(params):
    """apply(mu, dS) and apply(mu, dS, params), in subclasses of Noise and in objects, with params and without."""
    salt = cj.System(cj.SO3(), square, cj.salt(0.1 * np.diag([1.0, 1.0, 2.0])), params=params)
    wanted = cj.solve(salt, UP, t1=1.0, dt=0.1, key=1).mu
    for noise in (Shaking(), ShakingOfParams(), Duck(Shaking()), Duck(ShakingOfParams())):
        own = cj.System(cj.SO3(), square, noise, params=params)
        assert own.n_noise == 3 and own.additive
        np.testing.assert_allclose(cj.solve(own, UP, t1=1.0, dt=0.1, key=1).mu, wanted, atol=1e-13)


MASKED = np.ma.masked_array([1.0, 2.0, 3.0], [False, True, False])
SWAPPED = np.array([1.0, 2.0, 3.0], ">f8")

MASKS = {
    "mu0": lambda: cj.solve(so3()(), MASKED, t1=1.0, dt=0.1),
    "beta": lambda: cj.salt(MASKED),
    "params['k']": so3(params={"k": MASKED}),
    "dS": lambda: cj.Increments(MASKED),
    "inertia": lambda: cj.models.rigid_body(inertia=MASKED),
    "array MASKED of hamiltonian": so3(lambda m: jnp.sum(m * MASKED)),
    "array MASKED of save": lambda: cj.solve(so3()(), UP, t1=1.0, dt=0.1, save=lambda m: m * MASKED),
}


@pytest.mark.parametrize("name", MASKS)
def test_masked_entries_are_not_used(name):
    with pytest.raises(ValueError, match="1 masked entries") as caught:
        MASKS[name]()
    assert name in str(caught.value)


def test_other_byte_orders():
    system = cj.System(cj.SO3(), lambda m, p: 0.5 * m @ (m / p), cj.salt(SWAPPED / 9), params=SWAPPED)
    native = SWAPPED.astype(float)
    same = cj.System(cj.SO3(), lambda m, p: 0.5 * m @ (m / p), cj.salt(native / 9), params=native)
    dS = np.linspace(-0.1, 0.1, 10).astype(">f8")
    a = cj.solve(system.with_params(SWAPPED), SWAPPED, t1=1.0, dt=0.1, driver=cj.Increments(dS)).mu
    b = cj.solve(same, [1.0, 2.0, 3.0], t1=1.0, dt=0.1, driver=cj.Increments(dS.astype(float))).mu
    np.testing.assert_array_equal(a, b)
    with pytest.raises(TypeError, match=r"hamiltonian uses the array SWAPPED .* write SWAPPED = SWAPPED.astype"):
        cj.System(cj.SO3(), lambda m: m @ SWAPPED)


STRANGE = {
    "hamiltonian": lambda fn: cj.System(cj.SO3(), fn),
    "gradient": lambda fn: cj.System(cj.SO3(), lambda m: m @ m, gradient=fn),
    "noise": lambda fn: cj.System(cj.SO3(), lambda m: m @ m, [fn]),
    "forcing": lambda fn: cj.System(cj.SO3(), lambda m: m @ m, forcing=fn),
    "torque": lambda fn: cj.System(cj.SO3(), lambda m: m @ m, torque=fn),
    "control": lambda fn: cj.System(cj.SO3(), lambda m: m @ m, control=cj.hold(fn)),
    "save": lambda fn: cj.solve(QUIET, [0.6, 0.0, 0.8], t1=0.1, dt=0.1, save=fn),
    "until": lambda fn: cj.solve(QUIET, [0.6, 0.0, 0.8], t1=0.1, dt=0.1, until=fn),
}
QUIET = cj.System(cj.SO3(), lambda m: m @ m)


@pytest.mark.parametrize("name", STRANGE)
def test_an_unknown_argument_name(name):
    """The message has the signature that is supported, and the one received."""
    with pytest.raises(TypeError, match=rf"{name} must have the signature {name}\(mu.*, not {name}\(mu, speed\)"):
        STRANGE[name](lambda mu, speed: mu[0])
    with pytest.raises(TypeError, match="dissipation must have the signature"):
        cj.System(cj.SO3(), lambda m: m @ m, dissipation=lambda mu, dt, speed: mu)
    with pytest.raises((TypeError, ValueError), match=r"beta\(speed\)|signature"):
        cj.System(cj.SO3(), lambda m: m @ m, [cj.salt(lambda speed: np.eye(3))])
