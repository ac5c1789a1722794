import os

import jax
import pytest
from hypothesis import settings

os.environ.setdefault("MPLBACKEND", "Agg")

settings.register_profile("coadjoint", deadline=None, max_examples=50, derandomize=bool(os.environ.get("CI")))
settings.load_profile("coadjoint")


@pytest.fixture(autouse=True, scope="module")
def forget_programs():
    """Compiled programs are not shared between files, and together they would take gigabytes."""
    yield
    jax.clear_caches()
