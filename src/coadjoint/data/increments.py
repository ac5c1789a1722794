"""`calibrate_increments`: noise fields of a system from increments of its states."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..drivers import Increments
from ..integrators.base import Integrator
from ..integrators.tmk import TMK
from ..numerics import validation
from ..runtime.ensemble import ensemble
from ..systems import System
from .coarse_grain import check_finite
from .noise import CalibratedNoise

_ROWS = 4096  # increments that are treated at once
_LARGEST = 64  # elements of a basis


def calibrate_increments(
    system: System,
    states: Any,
    *,
    dt: float,
    steps: int = 1,
    basis: Any = None,
    fields: int | None = None,
    variance: float = 1.0,
    integrator: Integrator = TMK(),
) -> CalibratedNoise:
    """Noise fields of a system from its states at the times n dt.

    An increment beyond the flow without noise has the covariance dt Σ_k v_k v_kᵀ, v_k = ad*_{β_k} μ. So B = Σ_k β_k ⊗
    β_k, which determines the distribution of the noise, is the solution of a linear least squares problem:

        min_B Σ_n |Δ_n Δ_nᵀ/dt − A(μ_n) B A(μ_n)ᵀ|²,   Δ_n = μ_{n+1} − φ_dt(μ_n),   A(μ) ξ = ad*_ξ μ.

    Standard errors come from the residuals of the independent increments. The bias is of order dt. The fields are the
    eigenvectors of B, so they have B, but not each β_k, in common with the noise that made the data.

    Parameters
    ----------
    system : System
        The system of the data. Its noise, if it has any, is left out.
    states : array, shape (times, *state) or (members, times, *state)
        The states of one trajectory or several.
    dt : float
        The interval between states.
    steps : int, default 1
        The number of time steps of φ_dt.
    basis : array, shape (K, *element), optional
        Elements of the algebra that span the fields. B then has K² entries. The default is the whole algebra, in the
        coordinates of `algebra.coordinates`.
    fields : int, optional
        The largest number of fields.
    variance : float, default 1.0
        The share of the trace of B that the fields explain.
    integrator : Integrator, default TMK()
        The method of φ_dt.

    Returns
    -------
    CalibratedNoise
        `covariance` is B and `standard_error` its standard errors.

    Raises
    ------
    ValueError, TypeError
        If states are not finite or do not fit, if there are fewer increments than entries of B, or if the increments do
        not determine B.

    Examples
    --------
    >>> import coadjoint as cj
    >>> spin = cj.System(cj.SO3(), lambda m: m[2], noise=[cj.salt([0.3, 0.0, 0.4])])
    >>> run = cj.solve(spin, [0.6, 0.0, 0.8], t1=20.0, dt=0.01, key=0)
    >>> cj.data.calibrate_increments(spin, run.mu, dt=0.01, fields=1)
    CalibratedNoise: 1 field on the algebra, 99 % of the variance, white
    """  # fmt: skip
    if not isinstance(system, System):
        raise TypeError(f"system must be a System, not {type(system).__name__}.")
    dt, steps = validation.positive("dt", dt), validation.count("steps", steps)
    if not 0 < validation.finite("variance", variance) <= 1:
        raise ValueError(f"variance must be above 0 and at most 1, not {variance!r}.")
    algebra = system.algebra
    paths = _paths(algebra, states)
    basis = _basis(algebra, basis)
    K = len(basis)
    start = paths[:, :-1].reshape(-1, *algebra.shape)
    entries = K * (K + 1) // 2
    if len(start) < entries:
        raise ValueError(f"{len(start)} increments are too few for the {entries} entries of Σ β ⊗ β.")
    moved = _moved(system, start, dt, steps, integrator)
    delta = paths[:, 1:].reshape(start.shape) - moved
    B, error = _fitted(algebra, basis, start, delta, dt)
    eigenvalues, vectors = np.linalg.eigh(B)
    order = np.argsort(eigenvalues)[::-1]
    power = np.maximum(eigenvalues[order], 0.0)
    if not power.sum():
        raise ValueError("the increments have no noise along the orbit: Σ β ⊗ β has no positive eigenvalue.")
    shares = power / power.sum()
    M = int(np.searchsorted(np.cumsum(shares), variance * (1 - 1e-12))) + 1
    M = max(1, min(M, int(np.sum(power > 0)), K if fields is None else validation.count("fields", fields)))
    beta = np.tensordot((vectors[:, order] * np.sqrt(power)).T[:M], basis, axes=1)
    return CalibratedNoise(beta, variance=shares[:M], covariance=B, standard_error=error)


def _paths(algebra: Any, states: Any) -> np.ndarray:
    """The states with an axis of members."""
    given = np.asarray(validation.numbers("states", states))
    inner = len(algebra.shape)
    if given.ndim not in (inner + 1, inner + 2) or given.shape[given.ndim - inner :] != algebra.shape:
        raise ValueError(
            f"states must have shape (times, {', '.join(map(str, algebra.shape))}), or with members in front, not "
            f"{given.shape}."
        )
    paths = given[None] if given.ndim == inner + 1 else given
    if paths.shape[1] < 2:
        raise ValueError("states need two times at least.")
    check_finite("states", np.moveaxis(paths, 1, 0), np.arange(paths.shape[1]))
    return paths


def _basis(algebra: Any, basis: Any) -> np.ndarray:
    if basis is None:
        if algebra.dim > _LARGEST:
            raise ValueError(
                f"the algebra has dimension {algebra.dim}, so Σ β ⊗ β has too many entries: give a basis of at most "
                f"{_LARGEST} elements."
            )
        return np.asarray(jax.vmap(algebra.element)(jnp.eye(algebra.dim)))
    found = np.asarray(validation.numbers("basis", basis))
    if found.shape[1:] != algebra.shape or not 0 < len(found) <= _LARGEST:
        raise ValueError(
            f"basis must be 1 to {_LARGEST} elements of the algebra, of shape {algebra.shape}, not {found.shape}."
        )
    return found


def _moved(system: System, start: np.ndarray, dt: float, steps: int, integrator: Integrator) -> np.ndarray:
    """The states after dt without noise."""
    if system.timed:
        raise ValueError("calibrate_increments does not support functions of the time t.")
    driver = Increments(np.zeros((steps, system.n_noise))) if system.n_noise else None
    ens = ensemble(
        system, start, members=len(start), t1=dt, dt=dt / steps, driver=driver, save_every=steps, integrator=integrator
    )
    return np.asarray(ens.mu)[:, -1]


def _fitted(
    algebra: Any, basis: np.ndarray, start: np.ndarray, delta: np.ndarray, dt: float
) -> tuple[np.ndarray, np.ndarray]:
    """B and its standard errors, from normal equations in the entries on and above the diagonal."""
    K = len(basis)
    first, second = np.triu_indices(K)
    count = len(first)
    twice = np.where(first == second, 1.0, 2.0)
    stack = jnp.asarray(basis)

    @jax.jit
    def products(mu: Any, d: Any) -> tuple[Any, Any]:
        """The matrices VᵀV and Vᵀ Δ of some increments, with the columns v_k = ad*_{β_k} μ of V."""

        def one(m: Any, x: Any) -> tuple[Any, Any]:
            V = jax.vmap(lambda xi: algebra.coordinates(algebra.ad_star(xi, m)))(stack)
            return V @ V.T, V @ algebra.coordinates(x)

        return jax.vmap(one)(mu, d)

    def blocks() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for at in range(0, len(start), _ROWS):
            G, y = products(jnp.asarray(start[at : at + _ROWS]), jnp.asarray(delta[at : at + _ROWS]))
            yield np.asarray(G), np.asarray(y)

    H, r = np.zeros((count, count)), np.zeros(count)
    for G, y in blocks():  # row (i, j), column (k, l): the coefficient of B_kl in (Vᵀ A B Aᵀ V)_ij
        a, b = G[:, first][:, :, first], G[:, second][:, :, second]
        c, d = G[:, first][:, :, second], G[:, second][:, :, first]
        H += np.einsum("nij,nij->ij", a, b) + np.einsum("nij,nij->ij", c, d)
        r += np.sum(y[:, first] * y[:, second], axis=0) / dt
    H *= 0.5 * twice
    scale = np.sqrt(np.abs(np.diag(H)))
    if not np.all(scale > 0) or np.linalg.cond(H / np.outer(scale, scale)) > 1e10:
        raise ValueError(
            "the states do not determine Σ β ⊗ β: some elements of the basis move no state, or move all states alike. "
            "Take states from more of the orbit, or a smaller basis."
        )
    inverse = np.linalg.inv(H)
    b = inverse @ r
    B = np.zeros((K, K))
    B[first, second] = B[second, first] = b
    S = np.zeros((count, count))
    for G, y in blocks():
        e = y[:, first] * y[:, second] / dt - np.einsum("nik,kl,nlj->nij", G, B, G, optimize=True)[:, first, second]
        S += e.T @ e
    variances = np.diag(inverse @ S @ inverse.T)
    error = np.zeros((K, K))
    error[first, second] = error[second, first] = np.sqrt(np.maximum(variances, 0.0))
    return B, error
