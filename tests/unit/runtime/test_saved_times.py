"""Given times in place of every so many steps: `save_at`."""

import jax
import numpy as np
import pytest
from tuned import tune

import coadjoint as cj
from coadjoint.experiments.experiment import run as run_file
from coadjoint.experiments.schema import ExperimentError
from coadjoint.runtime.saved_times import SavedTimes, check_save_at

AT = [0.03, 0.5, 0.51, 1.2, 1.33, 1.99]
STEPS = [3, 50, 51, 120, 133, 199]
RUN = {"t1": 2.0, "dt": 0.01, "key": 0}


@pytest.fixture(scope="module")
def top():
    return cj.models.heavy_top(inertia=(4, 2, 1), chi=(0, 0, 1), alpha=(0.01, 0.02, 0.03))


@pytest.fixture(scope="module")
def whole(top):
    return cj.solve(*top, **RUN)


@pytest.fixture(scope="module")
def members(top):
    return cj.ensemble(*top, members=11, **RUN)


def test_a_trajectory_is_saved_at_exactly_these_times(top, whole):
    sol = cj.solve(*top, save_at=AT, group=True, **RUN)
    np.testing.assert_array_equal(sol.t, AT)
    np.testing.assert_array_equal(sol.mu, whole.mu[STEPS])
    assert sol.g.shape == (6, 4, 4) and sol.casimir_errors().max() < 1e-14 and "6 times saved" in repr(sol)
    np.testing.assert_array_equal(cj.solve(*top, save_at=[0.0, *AT], **RUN).mu, whole.mu[[0, *STEPS]])


@pytest.mark.parametrize("size", [1, 7, 64])
def test_no_bit_depends_on_the_chunks(top, members, size, monkeypatch):
    tune(monkeypatch, first_chunk=size, largest_chunk=size)
    ens = cj.ensemble(*top, members=11, save_at=AT, save=lambda mu: mu[:2], **RUN)
    np.testing.assert_array_equal(ens.saved, members.mu[:, STEPS, :2])
    mean = cj.ensemble(*top, members=11, save_at=AT, reduce=cj.Mean(), **RUN).reduced["mean"]
    np.testing.assert_allclose(mean, members.mu[:, STEPS].mean(0), rtol=0, atol=1e-15)


def test_xla_saves_at_given_times_too(top, members):
    options = {"members": 11, "integrator": cj.RKMK("rk4"), "backend": "xla", "t1": 0.2, "dt": 0.01, "key": 0}
    ens, all_times = (cj.ensemble(*top, **options, **more) for more in ({"save_at": [0.07, 0.2]}, {}))
    np.testing.assert_array_equal(ens.mu, all_times.mu[:, [7, 20]])


def test_a_store_and_its_extension(top, whole, tmp_path):
    out = tmp_path / "run.zarr"
    cj.solve(*top, save_at=AT[:4], **RUN | {"t1": 1.3}, out=out)
    run = cj.solve(*top, save_at=AT, **RUN, out=out, resume=True)
    np.testing.assert_array_equal(run.mu, whole.mu[STEPS])
    np.testing.assert_array_equal(cj.open(out)["time"], AT)
    with pytest.raises(cj.StoreError, match="save_at"):
        cj.solve(*top, save_at=[0.03, 1.99], **RUN, out=out, resume=True)
    longer = cj.resume(out, t1=3.0, save_at=[*AT, 2.5])
    np.testing.assert_array_equal(longer.mu, cj.solve(*top, **RUN | {"t1": 3.0}).mu[[*STEPS, 250]])


def test_statistics_of_a_store(top, members, tmp_path):
    out = tmp_path / "run.zarr"
    cj.ensemble(*top, members=11, save_at=AT[:4], reduce=cj.Mean(), **RUN | {"t1": 1.3}, out=out)
    run = cj.ensemble(*top, members=11, save_at=AT, reduce=cj.Mean(), **RUN, out=out, resume=True)
    np.testing.assert_allclose(run.reduced["mean"], members.mu[:, STEPS].mean(0), rtol=0, atol=1e-15)


def test_an_experiment_file_and_a_sweep_of_step_sizes(tmp_path):
    """The runs of a sweep over step sizes have the same times, to the last bit."""
    tables = {"model": {"name": "rigid_body"}, "run": {"t1": 1.0, "dt": 0.1, "key": 0, "save_at": [0.3, 0.7]}}
    run_file(tables | {"sweep": {"run": {"dt": [0.1, 0.05, 0.02]}}}, tmp_path / "sweep.zarr")
    data = cj.open(tmp_path / "sweep.zarr")
    assert data["mu"].dims == ("dt", "time", "component")
    np.testing.assert_array_equal(data["time"], [0.3, 0.7])
    with pytest.raises(ExperimentError, match=r"run.*save_at\[0\] = 0.25 .* the nearest is 0.2"):
        run_file(tables | {"run": {"t1": 1.0, "dt": 0.1, "key": 0, "save_at": [0.25]}}, tmp_path / "other.zarr")


def test_runs_that_jax_differentiates(top):
    system, mu0 = top
    options = {"t1": 0.3, "dt": 0.01, "key": 0, "integrator": cj.HeunMK()}
    end = lambda mu: cj.solve(system, mu, save_at=[0.1, 0.25], **options).mu[1].sum()
    e = 1e-5 * np.eye(6)[1]
    now, slope = jax.value_and_grad(end)(mu0)
    assert now == pytest.approx(float(cj.solve(system, mu0, **options).mu[25].sum()), rel=1e-12)
    assert slope[1] == pytest.approx((end(mu0 + e) - end(mu0 - e)) / 2e-5, rel=1e-7)


@pytest.mark.parametrize(
    "wrong, message",
    [
        ([0.1, 0.105], r"save_at\[1\] = 0.105 is not one of .* nearest is 0.1\."),
        ([2.5], r"save_at\[0\] = 2.5 .* from 0 to 2 in steps of 0.01: the nearest is 2\."),
        ([0.2, 0.1], r"save_at must increase, but save_at\[1\] = 0.1 follows 0.2"),
        ([0.1, 0.1], "must increase"),
        ([], r"must be a list of times, not an array of shape \(0,\)"),
        (0.1, "must be a list of times"),
        ([float("nan")], "finite"),
        ("all", "must be a list of times, not 'all'"),
    ],
)
def test_times_that_are_not_on_the_grid(top, wrong, message):
    with pytest.raises((TypeError, ValueError), match=message):
        cj.solve(*top, save_at=wrong, **RUN)


def test_only_one_way_to_choose_times(top):
    with pytest.raises(ValueError, match="save_every or save_at, not both"):
        cj.solve(*top, save_at=AT, save_every=2, **RUN)


def test_times_far_from_zero_are_on_the_grid():
    """Times that were computed in another way than t0 + n dt differ from the grid by round-off."""
    n = np.array([1, 10**6, 10**7])
    given, steps = check_save_at(1e3 + np.float64(0.1) * n, 1e3, 0.1, 10**7)
    np.testing.assert_array_equal(steps, n)
    saved = SavedTimes(1e3, 0.1, 10**7, 1, given, steps)
    assert [saved.up_to(k) for k in (0, 1, 10**6 - 1, 10**6, 10**7)] == [0, 1, 1, 2, 3]
    np.testing.assert_array_equal(saved.step(np.array([0, 2])), [1, 10**7])  # a state that has left its orbit
    assert list(saved.segments(0, 10**6 + 5))[:2] == [(1, 1), (10**6, 10**6)]
