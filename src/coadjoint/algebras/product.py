"""Direct sums of algebras."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from stepcompiler.jaxprs.optimistic import optimistic_map

from ..numerics import validation
from .base import Element, LieAlgebra
from .compose import Vector, any_array, check_algebra, flatten, join, state_error

# XLA would fuse the work of a large lattice with what it is made of, and compute that anew for every use of it (three
# times as long on a CPU); a loop over parts that fit in a cache is a border for it.
_MANY, _TOGETHER = 4096, 1024
_SMALL = 64  # dimension up to which exponentials are faster than stacks of products


class Product(LieAlgebra):
    """The direct sum of algebras: `Product(SO3(), SE3())` or `SO3() * SE3()`, and many copies: `SO3() ** 64`.

    Elements and states are real vectors: the coordinates of the factors, one after the other. `split` returns the
    elements of the factors (matrices for `SU`), and `join` is its inverse. Equal neighbours are computed together, so a
    chain of 64 spins compiles as fast as one spin. The Casimirs are those of the factors, named by the number of the
    factor.

    Parameters
    ----------
    factors : LieAlgebra
        The algebras, in order.
    copies : int, default 1
        How often the list of factors is repeated.

    Raises
    ------
    TypeError, ValueError
        If there is no factor, or if a factor is not an algebra.
    """

    dim: int = eqx.field(static=True)
    kinds: tuple[LieAlgebra, ...]  # the factors, equal neighbours taken together …
    counts: tuple[int, ...] = eqx.field(static=True)  # … this many of each

    def __init__(self, *factors: LieAlgebra, copies: int = 1):
        copies = validation.count("copies", copies)
        if not factors:
            raise ValueError("Product needs at least one algebra, such as Product(SO3(), SE3()).")
        runs: list[tuple[LieAlgebra, int]] = []
        for number, factor in enumerate(factors, 1):
            check_algebra(f"factor {number}", factor)
            runs += zip(factor.kinds, factor.counts, strict=True) if isinstance(factor, Product) else [(factor, 1)]
        runs = _merge(runs)
        runs = [(runs[0][0], runs[0][1] * copies)] if len(runs) == 1 else _merge(runs * copies)
        self.kinds = tuple(kind for kind, _ in runs)
        self.counts = tuple(count for _, count in runs)
        self.dim = sum(kind.dim * count for kind, count in runs)

    @property
    def factors(self) -> tuple[LieAlgebra, ...]:
        """The factors, in order."""
        return tuple(kind for kind, count in zip(self.kinds, self.counts, strict=True) for _ in range(count))

    @property
    def summands(self) -> tuple[tuple[int, int], ...]:
        """The dimensions of the factors, and the number of equal neighbours of each."""
        return tuple((kind.dim, count) for kind, count in zip(self.kinds, self.counts, strict=True))

    def split(self, x: Vector) -> tuple[Element, ...]:
        """The elements (or states) of the factors in the vector `x`."""
        ends = np.cumsum([f.dim for f in self.factors])
        return tuple(f.element(x[end - f.dim : end]) for f, end in zip(self.factors, ends, strict=True))

    def join(self, *parts: Element) -> Vector:
        """The vector with the elements or states `parts`, one per factor."""
        return join([(f"factor {i + 1} ({type(f).__name__})", f) for i, f in enumerate(self.factors)], parts)

    def state_error(self, mu: np.ndarray) -> str | None:
        """What is wrong with the part of a factor."""
        number, end = 0, 0
        for kind, count in zip(self.kinds, self.counts, strict=True):
            first, number, start, end = number, number + count, end, end + count * kind.dim
            if any_array(kind):  # of a million spins too
                continue
            for i, part in enumerate(mu[start:end].reshape(count, kind.dim), first + 1):
                wrong = state_error(kind, part)
                if wrong is not None:
                    return f"in factor {i} ({type(kind).__name__}) {wrong}"
        return None

    def bracket(self, xi: Vector, eta: Vector) -> Vector:
        """([ξ₁, η₁], [ξ₂, η₂], …)."""
        return self._elements(lambda f, a, b: f.bracket(a, b), xi, eta)

    def ad_star(self, xi: Vector, mu: Vector) -> Vector:
        """Factor by factor."""
        return self._elements(lambda f, a, m: f.ad_star(a, m), xi, mu)

    def flow(self, sigma: Vector, mu: Vector) -> Vector:
        """Factor by factor."""
        return self._elements(lambda f, a, m: f.flow(a, m), sigma, mu)

    def change(self, sigma: Vector, mu: Vector) -> Vector:
        """Factor by factor."""
        return self._elements(lambda f, a, m: f.change(a, m), sigma, mu)

    def dexp(self, sigma: Vector, zeta: Vector) -> Vector:
        """Factor by factor."""
        return self._elements(lambda f, a, b: f.dexp(a, b), sigma, zeta)

    def dexpinv(self, sigma: Vector, zeta: Vector) -> Vector:
        """Factor by factor."""
        return self._elements(lambda f, a, b: f.dexpinv(a, b), sigma, zeta)

    def dexp_star(self, sigma: Vector, mu: Vector) -> Vector:
        """Factor by factor."""
        return self._elements(lambda f, a, m: f.dexp_star(a, m), sigma, mu)

    def log_cayley(self, sigma: Vector) -> Vector:
        """Factor by factor."""
        return self._elements(lambda f, a: f.log_cayley(a), sigma)

    def cayley_flow(self, sigma: Vector, mu: Vector) -> Vector:
        """Factor by factor."""
        return self._elements(lambda f, a, m: f.cayley_flow(a, m), sigma, mu)

    def dcayinv(self, sigma: Vector, zeta: Vector) -> Vector:
        """Factor by factor."""
        return self._elements(lambda f, a, b: f.dcayinv(a, b), sigma, zeta)

    def dcay_star(self, sigma: Vector, mu: Vector) -> Vector:
        """Factor by factor."""
        return self._elements(lambda f, a, m: f.dcay_star(a, m), sigma, mu)

    @property
    def conjugated_shape(self) -> tuple[int, ...] | None:
        """(k, n, n) for k copies of one su(n), n ≥ 9."""
        kind = self.kinds[0]
        stacks = len(self.kinds) == 1 and kind.is_matrix_conjugation and kind.dim > _SMALL
        return (self.counts[0], *kind.shape) if stacks else None

    def to_matrices(self, x: Vector) -> Array:
        """The matrices of the factors, stacked."""
        kind, count = self.kinds[0], self.counts[0]
        return jax.vmap(kind.element)(x.reshape(count, kind.dim))

    def from_matrices(self, X: Array) -> Vector:
        """The inverse of `to_matrices`."""
        return jax.vmap(self.kinds[0].coordinates)(X).reshape(-1)

    @property
    def knows_stabilisers(self) -> bool:
        """Whether one of the factors does."""
        return any(kind.knows_stabilisers for kind in self.kinds)

    def stabiliser_part(self, xi: Vector, mu: Vector, end: Vector | None = None) -> Vector:
        """Factor by factor."""
        states = (mu,) if end is None else (mu, end)
        return self._elements(lambda f, x, *ms: f.stabiliser_part(x, *ms), xi, *states)

    def onto_orbit(self, mu: Vector, start: Vector) -> Vector:
        """Factor by factor."""
        return self._elements(lambda f, m, s: f.onto_orbit(m, s), mu, start)

    def resolvent(self, zeta: Vector, xi: Vector) -> Vector:
        """Factor by factor."""
        return self._elements(lambda f, a, x: f.resolvent(a, x), zeta, xi)

    @property
    def commuting_blocks(self) -> tuple[np.ndarray, ...]:
        """The first blocks of all factors together, the second ones, and so on, as a search would find."""
        own = [kind.commuting_blocks for kind in self.kinds]
        most = max(map(len, own))
        empty = [[*b, *[np.zeros(kind.dim)] * (most - len(b))] for kind, b in zip(self.kinds, own, strict=True)]
        return tuple(
            np.concatenate([np.tile(b[k], count) for b, count in zip(empty, self.counts, strict=True)])
            for k in range(most)
        )

    def casimirs(self, mu: Vector) -> Float[Array, " k"]:
        """The Casimirs of the factors."""
        return flatten(self._each(lambda f, m: f.casimirs(m), mu))

    @property
    def casimir_names(self) -> tuple[str, ...]:
        """The factor's name of each, and the number of the factor."""
        return tuple(f"{name} ({i})" for i, f in enumerate(self.factors, 1) for name in f.casimir_names)

    def casimir_scales(self, mu: Vector) -> Float[Array, " k"]:
        """The scales of the factors."""
        return flatten(self._each(lambda f, m: f.casimir_scales(m), mu))

    @property
    def index(self) -> int:
        """The sum of the indices of the factors."""
        return sum(kind.index * count for kind, count in zip(self.kinds, self.counts, strict=True))

    @property
    def known_casimirs(self) -> int:
        """The sum of those of the factors."""
        return sum(kind.known_casimirs * count for kind, count in zip(self.kinds, self.counts, strict=True))

    @property
    def watches_orbit(self) -> bool:
        """Whether one of the factors does."""
        return any(kind.watches_orbit for kind in self.kinds)

    def orbit_error(self, mu: Vector, start: Vector) -> Float[Array, ""]:
        """The largest of the factors."""
        return jnp.max(flatten(self._each(lambda f, m, s: f.orbit_error(m, s), mu, start)))

    def orbit_memory(self, mu: Vector) -> PyTree:
        """What each factor remembers."""
        return tuple(self._each(lambda f, m: f.orbit_memory(m), mu))

    def without_energy_memory(self, orbit_memory: PyTree) -> PyTree:
        """What each factor needs of that with noise."""
        return tuple(kind.without_energy_memory(own) for kind, own in zip(self.kinds, orbit_memory, strict=True))

    def drift_free_flow(self, sigma: Vector, mu: Vector, orbit_memory: PyTree) -> tuple[Vector, PyTree]:
        """Each factor in its own way."""
        return self._transport(lambda f, *args: f.drift_free_flow(*args), orbit_memory, sigma, mu)

    def drift_free_from_change(
        self, sigma: Vector, mu: Vector, change: Vector, orbit_memory: PyTree
    ) -> tuple[Vector, PyTree]:
        """Each factor in its own way."""
        return self._transport(lambda f, *args: f.drift_free_from_change(*args), orbit_memory, sigma, mu, change)

    def drift_free_cayley_flow(self, sigma: Vector, mu: Vector, orbit_memory: PyTree) -> tuple[Vector, PyTree]:
        """Each factor in its own way."""
        return self._transport(lambda f, *args: f.drift_free_cayley_flow(*args), orbit_memory, sigma, mu)

    def _transport(self, act: Callable, orbit_memory: PyTree, *xs: Vector) -> tuple[Vector, PyTree]:
        def one(f, *args):
            moved, kept = act(f, *args)
            return f.coordinates(moved), kept

        moved, kept = zip(*self._each(one, *xs, trees=orbit_memory), strict=True)
        return flatten(moved), tuple(kept)

    # The group of each factor, stacked for equal neighbours; a tuple if there are several kinds.

    def group_exp(self, sigma: Vector) -> PyTree:
        """Factor by factor."""
        return self._group(self._each(lambda f, s: f.group_exp(s), sigma))

    def group_product(self, g: PyTree, k: PyTree) -> PyTree:
        """Factor by factor."""
        both = zip(self._ungroup(g), self._ungroup(k), strict=True)
        return self._group(self._each(lambda f, gk: f.group_product(*gk), trees=tuple(both)))

    def group_inverse(self, g: PyTree) -> PyTree:
        """Factor by factor."""
        return self._group(self._each(lambda f, g: f.group_inverse(g), trees=self._ungroup(g)))

    def coadjoint(self, g: PyTree, mu: Vector) -> Vector:
        """Factor by factor."""
        moved = self._each(lambda f, m, g: f.coordinates(f.coadjoint(g, m)), mu, trees=self._ungroup(g))
        return flatten(moved)

    def group_error(self, g: PyTree) -> str | None:
        """Factor by factor."""
        at = 0
        for kind, count, own in zip(self.kinds, self.counts, self._ungroup(g), strict=True):
            for i in range(count):
                at += 1
                wrong = kind.group_error(jax.tree.map(lambda x, i=i: x[i], own) if count > 1 else own)
                if wrong is not None:
                    return f"factor {at}: {wrong}"
        return None

    def in_group(self, g: PyTree) -> bool:
        """Factor by factor."""
        for kind, count, own in zip(self.kinds, self.counts, self._ungroup(g), strict=True):
            merged = jax.tree.map(lambda x: np.reshape(x, (-1, *x.shape[2:])), own) if count > 1 else own
            if not type(kind).in_group(kind, merged):
                return False
        return True

    def group_align(self, g: PyTree, source: Vector, target: Vector) -> PyTree:
        """Factor by factor."""
        aligned = self._each(lambda f, a, b, g: f.group_align(g, a, b), source, target, trees=self._ungroup(g))
        return self._group(aligned)

    def rotation_part(self, g: PyTree) -> Any:
        """That of each factor that has one: an array of all copies, or a tuple if several kinds of factors have one."""
        found, why = [], None
        for kind, own in zip(self.kinds, self._ungroup(g), strict=True):
            try:
                found.append(kind.rotation_part(own))
            except TypeError as error:
                why = error
        if not found:
            raise why or TypeError("there is no factor.")
        return found[0] if len(found) == 1 else tuple(found)

    def _group(self, parts: list) -> PyTree:
        return parts[0] if len(self.kinds) == 1 else tuple(parts)

    def _ungroup(self, g: PyTree) -> tuple:
        return (g,) if len(self.kinds) == 1 else g

    def _each(self, fn: Callable, *xs: Vector, trees: Sequence[PyTree] | None = None) -> list:
        """fn(factor, *elements, tree) for each run of equal factors: stacked over the run if it is longer than one."""
        out, start = [], 0
        for i, (kind, count) in enumerate(zip(self.kinds, self.counts, strict=True)):
            stop = start + kind.dim * count
            extra = () if trees is None else (trees[i],)

            def one(rows: list, extra: tuple, kind: LieAlgebra = kind) -> PyTree:
                return fn(kind, *map(kind.element, rows), *extra)

            rows = [x[start:stop] for x in xs]
            if count > 1:
                rows = [x.reshape(count, kind.dim) for x in rows]
            if count >= _MANY and jax.default_backend() == "cpu":
                out.append(_in_parts(one, rows, extra))
            else:
                out.append((jax.vmap(one) if count > 1 else one)(rows, extra))
            start = stop
        return out

    def _elements(self, fn: Callable, *xs: Vector) -> Vector:
        """The vector of the elements fn(factor, *elements)."""
        return flatten(self._each(lambda f, *elements: f.coordinates(fn(f, *elements)), *xs))


def _in_parts(one: Callable, *args: PyTree) -> PyTree:
    """one(…) of each row of the arguments, in parts that fit in a cache, without a rest if that can be."""
    rows = len(jax.tree.leaves(args)[0])
    size = next((k for k in range(_TOGETHER, _TOGETHER // 2, -1) if rows % k == 0), _TOGETHER)
    whole = rows // size
    split = whole * size
    parts = jax.tree.map(lambda x: x[:split].reshape(whole, size, *x.shape[1:]), args)
    out = jax.tree.map(lambda x: x.reshape(split, *x.shape[2:]), optimistic_map(one, *parts))
    rest = jax.tree.map(lambda x: x[None, split:], args)
    if not jax.tree.leaves(rest)[0].size:
        return out
    return jax.tree.map(lambda a, b: jnp.concatenate([a, b[0]]), out, optimistic_map(one, *rest))


def _merge(runs: Sequence[tuple[LieAlgebra, int]]) -> list[tuple[LieAlgebra, int]]:
    """Equal neighbours as one."""
    merged: list[tuple[LieAlgebra, int]] = []
    for kind, count in runs:
        if merged and merged[-1][0] == kind:
            merged[-1] = (kind, merged[-1][1] + count)
        else:
            merged.append((kind, count))
    return merged
