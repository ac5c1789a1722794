"""A spacecraft with attitude, reaction wheels, thrusters and magnetic torquers on a Keplerian orbit."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from stepcompiler.device_arrays import to_device

from ..algebras.base import LieAlgebra
from ..algebras.product import Product
from ..algebras.so3 import SO3
from ..algebras.structure import StructureConstants
from ..controls import Hold
from ..noises import white_torque
from ..numerics import validation
from ..numerics.vectors import cross
from ..systems import System, salt
from .origin import model
from .rigid_body import check_alpha, check_inertia, velocity

_EARTH = 3.986004418e14  # G M of the Earth, m³/s²
_DIPOLE = 7.77e15  # T m³
_ACTUATORS = ("wheels", "thrusters", "dipole")


class _Parts(NamedTuple):
    """What a spacecraft has, besides its inertia."""

    wheels: int
    drift: bool
    orbit: bool
    commands: frozenset[str]  # the actuators with a law

    @property
    def algebra(self) -> LieAlgebra:
        own = [StructureConstants(np.zeros((n, n, n))) for n in (self.wheels, 3 * self.drift) if n]
        return Product(SO3(), *own) if own else SO3()

    @property
    def size(self) -> int:
        return 3 + self.wheels + 3 * self.drift


@model
def spacecraft(
    inertia: Any = (8.0, 10.0, 6.0),
    *,
    wheels: Any = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    thrusters: Any = None,
    orbit: Any = None,
    gravity: float = _EARTH,
    field: float = _DIPOLE,
    dipole: Any = (0.0, 0.0, 0.0),
    control: Any = None,
    params: dict | None = None,
    disturbance: Any = None,
    gyro_drift: Any = None,
    alpha: Any = None,
    start: Any = None,
) -> tuple[System, Array]:
    """A rigid spacecraft with reaction wheels, thrusters, magnetic torquers and a gravity-gradient torque.

    The state is (π, l) or (π, l, b). The first part π is the angular momentum of body and wheels in the body frame.
    Wheel i has the angular momentum l_i about its axis a_i. The last part b is the bias of the gyro. The equations are

        dπ = (π×ω + Σ_j u_j τ_j + (m + d)×B + (3GM/r³) o×Io) dt + π×α ∘ dW + D dW',
        dl_i = −u_i dt,   db = σ dW'',   ω = I⁻¹(π − Σ_i l_i a_i),   h = ½ (π − Σ_i l_i a_i)·ω.

    u_i is the torque of motor i on the body, u_j the throttle of thruster j, and m the dipole moment of the torquers.
    `control` sets them. The unit vector o = gᵀr/|r| points from the Earth to the spacecraft, and B = gᵀ b(r) is the
    field. Both are in the body frame. The group element g is the rotation from the body frame to inertial space. If the
    spacecraft has wheels or a gyro, g is a tuple with the rotation as its first entry. The third inertial axis is the
    pole of the Earth. Units are SI units.

    The position r(t) is that of a Kepler orbit. The field is that of an axial dipole with its south pole in the north,
    b(r) = (M/r³)(e₃ − 3 (e₃·r) r/r²). `models.orbit_position` and `models.magnetic_field` compute them for laws, and
    `models.body_rate` computes ω. Wheels have no friction. The inertia I does not contain the inertia of the wheels
    about their axes. The Hamiltonian h is the kinetic energy of the body. Without torques the Casimirs are |π|² and
    every l_i. References: Hughes, Spacecraft Attitude Dynamics (1986); Wertz, Spacecraft Attitude Determination and
    Control (1978).

    Parameters
    ----------
    inertia : array_like, shape (3,) or (3, 3), default (8.0, 10.0, 6.0)
        I in kg m²: the moments of inertia, or a symmetric tensor.
    wheels : array_like, shape (n, 3), default the three body axes
        The axes a_i, normalised here. None means no wheels.
    thrusters : array_like, shape (k, 3), optional
        τ_j in N m: the torque r×F of each thruster at the throttle 1.
    orbit : array_like, shape (6,), optional
        Semi-major axis in m, eccentricity, inclination, longitude of the node, argument of the pericentre, mean anomaly
        at t = 0; angles in rad. None means no gravity gradient and no magnetic field.
    gravity : float, default 3.986004418e14
        GM in m³/s².
    field : float, default 7.77e15
        M in T m³. 0 means no magnetic field.
    dipole : array_like, shape (3,), default (0.0, 0.0, 0.0)
        d in A m²: the residual dipole moment of the body.
    control : dict of Hold, optional
        Laws `cj.hold(law, every=k)` by actuator: "wheels" (n torques), "thrusters" (k throttles), "dipole" (3 numbers).
    params : dict, optional
        More entries of `params`, such as gains of the laws. Arguments above such as `inertia` and
        `wheels` are entries, too. The shape of an entry is fixed: to fit a tensor, pass `inertia` of shape (3, 3).
    disturbance : float or array_like, shape (3,) or (M, 3), optional
        D in N m √s: amplitudes of white torques. A number stands for one per axis.
    gyro_drift : float or array_like, shape (3,), optional
        σ in rad/s/√s. The state then contains b, which starts at 0. `models.Gyro` measures ω + b.
    alpha : array_like, shape (3,) or (M, 3), optional
        Amplitudes of SALT noise.
    start : array_like, optional
        The initial state, of 3 + n or 6 + n numbers. The default is rest. `g0=` of a run sets the initial attitude.

    Returns
    -------
    system : System
        Left-invariant, on so(3) or on its product with commutative algebras for l and b.
    mu0 : array
        The initial state.

    Raises
    ------
    TypeError, ValueError
        If a law has no actuator, an orbit is not an ellipse, or an array has the wrong shape.
    """  # fmt: skip
    numbers: dict[str, Any] = {"inertia": check_inertia(inertia)}
    if wheels is not None:
        numbers["wheels"] = _axes(wheels)
    if thrusters is not None:
        numbers["thrusters"] = _rows("thrusters", thrusters)
    if orbit is not None:
        numbers |= _orbit(orbit, gravity, field, dipole)
    elif not validation.is_traced(dipole) and np.any(validation.vector("dipole", dipole, 3)):
        raise ValueError(f"dipole = {dipole!r} needs the magnetic field of an orbit: give orbit= the six elements.")
    laws = _laws(control, numbers)
    drift = gyro_drift is not None
    parts = _Parts(len(numbers["wheels"]) if wheels is not None else 0, drift, orbit is not None, frozenset(laws))
    torque, noise = _torque(parts), []
    if alpha is not None:
        noise.append(salt(_padded(check_alpha(alpha), 0, parts.size)))
    if disturbance is not None:
        noise.append(white_torque(_padded(_amplitudes("disturbance", disturbance), 0, parts.size)))
    if drift:
        noise.append(white_torque(_padded(_amplitudes("gyro_drift", gyro_drift), parts.size - 3, parts.size)))
    system = System(
        parts.algebra,
        lambda mu, p: 0.5 * _own(mu, p) @ velocity(p["inertia"], _own(mu, p)),
        noise,
        params=numbers | _more(params, numbers),
        torque=() if torque is None else torque,
        control=laws or None,
    )
    mu0 = np.zeros(parts.size) if start is None else validation.vector("start", start, parts.size)
    return system, jnp.asarray(mu0)


def body_rate(mu: Array, p: dict) -> Float[Array, "3"]:
    """The angular velocity ω of a `spacecraft`, in the body frame, in rad/s.

    Parameters
    ----------
    mu : array
        The state.
    p : dict
        The params of the system.

    Returns
    -------
    array, shape (3,)
    """
    return velocity(p["inertia"], _own(mu, p))


def orbit_position(p: dict, t: Any) -> Float[Array, "3"]:
    """The position r(t) of a `spacecraft` on its Kepler orbit, in inertial space, in m.

    Parameters
    ----------
    p : dict
        The params of the system.
    t : float
        The time in s.

    Returns
    -------
    array, shape (3,)
    """
    distance, direction = _position(p, t)
    return distance * direction


def magnetic_field(p: dict, t: Any) -> Float[Array, "3"]:
    """The magnetic field at the position of a `spacecraft` with an orbit, in inertial space, in T.

    Parameters
    ----------
    p : dict
        The params of the system.
    t : float
        The time in s.

    Returns
    -------
    array, shape (3,)
    """
    return _dipole_field(p, *_position(p, t))


def _own(mu: Array, p: dict) -> Array:
    """Iω, the angular momentum of the body without the spin of its wheels."""
    return mu[:3] - mu[3 : 3 + len(p["wheels"])] @ p["wheels"] if "wheels" in p else mu[:3]


def _torque(parts: _Parts) -> Any:
    """The rate of change of the state by torques and motors; None if there is none."""

    def total(mu: Array, p: dict, t: Any, g: Any, u: dict) -> Array:
        torque, motors = jnp.zeros(3), jnp.zeros(parts.wheels)
        if "thrusters" in parts.commands:
            torque = torque + jnp.asarray(u["thrusters"]) @ p["thrusters"]
        if parts.orbit:
            distance, direction = _position(p, t)
            R = g[0] if isinstance(g, tuple) else g
            o, B = R.T @ direction, R.T @ _dipole_field(p, distance, direction)
            moment = p["inertia"] * o if p["inertia"].ndim == 1 else p["inertia"] @ o
            m = p["dipole"] + u["dipole"] if "dipole" in parts.commands else p["dipole"]
            torque = torque + 3.0 * p["gravity"] / distance**3 * cross(o, moment) + cross(m, B)
        if "wheels" in parts.commands:
            motors = -jnp.asarray(u["wheels"])
        return jnp.concatenate([torque, motors, jnp.zeros(3 * parts.drift)])

    if parts.orbit and parts.commands:
        return total
    if parts.orbit:
        return lambda mu, p, t, g: total(mu, p, t, g, {})
    return (lambda mu, p, u: total(mu, p, 0.0, None, u)) if parts.commands else None


def _position(p: dict, t: Any) -> tuple[Float[Array, ""], Float[Array, "3"]]:
    """The distance and the direction at time t."""
    a, e, inclination, node, pericentre, anomaly = p["orbit"]
    M = anomaly + jnp.sqrt(p["gravity"] / a**3) * t
    E = _eccentric_anomaly(M, e)
    shrunk = 1.0 - e * jnp.cos(E)
    x, y = (jnp.cos(E) - e) / shrunk, jnp.sqrt(1.0 - e * e) * jnp.sin(E) / shrunk
    (cw, sw), (ci, si), (cn, sn) = ((jnp.cos(x), jnp.sin(x)) for x in (pericentre, inclination, node))
    along, up = cw * x - sw * y, sw * x + cw * y  # in the plane of the orbit, from the node
    return a * shrunk, jnp.stack([cn * along - sn * ci * up, sn * along + cn * ci * up, si * up])


def _eccentric_anomaly(M: Any, e: Any) -> Any:
    """E − e sin E = M by Danby's starting value and four steps of order 4, exact to round-off for e ≤ 0.99."""
    E = M + 0.85 * e * jnp.where(jnp.sin(M) < 0.0, -1.0, 1.0)
    for _ in range(4):
        s, c = e * jnp.sin(E), e * jnp.cos(E)
        f, slope = E - s - M, 1.0 - c
        step = -f / slope
        step = -f / (slope + 0.5 * step * s)
        E = E - f / (slope + 0.5 * step * s + step * step * c / 6.0)
    return E


def _dipole_field(p: dict, distance: Array, direction: Array) -> Array:
    return p["field"] / distance**3 * (jnp.asarray([0.0, 0.0, 1.0]) - 3.0 * direction[2] * direction)


def _rows(name: str, value: Any) -> Array:
    """Finite vectors of three numbers, one per row."""
    rows = np.asarray(validation.numbers(name, value, kinds="fiu"), dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1] != 3 or not len(rows):
        raise ValueError(f"{name} must have shape (n, 3), one vector per row, not {rows.shape}.")
    return to_device(rows)


def _axes(wheels: Any) -> Array:
    rows = np.asarray(_rows("wheels", wheels))
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    if not np.all(lengths > 0):
        raise ValueError(f"wheels must have axes of a length above 0, not {rows.tolist()}.")
    return to_device(rows / lengths)


def _orbit(orbit: Any, gravity: Any, field: Any, dipole: Any) -> dict[str, Array]:
    """The params of an orbit. Traced ones are not checked."""
    if validation.is_traced((orbit, gravity, field, dipole)):
        return {"orbit": jnp.asarray(orbit), "gravity": jnp.asarray(gravity), "field": jnp.asarray(field),
                "dipole": jnp.asarray(dipole)}  # fmt: skip
    elements = validation.vector("orbit", orbit, 6)
    if not elements[0] > 0 or not 0 <= elements[1] <= 0.99:
        raise ValueError(
            "orbit must have a semi-major axis above 0 and an eccentricity between 0 and 0.99 as its first two "
            f"numbers, not {elements[0]:g} and {elements[1]:g}."
        )
    numbers = validation.positive("gravity", gravity), validation.finite("field", field)
    return {
        "orbit": to_device(elements),
        "gravity": to_device(np.float64(numbers[0])),
        "field": to_device(np.float64(numbers[1])),
        "dipole": to_device(validation.vector("dipole", dipole, 3)),
    }


def _laws(control: Any, numbers: dict) -> dict[str, Hold]:
    """The laws by actuator."""
    if control is None:
        return {}
    if not isinstance(control, dict) or not all(isinstance(law, Hold) for law in control.values()):
        raise TypeError('control must be a dict of laws by actuator, as in {"wheels": cj.hold(law, every=5)}.')
    for name in control:
        if name not in _ACTUATORS:
            raise ValueError(f"control[{name!r}] names no actuator. Actuators are {', '.join(_ACTUATORS)}.")
        if name not in numbers:
            other = "orbit" if name == "dipole" else name
            raise ValueError(f"control[{name!r}] needs {other}=, but the spacecraft has none.")
    return dict(control)


def _more(params: Any, numbers: dict) -> dict:
    """More params of the user, under names of their own."""
    if params is None:
        return {}
    if not isinstance(params, dict):
        raise TypeError(f"params must be a dict of more entries, not a {type(params).__name__}.")
    twice = sorted(set(params) & set(numbers))
    if twice:
        raise ValueError(f"params must not have the entry {twice[0]!r}: it is the argument {twice[0]}= of the model.")
    return params


def _amplitudes(name: str, value: Any) -> np.ndarray:
    """Rows of three numbers: those of a number or, for the gyro, of three are diagonal."""
    array = np.asarray(validation.numbers(name, value, kinds="fiu"), dtype=np.float64)
    if array.ndim == 0:
        return array * np.eye(3)
    if array.shape == (3,):
        return np.diag(array)
    if array.ndim != 2 or array.shape[1] != 3 or not len(array) or name == "gyro_drift":
        more = "" if name == "gyro_drift" else ", or rows of shape (M, 3)"
        raise ValueError(f"{name} must be one number or three{more}, not of shape {array.shape}.")
    return array


def _padded(rows: Any, at: int, size: int) -> Array:
    """Rows of three numbers as rows of a state, from the component `at` on."""
    return jnp.zeros((len(rows), size)).at[:, at : at + 3].set(rows)
