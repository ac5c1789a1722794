"""The record of benchmarks/filters.py: required scores, and the table of the page."""

import json
from pathlib import Path

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "explanation" / "filters.md"


def read(name):
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def test_filters_in_the_twin():
    """Means over five seeds: both filters beat the free run and the bootstrap filter, and keep all eigenvalues."""
    record = read("filters.json")
    mean = record["mean"]
    assert len(record["seeds"]) >= 5
    assert mean["particle"]["rmse"] < min(mean["free"]["rmse"], mean["bootstrap"]["rmse"])
    assert mean["particle"]["coverage"] >= 0.75 and mean["kalman"]["coverage"] >= 0.88
    assert mean["kalman"]["rmse"] <= 0.85 * mean["free"]["rmse"]
    assert max(run[name]["eigenvalues"] for run in record["seeds"] for name in ("particle", "kalman")) <= 1e-14


def test_the_table_of_filters():
    record, text = read("filters.json"), PAGE.read_text(encoding="utf-8")
    for label, name in (("no filter", "free"), ("bootstrap filter", "bootstrap"), ("`ParticleFilter`", "particle"),
                        ("`GroupKalman`", "kalman")):  # fmt: skip
        own, of_seeds = record["mean"][name], [run[name]["coverage"] for run in record["seeds"]]
        spread = f"{own['coverage']:.2f} ({min(of_seeds):.2f}–{max(of_seeds):.2f})"
        assert f"| {label} | {own['rmse']:.2f} | {own['spread']:.2f} | {spread} |" in text


def test_assimilation_over_twenty_turnover_times():
    """The filter that follows the fine run has at most .85 of the error of the free run; the table of the page."""
    record = read("assimilation.json")
    text = (ROOT / "docs" / "gallery" / "calibrated_flow.md").read_text(encoding="utf-8")
    labels = {"free": "no filter", "bootstrap": "bootstrap filter", "kalman": "`GroupKalman`",
              "straight": "`GroupKalman(on_orbits=False)`"}  # fmt: skip
    assert record["cycles"] == 120
    assert record["kalman"]["rmse"] <= 0.85 * record["free"]["rmse"] and record["kalman"]["coverage"] > 0.85
    assert record["kalman"]["rmse"] < min(record["bootstrap"]["rmse"], record["straight"]["rmse"])
    for name, label in labels.items():
        own = record[name]
        assert f"| {label} | {own['rmse']:.2f} | {own['spread']:.2f} | {own['coverage']:.2f} |" in text
