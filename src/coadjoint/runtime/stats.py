"""Statistics of the solver over a run."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..numerics import validation
from ..numerics.modules import made
from .gradients.info import reason_of
from .plan import Plan, method_of
from .run_state import SolverTotals


class Stats(eqx.Module):
    """Statistics of the solver over all steps of a run.

    Parameters
    ----------
    steps : int
        The number of steps.
    iterations : float
        The mean number of iterations per step.
    most_iterations : int
        The largest number of iterations of any step.
    residual : float
        The largest last correction of any step, relative to the unknown.
    unsolved : int
        The number of steps that did not converge.
    first_unsolved : int
        The first step that did not converge, or −1.
    substeps : float
        The mean number of accepted sub-steps per step. It is 1 unless the method is adaptive.
    chosen : tuple of str
        The backend that was selected, and the reason why it was not a faster one. See `backend` and `reason`.
    code : int, default 0
        A number above 0 if XLA computed a run that native code was selected for, when JAX compiled it.
    order_limit : str, default ""
        The order along the driver and the reason, if the driver limits the order of the method; else an empty string.
    """

    steps: int = eqx.field(static=True)
    iterations: float | Array
    most_iterations: int | Array
    residual: float | Array
    unsolved: int | Array
    first_unsolved: int | Array
    substeps: float | Array
    chosen: tuple[str, str] = eqx.field(static=True)  # backend and reason when JAX traced the run …
    code: int | Array = 0  # … and the number of the reason if XLA has computed it
    order_limit: str = eqx.field(static=True, default="")

    @property
    def backend(self) -> str:
        """The code that computed the steps: "native", "native-gpu" or "xla"."""
        return "xla" if self._replaced else self.chosen[0]

    @property
    def reason(self) -> str:
        """The reason why a faster backend was not used, or an empty string."""
        return reason_of(int(np.max(self.code))) if self._replaced else self.chosen[1]

    @property
    def _replaced(self) -> bool:
        """Whether XLA has computed a run that was chosen to be native."""
        return not validation.is_traced(self.code) and bool(np.any(np.asarray(self.code) != 0))

    @staticmethod
    def of(
        totals: SolverTotals,
        steps: int,
        members: int,
        backend: str,
        reason: str,
        code: int | Array = 0,
        order_limit: str = "",
    ) -> "Stats":
        """From the `totals` of this number of `members`, with the `backend`, its `reason` and the `code`."""
        t = totals if validation.is_traced(totals) else SolverTotals(*(np.asarray(x).item() for x in totals))
        return made(
            Stats, steps=steps, iterations=t.iterations / members / steps, most_iterations=t.most_iterations,
            residual=t.residual, unsolved=t.unsolved, first_unsolved=t.first_unsolved,
            substeps=t.substeps / members / steps, chosen=(backend, reason), code=code, order_limit=order_limit,
        )  # fmt: skip

    def __repr__(self) -> str:
        """One line, and another if the fast backend was not taken."""
        if validation.is_traced(self):
            return f"{self.steps} steps (traced)"
        substeps = f" of {self.substeps:.1f} sub-steps" if self.substeps != 1 else ""
        reason = f"\n  backend   {self.backend}: {self.reason}" if self.reason else f", {self.backend} code"
        order = f"\n  order     {self.order_limit}" if self.order_limit else ""
        return (
            f"{self.steps} steps{substeps}, {self.iterations:.1f} iterations per step (at most "
            f"{self.most_iterations}), worst residual {self.residual:.1e}, {self.unsolved} not converged{reason}{order}"
        )


def order_limit(plan: Plan) -> str:
    """The order along the driver of a plan and the reason, if it limits the order of the method."""
    if not plan.system.n_noise:
        return ""
    claims = plan.integrator.claims
    order, reason = method_of(plan.driver, "effective_order")(claims.order, claims.strong_commuting)
    if not reason:
        return ""
    return f"none: {reason}" if order is None else f"{order:g} instead of {claims.order}: {reason}"


def combine_totals(totals: SolverTotals) -> SolverTotals:
    """Combine the totals of many members, because 10⁷ members would need too much memory."""
    if np.shape(totals.iterations) == (1,):
        return SolverTotals(*(x[0] for x in totals))
    xp: Any = jnp if validation.is_traced(totals) else np
    none = xp.iinfo(np.int64).max
    first = xp.min(xp.where(totals.first_unsolved < 0, none, totals.first_unsolved))
    return SolverTotals(
        xp.sum(totals.iterations),
        xp.max(totals.most_iterations),
        xp.max(totals.residual),
        xp.sum(totals.unsolved),
        xp.where(first == none, -1, first),
        xp.sum(totals.substeps),
    )
