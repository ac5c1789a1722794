"""`expectation`: the mean of a functional by multilevel Monte Carlo."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np

from stepcompiler.jaxprs.interning import intern

from ..drivers import Brownian
from ..integrators.base import Integrator
from ..integrators.tmk import TMK
from ..numerics import random, validation
from ..numerics.signatures import check_function
from ..runtime.ensemble import ensemble
from ..runtime.results import UnsolvedStepError
from ..states import check_state
from ..systems import System
from .levels import QUANTILE, Expectation, Level

_PILOT = 256  # members with which a level begins
_CHUNK = 2**16  # members that run at once
_FINEST = 40  # levels of bridges that a path has
_LEAST, _MOST = 2, 14  # the default coarsest step is (t1 − t0)/2^k with k between these
_SHARE = 0.1, 0.5  # of the tolerance that is reserved for the bias: at least, at most


def expectation(
    system: System,
    mu0: Any,
    functional: Callable[[Any], Any],
    *,
    t1: float,
    tolerance: float,
    key: Any,
    dt: float | None = None,
    t0: float = 0.0,
    integrator: Integrator = TMK(),
    twins: bool | None = None,
    max_levels: int = 16,
    resume: "Expectation | None" = None,
    progress: bool = False,
    backend: str = "auto",
    on: Any = None,
) -> Expectation:
    """Estimate E f(μ(t1)) by multilevel Monte Carlo.

    With P_ℓ the functional of runs with step dt/2^ℓ, the estimate is

        E P_L = E P_0 + Σ_{ℓ=1}^{L} E Y_ℓ,   Y_ℓ = ½ (P_ℓ + Q_ℓ) − P_{ℓ−1},

    each mean over members of its own. P_ℓ and P_{ℓ−1} follow the same Brownian path. Q_ℓ follows its antithetic twin,
    in which the two halves of every coarse step are exchanged. Without twins Y_ℓ = P_ℓ − P_{ℓ−1}. Twins cancel the
    leading error of non-commuting noises. For smooth functionals the variance of Y_ℓ then falls like dt² without any
    Lévy areas (Giles and Szpruch 2014; Haji-Ali, Hoel and Tempone 2024). Members are distributed over the levels for
    the least cost (Giles 2008). Levels are added until the estimated bias fits the tolerance.

    Parameters
    ----------
    system : System
        A system with noise.
    mu0 : array
        The initial state.
    functional : callable
        A real function of the state, or a vector of several.
    t1 : float
        The time of the expectation.
    tolerance : float
        The half-width of the 95 % interval, time-step bias included.
    key : int or JAX key
        The seed of all paths.
    dt : float, optional
        The coarsest step. By default the largest (t1 − t0)/2^k from which refinement reduces the variance.
    t0 : float, default 0.0
        The initial time.
    integrator : Integrator, default TMK()
        A method with a strong order, such as `TMK()`, `TMKLevy()` or `LieMidpoint()`.
    twins : bool, optional
        Whether to use antithetic twins. By default with noises that do not commute, if the method needs no areas.
    max_levels : int, default 16
        The largest number of refinements.
    resume : Expectation, optional
        An earlier result of the same problem, which is continued to a smaller tolerance.
    progress : bool, default False
        Whether to show a progress bar.
    backend, on : optional
        As in `ensemble`.

    Returns
    -------
    Expectation

    Raises
    ------
    ValueError, TypeError
        If an argument is invalid, or the method has no strong order.
    RuntimeError
        If the bias does not reach the tolerance within `max_levels`.

    Examples
    --------
    >>> import coadjoint as cj
    >>> spin = cj.System(cj.SO3(), lambda m: m[2], noise=[cj.salt([0.3, 0, 0])])
    >>> found = cj.expectation(spin, [0, 0, 1.0], lambda m: m[2], t1=1.0, tolerance=1e-2, key=0)
    >>> found.half_width <= 1e-2
    True
    """
    tolerance, span = validation.positive("tolerance", tolerance), validation.positive("t1 − t0", float(t1) - float(t0))
    twins = _check(system, functional, integrator, twins)
    mu0 = check_state(system.algebra, "mu0", mu0)
    validation.count("max_levels", max_levels, least=2)
    run = _Runs(system, mu0, functional, float(t0), float(t1), random.as_key(key), integrator, twins, backend, on)
    if resume is not None:
        if not isinstance(resume, Expectation):
            raise TypeError(f"resume must be an earlier result of expectation, not {resume!r}.")
        dt = resume.levels[0].dt if dt is None else dt
    dt = run.coarsest(span) if dt is None else validation.positive("dt", dt)
    steps = round(span / dt)
    if steps < 1 or abs(span / dt - steps) > 1e-9 * steps:
        raise ValueError(f"t1 − t0 = {span:g} must be a multiple of dt, not of dt = {dt:g}.")
    identity = (run.fingerprint(), dt)
    if resume is not None and resume.identity != identity:
        raise ValueError(
            "resume is the result of another problem: system, functional, mu0, key, times, dt, twins or integrator "
            "differ."
        )
    levels = [Level.empty(dt, steps, ell, twins) for ell in range(3)] if resume is None else list(resume.levels)
    weak = integrator.claims.weak_commuting if system.commuting else 0.0
    order = max(integrator.claims.weak, weak, 1.0)
    with _bar(progress) as show:
        while True:
            result = Expectation(tuple(levels), tolerance, order, identity)
            wanted = _wanted(result)
            for ell, n in enumerate(wanted):
                if n > levels[ell].members:
                    levels[ell] = run.more(levels[ell], ell, n - levels[ell].members, show)
            result = Expectation(tuple(levels), tolerance, order, identity)
            if any(n > 1.01 * level.members for n, level in zip(_wanted(result), levels, strict=True)):
                continue
            if result.bias <= _SHARE[1] * tolerance and result.half_width <= tolerance:
                return result
            if result.bias > _SHARE[1] * tolerance:
                if len(levels) > max_levels or len(levels) >= _FINEST:
                    raise RuntimeError(
                        f"the bias is still {result.bias:.1e} after {len(levels) - 1} refinements, above half of "
                        f"tolerance = {tolerance:g}: take a larger tolerance or max_levels, or a method of higher "
                        "weak order."
                    )
                levels.append(Level.empty(dt, steps, len(levels), twins))


def _check(system: System, functional: Any, integrator: Any, twins: bool | None) -> bool:
    """Whether twins are used, after checks of what does not depend on numbers."""
    if not isinstance(system, System):
        raise TypeError(f"system must be a System, not {type(system).__name__}.")
    if not isinstance(integrator, Integrator):
        raise TypeError(f"integrator must be an Integrator such as TMK(), not {integrator!r}.")
    if not system.n_noise:
        raise ValueError("the system has no noise, so its expectation is the functional of one run: use solve.")
    check_function("functional", functional, ("mu",))
    out = jax.eval_shape(functional, jax.ShapeDtypeStruct(system.algebra.shape, system.algebra.dtype))
    if getattr(out, "ndim", 2) > 1 or not np.issubdtype(out.dtype, np.floating):
        raise ValueError(f"functional must return one real number or a vector of them, not {out}.")
    needs = integrator.needs(system)
    if not integrator.claims.strong or needs.signs or needs.halvings:
        raise ValueError(
            f"{integrator!r} does not follow a path of its own at every step size, so levels cannot be coupled: use a "
            "method with a strong order, such as TMK() or TMKLevy()."
        )
    if twins and needs.integrals:
        raise ValueError("twins=True exchanges increments, but the method needs integrals of the path: use TMK().")
    return bool(not needs.integrals and not system.commuting if twins is None else twins)


class _Runs:
    """The paired runs of each level."""

    def __init__(self, system: System, mu0: Any, functional: Callable, t0: float, t1: float, key: random.Key,
                 integrator: Integrator, twins: bool, backend: str, on: Any):  # fmt: skip
        self.system, self.mu0, self.key, self.twins = system, mu0, key, twins
        self.t0, self.t1, self.integrator = t0, t1, integrator
        self.options = {"save": functional, "backend": backend, "on": on}

    def fingerprint(self) -> tuple:
        """What an earlier result must have in common with this one."""
        state = jax.ShapeDtypeStruct(self.system.algebra.shape, self.system.algebra.dtype)
        problem = self.system, self.integrator, intern(self.options["save"], state), self.mu0, self.key
        leaves, structure = jax.tree.flatten(problem)
        numbers = tuple(np.asarray(x).tobytes() for x in leaves)
        return structure, numbers, self.t0, self.t1, self.twins

    def values(self, driver: Brownian, dt: float, members: int) -> np.ndarray:
        """The functional at t1, (members, components)."""
        steps = round((self.t1 - self.t0) / dt)
        ens = ensemble(
            self.system, self.mu0, members=members, t0=self.t0, t1=self.t1, dt=dt, driver=driver,
            integrator=self.integrator, save_every=steps, **self.options,
        )  # fmt: skip
        return np.asarray(ens.saved)[:, -1].reshape(members, -1)

    def pair(self, ell: int, dt: float, chunk: int, members: int) -> tuple[np.ndarray, np.ndarray]:
        """Y_ℓ and P_ℓ of some members, whose paths belong to the level and the chunk."""
        key = random.member_key(self.key, random.LEVELS, (ell << 40) + chunk)
        if ell == 0:
            fine = self.values(Brownian(key), dt, members)
            return fine, fine
        depth = 1 if self.integrator.needs(self.system).integrals else None
        fine = self.values(Brownian(key, grid=2 * dt, depth=depth), dt, members)
        coarse = self.values(Brownian(key, grid=2 * dt, depth=depth), 2 * dt, members)
        if not self.twins:
            return fine - coarse, fine
        twin = self.values(Brownian(key, grid=2 * dt, twin=True), dt, members)
        return 0.5 * (fine + twin) - coarse, fine

    def more(self, level: Level, ell: int, members: int, show: Callable[[str, float], None]) -> Level:
        """The level with more members."""
        while members > 0:
            size = min(_CHUNK, members)
            show(f"level {ell}: {size} members with dt = {level.dt:.3g}", size * level.cost)
            level = level.added(*self.pair(ell, level.dt, level.chunks, size))
            members -= size
        return level

    def coarsest(self, span: float) -> float:
        """The largest step from which refinement halves the variance at least."""
        for k in range(_LEAST, _MOST):
            dt = span / 2**k
            try:
                y, p = self.pair(1, dt / 2.0, 2**39, _PILOT)  # paths of no level
            except UnsolvedStepError:
                continue
            if np.all(y.var(axis=0) <= 0.5 * p.var(axis=0)):
                return dt
        raise ValueError(
            f"no step down to (t1 − t0)/{2**_MOST} resolves the noise, so levels would not reduce the variance: give a "
            "smaller dt, or a shorter time."
        )


def _wanted(result: Expectation) -> list[int]:
    """The number of members of each level that gives the least cost (Giles 2008), at least those of a pilot."""
    if any(level.members < _PILOT for level in result.levels):
        return [max(_PILOT, level.members) for level in result.levels]
    low, high = _SHARE
    share = float(np.clip(result.bias / result.tolerance, low, high))
    error = (1.0 - share) * result.tolerance / QUANTILE
    variance, cost = result.variances(), np.array([level.cost for level in result.levels])
    total = np.sum(np.sqrt(variance * cost[:, None]), axis=0)
    members = np.max(np.sqrt(variance / cost[:, None]) * total, axis=1) / error**2
    return [max(_PILOT, int(np.ceil(n))) for n in members]


@contextmanager
def _bar(progress: bool) -> Iterator[Callable[[str, float], None]]:
    """A line that shows the level that is running, and the steps so far."""
    if not progress:
        yield lambda text, cost: None
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    with Progress(SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()) as bar:
        task, done = bar.add_task("expectation"), [0.0]

        def show(text: str, cost: float) -> None:
            bar.update(task, description=f"{text} (after {done[0]:.2g} steps)")
            done[0] += cost

        yield show
