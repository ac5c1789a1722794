"""Write the tables that are made from the code into README.md and docs/methods.md (`make docs`)."""

from pathlib import Path

from coadjoint.integrators import ALL, claims_table

ROOT = Path(__file__).parents[1]

for page in (ROOT / "README.md", ROOT / "docs" / "methods.md"):
    before, rest = page.read_text(encoding="utf-8").split("<!-- claims -->\n")
    after = rest.split("<!-- /claims -->")[1]
    page.write_text(f"{before}<!-- claims -->\n{claims_table(ALL)}<!-- /claims -->{after}", encoding="utf-8")
