"""The loop over the steps of a member around a step, in LLVM's language, for any target.

A member (on a CPU a group of members) is read from memory, stepped until n₁ or until a step is not valid, and written
back. It stops before a step that is not valid. After every `every` steps the saved words go to the next slot. A
`Target` defines how a member is found and where its words are.

All numbers take eight bytes. Word j of a member is `stride` words after word j − 1.
"""

from collections.abc import Sequence
from string import Template
from typing import Any, NamedTuple, Protocol

import numpy as np

from ..errors import NotCompilable
from ..kernel import Grouped, MembersLast, Signature, Sizes
from ..lowering.instructions import TYPES, Branch, Conversion, Instruction, Label, Operation, Phi, Store, Text, Value
from ..lowering.llvm_builder import Code
from .slp_vectorizer import packed

_STEPS = """\
  %n.at = getelementptr i64, $pointer %n, i64 %index
  %n.start = load i64, $pointer %n.at
  %done = sdiv i64 %n.start, %every
  %slot.start = sub i64 %done, %first
  %due.steps = mul i64 %done, %every
  %due.start = add i64 %due.steps, %every
  %stop.start = call i64 @llvm.smin.i64(i64 %due.start, i64 %n1)
$read_state
$read_own
  br label %step.head
step.head:
  %n.now = phi i64 [%n.start, %member], [%n.next, %step.next]
  %stop = phi i64 [%stop.start, %member], [%stop.next, %step.next]
  %slot = phi i64 [%slot.start, %member], [%slot.next, %step.next]
  %begins = phi i1 [true, %member], [false, %step.next]
$moving
  %more = icmp slt i64 %n.now, %stop
  br i1 %more, label %step.path, label %member.done
step.path:
$read_path
  br label %step.body
step.body:
$read_n
$body
$accept
step.accept:
$accepted
  %n.next = add i64 %n.now, 1
  %stops = icmp eq i64 %n.next, %stop
  br i1 %stops, label %step.stop, label %step.next
step.stop:
  %saved = add i64 %first, %slot
  %saved.more = add i64 %saved, 1
  %due.now = mul i64 %saved.more, %every
  %due = icmp eq i64 %n.next, %due.now
  br i1 %due, label %save, label %step.next
save:
  %slot.row = add i64 %slots.row, %slot
  %slot.words = mul i64 %slot.row, $saved_words
  %slot.scaled = mul i64 %slot.words, $stride
  %slot.base = add i64 %slot.scaled, $lane
$save
  %slot.more = add i64 %slot, 1
  %due.more = add i64 %n.next, %every
  %stop.more = call i64 @llvm.smin.i64(i64 %due.more, i64 %n1)
  br label %step.next
step.next:
$added
  %stop.next = phi i64 [%stop, %step.accept], [%stop, %step.stop], [%stop.more, %save]
  %slot.next = phi i64 [%slot, %step.accept], [%slot, %step.stop], [%slot.more, %save]
  br label %step.head
member.done:
$reload_index
  %n.to = getelementptr i64, $pointer %n, i64 %index.reload
  %n.from = load i64, $pointer %n.to
  %steps = sub i64 %n.now, %n.from
$counted
$keep
  store i64 %n.now, $pointer %n.to
"""
_ROW = Template("""\
$from
  %row = add i64 %path.row, %row.from
  %row.words = mul i64 %row, $path_words
  %row.scaled = mul i64 %row.words, $stride
  %row.base = add i64 %row.scaled, $lane""")
ROW_BACKWARD = """\
  %row.passed = sub i64 %n.now, %base
  %row.last = sub i64 %rows, 1
  %row.from = sub i64 %row.last, %row.passed"""
ROW_FORWARD = "  %row.from = sub i64 %n.now, %base"
_DRAW = """\
  %odd.bit = and i64 %n.now, 1
  %odd = icmp eq i64 %odd.bit, 1
  %even = xor i1 %odd, true
  %need = or i1 %even, %begins
  br i1 %need, label %draw, label %step.drawn
draw:
  %pair = ashr i64 %n.now, 1
$read_pair
$drawn
  br label %step.drawn
step.drawn:"""


class Target(Protocol):
    """The machine and the memory layout of the code.

    Word j of a row has the address (row · words + j) · `stride` + `lane`. The code around the steps defines %index,
    %state.base and %own.base of a member or group, and the first %path.row and %slots.row. `reload_index` defines
    %index.reload and %state.reload at the end, so that they occupy no registers during the steps.
    """

    @property
    def width(self) -> int:
        """The number of members in SIMD lanes."""
        ...

    @property
    def packs(self) -> bool:
        """Whether equal operations of one member may share SIMD registers."""
        ...

    @property
    def pointer(self) -> str:
        """To memory."""
        ...

    @property
    def stride(self) -> str:
        """Between the words of a member."""
        ...

    @property
    def lane(self) -> str:
        """The lane of a member."""
        ...

    @property
    def reload_index(self) -> str:
        """The lines that find a member at the end."""
        ...

    @property
    def layout(self) -> Grouped | MembersLast:
        """The order of words in memory."""
        ...

    def wrap_kernel(self, steps: str, shared: str, sizes: Sizes) -> str:
        """Return the complete text: the entry and the code that finds each member, around the steps of one."""
        ...

    def link(self, text: str, sizes: Sizes) -> Any:
        """Return the executable for a text."""
        ...

    def check(self, code: Code) -> None:
        """Raise `NotCompilable` for code that this target cannot run."""
        ...


class Draw(NamedTuple):
    """The path drawn by the code itself, two steps at a time."""

    lines: list[Instruction]
    block: str  # where it ends
    pair: Value  # the number of the pair, which it reads
    uniforms: list[Value]
    first: list[Any]  # the columns of step 2k, …
    second: list[Any]  # … and of step 2k + 1


class Inputs(NamedTuple):
    """The values that the code of a step reads."""

    state: list[Value]
    own: list[Value]
    path: list[Value]
    uniforms: list[Value]
    n: Value


def write_loop(
    code: Code, inputs: Inputs, attempts: Sequence[Any], target: Target, draw: Draw | None, signature: Signature
) -> str:
    """Return the text of the loop around a step. The first valid one of the attempts at a step is taken."""
    target.check(code)
    if (signature.backward or signature.added) and not isinstance(target.layout, Grouped):
        raise NotCompilable("A kernel of a GPU does not run backward.")
    state, own, path, uniforms, number = inputs
    accepted = [Value(f"%new{i}", x.dtype) for i, x in enumerate(attempts[0].results)]
    outputs, saved = accepted[: len(state)], accepted[len(state) :]
    for x in (*state, *own, *path, *saved):
        if x.dtype == np.float32:
            raise NotCompilable.dtype("float32", " in the state, in parameters by member or in the path")
    memory = Memory(code, target)
    moved = lambda i, x: i in signature.added or any(a.results[i] is not x for a in attempts)
    kept = [i for i, x in enumerate(state) if moved(i, x)]  # the others are not moved
    counts = _counters(code, state, attempts) & set(kept)
    parts = {
        "read_state": texts(memory.read(state, "%state", "%state.base", ".start")),
        "read_own": texts(memory.read(own, "%own", "%own.base")),
        "read_n": texts(broadcast(code, number.name, "%n.now", np.int64)),
        "moving": _moving(state, outputs, signature.added),
        "added": _added(outputs, signature.added),
        "accepted": [
            Phi(x, tuple(a.results[i] for a in attempts), tuple(a.block for a in attempts))
            for i, x in enumerate(accepted)
        ],
        "accept": [Branch((attempts[-1].taken,), ("step.accept", "member.done"), likely=True)],
        "save": [line for i, x in enumerate(saved) for line in memory.store(x, "%slots", "%slot.base", i, f"%save{i}")]
        + memory.add(outputs, signature.added, "%slot.row"),
        "reload_index": texts(target.reload_index.splitlines()),
        "counted": texts(broadcast(code, "%steps.each", "%steps", np.int64)),
        "keep": [line for i in kept for line in (memory.add_steps(i) if i in counts else memory.keep(state[i], i))],
    }
    parts["read_path"], kept_pair = _path(memory, path, draw, signature.backward)
    parts["moving"] += kept_pair
    parts["body"] = code.finished()
    shared = [*uniforms, *(draw.uniforms if draw else [])]
    sizes = Sizes(len(shared), len(own), len(state), 0 if draw else len(path), len(saved), len(signature.added))
    about = {name: getattr(target, name) for name in ("pointer", "stride", "lane")}
    lines = _filled(_STEPS, parts, saved_words=len(saved), **about)
    steps = "\n".join(packed(lines, code.groups, "member") if code.groups else code.render(lines))
    read = "\n".join(line for i, x in enumerate(shared) for line in memory.read_shared(i, x))
    return "\n".join([target.wrap_kernel(steps, read, sizes), *code.functions.values(), ATTRIBUTES])


ATTRIBUTES = """\
attributes #0 = { nounwind "no-trapping-math"="true" "no-builtins" }
!0 = !{!"branch_weights", i32 2000, i32 1}
"""


def texts(lines: Sequence[str]) -> list[Instruction]:
    """Lines of text as instructions."""
    return [Text(None, line.strip(), ends_block=line.startswith("  br ")) for line in lines]


def _filled(template: str, parts: dict[str, list[Instruction]], **words: object) -> list[Instruction]:
    """The instructions of a template: a line `$name` stands for the instructions `parts[name]`, others are text."""
    lines: list[Instruction] = []
    for line in template.splitlines():
        if line.startswith("$"):
            lines += parts[line[1:]]
        elif line.endswith(":"):
            lines.append(Label(line[:-1]))
        else:
            lines += texts([Template(line).substitute(words)])
    return lines


def _counters(code: Code, state: Sequence[Value], attempts: Sequence[Any]) -> set[int]:
    """The words of the state that are one more after each step: such a one need not be carried along."""
    if len(attempts) > 1:
        return set()
    sums = {line.result.name: line for line in code.lines if isinstance(line, Operation) and line.op == "add"}
    pairs = [(x, sums.get(getattr(y, "name", ""))) for x, y in zip(state, attempts[0].results, strict=False)]
    one = lambda x: isinstance(x, np.generic) and x == 1
    read = [(x, line.operands if line else (None, None)) for x, line in pairs]
    return {i for i, (x, (a, b)) in enumerate(read) if isinstance(a, Value) and a.name == x.name and one(b)}


def _moving(state: Sequence[Value], outputs: Sequence[Value], added: tuple[int, ...]) -> list[Instruction]:
    """The instructions that carry the state from step to step; to some words something is added at a saved step."""
    after = [_renamed(x, ".next") if i in added else x for i, x in enumerate(outputs)]
    return [Phi(x, (_renamed(x, ".start"), y), ("member", "step.next")) for x, y in zip(state, after, strict=True)]


def _added(outputs: Sequence[Value], added: tuple[int, ...]) -> list[Instruction]:
    """The instructions that choose the words to which something has been added."""
    ways = "step.accept", "step.stop", "save"
    return [Phi(_renamed(x, ".next"), (x, x, _renamed(x, ".sum")), ways) for x in (outputs[i] for i in added)]


def _renamed(x: Value, suffix: str) -> Value:
    return Value(x.name + suffix, x.dtype)


def _path(
    memory: "Memory", path: list[Value], draw: Draw | None, backward: bool
) -> tuple[list[Instruction], list[Instruction]]:
    """Return the lines that load or draw the increments of a step, and those that save the ones of the next step.

    A pair of steps is drawn at once: before the first of them, and wherever a run begins with the second.
    """
    code, target = memory.code, memory.target
    if draw is None:
        start = ROW_BACKWARD if backward else ROW_FORWARD
        row = _ROW.substitute({"from": start}, path_words=len(path), stride=target.stride, lane=target.lane)
        return texts([*row.splitlines(), *memory.read(path, "%path", "%row.base")]) if path else [], []
    after, kept = [], []
    chosen = []
    for x, a, b in zip(path, draw.first, draw.second, strict=True):
        kind = code.kind(x.dtype)
        chosen.append(f"  {x.name}.drawn = select i1 %odd, {kind} {code.spelled(b)}, {kind} {code.spelled(a)}")
        for name, drawn in ((x.name, f"{x.name}.drawn"), (f"{x.name}.second", code.spelled(b))):
            after.append(f"  {name} = phi {kind} [{x.name}.kept, %step.path], [{drawn}, %{draw.block}]")
        kept.append(f"  {x.name}.kept = phi {kind} [zeroinitializer, %member], [{x.name}.second, %step.next]")
    pair = broadcast(code, draw.pair.name, "%pair", np.int64)
    here = _filled(_DRAW, {"read_pair": texts(pair), "drawn": [*draw.lines, *texts(chosen)]})
    return [*here, *texts(after)], texts(kept)


class Memory:
    """Words of eight bytes, at the addresses of the target."""

    def __init__(self, code: Code, target: Target):
        self.code, self.target = code, target

    def read(self, values: list[Value], area: str, base: str, rename: str = "") -> list[str]:
        """The lines that read words."""
        return [line for i, x in enumerate(values) for line in self._load(area, base, i, x.name + rename, x.dtype)]

    def _load(self, area: str, base: str, at: int, name: str, dtype: Any) -> list[str]:
        code = self.code
        wide = code.kind(np.float64 if dtype == np.float64 else np.int64)
        word = name if dtype in (np.float64, np.int64) else f"{name}.word"
        lines = [*self._at(area, base, at, name), f"  {word} = load {wide}, {self.target.pointer} {name}.at, align 8"]
        if word != name:
            op = "bitcast" if dtype == np.uint64 else "trunc"
            lines.append(f"  {name} = {op} {wide} {word} to {code.kind(dtype)}")
        return lines

    def store(self, x: Value, area: str, base: str, at: int, name: str) -> list[Instruction]:
        """The instructions that write a word."""
        lines: list[Instruction] = []
        if x.dtype not in (np.float64, np.int64, np.uint64):
            word = Value(f"{name}.word", np.int64)
            lines, x = [Conversion(word, "sext" if x.dtype.kind == "i" else "zext", (x,))], word
        return [*lines, *texts(self._at(area, base, at, name)), Store((x,), f"{self.target.pointer} {name}.at")]

    def add(self, outputs: Sequence[Value], added: tuple[int, ...], row: str) -> list[Instruction]:
        """The instructions that add words of a row to some of the state."""
        if not added:
            return []
        words = f"%added.words = mul i64 {row}, {len(added)}"
        lines = texts([words, f"%added.base = mul i64 %added.words, {self.target.stride}"])
        for at, i in enumerate(added):
            x = outputs[i]
            if x.dtype != np.float64:
                raise NotCompilable.dtype(x.dtype.name, " in the words of the state to which the kernel adds")
            more = _renamed(x, ".more")
            lines += texts(self._load("%added", "%added.base", at, more.name, x.dtype))
            lines.append(Operation(_renamed(x, ".sum"), "fadd", (x, more)))
        return lines

    def keep(self, x: Value, at: int) -> list[Instruction]:
        """The instructions that write a word of the state back."""
        return self.store(x, "%state", "%state.reload", at, f"%keep{at}")

    def add_steps(self, at: int) -> list[Instruction]:
        """The instructions that add the number of steps to a word of the state."""
        kind, old, new = self.code.kind(np.int64), f"%count{at}", Value(f"%count{at}.more", np.int64)
        load = self._load("%state", "%state.reload", at, old, np.dtype(np.int64))
        return [*texts([*load, f"{new.name} = add {kind} {old}, %steps.each"]), *self.keep(new, at)]

    def _at(self, area: str, base: str, word: int, name: str) -> list[str]:
        """The lines that find a word."""
        return [
            f"  {name}.offset = mul i64 {self.target.stride}, {word}",
            f"  {name}.index = add i64 {base}, {name}.offset",
            f"  {name}.at = getelementptr i64, {self.target.pointer} {area}, i64 {name}.index",
        ]

    def read_shared(self, at: int, x: Value) -> list[str]:
        """The lines that read a word that is the same for all."""
        pointer = self.target.pointer
        return [
            f"  {x.name}.at = getelementptr i64, {pointer} %uniforms, i64 {at}",
            f"  {x.name}.one = load {TYPES[x.dtype.name]}, {pointer} {x.name}.at, align 8",
            *broadcast(self.code, x.name, f"{x.name}.one", x.dtype),
        ]


def broadcast(code: Code, name: str, scalar: str, dtype: Any) -> list[str]:
    """The lines that give each member the same number."""
    one, kind = TYPES[np.dtype(dtype).name], code.kind(dtype)
    if code.width == 1:
        return [f"  {name} = bitcast {one} {scalar} to {one}"]
    return [
        f"  {name}.first = insertelement {kind} poison, {one} {scalar}, i64 0",
        f"  {name} = shufflevector {kind} {name}.first, {kind} poison, <{code.width} x i32> zeroinitializer",
    ]
