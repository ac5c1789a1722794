"""A run that is ended at any moment by SIGKILL or SIGTERM resumes, and ends with the same store, byte for byte."""

import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from processes import Process
from stores import assert_same_store

PROGRAM = """
import sys
import time
import numpy as np
import coadjoint as cj
from coadjoint.runtime import tuning
from coadjoint.store import atomic_io, create, store_sink
from coadjoint.store.interrupts import Stopped, terminable

# Commits as often as can be, so that a kill falls into one now and then; small files, so that there are many.
often = dict(checkpoint_seconds=0.0, checkpoint_share=0, saved_times_per_file=64)
tuning._current = tuning.Tuning(first_chunk=128, largest_chunk=128, max_batch_size=4, **often)
commit = store_sink.StoreSink.commit  # waited for: as many on a fast machine as on a slow one
store_sink.StoreSink.commit = lambda self: (commit(self), self._wait_for_commit())
what, path, at = sys.argv[1], sys.argv[2], sys.argv[3]

if at == "write":  # stands still in the middle of a file, for the one who kills it
    write, left = atomic_io.write, [int(sys.argv[4])]
    def slowly(target, data):
        left[0] -= 1
        if left[0] == 0:
            with open(target.with_name(target.name + atomic_io.PARTIAL), "wb") as file:
                file.write(bytes(data)[: len(bytes(data)) // 2])
                file.flush()
                print("here", flush=True)
                time.sleep(60)
        write(target, data)
    atomic_io.write = slowly
if at == "rename":  # all is written, and the store has not its name yet
    def never(*args):
        print("here", flush=True)
        time.sleep(60)
    create.os.rename = never

restore = store_sink.StoreSink.restore
def begun(self, points):
    print("begun", flush=True)
    return restore(self, points)
store_sink.StoreSink.restore = begun

system = cj.System(
    cj.SO3(), lambda m, p: 0.5 * m @ (m / p), cj.salt([[0.3, 0.2, 0.5]]), params=np.array([4.0, 2.0, 1.0])
)
mu0 = np.array([0.6, -0.8, 0.5])
options = dict(t1=200.0, dt=0.05, key=3, save_every=4, integrator=cj.EulerMaruyamaMK(), out=path)
try:
    with terminable():
        print("ready", flush=True)
        if what == "ensemble":
            cj.ensemble(system, mu0, members=7, resume=at == "resume", **options)
        else:
            cj.solve(system, mu0, resume=at == "resume", **options)
except Stopped:
    sys.exit(143)
except cj.StoreError as error:
    print(error, flush=True)
    sys.exit(3)
print("done", flush=True)
"""
# The run itself takes about a third of a second, making the system and finding compiled code another one.
RUNNING = 0.4


class Runs:
    """Processes that run the same thing, with one cache of compiled code."""

    def __init__(self, folder: Path, what: str):
        self.folder, self.what = folder, what
        self.environment = os.environ | {
            "JAX_COMPILATION_CACHE_DIR": str(folder / "cache"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
        self.whole = folder / "whole.zarr"
        assert self.run(self.whole, "start") == (0, "done")

    def start(self, path: Path, *how: str) -> Process:
        return Process(PROGRAM, self.what, str(path), *how, env=self.environment)

    def run(self, path: Path, *how: str) -> tuple[int, str]:
        out, err = (process := self.start(path, *how)).communicate(timeout=120)
        assert process.returncode in (0, 3), err
        said = [line for line in out.splitlines() if not line.startswith(("begun", "ready"))]  # members print at once
        return process.returncode, "\n".join(filter(None, said))

    def kill(self, path: Path, how: str, begun: bool, seconds: float, by: int = signal.SIGKILL) -> bool:
        """Kill so many seconds after the start, or after the run has begun; whether it was finished by then."""
        process = self.start(path, how)
        if begun or by == signal.SIGTERM:  # which is handled from then on
            said(process, "begun\n" if begun else "ready\n")
        try:
            process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, by)
        out, err = process.communicate()
        if process.returncode == -signal.SIGTERM:  # the signal came after the run, while the interpreter ended
            assert out.endswith("done\n"), err
            return True
        assert process.returncode in (0, -9 if by == signal.SIGKILL else 143), err
        return process.returncode == 0

    def kill_there(self, path: Path, *how: str) -> None:
        """Start a process, and kill it where the program waits."""
        process = self.start(path, *how)
        said(process, "here\n")
        assert process.poll() is None
        process.kill()
        process.communicate()

    def check(self, path: Path) -> None:
        """The store is that of the uninterrupted run, bitwise."""
        assert_same_store(path, self.whole)


def said(process: Process, line: str) -> None:
    """Wait for it."""
    while line not in process.said() and process.poll() is None:
        time.sleep(0.002)


@pytest.fixture(scope="module", params=["solve", pytest.param("ensemble", marks=pytest.mark.slow)])
def runs(request, tmp_path_factory):
    return Runs(tmp_path_factory.mktemp(request.param), request.param)


def killed_again_and_again(runs: Runs, path: Path, kills: int, begun: bool, longest: float, seed: int) -> None:
    """Kill at random moments until so many kills have hit, then let it finish."""
    moments, hit = random.Random(seed), 0
    while hit < kills:
        how = "resume" if path.exists() else "start"
        if runs.kill(path, how, begun, moments.uniform(0, longest), (signal.SIGKILL, signal.SIGTERM)[hit % 2]):
            runs.check(path)
            shutil.rmtree(path)
        else:
            hit += 1
    assert runs.run(path, "resume" if path.exists() else "start") == (0, "done")
    runs.check(path)


def test_six_kills(runs, tmp_path):
    """Before the store exists, in the middle of a file, and four times at random, two of them by SIGTERM."""
    path = tmp_path / "run.zarr"
    runs.kill_there(path, "rename")
    code, said = runs.run(path, "resume")
    assert code == 3 and f"{path} does not exist: there is nothing to resume" in said
    runs.kill_there(path, "write", "60")
    assert list(path.rglob("*.partial"))
    killed_again_and_again(runs, path, 4, True, RUNNING, seed=1)
    assert [p.name for p in tmp_path.iterdir()] == ["run.zarr"]  # nothing is left of the first attempt


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_fifty_kills(runs, seed, tmp_path):
    """Ten for each seed, half of them anywhere in the life of the process, and half of them by SIGTERM."""
    killed_again_and_again(runs, tmp_path / "run.zarr", 5, True, RUNNING, seed)
    killed_again_and_again(runs, tmp_path / "other.zarr", 5, False, 1.0, seed)


@pytest.mark.slow
@pytest.mark.parametrize("file", range(30, 70, 3))
def test_a_kill_in_the_middle_of_any_file(runs, file, tmp_path):
    """Of arrays and of checkpoints, when the store is made and when it is written."""
    path = tmp_path / "run.zarr"
    runs.kill_there(path, "write", str(file))
    assert runs.run(path, "resume" if path.exists() else "start") == (0, "done")
    runs.check(path)
