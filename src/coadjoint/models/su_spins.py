"""Spins with N levels on a periodic lattice, on su(N)* for each spin: quantum spins in product states."""

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..algebras.product import Product
from ..algebras.su import SU
from ..numerics import random, validation
from ..systems import System
from .origin import model
from .spin_chain import numbers
from .spin_lattice import lattice


@model
def su_spins(
    shape: Any = (8, 8),
    *,
    levels: int = 3,
    coupling: float = 1.0,
    biquadratic: float = 0.0,
    anisotropy: float = 0.0,
    field: Any = (0.0, 0.0, 0.0),
    key: Any = 0,
    Z0: Any = None,
    side: Literal["left", "right"] = "left",
) -> tuple[System, Array]:
    """SU(N) spins on a periodic chain, square or cubic lattice: quantum spins s = (N − 1)/2 in product states.

    The Hamiltonian, over nearest neighbours with each bond once, is

        h = Σ ( −J <S_i>·<S_j> − K <(S_i·S_j)²> ) + Σ_i ( ½ d <(S_i^z)²> − B·<S_i> ),   <A> = Tr(ρ_i A),

    with <(S_i·S_j)²> = Σ_ab <S_i^a S_i^b> <S_j^a S_j^b>. A site has the density matrix ρ_i = |z_i><z_i| in C^N. Its
    state is μ_i = −i(ρ_i − 1/N) in su(N)*. With H_i = ∂h/∂ρ_i the equation is ρ_i' = i [H_i, ρ_i]. If h depends on
    <S_i> alone, then <S_i>' = <S_i> × ∂h/∂<S_i>. This is the time direction of `spin_lattice` and the reverse of
    Schrödinger's equation z' = −iHz; `side="right"` follows Schrödinger's equation. N = 2 is `spin_lattice` with spins
    of length ½. For N > 2 the lengths of spins change, and there are quadrupoles. The eigenvalues of all μ_i are the
    Casimirs. Reference: Zhang and Batista, Classical spin dynamics based on SU(N) coherent states (2021).

    Parameters
    ----------
    shape : int or sequence of int, default (8, 8)
        One to three numbers of spins, each at least 3.
    levels : int, default 3
        N.
    coupling, biquadratic, anisotropy : float
        J, K and d, by default 1.0, 0.0 and 0.0. Entries of `params`, as is B.
    field : array_like, shape (3,), default (0.0, 0.0, 0.0)
        B.
    key : int or JAX key, default 0
        Selects the random initial state.
    Z0 : array_like, shape (*shape, N), complex, optional
        The initial vectors z_i, of any lengths but 0. The default is uniform on the sphere.
    side : {"left", "right"}, default "left"
        "left" for ρ_i' = i [H_i, ρ_i], "right" for ρ_i' = −i [H_i, ρ_i], Schrödinger's equation.

    Returns
    -------
    system : System
        On su(N)ⁿ.
    mu0 : array
        The initial state, N² − 1 coordinates per spin. `models.expectations` computes <A> at each site.
    """  # fmt: skip
    sizes = lattice(shape)
    N = validation.count("levels", levels, least=2)
    n, axes, S = int(np.prod(sizes)), len(sizes), spin_matrices(N)
    params = {
        "coupling": numbers("coupling", coupling, ((),)),
        "biquadratic": numbers("biquadratic", biquadratic, ((),)),
        "anisotropy": numbers("anisotropy", anisotropy, ((),)),
        "field": numbers("field", field, ((3,),)),
    }
    start = _coherent(_random(n, N, key) if Z0 is None else _amplitudes(Z0, (*sizes, N)), N)
    pairs = np.einsum("aij,bjk->abik", S, S)
    symmetric = (pairs + pairs.swapaxes(0, 1)) / 2  # the rest, iS/2, is in <S> already
    above = [(a, b) for a in range(3) for b in range(a, 3)]
    operators = np.stack([*S, *(symmetric[a, b] for a, b in above)])
    weights = np.array([1.0 if a == b else 2.0 for a, b in above])

    def hamiltonian(mu: Array, p: dict) -> Array:
        values = expectations(mu, operators).reshape(*sizes, len(operators))
        spins, quadrupoles = values[..., :3], values[..., 3:]
        h = 0.5 * p["anisotropy"] * jnp.sum(quadrupoles[..., above.index((2, 2))]) - jnp.sum(p["field"] * spins)
        for a in range(axes):
            dipoles = jnp.sum(spins * jnp.roll(spins, -1, axis=a))
            squares = jnp.sum(weights * quadrupoles * jnp.roll(quadrupoles, -1, axis=a)) - 0.5 * dipoles
            h = h - p["coupling"] * dipoles - p["biquadratic"] * squares
        return h

    return System(Product(SU(N), copies=n), hamiltonian, params=params, side=side), start


def spin_matrices(levels: int) -> np.ndarray:
    """S^x, S^y, S^z of the spin s = (N − 1)/2, S^z diagonal from s to −s."""
    s = (levels - 1) / 2
    m = s - np.arange(levels)
    up = np.diag(np.sqrt(s * (s + 1) - m[1:] * (m[1:] + 1)), 1)
    return np.stack([0.5 * (up + up.T), -0.5j * (up - up.T), np.diag(m)])


def expectations(mu: Array, operators: Any) -> Array:
    """The expectations Tr(ρ_i A) at each site, from states of `su_spins`.

    Parameters
    ----------
    mu : array, shape (…, sites (N² − 1))
        One state, or an array of states.
    operators : array_like, shape (N, N) or (k, N, N)
        Hermitian matrices A.

    Returns
    -------
    array, shape (…, sites) or (…, sites, k)
    """
    A = np.asarray(operators, complex)
    stack = A if A.ndim == 3 else A[None]
    N = stack.shape[-1]
    if stack.shape[1:] != (N, N) or N < 2 or mu.shape[-1] % (N * N - 1):
        raise ValueError(f"operators must be square matrices, or one, that fit the state, not shape {A.shape}.")
    if not np.allclose(stack, stack.conj().swapaxes(1, 2)):
        raise ValueError("operators must be Hermitian.")
    with jax.ensure_compile_time_eval():
        units = np.asarray(jax.vmap(SU(N).element)(jnp.eye(N * N - 1)))
    rows = np.einsum("aij,kji->ak", stack, 1j * units).real  # ρ = iμ + 1/N
    sites = mu.reshape(*mu.shape[:-1], -1, N * N - 1)
    values = sites @ rows.T + np.einsum("aii->a", stack).real / N
    return values if A.ndim == 3 else values[..., 0]


def _coherent(z: np.ndarray, N: int) -> Array:
    """The coordinates of −i(|z><z| − 1/N), z normalised, site after site."""
    z = z.reshape(-1, N)
    z = z / np.linalg.norm(z, axis=1, keepdims=True)
    rho = z[:, :, None] * z[:, None, :].conj()
    return jax.vmap(SU(N).coordinates)(jnp.asarray(-1j * (rho - np.eye(N) / N))).reshape(-1)


def _random(n: int, N: int, key: Any) -> np.ndarray:
    """Amplitudes that are uniform on the sphere. The first spins of a larger lattice are those of a smaller one."""
    x = np.asarray(random.initial_normals(key, 2 * N, n))
    return x[:, :N] + 1j * x[:, N:]


def _amplitudes(Z0: Any, shape: tuple[int, ...]) -> np.ndarray:
    try:
        z = np.asarray(Z0, complex)
    except (TypeError, ValueError):
        raise TypeError(f"Z0 must be complex numbers, not {Z0!r}.") from None
    if z.shape != shape:
        raise ValueError(f"Z0 must have shape {shape}, not shape {z.shape}.")
    if not np.all(np.isfinite(z)) or not np.all(np.linalg.norm(z, axis=-1) > 0):
        raise ValueError("Z0 must be finite, and no amplitude may vanish.")
    return z
