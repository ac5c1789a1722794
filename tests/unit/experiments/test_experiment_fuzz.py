"""Random experiment files: each gives a run that is ready, or one sentence that names a key."""

import json
import re
import time

import pytest
from experiment_files import TABLES, TEXT
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import coadjoint as cj
from coadjoint.experiments import experiment

KNOWN = (
    "model run sweep name inertia alpha pi0 t0 t1 dt key members save_every integrator grid depth group throw backend "
    "mu0 reduce tol solver start stop count log é a.b"
)
WORDS = st.sampled_from(["", *KNOWN.split()])
NUMBERS = st.one_of(
    st.integers(-3, 10),
    st.sampled_from([0, -1, 2**31, 2**63, 2**64, 10**30, 1e-300, 1e300, 5e-324, 0.1, float("inf"), float("nan"), -0.0]),
    st.floats(),
)
SCALARS = st.one_of(
    NUMBERS,
    st.booleans(),
    st.text(max_size=5),
    WORDS,
    st.sampled_from(["none", "TMK", "Adaptive", "rigid_body", "os:sep"]),
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=3), max_leaves=8
)


@st.composite
def mutated(draw):
    """The tables of a good experiment, changed in a few places."""
    out = json.loads(json.dumps(TABLES))
    if draw(st.booleans()):
        out["sweep"] = {"run": {"key": [1, 2]}}
    for _ in range(draw(st.integers(1, 3))):
        at = out
        while True:
            inner = [k for k, v in at.items() if isinstance(v, dict)]
            if not inner or draw(st.integers(0, 3)) == 0:
                break
            at = at[draw(st.sampled_from(inner))]
        change = draw(st.sampled_from(["set", "set", "add", "drop", "rename"]))
        if change == "add" or not at:
            at[draw(WORDS)] = draw(VALUES)
            continue
        key = draw(st.sampled_from(sorted(at)))
        if change == "set":
            at[key] = draw(VALUES)
        elif change == "drop":
            del at[key]
        else:
            at[draw(WORDS)] = at.pop(key)
    return out


def answered(work):
    """A run that is ready to go, or one sentence that names a key; and no traceback, no hang."""
    began = time.perf_counter()
    try:
        work()
    except cj.ExperimentError as error:
        said = str(error)
        assert said.startswith("e.toml") and "\n" not in said
        assert re.search(r"\b(model|run|sweep)\b|^e\.toml: \[.*\] is not known", said), said
    assert time.perf_counter() - began < 20


def no_run(tables):
    made = experiment.Experiment(tables, "e.toml")
    if len(made.combinations()) <= 8:
        made.plans()


FUZZ = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}


@settings(max_examples=200, **FUZZ)
@given(mutated())
def test_fuzzed_tables(tables):
    answered(lambda: no_run(tables))


@pytest.mark.slow
@settings(max_examples=4000, **FUZZ)
@given(mutated())
def test_thousands_of_fuzzed_tables(tables):
    answered(lambda: no_run(tables))


@st.composite
def scrambled(draw):
    """The text of a good experiment with some characters, lines or pieces changed."""
    text = TEXT
    for _ in range(draw(st.integers(1, 4))):
        i = draw(st.integers(0, len(text)))
        j = draw(st.integers(i, min(len(text), i + 12)))
        text = (
            text[:i]
            + draw(st.sampled_from(["", '"', "[", "]", "=", "\n", "0", "-", ".", "9e99", "nan", "\x00", "{"]))
            + text[j:]
        )
    return text


def answered_text(text, folder):
    path = folder / "e.toml"
    path.write_text(text, encoding="utf-8")

    def work():
        try:
            no_run(experiment.load(path).tables)
        except cj.ExperimentError as error:
            raise cj.ExperimentError(str(error).replace(str(path), "e.toml")) from None

    began = time.perf_counter()
    try:
        work()
    except cj.ExperimentError as error:
        assert str(error).startswith("e.toml") and "\n" not in str(error)
    assert time.perf_counter() - began < 20


@settings(max_examples=200, **FUZZ)
@given(text=scrambled())
def test_fuzzed_text(text, tmp_path_factory):
    answered_text(text, tmp_path_factory.getbasetemp())


@pytest.mark.slow
@settings(max_examples=4000, **FUZZ)
@given(text=scrambled())
def test_thousands_of_fuzzed_texts(text, tmp_path_factory):
    answered_text(text, tmp_path_factory.getbasetemp())
