"""Ensembles: member k is the trajectory of path k, whatever its neighbours, batches and devices; and statistics."""

import os

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from processes import Process
from tuned import tune

import coadjoint as cj
from coadjoint.runtime import loop, reduction_tree

EM = cj.EulerMaruyamaMK()
SYSTEM = cj.System(
    cj.SO3(),
    lambda m, p: 0.5 * m @ (m / p["inertia"]) + p["k"] * m[0],
    cj.salt([[0.3, 0.2, 0.5], [0.0, 0.4, 0.1]]),
    params={"inertia": np.array([4.0, 2.0, 1.5]), "k": 0.3},
)
RUN = {"t1": 1.0, "dt": 0.05, "key": 3, "integrator": EM}
INERTIA = np.array([4.0, 2.0, 1.5])
STATES = np.random.default_rng(0).standard_normal((5, 3))
KS = np.linspace(0.1, 0.9, 5)


def ensemble(members=5, **options):
    """States and one of the params by member, unless told otherwise."""
    given = {"mu0": STATES, "params": {"inertia": INERTIA, "k": KS}} | RUN | options
    return cj.ensemble(SYSTEM, given.pop("mu0"), members=members, **given)


def shared(**options):
    """One state and the system's own params for all."""
    return ensemble(mu0=STATES[0], params=None, **options)


_block = jax.jit(lambda window, member: window.block(member, jnp.asarray(0)).S)


def path(member):
    """The increments of one member."""
    return np.asarray(_block(cj.Brownian(3).window(2, 0.05, 0, 1), jnp.asarray(member)))[:20]


def alone(member, mu0=None, k=None, dS=None):
    """The same member by solve, along its own path."""
    options = RUN | {"key": None, "driver": cj.Increments(path(member) if dS is None else dS)}
    system = SYSTEM.with_params({"inertia": INERTIA, "k": KS[member] if k is None else k})
    return cj.solve(system, STATES[member] if mu0 is None else mu0, **options).mu


@pytest.fixture(scope="module")
def ens():
    return ensemble()


def same_bits(a, b):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y))


def close(a, b, tol=1e-14):
    np.testing.assert_allclose(a, b, rtol=0, atol=tol)


# Members.


def test_shapes(ens):
    assert ens.members == 5
    assert ens.t.shape == (21,) and ens.mu.shape == (5, 21, 3)
    assert ens.casimirs().shape == (5, 21, 1) and ens.energy().shape == (5, 21)
    assert ens.casimir_errors().max() < 1e-15
    assert repr(ens).splitlines()[0] == "Ensemble: SO3, left-invariant, 2 noises, EulerMaruyamaMK, 5 members"
    assert ens.stats.steps == 20 and ens.stats.unsolved == 0


def test_a_member_is_the_trajectory_of_its_path(ens):
    """With its own state and params, and along its own path."""
    np.testing.assert_array_equal(ens.mu[:, 0], STATES)
    for k in range(5):
        close(ens.mu[k], alone(k))


def test_one_state_for_all():
    """Members differ by their paths alone; member 0 has the path of solve."""
    ens = shared()
    close(ens.mu[0], cj.solve(SYSTEM, STATES[0], **RUN).mu)
    close(ens.mu[4], alone(4, STATES[0], 0.3))
    assert np.min(np.abs(np.diff(ens.mu[:, -1], axis=0)).max(axis=1)) > 1e-3  # they do differ
    same = ensemble(mu0=STATES[0], params={"inertia": INERTIA, "k": 0.3})
    close(same.mu, ens.mu)


def test_energy_is_that_of_the_members_own_hamiltonian(ens):
    kinetic = 0.5 * np.sum(ens.mu**2 / INERTIA, axis=-1)
    close(ens.energy(), kinetic + KS[:, None] * ens.mu[..., 0])
    close(ens.to_xarray()["energy"].values, ens.energy())
    same = ensemble(mu0=STATES[0], params={"inertia": INERTIA, "k": 0.7})
    close(same.energy(), 0.5 * np.sum(same.mu**2 / INERTIA, axis=-1) + 0.7 * same.mu[..., 0])


def test_a_given_path_drives_all_members_alike():
    ens = ensemble(key=None, driver=cj.Increments(path(2)))
    for k in (0, 4):
        close(ens.mu[k], alone(k, dS=path(2)))


def some(m):
    return {"square": m[0] ** 2, "rest": m[1:]}


def test_save_and_save_every(ens):
    got = ensemble(save=some, save_every=5)
    assert got.saved["square"].shape == (5, 5) and got.saved["rest"].shape == (5, 5, 2)
    close(got.saved["rest"], ens.mu[:, ::5, 1:])
    with pytest.raises(AttributeError, match=r"save= was given: see \.saved"):
        _ = got.mu


def test_to_xarray(ens):
    data = ens.to_xarray()
    assert dict(data.sizes) == {"member": 5, "time": 21, "component": 3, "casimir": 1}
    assert data["mu"].dims == ("member", "time", "component")
    np.testing.assert_array_equal(data["mu"].values, ens.mu)


def test_progress(capsys):
    ensemble(progress=True)
    err = capsys.readouterr().err.strip().splitlines()
    assert len(err) == 1 and err[0].startswith("solving: 100/100 steps")  # 5 members, 20 steps


# Neighbours, batches, order, devices.


def test_the_number_of_members_changes_nothing():
    """Beyond round-off: the place of a member in the machine depends on it. In one tile not even that."""
    five = shared().mu
    same_bits(shared(members=7).mu[:5], five)
    close(shared(members=2).mu, five[:2])


@pytest.fixture
def small_tiles(monkeypatch):
    """Tiles of two members: five members need three, the last one half empty."""
    tune(monkeypatch, max_batch_size=2)


def test_tiles_hold_all_members(ens, small_tiles):
    close(ensemble().mu, ens.mu)


def test_no_bit_depends_on_the_order_of_tiles(small_tiles, monkeypatch):
    """The last tile first, or one after the other: the same bits, of statistics too."""
    usual = ensemble(), ensemble(reduce=cj.Covariance())

    def backwards(jobs, tiles):
        done = {(job, numbers): jobs[job].batches(numbers) for job, numbers in reversed(tiles)}
        yield from (done[tile] for tile in tiles)

    monkeypatch.setattr(loop, "threads", backwards)
    same_bits(ensemble().mu, usual[0].mu)
    same_bits(ensemble(reduce=cj.Covariance()).reduced, usual[1].reduced)


def test_no_bit_depends_on_the_number_of_devices():
    """One and two CPU devices, in processes of their own."""
    program = """
import hashlib, sys, warnings
warnings.simplefilter("error")
import numpy as np, jax
import coadjoint as cj
from coadjoint.runtime import tuning
tuning._current = tuning.Tuning(max_batch_size=4)
system, mu0 = cj.models.rigid_body(alpha=(0.3, 0.2, 0.5))
options = dict(members=11, t1=1.0, dt=0.05, key=3, integrator=cj.EulerMaruyamaMK())
ens = cj.ensemble(system, mu0, **options)
red = cj.ensemble(system, mu0, reduce=cj.Mean(), **options)
digest = hashlib.sha256(ens.mu.tobytes())
for leaf in jax.tree.leaves(red.reduced):
    digest.update(np.asarray(leaf).tobytes())
print(len(jax.local_devices()), digest.hexdigest())
"""
    results = []
    for devices in (1, 2):
        flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
        environment = os.environ | {"XLA_FLAGS": flags.strip(), "JAX_PLATFORMS": "cpu"}
        process = Process(program, env=environment)
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
        results.append(out.split())
    assert [r[0] for r in results] == ["1", "2"]
    assert results[0][1] == results[1][1]


# Statistics.


@pytest.mark.parametrize("tile", [1024, 2])
def test_mean(ens, tile, monkeypatch):
    tune(monkeypatch, max_batch_size=tile)
    got = ensemble(reduce=cj.Mean())
    assert set(got.reduced) == {"mean", "variance", "standard_error"}
    close(got.reduced["mean"], ens.mu.mean(axis=0))
    close(got.reduced["variance"], ens.mu.var(axis=0, ddof=1))
    close(got.reduced["standard_error"], ens.mu.std(axis=0, ddof=1) / np.sqrt(5))
    for attribute in (lambda: got.mu, lambda: got.saved, got.casimirs, got.energy):
        with pytest.raises(AttributeError, match=r"reduce= was given: see \.reduced"):
            attribute()
    assert "5 members" in repr(got) and "casimirs" not in repr(got)


@pytest.mark.parametrize("tile", [1024, 2])
def test_covariance(ens, tile, monkeypatch):
    tune(monkeypatch, max_batch_size=tile)
    got = ensemble(reduce=cj.Covariance()).reduced
    assert got["mean"].shape == (21, 3) and got["covariance"].shape == (21, 3, 3)
    close(got["mean"], ens.mu.mean(axis=0))
    for n in (0, 10, 20):
        close(got["covariance"][n], np.cov(ens.mu[:, n].T))


def test_statistics_of_saved_values(ens):
    got = ensemble(reduce=cj.Mean(), save=some, save_every=10).reduced
    close(got["mean"]["square"], (ens.mu[:, ::10, 0] ** 2).mean(axis=0))
    close(got["variance"]["rest"], ens.mu[:, ::10, 1:].var(axis=0, ddof=1))


@eqx.filter_jit
def reduce_by_hand(reducer, tiles, weight=None):
    """A reducer on batches of members, merged from left to right."""
    total = None
    for x in tiles:
        acc = reducer.update(reducer.init(x[0]), x, jnp.ones(len(x)) if weight is None else weight)
        total = acc if total is None else reducer.merge(total, acc)
    return reducer.result(total)


def test_mean_of_one_member():
    got = reduce_by_hand(cj.Mean(), [np.ones((1, 3))])
    assert np.all(got["variance"] == 0) and np.all(got["standard_error"] == 0) and np.all(got["mean"] == 1)


def test_reducers_do_not_cancel():
    """A variance of 1e-16 beside a mean of 1: sums of squares would lose it altogether."""
    x = 1.0 + 1e-8 * np.random.default_rng(0).standard_normal((300, 2))
    got = reduce_by_hand(cj.Mean(), np.split(x, [7, 100]))
    np.testing.assert_allclose(got["variance"], x.var(axis=0, ddof=1), rtol=1e-6)
    np.testing.assert_allclose(got["mean"], x.mean(axis=0), rtol=1e-15)
    cov = reduce_by_hand(cj.Covariance(), np.split(x, [7, 100]))
    np.testing.assert_allclose(cov["covariance"], np.cov(x.T), rtol=1e-5, atol=1e-22)


def test_reducers_of_complex_values():
    x = np.random.default_rng(0).standard_normal((50, 2)) * np.array([1.0, 1j]) + 2.0
    got = reduce_by_hand(cj.Mean(), np.split(x, [20]))
    np.testing.assert_allclose(got["mean"], x.mean(axis=0))
    np.testing.assert_allclose(got["variance"], x.var(axis=0, ddof=1))
    cov = reduce_by_hand(cj.Covariance(), np.split(x, [20]))
    np.testing.assert_allclose(cov["covariance"], np.cov(x.T))


def test_padding_has_no_weight():
    x = np.arange(12.0).reshape(4, 3)
    weight = np.array([1.0, 1.0, 0.0, 0.0])
    for reducer in cj.Mean(), cj.Covariance(), cj.Quantiles(low=0.0, high=12.0):
        padded = reduce_by_hand(reducer, [x], weight)
        alone = reduce_by_hand(reducer, [x[:2]])
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-15), padded, alone)


def test_quantiles():
    """Right to within a bin, for each entry; merging changes nothing; what is outside is counted."""
    x = np.random.default_rng(0).standard_normal((1000, 2)) * np.array([1.0, 0.1])
    q, low, high = (0.0, 0.01, 0.25, 0.5, 0.975, 1.0), np.array([-5.0, -0.5]), np.array([5.0, 0.5])
    reducer = cj.Quantiles(q, low=low, high=high, bins=500)
    got = reduce_by_hand(reducer, np.split(x, [3, 700]))
    assert got["quantiles"].shape == (6, 2) and np.all(got["outside"] == 0)
    assert np.all(np.abs(got["quantiles"] - np.quantile(x, q, axis=0, method="inverted_cdf")) < (high - low) / 500)
    jax.tree.map(np.testing.assert_array_equal, got, reduce_by_hand(reducer, [x]))
    x[:100, 0], x[0, 1] = -7.0, np.nan
    got = reduce_by_hand(reducer, [x])
    assert got["outside"].tolist() == [0.1, 0.001]
    assert np.all(got["quantiles"][:2, 0] == -np.inf) and got["quantiles"][-1, 1] == np.inf
    assert np.all(np.isfinite(got["quantiles"][2:5]))


def test_accumulators_at_hand_are_few(small_tiles, monkeypatch):
    """Those of a chunk are bounded in size, whatever the reducer: many bins of few members would take gigabytes."""
    sizes = []

    def update(*arguments):
        out = original(*arguments)
        sizes.append(sum(x.nbytes for x in jax.tree.leaves(out)))
        return out

    original = reduction_tree.update
    monkeypatch.setattr(reduction_tree, "update", update)
    ensemble(reduce=cj.Quantiles(0.5, low=-2.0, high=2.0, bins=4000))
    assert sizes and max(sizes) < 2**22


def test_quantiles_of_an_ensemble(ens, small_tiles):
    got = ensemble(reduce=cj.Quantiles(0.5, low=-2.0, high=2.0, bins=4000)).reduced["quantiles"]
    assert got.shape == (ens.mu.shape[1], 1, ens.mu.shape[2])
    assert np.all(np.abs(got[:, 0] - np.quantile(ens.mu, 0.5, axis=0, method="inverted_cdf")) < 0.001)


@pytest.mark.parametrize(
    "bad, message",
    [
        ({"q": 1.5}, "q must be probabilities between 0 and 1"),
        ({"low": 2.0}, "low must be below high"),
        ({"high": np.inf}, "low must be below high, both finite"),
        ({"bins": 0}, "bins must be"),
    ],
)
def test_quantiles_of_bad_input(bad, message):
    with pytest.raises(ValueError, match=message):
        cj.Quantiles(**{"low": 0.0, "high": 1.0} | bad)


class Largest(eqx.Module):
    """A user's reducer: the largest first component."""

    def init(self, x):
        return jnp.full((), -jnp.inf)

    def update(self, acc, x, weight):
        return jnp.maximum(acc, jnp.max(jnp.where(weight > 0, x[:, 0], -jnp.inf)))

    def merge(self, acc, other):
        return jnp.maximum(acc, other)

    def result(self, acc):
        return acc


class PlainLargest:
    """The same without Equinox."""

    init, update, merge, result = Largest.init, Largest.update, Largest.merge, Largest.result


@pytest.mark.parametrize("reducer", [Largest(), PlainLargest()], ids=["module", "plain object"])
def test_a_reducer_of_ones_own(ens, reducer, small_tiles):
    close(ensemble(reduce=reducer).reduced, ens.mu[..., 0].max(axis=0))


# Inside a transformation of JAX's.


def test_a_traced_ensemble_is_the_same(ens):
    @jax.jit
    def traced(mu0):
        members = cj.ensemble(SYSTEM, mu0, members=5, params={"inertia": INERTIA, "k": KS}, **RUN)
        return members.mu, members.energy()

    mu, energy = traced(STATES)
    close(mu, ens.mu)
    close(energy, ens.energy())


def test_tiles_of_few_steps_are_stepped_as_one(monkeypatch):
    """Which changes no bit: neither of states nor of what solvers report."""
    top, mu0 = cj.models.heavy_top()
    run = {"members": 16 * 1024 + 5, "t1": 0.03, "dt": 0.01, "key": 1}
    begun = []
    run_batches = loop.run_batches
    monkeypatch.setattr(loop, "run_batches", lambda *args: begun.append(args[1]) or run_batches(*args))
    together = cj.ensemble(top, mu0, **run)
    tune(monkeypatch, batches_per_launch=1)
    alone = cj.ensemble(top, mu0, **run)
    sizes = [len(numbers) for numbers in begun]
    assert sorted(sizes[:9]) == [1] + [2] * 8 and sizes[9:] == [1] * 17  # by two threads, in any order
    np.testing.assert_array_equal(together.mu, alone.mu)
    assert repr(together.stats) == repr(alone.stats)
