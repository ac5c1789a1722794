"""Other sizes and thresholds of the runtime during a test."""

from dataclasses import replace

from coadjoint.runtime import tuning


def tune(monkeypatch, **changes):
    """Use these values of `Tuning` until the test, or the context of `monkeypatch`, ends."""
    monkeypatch.setattr(tuning, "_current", replace(tuning.current(), **changes))
