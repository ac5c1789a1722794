"""The report as one HTML page that needs no network."""

import base64
import datetime
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from coadjoint.report import widgets
from coadjoint.report.widgets import Widget, text

from .claims import Claim, Picture, Report, Section, Verdict, versions


def page(report: Report) -> str:
    """The whole report as one HTML page."""
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    facts = {
        "key": str(report.key),
        "run": f"{'quick' if report.quick else 'full'}, {report.seconds:.0f} s",
        "date": now,
        **versions(),
    }
    body = [
        f"<header><h1>{text(report.title)}</h1><p class='lead'>{text(report.subtitle)}</p>",
        f"<p>{_summary(report)}</p>",
        _QUICK if report.quick else "",
        f"{widgets.THEME}</header>",
        _contents(report.sections),
        "<main><section id='claims'><h2>The claims</h2>",
        "<p>Ours: the median over the realisations, then the least and the largest.</p>",
        _claims_table(report.claims),
        "</section>",
        *(_section(s) for s in report.sections),
        f"<section id='facts'><h2>This run</h2>{_definitions(facts)}</section></main>",
    ]
    return widgets.document(report.title, "\n".join(body), _widgets(report.sections))


_QUICK = "<p>A quick run: sizes are smaller than in the captions. Each experiment lists its parameters.</p>"


def _summary(report: Report) -> str:
    counts = {v: sum(c.finding.verdict == v for c in report.claims) for v in Verdict}
    words = ", ".join(f"{_chip(v)} {n}" for v, n in counts.items())
    ending = (
        "All verdicts are as recorded."
        if not report.surprises
        else f"<b>{len(report.surprises)} verdicts differ from the recorded ones.</b>"
    )
    return f"{len(report.claims)} claims: {words}. {ending}"


def _contents(sections: Sequence[Section]) -> str:
    items = "".join(f"<a href='#{s.name}'>{text(s.title)}</a>" for s in sections)
    return f"<nav aria-label='Contents'><a href='#claims'>The claims</a>{items}<a href='#facts'>This run</a></nav>"


def _section(s: Section) -> str:
    shown = "".join(widgets.figure(widget, name) for name, widget in _widgets([s]).items())
    pictures = "".join(_picture(p) for p in s.pictures)
    claims = _claims_table(s.claims) if s.claims else ""
    return (
        f"<section id='{s.name}'><h2>{text(s.title)}</h2><p class='source'>{text(s.source)}</p>"
        f"{_paragraphs(s.about)}<div class='gallery'>{shown}{pictures}</div>{claims}"
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
    """Nested parameters under dotted names: `a.b.c: value`."""
    return {k: json.dumps(v, ensure_ascii=False) if isinstance(v, list) else str(v) for k, v in _flat(tables)}


def _flat(tables: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tables.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _widgets(sections: Sequence[Section]) -> dict[str, Widget]:
    return {f"{s.name}-{i}": widget for s in sections for i, widget in enumerate(s.widgets)}


def _paragraphs(words: str) -> str:
    return "".join(f"<p>{text(part.strip())}</p>" for part in re.split(r"\n\s*\n", words.strip()) if part.strip())
