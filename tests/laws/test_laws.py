"""The laws of Lie algebras and their duals, over every algebra of `algebras.ALGEBRAS`.

All is compared in coordinates, so that an algebra of matrices obeys the same laws. Each algebra's methods are compiled
once. Laws over algebras that are marked slow are run by `make verify`.
"""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
import scipy.linalg
from algebras import ALGEBRAS
from compiled_algebras import compiled, constants, norm, vectors
from hypothesis import given, settings
from hypothesis import strategies as st

import coadjoint as cj

EPS = np.finfo(float).eps
SWITCH = 2**0.5  # the angle at which closed forms change from series to trigonometric functions


def names(condition=lambda case: True):
    chosen = (n for n, case in ALGEBRAS.items() if condition(case))
    return [pytest.param(n, marks=[pytest.mark.slow] if ALGEBRAS[n].slow else []) for n in chosen]


every_algebra = pytest.mark.parametrize("name", names())
every_incomplete = pytest.mark.parametrize("name", names(lambda case: case.hidden is not None))
few = settings(max_examples=20)

# Lengths whose products do not underflow: what is tested is arithmetic, not its end.
lengths = st.floats(0, 10).map(lambda x: x if x > 1e-30 else 0.0)
angles = lengths | st.sampled_from([1e-200, 1e-8, SWITCH, 2 * np.pi])


def close(law, a, b, scale, tol=1e-13):
    """a = b up to tol·scale; `law` says what that means."""
    a, b = np.asarray(a), np.asarray(b)
    assert a.shape == b.shape, law
    worst = np.max(np.abs(a - b), initial=0.0)
    assert worst <= tol * scale, f"{law}: {a} and {b} differ by {worst:.2e}, allowed is {tol * scale:.2e}"


# Brackets.


@compiled
def brackets(a, x, y, z, m):
    d, ad_star = a.derived, a.ad_star(x, m)
    return {
        "xy": a.bracket(x, y),
        "yx": a.bracket(y, x),
        "cycle": a.bracket(x, a.bracket(y, z)) + a.bracket(y, a.bracket(z, x)) + a.bracket(z, a.bracket(x, y)),
        "ad": a.ad(x),
        "ad_derived": d.ad(x),
        "ad_star": ad_star,
        "ad_star_derived": d.ad_star(x, m),
        "poisson": a.poisson(m),
        "poisson_derived": d.poisson(m),
        "m_x": a.pairing(m, x),
        "moved_y": a.pairing(ad_star, y),
        "m_xy": a.pairing(m, a.bracket(x, y)),
    }


@every_algebra
@given(data=st.data())
@few
def test_brackets(name, data):
    """Antisymmetry, Jacobi, the pairing, ad, ad* and J(μ): to a few ulps."""
    x, y, z, m = (data.draw(vectors(name, lengths)) for _ in range(4))
    b, C = SimpleNamespace(**brackets(name, x, y, z, m)), constants(name)
    size, tol = np.linalg.norm(C), 16 * EPS
    close("[x, y] = −[y, x]", b.xy, -b.yx, size * norm(x) * norm(y), tol)
    close("Jacobi", b.cycle, 0 * x, size**2 * norm(x) * norm(y) * norm(z), tol)
    close("<m, x> is the dot product of coordinates", b.m_x, m @ x, norm(m) * norm(x), tol)
    close("ad_x y = [x, y]", b.ad @ y, b.xy, size * norm(x) * norm(y), tol)
    close("ad_x from the basis", b.ad, np.einsum("i,ijk->kj", x, C), size * norm(x), tol)
    close("ad = derived", b.ad, b.ad_derived, size * norm(x), tol)
    close("<ad*_x m, y> = <m, [x, y]>", b.moved_y, b.m_xy, size * norm(x) * norm(y) * norm(m), tol)
    close("ad* = derived", b.ad_star, b.ad_star_derived, size * norm(x) * norm(m), tol)
    close("J(m)x = −ad*_x m", b.poisson @ x, -b.ad_star, size * norm(x) * norm(m), tol)
    close("J(m) from the basis", b.poisson, np.einsum("ijk,k->ij", C, m), size * norm(m), tol)
    close("J = derived", b.poisson, b.poisson_derived, size * norm(m), tol)


# Flow.


@compiled
def flow(a, s, m, ds, dm):
    """The flow and its derivative."""
    return jax.jvp(a.flow, (s, m), (ds, dm))


@compiled
def pull_back(a, s, m, w):
    return jax.vjp(a.flow, s, m)[1](w)


@compiled
def drift_free_flow(a, s, m):
    """One step from m: the new state, and the new anchor; `change`, and where `drift_free_from_change` goes by it."""
    sigma, mu, c = a.algebra.element(s), a.algebra.element(m), a.algebra.coordinates
    start = a.algebra.orbit_memory(mu)
    moved, orbit_memory = a.algebra.drift_free_flow(sigma, mu, start)
    change = a.algebra.change(sigma, mu)
    by_change, _ = a.algebra.drift_free_from_change(sigma, mu, change, start)
    return c(moved), orbit_memory, (c(change), c(by_change))


@compiled
def casimirs(a, states):
    """Casimirs of four states, their scales, and the norms of their gradients."""

    def one(m):
        gradients, values = jax.jacfwd(lambda m: (a.casimirs(m),) * 2, has_aux=True)(m)
        return values, a.algebra.casimir_scales(a.algebra.element(m)), jnp.sqrt(jnp.sum(gradients**2, axis=1))

    return jax.vmap(one)(states)


def growth(name, s):
    """The factor by which the flow may grow a state, and its round-off: 1 on compact algebras."""
    return norm(scipy.linalg.expm(np.einsum("i,ijk->kj", s, constants(name))))


def test_a_scale_does_not_underflow_before_its_casimir():
    """|π||γ| bounds π·γ, also where |π|² is no number any more."""
    mu = np.array([3e-201, 4e-201, 0.0, 0.6, 0.8, 0.0])
    np.testing.assert_allclose(cj.SE3().casimir_scales(jnp.asarray(mu)), [5e-201, 1.0], rtol=1e-14)


@every_algebra
@given(data=st.data())
@few
def test_flow(name, data):
    """Flow = Taylor series = derived flow = transport, all 1e-13; the way back; the group law; Casimirs."""
    s, m, t = data.draw(vectors(name, angles)), data.draw(vectors(name)), data.draw(st.floats(-1, 2))
    grown, shrunk, zero = growth(name, s), growth(name, -s), 0 * m
    (moved, _), (derived, _), (cured, _, (change, by_change)) = (
        flow(name, s, m, zero, zero),
        flow(name, s, m, zero, zero, derived=True),
        drift_free_flow(name, s, m),
    )
    truth = oracles.flow(constants(name), s, m)
    close("flow = series", moved, truth, grown * norm(m))
    close("derived flow = series", derived, truth, grown * norm(m))
    close("transport = series", cured, truth, grown * norm(m))
    close("change = flow − μ", change, truth - m, grown * norm(m))
    close("settle = series", by_change, truth, grown * norm(m))
    back, _ = flow(name, -s, moved, zero, zero)
    close("flow(−σ, flow(σ, μ)) = μ", back, m, grown * shrunk * norm(m))
    in_two, _ = flow(name, t * s, flow(name, (1 - t) * s, m, zero, zero)[0], zero, zero)
    # The detour goes at most one σ beyond the start or the end.
    close("flow(tσ, flow((1−t)σ, μ)) = flow(σ, μ)", in_two, moved, grown**2 * shrunk * norm(m))
    values, scales, gradients = casimirs(name, np.stack([m, moved, derived, cured]))
    assert values.shape == scales.shape == (4, len(ALGEBRAS[name].algebra.casimir_names))
    assert np.all(abs(values - values[0]) <= 1e-13 * gradients * grown * norm(m)), f"Casimirs changed: {values}"
    assert np.all(abs(values) <= (1 + 8 * EPS) * scales), f"Casimirs {values} exceed their scales {scales}"


def bend(name, s, ds):
    """‖ad_ζ‖, ζ = dexp_{−σ} δσ: how much the derivative in σ may grow a state."""
    return norm(np.einsum("i,ijk->kj", dexp(name, -s, ds), constants(name)))


@every_algebra
@given(data=st.data())
@few
def test_derivatives_of_flow(name, data):
    """jvp = central differences in exact arithmetic = derived = ad*_ζ flow; vjp is its transpose."""
    s = data.draw(vectors(name, angles))
    m, ds, dm, w = (data.draw(vectors(name)) for _ in range(4))
    C = constants(name)
    scale = growth(name, s) * (norm(dm) + bend(name, s, ds) * norm(m))
    truth = oracles.flow_jvp(C, s, m, ds, dm)
    moved, rates = flow(name, s, m, ds, dm)
    close("jvp", rates, truth, scale)
    close("jvp of the derived flow", flow(name, s, m, ds, dm, derived=True)[1], truth, scale)
    of_sigma = np.einsum("i,ijk,k->j", dexp(name, -s, ds), C, moved)
    close(
        "D_σ flow(σ, μ) δσ = ad*_ζ flow(σ, μ), ζ = dexp_{−σ} δσ",
        of_sigma + oracles.flow(C, s, dm),
        truth,
        scale,
    )
    ws, wm = pull_back(name, s, m, w)
    close("<vjp(w), (δσ, δμ)> = <w, jvp(δσ, δμ)>", ws @ ds + wm @ dm, w @ rates, scale)


ANGLES = [1e-200, 1e-150, 1e-20, 1e-8, 1e-4, 0.1, 1.0, SWITCH, 2.0, np.pi, 6.0, 2 * np.pi, 20.0]


@pytest.mark.parametrize("name", ["SO3", "SE3"])
@pytest.mark.parametrize("angle", ANGLES)
def test_closed_form_near_its_switch(name, angle):
    """Around each angle, where a closed form may change its formula, flow and derivative keep 1e-13."""
    rng = np.random.default_rng(0)
    dim = ALGEBRAS[name].algebra.dim
    for ulps in (-4, -1, 0, 1, 4):
        s, m, ds, dm = rng.standard_normal((4, dim))
        s[:3] *= angle * (1 + ulps * EPS) / norm(s[:3])  # the first three coordinates are the rotation
        C, grown = constants(name), growth(name, s)
        moved, rates = flow(name, s, m, ds, dm)
        close("flow", moved, oracles.flow(C, s, m), grown * norm(m))
        close("jvp", rates, oracles.flow_jvp(C, s, m, ds, dm), grown * (norm(dm) + bend(name, s, ds) * norm(m)))


# Algebras without all of their Casimirs in closed form move in double-double.


@every_incomplete
@given(data=st.data())
@few
def test_transport_without_all_casimirs(name, data):
    """Right to thirty digits; the Casimirs without a closed form are conserved too."""
    s, m = data.draw(vectors(name, angles)), data.draw(vectors(name))
    case = ALGEBRAS[name]
    if case.degree == 0 and abs(m[1]) < 1e-3:
        m = m + np.eye(3)[1]  # the Casimir m₀/m₁ must exist
    hi, lo, _ = drift_free_flow(name, s, m)
    close(
        "transport",
        oracles.flow_residual(constants(name), s, m, hi, lo),
        0 * m,
        growth(name, s) * norm(m),
        1e-29,
    )
    value = float(case.hidden(m))
    for moved in flow(name, s, m, 0 * m, 0 * m)[0], hi:
        close("hidden Casimir", case.hidden(moved), value, max(norm(m) ** case.degree, abs(value)))


# dexp and its inverse.


@compiled
def dexp(a, s, z):
    return a.dexp(s, z)


@compiled
def dexpinv(a, s, z):
    return a.dexpinv(s, z)


@every_algebra
@given(data=st.data())
@few
def test_dexp(name, data):
    """dexp_σ = Σ ad_σ^k/(k + 1)!, dexpinv its inverse for ‖ad_σ‖ < 2π; closed forms = derived."""
    s, z = data.draw(vectors(name, angles)), data.draw(vectors(name))
    ad = np.einsum("i,ijk->kj", s, constants(name))
    if norm(ad) > 6.2:
        s, ad = s * (6.2 / norm(ad)), ad * (6.2 / norm(ad))
    matrix = oracles.dexp(ad)
    scale, condition = norm(matrix) * norm(z), np.linalg.cond(matrix)
    forth, back = dexp(name, s, z), dexpinv(name, s, z)
    close("dexp = series", forth, matrix @ z, scale)
    close("derived dexp = series", dexp(name, s, z, derived=True), matrix @ z, scale)
    close("dexpinv = inverse series", back, np.linalg.solve(matrix, z), condition * norm(back))
    close("dexpinv = derived", back, dexpinv(name, s, z, derived=True), condition * norm(back))
    close("dexpinv dexp = 1", dexpinv(name, s, forth), z, condition * norm(z))


# Duals, and the Cayley transform, where there is one.


@compiled
def duals(a, s, z, m):
    closed = a.dexp_star(s, m)
    return (closed, a.derived.dexp_star(s, m)), (a.dexp(s, z) @ m, closed @ z)


@pytest.mark.parametrize("name", ["SO3", "SE3", "SU(3)", "so(4)", pytest.param("SO3 × SU(2)²", marks=pytest.mark.slow)])
@given(data=st.data())
@few
def test_dexp_star(name, data):
    """<dexp*_σ μ, ζ> = <μ, dexp_σ ζ>; closed forms = derived."""
    s, z, m = data.draw(vectors(name, angles)), data.draw(vectors(name)), data.draw(vectors(name))
    (closed, derived), (forth, back) = duals(name, s, z, m)
    scale = norm(oracles.dexp(np.einsum("i,ijk->kj", s, constants(name)))) * norm(m)
    close("dexp* = derived", closed, derived, scale)
    close("<μ, dexp ζ> = <dexp* μ, ζ>", forth, back, scale * norm(z))


@compiled
def cayley(a, s, z, m):
    d = a.derived
    orbit_memory = a.algebra.orbit_memory(a.algebra.element(m))
    moved, _ = a.algebra.drift_free_cayley_flow(a.algebra.element(s), a.algebra.element(m), orbit_memory)
    forth, rate = jax.jvp(lambda x: a.cayley_flow(x, m), (s,), (a.dcayinv(-s, z),))
    dcayinv, dcay_star = a.dcayinv(s, z), a.dcay_star(s, m)
    return {
        "dcayinv": (dcayinv, d.dcayinv(s, z)),
        "dcay*": (dcay_star, d.dcay_star(s, m)),
        "flow": (forth, d.cayley_flow(s, m)),
        "transport": (a.algebra.coordinates(moved), forth),
        "dcayinv* dcay* = 1": (dcay_star @ dcayinv, m @ z),
        "a flow of ζ": (rate, a.ad_star(z, forth)),
        "inverse": (a.cayley_flow(-s, forth), m),
    }


with_cayley = pytest.mark.parametrize(
    "name", ["SO3", "SE3", "SU(3)", pytest.param("SO3 × SU(2)²", marks=pytest.mark.slow)]
)


@with_cayley
@given(data=st.data())
@few
def test_cayley(name, data):
    """Closed forms = derived from log_cayley; dcayinv belongs to the action, and dcay* to dcayinv."""
    s, z, m = data.draw(vectors(name, angles)), data.draw(vectors(name)), data.draw(vectors(name))
    scale = (1 + norm(s) ** 2) ** 2
    for law, (left, right) in cayley(name, s, z, m).items():
        close(law, left, right, scale)


@with_cayley
def test_cayley_is_a_rational_function_of_matrices(name):
    """cay(σ) = (1 − σ/2)⁻¹(1 + σ/2), as matrices of the algebra; on su(n) up to a phase."""
    algebra = ALGEBRAS[name].algebra
    s = jax.jit(algebra.element)(np.random.default_rng(0).standard_normal(algebra.dim))
    group = jax.jit(lambda s: algebra.group_exp(algebra.log_cayley(s)))(s)
    generator = jax.jit(lambda s: jax.jvp(lambda t: algebra.group_exp(t * s), (0.0,), (1.0,))[1])(s)
    for g, x in zip(jax.tree.leaves(group), jax.tree.leaves(generator), strict=True):
        one = np.eye(g.shape[-1])
        expected = np.linalg.solve(one - 0.5 * np.asarray(x), one + 0.5 * np.asarray(x))
        phase = (np.linalg.det(expected) ** (1 / len(one)))[..., None, None] if np.iscomplexobj(g) else 1.0
        close("cay", g, expected / phase, 1.0)


def test_no_cayley_without_matrices():
    """An algebra that is defined by its bracket alone reports this."""
    with pytest.raises(TypeError, match=r"StructureConstants has no Cayley transform.*Exp\(\)"):
        ALGEBRAS["so(4)"].algebra.log_cayley(jnp.zeros(6))
    with pytest.raises(TypeError, match=r"has no Cayley transform"):
        (cj.SO3() * ALGEBRAS["so(4)"].algebra).log_cayley(jnp.zeros(9))
