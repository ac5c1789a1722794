"""Every corruption of every file of a store ends in correct data, or in an error that names the file."""

import json
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
from stores import edit_header, files
from tuned import tune

import coadjoint as cj
from coadjoint.command import info as summary
from coadjoint.report import figures
from coadjoint.store import reading, store_sink

RUN = {"dt": 0.05, "save_every": 2, "integrator": cj.HeunMK()}
T1 = {"older": 2.0, "now": 4.0, "resumed": 5.0}
SYSTEM, MU0 = cj.models.rigid_body(alpha=[0.1, 0.2, 0.3])


class Cut(Exception):
    pass


@pytest.fixture(scope="module")
def patch():
    """Commits after every chunk of 16 steps, and 8 saved times in a chunk of the arrays."""
    with pytest.MonkeyPatch.context() as patch:
        commit = store_sink.BatchSink.commit
        patch.setattr(store_sink.BatchSink, "commit", lambda self: (commit(self), self._wait_for_commit()))
        tune(
            patch,
            checkpoint_seconds=0.0,
            checkpoint_share=0,
            first_chunk=16,
            largest_chunk=16,
            saved_times_per_file=8,
            max_batch_size=2,
        )
        yield patch


def solve(out, t1, key, **options):
    cj.solve(SYSTEM, MU0, t1=t1, key=key, out=out, **(RUN | options))


def ensemble(out, t1, key, **options):
    cj.ensemble(SYSTEM, MU0, members=4, t1=t1, key=key, out=out, **(RUN | options))


def cut_after(commits, work, patch):
    """The process dies before a commit."""
    left, save, lock = [commits], store_sink.BatchSink._commit_files, threading.Lock()

    def counted(*arguments):
        with lock:
            left[0] -= 1
            if left[0] < 0:
                raise Cut
        save(*arguments)

    with patch.context() as own, pytest.raises(Cut):
        own.setattr(store_sink.BatchSink, "_commit_files", counted)
        work()


def make(kind, folder, patch):
    """Make a store, an older version of it, and a sibling with another key."""
    run = ensemble if kind == "ensemble" else solve
    for name, key in (("now", 1), ("sibling", 2)):
        path = folder / f"{name}.zarr"
        if kind == "killed":  # a resumed run was killed
            run(path, T1["older"], key)
            cut_after(1, lambda path=path, key=key: run(path, T1["now"], key, resume=True), patch)
            if name == "now":
                shutil.copytree(path, folder / "older.zarr")
            cut_after(1, lambda path=path, key=key: run(path, T1["now"], key, resume=True), patch)
        else:
            run(path, T1["older"], key)
            if name == "now":
                shutil.copytree(path, folder / "older.zarr")
            run(path, T1["now"], key, resume=True)
    run(folder / "whole.zarr", T1["resumed"], 1)


def opened(path):
    data = cj.open(path).load()
    return {name: data[name].values for name in data.variables}


def resumed(path):
    cj.resume(path, t1=T1["resumed"])
    return opened(path)


def plotted(path):
    return {f"line {i}": line.get_xydata() for i, line in enumerate(figures.draw(path, "energy").axes[0].lines)}


def described(path):
    about = summary.summary(path)
    summary.verify(path)
    return {k: np.asarray(str(v)) for k, v in about.items() if k not in ("store", "bytes")}


ACTIONS = {"open": opened, "resume": resumed, "plot": plotted, "info": described}


class Case:
    """A store, what each action returns for it, and its corruptions."""

    def __init__(self, kind, folder, patch):
        make(kind, folder, patch)
        self.folder, self.kind = folder, kind
        self.now, self.older, self.sibling = (files(folder / f"{n}.zarr") for n in ("now", "older", "sibling"))
        shutil.copytree(folder / "now.zarr", folder / "copy.zarr")
        self.expected = {name: work(folder / "copy.zarr") for name, work in ACTIONS.items() if name != "resume"}
        self.expected["resume"] = opened(folder / "whole.zarr")

    def corruptions(self):
        """Yield (file, how, contents); None removes the file."""
        yield "checkpoint/lock", "deleted", None
        yield "checkpoint/lock", "of a process that ended", b"process 1 on nowhere"
        for name, data in self.now.items():
            yield name, "deleted", None
            yield name, "truncated", data[: len(data) // 2]
            for place in (0, len(data) // 2, len(data) - 1):
                flipped = bytearray(data)
                flipped[place] ^= 4
                yield name, f"flipped at {place}", bytes(flipped)
            for source, others in (("sibling", self.sibling), ("older", self.older)):
                if others.get(name, data) != data:
                    yield name, source, others[name]
        for name in self.sibling.keys() - self.now.keys():
            yield name, "of a sibling", self.sibling[name]

    def check(self, action, name, how, data):
        """Corrupt a copy of the store, and try the action."""
        path = self.folder / "tried.zarr"
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(self.folder / "now.zarr", path)
        file = path / name
        file.unlink(missing_ok=True)
        if data is not None:
            file.write_bytes(data)
        try:
            found = ACTIONS[action](path)
        except cj.StoreError as error:
            assert str(file) in str(error), (name, how, action, str(error))
            return False
        expected = self.expected[action]
        assert found.keys() == expected.keys(), (name, how, action)
        for key, value in expected.items():
            np.testing.assert_array_equal(found[key], value, err_msg=str((name, how, action, key)))
        return True


KINDS = ["finished", "killed", "ensemble"]


@pytest.fixture(scope="module")
def cases(tmp_path_factory, patch):
    made = {}

    def case(kind):
        if kind not in made:
            made[kind] = Case(kind, tmp_path_factory.mktemp(kind), patch)
        return made[kind]

    return case


@pytest.mark.slow
@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_corruption(kind, action, cases):
    case = cases(kind)
    tried = [case.check(action, *corruption) for corruption in case.corruptions()]
    assert len(tried) > 100 and any(tried) and not all(tried)


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("kind", ["killed"])
def test_some_corruptions(kind, action, cases):
    """A slice of the same table: every 31st corruption, with another first one for each action."""
    case, begin = cases(kind), list(ACTIONS).index(action)
    for corruption in list(case.corruptions())[begin::11]:
        case.check(action, *corruption)


def test_a_missing_checkpoint_is_named(cases):
    """Its data do not vanish."""
    for kind, name in (("finished", "part-000000.npz"), ("killed", "part-000000.npz")):
        path = cases(kind).folder / "tried.zarr"
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(cases(kind).folder / "now.zarr", path)
        (path / "checkpoint" / name).unlink()
        for work in (cj.open, lambda p: cj.resume(p, t1=T1["resumed"])):
            with pytest.raises(cj.StoreError, match=rf"{name} is missing: it was there when the run was stored"):
                work(path)


SCHEMA = {
    "steps": (lambda h: h.update(steps=["many"]), r'zarr\.json is damaged: steps must not be \["many"\]'),
    "a renamed variable": (
        lambda h: h["variables"].update(nu=h["variables"].pop("mu")),
        r"zarr\.json is damaged: it lists the array nu, which does not exist",
    ),
    "kind": (lambda h: h.update(kind="movie"), r'zarr\.json is damaged: kind must not be "movie"'),
    "dt": (lambda h: h["configuration"].update(dt="0.1"), r"zarr\.json is damaged: configuration must not be"),
    "no integrator": (lambda h: h["configuration"].pop("integrator"), r"zarr\.json is damaged: configuration must"),
    "batches": (lambda h: h.update(n_batches=7), r"zarr\.json is damaged: n_batches does not agree with members"),
    "backends": (lambda h: h.update(backends=[]), r"zarr\.json is damaged: backends must have an entry for each of 1"),
    "lacking": (lambda h: h.pop("rows"), r"zarr\.json is damaged: it lacks rows"),
}


@pytest.mark.parametrize("what", SCHEMA)
def test_a_header_that_does_not_fit_the_schema(what, cases, tmp_path):
    path = Path(shutil.copytree(cases("finished").folder / "now.zarr", tmp_path / "run.zarr"))
    edit_header(path, SCHEMA[what][0])
    for work in (cj.open, lambda p: cj.resume(p, t1=T1["resumed"]), summary.summary):
        with pytest.raises(cj.StoreError, match=SCHEMA[what][1]):
            work(path)


def test_a_shape_that_does_not_agree_with_the_header(cases, tmp_path):
    path = Path(shutil.copytree(cases("finished").folder / "now.zarr", tmp_path / "run.zarr"))
    edit_header(path, lambda metadata: metadata.update(shape=[10**6, 3]), "mu/zarr.json")
    with pytest.raises(cj.StoreError, match=r"mu/zarr\.json is damaged, or just being extended: the shape is .*10000"):
        cj.open(path)


def test_identities_differ(cases):
    """Two stores of the same run have different identities."""
    folder = cases("finished").folder
    headers = [json.loads((folder / f"{name}.zarr" / "zarr.json").read_bytes()) for name in ("now", "whole")]
    one, other = (header["attributes"]["coadjoint"] for header in headers)
    assert one["identity"] != other["identity"] and one["plans"] == other["plans"]


def test_a_reader_follows_a_writer(cases, tmp_path):
    """A Dataset that was opened before the run was resumed still reads its rows, from chunks that were replaced."""
    path = tmp_path / "run.zarr"
    solve(path, T1["older"], 1)
    data = cj.open(path)
    expected = data["mu"].values.copy()
    data = cj.open(path)
    solve(path, T1["now"], 1, resume=True)
    np.testing.assert_array_equal(data["mu"].values, expected)
    assert reading.contents(path).saved > len(expected)
