"""The CPU as a target: a loop over groups of members around their steps, and compilation for this very processor.

A group of `width` members lies side by side in memory, as in the processor's vectors.
"""

import ctypes
from dataclasses import dataclass, field
from functools import cache
from string import Template
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from ..errors import NotCompilable
from ..lowering.llvm_builder import Code

_GROUPS = Template("""\
define void @advance(i64 %groups, i64 %n1, i64 %base, i64 %every, i64 %first, i64 %rows, i64 %nslots,
    ptr noalias %n, ptr noalias %state, ptr noalias %uniforms, ptr noalias %own, ptr noalias %path,
    ptr noalias %slots) alignstack($line) #0 {
entry:
$uniforms
  br label %group.head
group.head:
  %index = phi i64 [0, %entry], [%g.next, %member.done]
  %g.more = icmp slt i64 %index, %groups
  br i1 %g.more, label %member, label %exit
member:
  %state.base = mul i64 %index, $state_words
  %own.base = mul i64 %index, $own_words
  %path.row = mul i64 %index, %rows
  %slots.row = mul i64 %index, %nslots
$steps
  %g.next = add i64 %index, 1
  br label %group.head
exit:
  ret void
}""")
_LINE = 64  # bytes of a cache line, with which the stack begins: a vector across two of them is read and written twice


@dataclass(frozen=True)
class Cpu:
    """Groups of `width` members side by side, one group after the other."""

    width: int
    pointer: str = field(default="ptr", init=False)
    lane: str = field(default="0", init=False)
    reload_index: str = field(
        default="  %index.reload = add i64 %index, 0\n  %state.reload = add i64 %state.base, 0", init=False
    )

    @property
    def packs(self) -> bool:
        """If there are no members side by side."""
        return self.width == 1

    @property
    def stride(self) -> str:
        """The members of a group lie side by side."""
        return str(self.width)

    def wrap_kernel(self, steps: str, uniforms: str, sizes: dict[str, int]) -> str:
        """A loop over groups."""
        words = {f"{name}_words": sizes[name] * self.width for name in ("state", "own")}
        return _GROUPS.substitute(steps=steps, uniforms=uniforms, line=_LINE, **words)

    def loop(self, text: str, sizes: dict[str, int]) -> "StepLoop":
        """Machine code for this processor."""
        loop = StepLoop(text, self.width, sizes["state"], sizes["path"], sizes["saved"], sizes["own"])
        loop.try_out(sizes["uniforms"])
        return loop

    def check(self, code: Code) -> None:
        """All code will do."""


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

    def try_out(self, uniforms: int) -> None:
        """Call the code for no steps, so that a fault of the first call is found where the code is made."""
        nothing = [np.zeros((1, *shape, self.width)) for shape in ((0, self.columns), (0, self.saved))]
        state, own = (np.zeros((1, count, self.width), np.int64) for count in (self.words, self.own))
        self(np.zeros(1, np.int64), 0, 0, 1, 0, state, np.zeros(uniforms), own, *nothing)

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


# Compilation.


@cache
def _initialize() -> None:
    """Once a process; refused if this processor cannot multiply and add in one operation."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    if llvm.get_process_triple().startswith("x86_64") and not llvm.get_host_cpu_features().get("fma"):
        raise NotCompilable(
            f"The processor {llvm.get_host_cpu_name()} has no fused multiply-add, which native code needs."
        )


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
    address = engine.get_function_address("advance")
    if not address:
        raise RuntimeError("LLVM found no compiled code at the end.")
    return engine, address
