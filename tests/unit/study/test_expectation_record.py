"""The recorded costs of multilevel Monte Carlo."""

import json
from pathlib import Path

RECORD = Path(__file__).parents[3] / "benchmarks" / "results" / "expectations.json"


def test_the_cost_of_expectations():
    """Plain Monte Carlo needs 20 times as many steps at the smallest tolerance."""
    found = json.loads(RECORD.read_text(encoding="utf-8"))
    assert found[-1]["tolerance"] == 3e-4 and found[-1]["steps of plain Monte Carlo"] >= 20 * found[-1]["steps"]
    assert all(row["half_width"] <= row["tolerance"] for row in found)
