"""The methods of the algebras of `algebras.ALGEBRAS` in coordinates, each compiled once."""

from functools import cache

import jax
import numpy as np
import oracles
from algebras import ALGEBRAS
from hypothesis import strategies as st

import coadjoint as cj


def norm(x):
    """|x|, the spectral norm for a matrix; no square underflows."""
    largest = np.max(np.abs(x))
    return largest * np.linalg.norm(x / largest, 2) if largest > 0 else 0.0


@st.composite
def vectors(draw, name, size=st.just(1.0)):
    """A direction times a size. Any of the coordinates may be zero; two draws are cheaper than one for each."""
    dim = ALGEBRAS[name].algebra.dim
    seed, zeros = draw(st.integers(0, 2**32 - 1)), draw(st.integers(0, 2**dim - 1) | st.just(0))
    v = np.random.default_rng(seed).standard_normal(dim) * [not zeros >> i & 1 for i in range(dim)]
    return draw(size) * (v / norm(v) if np.any(v) else v)


class Coordinates:
    """The methods of an algebra as functions of coordinates, each traced once, whatever programs it is part of.

    `derived` takes those of the base class; methods that the algebra does not override are then the same functions.
    """

    def __init__(self, algebra, derived=None):
        self.algebra, self.derived = algebra, derived
        e, c = algebra.element, algebra.coordinates

        def method(name, of):
            own = getattr(type(algebra), name)
            if derived is not None and own is getattr(cj.LieAlgebra, name):
                return getattr(derived, name)
            fn = own if derived is not None else getattr(cj.LieAlgebra, name)
            return jax.jit(of(lambda *args: fn(algebra, *args)))

        self.bracket = method("bracket", lambda f: lambda x, y: c(f(e(x), e(y))))
        self.pairing = method("pairing", lambda f: lambda m, x: f(e(m), e(x)))
        self.ad = method("ad", lambda f: lambda x: f(e(x)))
        self.ad_star = method("ad_star", lambda f: lambda x, m: c(f(e(x), e(m))))
        self.poisson = method("poisson", lambda f: lambda m: f(e(m)))
        self.flow = method("flow", lambda f: lambda s, m: c(f(e(s), e(m))))
        self.dexp = method("dexp", lambda f: lambda s, z: c(f(e(s), e(z))))
        self.dexpinv = method("dexpinv", lambda f: lambda s, z: c(f(e(s), e(z))))
        self.dexp_star = method("dexp_star", lambda f: lambda s, m: c(f(e(s), e(m))))
        self.cayley_flow = method("cayley_flow", lambda f: lambda s, m: c(f(e(s), e(m))))
        self.dcayinv = method("dcayinv", lambda f: lambda s, z: c(f(e(s), e(z))))
        self.dcay_star = method("dcay_star", lambda f: lambda s, m: c(f(e(s), e(m))))

    def casimirs(self, m):
        return self.algebra.casimirs(self.algebra.element(m))


@cache
def methods(name):
    """The methods of an algebra, and as `derived` those of the base class."""
    algebra = ALGEBRAS[name].algebra
    return Coordinates(algebra, Coordinates(algebra))


def compiled(fn):
    """fn(a, *coordinates), compiled once an algebra: `call(name, …)` with a its methods.

    With `derived=True` the algebra has the methods of the base class in place of its closed forms.
    """

    @cache
    def program(name, derived):
        a = methods(name).derived if derived else methods(name)
        return jax.jit(lambda *args: fn(a, *args))

    def call(name, *args, derived=False):
        overrides = getattr(type(ALGEBRAS[name].algebra), fn.__name__, None) is not getattr(
            cj.LieAlgebra, fn.__name__, None
        )
        return jax.tree.map(np.asarray, program(name, derived and overrides)(*args))

    return call


@cache
def constants(name):
    return oracles.structure_constants(ALGEBRAS[name].algebra)
