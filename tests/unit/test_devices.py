"""One large fluid over several devices and processes: equal to one device to round-off, with its share of memory each.

Devices are made of a CPU by XLA's flag, which a process must have from its start; so all runs are in processes of their
own, which talk to each other (jax.distributed) where there are two.
"""

import os
import socket
import subprocess
import sys
import time
from typing import Any

import jax
import numpy as np
import pytest

import coadjoint as cj

PROGRAM = """
import os, sys
me, processes, port, devices = (int(x) for x in sys.argv[1:5])
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices}"
import jax
if processes > 1:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{port}", processes, me, heartbeat_timeout_seconds=10)
import numpy as np
import coadjoint as cj
from coadjoint.running.backends import spreading, xla

def torus(n, noise=None):
    omega = cj.fluids.random_field(cj.fluids.Torus(n, "paper"), 0)
    return cj.models.sine_euler(n=n, noise_modes=noise, omega=np.asarray(omega))

def off(a, b):
    return float(np.abs(np.asarray(a) - np.asarray(b)).max() / np.abs(np.asarray(a)).max())

def memory(n, devices, system, mu0, **options):
    # What compiled code needs on one device, in matrices of complex numbers.
    sizes = []
    usual = spreading._called if devices > 1 else xla._advance
    def compiled(*args):
        m = usual.lower(*args).compile().compiled.memory_analysis()
        sizes.append((m.argument_size_in_bytes + m.output_size_in_bytes + m.temp_size_in_bytes) / (16 * n * n))
        raise StopIteration
    module, name = (spreading, "_called") if devices > 1 else (xla, "_advance")
    setattr(module, name, compiled)
    try:
        cj.solve(system, mu0, devices=devices, **options)
    except StopIteration:
        pass
    setattr(module, name, usual)
    return sizes[0]
"""


def start(code, devices, me=0, processes=1, port=0):
    command = [sys.executable, "-c", PROGRAM + code, *map(str, (me, processes, port, devices))]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ))


def ended(process, seconds=1200):
    out, err = process.communicate(timeout=seconds)
    assert process.returncode == 0, err[-4000:]
    return out


def run(code, devices):
    return ended(start(code, devices))


def a_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def test_a_run_on_four_devices_goes_on_on_two(tmp_path):
    """The state lies in rows on the devices, memory is shared out, and results are those of one device."""
    run(
        f"""
import warnings
system, W = torus(33)
path, run = {str(tmp_path / "run.zarr")!r}, dict(dt=0.02, save_every=5)
cj.solve(system, W, t1=0.2, devices=4, out=path, **run)
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    there = cj.solve(system, W, t1=0.4, devices=2, out=path, resume=True, **run)
assert "platform.devices: the store has 4, this run has 2" in str(said[-1].message), said
here = cj.solve(system, W, t1=0.4, **run)
assert off(here.mu, there.mu) < 1e-13, off(here.mu, there.mu)
assert off(here.mu[0], here.mu[-1]) > 1e-2
held = []
put = spreading.Spread.put
def seen(self, tree):
    held.append(put(self, tree))
    return held[-1]
spreading.Spread.put = seen
cj.solve(system, W, t1=0.02, dt=0.02, devices=4)
member, params, points, following, slots = held[0]
assert [s.data.shape for s in points.mu.addressable_shards] == [(1, 9, 33)] * 4
""",
        4,
    )


def test_bad_devices():
    system, W = cj.models.sine_euler(n=9, noise_modes=None)
    run: Any = {"t1": 0.1, "dt": 0.1}
    cases: Any = [
        (dict(devices=1000), ValueError, r"devices must be between 1 and \d+, the devices that JAX sees, not 1000\."),
        (dict(devices=0), ValueError, "devices must be between 1"),
        (dict(devices=True), TypeError, "devices must be a number of devices, or a list such as"),
        (dict(devices="all"), TypeError, "devices must be a number of devices"),
        (dict(devices=[3]), ValueError, "devices: 3 is none of the devices that JAX sees"),
        (dict(devices=[jax.devices()[0]] * 2), ValueError, "one of them is named twice"),
        (dict(devices=1, backend="native"), ValueError, "devices= is for backend=\"xla\", not 'native'"),
    ]
    for options, kind, words in cases:
        with pytest.raises(kind, match=words):
            cj.solve(system, W, **run, **options)
    small, w = cj.models.sine_euler(n=5, noise_modes=None)
    with pytest.raises(ValueError, match=r"devices= spreads one .* SU\(n\), n at least 9, and here n is 5"):
        cj.solve(small, w, **run, devices=1)
    body, mu0 = cj.models.rigid_body(alpha=None)
    with pytest.raises(ValueError, match=r"devices= spreads one large matrix of SU\(n\), .* and this is SO3"):
        cj.solve(body, mu0, **run, devices=1)
    one = cj.solve(system, W, **run, devices=1)
    np.testing.assert_array_equal(one.mu, cj.solve(system, W, **run).mu)


def test_methods_that_cannot_be_spread(monkeypatch):
    """They are told before anything is compiled."""
    from coadjoint.running import devices

    monkeypatch.setattr(devices, "_devices", lambda devices: tuple(range(devices)))
    system, W = cj.models.sine_euler(n=9, noise_modes=None)
    run: Any = {"t1": 0.1, "dt": 0.1, "devices": 2}
    with pytest.raises(ValueError, match=r"needs a method that steps by products alone, .* not RKMK as it is given"):
        cj.solve(system, W, **run, integrator=cj.RKMK("rk4"))
    with pytest.raises(ValueError, match="does not follow the group element"):
        cj.solve(system, W, **run, group=True)
    with pytest.raises(ValueError, match="devices must be at most n = 9, one a row, not 10"):
        cj.solve(system, W, **run | {"devices": 10})


# What takes longer.

BOTH = """
system, W = torus({n})
run = dict(t1=0.1, dt=0.02, save_every=5)
here = cj.solve(system, W, **run)
there = cj.solve(system, W, devices=jax.devices(), **run)
print(off(here.mu, there.mu))
assert off(here.mu, there.mu) < 1e-13
"""


@pytest.mark.slow
@pytest.mark.parametrize("devices", [2, 4, 8])
@pytest.mark.parametrize("n", [129, 513])
def test_any_devices(n, devices):
    out = run(
        BOTH.format(n=n)
        + f"one = memory({n}, 1, system, W, **run)\nshare = memory({n}, {devices}, system, W, **run)\n"
        + "print(one, share)",
        devices,
    )
    one, share = map(float, out.split()[1:])
    assert share < 1.25 * one / devices


@pytest.mark.slow
def test_spheres_and_noise():
    run(
        """
sphere = cj.models.euler_sphere(n=34, rotation=1.0, noise_modes=((2, 1), (3, -2)))
run = dict(t1=0.1, dt=0.02, save_every=5, key=1)
for system, W in (sphere, torus(33, ((1, 1), (2, -1))), torus(257, ((1, 1), (2, -1)))):
    for method in (cj.TMK(), cj.IsospectralMidpoint(), cj.TMK(tau=cj.Cayley())):
        here = cj.solve(system, W, integrator=method, **run)
        there = cj.solve(system, W, integrator=method, devices=3, **run)
        assert off(here.mu, there.mu) < 1e-13, (method, off(here.mu, there.mu))
""",
        3,
    )


@pytest.mark.slow
@pytest.mark.parametrize("n", [129, 513])
def test_two_processes(n):
    port = a_port()
    for process in [start(BOTH.format(n=n), 2, me, 2, port) for me in range(2)]:
        ended(process)


LONG = """
system, W = torus(65)
run = dict(t1=4.0, dt=0.002, save_every=50)
cj.solve(system, W, devices=jax.devices(), out={out!r}, **run)
"""
ON = """
import warnings
warnings.simplefilter("ignore")
system, W = torus(65)
run = dict(t1=4.0, dt=0.002, save_every=50)
there = cj.solve(system, W, out={out!r}, resume=True, **run)
here = cj.solve(system, W, **run)
assert off(here.mu, there.mu) < 1e-11, off(here.mu, there.mu)
"""


@pytest.mark.slow
def test_a_killed_process_and_on_with_one(tmp_path):
    """The other one ends too, soon, and the store is whole."""
    path = tmp_path / "run.zarr"
    port = a_port()
    both = [start(LONG.format(out=str(path)), 2, me, 2, port) for me in range(2)]
    while not list(path.glob("checkpoint/*.npz")) and all(p.poll() is None for p in both):
        time.sleep(0.1)
    both[1].kill()
    began = time.monotonic()
    both[0].communicate(timeout=120)
    assert both[0].returncode != 0 and time.monotonic() - began < 60
    both[1].communicate()
    run(ON.format(out=str(path)), 1)
