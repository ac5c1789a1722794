"""g0: the group element at the start of a run."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from algebras import SO4
from tuned import tune

import coadjoint as cj

ALGEBRAS = {
    "SO3": cj.SO3(),
    "SE3": cj.SE3(),
    "so(4)": cj.StructureConstants(SO4),
    "SO3 × SE3": cj.SO3() * cj.SE3(),
    "SO3 ** 2": cj.SO3() ** 2,
    "SU(3)": cj.SU(3),
}
RUN = {"t1": 0.4, "dt": 0.05, "save_every": 2, "group": True, "integrator": cj.HeunMK()}


@cache
def _programs(algebra):
    return jax.jit(algebra.element), jax.jit(algebra.group_exp)


def start(algebra, seed=0):
    """A system, a state and a group element."""
    rng = np.random.default_rng(seed)
    weights = np.linspace(0.5, 1.5, algebra.dim)
    element, exp = _programs(algebra)
    mu0, sigma = (element(rng.standard_normal(algebra.dim)) for _ in range(2))

    def h(mu):
        return 0.5 * jnp.sum(weights * algebra.coordinates(mu) ** 2)

    return h, mu0, jax.tree.map(np.asarray, exp(sigma))


def close(a, b, tol=1e-13):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=tol)


@pytest.mark.parametrize(
    ("name", "side"),
    [("SO3", "left"), ("SE3", "left"), ("SE3", "right"), ("SU(3)", "right"), ("SO3 × SE3", "left")]
    + [pytest.param(name, "right", marks=pytest.mark.slow) for name in ("so(4)", "SO3 ** 2", "SO3")],
)
def test_the_start_is_a_factor(name, side):
    """Left: g_n = g₀ k_n, right: g_n = k_n g₀, with k_n from the identity; the states are those of the run without."""
    algebra = ALGEBRAS[name]
    h, mu0, g0 = start(algebra)
    system = cj.System(algebra, h, side=side)
    plain = cj.solve(system, mu0, **RUN)
    sol = cj.solve(system, mu0, g0=g0, **RUN)
    np.testing.assert_array_equal(sol.mu, plain.mu)
    product = algebra.group_product
    moved = jax.jit(jax.vmap(lambda k: product(g0, k) if side == "left" else product(k, g0)))(plain.g)
    close(sol.g, moved)
    close(jax.tree.map(lambda x: x[0], sol.g), g0)


def test_the_identity_changes_no_bit_and_a_run_can_be_continued():
    """g0 = 1 is what stands there without it; sol.g[-1] and sol.mu[-1] go on where a run ended."""
    system, mu0 = cj.models.heavy_top(alpha=None)
    plain = cj.solve(system, mu0, **RUN)
    np.testing.assert_array_equal(cj.solve(system, mu0, g0=np.eye(4), **RUN).g, plain.g)
    half = cj.solve(system, mu0, **RUN | {"t1": 0.2})
    rest = cj.solve(system, half.mu[-1], g0=half.g[-1], **RUN | {"t0": 0.2})
    close(rest.g, plain.g[2:], 1e-14)
    close(rest.attitude(), plain.attitude()[2:], 1e-14)


def test_ensembles_stores_backends_and_files(tmp_path, monkeypatch):
    """By member or for all, native and XLA, memory, store, resumed half-way, made again from the store alone."""
    tune(monkeypatch, max_batch_size=2)
    system, mu0 = cj.models.rigid_body()
    _, _, g0 = start(cj.SO3())
    each = np.stack([start(cj.SO3(), k)[2] for k in range(5)])
    ens = cj.ensemble(system, mu0, members=5, key=3, g0=each, **RUN)
    close(ens.g[:, 0], each)
    close(ens.g, cj.ensemble(system, mu0, members=5, key=3, g0=each, backend="xla", **RUN).g)
    plain = cj.ensemble(system, mu0, members=5, key=3, **RUN)
    close(ens.g, np.einsum("mij,mtjk->mtik", each, plain.g))
    close(cj.ensemble(system, mu0, members=5, key=3, g0=g0, **RUN).g, np.einsum("ij,mtjk->mtik", g0, plain.g))
    path = tmp_path / "e.zarr"
    cj.ensemble(system, mu0, members=5, key=3, g0=each, out=path, **RUN | {"t1": 0.2})
    with pytest.raises(cj.StoreError, match="g0: the store has"):
        cj.ensemble(system, mu0, members=5, key=3, out=path, resume=True, **RUN)
    done = cj.resume(path, t1=0.4)
    np.testing.assert_array_equal(done.g, ens.g)


def test_files(tmp_path):
    """`run.g0` in an experiment."""
    turned = [[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    tables = {"model": {"name": "rigid_body"}, "run": RUN | {"integrator": "HeunMK", "key": 0, "g0": turned}}
    np.testing.assert_array_equal(cj.run(tables, tmp_path / "r.zarr").g[0], turned)


def test_derivatives():
    """By g0 itself: g_n = g₀ k_n is linear in it."""
    system, mu0 = cj.models.rigid_body(alpha=None)
    _, _, g0 = start(cj.SO3())
    k = cj.solve(system, mu0, **RUN).g[-1]
    got = jax.jit(jax.jacobian(lambda g: jnp.asarray(cj.solve(system, mu0, g0=g, **RUN).g[-1])))(g0)
    np.testing.assert_allclose(got, np.einsum("ia,bj->ijab", np.eye(3), k), atol=1e-12)


TWICE = 2 * np.eye(3)
PHASE = np.exp(0.3j) * np.eye(3)
SHEAR = np.eye(4) + np.eye(4)[:, [1, 2, 3, 0]]
SWAP = np.kron([[0, 1], [1, 0]], np.eye(3))  # of the two so(3) of so(4), in another basis no automorphism


@pytest.mark.parametrize(
    ("algebra", "g0", "error", "message"),
    [
        (cj.SO3(), TWICE, ValueError, "g0 is not in the group of SO3: it is not orthogonal: RᵀR is off .* by 3"),
        (cj.SO3(), -np.eye(3), ValueError, "reflection"),
        (cj.SO3(), np.eye(4), ValueError, r"g0 must have shape \(3, 3\) for SO3, not \(4, 4\)"),
        (cj.SO3(), "up", TypeError, "g0 must be a matrix of numbers, not 'up'"),
        (cj.SO3(), np.nan * np.eye(3), ValueError, "g0 must be finite"),
        (cj.SO3(), 1j * np.eye(3), TypeError, "g0 is complex"),
        (cj.SE3(), SHEAR, ValueError, "last row"),
        (cj.SE3(), np.diag([1.0, 2.0, 1.0, 1.0]), ValueError, "its rotation, the upper left 3×3 matrix, is not orth"),
        (cj.SU(3), 1.1 * np.eye(3), ValueError, "not unitary"),
        (cj.SU(3), PHASE, ValueError, "determinant"),
        (cj.SO3() * cj.SE3(), np.eye(3), ValueError, "g0 must be a tuple of 2 group elements"),
        (cj.SO3() * cj.SE3(), (np.eye(3), SHEAR), ValueError, "factor 2: its last row"),
        (cj.SO3() ** 2, np.stack([np.eye(3), TWICE]), ValueError, "factor 2: it is not orthogonal"),
        (cj.StructureConstants(SO4), SWAP + 1, ValueError, "does not keep brackets"),
        (cj.StructureConstants(np.zeros((2, 2, 2))), 2 * np.eye(2), ValueError, "changes a Casimir, C2, by"),
    ],
)
def test_what_is_not_in_the_group(algebra, g0, error, message):
    h, mu0, _ = start(algebra)
    with pytest.raises(error, match=message):
        cj.solve(cj.System(algebra, h), mu0, g0=g0, **RUN)


def test_what_else_is_wrong():
    h, mu0, g0 = start(cj.SO3())
    system = cj.System(cj.SO3(), h)
    with pytest.raises(ValueError, match="does not compute it"):
        cj.solve(system, mu0, g0=g0, **RUN | {"group": False})
    with pytest.raises(ValueError, match=r"or \(4, 3, 3\) to lead with members, not \(5, 3, 3\)"):
        cj.ensemble(system, mu0, members=4, g0=np.stack([g0] * 5), **RUN)
    with pytest.raises(ValueError, match="g0 of member 2 is not in the group"):
        cj.ensemble(system, mu0, members=4, g0=np.stack([g0, g0, TWICE, g0]), **RUN)


@pytest.mark.parametrize("count", [1, 2])
def test_quick_test_of_a_stack_of_products(count):
    """Rotations beside commutative parts: a correct stack passes, one wrong factor of one member does not."""
    plain = cj.StructureConstants(np.zeros((2, 2, 2)))
    algebra = cj.Product(*[cj.SO3()] * count, plain)
    lead = (4,) if count == 1 else (4, count)
    turns, rest = np.tile(np.eye(3), (*lead, 1, 1)), np.tile(np.eye(2), (4, 1, 1))
    assert algebra.in_group((turns, rest))
    turns[(2,) if count == 1 else (2, 1)] *= 2
    assert not algebra.in_group((turns, rest))
    turns[(2,) if count == 1 else (2, 1)] /= 2
    assert not algebra.in_group((turns, 2 * rest))
