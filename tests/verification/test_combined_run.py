"""One run with torque, attitude, wheels, SALT noise, impacts, a store, a kill, a resumed run and a gradient."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coadjoint as cj

PROGRAM = """
import sys
from coadjoint.store import store_sink
store_sink._SECONDS, store_sink._SHARE = 0.0, 0
sys.path.insert(0, sys.argv[1])
from test_combined_run import run
run(sys.argv[2], t1=4000.0, say=True)
"""
MEMBERS = 16
GAINS = {"stiffness": 0.2, "damping": 2.0}
HEUN = cj.HeunMK()


def pd(mu, p, g):
    """For the wheels."""
    return -p["stiffness"] * cj.rotation_to_quaternion(g[0])[1:] - p["damping"] * cj.models.body_rate(mu, p)


def throttles(mu, p):
    """A pair of thrusters against the total momentum about the first axis."""
    return jnp.stack([jnp.clip(-mu[0], 0.0, 1.0), jnp.clip(mu[0], 0.0, 1.0)])


def craft():
    """With SALT noise, whose channels are Brownian, and impacts on three axes."""
    laws = {"wheels": cj.hold(pd, every=2), "thrusters": cj.hold(throttles, every=4)}
    return cj.models.spacecraft(
        thrusters=[(0.1, 0, 0), (-0.1, 0, 0)], control=laws, params=GAINS, alpha=1e-3 * np.eye(3), disturbance=1.0,
        start=[0.3, -0.2, 0.1, 0, 0, 0],
    )  # fmt: skip


def path():
    """Brownian motion, and one impact in 50 s."""
    return cj.drivers.join((cj.Brownian(1, grid=0.5), 3), (cj.Jumps(0.02, lambda u: 0.1 * (2 * u - 1), 1, grid=0.5), 3))


def run(out, t1, resume=False, say=False):
    """The ensemble."""
    system, mu0 = craft()
    if say:
        print("ready", flush=True)
    return cj.ensemble(
        system, mu0, members=MEMBERS, t1=t1, dt=0.5, save_every=4, driver=path(), integrator=HEUN, out=out,
        resume=resume,
    )  # fmt: skip


@pytest.mark.slow
def test_a_killed_run_resumes_bitwise(tmp_path):
    """SIGKILL in the middle, after the first rows: the resumed store is that of a run without a kill."""
    folder = str(Path(__file__).parent)
    command = [sys.executable, "-c", PROGRAM, folder, str(tmp_path / "killed.zarr")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        while process.poll() is None and not _saved(tmp_path / "killed.zarr"):
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    before = cj.open(tmp_path / "killed.zarr").sizes["time"]
    resumed = run(tmp_path / "killed.zarr", 4000.0, resume=True)
    whole = run(tmp_path / "whole.zarr", 4000.0)
    a, b = resumed.open(), whole.open()
    assert 1 < before <= a.sizes["time"] == 2001, before
    for name in a.data_vars:
        np.testing.assert_array_equal(a[name], b[name])
    assert whole.stats.backend == "native", whole.stats.reason
    assert 2e-3 < np.abs(a.mu[:, -1, 3:]).max() < 3.0


def _saved(store) -> bool:
    try:
        return cj.open(store).sizes["time"] > 20
    except Exception:  # it does not exist yet, or has no rows
        return False


@pytest.mark.slow
def test_a_gradient_through_it():
    """The mean error by the gains, along a Brownian path, in native code against central differences."""
    system, mu0 = craft()

    def cost(gains):
        p = system.params | {"stiffness": gains[0], "damping": gains[1]}
        sol = cj.solve(
            system.with_params(p), jnp.asarray(mu0), t1=10.0, dt=0.5, driver=cj.Brownian(1), integrator=HEUN,
            save=lambda mu, g: jnp.concatenate([cj.rotation_to_quaternion(g[0])[1:], 0.1 * mu]),
        )  # fmt: skip
        return jnp.mean(sol.saved**2)

    gains = jnp.array([0.2, 2.0])
    found = jax.grad(cost)(gains)
    assert cj.last_gradient_info().backend == "native"
    h = 1e-5
    differences = [(cost(gains + h * e) - cost(gains - h * e)) / (2 * h) for e in np.eye(2)]
    np.testing.assert_allclose(found, differences, rtol=1e-5)
