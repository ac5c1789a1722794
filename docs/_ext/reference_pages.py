"""The reference, written from the code: every public name, the command, the experiment file (`generated/reference`)."""

import inspect
import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from types import FunctionType
from typing import Any, get_args, get_type_hints

import coadjoint as cj
import coadjoint.extend

HERE = Path(__file__).parents[1]

# Page, title, and the modules whose public names it has. What fits nowhere is on the last page.
PAGES = {
    "systems": (
        "Systems, noise, control, friction, heat",
        (
            *("coadjoint.systems", "coadjoint.noises", "coadjoint.controls", "coadjoint.variations"),
            *("coadjoint.baths", "coadjoint.areas", "coadjoint.numerics.quaternions"),
        ),
    ),
    "algebras": ("Lie algebras", ("coadjoint.algebras",)),
    "running": ("Running: solve, ensemble, results, statistics", ("coadjoint.runtime", "coadjoint.report")),
    "integrators": ("Integrators", ("coadjoint.integrators", "coadjoint.numerics.newton_iteration")),
    "drivers": ("Drivers: the paths of noise", ("coadjoint.drivers",)),
    "stores": ("Stores and experiments", ("coadjoint.store", "coadjoint.experiments")),
    "study": ("Convergence studies", ("coadjoint.study",)),
    "data": ("Data: calibration, forecasts, filters", ()),
    "models": ("Models", ()),
    "more": ("Other names", ()),
}


def public() -> dict[str, list[str]]:
    """The full names on each page: all of `coadjoint.__all__`; what a module in it holds has a page of its own."""
    pages: dict[str, list[str]] = {page: [] for page in PAGES}
    for name in cj.__all__:
        found = getattr(cj, name)
        if inspect.ismodule(found):
            pages.setdefault(name, []).extend(f"coadjoint.{name}.{inner}" for inner in _inside(found))
        else:
            pages[_page(found.__module__)].append(f"coadjoint.{name}")
    return {page: sorted(names, key=str.lower) for page, names in pages.items() if names}


def _inside(module: Any) -> list[str]:
    """The public names of a module of ours."""
    ours = {n: x for n, x in vars(module).items() if str(getattr(x, "__module__", "")).startswith("coadjoint")}
    named = [n for n, x in ours.items() if (inspect.isfunction(x) or inspect.isclass(x)) and not n.startswith("_")]
    return list(getattr(module, "__all__", named))


def _page(module: str) -> str:
    found = [p for p, (_, modules) in PAGES.items() if any(module == m or module.startswith(m + ".") for m in modules)]
    return found[0] if found else "more"


def examples() -> dict[str, str]:
    """The examples of docs/reference/examples.md by name; the tests run that page."""
    text = (HERE / "reference" / "examples.md").read_text(encoding="utf-8")
    found = re.findall(r"^## `([\w.]+)`\n+(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return {f"coadjoint.{name}": body for name, body in found}


def get(name: str) -> Any:
    """The object of a full name."""
    found: Any = cj
    for word in name.split(".")[1:]:
        found = getattr(found, word)
    return found


def members(found: Any) -> list[str]:
    """The public methods and properties of a class, without those of its interface, which are documented there."""
    ours = [c for c in found.__mro__ if c.__module__.startswith("coadjoint")]
    shown = [x for x in (*vars(cj).values(), *vars(cj.extend).values()) if inspect.isclass(x)]
    interfaces = [c for c in ours[1:] if c in shown or c.__module__ == "coadjoint.integrators.base"]
    own = [c for c in ours if not any(issubclass(base, c) for base in interfaces)]
    hidden = {name for c in interfaces for name in vars(c)}
    if hasattr(found, "merge") and found is not cj.Reducer:
        hidden |= {"start", "observe", *vars(cj.Reducer)}
    named = {name: x for c in own for name, x in vars(c).items() if name[0] != "_" and name not in hidden}
    kinds = property | staticmethod | classmethod | FunctionType
    return [name for name, x in named.items() if isinstance(inspect.unwrap(x), kinds)]


def _entry(name: str, example: str | None) -> Iterator[str]:
    kind = "class" if inspect.isclass(get(name)) else "function"
    yield f".. auto{kind}:: {name}"
    if kind == "class":
        yield f"   :members: {', '.join(members(get(name)))}" if members(get(name)) else ""
        yield "   :show-inheritance:" if not issubclass(get(name), Exception) else ""
    yield ""
    for language, body in re.findall(r"^```(\w+)\n(.*?)^```", example or "", re.MULTILINE | re.DOTALL):
        yield "Example::\n" if language == "python" else "It prints::\n"
        yield from ("   " + line for line in body.splitlines())
        yield ""


def _reference(page: str, names: list[str], shown: dict[str, str]) -> str:
    title = PAGES[page][0] if page in PAGES else page.capitalize()
    lines = [title, "=" * len(title), "", ".. py:currentmodule:: coadjoint", ""]
    for name in names:
        short = name.removeprefix("coadjoint.")
        lines += [short, "-" * len(short), "", *_entry(name, shown.get(name))]
    return "\n".join(lines)


def _command() -> str:
    """The command with all of its options, from Typer."""
    from typer.main import get_command

    from coadjoint.command.cli import app

    top: Any = get_command(app)
    functions = {c.name or c.callback.__name__: c.callback for c in app.registered_commands if c.callback}
    lines = ["# The command line", "", top.help or "", ""]
    for name, command in top.commands.items():
        lines += [f"## coadjoint {name}", "", command.help or "", "", "| | | |", "|---|---|---|"]
        for p in command.params:
            if p.name == "help":
                continue
            words = p.metavar or p.name.upper() if p.param_type_name == "argument" else ", ".join(p.opts)
            choices = _choices(functions[name], p.name)
            about = (p.help or "").replace("|", "\\|") + (f" One of: {', '.join(choices)}." if choices else "")
            default = "required" if p.required else _default(p)
            lines.append(f"| `{words}` | {about} | {default} |")
        lines.append("")
    return "\n".join(lines)


def _choices(function: Any, name: str) -> list[str]:
    """The values of an argument whose type is an enumeration, or that and None."""
    kind = get_type_hints(function).get(name)
    found = [k for k in (kind, *get_args(kind)) if inspect.isclass(k) and issubclass(k, Enum)]
    return [str(choice.value) for choice in found[0]] if found else []


def _word(value: Any) -> str:
    return str(getattr(value, "value", value))


def _default(p: Any) -> str:
    value = p.default
    if value in (None, "", (), []) or getattr(p, "is_flag", False):
        return ""
    many = value if isinstance(value, (list, tuple)) else [value]
    return "default " + " ".join(f"`{_word(v)}`" for v in many)


def _schema() -> str:
    """The experiment file, key by key."""
    from coadjoint.command.model_text import about_model
    from coadjoint.experiments.bath import ABOUT_BATH
    from coadjoint.experiments.schema import ABOUT_RUN, FIXED, known_integrators, known_models, known_reducers

    lines = ["# The experiment file", "", (HERE / "reference" / "schema_intro.txt").read_text(encoding="utf-8")]
    lines += ["## `[run]`", "", "| key | |", "|---|---|", *(f"| `{k}` | {v} |" for k, v in ABOUT_RUN.items()), ""]
    lines += [
        f"Integrators: {', '.join(f'`{n}`' for n in known_integrators())}; options are those of the reference.",
        "",
    ]
    lines += [f"Statistics (`reduce`): {', '.join(f'`{n}`' for n in known_reducers())}.", ""]
    lines += ["## `[bath]`", "", "| key | |", "|---|---|", *(f"| `{k}` | {v} |" for k, v in ABOUT_BATH.items()), ""]
    lines += ["## `[sweep]`", "", "Any `model.…`, `run.…` or `bath.…` with a list of values, or with a range"]
    lines += ["`{ start = …, stop = …, count = …, log = true }`; all combinations go into one store."]
    lines += [f"Not these: {', '.join(f'`{f}`' for f in FIXED)}.", "", "## `[model]`", ""]
    for model in known_models():
        first, parameters = about_model(model)
        lines += [
            f"### `{model}`",
            "",
            first.replace("|", "\\|").replace("*", "\\*"),
            "",
            "| key | default |",
            "|---|---|",
        ]
        lines += [f"| `{k}` | {f'`{p.value}`' if p.value else 'chosen by the model'} |" for k, p in parameters.items()]
        lines.append("")
    return "\n".join(lines)


def write(folder: Path) -> None:
    """All pages; files that have not changed are left alone, so that Sphinx reads again only what has."""
    shown = examples()
    pages = {f"{page}.rst": _reference(page, names, shown) for page, names in public().items()}
    pages |= {"command.md": _command(), "experiment.md": _schema()}
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        if old.name not in pages:
            old.unlink()
    for name, text in pages.items():
        path = folder / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def setup(app: Any) -> dict[str, bool]:
    """Sphinx calls this."""
    app.connect("builder-inited", lambda app: write(HERE / "generated" / "reference"))
    return {"parallel_read_safe": True}
