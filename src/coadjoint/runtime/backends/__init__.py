"""The registry of backends. A backend computes the steps of a plan; it is chosen before a store or a bar is created.

A backend is a function `prepare(plan, reason)` in a file of its own. It returns a program, or a `NotSupported` with the
reason in a sentence. A new backend is a new file with such a function, and a row in the table below.
"""

from ..plan import Plan
from ..stall_monitor import MonitoredRun
from . import lattice_backend, native, native_gpu, xla
from .base import Backend, NotSupported, Program, attempt_native


def _native(plan: Plan, reason: str) -> Program | NotSupported:
    """Native code number by number, for one site of a large lattice, or as loops over the elements of arrays."""
    found = native.prepare(plan, reason)
    loops = isinstance(found, NotSupported) and found.too_large and not plan.system.algebra.is_matrix_conjugation
    if isinstance(found, NotSupported) and lattice_backend.takes(plan):
        found = lattice_backend.prepare(plan, reason)
    if isinstance(found, NotSupported) and found.cause is None and loops:
        return native.prepare(plan, reason, arrays=True)
    return found


TABLE: dict[str, Backend] = {  # the fastest first; the last supports every plan
    "native-gpu": native_gpu.prepare,
    "native": _native,
    "xla": xla.prepare,
}
BACKENDS = ("auto", *TABLE)
_LAST = "xla"
_INSTEAD = {"native": "The CPU computes the steps instead.", "xla": "XLA computes the steps instead."}


def prepare_program(plan: Plan) -> Program:
    """Return the program of the backend that the plan names, or of the fastest that supports it.

    `program.reason` states why no faster backend runs the plan. If anything goes wrong in a backend before its program
    is ready, the next one is tried. An error of the last one is raised.
    """
    reasons: list[str] = []
    cause: Exception | None = None
    with MonitoredRun(plan) as run:
        for name, prepare in TABLE.items():
            if plan.backend not in ("auto", name):
                continue
            run.set_phase(None, f"backend ({name})")
            reason = " ".join([*reasons, _INSTEAD[name]]) if reasons else ""
            found = prepare(plan, reason) if name == _LAST else attempt_native(lambda: prepare(plan, reason))  # noqa: B023
            if not isinstance(found, NotSupported):
                return found
            if plan.backend == name or not found.expected:
                reasons.append(found.reason)
                cause = found.cause
    raise ValueError(f"backend={plan.backend!r} cannot take this run: {' '.join(reasons)}") from cause
