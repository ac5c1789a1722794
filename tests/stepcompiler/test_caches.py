"""Caches: results do not depend on earlier runs in the same process."""

import json

import pytest
from cache_variants import FAMILIES, SLOW, digests
from processes import Process

QUICK = (
    "the sign of a literal zero",
    "zeros of an array",
    "complex zeros",
    "an array captured or given",
    "an array that changes",
    "functions with rules",
    "static leaves of params",
    "what is saved",
)
ELSEWHERE = """
import json, sys
from cache_variants import digests
print(json.dumps(digests(json.loads(sys.argv[1]), reverse=True)))
"""


def compare(families):
    """Each variant comes first of its family here or in a process that goes through them in reverse."""
    process = Process(ELSEWHERE, json.dumps(list(families)))
    here = digests(families)
    out, errors = process.communicate()
    assert process.returncode == 0, errors
    there = json.loads(out.splitlines()[-1])
    assert here.keys() == there.keys()
    assert not (other := [name for name in here if here[name] != there[name]]), other
    return here


def test_runs_that_differ_in_a_bit():
    found = compare(QUICK)
    for family in ("the sign of a literal zero", "zeros of an array"):
        some = [x for name, x in found.items() if name.startswith(family)]
        assert some[0] != some[1]  # or the comparison means nothing


@pytest.mark.slow
@pytest.mark.parametrize("family", [*FAMILIES, *SLOW])
def test_all_that_a_cache_may_confuse(family):
    compare([family])


@pytest.mark.slow
def test_one_process_for_all():
    compare([*FAMILIES, *SLOW])
