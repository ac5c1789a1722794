"""The page of benchmarks: every number comes from the records in benchmarks/results."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parents[1]
RESULTS = HERE.parent / "benchmarks" / "results"
LINK = "../../benchmarks/results"  # from docs/generated


def _record(name: str) -> dict[str, Any]:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def _table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    head = list(head)
    lines = [head, ["---"] * len(head), *([str(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _named(name: str) -> str:
    """The name of a measurement, in words."""
    words = {
        "a member-step]": "per member and step]",
        "a step]": "per step]",
        "one batch of 1024": "ensemble of 1024 members",
        "beside its steps, per batch": "overhead per batch of 1024 members",
        " by hand": ", written by hand",
    }
    for old, new in words.items():
        name = name.replace(old, new)
    return name


def _three(x: float) -> str:
    return f"{x:.3g}" if x < 1000 else f"{x:,.0f}"


def _origin(date: str, hardware: str, versions: str, command: str) -> str:
    return f"*Measured {date} on {hardware}; {versions}. Command: `{command}`.*\n"


def _algebra(name: str) -> str:
    kind, size = name.split()
    return f"chain of {size} spins" if kind == "chain" else f"{kind}({size})"


def _machine(record: dict[str, Any]) -> tuple[str, str, str]:
    m = record["machine"]
    versions = ", ".join(f"{name} {m[name]}" for name in ("python", "jaxlib", "coadjoint") if name in m)
    return m["date"], f"{m['processor']}, {m['cores']} cores", versions


def engine() -> Iterator[str]:
    """Native code beside hand-written C, at both ends of the supported versions."""
    yield "## Native code beside hand-written C\n"
    yield (
        "A stochastic heavy top by TMK at a tolerance of 1e-14 |σ|, processor time on one core. The C program is\n"
        "written for this one system. *Looser* means that the C program stops at 1e-14 absolutely.\n"
        "A ratio below 1 means that coadjoint is faster. Nanoseconds of coadjoint are those of whole calls of 10⁵\n"
        "steps, or of 10⁶ steps of members. Ratios are medians over longer runs in turns, not quotients of the rows.\n"
    )
    ends = {name: row for name, row in _record("engine").items() if "arithmetic" not in row}
    names = dict.fromkeys(key for row in ends.values() for key in row if key not in ("date", "processor"))
    rows = ([_named(name), *(_three(row[name]) if name in row else "–" for row in ends.values())] for name in names)
    yield _table(["", *ends], rows)
    dates = sorted({row["date"] for row in ends.values()})
    yield _origin(dates[-1], "one core of an AMD EPYC", "versions as in the table", "python benchmarks/engine.py")


def libraries() -> Iterator[str]:
    """Other libraries on the same problem."""
    yield "## Other libraries on the same problem\n"
    yield "C and numba run TMK. diffrax and torchsde run their fastest fixed-step Stratonovich method (`make bench`).\n"
    yield "```{include} " + LINK + "/cpu.md\n```\n"
    yield f"```{{image}} {LINK}/cpu.png\n:alt: Error and Casimir error of one trajectory against processor time\n```\n"
    yield f"```{{image}} {LINK}/scaling.png\n:alt: Time and memory against steps and members\n```\n"


def sizes() -> Iterator[str]:
    """Larger systems: time per step and to the first result."""
    yield "## Native code beside XLA, by size of the system\n"
    yield "Microseconds per step (per step and member in ensembles of 64). In brackets: seconds to the first result.\n"
    ((versions, record),) = _record("sizes").items()
    columns = ["native, fixed point", "xla, fixed point", "native, 64 members", "xla, 64 members"]

    def cell(row: dict[str, Any], column: str) -> str:
        found = row.get(column)
        return f"{_three(found['step [µs]'])} ({_three(found['first result [s]'])})" if isinstance(found, dict) else "–"

    systems = {name: row for name, row in record.items() if isinstance(row, dict)}
    yield _table(
        ["system", "dimension", *columns],
        ([_algebra(name), row["dimension"], *(cell(row, c) for c in columns)] for name, row in systems.items()),
    )
    yield _origin(record["date"], f"one core of an {record['processor']}", versions, "python benchmarks/sizes.py")


def spins() -> Iterator[str]:
    """Large spin lattices beside C."""
    yield "## Spin lattices\n"
    yield "`HeunMK` on a simple cubic lattice, processor time per spin and step, random numbers included.\n"
    record = _record("spins")
    head = ["spins", "with", "coadjoint, ns", "C, ns", "ratio"]
    rows = ([f"{r['spins']:,}", r["with"], r["library [ns]"], r["C [ns]"], r["ratio"]] for r in record["rows"])
    yield _table(head, rows)
    yield _origin(record["date"], record["processor"], record["versions"], "python benchmarks/spins.py")


def gpu() -> Iterator[str]:
    """Ensembles on a GPU."""
    record = _record("gpu")
    yield "## Ensembles on a GPU\n"
    yield (
        "Members × steps per second of a stochastic heavy top, dt = 0.01. Rates of coadjoint include the whole call,\n"
        "those of CUDA C++ the kernel alone, with the best of three numbers of registers and of threads per block.\n"
        "XLA and diffrax run 2²⁸ members × steps.\n"
    )
    rates = record["rates"]
    names = dict.fromkeys(name for column in rates.values() for name in column)
    head = ["", *(f"{int(members):,} members" for members in rates)]
    yield _table(head, ([_named(name), *(f"{column[name]:.2e}" for column in rates.values())] for name in names))
    same = [row for row in record["bits"] if row["same"]]
    yield (
        f"The results of {len(same)} of {len(record['bits'])} pairs of systems and methods are bitwise identical on\n"
        "CPU and GPU.\n"
        f"The systems are {', '.join(dict.fromkeys(row['system'] for row in same))}.\n"
        f"The methods are {', '.join(dict.fromkeys(row['method'] for row in same))}.\n"
    )
    long, casimirs = record["long"], record["casimirs"]
    yield _table(
        ["study", "result"],
        [
            [
                "2²⁰ members × 10⁵ steps with mean and covariance",
                f"{long['seconds']:.1f} s, {long['peak bytes'] / 1e9:.2f} GB",
            ],
            ["largest Casimir error of 2¹⁶ members over 10⁶ steps", f"{casimirs['largest error']:.1e}"],
            ["from `import` to a first result, s", ", ".join(f"{x:.1f}" for x in record["start"]["seconds"])],
        ],
    )
    about = record["about"]
    versions = ", ".join(f"{k} {v}" for k, v in about["versions"].items())
    yield _origin(about["date"], about["device"], versions, "make bench-gpu")


def fluids() -> Iterator[str]:
    """Fluids on the torus and the sphere."""
    record = _record("fluids")
    yield "## Fluids\n"
    yield "Milliseconds per step by the number n of rows of the matrix. quflow runs the same problem on the sphere.\n"
    rows = [r for r in record["rows"] if r["method"] != "product" and "version" not in r["method"]]
    for machine, title in (("H200", "One NVIDIA H200"), ("EPYC core", "One core of an AMD EPYC")):
        for surface in ("torus", "sphere"):
            chosen = [r for r in rows if (r["machine"], r["what"]) == (machine, surface)]
            methods = list(dict.fromkeys(r["method"] for r in chosen))
            ms = {(r["n"], r["method"]): r["ms"] for r in chosen}
            yield f"**{title}, {surface}**\n"
            table = (
                [n, *(_three(ms[n, m]) if (n, m) in ms else "–" for m in methods)] for n in sorted({n for n, _ in ms})
            )
            yield _table(["n", *methods], table)
    yield (
        "The torus has 96 noise fields. The sphere has no noise, so that steps start from extrapolated values. The\n"
        f"relative tolerance is {record['other']['tolerance']:g}.\n"
    )
    drift = record["other"]["eigenvalue drift over ‖W‖₂ after 10⁴ stochastic steps, n = 65"]["largest on the way"]
    yield f"Over 10⁴ stochastic steps at n = 65 the eigenvalues of W change by {drift:.0e} ‖W‖₂ at most.\n"
    yield f"```{{image}} {LINK}/fluids.png\n:alt: Milliseconds per step against n on a GPU and on CPU cores\n```\n"
    yield _origin(
        "between 2026-11-15 and 2026-11-18",
        "the hardware named above",
        "JAX 0.10.2 (CPU), 0.11.2 (GPU)",
        "python benchmarks/fluids.py",
    )


def models() -> Iterator[str]:
    """Steps of models beside NumPy."""
    record = _record("models")
    yield "## Models beside NumPy\n"
    yield (
        "Microseconds per step of one trajectory, by classical Runge–Kutta steps of the same equations. The steps of\n"
        "coadjoint conserve the Casimirs. The last column is the largest difference of both ends.\n"
    )
    rows = ([name, r["us"], r["numpy us"], r["ratio"], r["difference"]] for name, r in record["results"].items())
    yield _table(["model", "coadjoint", "NumPy", "ratio", "difference"], rows)
    yield _origin(record["date"], record["processor"], f"JAX {record['jax']}", "python benchmarks/models.py")


def stores() -> Iterator[str]:
    """The cost of writing a store."""
    record = _record("storing")
    yield "## Stores\n"
    yield "Time of a run with a store divided by the time without, three runs each.\n"
    rows = (
        [name, ", ".join(map(str, c["ratios"])), c["median"], c["megabytes that it wrote"]]
        for name, c in record["cases"].items()
    )
    yield _table(["case", "ratios", "median", "MB written"], rows)
    yield _origin(*_machine(record), "python benchmarks/storing.py")


def gradients() -> Iterator[str]:
    """Gradients beside forward runs, and beside diffrax."""
    record = _record("gradients")
    yield "## Gradients\n"
    yield (
        "A loss of the last of 1000 states, differentiated with respect to the initial state and all params inside\n"
        "`jax.jit`. *Ratio* is the time of the whole gradient, forward pass included, divided by the time of a native\n"
        "forward run. *Reverse* is the gradient minus the forward run inside `jax.jit`, divided by the same time. The\n"
        "first gradient includes compilation with an empty cache.\n\n"
        "diffrax runs `RecursiveCheckpointAdjoint` with a checkpoint at every step. The number and the size of the\n"
        "steps are the same, and the vector field is written by hand. The table gives the faster of two explicit\n"
        "solvers: Midpoint and Heun beside TMK, Tsit5 and Dopri5 beside rk4. Other processes ran on the machine.\n"
    )

    def diffrax(row: dict[str, Any]) -> str:
        found = row.get("diffrax")
        return f"{_three(found['us_per_step'])} ({found['solver']})" if found else "–"

    columns = ("gradient_us_per_step", "ratio", "reverse_ratio", "first_gradient_s")
    head = ["case", "gradient, µs per step", "ratio", "reverse", "first gradient, s", "runs as", "diffrax, µs per step"]
    names = {"native": "native code", "xla": "XLA"}
    yield _table(
        head,
        (
            [name, *(_three(row[c]) for c in columns), names[row["backend"]], diffrax(row)]
            for name, row in record["cases"].items()
        ),
    )
    yield f"A gradient of a single step takes {_three(record['overhead_us'])} µs inside `jax.jit`.\n"
    date, hardware, versions = _machine(record)
    versions += f", diffrax {record['machine']['diffrax']}"
    yield _origin(date, hardware, versions, "python benchmarks/gradients.py")


def clusters() -> Iterator[str]:
    """The overhead of Dask."""
    record = _record("cluster")
    tiles = record["tiles"]
    memory = 1e3 * (tiles["megabytes after"] - tiles["megabytes before"]) / tiles["tiles"]
    yield "## Dask clusters\n"
    yield _table(
        ["measurement", "value"],
        [
            ["speed of two worker processes relative to two threads", record["speed"]["cluster beside threads"]],
            [
                "overhead per batch of 1024 members on its core, ms",
                record["overhead"]["overhead of a batch on its core"],
            ],
            [f"time of the scheduler per batch, {tiles['tiles']:,} empty batches, ms", tiles["milliseconds per batch"]],
            ["memory of the scheduler per batch, kB", f"{memory:.0f}"],
        ],
    )
    yield _origin(*_machine(record), "python benchmarks/cluster.py")


def long_run() -> Iterator[str]:
    """A billion steps."""
    record = _record("long_run")
    names = "largest error of π·γ and |γ|² over 1000 saved times"
    yield "## A billion steps\n"
    yield (
        f"A stochastic heavy top, {record['steps']:.0e} steps by TMK in {record['seconds']:.0f} s. The largest errors\n"
        f"of π·γ and |γ|² over 1000 saves are {record[names][0]:.1e} and {record[names][1]:.1e}. At the end they\n"
        f"are {record['error at the end'][0]:.1e} and {record['error at the end'][1]:.1e}.\n"
    )
    yield _origin(*_machine(record), "python benchmarks/long_run.py")


def page() -> str:
    """The whole page."""
    intro = (
        "# Benchmarks\n\n"
        "All timings of coadjoint stand on this page, with date, hardware, versions and the command that makes them.\n"
        "The page is generated from the records in `benchmarks/results`. Timings depend on the machine: run a command\n"
        "on yours before you rely on a number. The contenders of one table ran side by side, in turns.\n"
    )
    parts = (engine, libraries, sizes, spins, models, gpu, fluids, gradients, stores, clusters, long_run)
    return "\n".join([intro, *(line for part in parts for line in part())])


def _write(app: Any) -> None:
    target = HERE / "generated" / "benchmarks.md"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(page(), encoding="utf-8")


def setup(app: Any) -> dict[str, bool]:
    """Sphinx calls this."""
    app.connect("builder-inited", _write)
    return {"parallel_read_safe": True}
