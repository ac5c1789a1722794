"""Products of algebras: everything is that of the factors, side by side."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from algebras import SO3
from comparisons import close
from composed_algebras import METHODS, QUICK, normal, se3

import coadjoint as cj


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
