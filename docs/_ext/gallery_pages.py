"""The gallery: each script of docs/gallery is run, and has a page with its picture and its lines."""

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parents[1]
SCRIPTS = sorted((HERE / "gallery").glob("*.py"))
PICTURES = HERE / "generated" / "gallery"

# The order of the page; what is not named here comes last.
GROUPS = {
    "Tops and bodies": ("top_", "body_", "vehicle"),
    "Spins, light": ("spin_", "maxwell_bloch"),
    "Fluids": ("fluid_",),
    "Temperature": ("gibbs", "langevin"),
    "Methods": ("orders", "methods_", "shared_path", "sensitivity", "misfit", "learned_energy"),
    "More": ("",),
}


class Script(NamedTuple):
    """A script: its title, its words, its lines."""

    name: str
    title: str
    words: str
    code: str


def read(path: Path) -> Script:
    """The docstring's first line is the title, the rest are words."""
    text = path.read_text(encoding="utf-8")
    module = ast.parse(text)
    title, _, words = (ast.get_docstring(module) or "").partition("\n")
    code = "\n".join(text.splitlines()[module.body[0].end_lineno :]).strip("\n")
    return Script(path.stem, title.removesuffix("."), words.strip(), code)


def _run(stale: list[Path]) -> None:
    """Two processes, so that two cores are busy while one compiles."""
    runner = str(Path(__file__).with_name("gallery_run.py"))
    workers = [
        subprocess.Popen([sys.executable, runner, str(PICTURES), *map(str, stale[k::2])]) for k in (0, 1) if stale[k::2]
    ]
    if any([worker.wait() for worker in workers]):
        raise RuntimeError("a script of the gallery failed; its error is above")


def _write(app: Any) -> None:
    from gallery_run import digest

    PICTURES.mkdir(parents=True, exist_ok=True)
    if not os.environ.get("COADJOINT_SITE_QUICK"):
        kept = os.environ.get("COADJOINT_SITE_CACHE")
        stamps = {s: PICTURES / f"{s.stem}.sha256" for s in SCRIPTS}
        _run([s for s, t in stamps.items() if not (kept and t.is_file() and t.read_text() == digest(s))])
    left, lines = [read(path) for path in SCRIPTS], [(HERE / "gallery" / "intro.txt").read_text(encoding="utf-8")]
    for group, starts in GROUPS.items():
        chosen = [s for s in left if s.name.startswith(starts)]
        left = [s for s in left if s not in chosen]
        if chosen:
            lines += [f"## {group}\n", "::::{grid} 1 2 3 3\n:gutter: 2\n", *map(_card, chosen), "::::\n"]
    names = "\n".join(path.stem for path in SCRIPTS)
    studies = "\n".join(f"../../gallery/{name}" for name in ("case_studies", "calibrated_flow", "satellite"))
    lines.append(f"```{{toctree}}\n:hidden:\n\n{studies}\n{names}\n```\n")
    _put("index.md", "\n".join(lines))
    for path in SCRIPTS:
        s = read(path)
        _put(f"{s.name}.md", f"# {s.title}\n\n{s.words}\n\n{_image(s)}\n```python\n{s.code}\n```\n")


def _file(s: Script) -> str:
    found = [f"{s.name}.{kind}" for kind in ("gif", "png") if (PICTURES / f"{s.name}.{kind}").is_file()]
    return found[0] if found else ""


def _image(s: Script) -> str:
    picture = f"```{{image}} {_file(s)}\n:alt: {s.title}\n```\n"
    return f":::{{container}} picture\n{picture}:::\n" if _file(s) else ""


def _card(s: Script) -> str:
    picture = f":img-top: {_file(s)}\n:img-alt: {s.title}\n" if _file(s) else ""
    return f":::{{grid-item-card}} {s.title}\n:link: {s.name}\n:link-type: doc\n{picture}:::\n"


def _put(name: str, text: str) -> None:
    path = PICTURES / name
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def setup(app: Any) -> dict[str, bool]:
    """Sphinx calls this."""
    app.connect("builder-inited", _write)
    return {"parallel_read_safe": True}
