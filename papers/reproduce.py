"""The work of `coadjoint reproduce`: run experiments, and write figures, claims and the page.

`study.toml` in the folder of a paper names the experiments. Each experiment has a file `NAME.toml` with parameters and
claims, and a file `NAME.py` with two functions:

    run(p, key, say) -> Outcome      # computes; `p` holds the parameters, `say` reports progress
    draw(p, data) -> {name: Figure}  # draws the data of the outcome

Two experiments run at a time, and another process draws. No result depends on their order.
"""

import contextlib
import hashlib
import json
import os
import shutil
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from coadjoint.command import papers
from coadjoint.report import plotting

from .claims import Claim, Outcome, Picture, Report, Section, Verdict, claims_json, claims_markdown
from .page import page
from .study import InputError, PaperExperiment, Study, load_study, select

MANIFEST = "manifest.json"
_UNFINISHED = ".unfinished"


def listing(study: Study) -> Table:
    """The experiments and their figures, as --list shows them."""
    table = Table(title=study.title)
    table.add_column("experiment")
    table.add_column("figures", no_wrap=True)
    for e in study.experiments:
        figures = (f["name"] + (f" (Figure {f['number']})" if "number" in f else "") for f in e.figures)
        table.add_row(f"[bold]{e.name}[/]\n{e.title}", "\n".join(figures), end_section=True)
    return table


def reproduce(
    names: Sequence[str] = (),
    *,
    out: Path = Path("reproduction"),
    key: int = 0,
    quick: bool = False,
    console: Console | None = None,
) -> Report:
    """Run the experiments with these names (default: all) and write the results into the folder `out`."""
    console = Console(stderr=True) if console is None else console
    study = load_study()
    chosen = select(study, names)
    with output_folder(out) as folder, _DrawingProcess() as drawing:
        began = time.perf_counter()
        (folder / "figures").mkdir()
        outcomes = {}
        for e, outcome in _run_all(chosen, key, quick, console):
            outcomes[e.name] = outcome
            drawing.draw(e.name, e.settings(quick), outcome.data, folder / "figures")
        figures = drawing.figures()
        sections = [_section(e, e.settings(quick), outcomes[e.name], figures[e.name]) for e in chosen]
        report = Report(study.title, study.subtitle, sections, key, quick, time.perf_counter() - began)
        (folder / "claims.json").write_text(claims_json(report), encoding="utf-8")
        (folder / "claims.md").write_text(claims_markdown(report), encoding="utf-8")
        (folder / "index.html").write_text(page(report), encoding="utf-8")
    console.print(f"finished after {time.perf_counter() - began:.0f} s; the page is {out / 'index.html'}")
    return report


def _run_all(
    chosen: Sequence[PaperExperiment], key: int, quick: bool, console: Console
) -> Iterator[tuple[PaperExperiment, Outcome]]:
    """The outcomes as they are completed. Two experiments run at a time, the longest first."""
    waiting = sorted(chosen, key=lambda e: -e.parameters.get("minutes", 0.0))
    workers = max(1, min(2, os.cpu_count() or 1))
    pool = ThreadPoolExecutor(workers)
    with _ProgressLines(console, len(chosen)) as lines:
        futures: dict[Future[Outcome], PaperExperiment] = {
            pool.submit(_run_one, e, key, quick, lines): e for e in waiting
        }
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _run_one(e: PaperExperiment, key: int, quick: bool, lines: "_ProgressLines") -> Outcome:
    with lines.line(e.name) as say:
        outcome = e.module.run(SimpleNamespace(**e.settings(quick)), key, say)
    missing = {c["name"] for c in e.claims} ^ set(outcome.findings)
    if missing:
        raise RuntimeError(f"{e.name}: claims and findings differ: {', '.join(sorted(missing))}.")
    return outcome


class _ProgressLines:
    """In a terminal, a line for each running experiment; otherwise plain lines when an experiment begins and ends."""

    def __init__(self, console: Console, total: int):
        self.console, self.total, self.done = console, total, 0
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}"),
        )
        self.progress = Progress(*columns, console=console, disable=not console.is_terminal, transient=True)

    def __enter__(self) -> "_ProgressLines":
        self.progress.start()
        return self

    def __exit__(self, *exc: Any) -> None:
        self.progress.stop()

    @contextlib.contextmanager
    def line(self, name: str) -> Iterator[Callable[[str], None]]:
        """The line of a running experiment; yields the function that sets its note."""
        began = time.perf_counter()
        task = self.progress.add_task(name, total=None, note="")
        if not self.console.is_terminal:
            self.console.print(f"{name}: begins")
        yield lambda note: self.progress.update(task, note=note)
        self.progress.remove_task(task)
        self.done += 1
        self.console.print(f"[{self.done}/{self.total}] {name}: {time.perf_counter() - began:.1f} s", markup=False)


class _DrawingProcess:
    """A process that draws the figures while the experiments run. Threads would wait for Python's lock."""

    def __enter__(self) -> "_DrawingProcess":
        context = get_context("spawn")
        self.ours, theirs = context.Pipe()
        self.process = context.Process(target=papers.call, args=("reproduce", "draw_all", theirs), daemon=True)
        self.process.start()
        theirs.close()
        return self

    def __exit__(self, *exc: Any) -> None:
        self.ours.close()
        self.process.terminate()

    def draw(self, name: str, settings: Mapping[str, Any], data: Any, folder: Path) -> None:
        """Request the figures of an experiment."""
        if self.ours.poll():
            self._receive()  # an early answer is an error
        self._send((name, settings, data, folder))

    def figures(self) -> Mapping[str, Mapping[str, tuple[bytes, bytes]]]:
        """The figures by experiment and name, for light and for dark pages."""
        self._send(None)
        return self._receive()

    def _send(self, request: Any) -> None:
        with self._alive():
            self.ours.send(request)

    def _receive(self) -> Any:
        with self._alive():
            answer = self.ours.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer

    @contextlib.contextmanager
    def _alive(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, ConnectionError):
            raise RuntimeError("the process that draws the figures ended unexpectedly.") from None


def draw_all(requests: Connection) -> None:
    """Draw figures on request, and send all of them at the end. This is the main function of the drawing process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    modules = {e.name: e.module for e in load_study().experiments}
    drawn = {}
    with contextlib.suppress(EOFError, BrokenPipeError):  # the parent has ended
        try:
            for name, settings, data, folder in iter(requests.recv, None):
                drawn[name] = _draw(modules[name].draw, SimpleNamespace(**settings), data, folder)
            requests.send(drawn)
        except (EOFError, BrokenPipeError):
            raise
        except Exception as error:
            error.add_note(traceback.format_exc())
            requests.send(error)
            while requests.recv() is not None:
                pass


def _draw(draw: Callable, p: SimpleNamespace, data: Any, folder: Path) -> dict[str, tuple[bytes, bytes]]:
    """Draw the figures of an experiment for light pages and print, and again for dark pages."""
    with plotting.style("light"):
        light = {name: plotting.save(fig, folder, name)[0].read_bytes() for name, fig in draw(p, data).items()}
    with plotting.style("dark"):
        return {name: (light[name], plotting.png(fig)) for name, fig in draw(p, data).items()}


def _section(
    e: PaperExperiment, settings: Mapping[str, Any], outcome: Outcome, figures: Mapping[str, tuple[bytes, bytes]]
) -> Section:
    """The section of the page on an experiment."""
    pictures = [Picture(f["name"], f.get("number"), f["caption"], *figures[f["name"]]) for f in e.figures]
    claims = [
        Claim(c["name"], c["claim"], c["paper"], Verdict(c["expected"]), c["reason"], outcome.findings[c["name"]])
        for c in e.claims
    ]
    shown = {k: v for k, v in settings.items() if k != "minutes"}
    return Section(e.name, e.title, e.source, e.about, shown, claims, pictures, outcome.widgets)


def table(report: Report) -> Table:
    """The table of claims for the terminal."""
    colours = {Verdict.HOLDS: "green", Verdict.CONDITION: "yellow", Verdict.FAILS: "red"}
    rows = Table("claim", "paper", "ours", "n", "verdict", show_lines=True)
    for c in report.claims:
        verdict = f"[{colours[c.finding.verdict]}]{c.finding.verdict}[/]"
        if not c.as_expected:
            verdict += f"\n[bold]expected: {c.expected}[/]"
        rows.add_row(c.claim, c.paper, c.finding.ours, str(c.finding.realisations), verdict)
    return rows


@contextlib.contextmanager
def output_folder(out: Path) -> Iterator[Path]:
    """A folder for the results, whose contents move to `out` if there was no error.

    `out` may be missing, empty, or an unchanged earlier reproduction. Otherwise `InputError` is raised.
    """
    _check_ours(out)
    made = not out.exists()
    work = out / _UNFINISHED
    try:
        out.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
    except OSError as error:
        raise InputError(f"cannot write into {out}: {error.strerror}. Pass another folder with --out.") from None
    try:
        yield work
        _check_ours(out)
        _take_place(work, out)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        if made:
            with contextlib.suppress(OSError):
                out.rmdir()
        raise


def _check_ours(out: Path) -> None:
    """Raise unless `out` is missing, empty, or an unchanged earlier reproduction."""
    if not out.exists():
        return
    if not out.is_dir():
        raise InputError(f"{out} is not a folder. Pass another one with --out. Nothing was written.")
    try:
        present = {p.relative_to(out).as_posix(): p for p in out.rglob("*") if not p.is_dir()}
        present = {name: p for name, p in present.items() if not name.startswith(_UNFINISHED + "/")}
        written = _manifest(out)
        strange = sorted(n for n, p in present.items() if n != MANIFEST and written.get(n) != _digest(p))
        if MANIFEST in present and not written:
            strange.insert(0, MANIFEST)
    except PermissionError as error:
        raise InputError(f"cannot read {error.filename}: pass another folder with --out.") from None
    if strange:
        more = f" and {len(strange) - 1} more" if len(strange) > 1 else ""
        raise InputError(
            f"{out} contains files that `coadjoint reproduce` did not write: {strange[0]}{more}. "
            "Pass another folder with --out, or move them away. Nothing was overwritten."
        )


def _manifest(out: Path) -> dict[str, str]:
    try:
        data = json.loads((out / MANIFEST).read_text(encoding="utf-8"))
        return {str(k): str(v) for k, v in data["coadjoint reproduce"].items()}
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _take_place(work: Path, out: Path) -> None:
    """Replace an earlier reproduction by the new one, and write the manifest."""
    for name in _manifest(out):
        (out / name).unlink(missing_ok=True)
    (out / MANIFEST).unlink(missing_ok=True)
    files = sorted(p.relative_to(work) for p in work.rglob("*") if p.is_file())
    digests = {p.as_posix(): _digest(work / p) for p in files}
    for p in files:
        (out / p).parent.mkdir(exist_ok=True)
        os.replace(work / p, out / p)
    (out / MANIFEST).write_text(json.dumps({"coadjoint reproduce": digests}, indent=1) + "\n", encoding="utf-8")
    shutil.rmtree(work)
