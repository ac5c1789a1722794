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


def test_every_generated_page_is_in_the_index(reference):
    index = (DOCS / "reference" / "index.md").read_text(encoding="utf-8")
    contents, _, overview = index.partition("\n- [Reference by task]")
    for page in (*reference.public(), "command", "experiment"):
        assert f"generated/reference/{page}\n" in contents, f"docs/reference/index.md: no entry for {page}"
        assert f"generated/reference/{page}." in overview, f"docs/reference/index.md: no words about {page}"


def test_results_show_their_methods_and_algebras_only_their_own(reference):
    assert {"casimir_errors", "attitude", "event_time", "to_xarray"} <= set(reference.members(cj.Solution))
    assert {"vorticity", "spectrum", "to_xarray"} <= set(reference.members(cj.fluids.Flow))
    assert reference.members(cj.SO3) == [] and "flow" in reference.members(cj.LieAlgebra)


def test_language(reference):
    import language

    assert language.main() == 0


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


UNTRIED = {f"docs/guides/{name}.md" for name in ("gpus", "dask", "devices", "from/diffrax")}  # need more than CI has
UNTRIED |= {"docs/development/xla.md"}  # shows wrong results of XLA, which tests/stepcompiler/test_updates.py tests


def test_every_page_with_examples_is_run():
    import test_readme

    pages = [p for p in DOCS.rglob("*.md") if "generated" not in p.parts]
    shown = {
        str(p.relative_to(ROOT))
        for p in pages
        if re.search(r"^```python$", p.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert shown - UNTRIED <= {*test_readme.PAGES, *test_readme.SLOW}


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


RESULTS = ROOT / "benchmarks" / "results"


def record(name):
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def test_benchmarks_page(reference):
    """The page has every contender of every record, with date and command."""
    import benchmark_pages

    page = benchmark_pages.page()
    for word in ("make bench-gpu", "quflow", "chain of 64 spins", "so(7)", "torus", "1,000,000", "long_run.py"):
        assert word in page, word
    assert page.count("*Measured ") >= 7


def test_recorded_gradients(reference):
    """Gradients cost a few forward runs, and less than those of diffrax at the same number of steps."""
    import benchmark_pages

    found = record("gradients")
    page = "".join(benchmark_pages.gradients())
    for name, row in found["cases"].items():
        assert f"| {name} | {benchmark_pages._three(row['gradient_us_per_step'])} |" in page
        assert "su(" in name or row["ratio"] <= (5 if "rk4" in name or "semidirect" in name else 3), name
        assert "diffrax" not in row or 5 * row["gradient_us_per_step"] <= row["diffrax"]["us_per_step"], name
    assert sum("diffrax" in row for row in found["cases"].values()) == 6 and found["overhead_us"] <= 100


def test_recorded_rates_on_a_gpu():
    """The goals of GPU kernels, and the two ratios that the guide quotes."""
    gpu = record("gpu")
    rates = list(gpu["rates"].values())
    by_chord = [max(r["CUDA C++, chord"], r["CUDA C++, chord, polynomials"]) for r in rates]
    faster = [r["coadjoint"] / c for r, c in zip(rates, by_chord, strict=True)]
    page = " ".join((DOCS / "guides" / "gpus.md").read_text(encoding="utf-8").split())
    least, most = (f"{r['coadjoint'] / 1e10:.1f}" for r in rates)
    assert f"{least} to {most} · 10¹⁰ member-steps" in page
    assert f"{faster[0]:.2f} and {faster[1]:.2f} times the rate of a CUDA C++" in page
    assert min(faster) >= 0.95
    for r in rates:
        assert r["coadjoint"] >= max(1.25 * r["CUDA C++, fixed point"], 4 * r["XLA by hand"])
        assert r["coadjoint"] >= 100 * r["diffrax, as documented, first steps of 10⁵"]
    assert all(row["same"] for row in gpu["bits"]) and len(gpu["bits"]) == 36 and "36 pairs" in page
    long = gpu["long"]
    assert long["seconds"] <= 9 and long["peak bytes"] <= 1.5e9 and gpu["casimirs"]["largest error"] <= 5e-15
    away = gpu["exact"]["standard errors"]
    assert abs(away["from f^16"]) < 3 < 10 < abs(away["from 1/e"]) and max(gpu["start"]["seconds"]) <= 5


def test_recorded_speed_beside_c():
    now = [row for row in record("engine").values() if "arithmetic" not in row]  # without records of earlier versions
    assert len(now) >= 2
    for row in now:
        assert row["one trajectory / C"] <= 1.3 and row["ensemble / C"] <= 1.2
        for name in ("one trajectory", "ensemble"):
            assert 1.15 < row[f"{name} / C of a looser tolerance"] < 1.45


def test_recorded_fluids():
    """Goals: milliseconds per step on an H200 by n, half as much again for the exponential, and eigenvalue drift."""
    fluids = record("fluids")
    found = {(r["n"], r["method"]): r for r in fluids["rows"] if (r["machine"], r["what"]) == ("H200", "torus")}
    for n, most in {513: 1.6, 1025: 3.5, 2049: 14, 4095: 65, 4097: 75}.items():
        ms = [found[n, method]["ms"] for method in ("isospectral", "TMK, Cayley", "TMK, exp")]
        assert max(*ms[:2], ms[2] / 1.5) <= most
        ratio = found[n, "Lie midpoint, exp"]["ms"] / ms[2] if (n, "Lie midpoint, exp") in found else 1.5
        assert 1.35 < ratio < 1.75
    assert found[4097, "isospectral"]["first call (s)"] <= 30
    drift = fluids["other"]["eigenvalue drift over ‖W‖₂ after 10⁴ stochastic steps, n = 65"]["largest on the way"]
    assert drift < 1e-14
    turns = fluids["one core, in turns with another version"]
    assert min(r["old / new"] for r in turns if r["processor"] == "AMD EPYC") >= 3.0


def test_quoted_costs_of_fluid_methods():
    """The relative costs in the guide to fluids are those on record."""
    now = [r for r in record("fluids")["rows"] if r["machine"] == "EPYC core" and r.get("date") == "2026-11-18"]
    ms = {(r["what"], r["n"], r["method"]): r["ms"] for r in now}
    assert len(ms) == 16
    for (surface, n, method), time in ms.items():
        ratio = time / ms[surface, n, "isospectral"]
        least, most = {"TMK, exp": (1.35, 1.7), "TMK, Cayley": (1.0, 1.15), "Lie midpoint, exp": (1.9, 2.4)}.get(
            method, (1.0, 1.0)
        )
        assert least <= round(ratio, 2) <= most, (surface, n, method, ratio)


def test_recorded_spin_lattices():
    """At 32³ spins at most twice the time of C; a cost that is linear in their number."""
    rows = record("spins")["rows"]
    assert all(row["spins"] > 32**3 or row["ratio"] <= 2.0 for row in rows)
    cost = {(row["with"], row["spins"]): row["library [ns]"] for row in rows}
    assert all(cost[name, 100**3] < 1.25 * cost[name, 32**3] for name in ("heat bath", "friction"))


def test_one_version():
    assert f"\nversion: {cj.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert 'dynamic = ["version"]' in project and 'path = "src/coadjoint/__init__.py"' in project
