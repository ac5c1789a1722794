"""One small reproduction for all tests of this folder."""

import pytest
from typer.testing import CliRunner

from coadjoint.command.cli import app

SMALL = ("deterministic-trajectory", "stochastic-421", "attitude")


@pytest.fixture(scope="session")
def invoke():
    """Run `coadjoint reproduce` with the given words."""
    return lambda *words: CliRunner().invoke(app, ["reproduce", *map(str, words)])


@pytest.fixture(scope="session")
def reproduction(invoke, tmp_path_factory):
    """The folder of a quick run of three experiments, and what the command said."""
    out = tmp_path_factory.mktemp("run") / "reproduction"
    result = invoke("--quick", "--key", 3, "--out", out, "--only", *SMALL)
    assert result.exit_code == 0, result.output
    return out, result
