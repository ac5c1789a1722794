"""`import coadjoint` imports no JAX, and yet turns on float64; so does the command, where it needs no JAX."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import coadjoint as cj

SOURCE = Path(cj.__file__).read_text(encoding="utf-8")


def python(code, **environment):
    """The output of a fresh interpreter."""
    unset = {k: v for k, v in os.environ.items() if k != "JAX_ENABLE_X64"}
    env = unset | {"PYTHONPATH": str(Path(cj.__file__).parents[1]), "JAX_PLATFORMS": "cpu"} | environment
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_turns_on_float64_without_importing_jax():
    code = "import sys, coadjoint; print('jax' in sys.modules); import jax.numpy as jnp; print(jnp.ones(1).dtype)"
    assert python(code).split() == ["False", "float64"]
    assert python(code, JAX_ENABLE_X64="0").split() == ["False", "float32"]  # the user's choice stands


def test_float64_is_turned_on_after_jax_was_imported():
    code = "import jax.numpy as jnp; import coadjoint; print(jnp.ones(1).dtype); coadjoint.TMK()"
    assert python(code) == "float64"


def test_all_public_names_have_one_home():
    """The names for static checkers, the names at run time and `__all__` are the same."""
    (block,) = (
        node for node in ast.parse(SOURCE).body if isinstance(node, ast.If) and "TYPE" in ast.unparse(node.test)
    )
    for_checkers = {a.name: f".{node.module or ''}" for node in block.body for a in node.names}
    assert for_checkers == cj._MODULES
    assert sorted(for_checkers) == sorted(cj.__all__)
    assert all(getattr(cj, name) is not None for name in cj.__all__)
    assert set(cj.__all__) <= set(dir(cj))


def test_modules_are_attributes():
    assert cj.integrators.ALL and cj.models.heavy_top
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        cj.nothing  # noqa: B018
