"""The site's sources: every public name has its place, pictures and notebooks are what they should be."""

import ast
import inspect
import json
import re
import sys
from pathlib import Path

import pytest

import coadjoint as cj

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def reference():
    sys.path.insert(0, str(DOCS / "_ext"))
    try:
        import reference_pages

        yield reference_pages
    finally:
        sys.path.remove(str(DOCS / "_ext"))


def test_every_public_name_is_documented(reference):
    pages = reference.public()
    named = [name for names in pages.values() for name in names]
    assert len(named) == len(set(named))
    ours = [name for name in cj.__all__ if not inspect.ismodule(getattr(cj, name))]
    assert {f"coadjoint.{name}" for name in ours} | {"coadjoint.models.heavy_top"} <= set(named)
    for name in named:
        text = inspect.getdoc(reference.get(name)) or ""
        assert text, f"{name} has no docstring"
        assert not text.startswith(f"{name.split('.')[-1]}("), f"{name} has the docstring of a dataclass"


def test_every_public_method_is_documented(reference):
    for name in (name for names in reference.public().values() for name in names):
        found = reference.get(name)
        if inspect.isclass(found):
            for method, value in vars(found).items():
                if not method.startswith("_") and inspect.isfunction(value):
                    assert inspect.getdoc(getattr(found, method)), f"{name}.{method} has no docstring"


def test_every_public_name_has_an_example(reference):
    known = {name for names in reference.public().values() for name in names}
    examples = reference.examples()
    assert set(examples) == known, sorted(set(examples) ^ known)
    assert all("```python" in body for body in examples.values())


def test_generated_pages(reference, tmp_path):
    reference.write(tmp_path)
    command = (tmp_path / "command.md").read_text(encoding="utf-8")
    for word in ("coadjoint run", "--set", "coadjoint reproduce", "--quick", "One of: casimirs, energy"):
        assert word in command
    schema = (tmp_path / "experiment.md").read_text(encoding="utf-8")
    for word in ("`save_every`", "`temperature`", "### `heavy_top`", "`TMK15`", "`Quantiles`"):
        assert word in schema
    assert ".. autoclass:: coadjoint.TMK\n" in (tmp_path / "integrators.rst").read_text(encoding="utf-8")


def test_docstrings_become_readable(reference):
    import docstrings

    text = docstrings.convert(inspect.getdoc(cj.TMK).splitlines())
    at = text.index(".. math::")
    assert text[at + 2].lstrip().startswith(r"& \sigma  = \partial h(m)\,\mathrm{d}t")
    listed = "\n".join(docstrings.convert(inspect.getdoc(cj.solve).splitlines()))
    assert "``sol.saved``" in listed and ":py:obj:`UnsolvedStepError <coadjoint.UnsolvedStepError>`" in listed
    assert docstrings.convert(["ad*_ξ μ and |γ|²"]) == [r"ad\*\_ξ μ and \|γ\|²"]


def test_equations_are_tex(reference):
    """Every block of every docstring is code or becomes TeX: no letter is left over, braces match."""
    import equations

    assert equations.tex(["W̃ = (1 + sσ/2)⁻¹ W_n,   m = ½ (μ_n + flow(sσ, μ_n)),", "L₃ = ⅓ Σ_ijk ℓ_ijk a"]) == [
        r"\tilde{W} = (1 + s\sigma /2)^{-1} W_{n},",
        r"m = \tfrac{1}{2} (\mu _{n} + \operatorname{flow}(s\sigma , \mu _{n})),",
        r"L_{3} = \tfrac{1}{3} \sum _{ijk} \ell _{ijk} a",
    ]
    assert equations.tex(["print(cj.recommend(system))"]) is None
    import docstrings

    for name in (name for names in reference.public().values() for name in names):
        text = "\n".join(docstrings.convert(inspect.getdoc(reference.get(name)).splitlines()))
        for block in re.findall(r"\.\. math::\n\n((?: +.*\n)+)", text):
            left = re.sub(r"\\text(tt)?\{[^}]*\}", "", block)
            assert left.isascii(), f"{name}: {[c for c in left if not c.isascii()]} in {block}"
            assert left.count("{") == left.count("}"), f"{name}: {block}"


def test_docstrings_cite(reference):
    import docstrings

    assert docstrings.cited(inspect.getdoc(cj.TMK)) == ["luesink2024casimir"]
    assert docstrings.cited(inspect.getdoc(cj.models.sine_euler)) == ["zeitlin1991finite"]
    assert set(docstrings.cited(inspect.getdoc(cj.models.maxwell_bloch))) >= {"david1992multiple"}
    assert docstrings.cited("nothing of the kind") == []


UNTRIED = {"docs/guides/gpus.md", "docs/guides/dask.md"}  # which need a GPU, a cluster
UNTRIED |= {"docs/development/xla.md"}  # shows wrong results of XLA with all its passes: tests/unit/test_updates.py


def test_every_page_with_examples_is_run():
    import test_readme

    pages = [p for p in DOCS.rglob("*.md") if "generated" not in p.parts]
    shown = {
        str(p.relative_to(ROOT))
        for p in pages
        if re.search(r"^```python$", p.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert shown - UNTRIED <= set(test_readme.PAGES)


SCRIPTS = sorted((DOCS / "gallery").glob("*.py"))


def test_the_gallery_is_large():
    assert len(SCRIPTS) >= 20


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_pictures_have_a_title_and_few_lines(script):
    text = script.read_text(encoding="utf-8")
    module = ast.parse(text)
    title, _, words = (ast.get_docstring(module) or "").partition("\n")
    assert title.endswith(".") and len(words.strip()) > 40
    code = [line for line in text.splitlines()[module.body[0].end_lineno :] if line.strip()]
    assert 7 <= len(code) <= 30
    names = {n.id for n in ast.walk(module) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    assert names & {"fig", "animation"}


NOTEBOOKS = [
    p for p in sorted(DOCS.rglob("*.md")) if p.read_text(encoding="utf-8").startswith("---\nfile_format: mystnb")
]


@pytest.mark.parametrize("page", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_compile_and_end_in_a_figure(page):
    cells = re.findall(
        r"^```\{code-cell\}[^\n]*\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    cells = [re.sub(r"^:tags:.*$", "", cell, flags=re.MULTILINE) for cell in cells]
    compile("\n".join(cells), str(page), "exec")
    figures = [cell for cell in cells if "plt.show()" in cell or re.search(r"^fig$", cell, re.MULTILINE)]
    assert figures and figures[-1] == cells[-1]


def _check_gpu(page, gpu):
    """What the page says, and that it is what was asked for."""
    rates = list(gpu["rates"].values())
    chord = "CUDA C++, chord, polynomials"
    by_chord = [max(r["CUDA C++, chord"], r[chord]) for r in rates]
    to_two = ("coadjoint", "CUDA C++, fixed point", chord, "CUDA C++, chord, polynomials, looser")
    quoted = [f"{r[name]:.2e}" for r in rates for name in to_two]
    documented = "diffrax, as documented", "diffrax, as documented, first steps of 10⁵"
    quoted += [f"{r[name]:.1e}" for r in rates for name in ("XLA by hand", "diffrax", *documented)]
    for number in quoted:
        assert number.replace("e+0", "e").replace("e+", "e") in page, f"docs/guides/gpus.md does not say {number}"
    start, long, ours = gpu["start"]["seconds"], gpu["long"], [r["coadjoint"] for r in rates]
    begins = [f"{x:.1f}" for x in start]
    faster = [x / y for x, y in zip(ours, by_chord, strict=True)]
    fastest, with_tree = (
        [x / r[name] for x, r in zip(ours, rates, strict=True)] for name in ("diffrax", documented[1])
    )
    for said in (
        f"{long['seconds']:.1f} s and {long['peak bytes'] / 1e9:.2f} GB",
        f"{gpu['casimirs']['largest error']:.1e}",
        f"{', '.join(begins[:-1])} and {begins[-1]} s",
        "{:.1f}, {:.1f} and {:.1f} s".format(*gpu["start"]["seconds, memory reserved"]),
        f"{faster[0]:.2f} and {faster[1]:.2f} times as fast as CUDA C++",
        f"{with_tree[0]:.0f} and {with_tree[1]:.0f} times",
        f"{fastest[0]:.0f} and {fastest[1]:.0f} times",
        "{:.0f} and {:.0f} times as fast as those".format(
            *(x / r["diffrax"] for x, r in zip(by_chord, rates, strict=True))
        ),
    ):
        assert said in " ".join(page.split()), f"docs/guides/gpus.md does not say {said}"
    assert min(faster) >= 0.95 and min(with_tree) >= 100
    assert all(
        x >= 1.25 * r["CUDA C++, fixed point"] and x >= 4 * r["XLA by hand"] for x, r in zip(ours, rates, strict=True)
    )
    assert all(row["same"] for row in gpu["bits"]) and len(gpu["bits"]) == 36
    assert long["seconds"] <= 9 and long["peak bytes"] <= 1.5e9 and gpu["casimirs"]["largest error"] <= 5e-15
    away = gpu["exact"]["standard errors"]
    assert abs(away["from f^16"]) < 3 < 10 < abs(away["from 1/e"]) and max(start) <= 5


def test_quoted_numbers_are_those_on_record():
    """What the pages say was measured is what benchmarks/results has."""
    results = ROOT / "benchmarks" / "results"
    gpu, engine, fluids = (json.loads((results / f"{name}.json").read_text()) for name in ("gpu", "engine", "fluids"))
    page = (DOCS / "guides/gpus.md").read_text(encoding="utf-8")
    _check_gpu(page, gpu)
    now = [said for said in engine.values() if "arithmetic" not in said]  # an earlier one, which was measured elsewhere
    page = (DOCS / "guides/performance.md").read_text(encoding="utf-8")
    for kind, least, most in (("", 0.95, 1.25), (" of a looser tolerance", 1.15, 1.45)):
        ratios = [said[f"{name} / C{kind}"] for said in now for name in ("one trajectory", "ensemble")]
        assert len(ratios) >= 4 and all(least < r < most for r in ratios)
    assert all(said["one trajectory / C"] <= 1.3 and said["ensemble / C"] <= 1.2 for said in now)  # as was asked
    assert "takes 1.0 to 1.2 times the time of a C program" in page and "1.2 to 1.4 times that of one" in page
    cluster, said = (
        json.loads((results / "cluster.json").read_text()),
        (DOCS / "guides/dask.md").read_text(encoding="utf-8"),
    )
    assert f"at {cluster['speed']['cluster beside threads']:.2f} of the speed of two threads" in said
    assert f"costs {cluster['overhead']['overhead of a tile on its core']:.1f} ms beside its steps" in said
    many = cluster["tiles"]
    kilobytes = 1e3 * (many["megabytes after"] - many["megabytes before"]) / many["tiles"]
    each = f"the scheduler in {many['seconds']:.0f} s ({many['milliseconds a tile']:.1f} ms each;"
    assert many["tiles"] == 100_000 and each in said and f"with {kilobytes:.0f} kB of memory each" in said
    drift = fluids["other"]["eigenvalue drift over ‖W‖₂ after 10⁴ stochastic steps, n = 65"]["largest on the way"]
    page = (DOCS / "guides/fluids.md").read_text(encoding="utf-8")
    assert f"move by {drift:.0e}" in page
    _check_fluids_on_a_gpu(page, fluids["rows"])
    turns = fluids["one core, in turns with another version"]
    faster = {(r["what"], r["n"]): r["old / new"] for r in turns if r["processor"] == "AMD EPYC"}
    assert faster.keys() == {(what, n) for what in ("torus", "torus, no noise") for n in (129, 257, 513)}
    assert min(faster.values()) >= 3.0  # as was asked
    assert f"{min(faster.values()):.1f} to {max(faster.values()):.1f} times as fast as" in page


def _check_fluids_on_a_gpu(page, rows):
    """The table of an H200, and what was asked for: milliseconds by n, half as much again for the exponential."""
    found = {(r["n"], r["method"]): r for r in rows if (r["machine"], r["what"]) == ("H200", "torus")}
    for n, most in {513: 1.6, 1025: 3.5, 2049: 14, 4095: 65, 4097: 75}.items():
        ms = [found[n, method]["ms"] for method in ("isospectral", "TMK, Cayley", "TMK, exp")]
        assert max(*ms[:2], ms[2] / 1.5) <= most
        assert f"| {n} | {' | '.join(f'{x:.1f}' for x in ms)} |" in page, f"docs/guides/fluids.md: n = {n}"
        ratio = found[n, "Lie midpoint, exp"]["ms"] / ms[2] if (n, "Lie midpoint, exp") in found else 1.5
        assert 1.35 < ratio < 1.75  # "1.4 to 1.7 times on an H200"
    assert found[4097, "isospectral"]["first call (s)"] <= 30


def test_quoted_numbers_of_spin_lattices_are_those_on_record():
    """And what was asked of them: at 32³ spins at most twice the time of C; a cost that is linear in their number."""
    rows = json.loads((ROOT / "benchmarks" / "results" / "spins.json").read_text())["rows"]
    page = " ".join((DOCS / "guides/performance.md").read_text(encoding="utf-8").split())
    for row in rows:
        if row["spins"] in (32**3, 100**3):
            side = f"{row['spins'] ** (1 / 3):.0f}³"
            assert re.search(f"{row['library [ns]']:.0f} ns at {side}( spins)?, {row['ratio']:.2f} times", page)
        assert row["spins"] > 32**3 or row["ratio"] <= 2.0
    cost = {(row["with"], row["spins"]): row["library [ns]"] for row in rows}
    assert all(cost[name, 100**3] < 1.25 * cost[name, 32**3] for name in ("heat bath", "friction"))


def test_one_version():
    assert f"\nversion: {cj.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert 'dynamic = ["version"]' in project and 'path = "src/coadjoint/__init__.py"' in project
