"""What a backend is: `prepare(plan)` gives a program, or a refusal with its reason."""

from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from ..plan import Plan, Tile
from ..points import Point, Record


class Refusal(NamedTuple):
    """Why a backend cannot take a plan, in a sentence."""

    reason: str


class Stepper(Protocol):
    """The members of a tile on their way."""

    def advance(self, n1: int) -> Record:
        """Step on to step n₁. What was saved on the way, as arrays (member, saved time, …) without padding."""
        ...

    def points(self) -> Point:
        """Where the members are, padding included."""
        ...


class Program(Protocol):
    """What computes the tiles of a plan."""

    backend: str
    reason: str  # why no faster backend was taken, where that is so

    def placed(self) -> AbstractContextManager[Any]:
        """The context in which a tile runs: JAX's default device inside it is the program's."""
        ...

    def start(self, tile: Tile) -> tuple[Point, Record]:
        """The points before the first step, padding included, and what is saved of them, without padding."""
        ...

    def stepper(self, tile: Tile, points: Point, n: int) -> Stepper:
        """The members at these points before step n, ready to go on."""
        ...


class Backend(Protocol):
    """What makes programs."""

    def __call__(self, plan: Plan) -> Program | Refusal:
        """A program for the plan, ready to run, or a refusal."""
        ...
