"""Claims of a paper, the findings of a run, and the report on both as JSON and Markdown."""

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import import_module
from typing import Any

import numpy as np

from coadjoint.report.widgets import Widget

_VERSIONS = ("coadjoint", "jax", "jaxlib", "numpy", "matplotlib")


class Verdict(StrEnum):
    """The verdict on a claim."""

    HOLDS = "holds"
    CONDITION = "holds with a condition"
    FAILS = "does not hold"


@dataclass(frozen=True)
class Finding:
    """The measurement for one claim: a sentence, numbers, the number of realisations, and the verdict."""

    ours: str
    verdict: Verdict
    realisations: int = 1
    numbers: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, the recorded verdict, and the finding of this run."""

    name: str
    claim: str
    paper: str
    expected: Verdict
    reason: str
    finding: Finding

    @property
    def as_expected(self) -> bool:
        """Whether the verdict equals the recorded one."""
        return self.finding.verdict == self.expected


@dataclass(frozen=True)
class Picture:
    """A figure: its number in the paper (or None), its caption, PNG bytes for light and dark pages."""

    name: str
    number: int | None
    caption: str
    light: bytes
    dark: bytes


@dataclass(frozen=True)
class Outcome:
    """The result of an experiment: a finding for each claim, data for the figures, widgets for the page."""

    findings: Mapping[str, Finding]
    data: Any = None
    widgets: Sequence[Widget] = ()


@dataclass(frozen=True)
class Section:
    """One experiment of the report."""

    name: str
    title: str
    source: str
    about: str
    parameters: Mapping[str, Any]
    claims: Sequence[Claim] = ()
    pictures: Sequence[Picture] = ()
    widgets: Sequence[Widget] = ()


@dataclass(frozen=True)
class Report:
    """A whole study. The contents of claims.json and claims.md depend only on the key and the machine."""

    title: str
    subtitle: str
    sections: Sequence[Section]
    key: int
    quick: bool
    seconds: float = 0.0

    @property
    def claims(self) -> list[Claim]:
        """All claims in order."""
        return [claim for section in self.sections for claim in section.claims]

    @property
    def surprises(self) -> list[Claim]:
        """The claims whose verdict differs from the recorded one."""
        return [claim for claim in self.claims if not claim.as_expected]


def claims_json(report: Report) -> str:
    """The table of claims as JSON."""
    rows = [
        {
            "name": c.name,
            "experiment": section.name,
            "claim": c.claim,
            "paper": c.paper,
            "ours": c.finding.ours,
            "realisations": c.finding.realisations,
            "numbers": plain(c.finding.numbers),
            "verdict": str(c.finding.verdict),
            "expected": str(c.expected),
            "reason": c.reason,
        }
        for section in report.sections
        for c in section.claims
    ]
    head = {"title": report.title, "key": report.key, "quick": report.quick, "versions": versions()}
    return json.dumps({**head, "claims": rows}, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def claims_markdown(report: Report) -> str:
    """The table of claims in Markdown."""
    size = "a quick run" if report.quick else "a full run"
    lines = [
        f"# {report.title}",
        "",
        f"{report.subtitle} The claims, measured in {size} with key {report.key}. Ours: median (least … largest).",
        "",
        "| claim | paper | ours | realisations | verdict | reason |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for c in report.claims:
        verdict = f"**{c.finding.verdict}**" + ("" if c.as_expected else f" (expected: {c.expected})")
        cells = (c.claim, c.paper, c.finding.ours, str(c.finding.realisations), verdict, c.reason)
        lines.append("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def plain(x: Any) -> Any:
    """Numbers and arrays as JSON types; infinities and NaNs as strings."""
    if isinstance(x, Mapping):
        return {str(k): plain(v) for k, v in x.items()}
    if isinstance(x, np.ndarray | list | tuple):
        return [plain(v) for v in x]
    if isinstance(x, np.generic):
        x = x.item()
    if isinstance(x, float) and not np.isfinite(x):
        return str(x)
    return x


def versions() -> dict[str, str]:
    """The versions of Python and of the packages that determine the results."""
    return {"python": platform.python_version(), **{name: import_module(name).__version__ for name in _VERSIONS}}
