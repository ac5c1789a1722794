"""The command `coadjoint reproduce`: its files, its errors, and bitwise identical results for the same key."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from coadjoint.command import papers

rp = papers.load("reproduce")
STUDIES = papers.load("study")
Finding, Verdict = papers.load("claims").Finding, papers.load("claims").Verdict

ROOT = Path(__file__).parents[2]
STUDY = ROOT / "papers" / STUDIES.STUDY


@pytest.fixture(scope="module")
def study():
    return rp.load_study()


def test_every_figure_of_the_paper_is_there(study):
    numbers = [f["number"] for e in study.experiments for f in e.figures if "number" in f]
    assert sorted(numbers) == list(range(1, 10))


def test_parameters_are_data_and_complete(study):
    for e in study.experiments:
        data = tomllib.loads((STUDY / f"{e.name.replace('-', '_')}.toml").read_text(encoding="utf-8"))
        assert set(data) <= {"title", "source", "about", "figures", "claims", "parameters", "quick"}, e.name
        assert set(data.get("quick", {})) <= set(data["parameters"]), e.name
        for claim in data.get("claims", []):
            assert set(claim) == {"name", "claim", "paper", "expected", "reason"}, e.name
            Verdict(claim["expected"])
    names = [c["name"] for e in study.experiments for c in e.claims]
    assert len(names) == len(set(names))


def test_the_papers_use_public_names_only():
    for path in (ROOT / "papers").rglob("*.py"):
        found = re.findall(
            r"(?:from coadjoint[\w.]*\._|coadjoint\._|\bcj\._|import _)\w*", path.read_text(encoding="utf-8")
        )
        assert not found, f"{path.name}: {found}"


def test_list_names_every_experiment_and_figure(invoke, study):
    result = invoke("--list")
    assert result.exit_code == 0
    for e in study.experiments:
        for name in e.names:
            assert name in result.output


def test_what_is_written(reproduction):
    out, result = reproduction
    files = {p.relative_to(out).as_posix() for p in out.rglob("*") if p.is_file()}
    figures = {"deterministic-441", "stochastic-441", "stochastic-421", "attitude"}
    expected = {f"figures/{name}.{kind}" for name in figures for kind in ("png", "pdf")}
    assert files == expected | {"claims.json", "claims.md", "index.html", "manifest.json"}
    data = json.loads((out / "claims.json").read_text(encoding="utf-8"))
    assert data["key"] == 3 and data["quick"] is True and "jax" in data["versions"]
    for row in data["claims"]:
        assert row["verdict"] == row["expected"]
        assert row["ours"] and row["reason"] and row["realisations"] >= 1
        assert row["name"] in {c["name"] for c in data["claims"]}
    text = (out / "claims.md").read_text(encoding="utf-8")
    assert text.count("\n|") == 2 + len(data["claims"])
    assert "holds" in result.output  # the table in the terminal


def test_the_page_is_self_contained(reproduction):
    html = (reproduction[0] / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"(?:src|href)\s*=\s*[\"'](?!data:|#)", html)
    assert "http://" not in html and "https://" not in html and "@import" not in html


def test_same_key_same_bits_and_an_earlier_reproduction_is_replaced(invoke, reproduction, tmp_path):
    out = shutil.copytree(reproduction[0], tmp_path / "again")
    assert invoke("--quick", "--key", 3, "--out", out, "--only", "stochastic-421").exit_code == 0
    assert not (out / "figures" / "attitude.png").exists()
    first = json.loads((reproduction[0] / "claims.json").read_text(encoding="utf-8"))["claims"]
    again = json.loads((out / "claims.json").read_text(encoding="utf-8"))["claims"]
    assert again == [row for row in first if row["experiment"] == "stochastic-trajectories"]
    for name in ("stochastic-421.png", "stochastic-421.pdf"):
        assert (out / "figures" / name).read_bytes() == (reproduction[0] / "figures" / name).read_bytes()


def test_another_key_other_numbers_the_same_verdicts(invoke, reproduction, tmp_path):
    assert invoke("--quick", "--key", 4, "--out", tmp_path / "o", "stochastic-421").exit_code == 0
    other = json.loads((tmp_path / "o" / "claims.json").read_text(encoding="utf-8"))["claims"]
    first = json.loads((reproduction[0] / "claims.json").read_text(encoding="utf-8"))["claims"]
    first = [row for row in first if row["experiment"] == "stochastic-trajectories"]
    assert [r["verdict"] for r in other] == [r["verdict"] for r in first]
    assert [r["numbers"] for r in other] != [r["numbers"] for r in first]


def test_a_claim_that_comes_out_otherwise_gives_status_1(invoke, tmp_path, monkeypatch):
    load = rp.load_study

    def changed(folder=None):
        study = load(folder)
        for e in study.experiments:
            for claim in e.claims:
                claim["expected"] = "does not hold"
        return study

    monkeypatch.setattr(rp, "load_study", changed)
    result = invoke("--quick", "--only", "attitude", "--out", tmp_path / "o")
    assert result.exit_code == 1
    assert "reconstruction" in result.output and "expected" in result.output
    assert (tmp_path / "o" / "index.html").exists()


# Errors


@pytest.mark.parametrize(
    ("wrong", "nearest"), [("strong-order", "strong-orders"), ("stochastic-441x", "stochastic-441")]
)
def test_an_unknown_name_gets_the_nearest_one(invoke, tmp_path, wrong, nearest):
    result = invoke("--only", wrong, "--out", tmp_path / "o")
    assert result.exit_code == 2
    assert repr(wrong) in result.output and repr(nearest) in result.output
    assert not (tmp_path / "o").exists()


def test_a_negative_key_is_refused(invoke, tmp_path):
    assert invoke("--key", "-1", "--out", tmp_path / "o").exit_code == 2
    assert not (tmp_path / "o").exists()


def test_a_folder_with_something_else_is_left_alone(invoke, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    result = invoke("--quick", "--only", "attitude", "--out", tmp_path)
    assert result.exit_code == 2
    assert "notes.txt" in result.output and "--out" in result.output
    assert {p.name for p in tmp_path.iterdir()} == {"notes.txt"}
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_changed_reproduction_is_left_alone(reproduction, tmp_path):
    out = tmp_path / "o"
    with rp.output_folder(out) as folder:
        (folder / "claims.md").write_text("ours")
    (out / "claims.md").write_text("edited by hand")
    with pytest.raises(rp.InputError, match=r"claims\.md"), rp.output_folder(out):
        pass
    assert (out / "claims.md").read_text() == "edited by hand"


def test_a_file_in_place_of_the_folder(invoke, tmp_path):
    (tmp_path / "o").write_text("a file")
    result = invoke("--quick", "--only", "attitude", "--out", tmp_path / "o")
    assert result.exit_code == 2 and "not a folder" in result.output
    assert (tmp_path / "o").read_text() == "a file"


def test_an_unwritable_folder(invoke, tmp_path):
    """Root may write anywhere, so the folder is one that cannot be made: below a file."""
    (tmp_path / "file").write_text("")
    result = invoke("--quick", "--only", "attitude", "--out", tmp_path / "file" / "o")
    assert result.exit_code == 2 and "--out" in result.output


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder(invoke, tmp_path):
    tmp_path.chmod(0o500)
    try:
        result = invoke("--quick", "--only", "attitude", "--out", tmp_path / "o")
    finally:
        tmp_path.chmod(0o700)
    assert result.exit_code == 2 and "cannot write" in result.output


def test_what_goes_wrong_while_drawing_is_raised(tmp_path):
    """In the process that draws, with its traceback; the next request finds out, or the end."""
    with rp._DrawingProcess() as drawing:
        drawing.draw("energy", {}, None, tmp_path)
        drawing.draw("energy", {}, None, tmp_path)
        with pytest.raises(Exception) as caught:
            drawing.figures()
    assert any("energy.py" in note for note in caught.value.__notes__)
    with rp._DrawingProcess() as drawing:
        drawing.process.kill()
        drawing.process.join()
        with pytest.raises(RuntimeError, match="ended unexpectedly"):
            drawing.figures()


def test_a_run_that_fails_leaves_the_folder_as_it_was(tmp_path):
    out = tmp_path / "o"
    with rp.output_folder(out) as folder:
        (folder / "claims.md").write_text("first")
    with pytest.raises(RuntimeError), rp.output_folder(out) as folder:
        (folder / "claims.md").write_text("second")
        raise RuntimeError
    assert (out / "claims.md").read_text() == "first"
    assert {p.name for p in out.iterdir()} == {"claims.md", rp.MANIFEST}
    with pytest.raises(RuntimeError), rp.output_folder(tmp_path / "new"):
        raise RuntimeError
    assert not (tmp_path / "new").exists()


# Where the papers are


def test_an_installed_package_brings_the_papers(tmp_path):
    """The wheel holds them beside the code, where `papers_folder` looks first."""
    build = "from hatchling.build import build_wheel; import sys; print(build_wheel(sys.argv[1]))"
    done = subprocess.run([sys.executable, "-c", build, tmp_path], cwd=ROOT, capture_output=True, text=True, check=True)
    with zipfile.ZipFile(tmp_path / done.stdout.split()[-1]) as wheel:
        wheel.extractall(tmp_path / "installed")
    inside = tmp_path / "installed" / "coadjoint"
    for path in STUDY.glob("*.toml"):
        assert (inside / "_papers" / STUDIES.STUDY / path.name).read_bytes() == path.read_bytes()
    assert {p.name for p in (inside / "page").iterdir()} >= {"page.css", "page.js", "scene.js", "space.js", "top.js"}
    where = "import coadjoint.command.papers as p; print(p.papers_folder()); p.load('study').load_study()"
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}
    done = subprocess.run(
        [sys.executable, "-c", where], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    )
    assert Path(done.stdout.strip()) == inside / "_papers"


def test_findings_must_answer_the_claims(study):
    e = next(e for e in study.experiments if e.name == "attitude")

    class Silent:
        @staticmethod
        def run(p, key, say):
            return rp.Outcome({"another": Finding("", Verdict.HOLDS)})

    class Lines:
        def line(self, name):
            import contextlib

            return contextlib.nullcontext(print)

    silent = rp.PaperExperiment(**{**vars(e), "module": Silent})
    with pytest.raises(RuntimeError, match="another"):
        rp._run_one(silent, 0, True, Lines())


@pytest.mark.slow
@pytest.mark.parametrize("key", [0, 1])
def test_the_whole_quick_run_comes_out_as_recorded(invoke, tmp_path, key):
    result = invoke("--quick", "--key", key, "--out", tmp_path / "o")
    assert result.exit_code == 0, result.output
