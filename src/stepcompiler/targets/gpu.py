"""A GPU as a target: one thread per member, with its state in registers.

Word j of all members is contiguous, so that adjacent threads read adjacent addresses. Every argument of the kernel is a
pointer, as XLA's call of PTX requires. Arrays that are updated in place are passed twice, as input and as output.

With `emulated`, the same text is compiled for this processor, with a loop over thread indices. Results are bitwise
identical to those of a GPU.
"""

import ctypes
import re
from dataclasses import dataclass, field
from functools import cache
from string import Template
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from ..errors import NotCompilable
from ..kernel import Buffers, MembersLast, Sizes
from ..lowering.llvm_builder import Code
from .cpu import compiled

LONGEST = 4000  # the most operations of a step whose numbers fit in a thread's registers, …
LONGEST_ASKED = 20_000  # … and of a slower kernel, which backend="native-gpu" requires
REGISTERS = 128  # of a thread, at most: with more, too few threads run at once
RESIDENT = 2**16 // REGISTERS  # threads that one of a GPU's processors has registers for
_KNOWN = (70, 72, 75, 80, 86, 89, 90, 100, 120)  # compute capabilities that LLVM writes for; newer GPUs take older text
_SCALARS = ("members", "n1", "base", "every", "first")
_ARGUMENTS = ("scalars", "uniforms", "own", "path", "n", "state", "slots", "n.same", "state.same", "slots.same")

_THREAD = Template("""\
$define
entry:
$find
  %index = zext i32 %thread to i64
$scalars
  %inside = icmp slt i64 %index, %members
  br i1 %inside, label %member, label %exit
member:
  %state.base = add i64 %index, 0
  %own.base = add i64 %index, 0
  %path.row = add i64 0, 0
  %slots.row = add i64 0, 0
$uniforms
$steps
  br label %exit
exit:
  ret void
}""")
_FIND = """\
  %block = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %size = call i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
  %within = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %before = mul i32 %block, %size
  %thread = add i32 %before, %within"""
_SIZE = ".address_size 64"
_FUNCTION = re.compile(r"^\{\n.*?^\}", re.MULTILINE | re.DOTALL)
_CONSTANT = re.compile(r"0d[0-9A-F]{8}(?!00000000)[0-9A-F]{8}")
# The index is computed again at the end, so that addresses of words occupy no registers during the steps.
_RELOAD = """\
  %within.reload = call i32 asm sideeffect "mov.u32 $0, %tid.x;", "=r"()
  %thread.reload = add i32 %before, %within.reload
  %index.reload = zext i32 %thread.reload to i64
  %state.reload = add i64 %index.reload, 0"""
_SAME = "  %index.reload = add i64 %index, 0\n  %state.reload = add i64 %index, 0"
_EMULATED = Template("""\
define void @advance(i32 %threads, $arguments) {
entry:
  br label %head
head:
  %thread = phi i32 [0, %entry], [%next, %body]
  %more = icmp ult i32 %thread, %threads
  br i1 %more, label %body, label %exit
body:
  call void @thread(i32 %thread, $arguments)
  %next = add i32 %thread, 1
  br label %head
exit:
  ret void
}""")


@dataclass(frozen=True)
class Gpu:
    """Threads of an NVIDIA GPU; `emulated`: the same text with a loop over threads, for this processor."""

    emulated: bool = False
    width: int = field(default=1, init=False)
    packs: bool = field(default=False, init=False)
    stride: str = field(default="%members", init=False)
    lane: str = field(default="%index", init=False)

    @property
    def pointer(self) -> str:
        """To the GPU's own memory."""
        return "ptr" if self.emulated else "ptr addrspace(1)"

    @property
    def reload_index(self) -> str:
        """How the index is found in the end."""
        return _SAME if self.emulated else _RELOAD

    @property
    def layout(self) -> MembersLast:
        """Each word of all members, then the next one."""
        return MembersLast()

    def wrap_kernel(self, steps: str, shared: str, sizes: Sizes) -> str:
        """Return a kernel for one member."""
        p = self.pointer
        arguments = ", ".join(f"{p} noalias %{name}" for name in _ARGUMENTS)
        kernel = f"define ptx_kernel void @advance({arguments}) #0 {{"
        thread = f"define internal void @thread(i32 %thread, {arguments}) #0 {{"
        scalars = [
            line
            for i, name in enumerate(_SCALARS)
            for line in (
                f"  %{name}.at = getelementptr i64, {p} %scalars, i64 {i}",
                f"  %{name} = load i64, {p} %{name}.at, align 8",
            )
        ]
        text = _THREAD.substitute(
            define=thread if self.emulated else kernel, find="" if self.emulated else _FIND,
            scalars="\n".join(scalars), uniforms=shared, steps=steps,
        )  # fmt: skip
        if self.emulated:
            text += "\n" + _EMULATED.substitute(arguments=arguments.replace("noalias ", ""))
        return text

    def link(self, text: str, sizes: Sizes) -> "GpuExecutable":
        """Return the kernel, from which PTX is made for the GPU that launches it."""
        return GpuExecutable(text, self.emulated, sizes)

    def check(self, code: Code) -> None:
        """Raise an error if a step is too long for a thread."""
        length = sum(line.result is not None for line in code.lines)
        if length > LONGEST_ASKED:
            raise NotCompilable(too_long(length, LONGEST_ASKED))


def too_long(length: int, most: int) -> str:
    """Return the reason why a step is not supported."""
    return f"The step takes {length} operations, and beyond {most} a GPU's thread has too few registers."


class GpuExecutable:
    """A kernel that takes the steps n … stop − 1 of members, each in a thread."""

    def __init__(self, text: str, emulated: bool, sizes: Sizes):
        self.text, self.sizes = text, sizes
        self.length = text.count(" = ")
        self._engine, address = compiled(text) if emulated else (None, 0)
        pointers = [ctypes.c_void_p] * len(_ARGUMENTS)
        self._function = ctypes.CFUNCTYPE(None, ctypes.c_int32, *pointers)(address) if emulated else None
        self._ptx: dict[int, str] = {}

    def arguments(self, buffers: Buffers, stop: Any, every: int) -> tuple[Any, ...]:
        """Return the arrays that the kernel takes: scalars, shared, member, path, then n, state and saved.

        The kernel updates the last three in place. XLA takes no empty arrays, so that these become arrays of one zero.
        """
        b = buffers
        scalars = np.array([len(b.n), stop, b.first_path_step, every, b.first_slot])
        filled = (x if x.size else np.zeros(1) for x in (b.shared, b.member, b.path))
        return scalars, *filled, b.n, *(x if x.size else np.zeros(1) for x in (b.state, b.saved))

    def run(self, buffers: Buffers, stop: int, every: int) -> None:
        """Take steps, updating `buffers.n`, `buffers.state` and `buffers.saved` in place; only for an emulated GPU."""
        self.emulate(len(buffers.n), *self.arguments(buffers, stop, every))

    def ptx(self, capability: int) -> str:
        """The kernel `advance` for GPUs of this compute capability (90 for 9.0) or a newer one."""
        arch = max((k for k in _KNOWN if k <= capability), default=_KNOWN[0])
        if arch not in self._ptx:
            self._ptx[arch] = _ptx(self.text, f"sm_{arch}")
        return self._ptx[arch]

    def emulate(self, threads: int, *arrays: np.ndarray) -> None:
        """Run this many threads, one after the other, on arrays in the order of `arguments`."""
        if self._function is None:
            raise ValueError("Only Gpu(emulated=True) runs kernels on this processor; a launcher runs those of a GPU.")
        addresses = [a.ctypes.data for a in arrays]
        self._function(threads, *addresses, *addresses[-3:])


@cache
def _initialize() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


def _ptx(text: str, arch: str) -> str:
    _initialize()
    target = llvm.Target.from_triple("nvptx64-nvidia-cuda").create_target_machine(cpu=arch, opt=3)
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = target.triple, str(target.target_data)
    module.verify()
    builder = llvm.create_pass_builder(target, llvm.create_pipeline_tuning_options(speed_level=3))
    builder.getModulePassManager().run(module, builder)
    ptx = with_table(target.emit_assembly(module))
    return ptx.replace(")\n{", f")\n.maxnreg {REGISTERS}\n{{", 1)


def with_table(ptx: str) -> str:
    """The same text with its double-precision constants in a table in constant memory.

    An operation takes one of its operands from there at no cost. Half of a constant's bits fit an instruction;
    otherwise two more instructions would assemble it.
    """
    places: dict[str, int] = {}

    def function(body: re.Match) -> str:
        names, lines = dict.fromkeys(_CONSTANT.findall(body[0])), []
        for line in body[0].splitlines()[1:]:
            for constant in _CONSTANT.findall(line):
                at = places.setdefault(constant, len(places))
                lines.append(f"\tld.const.f64 \t%table{at}, [table+{8 * at}];")
                line = line.replace(constant, f"%table{at}")
            lines.append(line)
        return "\n".join(["{", *(f"\t.reg .f64 \t%table{places[x]};" for x in names), *lines])

    ptx = _FUNCTION.sub(function, ptx)
    numbers = ", ".join(f"0x{constant[2:]}" for constant in places)
    table = f".const .align 8 .b64 table[{len(places)}] = {{{numbers}}};"
    return ptx.replace(_SIZE, f"{_SIZE}\n{table}", 1) if places else ptx
