"""Figures, and reports on studies: claims, verdicts, one self-contained page."""

from .page import Claim as Claim
from .page import Finding as Finding
from .page import Outcome as Outcome
from .page import Verdict as Verdict
from .stages import Curve as Curve
from .stages import Scene as Scene
from .stages import Top as Top
