"""Objects as text."""

import html
from typing import Any


def as_html(x: Any) -> str:
    """Return the lines of an object as HTML for a notebook, with the names of the rows in bold."""
    head, *rows = (html.escape(line) for line in repr(x).splitlines())
    marked = [f"  <b>{row[2:12]}</b>{row[12:]}" if row[2:12].strip() else row for row in rows]
    return "<pre>" + "\n".join([f"<b>{head}</b>", *marked]) + "</pre>"
