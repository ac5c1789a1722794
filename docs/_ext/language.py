"""Check the language of pages, public docstrings, messages and CLI help.

The findings are words with a private meaning, sentences of more than 30 words, and public docstrings without
Parameters. `python docs/_ext/language.py` lists them; `make site` fails if there are any.
"""

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1]
ROOT = DOCS.parent
MOST_WORDS = 30

# Phrases with a private meaning, and what to write in their place.
BANNED = {
    r"goes? on from|go on with|going on gives": "resume",
    r"\bcures?\b|drift-free cure": "round-off correction",
    r"engine room|\brooms?\b": "stage",
    r"hard steps?\b": "step that does not converge",
    r"careful program|thorough (code|kernel)": "fallback solver, full kernel",
    r"arithmetic \d": "numerics version",
    r"\bcoins?\b": "Rademacher variables",
    r"has the law|the law of\b": "distribution",
    r"by products alone|products alone": "inversion-free",
    r"every bit|the same bits|bit for bit": "bitwise identical",
    r"\b(is|are) kept\b|keeps? (all|the|every) Casimir": "conserved, saved",
    r"that is what|what is to be had|one a core|is told|is asked|says so|knows of": "plain words",
    r"\b(steps?|seconds|milliseconds|ms|ns|times|iterations|members|numbers|rows|one) a "
    r"(step|second|spin|member|task|core|group|batch)\b": "per …",
    r"\bof its own accord\b|by itself as it does": "automatically",
    r"\bunsolved step|is (no |un)?solved to the end": "step that did not converge",
    r"\bhears?\b|\bnobody\b|\bwhoever\b|\bas it is to be\b": "plain words",
    r"\bdirect methods?\b": "classical method",
    r"\bgiven paths?\b": "prescribed path",
}


def pages() -> Iterator[Path]:
    """All pages that people write."""
    yield from (ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md"))
    for path in sorted([*DOCS.rglob("*.md"), *DOCS.rglob("*.txt")]):
        if not {"generated", "_ext"} & set(path.parts) and path.name != "requirements.txt":
            yield path


def prose(text: str) -> str:
    """Without code, formulas, tables, links' targets and front matter; lines stay where they are."""
    blank = lambda m: "\n" * m[0].count("\n")
    text = re.sub(r"\A---\n.*?\n---\n", blank, text, flags=re.DOTALL)
    text = re.sub(r"^```.*?^```[ \t]*$", blank, text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^ {4,}\S.*$|^\|.*$|^:{3,}.*$|^:\w+:.*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"<!--.*?-->", blank, text, flags=re.DOTALL)
    text = re.sub(r"\{[\w:]+\}`[^`]*`|`[^`]*`|\$[^$]*\$", "X", text)
    return re.sub(r"\]\([^)]*\)", "]", text)


def sentences(text: str) -> Iterator[tuple[int, str]]:
    """(line, sentence); a blank line, a heading and an item of a list end a sentence."""
    for block in re.finditer(r"(?:^(?!\s*$).+\n?)+", text, re.MULTILINE):
        line = text.count("\n", 0, block.start()) + 1
        for item in re.split(r"^(?=\s*(?:[-*#]|\d+\.) )", block[0], flags=re.MULTILINE):
            for sentence in re.split(r"(?<=[.!?:])(?:\*\*)?\s+(?=[A-Z(`*\[“]|coadjoint)", item):
                if sentence.strip():
                    yield line + block[0][: block[0].find(sentence)].count("\n"), " ".join(sentence.split())


def findings(text: str, name: str, most: int = MOST_WORDS) -> Iterator[str]:
    """What a reader would stumble over, as sentences."""
    plain = prose(text)
    for pattern, instead in BANNED.items():
        for m in re.finditer(pattern, plain, re.MULTILINE):
            yield f"{name}:{plain.count(chr(10), 0, m.start()) + 1}: {m[0]!r}; write: {instead}"
    for line, sentence in sentences(plain):
        words = [w for w in sentence.split() if re.search(r"[A-Za-zÀ-ž]", w)]
        if len(words) > most:
            yield f"{name}:{line}: {len(words)} words: {sentence[:90]}…"


def docstrings() -> Iterator[tuple[str, Any]]:
    """The name and the object of everything public: functions, classes, and the methods of these classes."""
    from reference_pages import get, public

    for name in (name for names in public().values() for name in names):
        found = get(name)
        yield name, found
        for inner, member in vars(found).items() if inspect.isclass(found) else ():
            member = getattr(member, "fget", None) or getattr(member, "__func__", member)
            if not inner.startswith("_") and inspect.isfunction(member):
                yield f"{name}.{inner}", member


def parameters(found: Any) -> list[str]:
    """The names of the arguments that a user passes."""
    if inspect.isclass(found) and (issubclass(found, Exception) or inspect.isabstract(found)):
        return []
    return [
        name
        for name in inspect.signature(found).parameters
        if name not in ("self", "args", "kwargs") and name[0] != "_"
    ]


def plain_sections(text: str) -> str:
    """A docstring without the headings of its NumPy-style sections and the lines `name : type` in them."""
    body, *sections = re.split(r"^\w[\w ]*\n-{3,}\n", text, flags=re.MULTILINE)
    return "\n\n".join([body, *(re.sub(r"^\S.* : .*$|^ {4}", "", part, flags=re.MULTILINE) for part in sections)])


def in_docstrings() -> Iterator[str]:
    """Findings in public docstrings."""
    for name, found in docstrings():
        text = inspect.getdoc(found) or ""
        yield from findings(plain_sections(text), name)
        if not text:
            yield f"{name}: no docstring"
        documented = re.search(r"^(Parameters|Attributes)\n-", text, re.MULTILINE)
        if name.count(".") < 2 + name.startswith(("coadjoint.models", "coadjoint.fluids")):
            missing = [p for p in parameters(found) if not re.search(rf"^(\w+, )*{p}(, \w+)* :", text, re.MULTILINE)]
            if missing:
                yield f"{name}: {'not in' if documented else 'no'} Parameters: {', '.join(missing)}"


def in_messages() -> Iterator[str]:
    """Banned words in the text of exceptions and warnings."""
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            called = node.exc if isinstance(node, ast.Raise) else node
            if not isinstance(called, ast.Call) or not (
                isinstance(node, ast.Raise) or "warn" in ast.unparse(called.func)
            ):
                continue
            text = "".join(
                c.value for c in ast.walk(called) if isinstance(c, ast.Constant) and isinstance(c.value, str)
            )
            yield from findings(text, f"{path.relative_to(ROOT)}:{node.lineno}", most=10**6)


def in_help() -> Iterator[str]:
    """Findings in the help of the CLI."""
    from typer.main import get_command

    from coadjoint.command.cli import app

    top: Any = get_command(app)
    for name, command in [("", top), *top.commands.items()]:
        texts = [command.help or "", *(getattr(p, "help", None) or "" for p in command.params)]
        yield from (f for text in texts for f in findings(text, f"coadjoint {name} --help"))


def main() -> int:
    """List the findings; 1 if there are any."""
    found = [f for path in pages() for f in findings(path.read_text(encoding="utf-8"), str(path.relative_to(ROOT)))]
    found += [*in_docstrings(), *in_messages(), *in_help()]
    print("\n".join(found) if found else "No findings.")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
