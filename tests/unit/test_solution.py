"""What `solve` returns: times, states or what was saved instead, diagnostics, and what happens when a step fails."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tuned import tune

import coadjoint as cj
from coadjoint.runtime import loop
from coadjoint.runtime.plan import Plan
from coadjoint.runtime.saved_times import SavedTimes

EM = cj.EulerMaruyamaMK()
SYSTEM, MU0 = cj.models.rigid_body(alpha=(0.3, 0.2, 0.5), pi0=(0.6, 0.0, 0.8))


def run(**options):
    return cj.solve(SYSTEM, MU0, **({"t1": 1.0, "dt": 0.01, "key": 3, "integrator": EM} | options))


@pytest.fixture(scope="module")
def sol():
    return run()


def same_bits(a, b):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(np.asarray(x).view(np.uint64), np.asarray(y).view(np.uint64))


# Times and states.


def test_the_start_is_saved_too(sol):
    assert isinstance(sol, cj.Solution)
    assert sol.t.shape == (101,) and sol.mu.shape == (101, 3)
    assert isinstance(sol.mu, np.ndarray) and sol.mu.dtype == np.float64
    np.testing.assert_allclose(sol.t, np.linspace(0, 1, 101), atol=1e-15)
    np.testing.assert_array_equal(sol.mu[0], MU0)
    same_bits(sol.saved, sol.mu)
    assert np.all(np.diff(sol.mu, axis=0).any(axis=1))  # every step moved


def test_t0_shifts_the_clock_only(sol):
    later = run(t0=5.0, t1=6.0)
    np.testing.assert_allclose(later.t, sol.t + 5.0, atol=1e-14)
    np.testing.assert_allclose(later.mu, sol.mu, atol=1e-13)  # (6 − 5)/0.01 is the same number of steps


@pytest.mark.parametrize("save_every", [2, 5, 25, 100])
def test_save_every_is_every_so_many_steps(sol, save_every):
    few = run(save_every=save_every)
    np.testing.assert_allclose(few.t, sol.t[::save_every], atol=1e-15)
    same_bits(few.mu, sol.mu[::save_every])


def test_a_shorter_run_is_the_beginning_of_a_longer_one(sol):
    same_bits(run(t1=0.37).mu, sol.mu[:38])


def test_one_step():
    sol = run(t1=0.01)
    assert sol.mu.shape == (2, 3)


def test_the_same_key_gives_the_same_bits_and_another_does_not(sol):
    same_bits(run().mu, sol.mu)
    assert np.all(run(key=4).mu[1:] != sol.mu[1:])


def test_given_increments_of_the_same_path_give_the_same_run(sol):
    window = cj.Brownian(3).window(1, 0.01, 0, 4)
    dS = np.concatenate(jax.jit(jax.vmap(lambda b: window.block(jnp.asarray(0), b).S))(np.arange(4)))[:100]
    np.testing.assert_allclose(run(key=None, driver=cj.Increments(dS)).mu, sol.mu, atol=1e-14)


# Saving a function of the state.


def pieces_of(m):
    return {"x": m[0], "pair": (m[:2], 2.0 * m[2])}


def test_save_a_function(sol):
    """Any pytree, with an axis of times in front."""
    got = run(save=pieces_of, save_every=10)
    assert got.saved["x"].shape == (11,) and got.saved["pair"][0].shape == (11, 2)
    np.testing.assert_array_equal(got.saved["x"], sol.mu[::10, 0])
    np.testing.assert_array_equal(got.saved["pair"][0], sol.mu[::10, :2])
    np.testing.assert_array_equal(got.saved["pair"][1], 2.0 * sol.mu[::10, 2])


def test_with_save_there_are_no_states():
    got = run(save=pieces_of, save_every=10)
    for attribute in (lambda: got.mu, lambda: got.casimirs(), lambda: got.energy()):
        with pytest.raises(AttributeError, match=r"save= was given: see \.saved"):
            attribute()
    assert "casimirs" not in repr(got)


# Diagnostics.


def test_casimirs_and_energy(sol):
    np.testing.assert_allclose(sol.casimirs(), np.sum(sol.mu**2, axis=1)[:, None], rtol=1e-15)
    inertia = np.array([4.0, 2.0, 1.0])
    np.testing.assert_allclose(sol.energy(), 0.5 * np.sum(sol.mu**2 / inertia, axis=1), rtol=1e-14)
    expected = np.abs(sol.casimirs() - sol.casimirs()[0])
    np.testing.assert_allclose(sol.casimir_errors(), expected, atol=1e-30)
    assert 0 < np.ptp(sol.energy())


def test_a_casimir_near_zero_is_not_divided_by():
    system, _ = cj.models.heavy_top(alpha=None)
    for mu0 in (np.zeros(6), np.array([1.0, 0, 0, 0, 1.0, 0]), np.array([1.0, 0, 0, 0, 0, 0])):
        errors = cj.solve(system, mu0, t1=0.5, dt=0.1, integrator=EM).casimir_errors()
        assert np.all(np.isfinite(errors)) and np.max(errors) < 1e-15


def test_stats(sol):
    assert sol.stats.steps == 100
    assert sol.stats.unsolved == 0 and sol.stats.first_unsolved == -1
    assert sol.stats.iterations == 0  # an explicit method
    assert "100 steps" in repr(sol.stats) and "0 not converged" in repr(sol.stats)


def test_repr_says_what_ran(sol):
    text = repr(sol)
    assert text.splitlines()[0] == "Solution: SO3, left-invariant, 1 noise, EulerMaruyamaMK"
    assert "time      0 to 1, dt = 0.01, 101 times saved" in text
    assert "casimirs  |μ|² within" in text
    assert "solver    100 steps" in text
    assert len(text) < 400


def test_to_xarray(sol):
    data = sol.to_xarray()
    assert dict(data.sizes) == {"time": 101, "component": 3, "casimir": 1}
    np.testing.assert_array_equal(data["mu"].values, sol.mu)
    np.testing.assert_array_equal(data["casimirs"].sel(casimir="|μ|²").values, sol.casimirs()[:, 0])
    np.testing.assert_array_equal(data["energy"].values, sol.energy())
    np.testing.assert_array_equal(data["time"].values, sol.t)
    assert data.attrs["algebra"] == "SO3" and data.attrs["integrator"] == "EulerMaruyamaMK"
    assert data.attrs["dt"] == 0.01 and data.attrs["steps"] == 100 and data.attrs["unsolved_steps"] == 0


def test_to_xarray_of_saved_values():
    data = run(save=pieces_of, save_every=10).to_xarray()
    shapes = {name: value.shape for name, value in data.data_vars.items()}
    assert shapes == {"saved_x": (11,), "saved_pair_0": (11, 2), "saved_pair_1": (11,)}  # as in a store
    assert data["saved_pair_0"].dims == ("time", "pair_0_index")
    assert all(value.dims[0] == "time" for value in data.data_vars.values())


def test_to_xarray_without_casimirs():
    algebra = cj.StructureConstants([[[0.0, 0.0], [0.0, 1.0]], [[0.0, -1.0], [0.0, 0.0]]])
    sol = cj.solve(cj.System(algebra, lambda m: m[0]), [1.0, 1.0], t1=1.0, dt=0.5, integrator=EM)
    assert "casimirs" not in sol.to_xarray()
    assert sol.casimirs().shape == (3, 0) and "there are none" in repr(sol)


# Progress.


def test_progress_outside_a_terminal_is_one_line(capsys, sol):
    same_bits(run(progress=True).mu, sol.mu)
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.strip().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("solving: 100/100 steps, ") and "steps/s, 0.0 iterations/step, residual" in lines[0]
    run()
    assert capsys.readouterr() == ("", "")


def test_progress_in_a_terminal_is_a_bar(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    run(progress=True)
    err = capsys.readouterr().err
    assert "solving" in err and "100%" in err


# Chunks.


@pytest.mark.parametrize("save_every", [1, 4])
@pytest.mark.parametrize("size", [1, 3, 32, 50])
def test_no_bit_depends_on_the_chunks(sol, size, save_every, monkeypatch):
    """A run cut into pieces of `size` steps, which end inside blocks and inside saving intervals."""
    tune(monkeypatch, first_chunk=size, largest_chunk=size)
    cuts = list(loop.chunks(SavedTimes(0.0, 0.1, 100, save_every), 1000, 10**6))
    assert len(cuts) == -(-100 // size)
    same_bits(run(save_every=save_every).mu, sol.mu[::save_every])


def test_no_bit_depends_on_the_slots(sol, monkeypatch):
    """A small buffer for saved values makes more chunks."""
    monkeypatch.setattr(Plan, "save_slots", 7)
    same_bits(run().mu, sol.mu)
    same_bits(run(save_every=5).mu, sol.mu[::5])


def test_pieces_cover_the_run_and_fit_the_slots():
    for steps, save_every, slots, largest in ((1, 1, 1, 32), (1000, 10, 3, 64), (4096, 1, 100, 32), (999, 999, 5, 96)):
        end = 0
        for n0, n1 in loop.chunks(SavedTimes(0.0, 0.1, steps, save_every), slots, largest):
            assert n0 == end < n1 <= steps
            assert n1 // save_every - n0 // save_every <= slots
            assert n1 <= n0 // 32 * 32 + largest
            end = n1
        assert end == steps


def test_chunks_of_slow_steps_are_soon_short(monkeypatch):
    """A large matrix begins with one step, and one slow chunk is enough to know how long a step takes."""
    clock = [0.0]
    monkeypatch.setattr(loop.time, "perf_counter", lambda: clock[0])

    def sizes(seconds, **options):
        found = []
        for n0, n1 in loop.chunks(SavedTimes(0.0, 0.1, 600, 600), 1000, 10**6, **options):
            clock[0] += seconds * (n1 - n0)
            found.append(n1 - n0)
        return found

    assert sizes(2.0, size=1) == [1] * 600
    assert sizes(0.01)[:3] == [256, 256, 50]  # the first may have been compiled
    assert sizes(0.1)[2:4] == [8, 8] and sizes(0.5)[2:4] == [4, 4]  # few steps: up to two seconds
    assert [loop.first_chunk(shape) for shape in ((6,), (300,), (33, 33), (129, 129), (513, 513))] == [
        256,
        256,
        233,
        3,
        1,
    ]


# Steps that could not be solved.

# Heun's method leaves the orbit after some steps, and soon after the state is not finite.
BURST = cj.System(cj.SO3(), lambda m: jnp.sum(m**4))
WILD = {"t1": 100.0, "dt": 1.0, "integrator": cj.Heun()}


def test_an_unsolved_step_raises_and_hands_out_what_was_computed():
    with pytest.raises(
        cj.UnsolvedStepError, match=r"steps failed, first at step \d+ \(t = \d+\): the state became infinite"
    ) as caught:
        cj.solve(BURST, [0.6, 0.5, 0.2], **WILD)
    partial = caught.value.solution
    assert "throw=False" in str(caught.value) and "smaller dt" in str(caught.value)
    assert isinstance(partial, cj.Solution)
    first = partial.stats.first_unsolved
    assert 0 < first < 100 and partial.stats.unsolved >= 1
    assert partial.mu.shape[0] == len(partial.t) > first
    assert np.all(np.isfinite(partial.mu[: first + 1]))
    assert np.all(partial.casimir_errors()[: first + 1] < 2)


def test_throw_false_counts():
    sol = cj.solve(BURST, [0.6, 0.5, 0.2], throw=False, **WILD)
    assert sol.mu.shape == (101, 3)
    first = sol.stats.first_unsolved
    assert sol.stats.unsolved == 100 - first  # once lost, every step is
    assert "not converged" in repr(sol)
    assert sol.to_xarray().attrs["unsolved_steps"] == sol.stats.unsolved


def test_an_implicit_step_cut_short_is_counted_and_keeps_the_casimirs():
    """One iteration without fallbacks meets no tolerance; the residual reports the error, and the orbit is
    conserved."""
    tmk = cj.TMK(max_steps=1, fallbacks=False)
    sol = cj.solve(SYSTEM, MU0, t1=20.0, dt=1.0, key=0, integrator=tmk, throw=False)
    assert sol.stats.unsolved == 20 and sol.stats.first_unsolved == 0
    assert sol.stats.iterations == sol.stats.most_iterations == 1
    assert sol.stats.residual > 1e-3
    assert sol.casimir_errors().max() < 1e-15
    with pytest.raises(cj.UnsolvedStepError, match=r"20 of 20 steps could not be solved, first at step 0 \(t = 0\)"):
        cj.solve(SYSTEM, MU0, t1=20.0, dt=1.0, key=0, integrator=tmk)


def test_messages_name_the_criterion():
    """The tolerance and the size of σ; explicit methods have a state that is not finite."""
    with pytest.raises(
        cj.UnsolvedStepError, match=r"worst residual is \d.*, above tol = 1.0e-14; at the .* about 0\.\d"
    ):
        cj.solve(SYSTEM, MU0, t1=2.0, dt=1.0, key=0, integrator=cj.TMK(max_steps=1, fallbacks=False))
    with pytest.raises(
        cj.UnsolvedStepError, match=r"^. of 2 steps failed.*: the state is not finite; at the .* 4e\+200"
    ):
        cj.solve(cj.System(cj.SO3(), lambda m: 1e200 * m[0] ** 4), [1.0, 1.0, 1.0], t1=2.0, dt=1.0, integrator=EM)


def test_a_casimir_that_is_unknown_is_not_reported_as_conserved():
    """The affine group of the line has no open orbit's Casimir to know."""
    C = np.zeros((3, 3, 3))
    C[0, 1, 1], C[1, 0, 1], C[0, 2, 2], C[2, 0, 2] = 1.0, -1.0, 0.7, -0.7
    shown = repr(cj.solve(cj.System(cj.StructureConstants(C), lambda m: m[0]), [0.1, 0.2, 0.3], t1=0.1, dt=0.1))
    assert "0 of 1 Casimir known, nothing was measured" in shown


# Inside a transformation of JAX's.


def test_a_traced_run_is_the_same_run(sol):
    final = jax.jit(lambda mu0: cj.solve(SYSTEM, mu0, t1=1.0, dt=0.01, key=3, integrator=EM).mu)(MU0)
    np.testing.assert_allclose(final, sol.mu, atol=1e-14)


def test_an_unsolved_step_of_a_traced_run():
    """The error is that of any run where there are numbers; in a compiled program it holds a sentence too."""
    h = lambda m: 0.5 * m @ (m / jnp.array([4.0, 2.0, 1.0]))
    last = lambda m: jnp.sum(cj.solve(cj.System(cj.SO3(), h), m, t1=16.0, dt=8.0).mu[-1])
    m = jnp.array([0.6, 1.1, 0.8])
    with pytest.raises(cj.UnsolvedStepError, match=r"^\d of 2 steps could not be solved, first at step \d \(t = "):
        jax.grad(last)(m)
    with pytest.raises(Exception, match="a step did not converge in a run that JAX traces"):
        jax.jit(last)(m)


def test_what_a_notebook_shows(tmp_path):
    """System, Solution, Ensemble and Stored: the same lines as in a terminal."""
    run = {"t1": 0.1, "dt": 0.01, "key": 0, "integrator": EM}
    stored = cj.solve(SYSTEM, MU0, out=tmp_path / "run.zarr", **run)
    for shown in SYSTEM, cj.solve(SYSTEM, MU0, **run), cj.ensemble(SYSTEM, MU0, members=2, **run), stored:
        page = shown._repr_html_()
        assert page.startswith("<pre><b>") and page.count("<b>") == page.count("</b>")
        assert len(page.splitlines()) == len(repr(shown).splitlines())
    assert "<b>solver    </b>" in stored._repr_html_() and "native code" in stored._repr_html_()
