"""Every feature beside every other: the small runs of `feature_table`, in which all pairs of features occur.

Each run ends in time, agrees with the other backend to round-off, is the same in memory and in a store, and is bitwise
identical when it was stopped half-way and resumed. On a GPU, emulated here, all of a run, or its second half, is
bitwise identical to a run on the CPU.
"""

from itertools import combinations, product

import pytest
from covering import pairs_of, within
from feature_table import FAST, FEATURES, SLOW, STEPS, allowed, is_native, name, results, run, same
from tuned import tune

from coadjoint.runtime.backends import gpu_runtime

SECONDS = 240.0  # that one case may take, on a slow machine that compiles other things beside it


def test_all_pairs_occur():
    """Each pair that some allowed case has; and each value, even of what is in `make test` alone."""
    found = {pair for case in FAST + SLOW for pair in pairs_of(case)}
    assert all(allowed(case) for case in FAST + SLOW)
    for (f, a), (g, b) in combinations(FEATURES.items(), 2):
        others = {k: v for k, v in FEATURES.items() if k not in (f, g)}
        for x, y in product(a, b):
            rest = (dict(zip(others, v, strict=True)) for v in product(*others.values()))
            possible = any(allowed({f: x, g: y, **r}) for r in rest)
            assert (((f, x), (g, y)) in found) == possible, (f, x, g, y)
    for feature, values in FEATURES.items():
        assert {case[feature] for case in FAST} == set(values)


def check(case, folder, monkeypatch):
    if case["run"] == "ensemble, many batches":
        tune(monkeypatch, max_batch_size=2)
    auto = {"backend": "auto"}
    whole = run(case, auto, STEPS)
    assert whole.stats.backend == "native" or not is_native(case), whole.stats
    expected = results(case, whole)
    if case["sink"] != "memory":
        stored = run(case, auto, STEPS, folder / "whole.zarr")
        same(results(case, stored), expected, 1e-12)  # a store may compute more beside the run, in other programs
    if case["sink"] == "resume":
        run(case, auto, STEPS // 2, folder / "half.zarr")
        same(results(case, run(case, auto, STEPS, folder / "half.zarr", resume=True)), results(case, stored))
    if case["GPU"]:
        monkeypatch.setattr(gpu_runtime, "detect", lambda: gpu_runtime.EmulatedGpu(2))
        tune(monkeypatch, gpu_launch_members=4)
        half = folder / "moved.zarr" if case["sink"] == "resume" else None
        if half:
            run(case, auto, STEPS // 2, half)
        moved = run(case, {"backend": "native-gpu"}, STEPS, half, resume=half is not None)
        assert moved.stats.backend == "native-gpu", moved.stats
        same(results(case, moved), results(case, stored) if half else expected)
    if whole.stats.backend == "native":
        other = run(case, {"backend": "xla"}, STEPS)
        assert other.stats.backend == "xla"
        same(results(case, other), expected, 1e-10)


@pytest.mark.parametrize("case", FAST + [pytest.param(c, marks=pytest.mark.slow) for c in SLOW], ids=name)
def test_combination(case, tmp_path, monkeypatch):
    """It ends, backends agree, memory and store agree, and resuming changes no bit."""
    within(SECONDS, lambda: check(case, tmp_path, monkeypatch), name(case))
