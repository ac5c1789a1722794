"""A traced run without its arrays, from which kernels are compiled, and the same run as a scan of XLA."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from stepcompiler.kernel import SharedInput

from ...drivers import Increment
from ...integrators.base import Integrator
from ...systems import System
from ..run_state import Snapshot, SolverTotals, StepState, take_step
from ..scan import scan_steps
from .info import ELSEWHERE

N_TOTALS = len(SolverTotals._fields) + 1  # … and the number of the reason if XLA computes the run (`info`)


@dataclass(frozen=True, eq=False)
class Program:
    """A run whose arrays are arguments: numbers of the system, t0 and dt, the first state, and the path row by row.

    Two programs with the same `key` are equal. Those with the same `step_key` share kernels.
    """

    step_key: Hashable
    statics: Any = field(repr=False)  # the system without its numbers
    structure: Any = field(repr=False)  # … and how these belong to it
    integrator: Integrator = field(repr=False)
    patterns: tuple[SharedInput, ...] = field(repr=False)  # of the numbers, then of t0 and dt
    state: tuple[Any, PyTree, PyTree] = field(repr=False)  # shapes of the state, of the carry and of the control
    row: Increment = field(repr=False)  # shapes of one row of the path
    steps: int
    save_every: int
    adjoint: str
    memory: int  # bytes that a forward pass may save for the adjoint

    @property
    def key(self) -> Hashable:
        """All that the compiled code of a run depends on."""
        return self.step_key, self.steps, self.save_every, self.adjoint, self.memory

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Program) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return f"<{self.steps} steps of {type(self.integrator).__name__}>"

    # Arguments.

    @property
    def counts(self) -> tuple[int, int, int]:
        """How many arrays are numbers, parts of the first state, and parts of the path."""
        return len(self.patterns), len(jax.tree.leaves(self.state)), len(jax.tree.leaves(self.row))

    def split(self, args: Sequence) -> tuple[list, list, list]:
        """The arguments as numbers, parts of the first state, and parts of the path."""
        a, b, _ = self.counts
        return list(args[:a]), list(args[a : a + b]), list(args[a + b :])

    @property
    def slots(self) -> int:
        """Saved states after the first."""
        return self.steps // self.save_every

    def snapshot(self, parts: Sequence) -> list:
        """Those parts of a state that are saved: the state, the group element and the control."""
        return jax.tree.leaves(self.raw(parts))

    def raw(self, parts: Sequence) -> Snapshot:
        """Return the values saved of a state, from its parts."""
        mu, carry, held = jax.tree.unflatten(jax.tree.structure(self.state), list(parts))
        return Snapshot(mu, self.integrator.group(carry), held)

    @property
    def saved(self) -> list[int]:
        """Which parts of a state these are."""
        return self.snapshot(range(self.counts[1]))

    @property
    def floating(self) -> list[int]:
        """Which parts of a state have derivatives."""
        leaves = jax.tree.leaves(self.state)
        return [i for i, x in enumerate(leaves) if jnp.issubdtype(x.dtype, jnp.inexact)]

    # Steps.

    @property
    def has_matrix_products(self) -> bool:
        """Whether steps multiply large matrices, which XLA does better."""
        return self.statics.algebra.is_matrix_conjugation

    def system(self, numbers: Sequence) -> System:
        """The system with these numbers."""
        return eqx.combine(jax.tree.unflatten(self.structure, list(numbers)), self.statics)

    def step(
        self, integrator: Integrator, numbers: Sequence, n: Array, parts: Sequence, row: Sequence, totals: SolverTotals
    ) -> StepState:
        """Step n from a state given by its parts."""
        *own, t0, dt = numbers
        mu, carry, held = jax.tree.unflatten(jax.tree.structure(self.state), list(parts))
        dS = jax.tree.unflatten(jax.tree.structure(self.row), list(row))
        return take_step(self.system(own), integrator, t0, dt, n, dS, StepState(mu, carry, totals, held))


def by_xla(program: Program, *args: Array) -> list[Array]:
    """Run as a scan; return the rows saved after the initial one, the totals, and why XLA computes them."""
    numbers, first, rows = program.split(args)
    mu, carry, held = jax.tree.unflatten(jax.tree.structure(program.state), [jnp.asarray(x) for x in first])
    start = StepState(mu, carry, jax.tree.map(jnp.asarray, SolverTotals.zero()), held)
    path = jax.tree.unflatten(jax.tree.structure(program.row), rows)

    def step(n: Array, dS: Increment, point: StepState) -> StepState:
        parts, row = jax.tree.leaves((point.mu, point.carry, point.held)), jax.tree.leaves(dS)
        return program.step(program.integrator, numbers, n, parts, row, point.totals)

    snapshot = lambda point, n: program.snapshot(jax.tree.leaves((point.mu, point.carry, point.held)))
    end, saved = scan_steps(step, snapshot, start, path, program.steps, program.save_every)
    return [*saved, *end.totals, jnp.asarray(ELSEWHERE)]


def shapes_of(program: Program) -> list[jax.ShapeDtypeStruct]:
    """Shapes and types of the results of a run, for one member."""
    leaves = jax.tree.leaves(program.state)
    rows = [jax.ShapeDtypeStruct((program.slots, *leaves[i].shape), leaves[i].dtype) for i in program.saved]
    totals = [jax.ShapeDtypeStruct((), np.asarray(x).dtype) for x in SolverTotals.zero()]
    return [*rows, *totals, jax.ShapeDtypeStruct((), np.dtype(np.int64))]


def snapshots(program: Program, first: Sequence, rows: Sequence) -> Snapshot:
    """Return all rows of a run, including the initial one."""
    start = program.snapshot(first)
    whole = [jnp.concatenate([jnp.asarray(a)[None], b]) for a, b in zip(start, rows, strict=True)]
    return jax.tree.unflatten(jax.tree.structure(program.raw(range(program.counts[1]))), whole)
