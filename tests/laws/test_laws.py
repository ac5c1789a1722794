"""The laws of Lie algebras and their duals, over every algebra of `algebras.ALGEBRAS`.

All is compared in coordinates, so that an algebra of matrices obeys the same laws. Each algebra's methods are compiled
once, in a few bundles.
"""

from functools import cache
from types import SimpleNamespace

import exact
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from algebras import ALGEBRAS
from hypothesis import given, settings
from hypothesis import strategies as st

import coadjoint as cj

EPS = np.finfo(float).eps
SWITCH = 2**0.5  # the angle at which closed forms change from series to trigonometric functions

every_algebra = pytest.mark.parametrize("name", ALGEBRAS)
every_closed_form = pytest.mark.parametrize("name", [n for n, case in ALGEBRAS.items() if case.closed])
every_incomplete = pytest.mark.parametrize("name", [n for n, case in ALGEBRAS.items() if case.hidden])

# Numbers whose products do not underflow: what is tested is arithmetic, not its end.
entries = st.floats(-1, 1).map(lambda x: x if abs(x) > 1e-30 else 0.0)
lengths = st.floats(0, 10).map(lambda x: x if x > 1e-30 else 0.0)
radii = lengths | st.sampled_from([1e-200, 1e-8, SWITCH, 2 * np.pi])


def norm(x):
    """|x|, the spectral norm for a matrix; no square underflows."""
    largest = np.max(np.abs(x))
    return largest * np.linalg.norm(x / largest, 2) if largest > 0 else 0.0


@st.composite
def vectors(draw, name, size=st.just(1.0)):
    """A direction times a size."""
    v = np.array(draw(st.lists(entries, min_size=(n := ALGEBRAS[name].algebra.dim), max_size=n)))
    return draw(size) * (v / norm(v) if np.any(v) else v)


class Coordinates:
    """The methods of an algebra as functions of coordinates; `derived` takes those of the base class."""

    def __init__(self, algebra, derived=False):
        self.algebra = algebra
        cls = cj.LieAlgebra if derived else type(algebra)
        e, c = algebra.element, algebra.coordinates
        self.bracket = lambda x, y: c(cls.bracket(algebra, e(x), e(y)))
        self.pairing = lambda m, x: cls.pairing(algebra, e(m), e(x))
        self.ad = lambda x: cls.ad(algebra, e(x))
        self.ad_star = lambda x, m: c(cls.ad_star(algebra, e(x), e(m)))
        self.poisson = lambda m: cls.poisson(algebra, e(m))
        self.flow = lambda s, m: c(cls.flow(algebra, e(s), e(m)))
        self.dexp = lambda s, z: c(cls.dexp(algebra, e(s), e(z)))
        self.dexpinv = lambda s, z: c(cls.dexpinv(algebra, e(s), e(z)))
        self.casimirs = lambda m: cls.casimirs(algebra, e(m))
        self.casimir_scales = lambda m: cls.casimir_scales(algebra, e(m))

    def transport(self, s, m):
        """One step from m, and whether the new anchor is the low-order part of the state."""
        mu = self.algebra.element(m)
        moved, anchor = self.algebra.transport(self.algebra.element(s), mu, self.algebra.anchor(mu))
        return self.algebra.coordinates(moved), anchor


def bundle(fn):
    """fn(a, d, *coordinates) → dict, compiled once an algebra: a its methods, d the derived ones."""

    @cache
    def compiled(name):
        algebra = ALGEBRAS[name].algebra
        a, d = Coordinates(algebra), Coordinates(algebra, derived=True)
        return jax.jit(lambda *args: fn(a, d, *args))

    def call(name, *args):
        return SimpleNamespace(**jax.tree.map(np.asarray, compiled(name)(*args)))

    return call


@cache
def constants(name):
    return exact.structure_constants(ALGEBRAS[name].algebra)


def size(name):
    """The norm of the structure constants, by which brackets scale."""
    return np.linalg.norm(constants(name))


def close(a, b, scale, tol=1e-13):
    a, b = np.asarray(a), np.asarray(b)
    assert a.shape == b.shape
    worst = np.max(np.abs(a - b), initial=0.0)
    assert worst <= tol * scale, f"{a} and {b} differ by {worst:.2e}, {worst / scale if scale else np.inf:.1e} scaled"


# Brackets.


@bundle
def brackets(a, d, x, y, z, m):
    return {
        "xy": a.bracket(x, y),
        "yx": a.bracket(y, x),
        "cycle": a.bracket(x, a.bracket(y, z)) + a.bracket(y, a.bracket(z, x)) + a.bracket(z, a.bracket(x, y)),
        "ad": a.ad(x),
        "ad_derived": d.ad(x),
        "ad_star": a.ad_star(x, m),
        "poisson": a.poisson(m),
        "poisson_derived": d.poisson(m),
        "mx": a.pairing(m, x),
        "moved_y": a.pairing(a.ad_star(x, m), y),
        "m_xy": a.pairing(m, a.bracket(x, y)),
    }


def three(name):
    return st.tuples(*[vectors(name, lengths)] * 4)


@every_algebra
@given(data=st.data())
def test_bracket_is_antisymmetric(name, data):
    x, y, z, m = data.draw(three(name))
    b = brackets(name, x, y, z, m)
    close(b.xy, -b.yx, size(name) * norm(x) * norm(y), 4 * EPS)


@every_algebra
@given(data=st.data())
def test_bracket_obeys_jacobi(name, data):
    x, y, z, m = data.draw(three(name))
    b = brackets(name, x, y, z, m)
    close(b.cycle, 0 * x, size(name) ** 2 * norm(x) * norm(y) * norm(z), 16 * EPS)


@every_algebra
@given(data=st.data())
def test_ad_is_the_matrix_of_the_bracket(name, data):
    x, y, z, m = data.draw(three(name))
    b = brackets(name, x, y, z, m)
    close(b.ad @ y, b.xy, size(name) * norm(x) * norm(y), 16 * EPS)
    close(b.ad, b.ad_derived, size(name) * norm(x), 16 * EPS)
    close(b.ad, np.einsum("i,ijk->kj", x, constants(name)), size(name) * norm(x), 16 * EPS)


@every_algebra
@given(data=st.data())
def test_pairing_is_the_dot_product_of_coordinates(name, data):
    x, y, z, m = data.draw(three(name))
    close(brackets(name, x, y, z, m).mx, m @ x, norm(m) * norm(x), 16 * EPS)


@every_algebra
@given(data=st.data())
def test_ad_star_is_dual_to_the_bracket(name, data):
    x, y, z, m = data.draw(three(name))
    b = brackets(name, x, y, z, m)
    close(b.moved_y, b.m_xy, size(name) * norm(x) * norm(y) * norm(m), 16 * EPS)


@every_algebra
@given(data=st.data())
def test_poisson_matrix_is_minus_ad_star(name, data):
    x, y, z, m = data.draw(three(name))
    b = brackets(name, x, y, z, m)
    close(b.poisson @ x, -b.ad_star, size(name) * norm(x) * norm(m), 16 * EPS)
    close(b.poisson, np.einsum("ijk,k->ij", constants(name), m), size(name) * norm(m), 16 * EPS)
    close(b.poisson, b.poisson_derived, size(name) * norm(m), 16 * EPS)


# Flow.


@bundle
def bundled_flows(a, d, s, m, t, ds, dm):
    moved, rates = jax.jvp(a.flow, (s, m), (ds, dm))
    derived, derived_rates = jax.jvp(d.flow, (s, m), (ds, dm))
    cured, _ = a.transport(s, m)
    back, halfway = jax.vmap(a.flow)(jnp.stack([-s, (1 - t) * s]), jnp.stack([moved, m]))

    def invariants(mu):
        gradients = jax.jacfwd(a.casimirs)(mu)
        return a.casimirs(mu), a.casimir_scales(mu), jnp.sqrt(jnp.sum(gradients**2, axis=1))

    states = jnp.stack([m, moved, derived, cured])
    return {
        "moved": moved,
        "derived": derived,
        "cured": cured,
        "back": back,
        "in_two": a.flow(t * s, halfway),
        "rates": rates,
        "derived_rates": derived_rates,
        "casimirs": jax.vmap(invariants)(states),
        "ad": d.ad(s),
        "ad_zeta": d.ad(d.dexp(-s, ds)),
    }


def flows(name, *args):
    """The flow by σ and all that belongs to it, with the norms by which round-off may grow (1 on compact algebras)."""
    f = bundled_flows(name, *args)
    f.growth, f.shrinkage = norm(scipy.linalg.expm(f.ad)), norm(scipy.linalg.expm(-f.ad))
    f.bend = norm(f.ad_zeta)
    return f


def motions(name):
    """σ, μ, a time, δσ, δμ."""
    v = vectors(name)
    return st.tuples(vectors(name, radii), v, st.floats(-1, 2), v, v)


@every_algebra
@given(data=st.data())
def test_flow_is_its_taylor_series_and_the_derived_flow(name, data):
    s, m, *rest = data.draw(motions(name))
    f = flows(name, s, m, *rest)
    truth = exact.flow(constants(name), s, m)
    close(f.moved, truth, f.growth * norm(m))
    close(f.derived, truth, f.growth * norm(m))


@every_algebra
@given(data=st.data())
def test_flow_back_is_the_way_back(name, data):
    s, m, *rest = data.draw(motions(name))
    f = flows(name, s, m, *rest)
    close(f.back, m, f.growth * f.shrinkage * norm(m))


@every_algebra
@given(data=st.data())
def test_flows_along_one_element_form_a_group(name, data):
    s, m, t, *rest = data.draw(motions(name))
    f = flows(name, s, m, t, *rest)
    # The detour goes at most one σ beyond the start or the end.
    close(f.in_two, f.moved, f.growth**2 * f.shrinkage * norm(m))


@every_algebra
@given(data=st.data())
def test_derivative_of_flow(name, data):
    s, m, t, ds, dm = data.draw(motions(name))
    f = flows(name, s, m, t, ds, dm)
    truth = exact.flow_jvp(constants(name), s, m, ds, dm)
    scale = f.growth * (norm(dm) + f.bend * norm(m))
    close(f.rates, truth, scale)
    close(f.derived_rates, truth, scale)


@every_algebra
@given(data=st.data())
def test_casimirs_are_invariant_under_flow(name, data):
    s, m, *rest = data.draw(motions(name))
    f = flows(name, s, m, *rest)
    values, _, gradients = f.casimirs
    assert values.shape == (4, len(ALGEBRAS[name].algebra.casimir_names))
    assert np.all(abs(values - values[0]) <= 1e-13 * gradients * f.growth * norm(m)), values


@every_algebra
@given(data=st.data())
def test_transport_is_flow_but_for_round_off(name, data):
    s, m, *rest = data.draw(motions(name))
    f = flows(name, s, m, *rest)
    close(f.cured, exact.flow(constants(name), s, m), f.growth * norm(m))


@every_algebra
@given(data=st.data())
def test_casimir_scales_bound_the_casimirs(name, data):
    s, m, *rest = data.draw(motions(name))
    values, scales, _ = flows(name, s, m, *rest).casimirs
    assert values.shape == scales.shape
    assert np.all(abs(values) <= (1 + 8 * EPS) * scales)


@every_incomplete
@given(data=st.data())
def test_casimirs_that_the_algebra_does_not_know_are_invariant_too(name, data):
    s, m, *rest = data.draw(motions(name))
    hidden, degree = ALGEBRAS[name].hidden, ALGEBRAS[name].degree
    if degree == 0 and abs(m[1]) < 1e-3:
        m = m + np.eye(3)[1]
    f = flows(name, s, m, *rest)
    value = float(hidden(m))
    for moved in f.moved, f.cured:
        close(hidden(moved), value, max(norm(m) ** degree, abs(value)))


@every_incomplete
@given(data=st.data())
def test_transport_without_all_casimirs_has_thirty_digits(name, data):
    s, m, *rest = data.draw(motions(name))
    hi, lo = transported(name)(s, m)
    growth = flows(name, s, m, *rest).growth
    close(exact.flow_residual(constants(name), s, m, hi, lo), 0 * m, growth * norm(m), 1e-29)


@cache
def transported(name):
    return jax.jit(Coordinates(ALGEBRAS[name].algebra).transport)


@every_algebra
@settings(max_examples=15)
@given(data=st.data())
def test_reverse_mode_is_forward_mode(name, data):
    s, m, *_ = data.draw(motions(name))
    j = jacobians(name, s, m)
    scale = max(1.0, np.max(abs(j.forward[0])), np.max(abs(j.forward[1])))
    close(j.reverse[0], j.forward[0], scale)
    close(j.reverse[1], j.forward[1], scale)


@bundle
def jacobians(a, d, s, m):
    return {"forward": jax.jacfwd(a.flow, (0, 1))(s, m), "reverse": jax.jacrev(a.flow, (0, 1))(s, m)}


ANGLES = [1e-200, 1e-150, 1e-20, 1e-8, 1e-4, 0.1, 1.0, SWITCH, 2.0, np.pi, 6.0, 2 * np.pi, 20.0]


@every_closed_form
@pytest.mark.parametrize("angle", ANGLES)
def test_closed_form_near_its_switch(name, angle):
    """Around each angle, where a closed form may change its formula, flow and derivative keep 1e-13."""
    rng = np.random.default_rng(0)
    dim = ALGEBRAS[name].algebra.dim
    for ulps in (-4, -1, 0, 1, 4):
        s, m, ds, dm = rng.standard_normal((4, dim))
        s[:3] *= angle * (1 + ulps * EPS) / norm(s[:3])  # the first three coordinates are the rotation
        f = flows(name, s, m, 0.5, ds, dm)
        close(f.moved, exact.flow(constants(name), s, m), f.growth * norm(m))
        close(f.rates, exact.flow_jvp(constants(name), s, m, ds, dm), f.growth * (norm(dm) + f.bend * norm(m)))


# dexp and its inverse.


@bundle
def dexps(a, d, s, z):
    dexp = a.dexp(s, z)
    return {
        "dexp": dexp,
        "derived": d.dexp(s, z),
        "inverse": a.dexpinv(s, z),
        "inverse_derived": d.dexpinv(s, z),
        "there_and_back": a.dexpinv(s, dexp),
        "matrix": jax.vmap(lambda e: d.dexp(s, e), out_axes=1)(jnp.eye(len(s))),
    }


@st.composite
def inside_the_ball(draw, name, radius=6.2):
    """σ with ‖ad_σ‖ < 2π."""
    s = draw(vectors(name, lengths | st.just(1e-200)))
    length = norm(np.einsum("i,ijk->kj", s, constants(name)))
    return s if length <= radius else s * (radius / length)


@every_algebra
@given(data=st.data())
def test_dexpinv_inverts_dexp(name, data):
    s, z = data.draw(st.tuples(inside_the_ball(name), vectors(name)))
    x = dexps(name, s, z)
    condition = np.linalg.cond(x.matrix)
    close(x.there_and_back, z, condition * norm(z))
    close(x.inverse, np.linalg.solve(x.matrix, z), condition * norm(x.inverse))


@every_algebra
@given(data=st.data())
def test_closed_dexp_is_the_derived_one(name, data):
    s, z = data.draw(st.tuples(inside_the_ball(name), vectors(name)))
    x = dexps(name, s, z)
    close(x.dexp, x.derived, norm(x.matrix) * norm(z))
    close(x.inverse, x.inverse_derived, np.linalg.cond(x.matrix) * norm(x.inverse))


@every_algebra
@given(data=st.data())
def test_dexp_is_its_series(name, data):
    s, z = data.draw(st.tuples(inside_the_ball(name, 1.0), vectors(name)))
    ad = np.einsum("i,ijk->kj", s, constants(name))
    term, series = z, z
    for k in range(2, 25):
        term = ad @ term / k
        series = series + term
    close(dexps(name, s, z).dexp, series, norm(z))


@every_algebra
@given(data=st.data())
def test_dexp_is_the_derivative_of_the_flow(name, data):
    """D flow(σ, μ) δσ = ad*_ζ flow(σ, μ) with ζ = dexp_{−σ} δσ."""
    s, m, t, ds, dm = data.draw(motions(name))
    f = flows(name, s, m, t, ds, 0 * dm)
    zeta = dexps(name, -s, ds).dexp
    expected = np.einsum("i,ijk,k->j", zeta, constants(name), f.moved)
    close(f.rates, expected, f.growth * f.bend * norm(m))
