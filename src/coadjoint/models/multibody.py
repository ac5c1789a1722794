"""Rigid bodies that are coupled by springs and stiff joints, on SE(3)^N."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from ..algebras.product import Product
from ..algebras.se3 import SE3
from ..numerics import validation
from ..systems import System, salt
from .origin import model
from .spin_chain import numbers


@model
def multibody(
    masses: Any = (1.0, 1.0),
    inertia: Any = (0.1, 0.1, 0.02),
    *,
    positions: Any = ((0.0, 0.0, -0.5), (0.0, 0.0, -1.5)),
    joints: Any = ((-1, 0), (0, 1)),
    anchors: Any = (((0.0, 0.0, 0.0), (0.0, 0.0, 0.5)), ((0.0, 0.0, -0.5), (0.0, 0.0, 0.5))),
    stiffness: Any = 1e4,
    length: Any = 0.0,
    bending: Any = 0.0,
    damping: Any = 0.0,
    gravity: Any = (0.0, 0.0, -9.81),
    alpha: Any = None,
    start: Any = None,
) -> tuple[System, Array]:
    """N rigid bodies that are coupled by springs, stiff joints and dampers. The default is a double pendulum in space.

    Body i has the state (π_i, γ_i), its angular and linear momentum in its own frame. Its group element g_i has the
    rotation R_i and the displacement x_i − X_i of its centre of mass from the reference position X_i. So the identity
    is the reference configuration, in which all body frames are parallel to the frame of space. The equations are

        π_i' = π_i×ω_i + torque,   γ_i' = γ_i×ω_i + force,   ω_i = I_i⁻¹ π_i,   R_i' = R_i ω_i^,   x_i' = R_i γ_i/m_i,
        h = Σ_i ( ½ π_i·ω_i + |γ_i|²/2m_i − m_i x_i·f ) + Σ_n ( ½ k (|d| − L)² + κ (1 − cos θ) ),
        d = x_b + R_b r_b − x_a − R_a r_a,

    with the derivatives of h as forces and torques. f is the acceleration of gravity. Joint n connects the point r_a
    of body a with the point r_b of body b. A joint with L = 0 is a ball joint of the stiffness k. A joint with L > 0
    is a spring. θ is the angle of the rotation between both frames, so κ stiffens the joint against bending and
    torsion. A damper acts on both points: the force −c d' on b, and its opposite on a. The body −1 is space.

    The time step must resolve the oscillations of stiff joints, whose angular frequency is about √(k/m) for explicit
    methods. Without damping and noise `DiscreteGradient()` conserves h. It has no Casimirs, because h depends on g.

    Parameters
    ----------
    masses : array_like, shape (N,), default (1.0, 1.0)
        m_i.
    inertia : array_like, shape (3,) or (N, 3), default (0.1, 0.1, 0.02)
        The principal moments I_i, along the axes of the body frame.
    positions : array_like, shape (N, 3)
        X_i. By default two bodies hang below the origin.
    joints : array_like of int, shape (n, 2)
        The bodies a and b of each joint, counted from 0. −1 is space.
    anchors : array_like, shape (n, 2, 3)
        r_a and r_b in the frames of the bodies.
    stiffness, length, bending, damping : float or array_like, shape (n,)
        k, L, κ and c, by default 1e4, 0.0, 0.0 and 0.0.
    gravity : array_like, shape (3,), default (0.0, 0.0, -9.81)
        f.
    alpha : float, optional
        The amplitude of independent SALT noise on each component of each state. None means no noise.
    start : array_like, shape (6N,), optional
        The initial (π_1, γ_1, π_2, …). The default is rest. `g0=` of a run sets the initial displacements, as N 4×4
        matrices.

    Returns
    -------
    system : System
        Left-invariant, on se(3)^N, with attitude. All numbers except `joints`, `positions` and `alpha` are in `params`;
        `length`, `bending` and `damping` only if they are not 0.
    mu0 : array, shape (6N,)
        The initial state.

    Raises
    ------
    TypeError, ValueError
        If a joint connects a body that does not exist, or an array has the wrong shape.
    """  # fmt: skip
    m = np.asarray(validation.numbers("masses", masses, kinds="fiu"), dtype=np.float64)
    if m.ndim != 1 or not len(m) or not np.all(np.isfinite(m)) or not np.all(m > 0):
        raise ValueError(f"masses must be numbers above 0, one per body, not {m.tolist()}.")
    n, pairs = len(m), _pairs(joints, len(m))
    params = {"masses": jnp.asarray(m), "inertia": numbers("inertia", inertia, ((3,), (n, 3)))}
    if not validation.is_traced(inertia) and not np.all(np.asarray(inertia) > 0):
        raise ValueError(f"inertia must be moments above 0, not {np.asarray(inertia).tolist()}.")
    params["anchors"] = numbers("anchors", anchors, ((len(pairs), 2, 3),))
    params["gravity"] = numbers("gravity", gravity, ((3,),))
    params["stiffness"] = numbers("stiffness", stiffness, ((), (len(pairs),)))
    for name, value in (("length", length), ("bending", bending), ("damping", damping)):
        array = numbers(name, value, ((), (len(pairs),)))
        if validation.is_traced(value) or np.any(np.asarray(array)):
            params[name] = array
    X = np.asarray(numbers("positions", positions, ((n, 3),)))
    size = 6 * n
    noise = [] if alpha is None else [salt(validation.finite("alpha", alpha) * np.eye(size))]
    torque = _dampers(pairs) if "damping" in params else ()
    system = System(Product(SE3(), copies=n), _energy(X, pairs), noise, params=params, torque=torque)
    mu0 = np.zeros(size) if start is None else validation.vector("start", start, size)
    return system, jnp.asarray(mu0)


def _energy(X: np.ndarray, pairs: Int[np.ndarray, "joints 2"]) -> Any:
    """h(μ, params, g)."""
    n = len(X)

    def h(mu: Array, p: dict, g: Array) -> Array:
        x, R = _poses(X, g)
        pi, gamma = mu.reshape(n, 2, 3)[:, 0], mu.reshape(n, 2, 3)[:, 1]
        kinetic = jnp.sum(pi * pi / p["inertia"]) + jnp.sum(gamma * gamma / p["masses"][:, None])
        d = _gaps(x, R, pairs, p)
        square = jnp.sum(d * d, axis=1)
        if "length" in p:
            L = p["length"]
            distance = jnp.sqrt(jnp.where(square > 0.0, square, 1.0))
            square = square - 2.0 * L * jnp.where(square > 0.0, distance, 0.0) + L * L
        joints = 0.5 * p["stiffness"] * square
        if "bending" in p:
            cosine = 0.5 * (jnp.sum(R[pairs[:, 0]] * R[pairs[:, 1]], axis=(1, 2)) - 1.0)
            joints = joints + p["bending"] * (1.0 - cosine)
        return 0.5 * kinetic - jnp.sum(p["masses"] * (x[:n] @ p["gravity"])) + jnp.sum(joints)

    return h


def _dampers(pairs: Int[np.ndarray, "joints 2"]) -> Any:
    """The torques and forces of dampers, f(μ, params, g)."""

    def torque(mu: Array, p: dict, g: Array) -> Array:
        n = len(p["masses"])
        R = _poses(np.zeros((n, 3)), g)[1]
        pi, gamma = mu.reshape(n, 2, 3)[:, 0], mu.reshape(n, 2, 3)[:, 1]
        still = jnp.zeros((1, 3))
        omega = jnp.concatenate([pi / p["inertia"], still])
        v = jnp.concatenate([gamma / p["masses"][:, None], still])
        a, b = pairs.T
        r = p["anchors"]
        points = lambda i, r: _turned(R[i], v[i] + jnp.cross(omega[i], r))  # velocities in space
        force = jnp.reshape(p["damping"], (-1, 1)) * (points(a, r[:, 0]) - points(b, r[:, 1]))  # on b
        total = jnp.zeros((n, 2, 3))
        for k, (i, j) in enumerate(pairs):
            for body, point, sign in ((i, r[k, 0], -1.0), (j, r[k, 1], 1.0)):
                if body >= 0:
                    own = sign * force[k] @ R[body]
                    total = total.at[body].add(jnp.stack([jnp.cross(point, own), own]))
        return total.reshape(-1)

    return torque


def _poses(X: np.ndarray, g: Array) -> tuple[Array, Array]:
    """Positions and rotations of the bodies, and of space as the last one."""
    g = g.reshape(len(X), 4, 4)  # one body alone has no axis
    x = jnp.concatenate([X + g[:, :3, 3], jnp.zeros((1, 3))])
    return x, jnp.concatenate([g[:, :3, :3], jnp.eye(3)[None]])


def _gaps(x: Array, R: Array, pairs: np.ndarray, p: dict) -> Array:
    """d of each joint."""
    a, b = pairs.T
    r = p["anchors"]
    return x[b] + _turned(R[b], r[:, 1]) - x[a] - _turned(R[a], r[:, 0])


def _turned(R: Array, r: Array) -> Array:
    return jnp.sum(R * r[:, None, :], axis=2)


def _pairs(joints: Any, n: int) -> Int[np.ndarray, "joints 2"]:
    """The bodies of each joint; −1 is space, as the last entry of `_poses`."""
    if validation.is_traced(joints):
        raise TypeError("joints must be known before the run; they cannot be traced.")
    pairs = np.asarray(validation.numbers("joints", joints, "pairs of whole numbers", "iu"))
    if pairs.ndim != 2 or pairs.shape[1] != 2 or not len(pairs):
        raise ValueError(f"joints must have shape (n, 2), two bodies per joint, not {pairs.shape}.")
    wrong = [(int(a), int(b)) for a, b in pairs if a == b or min(a, b) < -1 or max(a, b) >= n]
    if wrong:
        raise ValueError(f"joints must connect two of the bodies 0 to {n - 1}, or −1 for space, not {wrong[0]}.")
    return pairs
