"""A run without progress reports its stage, and long compilation is not taken for a stall."""

import re
import time

import jax.numpy as jnp
import numpy as np
import pytest

import coadjoint as cj
from coadjoint.runtime.backends.compiled_stepper import CompiledStepper

SYSTEM = cj.System(cj.SO3(), lambda m: 0.5 * m @ m + 0.7 * m[0])
RUN = {"t1": 300 * 0.1, "dt": 0.1, "integrator": cj.HeunMK()}
UP = np.array([0.0, 0.6, 0.8])


def stuck(monkeypatch, seconds, wait=time.sleep):
    """The second chunk of native steps takes so long."""
    advance = CompiledStepper.advance

    def slow(self, n1, every):
        if self.memory.next_step > 0:
            wait(seconds)
        return advance(self, n1, every)

    monkeypatch.setattr(CompiledStepper, "advance", slow)


def test_a_run_that_stands_still_says_where(monkeypatch, capfd):
    """Messages at growing intervals name the batch, step, stage and time, and report that the process is idle."""
    cj.ensemble(SYSTEM, UP, members=2, **RUN)
    stuck(monkeypatch, 1.6)
    monkeypatch.setenv("COADJOINT_WATCHDOG", "0.3")
    cj.ensemble(SYSTEM, UP, members=2, **RUN)
    said = re.findall(r"coadjoint: no progress for ([0-9.]+) s: (.*before step 256 .*)", capfd.readouterr().err)
    assert len(said) >= 2 and all(float(after) >= 0.299 * 2**k for k, (after, _) in enumerate(said))
    words = said[0][1]
    assert words.startswith("batch 1 of 1 is before step 256 of 300 (t = 25.6) since ")
    assert ", in the phase backend (native), which takes the steps up to 300 at once (loop.py:" in words
    assert "it waits" in said[-1][1]


def test_a_slow_step_is_told_from_one_that_waits(monkeypatch, capfd):
    def compute(seconds):
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            pass

    stuck(monkeypatch, 0.8, compute)
    monkeypatch.setenv("COADJOINT_WATCHDOG", "0.3")
    cj.solve(SYSTEM, UP, **RUN)
    assert "it computes, so its steps may be slow" in capfd.readouterr().err


def test_compiling_is_no_false_alarm(monkeypatch, capfd):
    """XLA takes its time for this energy; a run of ordinary length prints nothing."""
    new = 1e-15 * time.time_ns() % 1e-3  # a program that no earlier run of the tests has left compiled

    def energy(mu):
        for k in range(100):
            mu = jnp.sin(mu + 0.001 * k + new) @ jnp.eye(3)
        return mu @ mu

    cj.solve(SYSTEM, UP, **RUN)
    assert capfd.readouterr().err == ""
    monkeypatch.setenv("COADJOINT_WATCHDOG", "0.15")
    cj.solve(cj.System(cj.SO3(), energy), UP, backend="xla", **RUN)
    said = capfd.readouterr().err
    assert "compiling for" in said and "Then the run continues" in said
    assert "no progress" not in said


def test_never_and_nonsense(monkeypatch, capfd):
    monkeypatch.setenv("COADJOINT_WATCHDOG", "0")
    stuck(monkeypatch, 0.2)
    cj.solve(SYSTEM, UP, **RUN)
    assert capfd.readouterr().err == ""
    monkeypatch.setenv("COADJOINT_WATCHDOG", "often")
    with pytest.raises(
        ValueError, match="COADJOINT_WATCHDOG must be a number of seconds, or 0 for no message, not 'often'"
    ):
        cj.solve(SYSTEM, UP, **RUN)
