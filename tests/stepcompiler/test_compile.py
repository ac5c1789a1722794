"""Lanes: any small JAX program has the same results in native code and in JAX."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from native_steps import compiled, made

from stepcompiler.compile import compile_step
from stepcompiler.errors import NotCompilable
from stepcompiler.hints import likely
from stepcompiler.kernel import Signature
from stepcompiler.targets.cpu import Cpu

A = np.random.default_rng(0).standard_normal((4, 4))
halved = lambda x, least: jax.lax.while_loop(lambda s: s[0] ** 2 > least, lambda s: (0.5 * s[0], s[1] + x), (x, x))
counted = lambda x, n: jax.lax.fori_loop(0, n, lambda k, y: 0.5 * y + k, x)
PROGRAMS = {
    "many loops": lambda x: sum(jax.vmap(halved)(x, jnp.array([0.1, 2.0, 0.01, 0.5]))),
    "many loops over rows": lambda x: jax.vmap(halved, (None, 0))(x[0], x**2)[1] + jax.vmap(counted)(x, jnp.arange(4)),
    "many long loops": lambda x: jax.vmap(lambda y: jax.vmap(counted, (None, 0))(y, jnp.array([1, 40])))(x).sum(1),
    "arithmetic": lambda x: jnp.sin(x) * jnp.exp(-(x**2)) / (2.0 + jnp.cos(x)) - jnp.sqrt(jnp.abs(x)),
    "products": lambda x: (A @ x) * (x @ A) + jnp.outer(x, x) @ x,
    "einsum": lambda x: jnp.einsum("i,ij,j,kj->k", x, A, x, A),
    "moves": lambda x: jnp.concatenate([x[::-1], jnp.roll(x, 1)]).reshape(2, 4).T.ravel()[:4],
    "gather": lambda x: x[jnp.array([3, 0, 0, 1])] + x.at[1].set(0.0),
    "reductions": lambda x: jnp.stack([jnp.max(x), jnp.min(x), jnp.prod(x), jnp.mean(x)]),
    "choice": lambda x: x.at[(jnp.argmax(x) + jnp.arange(4)) % 4].get(mode="promise_in_bounds"),
    "clipped choice": lambda x: x.at[jnp.floor(10 * x[:2]).astype(int)].get(mode="clip"),
    "rows": lambda x: jnp.outer(x, x).at[jnp.argsort(x)].get(mode="clip") @ x,
    "triangles": lambda x: sum(
        jax.scipy.linalg.solve_triangular(jnp.outer(x, x) + 3.0 * jnp.eye(4), x + k, lower=k % 2, trans=k // 2)
        for k in range(4)
    ),
    "unit triangle": lambda x: jax.lax.linalg.triangular_solve(
        jnp.outer(x, x), jnp.stack([x, x**2]), left_side=False, lower=True, unit_diagonal=True
    ),
    "select": lambda x: jnp.where(x > 0, x, jnp.clip(x, -0.5, 0.5)),
    "scatter": lambda x: x.at[jnp.array([0, 0, 2])].add(x[:3]).at[3].set(x[0] ** 3),
    "indices": lambda x: x + jnp.argmax(x) + 2.0 * jnp.argmin(x),
    "while": lambda x: jax.lax.while_loop(lambda s: jnp.sum(s**2) > 0.01, lambda s: 0.5 * s, x),
    "scan": lambda x: jax.lax.scan(lambda c, a: (jnp.sin(c) + a, None), x, jnp.ones((3, 4)))[0],
    "fori": lambda x: jax.lax.fori_loop(0, 5, lambda k, s: s + jnp.cos(s) * k, x),
    "nested": lambda x: jax.lax.fori_loop(
        0, 3, lambda k, s: jax.lax.while_loop(lambda r: r[0] > 0.3, lambda r: 0.7 * r + 0.01 * k, s), jnp.abs(x) + 1
    ),
    "switch": lambda x: jax.lax.switch((x[0] > 0) + (x[1] > 0).astype(int), [jnp.sin, jnp.cos, jnp.tanh], x),
    "cond": lambda x: jax.lax.cond(x[0] > 0, jnp.sin, jnp.cos, x),
    "sort": lambda x: jnp.sort(x) + jnp.cumsum(x),
    "gradient": jax.grad(lambda x: jnp.sum(x**4) + x[0] * x[1] / (1 + x[2] ** 2)),
    "hessian": lambda x: jax.hessian(lambda y: jnp.sum(jnp.exp(y) * jnp.roll(y, 1)))(x) @ x,
    "special": lambda x: jax.scipy.special.erf(x) + jnp.tanh(x) + jnp.log1p(x**2) + jnp.power(x**2 + 1, 1.3),
    "trigonometry": lambda x: jnp.arctan2(x, 1.5) + jnp.arcsinh(x) + jnp.sinh(x) * jnp.tan(x / 4) + jnp.cbrt(x),
    "signs": lambda x: jnp.sign(x) * jnp.floor(x) + jnp.ceil(x) + jnp.minimum(x, 0.3) + jnp.maximum(x, -0.2) + x % 0.7,
    "padding": lambda x: jnp.pad(x, (1, 2))[:4] + jnp.stack(jnp.split(x, 2)).T.ravel() + jnp.tile(x[:2], 2),
    "logic": lambda x: jnp.where((x > 0) & ~(x > 1) | jnp.isfinite(1 / x), x, -x),
    "integers": lambda x: x * (jnp.arange(4) % 3) + jnp.round(x),
}


X = np.random.default_rng(1).standard_normal((8, 4))


@cache
def by_xla(name):
    return np.asarray(jax.jit(jax.vmap(PROGRAMS[name]))(X))


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("width", [1, 4])
def test_same_results(name, width):
    """To round-off, for one member at a time and for four side by side."""
    fn = PROGRAMS[name]
    out, valid = compiled(lambda x: 1.0 * fn(x), X, width=width)
    assert valid.all()
    np.testing.assert_allclose(out, by_xla(name).reshape(len(X), -1), rtol=1e-13, atol=1e-13)


REFUSED = {
    "eigenvalues": lambda x: jnp.linalg.eigvalsh(jnp.outer(x, x) + jnp.diag(x)),
    "digamma": lambda x: jax.scipy.special.digamma(x**2 + 1),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_rule_is_refused_before_anything_runs(name):
    with pytest.raises(NotCompilable, match=r"which native code does not support\."):
        compiled(REFUSED[name], X)


def test_anything_may_be_done_to_what_is_the_same_for_all():
    """It is computed beforehand, by JAX: here a linear system and eigenvalues of a matrix of parameters."""
    fn = lambda x, a: jnp.linalg.solve(a + 4 * jnp.eye(4), jnp.ones(4)) * x / jnp.linalg.eigvalsh(a + a.T)
    out, _ = compiled(fn, X, shared=(A,), width=4)
    np.testing.assert_allclose(out, jax.vmap(fn, (0, None))(X, A), rtol=1e-12)


def test_known_numbers_are_folded():
    """Zeros and ones cost nothing: a product with the identity is no operation at all, given as an input or not."""
    compiled(lambda x: jnp.eye(4) @ x + 0.0, X, limit=0)
    compiled(lambda x, a: a @ x, X, shared=(np.eye(4)[::-1],), limit=0)
    with pytest.raises(NotCompilable, match="more than 3 operations"):
        compiled(lambda x: 2.0 * x, X, limit=3)


def test_likely_is_taken_for_true_and_watched():
    """Also inside a loop: the step is taken only if the condition held each time, for all members of the group."""

    def fn(x):
        def body(s):
            k, y = s
            return k + 1, jnp.where(likely(y < 10.0), 2 * y, -1.0)

        return jax.lax.while_loop(lambda s: s[0] < 3 + (x[0] > 100), body, (0, x))[1]

    x = np.array([[1.0], [2.0], [1.5], [4.0]])
    out, valid = compiled(fn, x, width=2)
    assert valid.tolist() == [True, False]
    assert out[:2].ravel().tolist() == [8.0, 16.0]
    assert compiled(fn, x)[1].tolist() == [True, True, True, False]


def test_a_first_pass_that_is_known():
    """It is written before the loop, with its guards; what waits for no loop may come before that."""

    def fn(x):
        def body(s):
            y = jnp.where(likely(s[1] < 1e3), 0.5 * s[1], -1.0)
            return s[0] + 1, y, (y > 1.0) | (y < -2.0)

        k, y, _ = jax.lax.while_loop(lambda s: s[2], body, (0, x[0], True))
        return jnp.stack([1.0 * k, y + 3.0 * x[0]])

    x = np.array([[0.5], [3.0], [300.0], [1.0]])
    truth = np.array([[1, 1.75], [2, 9.75], [9, 900 + 300 / 512], [1, 3.5]])
    for width in (1, 4):
        np.testing.assert_array_equal(compiled(fn, x, width=width)[0], truth)
    assert compiled(fn, np.array([[2e3], [5.0]]))[1].tolist() == [False, True]


def test_numbers_that_are_the_same_are_read_once():
    """A function of shared numbers is computed once, however often a program calls it."""
    fn = lambda x, a: sum((-2.0 * jnp.cos(a)[i]) * x[i] ** (1 + j) for i in range(4) for j in range(3))
    native = made(fn, X, (A[0],))
    assert len(native.shared_words([jnp.asarray(A[0])])) <= 5  # and whether they are in range


def test_members_that_are_done_are_frozen():
    """Each member of a group loops as often as it would alone."""
    halve = lambda x: jax.lax.while_loop(lambda s: s[0] > 1.0, lambda s: 0.5 * s, x)
    x = np.array([[3.0], [300.0], [0.5], [1e6]])
    np.testing.assert_array_equal(compiled(halve, x, width=4)[0], compiled(halve, x, width=1)[0])


FOREVER = {  # loops that do not end for these numbers
    "of what varies": lambda x, a: jax.lax.while_loop(lambda s: s[0] > -9.0, lambda s: 1.0 * s, x),
    "of numbers that are shared": lambda x, a: x + jax.lax.while_loop(lambda s: s < 1.0, lambda s: 1.0 * s, a),
    "of known numbers": lambda x, a: x + jax.lax.while_loop(lambda s: s < 1.0, lambda s: 1.0 * s, 0.5),
    "inside of a loop": lambda x, a: jax.lax.fori_loop(
        0, jnp.int32(x[0]), lambda k, s: FOREVER["of what varies"](s, a), x
    ),
    "inside of a scan": lambda x, a: jax.lax.scan(
        lambda s, _: (FOREVER["of numbers that are shared"](s, a), None), x, None, 2
    )[0],
}


@pytest.mark.parametrize("name", FOREVER)
def test_loops_of_branches_that_are_not_taken(name):
    """They make no pass, though all branches are evaluated."""
    fn = lambda x, a: jax.lax.switch(2 * (x[0] > 2.0), [jnp.sin, lambda x: FOREVER[name](x, a), jnp.cos], x)
    x = np.array([[3.0, 1.0], [1.0, 2.0], [5.0, 0.3], [-1.0, 7.0]])
    for width in (1, 4):
        out = compiled(fn, x, (np.array(0.3),), width=width)[0]
        np.testing.assert_allclose(out, np.where(x[:, :1] > 2.0, np.cos(x), np.sin(x)), rtol=1e-14)


@pytest.mark.parametrize("fallback", [False, True])
@pytest.mark.parametrize("width", [1, 8])
def test_a_word_that_counts_steps(width, fallback):
    """It is not carried along; also where a run stops early, and is saved in between."""
    invalid = lambda shared, own, state, n, path: ((state[0] + 1, 2.0 * state[1]), state[1], n < 5)
    taken = lambda shared, own, state, n, path: ((state[0] + 1, 3.0 * state[1]), state[1], n < 6)
    shapes = jax.ShapeDtypeStruct((), jnp.int64), jax.ShapeDtypeStruct((), jnp.float64)
    kernel = compile_step(invalid, Signature(state=shapes), Cpu(width), fallback=taken if fallback else None)
    buffers = kernel.allocate(2 * width, slots=9)
    n, state, slots = buffers.n, buffers.state, buffers.saved
    n[:] = 1
    state[:, 0], state[:, 1] = np.arange(2)[:, None] + 40, np.float64(1.0).view(np.int64)
    kernel.run(buffers, stop=9, save_every=2)
    end = 6 if fallback else 5
    assert (n == end).all() and (state[:, 0] == np.arange(2)[:, None] + 40 + end - 1).all()
    assert (state[:, 1].view(float) == 2.0**4 * (3.0 if fallback else 1.0)).all()
    saved = [1.0, 4.0, 16.0] if fallback else [1.0, 4.0]  # of steps 1, 3 and 5
    assert (slots[:, : len(saved), 0].view(float) == np.array(saved)[:, None]).all()
    assert not slots[:, len(saved) :].any()
