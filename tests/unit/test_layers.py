"""Imports go down only: the table of CONTRIBUTING.md, checked on the source itself."""

import ast
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

import pytest

TESTS = Path(__file__).parents[1]
SRC = TESTS.parent / "src"


class Layer(NamedTuple):
    modules: tuple[str, ...]  # patterns, without `coadjoint.`; the first layer that matches takes a module
    knows: tuple[str, ...] = ()  # the layers it may import, besides itself
    knows_lazily: tuple[str, ...] = ()  # the same, inside a function or for type checking only


CORE = (
    *("compiler", "numerics", "algebra interface", "algebras", "drivers", "systems", "integrators", "models"),
    "runtime",
)

LAYERS = {
    "compiler": Layer(("stepcompiler", "stepcompiler.*")),
    "numerics": Layer(("numerics", "numerics.*"), ("compiler",)),
    "algebra interface": Layer(
        (
            "algebras.base",
            "algebras.automorphisms",
            "algebras.casimirs",
            "algebras.constants",
            "algebras.exponentials",
            "algebras.invariants",
        ),
        ("compiler", "numerics"),
        ("algebras",),  # g * h makes a product
    ),
    "algebras": Layer(("algebras", "algebras.*"), ("compiler", "numerics", "algebra interface")),
    "drivers": Layer(("drivers", "drivers.*"), ("compiler", "numerics")),
    "systems": Layer(
        (
            *("systems", "stabilisers", "states", "noises", "areas", "callables", "params", "baths", "inputs"),
            *("controls", "variations"),
        ),
        ("compiler", "numerics", "algebra interface", "algebras"),
    ),
    # An integrator uses an algebra only through its methods, and imports no concrete algebra.
    "integrators": Layer(
        ("integrators", "integrators.*"), ("compiler", "numerics", "algebra interface", "drivers", "systems")
    ),
    "models": Layer(
        ("models", "models.*", "fluids", "fluids.*"),
        ("compiler", "numerics", "algebra interface", "algebras", "systems"),
    ),
    "runtime": Layer(
        ("runtime", "runtime.*", "study", "study.*"),
        ("compiler", "numerics", "algebra interface", "algebras", "drivers", "systems", "integrators"),
        ("edge",),
    ),
    "data": Layer(("data", "data.*"), CORE, ("edge",)),
    "edge": Layer(
        (
            *("store", "store.*", "experiments", "experiments.*", "report", "report.*", "command", "command.*"),
            *("clusters", "clusters.*"),
        ),
        (*CORE, "data", "package"),
    ),
    "package": Layer(("", "extend"), (*CORE, "data"), ("edge",)),
}

# What the core imports; the other dependencies belong to the edge, or into a function.
CORE_DEPENDENCIES = {"equinox", "jax", "jaxtyping", "numpy"} | sys.stdlib_module_names
COMPILER_DEPENDENCIES = {"jax", "jaxtyping", "llvmlite", "numpy"} | sys.stdlib_module_names
PACKAGE_NAMES = {"coadjoint", "stepcompiler"}


def module_name(path: Path) -> str:
    """The dotted name without `coadjoint`: `algebras.so3` for coadjoint/algebras/so3.py."""
    return without_coadjoint(".".join(path.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__"))


def without_coadjoint(name: str) -> str:
    return "" if name == "coadjoint" else name.removeprefix("coadjoint.")


def with_coadjoint(module: str) -> list[str]:
    parts = module.split(".") if module else []
    return parts if parts[:1] == ["stepcompiler"] else ["coadjoint", *parts]


FILES = sorted(SRC.rglob("*.py"))
MODULES = {module_name(path) for path in FILES}
PACKAGES = {module_name(path) for path in FILES if path.name == "__init__.py"}


def layer_of(module: str) -> str | None:
    matches = (name for name, layer in LAYERS.items() if any(fnmatchcase(module, p) for p in layer.modules))
    return next(matches, None)


def imports(tree: ast.AST, lazy: bool = False) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Every import statement, and whether it waits for a function call or a type checker."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, lazy
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for part, waits in ((node.body, True), (node.orelse, lazy)):
                yield from imports(ast.Module(part, []), waits)
        else:
            is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from imports(node, lazy or is_function)


def targets(node: ast.Import | ast.ImportFrom, module: str, is_package: bool) -> Iterator[str]:
    """The absolute names of the modules a statement imports."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
        return
    base = node.module or ""
    if node.level:
        here = with_coadjoint(module)
        up = node.level - is_package
        base = ".".join([*here[: len(here) - up], *filter(None, [base])])
    for alias in node.names:  # `from . import so3` names a module, `from .so3 import SO3` does not
        name = f"{base}.{alias.name}"
        yield name if without_coadjoint(name) in MODULES else base


def violations(module: str, source: str, is_package: bool) -> Iterator[str]:
    layer = layer_of(module)
    file = "/".join(["src", *with_coadjoint(module)])
    dependencies = COMPILER_DEPENDENCIES if layer == "compiler" else CORE_DEPENDENCIES
    if layer is None:
        yield f"{file} belongs to no layer: give it one in LAYERS and in the table of CONTRIBUTING.md"
        return
    knows = {layer, *LAYERS[layer].knows}
    for node, lazy in imports(ast.parse(source)):
        allowed = knows | set(LAYERS[layer].knows_lazily) if lazy else knows
        for target in dict.fromkeys(targets(node, module, is_package)):
            top, inner = target.partition(".")[0], without_coadjoint(target)
            if top not in PACKAGE_NAMES:
                if not lazy and layer != "edge" and top not in dependencies:
                    yield f"{file}, line {node.lineno}: import {top} inside the function that needs it"
            elif layer_of(inner) not in allowed:
                where = "anywhere" if lazy else "at module level"
                yield (
                    f"{file}, line {node.lineno}: the {layer} layer may not import"
                    f" {target} (layer: {layer_of(inner)}) {where}"
                )


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SRC)))
def test_imports_go_down_only(path):
    module = module_name(path)
    found = list(violations(module, path.read_text(encoding="utf-8"), module in PACKAGES))
    assert not found, "\n".join(found)


LONGEST_FILE, LONGEST_FUNCTION = 400, 60


def docstring_lines(node):
    """Lines of the docstring of a module, class or function."""
    if not ast.get_docstring(node, clean=False):
        return 0
    text = node.body[0]
    return text.end_lineno - text.lineno + 1


def code_lines(source, tree):
    """Lines of a file without docstrings: those of public names list every parameter."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return len(source.splitlines()) - sum(docstring_lines(n) for n in ast.walk(tree) if isinstance(n, documented))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SRC)))
def test_files_and_functions_are_short(path):
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    assert code_lines(source, tree) <= LONGEST_FILE
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = node.end_lineno - node.lineno + 1 - docstring_lines(node)
            assert lines <= LONGEST_FUNCTION, f"{node.name} has {lines} lines"


def test_files_of_tests_are_short():
    found = {path.relative_to(TESTS): path.read_text(encoding="utf-8") for path in TESTS.rglob("*.py")}
    lines = {str(name): code_lines(source, ast.parse(source)) for name, source in found.items()}
    assert not {name: n for name, n in lines.items() if n > LONGEST_FILE}


def import_graph():
    """Which modules of ours each module imports when it is imported itself."""
    graph = {}
    for path in FILES:
        module = module_name(path)
        found = set()
        for node, lazy in imports(ast.parse(path.read_text(encoding="utf-8"))):
            if not lazy:
                found |= {
                    without_coadjoint(t)
                    for t in targets(node, module, module in PACKAGES)
                    if t.split(".")[0] in PACKAGE_NAMES
                }
        graph[module] = found & MODULES - {module}
    return graph


def test_no_cycle_of_imports():
    """Not even inside a layer: a package that re-exports what is in it does not count."""
    graph = {m: {t for t in found if t not in PACKAGES} for m, found in import_graph().items() if m not in PACKAGES}
    done = set()

    def visit(module, above):
        assert module not in above, " → ".join([*above, module])
        if module not in done:
            for target in graph[module]:
                visit(target, [*above, module])
            done.add(module)

    for module in graph:
        visit(module, [])


def test_layers_only_know_layers_above_them_in_the_table():
    """Each row names only rows above it; so no cycle can hide in the table."""
    read = set()
    for name, layer in LAYERS.items():
        if name != "edge":  # which imports the whole package
            assert set(layer.knows) <= read, name
        read.add(name)


@pytest.mark.parametrize(
    "module, source",
    [
        ("numerics.special_functions", "from ..algebras.so3 import SO3"),
        ("numerics.special_functions", "import coadjoint"),
        ("algebras.so3", "from ..systems import System"),
        ("algebras.so3", "def f():\n    from ..systems import System"),
        ("drivers.brownian", "from ..algebras import SO3"),
        ("integrators.tmk", "from ..algebras.so3 import SO3"),
        ("models.heavy_top", "from ..runtime.solve import solve"),
        ("models.heavy_top", "from ..integrators import TMK"),
        ("runtime.solve", "from ..store import Store"),
        ("runtime.solve", "try:\n    import coadjoint.store.reading\nexcept ImportError:\n    pass"),
        ("runtime.solve", "from coadjoint.models import heavy_top"),
        ("runtime.solution", "import xarray as xr"),
        ("", "from .report.plotting import plot"),
        ("misplaced", ""),
        ("stepcompiler.compile", "from coadjoint.numerics import random"),
        ("stepcompiler.compile", "def f():\n    import coadjoint"),
        ("stepcompiler.compile", "import equinox"),
        ("runtime.solve", "import llvmlite"),
    ],
)
def test_a_wrong_import_is_found(module, source):
    assert list(violations(module, source, is_package=not module))


@pytest.mark.parametrize(
    "module, source",
    [
        ("numerics.special_functions", "import jax.numpy as jnp\nimport math"),
        (
            "algebras.se3",
            "from .so3 import SO3\nfrom ..numerics.special_functions import sinc\nfrom .base import LieAlgebra",
        ),
        ("integrators.tmk", "from .base import Integrator\nfrom ..algebras.base import LieAlgebra"),
        ("runtime.solve", "def solve():\n    from ..store import Store"),
        (
            "runtime.solve",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..store.recorder import Store",
        ),
        ("runtime.solution", "def to_xarray():\n    import xarray as xr"),
        ("stepcompiler.compile", "from .errors import Refused\nfrom llvmlite import ir\nimport numpy as np"),
        ("numerics.random", "from stepcompiler.hints import no_fma"),
        ("command.cli", "import typer\nimport coadjoint as cj\nfrom ..store import Store"),
        ("", "from .models import heavy_top\nfrom .runtime.solve import solve"),
    ],
)
def test_a_right_import_is_not(module, source):
    assert not list(violations(module, source, is_package=not module))
