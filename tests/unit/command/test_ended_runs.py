"""How a run in the command line ends: by SIGTERM, and when its store disappears meanwhile."""

import gc
import os
import shutil
import signal
import sys
import time

import numpy as np
import pytest
from processes import Process

import coadjoint as cj
from coadjoint.store import atomic_io, store_sink
from coadjoint.store.interrupts import Stopped, terminable

COMMAND = """
import sys
from coadjoint.command.cli import app
from coadjoint.runtime import tuning
often = dict(checkpoint_seconds=0.0, checkpoint_share=0, first_chunk=64, largest_chunk=64)
tuning._current = tuning.Tuning(**often)
sys.exit(app())
"""
EXPERIMENT = """
model = {{ name = "rigid_body", alpha = [0.1, 0.2, 0.3] }}
run = {{ t1 = {t1}, dt = 0.01, key = 1, save_every = 10, integrator = "HeunMK", members = {members} }}
"""
OUTSIDE = """
import os, signal, typer
from coadjoint.command.cli import _errors
try:
    with _errors("run", False):
        os.kill(os.getpid(), signal.SIGTERM)
        print("on")
except typer.Exit as error:
    raise SystemExit(error.exit_code)
"""
LONG = 1e6  # a run that is still at work when the test ends it
RUN = {"t1": 40.0, "dt": 0.05, "key": 1, "save_every": 10, "integrator": cj.HeunMK()}


def started(folder, members):
    """A run that has committed something."""
    (folder / "run.toml").write_text(EXPERIMENT.format(t1=LONG if members == 1 else 1e4, members=members))
    store = folder / "run.zarr"
    process = Process(COMMAND, "run", str(folder / "run.toml"), "--out", str(store))
    until = time.monotonic() + 60
    while not list(store.glob("checkpoint/part-*.npz")):
        assert process.poll() is None and time.monotonic() < until, process.said("err")
        time.sleep(0.01)
    return process, store


SLOW = pytest.param(3000, marks=pytest.mark.slow)


@pytest.mark.parametrize("members", [1, SLOW])
def test_sigterm_commits_and_tells_how_to_resume(members, tmp_path):
    process, store = started(tmp_path, members)
    os.kill(process.pid, signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM, err
    assert f"coadjoint resume {store}" in err and "stopped at step" in err and "Traceback" not in err
    assert int(cj.open(store)["steps"].max()) > 0


VANISHED = {"moved": lambda path: path.rename(path.with_name("other.zarr")), "removed": shutil.rmtree}


@pytest.mark.parametrize("how", VANISHED)
@pytest.mark.parametrize("members", [1, SLOW])
def test_a_store_that_disappears(how, members, tmp_path):
    process, store = started(tmp_path, members)
    for _ in range(100):  # the run writes meanwhile
        try:
            VANISHED[how](store)
            break
        except OSError:
            continue
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2, (process.returncode, err)
    assert f"{store} was moved or removed while the run wrote to it" in err or "cannot be written" in err
    assert len(err.splitlines()) == 1  # nothing is printed while the interpreter ends
    assert not (store / "mu").exists()


def test_a_checkpoint_that_cannot_be_written_leaves_no_view_of_its_buffer(tmp_path, monkeypatch):
    """Garbage collection of a buffer that a traceback still viewed ended the interpreter by SIGSEGV."""
    unraisable = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)

    def fails():
        try:
            atomic_io.write(tmp_path / "nowhere" / "part.npz", atomic_io.encode_arrays({}, [np.zeros(3)]))
        except OSError as error:
            held = [error]
            held.append(held)  # a cycle, as the tracebacks of futures are

    fails()
    gc.collect()
    assert unraisable == []


def test_a_library_leaves_sigterm_alone(tmp_path, monkeypatch):
    """And inside `terminable` the run stops at the end of its chunk, and resumes bit for bit."""
    system, mu0 = cj.models.rigid_body(alpha=[0.1, 0.2, 0.3])
    seen = []
    add = store_sink.StoreSink.add

    def look(self, at, rows):
        add(self, at, rows)
        seen.append(signal.getsignal(signal.SIGTERM))

    monkeypatch.setattr(store_sink.StoreSink, "add", look)
    before = signal.getsignal(signal.SIGTERM)
    cj.solve(system, mu0, out=tmp_path / "whole.zarr", **RUN)
    assert set(seen) == {before}

    def terminated(self, at, rows):
        add(self, at, rows)
        if at == 0:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(store_sink.StoreSink, "add", terminated)
    with terminable(), pytest.raises(Stopped, match=r"stopped at step \d+ .* resume with: coadjoint resume") as stopped:
        cj.solve(system, mu0, out=tmp_path / "cut.zarr", **RUN)
    assert stopped.value.number == signal.SIGTERM and signal.getsignal(signal.SIGTERM) is before
    monkeypatch.setattr(store_sink.StoreSink, "add", add)
    whole, cut = cj.open(tmp_path / "whole.zarr"), cj.resume(tmp_path / "cut.zarr").open()
    np.testing.assert_array_equal(whole["mu"], cut["mu"])


def test_sigterm_outside_a_run():
    """Before a store exists, SIGTERM ends the command with the same status."""
    process = Process(OUTSIDE)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 143 and "stopped by SIGTERM" in err and not out
