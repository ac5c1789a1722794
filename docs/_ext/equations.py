"""The equations of docstrings, which are plain text there (σ = ½ (μ_n + flow(sσ, μ_n)),   …), as TeX."""

import re
import unicodedata

_SIGNS = {
    "Σ": r"\sum ", "∂": r"\partial ", "∇": r"\nabla ", "∫": r"\int ", "∘": r"\circ ", "×": r"\times ", "·": r"\cdot ",
    "∧": r"\wedge ", "⋄": r"\diamond ", "♯": r"^{\sharp}", "←": r"\leftarrow ", "↦": r"\mapsto ", "→": r"\to ",
    "…": r"\ldots ", "−": "-", "±": r"\pm ", "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "ħ": r"\hbar ", "ℓ": r"\ell ",
    "∞": r"\infty ", "½": r"\tfrac{1}{2}", "⅓": r"\tfrac{1}{3}", "⅔": r"\tfrac{2}{3}", "¼": r"\tfrac{1}{4}",
    "¾": r"\tfrac{3}{4}", "⅛": r"\tfrac{1}{8}", "ε": r"\varepsilon ", "φ": r"\varphi ", "⊗": r"\otimes ",
    "≈": r"\approx ",
}  # fmt: skip
_ACCENTS = {"\u0303": "tilde", "\u0304": "bar", "\u0302": "hat"}
_RAISED = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ⁱᵀᴴᵏᵐⁿ", ["0123456789-+iTHkmn"[k] for k in range(18)], strict=True))
_LOWERED = dict(zip("₀₁₂₃₄₅₆₇₈₉₋₊", "0123456789-+", strict=True))
_FUNCTIONS = ("flow", "cay", "Tr", "tr", "sin", "cos", "exp", "det", "diag", "rate", "step", "ad", "Ad")
_WORD = rf"\b(?!(?:{'|'.join(_FUNCTIONS)})\b)(?:[a-z]{{3,}}(?:-[a-z]+)*|if|of|by|or)\b"
_CODE = re.compile(r"\bcj\.|\w\(.*\w=|^with |^import ", re.MULTILINE)

_RULES = [
    (re.compile(r"(?P<space>\s{2,})"), lambda m: r" \quad "),
    (re.compile(r"`([^`]+)`"), lambda m: rf"\texttt{{{m[1]}}}"),
    (re.compile(r"\s?dτinv"), lambda m: r"\mathrm{d}\tau^{-1}"),
    (re.compile(r"\s?dτ\*"), lambda m: r"\mathrm{d}\tau^{*}"),
    (re.compile(r"(ad|Ad)\*"), lambda m: rf"\operatorname{{{m[1]}}}^{{*}}"),
    (re.compile(r"(\s?)\bd(?=[A-Zt\u0370-\u03ff](?![a-z]))"), lambda m: (r"\," if m[1] else "") + r"\mathrm{d}"),
    (re.compile(r"_\(([^()]*)\)"), lambda m: f"_{{({_tex(m[1])})}}"),
    (re.compile(r"([_^])([A-Za-z0-9\u0370-\u03ff]+)"), lambda m: f"{m[1]}{{{''.join(map(_sign, m[2]))}}}"),
    (re.compile(rf"[{''.join(_RAISED)}]+"), lambda m: f"^{{{''.join(_RAISED[c] for c in m[0])}}}"),
    (re.compile(rf"[{''.join(_LOWERED)}]+"), lambda m: f"_{{{''.join(_LOWERED[c] for c in m[0])}}}"),
    (re.compile(r"√dt"), lambda m: r"\sqrt{\mathrm{d}t}"),
    (re.compile(r"√(\d+)"), lambda m: rf"\sqrt{{{m[1]}}}"),
    (re.compile(r"√\(([^()]*)\)"), lambda m: rf"\sqrt{{{_tex(m[1])}}}"),
    (re.compile(r"<([^<>{}]*)>"), lambda m: rf"\langle {_tex(m[1])}\rangle "),
    (re.compile(rf"\b({'|'.join(_FUNCTIONS)})\b"), lambda m: rf"\operatorname{{{m[1]}}}"),
    (re.compile(rf"\s?{_WORD}(?:,?\s{_WORD})*\s?"), lambda m: rf"\text{{{m[0]}}}"),
    (re.compile(r"(.)([\u0302-\u0304])"), lambda m: rf"\{_ACCENTS[m[2]]}{{{_tex(m[1])}}}"),
]  # fmt: skip


def _tex(text: str) -> str:
    """One row: at each place the first rule that fits, else the sign itself."""
    out, at = [], 0
    while at < len(text):
        for rule, write in _RULES:
            if found := rule.match(text, at):
                out.append(write(found))
                at = found.end()
                break
        else:
            out.append(_sign(text[at]))
            at += 1
    return "".join(out)


def _sign(c: str) -> str:
    if c in _SIGNS:
        return _SIGNS[c]
    name = unicodedata.name(c, "")
    if name.startswith("GREEK "):
        letter = name.split()[-1].lower().replace("lamda", "lambda")
        return f"\\{letter.capitalize() if 'CAPITAL' in name else letter} "
    return f"\\{c}" if c in "%&#$" else c


def tex(block: list[str]) -> list[str] | None:
    """The rows of a block of equations, each set on a line of its own; None if it is code."""
    text = "\n".join(block)
    if _CODE.search(text):
        return None
    text = unicodedata.normalize("NFD", re.sub(r"\n\s+", " ", text))
    rows = [row.strip() for line in text.splitlines() for row in re.split(r"\s{2,}", line)]
    return [_tex(row) for row in rows if row]
