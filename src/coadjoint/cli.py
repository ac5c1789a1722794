"""The command `coadjoint`."""

import os
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table

app = typer.Typer(no_args_is_help=True, help="Stochastic Lie–Poisson systems, with every Casimir kept.")


@app.callback()
def main() -> None:
    """Stochastic Lie–Poisson systems, with every Casimir kept to machine precision."""


@app.command()
def claims() -> None:
    """Print the table of integrators and what each of them claims, in Markdown."""
    from .integrators import ALL, claims_table

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
    from . import reproduce as work

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
