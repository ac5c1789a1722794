"""Fixtures of the tests of experiments."""

import pytest


@pytest.fixture
def here(tmp_path, monkeypatch):
    from experiment_files import TEXT

    monkeypatch.chdir(tmp_path)
    (tmp_path / "experiment.toml").write_text(TEXT)
    return tmp_path
