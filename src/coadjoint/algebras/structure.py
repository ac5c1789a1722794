"""Any Lie algebra from its structure constants."""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from stepcompiler.device_arrays import compile_and_run
from stepcompiler.jaxprs.interning import Constant, Function, intern

from ..numerics.signatures import check_function
from .base import LieAlgebra
from .constants import structure_constants


class StructureConstants(LieAlgebra):
    """The Lie algebra with [e_i, e_j] = Σ_k C[i, j, k] e_k.

    Elements and states are vectors of length n.

    Parameters
    ----------
    C : array_like, shape (n, n, n)
        The structure constants.
    casimirs : callable, optional
        A function of the state that returns all Casimirs as a vector. By default Casimirs are found up to degree 4.
    casimir_names : sequence of str, optional
        Their names.

    Raises
    ------
    TypeError, ValueError
        If C is not antisymmetric or violates the Jacobi identity, or if a function in `casimirs` is not a Casimir.
    """

    dim: int = eqx.field(static=True)
    _constants: Constant = eqx.field(static=True)
    given_casimirs: Constant | None = eqx.field(static=True)
    given_names: tuple[str, ...] = eqx.field(static=True)

    def __init__(
        self,
        C: Float[Array, "n n n"] | np.ndarray | Sequence,
        casimirs: Callable[[Array], Array] | None = None,
        casimir_names: Sequence[str] | None = None,
    ):
        C = np.array(C)
        _check_constants(C)
        C = C.astype(np.float64)
        C.flags.writeable = False
        self._constants = Constant(C)
        self.dim = C.shape[0]
        self.given_casimirs = None
        self.given_names = ()
        if casimirs is not None or casimir_names is not None:
            self.given_casimirs, self.given_names = trace_casimirs(self, casimirs, casimir_names)

    @property
    def constants(self) -> np.ndarray:
        """C."""
        return self._constants.value

    def bracket(self, xi: Float[Array, " n"], eta: Float[Array, " n"]) -> Float[Array, " n"]:
        """Σ_ij ξ_i η_j C[i, j, :]."""
        return self.ad(xi) @ eta

    def ad(self, xi: Float[Array, " n"]) -> Float[Array, "n n"]:
        """The matrix with entries Σ_i ξ_i C[i, j, k] in row k, column j."""
        return jnp.einsum("i,ijk->kj", xi, self.constants)

    def in_group(self, g: Float[Array, "k n n"]) -> bool:
        """Whether all are the identity, as those of commutative algebras are."""
        return bool(np.all(np.asarray(g) == np.eye(self.dim)))

    def ad_star(self, xi: Float[Array, " n"], mu: Float[Array, " n"]) -> Float[Array, " n"]:
        """Σ_ik ξ_i C[i, :, k] μ_k."""
        return mu @ self.ad(xi)


def _check_constants(C: np.ndarray) -> None:
    if C.dtype.kind not in "fiu":
        raise TypeError(f"C must be an array of real numbers, not of type {C.dtype}.")
    if C.ndim != 3 or len(set(C.shape)) != 1 or C.shape[0] == 0:
        raise ValueError(f"C must have shape (n, n, n), not {C.shape}.")
    if not np.all(np.isfinite(C)):
        i, j, k = np.argwhere(~np.isfinite(C))[0]
        raise ValueError(f"C[{i}, {j}, {k}] is {C[i, j, k]}: structure constants must be finite.")
    scale = max(np.abs(C).max(), 1e-300)
    asymmetry = np.abs(C + C.transpose(1, 0, 2))
    if asymmetry.max() > 1e-12 * scale:
        i, j, k = np.unravel_index(np.argmax(asymmetry), C.shape)
        raise ValueError(
            f"C is not antisymmetric: C[{i}, {j}, {k}] = {C[i, j, k]:g}, but C[{j}, {i}, {k}] = {C[j, i, k]:g}; "
            f"[e_{i}, e_{j}] must be −[e_{j}, e_{i}]."
        )
    double = np.einsum("ijl,lkm->ijkm", C, C)
    jacobi = np.abs(double + double.transpose(1, 2, 0, 3) + double.transpose(2, 0, 1, 3))
    if jacobi.max() > 1e-10 * scale**2:
        i, j, k, m = np.unravel_index(np.argmax(jacobi), jacobi.shape)
        raise ValueError(
            f"C breaks the Jacobi identity for (e_{i}, e_{j}, e_{k}): the cyclic sum of [[e_{i}, e_{j}], e_{k}] has "
            f"component {jacobi[i, j, k, m]:.3g} along e_{m}, not 0."
        )


def trace_casimirs(
    algebra: LieAlgebra, casimirs: Callable[[Array], Array] | None, names: Sequence[str] | None
) -> tuple[Constant, tuple[str, ...]]:
    """The traced Casimirs of a user, and their names. They are checked at a random state."""
    if casimirs is None:
        raise ValueError("casimir_names was given without casimirs: give both, or neither.")
    check_function("casimirs", casimirs, ("mu",))
    state = jax.ShapeDtypeStruct((algebra.dim,), jnp.float64)
    function = intern(casimirs, state)
    out = jax.eval_shape(function, state)
    if not hasattr(out, "shape") or len(out.shape) != 1:
        raise ValueError("casimirs(mu) must return a vector, one entry a Casimir, such as jnp.stack([...]).")
    names = tuple(names or (f"C{k + 1}" for k in range(out.shape[0])))
    if len(names) != out.shape[0]:
        raise ValueError(f"casimir_names has {len(names)} names, but casimirs(mu) returns {out.shape[0]} values.")
    mu = np.random.default_rng(0).standard_normal(algebra.dim)
    gradients, matrix = map(np.asarray, compile_and_run(lambda mu: (jax.jacrev(function)(mu), algebra.poisson(mu)), mu))
    rates = np.max(np.abs(gradients @ matrix), axis=1)
    scale = np.max(np.abs(gradients), axis=1) * (1 + np.abs(structure_constants(algebra)).max())
    bad = np.flatnonzero(~(rates <= 1e-8 * scale))
    if len(bad):
        raise ValueError(
            f"casimirs: the function named {names[bad[0]]!r} is not a Casimir: its Poisson bracket "
            f"with a coordinate is {rates[bad[0]]:.2e} at a random state, not 0."
        )
    return Constant(Function(function.code, [np.asarray(c) for c in function.consts])), names  # type: ignore[arg-type]
