"""What the paper says and what we found: a page from papers/, the record that every reproduction is checked against."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from coadjoint.command import papers

study = papers.load("study")

HERE = Path(__file__).parents[1]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*").replace("\n", " ")


def _section(e: Any) -> Iterator[str]:
    yield f"## {e.title}"
    yield f"\n*{e.source}*\n"
    yield e.about.strip().replace("*", "\\*") + "\n"
    if e.claims:
        yield "| claim | the paper | the run says | why |\n|---|---|---|---|"
        for c in e.claims:
            yield "| " + " | ".join(_cell(c[k]) for k in ("claim", "paper", "expected", "reason")) + " |"
    yield f"\nThe run that shows it: `coadjoint reproduce {e.name}`.\n"


def page() -> str:
    """The page: words of our own, then every experiment with its claims."""
    intro = (HERE / "explanation" / "paper_intro.txt").read_text(encoding="utf-8")
    intro = intro.replace("KEY", study.STUDY)
    return "\n".join([intro, *(line for e in study.load_study().experiments for line in _section(e))])


def _write(app: Any) -> None:
    target = HERE / "generated" / "paper.md"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(page(), encoding="utf-8")


def setup(app: Any) -> dict[str, bool]:
    """Sphinx calls this."""
    app.connect("builder-inited", _write)
    return {"parallel_read_safe": True}
