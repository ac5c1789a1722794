"""Write the tables that are made from the code into README.md (`make docs`)."""

from pathlib import Path

from coadjoint.integrators import ALL, claims_table

README = Path(__file__).parents[1] / "README.md"

before, rest = README.read_text().split("<!-- claims -->\n")
after = rest.split("<!-- /claims -->")[1]
README.write_text(f"{before}<!-- claims -->\n{claims_table(ALL)}<!-- /claims -->{after}")
