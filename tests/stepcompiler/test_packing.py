"""The SLP vectoriser: results with packs are bitwise identical to results without."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from native_steps import called, made
from programs import gradient, program

import coadjoint as cj
from coadjoint.runtime.backends import step_kernels
from stepcompiler.lowering import groups
from stepcompiler.targets import cpu, slp_vectorizer

COPIES = 20  # two packs and a half
X = np.random.default_rng(3).standard_normal((COPIES, 4))


def both(fn, x, monkeypatch):
    """Return the results with packs and without them, and the texts with packs."""
    texts = []

    def noted(lines, groups, first):
        texts.append("\n".join(made := packed(lines, groups, first)))
        return made

    packed = slp_vectorizer.packed
    monkeypatch.setattr("stepcompiler.targets.time_loop.packed", noted)
    side = called(made(fn, x[None], width=1), x[None])[0]
    monkeypatch.setattr(groups, "LEAST_COPIES", 10**9)
    monkeypatch.setattr(cpu, "compiled", partial(cpu.compiled, level=0))  # identical results, in a third of the time
    single = called(made(fn, x[None], width=1), x[None])[0]
    monkeypatch.undo()
    return side, single, texts


def rolled(x):
    """A function with neighbours, sums over all elements, a loop that carries an array, and single elements."""
    near = jnp.roll(x, 1, axis=0) - 2.0 * x + jnp.roll(x, -1, axis=0)
    y = x.at[0].set(near[3]) * jnp.sum(x * near) + x.reshape(-1)[::-1].reshape(x.shape)

    def body(state):
        k, z = state
        return k + 1, 0.5 * z + jnp.sin(near) * y / jnp.sqrt(1.0 + jnp.sum(z * z, axis=1, keepdims=True))

    _, z = jax.lax.while_loop(lambda s: (s[0] < 40) & (jnp.sum(s[1] ** 2) < 1e9), body, (0, y))
    return z - y.T.reshape(x.shape) * jnp.where(x > 0, x, 3.0) + jnp.arange(x.shape[1])


def test_packs_do_not_change_results(monkeypatch):
    side, single, texts = both(rolled, X, monkeypatch)
    assert texts and "= phi <8 x double>" in texts[0]
    assert np.array_equal(side, single, equal_nan=True)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3))])
def test_random_programs_and_their_gradients(seed, monkeypatch):
    each = lambda x: jnp.concatenate([jnp.ravel(jax.vmap(f)(x)) for f in (program(seed), gradient(seed))])
    side, single, texts = both(each, X, monkeypatch)
    assert texts
    assert np.array_equal(side, single, equal_nan=True)


@pytest.mark.parametrize("method", ["TMK", pytest.param("RKMK", marks=pytest.mark.slow), "EulerMaruyamaMK"])
def test_a_chain_of_spins(method, monkeypatch):
    """Complete runs with and without packs are bitwise identical."""
    system, mu0 = cj.models.spin_chain(18, anisotropy=0.3, field=(0.1, 0.2, 0.3), coupling=np.linspace(0.5, 1.5, 18))
    method = {"RKMK": cj.RKMK("rk4")}.get(method) or getattr(cj, method)()
    run = {"t1": 0.2, "dt": 0.01, "key": 2, "integrator": method}
    side = cj.solve(system, mu0, **run)
    monkeypatch.setattr(groups, "LEAST_COPIES", 10**9)
    monkeypatch.setattr(step_kernels, "_kernels", step_kernels.LRUCache())
    single = cj.solve(system, mu0, **run)
    assert side.stats.backend == single.stats.backend == "native"
    assert np.array_equal(side.mu, single.mu)
