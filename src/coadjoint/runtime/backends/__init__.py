"""Backends: what computes the steps of a plan, chosen before a store or a bar is touched.

A backend is a function `prepare(plan)` in a file of its own. It gives a program, or a refusal with its reason in a
sentence. A new backend is one new file with such a function, and a row in the table below.
"""

from functools import partial

from ..plan import Plan
from ..stall_monitor import MonitoredRun
from . import native, native_gpu, xla
from .base import Backend, NotSupported, Program, attempt_native

TABLE: dict[str, Backend] = {  # the fastest first; the last takes all
    "native-gpu": native_gpu.prepare,
    "native": native.prepare,
    "xla": xla.prepare,
}
_LAST = "xla"
_INSTEAD = {"native": "The CPU computes the steps instead.", "xla": "XLA computes the steps instead."}


def prepare_program(plan: Plan) -> Program:
    """The program of the backend that the plan names, or of the fastest that takes it, which says why not a faster.

    Whatever goes wrong in a backend until its program is ready to run, the next one takes the run. What goes wrong in
    the last one is raised.
    """
    reasons: list[str] = []
    cause: Exception | None = None
    with MonitoredRun(plan) as run:
        for name, prepare in TABLE.items():
            if plan.backend not in ("auto", name):
                continue
            run.set_phase(None, f"backend ({name})")
            found = prepare(plan) if name == _LAST else attempt_native(partial(prepare, plan))
            if not isinstance(found, NotSupported):
                found.reason = " ".join([*reasons, _INSTEAD[name]]) if reasons else found.reason
                return found
            if plan.backend == name or not found.expected:
                reasons.append(found.reason)
                cause = found.cause
    raise ValueError(f"backend={plan.backend!r} cannot take this run: {' '.join(reasons)}") from cause
