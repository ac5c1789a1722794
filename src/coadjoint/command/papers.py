"""Find and import the folder `papers/`, which `coadjoint reproduce` runs."""

import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

_PACKAGE = "coadjoint_papers"


def papers_folder() -> Path:
    """The folder of the papers: inside an installed package, or in the clone of an editable installation.

    Raises
    ------
    ValueError
        If there is no such folder.
    """
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "_papers", package.parents[1] / "papers"):
        if (folder / "reproduce.py").is_file():
            return folder
    raise ValueError(
        "the folder papers/ was found neither in the installed package nor beside src/ in a clone. "
        "Install from a clone (`pip install .`), or run `make reproduce` in one."
    )


def load(module: str) -> ModuleType:
    """Import a module of the folder, such as "reproduce"."""
    if _PACKAGE not in sys.modules:
        folder = papers_folder()
        spec = spec_from_file_location(_PACKAGE, folder / "__init__.py", submodule_search_locations=[str(folder)])
        assert spec is not None and spec.loader is not None
        package = module_from_spec(spec)
        sys.modules[_PACKAGE] = package
        spec.loader.exec_module(package)
    return import_module(f"{_PACKAGE}.{module}")


def call(module: str, function: str, *args: Any) -> Any:
    """Call a function of a module of the folder; a new process can import this function, but not the folder."""
    return getattr(load(module), function)(*args)
