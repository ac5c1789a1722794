"""The drift that areas of a path produce: Wong–Zakai corrections."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from stepcompiler.jaxprs.interning import intern

from .algebras.base import Element, State
from .callables import received_values
from .noises import Stirring
from .numerics import validation
from .params import Context
from .systems import System


def area_drift(system: System, areas: Any) -> System:
    """The system with the drift that smooth approximations of its noise leave behind (Wong–Zakai).

    Let smooth paths converge to S, and let their areas ½∫(S^i dS^j − S^j dS^i) grow by s_ij dt more than those of S.
    Then the solutions converge to those of

        dμ = s (ad*_{∂h/∂μ + g} μ dt + Σ_i ad*_{∂h_i/∂μ} μ ∘ dS^i),   g = s Σ_{i<j} s_ij c_ij(μ),
        c_ij = [∂h_i, ∂h_j] + D²h_j ad*_{∂h_i} μ − D²h_i ad*_{∂h_j} μ,

    with s = ±1 from the side of the system. For SALT noise c_ij = [β_i, β_j]. The drift c_ij is the gradient of
    <μ, [∂h_i, ∂h_j]>, so the motion stays on the coadjoint orbit. It is added to the forcing, and the energy remains h.

    Parameters
    ----------
    system : System
        A system with at least two noises.
    areas : array_like, shape (M, M)
        The antisymmetric matrix s_ij, in units of S² per time.

    Returns
    -------
    System
        The system with one more forcing.

    Raises
    ------
    TypeError, ValueError
        If `areas` is not a finite antisymmetric matrix of this size, or if the system has stirring or white torques.

    References
    ----------
    Diamantakis, Holm and Pavliotis, Variational principles on geometric rough paths and the Lévy area correction
    (2023).

    Examples
    --------
    >>> import coadjoint as cj
    >>> system, mu0 = cj.models.rigid_body(alpha=[[0.1, 0, 0], [0, 0.1, 0]])
    >>> drifting = cj.area_drift(system, [[0.0, 0.5], [-0.5, 0.0]])
    """  # fmt: skip
    if not isinstance(system, System):
        raise TypeError(f"system must be a System, not {type(system).__name__}.")
    if any(isinstance(n, Stirring) for n in system.noises):
        raise ValueError("area_drift does not support white noise in a torque or stirring of a fluid.")
    if "g" in system.noise_receives:
        raise ValueError("area_drift does not support noise that depends on the group element g.")
    A = _antisymmetric(areas, system.n_noise)

    def drift(mu: State, *last: PyTree) -> Element:
        now = system
        if system.received:
            now = system.given(last[0].params).at(last[0].t, last[0].g, last[0].u)
        elif last:
            now = system.given(last[0])
        return area_term(now, mu, jnp.asarray(A))

    algebra = system.algebra
    last: tuple = () if system.params is None else (system.params,)
    if system.received:
        last = (Context(system.params, **received_values(algebra, system.received, system.control_zero)),)
    structs = jax.tree.map(lambda x: jax.ShapeDtypeStruct(jnp.shape(x), jnp.asarray(x).dtype), last)
    force = intern(drift, jax.ShapeDtypeStruct(algebra.shape, algebra.dtype), *structs)
    return system._with(forces=(*system.forces, force))


def area_term(system: System, mu: State, A: Float[Array, "M M"]) -> Element:
    """s Σ_{i<j} A_ij c_ij(μ) = s Σ_j (½ [b_j, ∂h_j] + D²h_j ad*_{b_j} μ), b_j = Σ_i A_ij ∂h_i: M terms, not M²."""
    algebra = system.algebra

    def term(e: Float[Array, " M"], column: Float[Array, " M"]) -> Element:
        b = system.noise(mu, column)
        if system.additive:
            return 0.5 * algebra.bracket(b, system.noise(mu, e))
        field, derivative = jax.jvp(lambda m: system.noise(m, e), (mu,), (algebra.ad_star(b, mu),))
        return 0.5 * algebra.bracket(b, field) + derivative

    return system.sign * jnp.sum(jax.vmap(term)(jnp.eye(len(A)), A.T), axis=0)


def _antisymmetric(areas: Any, M: int) -> Array | np.ndarray:
    given = validation.numbers("areas", areas, "a matrix of real numbers", "fiu")
    if given.shape != (M, M):
        raise ValueError(f"areas must have shape {(M, M)}, one row per noise of the system, not {given.shape}.")
    if validation.is_traced(given):
        return given
    host = np.asarray(given, np.float64)
    if not np.all(np.isfinite(host)):
        raise ValueError("areas must be finite.")
    if np.max(np.abs(host + host.T), initial=0.0) > 1e-12 * np.max(np.abs(host), initial=0.0):
        raise ValueError("areas must be antisymmetric: areas[i, j] = −areas[j, i].")
    return host
