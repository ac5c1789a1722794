"""One small reproduction for all tests of this folder."""

from multiprocessing import get_context

import pytest
from typer.testing import CliRunner

from coadjoint.command import papers
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


@pytest.fixture(autouse=True)
def forked_drawing_processes(monkeypatch):
    """The process that draws is spawned for `reproduction`, as for a user; later ones do not import all again."""
    server = get_context("forkserver")
    server.set_forkserver_preload(["coadjoint.command.papers", "coadjoint.report.plotting", "matplotlib.pyplot"])
    monkeypatch.setattr(papers.load("reproduce"), "get_context", lambda method: server)
