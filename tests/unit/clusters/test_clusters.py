"""Runs on a Dask cluster are bitwise identical to those of one machine."""

from pathlib import Path

import feature_table
import numpy as np
import pytest
from cluster_runs import MEMBERS, MU0, RUN, SWEEP, SYSTEM, ensemble
from stores import assert_same_store
from tuned import tune

import coadjoint as cj

distributed = pytest.importorskip("distributed", reason="the extra [cluster] is not installed")

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


SAVE = {"save": lambda m: {"first": m[0], "square": m @ m}, "group": True}


@pytest.mark.parametrize("own", [{}, MEMBERS, pytest.param(SAVE, marks=pytest.mark.slow)])
def test_members_come_back(client, own):
    here, there = ensemble(**own), ensemble(**own, on=client)
    for a, b in zip(*(map(np.asarray, _leaves(x.saved, x.g)) for x in (here, there)), strict=True):
        np.testing.assert_array_equal(a, b)
    assert here.stats == there.stats


def _leaves(*trees):
    import jax

    return jax.tree.leaves(trees)


def test_statistics(client):
    """Along time too, at given times, with a function of the time."""
    both = {"spread": cj.Covariance(), "average": cj.TimeAverage()}
    given = {"save_every": 1, "save_at": [0.0, 0.1, 0.4, 2.0], "save": lambda m, t: m * t, "reduce": both}
    given["until"] = lambda m: m[1]
    here, there = (ensemble(**given, **own) for own in ({}, {"on": client}))
    for a, b in zip(_leaves(here.reduced), _leaves(there.reduced), strict=True):
        np.testing.assert_array_equal(a, b)
    assert np.any(np.isfinite(here.event_time))
    np.testing.assert_array_equal(here.event_time, there.event_time)
    np.testing.assert_array_equal(here.event_state, there.event_state)


STOPPED = {"reduce": cj.RunningMax(), "until": lambda m: m[1]}


@pytest.mark.parametrize("own", [MEMBERS, STOPPED], ids=["members", "statistics"])
def test_stores(client, tmp_path, own):
    ensemble(**own, out=tmp_path / "here.zarr")
    result = ensemble(**own, out=tmp_path / "there.zarr", on=client)
    assert_same_store(tmp_path / "here.zarr", tmp_path / "there.zarr")
    assert result.stats.unsolved == 0
    # to a later end, from either
    ensemble(**own, out=tmp_path / "here.zarr", resume=True, t1=24.0)
    ensemble(**own, out=tmp_path / "there.zarr", resume=True, t1=24.0, on=client)
    assert_same_store(tmp_path / "here.zarr", tmp_path / "there.zarr")


def test_sweeps(client, tmp_path):
    cj.run(SWEEP, tmp_path / "here.zarr")
    cj.run(SWEEP, tmp_path / "there.zarr", on=client)
    assert_same_store(tmp_path / "here.zarr", tmp_path / "there.zarr")


def test_what_goes_to_a_worker_and_back_does_not_grow_with_members(client):
    """Parcels have nothing of members; with a store, nothing of them comes back."""
    from coadjoint.clusters import serialization
    from coadjoint.runtime.backends import prepare_program
    from coadjoint.runtime.planning import plan_ensemble
    from coadjoint.runtime.sinks import Memory

    sizes = []
    for members in (22, 2200):
        mu0 = np.tile(MU0, (members, 1))
        options = {**RUN, "members": members, "t0": 0.0, "driver": None, "params": None, "reduce": None, "save": None}
        made = plan_ensemble(SYSTEM, mu0, **options, group=False, throw=True, backend="auto", stored=False)
        output = Memory(made).distribution()
        sizes.append(len(serialization.pack(made, prepare_program(made), output, serialization.environment()).data))
    assert sizes[0] == pytest.approx(sizes[1], abs=16)


# Progress.


def test_one_bar_over_all_workers(client, capsys):
    ensemble(on=client, progress=True)
    said = capsys.readouterr().err
    assert "coadjoint: 2 workers; dashboard at http://" in said
    assert "solving: 8800/8800 steps, " in said and " members/s" in said


def test_the_command(client, tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from coadjoint.command.cli import app

    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.toml").write_text(
        '[model]\nname = "rigid_body"\n[run]\nt1 = 2.0\ndt = 0.05\nkey = 1\nmembers = 6\nintegrator = "EulerMaruyamaMK"'
    )
    address = client.scheduler.address
    for where, out in (([], "here.zarr"), (["--on", address], "there.zarr")):
        done = CliRunner().invoke(app, ["run", "run.toml", "--out", out, *where])
        assert done.exit_code == 0, done.output
    assert_same_store(tmp_path / "here.zarr", tmp_path / "there.zarr")
    done = CliRunner().invoke(app, ["run", "run.toml", "--out", "other.zarr", "--on", "local:none"])
    assert done.exit_code == 2 and "on must have a number of processes" in done.output


@pytest.mark.filterwarnings("ignore:Port 8787 is already in use")  # of another dashboard on this machine
def test_the_job_script_of_the_page():
    """What docs/guides/dask.md submits to Slurm, without a queue."""
    pytest.importorskip("dask_jobqueue")
    page = (Path(__file__).parents[3] / "docs" / "guides" / "dask.md").read_text(encoding="utf-8")
    (block,) = (b.partition("```")[0] for b in page.split("```python\n")[1:] if "job_script" in b)
    names: dict = {}
    exec(block.replace("print(cluster.job_script())", "script = cluster.job_script()"), names)
    names["cluster"].close()
    script = names["script"]
    for line in (
        "#SBATCH -p cpu",
        "#SBATCH -t 12:00:00",
        "#SBATCH --constraint=zen4",
        "--nthreads 1",
        "--lifetime 11h50m",
    ):
        assert line in script
    assert "dask_worker tcp://" in script and "--nanny" in script


def test_a_derivative_of_ones_own(tmp_path):
    """Its function goes by value, and the worker traces it anew."""
    import pickle
    import subprocess
    import sys

    from coadjoint.clusters.serialization import serialize

    namespace: dict = {}
    code = "import jax\nf = jax.custom_jvp(lambda x: x * x)\nf.defjvp(lambda p, t: (f(*p), 3 * p[0] * t[0]))\n"
    exec(code, namespace)
    f = namespace["f"]
    system = cj.System(cj.SO3(), [lambda m: f(m[0]), lambda m: m @ m], [lambda m: f(m[1])])
    with pytest.raises(TypeError, match="custom_jvp_call"):
        pickle.dumps(system)
    path = tmp_path / "system"
    path.write_bytes(serialize(system)[0])
    there = f"""
import pickle, jax.numpy as jnp
system = pickle.load(open({str(path)!r}, "rb"))
m = jnp.array([1.0, 2.0, 3.0])
print(system.energy(m), system.drift(m))
"""
    done = subprocess.run([sys.executable, "-c", there], capture_output=True, text=True, check=True)
    assert done.stdout == "15.0 [5. 4. 6.]\n"  # with the wrong derivative that was given


# Other clusters, which take longer.


@pytest.mark.slow
@pytest.mark.parametrize("case", [c for c in feature_table.FAST if c["run"] != "solve"], ids=feature_table.name)
def test_combinations(client, case, tmp_path, monkeypatch):
    """The table of features, on a cluster: the same bits."""
    if case["run"] == "ensemble, many batches":
        tune(monkeypatch, max_batch_size=2)
    runs = [
        feature_table.run(case, on, feature_table.STEPS, None if case["sink"] == "memory" else tmp_path / f"{k}.zarr")
        for k, on in enumerate(({"backend": "auto"}, {"backend": "auto", "on": client}))
    ]
    feature_table.same(*(feature_table.results(case, done) for done in runs))
    assert runs[0].stats.backend == runs[1].stats.backend


@pytest.mark.slow
@pytest.mark.parametrize("processes", [True, False])
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_any_cluster(workers, processes, tmp_path):
    """Ensemble with members, with statistics, and a sweep: the stores of one machine."""
    runs = {
        "members": lambda out, **on: ensemble(**MEMBERS, out=out, **on),
        "statistics": lambda out, **on: ensemble(reduce=cj.Covariance(), out=out, **on),
        "sweep": lambda out, **on: cj.run(SWEEP, out, **on),
    }
    with distributed.LocalCluster(
        n_workers=workers, threads_per_worker=2, processes=processes, dashboard_address=":0", silence_logs=50
    ) as cluster:
        for name, run in runs.items():
            run(tmp_path / f"{name}-here.zarr")
            run(tmp_path / f"{name}-there.zarr", on=cluster)
            assert_same_store(tmp_path / f"{name}-here.zarr", tmp_path / f"{name}-there.zarr")
