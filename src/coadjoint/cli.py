"""The command `coadjoint`."""

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
def reproduce(key: int = typer.Option(0, help="Key of the random stream.")) -> None:
    """Run the paper's heavy tops (T = 100, dt = 0.01) and show how well each method keeps the Casimirs."""
    import coadjoint as cj

    table = Table("inertia", "method", "error of π·γ", "error of |γ|²", "energy error without noise")
    for inertia in ((4, 4, 1), (4, 2, 1)):
        system, mu0 = cj.models.heavy_top(inertia=inertia)
        quiet, _ = cj.models.heavy_top(inertia=inertia, alpha=None)
        for integrator in (cj.TMK(), cj.ImplicitMidpoint(), cj.Trapezoidal(), cj.Heun()):
            sol = cj.solve(system, mu0, t1=100.0, dt=0.01, key=key, integrator=integrator)
            energy = cj.solve(quiet, mu0, t1=100.0, dt=0.01, integrator=integrator).energy()
            errors = sol.casimir_errors().max(axis=0)
            row = (*(f"{e:.1e}" for e in errors), f"{abs(energy - energy[0]).max():.1e}")
            table.add_row(str(inertia), type(integrator).__name__, *row)
    Console().print(table)
