"""A paper to reproduce: a folder of `papers/` with its experiments, each a TOML file and a module."""

import difflib
import importlib
import importlib.util
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

STUDY = "luesink2024casimir"


class InputError(ValueError):
    """What the user asked for cannot be done; the message says why and what can."""


@dataclass(frozen=True)
class PaperExperiment:
    """One experiment: what its TOML file says, and the module with `run` and `draw`."""

    name: str
    title: str
    source: str
    about: str
    figures: Sequence[Mapping[str, Any]]
    claims: Sequence[Mapping[str, Any]]
    parameters: Mapping[str, Any]
    quick: Mapping[str, Any]
    module: ModuleType

    @property
    def names(self) -> list[str]:
        """The names it is called by: its own and those of its figures."""
        return [self.name, *(f["name"] for f in self.figures)]

    def settings(self, quick: bool) -> dict[str, Any]:
        """The parameters, with those of a quick run in their place if asked for."""
        return {**self.parameters, **(self.quick if quick else {})}


@dataclass(frozen=True)
class Study:
    """A paper to reproduce: title, subtitle, and experiments in the order of the page."""

    title: str
    subtitle: str
    experiments: Sequence[PaperExperiment]


def papers_folder() -> Path:
    """Where the studies are: inside an installed package, or in the clone of an editable installation."""
    here = Path(__file__).resolve().parents[1]
    for folder in (here / "_papers", here.parents[1] / "papers"):
        if (folder / STUDY / "study.toml").is_file():
            return folder
    raise InputError(
        "the folder papers/ was not found: neither in the installed package nor beside src/ in a clone. "
        "Install from a clone (`pip install .`), or run `make reproduce` in one."
    )


def load_study(folder: Path | None = None) -> Study:
    """Read a study and import its experiments."""
    folder = papers_folder() / STUDY if folder is None else folder
    study = tomllib.loads((folder / "study.toml").read_text(encoding="utf-8"))
    package = _package(folder)
    return Study(study["title"], study["subtitle"], [_experiment(folder, package, n) for n in study["experiments"]])


def _package(folder: Path) -> str:
    """Import the folder as a package under a name of its own."""
    name = f"coadjoint_papers_{folder.name}"
    spec = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return name


def _experiment(folder: Path, package: str, name: str) -> PaperExperiment:
    stem = name.replace("-", "_")
    data = tomllib.loads((folder / f"{stem}.toml").read_text(encoding="utf-8"))
    return PaperExperiment(
        name,
        data["title"],
        data["source"],
        data["about"],
        data.get("figures", []),
        data.get("claims", []),
        data["parameters"],
        data.get("quick", {}),
        importlib.import_module(f"{package}.{stem}"),
    )


def select(study: Study, names: Sequence[str]) -> list[PaperExperiment]:
    """The experiments called by these names (their own or a figure's); all of them for no names."""
    if not names:
        return list(study.experiments)
    known = {name: e.name for e in study.experiments for name in e.names}
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
            raise InputError(f"no experiment or figure is called {name!r}; the nearest is {close[0]!r}. See --list.")
    wanted = {known[name] for name in names}
    return [e for e in study.experiments if e.name in wanted]
