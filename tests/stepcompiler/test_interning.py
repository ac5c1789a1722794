"""Interned functions: equal code becomes one object, captured arrays become inputs, and results do not change."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stepcompiler.jaxprs.interning import Constant, intern

X = jax.ShapeDtypeStruct((3,), jnp.float64)
x = np.array([0.3, -0.7, 1.1])


def code(fn, *shapes):
    return intern(fn, *(shapes or (X,))).code


def energy():
    return lambda m: 0.5 * m @ m + jnp.sin(m[0])


def test_the_same_code_is_the_same_object():
    assert code(energy()) is code(energy())
    assert code(lambda m: m @ m) is code(lambda state: state @ state)


def scaled(a):
    return lambda m: a * (m @ m)


def test_captured_arrays_are_inputs():
    """Closures over other arrays of the same shape share their code and differ in their consts."""
    one, two = (intern(scaled(jnp.array([1.0, 2.0, 3.0]) * k), X) for k in (1, 2))
    assert one.code is two.code
    np.testing.assert_array_equal(two.consts[0], 2 * np.asarray(one.consts[0]))
    by_numpy = intern(scaled(np.array([1.0, 2.0, 3.0])), X)
    np.testing.assert_allclose(by_numpy(x), one(x))


def test_arrays_captured_inside_a_nested_jit_are_inputs_too():
    def hamiltonian(a):
        inner = jax.jit(lambda m: m * a)
        return lambda m: jnp.sum(jax.jit(inner)(m))

    one, two = (intern(hamiltonian(jnp.arange(3.0) + k), X) for k in (0, 1))
    assert one.code is two.code
    assert len(one.consts) == 1
    assert float(one(x)) == pytest.approx(float(np.arange(3.0) @ x))
    assert float(two(x)) == pytest.approx(float((np.arange(3.0) + 1) @ x))


DIFFERENT = {
    "literal": (lambda m: 2.0 * m, lambda m: 2.5 * m),
    "sign of zero": (lambda m: m + 0.0, lambda m: m + (-0.0)),
    "sign of an imaginary zero": (lambda m: m + complex(1.0, 0.0), lambda m: m + complex(1.0, -0.0)),
    "type of literal": (lambda m: m**2, lambda m: m**2.0),
    "primitive": (lambda m: jnp.sin(m), lambda m: jnp.cos(m)),
    "order": (lambda m: m[0] - m[1], lambda m: m[1] - m[0]),
    "wiring": (lambda m: jnp.sin(m) * m, lambda m: jnp.sin(m) * jnp.sin(m)),
    "parameter of an operation": (lambda m: jnp.sum(m[:2]), lambda m: jnp.sum(m[1:])),
    "structure of the result": (lambda m: (m, m), lambda m: [m, m]),
    "branch": (
        lambda m: jax.lax.cond(m[0] > 0, jnp.sin, jnp.cos, m),
        lambda m: jax.lax.cond(m[0] > 0, jnp.sin, jnp.tan, m),
    ),
    "body of a loop": (
        lambda m: jax.lax.fori_loop(0, 3, lambda i, v: v * 2.0, m),
        lambda m: jax.lax.fori_loop(0, 3, lambda i, v: v * 3.0, m),
    ),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_other_code_is_another_object(name):
    one, two = DIFFERENT[name]
    assert code(one) == code(one)
    assert code(one) != code(two)


def test_variables_that_a_function_uses_may_change():
    """Each tracing sees what they are, though JAX remembers functions that it has traced."""
    k, a = 1.0, np.ones(3)
    fn = lambda m: k * jnp.sum(a * m)
    assert float(intern(fn, X)(x)) == pytest.approx(np.sum(x))
    k, a[:] = 2.0, [3.0, 0.0, 0.0]
    assert float(intern(fn, X)(x)) == pytest.approx(6.0 * x[0])


def test_a_captured_array_is_no_argument():
    """Two functions with the same operations, of which one takes what the other one has captured."""
    two = intern(lambda m, p: jnp.sum(m * p), X, X)
    one = intern(lambda m: jnp.sum(jnp.array([1.0, 2.0, 3.0]) * m), X)
    assert one.code != two.code
    assert float(one(x)) == float(two(x, jnp.array([1.0, 2.0, 3.0])))


def test_another_shape_or_type_is_other_code():
    double = lambda m: m * 2
    assert code(double) != code(double, jax.ShapeDtypeStruct((4,), jnp.float64))
    assert code(double) != code(double, jax.ShapeDtypeStruct((3,), jnp.complex128))


@jax.custom_jvp
def with_rule(m):
    return jnp.sum(m**2)


with_rule.defjvp(lambda primals, tangents: (with_rule(*primals), 7.0 * jnp.sum(tangents[0])))


def newton(m):
    """A `while_loop`, differentiable forwards: the cube root of m₀."""
    return jax.lax.while_loop(
        lambda s: s[0] < 20, lambda s: (s[0] + 1, s[1] - (s[1] ** 3 - m[0]) / (3 * s[1] ** 2)), (0, 1.0)
    )[1]


FUNCTIONS = {
    "polynomial": lambda m: 0.5 * m @ m + m[0] * m[1] ** 3,
    "captured": lambda m: jnp.dot(jnp.asarray(np.array([1.0, -2.0, 0.5])), m),
    "linear algebra": lambda m: m @ jnp.linalg.solve(jnp.eye(3) + jnp.outer(m, m), m),
    "cond": lambda m: jax.lax.cond(m[0] > 0, lambda v: jnp.sum(v**2), lambda v: jnp.prod(v), m),
    "switch": lambda m: jax.lax.switch(1, [jnp.sum, jnp.prod, jnp.max], m),
    "scan": lambda m: jax.lax.scan(lambda c, v: (c * jnp.cos(v) + v, c), 1.0, m)[0],
    "fori": lambda m: jax.lax.fori_loop(0, 4, lambda i, v: v + 0.1 * jnp.sin(v), m) @ m,
    "vmap": lambda m: jnp.sum(jax.vmap(lambda a: jnp.exp(a) * m)(m)),
    "grad inside": lambda m: jax.grad(lambda v: jnp.sum(v**3))(m) @ m,
    "checkpoint": jax.checkpoint(lambda m: jnp.sum(jnp.sin(m))),
    "custom rule": with_rule,
    "jit": jax.jit(lambda m: jnp.sum(m**4)),
    "numpy style": lambda m: jnp.where(m > 0, m, m**2).sum(),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_value_and_derivatives_are_those_of_the_function(name):
    fn = FUNCTIONS[name]
    traced = intern(fn, X)

    def all_of(f):
        return jax.jit(lambda v: (f(v), jax.grad(f)(v), jax.jvp(f, (v,), (jnp.ones(3),))[1], jax.hessian(f)(v)))

    for got, expected in zip(all_of(traced)(x), all_of(fn)(x), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-14, atol=1e-14)


def test_a_while_loop_inside():
    traced = intern(newton, X)
    m = np.array([2.0, 0.0, 0.0])
    assert float(traced(m)) == pytest.approx(2 ** (1 / 3))
    np.testing.assert_allclose(jax.jacfwd(traced)(m), jax.jacfwd(newton)(m), rtol=1e-14)


def test_captured_arrays_can_be_differentiated_and_mapped():
    """Tracing inside a transformation keeps the outer tracers as consts."""

    def outer(a):
        return intern(lambda m: a @ m**2, X)(x)

    np.testing.assert_allclose(jax.grad(outer)(jnp.ones(3)), x**2)
    np.testing.assert_allclose(jax.vmap(outer)(jnp.eye(3)), x**2)


def test_several_arguments_and_pytrees():
    traced = intern(lambda m, p: p["k"] * m @ m + p["c"][0], X, {"k": 0.0, "c": (0.0,)})
    assert float(traced(x, {"k": 2.0, "c": (1.0,)})) == pytest.approx(2 * x @ x + 1)


def test_constants_compare_by_content():
    a, b, c = (Constant({"a": np.arange(3.0) + k, "b": "text"}) for k in (0, 0, 1))
    assert a == b and hash(a) == hash(b)
    assert a != c
    assert Constant(np.zeros(2)) != Constant(np.zeros(3))
    assert Constant(np.zeros(2)) != Constant(np.zeros(2, int))
