"""The interfaces for authors of extensions: algebras, integrators, drivers, models, reducers, backends and outputs.

Each name has one purpose:

- Algebras: `LieAlgebra`, whose required members are `dim` and `bracket`.
- Integrators: `Integrator`, `OrbitMethod` (a method that computes the element σ of the algebra), `Claims`, `Cost`;
  `SolveInfo` and `explicit_info` describe the solution of a step.
- Drivers: `Driver`, and `Window`, `Increment`, `Needs` and `BLOCK`, which define the increments.
- Models: the decorator `model`, which lets experiment files and stores name the function.
- Reducers: `Reducer`.
- Backends: a `Backend` is a function `prepare(plan, reason)`. It returns a `Program`, whose `Stepper` advances a
  `Batch` from `StepState` to `StepState` and returns each saved `Snapshot`, or a `NotSupported`. `XlaProgram` supports
  every plan. `plan_solve` and `plan_ensemble` make a `Plan`; `execute` runs it.
- Outputs: an `Output` has a `Sink` for each batch; `Memory` is the output in memory. A
  `RunSummary` has the statistics of the run.
"""

from .algebras.base import LieAlgebra
from .drivers import BLOCK, Driver, Increment, Needs, Window
from .integrators.base import Claims, Cost, Integrator, OrbitMethod
from .models.origin import model
from .numerics.rootfind import SolveInfo, explicit_info
from .runtime.backends.base import Backend, NotSupported, Program, Stepper
from .runtime.backends.xla import XlaProgram
from .runtime.loop import execute
from .runtime.plan import Batch, Plan
from .runtime.planning import plan_ensemble, plan_solve
from .runtime.reducers import Reducer
from .runtime.results import RunSummary
from .runtime.run_state import Snapshot, StepState
from .runtime.sinks import Memory, Output, Sink

__all__ = [
    "BLOCK",
    "Backend",
    "Batch",
    "Claims",
    "Cost",
    "Driver",
    "Increment",
    "Integrator",
    "LieAlgebra",
    "Memory",
    "Needs",
    "NotSupported",
    "OrbitMethod",
    "Output",
    "Plan",
    "Program",
    "Reducer",
    "RunSummary",
    "Sink",
    "Snapshot",
    "SolveInfo",
    "StepState",
    "Stepper",
    "Window",
    "XlaProgram",
    "execute",
    "explicit_info",
    "model",
    "plan_ensemble",
    "plan_solve",
]
