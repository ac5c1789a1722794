"""The progress bar of a filter: cycles, effective size, temperatures, acceptance."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


def _note(row: dict[str, Any]) -> str:
    """The note beside the bar."""
    words = [f"log evidence {float(row['log_evidence']):.5g}"]
    if "ess" in row:
        words.insert(0, f"effective size {float(row['ess']):.1f}")
    if int(row.get("temperatures", 0)):
        words.append(f"{int(row['temperatures'])} temperatures, acceptance {float(row['acceptance']):.2f}")
    return ", ".join(words)


@contextmanager
def filter_bar(cycles: int) -> Iterator[Callable[[int, dict[str, Any]], None]]:
    """Yield a function of the number of completed cycles and the results of the last one."""
    console = Console(file=sys.stderr)
    columns = TextColumn("filtering"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, TextColumn("{task.fields[note]}"), console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("filtering", total=cycles, note="")

        def show(done: int, row: dict[str, Any]) -> None:
            bar.update(task, completed=done, note=_note(row))
            if not console.is_terminal:
                print(f"filtering: {done}/{cycles} cycles, {_note(row)}", file=sys.stderr, flush=True)

        yield show
