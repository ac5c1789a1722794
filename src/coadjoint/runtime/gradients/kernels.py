"""The step of a traced run, its tangent and its adjoint as native code.

The adjoint of a step is the vector–Jacobian product of its program, in which the roots of implicit equations are
arguments: the forward pass has solved them. The forward pass saves the inputs of the adjoint.
"""

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jex
from jaxtyping import Array

from stepcompiler import jax_calls
from stepcompiler.arrays.compile import compile_array_step
from stepcompiler.cache import LRUCache
from stepcompiler.compile import compile_step
from stepcompiler.errors import NotCompilable, TooLarge
from stepcompiler.jaxprs.named_values import with_named_arguments, with_named_results
from stepcompiler.kernel import Kernel, Signature, dynamic_input
from stepcompiler.lowering.complex_lowering import as_reals
from stepcompiler.targets.cpu import Cpu

from ...integrators.implicit import from_near
from ...numerics.rootfind import ROOT
from .. import tuning
from ..backends.base import NotSupported, attempt_native
from ..backends.step_kernels import WIDTH
from ..run_state import SolverTotals
from .layout import count_words, struct
from .program import Program

_ADJOINT = 2  # times as many operations as of a step, of which an adjoint has several times those
_INTEGER = jax.ShapeDtypeStruct((), jnp.int64)


class Variant(NamedTuple):
    """The key of the kernels of a program: members per group, inputs per member, and differentiated inputs."""

    width: int
    by_member: tuple[bool, ...]  # of the numbers
    moving: tuple[bool, ...]  # of all arguments


def width_for(members: int | None) -> int:
    """Members per group."""
    return 1 if members is None else min(WIDTH, 1 << (members - 1).bit_length())


class Kernels:
    """The kernels of a program in one variant, each made when it is first needed."""

    def __init__(self, program: Program, variant: Variant):
        self.program, self.variant = program, variant
        self.numbers, self.parts, self.rows = (
            [struct(x) for x in group] for group in (self._number_shapes(), *self._other_shapes())
        )
        a, b, _ = program.counts
        self.moving_numbers = [i for i in range(a) if variant.moving[i]]
        self.moving_rows = [i for i in range(len(self.rows)) if variant.moving[a + b + i]]
        self.totals = [struct(x) for x in SolverTotals.zero()]

    def _number_shapes(self) -> list[Any]:
        return [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype, _ in self.program.patterns]

    def _other_shapes(self) -> tuple[list, list]:
        return jax.tree.leaves(self.program.state), jax.tree.leaves(self.program.row)

    # The inputs that do not change from step to step.

    @property
    def shared_patterns(self) -> list:
        """The patterns of the numbers that all members share."""
        return [p for p, m in zip(self.program.patterns, self.variant.by_member, strict=True) if not m]

    @property
    def own_shapes(self) -> list:
        """The shapes of the numbers that vary between members."""
        return [s for s, m in zip(self.numbers, self.variant.by_member, strict=True) if m]

    def merged_inputs(self, shared: Sequence, own: Sequence) -> list:
        """All numbers in their order."""
        mine, given = iter(own), iter(shared)
        return [next(mine if m else given) for m in self.variant.by_member]

    # The forward step.

    def _step(self, method: Any, numbers: list, n: Array, parts: list, row: list) -> list:
        zero = jax.tree.map(jnp.zeros_like, SolverTotals.zero())._replace(first_unsolved=jnp.full((), -1))
        new = self.program.step(method, numbers, n, parts, row, zero)
        return [*jax.tree.leaves((new.mu, new.carry, new.held)), *new.totals]

    @cached_property
    def _traced(self) -> tuple[jex.ClosedJaxpr, jex.ClosedJaxpr]:
        """The step as a program, solved from near its root, and as usual."""
        fast = self.program.integrator
        near, full = (
            jax.make_jaxpr(lambda *args, method=method: self._step(method, *args))(
                self.numbers, _INTEGER, self.parts, self.rows
            )
            for method in (from_near(fast), fast)
        )
        return near, full

    @cached_property
    def roots(self) -> list:
        """Shapes of the roots that a step solves for."""
        run = with_named_results(self._traced[0], ROOT)
        return [struct(x) for x in jax.eval_shape(run, *self._traced[0].in_avals)[1]]

    def _compile(self, *steps: Any, signature: Signature, size: int) -> Kernel:
        """A kernel that JAX can call; steps: the usual one, and one without its shortcuts.

        It is written number by number, and if that is too long, as loops over the elements of arrays.
        """
        target = Cpu(self.variant.width)
        most = size * tuning.current().native_operations
        write: Callable[..., Kernel] = partial(compile_step, max_operations=most)
        try:
            kernel = write(steps[0], signature, target)
        except TooLarge:
            if self.program.has_matrix_products:
                raise
            write = compile_array_step
            kernel = write(steps[0], signature, target)
        made: list[Kernel | None] = []

        def full() -> Kernel | None:
            if not made:
                found = attempt_native(partial(write, steps[0], signature, target, fallback=steps[-1]))
                if isinstance(found, NotSupported) or found.path_columns != kernel.path_columns:
                    made.append(None)
                else:
                    made.append(found)
            return made[0]

        jax_calls.register(kernel, full)
        return kernel

    def _forward(self, extra: Any) -> Kernel:
        """Return a forward kernel, which saves `extra(parts, row, roots, new parts)` of each step."""

        def step(program: jex.ClosedJaxpr, shared: list, own: list, state: tuple, n: Array, row: list) -> tuple:
            parts, totals = state
            flat = *self.merged_inputs(shared, own), n, *parts, *row
            out, roots = with_named_results(program, ROOT)(*flat)
            new, more = out[: len(parts)], SolverTotals(*out[len(parts) :])
            old = SolverTotals(*totals)
            summed = old._replace(
                iterations=old.iterations + more.iterations,
                most_iterations=jnp.maximum(old.most_iterations, more.most_iterations),
                residual=jnp.maximum(old.residual, more.residual),
                substeps=old.substeps + more.substeps,
            )
            return (new, list(summed)), extra(parts, row, roots, new), more.unsolved == 0

        everything = tuple(range(count_words(self.rows)))
        signature = Signature(self.shared_patterns, self.own_shapes, (self.parts, self.totals), self.rows, everything)
        steps = [partial(step, program) for program in self._traced]
        return self._compile(*steps, signature=signature, size=1)

    @cached_property
    def run(self) -> Kernel:
        """The run, which saves states."""
        return self._forward(lambda parts, row, roots, new: [new[i] for i in self.program.saved])

    @cached_property
    def taped(self) -> Kernel:
        """Return the kernel of a run that saves the inputs of the adjoint of each step: the columns of its tape."""
        columns = np.asarray(self.tape_columns)

        def extra(parts: list, row: list, roots: list, new: list) -> list:
            out, at = [], 0
            for x in as_reals([*parts, *row, *roots]):
                size = int(np.prod(jnp.shape(x), dtype=int))
                mine = columns[(columns >= at) & (columns < at + size)] - at
                out += [jnp.ravel(x)] if len(mine) == size else [jnp.ravel(x)[mine]] if len(mine) else []
                at += size
            return out

        return self._forward(extra)

    # The derivative of a step.

    @property
    def tape(self) -> list:
        """Return the shapes of the candidates for the tape of a step: its state, its row of the path, its roots."""
        return [*self.parts, *self.rows, *self.roots]

    @property
    def tape_columns(self) -> tuple[int, ...]:
        """Return the columns that the adjoint reads, and states, which are always saved."""
        return self.adjoint.path_columns

    @property
    def _saved_columns(self) -> tuple[int, ...]:
        """The words of a tape that are saved states."""
        starts = np.cumsum([0, *(count_words([s]) for s in self.parts)])
        return tuple(int(c) for i in self.program.saved for c in range(starts[i], starts[i + 1]))

    def _moves(self, numbers: list, n: Array, parts: list, row: list, roots: list) -> tuple[Any, tuple]:
        """The step as a function of all that moves: (numbers, state, row) ↦ floating parts of the new state."""
        at = self.program.floating
        derive = with_named_arguments(self._traced[0], ROOT)

        def moved(some: list, floats: list, given: list) -> list:
            all_numbers, all_parts, all_rows = list(numbers), list(parts), list(row)
            for target, places, values in (
                (all_numbers, self.moving_numbers, some),
                (all_parts, at, floats),
                (all_rows, self.moving_rows, given),
            ):
                for i, x in zip(places, values, strict=True):
                    target[i] = x
            out = derive([*all_numbers, n, *all_parts, *all_rows], roots)
            return [out[i] for i in at]

        here = [numbers[i] for i in self.moving_numbers], [parts[i] for i in at], [row[i] for i in self.moving_rows]
        return moved, here

    @cached_property
    def adjoint(self) -> Kernel:
        """The adjoint, run backward over a tape: the state are λ and the gradients of numbers."""
        floats = [self.parts[i] for i in self.program.floating]
        sums = [self.numbers[i] for i in self.moving_numbers]

        def step(shared: list, own: list, state: tuple, n: Array, path: tuple) -> tuple:
            *shared, last = shared
            lam, total = state
            parts, row, roots = path
            moved, here = self._moves(self.merged_inputs(shared, own), last - n, parts, row, roots)
            _, back = jax.vjp(moved, *here)
            some, lam, slopes = back(list(lam))
            total = [a + b for a, b in zip(total, some, strict=True)]
            return (lam, total), slopes, jnp.ones((), bool)

        path = self.parts, self.rows, self.roots
        signature = Signature(
            [*self.shared_patterns, dynamic_input(np.int64(0))], self.own_shapes, (floats, sums), path,
            self._saved_columns, backward=True, added=self._added_words,
        )  # fmt: skip
        return self._compile(step, signature=signature, size=_ADJOINT)

    @property
    def _added_words(self) -> tuple[int, ...]:
        """The words of λ that belong to saved states."""
        out, at = [], 0
        for i in self.program.floating:
            size = count_words([self.parts[i]])
            out += range(at, at + size) if i in self.program.saved else []
            at += size
        order = {i: k for k, i in enumerate(self.program.saved)}
        if [i for i in self.program.floating if i in order] != self.program.saved:
            raise NotCompilable("The saved parts of a state are in another order than the state.")
        return tuple(out)

    @cached_property
    def tangent(self) -> Kernel:
        """The tangent, run forward over a tape."""
        floats, slopes, _, path, columns = self._tangent_inputs

        def step(shared: list, own: list, state: list, n: Array, path: tuple) -> tuple:
            count = len(own) - len(slopes)
            parts, row, roots, drow = path
            moved, here = self._moves(self.merged_inputs(shared, own[:count]), n, parts, row, roots)
            _, new = jax.jvp(moved, here, (own[count:], list(state), drow))
            at = {i: k for k, i in enumerate(self.program.floating)}
            return new, [new[at[i]] for i in self.program.saved], jnp.ones((), bool)

        signature = Signature(self.shared_patterns, [*self.own_shapes, *slopes], floats, path, columns)
        kernel = self._compile(step, signature=signature, size=_ADJOINT)
        if kernel.path_columns != columns:
            raise NotCompilable("The tangent of a step reads what its adjoint does not.")
        return kernel

    # The derivative of the adjoint.

    @cached_property
    def tangent_taped(self) -> Kernel:
        """The tangent, which saves its state before each step."""
        floats, slopes, _, path, columns = self._tangent_inputs

        def step(shared: list, own: list, state: list, n: Array, path: tuple) -> tuple:
            count = len(own) - len(slopes)
            parts, row, roots, drow = path
            moved, here = self._moves(self.merged_inputs(shared, own[:count]), n, parts, row, roots)
            _, new = jax.jvp(moved, here, (own[count:], list(state), drow))
            return new, list(state), jnp.ones((), bool)

        signature = Signature(self.shared_patterns, [*self.own_shapes, *slopes], floats, path, columns)
        return self._compile(step, signature=signature, size=_ADJOINT)

    @property
    def _tangent_inputs(self) -> tuple:
        """Shapes of the state of a tangent, of the slopes of numbers and rows, of its path, and the columns of that."""
        floats = [self.parts[i] for i in self.program.floating]
        slopes = [self.numbers[i] for i in self.moving_numbers]
        along = [self.rows[i] for i in self.moving_rows]
        size = count_words(self.tape)
        columns = *self.tape_columns, *range(size, size + count_words(along))
        return floats, slopes, along, (self.parts, self.rows, self.roots, along), columns

    @cached_property
    def second(self) -> Kernel:
        """The derivative of the adjoint along a tangent, run backward. Its state: λ, gradients, and their tangents."""
        floats, slopes, along, _, columns = self._tangent_inputs

        def step(shared: list, own: list, state: tuple, n: Array, path: tuple) -> tuple:
            *shared, last = shared
            (lam, total), (dlam, dtotal) = state
            parts, row, roots, drow, dparts = path
            count = len(own) - len(slopes)
            moved, here = self._moves(self.merged_inputs(shared, own[:count]), last - n, parts, row, roots)
            back = lambda here, lam: jax.vjp(moved, *here)[1](lam)
            moves = (list(own[count:]), list(dparts), list(drow)), list(dlam)
            (some, lam, _), (dsome, dlam, dslopes) = jax.jvp(back, (tuple(here), list(lam)), moves)
            total, dtotal = ([a + b for a, b in zip(x, y, strict=True)] for x, y in ((total, some), (dtotal, dsome)))
            return ((lam, total), (dlam, dtotal)), dslopes, jnp.ones((), bool)

        sums = [self.numbers[i] for i in self.moving_numbers]
        before = count_words([*self.tape, *along])
        columns = *columns, *range(before, before + count_words(floats))
        signature = Signature(
            [*self.shared_patterns, dynamic_input(np.int64(0))], [*self.own_shapes, *slopes],
            ((floats, sums), (floats, sums)), (self.parts, self.rows, self.roots, along, floats), columns,
            backward=True, added=self._added_words,
        )  # fmt: skip
        kernel = self._compile(step, signature=signature, size=2 * _ADJOINT)
        if kernel.path_columns != columns:
            raise NotCompilable("The second derivative of a step reads what its adjoint does not.")
        return kernel


_kernels: LRUCache[Kernels] = LRUCache()
_outcomes: LRUCache[Kernel | NotSupported] = LRUCache(1024)


def kernels_of(program: Program, variant: Variant) -> Kernels:
    """The kernels of a program; programs with equal steps share them, whatever their length."""
    return _kernels.get((program.step_key, variant), lambda: Kernels(program, variant))


def kernel(program: Program, variant: Variant, name: str) -> Kernel | NotSupported:
    """One of the kernels, or the reason why there is none."""
    make = lambda: attempt_native(lambda: getattr(kernels_of(program, variant), name))
    return _outcomes.get((program.step_key, variant, name), make)
