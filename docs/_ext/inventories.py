"""Links into the documentation of Python, NumPy, JAX, xarray and Matplotlib, without asking them for anything.

Intersphinx would load each project's whole inventory from the network. The types that our signatures name are few: they
stand here, and are written as inventories of its own format.
"""

import zlib
from pathlib import Path

PROJECTS = {
    "python": "https://docs.python.org/3/",
    "numpy": "https://numpy.org/doc/stable/",
    "jax": "https://docs.jax.dev/en/latest/",
    "xarray": "https://docs.xarray.dev/en/stable/",
    "matplotlib": "https://matplotlib.org/stable/",
}
_ABC = {f"collections.abc.{n}": f"library/collections.abc.html#collections.abc.{n}" for n in
        ("Callable", "Iterator", "Mapping", "Sequence")}  # fmt: skip
_JAX = "_autosummary/jax.Array.html#jax.Array"
# What a signature may name, and where it is described; JAX's array goes by the names of the modules that hold it, too.
NAMES = {
    "python": {
        **_ABC,
        "typing.Any": "library/typing.html#typing.Any",
        "typing.Protocol": "library/typing.html#typing.Protocol",
        "typing.NamedTuple": "library/typing.html#typing.NamedTuple",
        "pathlib.Path": "library/pathlib.html#pathlib.Path",
        **{n: f"library/exceptions.html#{n}" for n in ("RuntimeError", "ValueError", "TypeError")},
        **{n: f"library/stdtypes.html#{n}" for n in ("str", "dict", "list", "tuple")},
        **{n: f"library/functions.html#{n}" for n in ("bool", "float", "int", "object")},
    },
    "numpy": {"numpy.ndarray": "reference/generated/numpy.ndarray.html#numpy.ndarray"},
    "jax": {"jax.Array": _JAX, "jax.jaxlib._jax.Array": _JAX, "jaxlib._jax.Array": _JAX},
    "xarray": {f"xarray.{n}": f"generated/xarray.{n}.html#xarray.{n}" for n in ("Dataset", "DataArray")},
    "matplotlib": {"matplotlib.figure.Figure": "api/figure_api.html#matplotlib.figure.Figure"},
}


def write(folder: Path) -> dict[str, tuple[str, str]]:
    """The inventories as files, and what `intersphinx_mapping` is with them."""
    folder.mkdir(parents=True, exist_ok=True)
    for project, names in NAMES.items():
        head = f"# Sphinx inventory version 2\n# Project: {project}\n# Version: \n"
        head += "# The remainder of this file is compressed using zlib.\n"
        rows = "".join(f"{name} py:class 1 {uri} -\n" for name, uri in sorted(names.items()))
        (folder / f"{project}.inv").write_bytes(head.encode() + zlib.compress(rows.encode()))
    return {project: (url, str(folder / f"{project}.inv")) for project, url in PROJECTS.items()}
