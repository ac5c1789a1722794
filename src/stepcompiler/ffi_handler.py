"""The function that XLA calls to run a kernel: one handler for all kernels, written in LLVM's language.

XLA passes a call frame (xla/ffi/api/c_api.h, API 0.x) with pointers to buffers. The first buffer has the number of the
kernel, its key, and all counts. The handler looks up the address of the kernel under its key, so that the program of
XLA contains no address and can be cached across processes.

The handler divides the groups among threads. If a group stops before a step that is not valid, it calls back into
Python (`jax_calls`).
"""

import ctypes
import os
import re
from pathlib import Path
from typing import Any

import jax
import numpy as np

from .targets.cpu import link_text

COUNTS = "key groups stop base every first rows slots state_bytes keep threads".split()  # of the first buffer, …
COUNTS += ["n_bytes", *(f"{x}_bytes" for x in "member path saved added".split())]  # … these of one group
_MOST_THREADS = 64
_PART = "address groups until base every first rows slots n state shared member path saved added".split()
_OPERANDS = "counts n state shared member path added numbers".split()
_RESULTS = "state saved n kept".split()
_HANDLER = """
@table = global ptr null
@resume = global ptr null

define ptr @handler(ptr %frame) {
entry:
  %extension.at = getelementptr i8, ptr %frame, i64 8
  %extension = load ptr, ptr %extension.at
  %extended = icmp ne ptr %extension, null
  br i1 %extended, label %describe, label %execute
describe:
  %metadata.at = getelementptr i8, ptr %extension, i64 24
  %metadata = load ptr, ptr %metadata.at
  %major = getelementptr i8, ptr %metadata, i64 24
  store i32 0, ptr %major
  %minor = getelementptr i8, ptr %metadata, i64 28
  store i32 MINOR, ptr %minor
  ret ptr null
execute:
  %operands.at = getelementptr i8, ptr %frame, i64 72
  %operands = load ptr, ptr %operands.at
  %results.at = getelementptr i8, ptr %frame, i64 112
  %results = load ptr, ptr %results.at
BUFFERS
COUNTS
  %n.bytes = mul i64 %groups, 8
  call void @llvm.memcpy.p0.p0.i64(ptr %to.state, ptr %of.state, i64 %state_bytes, i1 false)
  call void @llvm.memcpy.p0.p0.i64(ptr %to.n, ptr %of.n, i64 %n.bytes, i1 false)
  %keeps = icmp sgt i64 %keep, 0
  br i1 %keeps, label %head, label %once
once:
  call void @run(i64 %stop, POINTERS)
  ret ptr null
head:
  %j = phi i64 [0, %execute], [%j.next, %body]
  %from = mul i64 %j, %keep
  %more = icmp slt i64 %from, %stop
  br i1 %more, label %body, label %out
body:
  %kept.offset = mul i64 %j, %state_bytes
  %kept.at = getelementptr i8, ptr %to.kept, i64 %kept.offset
  call void @llvm.memcpy.p0.p0.i64(ptr %kept.at, ptr %to.state, i64 %state_bytes, i1 false)
  %end = add i64 %from, %keep
  %until = call i64 @llvm.smin.i64(i64 %end, i64 %stop)
  call void @run(i64 %until, POINTERS)
  %j.next = add i64 %j, 1
  br label %head
out:
  ret ptr null
}

define internal void @run(i64 %until, DECLARED) {
entry:
COUNTS
  %table = load ptr, ptr @table
  %capacity = load i64, ptr %table
  %mask = sub i64 %capacity, 1
  br label %search
search:
  %probe = phi i64 [%key, %entry], [%probe.next, %other]
  %place = and i64 %probe, %mask
  %twice = mul i64 %place, 2
  %key.index = add i64 %twice, 1
  %address.index = add i64 %twice, 2
  %found.at = getelementptr i64, ptr %table, i64 %key.index
  %address.at = getelementptr i64, ptr %table, i64 %address.index
  %found = load i64, ptr %found.at
  %is = icmp eq i64 %found, %key
  br i1 %is, label %call, label %other
other:
  %none = icmp eq i64 %found, 0
  %probe.next = add i64 %probe, 1
  br i1 %none, label %ask, label %search
call:
  %address = load ptr, ptr %address.at
DIVIDED
  br label %check
check:
  %g = phi i64 [0, %LAST], [%g.next, %next]
  %left = icmp slt i64 %g, %groups
  br i1 %left, label %next, label %done
next:
  %n.at = getelementptr i64, ptr %to.n, i64 %g
  %n.now = load i64, ptr %n.at
  %g.next = add i64 %g, 1
  %short = icmp slt i64 %n.now, %until
  br i1 %short, label %ask, label %check
ask:
  %resume = load ptr, ptr @resume
  call void %resume(i64 %until, POINTERS)
  ret void
done:
  ret void
}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare i64 @llvm.smin.i64(i64, i64)
"""
_ALONE = """
  call void %address(i64 %groups, i64 %until, i64 %base, i64 %every, i64 %first, i64 %rows, i64 %slots, ptr %to.n,
    ptr %to.state, ptr %of.shared, ptr %of.member, ptr %of.path, ptr %to.saved, ptr %of.added)"""
_DIVIDED = """
  %each.state = sdiv i64 %state_bytes, %groups
  %handles = alloca [MOST x i64]
  %parts = alloca [WORDS x i64]
  br label %part.head
part.head:
  %t = phi i64 [0, %call], [%t.next, %part.next]
  %low.scaled = mul i64 %t, %groups
  %low = sdiv i64 %low.scaled, %threads
  %t.next = add i64 %t, 1
  %high.scaled = mul i64 %t.next, %groups
  %high = sdiv i64 %high.scaled, %threads
  %count = sub i64 %high, %low
  %part.index = mul i64 %t, SIZE
  %part = getelementptr i64, ptr %parts, i64 %part.index
FILLED
  %ends = icmp eq i64 %t.next, %threads
  br i1 %ends, label %part.here, label %part.thread
part.thread:
  %handle = getelementptr i64, ptr %handles, i64 %t
  %status = call i32 @pthread_create(ptr %handle, ptr null, ptr @part, ptr %part)
  %refused = icmp ne i32 %status, 0
  br i1 %refused, label %part.direct, label %part.next
part.direct:
  store i64 0, ptr %handle
  %ignored = call ptr @part(ptr %part)
  br label %part.next
part.next:
  br label %part.head
part.here:
  %here = call ptr @part(ptr %part)
  br label %join.head
join.head:
  %k = phi i64 [1, %part.here], [%k.next, %join.next]
  %waits = icmp slt i64 %k, %threads
  br i1 %waits, label %join, label %joined
join:
  %before = sub i64 %k, 1
  %joined.at = getelementptr i64, ptr %handles, i64 %before
  %joined.handle = load i64, ptr %joined.at
  %runs = icmp ne i64 %joined.handle, 0
  br i1 %runs, label %join.wait, label %join.next
join.wait:
  %code = call i32 @pthread_join(i64 %joined.handle, ptr null)
  br label %join.next
join.next:
  %k.next = add i64 %k, 1
  br label %join.head
joined:"""
_PART_FUNCTION = """
define internal ptr @part(ptr %part) {
LOADED
  call void %address(i64 %groups, i64 %until, i64 %base, i64 %every, i64 %first, i64 %rows, i64 %slots, ptr %n,
    ptr %state, ptr %shared, ptr %member, ptr %path, ptr %saved, ptr %added)
  ret ptr null
}
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(i64, ptr)
"""
POINTERS = [*(f"of.{x}" for x in _OPERANDS if x not in ("n", "state")), *(f"to.{x}" for x in _RESULTS if x != "kept")]


def _text(minor: int) -> str:
    """The handler, with all buffers and counts by name."""
    buffers, counts = [], []
    for kind, names, array in (("of", _OPERANDS, "operands"), ("to", _RESULTS, "results")):
        for i, name in enumerate(names):
            x = f"%{kind}.{name}"
            buffers += [
                f"  {x}.p = getelementptr ptr, ptr %{array}, i64 {i}",
                f"  {x}.buffer = load ptr, ptr {x}.p",
                f"  {x}.data = getelementptr i8, ptr {x}.buffer, i64 24",
                f"  {x} = load ptr, ptr {x}.data",
            ]
    for i, name in enumerate(COUNTS):
        counts += [
            f"  %{name}.at = getelementptr i64, ptr %of.counts, i64 {i}",
            f"  %{name} = load i64, ptr %{name}.at",
        ]
    divided, last, more = (_divided(), "joined", _part_function()) if has_threads() else (_ALONE, "call", "")
    pointers = ", ".join(f"ptr %{x}" for x in POINTERS)
    text = (_HANDLER + more).replace("DIVIDED", divided).replace("LAST", last)
    text = text.replace("BUFFERS", "\n".join(buffers)).replace("COUNTS", "\n".join(counts))
    return text.replace("POINTERS", pointers).replace("DECLARED", pointers).replace("MINOR", str(minor))


def has_threads() -> bool:
    """Whether the handler can start threads: on POSIX systems whose C library has them."""
    if os.name != "posix":
        return False
    library = ctypes.CDLL(None)
    return hasattr(library, "pthread_create") and hasattr(library, "pthread_join")


def _divided() -> str:
    """The call of a kernel by several threads, each for some of the groups."""
    moved = {"n": "to", "state": "to", "saved": "to", "member": "of", "path": "of", "added": "of"}
    lines = []
    for i, name in enumerate(_PART):
        kind, value = "i64", {"groups": "%count", "until": "%until"}.get(name, f"%{name}")
        if name in moved:
            bytes_of = "%each.state" if name == "state" else f"%{name}_bytes"
            lines.append(f"  %part.{name}.offset = mul i64 %low, {bytes_of}")
            lines.append(f"  %part.{name} = getelementptr i8, ptr %{moved[name]}.{name}, i64 %part.{name}.offset")
            kind, value = "ptr", f"%part.{name}"
        elif name in ("address", "shared"):
            kind, value = "ptr", "%address" if name == "address" else "%of.shared"
        lines.append(f"  %part.{name}.at = getelementptr i64, ptr %part, i64 {i}")
        lines.append(f"  store {kind} {value}, ptr %part.{name}.at")
    sizes = {"MOST": _MOST_THREADS, "WORDS": _MOST_THREADS * len(_PART), "SIZE": len(_PART)}
    text = _DIVIDED.replace("FILLED", "\n".join(lines))
    for name, size in sizes.items():
        text = text.replace(name, str(size))
    return text


def _part_function() -> str:
    """Return the code of a thread."""
    lines = []
    for i, name in enumerate(_PART):
        kind = "i64" if name in "groups until base every first rows slots".split() else "ptr"
        lines += [f"  %{name}.at = getelementptr i64, ptr %part, i64 {i}", f"  %{name} = load {kind}, ptr %{name}.at"]
    return _PART_FUNCTION.replace("LOADED", "\n".join(lines))


def threads_for(groups: int) -> int:
    """Threads among which groups are divided: the cores of this process."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, groups, _MOST_THREADS)) if has_threads() else 1


def api_version() -> tuple[int, int]:
    """The version of XLA's foreign-function interface, from the header that jaxlib contains."""
    header = (Path(jax.ffi.include_dir()) / "xla" / "ffi" / "api" / "c_api.h").read_text()
    major, minor = (
        int(re.findall(rf"^#define XLA_FFI_API_{part} (\d+)", header, re.MULTILINE)[0]) for part in ("MAJOR", "MINOR")
    )
    return major, minor


class Handler:
    """The handler in this process, and its table of kernels, which only grows: JAX may call any of them at any time."""

    def __init__(self, minor: int, resume: Any):
        self.engine, self.address = link_text(_text(minor), "handler")
        self.known: dict[int, int] = {}
        self.tables: list[np.ndarray] = []  # replaced ones too: a call in another thread may read them
        self._set("resume", ctypes.cast(resume, ctypes.c_void_p).value or 0)
        self._rebuild()

    def add(self, key: int, address: int) -> None:
        """Register a kernel."""
        if key not in self.known:
            self.known[key] = address
            self._rebuild()

    def _rebuild(self) -> None:
        """A table with open addressing, at most half full."""
        capacity = max(64, 1 << (2 * len(self.known)).bit_length())
        table = np.zeros(1 + 2 * capacity, np.int64)
        table[0] = capacity
        for key, address in self.known.items():
            at = key & (capacity - 1)
            while table[1 + 2 * at]:
                at = (at + 1) & (capacity - 1)
            table[1 + 2 * at : 3 + 2 * at] = key, address
        self.tables.append(table)
        self._set("table", table.ctypes.data)

    def _set(self, name: str, value: int) -> None:
        ctypes.c_int64.from_address(self.engine.get_global_value_address(name)).value = value
