"""The context that every lowering rule receives, and the registry of rules."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Concatenate, TypeVar

import numpy as np
from jax.extend import core as jex

from ..jaxprs.equation_types import Equation
from .groups import Groups
from .llvm_builder import Code
from .scalar_kinds import LaneArray
from .scalar_lowering import ScalarLowering
from .shared_values import SharedValues


@dataclass
class Assumptions:
    """The conditions under which the code that is being written is valid."""

    trust_likely: bool = True  # conditions marked `likely` are assumed to be true
    guards: list[Any] = field(default_factory=list)  # the conditions that were assumed
    active: Any = np.True_  # whether the members take the branch that is being lowered


@dataclass
class LoweringContext:
    """What a rule needs to lower an equation.

    Attributes
    ----------
    code
        The instructions of the step.
    scalars
        Operations on single lanes, which are folded where possible.
    shared
        Numbers that do not vary, computed before the run.
    groups
        Equal operations of the elements of an array, and the number of operations that are left.
    assumptions
        The conditions that are assumed.
    evaluate
        `evaluate(closed, arrays)` lowers a complete program and returns the lanes of its results.
    """

    code: Code
    scalars: ScalarLowering
    shared: SharedValues
    groups: Groups
    assumptions: Assumptions
    evaluate: Callable[[jex.ClosedJaxpr, Sequence[LaneArray]], list[LaneArray]]


# A rule maps the lanes of the operands of an equation to the lanes of its results.
Rule = Callable[Concatenate[LoweringContext, Equation, ...], list[LaneArray]]  # (context, equation, operands …)

RULES: dict[str, Rule] = {}


R = TypeVar("R", bound=Rule)


def rule(*names: str) -> Callable[[R], R]:
    """Register a function as the rule for the primitives of these names."""

    def register(function: R) -> R:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register
