"""A paper to reproduce: a folder with its experiments, each a TOML file and a module."""

import difflib
import importlib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

STUDY = "luesink2024casimir"


class InputError(ValueError):
    """An invalid argument of `coadjoint reproduce`."""


@dataclass(frozen=True)
class PaperExperiment:
    """One experiment: the contents of its TOML file, and its module with `run` and `draw`."""

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
        """Names that select the experiment: its own and those of its figures."""
        return [self.name, *(f["name"] for f in self.figures)]

    def settings(self, quick: bool) -> dict[str, Any]:
        """The parameters of a full or a quick run."""
        return {**self.parameters, **(self.quick if quick else {})}


@dataclass(frozen=True)
class Study:
    """A paper to reproduce: title, subtitle, and experiments in the order of the page."""

    title: str
    subtitle: str
    experiments: Sequence[PaperExperiment]


def load_study(folder: Path | None = None) -> Study:
    """Read a study and import its experiments."""
    folder = Path(__file__).resolve().parent / STUDY if folder is None else folder
    study = tomllib.loads((folder / "study.toml").read_text(encoding="utf-8"))
    experiments = [_experiment(folder, name) for name in study["experiments"]]
    return Study(study["title"], study["subtitle"], experiments)


def _experiment(folder: Path, name: str) -> PaperExperiment:
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
        importlib.import_module(f"{__package__}.{folder.name}.{stem}"),
    )


def select(study: Study, names: Sequence[str]) -> list[PaperExperiment]:
    """The experiments with these names (their own or a figure's); all experiments if there are no names."""
    if not names:
        return list(study.experiments)
    known = {name: e.name for e in study.experiments for name in e.names}
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
            raise InputError(
                f"no experiment or figure has the name {name!r}: did you mean {close[0]!r}? --list shows all names."
            )
    wanted = {known[name] for name in names}
    return [e for e in study.experiments if e.name in wanted]
