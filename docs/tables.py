"""Write the table that is made from the code into docs/reference/methods.md (`make docs`)."""

from pathlib import Path

from coadjoint.integrators import ALL, COMPOSITIONS, SPECIAL, claims_table

PAGE = Path(__file__).with_name("reference") / "methods.md"

before, rest = PAGE.read_text(encoding="utf-8").split("<!-- claims -->\n")
after = rest.split("<!-- /claims -->")[1]
table = claims_table(ALL | SPECIAL | COMPOSITIONS)
PAGE.write_text(f"{before}<!-- claims -->\n{table}<!-- /claims -->{after}", encoding="utf-8")
