"""Direct sums and semidirect products: against their parts, against SE3, against matrices; what a user gets wrong."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from algebras import CUBIC, SO3, SU3

import coadjoint as cj
from coadjoint.algebras.casimirs import knows_all_casimirs

PAULI = np.array([[[0, 1], [1, 0]], [[0, -1j], [1j, 0]], [[1, 0], [0, -1]]])
METHODS = ("bracket", "ad_star", "flow", "dexp", "dexpinv")
QUICK = {"integrator": cj.TMK(fallbacks=False)}  # half as much to compile
PLANE = np.array([[[0.0, -1.0], [1.0, 0.0]]])  # so(2) turning the plane


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def close(a, b, tol=1e-13):
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=0, atol=tol)


def se3(copies=1):
    return cj.Semidirect(cj.SO3(), cj.SO3().bracket, dim=3, copies=copies)


def so2():
    return cj.StructureConstants(np.zeros((1, 1, 1)))


# Products.


def test_products_flatten_and_take_equal_neighbours_together():
    a, b, c = cj.SO3(), cj.SE3(), cj.SU(2)
    assert (a * b) * c == a * (b * c) == cj.Product(a, b, c)
    assert hash((a * b) * c) == hash(cj.Product(cj.SO3(), cj.SE3(), cj.SU(2)))
    assert a * b != b * a
    assert a**3 == a * a * a == cj.Product(a, copies=3) == cj.Product(a * a, a)
    assert (a**3).kinds == (a,) and (a**3).counts == (3,) and (a**3).factors == (a, a, a)
    mixed = a**2 * b * a
    assert mixed.factors == (a, a, b, a) and mixed.counts == (2, 1, 1) and mixed.dim == 15
    assert (a * b) ** 2 == cj.Product(a, b, a, b)
    assert (b * b) ** 3 == b**6


PRODUCTS = {
    "SO3×SE3": cj.SO3() * cj.SE3(),
    "SO3⁴": cj.SO3() ** 4,
    "SO3²×SU(3)×so(3)²": cj.SO3() ** 2 * cj.SU(3) * cj.StructureConstants(SO3) ** 2,
    "SU(2)²": cj.SU(2) ** 2,
    "semidirect": se3() * cj.SO3(),
}


@pytest.mark.parametrize("product", PRODUCTS.values(), ids=PRODUCTS)
def test_a_product_is_its_factors_side_by_side(product):
    @jax.jit
    def both(x, y):
        parts = [*zip(product.factors, product.split(x), product.split(y), strict=True)]
        whole = {method: getattr(product, method)(x, y) for method in METHODS}
        sides = {method: product.join(*(getattr(f, method)(a, b) for f, a, b in parts)) for method in METHODS}
        whole |= {"pairing": product.pairing(x, y), "again": product.join(*product.split(x))}
        sides |= {"pairing": sum(f.pairing(a, b) for f, a, b in parts), "again": x}
        for function in ("casimirs", "casimir_scales"):
            whole[function] = getattr(product, function)(x)
            sides[function] = jnp.concatenate([getattr(f, function)(a) for f, a, _ in parts])
        return whole, sides

    whole, sides = both(*normal(2, product.dim))
    for name, value in whole.items():
        close(value, sides[name], 1e-12)
    assert whole["casimirs"].shape == (len(product.casimir_names),)
    assert product.index == sum(f.index for f in product.factors)


def test_the_derived_index_of_a_product_is_the_sum():
    for product in PRODUCTS.values():
        constants = cj.StructureConstants(cj.algebras.constants.structure_constants(product))
        assert constants.index == product.index


def test_casimirs_carry_the_number_of_their_factor():
    product = cj.SO3() * cj.SE3() * cj.SO3()
    assert product.casimir_names == ("|μ|² (1)", "π·γ (2)", "|γ|² (2)", "|μ|² (3)")


def test_the_gradient_in_a_product_is_that_of_the_factors():
    su = cj.SU(3)
    product = cj.SO3() * su
    x = jnp.asarray(normal(product.dim))
    h = lambda W: jnp.trace(W @ W @ W).imag + jnp.trace(W @ W).real

    @jax.jit
    def both(x):
        pi, W = product.split(x)
        whole = lambda mu: product.split(mu)[0] @ product.split(mu)[0] + h(product.split(mu)[1])
        return product.gradient(whole, x), product.join(2 * pi, su.gradient(h, W))

    close(*both(x))


def test_a_system_without_coupling_moves_like_its_parts():
    """The same increments for both, on so(3)² × se(3) × su(2), with the anchors of each at work."""
    product = cj.SO3() ** 2 * cj.SE3() * cj.SU(2)
    energies = (
        lambda m: 0.5 * jnp.sum(m**2 / jnp.array([4.0, 2.0, 1.0])),
        lambda m: 0.5 * jnp.sum(m**2 / jnp.array([3.0, 2.0, 1.5])),
        lambda m: 0.5 * jnp.sum(m[:3] ** 2 / jnp.array([4.0, 4.0, 1.0])) - m[5],
        lambda W: jnp.abs(W[0, 1]) ** 2 + 0.5 * W[0, 0].imag ** 2,
    )
    beta = 0.1 * normal(2, product.dim)
    mu0 = normal(product.dim, seed=1)
    dS = 0.1 * normal(100, 2, seed=2)

    def hamiltonian(mu):
        return sum(h(m) for h, m in zip(energies, product.split(mu), strict=True))

    system = cj.System(product, hamiltonian, [cj.salt(beta)])
    together = cj.solve(system, mu0, t1=1.0, dt=0.01, driver=cj.Increments(dS), **QUICK)
    assert np.max(together.casimir_errors()) < 5e-15
    fields = [product.split(b) for b in beta]
    for i, (factor, h, start) in enumerate(zip(product.factors, energies, product.split(mu0), strict=True)):
        own = cj.System(factor, h, [cj.salt(jnp.stack([f[i] for f in fields]))])
        alone = cj.solve(own, start, t1=1.0, dt=0.01, driver=cj.Increments(dS), **QUICK)
        close(product.split(together.mu[-1])[i], alone.mu[-1], 1e-13)


def test_the_group_of_a_product():
    for product in (cj.SO3() ** 3, cj.SO3() * cj.SE3() ** 2, cj.SU(2) * se3()):

        @jax.jit
        def pairs(s, t, mu, product=product):
            g, k = product.group_exp(s), product.group_exp(t)
            moved = product.coadjoint(g, mu)
            return [
                (moved, product.flow(s, mu)),
                (product.coadjoint(product.group_product(g, k), mu), product.coadjoint(k, moved)),
                (product.coadjoint(product.group_inverse(g), moved), mu),
                (product.coadjoint(product.group_align(g, mu, moved), mu), moved),
            ]

        for a, b in pairs(*normal(3, product.dim)):
            close(a, b, 1e-11)
    zero = np.zeros(9)
    assert jax.eval_shape((cj.SO3() ** 3).group_exp, zero).shape == (3, 3, 3)
    assert [g.shape for g in jax.eval_shape((cj.SO3() * cj.SE3()).group_exp, zero)] == [(3, 3), (4, 4)]


@pytest.mark.parametrize("product", [cj.SO3() ** 3, cj.SO3() * cj.SE3()], ids=["SO3³", "SO3×SE3"])
def test_reconstruction_on_a_product(product):
    weights = 1.0 + np.arange(product.dim)
    system = cj.System(product, lambda mu: 0.5 * jnp.sum(mu**2 / weights), [cj.salt(0.1 * normal(product.dim))])
    mu0 = normal(product.dim, seed=3)
    sol = cj.solve(system, mu0, t1=1.0, dt=0.01, key=0, group=True, save_every=50, **QUICK)
    last = jax.tree.map(lambda g: g[-1], sol.g)
    close(product.coadjoint(last, mu0), sol.mu[-1])


def test_a_long_chain_compiles_like_a_short_one():
    def equations(n):
        chain = cj.SO3() ** n
        return len(jax.make_jaxpr(chain.flow)(np.zeros(3 * n), np.zeros(3 * n)).jaxpr.eqns)

    assert equations(64) == equations(2)


# Semidirect products.


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
    # Two Casimirs are quadratic; for n = 3 there are two more, Tr B³ and Tr WB², and all four are kept.
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


# What a user gets wrong.


@pytest.mark.parametrize(
    "make, error, message",
    [
        (lambda: cj.Product(), ValueError, "at least one algebra"),
        (lambda: cj.Product(cj.SO3(), 3), TypeError, r"factor 2 must be a LieAlgebra such as SO3\(\), not 3"),
        (lambda: cj.Product(cj.SO3(), cj.SE3), TypeError, r"did you mean SE3\(\)\?"),
        (lambda: cj.SO3() * 3, TypeError, "factor 2 must be a LieAlgebra"),
        (lambda: cj.SO3() * np.eye(3), TypeError, "factor 2 must be a LieAlgebra"),
        (lambda: cj.Product(cj.SO3(), copies=0), ValueError, "copies must be at least 1, not 0"),
        (lambda: cj.SO3() ** -1, ValueError, "copies must be at least 1, not -1"),
        (lambda: cj.SO3() ** 1.5, TypeError, "copies must be a whole number"),
        (lambda: (cj.SO3() * cj.SE3()).join(np.zeros(3)), ValueError, r"takes 2 parts, not 1: factor 1 \(SO3\)"),
        (
            lambda: (cj.SO3() * cj.SE3()).join(np.zeros(3), np.zeros(3)),
            ValueError,
            r"factor 2 \(SE3\) needs shape \(6,\), not \(3,\)",
        ),
        (lambda: (cj.SO3() ** 2).join(np.zeros(3), 1j * np.ones(3)), TypeError, "factor 2 .* is real, not complex"),
        (lambda: se3().join(np.zeros(3), np.zeros(2)), ValueError, r"vector 1 needs shape \(3,\), not \(2,\)"),
        (lambda: cj.Semidirect(cj.SO3, PLANE), TypeError, r"algebra must be .* did you mean SO3\(\)\?"),
        (lambda: cj.Semidirect(cj.SO3(), lambda xi, v: v), ValueError, "dim, the dimension of the vector space, must"),
        (lambda: cj.Semidirect(cj.SO3(), "adjoint"), TypeError, "must be a function rho"),
        (lambda: cj.Semidirect(cj.SO3(), [[1.0, 2.0], [3.0]]), TypeError, "must be a function rho"),
        (lambda: cj.Semidirect(cj.SO3(), 1j * SO3), TypeError, "real numbers, not of type complex"),
        (lambda: cj.Semidirect(cj.SO3(), PLANE), ValueError, r"shape \(3, m, m\), .* SO3, not \(1, 2, 2\)"),
        (lambda: cj.Semidirect(cj.SO3(), SO3, dim=4), ValueError, r"shape \(3, 4, 4\)"),
        (lambda: cj.Semidirect(so2(), PLANE * np.nan), ValueError, r"entry \[0, 0, 0\] is nan"),
        (lambda: cj.Semidirect(so2(), PLANE, dim=0), ValueError, "dim must be at least 1"),
        (lambda: cj.Semidirect(so2(), PLANE, copies=0), ValueError, "copies must be at least 1"),
        (lambda: cj.Semidirect(cj.SO3(), lambda xi, v: v[:2], dim=3), ValueError, r"length dim = 3, not .*\(2,\)"),
        (lambda: cj.Semidirect(cj.SO3(), lambda xi, v: 1j * v, dim=3), ValueError, "real vector"),
        (lambda: cj.Semidirect(cj.SO3(), lambda xi, v: (v, v), dim=3), ValueError, "not tuple"),
        (lambda: cj.Semidirect(cj.SO3(), lambda xi, v: v / 0.0, dim=3), ValueError, r"matrix of ρ\(e_0\) is not"),
        (lambda: cj.Semidirect(cj.SO3(), lambda xi, v: (xi @ xi) * v, dim=3), ValueError, "linear in xi and in v"),
        (lambda: cj.Semidirect(cj.SO3(), lambda xi, v: jnp.cross(xi, v) + 1, dim=3), ValueError, "linear in xi"),
        (lambda: cj.Semidirect(so2(), PLANE, casimir_names=["a"]), ValueError, "without casimirs"),
        (
            lambda: cj.Semidirect(so2(), PLANE, casimirs=lambda m: m[1:] ** 2, casimir_names=["a", "b"]),
            ValueError,
            "'a' is not a Casimir",
        ),
    ],
)
def test_what_is_wrong_is_said(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_a_function_that_fails_says_where():
    with pytest.raises(TypeError) as caught:
        cj.Semidirect(cj.SO3(), lambda xi, v: xi @ v, dim=2)
    assert "representation(xi, v) for xi of shape (3,) and v of shape (2,)" in "".join(caught.value.__notes__)


def test_the_failing_pair_of_a_wrong_representation_is_named():
    wrong = SO3.copy()  # −ad, which is one only with its sign changed
    with pytest.raises(ValueError, match=r"e_0 and e_1, .* by 2 in an entry.* −ρ is one: change its sign"):
        cj.Semidirect(cj.SO3(), wrong)
    wrong = -SO3
    wrong[2] *= 1.5
    with pytest.raises(
        ValueError, match=r"e_0 and e_1, ρ\(\[e_0, e_1\]\) differs .* by 0\.5 in an entry; they must be equal\.$"
    ):
        cj.Semidirect(cj.SO3(), wrong)
    wrong = -SO3 / 2  # of a spin-½, but without its other half
    with pytest.raises(ValueError, match=r"by 0\.25 in an entry"):
        cj.Semidirect(cj.SO3(), wrong)
    spin = -0.5j * PAULI  # as real 4×4 matrices it is one
    real = np.block([[spin.real, -spin.imag], [spin.imag, spin.real]])
    assert cj.Semidirect(cj.SO3(), real).dim == 7


def test_a_state_of_the_wrong_shape():
    system = cj.System(cj.SO3() * cj.SE3(), lambda mu: mu @ mu)
    with pytest.raises(ValueError, match=r"mu0 must have shape \(9,\) for Product, not \(3, 3\)"):
        cj.solve(system, np.zeros((3, 3)), t1=1.0, dt=0.1)
