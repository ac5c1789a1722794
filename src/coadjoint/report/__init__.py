"""Figures of stores, and interactive widgets for pages."""

from .widgets import Curve as Curve
from .widgets import Globe as Globe
from .widgets import Scene as Scene
from .widgets import Top as Top
