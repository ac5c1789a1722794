"""Figures, and reports on studies: claims, verdicts, one self-contained page."""

from .page import Claim as Claim
from .page import Curve as Curve
from .page import Finding as Finding
from .page import Outcome as Outcome
from .page import Scene as Scene
from .page import Top as Top
from .page import Verdict as Verdict
