"""Kernels inside programs of JAX: `call` runs a kernel as one operation of XLA.

On a CPU XLA calls the kernel directly (`ffi_handler`). If the interface of this version of XLA is not supported, JAX
calls Python, which calls the kernel (`pure_callback`); `way_of_calling` states the reason.
"""

import ctypes
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .ffi_handler import COUNTS, POINTERS, Handler, api_version, threads_for
from .kernel import Kernel
from .lowering.complex_lowering import as_reals
from .targets.cpu import LoopArguments

_TARGET = "stepcompiler_run"
_WORTH_THREADS = 4096  # steps of groups, which take longer than to start a thread


class Entry(NamedTuple):
    """A kernel that programs of JAX call, and how to make the one that takes steps which it cannot take."""

    kernel: Kernel
    full: Callable[[], Kernel | None]


class CallResult(NamedTuple):
    """The state, saved words and step numbers after a call, and the states saved for the adjoint."""

    state: Array  # (groups, words, width)
    saved: Array  # (groups, slots, words, width)
    n: Array  # (groups,)
    kept: Array  # (times, groups, words, width)


class Way(NamedTuple):
    """How JAX calls kernels: directly, or through Python for a reason."""

    handler: Handler | None
    reason: str


_entries: dict[int, Entry] = {}


def register(kernel: Kernel, full: Callable[[], Kernel | None]) -> None:
    """Keep a kernel for the rest of the process: a compiled program may call it at any time.

    `full` returns a kernel with the same layout that assumes nothing, or None. It is made at the first step for which
    an assumption of `kernel` does not hold.
    """
    key = kernel.executable.key
    _entries.setdefault(key, Entry(kernel, full))
    handler = way_of_calling().handler
    if handler is not None:
        handler.add(key, kernel.executable.address)


def shared_words(kernel: Kernel, shared: Sequence) -> Array:
    """Return the shared inputs of a kernel as words, inside a traced computation."""
    out = jax.core.eval_jaxpr(
        kernel.shared_program.jaxpr, kernel.shared_program.consts, *(jnp.asarray(x) for x in as_reals(list(shared)))
    )
    return jnp.concatenate([jnp.ravel(x) for x in out]) if out else jnp.zeros(0)


def call(
    kernel: Kernel,
    shared: Sequence,
    state: Array,
    member: Array,
    path: Array,
    *,
    stop: Any,
    slots: int = 0,
    every: Any = None,
    n: Any = 0,
    base: Any = 0,
    first: Any = 0,
    keep: int = 0,
    times: int = 0,
    added: Array | None = None,
) -> CallResult:
    """Run a registered kernel from step n to `stop`, all groups alike.

    `shared` are arrays as the signature has them, all else words as in `Buffers`, `state` and `member` as 64-bit
    integers. With `keep`, the state before each step whose number is a multiple of `keep` is kept, `times` of them.
    """
    groups, _, width = state.shape
    every = stop + 1 if every is None else every
    numbers = [jnp.ravel(x).astype(jnp.float64) for x in as_reals([jnp.asarray(x) for x in shared])]
    about = {
        "key": kernel.executable.key, "groups": groups, "stop": stop, "base": base, "every": every, "first": first,
        "rows": path.shape[1], "slots": slots, "state_bytes": state.size * 8, "keep": keep,
        "threads": threads_for(groups) if groups * path.shape[1] >= _WORTH_THREADS else 1,
        "n_bytes": 8, "member_bytes": 8 * member.size // groups,
        "path_bytes": 8 * path.size // groups, "saved_bytes": 8 * slots * kernel.sizes.saved * width,
        "added_bytes": 8 * (0 if added is None else added.size // groups),
    }  # fmt: skip
    counts = jnp.stack([jnp.asarray(about[name], jnp.int64) for name in COUNTS])
    operands = (
        counts, jnp.full(groups, jnp.asarray(n, jnp.int64)), state, shared_words(kernel, shared), member, path,
        jnp.zeros((groups, slots, 0, width)) if added is None else added,
        jnp.concatenate(numbers) if numbers else jnp.zeros(0),
    )  # fmt: skip
    word = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.int64)
    saved = word(groups, slots, kernel.sizes.saved, width)
    shapes = word(*state.shape), saved, word(groups), word(times, *state.shape)
    if way_of_calling().handler is not None:
        return CallResult(*jax.ffi.ffi_call(_TARGET, shapes)(*operands))
    return CallResult(*jax.pure_callback(_run_in_python, shapes, *operands))


@cache
def way_of_calling() -> Way:
    """How JAX calls kernels here; found out once."""
    try:
        major, minor = api_version()
        if major != 0:
            return Way(None, f"XLA's interface for foreign functions has version {major}.{minor}, not 0.")
        handler = Handler(minor, _resume)
        jax.ffi.register_ffi_target(_TARGET, jax.ffi.pycapsule(ctypes.c_void_p(handler.address)), platform="cpu")
    except Exception as error:  # of LLVM, of a header that has moved, of JAX's registry
        return Way(None, f"XLA's interface for foreign functions is not available ({type(error).__name__}: {error}).")
    return Way(handler, "")


# Steps that the kernel does not take.


def _resume_full(until: int, *pointers: int) -> None:
    """Called by the handler: the full kernel takes the steps before which groups have stopped."""
    at = dict(zip(POINTERS, pointers, strict=True))
    counts = dict(
        zip(COUNTS, np.ctypeslib.as_array((ctypes.c_int64 * len(COUNTS)).from_address(at["of.counts"])), strict=True)
    )
    entry = _entries.get(int(counts["key"]))
    full = None if entry is None else entry.full()
    if full is None:
        return
    signature = full.signature.shared
    sizes = [len(fixed) for _, _, fixed in signature]
    flat = np.ctypeslib.as_array((ctypes.c_double * max(sum(sizes), 1)).from_address(at["of.numbers"]))
    words = full.shared_words(_arrays(flat, sizes, signature))
    full.executable.run_at(_arguments(counts, until, {x: at[x] or 0 for x in POINTERS}, words))


def _arguments(counts: dict[str, int], until: int, at: dict[str, int], shared: np.ndarray) -> LoopArguments:
    """Return the arguments of machine code from the counts and the addresses of a call."""
    counted = {x: int(counts[x]) for x in ("groups", "base", "every", "first", "rows", "slots")}
    read = {x: at[f"of.{x}"] for x in ("member", "path", "added")}
    written = {x: at[f"to.{x}"] for x in ("n", "state", "saved")}
    return LoopArguments(stop=until, shared=shared.ctypes.data, **counted, **read, **written)


def _arrays(flat: np.ndarray, sizes: Sequence[int], signature: Sequence) -> list[np.ndarray]:
    """Shared arrays from their numbers, one after the other."""
    out, at = [], 0
    for size, (shape, dtype, _) in zip(sizes, signature, strict=True):
        part = flat[at : at + size].copy()
        complex_ = np.dtype(dtype).kind == "c"
        out.append((part.view(np.complex128) if complex_ else part).astype(dtype).reshape(shape))
        at += size
    return out


def _guarded(until: int, *pointers: int) -> None:
    """Catch all exceptions, because none may cross frames of XLA; the results show steps that were not taken."""
    try:
        _resume_full(until, *pointers)
    except Exception as error:
        warnings.warn(f"A step could not be repeated: {type(error).__name__}: {error}", stacklevel=1)


_resume = ctypes.CFUNCTYPE(None, ctypes.c_int64, *[ctypes.c_void_p] * len(POINTERS))(_guarded)


def _run_in_python(counts, n, state, shared, member, path, added, numbers):
    """The handler in Python."""
    given = {"of.shared": shared, "of.member": member, "of.path": path, "of.added": added, "of.numbers": numbers}
    given = {k: np.ascontiguousarray(x) for k, x in given.items()} | {"of.counts": np.array(counts)}
    c = dict(zip(COUNTS, map(int, given["of.counts"]), strict=True))
    entry = _entries[c["key"]]
    n, state = np.array(n), np.array(state)
    saved = np.zeros((c["groups"], c["slots"], entry.kernel.sizes.saved, state.shape[2]), np.int64)
    given |= {"to.n": n, "to.state": state, "to.saved": saved}
    at = {k: x.ctypes.data for k, x in given.items()}
    kept = []
    ends = range(c["keep"], c["stop"] + c["keep"], c["keep"]) if c["keep"] else [c["stop"]]
    for end in ends:
        kept += [state.copy()] if c["keep"] else []
        until = min(end, c["stop"])
        entry.kernel.executable.run_at(_arguments(c, until, at, given["of.shared"]))
        if n.min() < until:
            _guarded(until, *(at[x] for x in POINTERS))
    return state, saved, n, np.array(kept, np.int64).reshape(len(kept), *state.shape)
