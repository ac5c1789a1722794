"""The command `coadjoint`. Each command imports its modules when it runs, so that the command starts quickly."""

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)


def _print_version(wanted: bool) -> None:
    if wanted:
        from .. import __version__

        print(f"coadjoint {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    """Integrate stochastic Lie–Poisson systems and conserve every Casimir to machine precision.

    First steps: coadjoint new heavy_top > top.toml, then coadjoint run top.toml, then coadjoint plot top.zarr.
    """


class What(StrEnum):
    """The kinds of figures."""

    casimirs = "casimirs"
    energy = "energy"
    trajectory = "trajectory"
    field = "field"
    spectrum = "spectrum"
    hovmoller = "hovmoller"
    statistics = "statistics"
    structure = "structure"
    animation = "animation"
    globe = "globe"


_JSON = typer.Option(False, "--json", help="JSON for other programs, one object per line.")
_ON = typer.Option(None, metavar="CLUSTER", help="Dask scheduler, tcp://…, or local:8 for eight processes here.")
_QUIET = typer.Option(False, "--quiet", "-q", help="No progress and no summary; errors only.")


@app.command()
def run(
    experiment: Path = typer.Argument(help="Experiment file (TOML); `coadjoint new` writes one."),
    out: Path | None = typer.Option(None, help="Store to write. Default: the name of the file, ending in .zarr."),
    settings: list[str] = typer.Option([], "--set", metavar="KEY=VALUE", help="Value to replace: --set run.dt=0.005"),
    force: bool = typer.Option(False, "--force", help="Replacement of an existing store of this name."),
    on: str | None = _ON,
    quiet: bool = _QUIET,
    as_json: bool = _JSON,
) -> None:
    """Run an experiment file into a store.

    The store is written during the run: a power cut costs about a second of work. Ctrl-C stops the run at a checkpoint;
    `coadjoint resume` resumes it.
    """
    with _errors("run", as_json):
        from ..experiments.experiment import load
        from ..experiments.experiment import run as work

        loaded = load(experiment, settings)
        store = out or Path(experiment.with_suffix(".zarr").name)
        store.parent.mkdir(parents=True, exist_ok=True)
        work(loaded, store, replace=force, progress=_bar(as_json, quiet), on=on)
        _report(store, as_json, quiet)


@app.command()
def resume(
    store: Path = typer.Argument(help="Store of an earlier run."),
    t1: float | None = typer.Option(None, help="Later end of the run. Default: the end of the earlier run."),
    model: str | None = typer.Option(None, metavar="MODULE:FUNCTION", help="Name of your own model, given again."),
    backend: str | None = typer.Option(None, help="Backend: auto, native-gpu, native or xla. Default: as before."),
    on: str | None = _ON,
    quiet: bool = _QUIET,
    as_json: bool = _JSON,
) -> None:
    """Resume a run from its last checkpoint, or extend a finished run."""
    with _errors("resume", as_json):
        from ..experiments.experiment import resume as work

        work(store, t1=t1, model=model, backend=backend, progress=_bar(as_json, quiet), on=on)
        _report(store, as_json, quiet)


@app.command()
def info(
    store: Path = typer.Argument(help="Store of a run."),
    verify: bool = typer.Option(False, "--verify", help="Check of all checksums. Reads the whole store."),
    as_json: bool = _JSON,
) -> None:
    """Describe the contents of a store, the progress of its run and its solver."""
    with _errors("info", as_json):
        from . import info as text

        chunks = text.verify(store) if verify else None
        found = text.summary(store)
        if as_json:
            print(json.dumps(found | ({} if chunks is None else {"chunks_verified": chunks})))
            return
        print(text.words(found))
        if chunks is not None:
            print(f"  checksums {chunks} chunks read, all correct")


@app.command()
def plot(
    store: Path = typer.Argument(help="Store of a run."),
    what: What | None = typer.Option(
        None, help="Kind of figure. Default: casimirs, or statistics for a run with a reducer."
    ),
    out: Path | None = typer.Option(
        None,
        help="File to write: png, pdf or svg; gif or mp4 (with ffmpeg) for an animation; html for a globe. "
        "Default: STORE-WHAT.png, .gif or .html.",
    ),
    run: int | None = typer.Option(None, min=0, help="Number of a run of a sweep, from 0. Default: all runs."),
    member: int | None = typer.Option(None, min=0, help="Number of a member of an ensemble. Default: all members."),
    where: list[str] = typer.Option([], metavar="KEY=VALUE", help="Runs of a sweep with this value: --where dt=0.01"),
    dark: bool = typer.Option(False, "--dark", help="Light lines on a dark background."),
    as_json: bool = _JSON,
) -> None:
    """Draw a figure of the contents of a store."""
    with _errors("plot", as_json):
        from ..report import figures, plotting
        from ..report.selection import Selection

        kinds = (".png", ".pdf", ".svg")
        kinds = {What.animation: (".gif", ".mp4"), What.globe: (".html",)}.get(what or What.casimirs, kinds)
        if out is not None and out.suffix.lower() not in kinds:
            words = " or ".join(filter(None, (", ".join(kinds[:-1]), kinds[-1])))
            raise ValueError(f"--out must end in {words}, not {str(out)!r}.")
        what = what or What(figures.default_kind(store))
        target = out or Path(f"{store.name.removesuffix('.zarr')}-{what}{kinds[0]}")
        if dark and what is What.globe:
            raise ValueError("--dark does not apply to a globe: its page follows the theme of the browser.")
        theme = "dark" if dark else "light"
        chosen = Selection.of(run, member, where)
        target.parent.mkdir(parents=True, exist_ok=True)
        if what is What.animation:
            figures.animation(store, target, theme, chosen)
        elif what is What.globe:
            figures.globe(store, target, chosen)
        else:
            plotting.save_as(figures.draw(store, what, theme, chosen), target)
        print(json.dumps({"event": "done", "figure": str(target)}) if as_json else target)


@app.command()
def models(
    name: str | None = typer.Argument(None, help="Model to document. Default: a list of all models."),
    as_json: bool = _JSON,
) -> None:
    """List all models with their parameters and defaults."""
    import inspect

    with _errors("models", as_json):
        from ..experiments import schema
        from . import model_text

        known = schema.known_models()
        if name is not None:
            _check_model(name)
            print(f"{name}\n\n{inspect.getdoc(known[name])}")
            return
        about = {model: model_text.about_model(model) for model in known}
        if as_json:
            values = {m: {k: p.value for k, p in found.items()} for m, (_, found) in about.items()}
            print(json.dumps({m: {"about": about[m][0], "parameters": v} for m, v in values.items()}))
            return
        for model, (first, defaults) in about.items():
            print(f"{model}: {first}")
            width = max(map(len, defaults), default=0)
            for key, parameter in defaults.items():
                print(f"    {key:<{width}} = {parameter.value or '(computed by the model)'}")
            print()
        print("Documentation of a model: coadjoint models NAME. Experiment file: coadjoint new NAME > experiment.toml")


@app.command()
def new(model: str = typer.Argument(help="Model; `coadjoint models` lists them.")) -> None:
    """Print an experiment file for a model.

    Example: coadjoint new heavy_top > experiment.toml
    """
    with _errors("new", False):
        from . import model_text

        _check_model(model)
        print(model_text.new(model), end="")


def _check_model(name: str) -> None:
    from ..experiments import schema

    if name not in schema.known_models():
        raise schema.ExperimentError(f"{name!r} is not a model: {schema.nearest(name, schema.known_models())}.")


def _bar(as_json: bool, quiet: bool) -> Any:
    from .progress import Bar

    return False if quiet else Bar(lines=as_json)


def _report(store: Path, as_json: bool, quiet: bool) -> None:
    """Print the summary of a store after a run."""
    from . import info as text

    if quiet:
        return
    found = text.summary(store)
    if as_json:
        print(json.dumps({"event": "done", **found}))
    else:
        print(text.words(found))
        print(f"  next      coadjoint plot {store}")


@contextlib.contextmanager
def _errors(command: str, as_json: bool) -> Iterator[None]:
    """Print an error as one message. Status 2: an error of the user; 130: Ctrl-C; 143: SIGTERM; 141: closed pipe."""
    from ..store.atomic_io import StoreError
    from ..store.interrupts import terminable

    def report(message: str, event: str = "error") -> None:
        if as_json:
            print(json.dumps({"event": event, "message": message}), flush=True)
        else:
            prefix = f"coadjoint {command}: " if event == "error" else ""
            Console(stderr=True).print(prefix + message, markup=False, highlight=False, emoji=False, soft_wrap=True)

    try:
        with terminable():
            yield
            sys.stdout.flush()
    except KeyboardInterrupt as stopped:
        report(str(stopped) or "stopped; the store holds the last checkpoint", "stopped")
        raise typer.Exit(128 + getattr(stopped, "number", 2)) from None
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(128 + signal.SIGPIPE) from None
    except (StoreError, ValueError, TypeError, OSError) as error:
        report(str(error))
        raise typer.Exit(2) from None
    except RuntimeError as error:
        from ..runtime.executors import ClusterError
        from ..runtime.results import UnsolvedStepError

        if not isinstance(error, ClusterError | UnsolvedStepError):
            raise
        report(str(error).replace("; what was computed is in this error's `solution`", ""))
        raise typer.Exit(2 if isinstance(error, ClusterError) else 1) from None


@app.command()
def claims() -> None:
    """Print the table of integrators with their orders and invariants, in Markdown."""
    with _errors("claims", False):
        from ..integrators import ALL, COMPOSITIONS, SPECIAL, claims_table

        print(claims_table(ALL | SPECIAL | COMPOSITIONS), end="")


@app.command()
def convergence(
    model: str = typer.Option("heavy_top", help="Model: heavy_top, rigid_body or sine_euler."),
    integrator: list[str] = typer.Option(["TMK", "TMKLevy", "TMK15"], help="Integrator; repeat for several."),
    dt: list[float] = typer.Option([1 / 16, 1 / 32, 1 / 64, 1 / 128], help="Step size; repeat for several."),
    paths: int = typer.Option(200, help="Number of Brownian paths."),
    t1: float = typer.Option(1.0, help="Time of the measurement."),
    amplitude: float = typer.Option(0.7, help="Amplitude of the noise."),
    key: int = typer.Option(0, help="Key of the random stream."),
    plot: str = typer.Option("", help="File for a figure (pdf, png, svg)."),
) -> None:
    """Measure strong orders of integrators on shared Brownian paths."""
    import numpy as np

    import coadjoint as cj

    if model not in _MODELS:
        raise typer.BadParameter(f"{model!r} is not one of {', '.join(_MODELS)}.", param_hint="--model")
    known = cj.integrators.ALL | cj.integrators.SPECIAL
    for name in integrator:
        if name not in known:
            raise typer.BadParameter(f"{name!r} is not one of {', '.join(known)}.", param_hint="--integrator")
    noise = {"amplitude": amplitude} if model == "sine_euler" else {"alpha": amplitude * np.eye(3)}
    system, mu0 = getattr(cj.models, model)(**noise)
    study = cj.convergence(system, mu0, {n: known[n] for n in integrator}, dt, paths, key, t1=t1)
    head, _, *rows = ([c.strip() for c in line.strip("|").split("|")] for line in study.table().splitlines())
    table = Table(*head, title=f"{model}: {paths} paths to t = {t1:g}; reference {study.reference}")
    for row in rows:
        table.add_row(*row)
    Console().print(table)
    if plot:
        study.plot().savefig(plot)


_MODELS = ("heavy_top", "rigid_body", "sine_euler")  # those whose noise has an amplitude


@app.command()
def reproduce(
    names: list[str] | None = typer.Argument(None, metavar="NAME", help="Experiments or figures. Default: all."),
    only: list[str] | None = typer.Option(None, metavar="NAME", help="Experiment or figure, as NAME."),
    key: int = typer.Option(0, min=0, max=2**40, help="Key of the random stream: equal keys give equal numbers."),
    quick: bool = typer.Option(False, "--quick", help="Small runs, about a minute in all."),
    out: Path = typer.Option(Path("reproduction"), help="Folder for the results; replaces an earlier reproduction."),
    show_list: bool = typer.Option(False, "--list", help="List of experiments and figures, without a run."),
) -> None:
    """Reproduce the figures and claims of the paper, and write a page with the results.

    The command prints the table of claims. Its status is 1 if a verdict differs from the recorded one.
    """
    from . import papers

    with _errors("reproduce", False):
        work = papers.load("reproduce")
    try:
        if show_list:
            Console().print(work.listing(work.load_study()))
            return
        report = work.reproduce([*(only or []), *(names or [])], out=out, key=key, quick=quick)
    except KeyboardInterrupt:
        Console(stderr=True).print("stopped; nothing was written")
        os._exit(130)  # a thread cannot be interrupted
    except work.InputError as error:
        Console(stderr=True).print(f"coadjoint reproduce: {error}", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(2) from None
    Console().print(work.table(report))
    if report.surprises:
        names_ = ", ".join(c.name for c in report.surprises)
        Console(stderr=True).print(f"verdicts differ from the recorded ones: {names_}", markup=False)
        raise typer.Exit(1)
