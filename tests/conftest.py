import gc
import hashlib
import os
import shutil
import subprocess
import sys
import threading
from contextlib import contextmanager
from functools import partial
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read when NumPy is imported: idle threads of BLAS keep cores busy

import jax
import jax.monitoring
import pytest
from hypothesis import settings
from jax._src import compilation_cache, xla_bridge
from jax._src.interpreters import mlir

import coadjoint  # noqa: F401, turns on float64, also for tests that use the compiler alone

os.environ.setdefault("MPLBACKEND", "Agg")

settings.register_profile("coadjoint", deadline=None, max_examples=50, derandomize=bool(os.environ.get("CI")))
settings.load_profile("coadjoint")

LARGEST_CACHE = 2**30  # bytes of compiled programs on disk


# XLA's compiler takes most of the time of these tests. With JAX 0.10, four changes shorten it:
# - the older code generator for fusions, without LLVM's optimisation, and one module in place of 32 parallel ones:
#   half the time;
# - no passes that move code out of loops: a fifth less;
# - no passes that divide one program among cores, because the tests keep all cores busy;
# - no second simplification.
# Results differ by the rounding of sums of products. `make verify`, the tests with newer JAX and tests marked
# `xla_as_it_is` run XLA without these changes.
LEFT_OUT = (
    *("while-loop-invariant-code-motion", "simplify-while-loops", "while-loop-trip-count-annotator"),
    *("cpu-parallel-task-assigner", "post_scatter_expansion_simplification", "tree_reduction_rewriter"),
    "reshape-mover",
)
QUICK_XLA = "--xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level=0"
QUICK_XLA += " --xla_cpu_parallel_codegen_split_count=1 --xla_llvm_disable_expensive_passes=true"
QUICK_XLA += f" --xla_disable_hlo_passes={','.join(LEFT_OUT)}"
LARGEST_GROWTH = 2**32  # bytes of a process, after which compiled programs are forgotten


def pytest_configure(config):
    """Shorten compilation and garbage collection, and cache compiled programs."""
    if jax.__version__.startswith("0.10."):
        share_contexts()
        # zlib is slow
        compilation_cache.compress_executable = compilation_cache.decompress_executable = bytes
        if "not slow" in config.option.markexpr:
            assert not xla_bridge.backends_are_initialized(), "a conftest.py computes when it is imported: too early"
            os.environ.setdefault("XLA_FLAGS", QUICK_XLA)
            leave_out_passes()
    jax.config.update("jax_traceback_in_locations_limit", 0)  # source lines lengthen lowering
    os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")  # also in processes that tests start
    gc.freeze()
    gc.set_threshold(400_000, 50, 100)  # tracing makes objects by the million, few of them in cycles
    keep_programs(config)


def share_contexts():
    """Lower many programs in one MLIR context: JAX 0.10 spends 4 ms on a new context per program, newer JAX 0.3 ms."""
    make, kept = mlir.make_ir_context, threading.local()

    def context():
        if mlir.ir.Context.current is not None:  # lowering of a program inside of another: separate contexts
            return make()
        kept.programs = getattr(kept, "programs", 0) + 1
        if kept.programs % 64 == 1:  # the memory of a context grows
            kept.context = make()
        return kept.context

    mlir.make_ir_context = context


def leave_out_passes():
    """Skip LLVM's passes: native code compiles three times faster, runs at half the speed, with identical results."""
    from stepcompiler.targets import cpu, gpu

    cpu.compiled = gpu.compiled = partial(cpu.compiled, level=0)


@pytest.fixture(autouse=True)
def all_passes(request, monkeypatch):
    """Run LLVM's passes in the tests of the compiler, as for users."""
    if request.path.parent.name == "stepcompiler":
        from stepcompiler.targets import cpu

        monkeypatch.setattr(cpu, "compiled", getattr(cpu.compiled, "func", cpu.compiled))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Run a test marked `xla_as_it_is` in a separate process with all passes of XLA."""
    if pyfuncitem.get_closest_marker("xla_as_it_is") is None or os.environ.get("XLA_FLAGS") != QUICK_XLA:
        return None
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", pyfuncitem.nodeid]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")} | {"XLA_FLAGS": ""}
    done = subprocess.run(command, env=environment, cwd=pyfuncitem.config.rootpath, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    return True


def keep_programs(config):
    """Cache XLA's compiled programs for the other processes of this run and for later runs.

    A compiled program is valid for one kind of processor, so the folder has a part for each. Processes that tests start
    do not use the cache, because tests kill some of them while they write.
    """
    if not hasattr(config, "cache"):  # switched off
        return
    processor = Path("/proc/cpuinfo")
    about = processor.read_text().split("\n\n")[0] if processor.exists() else ""
    lines = [line for line in about.splitlines() if line.startswith(("model name", "flags", "Features"))]
    folder = config.cache.mkdir(f"programs-{jax.__version__}-{hashlib.sha256(repr(lines).encode()).hexdigest()[:12]}")
    if "PYTEST_XDIST_WORKER" not in os.environ and sum(p.stat().st_size for p in folder.iterdir()) > LARGEST_CACHE:
        shutil.rmtree(folder)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    os.environ["STEPCOMPILER_CACHE"] = str(folder / "native")
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)  # the smallest are the most often shared
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


@pytest.fixture(scope="session")
def memory_kept():
    """The memory of this process when its compiled programs were last cleared, in bytes."""
    return [0]


@pytest.fixture(autouse=True, scope="module")
def forget_programs(memory_kept):
    """Clear compiled programs after a file if memory has grown: those of all files together take gigabytes.

    Files share small programs. The memory of a process does not shrink when programs are cleared, so growth is
    compared.
    """
    yield
    pages = Path("/proc/self/statm")
    memory = int(pages.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if pages.exists() else 0
    if memory > memory_kept[0] + LARGEST_GROWTH or not pages.exists():
        jax.clear_caches()
        memory_kept[0] = memory


COMPILED = "/jax/core/compile/backend_compile_duration"
_compiled = [0]


def _count(event, seconds, **_):
    _compiled[0] += event == COMPILED


jax.monitoring.register_event_duration_secs_listener(_count)


class Count:
    n = 0


@pytest.fixture
def compilations():
    """`with compilations() as count: …`: afterwards count.n is the number of programs that XLA compiled."""

    @contextmanager
    def counting():
        count, before = Count(), _compiled[0]
        yield count
        count.n = _compiled[0] - before

    return counting
