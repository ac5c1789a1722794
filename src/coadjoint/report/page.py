"""The report on a study: what was claimed, what was found, and one self-contained page that shows it."""

import base64
import datetime
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np

from ..store.fingerprint import flat
from ..store.provenance import versions
from . import stages
from .stages import Stage, text

_VERSIONS = ("coadjoint", "jax", "jaxlib", "numpy", "matplotlib")


class Verdict(StrEnum):
    """How a claim came out."""

    HOLDS = "holds"
    CONDITION = "holds with a condition"
    FAILS = "does not hold"


@dataclass(frozen=True)
class Finding:
    """What was measured for one claim: in words, in numbers, over how many realisations, and the verdict."""

    ours: str
    verdict: Verdict
    realisations: int = 1
    numbers: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, the verdict on record, and what was found this time."""

    name: str
    claim: str
    paper: str
    expected: Verdict
    reason: str
    finding: Finding

    @property
    def as_expected(self) -> bool:
        """Whether the verdict is the one on record."""
        return self.finding.verdict == self.expected


@dataclass(frozen=True)
class Picture:
    """A figure: number in the paper (None: beyond the paper), caption, PNG bytes for light and dark pages."""

    name: str
    number: int | None
    caption: str
    light: bytes
    dark: bytes


@dataclass(frozen=True)
class Outcome:
    """What an experiment returns: a finding for each of its claims, data to draw, scenes for the page."""

    findings: Mapping[str, Finding]
    data: Any = None
    scenes: Sequence[Stage] = ()


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
    scenes: Sequence[Stage] = ()


@dataclass(frozen=True)
class Report:
    """A whole study. What is written into claims.json and claims.md depends on the key and the machine only."""

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
        """The claims that came out otherwise than recorded."""
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
    head = {"title": report.title, "key": report.key, "quick": report.quick, "versions": versions(_VERSIONS)}
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
    """Numbers and arrays as what JSON knows; infinities and NaNs as words."""
    if isinstance(x, Mapping):
        return {str(k): plain(v) for k, v in x.items()}
    if isinstance(x, np.ndarray | list | tuple):
        return [plain(v) for v in x]
    if isinstance(x, np.generic):
        x = x.item()
    if isinstance(x, float) and not np.isfinite(x):
        return str(x)
    return x


def page(report: Report) -> str:
    """The whole report as one HTML page."""
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    facts = {
        "key": str(report.key),
        "run": f"{'quick' if report.quick else 'full'}, {report.seconds:.0f} s",
        "date": now,
        **versions(_VERSIONS),
    }
    body = [
        f"<header><h1>{text(report.title)}</h1><p class='lead'>{text(report.subtitle)}</p>",
        f"<p>{_summary(report)}</p>",
        _QUICK if report.quick else "",
        f"{stages.THEME}</header>",
        _contents(report.sections),
        "<main><section id='claims'><h2>The claims</h2>",
        "<p>Ours: the median over the realisations, then the least and the largest.</p>",
        _claims_table(report.claims),
        "</section>",
        *(_section(s) for s in report.sections),
        f"<section id='facts'><h2>This run</h2>{_definitions(facts)}</section></main>",
    ]
    return stages.document(report.title, "\n".join(body), _scenes(report.sections))


_QUICK = "<p>A quick run: sizes are smaller than the captions say; each experiment lists its own.</p>"


def _summary(report: Report) -> str:
    counts = {v: sum(c.finding.verdict == v for c in report.claims) for v in Verdict}
    words = ", ".join(f"{_chip(v)} {n}" for v, n in counts.items())
    ending = "All as recorded." if not report.surprises else f"<b>{len(report.surprises)} otherwise than recorded.</b>"
    return f"{len(report.claims)} claims: {words}. {ending}"


def _contents(sections: Sequence[Section]) -> str:
    items = "".join(f"<a href='#{s.name}'>{text(s.title)}</a>" for s in sections)
    return f"<nav aria-label='Contents'><a href='#claims'>The claims</a>{items}<a href='#facts'>This run</a></nav>"


def _section(s: Section) -> str:
    scenes = "".join(stages.figure(scene, name) for name, scene in _scenes([s]).items())
    pictures = "".join(_picture(p) for p in s.pictures)
    claims = _claims_table(s.claims) if s.claims else ""
    return (
        f"<section id='{s.name}'><h2>{text(s.title)}</h2><p class='source'>{text(s.source)}</p>"
        f"{_paragraphs(s.about)}<div class='gallery'>{scenes}{pictures}</div>{claims}"
        f"<details><summary>Parameters</summary>{_definitions(_parameters(s.parameters))}</details></section>"
    )


def _picture(p: Picture) -> str:
    label = "Beyond the paper." if p.number is None else f"Figure {p.number} of the paper."
    images = "".join(
        f"<img class='{theme}' alt='{text(p.caption)}' src='data:image/png;base64,{base64.b64encode(data).decode()}'>"
        for theme, data in (("light", p.light), ("dark", p.dark))
    )
    wide = " wide" if _width(p.dark) > 1000 else ""
    return (
        f"<figure class='picture{wide}' id='{p.name}'>{images}"
        f"<figcaption><b>{label}</b> {text(p.caption)}</figcaption></figure>"
    )


def _width(png: bytes) -> int:
    """The width of a PNG in pixels, from its header."""
    return int.from_bytes(png[16:20], "big")


def _claims_table(claims: Iterable[Claim]) -> str:
    head = "".join(f"<th scope='col'>{h}</th>" for h in ("claim", "paper", "ours", "n", "verdict and reason"))
    body = "".join(map(_row, claims))
    return f"<div class='scroll'><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def _row(c: Claim) -> str:
    note = "" if c.as_expected else f" <b class='surprise'>expected: {text(c.expected)}</b>"
    verdict = f"{_chip(c.finding.verdict)}{note}<br>{text(c.reason)}"
    ours = re.sub(r"(?<=\de)-(?=\d)", "\u2011", text(c.finding.ours))  # 1e-15 stays on one line
    cells = (text(c.claim), text(c.paper), ours, str(c.finding.realisations), verdict)
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _chip(verdict: Verdict) -> str:
    return f"<span class='chip {verdict.name.lower()}'>{verdict}</span>"


def _definitions(facts: Mapping[str, Any]) -> str:
    return "<dl>" + "".join(f"<dt>{text(k)}</dt><dd>{text(v)}</dd>" for k, v in facts.items()) + "</dl>"


def _parameters(tables: Mapping[str, Any]) -> dict[str, str]:
    """Nested parameters as one list of `a.b.c: value`."""
    return {k: json.dumps(v, ensure_ascii=False) if isinstance(v, list) else str(v) for k, v in flat(tables)}


def _scenes(sections: Sequence[Section]) -> dict[str, Stage]:
    return {f"{s.name}-{i}": scene for s in sections for i, scene in enumerate(s.scenes)}


def _paragraphs(words: str) -> str:
    return "".join(f"<p>{text(part.strip())}</p>" for part in re.split(r"\n\s*\n", words.strip()) if part.strip())
