"""The text of instructions, for one number and for eight."""

import numpy as np
import pytest

from stepcompiler.errors import NotCompilable
from stepcompiler.lowering.groups import PACK
from stepcompiler.lowering.instructions import (
    Branch,
    Call,
    Conversion,
    Extraction,
    Group,
    Intrinsic,
    Label,
    Operation,
    Phi,
    Select,
    Spelling,
    Store,
    Text,
    Value,
    render,
)
from stepcompiler.targets.slp_vectorizer import packed

X, Y, Z = (Value(f"%{name}", float) for name in "xyz")
K = Value("%k", np.int64)
TEXTS = [
    (Operation(Z, "fadd", (X, np.float64(1.5))), "%z = fadd double %x, 0x3ff8000000000000"),
    (Operation(Value("%p", bool), "fcmp olt", (X, Y)), "%p = fcmp olt double %x, %y"),
    (Select(Z, (np.True_, X, Y)), "%z = select i1 true, double %x, double %y"),
    (Conversion(K, "bitcast", (X,)), "%k = bitcast double %x to i64"),
    (Intrinsic(Z, "fma", (X.dtype,), (X, Y, Z)), "%z = call double @llvm.fma.f64(double %x, double %y, double %z)"),
    (
        Intrinsic(K, "fptosi.sat", (K.dtype, X.dtype), (X,)),
        "%k = call i64 @llvm.fptosi.sat.i64.f64(double %x)",
    ),
    (Intrinsic(K, "ctlz", (K.dtype,), (K,), ", i1 false"), "%k = call i64 @llvm.ctlz.i64(i64 %k, i1 false)"),
    (Call(Z, "f", (X, Y), 1), "%z = call double @f(double %x, double %y)"),
    (Call(Z, "f", (X,), 2), "%z = call { double, double } @f(double %x)"),
    (Extraction(Y, (Z,), 2, 1), "%y = extractvalue { double, double } %z, 1"),
    (Phi(Z, (X, Y), ("a", "b")), "%z = phi double [%x, %a], [%y, %b]"),
    (Store((X,), "ptr %at"), "store double %x, ptr %at, align 8"),
    (Branch((), ("a",)), "br label %a"),
    (Branch((Value("%p", bool),), ("a", "b"), likely=True), "br i1 %p, label %a, label %b, !prof !0"),
    (Label("a"), "a:"),
    (Text(None, "ret void"), "ret void"),
]


@pytest.mark.parametrize(("instruction", "text"), TEXTS)
def test_text_of_an_instruction(instruction, text):
    assert render(instruction, Spelling(1)).strip() == text


def test_types_have_as_many_lanes_as_the_spelling():
    wide = Spelling(2)
    assert render(TEXTS[0][0], wide) == (
        "  %z = fadd <2 x double> %x, <double 0x3ff8000000000000, double 0x3ff8000000000000>"
    )
    assert "@llvm.fma.v2f64(<2 x double> %x" in render(TEXTS[4][0], wide)
    with pytest.raises(NotCompilable, match="float16"):
        wide.kind(np.float16)


def test_equal_instructions_become_one():
    """Eight sums of loaded numbers are one sum; a later use extracts a lane."""
    loads = [Text(Value(f"%a{i}", float), f"load double, ptr %p{i}") for i in range(PACK)]
    sums = [Operation(Value(f"%s{i}", float), "fadd", (load.result, np.float64(i))) for i, load in enumerate(loads)]
    group = Group([[x] for x in sums], np.arange(PACK).reshape(1, -1))
    text = "\n".join(packed([*loads, *sums, Store((sums[5].result,), "ptr %out")], [group], "entry"))
    assert text.count("fadd") == 1
    assert "fadd <8 x double>" in text
    assert "extractelement <8 x double> %pack0, i64 5" in text
