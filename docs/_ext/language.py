"""Check the language of pages, docstrings, comments, messages, CLI help and the experiments of the paper.

The findings are words with a private meaning, sentences of more than 25 words, and public docstrings without
Parameters. `python docs/_ext/language.py` lists them; `make site` fails if there are any.
"""

import ast
import inspect
import io
import re
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1]
ROOT = DOCS.parent
MOST_WORDS = 25
RESULTS = {"Solution", "Ensemble", "Stats"}  # made by runs, not by users: attributes are documented

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
    r"\bmend(s|ed|ing)?\b|\bbut for\b|\bin silence\b": "correct, except, without a message",
    r"\bkeeps? (its|their|the|any|all|every) (energy|invariants?|Casimirs?|structure)\b": "conserve",
    r"\bis had\b|\bto be had\b|\bwhatever the\b|\bgets? away from\b|\bnothing but\b": "plain words",
    r"^#+ (What|Where|Who) (?!it means\b)": "a noun, or an imperative",
    r"\bunsolved step|is (no |un)?solved to the end": "step that did not converge",
    r"\bhears?\b|\bnobody\b|\bwhoever\b|\bas it is to be\b": "plain words",
    r"\bdirect methods?\b": "classical method",
    r"\bgiven (paths?|increments)\b": "prescribed path",
    r"\brefus\w+\b": "not supported, raises",
    r"\b(tiles?|slots?|lanes? of)\b": "batch, save buffer",
    r"\bsolid rotation\b": "solid-body rotation",
    r"\bcarried fields?\b": "advected fields",
    r"\bvorticity threads?\b|\bmembers part\b": "filaments; members diverge",
    r"few digits (are|is) enough": "low precision suffices",
    r"\b(used to|no longer|formerly)\b(?! (find|choose|compare|compute|estimate|decide))": "the present",
    r"\b(coadjoint|library|code|program|system|solver|method|store|XLA|JAX|it|that|which)s? (does not |do not |"
    r"never )?(knows?|wants?|says?|tells?|asks?|hears?|remembers?|minds?|cares?)\b": "reports, supports, requires",
    r"\b(coadjoint|coadjoint's|library|error|page|program) (is|was) (told|asked)\b|\btells? (JAX|XLA|it)\b": "passes",
    r"(?<!of )(?<!in )(?<!inside )(?<!after )(?<!around )\ba step,": "per step",
    r";[^.;!?|]*;[^.;!?|]*;": "a list, or several sentences",
    r"\b(behavior|color|gray|favor|neighbor|modeling|labeled|analyze|artifact)(s|ed|ing)?\b": "British spelling",
    r"\b\w+(al|im|or|et|ear|ar|an|ogn)iz(e|es|ed|ing|ation)\b": "British",
}


# Patterns that are ordinary words inside programs.
ONLY_IN_PROSE = ("tiles?", "rooms?", r"\ba step,", "used to", "every bit", r";[^.;!?|]*", "is|are) kept", r"^#+ (What")


def pages() -> Iterator[Path]:
    """All pages that people write."""
    names = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "CODE_OF_CONDUCT.md", "SECURITY.md", "papers/README.md")
    yield from (ROOT / name for name in (*names, "paper/paper.md"))
    yield from sorted((ROOT / "benchmarks/results").glob("*.md"))
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
    text = re.sub(r"^ *\$\$.*?\$\$", blank, text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"\{[\w:]+\}`[^`]*`|`[^`]*`|\$[^$]*\$", "X", text)
    return re.sub(r"\]\([^)]*\)", "]", text)


def tables(text: str) -> str:
    """The tables and the comments in programs of a page, without code and links' targets; lines stay where they are."""
    text = re.sub(r"`[^`\n]*`|\$[^$\n]*\$|\]\([^)]*\)", "X", text)
    lines = (re.search(r"^\|.*|(?<!\S)# .*", line.replace(";", ",")) for line in text.splitlines())
    return "\n".join("" if m is None or m[0].startswith("|--") else m[0].lstrip("#") for m in lines)


def sentences(text: str) -> Iterator[tuple[int, str]]:
    """(line, sentence); a blank line, a heading and an item of a list end a sentence."""
    for block in re.finditer(r"(?:^(?!\s*$).+\n?)+", text, re.MULTILINE):
        line = text.count("\n", 0, block.start()) + 1
        for item in re.split(r"^(?=\s*(?:[-*#]|\d+\.) )", block[0], flags=re.MULTILINE):
            for sentence in re.split(r"(?<=[.!?:])(?:\*\*)?\s+(?=[A-Z(`*\[“]|coadjoint)", item):
                if sentence.strip():
                    yield line + block[0][: block[0].find(sentence)].count("\n"), " ".join(sentence.split())


def phrases(plain: str, name: str, code: bool = False) -> Iterator[str]:
    """Phrases with a private meaning."""
    for pattern, instead in BANNED.items():
        if code and any(part in pattern for part in ONLY_IN_PROSE):
            continue
        for m in re.finditer(pattern, plain, re.MULTILINE):
            yield f"{name}:{plain.count(chr(10), 0, m.start()) + 1}: {m[0]!r}; write: {instead}"


def findings(text: str, name: str, most: int = MOST_WORDS) -> Iterator[str]:
    """What a reader would stumble over, as sentences."""
    plain = prose(text)
    yield from phrases(plain, name)
    yield from phrases(tables(text), name)
    for line, sentence in sentences(plain):
        words = [w for w in sentence.split() if re.search(r"[A-Za-zÀ-ž]", w)]
        if len(words) > most:
            yield f"{name}:{line}: {len(words)} words: {sentence[:90]}…"


def docstrings() -> Iterator[tuple[str, Any, Any]]:
    """The name of everything public, the object, and its class if it is a method or a property."""
    from reference_pages import get, members, public

    for name in (name for names in public().values() for name in names):
        found = get(name)
        yield name, found, None
        for inner in members(found) if inspect.isclass(found) else ():
            yield f"{name}.{inner}", inspect.getattr_static(found, inner), found


def function(found: Any) -> Any:
    """The function of a method or a property."""
    return inspect.unwrap(getattr(found, "fget", None) or getattr(found, "__func__", found))


def parameters(found: Any) -> list[str]:
    """The names of the arguments that a user passes."""
    if inspect.isclass(found) and (issubclass(found, Exception) or inspect.isabstract(found)):
        return []
    if inspect.isclass(found) and found.__name__ in RESULTS:
        return []
    return [
        name
        for name in inspect.signature(function(found)).parameters
        if name not in ("self", "args", "kwargs") and name[0] != "_"
    ]


def is_documented(name: str, text: str, owner: Any) -> bool:
    """Whether an argument is in Parameters. That of a method may be among the method arguments of its class."""
    if owner is None:
        return re.search(rf"^([*\w]+, )*\**{name}(, \w+)* :", text, re.MULTILINE) is not None
    texts = [text, *(inspect.getdoc(c) or "" for c in owner.__mro__ if c.__module__.startswith("coadjoint"))]
    return f"`{name}`" in text or any(is_documented(name, t, None) for t in texts)


def plain_sections(text: str) -> str:
    """A docstring without the headings of its NumPy-style sections and the lines `name : type` in them."""
    text = re.sub(r"^Examples?\n-{3,}\n(.*\n?)*", "", text, flags=re.MULTILINE)
    text = re.sub(r"^ +(If .*, or if )", lambda m: m[1].replace(", ", ".\n\n    "), text, flags=re.MULTILINE)
    body, *sections = re.split(r"^\w[\w ]*\n-{3,}\n", text, flags=re.MULTILINE)
    return "\n\n".join([body, *(re.sub(r"^\S.* : .*$|^ {4}", "", part, flags=re.MULTILINE) for part in sections)])


def in_docstrings() -> Iterator[str]:
    """Findings in public docstrings."""
    for name, found, owner in docstrings():
        text = inspect.getdoc(found) or ""
        yield from findings(plain_sections(text), name)
        if not text:
            yield f"{name}: no docstring"
        missing = [p for p in parameters(found) if not is_documented(p, text, owner)]
        if missing:
            yield f"{name}: not in Parameters: {', '.join(missing)}"


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


def in_sources() -> Iterator[str]:
    """Private phrases in docstrings, comments and sentences of programs. Names and LLVM's text are not sentences."""
    for folder in ("src", "docs", "examples", "papers", "benchmarks"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if "generated" in path.parts or path == Path(__file__).resolve():
                continue
            source = path.read_text(encoding="utf-8")
            texts = [
                (node.lineno, node.value)
                for node in ast.walk(ast.parse(source))
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value
            ]
            tokens = tokenize.generate_tokens(io.StringIO(source).readline)
            texts += [(t.start[0], t.string) for t in tokens if t.type == tokenize.COMMENT]
            for line, text in texts:
                if "%" not in text:
                    plain = re.sub(r"`[^`]*`", "X", text)
                    yield from phrases(plain, f"{path.relative_to(ROOT)}:{line}", code=True)


def in_papers() -> Iterator[str]:
    """Findings in the titles, captions, claims and reasons of the experiments, which the reproduction shows."""
    for path in sorted((ROOT / "papers").rglob("*.toml")):
        parsed = tomllib.loads(path.read_text(encoding="utf-8"))
        for part in (parsed, *parsed.get("figures", []), *parsed.get("claims", [])):
            for text in (part.get(key, "") for key in ("title", "about", "caption", "claim", "reason")):
                yield from findings(text, str(path.relative_to(ROOT)))


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
    found += [*in_docstrings(), *in_messages(), *in_sources(), *in_papers(), *in_help()]
    print("\n".join(found) if found else "No findings.")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
