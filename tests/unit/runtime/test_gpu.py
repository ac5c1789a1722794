"""The GPU backend without a GPU: its kernels' text as code for this processor, which has a GPU's bits."""

import re
import shutil
import subprocess
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tuned import tune

import coadjoint as cj
from coadjoint.runtime import planning
from coadjoint.runtime.backends import gpu_runtime, native_gpu
from coadjoint.runtime.backends.step_kernels import kernel_for
from stepcompiler.cache import LRUCache
from stepcompiler.targets.gpu import REGISTERS, Gpu


@pytest.fixture
def emulated(monkeypatch):
    """Tiles of eight members, two of them as one, on two GPUs that are none."""
    machine = gpu_runtime.EmulatedGpu(2)
    monkeypatch.setattr(gpu_runtime, "detect", lambda: machine)
    tune(monkeypatch, max_batch_size=8, gpu_launch_members=16)
    return machine


def leaves(ens):
    return jax.tree.leaves((ens.saved, ens.g) if ens.reduced is None else ens.reduced)


def same_on_both(system, mu0, **options):
    """Every bit of a run on a GPU is that of the same run on a CPU, and so are its statistics."""
    gpu = cj.ensemble(system, mu0, backend="native-gpu", **options)
    cpu = cj.ensemble(system, mu0, backend="native", **options)
    assert (gpu.stats.backend, cpu.stats.backend) == ("native-gpu", "native")
    for a, b in zip(leaves(gpu), leaves(cpu), strict=True):
        np.testing.assert_array_equal(a, b)
    for name in ("iterations", "most_iterations", "residual", "unsolved", "first_unsolved", "substeps"):
        assert getattr(gpu.stats, name) == getattr(cpu.stats, name), name
    return gpu


RUN = {"members": 37, "t1": 0.21, "dt": 0.01, "key": 3, "save_every": 3}


def spinning():
    """A rigid body with params and two noises."""
    energy = lambda m, inertia: 0.5 * jnp.sum(m**2 / inertia)
    noises = [cj.salt([0.1, 0.2, 0.3]), cj.salt([0.0, 0.3, 0.1])]
    return cj.System(cj.SO3(), energy, noises, params=jnp.array([1.0, 2.0, 3.0])), jnp.array([0.5, -0.3, 0.8])


BY_MEMBER = np.linspace(1.0, 3.0, 3 * 37).reshape(37, 3)


class Largest:
    """A reducer of a user's own: the largest of each entry."""

    def init(self, x):
        return jnp.full(x.shape, -jnp.inf)

    def update(self, acc, x, weight):
        return jnp.maximum(acc, jnp.max(jnp.where(weight[:, None] > 0, x, -jnp.inf), axis=0))

    def merge(self, acc, other):
        return jnp.maximum(acc, other)

    def result(self, acc):
        return {"largest": acc}


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"params": BY_MEMBER, "group": True},
        {"save": lambda m: {"square": m @ m, "first": m[0]}},
        {"reduce": {"mean": cj.Mean(), "cov": cj.Covariance()}},
        {"reduce": Largest(), "save": lambda m: 2.0 * m},
        {"reduce": cj.Quantiles(low=-2, high=2, bins=300)},
    ],
    ids=["states", "params, group", "save", "reduce", "reduce a function", "reduce beyond native code"],
)
def test_an_ensemble_has_the_same_bits_on_a_gpu(emulated, more):
    system, mu0 = spinning()
    if "params" in more:
        mu0 = np.asarray(mu0) + 0.01 * np.arange(37)[:, None]
    gpu = same_on_both(system, mu0, **RUN, integrator=cj.HeunMK(), **more)
    assert gpu.stats.reason == ""


@pytest.mark.parametrize(
    "driver",
    [
        cj.Brownian(4, grid=0.005),
        cj.Brownian(4, grid=0.02),
        cj.Increments(0.1 * np.sin(np.arange(37 * 21 * 2.0)).reshape(37, 21, 2)),
    ],
    ids=["summed", "bridged", "given"],
)
def test_paths_are_the_same(emulated, driver):
    """Drawn by the kernel, or read from memory where it cannot draw them."""
    system, mu0 = spinning()
    same_on_both(system, mu0, **(RUN | {"key": None}), driver=driver, integrator=cj.HeunMK())


def test_members_with_hard_steps_are_stepped_as_on_a_cpu(emulated):
    """By the full kernel, and one by one by the fallback solver; neighbours do not matter."""
    system, mu0 = cj.models.rigid_body(alpha=(0.1, 0.2, 0.3))
    options = {"t1": 3.0 * 12, "dt": 3.0, "key": 0, "save_every": 2, "throw": False}
    ens = same_on_both(system, mu0, members=11, **options)
    assert ens.stats.most_iterations > 30
    fewer = cj.ensemble(system, mu0, members=5, backend="native", **options)
    np.testing.assert_array_equal(fewer.mu, ens.mu[:5])


def test_a_run_goes_from_a_cpu_to_a_gpu_and_back(emulated, tmp_path):
    """In one store, with the bits of a run that never moved, and without a warning that they might differ."""
    system, mu0 = spinning()
    for reduce in (None, cj.Mean()):
        about = {"members": 37, "dt": 0.01, "key": 3, "save_every": 3, "integrator": cj.HeunMK(), "reduce": reduce}
        out = tmp_path / f"{reduce is None}.zarr"
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            cj.ensemble(system, mu0, t1=0.06, out=out, backend="native", **about)
            cj.ensemble(system, mu0, t1=0.12, out=out, backend="native-gpu", resume=True, **about)
            moved = cj.ensemble(system, mu0, t1=0.21, out=out, backend="native", resume=True, **about).load()
        for a, b in zip(leaves(moved), leaves(cj.ensemble(system, mu0, t1=0.21, **about)), strict=True):
            np.testing.assert_array_equal(a, b)


def test_batches_at_other_steps_resume_from_there(emulated, tmp_path, monkeypatch):
    """As a CPU leaves them that was stopped: some at the end, some half-way, some not begun."""
    system, mu0 = spinning()
    about = {"members": 37, "dt": 0.01, "key": 3, "integrator": cj.HeunMK(), "out": tmp_path / "run.zarr"}
    cj.ensemble(system, mu0, t1=0.06, backend="native", **about)
    from coadjoint.store.checkpoints import Checkpoints

    usual = Checkpoints.read
    monkeypatch.setattr(Checkpoints, "read", lambda self, number: None if number == 3 else usual(self, number))
    moved = cj.ensemble(system, mu0, t1=0.1, backend="native-gpu", resume=True, **about).load()
    del about["out"]
    np.testing.assert_array_equal(moved.mu, cj.ensemble(system, mu0, t1=0.1, **about).mu)


# Which backend.


def test_large_ensembles_take_the_gpu_by_themselves(emulated, monkeypatch):
    system, mu0 = spinning()
    options = {**RUN, "integrator": cj.HeunMK()}
    assert cj.ensemble(system, mu0, **options).stats.backend == "native"
    tune(monkeypatch, gpu_members=16, gpu_seconds=0.0)
    assert cj.ensemble(system, mu0, **options).stats.backend == "native-gpu"
    given = cj.ensemble(
        system, mu0, **(options | {"key": None}), driver=cj.Increments(np.full((21, 2), 0.1))
    )  # a path from memory
    assert given.stats.backend == "native" and "cannot draw this path" in given.stats.reason


def test_where_there_is_no_gpu_that_is_no_news_unless_it_was_asked_for():
    system, mu0 = cj.models.rigid_body()
    assert isinstance(gpu_runtime.detect(), str)
    ens = cj.ensemble(system, mu0, **RUN)
    assert (ens.stats.backend, ens.stats.reason) == ("native", "")
    with pytest.raises(ValueError, match="backend='native-gpu' cannot take this run: JAX finds no GPU"):
        cj.ensemble(system, mu0, backend="native-gpu", **RUN)


def test_a_trajectory_is_not_for_a_gpu(emulated):
    with pytest.raises(ValueError, match="one trajectory would be one thread"):
        cj.solve(*cj.models.rigid_body(), t1=0.1, dt=0.01, key=1, backend="native-gpu")


def test_a_step_too_long_for_a_thread_is_refused(emulated, monkeypatch):
    """Asked for by name, a longer one is taken, slow as it is."""
    system = cj.System(cj.SO3(), lambda m: jnp.sum(m**6) + m[0], [cj.salt([0.1, 0.2, 0.3])])
    run = {"integrator": cj.HeunMK(), **RUN}
    tune(monkeypatch, gpu_members=1, gpu_seconds=0.0)
    assert cj.ensemble(system, np.ones(3), **run).stats.backend == "native-gpu"
    monkeypatch.setattr("coadjoint.runtime.backends.native_gpu.LONGEST", 60)
    assert cj.ensemble(system, np.ones(3), **run).stats.backend == "native"
    assert cj.ensemble(system, np.ones(3), backend="native-gpu", **run).stats.backend == "native-gpu"
    monkeypatch.setattr("stepcompiler.targets.gpu.LONGEST_ASKED", 60)
    monkeypatch.setattr("coadjoint.runtime.backends.step_kernels._kernels", LRUCache())
    with pytest.raises(ValueError, match="beyond 60 a GPU's thread has too few registers"):
        cj.ensemble(system, np.ones(3), backend="native-gpu", **run)


def test_what_does_not_work_is_tried_and_left(monkeypatch):
    """A GPU on which neither way runs a kernel, and one of another maker, are as good as none."""

    class Device:
        platform, device_kind, compute_capability = "gpu", "NVIDIA H200", "9.0"

    def broken(machine):
        raise RuntimeError(f"{type(machine).__name__} is out of order")

    monkeypatch.setattr(jax, "local_devices", lambda: [Device()])
    monkeypatch.setattr(gpu_runtime, "self_test", broken)
    reason = gpu_runtime.detect.__wrapped__()
    assert "could not be run on NVIDIA H200: XlaLauncher is out of order; " in reason
    monkeypatch.setattr(Device, "device_kind", "AMD Instinct")
    assert gpu_runtime.detect.__wrapped__() == "native code is not made for AMD Instinct."


def test_the_trial_finds_wrong_numbers():
    machine = gpu_runtime.EmulatedGpu()
    gpu_runtime.self_test(machine)
    machine.call = lambda loop, *arrays: tuple(jnp.asarray(a) for a in arrays[4:])
    with pytest.raises(RuntimeError, match="wrong numbers"):
        gpu_runtime.self_test(machine)


# The text.


def plan_of(system, mu0, **more):
    options = {"t0": 0.0, "driver": None, "params": None, "reduce": None, "save": None, "group": False} | more
    return planning.plan_ensemble(
        system, mu0, **RUN, stored=False, throw=True, integrator=cj.HeunMK(), backend="auto", **options
    )


def test_kernels_are_ptx_that_leaves_nothing_to_the_compiler(tmp_path):
    """Each operation rounds as it was written; ptxas takes it, where there is one."""
    kernel = kernel_for(plan_of(*spinning()), Gpu(), drawn=True)
    for capability, arch in ((75, "sm_75"), (90, "sm_90"), (91, "sm_90")):
        ptx = kernel.native.executable.ptx(capability)
        assert f".target {arch}" in ptx and ".entry advance(" in ptx and f".maxnreg {REGISTERS}" in ptx
        assert re.search(r"fma\.rn\.f64", ptx) and not re.search(r"\t(mul|add|sub|div|sqrt)\.f64", ptx)
    assembled(kernel.native.executable.ptx(90), tmp_path)


def assembled(ptx, folder):
    """ptxas takes it, where there is one."""
    ptxas = shutil.which("ptxas")
    if ptxas is not None:
        (folder / "kernel.ptx").write_text(ptx)
        command = [ptxas, "-arch=sm_90", str(folder / "kernel.ptx"), "-o", str(folder / "kernel.cubin")]
        subprocess.run(command, check=True)


def test_constants_lie_in_a_table(tmp_path):
    """Each with its bits, in every function of a kernel; those of which an instruction holds all bits stay in it."""
    functions = cj.System(
        cj.SO3(), lambda m: jnp.sin(m[0]) + jnp.cos(3.0 * m[1]) * jnp.exp(0.1 * m[2]), cj.salt(np.eye(3))
    )
    loop = kernel_for(plan_of(functions, jnp.ones(3)), Gpu(), drawn=True).native.executable
    ptx = loop.ptx(90)
    (table,) = re.findall(r"table\[\d+\] = \{(.*)\};", ptx)
    bits = [int(x, 16) for x in table.split(", ")]
    assert len(bits) == len(set(bits)) and all(x % 2**32 for x in bits)
    assert int(np.float64(np.log(2.0)).view(np.uint64)) in bits
    assert not [x for x in re.findall(r"0d[0-9A-F]{16}", ptx) if not x.endswith("0" * 8)]
    used = {int(place) // 8 for place in re.findall(r"\[table\+(\d+)\]", ptx)}
    assert used == set(range(len(bits)))
    assembled(ptx, tmp_path)


# Where members go.


@pytest.mark.parametrize(
    ("members", "size"), [(100, 64), (2**12, 64), (2**16, 512), (3 * 132 * 512, 512), (33 * 1024, 256)]
)
def test_members_are_spread_evenly_over_the_processors(members, size):
    """By the largest blocks with which none has more threads than with smaller ones."""
    blocks, threads = gpu_runtime.threads_for(members, 132)
    assert threads == size and blocks * threads >= members > (blocks - 1) * threads


def test_parts_are_of_whole_waves(emulated, monkeypatch):
    """Each but the last one fills the GPU: 64 threads at once here, so 192 of at most 200 members."""
    monkeypatch.setattr(emulated, "processors", 2)
    monkeypatch.setattr(native_gpu, "RESIDENT", 32)
    tune(monkeypatch, gpu_launch_members=200)
    counts = []
    step = native_gpu.GpuMemory
    monkeypatch.setattr(
        native_gpu, "GpuMemory", lambda p, tile, *rest: (counts.append(tile.n_members), step(p, tile, *rest))[1]
    )
    system, mu0 = spinning()
    same_on_both(system, mu0, **(RUN | {"members": 500}), integrator=cj.HeunMK())
    assert sorted(counts) == [116, 192, 192]
