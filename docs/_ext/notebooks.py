"""Each page that is a notebook can be downloaded as one (.ipynb, without outputs)."""

from pathlib import Path
from typing import Any

import nbformat
from myst_nb.core.read import is_myst_markdown_notebook, read_myst_markdown_notebook
from myst_parser.config.main import MdParserConfig


def _write(app: Any, error: Exception | None) -> None:
    if error is not None or app.builder.format != "html":
        return
    for name in app.env.found_docs:
        page = Path(app.env.doc2path(name))
        if _is_notebook(page):
            target = Path(app.outdir) / f"{name}.ipynb"
            notebook = read_myst_markdown_notebook(page.read_text(encoding="utf-8"), MdParserConfig())
            target.parent.mkdir(parents=True, exist_ok=True)
            nbformat.write(notebook, target)


def _is_notebook(page: Path) -> bool:
    return page.suffix == ".md" and page.is_file() and is_myst_markdown_notebook(page.read_text(encoding="utf-8"))


def _link(app: Any, pagename: str, templatename: str, context: dict, doctree: Any) -> None:
    if pagename in app.env.found_docs and _is_notebook(Path(app.env.doc2path(pagename))):
        context["notebook_file"] = f"{pagename}.ipynb"


def setup(app: Any) -> dict[str, bool]:
    """Sphinx calls this."""
    app.connect("html-page-context", _link)
    app.connect("build-finished", _write)
    return {"parallel_read_safe": True}
