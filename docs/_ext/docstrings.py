"""Docstrings of this library as reStructuredText.

Plain equations in indented blocks, lists, `names` in backquotes, and NumPy-style sections.
"""

import functools
import inspect
import itertools
import re
import textwrap
import unicodedata
from pathlib import Path
from typing import Any

import equations

import coadjoint

_NAME = re.compile(r"`([^`]+)`")
_BEFORE, _AFTER = {"", *" '\"([{<-/:"}, {"", *" '\")]}>-/:.,;!?"}  # what markup may stand beside
_ITEM = re.compile(r"( *)[-*] ")


def _literal(match: re.Match) -> str:
    """A public name becomes a link, everything else is code."""
    text = match[1]
    name = text.removeprefix("cj.").removesuffix("()")
    if name in coadjoint.__all__ and not inspect.ismodule(getattr(coadjoint, name)):
        return f":py:obj:`{text} <coadjoint.{name}>`"
    return f"``{text}``"


def _line(line: str) -> str:
    """One line of prose: markup characters stand for themselves outside of backquotes."""
    out, at = [], 0
    for match in _NAME.finditer(line):
        before, after = line[match.start() - 1 : match.start()], line[match.end() : match.end() + 1]
        out += [_plain(line[at : match.start()]), "" if before in _BEFORE else "\\ ", _literal(match)]
        out.append("" if after in _AFTER else "\\ ")
        at = match.end()
    return "".join([*out, _plain(line[at:])])


def _plain(text: str) -> str:
    return re.sub(r"([\\*|_`])", r"\\\1", text)


def _whole_names(lines: list[str]) -> list[str]:
    """What stands in backquotes on one line."""
    out: list[str] = []
    for line in lines:
        if out and out[-1].count("`") % 2:
            out[-1] += " " + line.lstrip()
        else:
            out.append(line)
    return out


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def convert(lines: list[str]) -> list[str]:
    """The whole docstring: its text, then its sections as fields with definition lists."""
    heads = [k for k, line in enumerate(lines[1:]) if re.fullmatch(r"-{3,}", line)] + [len(lines)]
    out = _prose(lines[: heads[0]])
    for k, end in itertools.pairwise(heads):
        section = _example if lines[k].startswith("Example") else _section
        out += ["", f":{lines[k]}:", "", *section(lines[k + 2 : end]), ""]
    return out


def _example(lines: list[str]) -> list[str]:
    """Lines of a Python session, as code."""
    return ["    .. code-block:: pycon", "", *(f"       {line}".rstrip() for line in lines), ""]


def _section(lines: list[str]) -> list[str]:
    """Entries `name : type` with their indented descriptions; or plain text."""
    out: list[str] = []
    entry: list[str] = []

    def flush() -> None:
        out.extend(f"        {row}" for row in _prose(textwrap.dedent("\n".join(entry)).strip("\n").splitlines()))
        entry.clear()

    for line in lines:
        head = re.fullmatch(r"(\*{0,2}\w+(?:, \w+)*)(?: : (.+))?", line)
        if head and (head[2] or not line.endswith(".")):
            flush()
            names = ", ".join(f"**{_plain(name)}**" for name in head[1].split(", "))
            out.append(f"    {names}" + (f" : {_line(head[2])}" if head[2] else ""))
        else:
            entry.append(line)
    flush()
    return out if any(row.startswith("    **") for row in out) else [row[4:] for row in out]


def _prose(lines: list[str]) -> list[str]:
    """Text with its indented blocks as equations or code, and its prose escaped."""
    out: list[str] = []
    lines = _whole_names(lines)
    margin = 0  # where the text of the current paragraph or list item begins
    k = 0
    while k < len(lines):
        line = lines[k]
        if not line.strip():
            out.append("")
        elif _indent(line) >= margin + 4 and (not out or not out[-1].strip()):
            block = k
            while k < len(lines) and (not lines[k].strip() or _indent(lines[k]) >= margin + 4):
                k += 1
            body = lines[block:k]
            while not body[-1].strip():
                body.pop()
            left, body = " " * margin, textwrap.dedent("\n".join(body)).splitlines()
            out += [f"{left}{row}".rstrip() for row in _block(body)]
            continue
        elif item := _ITEM.match(line):
            if out and out[-1].strip() and not _ITEM.match(lines[k - 1]) and _indent(lines[k - 1]) <= len(item[1]):
                out.append("")
            margin = len(item[1]) + 2
            out.append(line[: item.end()] + _line(line[item.end() :]))
        else:
            margin = min(margin, _indent(line))
            out.append(" " * _indent(line) + _line(line.lstrip()))
        k += 1
    return out


def _block(body: list[str]) -> list[str]:
    """An indented block: equations, set as such, or code."""
    rows = equations.tex(body)
    if rows is None:
        return [".. code-block:: python", "", *("   " + row for row in body), ""]
    aligned = rows if len(rows) == 1 else [f"& {row} \\\\" for row in rows]
    return [".. math::", "", *("   " + row for row in aligned), ""]


def _plainest(text: str) -> str:
    """Letters and digits alone, so that a title is found however it is set."""
    text = re.sub(r"\{?\\['\"`]\{?(\w)\}*|\\(o|ss)\b", lambda m: m[1] or {"o": "ø", "ss": "ß"}[m[2]], text)
    decomposed = unicodedata.normalize("NFD", text.lower()).replace("ø", "o").replace("ß", "ss")
    return re.sub(r"[^a-z0-9]+", " ", "".join(c for c in decomposed if not unicodedata.combining(c)))


@functools.cache
def _works() -> dict[str, tuple[str, str, str]]:
    """Title, first author and year of each work of references.bib, by its key."""
    text = (Path(__file__).parents[1] / "references.bib").read_text(encoding="utf-8")
    found = {}
    for key, body in re.findall(r"^@\w+\{(\w+),\n(.*?)^\}", text, re.MULTILINE | re.DOTALL):
        fields = dict(re.findall(r"^\s*(\w+)\s*=\s*\{(.*)\},?$", body, re.MULTILINE))
        author = _plainest(fields["author"].split(",")[0]).strip()
        found[key] = _plainest(fields["title"]).strip(), author, fields["year"]
    return found


def cited(text: str) -> list[str]:
    """The keys of the works that a docstring names, by title, or by first author and year."""
    plain = _plainest(text)
    by_year = {key: rf"\b{author}\b[a-z ]{{0,60}}\b{year}\b" for key, (_, author, year) in _works().items()}
    return [key for key, (title, *_) in _works().items() if title in plain or re.search(by_year[key], plain)]


def _process(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    if name == "coadjoint" or name.startswith("coadjoint."):
        keys = cited("\n".join(lines))
        lines[:] = convert(lines)
        if keys:
            lines += ["", f"Bibliography: :cite:t:`{','.join(keys)}`.", ""]


def setup(app: Any) -> dict[str, bool]:
    """Sphinx calls this."""
    app.connect("autodoc-process-docstring", _process)
    return {"parallel_read_safe": True}
