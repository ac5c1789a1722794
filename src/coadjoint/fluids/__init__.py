"""Fluids on torus and sphere: fields in and out, initial fields, diagnostics."""

from .advected import AdvectingFlow as AdvectingFlow
from .fields import jet as jet
from .fields import random_field as random_field
from .fields import vortices as vortices
from .flow import Flow as Flow
from .flow import of as of
from .layered import LayeredFlow as LayeredFlow
from .sphere import Sphere as Sphere
from .sphere import index as index
from .torus import Torus as Torus
