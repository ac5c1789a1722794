"""The page in a real browser: no error, no request, and the widgets draw and turn by dragging."""

import os
import shutil

import numpy as np
import pytest

from coadjoint.fluids import Sphere, index
from coadjoint.report.widgets import Globe
from coadjoint.report.widgets import page as page_of

CHROMIUM = os.environ.get("CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"))), None
)
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
FLAGS += ["--disable-component-update", "--disable-sync"]

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine (or set CHROMIUM to one)")


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    with sync_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS, headless=True)
        yield browser
        browser.close()


def opened(browser, scheme, file):
    """A page, open; what went wrong and what was asked of the network is on it."""
    context = browser.new_context(color_scheme=scheme, viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.wrong, page.requests, page.scheme = [], [], scheme
    page.on("console", lambda m: page.wrong.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda e: page.wrong.append(str(e)))
    page.on("request", lambda r: page.requests.append(r.url))
    page.goto(file.as_uri())
    page.wait_for_function("document.querySelectorAll('canvas').length > 0")
    yield page
    context.close()


@pytest.fixture(params=["light", "dark"])
def page(request, browser, reproduction):
    yield from opened(browser, request.param, reproduction[0] / "index.html")


@pytest.fixture(params=["light", "dark"])
def globe(request, browser, tmp_path):
    """A field that is 1 at 90° E on the equator and −1 opposite, and turns; on a page of its own."""
    fields = np.zeros((12, 16))
    fields[:, index(1, -1)], fields[:, index(1, 1)] = np.cos(np.arange(12) / 4), np.sin(np.arange(12) / 4)
    values = np.sqrt(4 * np.pi / 3) * np.array([Sphere(4).values(c, 32) for c in fields])
    text = page_of("A globe", "Words.", [Globe("A field.", np.arange(12.0), values, "field")])
    (tmp_path / "globe.html").write_text(text, encoding="utf-8")
    yield from opened(browser, request.param, tmp_path / "globe.html")


def pixels(page, canvas):
    return page.evaluate("c => c.toDataURL()", canvas.element_handle())


def inked(page, canvas):
    """The share of pixels that something was drawn on."""
    count = "c => { const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; let n = 0;"
    count += " for (let i = 3; i < d.length; i += 4) n += d[i] > 0; return 4 * n / d.length; }"
    return page.evaluate(count, canvas.element_handle())


def drag(page, canvas, dx, dy):
    box = canvas.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + dx, y + dy, steps=4)
    page.mouse.up()
    page.mouse.move(5, 5)
    page.wait_for_timeout(120)


@pytest.mark.parametrize("page", ["light"], indirect=True)
def test_no_error_and_no_request(page, reproduction):
    page.wait_for_timeout(300)
    assert page.wrong == []
    outside = [url for url in page.requests if not url.startswith(("data:", "file:"))]
    assert outside == []
    assert [url for url in page.requests if url.startswith("file:")] == [(reproduction[0] / "index.html").as_uri()]


def test_the_theme_follows_the_reader(page):
    assert page.evaluate("document.documentElement.dataset.theme") == page.scheme
    page.click("#theme")
    assert page.evaluate("document.documentElement.dataset.theme") != page.scheme
    shown = page.evaluate("[...document.querySelectorAll('figure.picture')].map(f => [...f.querySelectorAll('img')]"
                          ".filter(i => i.offsetParent !== null).length)")  # fmt: skip
    assert set(shown) == {1}
    assert page.wrong == []


@pytest.mark.parametrize("page", ["light"], indirect=True)
def test_pictures_and_table_are_there(page):
    assert page.evaluate("[...document.images].every(i => i.complete && i.naturalWidth > 0)")
    assert page.locator("#claims tbody tr").count() == 6
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


@pytest.mark.parametrize("page", ["light"], indirect=True)
def test_trajectories_draw_turn_zoom_and_tell_values(page):
    canvases = page.locator("figure.widget[data-kind=scene] canvas")
    assert canvases.count() == 3
    for i in range(canvases.count()):
        canvas = canvases.nth(i)
        canvas.scroll_into_view_if_needed()
        page.mouse.move(5, 5)
        page.wait_for_timeout(120)
        assert inked(page, canvas) > 0.02
        first = pixels(page, canvas)
        drag(page, canvas, 90, 40)
        turned = pixels(page, canvas)
        assert turned != first
        canvas.hover()
        page.mouse.wheel(0, -400)
        page.wait_for_timeout(120)
        assert pixels(page, canvas) != turned
        canvas.dblclick()
        page.mouse.move(5, 5)
        page.wait_for_timeout(120)
        assert pixels(page, canvas) == first
    assert _hover(page, canvases.nth(0)).startswith(("γ", "π"))
    assert page.wrong == []


def _hover(page, canvas):
    """Move over the canvas until a value shows."""
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    for k in range(60):
        page.mouse.move(box["x"] + box["width"] * (0.2 + 0.01 * k), box["y"] + box["height"] * 0.5)
        page.wait_for_timeout(30)
        tip = canvas.locator("xpath=../div[@class='tip']")
        if tip.is_visible() and "t = " in tip.inner_text():
            return tip.inner_text()
    return ""


@pytest.mark.parametrize("page", ["light"], indirect=True)
def test_the_top_moves_and_stops(page):
    figure = page.locator("figure.widget[data-kind=top]")
    figure.scroll_into_view_if_needed()
    canvas = figure.locator("canvas")
    page.wait_for_timeout(300)
    assert inked(page, canvas) > 0.01
    before = pixels(page, canvas)
    page.wait_for_timeout(500)
    assert pixels(page, canvas) != before
    figure.locator("button.play").click()
    page.wait_for_timeout(200)
    still = pixels(page, canvas)
    page.wait_for_timeout(300)
    assert pixels(page, canvas) == still
    drag(page, canvas, 60, 0)
    assert pixels(page, canvas) != still
    assert page.wrong == []


@pytest.mark.parametrize("page", ["light"], indirect=True)
def test_it_prints(page):
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert len(page.pdf(format="A4")) > 10_000
    assert page.wrong == []


@pytest.mark.parametrize("globe", ["light"], indirect=True)
def test_the_globe_turns_moves_and_tells_values(globe):
    canvas = globe.locator("figure.widget[data-kind=globe] canvas")
    globe.locator("button.play").click()
    globe.locator(".controls input").fill("0")
    globe.wait_for_timeout(200)
    first = pixels(globe, canvas)
    assert inked(globe, canvas) > 0.2
    drag(globe, canvas, 90, 40)
    turned = pixels(globe, canvas)
    canvas.dblclick()
    globe.mouse.move(5, 5)
    globe.wait_for_timeout(120)
    assert turned != first and pixels(globe, canvas) == first
    globe.locator(".controls input").fill("6")
    globe.wait_for_timeout(200)
    assert pixels(globe, canvas) != first
    assert globe.wrong == [] and [u for u in globe.requests if not u.startswith(("data:", "file:"))] == []


def test_the_globe_shows_what_is_there(globe):
    """Seen from above, the longitude under the pointer grows to the right, and the value is that of the field."""
    canvas = globe.locator("canvas")
    globe.locator("button.play").click()
    globe.locator(".controls input").fill("0")
    box = canvas.bounding_box()
    told = []
    for x in (0.4, 0.5, 0.6):
        globe.mouse.move(box["x"] + x * box["width"], box["y"] + 0.5 * box["height"])
        globe.wait_for_timeout(120)
        where, value = globe.locator(".tip").inner_text().splitlines()
        latitude, longitude = (float(word.split("°")[0]) for word in where.split(", "))
        expected = np.cos(np.radians(latitude)) * np.sin(np.radians(longitude))
        assert "N" in where and abs(float(value.split()[-1]) - expected) < 0.03
        told.append(longitude)
    assert told[0] < told[1] < told[2]
