"""The CPU as a target: the loop over steps and groups of members around a step, memory, and compilation.

What another target would have otherwise stands here: where a member's numbers lie, how the code is entered, and how
LLVM's language becomes machine code. A group of `width` members lies side by side; all numbers take eight bytes.
"""

import ctypes
from collections.abc import Sequence
from functools import cache
from string import Template
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from .code import TYPES, Code, Value
from .refused import Refused

_LOOP = Template("""\
define void @advance(i64 %groups, i64 %n1, i64 %base, i64 %every, i64 %first, i64 %rows, i64 %nslots,
    ptr noalias %n, ptr noalias %state, ptr noalias %uniforms, ptr noalias %own, ptr noalias %path,
    ptr noalias %slots) #0 {
entry:
$read_uniforms
  br label %group.head
group.head:
  %g = phi i64 [0, %entry], [%g.next, %group.done]
  %g.more = icmp slt i64 %g, %groups
  br i1 %g.more, label %group.body, label %exit
group.body:
  %n.at = getelementptr i64, ptr %n, i64 %g
  %n.start = load i64, ptr %n.at
  %state.offset = mul i64 %g, $state_words
  %state.at = getelementptr i64, ptr %state, i64 %state.offset
  %own.offset = mul i64 %g, $own_words
  %own.at = getelementptr i64, ptr %own, i64 %own.offset
  %path.row = mul i64 %g, %rows
  %path.first = sub i64 %path.row, %base
  %slots.row = mul i64 %g, %nslots
  %done = sdiv i64 %n.start, %every
  %slot.start = sub i64 %done, %first
  %done.steps = mul i64 %done, %every
  %since = sub i64 %n.start, %done.steps
  %left.start = sub i64 %every, %since
$read_state
$read_own
  br label %step.head
step.head:
  %n.now = phi i64 [%n.start, %group.body], [%n.next, %step.next]
  %left = phi i64 [%left.start, %group.body], [%left.next, %step.next]
  %slot = phi i64 [%slot.start, %group.body], [%slot.next, %step.next]
$moving
  %more = icmp slt i64 %n.now, %n1
  br i1 %more, label %step.body, label %group.done
step.body:
  %row = add i64 %path.first, %n.now
  %row.offset = mul i64 %row, $path_words
  %row.at = getelementptr i64, ptr %path, i64 %row.offset
$read_path
$read_n
$body
  br i1 $taken, label %step.accept, label %group.done, !prof !0
step.accept:
$accepted
  %n.next = add i64 %n.now, 1
  %left.less = sub i64 %left, 1
  %due = icmp eq i64 %left.less, 0
  br i1 %due, label %save, label %step.next
save:
  %slot.row = add i64 %slots.row, %slot
  %slot.offset = mul i64 %slot.row, $saved_words
  %slot.at = getelementptr i64, ptr %slots, i64 %slot.offset
$save
  %slot.more = add i64 %slot, 1
  br label %step.next
step.next:
  %left.next = phi i64 [%left.less, %step.accept], [%every, %save]
  %slot.next = phi i64 [%slot, %step.accept], [%slot.more, %save]
  br label %step.head
group.done:
$keep
  store i64 %n.now, ptr %n.at
  %g.next = add i64 %g, 1
  br label %group.head
exit:
  ret void
}
$functions
attributes #0 = { nounwind "no-trapping-math"="true" "no-builtins" }
!0 = !{!"branch_weights", i32 2000, i32 1}
""")


class StepLoop:
    """The compiled loop: steps n … n₁ − 1 of groups of `width` members, one group after the other.

    A group is read from `state`, stepped until n₁ or until a step does not come out valid (it then stands before that
    step), and written back. After every `every` steps the saved words go to the next slot.
    """

    def __init__(self, text: str, width: int, words: int, columns: int, saved: int, own: int):
        self.width, self.words, self.columns, self.saved, self.own = width, words, columns, saved, own
        self._engine, address = compiled(text)
        pointer, integer = ctypes.c_void_p, ctypes.c_int64
        self._function = ctypes.CFUNCTYPE(None, *[integer] * 7, *[pointer] * 6)(address)

    def __call__(
        self,
        n: np.ndarray,
        n1: int,
        base: int,
        every: int,
        first_slot: int,
        state: np.ndarray,
        uniforms: np.ndarray,
        own: np.ndarray,
        path: np.ndarray,
        slots: np.ndarray,
    ) -> None:
        """Go on, in place: n (groups), state (groups, words, width), slots (groups, slots, saved, width).

        `path` (groups, rows, columns, width) holds the increments from step `base` on, `uniforms` what is the same for
        all members and steps, `own` (groups, own, width) what is each member's own.
        """
        groups, width = len(n), self.width
        assert state.shape == (groups, self.words, width) and own.shape == (groups, self.own, width)
        assert path.shape[0] == groups and path.shape[2:] == (self.columns, width)
        assert slots.shape[0] == groups and slots.shape[2:] == (self.saved, width)
        assert base <= n.min() and n1 <= base + path.shape[1] and n1 // every - first_slot <= slots.shape[1]
        arrays = [np.ascontiguousarray(a) for a in (n, state, uniforms, own, path, slots)]
        assert all(a is b for a, b in zip((n, state, slots), (arrays[0], arrays[1], arrays[5]), strict=True))
        counts = groups, n1, base, every, first_slot, path.shape[1], slots.shape[1]
        self._function(*counts, *(a.ctypes.data for a in arrays))


def step_loop(code: Code, inputs: dict[str, list[Value]], attempts: Sequence[Any]) -> StepLoop:
    """The loop around a step.

    `inputs` names the values that the code reads: "state", "uniforms", "own", "path" and the step number "n". Of the
    `attempts` at a step the first that is valid is taken.
    """
    accepted = [Value(f"%new{i}", x.dtype) for i, x in enumerate(attempts[0].results)]
    outputs, saved = accepted[: len(inputs["state"])], accepted[len(inputs["state"]) :]
    state, own, path, uniforms, (number,) = (inputs[k] for k in ("state", "own", "path", "uniforms", "n"))
    for x in (*state, *own, *path, *saved):
        if x.dtype == np.float32:
            raise Refused("Numbers of type float32 in a state have no native rule.")
    lines = {
        "read_uniforms": [line for i, x in enumerate(uniforms) for line in _read_shared(code, i, x)],
        "read_state": _read(code, state, "%state.at", ".start"),
        "read_own": _read(code, own, "%own.at"),
        "read_path": _read(code, path, "%row.at"),
        "read_n": _spread(code, number.name, "%n.now", np.int64),
        "moving": [
            f"  {x.name} = phi {code.kind(x.dtype)} [{x.name}.start, %group.body], [{code.text(y)}, %step.next]"
            for x, y in zip(state, outputs, strict=True)
        ],
        "accepted": [
            f"  {x.name} = phi {code.kind(x.dtype)} "
            + ", ".join(f"[{code.spelled(a.results[i])}, %{a.block}]" for a in attempts)
            for i, x in enumerate(accepted)
        ],
        "save": [line for i, x in enumerate(saved) for line in _store(code, x, "%slot.at", i, f"%save{i}")],
        "keep": [line for i, x in enumerate(state) for line in _store(code, x, "%state.at", i, f"%keep{i}")],
        "functions": list(code.functions.values()),
    }
    lines["body"] = code.written()
    sizes = {"state": state, "own": own, "path": path, "saved": saved}
    text = _LOOP.substitute(
        {name: "\n".join(part) for name, part in lines.items()},
        **{f"{name}_words": len(part) * code.width for name, part in sizes.items()},
        taken=attempts[-1].taken,
    )
    return StepLoop(text, code.width, len(state), len(path), len(saved), len(own))


# Memory: words of eight bytes, the members of a group side by side.


def _read(code: Code, values: list[Value], pointer: str, rename: str = "") -> list[str]:
    return [line for i, x in enumerate(values) for line in _load(code, pointer, i, x.name + rename, x.dtype)]


def _load(code: Code, pointer: str, at: int, name: str, dtype: Any) -> list[str]:
    """The lines that read a word."""
    wide = code.kind(np.float64 if dtype == np.float64 else np.int64)
    word = name if dtype in (np.float64, np.int64) else f"{name}.word"
    lines = [
        f"  {name}.at = getelementptr i64, ptr {pointer}, i64 {at * code.width}",
        f"  {word} = load {wide}, ptr {name}.at, align 8",
    ]
    if word != name:
        lines.append(f"  {name} = {'bitcast' if dtype == np.uint64 else 'trunc'} {wide} {word} to {code.kind(dtype)}")
    return lines


def _store(code: Code, x: Any, pointer: str, at: int, name: str) -> list[str]:
    """The lines that write a word."""
    kind, operand = code.kind(x.dtype), code.text(x)
    lines = []
    if x.dtype not in (np.float64, np.int64, np.uint64):
        wider = "sext" if x.dtype.kind == "i" else "zext"
        lines = [f"  {name}.word = {wider} {kind} {operand} to {code.kind(np.int64)}"]
        kind, operand = code.kind(np.int64), f"{name}.word"
    return [
        *lines,
        f"  {name}.at = getelementptr i64, ptr {pointer}, i64 {at * code.width}",
        f"  store {kind} {operand}, ptr {name}.at, align 8",
    ]


def _read_shared(code: Code, at: int, x: Value) -> list[str]:
    """The lines that read a word that is the same for all."""
    return [
        f"  {x.name}.at = getelementptr i64, ptr %uniforms, i64 {at}",
        f"  {x.name}.one = load {TYPES[x.dtype.name]}, ptr {x.name}.at, align 8",
        *_spread(code, x.name, f"{x.name}.one", x.dtype),
    ]


def _spread(code: Code, name: str, scalar: str, dtype: Any) -> list[str]:
    """The lines that give each member the same number."""
    one, kind = TYPES[np.dtype(dtype).name], code.kind(dtype)
    if code.width == 1:
        return [f"  {name} = bitcast {one} {scalar} to {one}"]
    return [
        f"  {name}.first = insertelement {kind} poison, {one} {scalar}, i64 0",
        f"  {name} = shufflevector {kind} {name}.first, {kind} poison, <{code.width} x i32> zeroinitializer",
    ]


# Compilation.


@cache
def _initialize() -> None:
    """Once a process; refused if this processor cannot multiply and add in one operation."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    if llvm.get_process_triple().startswith("x86_64") and not llvm.get_host_cpu_features().get("fma"):
        raise Refused(f"The processor {llvm.get_host_cpu_name()} has no fused multiply-add.")


def _machine(level: int) -> Any:
    """This very processor. An engine owns its machine, so that each needs its own."""
    _initialize()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=level,
        codemodel="jitdefault",
    )


def optimized(text: str, level: int = 3) -> tuple[Any, Any]:
    """The module after LLVM's passes, and the machine it is for."""
    target = _machine(level)
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = target.triple, str(target.target_data)
    module.verify()
    builder = llvm.create_pass_builder(target, llvm.create_pipeline_tuning_options(speed_level=min(level, 2)))
    builder.getModulePassManager().run(module, builder)
    return module, target


def compiled(text: str, level: int = 3) -> tuple[Any, int]:
    """The engine that holds the code, and the address of `advance`."""
    module, target = optimized(text, level)
    engine = llvm.create_mcjit_compiler(module, target)
    engine.finalize_object()
    return engine, engine.get_function_address("advance")
