"""Algebras made of others: direct sums, and semidirect products with a vector space."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ..numerics import checks
from ..numerics.functions import Constant
from .base import Element, LieAlgebra, structure_constants
from .structure import trace_casimirs

Vector = Float[Array, " dim"]


class Product(LieAlgebra):
    """The direct sum of algebras: `Product(SO3(), SE3())`, `SO3() * SE3()`; many copies: `SO3() ** 64`.

    Elements and states are real vectors: the coordinates of the factors, one after the other. `split` gives the
    factors' own elements (matrices for `SU`), `join` goes back. All is done factor by factor, and equal neighbours are
    done together, so that a chain of 64 spins compiles like one spin. Casimirs: those of the factors, with the
    number of the factor in their names.
    """

    dim: int = eqx.field(static=True)
    kinds: tuple[LieAlgebra, ...]  # the factors, equal neighbours taken together …
    counts: tuple[int, ...] = eqx.field(static=True)  # … this many of each

    def __init__(self, *factors: LieAlgebra, copies: int = 1):
        copies = checks.count("copies", copies)
        if not factors:
            raise ValueError("Product needs at least one algebra, such as Product(SO3(), SE3()).")
        runs: list[tuple[LieAlgebra, int]] = []
        for number, factor in enumerate(factors, 1):
            _check_algebra(f"factor {number}", factor)
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

    def split(self, x: Vector) -> tuple[Element, ...]:
        """The elements (or states) of the factors."""
        ends = np.cumsum([f.dim for f in self.factors])
        return tuple(f.element(x[end - f.dim : end]) for f, end in zip(self.factors, ends, strict=True))

    def join(self, *parts: Element) -> Vector:
        """The vector whose parts these are, one for each factor."""
        return _join([(f"factor {i + 1} ({type(f).__name__})", f) for i, f in enumerate(self.factors)], parts)

    def state_error(self, mu: np.ndarray) -> str | None:
        """What is wrong with the part of a factor."""
        end = 0
        for number, factor in enumerate(self.factors, 1):
            end += factor.dim
            wrong = _state_error(factor, mu[end - factor.dim : end])
            if wrong is not None:
                return f"in factor {number} ({type(factor).__name__}) {wrong}"
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

    def casimirs(self, mu: Vector) -> Float[Array, " k"]:
        """The Casimirs of the factors."""
        return _flatten(self._each(lambda f, m: f.casimirs(m), mu))

    @property
    def casimir_names(self) -> tuple[str, ...]:
        """The factor's name of each, and the number of the factor."""
        return tuple(f"{name} ({i})" for i, f in enumerate(self.factors, 1) for name in f.casimir_names)

    def casimir_scales(self, mu: Vector) -> Float[Array, " k"]:
        """The scales of the factors."""
        return _flatten(self._each(lambda f, m: f.casimir_scales(m), mu))

    @property
    def index(self) -> int:
        """The sum of the indices of the factors."""
        return sum(kind.index * count for kind, count in zip(self.kinds, self.counts, strict=True))

    def anchor(self, mu: Vector) -> PyTree:
        """What each factor remembers."""
        return tuple(self._each(lambda f, m: f.anchor(m), mu))

    def transport(self, sigma: Vector, mu: Vector, anchor: PyTree) -> tuple[Vector, PyTree]:
        """Each factor in its own way."""
        return self._transport(lambda f, *args: f.transport(*args), sigma, mu, anchor)

    def cayley_transport(self, sigma: Vector, mu: Vector, anchor: PyTree) -> tuple[Vector, PyTree]:
        """Each factor in its own way."""
        return self._transport(lambda f, *args: f.cayley_transport(*args), sigma, mu, anchor)

    def _transport(self, act: Callable, sigma: Vector, mu: Vector, anchor: PyTree) -> tuple[Vector, PyTree]:
        def one(f, s, m, kept):
            moved, kept = act(f, s, m, kept)
            return f.coordinates(moved), kept

        moved, kept = zip(*self._each(one, sigma, mu, trees=anchor), strict=True)
        return _flatten(moved), tuple(kept)

    # The group: for each factor its own, stacked where neighbours are equal; a tuple where there are several kinds.

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
        return _flatten(moved)

    def group_align(self, g: PyTree, source: Vector, target: Vector) -> PyTree:
        """Factor by factor."""
        aligned = self._each(lambda f, a, b, g: f.group_align(g, a, b), source, target, trees=self._ungroup(g))
        return self._group(aligned)

    def rotation_part(self, g: PyTree) -> Array:
        """That of each copy, if all factors are equal."""
        return self.kinds[0].rotation_part(g) if len(self.kinds) == 1 else super().rotation_part(g)

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
                one, rows = jax.vmap(one), [x.reshape(count, kind.dim) for x in rows]
            out.append(one(rows, extra))
            start = stop
        return out

    def _elements(self, fn: Callable, *xs: Vector) -> Vector:
        """The vector of the elements fn(factor, *elements)."""
        return _flatten(self._each(lambda f, *elements: f.coordinates(fn(f, *elements)), *xs))


class Semidirect(LieAlgebra):
    """g ⋉ V: an algebra g that acts on a vector space V = ℝᵐ by a representation ρ.

        [(ξ, u), (η, w)] = ([ξ, η], ρ(ξ)w − ρ(η)u),
        ad*_(ξ,u) (μ, a) = (ad*_ξ μ − u⋄a, ρ(ξ)ᵀ a),   <u⋄a, η> = a·ρ(η)u.

    - `representation`: a JAX function `rho(xi, v)` of an element of g and a vector of length m, with `dim` = m; or the
      array R of shape (dim g, m, m) whose R[i] is the matrix of ρ(e_i). That it is a representation is checked.
    - `copies`: g acts on so many copies of V at once.
    - `casimirs`, `casimir_names`: as for `StructureConstants`; otherwise the linear ones are found, and up to dimension
      40 the quadratic ones.

    Elements and states are real vectors: the coordinates of g, then those of each copy of V. `split` gives
    (μ, a₁, a₂, …) with μ a state of g, `join` goes back. Semidirect(SO3(), SO3().bracket, dim=3) is `SE3()`.
    """  # fmt: skip

    dim: int = eqx.field(static=True)
    algebra: LieAlgebra
    copies: int = eqx.field(static=True)
    _matrices: Constant = eqx.field(static=True)
    given_casimirs: Constant | None = eqx.field(static=True)
    given_names: tuple[str, ...] = eqx.field(static=True)

    def __init__(
        self,
        algebra: LieAlgebra,
        representation: Callable[[Element, Array], Array] | Any,
        dim: int | None = None,
        copies: int = 1,
        casimirs: Callable[[Array], Array] | None = None,
        casimir_names: Sequence[str] | None = None,
    ):
        checks.require_float64()
        _check_algebra("algebra", algebra)
        R = _representation_matrices(algebra, representation, dim) + 0.0  # no −0, so that equal is equal
        _check_representation(algebra, R)
        R.flags.writeable = False
        self.algebra = algebra
        self.copies = checks.count("copies", copies)
        self._matrices = Constant(R)
        self.dim = algebra.dim + self.copies * R.shape[1]
        self.given_casimirs, self.given_names = None, ()
        if casimirs is not None or casimir_names is not None:
            self.given_casimirs, self.given_names = trace_casimirs(self, casimirs, casimir_names)

    @property
    def matrices(self) -> np.ndarray:
        """R, shape (dim g, m, m): R[i] is the matrix of ρ(e_i)."""
        return self._matrices.value

    def split(self, x: Vector) -> tuple[Element, ...]:
        """(μ, a₁, a₂, …)."""
        mu, a = self._parts(x)
        return self.algebra.element(mu), *a

    def join(self, *parts: Element) -> Vector:
        """The vector with the parts (μ, a₁, a₂, …)."""
        places: list = [(type(self.algebra).__name__, self.algebra)]
        places += [(f"vector {i + 1}", self.matrices.shape[1]) for i in range(self.copies)]
        return _join(places, parts)

    def state_error(self, mu: np.ndarray) -> str | None:
        """What is wrong with the part in g*."""
        return _state_error(self.algebra, mu[: self.algebra.dim])

    def bracket(self, xi: Vector, eta: Vector) -> Vector:
        """([ξ, η], ρ(ξ)w − ρ(η)u)."""
        g = self.algebra
        (x, u), (y, w) = self._parts(xi), self._parts(eta)
        top = g.coordinates(g.bracket(g.element(x), g.element(y)))
        return _flatten([top, w @ self._rho(x).T - u @ self._rho(y).T])

    def ad_star(self, xi: Vector, mu: Vector) -> Vector:
        """(ad*_ξ μ − u⋄a, ρ(ξ)ᵀ a)."""
        g = self.algebra
        (x, u), (m, a) = self._parts(xi), self._parts(mu)
        top = g.coordinates(g.ad_star(g.element(x), g.element(m))) - self._diamond(u, a)
        return _flatten([top, a @ self._rho(x)])

    def casimirs(self, mu: Vector) -> Float[Array, " k"]:
        """The given Casimirs, or those found."""
        return LieAlgebra.casimirs(self, mu) if self.given_casimirs is None else self.given_casimirs(mu)

    @property
    def casimir_names(self) -> tuple[str, ...]:
        """The given names, or C1, C2, …"""
        return super().casimir_names if self.given_casimirs is None else self.given_names

    def _parts(self, x: Vector) -> tuple[Float[Array, " d"], Float[Array, "copies m"]]:
        d = self.algebra.dim
        return x[:d], x[d:].reshape(self.copies, -1)

    def _rho(self, xi: Float[Array, " d"]) -> Float[Array, "m m"]:
        return jnp.tensordot(xi, self.matrices, axes=1)

    def _diamond(self, u: Float[Array, "copies m"], a: Float[Array, "copies m"]) -> Float[Array, " d"]:
        return jnp.tensordot(self.matrices, a.T @ u, axes=2)


def coadjoint_representation(algebra: LieAlgebra) -> np.ndarray:
    """The representation of g on its dual, ρ(ξ)α = −ad*_ξ α, as an array R for `Semidirect`: g ⋉ g*."""
    _check_algebra("algebra", algebra)
    return -structure_constants(algebra)


def _state_error(algebra: LieAlgebra, c: np.ndarray) -> str | None:
    if type(algebra).state_error is LieAlgebra.state_error:
        return None
    return algebra.state_error(np.asarray(algebra.element(jnp.asarray(c))))


def _merge(runs: Sequence[tuple[LieAlgebra, int]]) -> list[tuple[LieAlgebra, int]]:
    """Equal neighbours as one."""
    merged: list[tuple[LieAlgebra, int]] = []
    for kind, count in runs:
        if merged and merged[-1][0] == kind:
            merged[-1] = (kind, merged[-1][1] + count)
        else:
            merged.append((kind, count))
    return merged


def _flatten(parts: Sequence[Array]) -> Vector:
    return jnp.concatenate([p.reshape(-1) for p in parts]) if len(parts) > 1 else parts[0].reshape(-1)


def _join(places: Sequence[tuple[str, LieAlgebra | int]], parts: Sequence[Any]) -> Vector:
    """Coordinates of the parts in one vector; a place is a name with an algebra, or with the length of a vector."""
    if len(parts) != len(places):
        raise ValueError(f"join takes {len(places)} parts, not {len(parts)}: {', '.join(name for name, _ in places)}.")
    out = []
    for (name, place), part in zip(places, parts, strict=True):
        algebra = place if isinstance(place, LieAlgebra) else None
        shape = algebra.shape if algebra is not None else (place,)
        x = jnp.asarray(part)
        if x.shape != shape:
            raise ValueError(f"join: {name} needs shape {shape}, not {x.shape}.")
        if jnp.iscomplexobj(x) and (algebra is None or algebra.dtype == jnp.float64):
            raise TypeError(f"join: {name} is real, not complex.")
        out.append(x.astype(jnp.float64) if algebra is None else algebra.coordinates(x.astype(algebra.dtype)))
    return _flatten(out)


def _check_algebra(name: str, algebra: Any) -> None:
    if not isinstance(algebra, LieAlgebra):
        hint = isinstance(algebra, type) and issubclass(algebra, LieAlgebra)
        got = f"the class {algebra.__name__}; did you mean {algebra.__name__}()?" if hint else f"{algebra!r}."
        raise TypeError(f"{name} must be a LieAlgebra such as SO3(), not {got}")


def _representation_matrices(algebra: LieAlgebra, representation: Any, dim: Any) -> np.ndarray:
    """R[i] = ρ(e_i), from a function or an array."""
    m = None if dim is None else checks.count("dim", dim)
    if callable(representation):
        if m is None:
            raise ValueError("dim, the dimension of the vector space, must be given with a function representation.")
        return _matrices_of_function(algebra, representation, m)
    try:
        R = np.array(representation)
    except ValueError:
        raise TypeError("representation must be a function rho(xi, v) or an array of numbers.") from None
    if R.dtype.kind not in "fiu":
        raise TypeError(
            f"representation must be a function rho(xi, v) or an array of real numbers, not of type {R.dtype}."
        )
    d = algebra.dim
    if R.ndim != 3 or R.shape[0] != d or R.shape[1] != R.shape[2] or R.shape[1] == 0 or m not in (None, R.shape[1]):
        size = "m" if m is None else m
        raise ValueError(
            f"representation must have shape ({d}, {size}, {size}), a matrix for each of the {d} basis elements of "
            f"{type(algebra).__name__}, not {R.shape}."
        )
    if not np.all(np.isfinite(R)):
        i, j, k = np.argwhere(~np.isfinite(R))[0]
        raise ValueError(f"representation must be finite: entry [{i}, {j}, {k}] is {R[i, j, k]}.")
    return R.astype(np.float64)


def _matrices_of_function(algebra: LieAlgebra, rho: Callable, m: int) -> np.ndarray:
    def action(c: Array, v: Array) -> Array:
        return rho(algebra.element(c), v)

    vector = jax.ShapeDtypeStruct((m,), jnp.float64)
    try:
        out = jax.eval_shape(action, jax.ShapeDtypeStruct((algebra.dim,), jnp.float64), vector)
    except Exception as error:
        error.add_note(
            f"This was raised by representation(xi, v) for xi of shape {algebra.shape} and v of shape ({m},)."
        )
        raise
    if getattr(out, "shape", None) != (m,) or jnp.issubdtype(out.dtype, jnp.complexfloating):
        got = f"{out.dtype} of shape {out.shape}" if hasattr(out, "shape") else type(out).__name__
        raise ValueError(f"representation(xi, v) must return a real vector of length dim = {m}, not {got}.")
    with jax.ensure_compile_time_eval():
        columns = jax.vmap(jax.vmap(action, (None, 0)), (0, None))(jnp.eye(algebra.dim), jnp.eye(m))
        R = np.asarray(columns, dtype=np.float64).transpose(0, 2, 1)
        rng = np.random.default_rng(0)
        c, v = rng.standard_normal(algebra.dim), rng.standard_normal(m)
        given = np.asarray(action(jnp.asarray(c), jnp.asarray(v)))
    if not np.all(np.isfinite(R)):
        i = int(np.argwhere(~np.isfinite(R))[0][0])
        raise ValueError(f"representation must be finite, but the matrix of ρ(e_{i}) is not.")
    defect = np.max(np.abs(given - np.einsum("i,ijk,k->j", c, R, v)))
    if not defect <= 1e-10 * max(np.abs(R).max(), np.abs(given).max(), 1e-300) * (algebra.dim + m):
        raise ValueError(
            "representation(xi, v) must be linear in xi and in v, but at random ones it differs from its values on "
            f"the bases, combined, by {defect:.3g}."
        )
    return R


def _check_representation(algebra: LieAlgebra, R: np.ndarray) -> None:
    worst, (i, j) = _worst_pair(algebra, R)
    if worst == 0.0:
        return
    hint = " −ρ is one: change its sign." if _worst_pair(algebra, -R)[0] == 0.0 else ""
    raise ValueError(
        f"representation is not a representation: for the basis elements e_{i} and e_{j}, ρ([e_{i}, e_{j}]) differs "
        f"from ρ(e_{i})ρ(e_{j}) − ρ(e_{j})ρ(e_{i}) by {worst:.3g} in an entry; they must be equal.{hint}"
    )


def _worst_pair(algebra: LieAlgebra, R: np.ndarray) -> tuple[float, tuple[int, int]]:
    """The largest defect of ρ([e_i, e_j]) = [ρ(e_i), ρ(e_j)], 0 if it is round-off, and where."""
    C = structure_constants(algebra)
    scale = np.abs(R).max() * max(np.abs(R).max() * R.shape[1], np.abs(C).max() * R.shape[0])
    worst, where = 0.0, (0, 0)
    for i in range(len(R)):
        defect = np.abs(np.tensordot(C[i], R, axes=1) - (R[i] @ R - R @ R[i])).max(axis=(1, 2))
        if defect.max() > max(worst, 1e-12 * scale):
            worst, where = float(defect.max()), (i, int(np.argmax(defect)))
    return worst, where
