"""The interface of `compile_step`: the signature of a step, the compiled kernel and its buffers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend import core as jex
from jaxtyping import PyTree

from .words import as_words, unpacked

SharedInput = tuple[tuple[int, ...], np.dtype, tuple]  # shape, type, and the values that are compiled in, or None


def constant_pattern(x: Any) -> SharedInput:
    """Describe a shared array whose zeros, ones and integers are compiled in.

    Products with 0 and the like are then left out. All other floating-point numbers are inputs of the kernel. So is −0,
    which is equal to 0, and would otherwise share the code of 0.
    """
    values = np.asarray(x)
    parts = np.stack([np.real(values), np.imag(values)], axis=-1) if values.dtype.kind == "c" else values
    fixed = parts.ravel()
    if parts.dtype.kind == "f":
        fixed = np.where((fixed == 1.0) | ((fixed == 0.0) & ~np.signbit(fixed)), fixed, np.array(None))
    return values.shape, values.dtype, tuple(fixed.tolist())


def dynamic_input(x: Any) -> SharedInput:
    """Describe a shared array of which only shape and type are compiled in; all its numbers are inputs."""
    array = x if hasattr(x, "dtype") else np.asarray(x)
    dtype = np.dtype(array.dtype)
    return array.shape, dtype, (None,) * (array.size * (2 if dtype.kind == "c" else 1))


@dataclass(frozen=True)
class Signature:
    """The inputs of a step.

    Parameters
    ----------
    shared
        One `constant_pattern` or `dynamic_input` for each array that all members share.
    member
        Shapes and types of the arrays that each member has for itself, constant during a run.
    state
        Shapes and types of the state of a member.
    path
        Shapes and types of the inputs that change from step to step.
    rows
        Elements of the path that its rows contain in any case, also if the step does not use them.
    backward
        Whether the kernel reads the rows of the path from the last to the first, as an adjoint does.
    added
        Words of the state to which the kernel adds those of `Buffers.added` at every saved step. The saved values
        contain them already.
    """

    shared: Sequence[SharedInput] = ()
    member: Sequence[Any] = ()
    state: PyTree = None
    path: PyTree = None
    rows: tuple[int, ...] = ()
    backward: bool = False
    added: tuple[int, ...] = ()


class PathSampler(NamedTuple):
    """A path that the kernel computes instead of reading it.

    `pair(shared, member, k, columns)` returns the given columns of the path for steps 2k and 2k + 1. `shared` describes
    its shared arrays. The number of the member is the last of the arrays that the member has for itself.
    """

    pair: Callable
    shared: Sequence[SharedInput]


class Sizes(NamedTuple):
    """How many words a kernel reads and writes."""

    shared: int  # for all members
    member: int  # per member, as are the others
    state: int
    path: int  # per step
    saved: int  # per saved step
    added: int = 0  # per saved step


def _empty() -> np.ndarray:
    return np.zeros(0)


@dataclass
class Buffers:
    """The memory of a kernel, made by `Kernel.allocate`. `Kernel.run` updates `n`, `state` and `saved` in place.

    Arrays that a kernel does not use are empty.

    On a CPU, members form groups of the SIMD width, which is the last axis: arrays have the shape (groups, …, width).
    On a GPU the last axis are the members: arrays have the shape (…, members).

    Parameters
    ----------
    n
        The number of the next step: (groups,), or (members,) on a GPU.
    state, member
        Words of the state and of the inputs by member.
    shared
        Words that the kernel reads of the shared arrays, from `Kernel.shared_words`.
    path
        The columns `Kernel.path_columns` of the path: (groups, steps, columns, width).
    saved
        Words of the saved values: (groups, slots, words, width).
    first_path_step
        The number of the step to which path[:, 0] belongs.
    first_slot
        The number of saves that took place before saved[:, 0].
    added
        Words that are added to the state: (groups, slots, words, width); None if there are none.
    """

    n: Any
    state: Any = field(default_factory=_empty)
    shared: Any = field(default_factory=_empty)
    member: Any = field(default_factory=_empty)
    path: Any = field(default_factory=_empty)
    saved: Any = field(default_factory=_empty)
    first_path_step: int = 0
    first_slot: int = 0
    added: Any = None


@dataclass(frozen=True)
class Grouped:
    """Memory for a CPU: members side by side in groups of `width`, group after group."""

    width: int

    def allocate(self, sizes: Sizes, members: int, slots: int, path_steps: int) -> Buffers:
        """Return zeroed memory."""
        groups, width = -(-members // self.width), self.width
        return Buffers(
            n=np.zeros(groups, np.int64), state=np.zeros((groups, sizes.state, width), np.int64),
            shared=np.zeros(sizes.shared), member=np.zeros((groups, sizes.member, width), np.int64),
            path=np.zeros((groups, path_steps, sizes.path, width)),
            saved=np.zeros((groups, slots, sizes.saved, width), np.int64),
            added=np.zeros((groups, slots, sizes.added, width)) if sizes.added else None,
        )  # fmt: skip

    def arranged(self, words: np.ndarray) -> np.ndarray:
        """Return words (members, …) in the order of memory; the last group is filled with the last member."""
        padded = np.concatenate([words, np.repeat(words[-1:], -len(words) % self.width, axis=0)])
        groups = padded.reshape(len(padded) // self.width, self.width, *words.shape[1:])
        return np.ascontiguousarray(np.moveaxis(groups, 1, -1))

    def by_member(self, words: np.ndarray) -> np.ndarray:
        """Return words (members, …), padding included."""
        return np.moveaxis(words, -1, 1).reshape(-1, *words.shape[1:-1])


@dataclass(frozen=True)
class MembersLast:
    """Memory for a GPU: each word of all members, then the next word."""

    def allocate(self, sizes: Sizes, members: int, slots: int, path_steps: int) -> Buffers:
        """Return zeroed memory."""
        return Buffers(
            n=np.zeros(members, np.int64), state=np.zeros((sizes.state, members), np.int64),
            shared=np.zeros(sizes.shared), member=np.zeros((sizes.member, members), np.int64),
            path=np.zeros((path_steps, sizes.path, members)),
            saved=np.zeros((slots, sizes.saved, members), np.int64),
        )  # fmt: skip

    def arranged(self, words: np.ndarray) -> np.ndarray:
        """Return words (members, …) in the order of memory."""
        return np.ascontiguousarray(np.moveaxis(words, 0, -1))

    def by_member(self, words: np.ndarray) -> np.ndarray:
        """Return words (members, …)."""
        return np.ascontiguousarray(np.moveaxis(words, -1, 0))


@dataclass(frozen=True)
class Kernel:
    """A compiled loop over the steps of members, from `compile_step`.

    Attributes
    ----------
    executable
        The machine code for the target.
    signature
        The inputs of the step.
    sizes
        How many words the kernel reads and writes.
    shared_words
        Function of the shared arrays that returns the words which the kernel reads of them.
    shared_program
        The same function as a traced program, whose complex arguments are pairs of real numbers.
    sampler_words
        The same for the shared arrays of the `PathSampler`, whose words follow; None without one.
    operations
        The number of operations on single numbers in a step.
    path_columns
        The elements of the path that a step reads, counted through all its arrays.
    saved_shape
        Shapes and types of the values that a step saves.
    """

    executable: Any
    signature: Signature
    sizes: Sizes
    shared_words: Callable[[list], np.ndarray]
    shared_program: jex.ClosedJaxpr
    sampler_words: Callable[[list], np.ndarray] | None
    operations: int
    path_columns: tuple[int, ...]
    saved_shape: PyTree
    layout: Grouped | MembersLast = field(repr=False)

    @property
    def width(self) -> int:
        """Members per group."""
        return getattr(self.layout, "width", 1)

    def allocate(self, members: int, slots: int = 0, path_steps: int = 0) -> Buffers:
        """Return zeroed memory for `members` members, `slots` saved steps and a path of `path_steps` steps."""
        return self.layout.allocate(self.sizes, members, slots, path_steps)

    def set_inputs(
        self,
        buffers: Buffers,
        *,
        shared: Sequence | None = None,
        member: Sequence | None = None,
        state: PyTree = None,
        path: PyTree = None,
        sampler: Sequence | None = None,
    ) -> None:
        """Write arrays into the buffers.

        `shared` are the arrays of `signature.shared`, `sampler` those of the `PathSampler`. All others lead with
        members; the arrays of the path lead with (members, steps).
        """
        if shared is not None:
            words = [self.shared_words(list(shared))]
            words += [] if self.sampler_words is None else [self.sampler_words(list(sampler or ()))]
            buffers.shared = np.concatenate(words)
        for name, value in (("member", list(member or ())), ("state", jax.tree.leaves(state))):
            if value:
                words = np.concatenate([as_words(x) for x in value], axis=1)
                setattr(buffers, name, self._checked(name, self.layout.arranged(words), getattr(buffers, name)))
        if path is not None:
            leaves = [np.asarray(x) for x in jax.tree.leaves(path)]
            flat = np.concatenate([x.reshape(*x.shape[:2], -1) for x in leaves], axis=2)
            buffers.path = self.layout.arranged(flat[:, :, list(self.path_columns)])

    def _checked(self, name: str, new: np.ndarray, old: np.ndarray) -> np.ndarray:
        if new.shape != old.shape:
            raise ValueError(f"{name} takes {new.shape} words, but this kernel and its buffers have {old.shape}.")
        return new

    def run(self, buffers: Buffers, stop: int, save_every: int = 1) -> None:
        """Take steps n, n + 1, …, stop − 1 of all members, and save after every `save_every` steps.

        A group that stops early stands before a step that is not valid: its `buffers.n` is below `stop`.
        """
        self.executable.run(buffers, stop, save_every)

    def state(self, buffers: Buffers) -> PyTree:
        """Return the states of all members, padding included."""
        words = self.layout.by_member(np.asarray(buffers.state))
        leaves = [x[:, 0] for x in self._arrays(words[:, None], self.signature.state)]
        return jax.tree.unflatten(jax.tree.structure(self.signature.state), leaves)

    def saved(self, buffers: Buffers) -> PyTree:
        """Return the saved values (member, slot, …) of all members, padding included."""
        words = self.layout.by_member(np.asarray(buffers.saved))
        return jax.tree.unflatten(jax.tree.structure(self.saved_shape), self._arrays(words, self.saved_shape))

    def _arrays(self, words: np.ndarray, shapes: PyTree) -> list[np.ndarray]:
        leaves = jax.tree.leaves(shapes)
        return unpacked(np.ascontiguousarray(words)[..., None], [x.shape for x in leaves], [x.dtype for x in leaves])
