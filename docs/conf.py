"""The site: Sphinx with MyST-NB and the PyData theme; `make site` builds it (docs/development/site.md)."""

import os
import re
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import coadjoint

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

import inventories

project = "coadjoint"
author = "The coadjoint developers"
version = release = coadjoint.__version__
copyright = author

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.intersphinx",
    "sphinx.ext.mathjax",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinxcontrib.bibtex",
    "benchmark_pages",
    "docstrings",
    "gallery_pages",
    "notebooks",
    "paper_pages",
    "reference_pages",
]
exclude_patterns = [
    "_ext",
    "_static",
    "_templates",
    "generated/files",
    "generated/inventories",
    "generated/doctrees",
]

# Pages. The pages of docs/ are those of the repository too, with its ```math and $…$.
myst_enable_extensions = ["amsmath", "attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_fence_as_directive = ["math"]
myst_heading_anchors = 3
myst_update_mathjax = False
suppress_warnings = ["myst-nb.lexer"]  # of notebooks that are not run

os.environ["COADJOINT_RESULTS"] = str(HERE.parent / "benchmarks" / "results")  # for pages that show what was recorded

# Notebooks run when the site is built, in the environment that builds it. While one writes: COADJOINT_SITE_QUICK=1
# leaves them out, COADJOINT_SITE_CACHE=folder runs those that have changed.
nb_execution_cache_path = os.environ.get("COADJOINT_SITE_CACHE", "")
nb_execution_mode = "cache" if nb_execution_cache_path else "force"
if os.environ.get("COADJOINT_SITE_QUICK"):
    nb_execution_mode = "off"
nb_execution_raise_on_error = True
nb_execution_timeout = 600  # a cell takes seconds; a busy machine may take its time
nb_execution_in_temp = True
nb_merge_streams = True

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
add_module_names = False
toc_object_entries = False

intersphinx_mapping = inventories.write(HERE / "generated" / "inventories")

bibtex_bibfiles = ["references.bib"]
bibtex_reference_style = "author_year"

html_theme = "pydata_sphinx_theme"
html_title = "coadjoint"
html_static_path = ["_static"]
html_css_files = ["site.css"]
templates_path = ["_templates"]
html_copy_source = False
html_show_sourcelink = False
html_favicon = "_static/logo.svg"
html_extra_path = [str(path) for path in [HERE / "generated" / "files"] if path.is_dir()]
html_context = {"default_mode": "auto"}
html_theme_options = {
    "logo": {"text": "coadjoint", "image_light": "_static/logo.svg", "image_dark": "_static/logo.svg"},
    "navbar_align": "left",
    "header_links_before_dropdown": 8,
    "show_prev_next": True,
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc", "notebook"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}

# MathJax is part of a package, so that pages load nothing from the network.
mathjax_path = "mathjax/tex-chtml.js"
_MATHJAX = Path((find_spec("sphinx-mathjax-offline") or sys.exit("sphinx-mathjax-offline is missing")).origin).parent


def _copy_mathjax(app: Any, error: Exception | None) -> None:
    source, target = _MATHJAX / "static" / "mathjax", Path(app.outdir) / "_static" / "mathjax"
    if error is None and app.builder.format == "html":
        target.mkdir(parents=True, exist_ok=True)
        shutil.copy(source / "tex-chtml.js", target)
        shutil.copytree(source / "output", target / "output", dirs_exist_ok=True)


# Files of the repository's root that are pages of the site too.
_ROOT_FILES = {
    "development/conduct": "CODE_OF_CONDUCT.md",
    "development/contributing": "CONTRIBUTING.md",
    "development/changelog": "CHANGELOG.md",
}
_LINKS = {
    "](docs/references.bib)": "](../reference/bibliography.md)",
    "](docs/": "](../",
    "](CHANGELOG.md)": "](changelog.md)",
    "](CONTRIBUTING.md)": "](contributing.md)",
    "](README.md)": "](../index.md)",
}


def _mend_source(app: Any, docname: str, source: list[str]) -> None:
    """Insert the files of the root; on the site, link recorded results and references to their pages."""
    if docname in _ROOT_FILES:
        source[0] = (HERE.parent / _ROOT_FILES[docname]).read_text(encoding="utf-8")
        for here, there in _LINKS.items():
            source[0] = source[0].replace(here, there)
    else:
        source[0] = re.sub(r"\]\([./]*benchmarks/results/(cpu|gpu)\.md\)", "](/reference/results.md)", source[0])
        source[0] = re.sub(r"\]\([./]*references\.bib\)", "](/reference/bibliography.md)", source[0])


def setup(app: Any) -> None:
    """What is particular to this site."""
    app.connect("source-read", _mend_source)
    app.connect("build-finished", _copy_mathjax)
