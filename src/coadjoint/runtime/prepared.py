"""`prepare`: a run that is prepared once and repeated with other states, paths and params."""

from collections.abc import Callable, Hashable
from typing import Any

import jax
from jaxtyping import PyTree

from ..drivers import Driver
from ..integrators.base import Integrator
from ..integrators.tmk import TMK
from ..numerics import validation
from ..systems import System
from .backends import BACKENDS, prepare_program
from .backends.base import Program
from .loop import execute
from .plan import Plan
from .planning import check_member_inputs, check_options, complete, warn_of_inputs
from .reducers import Reducer
from .results import Ensemble, Solution
from .saved_times import check_save_at
from .sinks import Memory
from .traced_run import run_traced


def prepare(
    system: System,
    *,
    dt: float,
    steps: int | None = None,
    t1: float | None = None,
    t0: float = 0.0,
    members: int | None = None,
    integrator: Integrator = TMK(),
    reduce: Reducer | None = None,
    save_every: int = 1,
    save_at: Any = None,
    save: Callable[[Any], PyTree] | None = None,
    until: Callable[..., Any] | None = None,
    direction: str = "both",
    group: bool = False,
    throw: bool = True,
    backend: str = "auto",
) -> "PreparedRun":
    """Prepare a run that is repeated many times, as particle filters, controllers and samplers do.

    The result is called with an initial state and a path. It returns what `solve`, or `ensemble` with `members`, would
    return with the same arguments, bitwise. Options are checked, and code is selected, only once.

    Parameters
    ----------
    system : System
        The system to integrate.
    dt : float
        The time step.
    steps : int, optional
        The number of steps. Give either `steps` or `t1`.
    t1 : float, optional
        The final time of a run from `t0`.
    t0 : float, default 0.0
        The initial time, unless a call has another one.
    members : int, optional
        The number of trajectories of an ensemble. By default a call returns one trajectory.
    integrator : Integrator, default TMK()
        The method.
    reduce : Reducer, optional
        The statistics of an ensemble, as in `ensemble`.
    save_every : int, default 1
        The number of steps between saved states.
    save_at : sequence of float, optional
        The times to save instead, as in `solve`.
    save : callable, optional
        A function of the state. Its values are saved in place of the states.
    until : callable, optional
        A function that vanishes at an event, which ends a trajectory, as in `solve`.
    direction : {"both", "up", "down"}, default "both"
        The direction in which `until` changes its sign, as in `solve`.
    group : bool, default False
        Whether to reconstruct the group element.
    throw : bool, default True
        Whether a step that does not converge raises `UnsolvedStepError`.
    backend : {"auto", "native", "native-gpu", "xla"}, default "auto"
        The code that computes the steps.

    Returns
    -------
    PreparedRun
        A function of (mu0, key, driver, params, g0, t0).

    Raises
    ------
    ValueError, TypeError
        If an option is invalid.

    Examples
    --------
    >>> import coadjoint as cj
    >>> system, mu0 = cj.models.heavy_top()
    >>> forecast = cj.prepare(system, dt=0.01, steps=10, members=4)
    >>> states = forecast(mu0, key=0).mu[:, -1]
    >>> forecast(states, key=1, t0=0.1).mu.shape
    (4, 11, 6)
    """
    dt, t0 = validation.positive("dt", dt), validation.finite("t0", t0)
    if (steps is None) == (t1 is None):
        raise ValueError(f"give either steps or t1, not steps={steps!r} and t1={t1!r}.")
    if steps is not None:
        steps = validation.count("steps", steps)
        t1 = t0 + steps * dt
    if members is None and reduce is not None:
        raise ValueError("reduce= makes statistics of an ensemble: give members=, too.")
    members = None if members is None else validation.count("members", members)
    validation.choice("backend", backend, BACKENDS)
    options = check_options(
        system, t1=t1, dt=dt, t0=t0, integrator=integrator, save_every=save_every, save_at=save_at, save=save,
        group=group, throw=throw, backend=backend, stored=False, members=members, reduce=reduce, until=until,
        direction=direction,
    )  # fmt: skip
    return PreparedRun(options, save_at)


class PreparedRun:
    """A run with fixed options, as `prepare` returns it. Call it with an initial state and a path.

    Parameters
    ----------
    options : dict
        The checked options. `prepare` makes them.
    save_at : sequence of float, optional
        The times to save, as they were given.
    """

    def __init__(self, options: dict[str, Any], save_at: Any):
        self._options, self._save_at = options, save_at
        self._before: dict[Hashable, tuple[Plan, Program]] = {}  # by what decides on the code

    def __repr__(self) -> str:
        """One line."""
        o = self._options
        members = "one trajectory" if o["members"] is None else f"{o['members']} members"
        return f"PreparedRun: {members}, {o['steps']} steps of dt = {o['dt']:g}, {type(o['integrator']).__name__}"

    def __call__(
        self,
        mu0: Any,
        *,
        key: Any = None,
        driver: Driver | None = None,
        params: PyTree = None,
        g0: Any = None,
        t0: float | None = None,
    ) -> Solution | Ensemble:
        """Run from an initial state.

        Parameters
        ----------
        mu0 : array
            The initial state. An ensemble takes one state, or one per member.
        key : int or JAX key, optional
            The seed of a Brownian path. A system with noise needs either `key` or `driver`.
        driver : Driver, optional
            The path, such as `Increments(dS)` with dS of shape (steps, M), or (members, steps, M).
        params : pytree, optional
            Parameters in place of the system's. In an ensemble a leaf may have a leading axis of members.
        g0 : array, optional
            The initial group element. In an ensemble it may have a leading axis of members.
        t0 : float, optional
            The initial time, by default that of `prepare`.

        Returns
        -------
        Solution or Ensemble

        Raises
        ------
        ValueError, TypeError
            If an argument is invalid.
        UnsolvedStepError
            If a step does not converge and `throw` is true.
        """
        options = self._options if t0 is None else self._from(validation.finite("t0", t0))
        if params is not None and options["members"] is None:
            system = System.refitted(options["system"], params, on_host=True)
            options, params = {**options, "system": system}, None
        plan = complete(options, mu0, key=key, driver=driver, g0=g0, params=params)
        if plan.system is options["system"] and plan.integrator is options["integrator"]:
            self._options["needs"] = plan.needs  # they fit: not to be checked again
        if plan.traced:
            return run_traced(plan)
        path = plan.first_window
        kind = jax.tree.structure((path, plan.axes)), tuple(x.shape for x in jax.tree.leaves(path))
        program: Program
        if kind in self._before:
            like, before = self._before[kind]
            plan.share(like)
            program = before.renewed(plan)
        else:
            program = prepare_program(plan)
            self._before[kind] = plan, program
        return execute(plan, program, Memory(plan))

    def _from(self, t0: float) -> dict[str, Any]:
        """The options with another initial time."""
        o = self._options
        warn_of_inputs(o["system"], t0, t0 + o["steps"] * o["dt"], o["dt"])
        check_member_inputs(o["integrator"], o["save"], t0, t0 + o["steps"] * o["dt"])
        save_at = None if self._save_at is None else check_save_at(self._save_at, t0, o["dt"], o["steps"])
        return {**o, "t0": t0, "save_at": save_at}
