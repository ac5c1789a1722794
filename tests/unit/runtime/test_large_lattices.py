"""Lattices so large that memory is what they cost: by XLA, and as sweeps of native code over their sites."""

import re
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tuned import tune

import coadjoint as cj
from coadjoint.runtime import loop
from coadjoint.runtime.backends import lattice_backend, site_kernel, xla
from stepcompiler.lattices.lattice_lowering import OneSite
from stepcompiler.lattices.site_values import PerSite

DT, STEPS = 0.02, 11
SIDES = (5, 7)  # sites that are no multiple of eight
SITES = 35


@pytest.fixture(scope="module")
def bath():
    """32³ spins in a heat bath, and their start."""
    system, start = cj.models.spin_lattice((32, 32, 32))
    return cj.heat_bath(system, temperature=1.0, friction=0.1), start


def stepped(bath, steps, backend="auto"):
    return cj.solve(*bath, t1=steps * DT, dt=DT, key=0, integrator=cj.HeunMK(), save_every=steps, backend=backend)


def test_a_chunk_of_steps_by_xla_takes_the_memory_of_few_states(bath, monkeypatch):
    """The system gives it, page by page, to every chunk: a path drawn for 32 steps at once took 40 states and more."""
    calls, advance = [], xla._advance
    monkeypatch.setattr(xla, "_advance", lambda *args: calls.append(args) or advance(*args))
    stepped(bath, 1, "xla")
    memory = advance.lower(*calls[0]).compile().compiled.memory_analysis()
    assert memory.temp_size_in_bytes < 20 * bath[1].nbytes


@pytest.mark.parametrize("backend", ["native", "xla"])
def test_where_chunks_end_changes_nothing(bath, monkeypatch, backend):
    """Parts of a block of steps are drawn more than once."""
    whole = stepped(bath, 19, backend)
    cuts = [0, 1, 2, 5, 8, 18, 19]
    monkeypatch.setattr(loop, "chunks", lambda *_: pairwise(cuts))
    np.testing.assert_array_equal(stepped(bath, 19, backend).mu, whole.mu)


def test_both_backends_agree_and_the_fast_one_is_taken(bath):
    """32³ spins: the lattice is continued on all sides there, and gone through in parts."""
    native, by_xla = stepped(bath, 3), stepped(bath, 3, "xla")
    assert native.stats.backend == "native"
    np.testing.assert_allclose(native.mu, by_xla.mu, rtol=0, atol=4e-15)


# Small ones, taken for large.


@pytest.fixture
def sweeps(monkeypatch):
    """Native code takes small lattices by sweeps, too: one program for all sites is too long."""
    tune(monkeypatch, lattice_copies=16, native_operations=10)


def a_bath(sides=SIDES, **options):
    system, start = cj.models.spin_lattice(sides, anisotropy=0.3, field=(0.1, 0.2, 0.3), **options)
    return cj.heat_bath(system, temperature=1.0, friction=0.1), start


def run(system, start, backend="native", **options):
    given = {"t1": STEPS * DT, "dt": DT, "integrator": cj.HeunMK(), "backend": backend}
    given |= {"key": 0} if system.n_noise and "driver" not in options else {}
    return cj.solve(system, start, **given | options)


def agree(system, start, **options):
    native, by_xla = run(system, start, **options), run(system, start, "xla", **options)
    np.testing.assert_allclose(native.mu, by_xla.mu, rtol=0, atol=4e-15)
    return native, by_xla


def test_all_terms_of_the_lattice(sweeps):
    """Neighbours along both axes and across, in a heat bath."""
    agree(*a_bath(dm=np.arange(6.0).reshape(2, 3) / 10, dipole=0.2, cutoff=1.5))


METHODS = {
    "Euler–Maruyama": cj.EulerMaruyamaMK(),
    "rk4": cj.RKMK("rk4"),
    "Heun by Cayley": cj.RKMK("heun", tau=cj.Cayley()),
}


@pytest.mark.parametrize("method", METHODS)
def test_methods(sweeps, method):
    """As many sweeps as they have stages."""
    agree(*a_bath(), integrator=METHODS[method])


@pytest.mark.parametrize(("turn", "used"), [(0.0, True), (1.0, False)], ids=["parallel", "random"])
def test_the_gradient_that_the_initial_state_selects(sweeps, turn, used):
    """Without noise sweeps read it at each site."""
    rng = np.random.default_rng(0)
    S0 = np.array([0.6, 0.0, 0.8]) + turn * rng.standard_normal((*SIDES, 3))
    system, start = cj.models.spin_lattice(SIDES, field=(0.0, 0.0, 0.5), S0=S0)
    native, _ = agree(system, start)
    assert native.stats.backend == "native"
    chosen = run(system, start, integrator=cj.HeunMK(remove_stabiliser=used))
    np.testing.assert_allclose(native.mu, chosen.mu, rtol=0, atol=2e-15)


def test_commutator_free(sweeps):
    """Friction, and flows one after the other."""
    system, start = cj.models.spin_lattice(SIDES)
    agree(cj.double_bracket(system, friction=0.4), start, integrator=cj.CommutatorFree())


def own_system():
    """A ring by shifts, whose derivative is left to JAX, with a field and an anisotropy of each site's own."""

    def h(mu, p):
        S = mu.reshape(SITES, 3)
        near = jnp.sum(S * jnp.roll(S, -1, 0))
        return -p["J"] * near + 0.5 * jnp.sum(p["d"] * S[:, 2] ** 2) - jnp.sum(p["B"] * S)

    rng = np.random.default_rng(0)
    params = {"J": 1.0, "d": np.linspace(0, 1, SITES), "B": rng.standard_normal((SITES, 3))}
    system = cj.System(cj.Product(cj.SO3(), copies=SITES), h, params=params)
    return cj.heat_bath(system, temperature=0.5, friction=0.1), cj.models.spin_lattice(SIDES)[1]


def test_a_hamiltonian_of_ones_own_a_given_path_and_attitudes(sweeps):
    """Nothing is known of the lattice but the function."""
    system, start = own_system()
    path = cj.Increments(0.1 * np.random.default_rng(1).standard_normal((STEPS, 3 * SITES)))
    native, by_xla = agree(system, start, driver=path, group=True)
    np.testing.assert_allclose(native.g, by_xla.g, rtol=0, atol=4e-15)


def test_an_ensemble_is_many_trajectories(sweeps):
    """Members with parameters of their own, also by site; what is saved is a function of the state; statistics."""
    system, start = own_system()
    params = system.params | {"temperature": np.array([0.1, 0.5, 2.0])}
    params["system"] = params["system"] | {"B": np.stack([system.params["system"]["B"] * k for k in range(3)])}
    save = lambda mu: mu[3:9]
    given = {"members": 3, "t1": STEPS * DT, "dt": DT, "key": 0, "integrator": cj.HeunMK(), "save": save}
    many = cj.ensemble(system, start, params=params, **given)
    assert many.stats.backend == "native"
    for k in range(3):
        own = {"temperature": params["temperature"][k], "system": params["system"] | {"B": params["system"]["B"][k]}}
        alike = cj.ensemble(system.with_params(system.params | own), start, **given)
        np.testing.assert_array_equal(many.saved[k], alike.saved[k])
    mean = cj.ensemble(system, start, params=params, reduce=cj.Mean(), **given).reduced["mean"]
    np.testing.assert_allclose(mean, np.mean(many.saved, axis=0), atol=1e-15)


def test_given_times_and_reducers_along_time(sweeps, tmp_path):
    """Irregular times have the states of the whole run; reducers with states agree with NumPy, also resumed."""
    system, start = a_bath()
    given = {"members": 3, "t1": STEPS * DT, "dt": DT, "key": 0, "integrator": cj.HeunMK(), "backend": "native"}
    whole = cj.ensemble(system, start, **given)
    steps = np.array([0, 1, 4, 5, 11])
    some = cj.ensemble(system, start, save_at=steps * DT, **given)
    assert some.stats.backend == "native"
    np.testing.assert_array_equal(some.mu, whole.mu[:, steps])
    reduce = {"average": cj.TimeAverage(), "largest": cj.RunningMax()}
    t, x = steps * DT, whole.mu[:, steps]
    given |= {"save_at": t, "reduce": reduce}
    found = cj.ensemble(system, start, **given)
    assert found.stats.backend == "native"
    pieces = 0.5 * (x[:, 1:] + x[:, :-1]) * np.diff(t)[:, None]
    average = np.cumsum(pieces, axis=1).mean(axis=0) / t[1:, None]
    np.testing.assert_allclose(found.reduced["average"]["mean"][1:], average, rtol=0, atol=1e-14)
    largest = np.maximum.accumulate(x, axis=1).mean(axis=0)
    np.testing.assert_allclose(found.reduced["largest"]["mean"], largest, rtol=0, atol=1e-15)
    cj.ensemble(system, start, **given | {"t1": 5 * DT, "save_at": t[:4]}, out=tmp_path / "run.zarr")
    resumed = cj.ensemble(system, start, **given, out=tmp_path / "run.zarr", resume=True)
    jax.tree.map(np.testing.assert_array_equal, resumed.reduced, found.reduced)


def test_a_store_goes_on_bit_for_bit(sweeps, tmp_path):
    """What lies in memory as planes is a point like any other."""
    system, start = a_bath()
    whole = run(system, start)
    run(system, start, t1=5 * DT, out=tmp_path / "run.zarr")
    done = run(system, start, out=tmp_path / "run.zarr", resume=True)
    assert done.stats.backend == "native"
    np.testing.assert_array_equal(cj.open(tmp_path / "run.zarr").mu, whole.mu)


def test_threads_change_nothing(sweeps, monkeypatch):
    """Groups of eight sites are shared out."""
    system, start = a_bath()
    alone = run(system, start)
    tune(monkeypatch, sites_per_thread=8)
    monkeypatch.setattr(site_kernel, "cores", lambda: 3)
    np.testing.assert_array_equal(run(system, start).mu, alone.mu)


def test_casimirs(sweeps):
    """To the last digit or two."""
    system, start = a_bath()
    mu = run(system, start, t1=4000 * DT, save_every=400).mu.reshape(-1, SITES, 3)
    assert np.abs(np.sum(mu**2, axis=2) - 1).max() < 5e-15


def test_steps_too_large_for_the_fast_code(sweeps, monkeypatch):
    """σ beyond what is likely: the sweep is written again with all branches, and the results of other sites are
    bitwise identical."""
    asked, made = [], lattice_backend.kernel_for
    monkeypatch.setattr(lattice_backend, "kernel_for", lambda plan, full=False: asked.append(full) or made(plan, full))
    system, start = a_bath()
    hot = system.with_params(system.params | {"temperature": 300.0})
    agree(hot, start)
    assert asked == [False, True]


def test_a_step_that_is_not_finite(sweeps):
    """It is counted and raised, and nothing is lost that was there before."""
    system = cj.System(cj.Product(cj.SO3(), copies=SITES), lambda mu: jnp.sum(jnp.exp(300.0 * mu**2)))
    with pytest.raises(
        cj.UnsolvedStepError, match=r"11 of 11 steps failed, first at step 0 \(t = 0\): the state is not finite"
    ):
        run(system, 3.0 * np.ones(3 * SITES))


REFUSED = {
    "TMK": (cj.TMK(), None, "methods that do each by itself, like HeunMK, not TMK"),
    "mean field": (
        cj.HeunMK(),
        lambda mu: jnp.sum(mu) ** 2,
        "A sum over the sites of a lattice is not",
    ),
    "open": (
        cj.HeunMK(),
        lambda mu: jnp.sum(mu[3:] * mu[:-3]),
        "An array that does not belong to all sites of a lattice is not",
    ),
    "sorted": (
        cj.HeunMK(),
        lambda mu: jnp.sum(jnp.sort(mu) * jnp.arange(3 * SITES)),
        "across the sites of a lattice, which native code does not support",
    ),
}


def refused(case):
    method, h, reason = REFUSED[case]
    system = cj.System(cj.Product(cj.SO3(), copies=SITES), h or (lambda mu: jnp.sum(mu**2)))
    return system, cj.models.spin_lattice(SIDES)[1], method, reason


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_the_same_at_every_site_has_no_sweeps_and_the_reason_is_stated(sweeps, monkeypatch, case):
    system, start, method, reason = refused(case)
    found, prepare = [], lattice_backend.prepare
    monkeypatch.setattr(lattice_backend, "prepare", lambda *args: found.append(prepare(*args)) or found[-1])
    run(system, start, "auto", integrator=method, t1=DT)
    assert re.search(reason, found[0].reason)


@pytest.mark.parametrize("case", ["TMK", "mean field", "open"])
def test_what_is_not_the_same_at_every_site_runs_as_loops_over_arrays(sweeps, case):
    system, start, method, _ = refused(case)
    native, xla = (run(system, start, backend, integrator=method) for backend in ("native", "xla"))
    assert native.stats.backend == "native"
    np.testing.assert_allclose(native.mu, xla.mu, rtol=0, atol=2e-13)


def test_neighbours_are_found_from_where_numbers_come():
    """A shift along the second axis of a lattice, its parts put together in another order."""
    one = OneSite(SITES)

    def shifted(x):
        x = x.reshape(5, 7, 2)
        return jnp.concatenate([x[:, 3:], x[:, :3]], axis=1).reshape(-1)

    def site(x):
        (out,) = one.evaluate(jax.make_jaxpr(shifted)(jnp.zeros(2 * SITES)), [PerSite.whole(x, (2 * SITES,))])
        return one.to_site(out)

    jax.make_jaxpr(site)(jnp.zeros(2))
    (relation,) = one.places.relations.values()
    y, x = np.divmod(np.arange(SITES), 7)
    np.testing.assert_array_equal(relation.table, 7 * y + (x + 3) % 7)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["su_spins", "spin_lattice"])
def test_lattices_above_the_limit_run_natively(model):
    """SU(3) spins by HeunMK, and spins in a bath by NinomiyaVictoir."""
    if model == "su_spins":
        (system, start), method = cj.models.su_spins((12, 12), key=0), cj.HeunMK()
    else:
        system, start = cj.models.spin_lattice((6, 6, 6))
        system, method = cj.heat_bath(system, temperature=0.1, friction=0.1), cj.NinomiyaVictoir()
    native = run(system, start, "auto", integrator=method, t1=2 * DT)
    assert native.stats.backend == "native"
    by_xla = run(system, start, "xla", integrator=method, t1=2 * DT)
    np.testing.assert_allclose(native.mu, by_xla.mu, rtol=0, atol=1e-14)
