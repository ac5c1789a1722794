"""The command `coadjoint`."""

import contextlib
import json
import os
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback()
def main() -> None:
    """Stochastic Lie–Poisson systems, integrated with every Casimir kept to machine precision.

    To begin with: coadjoint new heavy_top > top.toml, then coadjoint run top.toml, then coadjoint plot top.zarr.
    """


class What(StrEnum):
    """What can be drawn."""

    casimirs = "casimirs"
    energy = "energy"
    trajectory = "trajectory"
    field = "field"
    spectrum = "spectrum"
    animation = "animation"
    globe = "globe"


_JSON = typer.Option(False, "--json", help="Write JSON for other programs, one object a line.")
_ON = typer.Option(None, metavar="CLUSTER", help="A Dask scheduler, tcp://…, or local:8 for eight processes here.")


@app.command()
def run(
    experiment: Path = typer.Argument(help="An experiment file (TOML); `coadjoint new` writes one."),
    out: Path | None = typer.Option(None, help="The store to write; by default the name of the file, ending in .zarr."),
    settings: list[str] = typer.Option([], "--set", metavar="KEY=VALUE", help="Replace a value: --set run.dt=0.005"),
    on: str | None = _ON,
    as_json: bool = _JSON,
) -> None:
    """Run an experiment file into a store.

    The store is written while the run goes on: a power cut costs a second's work. Ctrl-C stops at the end of a chunk;
    `coadjoint resume` goes on.
    """
    with _errors("run", as_json):
        from ..experiments.experiment import load
        from ..experiments.experiment import run as work

        loaded = load(experiment, settings)
        store = out or Path(experiment.with_suffix(".zarr").name)
        work(loaded, store, progress=_bar(as_json), on=on)
        _report(store, as_json)


@app.command()
def resume(
    store: Path = typer.Argument(help="A store that was written by coadjoint."),
    t1: float | None = typer.Option(None, help="Go on to a later time than the run was made for."),
    model: str | None = typer.Option(None, metavar="MODULE:FUNCTION", help="For a model of your own, its name again."),
    backend: str | None = typer.Option(
        None, help="What computes the steps from now on: auto, native-gpu, native or xla."
    ),
    on: str | None = _ON,
    as_json: bool = _JSON,
) -> None:
    """Go on with a run from its last checkpoint, or extend one that is finished."""
    with _errors("resume", as_json):
        from ..experiments.experiment import resume as work

        work(store, t1=t1, model=model, backend=backend, progress=_bar(as_json), on=on)
        _report(store, as_json)


@app.command()
def info(
    store: Path = typer.Argument(help="A store that was written by coadjoint."),
    verify: bool = typer.Option(False, "--verify", help="Read all of it, and check every checksum."),
    as_json: bool = _JSON,
) -> None:
    """Say what a store holds, how far its run is and how well it went."""
    with _errors("info", as_json):
        from . import summary

        chunks = summary.verify(store) if verify else None
        found = summary.summary(store)
        if as_json:
            print(json.dumps(found | ({} if chunks is None else {"chunks_verified": chunks})))
            return
        print(summary.words(found))
        if chunks is not None:
            print(f"  checksums {chunks} chunks read, all as they were written")


@app.command()
def plot(
    store: Path = typer.Argument(help="A store that was written by coadjoint."),
    what: What = typer.Option(What.casimirs, help="What to draw."),
    out: Path | None = typer.Option(
        None,
        help="The file: png, pdf or svg; of an animation gif, or mp4 with ffmpeg; of a globe html. By default it is "
        "STORE-WHAT with the first of these.",
    ),
    dark: bool = typer.Option(False, "--dark", help="Light lines on a dark ground."),
    as_json: bool = _JSON,
) -> None:
    """Draw what is in a store."""
    with _errors("plot", as_json):
        from ..report import figures, plotting

        kinds = {What.animation: (".gif", ".mp4"), What.globe: (".html",)}.get(what, (".png", ".pdf", ".svg"))
        target = out or Path(f"{store.name.removesuffix('.zarr')}-{what}{kinds[0]}")
        if target.suffix.lower() not in kinds:
            words = " or ".join(filter(None, (", ".join(kinds[:-1]), kinds[-1])))
            raise ValueError(f"--out must end in {words}, not {str(target)!r}.")
        if dark and what is What.globe:
            raise ValueError("--dark is not for a globe: its page is light or dark as its reader's browser is.")
        theme = "dark" if dark else "light"
        if what is What.animation:
            figures.animation(store, target, theme)
        elif what is What.globe:
            figures.globe(store, target)
        else:
            plotting.save_as(figures.draw(store, what, theme), target)
        print(json.dumps({"event": "done", "figure": str(target)}) if as_json else target)


@app.command()
def models(
    name: str | None = typer.Argument(None, help="One model, with all of its documentation."),
    as_json: bool = _JSON,
) -> None:
    """List all models with their parameters and defaults."""
    import inspect

    with _errors("models", as_json):
        from ..experiments import schema
        from . import summary

        known = schema.known_models()
        if name is not None:
            _check_model(name)
            print(f"{name}\n\n{inspect.getdoc(known[name])}")
            return
        about = {model: summary.about_model(model) for model in known}
        if as_json:
            values = {m: {k: p.value for k, p in found.items()} for m, (_, found) in about.items()}
            print(json.dumps({m: {"about": about[m][0], "parameters": v} for m, v in values.items()}))
            return
        for model, (first, defaults) in about.items():
            print(f"{model}: {first}")
            width = max(map(len, defaults), default=0)
            for key, parameter in defaults.items():
                print(f"    {key:<{width}} = {parameter.value or '(chosen by the model)'}")
            print()
        print("More on one of them: coadjoint models NAME. An experiment with it: coadjoint new NAME > experiment.toml")


@app.command()
def new(model: str = typer.Argument(help="A model; `coadjoint models` lists them.")) -> None:
    """Print an experiment file for a model, ready to run.

    As in: coadjoint new heavy_top > experiment.toml
    """
    with _errors("new", False):
        from . import summary

        _check_model(model)
        print(summary.new(model), end="")


def _check_model(name: str) -> None:
    from ..experiments import schema

    if name not in schema.known_models():
        raise schema.ExperimentError(f"{name!r} is no model: {schema.nearest(name, schema.known_models())}.")


def _bar(as_json: bool) -> Any:
    from .progress import Bar

    return Bar(lines=as_json)


def _report(store: Path, as_json: bool) -> None:
    """What there is now, and what can be done with it."""
    from . import summary

    found = summary.summary(store)
    if as_json:
        print(json.dumps({"event": "done", **found}))
    else:
        print(summary.words(found))
        print(f"  next      coadjoint plot {store}")


@contextlib.contextmanager
def _errors(command: str, as_json: bool) -> Iterator[None]:
    """Report an error in one sentence. Status 2: the user can put it right; 130: Ctrl-C; 143: SIGTERM."""
    from ..runtime.executors import ClusterError
    from ..runtime.results import UnsolvedStepError
    from ..store.atomic_io import StoreError
    from ..store.interrupts import terminable

    def say(message: str, event: str = "error") -> None:
        if as_json:
            print(json.dumps({"event": event, "message": message}), flush=True)
        else:
            prefix = f"coadjoint {command}: " if event == "error" else ""
            Console(stderr=True).print(prefix + message, markup=False, highlight=False, emoji=False, soft_wrap=True)

    try:
        with terminable():
            yield
    except KeyboardInterrupt as stopped:
        say(str(stopped) or "stopped; the store is as its last checkpoint has it", "stopped")
        raise typer.Exit(128 + getattr(stopped, "number", 2)) from None
    except UnsolvedStepError as error:
        say(str(error).replace("; what was computed is in this error's `solution`", ""))
        raise typer.Exit(1) from None
    except (StoreError, ClusterError, ValueError, TypeError, OSError) as error:
        say(str(error))
        raise typer.Exit(2) from None


@app.command()
def claims() -> None:
    """Print the table of integrators and what each of them claims, in Markdown."""
    from ..integrators import ALL, claims_table

    print(claims_table(ALL), end="")


@app.command()
def convergence(
    model: str = typer.Option("heavy_top", help="A model of coadjoint.models."),
    integrator: list[str] = typer.Option(["TMK", "TMKLevy", "TMK15"], help="An integrator; give several."),
    dt: list[float] = typer.Option([1 / 16, 1 / 32, 1 / 64, 1 / 128], help="A step size; give several."),
    paths: int = typer.Option(200, help="How many Brownian paths."),
    t1: float = typer.Option(1.0, help="Where errors are measured."),
    amplitude: float = typer.Option(0.7, help="Of the noise: large enough to show."),
    key: int = typer.Option(0, help="Key of the random stream."),
    plot: str = typer.Option("", help="Write a figure to this file (pdf, png, svg)."),
) -> None:
    """Measure strong orders of integrators on shared Brownian paths."""
    import numpy as np

    import coadjoint as cj

    if model not in _MODELS:
        raise typer.BadParameter(f"{model!r} is not one of {', '.join(_MODELS)}.", param_hint="--model")
    known = cj.integrators.ALL
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
    names: list[str] | None = typer.Argument(None, metavar="NAME", help="Experiments or figures; all by default."),
    only: list[str] | None = typer.Option(None, metavar="NAME", help="The same: --only NAME NAME ..."),
    key: int = typer.Option(0, min=0, max=2**40, help="Key of the random stream: the same key, the same numbers."),
    quick: bool = typer.Option(False, "--quick", help="A small run of everything, in less than a minute."),
    out: Path = typer.Option(Path("reproduction"), help="Folder to write into; an earlier reproduction is replaced."),
    show_list: bool = typer.Option(False, "--list", help="List the experiments and figures, and stop."),
) -> None:
    """Reproduce the paper: every figure, every claim, and a page that shows them.

    Ends with the table of claims, and with status 1 if one of them comes out otherwise than on record.
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
        os._exit(130)  # an experiment that runs in a thread cannot be interrupted otherwise
    except work.InputError as error:
        Console(stderr=True).print(f"coadjoint reproduce: {error}", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(2) from None
    Console().print(work.table(report))
    if report.surprises:
        names_ = ", ".join(c.name for c in report.surprises)
        Console(stderr=True).print(f"otherwise than on record: {names_}", markup=False)
        raise typer.Exit(1)
