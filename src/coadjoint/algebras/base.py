"""The Lie algebra: a dimension and a bracket; everything else is derived and may be overridden."""

import abc
import functools
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ..numerics import doubledouble as dd
from ..numerics.branches import likely

Element = Array  # an element of the algebra g: shape `algebra.shape`
State = Array  # an element of its dual g*: the same shape

_CURE_ULPS = 16.0  # the largest correction of a step, in units of eps·|μ|
_DEGREES = ((0.0, 8.0), (0.05, 12.0), (0.28, 19.0))  # of Taylor's polynomial of exp above a norm, for an error of 1e-17
_MOST_SQUARINGS = 20  # exp(a) is NaN beyond norm 2^20
_LARGEST_SEARCH = 40  # dimension up to which unknown Casimirs are searched for


class LieAlgebra(eqx.Module):
    """A finite-dimensional Lie algebra g, and what follows from its bracket on g and its dual g*.

    A subclass gives `dim` and `bracket`. Elements and states are then coordinate vectors of length `dim`, paired by
    the dot product. The derived methods are the oracle against which closed forms are tested:

    - ad*: `<ad*_ξ μ, η> = <μ, [ξ, η]>`;
    - flow: `flow(σ, μ) = exp(ad*_σ) μ`, where μ arrives at time 1 when it moves by μ' = ad*_σ μ;
    - dexpinv: the inverse of `dexp_σ = (exp(ad_σ) − 1)/ad_σ`.

    An algebra is a constant of the compiled program: it is hashed and compared by its content.
    """

    dim: eqx.AbstractVar[int]

    @abc.abstractmethod
    def bracket(self, xi: Element, eta: Element) -> Element:
        """[ξ, η] = ad_ξ η."""

    # How elements are written.

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of an element and of a state."""
        return (self.dim,)

    @property
    def dtype(self) -> Any:
        """Type of the entries: float64, or complex128 for matrices."""
        return jnp.float64

    def coordinates(self, x: Element) -> Float[Array, " dim"]:
        """Real coordinates of an element or a state, in which the pairing is the dot product."""
        return x

    def element(self, c: Float[Array, " dim"]) -> Element:
        """The element or state with the given real coordinates."""
        return c

    def state_error(self, mu: np.ndarray) -> str | None:
        """What is wrong with a state of the right shape and finite entries, if anything."""
        return None

    # The algebra and its dual.

    def pairing(self, mu: State, xi: Element) -> Float[Array, ""]:
        """<μ, ξ>."""
        return jnp.sum(mu * xi)

    def ad(self, xi: Element) -> Float[Array, "dim dim"]:
        """The matrix of η ↦ [ξ, η] in coordinates."""
        columns = jax.vmap(lambda e: self.coordinates(self.bracket(xi, self.element(e))))(jnp.eye(self.dim))
        return columns.T

    def ad_star(self, xi: Element, mu: State) -> State:
        """ad*_ξ μ."""
        return self.element(_transposed(self, lambda eta: self.bracket(xi, eta), mu))

    def poisson(self, mu: State) -> Float[Array, "dim dim"]:
        """The Poisson matrix J(μ), with ad*_ξ μ = −J(μ) ξ."""
        columns = jax.vmap(lambda e: self.coordinates(self.ad_star(self.element(e), mu)))(jnp.eye(self.dim))
        return -columns.T

    def flow(self, sigma: Element, mu: State) -> State:
        """exp(ad*_σ) μ."""
        return self.element(_flow(self, self.coordinates(sigma), self.coordinates(mu)))

    def dexp(self, sigma: Element, zeta: Element) -> Element:
        """dexp_σ ζ = ζ + ½[σ, ζ] + (1/6)[σ,[σ, ζ]] + …"""
        return self.element(_phi1(self.ad(sigma)) @ self.coordinates(zeta))

    def dexpinv(self, sigma: Element, zeta: Element) -> Element:
        """dexp_σ⁻¹ ζ = ζ − ½[σ, ζ] + (1/12)[σ,[σ, ζ]] − …"""
        return self.element(jnp.linalg.solve(_phi1(self.ad(sigma)), self.coordinates(zeta)))

    def dexp_star(self, sigma: Element, mu: State) -> State:
        """dexp*_σ μ = (exp(ad*_σ) − 1)/ad*_σ μ, the mean of flow(tσ, μ) over t in [0, 1]."""
        return self.element(_transposed(self, lambda zeta: self.dexp(sigma, zeta), mu))

    def gradient(self, h: Callable[[State], Float[Array, ""]], mu: State) -> Element:
        """∂h/∂μ: the element of g with <δμ, ∂h/∂μ> = Dh(μ)δμ."""
        return jax.grad(h)(mu)

    # Casimirs, and keeping them.

    def casimirs(self, mu: State) -> Float[Array, " k"]:
        """The known Casimirs at μ; by default the linear and quadratic ones, found as null spaces."""
        linear, quadratic = _polynomial_casimirs(self)
        c = self.coordinates(mu)
        return jnp.concatenate([linear @ c, jnp.einsum("kij,i,j->k", quadratic, c, c)])

    @property
    def casimir_names(self) -> tuple[str, ...]:
        """A name for each known Casimir."""
        return tuple(f"C{k + 1}" for k in range(sum(len(c) for c in _polynomial_casimirs(self))))

    def casimir_scales(self, mu: State) -> Float[Array, " k"]:
        """What each Casimir could be at a state of this size: errors are measured against it."""
        grads = jax.jacrev(self.casimirs)(mu)
        return jnp.linalg.norm(grads.reshape(grads.shape[0], mu.size), axis=1) * jnp.linalg.norm(mu)

    @property
    def index(self) -> int:
        """How many independent Casimirs there are: the corank of J(μ) at a generic μ."""
        return _index(self)

    def anchor(self, mu: State) -> PyTree:
        """What must be remembered of the start μ₀, besides the state, for `transport` not to drift.

        If all Casimirs are known, their values; if not, the low-order words of a state in double-double.
        """
        return self.casimirs(mu) if _knows_all_casimirs(self) else jnp.zeros(self.dim)

    def transport(self, sigma: Element, mu: State, anchor: PyTree) -> tuple[State, PyTree]:
        """The action flow(σ, μ) without round-off drift: the new state and the new anchor.

        If all Casimirs are known the state is brought back to their values, by one regularised Newton step of at
        most a few ulps. If not, the action is computed in double-double.
        """
        if _knows_all_casimirs(self):
            return cure(self, self.flow(sigma, mu), anchor), anchor
        high, low = _flow_doubledouble(self, self.coordinates(sigma), self.coordinates(mu), anchor)
        return self.element(high), low

    # The Cayley transform cay(σ) = (1 − σ/2)⁻¹(1 + σ/2) in a faithful matrix representation, where there is one.

    def log_cayley(self, sigma: Element) -> Element:
        """The element with exp(log_cayley(σ)) = cay(σ), from which the rest follows."""
        raise TypeError(
            f"{type(self).__name__} has no Cayley transform: that needs a matrix representation, which SO3, SE3, SU "
            "and products of these have. Use tau=Exp(), or override `log_cayley` in an algebra of your own."
        )

    def cayley_flow(self, sigma: Element, mu: State) -> State:
        """Ad*_{cay(σ)} μ."""
        return self.flow(self.log_cayley(sigma), mu)

    def cayley_transport(self, sigma: Element, mu: State, anchor: PyTree) -> tuple[State, PyTree]:
        """`cayley_flow` without round-off drift, as `transport`."""
        return self.transport(self.log_cayley(sigma), mu, anchor)

    def dcayinv(self, sigma: Element, zeta: Element) -> Element:
        """The inverse of dcay_σ: δ ↦ (D cay(σ) δ) cay(σ)⁻¹."""
        return self.element(jnp.linalg.solve(_dcay_matrix(self, sigma), self.coordinates(zeta)))

    def dcay_star(self, sigma: Element, mu: State) -> State:
        """dcay*_σ μ, the dual of dcay_σ."""
        return self.element(_dcay_matrix(self, sigma).T @ self.coordinates(mu))

    # The group, as matrices; by default its adjoint representation.

    def group_exp(self, sigma: Element) -> Array:
        """exp(σ) as a matrix; here Ad_{exp σ} = exp(ad_σ)."""
        return expm(self.ad(sigma))

    def group_product(self, g: Array, k: Array) -> Array:
        """g k, kept in the group where round-off would leave it."""
        return g @ k

    def group_inverse(self, g: Array) -> Array:
        """g⁻¹."""
        return jnp.linalg.inv(g)

    def coadjoint(self, g: Array, mu: State) -> State:
        """Ad*_g μ, with <Ad*_g μ, η> = <μ, Ad_g η>."""
        return self.element(g.T @ self.coordinates(mu))

    def group_align(self, g: Array, source: State, target: State) -> Array:
        """g, moved by round-off so that Ad*_g source = target, where that is known how; here g itself."""
        return g

    def rotation_part(self, g: Array) -> Array:
        """The rotation matrix in a group element, where there is one."""
        raise TypeError(f"an element of the group of {type(self).__name__} has no attitude; SO3 and SE3 have one.")

    # Direct sums.

    def __mul__(self, other: "LieAlgebra") -> "LieAlgebra":
        """The direct sum g ⊕ h."""
        from .compose import Product

        return Product(self, other)

    def __pow__(self, copies: int) -> "LieAlgebra":
        """The direct sum of several copies of g."""
        from .compose import Product

        return Product(self, copies=copies)

    # Identity: by content, so that an algebra made anew is the same algebra.

    def _content(self) -> tuple:
        leaves, treedef = jax.tree.flatten(self)
        arrays = (np.asarray(x) if eqx.is_array_like(x) else x for x in leaves)
        return (
            type(self),
            treedef,
            tuple((x.shape, str(x.dtype), x.tobytes()) if isinstance(x, np.ndarray) else x for x in arrays),
        )

    def __hash__(self) -> int:
        """By content."""
        return hash(self._content())

    def __eq__(self, other: object) -> bool:
        """By content."""
        return self is other or (isinstance(other, LieAlgebra) and self._content() == other._content())


def _transposed(algebra: LieAlgebra, linear: Callable[[Element], Element], mu: State) -> Float[Array, " dim"]:
    """The coordinates of the state ν with <ν, ζ> = <μ, linear(ζ)> for all ζ."""
    _, transpose = jax.vjp(lambda c: algebra.coordinates(linear(algebra.element(c))), jnp.zeros(algebra.dim))
    return transpose(algebra.coordinates(mu))[0]


def _dcay_matrix(algebra: LieAlgebra, sigma: Element) -> Float[Array, "dim dim"]:
    """dcay_σ = dexp_{log cay σ} D log_cayley(σ)."""

    def column(e: Float[Array, " dim"]) -> Float[Array, " dim"]:
        log, derivative = jax.jvp(algebra.log_cayley, (sigma,), (algebra.element(e),))
        return algebra.coordinates(algebra.dexp(log, derivative))

    return jax.vmap(column, out_axes=1)(jnp.eye(algebra.dim))


def cap(correction: Array, mu: State) -> Array:
    """The correction, cut to a few ulps of |μ|: a cure removes round-off and can do nothing more."""
    limit2 = (_CURE_ULPS * jnp.finfo(jnp.float64).eps) ** 2 * jnp.sum(mu * mu)
    size2 = jnp.sum(correction * correction)
    fits = likely(size2 <= limit2)
    cut = jnp.where(
        jnp.isfinite(size2) & (size2 > 0), correction * jnp.sqrt(limit2 / jnp.where(size2 > 0, size2, 1.0)), 0.0
    )
    return jnp.where(fits, correction, cut)


def cure(algebra: LieAlgebra, mu: State, values: Float[Array, " k"]) -> State:
    """One Newton step towards the level set of the Casimirs, regularised where their gradients are dependent.

    δμ = −Gᵀ (G Gᵀ + λ)⁻¹ (C(μ) − values), G = DC(μ), λ a hundredth of the largest squared gradient: where the Casimirs
    are independent an error shrinks a hundredfold a step; where they are not, round-off is not amplified.
    """
    if len(algebra.casimir_names) == 0:
        return mu
    error = algebra.casimirs(mu) - values
    G = jax.jacrev(algebra.casimirs)(mu)
    size2 = jnp.sum(G * G, axis=1)
    scale = jax.lax.rsqrt(jnp.where(size2 > 0, size2, 1.0))
    G, error = scale[:, None] * G, scale * error
    M = G @ G.T + 0.01 * jnp.eye(len(error))
    step = -G.T @ _solve_positive(M, error)
    return mu + jax.lax.stop_gradient(cap(step, mu))


def _solve_positive(M: Float[Array, "k k"], b: Float[Array, " k"]) -> Float[Array, " k"]:
    """M⁻¹ b for a positive definite M, by elimination written out: k is small, LAPACK costs more."""
    k = len(b)
    a = [[*(M[i, j] for j in range(k)), b[i]] for i in range(k)]
    for p in range(k):
        pivot = 1.0 / a[p][p]
        a[p] = [pivot * x for x in a[p]]
        for i in range(k):
            if i != p:
                a[i] = [x - a[i][p] * y for x, y in zip(a[i], a[p], strict=True)]
    return jnp.stack([row[k] for row in a])


@eqx.filter_custom_jvp
def _flow(algebra: LieAlgebra, sigma: Float[Array, " dim"], mu: Float[Array, " dim"]) -> Float[Array, " dim"]:
    """exp(ad*_σ) μ in coordinates: substeps of norm at most one, each a Taylor polynomial of high enough degree."""
    a = algebra.ad(algebra.element(sigma)).T
    norm2 = jnp.sum(a * a)
    one = likely(norm2 <= 1.0)
    substeps = jnp.where(one, 1.0, jnp.ceil(jnp.sqrt(jnp.where(jnp.isfinite(norm2), norm2, 1.0))))
    size2 = jnp.where(one, norm2, 1.0)
    degree = functools.reduce(lambda d, step: jnp.where(size2 > step[0] ** 2, step[1], d), _DEGREES[1:], _DEGREES[0][1])

    def substep(_, v):
        def horner(state):
            k, total = state
            return k - 1.0, v + a @ total * (1.0 / (k * substeps))

        return jax.lax.while_loop(lambda state: state[0] > 0.0, horner, (degree, v))[1]

    return jax.lax.fori_loop(0, substeps.astype(int), substep, mu)


@_flow.def_jvp
def _flow_jvp(primals, tangents):
    return _flow(*primals), _flow_tangent(primals, tangents)


def _flow_tangent(primals, tangents) -> Array:
    """exp(ad*_σ) δμ + ad*_{dexp_{−σ} δσ} flow(σ, μ), with explicit matrices, hence transposable."""
    algebra, sigma, mu = primals
    _, dsigma, dmu = tangents
    ad = algebra.ad(algebra.element(sigma))
    tangent = jnp.zeros_like(mu)
    if dmu is not None:
        tangent += expm(ad.T) @ dmu
    if dsigma is not None:
        moved = algebra.element(_flow(algebra, sigma, mu))
        tangent -= algebra.poisson(moved) @ (_phi1(-ad) @ dsigma)
    return tangent


@eqx.filter_custom_jvp
def _flow_doubledouble(algebra: LieAlgebra, sigma: Array, mu: Array, low: Array) -> tuple[Array, Array]:
    """exp(ad*_σ) (μ + low) in double-double and in coordinates: high and low words."""
    constants = jnp.asarray(structure_constants(algebra).transpose(1, 2, 0))
    hi, lo = dd.expm_action(dd.contract(constants, sigma), dd.DoubleDouble(mu, low))
    return hi, lo


@_flow_doubledouble.def_jvp
def _flow_doubledouble_jvp(primals, tangents):
    """The low words are round-off: their derivative is zero."""
    high, low = _flow_doubledouble(*primals)
    return (high, low), (_flow_tangent(primals[:3], tangents[:3]), jnp.zeros_like(low))


def expm(a: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """exp(a): a Taylor polynomial at norm at most one, then squarings.

    `jax.scipy.linalg.expm` squares once too little and is wrong by up to 1e-8 from norm 6 on.
    """
    norm = jax.lax.stop_gradient(jnp.max(jnp.sum(jnp.abs(a), axis=0)))
    squarings = jnp.ceil(jnp.log2(jnp.maximum(norm, 1.0)))
    a = a * 2.0**-squarings
    one = jnp.eye(a.shape[0])
    e = jax.lax.fori_loop(0, 18, lambda i, e: one + a @ e / (18.0 - i), one)

    def square(i, e):
        return jax.lax.cond(i < squarings, lambda e: e @ e, lambda e: e, e)

    e = jax.lax.fori_loop(0, _MOST_SQUARINGS, square, e)
    return jnp.where(squarings <= _MOST_SQUARINGS, e, jnp.nan)


def _phi1(a: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """(exp(a) − 1)/a, from the exponential of an augmented matrix."""
    n = a.shape[0]
    augmented = jnp.zeros((2 * n, 2 * n)).at[:n, :n].set(a).at[:n, n:].set(jnp.eye(n))
    return expm(augmented)[:n, n:]


@lru_cache(maxsize=256)
def structure_constants(algebra: LieAlgebra) -> np.ndarray:
    """C with [e_i, e_j] = Σ_k C[i, j, k] e_k, from the bracket."""

    def bracket(a: Array, b: Array) -> Array:
        return algebra.coordinates(algebra.bracket(algebra.element(a), algebra.element(b)))

    with jax.ensure_compile_time_eval():
        basis = np.eye(algebra.dim)
        table = jax.jit(jax.vmap(jax.vmap(bracket, (None, 0)), (0, None)))
        return np.array(table(basis, basis), dtype=np.float64)


@lru_cache(maxsize=256)
def _index(algebra: LieAlgebra) -> int:
    C = structure_constants(algebra)
    generic = np.random.default_rng(0).standard_normal((3, algebra.dim))
    return algebra.dim - max(np.linalg.matrix_rank(np.einsum("ijk,k->ij", C, mu)) for mu in generic)


@lru_cache(maxsize=256)
def _knows_all_casimirs(algebra: LieAlgebra) -> bool:
    """Whether the known Casimirs, of which some may depend on others, fix the orbit of a generic state."""
    if len(algebra.casimir_names) < algebra.index or algebra.index == 0:
        return algebra.index == 0
    with jax.ensure_compile_time_eval():
        generic = np.random.default_rng(1).standard_normal(algebra.dim)
        G = np.asarray(jax.jit(jax.jacrev(lambda c: algebra.casimirs(algebra.element(c))))(generic))
    return bool(np.linalg.matrix_rank(G / np.linalg.norm(G, axis=1, keepdims=True), rtol=1e-9) >= algebra.index)


@lru_cache(maxsize=256)
def _polynomial_casimirs(algebra: LieAlgebra) -> tuple[np.ndarray, np.ndarray]:
    """Linear Casimirs (rows z, the centre) and quadratic ones (symmetric Q) that are not products of linear ones.

    <μ, z> is a Casimir when [ξ, z] = 0 for all ξ, μᵀQμ when a_ξ Q + Q a_ξᵀ = 0 with a_ξ the matrix of ad_ξ. Both are
    null spaces; a few random ξ generate the equations, and the result is checked on all basis elements.
    """
    n = algebra.dim
    C = structure_constants(algebra)
    ad = C.transpose(0, 2, 1)  # ad[i] is the matrix of ad_{e_i}
    linear = _null_space(ad.reshape(n * n, n))
    if n > _LARGEST_SEARCH:
        return linear, np.zeros((0, n, n))
    rows, columns = np.triu_indices(n)
    units = np.zeros((len(rows), n, n))
    units[np.arange(len(rows)), rows, columns] = 1.0
    units[np.arange(len(rows)), columns, rows] = 1.0
    random = np.random.default_rng(0).standard_normal((min(n, 4), n))
    xis = np.einsum("ri,ikj->rkj", random, ad)
    equations = [(xi @ units + units @ xi.T).reshape(len(rows), -1).T for xi in xis]
    found = _null_space(np.concatenate(equations))
    if len(linear):
        products = np.array([np.outer(a, b) + np.outer(b, a) for a in linear for b in linear])[:, rows, columns]
        q, s, _ = np.linalg.svd(products.T, full_matrices=False)
        q = q[:, s > 1e-10 * s[0]]
        found = _null_space(np.concatenate([_complement(found), q.T]))
    quadratic = np.einsum("kr,rij->kij", found, units)
    residual = np.einsum("ial,klb->ikab", ad, quadratic) + np.einsum("kal,ibl->ikab", quadratic, ad)
    whole = np.max(np.abs(residual), axis=(0, 2, 3), initial=0.0) < 1e-9
    return linear, quadratic[whole]


def _complement(rows: np.ndarray) -> np.ndarray:
    """An orthonormal basis of what is orthogonal to the given rows."""
    if len(rows) == 0:
        return np.eye(rows.shape[1])
    if rows.shape[0] > rows.shape[1]:
        rows = np.asarray(np.linalg.qr(rows, mode="r"))  # the same null space, without a huge U below
    _, s, vt = np.linalg.svd(rows)
    return vt[int(np.sum(s > 1e-10 * s[0])) :]


def _null_space(equations: np.ndarray) -> np.ndarray:
    """A basis of the null space in reduced row-echelon form: sparse, and the same whatever the algorithm."""
    basis = _complement(equations) if np.any(equations) else np.eye(equations.shape[1])
    basis = basis.copy()
    row = 0
    for column in range(basis.shape[1]):
        if row == len(basis):
            break
        pivot = row + int(np.argmax(np.abs(basis[row:, column])))
        if abs(basis[pivot, column]) < 1e-9:
            continue
        basis[[row, pivot]] = basis[[pivot, row]]
        basis[row] /= basis[row, column]
        others = np.arange(len(basis)) != row
        basis[others] -= np.outer(basis[others, column], basis[row])
        row += 1
    nearest = np.round(basis * 60) / 60  # small rationals, as they are for integer structure constants
    return np.where(np.abs(basis - nearest) < 1e-9, nearest, basis)
