"""Density matrices under von Neumann's equation with random Hermitian fields, on su(n)*."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex

from ..algebras.su import SU
from ..noises import salt
from ..numerics import validation
from ..systems import System
from .origin import model

_TOLERANCE = 1e-10  # by which matrices may fail to be Hermitian, and eigenvalues of ρ be below 0


@model
def density_matrix(
    H: Any = ((0.5, 0.0), (0.0, -0.5)),
    rho0: Any = (1.0, 1.0),
    *,
    noise: Any = None,
    drives: Sequence[tuple[Callable[..., Any], Any]] = (),
    mean_field: Callable[..., Any] | None = None,
) -> tuple[System, Array]:
    """A quantum system with n levels: von Neumann's equation with random unitary noise, in the units ħ = 1.

    The equation for the density matrix ρ is

        dρ = −i [H_e, ρ] dt − i Σ_k [L_k, ρ] ∘ dW_k,   H_e = H + Σ_j f_j(t) V_j + ∂E/∂ρ.

    All matrices are Hermitian: pass H, L_k and V_j themselves, not −i times them. The state is μ = −i(ρ − 1/n) in
    su(n)*; `models.density` returns ρ. The system is right-invariant, h = Tr(ρH) + Σ_j f_j Tr(ρV_j) + E, β_k = −iL_k.
    The eigenvalues of ρ are the Casimirs, so each trajectory is unitary and a pure state stays pure. The mean over the
    noise follows Lindblad's equation with the Hermitian jump operators L_k,

        d<ρ>/dt = −i [H, <ρ>] − ½ Σ_k [L_k, [L_k, <ρ>]],

    if H does not depend on ρ. General Lindblad dynamics, with jump operators that are not Hermitian, changes the
    eigenvalues of ρ and leaves the orbit; this model does not cover it.

    Parameters
    ----------
    H : array_like, shape (n, n), default diag(½, −½)
        The Hamiltonian.
    rho0 : array_like, shape (n,) or (n, n), default (1.0, 1.0)
        The initial state: a vector of any length but 0, or a density matrix.
    noise : array_like, shape (n, n) or (M, n, n), optional
        L_k. None means none.
    drives : sequence of pairs (f, V), default ()
        f(t) is a real function of time, such as one of `cj.inputs`, and V a matrix of shape (n, n).
    mean_field : callable, optional
        E(rho), a JAX function of the density matrix that returns one real number, the energy of the interaction.

    Returns
    -------
    system : System
        On su(n).
    mu0 : array, shape (n, n)
        The initial state μ.

    Raises
    ------
    TypeError, ValueError
        If a matrix has the wrong shape or is not Hermitian, or if `rho0` is no density matrix.
    """  # fmt: skip
    H = _hermitian("H", H, None)
    n = len(H)
    fields = [(_function(f), _hermitian("drives", V, n)) for f, V in drives]
    rho = _density(rho0, n)

    def energy(mu: Array, t: Array | None) -> Array:
        rho = density(mu)
        total = H if t is None else H + sum(f(t) * V for f, V in fields)
        h = jnp.real(jnp.sum(rho * jnp.asarray(total).T))
        return h if mean_field is None else h + mean_field(rho)

    hamiltonian = (lambda mu, t: energy(mu, t)) if fields else (lambda mu: energy(mu, None))
    noises = []
    if noise is not None:
        stack = np.asarray(noise)
        stack = stack[None] if stack.ndim == 2 else stack
        L = np.stack([_hermitian("noise", matrix, n) for matrix in stack])
        traces = np.trace(L, axis1=1, axis2=2)[:, None, None] / n
        noises = [salt(-1j * (L - traces * np.eye(n)))]
    return System(SU(n), hamiltonian, noises, side="right"), jnp.asarray(-1j * (rho - np.eye(n) / n))


def density(mu: Complex[Array, "*times n n"]) -> Complex[Array, "*times n n"]:
    """The density matrix ρ = iμ + 1/n of a state of `density_matrix`.

    Parameters
    ----------
    mu : array, shape (…, n, n)
        One state, or an array of states such as `sol.mu`.

    Returns
    -------
    array, shape (…, n, n)
    """
    n = mu.shape[-1]
    return 1j * jnp.asarray(mu) + jnp.eye(n) / n


def _hermitian(name: str, matrix: Any, n: int | None) -> np.ndarray:
    found = np.asarray(validation.numbers(name, matrix), complex)
    shape = "(n, n)" if n is None else f"({n}, {n})"
    if found.ndim != 2 or found.shape[0] != found.shape[1] or len(found) < 2 or n not in (None, len(found)):
        raise ValueError(f"{name} must have shape {shape}, not {found.shape}.")
    if not np.all(np.isfinite(found)):
        raise ValueError(f"{name} must be finite: it has a NaN or an infinity.")
    scale = max(1.0, float(np.max(np.abs(found))))
    if np.max(np.abs(found - found.conj().T)) > _TOLERANCE * scale:
        raise ValueError(f"{name} must be Hermitian. Pass the matrix itself, not −i times it.")
    return (found + found.conj().T) / 2


def _density(rho0: Any, n: int) -> np.ndarray:
    found = np.asarray(validation.numbers("rho0", rho0), complex)
    if found.shape == (n,):
        size = np.linalg.norm(found)
        if not np.isfinite(size) or size == 0.0:
            raise ValueError(f"rho0 must be finite and not 0, not {rho0!r}.")
        return np.outer(found, found.conj()) / size**2
    if found.shape != (n, n):
        raise ValueError(f"rho0 must be a vector of {n} numbers or a matrix of shape ({n}, {n}), not {found.shape}.")
    rho = _hermitian("rho0", found, n)
    if abs(np.trace(rho) - 1.0) > _TOLERANCE:
        raise ValueError(f"rho0 must have trace 1, not {np.trace(rho).real:.6g}.")
    if np.linalg.eigvalsh(rho)[0] < -_TOLERANCE:
        raise ValueError(f"rho0 must have no eigenvalue below 0, but it has {np.linalg.eigvalsh(rho)[0]:.3g}.")
    return rho


def _function(f: Any) -> Callable:
    if not callable(f):
        raise TypeError(f"drives must be pairs (f, V) with a function f(t), not {f!r}: take cj.inputs.constant(…).")
    try:
        inspect.signature(f).bind(0.0)
    except TypeError:
        raise TypeError(f"drives: {f!r} must be a function of the time alone.") from None
    return f
