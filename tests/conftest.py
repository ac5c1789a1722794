import gc
import hashlib
import os
import shutil
from pathlib import Path

import jax
import pytest
from hypothesis import settings

os.environ.setdefault("MPLBACKEND", "Agg")

settings.register_profile("coadjoint", deadline=None, max_examples=50, derandomize=bool(os.environ.get("CI")))
settings.load_profile("coadjoint")

LARGEST_CACHE = 2**30  # bytes of compiled programs that are kept


# Most of the time of these tests is XLA's. Of its two ways to write the code of a fusion the older one takes two thirds
# of the time to compile (JAX 0.10), to the same bits. Newer releases do not have it; `make verify` takes the other one.
QUICK_XLA = "--xla_cpu_use_fusion_emitters=false"


def pytest_configure(config):
    """Compile quickly, collect garbage seldom, keep what was compiled."""
    if jax.__version__.startswith("0.10.") and "not slow" in config.option.markexpr:
        os.environ.setdefault("XLA_FLAGS", QUICK_XLA)
    gc.freeze()
    gc.set_threshold(100_000, 50, 50)  # tracing makes objects by the million, few of them in cycles
    keep_programs(config)


def keep_programs(config):
    """Programs that XLA has compiled are kept, for the other processes of this run and for the next one.

    A program serves the processor that it was compiled on, so that a folder on a shared disk has one part for each.
    Subprocesses that tests start compile their own: some of them are killed while they write.
    """
    if not hasattr(config, "cache"):  # switched off
        return
    processor = Path("/proc/cpuinfo")
    about = processor.read_text().split("\n\n")[0] if processor.exists() else ""
    lines = [line for line in about.splitlines() if line.startswith(("model name", "flags", "Features"))]
    folder = config.cache.mkdir(f"xla-{jax.__version__}-{hashlib.sha256(repr(lines).encode()).hexdigest()[:12]}")
    if "PYTEST_XDIST_WORKER" not in os.environ and sum(p.stat().st_size for p in folder.iterdir()) > LARGEST_CACHE:
        shutil.rmtree(folder)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


@pytest.fixture(autouse=True, scope="module")
def forget_programs():
    """Compiled programs are not shared between files, and together they would take gigabytes."""
    yield
    jax.clear_caches()
