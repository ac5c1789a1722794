"""Semidirect products of a group and its representations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from algebras import CUBIC, SU3
from comparisons import close
from composed_algebras import METHODS, PLANE, QUICK, normal, se3, so2

import coadjoint as cj
from coadjoint.algebras.casimirs import knows_all_casimirs


def test_se3_is_a_semidirect_product():
    mine, closed = se3(), cj.SE3()

    @jax.jit
    def both(x, y):
        return [
            {method: getattr(algebra, method)(x, y) for method in METHODS}
            | {"transport": algebra.drift_free_flow(x, y, algebra.orbit_memory(y))[0], "casimirs": algebra.casimirs(y)}
            for algebra in (mine, closed)
        ]

    for seed in range(20):
        a, b = both(*normal(2, 6, seed=seed))
        for method in (*METHODS[:4], "transport"):
            close(a[method], b[method], 1e-13)
        close(a["dexpinv"], b["dexpinv"], 1e-12)
        close(a["casimirs"] / np.array([2, 1]), b["casimirs"], 1e-14)  # what is found is 2 π·γ and |γ|²
    assert mine.index == closed.index == len(mine.casimir_names) == 2


def test_a_heavy_top_on_the_semidirect_product():
    system, mu0 = cj.models.heavy_top("kovalevskaya")
    inertia, chi = system.params["inertia"], system.params["chi"]

    def hamiltonian(mu):
        return 0.5 * mu[:3] @ (mu[:3] / inertia) - chi @ mu[3:]

    other = cj.System(se3(), hamiltonian, [cj.salt([0.01, 0.02, 0.03, 0, 0, 0])])
    kwargs = {"t1": 5.0, "dt": 0.01, "key": 7, **QUICK}
    close(cj.solve(other, mu0, **kwargs).mu, cj.solve(system, mu0, **kwargs).mu, 1e-13)


def test_motions_of_the_plane():
    """se(2): (θ, v) turns the momentum of translation by −θ; |a|² is the Casimir."""
    plane = cj.Semidirect(so2(), PLANE)
    assert plane.dim == 3 and plane.index == 1 and len(plane.casimir_names) == 1
    theta, a = 0.7, np.array([0.3, -1.2])
    turned = np.array([[np.cos(theta), np.sin(theta)], [-np.sin(theta), np.cos(theta)]]) @ a
    flow = jax.jit(plane.flow)
    close(flow(np.array([theta, 0.0, 0.0]), np.array([0.4, *a])), [0.4, *turned], 1e-15)
    v = np.array([0.5, 2.0])  # a translation changes the angular momentum by −a·(Jv) and nothing else
    shifted = 0.4 - a @ np.array([-v[1], v[0]])
    close(flow(np.array([0.0, *v]), np.array([0.4, *a])), [shifted, *a], 1e-15)
    close(jax.jit(plane.casimirs)(np.array([0.4, *a])), [a @ a])
    function = cj.Semidirect(so2(), lambda xi, v: xi[0] * jnp.stack([-v[1], v[0]]), dim=2)
    assert function == plane and hash(function) == hash(plane)


@pytest.mark.parametrize("copies", [2, 3])
def test_a_rotation_group_acting_on_several_vectors(copies):
    algebra = se3(copies)
    mu = normal(algebra.dim)
    _, *vectors = algebra.split(mu)
    gram = np.array(vectors) @ np.array(vectors).T
    pairs = [(1 if i == j else 2) * gram[i, j] for i in range(copies) for j in range(i, copies)]
    close(np.sort(algebra.casimirs(mu)), np.sort(pairs))
    assert algebra.index == len(algebra.casimir_names)
    # One vector of several moves like the one of se(3), and the torques add.
    xi = normal(algebra.dim, seed=1)
    omega, *v = algebra.split(xi)
    single = se3()
    moved = [single.ad_star(single.join(omega, b), single.join(0 * omega, a)) for a, b in zip(vectors, v, strict=True)]
    expected = algebra.join(cj.SO3().ad_star(omega, mu[:3]) + sum(m[:3] for m in moved), *(m[3:] for m in moved))
    close(algebra.ad_star(xi, mu), expected)


@pytest.mark.parametrize("copies", [1, 2, 3])
def test_casimirs_of_a_semidirect_product_do_not_drift(copies):
    algebra = se3(copies)
    h = lambda mu: 0.5 * jnp.sum(mu[:3] ** 2 / jnp.array([4.0, 2.0, 1.0])) + jnp.sum(mu[3:] ** 2 * mu[-1]) / 4
    system = cj.System(algebra, h, [cj.salt(np.array([0.1, 0.2, 0.3] + [0.05] * 3 * copies))])
    sol = cj.solve(system, normal(algebra.dim), t1=200.0, dt=0.01, key=0, save_every=100, **QUICK)
    assert np.max(sol.casimir_errors()) < 5e-15


def magnetic(C):
    algebra = cj.StructureConstants(C)
    return cj.Semidirect(algebra, cj.coadjoint_representation(algebra))


def test_the_coadjoint_representation():
    """ρ(ξ)α = −ad*_ξ α, on an algebra that is not its own dual."""
    algebra = cj.SE3()
    R = cj.coadjoint_representation(algebra)
    xi, alpha = normal(2, 6)
    close(np.einsum("i,ijk,k->j", xi, R, alpha), -algebra.ad_star(xi, alpha), 1e-15)
    function = cj.Semidirect(algebra, lambda xi, alpha: -algebra.ad_star(xi, alpha), dim=6)
    assert function == cj.Semidirect(algebra, R)


@pytest.mark.parametrize("n", [2, 3])
def test_magnetised_matrices(n):
    """su(n) ⋉ su(n)*: ad*_(ξ,u) (W, B) = ([W, ξ] + [B, u], [B, ξ]) in matrices."""
    su = cj.SU(n)
    algebra = cj.Semidirect(su, cj.coadjoint_representation(su))
    assert algebra.dim == 2 * su.dim and algebra.index == 2 * (n - 1)
    x, m = normal(2, algebra.dim)
    assert len(algebra.casimir_names) == algebra.known_casimirs == algebra.index

    @jax.jit
    def both(x, m):
        xi, u = (su.element(c) for c in jnp.split(x, 2))
        W, B = (su.element(c) for c in jnp.split(m, 2))
        commutator = lambda a, b: a @ b - b @ a
        expected = algebra.join(commutator(W, xi) + commutator(B, u), su.coordinates(commutator(B, xi)))
        traces = jnp.stack([jnp.trace(B @ B).real, 2 * jnp.trace(W @ B).real])
        found = algebra.ad_star(x, m), algebra.split(m)[0], jnp.sort(-algebra.casimirs(m)[:2])
        return [*zip(found, (expected, W, jnp.sort(traces)), strict=True)]

    for found, expected in both(x, m):
        close(found, expected)
    # Two Casimirs are quadratic; for n = 3 there are two more, Tr B³ and Tr WB², and all four are conserved.
    algebra_casimirs = lambda mu: jnp.stack(_traces(su, n, mu))
    given = cj.Semidirect(
        su,
        cj.coadjoint_representation(su),
        casimirs=algebra_casimirs,
        casimir_names=["a", "b", "c", "d"][: 2 * (n - 1)],
    )
    assert len(given.casimir_names) == given.index
    casimirs = jax.jit(lambda x, m: (given.casimirs(given.flow(0.3 * x, m)), given.casimirs(m)))
    close(*casimirs(x, m), 1e-12)


def _traces(su, n, mu):
    W, B = su.element(mu[: su.dim]), su.element(mu[su.dim :])
    out = [jnp.trace(B @ B).real, jnp.trace(W @ B).real]
    return out if n == 2 else [*out, jnp.trace(B @ B @ B).imag, jnp.trace(W @ B @ B).imag]


@pytest.mark.parametrize("given", [False, True], ids=["double-double", "four Casimirs given"])
def test_hidden_casimirs_of_magnetised_matrices_do_not_drift(given):
    """su(3) ⋉ su(3)* in real coordinates: the cubic Casimirs, in double-double or with all four given.

    By the plain flow they are off by 8e-15 in the end, whatever the method.
    """
    C = cj.StructureConstants(SU3)

    def casimirs(mu):
        w, b = mu[:8], mu[8:]
        cubic = jnp.asarray(CUBIC)
        return jnp.stack(
            [b @ b, w @ b, jnp.einsum("abc,a,b,c", cubic, b, b, b), jnp.einsum("abc,a,b,c", cubic, w, b, b)]
        )

    algebra = cj.Semidirect(C, cj.coadjoint_representation(C), casimirs=casimirs if given else None)
    assert algebra.index == len(algebra.casimir_names) == 4 and knows_all_casimirs(algebra) == given
    weights = 1.0 + np.arange(8)
    h = lambda mu: 0.5 * jnp.sum(mu[:8] ** 2 / weights) + 0.5 * jnp.sum(mu[8:] ** 2 * weights) / 8
    system = cj.System(algebra, h, [cj.salt(0.1 * normal(16))], side="right")
    mu0 = normal(16, seed=1)
    method = cj.EulerMaruyamaMK()  # the least to compile
    sol = cj.solve(system, mu0, t1=200.0, dt=0.01, key=0, save_every=1000, integrator=method)
    values = np.asarray(jax.jit(jax.vmap(casimirs))(sol.mu))
    w, b = np.linalg.norm(mu0[:8]), np.linalg.norm(mu0[8:])
    assert np.max(abs(values - values[0]) / [b**2, w * b, b**3, w * b**2]) < 2e-15


def test_casimirs_that_depend_on_each_other_do_not_count_twice():
    """|b|² and its powers are not the cubic Casimir of su(3): double-double is needed."""
    algebra = cj.StructureConstants(SU3, casimirs=lambda m: jnp.stack([m @ m, (m @ m) ** 2, (m @ m) ** 3]))
    assert algebra.orbit_memory(jnp.ones(8)).shape == (8,)
    complete = cj.StructureConstants(
        SU3, casimirs=lambda m: jnp.stack([m @ m, jnp.einsum("abc,a,b,c", jnp.asarray(CUBIC), m, m, m)])
    )
    assert complete.orbit_memory(jnp.ones(8)).shape == (2,)


def test_a_product_may_act_and_a_semidirect_product_too():
    """so(3) × so(3) on ℝ³ ⊗ ℝ³, and se(3) on ℝ⁴ by its homogeneous matrices."""
    eye = np.eye(3)
    hats = np.asarray(jax.vmap(cj.SO3().ad)(eye))
    R = np.concatenate([[np.kron(h, eye) for h in hats], [np.kron(eye, h) for h in hats]])
    assert cj.Semidirect(cj.SO3() ** 2, R).dim == 15
    rigid = np.zeros((6, 4, 4))
    rigid[:3, :3, :3] = hats
    rigid[3:, :3, 3] = eye
    assert cj.Semidirect(cj.SE3(), rigid) == cj.Semidirect(cj.SE3(), rigid.tolist())
    assert cj.Semidirect(se3(), rigid).dim == 10


def test_an_algebra_made_anew_is_the_same_algebra():
    again = cj.Semidirect(cj.SO3(), lambda xi, v: jnp.cross(xi, v), dim=3)
    assert again == se3() and hash(again) == hash(se3())
    assert se3(2) != se3(1)
    assert np.array_equal(se3().matrices, [cj.SO3().ad(e) for e in np.eye(3)])
    with pytest.raises(ValueError, match="read-only"):
        se3().matrices[0, 0, 0] = 1.0
