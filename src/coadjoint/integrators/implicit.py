"""How the equation of an implicit step is solved."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from stepcompiler.jaxprs.sparsity import depends_on

from ..algebras.base import Element, LieAlgebra, State
from ..drivers import Increment
from ..numerics import validation
from ..numerics.rootfind import InitialGuess, RootResult, SquaredSize, dot, explicit_info, solve_root
from ..systems import System

CHORD = 16  # dimension above which fixed points are faster than the chord (benchmarks/results/sizes.json)
DENSE = 64  # largest number of unknowns for which Jacobians are formed, be it in fallbacks


class KnownFlow(NamedTuple):
    """flow(s(σ − δ), μ) − μ, which an equation for σ has given, and its last correction δ; whether |σ|² δ counts."""

    change: State
    last: Element
    needs_second_order: Bool[Array, ""] | None


def explicit_coordinates(system: System) -> np.ndarray:
    """Which coordinates of ζ(μ) are known not to depend on μ: those along gravity's pull on a heavy top."""
    algebra = system.algebra
    if algebra.dim > DENSE:
        return np.zeros(algebra.dim, bool)

    def coordinates(mu: State) -> Float[Array, " dim"]:
        return algebra.coordinates(system.zeta(mu, jnp.ones(()), jnp.ones(system.n_noise)))

    return ~depends_on(coordinates, jax.ShapeDtypeStruct(algebra.shape, algebra.dtype))


class Unknowns:
    """The coordinates that are solved for, among all of them; the others are given."""

    def __init__(self, wanted: np.ndarray):
        edges = [0, *(np.flatnonzero(np.diff(wanted)) + 1), len(wanted)]
        self.runs = [(a, b, bool(wanted[a])) for a, b in pairwise(edges)]
        self.count, self.all = int(wanted.sum()), bool(wanted.all())

    def restrict(self, x: Array, axis: int = 0) -> Array:
        """Those of all coordinates."""
        if self.all:
            return x
        pieces = [jax.lax.slice_in_dim(x, a, b, axis=axis) for a, b, wanted in self.runs if wanted]
        return pieces[0] if len(pieces) == 1 else jnp.concatenate(pieces, axis)

    def embed(self, x: Float[Array, " n"], given: Array) -> Float[Array, " size"]:
        """All coordinates: these, and of the given ones the others."""
        if self.all:
            return x
        pieces, at = [], 0
        for a, b, wanted in self.runs:
            pieces.append(x[at : at + b - a] if wanted else given[a:b])
            at += (b - a) * wanted
        return jnp.concatenate(pieces)


def _squares(algebra: LieAlgebra, stages: int) -> SquaredSize:
    """x ↦ |x|²; of a direct sum too large for the chord, that of each summand, all its stages taken together.

    Of large n×n matrices |x|²/√n: a product of two of them, of which one is round-off, has about the size |x| |y|/√n.
    """
    if algebra.dim > DENSE and len(algebra.shape) == 2:
        return lambda x: x @ x / np.sqrt(algebra.shape[-1])
    rows = 1 if algebra.conjugated_shape is None else algebra.conjugated_shape[-1]
    if algebra.dim <= CHORD or sum(count for _, count in algebra.summands) == 1:
        return dot

    def squares(x: Float[Array, " size"]) -> Float[Array, " parts"]:
        x2, out, at = jnp.sum((x * x).reshape(stages, -1), axis=0), [], 0
        for dim, count in algebra.summands:
            out.append(jnp.sum(x2[at : at + dim * count].reshape(count, dim), axis=1) / np.sqrt(rows))
            at += dim * count
        return jnp.concatenate(out)

    return squares


class ImplicitSolve(eqx.Module):
    """How the equation of an implicit step is solved.

    `solver`: "chord" (Jacobian frozen where it starts), "newton", "fixed_point", "products" (the inversion-free solver
    of TMK and midpoint rules on SU(n)), or "auto": chord up to dimension 16, fixed point above that, and above
    dimension 64 products where the method and the algebra have them. `tol` is on the last correction, scaled by the
    unknown, both measured in a large direct sum by their largest part.
    `fallbacks`: Newton, then homotopy in the step, where the solver fails (dimension 64 at most).
    """

    tol: float = eqx.field(static=True, default=1e-14)
    solver: str = eqx.field(static=True, default="auto")
    max_steps: int = eqx.field(static=True, default=30)
    fallbacks: bool = eqx.field(static=True, default=True)

    def __check_init__(self):
        validation.positive("tol", self.tol)
        validation.choice("solver", self.solver, ("auto", "chord", "newton", "fixed_point", "products"))
        validation.count("max_steps", self.max_steps)

    def fast(self) -> "FastSolve":
        """The same without fallbacks: it only reports failures."""
        return FastSolve(self, near=False)

    def __call__(
        self,
        system: System,
        f: Any,
        start: Any,
        near: Any = None,
        *,
        stages: int | None = None,
        explicit: np.ndarray | None = None,
        local: Any = None,
        fast: bool = False,
    ) -> Any:
        """(x, info), or (x, info, known_flow): the root x of f(x, 1) continued from x = 0 at λ = 0.

        x is an element or a state of the algebra. f gives the residual, or with it flow(sx, μ) − μ, and then it is
        known what x leads to. `start()` gives coordinates of x to start from and the Jacobian there; so does `near()`,
        nearer to the root, for solvers that take it (`from_near`). With `stages`, x is a stack of so many. `explicit`:
        the coordinates of x that need no solving, for `start()` has them, and they are multiples of λ. `local()` gives
        an approximate inverse of Df, which fixed points apply to residuals. If `fast`, x is of no use where it has not
        converged.
        """
        algebra = system.algebra
        size = algebra.dim * (stages or 1)
        unknowns = Unknowns(np.ones(size, bool) if explicit is None else ~explicit)

        def element(c: Float[Array, " size"]) -> Array:
            return algebra.element(c) if stages is None else jax.vmap(algebra.element)(c.reshape(stages, -1))

        def flat(x: Array) -> Float[Array, " size"]:
            return algebra.coordinates(x) if stages is None else jax.vmap(algebra.coordinates)(x).reshape(-1)

        def equation(c: Float[Array, " size"], lam: Float[Array, ""]) -> tuple[Float[Array, " size"], State | None]:
            out = f(element(c), lam)
            residual, change = out if isinstance(out, tuple) else (out, None)
            return flat(residual), change

        zero, given = jnp.zeros(size), jnp.zeros(size)
        if not unknowns.all:
            begun = start()
            start, given = lambda: begun, begun.x if begun.explicit is None else begun.explicit
        if unknowns.count == 0:
            return element(given), explicit_info(given)
        auto = "chord" if algebra.dim <= CHORD and unknowns.count <= DENSE else "fixed_point"
        method = auto if self.solver in ("auto", "products") else self.solver
        squares = _squares(algebra, stages or 1)

        def precondition() -> Callable[[Float[Array, " n"]], Float[Array, " n"]]:
            inverse = local()
            return lambda x: unknowns.restrict(flat(inverse(element(unknowns.embed(x, zero)))))

        refine = None if local is None or method != "fixed_point" else precondition
        root = self._solved(method, unknowns, equation, start, given, squares, fast, refine)
        x = element(unknowns.embed(root.x, given))
        if root.last is None:
            return x, root.info
        return x, root.info, KnownFlow(root.known, element(unknowns.embed(root.last, zero)), root.needs_second_order)

    def _solved(
        self,
        method: str,
        unknowns: Unknowns,
        equation: Any,
        start: Any,
        given: Float[Array, " size"],
        squares: SquaredSize,
        fast: bool,
        precondition: Any,
    ) -> RootResult:
        """The root of the equation for the unknowns alone."""
        nothing, zero = jnp.zeros(unknowns.count), jnp.zeros_like(given)

        def reduced(x: Float[Array, " n"], lam: Float[Array, ""]) -> tuple[Float[Array, " n"], State | None]:
            residual, change = equation(unknowns.embed(x, lam * given), lam)
            return unknowns.restrict(residual), change

        def reduced_start() -> InitialGuess:
            x, G, at_zero, explicit = start()
            rows = unknowns.restrict(G)
            if at_zero is not None and not unknowns.all:
                at_zero = unknowns.restrict(at_zero) - rows @ unknowns.embed(nothing, given)
            explicit = None if explicit is None else unknowns.restrict(explicit)
            return InitialGuess(unknowns.restrict(x), unknowns.restrict(rows, axis=1), at_zero, explicit)

        dense = unknowns.count <= DENSE
        return solve_root(
            reduced,
            nothing,
            method=method,
            start=reduced_start,
            tol=self.tol,
            max_steps=self.max_steps,
            fallbacks=self.fallbacks and dense,
            dense=dense,
            fast=fast,
            precondition=precondition,
            squares=squares if squares is dot else lambda x: squares(unknowns.embed(x, zero)),
            extra_squared_norm=0.0 if unknowns.all else squares(unknowns.embed(nothing, given)),
        )


class FastSolve(eqx.Module):
    """How an implicit step is solved when another program takes the steps for which that fails."""

    settings: ImplicitSolve
    near: bool = eqx.field(static=True)

    def __call__(self, system: System, f: Any, start: Any, near: Any = None, **about: Any) -> Any:
        """As `ImplicitSolve`, with neither fallbacks nor a remedy where there is no root; from near it if `near`."""
        return self.settings(system, f, near if self.near and near is not None else start, **about, fast=True)


def from_near(method: Any) -> Any:
    """A fast method whose equations are solved from near their roots: fewer evaluations, and more to compile."""
    fast = lambda x: isinstance(x, FastSolve)
    return jax.tree.map(lambda x: FastSolve(x.settings, near=True) if fast(x) else x, method, is_leaf=fast)


def truncated(system: System, dS: Increment) -> Float[Array, " M"]:
    """ΔS for an implicit equation: with nonlinear noise, cut at the bound of the path (Milstein–Tretyakov)."""
    return dS.S if system.additive else jnp.clip(dS.S, -dS.bound, dS.bound)
