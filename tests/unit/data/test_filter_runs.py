"""Runs of filters: stores, resuming, progress, bad input, failures that lose nothing."""

import jax
import numpy as np
import pytest

import coadjoint as cj
from coadjoint.data.filter_store import FilterStore

AXIS = np.array([1.0, 0, 0])
SYSTEM = cj.System(cj.SO3(), lambda m: 0.5 * m[2] ** 2, cj.salt(0.4 * np.eye(3)))
SENSOR = cj.data.Gaussian(lambda m: m[:2], std=0.2)
Y = np.array([[0.9, 0.2], [0.8, 0.4], [0.5, 0.5], [0.4, 0.3]])
TIMES = 0.2 * np.arange(1, 5)
METHODS = {
    "tempered": cj.data.ParticleFilter(SENSOR, 20, lag=2, moves=2),
    "bootstrap": cj.data.ParticleFilter(SENSOR, 20, lag=2, method="bootstrap"),
    "kalman": cj.data.GroupKalman(SENSOR, 20, lag=1),
}


def run(method, **options):
    given = {"system": SYSTEM, "mu0": AXIS, "observations": Y, "times": TIMES, "dt": 0.1, "key": 3} | options
    return method.run(given.pop("system"), given.pop("mu0"), given.pop("observations"), **given)


def equal(a, b):
    x, y = a.to_xarray(), b.to_xarray()
    return x.identical(y) and np.array_equal(a.states, b.states)


@pytest.mark.parametrize("name", METHODS)
def test_resuming_is_bitwise_identical(name, tmp_path, monkeypatch, capsys):
    """After an interruption, with further observations, and in memory."""
    method, whole = METHODS[name], run(METHODS[name])
    add = FilterStore.add

    def interrupted(self, row, state):
        add(self, row, state)
        if len(self.rows) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(FilterStore, "add", interrupted)
        run(method, out=tmp_path / "a")
    assert len(list((tmp_path / "a").glob("cycle_*.npz"))) == 2
    assert equal(run(method, out=tmp_path / "a", resume=True, progress=True), whole)
    assert "4/4 cycles" in capsys.readouterr().err
    run(method, out=tmp_path / "b", observations=Y[:3], times=TIMES[:3])
    assert equal(run(method, out=tmp_path / "b", resume=True), whole)


def test_another_run_in_the_folder(tmp_path):
    """A folder belongs to one run."""
    method = METHODS["kalman"]
    run(method, out=tmp_path / "a", observations=Y[:2], times=TIMES[:2])
    with pytest.raises(cj.StoreError, match="exists: give resume=True"):
        run(method, out=tmp_path / "a")
    with pytest.raises(cj.StoreError, match="another run") as error:
        run(method, out=tmp_path / "a", resume=True, key=4, observations=Y + 0.1)
    assert "key" in str(error.value) and "observations" in str(error.value)
    with pytest.raises(cj.StoreError, match="2 observations, but there are 1 now"):
        run(method, out=tmp_path / "a", resume=True, observations=Y[:1], times=TIMES[:1])
    with pytest.raises(ValueError, match="give its name as out"):
        run(method, resume=True)
    with pytest.raises(TypeError, match="out must be the name of a folder, not True"):
        run(method, out=True)
    (tmp_path / "a" / "cycle_000001.npz").unlink()
    with pytest.raises(cj.StoreError, match=r"cycle_000001\.npz is missing"):
        run(method, out=tmp_path / "a", resume=True)
    (tmp_path / "a" / "filter.json").write_text("{")
    with pytest.raises(cj.StoreError, match=r"filter\.json is damaged"):
        run(method, out=tmp_path / "a", resume=True)


@pytest.mark.parametrize("stop", [2, 3, 4, 5])
def test_resuming_after_a_kill_within_a_cycle(stop, tmp_path, monkeypatch):
    """Between the files of a cycle, and before both; the results are bitwise those of a whole run."""
    from coadjoint.store import atomic_io

    method, whole, count, write = METHODS["tempered"], run(METHODS["tempered"]), [0], atomic_io.write

    def killed(*args):
        count[0] += 1
        if count[0] == stop:
            raise KeyboardInterrupt
        write(*args)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(atomic_io, "write", killed)
        run(method, out=tmp_path / "a")
    assert equal(run(method, out=tmp_path / "a", resume=True), whole)


def test_a_folder_that_another_run_writes(tmp_path, monkeypatch):
    method, add, found = METHODS["kalman"], FilterStore.add, []

    def nested(self, row, state):
        monkeypatch.setattr(FilterStore, "add", add)
        with pytest.raises(cj.StoreError, match="is being written by process"):
            run(method, out=tmp_path / "a", resume=True)
        found.append(1)
        add(self, row, state)

    monkeypatch.setattr(FilterStore, "add", nested)
    run(method, out=tmp_path / "a", observations=Y[:1], times=TIMES[:1])
    assert found == [1]


def test_traced_arguments():
    """Transformations of JAX name the cause."""
    for call in (
        lambda: jax.jit(lambda m: run(METHODS["kalman"], mu0=m).mean)(AXIS),
        lambda: jax.grad(lambda s: run(METHODS["kalman"], observations=s * Y).log_evidence[-1])(1.0),
        lambda: jax.vmap(lambda k: run(METHODS["tempered"], key=k).mean)(np.arange(2)),
    ):
        with pytest.raises(TypeError, match=r"filters do not run inside jax\.jit, jax\.vmap or jax\.grad"):
            call()


@pytest.mark.parametrize(
    "change, message",
    [
        ({"times": [0.2, 0.45, 0.6, 0.8]}, r"times\[1\] = 0.45 is not one of the times .*nearest is 0.[45]"),
        ({"times": [0.2, 0.2, 0.6, 0.8]}, r"times must increase, but times\[1\]"),
        ({"times": [-0.2, 0.2, 0.6, 0.8]}, "times must not be before t0 = 0"),
        ({"times": TIMES[:3]}, r"3 times, not shape \(4, 2\)"),
        ({"times": [0.2, np.nan, 0.6, 0.8]}, "times must be finite"),
        ({"observations": np.ones((4, 3))}, r"observations must have shape \(times, 2\).*\(3,\)"),
        ({"observations": np.where(Y == 0.5, np.nan, Y)}, r"observations\[2, 0\] is nan: leave out times"),
        ({"mu0": np.ones((7, 3))}, "mu0 has 7 states, but there are 20 members"),
        ({"mu0": np.ones((20, 2))}, r"mu0 must have shape \(3,\) for SO3, not \(20, 2\)"),
        ({"params": {"a": np.ones(20)}}, "params was given, but the system has none"),
        ({"dt": -0.1}, "dt must be above 0"),
        ({"integrator": cj.TMKLevy()}, "needs the Lévy areas"),
    ],
)
def test_bad_input(change, message):
    """Clear errors before anything runs."""
    with pytest.raises(ValueError, match=message):
        run(METHODS["tempered"], **change)


def test_bad_settings():
    """Settings of filters and observations."""
    H = lambda m: m[:2]
    for call, message in [
        (lambda: cj.data.ParticleFilter(SENSOR, 1), "members must be at least 2, not 1"),
        (lambda: cj.data.ParticleFilter(SENSOR, lag=0), "lag must be at least 1"),
        (lambda: cj.data.ParticleFilter(SENSOR, method="simple"), "method must be one of 'tempered', 'bootstrap'"),
        (lambda: cj.data.ParticleFilter(SENSOR, threshold=1.0), "threshold must be below 1"),
        (lambda: cj.data.Gaussian(H), "give either std or covariance"),
        (lambda: cj.data.Gaussian(H, std=[0.1, -0.2]), "std must be finite and above 0"),
        (lambda: cj.data.Gaussian(H, covariance=[[1.0, 2.0], [2.0, 1.0]]), "symmetric and positive definite"),
        (lambda: cj.data.VonMisesFisher(H, 0.0), "concentration must be finite and above 0"),
        (lambda: run(cj.data.ParticleFilter(cj.data.Gaussian(H, std=np.ones(3)))), "std must be a number or have"),
        (lambda: run(cj.data.ParticleFilter(cj.data.VonMisesFisher(H, 1.0))), r"must have shape \(times, 3\)"),
        (lambda: run(cj.data.ParticleFilter(cj.data.LogDensity(lambda m, y: m - m))), "must be one real number"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(TypeError, match="observation must be an observation such as"):
        cj.data.ParticleFilter(H)
    directions = cj.data.ParticleFilter(cj.data.VonMisesFisher(lambda m: m, 4.0))
    with pytest.raises(ValueError, match=r"unit vectors, but observations\[1\] has length 2"):
        run(directions, observations=[AXIS, 2 * AXIS], times=TIMES[:2])


def box(m, y):
    """A uniform distribution about the state."""
    import jax.numpy as jnp

    return jnp.where(jnp.all(jnp.abs(y - m[:2]) < 0.5), 0.0, -jnp.inf)


@pytest.mark.parametrize(
    "observation, observations, options, message",
    [
        (cj.data.Gaussian(lambda m: m[:2], std=1e-7), Y, {"method": "bootstrap"}, r"effective size is 1\.\d+ of 20"),
        (cj.data.LogDensity(box), [*Y[:1], [9.0, 9.0]], {}, "no member has a finite likelihood"),
        (cj.data.LogDensity(lambda m, y: y[0] / (y[0] - 0.8) * 0), Y, {}, "NaN or .inf for 20 of 20 members"),
    ],
)
def test_failures_lose_nothing(observation, observations, options, message, tmp_path):
    """The error has the number of the observation and the result of all earlier cycles, and so has the folder."""
    method = cj.data.ParticleFilter(observation, 20, **options)
    with pytest.raises(cj.data.FilterError, match=message) as error:
        run(method, observations=observations, times=TIMES[: len(observations)], out=tmp_path / "a")
    result = error.value.result
    done = 0 if result is None else len(result.t)
    assert f"observation {done}, time" in str(error.value)
    assert len(list((tmp_path / "a").glob("cycle_*.npz"))) == done


def test_members_without_noise():
    """Equal members without noise cannot be told apart by data; unequal ones can."""
    quiet = cj.System(cj.SO3(), lambda m: 0.5 * m[2] ** 2)
    with pytest.raises(cj.data.FilterError, match="all members are equal"):
        run(METHODS["tempered"], system=quiet)
    rng = np.random.default_rng(0)
    start = rng.standard_normal((20, 3))
    start /= np.linalg.norm(start, axis=1, keepdims=True)
    found = run(cj.data.ParticleFilter(SENSOR, 20, method="bootstrap"), system=quiet, mu0=start, key=None or 1)
    assert np.all(np.isfinite(found.mean))


@pytest.mark.parametrize("name", METHODS)
def test_later_cycles_compile_nothing(name, compilations):
    """The time of an observation is an input of the programs."""
    run(METHODS[name], observations=Y[:2], times=TIMES[:2])
    with compilations() as count:
        run(METHODS[name])
    assert count.n == 0
