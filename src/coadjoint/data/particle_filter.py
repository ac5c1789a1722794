"""Particle filters whose members move along their own orbits only."""

from typing import Any

import jax
import numpy as np

from ..numerics import validation
from .filtering import Filter, Problem, Row
from .filtering_state import FilterError, FilterState, Members, Segment
from .observations import Observation
from .resampling import effective_size, log_mean, next_temperature, normalised, systematic
from .windows import ACCEPTANCE, PARAMETERS, RESAMPLING

_MOST_TEMPERATURES = 100
_RHO = 0.3, 0.998  # the range of the correlation of proposals
_RHO_STEP, _ACCEPTANCE = 0.02, 0.3


class ParticleFilter(Filter):
    """A particle filter with adaptive tempering and jitter of the noise path.

    The likelihood of an observation enters in steps, L^φ with φ from 0 to 1. The filter chooses each φ such that the
    effective size is `threshold` times the number of members. After each step it resamples by the systematic scheme.
    It then proposes new noise paths over the last `lag` windows,

        dS' = ρ dS + √(1 − ρ²) √dt z,   z normally distributed,

    replays the members along them, and accepts each by a Metropolis test. So the posterior stays invariant, and
    members stay on their orbits. The filter adapts ρ to the acceptance. New paths do not renew initial values. Noise
    hardly changes some parts of a state, such as a bias. If such a part is unknown, use `GroupKalman`, or make it an
    unknown parameter.

    Parameters
    ----------
    observation : Observation
        The observed function of the state and the distribution of its errors: `Gaussian`, `VonMisesFisher` or
        `LogDensity`.
    members : int, default 100
        The number of members (particles).
    method : {"tempered", "bootstrap"}, default "tempered"
        The method above, or the bootstrap filter. That weights the forecasts, and resamples them if the effective size
        is below `threshold` times the number of members. Its estimate of the evidence is unbiased. That of the
        tempered filter is consistent.
    lag : int, default 4
        The number of windows between observations that a new path covers, and the lag of the smoother.
    moves : int, default 4
        The number of proposed paths per temperature.
    threshold : float, default 0.5
        The smallest effective size, relative to the number of members.
    smallest_size : float, default 1.01
        The effective size below which a bootstrap filter has collapsed and raises `FilterError`. 1 never raises.
    parameter_shrinkage : float, default 0.98
        The number a of the change θ ← a θ + (1 − a) θ̄ + √(1 − a²) Σ^½ z of unknown parameters before each window.
        Here θ̄ and Σ are their present mean and covariance, which the change conserves (Liu and West 2001).

    Raises
    ------
    ValueError, TypeError
        If an argument is invalid.

    Examples
    --------
    >>> import coadjoint as cj
    >>> import numpy as np
    >>> system = cj.System(cj.SO3(), lambda m: 0.5 * m[2] ** 2, cj.salt(0.3 * np.eye(3)))
    >>> sensor = cj.data.Gaussian(lambda m: m[:2], std=0.1)
    >>> y = [[0.9, 0.1], [0.8, 0.3]]
    >>> found = cj.data.ParticleFilter(sensor, members=50).run(
    ...     system, [1.0, 0, 0], y, times=[0.5, 1.0], dt=0.1, key=0)
    >>> found.mean.shape
    (2, 3)
    """

    def __init__(
        self,
        observation: Observation,
        members: int = 100,
        *,
        method: str = "tempered",
        lag: int = 4,
        moves: int = 4,
        threshold: float = 0.5,
        smallest_size: float = 1.01,
        parameter_shrinkage: float = 0.98,
    ):
        super().__init__(observation, members, lag)
        validation.count("members", members, least=2)
        validation.count("lag", lag)
        self.method = validation.choice("method", method, ("tempered", "bootstrap"))
        self.moves = validation.count("moves", moves, least=0)
        self.threshold = validation.positive("threshold", threshold)
        self.smallest_size = validation.positive("smallest_size", smallest_size)
        self.parameter_shrinkage = validation.positive("parameter_shrinkage", parameter_shrinkage)
        for name, value in (("threshold", self.threshold), ("parameter_shrinkage", self.parameter_shrinkage)):
            if value > 1:
                raise ValueError(f"{name} must be at most 1, not {value!r}.")
        if self.method == "tempered" and self.threshold == 1:
            raise ValueError("threshold must be below 1 for the tempered filter, which needs steps of temperature.")

    def _settings(self) -> dict[str, Any]:
        names = ("method", "moves", "threshold", "smallest_size", "parameter_shrinkage")
        return {name: getattr(self, name) for name in names}

    def _assimilate(self, problem: Problem, state: FilterState, k: int) -> tuple[FilterState, Row]:
        if self.method == "bootstrap" and effective_size(state.log_weights) < self.threshold * self.members:
            state = _resampled(state, normalised(state.log_weights), problem, k, 0)
        start = state.members._replace(params=self._evolved_params(problem, state, k))
        first, steps = problem.window(k)
        dS = problem.increments(k, k, 0)
        members = problem.windows.advance(start, first, dS)
        check_finite(members)
        log_likelihood = problem.log_likelihood(members, k)
        _check_likelihood(log_likelihood)
        row = problem.statistics("forecast_", members, first + steps, state.log_weights)
        segment = Segment(np.array(first), np.array(steps), start, dS, log_likelihood)
        state = state._replace(segments=(*state.segments, segment)[-self.lag :], members=members)
        weigh = self._weigh if self.method == "bootstrap" else self._temper
        state, more = weigh(problem, state, k)
        return state, row | more

    def _weigh(self, problem: Problem, state: FilterState, k: int) -> tuple[FilterState, Row]:
        """Multiply the weights by the likelihood."""
        own = state.segments[-1].log_likelihood
        evidence = state.log_evidence + log_mean(state.log_weights, own)
        log_weights = state.log_weights + own
        log_weights = log_weights - np.max(log_weights)
        ess = effective_size(log_weights)
        if ess < self.smallest_size:
            raise FilterError(
                f"the filter has collapsed: the effective size is {ess:.3f} of {self.members} members. Use more "
                'members, method="tempered", or larger errors of the observation.'
            )
        row = {"ess": np.array(ess), "temperatures": np.array(0), "acceptance": np.array(np.nan)}
        return state._replace(log_weights=log_weights, log_evidence=evidence), row

    def _temper(self, problem: Problem, state: FilterState, k: int) -> tuple[FilterState, Row]:
        """Let the likelihood enter in steps, with new paths after each."""
        phi, temperatures, acceptance, move = 0.0, 0, [], 0
        ess = effective_size(state.segments[-1].log_likelihood)
        while phi < 1.0:
            own = state.segments[-1].log_likelihood
            following = next_temperature(own, phi, self.threshold)
            temperatures += 1
            if temperatures > _MOST_TEMPERATURES or following <= phi:
                raise FilterError(
                    f"the filter has collapsed: after {temperatures - 1} temperatures the likelihood has the exponent "
                    f"{phi:.3g} only. Use more members, larger errors of the observation, or more noise."
                )
            share = (following - phi) * own
            evidence = state.log_evidence + log_mean(np.zeros(self.members), share)
            state = _resampled(state._replace(log_evidence=evidence), normalised(share), problem, k, temperatures)
            phi = following
            if problem.system.n_noise and self.moves:
                for _ in range(self.moves):
                    move += 1
                    state, accepted = self._moved(problem, state, k, move, phi)
                    acceptance.append(accepted)
                rate = np.mean(acceptance[-self.moves :])
                step = _RHO_STEP if rate < _ACCEPTANCE else -_RHO_STEP
                state = state._replace(rho=np.clip(state.rho + step, *_RHO))
        if _all_equal(state.members):
            raise FilterError(
                "the filter has collapsed: all members are equal. Give initial states or params by member, or add "
                "noise to the system."
            )
        rate = np.mean(acceptance) if acceptance else np.nan
        row = {"ess": np.array(ess), "temperatures": np.array(temperatures), "acceptance": np.array(rate)}
        return state, row

    def _moved(self, problem: Problem, state: FilterState, k: int, move: int, phi: float) -> tuple[FilterState, float]:
        """Propose a new path over the last windows for every member, and the share of accepted ones."""
        rho, rest = float(state.rho), float(np.sqrt(1 - state.rho**2))
        members, proposed = state.segments[0].start, []
        ratio = np.zeros(self.members)
        for j, old in enumerate(state.segments):
            number = k - len(state.segments) + 1 + j
            dS = rho * old.dS + rest * problem.increments(number, k, move)
            start = members._replace(params=old.start.params)
            members = problem.windows.advance(start, int(old.first), dS)
            check_finite(members)
            own = problem.log_likelihood(members, number)
            if np.any(np.isnan(own)):
                raise FilterError("the log density of the observation is NaN for a proposed path.")
            proposed.append(Segment(old.first, old.steps, start, dS, own))
            with np.errstate(invalid="ignore"):
                ratio += (phi if j == len(state.segments) - 1 else 1.0) * (own - old.log_likelihood)
        u = problem.draws.uniforms(k, move, ACCEPTANCE, self.members)
        accepted = np.log(u + np.finfo(float).tiny) < ratio
        choose = lambda new, old: _where(accepted, new, old)
        segments = tuple(
            Segment(old.first, old.steps, *(jax.tree.map(choose, a, b) for a, b in zip(new[2:], old[2:], strict=True)))
            for new, old in zip(proposed, state.segments, strict=True)
        )
        state = state._replace(segments=segments, members=jax.tree.map(choose, members, state.members))
        return state, float(np.mean(accepted))

    def _evolved_params(self, problem: Problem, state: FilterState, k: int) -> tuple[np.ndarray, ...]:
        """The unknown parameters of the next window."""
        own = state.members.params
        if not own or k == 0 or self.parameter_shrinkage == 1:
            return own
        a, N = self.parameter_shrinkage, self.members
        flat = np.concatenate([x.reshape(N, -1) for x in own], axis=1)
        w = normalised(state.log_weights)
        mean = w @ flat
        values, vectors = np.linalg.eigh((flat - mean).T @ (w[:, None] * (flat - mean)))
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        z = problem.draws.normals(k, 0, PARAMETERS, flat.shape[1], 0, 1)[:, 0]
        flat = a * flat + (1 - a) * mean + np.sqrt(1 - a * a) * (z @ root.T)
        cuts = np.cumsum([x[0].size for x in own])[:-1]
        return tuple(x.reshape(y.shape) for x, y in zip(np.split(flat, cuts, axis=1), own, strict=True))


def check_finite(members: Members) -> None:
    """Raise if a state is not finite."""
    wrong = ~np.all(np.isfinite(members.mu.reshape(len(members.mu), -1)), axis=1)
    if np.any(wrong):
        raise FilterError(f"{int(wrong.sum())} of {len(wrong)} members have states that are not finite: reduce dt.")


def _check_likelihood(log_likelihood: np.ndarray) -> None:
    """Raise if no member has a finite likelihood, or if any is NaN or infinite."""
    bad = np.isnan(log_likelihood) | (log_likelihood == np.inf)
    if np.any(bad):
        raise FilterError(
            f"the log density of the observation is NaN or +inf for {int(bad.sum())} of {len(bad)} members: check the "
            "function of the observation at the states of the forecast."
        )
    if not np.any(np.isfinite(log_likelihood)):
        raise FilterError(
            "no member has a finite likelihood. Use more members, more noise, or a distribution of errors with a wider "
            "support."
        )


def _resampled(state: FilterState, weights: np.ndarray, problem: Problem, k: int, number: int) -> FilterState:
    """The members that survive, with their ways, and with equal weights."""
    u = float(problem.draws.uniforms(k, number, RESAMPLING, 1)[0])
    which = systematic(weights, u)
    take = lambda x: x[which]
    segments = tuple(Segment(s.first, s.steps, *(jax.tree.map(take, x) for x in s[2:])) for s in state.segments)
    members = jax.tree.map(take, state.members)
    return state._replace(segments=segments, members=members, log_weights=np.zeros(len(which)))


def _where(accepted: np.ndarray, new: np.ndarray, old: np.ndarray) -> np.ndarray:
    return np.where(accepted.reshape(-1, *(1,) * (new.ndim - 1)), new, old)


def _all_equal(members: Members) -> bool:
    return all(bool(np.all(x == x[:1])) for x in jax.tree.leaves(members))
