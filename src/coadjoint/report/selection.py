"""The runs and members of a store that a figure shows, and the words of its title."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..command.run_names import method_names
from ..store.atomic_io import StoreError
from ..store.input_arrays import with_arrays
from ..store.reading import open as open_store
from ..store.reading import read_header

if TYPE_CHECKING:
    from ..fluids.flow import FluidFlow


@dataclass(frozen=True)
class Selection:
    """The part of a store that a figure shows: a run of a sweep, a member, runs with given swept values."""

    run: int | None = None
    member: int | None = None
    where: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def of(run: int | None, member: int | None, where: Sequence[str]) -> "Selection":
        """The selection that the options of `coadjoint plot` describe."""
        pairs = [text.partition("=") for text in where]
        for text, (key, sign, value) in zip(where, pairs, strict=True):
            if not (key and sign and value):
                raise ValueError(f"--where {text}: write KEY=VALUE, as in --where dt=0.01.")
        return Selection(run, member, {key.strip(): value.strip() for key, _, value in pairs})


class Series(NamedTuple):
    """One run: its number, swept values, label (empty unless it belongs to a sweep), times and data."""

    run: int
    swept: dict[str, Any]
    label: str
    t: np.ndarray
    data: Any

    def rows(self, name: str) -> np.ndarray:
        """A variable (member, time, …), with one member if there is no axis of members."""
        values = np.asarray(self.data[name].values)
        return values if "member" in self.data[name].dims else values[None]


class Figured(NamedTuple):
    """A store as figures use it: the selected runs with their data, and the header."""

    path: Path
    header: dict[str, Any]
    series: list[Series]
    member: int | None

    @property
    def data(self) -> Any:
        """The data of the first run."""
        return self.series[0].data

    @property
    def model(self) -> str:
        """The name of the model; empty for a system of your own."""
        made = self.header.get("model") or (self.header["experiment"] or {}).get("model") or {}
        return str(made.get("name", ""))

    @property
    def members(self) -> int:
        """The number of members shown."""
        return self.data.sizes.get("member", 1)

    @property
    def about(self) -> str:
        """The model, the methods, and the run and member that are shown, for a title."""
        swept = {word(v) for s in self.series for k, v in s.swept.items() if k in ("integrator", "run.integrator")}
        words = [self.model, _listed([m for m in method_names(self.header) if not swept or m in swept])]
        if len(self.series) == 1:
            words.append(", ".join(f"{k} = {word(v)}" for k, v in self.series[0].swept.items() if word(v) not in swept))
        words.append("" if self.member is None else f"member {self.member}")
        return ", ".join(filter(None, words))

    def need(self, name: str, what: str) -> None:
        """Raise if the store has no such variable."""
        if name in self.data:
            return
        if any(about["kind"] == "reduced" for about in self.header["variables"].values()):
            raise StoreError(
                f"{self.path} holds statistics only, so there is no {what} to draw: see --what statistics."
            )
        raise StoreError(
            f"{self.path} has no {name}, so there is no {what} to draw; it has: {', '.join(self.data.data_vars)}."
        )

    def one(self, what: str) -> tuple[Series, np.ndarray, "Figured"]:
        """One run and the states of one member, for figures that show a single trajectory; and their title."""
        self.need("mu", what)
        series = self.series[0]
        several = self.members > 1
        shown = self._replace(series=[series], member=0 if several else self.member)
        return series, series.rows("mu")[0], shown

    def model_arguments(self, series: Series) -> dict[str, Any] | None:
        """The arguments of the model of a run, as the experiment file accepts them; None for your own system."""
        from ..experiments.experiment import Experiment
        from ..experiments.schema import check_model, known_models

        if self.model not in known_models():
            return None
        tables = with_arrays(self.path, self.header["experiment"])
        if tables is None:
            tables = {"model": with_arrays(self.path, self.header["model"]), "run": {"t1": 1.0, "dt": 1.0}}
        made = Experiment(tables, str(self.path)).combinations()[series.run]["model"]
        return check_model(made)[1]

    def fluid(self, series: Series) -> "FluidFlow | None":
        """The fluid of the model of a run; None if it is not a fluid."""
        if "SU" not in str(self.header["configuration"]["system"]["algebra"]):  # as it is in those of all fluids
            return None
        from ..experiments.schema import known_models

        arguments = self.model_arguments(series)
        return None if arguments is None else known_models()[self.model](**arguments)[0].flow


def _listed(names: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def read(path: Path, selection: Selection) -> Figured:
    """The selected part of a store, or an error that names the option."""
    data, header = open_store(path), read_header(path, "open")
    if data.sizes.get("time", data.sizes.get("sample", 0)) < 2:
        raise StoreError(f"{path} has no second saved time yet, so there is nothing to draw.")
    if selection.member is not None:
        if "member" not in data.dims:
            raise ValueError(f"--member {selection.member}: {path} has no members.")
        if selection.member >= data.sizes["member"]:
            raise ValueError(f"--member must be below {data.sizes['member']}, not {selection.member}.")
        data = data.isel(member=selection.member)
    series = _series(data, header, selection)
    if not series:
        raise StoreError(f"{path}: none of the selected runs has a second saved time yet.")
    return Figured(path, header, series, selection.member)


def _series(data: Any, header: dict[str, Any], selection: Selection) -> list[Series]:
    """The selected runs, in their order."""
    axes = {name: list(values) for name, values in header["axes"].items()}
    sizes = [len(values) for values in axes.values()]
    time = header["time"]
    names = {k: short if k not in axes and (short := k.rpartition(".")[2]) in axes else k for k in selection.where}
    wanted = {names[k]: _position(names[k], v, axes) for k, v in selection.where.items()}
    count = int(np.prod(sizes, dtype=int))
    if selection.run is not None and selection.run >= count:
        raise ValueError(f"--run must be below {count}, not {selection.run}.")
    out = []
    for run in range(count):
        at = dict(zip(axes, map(int, np.unravel_index(run, sizes)), strict=True)) if sizes else {}
        if selection.run not in (None, run) or any(at[k] not in allowed for k, allowed in wanted.items()):
            continue
        one = data.isel(at)
        if np.asarray(one["steps"]).max() < 1:
            continue
        t = np.asarray(one["time"].values, float)
        one = one.isel({time: np.isfinite(t)})
        swept = {k: axes[k][i] for k, i in at.items()}
        label = ", ".join(f"{k} = {word(v)}" for k, v in swept.items())
        out.append(Series(run, swept, label, t[np.isfinite(t)], one))
    return out


def _position(key: str, text: str, axes: Mapping[str, Sequence[Any]]) -> list[int]:
    """The positions along a swept axis that have a value."""
    if key not in axes:
        from ..experiments.schema import nearest

        raise ValueError(f"--where {key}={text}: {key} is not swept. {nearest(key, axes)}.")

    def same(value: Any) -> bool:
        try:
            return bool(np.isclose(float(value), float(text), rtol=1e-9, atol=0))
        except (TypeError, ValueError):
            return word(value) == text or str(value) == text

    found = [i for i, value in enumerate(axes[key]) if same(value)]
    if not found:
        raise ValueError(f"--where {key}={text}: no run has this value. Values: {', '.join(map(word, axes[key]))}.")
    return found


def word(value: Any) -> str:
    """A swept value as text; a table with a name by its name."""
    if isinstance(value, dict):
        return str(value.get("name", value))
    return f"{value:g}" if isinstance(value, (float, np.floating)) else str(value)
