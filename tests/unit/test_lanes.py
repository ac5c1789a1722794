"""Lanes: any small JAX program, evaluated scalar by scalar, gives what it gives otherwise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coadjoint as cj
from coadjoint import _flags, chunk, program
from coadjoint._lanes import TooLong, in_lanes, likely, pack, split

A = np.random.default_rng(0).standard_normal((4, 4))
PROGRAMS = {
    "arithmetic": lambda x: jnp.sin(x) * jnp.exp(-(x**2)) / (2.0 + jnp.cos(x)) - jnp.sqrt(jnp.abs(x)),
    "products": lambda x: (A @ x) * (x @ A) + jnp.outer(x, x) @ x,
    "einsum": lambda x: jnp.einsum("i,ij,j,kj->k", x, A, x, A),
    "moves": lambda x: jnp.concatenate([x[::-1], jnp.roll(x, 1)]).reshape(2, 4).T.ravel()[:4],
    "gather": lambda x: x[jnp.array([3, 0, 0, 1])] + x.at[1].set(0.0),
    "reductions": lambda x: jnp.stack([jnp.max(x), jnp.min(x), jnp.prod(x), jnp.mean(x)]),
    "select": lambda x: jnp.where(x > 0, x, jnp.clip(x, -0.5, 0.5)),
    "solve": lambda x: jnp.linalg.solve(A + 4 * jnp.eye(4), x),
    "eigenvalues": lambda x: jnp.linalg.eigvalsh(jnp.outer(x, x) + jnp.diag(x)),
    "while": lambda x: jax.lax.while_loop(lambda s: jnp.sum(s**2) > 0.01, lambda s: 0.5 * s, x),
    "scan": lambda x: jax.lax.scan(lambda c, a: (jnp.sin(c) + a, None), x, jnp.ones((3, 4)))[0],
    "fori": lambda x: jax.lax.fori_loop(0, 5, lambda k, s: s + jnp.cos(s) * k, x),
    "cond": lambda x: jax.lax.cond(x[0] > 0, jnp.sin, jnp.cos, x),
    "sort": lambda x: jnp.sort(x) + jnp.cumsum(x),
    "gradient": jax.grad(lambda x: jnp.sum(x**4) + x[0] * x[1] / (1 + x[2] ** 2)),
    "hessian": lambda x: jax.hessian(lambda y: jnp.sum(jnp.exp(y) * jnp.roll(y, 1)))(x) @ x,
    "special": lambda x: jax.scipy.special.erf(x) + jnp.tanh(x) + jnp.log1p(x**2) + jnp.power(x**2 + 1, 1.3),
    "integers": lambda x: x * (jnp.arange(4) % 3) + jnp.round(x),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("batch", [(), (3,)], ids=["one", "three"])
def test_same_results(name, batch):
    """To round-off, for one and for a batch."""
    fn = PROGRAMS[name]
    x = jnp.asarray(np.random.default_rng(1).standard_normal((*batch, 4)))
    shape = jax.eval_shape(fn, x[0] if batch else x)

    @jax.jit
    def in_lanes_(x):
        out, valid = in_lanes(fn, jax.ShapeDtypeStruct((4,), jnp.float64), batch=batch)(split(x, batch))
        return pack(out, batch, shape.dtype), valid

    out, valid = in_lanes_(x)
    assert bool(jnp.all(valid))
    np.testing.assert_allclose(out, jax.vmap(fn)(x) if batch else fn(x), rtol=1e-13, atol=1e-13)


def test_known_numbers_are_folded():
    """Zeros and ones cost nothing: a product with the identity is no operation at all."""
    fn = jax.make_jaxpr(lambda x: pack(in_lanes(lambda y: jnp.eye(4) @ y + 0.0, x)(split(x))[0], (), float))
    assert not {"mul", "add"} & {eqn.primitive.name for eqn in fn(jnp.ones(4)).jaxpr.eqns}


def test_likely_is_taken_for_true_and_watched():
    """Also inside a loop: the result is valid only if the condition held each time."""

    def fn(x):
        def body(s):
            k, y = s
            return k + 1, jnp.where(likely(y < 10.0), 2 * y, -1.0)

        return jax.lax.while_loop(lambda s: s[0] < 3, body, (0, x))[1]

    def run(x):
        (out), valid = in_lanes(fn, x)(split(x))
        return out[()], valid

    assert jax.jit(run)(jnp.asarray(1.0)) == (8.0, True)
    assert not jax.jit(run)(jnp.asarray(4.0))[1]


def test_too_long_programs_are_refused():
    """By their number of operations."""
    with pytest.raises(TooLong):
        jax.eval_shape(lambda x: in_lanes(jnp.sin, x, limit=3)(split(x))[1], jnp.ones(4))


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
    run = {"t1": 40 * dt, "dt": dt, "key": 3, "save_every": 4}
    fast = cj.solve(system, mu0, **run), cj.ensemble(system, mu0, members=70, **run)
    monkeypatch.setattr(program, "eligible", lambda system: False)
    plain = cj.solve(system, mu0, **run), cj.ensemble(system, mu0, members=70, **run)
    for a, b in zip(fast, plain, strict=True):
        assert (a.stats.path, b.stats.path) == ("lanes", "plain")
        assert b.stats.unsolved == 0 and a.stats.unsolved == 0
        np.testing.assert_allclose(a.mu, b.mu, atol=1e-11 if dt > 1 else 1e-13)


def test_no_bit_depends_on_the_cut_where_lanes_stop(monkeypatch):
    """Blocks with hard steps are taken by the plain program as a whole, wherever chunks end."""
    system, mu0 = cj.models.heavy_top(alpha=(0.1, 0.2, 0.3))
    options = {"t1": 1.2 * 128, "dt": 1.2, "key": 0}
    whole = cj.solve(system, mu0, **options)
    assert whole.stats.path == "lanes" and whole.stats.most_iterations > 30
    monkeypatch.setattr(chunk, "_FIRST_CHUNK", 7)
    monkeypatch.setattr(chunk, "_LARGEST_CHUNK", 7)
    cut = cj.solve(system, mu0, **options)
    np.testing.assert_array_equal(cut.mu, whole.mu)
    assert cut.stats.iterations == whole.stats.iterations


def test_large_or_complex_algebras_take_the_plain_path():
    """Matrices, and programs that would be too long."""
    system, W0 = cj.models.sine_euler(3)
    assert cj.solve(system, W0, t1=0.5, dt=0.5, key=0).stats.path == "plain"
    dense = jnp.asarray(np.random.default_rng(0).standard_normal((8, 8, 8, 8)))
    system = cj.System(
        cj.SO3() * cj.SO3() * cj.SO3(), lambda m: jnp.einsum("ijkl,i,j,k,l->", dense, *[m[:8]] * 4) / 100
    )
    assert cj.solve(system, np.ones(9) / 3, t1=0.01, dt=0.01).stats.path == "plain"


def test_flags_are_merged_not_replaced():
    """What the user has set stays; nothing is added twice; no unknown option on newer versions."""
    options = _flags.wanted((0, 10, 2), "fast")
    once = _flags.merged("--xla_force_host_platform_device_count=2", options)
    assert once.startswith("--xla_force_host_platform_device_count=2 --xla_backend_extra_options=")
    assert _flags.merged(once, options) == once
    theirs = "--xla_backend_extra_options=xla_cpu_small_while_loop_byte_threshold=7"
    merged = _flags.merged(theirs, options)
    assert "threshold=7" in merged and merged.count("threshold") == 1 and "multi_output" in merged
    assert _flags.wanted((0, 12, 0), "fast") == _flags.wanted((0, 10, 2), "0") == {}
    assert list(_flags.wanted((0, 10, 2))) == ["xla_cpu_small_while_loop_byte_threshold"]
