"""The table of models in the documentation lists every model, with a test file that names it."""

import re
from pathlib import Path

from coadjoint.experiments.schema import known_models

TESTS = Path(__file__).parents[2]
PAGE = TESTS.parent / "docs" / "reference" / "models.md"


def test_the_table_of_models_is_complete():
    rows = re.findall(r"^\| `(\w+)` \|(.+)\| `([\w/]+\.py)` \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(name for name, *_ in rows) == sorted(known_models())
    for name, cells, file in rows:
        assert len(re.split(r"(?<!\\)\|", cells)) == 3 and all(x.strip() for x in re.split(r"(?<!\\)\|", cells))
        assert name in (TESTS / file).read_text(encoding="utf-8"), (name, file)
