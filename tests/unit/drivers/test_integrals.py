"""What drivers give beside increments: laws of ΔZ and of Lévy areas, Chen's relation, refinement, errors."""

import equinox as eqx
import jax
import numpy as np
import pytest

import coadjoint as cj
from coadjoint.drivers import AREA_ERROR, Increment, Needs, joined, mean_third, mode_count
from coadjoint.runtime.backends import path_sampling

EVERYTHING = Needs(Z=True, areas=True, third=True)
TOGETHER = 8  # blocks that one call draws, however many are asked for: so the tests share what is compiled


def draw(driver, dt, needs, blocks, n_noise, member=0):
    """The increments of blocks 0 … blocks − 1, as arrays along steps."""
    window = driver.window(n_noise, dt, 0, blocks, needs)
    parts = [_draw(window, np.asarray(member), b + np.arange(TOGETHER)) for b in range(0, blocks, TOGETHER)]
    return jax.tree.map(lambda *xs: np.concatenate(xs)[:blocks].reshape(-1, *xs[0].shape[2:]), *parts)


@eqx.filter_jit
def _draw(window, member, blocks):
    return jax.vmap(lambda b: window.block(member, b))(blocks)


# ---------------------------------------------------------------------------------------------------- laws

H = 0.25  # two Fourier modes only: the tails matter


@pytest.fixture(scope="module")
def sample():
    """200 000 steps of two noises."""
    assert mode_count(2, H) <= 2
    return draw(cj.Brownian(1), H, Needs(Z=True, areas=True), 6250, 2)


def near(values, mean, sigmas=4.5):
    """The mean of the values is what it should be, within its standard error."""
    assert abs(values.mean() - mean) <= sigmas * values.std() / np.sqrt(len(values))


def test_law_of_z(sample):
    """(ΔW, ΔZ) is Gaussian with Var ΔZ = h³/3 and Cov(ΔW, ΔZ) = h²/2, independent between noises."""
    W, Z = sample.S, sample.Z
    for i in range(2):
        near(W[:, i] ** 2, H)
        near(Z[:, i], 0.0)
        near(Z[:, i] ** 2, H**3 / 3)
        near(Z[:, i] ** 4, 3 * (H**3 / 3) ** 2)
        near(W[:, i] * Z[:, i], H**2 / 2)
        near(W[:, i] * Z[:, 1 - i], 0.0)
    near(Z[:, 0] * Z[:, 1], 0.0)
    near(Z[1:, 0] * Z[:-1, 0], 0.0)


@pytest.mark.parametrize("angle", [0.25, 0.5, 1.0, 2.0, 3.0])
def test_characteristic_function_of_an_area(sample, angle):
    """Lévy: E exp(iλA) = 1/cosh(λh/2)."""
    A = sample.areas[:, 0, 1]
    near(np.cos(2 * angle / H * A), 1 / np.cosh(angle))
    near(np.sin(2 * angle / H * A), 0.0)


def test_moments_of_an_area(sample):
    """E A² = h²/4, E A⁴ = 5h⁴/16; given ΔW the variance is h²/12 + h|ΔW|²/12."""
    A, r2 = sample.areas[:, 0, 1], np.sum(sample.S**2, axis=1)
    np.testing.assert_allclose(sample.areas, -sample.areas.swapaxes(1, 2), rtol=0, atol=1e-15)
    near(A**2, H**2 / 4)
    near(A**4, 5 * H**4 / 16)
    for low, high in ((0.0, 0.2), (0.2, 0.5), (0.5, 1.0), (1.0, 9.0)):
        part = (r2 >= low) & (r2 < high)
        assert part.sum() > 3000
        near(A[part] ** 2 - H**2 / 12 - H * r2[part] / 12, 0.0)
        near(A[part], 0.0)


def test_joint_law_of_area_and_z(sample):
    """E A_ij ΔZ_i ΔW_j = h³/12 = −E A_ij ΔZ_j ΔW_i, from the Fourier series of the bridge."""
    A = sample.areas[:, 0, 1]
    near(A * sample.Z[:, 0] * sample.S[:, 1], H**3 / 12)
    near(A * sample.Z[:, 1] * sample.S[:, 0], -(H**3) / 12)
    near(A * sample.Z[:, 0], 0.0)
    near(A * sample.S[:, 0], 0.0)


def test_joint_law_of_three_areas():
    """Areas of different pairs are uncorrelated; E A_12 A_13 ΔW_2 ΔW_3 = h³/12."""
    h = 0.04
    s = draw(cj.Brownian(2), h, Needs(Z=True, areas=True), 2000, 3)
    A12, A13, A23 = s.areas[:, 0, 1], s.areas[:, 0, 2], s.areas[:, 1, 2]
    for A in (A12, A13, A23):
        near(A**2, h**2 / 4)
        near(np.cos(3 / h * A), 1 / np.cosh(1.5))
    near(A12 * A13, 0.0)
    near(A12 * A13 * s.S[:, 1] * s.S[:, 2], h**3 / 12)


@pytest.mark.parametrize("n_noise", [2, 3, 10])
def test_modes_give_the_promised_error(n_noise):
    """√(M/12) h/(πp) ≤ C h^{3/2}, with no more modes than that."""
    for h in (1.0, 0.1, 1e-3, 1e-5):
        p = mode_count(n_noise, h)
        assert np.sqrt(n_noise / 12) * h / (np.pi * p) <= AREA_ERROR * h**1.5 * (1 + 1e-12)
        assert p == 1 or np.sqrt(n_noise / 12) * h / (np.pi * (p - 1)) > AREA_ERROR * h**1.5


# ------------------------------------------------------------------------------------------ Chen's relation


def log_signature(x):
    """Levels 2 and 3 of the logarithm of the signature of a polygon, from its iterated sums."""
    M = x.shape[1]
    one, two, three = np.zeros(M), np.zeros((M, M)), np.zeros((M, M, M))
    for y in x:  # S ⊗ exp(y)
        yy = np.einsum("i,j->ij", y, y) / 2
        three = three + np.multiply.outer(two, y) + np.multiply.outer(one, yy) + np.multiply.outer(yy, y) / 3
        two = two + np.einsum("i,j->ij", one, y) + yy
        one = one + y
    # log(1 + u) = u − u²/2 + u³/3
    oo = np.einsum("i,j->ij", one, one)
    mixed = np.einsum("i,jk->ijk", one, two) + np.einsum("ij,k->ijk", two, one)
    return two - oo / 2, three - mixed / 2 + np.einsum("ij,k->ijk", oo, one) / 3


def test_joining_is_the_signature():
    """Segments joined one by one, and as a tree, against iterated sums; ΔZ against the trapezoidal rule."""
    x = np.random.default_rng(0).standard_normal((8, 3))
    h = 0.1

    def segment(y):
        zero = np.zeros
        return Increment(y, zero(()), 0.5 * h * y, zero((3, 3)), zero((3, 3, 3)))

    parts = [segment(y) for y in x]
    chain = parts[0]
    for part in parts[1:]:
        chain = joined(chain, part, h)
    while len(parts) > 1:
        length = h * 8 / len(parts)
        parts = [joined(a, b, length) for a, b in zip(parts[::2], parts[1::2], strict=True)]
    areas, third = log_signature(x)
    W = np.concatenate([np.zeros((1, 3)), np.cumsum(x, axis=0)])
    Z = h * (0.5 * W[0] + W[1:-1].sum(axis=0) + 0.5 * W[-1])
    for whole in (chain, parts[0]):
        np.testing.assert_allclose(whole.S, x.sum(axis=0), atol=1e-14)
        np.testing.assert_allclose(whole.Z, Z, atol=1e-14)
        np.testing.assert_allclose(whole.areas, areas, atol=1e-13)
        np.testing.assert_allclose(whole.third, third, atol=1e-13)


@pytest.mark.parametrize("dt", [0.25, 0.5, 1.5])
def test_runs_share_integrals(dt):
    """Base grid 0.5, finest grid 0.125: a coarse run has what the fine one adds up to, and its old increments."""
    driver, finest = cj.Brownian(7, grid=0.5, depth=2), 0.125
    fine = draw(driver, finest, EVERYTHING, 8, 2)
    coarse = draw(driver, dt, EVERYTHING, 1, 2)
    np.testing.assert_allclose(coarse.S, draw(driver, dt, Needs(), 1, 2).S, atol=1e-14)
    q = round(dt / finest)
    for n in range(5):
        cells = [jax.tree.map(lambda x, k=k: x[k], fine) for k in range(n * q, (n + 1) * q)]
        whole = cells[0]
        for cell in cells[1:]:
            whole = joined(whole, cell, finest)
        for name in ("S", "Z", "areas", "third"):
            np.testing.assert_allclose(getattr(coarse, name)[n], getattr(whole, name), atol=1e-13, err_msg=name)
    assert np.abs(coarse.third[:5]).max() > 1e-3


def test_integrals_do_not_depend_on_what_else_is_asked_for():
    """ΔZ with and without areas, areas with and without level 3."""
    driver = cj.Brownian(3, grid=0.1, depth=2)
    whole = draw(driver, 0.1, EVERYTHING, 1, 2)
    alone = draw(driver, 0.1, Needs(Z=True), 1, 2)
    np.testing.assert_allclose(alone.Z, whole.Z, atol=1e-15)
    np.testing.assert_allclose(draw(driver, 0.1, Needs(areas=True), 1, 2).areas, whole.areas, atol=1e-15)
    assert alone.areas is None


def test_parts_of_a_step():
    """Halved steps: the parts are those of a run with smaller steps."""
    driver = cj.Brownian(3, grid=0.1, depth=2)
    parts = draw(driver, 0.1, Needs(Z=True, areas=True, halvings=2), 1, 2)
    fine = draw(driver, 0.025, EVERYTHING, 4, 2)
    assert parts.S.shape == (32, 4, 2) and parts.areas.shape == (32, 4, 2, 2)
    for name in ("S", "Z", "areas", "bound"):
        a = getattr(parts, name)
        np.testing.assert_allclose(a.reshape(-1, *a.shape[2:]), getattr(fine, name), atol=1e-15, err_msg=name)


@pytest.mark.parametrize("depth", [0, 3])
def test_mean_of_level_three(depth):
    """E ℓ_ijk ΔW_l = (h²/12)(δ_ij δ_kl − 2 δ_ik δ_jl + δ_jk δ_il), on whatever grid it is sampled; E ℓ = 0."""
    one = np.eye(2)
    exact = np.einsum("ij,kl->ijkl", one, one) - 2 * np.einsum("ik,jl->ijkl", one, one)
    exact = H**2 / 12 * (exact + np.einsum("jk,il->ijkl", one, one))
    blocks = 2000 >> depth // 2  # 2^depth parts a step: as many numbers again, and what is shown is the same
    s = draw(cj.Brownian(1, depth=depth), H, Needs(third=True), blocks, 2)
    for index in np.ndindex(2, 2, 2):
        third = s.third[:, *index]
        near(third, 0.0)
        for i in range(2):
            near(third * s.S[:, i], exact[*index, i])


def test_level_three_is_sampled_in_parts():
    """By default in at least dt^{−½} parts, so that what is dropped is of order dt²."""
    for dt in (0.5, 0.1, 0.01, 1e-3):
        below = cj.Brownian(0).window(2, dt, 0, 1, EVERYTHING).below
        assert dt**-0.5 <= 2**below < 2 * dt**-0.5
    assert cj.Brownian(0).window(2, 0.01, 0, 1, Needs(Z=True, areas=True)).below == 0


_mean_third = jax.jit(mean_third)


@pytest.mark.parametrize("dt", [0.25, 0.0625, 0.015625])
def test_what_is_dropped_of_level_three(dt):
    """On a path sampled much finer: what level 3 of the default parts has beside its mean is at most of size dt²."""
    below = cj.Brownian(0).window(2, dt, 0, 1, EVERYTHING).below
    assert below <= 3
    parts = draw(cj.Brownian(1, depth=6), dt, Needs(third=True, halvings=3), 10, 2)  # one program for all dt
    for _ in range(below, 3):
        parts = joined(*(jax.tree.map(lambda x, k=k: x[:, k::2], parts) for k in range(2)), 0.0)
    whole = dropped = None
    for k in range(2**below):
        part = jax.tree.map(lambda x, k=k: x[:, k], parts)
        without = eqx.tree_at(lambda i: i.third, part, np.asarray(_mean_third(part.S, dt / 2**below)))
        whole = part if whole is None else joined(whole, part, 0.0)
        dropped = without if dropped is None else joined(dropped, without, 0.0)
    np.testing.assert_allclose(whole.areas, dropped.areas, atol=1e-13)
    size, error = (np.sqrt(np.mean(np.sum(x**2, axis=(1, 2, 3)))) for x in (whole.third, whole.third - dropped.third))
    assert 0.1 * dt**2 < error < dt**2 and error < size / 2**below * 2


PINNED = {
    "S": [-0.05955464220441921, -0.02449177761117089, 0.07958463497324905],
    "Z": [-0.0005445479665427007, -0.0005515947894875325, 0.00010335834791021615],
    "areas": [-0.0032821874911110674, -0.003494385933681023, -0.004935292777390899],
}


def test_stream_is_pinned():
    """Version 1 of the stream, integrals included: another number here is another version."""
    one = draw(cj.Brownian(5), 0.01, Needs(Z=True, areas=True), 1, 3, member=2)
    np.testing.assert_allclose(one.S[3], PINNED["S"], rtol=1e-12)
    np.testing.assert_allclose(one.Z[3], PINNED["Z"], rtol=1e-12)
    np.testing.assert_allclose(one.areas[3][np.triu_indices(3, 1)], PINNED["areas"], rtol=1e-11)


# -------------------------------------------------------------------------------------------------- errors

TOP, MU0 = cj.models.heavy_top(alpha=0.5 * np.eye(3))
NONLINEAR = cj.System(cj.SE3(), lambda m: m @ m, [lambda m: m[0] ** 2])


@pytest.mark.parametrize(
    "driver, integrator, words",
    [
        (cj.Increments(np.zeros((4, 3)), brownian=True), cj.TMKLevy(), "areas="),
        (cj.Increments(np.zeros((4, 3)), areas=np.zeros((4, 3, 3)), brownian=True), cj.TMK15(), "Z="),
        (cj.Increments(np.zeros((4, 3)), np.zeros((4, 3)), np.zeros((4, 3, 3)), True), cj.TMK15(), "TMKLevy"),
        (cj.Increments(np.zeros((4, 3))), cj.Adaptive(cj.TMK()), "halve"),
        (cj.Brownian(1, grid=0.5, depth=0), cj.TMKLevy(), "depth=1"),
        (cj.Brownian(1, grid=0.125), cj.Adaptive(cj.TMK()), "grid = 0.25"),
        (cj.Brownian(1, grid=0.25, depth=2), cj.Adaptive(cj.TMKLevy(), halvings=3), "depth=3"),
    ],
)
def test_a_method_says_what_it_needs(driver, integrator, words):
    with pytest.raises(ValueError, match=words):
        cj.solve(TOP, MU0, t1=1.0, dt=0.25, driver=driver, integrator=integrator)


def test_strong_15_needs_salt_noise():
    with pytest.raises(ValueError, match="TMKLevy"):
        cj.solve(NONLINEAR, MU0, t1=1.0, dt=0.25, key=0, integrator=cj.TMK15())


@pytest.mark.parametrize(
    "given, words",
    [
        ({"Z": np.zeros((4, 2))}, "shape of dS"),
        ({"areas": np.zeros((4, 3))}, "shape"),
        ({"areas": np.ones((4, 3, 3))}, "antisymmetric"),
        ({"Z": np.full((4, 3), np.nan)}, "finite"),
    ],
)
def test_given_integrals_are_checked(given, words):
    with pytest.raises(ValueError, match=words):
        cj.Increments(np.zeros((4, 3)), **given)


def test_given_integrals_are_used():
    """A path given with the areas that Brownian sampled makes the same run."""
    path = draw(cj.Brownian(4), 0.1, Needs(Z=True, areas=True), 1, 3)
    given = cj.Increments(path.S[:8], areas=path.areas[:8], brownian=True)
    a = cj.solve(TOP, MU0, t1=0.8, dt=0.1, driver=given, integrator=cj.TMKLevy())
    b = cj.solve(TOP, MU0, t1=0.8, dt=0.1, key=4, integrator=cj.TMKLevy())
    np.testing.assert_allclose(a.mu, b.mu, atol=1e-13)
    plain = cj.solve(TOP, MU0, t1=0.8, dt=0.1, key=4)
    assert np.abs(plain.mu[-1] - b.mu[-1]).max() > 1e-3


def test_means_over_brownian_motion_need_a_brownian_path():
    """Along a smooth path they would lower the order; TMK, and TMKLevy if noises commute, support any path."""
    smooth = cj.Increments(np.full((4, 3), 0.1), Z=np.full((4, 3), 0.005), areas=np.zeros((4, 3, 3)))
    for method in (cj.TMK15(), cj.TMKLevy(), cj.TMKWeak(), cj.NinomiyaVictoir(), cj.BathSplitting()):
        with pytest.raises(ValueError, match=r"means over Brownian motion.*brownian=True"):
            cj.solve(TOP, MU0, t1=0.4, dt=0.1, driver=smooth, integrator=method)
    cj.solve(TOP, MU0, t1=0.4, dt=0.1, driver=smooth)


def test_commuting_noises_are_known():
    """They ask for less."""
    e = np.array([0.6, 0.0, 0.8])
    z = np.zeros(3)

    def system(*beta):
        return cj.System(cj.SE3(), lambda m: m @ m, [cj.salt(np.array(beta))])

    pair = system(np.r_[e, z], np.r_[0.2 * e, 0.7 * e])
    assert pair.commuting and not TOP.commuting and not NONLINEAR.commuting
    assert system(np.r_[e, z]).commuting
    assert cj.TMKLevy().needs(pair) == Needs() and cj.TMKLevy().needs(TOP) == Needs(areas=True, brownian=True)
    assert cj.TMK15().needs(pair) == Needs(Z=True, brownian=True)
    assert cj.TMK15().needs(TOP) == Needs(Z=True, third=True, brownian=True)
    assert cj.TMKLevy().needs(NONLINEAR) == Needs()  # one noise has no areas


@pytest.mark.parametrize(
    ("driver", "dt", "needs"),
    [
        (cj.Brownian(3), 0.01, Needs(Z=True, areas=True)),
        (cj.Brownian(3, grid=0.01, depth=2), 0.03, EVERYTHING),
        (cj.Brownian(3, grid=0.04), 0.01, Needs()),
        (cj.Brownian(3, grid=0.04, depth=2), 0.02, Needs(Z=True)),
    ],
)
def test_pairs_of_steps_are_those_of_a_block(driver, dt, needs):
    """As they are drawn for native code: no more than are needed, two at a time."""
    window = driver.window(2, dt, 0, 2, needs)
    block = jax.tree.map(lambda x: x[32:], draw(driver, dt, needs, 2, 2, member=5))
    flat = np.concatenate([np.asarray(x).reshape(32, -1) for x in jax.tree.leaves(block)], axis=1)
    columns = tuple(range(flat.shape[1]))
    drawn = np.asarray(path_sampling._draw(window, np.array([[5, 6]]), 1, 3, columns, 2))[0, :, :, 0]
    np.testing.assert_allclose(drawn[:6], flat[:6], rtol=1e-13, atol=1e-16)  # XLA may round otherwise for other shapes
    assert not drawn[6:].any(), "more was drawn than was asked for"
