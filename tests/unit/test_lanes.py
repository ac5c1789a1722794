"""Lanes: any small JAX program, as native code, gives what it gives otherwise."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coadjoint as cj
from coadjoint.native.code import Unsuited
from coadjoint.native.lanes import native_loop, pattern
from coadjoint.numerics.branches import likely
from coadjoint.running import chunk, native_chunk, program
from coadjoint.running.native_path import Source

A = np.random.default_rng(0).standard_normal((4, 4))
PROGRAMS = {
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


def compiled(fn, x, shared=(), width=1, limit=10**6):
    """fn(x, *shared) for each row of x, by one step of native code: the results, and which rows came out valid."""
    one = jax.ShapeDtypeStruct(x.shape[1:], x.dtype)

    def step(shared, own, state, n, path):
        return state, fn(own[0], *shared), jnp.ones((), bool)

    native = native_loop(step, [pattern(s) for s in shared], [one], None, None, width, limit)
    groups = len(x) // width
    n = np.zeros(groups, int)
    out = np.full((groups, 1, native.loop.saved, width), np.nan)
    own = np.ascontiguousarray(x.reshape(groups, width, -1).swapaxes(1, 2))
    nothing = np.empty((groups, 0, width)), np.empty((groups, 1, 0, width))
    uniforms = np.asarray(native.uniforms([jnp.asarray(s) for s in shared]))
    native.loop(n, 1, 0, 1, 0, nothing[0], uniforms, own, nothing[1], out)
    return out[:, 0].swapaxes(1, 2).reshape(len(x), -1), n == 1


X = np.random.default_rng(1).standard_normal((8, 4))


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("width", [1, 4])
def test_same_results(name, width):
    """To round-off, for one member at a time and for four side by side."""
    fn = PROGRAMS[name]
    out, valid = compiled(lambda x: 1.0 * fn(x), X, width=width)
    assert valid.all()
    np.testing.assert_allclose(out, jax.vmap(fn)(X).reshape(len(X), -1), rtol=1e-13, atol=1e-13)


UNSUITED = {
    "eigenvalues": lambda x: jnp.linalg.eigvalsh(jnp.outer(x, x) + jnp.diag(x)),
    "transform": lambda x: jnp.abs(jnp.fft.fft(x)),
    "digamma": lambda x: jax.scipy.special.digamma(x**2 + 1),
}


@pytest.mark.parametrize("name", UNSUITED)
def test_what_has_no_rule_is_refused_before_anything_runs(name):
    with pytest.raises(Unsuited):
        compiled(UNSUITED[name], X)


def test_anything_may_be_done_to_what_is_the_same_for_all():
    """It is computed beforehand, by JAX: here a linear system and eigenvalues of a matrix of parameters."""
    fn = lambda x, a: jnp.linalg.solve(a + 4 * jnp.eye(4), jnp.ones(4)) * x / jnp.linalg.eigvalsh(a + a.T)
    out, _ = compiled(fn, X, shared=(A,), width=4)
    np.testing.assert_allclose(out, jax.vmap(fn, (0, None))(X, A), rtol=1e-12)


def test_known_numbers_are_folded():
    """Zeros and ones cost nothing: a product with the identity is no operation at all, given as an input or not."""
    compiled(lambda x: jnp.eye(4) @ x + 0.0, X, limit=0)
    compiled(lambda x, a: a @ x, X, shared=(np.eye(4)[::-1],), limit=0)
    with pytest.raises(Unsuited):
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


def test_members_that_are_done_are_frozen():
    """Each member of a group loops as often as it would alone."""
    halve = lambda x: jax.lax.while_loop(lambda s: s[0] > 1.0, lambda s: 0.5 * s, x)
    x = np.array([[3.0], [300.0], [0.5], [1e6]])
    np.testing.assert_array_equal(compiled(halve, x, width=4)[0], compiled(halve, x, width=1)[0])


@pytest.mark.parametrize(
    "members, channels, grid", [(1, 1, None), (1, 3, 0.03), (1, 2, 0.01), (24, 2, None), (24, 2, 0.003)]
)
def test_native_increments_are_those_of_the_driver_bit_for_bit(members, channels, grid):
    """So that it makes no difference to a path which program asks for it."""
    window = cj.Brownian(2**40 + 5, grid=grid).window(channels, 0.03, 0, 1)
    numbers = np.arange(7, 7 + members).reshape(-1, min(members, 8))
    source = Source(window, numbers, tuple(range(channels)))
    assert source.native is not None
    block = jax.jit(jax.vmap(lambda m, b: window.block(m, b).S, (0, None)), static_argnums=())
    for b in 0, 2**33:
        drawn = source.draw(b)[:, :32]
        np.testing.assert_array_equal(
            np.moveaxis(drawn, -1, 1).reshape(members, 32, channels), block(numbers.ravel(), b)
        )


CASES = {
    "heavy top": lambda: (*cj.models.heavy_top(), 0.01),
    "rigid body, nonlinear noise": lambda: (
        cj.System(
            cj.SO3(),
            lambda m: 0.5 * m @ (m / jnp.array([1.0, 2.0, 3.0])) + 0.1 * m[0] ** 4,
            [lambda m: 0.2 * m[0] * m[1]],
        ),
        jnp.array([0.5, -0.3, 0.8]),
        0.01,
    ),
    "steps too large for the chord": lambda: (*cj.models.heavy_top(), 2.5),
}


@pytest.mark.parametrize("name", CASES)
def test_solve_and_ensemble_agree_with_the_plain_path(name, monkeypatch):
    """Path, states and Casimirs; where lanes fail a step, the plain program takes it."""
    system, mu0, dt = CASES[name]()
    steps = 8 if dt > 1 else 40  # large steps are chaotic: round-off grows tenfold a step
    run = {"t1": steps * dt, "dt": dt, "key": 3, "save_every": 4}
    fast = cj.solve(system, mu0, **run), cj.ensemble(system, mu0, members=70, **run)
    monkeypatch.setattr(program, "eligible", lambda system: False)
    plain = cj.solve(system, mu0, **run), cj.ensemble(system, mu0, members=70, **run)
    for a, b in zip(fast, plain, strict=True):
        assert (a.stats.path, b.stats.path) == ("lanes", "plain")
        assert b.stats.unsolved == 0 and a.stats.unsolved == 0
        np.testing.assert_allclose(a.mu, b.mu, atol=1e-11 if dt > 1 else 1e-13)


@pytest.mark.parametrize("slots", [1, 300, 512, 1000])
def test_what_is_saved_in_pieces_of_a_chunk(slots, monkeypatch):
    """Fewer, as many and more than a piece holds, of one trajectory and of members: the function of every state."""
    system, mu0 = cj.models.rigid_body()
    for module in "solving", "ensembles":
        monkeypatch.setattr(importlib.import_module(f"coadjoint.running.{module}"), "slots_for", lambda *_: slots)
    save = lambda m: {"cube": m**3, "size": jnp.sum(m**2)}
    run = {"t1": 7.0, "dt": 0.01, "key": 3}
    for states, saved in (
        (cj.solve(system, mu0, **run), cj.solve(system, mu0, save=save, **run)),
        (cj.ensemble(system, mu0, members=9, **run), cj.ensemble(system, mu0, members=9, save=save, **run)),
    ):
        assert saved.stats.path == "lanes"
        np.testing.assert_allclose(saved.saved["cube"], states.mu**3, atol=1e-15)
        np.testing.assert_allclose(saved.saved["size"], np.sum(states.mu**2, axis=-1), atol=1e-15)


def test_no_bit_depends_on_the_cut_where_lanes_stop(monkeypatch):
    """A hard step and the rest of its block are taken by the plain program, wherever chunks end; of ensembles too."""
    system, mu0 = cj.models.heavy_top(alpha=(0.1, 0.2, 0.3))
    options = {"t1": 1.2 * 128, "dt": 1.2, "key": 0}
    whole, many = cj.solve(system, mu0, **options), cj.ensemble(system, mu0, members=3, **options)
    assert whole.stats.path == "lanes" and whole.stats.most_iterations > 30
    monkeypatch.setattr(chunk, "_FIRST_CHUNK", 7)
    monkeypatch.setattr(chunk, "_LARGEST_CHUNK", 7)
    cut = cj.solve(system, mu0, **options)
    np.testing.assert_array_equal(cut.mu, whole.mu)
    assert cut.stats.iterations == whole.stats.iterations
    np.testing.assert_array_equal(cj.ensemble(system, mu0, members=3, **options).mu, many.mu)


def test_large_or_complex_algebras_take_the_plain_path(monkeypatch):
    """Matrices, and programs that would be too long."""
    system, W0 = cj.models.sine_euler(3)
    assert cj.solve(system, W0, t1=0.5, dt=0.5, key=0, integrator=cj.HeunMK()).stats.path == "plain"
    quartic = cj.System(cj.SO3(), lambda m: jnp.sum(m**4) + m[0])
    run = {"mu0": np.ones(3) / 3, "t1": 0.01, "dt": 0.01, "integrator": cj.HeunMK()}
    with monkeypatch.context() as short:
        short.setattr(native_chunk, "OPERATIONS", 50)
        assert cj.solve(quartic, **run).stats.path == "plain"
    quintic = cj.System(cj.SO3(), lambda m: jnp.sum(m**5) + m[0])
    assert cj.solve(quintic, **run).stats.path == "lanes"
