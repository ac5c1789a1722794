"""What the pages show is what the code does: their Python blocks run, their outputs are compared."""

import doctest
import inspect
import io
import re
import sys
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType

import pytest

import coadjoint as cj

ROOT = Path(__file__).parents[2]

# Pages whose ```python blocks, or cells of a notebook, are run, in order and in one namespace a page. A ```text block
# that directly follows one is what it prints.
PAGES = ["README.md", "docs/index.md", "docs/explanation/random.md"]
PAGES += [f"docs/guides/{page}.md" for page in ("backends", "choose", "control", "drivers", "events")]
PAGES += ["docs/explanation/gradients.md", "docs/guides/uncertainties.md"]
PAGES += [f"docs/guides/{page}.md" for page in ("expectation", "performance", "stores")]
PAGES += [f"docs/guides/{page}.md" for page in ("temperature", "from/quflow", "from/qutip", "from/sunny")]
PAGES += [f"docs/reference/{page}.md" for page in ("examples", "index", "methods")]
PAGES += [f"docs/development/extend/{page}.md" for page in ("algebra", "backend", "integrator", "model")]

SLOW = [f"docs/guides/{page}.md" for page in ("assimilation", "attitude", "calibration", "fluids", "spins")]
SLOW += ["docs/tutorials/learning.md"]  # run by `make verify`

BLOCK = re.compile(r"^```(?P<language>\{code-cell\}|\w*)[^\n]*\n(?P<body>.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)


def examples(text):
    """The line, the code and the expected output (or None) of each Python block."""
    blocks = list(BLOCK.finditer(text))
    for block, following in zip(blocks, [*blocks[1:], None], strict=True):
        if block["language"] in ("python", "{code-cell}"):
            shown = (
                following is not None
                and following["language"] == "text"
                and not text[block.end() : following.start()].strip()
            )
            line = text.count("\n", 0, block.start("body")) + 1
            yield line, block["body"], following["body"] if shown else None


def tidy(output):
    return "\n".join(line.rstrip() for line in output.rstrip().splitlines())


def run_page(name, text, filename):
    """Run a page's examples in the module `name`; fail where one prints something else than shown."""
    namespace = sys.modules[name].__dict__
    for line, code, expected in examples(text):
        padded = "\n" * (line - 1) + code  # a traceback then shows the page's own lines
        with redirect_stdout(io.StringIO()) as printed:
            exec(compile(padded, filename, "exec"), namespace)
        if expected is not None:
            assert tidy(printed.getvalue()) == tidy(expected), f"{filename}, line {line}: prints otherwise"


@pytest.fixture
def module(monkeypatch, tmp_path):
    """An empty module to run in, away from the repository."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "page", ModuleType("page"))
    return "page"


@pytest.mark.parametrize("page", [*PAGES, *(pytest.param(page, marks=pytest.mark.slow) for page in SLOW)])
def test_page(page, module):
    path = ROOT / page
    assert path.is_file(), f"{page} is missing"
    text = path.read_text(encoding="utf-8")
    assert any(examples(text)), f"{page} has no Python block"
    run_page(module, text, str(path))


def with_examples():
    """The public docstrings that show a Python session."""
    found = {name: getattr(cj, name) for name in cj.__all__}
    for module in [x for x in found.values() if inspect.ismodule(x)]:
        found |= {f"{module.__name__}.{name}": x for name, x in vars(module).items() if name[0] != "_"}
    shown = {id(x): name for name, x in reversed(found.items()) if ">>> " in (inspect.getdoc(x) or "")}
    return {name: found[name] for name in sorted(shown.values()) if not inspect.ismodule(found[name])}


@pytest.mark.parametrize("name", with_examples())
def test_docstring(name, module):
    session = doctest.DocTestParser().get_doctest(inspect.getdoc(with_examples()[name]), {}, name, None, None)
    report = io.StringIO()
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(session, out=report.write)
    assert not report.getvalue(), report.getvalue()


PAGE = """\
```python
a = 1
```
Some words, so that this is no output:
```text
2
```
```python
print(a + 1)
```

```text
{}
```
"""


def test_blocks_share_a_namespace_and_outputs_are_compared(module):
    assert [(line, shown) for line, _, shown in examples(PAGE)] == [(2, None), (9, "{}\n")]
    run_page(module, PAGE.format("2  \n"), "page.md")
    with pytest.raises(AssertionError, match=r"page\.md, line 9"):
        run_page(module, PAGE.format("3"), "page.md")
