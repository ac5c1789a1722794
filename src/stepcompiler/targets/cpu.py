"""The CPU as a target: a loop over groups of members around their steps, and compilation for this very processor.

The words of a group of `width` members are interleaved in memory, as in SIMD registers.
"""

import ctypes
import hashlib
from dataclasses import dataclass, field
from functools import cache
from string import Template
from typing import Any, NamedTuple

import llvmlite
import llvmlite.binding as llvm
import numpy as np

from .. import NUMERICS_VERSION
from ..errors import NotCompilable
from ..kernel import Buffers, Grouped, Sizes
from ..lowering.llvm_builder import Code
from .object_cache import cached_object

_GROUPS = Template("""\
define void @advance(i64 %groups, i64 %n1, i64 %base, i64 %every, i64 %first, i64 %rows, i64 %nslots,
    ptr noalias %n, ptr noalias %state, ptr noalias %uniforms, ptr noalias %own, ptr noalias %path,
    ptr noalias %slots, ptr noalias %added) alignstack($line) #0 {
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
    """Groups of `width` interleaved members, one group after the other."""

    width: int
    pointer: str = field(default="ptr", init=False)
    lane: str = field(default="0", init=False)
    reload_index: str = field(
        default="  %index.reload = add i64 %index, 0\n  %state.reload = add i64 %state.base, 0", init=False
    )

    @property
    def packs(self) -> bool:
        """Whether a group has one member."""
        return self.width == 1

    @property
    def stride(self) -> str:
        """The members of a group are interleaved."""
        return str(self.width)

    @property
    def layout(self) -> Grouped:
        """Groups of members, one after the other."""
        return Grouped(self.width)

    def wrap_kernel(self, steps: str, shared: str, sizes: Sizes) -> str:
        """Return a loop over groups."""
        words = {"state_words": sizes.state * self.width, "own_words": sizes.member * self.width}
        return _GROUPS.substitute(steps=steps, uniforms=shared, line=_LINE, **words)

    def link(self, text: str, sizes: Sizes) -> "CpuExecutable":
        """Return machine code for this processor."""
        executable = CpuExecutable(text, self.width, sizes)
        executable.run(self.layout.allocate(sizes, self.width, 0, 0), 0, 1)  # errors of the first call are raised here
        return executable

    def check(self, code: Code) -> None:
        """A CPU runs all code."""


class LoopArguments(NamedTuple):
    """The arguments of the machine code, in its order: counts, then addresses (0 for arrays that it does not read)."""

    groups: int
    stop: int
    base: int  # the first step of the path
    every: int
    first: int  # the first slot
    rows: int  # of the path
    slots: int
    n: int
    state: int
    shared: int
    member: int
    path: int
    saved: int
    added: int


class CpuExecutable:
    """Machine code that takes the steps n … stop − 1 of groups of `width` members, one group after the other.

    A group is read from memory, stepped until `stop` or until a step is not valid (it stops before that step),
    and written back. After every `every` steps, the saved words go to the next slot.
    """

    def __init__(self, text: str, width: int, sizes: Sizes):
        self.width, self.sizes = width, sizes
        self._engine, address = compiled(text)
        pointer, integer = ctypes.c_void_p, ctypes.c_int64
        self.key, self.address = _key_of(text), address
        counts = LoopArguments._fields.index("n")
        addresses = len(LoopArguments._fields) - counts
        self._function = ctypes.CFUNCTYPE(None, *[integer] * counts, *[pointer] * addresses)(address)

    def run(self, buffers: Buffers, stop: int, every: int) -> None:
        """Take steps, updating `buffers.n`, `buffers.state` and `buffers.saved` in place."""
        b = buffers
        self._check(b, stop, every)
        shared, member, path = (np.ascontiguousarray(a) for a in (b.shared, b.member, b.path))
        at = lambda a: 0 if a is None else a.ctypes.data
        self.run_at(LoopArguments(
            groups=len(b.n), stop=stop, base=b.first_path_step, every=every, first=b.first_slot, rows=b.path.shape[1],
            slots=b.saved.shape[1], n=at(b.n), state=at(b.state), shared=at(shared), member=at(member), path=at(path),
            saved=at(b.saved), added=at(b.added),
        ))  # fmt: skip

    def run_at(self, arguments: LoopArguments) -> None:
        """Run on memory that the caller has checked."""
        self._function(*arguments)

    def _check(self, b: Buffers, stop: int, every: int) -> None:
        """Raise ValueError unless all memory that the code reads and writes is there."""
        groups, sizes, width = len(b.n), self.sizes, self.width
        shapes = (
            b.state.shape,
            b.member.shape,
            b.path.shape[::2],
            b.path.shape[3:],
            b.saved.shape[::2],
            b.saved.shape[3:],
        )
        path, saved = (groups, sizes.path), (groups, sizes.saved)
        if shapes != ((groups, sizes.state, width), (groups, sizes.member, width), path, (width,), saved, (width,)):
            raise ValueError(f"Buffers of the shapes {shapes} do not fit a kernel of {sizes} and width {width}.")
        if len(b.shared) < sizes.shared:
            raise ValueError(f"The kernel reads {sizes.shared} shared words, but the buffers have {len(b.shared)}.")
        if any(not a.flags.c_contiguous or a.itemsize != 8 for a in (b.n, b.state, b.saved)):
            raise ValueError("The arrays n, state and saved must be contiguous and have words of eight bytes.")
        first, end = b.first_path_step, b.first_path_step + b.path.shape[1]
        if sizes.path and not (first <= b.n.min() and stop <= end):
            raise ValueError(f"The path has the steps {first} … {end - 1}, but the run takes {b.n.min()} … {stop - 1}.")
        added = None if b.added is None else b.added.shape
        if sizes.added and added != (groups, b.saved.shape[1], sizes.added, width):
            raise ValueError(f"A kernel that adds {sizes.added} words needs them for each saved row, not {added}.")
        if sizes.saved and stop // every - b.first_slot > b.saved.shape[1]:
            raise ValueError(f"The buffers have {b.saved.shape[1]} rows, but {stop // every - b.first_slot} are saved.")


def _key_of(text: str) -> int:
    """A number above 0 that identifies the text of a kernel."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "little") + 1


# Compilation.


@cache
def _initialize() -> None:
    """Once per process. Raises if this processor has no fused multiply-add."""
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
    return link_text(text, "advance", level)


def link_text(text: str, name: str, level: int = 3) -> tuple[Any, int]:
    """The engine that holds the code, and the address of the function of this name."""

    def make() -> bytes:
        module, target = optimized(text, level)
        return target.emit_object(module)

    machine = _machine(level)  # raises if native code does not support the processor
    code = llvm.ObjectFileRef.from_data(cached_object(_identity(text, level), make))
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(code)
    engine.finalize_object()
    address = engine.get_function_address(name)
    if not address:
        raise RuntimeError("LLVM found no compiled code at the end.")
    return engine, address


def _identity(text: str, level: int) -> str:
    """Equal for texts whose machine code is the same here."""
    versions = f"numerics {NUMERICS_VERSION}, llvmlite {llvmlite.__version__}, LLVM {llvm.llvm_version_info}"
    processor = llvm.get_process_triple(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    return f"{versions}, level {level}, {processor}\n{text}"
