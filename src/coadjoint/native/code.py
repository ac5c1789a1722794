"""Native code: a step written number by number in LLVM's language, and the loop over steps around it, compiled here.

`Code` collects the operations of a step, on single numbers or on `width` members side by side (one a lane of the
processor's vectors). `StepLoop` puts them into a loop over steps and groups of members and compiles it for this very
processor. What the operations are is decided in `lanes`.
"""

import ctypes
import ctypes.util
import struct
from collections.abc import Sequence
from functools import cache
from typing import Any

import llvmlite.binding as llvm
import numpy as np


class Unsuited(Exception):
    """The program cannot be made native code: it is too long, or has an operation that has no rule."""


class Value:
    """A number of the running program: what it is called, and its type."""

    __slots__ = ("dtype", "name")

    def __init__(self, name: str, dtype: Any):
        self.name, self.dtype = name, np.dtype(dtype)


_TYPES = {"float64": "double", "float32": "float", "bool": "i1"} | {
    f"{sign}int{bits}": f"i{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)
}
_FLOATS = {"add": "fadd", "add_any": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_INTEGERS = {"add": "add", "add_any": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor"}
_SHIFTS = {"shift_left": "shl", "shift_right_logical": "lshr", "shift_right_arithmetic": "ashr"}
_COMPARE = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}
_INTRINSIC = {"abs": "fabs", "sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "max": "maximum", "min": "minimum"}
_LIBM = {
    name: name
    for name in "sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh exp exp2 expm1 log log1p pow cbrt "
    "erf erfc lgamma nextafter".split()
} | {"rem": "fmod"}
_ROUND = ("round", "roundeven")  # JAX's rounding methods: away from zero, to even


class Code:
    """The operations of a step, in order."""

    def __init__(self, width: int):
        self.width = width
        self.lines: list[str] = []
        self.block = "step.body"  # the basic block that is being written
        self.used: set[str] = set()  # names that occur as operands
        self.external: set[str] = set()  # functions of the C library
        self._count = 0

    # Names, types, operands.

    def fresh(self, stem: str = "v") -> str:
        """A name that is not taken."""
        self._count += 1
        return f"{stem}{self._count}"

    def kind(self, dtype: Any) -> str:
        """The type as LLVM calls it."""
        name = np.dtype(dtype).name
        if name not in _TYPES:
            raise Unsuited(f"numbers of type {name}")
        return _TYPES[name] if self.width == 1 else f"<{self.width} x {_TYPES[name]}>"

    def text(self, x: Any) -> str:
        """A value or a known number as an operand."""
        if isinstance(x, Value):
            self.used.add(x.name)
            return x.name
        literal = _literal(x)
        return literal if self.width == 1 else self.splat(f"{_TYPES[x.dtype.name]} {literal}")

    def splat(self, scalar: str) -> str:
        """A constant vector."""
        return "<" + ", ".join([scalar] * self.width) + ">"

    def write(self, text: str, dtype: Any) -> Value:
        """One more operation."""
        value = Value("%" + self.fresh(), dtype)
        self.lines.append(f"  {value.name} = {text}")
        return value

    def begin(self, label: str) -> None:
        """A new basic block."""
        self.lines.append(f"{label}:")
        self.block = label

    def mark(self) -> tuple:
        """Where the writing stands, …"""
        return len(self.lines), self.block, set(self.used)

    def back_to(self, mark: tuple) -> None:
        """… to which it can be taken back."""
        length, self.block, self.used = mark
        del self.lines[length:]

    # Operations.

    def select(self, p: Any, a: Any, b: Any) -> Value:
        """a where p is true, else b."""
        kind = self.kind(a.dtype)
        return self.write(
            f"select {self.kind(bool)} {self.text(p)}, {kind} {self.text(a)}, {kind} {self.text(b)}", a.dtype
        )

    def everywhere(self, p: Any, how: str) -> str:
        """Whether p is true for "and" all or "or" any of the members."""
        if self.width == 1:
            return self.text(p)
        kind = self.kind(bool)
        return self.write(f"call i1 @llvm.vector.reduce.{how}.v{self.width}i1({kind} {self.text(p)})", bool).name

    def operation(self, name: str, params: dict, dtype: Any, xs: Sequence[Any]) -> Value:
        """The elementwise operation of JAX's with this name."""
        x, kind = xs[0], self.kind(xs[0].dtype)
        real, signed = x.dtype.kind == "f", x.dtype.kind == "i"
        operands = ", ".join(self.text(v) for v in xs)
        if name in _COMPARE:
            test = _COMPARE[name] if real else _integer_test(_COMPARE[name], signed)
            return self.write(f"{'fcmp' if real else 'icmp'} {test} {kind} {operands}", bool)
        if real and name in _FLOATS:
            return self.write(f"{_FLOATS[name]} contract {kind} {operands}", dtype)
        if real and name in _INTRINSIC:
            return self.intrinsic(_INTRINSIC[name], xs)
        if name in _LIBM and real:
            return self.libm(_LIBM[name], [self.converted(v, dtype) for v in xs])
        if not real and name in _INTEGERS:
            return self.write(f"{_INTEGERS[name]} {kind} {operands}", dtype)
        if name in _SHIFTS:
            return self.write(f"{_SHIFTS[name]} {kind} {operands}", dtype)
        if name == "not":
            ones = np.array(True) if x.dtype == bool else np.array(-1).astype(x.dtype)
            return self.write(f"xor {kind} {operands}, {self.text(ones[()])}", dtype)
        if name in ("max", "min"):
            larger = self.operation("gt" if name == "max" else "lt", {}, bool, xs)
            return self.select(larger, *xs)
        rule = _RULES.get(name)
        if rule is None:
            raise Unsuited(name)
        return rule(self, params, dtype, *xs)

    def intrinsic(self, name: str, xs: Sequence[Any]) -> Value:
        """A function that LLVM knows."""
        dtype = xs[0].dtype
        kind = self.kind(dtype)
        suffix = f"f{8 * dtype.itemsize}" if self.width == 1 else f"v{self.width}f{8 * dtype.itemsize}"
        args = ", ".join(f"{kind} {self.text(x)}" for x in xs)
        return self.write(f"call contract {kind} @llvm.{name}.{suffix}({args})", dtype)

    def libm(self, name: str, xs: Sequence[Any]) -> Value:
        """A function of the C library, member by member."""
        if xs[0].dtype != np.float64:
            raise Unsuited(f"{name} of {xs[0].dtype}")
        self.external.add(f"declare double @{name}({', '.join(['double'] * len(xs))}) #1")
        if self.width == 1:
            return self.write(f"call double @{name}({', '.join(f'double {self.text(x)}' for x in xs)})", np.float64)
        out = "poison"
        kind = self.kind(np.float64)
        for i in range(self.width):
            parts = [self.write(f"extractelement {kind} {self.text(x)}, i64 {i}", np.float64).name for x in xs]
            y = self.write(f"call double @{name}({', '.join(f'double {p}' for p in parts)})", np.float64).name
            out = self.write(f"insertelement {kind} {out}, double {y}, i64 {i}", np.float64).name
        return Value(out, np.float64)

    def converted(self, x: Any, dtype: Any) -> Any:
        """x as a number of another type."""
        old, new = x.dtype, np.dtype(dtype)
        if old == new:
            return x
        if new.kind == "b":
            return self.operation("ne", {}, bool, [x, np.zeros((), old)[()]])
        if old.kind in "iu" and new.kind in "iu" and old.itemsize == new.itemsize:
            return Value(self.text(x), new)
        if old.kind in "biu":
            wider = "zext" if old.kind in "bu" else "sext"
            to_float = "uitofp" if old.kind in "bu" else "sitofp"
            op = to_float if new.kind == "f" else wider if old.kind == "b" or new.itemsize > old.itemsize else "trunc"
        elif new.kind == "f":
            op = "fpext" if new.itemsize > old.itemsize else "fptrunc"
        else:
            op = "fptosi" if new.kind == "i" else "fptoui"
        return self.write(f"{op} {self.kind(old)} {self.text(x)} to {self.kind(new)}", new)

    # Memory: words of eight bytes, the members of a group side by side.

    def load(self, pointer: str, at: int, name: str, dtype: Any) -> tuple[list[str], Value]:
        """The lines that read a word, and its value."""
        wide = self.kind(np.float64 if dtype == np.float64 else np.int64)
        word = name if dtype in (np.float64, np.int64) else f"{name}.word"
        lines = [
            f"  {name}.at = getelementptr i64, ptr {pointer}, i64 {at * self.width}",
            f"  {word} = load {wide}, ptr {name}.at, align 8",
        ]
        if word != name:
            lines.append(
                f"  {name} = {'bitcast' if dtype == np.uint64 else 'trunc'} {wide} {word} to {self.kind(dtype)}"
            )
        return lines, Value(name, dtype)

    def store(self, x: Any, pointer: str, at: int, name: str) -> list[str]:
        """The lines that write a word."""
        kind, operand = self.kind(x.dtype), self.text(x)
        lines = []
        if x.dtype not in (np.float64, np.int64, np.uint64):
            lines = [f"  {name}.word = zext {kind} {operand} to {self.kind(np.int64)}"]
            kind, operand = self.kind(np.int64), f"{name}.word"
        return [
            *lines,
            f"  {name}.at = getelementptr i64, ptr {pointer}, i64 {at * self.width}",
            f"  store {kind} {operand}, ptr {name}.at, align 8",
        ]


def _literal(x: Any) -> str:
    if x.dtype == bool:
        return "true" if x else "false"
    if x.dtype.kind == "f":
        return f"0x{struct.pack('>d', float(x)).hex()}"
    return str(int(x))


def _integer_test(test: str, signed: bool) -> str:
    name = test[1:]
    return name if name in ("eq", "ne") else ("s" if signed else "u") + name


def _integer_pow(code: Code, params: dict, dtype: Any, x: Any) -> Any:
    """Repeated squaring."""
    exponent, power, out = abs(params["y"]), x, None
    while exponent:
        if exponent & 1:
            out = power if out is None else code.operation("mul", {}, dtype, [out, power])
        exponent >>= 1
        if exponent:
            power = code.operation("mul", {}, dtype, [power, power])
    if out is None:
        return code.operation("add", {}, dtype, [_number(1, dtype), _number(0, dtype)])
    return code.operation("div", {}, dtype, [_number(1, dtype), out]) if params["y"] < 0 else out


def _number(x: Any, dtype: Any) -> Any:
    return np.asarray(x, dtype)[()]


def _sign(code: Code, params: dict, dtype: Any, x: Any) -> Any:
    zero = _number(0, dtype)
    up = code.operation("gt", {}, bool, [x, zero])
    down = code.operation("lt", {}, bool, [x, zero])
    return code.select(up, _number(1, dtype), code.select(down, _number(-1, dtype), x))


def _absolute(code: Code, params: dict, dtype: Any, x: Any) -> Any:
    negative = code.operation("lt", {}, bool, [x, _number(0, dtype)])
    return code.select(negative, code.operation("sub", {}, dtype, [_number(0, dtype), x]), x)


def _negative(code: Code, params: dict, dtype: Any, x: Any) -> Any:
    if dtype.kind == "f":
        return code.write(f"fneg contract {code.kind(dtype)} {code.text(x)}", dtype)
    return code.operation("sub", {}, dtype, [_number(0, dtype), x])


def _integer_quotient(code: Code, params: dict, dtype: Any, x: Any, y: Any) -> Any:
    """XLA's division of integers by zero is −1: keep away from the processor's exception."""
    zero = code.operation("eq", {}, bool, [y, _number(0, dtype)])
    safe = code.select(zero, _number(1, dtype), y)
    op = "sdiv" if dtype.kind == "i" else "udiv"
    quotient = code.write(f"{op} {code.kind(dtype)} {code.text(x)}, {code.text(safe)}", dtype)
    return code.select(zero, np.array(-1).astype(dtype)[()], quotient)


def _integer_rest(code: Code, params: dict, dtype: Any, x: Any, y: Any) -> Any:
    zero = code.operation("eq", {}, bool, [y, _number(0, dtype)])
    safe = code.select(zero, _number(1, dtype), y)
    op = "srem" if dtype.kind == "i" else "urem"
    return code.select(zero, x, code.write(f"{op} {code.kind(dtype)} {code.text(x)}, {code.text(safe)}", dtype))


def _select_n(code: Code, params: dict, dtype: Any, p: Any, *cases: Any) -> Any:
    out = cases[-1]
    for i in reversed(range(len(cases) - 1)):
        first = code.operation("not", {}, bool, [p]) if p.dtype == bool else None
        first = first or code.operation("eq", {}, bool, [p, _number(i, p.dtype)])
        out = code.select(first, cases[i], out)
    return out


def _clamp(code: Code, params: dict, dtype: Any, low: Any, x: Any, high: Any) -> Any:
    return code.operation("min", {}, dtype, [code.operation("max", {}, dtype, [low, x]), high])


def _finite(code: Code, params: dict, dtype: Any, x: Any) -> Any:
    return code.operation("lt", {}, bool, [code.intrinsic("fabs", [x]), _number(np.inf, x.dtype)])


def _bits(code: Code, params: dict, dtype: Any, x: Any) -> Any:
    if np.dtype(dtype).itemsize != x.dtype.itemsize or bool in (x.dtype, dtype):
        raise Unsuited("bitcast_convert_type")
    return code.write(f"bitcast {code.kind(x.dtype)} {code.text(x)} to {code.kind(dtype)}", dtype)


def _reciprocal_root(code: Code, params: dict, dtype: Any, x: Any) -> Any:
    return code.operation("div", {}, dtype, [_number(1, dtype), code.operation("sqrt", {}, dtype, [x])])


def _logistic(code: Code, params: dict, dtype: Any, x: Any) -> Any:
    e = code.libm("exp", [_negative(code, {}, dtype, x)])
    return code.operation(
        "div", {}, dtype, [_number(1, dtype), code.operation("add", {}, dtype, [_number(1, dtype), e])]
    )


_RULES = {
    "integer_pow": _integer_pow,
    "square": lambda code, params, dtype, x: code.operation("mul", {}, dtype, [x, x]),
    "sign": _sign,
    "abs": _absolute,
    "neg": _negative,
    "div": _integer_quotient,
    "rem": _integer_rest,
    "select_n": _select_n,
    "clamp": _clamp,
    "is_finite": _finite,
    "rsqrt": _reciprocal_root,
    "logistic": _logistic,
    "bitcast_convert_type": _bits,
    "round": lambda code, params, dtype, x: code.intrinsic(_ROUND[int(params["rounding_method"])], [x]),
    "convert_element_type": lambda code, params, dtype, x: code.converted(x, dtype),
    "copy": lambda code, params, dtype, x: x,
    "copy_p": lambda code, params, dtype, x: x,
    "real": lambda code, params, dtype, x: x,
}


class StepLoop:
    """The compiled loop: steps n … n₁ − 1 of groups of `width` members, one group after the other.

    A group is read from `state`, stepped until n₁ or until a step does not come out valid (it then stands before that
    step), and written back. After every `every` steps the saved words go to the next slot.
    """

    def __init__(self, code: Code, words: int, columns: int, saved: int, own: int, text: str):
        self.width, self.words, self.columns, self.saved, self.own = code.width, words, columns, saved, own
        self._engine, address = _compile(text)
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


def step_loop(code: Code, inputs: dict[str, list[Value]], outputs: list[Any], saved: list[Any], valid: Any) -> StepLoop:
    """The loop around a step.

    `inputs` names the values that the code reads: "state", "uniforms", "own", "path" and the step number "n".
    `outputs` is the new state.
    """
    w = code.width
    state, own, path, uniforms, (number,) = (inputs[k] for k in ("state", "own", "path", "uniforms", "n"))
    kinds = [code.kind(x.dtype) for x in state]

    def read(values: list[Value], pointer: str, rename: str = "") -> list[str]:
        return [line for i, x in enumerate(values) for line in code.load(pointer, i, x.name + rename, x.dtype)[0]]

    everywhere: list[str] = []
    for i, x in enumerate(uniforms):
        everywhere += [
            f"  {x.name}.at = getelementptr i64, ptr %uniforms, i64 {i}",
            f"  {x.name}.one = load {_TYPES[x.dtype.name]}, ptr {x.name}.at, align 8",
        ]
        everywhere += _spread(code, x.name, f"{x.name}.one", x.dtype)
    steps = _spread(code, number.name, "%n.now", np.int64)
    moving = [
        f"  {x.name} = phi {k} [{x.name}.start, %group.body], [{code.text(y)}, %step.next]"
        for x, k, y in zip(state, kinds, outputs, strict=True)
    ]
    save = [line for i, x in enumerate(saved) for line in code.store(x, "%slot.at", i, f"%save{i}")]
    keep = [line for i, x in enumerate(state) for line in code.store(x, "%state.at", i, f"%keep{i}")]
    mark = len(code.lines)
    ok = code.everywhere(valid, "and")
    body, test = code.lines[:mark], code.lines[mark:]
    text = [
        "define void @advance(i64 %groups, i64 %n1, i64 %base, i64 %every, i64 %first, i64 %rows, i64 %nslots,",
        "    ptr noalias %n, ptr noalias %state, ptr noalias %uniforms, ptr noalias %own, ptr noalias %path,",
        "    ptr noalias %slots) #0 {",
        "entry:",
        *everywhere,
        "  br label %group.head",
        "group.head:",
        "  %g = phi i64 [0, %entry], [%g.next, %group.done]",
        "  %g.more = icmp slt i64 %g, %groups",
        "  br i1 %g.more, label %group.body, label %exit",
        "group.body:",
        "  %n.at = getelementptr i64, ptr %n, i64 %g",
        "  %n.start = load i64, ptr %n.at",
        f"  %state.offset = mul i64 %g, {len(state) * w}",
        "  %state.at = getelementptr i64, ptr %state, i64 %state.offset",
        f"  %own.offset = mul i64 %g, {len(own) * w}",
        "  %own.at = getelementptr i64, ptr %own, i64 %own.offset",
        "  %path.row = mul i64 %g, %rows",
        "  %path.first = sub i64 %path.row, %base",
        "  %slots.row = mul i64 %g, %nslots",
        "  %done = sdiv i64 %n.start, %every",
        "  %slot.start = sub i64 %done, %first",
        "  %done.steps = mul i64 %done, %every",
        "  %since = sub i64 %n.start, %done.steps",
        "  %left.start = sub i64 %every, %since",
        *read(state, "%state.at", ".start"),
        *read(own, "%own.at"),
        "  br label %step.head",
        "step.head:",
        "  %n.now = phi i64 [%n.start, %group.body], [%n.next, %step.next]",
        "  %left = phi i64 [%left.start, %group.body], [%left.next, %step.next]",
        "  %slot = phi i64 [%slot.start, %group.body], [%slot.next, %step.next]",
        *moving,
        "  %more = icmp slt i64 %n.now, %n1",
        "  br i1 %more, label %step.body, label %group.done",
        "step.body:",
        "  %row = add i64 %path.first, %n.now",
        f"  %row.offset = mul i64 %row, {len(path) * w}",
        "  %row.at = getelementptr i64, ptr %path, i64 %row.offset",
        *read(path, "%row.at"),
        *steps,
        *body,
        *test,
        f"  br i1 {ok}, label %step.accept, label %group.done",
        "step.accept:",
        "  %n.next = add i64 %n.now, 1",
        "  %left.less = sub i64 %left, 1",
        "  %due = icmp eq i64 %left.less, 0",
        "  br i1 %due, label %save, label %step.next",
        "save:",
        "  %slot.row = add i64 %slots.row, %slot",
        f"  %slot.offset = mul i64 %slot.row, {len(saved) * w}",
        "  %slot.at = getelementptr i64, ptr %slots, i64 %slot.offset",
        *save,
        "  %slot.more = add i64 %slot, 1",
        "  br label %step.next",
        "step.next:",
        "  %left.next = phi i64 [%left.less, %step.accept], [%every, %save]",
        "  %slot.next = phi i64 [%slot, %step.accept], [%slot.more, %save]",
        "  br label %step.head",
        "group.done:",
        *keep,
        "  store i64 %n.now, ptr %n.at",
        "  %g.next = add i64 %g, 1",
        "  br label %group.head",
        "exit:",
        "  ret void",
        "}",
        *sorted(code.external),
        'attributes #0 = { nounwind "no-trapping-math"="true" }',
        "attributes #1 = { nounwind willreturn memory(none) }",
    ]
    return StepLoop(code, len(state), len(path), len(saved), len(own), "\n".join(text))


def _spread(code: Code, name: str, scalar: str, dtype: Any) -> list[str]:
    """The lines that give each member the same number."""
    one, kind = _TYPES[np.dtype(dtype).name], code.kind(dtype)
    if code.width == 1:
        return [f"  {name} = bitcast {one} {scalar} to {one}"]
    return [
        f"  {name}.first = insertelement {kind} poison, {one} {scalar}, i64 0",
        f"  {name} = shufflevector {kind} {name}.first, {kind} poison, <{code.width} x i32> zeroinitializer",
    ]


@cache
def _initialize() -> None:
    """Once a process."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    library = ctypes.CDLL(ctypes.util.find_library("m"))
    for name in _LIBM.values():
        llvm.add_symbol(name, ctypes.cast(getattr(library, name), ctypes.c_void_p).value)


def _compile(text: str) -> tuple[Any, int]:
    """The engine that holds the code, and the address of `advance`, for this very processor."""
    _initialize()
    target = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3, codemodel="jitdefault"
    )
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = target.triple, str(target.target_data)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    builder = llvm.create_pass_builder(target, options)
    builder.getModulePassManager().run(module, builder)
    engine = llvm.create_mcjit_compiler(module, target)
    engine.finalize_object()
    return engine, engine.get_function_address("advance")
