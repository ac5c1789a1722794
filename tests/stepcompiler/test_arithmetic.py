"""Contraction: products and sums are contracted by the emitter alone, so that bits do not depend on the compiler."""

import ctypes
import re

import jax
import jax.numpy as jnp
import llvmlite.binding as llvm
import numpy as np
import pytest
from native_steps import called, made

from stepcompiler.errors import NotCompilable
from stepcompiler.hints import no_fma
from stepcompiler.targets import cpu

A = np.random.default_rng(0).standard_normal((4, 4))
X = np.random.default_rng(1).standard_normal((64, 4))


def heavy(x):
    """Sums of products, differences, loops, functions."""
    y = (A @ x) * (x @ A) - jnp.outer(x, x) @ x + jnp.cross(x[:3], (A @ x)[:3]).sum()
    y = jax.lax.while_loop(lambda s: jnp.sum(s**2) > 1.0, lambda s: 0.7 * s + 0.01 * jnp.sin(s) * s, y)
    return y - x * jnp.sin(x) + jnp.prod(x) * y / (1.0 + x @ x)


def heavy_top(x):
    """Cross products."""
    m, g = x[:3] * jnp.array([1.0, 2.0, 3.0]), x[1:]
    return jnp.concatenate([jnp.cross(x[:3], m) + jnp.cross(g, A[:3, 0]), jnp.cross(g, m)])


@pytest.fixture
def texts(monkeypatch):
    """The programs that are compiled."""
    found, compile_ = [], cpu.compiled
    monkeypatch.setattr(cpu, "compiled", lambda text: (found.append(text), compile_(text))[1])
    return found


def fused(x, y, z):
    """x y + z rounded once."""
    fma = ctypes.CDLL("libm.so.6").fma
    fma.restype, fma.argtypes = ctypes.c_double, [ctypes.c_double] * 3
    return np.array([fma(*abc) for abc in zip(x, y, z, strict=True)])


def test_which_products_are_contracted():
    """The one that a single sum uses, the first of two; a product that is used twice stays a product."""
    a, b, c, d = X.T
    for fn, expected in (
        (lambda x: x[0] * x[1] + x[2], fused(a, b, c)),
        (lambda x: x[2] + x[0] * x[1], fused(a, b, c)),
        (lambda x: x[0] * x[1] - x[2], fused(a, b, -c)),
        (lambda x: x[2] - x[0] * x[1], fused(-a, b, c)),
        (lambda x: -(x[0] * x[1]) - x[2], fused(-a, b, -c)),
        (lambda x: x[0] * x[1] + x[2] * x[3], fused(a, b, c * d)),
        (lambda x: x[0] * x[1] - x[2] * x[3], fused(a, b, -(c * d))),
        (lambda x: (x[0] * x[1]) * x[2] + x[3], fused(a * b, c, d)),
    ):
        np.testing.assert_array_equal(called(made(fn, X), X)[0].ravel(), expected)

    def twice(x):
        p = x[0] * x[1]
        return (p + x[2]) * (p - x[3])

    np.testing.assert_array_equal(called(made(twice, X), X)[0].ravel(), (a * b + c) * (a * b - d))


def test_a_sum_of_two_products_goes_into_another_sum():
    """As two fused operations, in place of a product, a fused operation and a sum; unless something else goes first."""
    a, b, c, d = X.T
    for fn, expected in (
        (lambda x: x[3] + (x[0] * x[1] + x[1] * x[2]), fused(a, b, fused(b, c, d))),
        (lambda x: x[3] - (x[0] * x[1] - x[1] * x[2]), fused(-a, b, fused(b, c, d))),
        (lambda x: (x[0] * x[1] - x[1] * x[2]) - x[3], fused(a, b, fused(-b, c, -d))),
        (lambda x: (x[0] * x[1] + x[2] * x[2]) + (x[1] * x[2] - x[0]), fused(a, b, fused(c, c, fused(b, c, -a)))),
        (lambda x: (x[0] * x[1] + x[2] * x[2]) + (x[1] * x[2] + x[0] * x[3]),
         fused(b, c, fused(a, d, fused(a, b, c * c)))),
        (lambda x: x[0] * x[3] + (x[0] * x[1] + x[1] * x[2]), fused(a, d, fused(a, b, b * c))),
        (lambda x: x[3] + (x[0] * x[1] + x[2]), d + fused(a, b, c)),
    ):  # fmt: skip
        np.testing.assert_array_equal(called(made(fn, X), X)[0].ravel(), expected)

    def twice(x):
        s = x[0] * x[1] + x[1] * x[2]
        return (x[3] + s) * s

    s = fused(a, b, b * c)
    np.testing.assert_array_equal(called(made(twice, X), X)[0].ravel(), (d + s) * s)


def test_what_is_rounded_is_fused_with_nothing():
    a, b, c, d = np.abs(X.T)
    out = called(made(lambda x: x[0] * x[1] + no_fma(x[2] * x[3]), np.abs(X)), np.abs(X))[0].ravel()
    np.testing.assert_array_equal(out, fused(a, b, c * d))
    out = called(made(lambda x: no_fma(x[0] * x[1]) + x[2], np.abs(X)), np.abs(X))[0].ravel()
    np.testing.assert_array_equal(out, a * b + c)


def test_bits_do_not_depend_on_the_width_or_on_how_hard_the_compiler_tries(texts, monkeypatch):
    out = called(made(heavy, X, width=8), X)[0]
    np.testing.assert_array_equal(called(made(heavy, X, width=1), X)[0], out)
    np.testing.assert_array_equal(called(made(heavy, X, width=4), X)[0], out)
    for level in 0, 1, 2:
        monkeypatch.setattr(cpu, "compiled", lambda text, level=level: compiled_at(text, level))
        np.testing.assert_array_equal(called(made(heavy, X, width=8), X)[0], out)


def compiled_at(text, level):
    module, target = cpu.optimized(text, level)
    engine = llvm.create_mcjit_compiler(module, target)
    engine.finalize_object()
    return engine, engine.get_function_address("advance")


@pytest.mark.parametrize("width", [1, 8])
def test_the_machine_does_what_was_written(texts, width):
    """No flags; as many fused, other multiplications and additions in machine code as were written."""
    made(heavy, X, width=width)
    made(jax.grad(lambda x: jnp.sum(heavy_top(x) ** 2)), X, width=width)
    for text in texts:
        assert not re.search(r"\b(contract|fast|reassoc|afn|nnan|ninf|nsz|arcp)\b", text)
        module, target = cpu.optimized(text)
        optimized, assembly = str(module), target.emit_assembly(module)
        registers = 1 if width == 1 or "zmm" in assembly else 2  # that a vector takes
        fused = len(re.findall(r"call [^@\n]*@llvm\.fma", optimized))
        others = len(re.findall(r"= f(?:add|sub|mul) ", optimized))
        assert fused > 10 and others > 10
        assert len(re.findall(r"\tvfn?m(?:add|sub)\d+[ps]d\t", assembly)) == fused * registers
        assert len(re.findall(r"\tv(?:add|sub|mul)[ps]d\t", assembly)) == others * registers  # 2 x may become x + x


def test_a_product_of_another_block_is_left_alone(texts):
    """It was computed once, before the loop."""
    fn = lambda x: jax.lax.while_loop(lambda s: s < 10.0, lambda s: s + x[0] * x[0] * 1.1 + 1.0, x[1])
    made(fn, X)
    (text,) = texts
    assert "fmul double" in text


def test_a_processor_without_fma_is_refused_by_name(monkeypatch):
    cpu._initialize.cache_clear()
    monkeypatch.setattr(llvm, "get_host_cpu_features", dict)
    monkeypatch.setattr(llvm, "get_host_cpu_name", lambda: "nehalem")
    monkeypatch.setattr(llvm, "get_process_triple", lambda: "x86_64-unknown-linux-gnu")
    with pytest.raises(
        NotCompilable, match=r"The processor nehalem has no fused multiply-add, which native code needs\."
    ):
        made(jnp.sin, X)
