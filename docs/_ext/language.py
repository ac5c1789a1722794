"""Check the language of pages and public docstrings: private vocabulary, long sentences, missing Parameters.

`python docs/_ext/language.py` lists the findings; `make site` runs it. The rules are those of CONTRIBUTING.md.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

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
    r"(steps|seconds|milliseconds|ms|ns|times|iterations|members) a (step|second|spin|member|task|core)\b": "per …",
    r"\bof its own accord\b|by itself as it does": "automatically",
}
FENCE = re.compile(r"^(`{3,}|:{3,}).*?^\1[ \t]*$", re.MULTILINE | re.DOTALL)


def pages() -> Iterator[Path]:
    """All pages that people write."""
    yield ROOT / "README.md"
    for path in sorted(DOCS.rglob("*.md")):
        if not {"generated", "_ext"} & set(path.parts):
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


def main() -> int:
    """List the findings; 1 if there are any."""
    found = [f for path in pages() for f in findings(path.read_text(encoding="utf-8"), str(path.relative_to(ROOT)))]
    print("\n".join(found) if found else "No findings.")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
