"""Friction and heat baths: signs, the stationary distribution, energies that fall, errors, experiment files."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from algebras import SO4

import coadjoint as cj
from coadjoint.drivers import Needs

I = jnp.array([1.0, 2.0, 3.0])
MU0 = np.array([0.36, 0.48, 0.8])


def rigid_body(side="left"):
    return cj.System(cj.SO3(), lambda m, p: 0.5 * m @ (m / p), params=I, side=side)


def energy_on(algebra):
    """Some energy that is neither quadratic nor symmetric."""
    rng = np.random.default_rng(3)
    A, b = jnp.asarray(rng.standard_normal((algebra.dim, algebra.dim))), jnp.asarray(rng.standard_normal(algebra.dim))

    def h(mu):
        c = algebra.coordinates(mu)
        return 0.5 * c @ A @ A.T @ c / algebra.dim + b @ c + 0.1 * jnp.sin(c[0] + 2 * c[1])

    return h


# ---------------------------------------------------------------------------------------------------- signs


@pytest.mark.parametrize("side", ["left", "right"])
def test_the_formula_on_so3(side):
    """dΠ = ± Π×Ω dt + θ Π×(Π×Ω) dt + σ Σ ± Π×e_i ∘ dWⁱ: the friction has one sign on both sides."""
    s, theta, T = (1 if side == "left" else -1), 0.7, 0.3
    system = cj.heat_bath(rigid_body(side), temperature=T, friction=theta)
    omega = MU0 / I
    expected = s * np.cross(MU0, omega) + theta * np.cross(MU0, np.cross(MU0, omega))
    np.testing.assert_allclose(system.vector_field(MU0, 1.0, jnp.zeros(3)), expected, atol=1e-15)
    dW = np.array([0.2, -0.5, 0.1])
    noise = s * np.sqrt(2 * theta * T) * np.cross(MU0, dW)
    np.testing.assert_allclose(system.vector_field(MU0, 0.0, jnp.asarray(dW)), noise, atol=1e-15)


ALGEBRAS = {
    "so(3)": cj.SO3(),
    "se(3)": cj.SE3(),
    "so(4)": cj.StructureConstants(SO4),
    "SU(3)": cj.SU(3),
    "so(3) × se(3)": cj.SO3() * cj.SE3(),
}


def residual(system, T, c):
    """−div(pV) + ½ Σ div(X_i div(X_i p)) over p, in coordinates, for p = exp(−h/T); 0 where p is stationary."""
    algebra, M = system.algebra, system.n_noise

    def coordinates(field):
        return lambda c: algebra.coordinates(field(algebra.element(c)))

    def density(c):
        return jnp.exp(-(system.energy(algebra.element(c)) - system.energy(algebra.element(at))) / T)

    def div(field):
        return lambda c: jnp.trace(jax.jacfwd(field)(c))

    at = jnp.asarray(c)
    V = coordinates(lambda mu: system.vector_field(mu, 1.0, jnp.zeros(M)))

    def diffusion(e):
        X = coordinates(lambda mu: system.vector_field(mu, 0.0, e))
        flux = div(lambda c: density(c) * X(c))
        return 0.5 * div(lambda c: flux(c) * X(c))(at)

    drift = -div(lambda c: density(c) * V(c))(at)
    return jnp.concatenate([drift[None], jax.vmap(diffusion)(jnp.eye(M))])


FEW = [pytest.param(name, 2, marks=[] if name == "so(4)" else pytest.mark.slow) for name in ALGEBRAS]
ALL_FIELDS = [pytest.param(n, None, marks=[] if n in ("se(3)", "SU(3)") else pytest.mark.slow) for n in ALGEBRAS]


@pytest.mark.parametrize(("name", "fields"), ALL_FIELDS + FEW)
def test_the_density_is_stationary(name, fields):
    """exp(−h/T) solves the stationary Fokker–Planck equation at a random state, to round-off, with few fields too.

    These algebras are unimodular: ad* has no trace, and Lebesgue measure on g* is the product of Liouville measures.
    """
    algebra, T = ALGEBRAS[name], 0.7
    rng = np.random.default_rng(5)
    side = "left" if fields is None else "right"
    if fields is not None:
        fields = jnp.stack([algebra.element(jnp.asarray(rng.standard_normal(algebra.dim))) for _ in range(2)])
    system = cj.System(algebra, energy_on(algebra), side=side)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on se(3) such an energy need not grow
        bath = cj.heat_bath(system, temperature=T, friction=0.4, fields=fields)
    terms = np.asarray(jax.jit(lambda c: residual(bath, T, c))(0.5 * rng.standard_normal(algebra.dim)))
    assert np.max(np.abs(terms)) > 0.01
    assert abs(terms.sum()) < 1e-12 * np.max(np.abs(terms))


def test_default_fields_are_an_orthonormal_basis():
    """Drawn as one element they are the basis, stacked; also as matrices."""
    for algebra in (cj.SO3(), cj.SU(3)):
        basis = jax.jit(jax.vmap(algebra.element))(jnp.eye(algebra.dim))
        if algebra.dim == 8:
            gram = -np.einsum("aij,bji->ab", basis, basis)
            np.testing.assert_allclose(gram, np.eye(8), atol=1e-15)
        system = cj.System(algebra, energy_on(algebra))
        one, stacked = (cj.heat_bath(system, temperature=0.5, friction=0.3, fields=f) for f in (None, basis))
        mu = algebra.element(jnp.asarray(np.random.default_rng(0).standard_normal(algebra.dim)))
        dW = jnp.asarray(np.random.default_rng(1).standard_normal(algebra.dim))
        zeta = jax.jit(lambda s, mu=mu, dW=dW: (s.drift(mu), s.noise(mu, dW)))
        for a, b in zip(zeta(one), zeta(stacked), strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-14)
        assert one.n_noise == algebra.dim and one.additive and not one.commuting


# ------------------------------------------------------------------------------------------------- friction


def test_energy_falls_to_the_minimum():
    """Monotonically at dt = 0.5 and θ = 1, rigid body and spin in a field, from random starts; Casimirs stay."""
    spin = cj.System(cj.SO3(), lambda m: -m[2])
    starts = np.random.default_rng(0).standard_normal((32, 3))
    starts /= np.linalg.norm(starts, axis=1, keepdims=True)
    for system, lowest in ((rigid_body(), 1 / 6), (spin, -1.0)):
        damped = cj.double_bracket(system, friction=1.0)
        ens = cj.ensemble(damped, starts, members=32, t1=200.0, dt=0.5)
        energy = np.asarray(ens.energy())
        assert np.all(np.diff(energy, axis=1) <= 2e-16)
        np.testing.assert_allclose(energy[:, -1], lowest, rtol=1e-12)
        assert np.max(ens.casimir_errors()) < 5e-15


def test_few_fields():
    """One field rubs along one axis only: a body that turns about it is not slowed."""
    damped = cj.double_bracket(rigid_body(), friction=0.5, fields=[0.0, 0.0, 1.0])
    np.testing.assert_allclose(damped.force(MU0)[:2], 0.0, atol=1e-16)
    assert damped.force(MU0)[2] != 0.0


def test_own_noise_and_params_stay():
    """A double bracket keeps noise of any kind and the params of the system, in a part of its own."""
    noise = [cj.salt(lambda p: p["beta"]), lambda m, p: p["k"] * m[0] ** 2]
    params = {"beta": np.array([0.1, 0.2, 0.3]), "k": 2.0}
    system = cj.System(cj.SO3(), lambda m, p: p["k"] * m[1] ** 2, noise, params=params)
    damped = cj.double_bracket(system, friction=0.5)
    dS = jnp.array([0.3, 0.4])
    np.testing.assert_allclose(damped.noise(MU0, dS), system.noise(MU0, dS), rtol=1e-15)
    assert damped.n_noise == 2 and not damped.additive
    assert set(damped.params) == {"friction", "system"} and damped.params["system"]["k"] == 2.0
    with pytest.warns(UserWarning, match="has noise of its own beside the bath"):
        cj.heat_bath(system, temperature=1.0, friction=1.0)
    with pytest.warns(UserWarning, match="has forcing of its own"):
        cj.heat_bath(cj.double_bracket(rigid_body(), friction=1.0), temperature=1.0, friction=1.0)


# ------------------------------------------------------------------------------------------------ temperature


def test_a_spin_in_a_field():
    """⟨S_z⟩ = coth x − 1/x at x = 1, 2, 5, all three in one ensemble whose temperature varies by member."""
    bath = cj.heat_bath(cj.System(cj.SO3(), lambda m: -m[2]), temperature=1.0, friction=1.0)
    x = np.repeat([1.0, 2.0, 5.0], 512)
    params = {"temperature": 1 / x, "friction": 1.0}
    ens = cj.ensemble(
        bath, [0.0, 0.0, 1.0], members=len(x), params=params, t1=120.0, dt=0.05, key=1, save_every=20,
        save=lambda m: m[2], integrator=cj.HeunMK(),
    )  # fmt: skip
    assert ens.stats.backend == "native"
    means = np.asarray(ens.saved)[:, 20:].mean(axis=1).reshape(3, -1)
    error = means.std(axis=1, ddof=1) / np.sqrt(means.shape[1])
    assert np.all(error < 3e-3)
    assert np.all(np.abs(means.mean(axis=1) - [0.313035, 0.537315, 0.800091]) < 4 * error)


def test_derivatives_by_temperature():
    """Forward, through the noise and the friction of a run, against differences."""

    def end(T):
        bath = cj.heat_bath(cj.System(cj.SO3(), lambda m: -m[2]), temperature=T, friction=0.5)
        return cj.solve(bath, MU0, t1=0.5, dt=0.1, key=0, integrator=cj.HeunMK()).mu[-1, 2]

    slope = jax.jvp(end, (0.3,), (1.0,))[1]
    assert abs(slope - (end(0.3001) - end(0.2999)) / 2e-4) < 1e-7


def test_a_word_where_the_law_cannot_be_normalised():
    """On non-compact orbits, if the energy does not grow; compact ones and energies that grow are taken in silence."""
    with pytest.warns(UserWarning, match=r"exp\(−h/T\) may not be normalisable on the orbits: along one from"):
        cj.heat_bath(cj.System(cj.SE3(), lambda m: m[3] + m[4] ** 2), temperature=1.0, friction=1.0)
    cj.heat_bath(cj.models.heavy_top(alpha=None)[0], temperature=1.0, friction=1.0)
    cj.heat_bath(cj.System(cj.SO3(), lambda m: -(m @ m)), temperature=1.0, friction=1.0)


def test_a_bath_on_a_lattice_asks_for_no_pairs_of_noises():
    """ΔZ of 30000 noises is so many numbers; methods that need as many as there are pairs raise."""
    window = cj.Brownian(0).window(30_000, 0.1, 0, 1, Needs(Z=True))
    block = jax.eval_shape(window.block, jnp.zeros((), int), jnp.zeros((), int))
    assert block.Z.shape == (32, 30_000) and block.areas is None
    bath = cj.heat_bath(cj.models.spin_lattice((6, 6, 6))[0], temperature=1.0, friction=1.0)
    for method, words in ((cj.TMKWeak(), "a random sign for each pair"), (cj.TMKLevy(), "an area for each pair")):
        with pytest.raises(ValueError, match=f"{words} of noises, 209628 in a step of 648 .* NinomiyaVictoir"):
            method.check(bath)
    cj.BathSplitting().check(bath)


QUIET = rigid_body()
BAD = {
    "no system": (lambda: cj.heat_bath(3, temperature=1, friction=1), TypeError, "heat_bath takes a System, not int"),
    "cold": (
        lambda: cj.heat_bath(QUIET, temperature=-0.1, friction=1),
        ValueError,
        r"temperature must be a number above 0, not -0\.1; double_bracket",
    ),
    "zero": (
        lambda: cj.heat_bath(QUIET, temperature=0, friction=1),
        ValueError,
        "temperature must be .* not 0",
    ),
    "a function": (
        lambda: cj.heat_bath(QUIET, temperature=lambda t: t - 1, friction=1),
        ValueError,
        r"temperature\(t\) must return a number above 0, but temperature\(0\) is -1",
    ),
    "a word": (lambda: cj.heat_bath(QUIET, temperature="hot", friction=1), TypeError, "temperature must be a number"),
    "slippery": (
        lambda: cj.double_bracket(QUIET, friction=-1.0),
        ValueError,
        r"friction must be a number above 0, not -1\.0",
    ),
    "nan": (
        lambda: cj.double_bracket(QUIET, friction=np.nan),
        ValueError,
        "friction must be .* not nan",
    ),
    "two": (lambda: cj.double_bracket(QUIET, friction=[1, 2]), TypeError, r"friction must be a number .* not \[1, 2\]"),
    "fields": (
        lambda: cj.double_bracket(QUIET, friction=1, fields=np.eye(2)),
        ValueError,
        r"fields must have shape \(M, 3\), M elements of the algebra, not \(2, 2\)",
    ),
    "fields of words": (
        lambda: cj.double_bracket(QUIET, friction=1, fields="all"),
        TypeError,
        "fields must be an arr",
    ),
    "fields not in su(3)": (
        lambda: cj.double_bracket(cj.System(cj.SU(3), lambda W: W[0, 0].imag), friction=1, fields=np.eye(3)),
        ValueError,
        r"fields must be an element of SU",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    make, kind, words = BAD[case]
    with pytest.raises(kind, match=words):
        make()


# --------------------------------------------------------------------------------------------- experiment files


def tables(**bath):
    model = {"name": "rigid_body", "inertia": [1, 2, 3], "alpha": "none"}
    return {"model": model, "bath": bath, "run": {"t1": 1.0, "dt": 0.1, "key": 3, "integrator": "HeunMK"}}


def test_a_bath_in_an_experiment_file(tmp_path):
    """The same run as in Python; a sweep over temperatures; friction alone; going on from a store."""
    system, mu0 = cj.models.rigid_body(inertia=(1, 2, 3), alpha=None)
    warm = cj.heat_bath(system, temperature=0.2, friction=0.5)
    expected = cj.solve(warm, mu0, t1=1.0, dt=0.1, key=3, integrator=cj.HeunMK())
    swept = tables(friction=0.5, temperature=0.1) | {"sweep": {"bath": {"temperature": [0.1, 0.2]}}}
    cj.run(swept, tmp_path / "warm.zarr")
    stored = cj.open(tmp_path / "warm.zarr")
    np.testing.assert_array_equal(np.asarray(stored["mu"].sel(temperature=0.2)), expected.mu)
    cj.run(tables(friction=0.5), tmp_path / "cold.zarr")
    longer = cj.resume(tmp_path / "cold.zarr", t1=2.0)
    assert longer.mu.shape == (21, 3) and np.all(np.diff(longer.energy()) < 0)


BAD_TABLES = {
    "unknown": ({"friction": 1, "temprature": 2}, "bath.temprature is not known: did you mean 'temperature'"),
    "missing": ({"temperature": 2}, "bath.friction is missing"),
    "negative": ({"friction": 1, "temperature": -2}, "bath.temperature must be a number above 0, not -2"),
    "fields": ({"friction": 1, "fields": [[1, 2]]}, r"bath.fields must have shape \(M, 3\)"),
}


@pytest.mark.parametrize("case", BAD_TABLES)
def test_bad_tables(case, tmp_path):
    bath, words = BAD_TABLES[case]
    with pytest.raises(cj.ExperimentError, match=words):
        cj.run(tables(**bath), tmp_path / "x.zarr")


def test_a_model_with_noise_of_its_own(tmp_path):
    noisy = tables(friction=1, temperature=1)
    del noisy["model"]["alpha"]
    with pytest.raises(cj.ExperimentError, match=r"bath\.temperature: the model has 1 noises of its own"):
        cj.run(noisy, tmp_path / "x.zarr")


def test_friction_that_vanishes():
    """A Hamiltonian that is a Casimir: its friction is round-off, which no longer is said to be no matrix of su(n)."""
    still = cj.double_bracket(cj.System(cj.SU(8), lambda W: jnp.sum(jnp.abs(W) ** 2)), friction=1.0)
    W = cj.SU(8).element(jnp.arange(63.0))
    assert np.abs(still.force(W)).max() < 1e-10


def test_a_thousand_spins_are_solved_as_well_as_one():
    """By the round-off of each: that of the sum of all met no tolerance, and steps were called unsolved."""
    system, S0 = cj.models.spin_lattice((10, 10, 10))
    hot = cj.heat_bath(system, temperature=60.0, friction=0.1)
    sol = cj.solve(hot, S0, t1=0.5, dt=0.05, key=1, save_every=10, integrator=cj.TMK(), throw=False, backend="xla")
    assert sol.stats.unsolved == 0
    assert sol.stats.most_iterations < 20  # 30 are allowed; one spin alone takes as many
    assert sol.stats.residual < 1e-14


# ---------------------------------------------------------------------------------------------------- by site


@pytest.fixture(scope="module")
def spins():
    """Three spins in a field, without coupling."""
    return cj.models.spin_lattice((3,), coupling=0.0, field=(0, 0, 1.0), S0=np.tile([0.6, 0.0, 0.8], (3, 1)))


def test_each_site_has_the_distribution_of_its_temperature(spins):
    """The mean of S_z is coth(B/T) − T/B at each site; a site without friction precesses."""
    T = np.array([0.2, 0.5, 2.0])
    options = {"members": 2048, "t1": 8.0, "dt": 0.05, "key": 0, "save_every": 160, "integrator": cj.HeunMK()}
    across = lambda mu: mu.reshape(3, 3)[:, 2]
    bath = cj.heat_bath(spins[0], temperature=T, friction=1.0)
    z = cj.ensemble(bath, spins[1], save=across, **options).saved[:, -1]
    langevin = 1 / np.tanh(1 / T) - T
    assert np.all(np.abs(z.mean(0) - langevin) < 4 * z.std(0) / np.sqrt(2048))
    alone = cj.heat_bath(spins[0], temperature=0.5, friction=[1.0, 0.0, 1.0])
    z = cj.ensemble(alone, spins[1], save=across, **options | {"members": 8}).saved[:, -1]
    assert np.abs(z[:, 1] - 0.8).max() < 1e-14 and z[:, 0].std() > 0.01


def test_equal_sites_are_one_bath(spins):
    one = cj.heat_bath(spins[0], temperature=0.3, friction=0.7)
    each = cj.heat_bath(spins[0], temperature=[0.3] * 3, friction=[0.7] * 3)
    a, b = (cj.solve(bath, spins[1], t1=1.0, dt=0.05, key=0, integrator=cj.HeunMK()).mu for bath in (one, each))
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-15)
    of = lambda T: cj.solve(
        each.with_params(each.params | {"temperature": T}), spins[1], t1=0.2, dt=0.05, key=0, integrator=cj.HeunMK()
    ).mu[-1, 2]
    slope = jax.grad(of)(jnp.array([0.3, 0.0, 0.3]))
    assert np.all(np.isfinite(slope)) and slope[0] != 0.0


def test_factors_of_different_size():
    """Friction at the second factor alone: the first one conserves its energy."""
    algebra = cj.Product(cj.SO3(), cj.SE3())
    system = cj.System(algebra, lambda mu: 0.5 * mu @ (mu / jnp.arange(1.0, 10.0)))
    cold = cj.double_bracket(system, friction=[0.0, 0.5])
    start = np.array([0.3, 0.4, 0.5, 1.0, 0.2, 0.3, 0.1, 0.8, 0.6])
    mu = cj.solve(cold, start, t1=1.0, dt=0.01, integrator=cj.RKMK("rk4")).mu
    first, second = (0.5 * np.sum(mu[:, cut] ** 2 / np.arange(1.0, 10.0)[cut], 1) for cut in (slice(3), slice(3, 9)))
    assert np.ptp(first) < 1e-9 and np.all(np.diff(second) < 0)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"temperature": [0.1, 0.2]}, "temperature must be one number, or one for each of 3 factors"),
        ({"temperature": [0.1, -0.2, 0.1]}, "not below 0"),
        ({"temperature": [0.0, 0.0, 0.0]}, "not 0 everywhere"),
        ({"temperature": [0.1] * 3, "fields": np.eye(9)}, "rates by factor need a Product and the default fields"),
    ],
)
def test_temperatures_by_site_that_are_not_valid(spins, options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        cj.heat_bath(spins[0], friction=1.0, **options)


def test_an_experiment_file_with_temperatures_by_site(tmp_path):
    tables = {
        "model": {"name": "spin_lattice", "shape": [3]},
        "bath": {"friction": 0.1, "temperature": [0.1, 0.2, 0.3]},
    }
    run = cj.run(tables | {"run": {"t1": 0.2, "dt": 0.1, "key": 0, "integrator": "HeunMK"}}, tmp_path / "run.zarr")
    assert run.mu.shape == (3, 9)
