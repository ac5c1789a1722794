"""`coadjoint.extend` has every interface that the pages for extension authors use, and the pages use nothing else."""

import re
from pathlib import Path

from coadjoint import extend

PAGES = sorted((Path(__file__).parents[2] / "docs" / "development" / "extend").glob("*.md"))


def test_pages_for_extension_authors_import_public_modules_only():
    imported = {line for page in PAGES for line in re.findall(r"^(?:from|import) coadjoint.*", page.read_text(), re.M)}
    assert imported
    allowed = {"import coadjoint as cj"}
    for line in imported - allowed:
        assert line.startswith("from coadjoint.extend import "), line


def test_all_names_are_there_and_documented():
    assert extend.__all__ == sorted(extend.__all__)
    for name in extend.__all__:
        assert getattr(extend, name) is not None
        assert f"`{name}`" in extend.__doc__, name
