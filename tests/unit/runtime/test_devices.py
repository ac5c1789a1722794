"""One large fluid over several devices and processes: equal to one device to round-off, with its share of memory each.

Devices are made of a CPU by XLA's flag, which a process must have from its start; so all runs are in processes of their
own, which talk to each other (jax.distributed) where there are two.
"""

import random
import re
import socket
import time
from contextlib import suppress
from typing import Any

import jax
import numpy as np
import pytest
from processes import Process

import coadjoint as cj
from coadjoint.store.checkpoints import Checkpoints, block_name, piece_name
from coadjoint.store.manifest import Manifest, checkpoint_name, entry_of
from coadjoint.store.reading import contents

PROGRAM = """
import os, sys
me, processes, port, devices = (int(x) for x in sys.argv[1:5])
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + f" --xla_force_host_platform_device_count={devices}"
import jax
if processes > 1:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{port}", processes, me, heartbeat_timeout_seconds=20)
import numpy as np
import coadjoint as cj
from coadjoint.runtime.backends import placement, xla

def torus(n, noise=None):
    omega = cj.fluids.random_field(cj.fluids.Torus(n, "paper"), 0)
    return cj.models.sine_euler(n=n, noise_modes=noise, omega=np.asarray(omega))

def sphere(n):
    return cj.models.euler_sphere(n=n, rotation=1.0)

def off(a, b):
    return float(np.abs(np.asarray(a) - np.asarray(b)).max() / np.abs(np.asarray(a)).max())

def memory(n, devices, system, mu0, **options):
    # What compiled code needs on one device, in matrices of complex numbers.
    sizes = []
    usual = placement._called if devices > 1 else xla._advance
    def compiled(*args):
        m = usual.lower(*args).compile().compiled.memory_analysis()
        sizes.append((m.argument_size_in_bytes + m.output_size_in_bytes + m.temp_size_in_bytes) / (16 * n * n))
        raise StopIteration
    module, name = (placement, "_called") if devices > 1 else (xla, "_advance")
    setattr(module, name, compiled)
    try:
        cj.solve(system, mu0, devices=devices, **options)
    except StopIteration:
        pass
    setattr(module, name, usual)
    return sizes[0]
"""


def start(code, devices, me=0, processes=1, port=0):
    return Process(PROGRAM + code, *map(str, (me, processes, port, devices)))


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


# The state lies in rows on the devices, memory is shared out, and results are those of one device.
FOUR = """
import warnings
system, W = torus(33)
path, run = {path!r}, dict(dt=0.02, save_every=5)
held = []
put = placement.ShardedPlacement.put
def seen(self, tree):
    held.append(put(self, tree))
    return held[-1]
placement.ShardedPlacement.put = seen
cj.solve(system, W, t1=0.2, devices=4, out=path, **run)
member, params, points, following, slots = held[0]
assert [s.data.shape for s in points.mu.addressable_shards] == [(1, 9, 33)] * 4
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    there = cj.solve(system, W, t1=0.4, devices=2, out=path, resume=True, **run)
assert "platform.devices: the store has 4, this run has 2" in str(said[-1].message), said
here = cj.solve(system, W, t1=0.4, **run)
assert off(here.mu, there.mu) < 1e-13, off(here.mu, there.mu)
assert off(here.mu[0], here.mu[-1]) > 1e-2
"""
TOGETHER = """
import errno, signal, traceback
from coadjoint.runtime import loop, tuning
from coadjoint.runtime.executors import ClusterError
from coadjoint.store import store_sink
from coadjoint.store.checkpoints import Checkpoints
tuning._current = tuning.Tuning(first_chunk=1, chunk_seconds=0.0, buffer_bytes=0)  # a commit every step
system, W = sphere(17)
run = dict(dt=0.1, save_every=2, integrator=cj.IsospectralMidpoint())  # half as long to compile as TMK
save_piece, wanted = Checkpoints.save_piece, store_sink.BatchSink._wanted

def full(self, number, step, *rest):
    if me == 1 and step == 3:
        raise OSError(errno.ENOSPC, "no space")
    save_piece(self, number, step, *rest)

def pressed(self):
    if me == 0 and self.marked[0] == 5:
        signal.raise_signal(signal.SIGINT)
    return wanted(self)

def killed(self, number, step, *rest):
    save_piece(self, number, step, *rest)
    if me == 1 and step == 9:
        os.kill(os.getpid(), signal.SIGKILL)

def ends(kind, resume):
    try:
        cj.solve(system, W, t1=1.2, devices=jax.devices(), out={path!r}, resume=resume, **run)
    except kind as error:
        print(error, flush=True)

Checkpoints.save_piece = full
ends(cj.StoreError, False)
Checkpoints.save_piece, store_sink.BatchSink._wanted = save_piece, pressed
ends(KeyboardInterrupt, True)
Checkpoints.save_piece = killed
try:
    ends((), True)
except ClusterError:
    traceback.print_exc()
    sys.stderr.flush()
    os._exit(1)  # JAX would wait for the other process, and then end this one in its own way
"""
AND_ON = """
import warnings
warnings.simplefilter("ignore")
system, W = sphere(17)
path, run = {path!r}, dict(dt=0.1, save_every=2, integrator=cj.IsospectralMidpoint())
for t1, devices in ((1.2, 8), (1.6, 2), (2.0, 1)):
    there = cj.solve(system, W, t1=t1, out=path, resume=True, devices=devices, **run)
here = cj.solve(system, W, t1=2.0, **run)
assert off(here.mu, there.mu) < 1e-13, off(here.mu, there.mu)
assert off(here.mu[0], here.mu[-1]) > 1e-2
"""


def stored(path):
    """The checkpoints of a store."""
    found = contents(path)
    return Checkpoints(found.manifest, found.header["plans"], found.header["n_batches"])


@pytest.mark.slow
def test_runs_on_several_devices_and_processes_go_on_on_others(tmp_path):
    """A torus on four devices, then on two; a sphere on 4 devices of two processes, then on 8, 2 and 1.

    They are equal to one device all the way to round-off. A full disk and Ctrl-C end both processes with a sentence;
    one that dies between leaves a checkpoint that is whole. The torus runs while the other one waits for it.
    """
    path, port = tmp_path / "run.zarr", a_port()
    both = [start(TOGETHER.format(path=str(path)), 2, me, 2, port) for me in range(2)]
    run(FOUR.format(path=str(tmp_path / "torus.zarr")), 4)
    (first, error), (second, _) = (process.communicate(timeout=600) for process in both)
    assert [process.returncode != 0 for process in both] == [True, True]
    assert (
        "process 1 cannot write its part; its own message gives the reason. The store contains the run up to step 2"
        in first
    )
    assert "cannot be written: the disk is full. It contains the run up to step 2 (t = 0.2)" in second
    for said in (first, second):
        assert "stopped at step 5 (t = 0.5); resume with: coadjoint resume " in said
    gone = r"another process of this run is gone, or cannot be .*run\.zarr contains the run up to step 8 \("
    assert re.search(gone, error), error

    # Killed when its piece was there, and the checkpoint was not.
    found = stored(path).read(0)
    assert found is not None and found.step == 8 and len(found.pieces) == 2
    pieces = {piece.name for piece in path.glob("checkpoint/piece-*.npz")}
    assert pieces > set(found.pieces) and "piece-000000-9-1.npz" in pieces
    assert [x.shape for x in stored(path).whole(found).values()].count((17, 17)) >= 1
    assert {p.name for p in path.glob("mu/c.*")} >= {"c.0.0.0", "c.0.1.0"}
    assert cj.open(path).sizes["time"] == 5
    run(AND_ON.format(path=str(path)), 8)
    assert not list(path.glob("checkpoint/piece-*")) and not list(path.glob("checkpoint/*.lock"))


def test_a_piece_that_is_missing_or_cut_off(tmp_path):
    (tmp_path / "checkpoint").mkdir()
    manifest, n = Manifest(tmp_path, "this", live=False), 6
    checkpoints = Checkpoints(manifest, ["plan"], 1)
    x, sharded = np.arange(n * n, dtype=complex).reshape(n, n), [(".mu", (n, n), "complex128")]
    for process, rows in enumerate((slice(0, 4), slice(4, 6))):
        checkpoints.save_piece(0, 7, process, {block_name(".mu", rows.start): x[rows]})
    pieces = [piece_name(0, 7, k) for k in range(2)]
    data = checkpoints.encode(0, 7, 1, 1, "xla", {}, pieces=pieces, sharded=sharded)
    checkpoints.path(0).write_bytes(data)
    manifest.files[checkpoint_name(0)] = [entry_of(data)]
    found = checkpoints.read(0)
    assert found is not None
    np.testing.assert_array_equal(checkpoints.whole(found)[".mu"], x)
    (tmp_path / "checkpoint" / piece_name(0, 8, 0)).touch()
    checkpoints.remove_orphans()
    assert sorted(p.name for p in tmp_path.glob("checkpoint/piece*")) == pieces
    with pytest.raises(cj.StoreError, match="rows are missing"):
        checkpoints.whole(found._replace(pieces=found.pieces[:1]))
    second = tmp_path / "checkpoint" / pieces[1]
    second.write_bytes(second.read_bytes()[:-20])
    with pytest.raises(cj.StoreError, match=r"piece-000000-7-1\.npz is damaged"):
        checkpoints.whole(found)
    second.unlink()
    with pytest.raises(cj.StoreError, match=r"piece-000000-7-1\.npz is missing: it is a piece of the checkpoint"):
        checkpoints.whole(found)


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
    from coadjoint.runtime import device_selection

    monkeypatch.setattr(device_selection, "_devices", lambda devices: tuple(range(devices)))
    system, W = cj.models.sine_euler(n=9, noise_modes=None)
    run: Any = {"t1": 0.1, "dt": 0.1, "devices": 2}
    with pytest.raises(ValueError, match=r"steps without LU and eigenvalues: .* not RKMK"):
        cj.solve(system, W, **run, integrator=cj.RKMK("rk4"))
    with pytest.raises(ValueError, match="does not follow the group element"):
        cj.solve(system, W, **run, group=True)
    with pytest.raises(ValueError, match="devices must be at most n = 9, one per row, not 10"):
        cj.solve(system, W, **run | {"devices": 10})


def test_programs_from_a_cache_are_not_for_several_processes():
    """They crashed in Gloo when a run went on."""
    from coadjoint.runtime.device_selection import _check_cache

    with pytest.raises(ValueError, match=r"compilation cache, and JAX_COMPILATION_CACHE_DIR is 'there': unset it"):
        _check_cache("there", {0, 1}, "cpu")
    for folder, processes, platform in ((None, {0, 1}, "cpu"), ("there", {0}, "cpu"), ("there", {0, 1}, "gpu")):
        _check_cache(folder, processes, platform)


# What takes longer.

BOTH = """
system, W = {flow}({n})
run = dict(t1=0.1, dt=0.02, save_every=5)
here = cj.solve(system, W, **run)
there = cj.solve(system, W, devices=jax.devices(), **run)
print(off(here.mu, there.mu))
assert off(here.mu, there.mu) < 1e-13
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "flow, n, devices",
    [("torus", n, d) for n in (129, 513) for d in (2, 4, 8)] + [("sphere", 129, d) for d in (2, 4)],
)
def test_any_devices(flow, n, devices):
    out = run(
        BOTH.format(flow=flow, n=n)
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
made = lambda: cj.models.euler_sphere(n=34, rotation=1.0, noise_modes=((2, 1), (3, -2), (30, 29)))
sphere = made()
from coadjoint.fluids import sphere as spheres
spheres._LARGE = 16
large = made()  # as one with n above 512 is
run = dict(t1=0.1, dt=0.02, save_every=5, key=1)
for system, W in (sphere, large, torus(33, ((1, 1), (2, -1))), torus(257, ((1, 1), (2, -1)))):
    for method in (cj.TMK(), cj.LieMidpoint(), cj.IsospectralMidpoint(), cj.TMK(tau=cj.Cayley())):
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
    for process in [start(BOTH.format(flow="torus", n=n), 2, me, 2, port) for me in range(2)]:
        ended(process)


LONG = """
system, W = torus(17)
run = dict(t1=8.0, dt=0.002, save_every=50)
cj.solve(system, W, devices=jax.devices(), out={out!r}, resume={resume}, **run)
"""
ON = """
import warnings
warnings.simplefilter("ignore")
system, W = torus(17)
run = dict(t1=8.0, dt=0.002, save_every=50)
there = cj.solve(system, W, out={out!r}, resume=True, **run)
here = cj.solve(system, W, **run)
assert off(here.mu, there.mu) < 1e-12, off(here.mu, there.mu)
assert off(here.mu[0], here.mu[-1]) > 1e-2
"""


@pytest.mark.slow
def test_killed_processes_and_on_with_one(tmp_path):
    """At random moments, the first or another: the other one ends too, soon, and the store goes on, whole."""
    path, moments = tmp_path / "run.zarr", random.Random(0)
    own, steps = path / "checkpoint" / "part-000000.npz", [0]

    def gone_on():  # a resumed run also writes the checkpoint that it begins with
        with suppress(cj.StoreError):  # a file that is just being replaced
            found = stored(path).read(0) if own.exists() else None
            return found is not None and found.step > steps[-1]
        return False

    for victim in (1, 0):
        port = a_port()
        code = LONG.format(out=str(path), resume=path.exists())
        both = [start(code, 1, me, 2, port) for me in range(2)]
        while not gone_on() and all(p.poll() is None for p in both):
            time.sleep(0.05)
        time.sleep(moments.uniform(0.0, 2.0))
        both[victim].kill()
        began = time.monotonic()
        _, words = both[1 - victim].communicate(timeout=120)
        assert both[1 - victim].returncode != 0 and time.monotonic() - began < 60, words[:6000]
        both[victim].communicate()
        found = stored(path).read(0)
        assert found is not None and found.step > steps[-1]
        stored(path).whole(found)
        steps.append(found.step)
        if victim == 1:  # without the first, JAX may end the process before it can say so
            assert "another process of this run is gone, or cannot be reached (" in words, words[:6000]
            assert f"run.zarr contains the run up to step {steps[-1]} (t = " in words, words[:6000]
            assert "Resume, on any number of processes, with: coadjoint resume" in words, words[:6000]
    assert steps[-1] < 4000  # there was something left to do
    run(ON.format(out=str(path)), 1)
