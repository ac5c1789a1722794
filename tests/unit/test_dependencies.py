"""The package requires exactly the packages that it imports."""

import ast
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NEEDED = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["cluster"]]


def imported(path):
    """The packages that a file imports, wherever it does."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node.module.split(".")[0]


def test_all_imports_are_declared():
    """None is there only because another dependency happens to bring it."""
    declared = {re.split(r"[^\w-]", d)[0].replace("-", "_") for d in NEEDED}
    names = {"PIL": "pillow"}  # where the package that is installed has another name
    used = {names.get(name, name) for path in (ROOT / "src").rglob("*.py") for name in imported(path)}
    assert used - sys.stdlib_module_names - {"coadjoint", "stepcompiler"} == declared


def test_the_lock_holds_the_oldest_jax():
    """Both ends of what is supported are tested: the lock has the oldest JAX, `make test-newest` takes the newest."""
    (oldest,) = (d.partition(">=")[2] for d in PROJECT["dependencies"] if re.match(r"jax\b", d))
    assert f"jax=={oldest}\n" in (ROOT / "requirements.lock").read_text(encoding="utf-8")


def test_the_lock_has_what_tests_of_clusters_need():
    """Where it is missing they are skipped."""
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    assert all(f"\n{name}==" in lock for name in ("cloudpickle", "dask", "dask-jobqueue", "distributed"))
