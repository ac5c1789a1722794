"""The function that XLA calls to run a kernel: one handler for all kernels, written in LLVM's language.

XLA passes a call frame (xla/ffi/api/c_api.h, API 0.x) with pointers to buffers. The first buffer has the number of the
kernel, its key, and all counts. The handler looks up the address of the kernel under its key, so that the program of
XLA contains no address and can be cached across processes.

If a group stops before a step that is not valid, the handler calls back into Python (`jax_calls`).
"""

import ctypes
import re
from pathlib import Path
from typing import Any

import jax
import numpy as np

from .targets.cpu import link_text

COUNTS = "key groups stop base every first rows slots state_bytes keep".split()  # of the first buffer
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
  call void %address(i64 %groups, i64 %until, i64 %base, i64 %every, i64 %first, i64 %rows, i64 %slots, ptr %to.n,
    ptr %to.state, ptr %of.shared, ptr %of.member, ptr %of.path, ptr %to.saved, ptr %of.added)
  br label %check
check:
  %g = phi i64 [0, %call], [%g.next, %next]
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
    pointers = ", ".join(f"ptr %{x}" for x in POINTERS)
    text = _HANDLER.replace("BUFFERS", "\n".join(buffers)).replace("COUNTS", "\n".join(counts))
    return text.replace("POINTERS", pointers).replace("DECLARED", pointers).replace("MINOR", str(minor))


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
        """Make a kernel known."""
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
