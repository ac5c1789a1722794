"""Things to turn in a browser, and the page that they stand on, which needs no network: all that it is, is in it.

`Scene` is a set of curves in space to turn and zoom, `Top` a body that moves as its attitude says, `Globe` a field on a
sphere along time.
"""

import base64
import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Curve:
    """A curve of a scene."""

    name: str
    points: np.ndarray  # (n, 3)
    dashed: bool = False


@dataclass(frozen=True)
class Scene:
    """Curves in space along common times, to turn and zoom; `sphere` is the radius of a shaded sphere."""

    title: str
    t: np.ndarray
    curves: Sequence[Curve]
    sphere: float | None = None


@dataclass(frozen=True)
class Top:
    """A top that moves: unit quaternions (w, x, y, z) from body to space along t, and gravity's direction in space."""

    title: str
    t: np.ndarray
    quaternions: np.ndarray
    gravity: Sequence[float]


@dataclass(frozen=True)
class Globe:
    """A field on the sphere: `values` (times, N, 2N), from north to south and from longitude 0 on; and what it is."""

    title: str
    t: np.ndarray
    values: np.ndarray
    name: str


Stage = Scene | Top | Globe

# Of each kind: its name, what to do with it, and whether it moves.
_TURN = "Drag to turn, wheel to zoom, double-click to go back"
_KINDS: dict[type, tuple[str, str, bool]] = {
    Scene: ("scene", f"{_TURN}; hover for values.", False),
    Top: ("top", f"{_TURN}. The grey line is gravity's, the coloured one the path of the axis.", True),
    Globe: ("globe", f"{_TURN}; hover for values.", True),
}
_FILM = (
    "<div class='controls'><button type='button' class='play'>pause</button>"
    "<input type='range' min='0' value='0' aria-label='time'><output></output></div>"
)
THEME = "<button id='theme' type='button' hidden>dark</button>"


def figure(stage: Stage, name: str) -> str:
    """Where a stage stands on the page; `name` is that of its data."""
    kind, how, moves = _KINDS[type(stage)]
    return (
        f"<figure class='stage' data-kind='{kind}' data-scene='{name}'>"
        f"<canvas tabindex='0' role='img' aria-label='{text(stage.title)}'></canvas>"
        f"<div class='tip' hidden></div>{_FILM if moves else ''}"
        f"<figcaption>{text(stage.title)} <span class='how'>{how}</span></figcaption></figure>"
    )


def page(title: str, lead: str, stages: Sequence[Stage]) -> str:
    """A page that has nothing but stages."""
    named = {f"stage-{i}": stage for i, stage in enumerate(stages)}
    figures = "".join(figure(stage, name) for name, stage in named.items())
    head = f"<header><h1>{text(title)}</h1><p class='lead'>{text(lead)}</p>{THEME}</header>"
    return document(title, f"{head}<main><div class='gallery'>{figures}</div></main>", named)


def document(title: str, body: str, stages: Mapping[str, Stage]) -> str:
    """The whole page: `body`, in which the stages have their figures."""
    data = json.dumps({name: _encode(stage) for name, stage in stages.items()}, separators=(",", ":"))
    scripts = ("space.js", "film.js", "scene.js", "top.js", "globe.js", "page.js")
    return _TEMPLATE.format(
        title=text(title),
        css=_asset("page.css"),
        body=body,
        data=data.replace("</", "<\\/"),
        js="\n".join(_asset(name) for name in scripts),
    )


_TEMPLATE = """<!doctype html>
<html lang="en" data-theme="light">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>
{css}
</style>
</head>
<body>
{body}
<script type="application/json" id="scenes">{data}</script>
<script>
{js}
</script>
</body>
</html>
"""


def _encode(stage: Stage) -> dict[str, Any]:
    if isinstance(stage, Top):
        return {"t": _floats(stage.t), "q": _floats(stage.quaternions), "gravity": [float(x) for x in stage.gravity]}
    if isinstance(stage, Globe):
        return _encode_globe(stage)
    curves = [{"name": c.name, "dashed": c.dashed, "points": _floats(c.points)} for c in stage.curves]
    return {"t": _floats(stage.t), "curves": curves, "sphere": stage.sphere}


def _encode_globe(globe: Globe) -> dict[str, Any]:
    """One byte a value, between minus the largest and the largest, and the colours of all bytes."""
    from matplotlib import colormaps

    size = float(np.abs(globe.values).max()) or 1.0
    values = np.rint(127.5 * (globe.values / size + 1)).astype(np.uint8)
    colours = np.rint(255 * colormaps["RdBu_r"](np.arange(256) / 255)[:, :3]).astype(np.uint8)
    out = {"t": _floats(globe.t), "rows": globe.values.shape[1], "size": size, "name": globe.name}
    return out | {"values": _bytes(values), "colours": _bytes(colours)}


def _floats(x: np.ndarray) -> str:
    """Little-endian float32, in base64."""
    return _bytes(np.ascontiguousarray(x, dtype="<f4"))


def _bytes(x: np.ndarray) -> str:
    return base64.b64encode(x.tobytes()).decode()


def _asset(name: str) -> str:
    return resources.files("coadjoint").joinpath("page", name).read_text(encoding="utf-8")


def text(x: Any) -> str:
    """Words, fit for HTML."""
    return html.escape(str(x), quote=True)
