"""An ensemble Kalman filter that moves each member by an element of the group."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from stepcompiler.jaxprs.interning import Constant

from ..algebras.base import LieAlgebra
from ..algebras.casimirs import knows_all_casimirs, project_casimirs
from ..numerics import validation
from ..runtime.lapack_lock import run_exclusive
from ..runtime.saved_values import MemberFunction
from ..systems import System
from .anomalies import Anomalies, anomalies, dagger, in_batches
from .filtering import Filter, Problem, Row
from .filtering_state import FilterError, FilterState, Members, Segment
from .observations import NormalErrors, Observation
from .particle_filter import check_finite
from .windows import PERTURBATIONS

_AT_ONCE = 2**24  # numbers of the responses of several members


class GroupKalman(Filter):
    """An ensemble Kalman filter with an update that is a group action, so that members stay on their orbits.

    The anomaly of member j is written as a motion along its orbit: η_j is the element with

        ad*_{η_j} μ_j ≈ μ_j − μ̄,

    by ridge regression, centred and divided by √(N − 1). The response of the observation H of member i is
    Y_i = (DH(μ_i) ad*_{η_j} μ_i)_j. With perturbed observations y + ε_i, member i moves by

        a_i = Y_i (Y_iᵀ Y_i + R)⁻¹ (y + ε_i − H(μ_i)),   ξ_i = Σ_j a_ij η_j,   μ_i ← flow(ξ_i, μ_i).

    A torque changes the Casimirs of a system, and so do functions of g. The default is then a straight update,

        μ_i ← μ_i + Σ_j a_ij (μ_j − μ̄)/√(N − 1),

    with the response along the same directions. Group elements move by elements ζ_j with g_j = ḡ exp(ζ_j) for a mean
    ḡ, or exp(ζ_j) ḡ for right-invariant systems, and by the same coefficients. So do unknown parameters. The evidence
    is that of normally distributed forecasts of the observations.

    Parameters
    ----------
    observation : Gaussian or GaussianError
        The observed function of the state, and the covariance R of its errors.
    members : int, default 100
        The number N of members.
    ridge : float, optional
        The ridge parameter, relative to the mean squared singular value of ξ ↦ ad*_ξ μ. The default is dim/(10 N) for
        an algebra of dimension dim, at most 0.1. So the ridge shrinks the gains by less than the sampling errors.
    on_orbits : bool, optional
        Whether updates keep members on their orbits. The default is False for systems with a torque or with an
        argument g, and True otherwise.
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

    def __init__(
        self,
        observation: Observation,
        members: int = 100,
        *,
        ridge: float | None = None,
        on_orbits: bool | None = None,
        lag: int = 0,
    ):
        super().__init__(observation, members, lag)
        if not isinstance(observation, NormalErrors):
            raise TypeError(
                "GroupKalman needs an observation with normally distributed errors, cj.data.Gaussian or GaussianError, "
                f"not {type(observation).__name__}: use ParticleFilter for other distributions."
            )
        validation.count("members", members, least=3)
        self.ridge = None if ridge is None else validation.positive("ridge", ridge)
        if on_orbits not in (None, True, False):
            raise TypeError(f"on_orbits must be True, False or None, not {on_orbits!r}.")
        self.on_orbits = on_orbits

    def _settings(self) -> dict[str, Any]:
        return {"ridge": self.ridge, "on_orbits": self.on_orbits}

    def _moves_on_orbits(self, system: System) -> bool:
        return not system.has_torque if self.on_orbits is None else self.on_orbits

    def _anomalies(self, problem: Problem, members: Members) -> Anomalies:
        """The anomalies of members."""
        system, ridge = problem.system, self.ridge
        if ridge is None:
            ridge = min(0.1, 0.1 * system.algebra.dim / self.members)
        return anomalies(system.algebra, members, ridge if self._moves_on_orbits(system) else None, system.sign)

    def _start(self, problem: Problem, state: FilterState) -> FilterState:
        """Save the data of the orbits of the members."""
        algebra, mu = problem.system.algebra, state.members.mu
        if problem.system.leaves_orbit or not self._moves_on_orbits(problem.system):
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
        own = self._anomalies(problem, members)
        a, evidence = self._coefficients(problem, members, own, k)
        new = _moved(problem, members, a, own, state.orbits)
        segments = tuple(s._replace(start=self._corrected(problem, s.start, a, state.orbits)) for s in segments)
        check_finite(new)
        return state._replace(segments=segments, members=new, log_evidence=state.log_evidence + evidence), row

    def _corrected(self, problem: Problem, members: Members, a: np.ndarray, orbits: tuple) -> Members:
        """Earlier members, moved by the same coefficients of their own anomalies."""
        return _moved(problem, members, a, self._anomalies(problem, members), orbits)

    def _coefficients(
        self, problem: Problem, members: Members, own: Anomalies, k: int
    ) -> tuple[Float[np.ndarray, "N N"], float]:
        """The coefficients a of the anomalies, and the log evidence."""
        windows, error, N = problem.windows, problem.observation.error, self.members
        assert error is not None and isinstance(self.observation, NormalErrors)
        n, y = int(problem.ends[k]), problem.y[k]
        e = windows.evaluate(error, members, n, y)
        if not np.all(np.isfinite(e)):
            raise FilterError("the function of the observation is not finite at the states of the forecast.")
        R = self.observation._error_covariance((e.shape[1],))
        noise = problem.draws.normals(k, 0, PERTURBATIONS, len(R), 0, 1)[:, 0] @ np.linalg.cholesky(R).T
        innovation = e + noise - noise.mean(axis=0)
        a, size = np.empty((N, N)), min(N, max(1, _AT_ONCE // (N * len(R))))
        for start in range(0, N, size):
            rows = slice(min(start, N - size), None if start + size >= N else start + size)
            block = jax.tree.map(lambda x, rows=rows: x[rows], members)
            Y = _response_matrices(problem, block, own, y, windows.time(n))
            S = np.swapaxes(Y, 1, 2) @ Y + R
            a[rows] = (Y @ np.linalg.solve(S, innovation[rows, :, None]))[:, :, 0]
        mean = e.mean(axis=0)
        spread = (e - mean) / np.sqrt(N - 1)
        total = spread.T @ spread + R
        _, log_det = np.linalg.slogdet(total)
        return a, float(-0.5 * (mean @ np.linalg.solve(total, mean) + log_det + len(R) * np.log(2 * np.pi)))


def _moved(problem: Problem, members: Members, a: np.ndarray, own: Anomalies, orbits: tuple) -> Members:
    """The members after the update, with given eigenvalues or Casimirs if the system conserves them."""
    algebra = problem.system.algebra
    if own.eta is None:
        assert own.straight is not None
        mu = members.mu + np.tensordot(a, own.straight, 1)
    else:
        known = orbits if orbits and not algebra.is_matrix_conjugation else None
        mu = np.asarray(run_exclusive(_flows, Constant(algebra), np.tensordot(a, own.eta, 1), members.mu, known))
    if orbits and algebra.is_matrix_conjugation:
        _, V = np.linalg.eigh(-1j * mu)
        mu = 1j * (V * orbits[0][:, None, :]) @ dagger(V)
        mu = 0.5 * (mu - dagger(mu))
    g = members.g
    if own.zeta is not None:
        moves = np.tensordot(a, own.zeta, 1)
        g = jax.tree.map(np.asarray, run_exclusive(_turned, Constant(algebra), moves, g, problem.system.sign))
    params = tuple(x + np.tensordot(a, d, 1) for x, d in zip(members.params, own.theta, strict=True))
    return Members(mu, g, params)


def _response_matrices(
    problem: Problem, members: Members, own: Anomalies, y: np.ndarray, t: np.ndarray
) -> Float[np.ndarray, "k N m"]:
    """Y_i: minus the derivative of the error of the observation of each of some members along anomaly j."""
    windows = problem.windows
    rebuild = windows.params_rebuilder()
    return np.asarray(
        run_exclusive(
            _responses, Constant(windows.system.algebra), problem.observation.error, rebuild, members, own, y, t,
            windows.system.sign,
        )
    )  # fmt: skip


@eqx.filter_jit
def _flows(algebra: Constant, xi: Array, mu: Array, orbits: tuple | None) -> Array:
    """flow(ξ, μ) of all members, without round-off drift; onto given values of the Casimirs, if all are known."""
    g = algebra.value
    moved = jax.vmap(lambda s, m: g.drift_free_flow(s, m, g.orbit_memory(m))[0])(xi, mu)
    if orbits is None:
        return moved
    return jax.vmap(lambda m, values: project_casimirs(g, m, values))(moved, orbits[0])


@eqx.filter_jit
def _turned(algebra: Constant, zeta: Array, g: PyTree, sign: int) -> PyTree:
    return jax.vmap(lambda z, k: _group_moved(algebra.value, k, z, sign))(zeta, g)


def _group_moved(algebra: LieAlgebra, g: PyTree, zeta: Array, sign: int) -> PyTree:
    """g exp(ζ), or exp(ζ) g for right-invariant systems."""
    step = algebra.group_exp(zeta)
    return algebra.group_product(g, step) if sign == 1 else algebra.group_product(step, g)


@eqx.filter_jit
def _responses(
    algebra: Constant, error: MemberFunction, rebuild: Any, members: Members, own: Anomalies, y: Array, t: Array,
    sign: int,
) -> Array:  # fmt: skip
    G = algebra.value

    def of_member(member: Members) -> Array:
        m, g, p = member

        def along(j: Anomalies) -> Array:
            """The derivative along one anomaly."""

            def value(s: Array) -> Array:
                moved = m + s * jnp.asarray(j.straight if j.eta is None else G.ad_star(j.eta, m))
                turned = g if j.zeta is None else _group_moved(G, g, s * j.zeta, sign)
                shifted = tuple(x + s * d for x, d in zip(p, j.theta, strict=True))
                return error(moved, y, params=rebuild(shifted), t=t, g=turned)

            return -jax.jvp(value, (jnp.zeros(()),), (jnp.ones(()),))[1]

        return jax.vmap(along)(own)

    return in_batches(of_member, members, len(jax.tree.leaves(own)[0]) * members.mu[0].size)
