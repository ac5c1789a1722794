"""An ensemble Kalman filter that moves each member by an element of the group."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float

from stepcompiler.jaxprs.interning import Constant

from ..algebras.base import LieAlgebra
from ..algebras.casimirs import knows_all_casimirs, project_casimirs
from ..numerics import validation
from ..runtime.lapack_lock import run_exclusive
from ..runtime.saved_values import MemberFunction
from ..systems import System
from .filtering import Filter, Problem, Row
from .filtering_state import FilterError, FilterState, Members, Segment
from .observations import Gaussian, Observation
from .particle_filter import check_finite
from .windows import PERTURBATIONS, Windows


class GroupKalman(Filter):
    """An ensemble Kalman filter with an update that is a group action, so that members stay on their orbits.

    The anomaly of member j is written as a motion along its orbit: η_j is the element with

        ad*_{η_j} μ_j ≈ μ_j − μ̄,

    by ridge regression, centred and divided by √(N − 1). The response of the observation H of member i is
    Y_i = (DH(μ_i) ad*_{η_j} μ_i)_j. With perturbed observations y + ε_i, member i moves by

        a_i = Y_i (Y_iᵀ Y_i + R)⁻¹ (y + ε_i − H(μ_i)),   ξ_i = Σ_j a_ij η_j,   μ_i ← flow(ξ_i, μ_i).

    Unknown parameters are estimated by the same coefficients. The evidence is that of normally distributed forecasts of
    the observations.

    Parameters
    ----------
    observation : Gaussian
        The observed function of the state, and the covariance R of its errors.
    members : int, default 100
        The number N of members.
    ridge : float, optional
        The ridge parameter, relative to the mean squared singular value of ξ ↦ ad*_ξ μ. The default is dim/(10 N) for
        an algebra of dimension dim, at most 0.1. So the ridge shrinks the gains by less than the sampling errors.
    lag : int, default 0
        The number of earlier observation times whose states each observation corrects, for a smoother. Each costs as
        much as the filter.

    Raises
    ------
    ValueError, TypeError
        If an argument is invalid, for example an observation that is not Gaussian.

    Examples
    --------
    >>> import coadjoint as cj
    >>> system, _ = cj.models.rigid_body(alpha=(0.3, 0.2, 0.1))
    >>> sensor = cj.data.Gaussian(lambda m: m[:2], std=0.1)
    >>> y = [[0.9, 0.1]]
    >>> found = cj.data.GroupKalman(sensor, members=50).run(system, [1.0, 0, 0], y, times=[0.5], dt=0.1, key=0)
    >>> found.mean.shape
    (1, 3)
    """

    def __init__(self, observation: Observation, members: int = 100, *, ridge: float | None = None, lag: int = 0):
        super().__init__(observation, members, lag)
        if not isinstance(observation, Gaussian):
            raise TypeError(
                f"GroupKalman needs an observation with normally distributed errors, cj.data.Gaussian, not "
                f"{type(observation).__name__}: use ParticleFilter for other distributions."
            )
        validation.count("members", members, least=3)
        self.ridge = None if ridge is None else validation.positive("ridge", ridge)

    def _settings(self) -> dict[str, Any]:
        return {"ridge": self.ridge}

    def _elements(self, algebra: LieAlgebra, mu: np.ndarray) -> np.ndarray:
        """The elements of the anomalies of members μ."""
        ridge = min(0.1, 0.1 * algebra.dim / self.members) if self.ridge is None else self.ridge
        return elements_of_anomalies(algebra, mu, ridge)

    def _check(self, system: System) -> None:
        if system.has_attitude:
            raise ValueError(
                "GroupKalman moves the state only, and this system depends on the group element g. Use ParticleFilter, "
                "or a semidirect product whose advected vectors are the rows of g."
            )

    def _start(self, problem: Problem, state: FilterState) -> FilterState:
        """Save the data of the orbits of the members."""
        algebra, mu = problem.system.algebra, state.members.mu
        if problem.windows.group:
            raise ValueError("GroupKalman moves the state only: use ParticleFilter with group=True.")
        if problem.system.leaves_orbit:
            return state
        if algebra.is_matrix_conjugation:
            return state._replace(orbits=(np.linalg.eigvalsh(-1j * mu),))
        if knows_all_casimirs(algebra):
            return state._replace(orbits=(np.asarray(jax.vmap(algebra.casimirs)(jnp.asarray(mu))),))
        return state

    def _assimilate(self, problem: Problem, state: FilterState, k: int) -> tuple[FilterState, Row]:
        first, steps = problem.window(k)
        start = state.members
        members = problem.windows.advance(start, first, problem.increments(k, k, 0))
        check_finite(members)
        row = problem.statistics("forecast_", members, first + steps, state.log_weights)
        empty = np.zeros((self.members, 0))
        segment = Segment(np.array(first), np.array(steps), start, empty[:, :, None], empty)
        segments = (*state.segments, segment)[-self.lag :] if self.lag else ()
        a, theta, eta, evidence = self._coefficients(problem, members, k)
        new = self._moved(problem, members, a, theta, eta, state.orbits)
        segments = tuple(s._replace(start=self._corrected(problem, s.start, a, state.orbits)) for s in segments)
        check_finite(new)
        return state._replace(segments=segments, members=new, log_evidence=state.log_evidence + evidence), row

    def _coefficients(
        self, problem: Problem, members: Members, k: int
    ) -> tuple[Float[np.ndarray, "N N"], tuple[np.ndarray, ...], np.ndarray, float]:
        """The coefficients a, the anomalies of params and of states, and the log evidence."""
        windows, predicted, N = problem.windows, problem.observation.predicted, self.members
        assert predicted is not None and isinstance(self.observation, Gaussian)
        n, shape = int(problem.ends[k]), problem.y.shape[1:]
        H = windows.evaluate(predicted, members, n).reshape(N, -1)
        if not np.all(np.isfinite(H)):
            raise FilterError("the function of the observation is not finite at the states of the forecast.")
        R = self.observation._error_covariance(shape)
        eta = self._elements(problem.system.algebra, members.mu)
        theta = tuple((x - x.mean(axis=0)) / np.sqrt(N - 1) for x in members.params)
        Y = _response_matrices(windows, predicted, members, eta, theta, windows.time(n))
        noise = problem.draws.normals(k, 0, PERTURBATIONS, len(R), 0, 1)[:, 0] @ np.linalg.cholesky(R).T
        y = problem.y[k].ravel()
        innovation = y + noise - noise.mean(axis=0) - H
        S = np.swapaxes(Y, 1, 2) @ Y + R
        a = (Y @ np.linalg.solve(S, innovation[:, :, None]))[:, :, 0]
        spread = (H - H.mean(axis=0)) / np.sqrt(N - 1)
        total = spread.T @ spread + R
        mean_error = y - H.mean(axis=0)
        _, log_det = np.linalg.slogdet(total)
        quadratic = mean_error @ np.linalg.solve(total, mean_error)
        return a, theta, eta, float(-0.5 * (quadratic + log_det + len(R) * np.log(2 * np.pi)))

    def _corrected(self, problem: Problem, members: Members, a: np.ndarray, orbits: tuple) -> Members:
        """Earlier members, moved by the same coefficients of their own anomalies."""
        N = self.members
        theta = tuple((x - x.mean(axis=0)) / np.sqrt(N - 1) for x in members.params)
        eta = self._elements(problem.system.algebra, members.mu)
        return self._moved(problem, members, a, theta, eta, orbits)

    def _moved(
        self, problem: Problem, members: Members, a: np.ndarray, theta: tuple, eta: np.ndarray, orbits: tuple
    ) -> Members:
        """The members after the group action, on the orbits on which they started."""
        algebra = problem.system.algebra
        xi = np.tensordot(a, eta, 1)
        known = orbits if orbits and not algebra.is_matrix_conjugation else None
        mu = np.asarray(run_exclusive(_flows, Constant(algebra), xi, members.mu, known))
        if orbits and algebra.is_matrix_conjugation:
            _, V = np.linalg.eigh(-1j * mu)
            mu = 1j * (V * orbits[0][:, None, :]) @ _dagger(V)
            mu = 0.5 * (mu - _dagger(mu))
        params = tuple(x + np.tensordot(a, d, 1) for x, d in zip(members.params, theta, strict=True))
        return Members(mu, None, params)


def elements_of_anomalies(algebra: LieAlgebra, mu: np.ndarray, ridge: float) -> np.ndarray:
    """Elements η_j with ad*_{η_j} μ_j ≈ μ_j − μ̄, centred and divided by √(N − 1)."""
    anomalies = mu - mu.mean(axis=0)
    eta = (_by_eigenvectors if algebra.is_matrix_conjugation else _by_coordinates)(algebra, mu, anomalies, ridge)
    return (eta - eta.mean(axis=0)) / np.sqrt(len(mu) - 1)


def _by_eigenvectors(
    algebra: LieAlgebra, mu: Complex[np.ndarray, "N n n"], anomalies: np.ndarray, ridge: float
) -> Complex[np.ndarray, "N n n"]:
    """Ridge regression for ad*_η W = [W, η], which is diagonal in the eigenvectors of W."""
    w, V = np.linalg.eigh(-1j * mu)
    D = _dagger(V) @ anomalies @ V
    rates = 1j * (w[:, :, None] - w[:, None, :])
    size = np.mean(np.abs(rates) ** 2, axis=(1, 2), keepdims=True)
    bottom = np.abs(rates) ** 2 + ridge * size
    X = np.conj(rates) * D / np.where(bottom > 0, bottom, 1.0)
    X = V @ X @ _dagger(V)
    return 0.5 * (X - _dagger(X))


def _by_coordinates(algebra: LieAlgebra, mu: np.ndarray, anomalies: np.ndarray, ridge: float) -> np.ndarray:
    """Ridge regression for ad*_η μ = −J(μ) η in coordinates, one member after the other."""
    constant = Constant(algebra)
    found = []
    for m, d in zip(mu, anomalies, strict=True):
        J, c = map(np.asarray, _poisson(constant, m, d))
        square = J.T @ J
        size = np.trace(square) / len(J)
        found.append(-np.linalg.solve(square + ridge * (size if size > 0 else 1.0) * np.eye(len(J)), J.T @ c))
    return np.asarray(_elements(constant, jnp.asarray(np.stack(found))))


def _response_matrices(
    windows: Windows, predicted: MemberFunction, members: Members, eta: np.ndarray, theta: tuple, t: np.ndarray
) -> Float[np.ndarray, "N N m"]:
    """Y_i: the derivative of the observation of member i along anomaly j."""
    rebuild = windows.params_rebuilder()
    return np.asarray(
        run_exclusive(
            _responses, Constant(windows.system.algebra), predicted, rebuild, members.mu, members.params, eta, theta, t
        )
    )


def _dagger(x: np.ndarray) -> np.ndarray:
    return np.conj(np.swapaxes(x, -1, -2))


@eqx.filter_jit
def _poisson(algebra: Constant, mu: Array, d: Array) -> tuple[Array, Array]:
    return algebra.value.poisson(mu), algebra.value.coordinates(d)


@eqx.filter_jit
def _elements(algebra: Constant, c: Array) -> Array:
    return jax.vmap(algebra.value.element)(c)


@eqx.filter_jit
def _flows(algebra: Constant, xi: Array, mu: Array, orbits: tuple | None) -> Array:
    """flow(ξ, μ) of all members, without round-off drift; onto given values of the Casimirs, if all are known."""
    g = algebra.value
    moved = jax.vmap(lambda s, m: g.drift_free_flow(s, m, g.orbit_memory(m))[0])(xi, mu)
    if orbits is None:
        return moved
    return jax.vmap(lambda m, values: project_casimirs(g, m, values))(moved, orbits[0])


@eqx.filter_jit
def _responses(
    algebra: Constant,
    predicted: MemberFunction,
    rebuild: Any,
    mu: Array,
    own: tuple,
    eta: Array,
    theta: tuple,
    t: Array,
) -> Array:
    g = algebra.value

    def of_member(member: tuple) -> Array:
        m, p = member
        value = lambda m, p: jnp.ravel(predicted(m, params=rebuild(p), t=t))
        along = lambda e, d: jax.jvp(value, (m, p), (g.ad_star(e, m), d))[1]
        return jax.vmap(along)(eta, theta)

    return jax.lax.map(of_member, (mu, own))
