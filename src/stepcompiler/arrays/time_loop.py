"""The loop over steps around a step of large arrays, for members in groups as on any CPU.

The members of a group take step n one after the other. Their new states are committed if the step is valid for all, so
that a group stops as one. Member l of a group has word j of its state at j · width + l.
"""

from collections.abc import Sequence
from string import Template
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from ..kernel import Sizes
from ..lowering.llvm_builder import Code
from ..targets.time_loop import ATTRIBUTES, ROW_BACKWARD, ROW_FORWARD
from .loops import WIDTH, Memory
from .nodes import linear_of
from .storage import SMALL

_LINE = 64  # bytes to which memory is aligned
_KERNEL = Template("""\
declare ptr @malloc(i64)
declare void @free(ptr)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare <8 x double> @llvm.masked.gather.v8f64.v8p0(<8 x ptr>, i32, <8 x i1>, <8 x double>)
declare <8 x i64> @llvm.masked.gather.v8i64.v8p0(<8 x ptr>, i32, <8 x i1>, <8 x i64>)
$constants
define void @advance(i64 %groups, i64 %n1, i64 %base, i64 %every, i64 %first, i64 %rows, i64 %nslots,
    ptr noalias %n, ptr noalias %state, ptr noalias %uniforms, ptr noalias %own, ptr noalias %path,
    ptr noalias %slots, ptr noalias %added) #0 {
entry:
  %area = call ptr @malloc(i64 $bytes)
  %area.number = ptrtoint ptr %area to i64
  %area.more = add i64 %area.number, 63
  %area.line = and i64 %area.more, -64
  %memory = inttoptr i64 %area.line to ptr
$allocas
$copied
$uniform
  br label %group.head
group.head:
  %index = phi i64 [0, %$before], [%index.next, %group.done]
  %group.more = icmp slt i64 %index, %groups
  br i1 %group.more, label %group, label %exit
group:
  %n.at = getelementptr i64, ptr %n, i64 %index
  %n.start = load i64, ptr %n.at
  %state.base = mul i64 %index, $state_words
  %own.base = mul i64 %index, $own_words
  %path.row = mul i64 %index, %rows
  %slots.row = mul i64 %index, %nslots
  %state.at = getelementptr i64, ptr %state, i64 %state.base
  br label %step.head
step.head:
  %n.now = phi i64 [%n.start, %group], [%n.next, %step.done]
  %more = icmp slt i64 %n.now, %n1
  br i1 %more, label %step, label %group.done
step:
$row_from
  %row = add i64 %path.row, %row.from
  %path.base = mul i64 %row, $path_words
  %n.next = add i64 %n.now, 1
  %due.rest = srem i64 %n.next, %every
  %due = icmp eq i64 %due.rest, 0
  %due.count = sdiv i64 %n.next, %every
  %due.slots = sub i64 %due.count, 1
  %slot = sub i64 %due.slots, %first
  %slot.row = add i64 %slots.row, %slot
  %slot.base = mul i64 %slot.row, $saved_words
  br label %lane.head
lane.head:
  %lane = phi i64 [0, %step], [%lane.next, %lane.done]
  %lane.more = icmp slt i64 %lane, $width
  br i1 %lane.more, label %step.body, label %step.commit
step.body:
$read
  %number.at = getelementptr i64, ptr %memory, i64 $number
  store i64 %n.now, ptr %number.at, align 8
$body
lane.accept:
$keep
  br i1 %due, label %lane.save, label %lane.done
lane.save:
$save
$added
  br label %lane.done
lane.done:
  %lane.next = add i64 %lane, 1
  br label %lane.head
step.commit:
  %pending = getelementptr i64, ptr %memory, i64 $pending
  call void @llvm.memcpy.p0.p0.i64(ptr %state.at, ptr %pending, i64 $state_bytes, i1 false)
  br label %step.done
step.done:
  br label %step.head
group.done:
  store i64 %n.now, ptr %n.at
  %index.next = add i64 %index, 1
  br label %group.head
exit:
  call void @free(ptr %area)
  ret void
}""")

_ADDITION = Template("""\
  br label %$label.head
$label.head:
  %$label = phi i64 [0, %$block], [%$label.next, %$label.body]
  %$label.more = icmp slt i64 %$label, $count
  br i1 %$label.more, label %$label.body, label %$label.exit
$label.body:
  %$label.base = mul i64 %slot.row, $row
  %$label.word = add i64 %$label, $first
  %$label.scaled = mul i64 %$label.word, $width
  %$label.far = add i64 %$label.base, %$label.scaled
  %$label.from = add i64 %$label.far, %lane
  %$label.from.at = getelementptr double, ptr %added, i64 %$label.from
  %$label.near = mul i64 %$label, $width
  %$label.to = add i64 %$label.near, $state
  %$label.own = add i64 %$label.to, %lane
  %$label.to.at = getelementptr double, ptr %memory, i64 %$label.own
  %$label.more.word = load double, ptr %$label.from.at, align 8
  %$label.old = load double, ptr %$label.to.at, align 8
  %$label.sum = fadd double %$label.old, %$label.more.word
  store double %$label.sum, ptr %$label.to.at, align 8
  %$label.next = add i64 %$label, 1
  br label %$label.head
$label.exit:""")


class Copies(NamedTuple):
    """Lines that copy words, and the basic block in which they end."""

    lines: list[str]
    block: str


class Words(NamedTuple):
    """Memory outside: the word j of a lane has the address base + j · stride + lane, counted from a pointer."""

    pointer: str
    base: str
    stride: int = 1
    lane: str = "0"


class Loop(NamedTuple):
    """What surrounds a step: the copies of its inputs and outputs, and the address of the number of the step."""

    uniforms: Copies
    read: Copies
    keep: Copies
    save: Copies
    added: list[str]  # the lines that add words of a saved step to the new state
    backward: bool  # whether the rows of the path are read from the last to the first
    number: int
    pending: int  # the new states of a group


def copies(code: Code, arrays: Sequence[Int[np.ndarray, "..."]], words: Words, block: str, inward: bool) -> Copies:
    """Copy the words of arrays to memory, or from there; `arrays` are addresses in memory."""
    lines: list[str] = []
    first = 0
    for at in arrays:
        linear = linear_of(at)
        large = [a for a, n in enumerate(at.shape) if n > SMALL] if linear else []
        count = np.arange(first, first + at.size).reshape(at.shape)
        small = [a for a in range(at.ndim) if a not in large]
        for index in np.ndindex(*(at.shape[a] for a in small)):
            pick = tuple(index[small.index(a)] if a in small else slice(None) for a in range(at.ndim))
            block = _copy(code, lines, at[pick], count[pick], words, block, inward)
        first += at.size
    return Copies(lines, block)


def _copy(
    code: Code, lines: list[str], at: np.ndarray, word: np.ndarray, words: Words, block: str, inward: bool
) -> str:
    """Copy words in a loop over each axis; return the basic block in which it ends."""
    inside, outside = linear_of(at), linear_of(word)
    assert inside is not None and outside is not None
    labels = [code.fresh("copy") for _ in at.shape]
    for label, n in zip(labels, at.shape, strict=True):
        lines += [
            f"  br label %{label}.head",
            f"{label}.head:",
            f"  %{label} = phi i64 [0, %{block}], [%{label}.next, %{label}.latch]",
            f"  %{label}.more = icmp slt i64 %{label}, {n}",
            f"  br i1 %{label}.more, label %{label}.body, label %{label}.exit",
            f"{label}.body:",
        ]
        block = f"{label}.body"
    name = code.fresh("word")
    lines += _sum(f"%{name}.in", inside, labels)
    lines += [f"  %{name}.in.at = getelementptr i64, ptr %memory, i64 %{name}.in"]
    lines += _sum(f"%{name}.j", outside, labels)
    lines += [
        f"  %{name}.scaled = mul i64 %{name}.j, {words.stride}",
        f"  %{name}.far = add i64 %{name}.scaled, {words.base}",
        f"  %{name}.out = add i64 %{name}.far, {words.lane}",
        f"  %{name}.out.at = getelementptr i64, ptr {words.pointer}, i64 %{name}.out",
    ]
    source, target = ("out", "in") if inward else ("in", "out")
    lines += [
        f"  %{name} = load i64, ptr %{name}.{source}.at, align 8",
        f"  store i64 %{name}, ptr %{name}.{target}.at, align 8",
    ]
    for label in labels[::-1]:
        lines += [
            f"  br label %{label}.latch",
            f"{label}.latch:",
            f"  %{label}.next = add i64 %{label}, 1",
            f"  br label %{label}.head",
            f"{label}.exit:",
        ]
        block = f"{label}.exit"
    return block


def additions(code: Code, added: Sequence[int], pending: int, width: int, block: str) -> list[str]:
    """The lines that add the words of a row to words of the new state, in a loop for each run of neighbours."""
    lines, first = [], 0
    while first < len(added):
        last = first + 1
        while last < len(added) and added[last] == added[last - 1] + 1:
            last += 1
        label = code.fresh("add")
        lines += _ADDITION.substitute(
            label=label, block=block, count=last - first, first=first, row=len(added) * width, width=width,
            state=pending + added[first] * width,
        ).splitlines()  # fmt: skip
        block, first = f"{label}.exit", last
    return lines


def _sum(name: str, linear: tuple[int, tuple[int, ...]], labels: Sequence[str]) -> list[str]:
    """The lines that compute a linear function of indices."""
    lines, total = [], str(linear[0])
    for i, (step, label) in enumerate(zip(linear[1], labels, strict=True)):
        lines += [f"  {name}.{i} = mul i64 %{label}, {step}", f"  {name}.{i}.sum = add i64 {total}, {name}.{i}"]
        total = f"{name}.{i}.sum"
    return [*lines, f"  {name} = add i64 {total}, 0"]


def write_kernel(code: Code, memory: Memory, allocas: Sequence[str], loop: Loop, sizes: Sizes, width: int) -> str:
    """Return the text of a kernel around the lines of a step, which end with a jump to lane.accept or group.done."""
    end = max(memory.end, memory.reach) + 8 * WIDTH
    copied = []
    for i, (at, x) in enumerate(memory.constants):
        to = f"%constant{i}.at"
        copied += [
            f"  {to} = getelementptr i64, ptr %memory, i64 {at}",
            f"  call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr @constant{i}, i64 {8 * x.size}, i1 false)",
        ]
    kernel = _KERNEL.substitute(
        constants="\n".join(_constant(i, x) for i, (_, x) in enumerate(memory.constants)),
        bytes=8 * end + _LINE, allocas="\n".join(allocas), copied="\n".join(copied), number=loop.number,
        uniform="\n".join(loop.uniforms.lines), before=loop.uniforms.block, read="\n".join(loop.read.lines),
        keep="\n".join(loop.keep.lines), save="\n".join(loop.save.lines), added="\n".join(loop.added),
        row_from=ROW_BACKWARD if loop.backward else ROW_FORWARD, body="\n".join(code.render(code.finished())),
        state_words=sizes.state * width, own_words=sizes.member * width, path_words=sizes.path * width,
        saved_words=sizes.saved * width, width=width, pending=loop.pending, state_bytes=8 * sizes.state * width,
    )  # fmt: skip
    return "\n".join([kernel, *code.functions.values(), ATTRIBUTES])


def _constant(i: int, words: np.ndarray) -> str:
    """A constant array as bytes."""
    text = "".join(f"\\{b:02x}" for b in words.tobytes())
    return f'@constant{i} = private constant [{8 * words.size} x i8] c"{text}", align 64'
