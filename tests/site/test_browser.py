"""The built site in a real browser (`make site`, then `make site-test`)."""

import functools
import os
import shutil
import threading
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlparse

import pytest

SITE = Path(__file__).parents[2] / "site"
CHROMIUM = os.environ.get("CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"))), None
)
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
FLAGS += ["--disable-component-update", "--disable-sync"]

pytestmark = [
    pytest.mark.site,
    pytest.mark.skipif(not (SITE / "index.html").is_file(), reason="there is no site: `make site` builds it"),
]
PAGES = sorted(str(p.relative_to(SITE)) for p in SITE.rglob("*.html") if "_static" not in p.parts)
READ = [p for p in PAGES if not p.startswith(("reproduction", "globe")) and p not in ("search.html", "genindex.html")]


class Links(HTMLParser):
    """What a page links to and shows, and the anchors that it has."""

    def __init__(self, text):
        super().__init__()
        self.links, self.sources, self.anchors = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        a = dict(attrs)
        self.anchors |= {a[key] for key in ("id", "name") if a.get(key)}
        if tag in ("a", "link") and a.get("href"):
            self.links.append(a["href"])
        if tag in ("img", "script", "source") and a.get("src"):
            self.sources.append(a["src"])


@functools.cache
def parsed(page):
    return Links((SITE / page).read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", PAGES)
def test_no_dead_link_and_nothing_from_elsewhere(page):
    found = parsed(page)
    for target in found.sources:
        assert urlparse(target).scheme in ("", "data"), f"{page} takes {target} from elsewhere"
    for target in found.links + found.sources:
        path, anchor = urldefrag(target)
        if urlparse(target).scheme:
            continue
        there = unquote(urlparse(urljoin(page, path) if path else page).path).split("?")[0]
        assert (SITE / there).is_file() or (SITE / there / "index.html").is_file(), f"{page} links to {target}"
        if anchor and there.endswith(".html"):
            assert unquote(anchor) in parsed(there).anchors, f"{page} links to {target}: no such anchor"


@pytest.fixture(scope="module")
def address():
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(SITE)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine (or set CHROMIUM to one)")
    sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    with sync_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS, headless=True)
        yield browser
        browser.close()


@pytest.fixture(scope="module", params=["light", "dark"])
def tab(request, browser, address):
    """A narrow window; what went wrong and what was asked of others is on it."""
    context = browser.new_context(color_scheme=request.param, viewport={"width": 400, "height": 800})
    tab = context.new_page()
    tab.wrong, tab.outside, tab.scheme = [], [], request.param
    tab.on("console", lambda m: tab.wrong.append(m.text) if m.type in ("error", "warning") else None)
    tab.on("pageerror", lambda e: tab.wrong.append(str(e)))
    tab.on("requestfailed", lambda r: tab.wrong.append(f"failed: {r.url}"))
    tab.on("response", lambda r: tab.wrong.append(f"{r.status}: {r.url}") if r.status >= 400 else None)
    tab.on("request", lambda r: None if r.url.startswith((address, "data:", "blob:")) else tab.outside.append(r.url))
    yield tab
    context.close()


BROKEN = "[...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src)"
LOADED = "() => { document.querySelectorAll('img').forEach(i => i.loading = 'eager'); return true; }"
SETTLED = "() => !window.MathJax || !window.MathJax.startup || window.MathJax.startup.promise.then(() => true)"


@pytest.mark.parametrize("page", READ)
def test_page(tab, address, page):
    tab.wrong.clear()
    tab.goto(address + page, wait_until="load")
    tab.evaluate(LOADED)
    tab.evaluate(SETTLED)
    tab.wait_for_load_state("networkidle")
    assert tab.wrong == []
    assert tab.outside == []
    assert tab.evaluate(BROKEN) == []
    wide = tab.evaluate("document.documentElement.scrollWidth")
    assert wide <= 400, f"the page is {wide} px wide in a window of 400"
    assert tab.evaluate("document.querySelectorAll('mjx-merror').length") == 0
    assert tab.evaluate("document.documentElement.dataset.theme") == tab.scheme


@pytest.mark.parametrize(("words", "page"), [("TMK", "integrators"), ("heavy top", "first_figure")])
def test_search_finds(tab, address, words, page):
    tab.goto(f"{address}search.html?q={words.replace(' ', '+')}")
    tab.wait_for_selector("#search-results li a")
    tab.wait_for_timeout(1500)
    found = tab.eval_on_selector_all("#search-results li a", "all => all.map(a => a.href)")
    assert any(page in url for url in found), found


def test_the_notebooks_can_be_downloaded(tab, address):
    for page in ("tutorials/first_figure", "tutorials/noise", "explanation/tmk"):
        assert (SITE / f"{page}.ipynb").is_file()
        assert f"{Path(page).name}.ipynb" in parsed(f"{page}.html").links


@pytest.mark.parametrize("page", ["reproduction/index.html", "globe.html"])
def test_the_top_and_the_globe_are_there(tab, address, page):
    tab.wrong.clear()
    tab.goto(address + page)
    tab.wait_for_function("document.querySelectorAll('canvas').length > 0")
    assert tab.wrong == [] and tab.outside == []
