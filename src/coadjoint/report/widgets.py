"""Interactive widgets for a browser, and a self-contained HTML page for them that needs no network.

`Scene` shows curves in space, `Top` a moving body with a given attitude, `Globe` a field on a sphere along time.
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
    """A curve of a scene, with points of shape (n, 3)."""

    name: str
    points: np.ndarray
    dashed: bool = False


@dataclass(frozen=True)
class Scene:
    """Curves in space at common times; `sphere` is the radius of a shaded sphere."""

    title: str
    t: np.ndarray
    curves: Sequence[Curve]
    sphere: float | None = None


@dataclass(frozen=True)
class Top:
    """A moving top: unit quaternions (w, x, y, z) from body to space, and the direction of gravity in space."""

    title: str
    t: np.ndarray
    quaternions: np.ndarray
    gravity: Sequence[float]


@dataclass(frozen=True)
class Globe:
    """A field on the sphere: `values` (times, N, 2N), from north to south and eastwards from longitude 0."""

    title: str
    t: np.ndarray
    values: np.ndarray
    name: str


Widget = Scene | Top | Globe

# For each widget: its name in the page, instructions, and whether it is animated.
_TURN = "Drag to turn, wheel to zoom, double-click to reset"
_KINDS: dict[type, tuple[str, str, bool]] = {
    Scene: ("scene", f"{_TURN}; hover for values.", False),
    Top: ("top", f"{_TURN}. The grey line is the direction of gravity, the coloured line the path of the axis.", True),
    Globe: ("globe", f"{_TURN}; hover for values.", True),
}
_FILM = (
    "<div class='controls'><button type='button' class='play'>pause</button>"
    "<input type='range' min='0' value='0' aria-label='time'><output></output></div>"
)
THEME = "<button id='theme' type='button' hidden>dark</button>"


def figure(widget: Widget, name: str) -> str:
    """The HTML figure of a widget; `name` is the name of its data in the page."""
    kind, how, moves = _KINDS[type(widget)]
    return (
        f"<figure class='widget' data-kind='{kind}' data-scene='{name}'>"
        f"<canvas tabindex='0' role='img' aria-label='{text(widget.title)}'></canvas>"
        f"<div class='tip' hidden></div>{_FILM if moves else ''}"
        f"<figcaption>{text(widget.title)} <span class='how'>{how}</span></figcaption></figure>"
    )


def page(title: str, lead: str, widgets: Sequence[Widget]) -> str:
    """An HTML page with widgets."""
    named = {f"widget-{i}": widget for i, widget in enumerate(widgets)}
    figures = "".join(figure(widget, name) for name, widget in named.items())
    head = f"<header><h1>{text(title)}</h1><p class='lead'>{text(lead)}</p>{THEME}</header>"
    return document(title, f"{head}<main><div class='gallery'>{figures}</div></main>", named)


def document(title: str, body: str, widgets: Mapping[str, Widget]) -> str:
    """The whole page: `body`, which contains the figures of the widgets, with styles, scripts and data."""
    data = json.dumps({name: _encode(widget) for name, widget in widgets.items()}, separators=(",", ":"))
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


def _encode(widget: Widget) -> dict[str, Any]:
    if isinstance(widget, Top):
        return {"t": _floats(widget.t), "q": _floats(widget.quaternions), "gravity": [float(x) for x in widget.gravity]}
    if isinstance(widget, Globe):
        return _encode_globe(widget)
    curves = [{"name": c.name, "dashed": c.dashed, "points": _floats(c.points)} for c in widget.curves]
    return {"t": _floats(widget.t), "curves": curves, "sphere": widget.sphere}


def _encode_globe(globe: Globe) -> dict[str, Any]:
    """One byte per value, between minus and plus the largest magnitude, and the colours of all bytes."""
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
    """Text with HTML characters escaped."""
    return html.escape(str(x), quote=True)
