"""The table of claims in the README is the one the code makes."""

import inspect
from pathlib import Path

from coadjoint.integrators import ALL, Adaptive, Integrator, claims_table

README = Path(__file__).parents[2] / "README.md"


def test_readme_table_is_current():
    """`make docs` writes it; a stale one fails here."""
    text = README.read_text()
    assert text.split("<!-- claims -->\n")[1].split("<!-- /claims -->")[0] == claims_table(ALL)


def test_every_integrator_is_in_the_table():
    """A new concrete integrator cannot be left out."""

    def concrete(cls):
        for sub in cls.__subclasses__():
            if sub.__module__.startswith("coadjoint."):
                if not sub.__name__.startswith("_") and not inspect.isabstract(sub) and sub is not Adaptive:
                    yield sub
                yield from concrete(sub)

    assert set(concrete(Integrator)) == {type(i) for i in ALL.values()}
