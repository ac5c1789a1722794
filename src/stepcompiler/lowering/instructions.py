"""The instructions of a kernel, before they are text.

An instruction holds its operands as values or constants. Its text follows from it and from the number of SIMD lanes.
Therefore the SLP vectoriser renders an instruction for eight elements as it renders one for a single element.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from ..errors import NotCompilable

TYPES = {"float64": "double", "float32": "float", "bool": "i1"} | {
    f"{sign}int{bits}": f"i{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)
}


class Value:
    """A number of the compiled program: its name and type."""

    __slots__ = ("dtype", "name")

    def __init__(self, name: str, dtype: DTypeLike):
        self.name, self.dtype = name, np.dtype(dtype)


Operand = Value | np.generic  # of an instruction: a varying number or a constant


class Spelling:
    """The text of types and numbers in LLVM's language, for `width` SIMD lanes."""

    def __init__(self, width: int):
        self.width = width
        self._kinds: dict[DTypeLike, str] = {}

    def kind(self, dtype: DTypeLike) -> str:
        """The type in LLVM's language."""
        if dtype not in self._kinds:
            name = np.dtype(dtype).name
            if name not in TYPES:
                raise NotCompilable.dtype(name)
            self._kinds[dtype] = TYPES[name] if self.width == 1 else f"<{self.width} x {TYPES[name]}>"
        return self._kinds[dtype]

    def suffix(self, dtype: DTypeLike) -> str:
        """The type in the name of an intrinsic function."""
        one = f"{'f' if np.dtype(dtype).kind == 'f' else 'i'}{8 * np.dtype(dtype).itemsize}"
        return one if self.width == 1 else f"v{self.width}{one}"

    def operand(self, x: Operand) -> str:
        """A value or a constant."""
        if isinstance(x, Value):
            return x.name
        if self.width == 1:
            return _literal(x)
        one = f"{TYPES[x.dtype.name]} {_literal(x)}"
        return f"<{', '.join([one] * self.width)}>"


def _literal(x: np.generic) -> str:
    if x.dtype == bool:
        return "true" if x else "false"
    if x.dtype.kind == "f":
        return f"0x{struct.pack('>d', x).hex()}"
    return str(int(x))


# In each instruction, `result` is the value that it computes, None if there is none, and `operands` are the numbers
# that it reads. `packable`: one instruction can do the same for many numbers. `body(spelling, operands)` is its text
# without the name of the result, with the operands given as text.


@dataclass(slots=True, eq=False)
class Operation:
    """An operation on numbers of one type, such as fadd, or a comparison such as "icmp slt"."""

    packable: ClassVar[bool] = True
    result: Value
    op: str
    operands: tuple[Operand, ...]

    def body(self, spelling: Spelling, operands: Sequence[str]) -> str:
        """The text of the operation."""
        return f"{self.op} {spelling.kind(self.operands[0].dtype)} {', '.join(operands)}"


@dataclass(slots=True, eq=False)
class Select:
    """The second operand where the first is true, else the third."""

    packable: ClassVar[bool] = True
    result: Value
    operands: tuple[Operand, Operand, Operand]

    def body(self, spelling: Spelling, operands: Sequence[str]) -> str:
        """The text of the selection."""
        kind = spelling.kind(self.result.dtype)
        return f"select {spelling.kind(bool)} {operands[0]}, {kind} {operands[1]}, {kind} {operands[2]}"


@dataclass(slots=True, eq=False)
class Conversion:
    """A number as one of the type of the result, for example by fpext or bitcast."""

    packable: ClassVar[bool] = True
    result: Value
    op: str
    operands: tuple[Operand]

    def body(self, spelling: Spelling, operands: Sequence[str]) -> str:
        """The text of the conversion."""
        return f"{self.op} {spelling.kind(self.operands[0].dtype)} {operands[0]} to {spelling.kind(self.result.dtype)}"


@dataclass(slots=True, eq=False)
class Intrinsic:
    """A function of LLVM, with the types in its name and, for some functions, constant flags as the last arguments."""

    result: Value
    name: str
    types: tuple[np.dtype, ...]
    operands: tuple[Operand, ...]
    flags: str = ""

    @property
    def packable(self) -> bool:
        """Flags are the same for all lanes, so that functions with flags are not packed."""
        return not self.flags

    def body(self, spelling: Spelling, operands: Sequence[str]) -> str:
        """The text of the call."""
        name = ".".join([self.name, *map(spelling.suffix, self.types)])
        return f"call {spelling.kind(self.result.dtype)} @llvm.{name}({_typed(self, spelling, operands)}{self.flags})"


@dataclass(slots=True, eq=False)
class Call:
    """A function of the program, with one result or a bundle of `results` numbers."""

    packable: ClassVar[bool] = False
    result: Value
    name: str
    operands: tuple[Operand, ...]
    results: int

    def body(self, spelling: Spelling, operands: Sequence[str]) -> str:
        """The text of the call."""
        kind = bundle(spelling.kind(self.result.dtype), self.results)
        return f"call {kind} @{self.name}({_typed(self, spelling, operands)})"


@dataclass(slots=True, eq=False)
class Extraction:
    """One of the results of a call."""

    packable: ClassVar[bool] = False
    result: Value
    operands: tuple[Value]
    results: int
    index: int

    def body(self, spelling: Spelling, operands: Sequence[str]) -> str:
        """The text of the extraction."""
        return f"extractvalue {bundle(spelling.kind(self.result.dtype), self.results)} {operands[0]}, {self.index}"


@dataclass(slots=True, eq=False)
class Phi:
    """A number that comes from other basic blocks: one operand per block."""

    packable: ClassVar[bool] = False  # the vectoriser has a rule of its own for it
    result: Value
    operands: tuple[Operand, ...]
    blocks: tuple[str, ...]

    def body(self, spelling: Spelling, operands: Sequence[str]) -> str:
        """The text of the instruction."""
        ways = ", ".join(f"[{x}, %{block}]" for x, block in zip(operands, self.blocks, strict=True))
        return f"phi {spelling.kind(self.result.dtype)} {ways}"


@dataclass(slots=True, eq=False)
class Store:
    """Writes a number to memory; `pointer` has the type and the name of the address."""

    packable: ClassVar[bool] = False
    result: ClassVar[None] = None
    operands: tuple[Operand]
    pointer: str

    def body(self, spelling: Spelling, operands: Sequence[str]) -> str:
        """The text of the instruction."""
        return f"store {spelling.kind(self.operands[0].dtype)} {operands[0]}, {self.pointer}, align 8"


@dataclass(slots=True, eq=False)
class Branch:
    """The end of a basic block: a jump to the first label if the condition holds, which is likely, else the second."""

    packable: ClassVar[bool] = False
    result: ClassVar[None] = None
    operands: tuple[Operand, ...]  # the condition; none for a jump to a single label
    labels: tuple[str, ...]
    likely: bool = False

    def body(self, spelling: Spelling, operands: Sequence[str]) -> str:
        """The text of the instruction."""
        labels = ", ".join(f"label %{label}" for label in self.labels)
        return f"br {f'i1 {operands[0]}, ' if operands else ''}{labels}{', !prof !0' if self.likely else ''}"


@dataclass(slots=True, eq=False)
class Label:
    """The beginning of a basic block."""

    packable: ClassVar[bool] = False
    result: ClassVar[None] = None
    operands: ClassVar[tuple[Operand, ...]] = ()
    name: str

    def body(self, spelling: Spelling, operands: Sequence[str]) -> str:
        """The text of the label."""
        return f"{self.name}:"


@dataclass(slots=True, eq=False)
class Text:
    """An instruction as text, for example for addresses in memory. It reads no numbers that are ever packed."""

    packable: ClassVar[bool] = False
    operands: ClassVar[tuple[Operand, ...]] = ()
    result: Value | None
    text: str
    ends_block: bool = False  # whether it is a jump

    def body(self, spelling: Spelling, operands: Sequence[str]) -> str:
        """The text."""
        return self.text


@dataclass(slots=True, eq=False)
class Sum:
    """A sum or difference, whose instructions are chosen when the uses of its terms have been counted."""

    block: str
    result: Value
    op: str  # fadd or fsub
    terms: tuple[Operand, Operand]
    instructions: list["Instruction"] = field(default_factory=list["Instruction"])


Instruction = (
    Operation | Select | Conversion | Intrinsic | Call | Extraction | Phi | Store | Branch | Label | Text
)  # fmt: skip
Line = Instruction | Sum


class Group(NamedTuple):
    """The instructions for each element of an array.

    `rows` contains the elements of each row; None: the order of their operands.
    """

    elements: list[list[Line]]
    rows: np.ndarray | None


def bundle(kind: str, count: int) -> str:
    """The type of one or several numbers that a function returns."""
    return kind if count == 1 else f"{{ {', '.join([kind] * count)} }}"


def render(instruction: Instruction, spelling: Spelling) -> str:
    """The line of an instruction."""
    return with_name(instruction, instruction.body(spelling, [spelling.operand(x) for x in instruction.operands]))


def with_name(instruction: Instruction, body: str) -> str:
    """The line of an instruction with this text."""
    if instruction.result is not None:
        return f"  {instruction.result.name} = {body}"
    return body if isinstance(instruction, Label) else f"  {body}"


def _typed(instruction: Intrinsic | Call, spelling: Spelling, operands: Sequence[str]) -> str:
    pairs = zip(instruction.operands, operands, strict=True)
    return ", ".join(f"{spelling.kind(x.dtype)} {text}" for x, text in pairs)
