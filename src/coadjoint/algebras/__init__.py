"""Lie algebras, one per file."""

from .base import LieAlgebra as LieAlgebra
from .central import CentralExtension as CentralExtension
from .magnetic import MagneticSU as MagneticSU
from .product import Product as Product
from .se3 import SE3 as SE3
from .semidirect import Semidirect as Semidirect
from .semidirect import coadjoint_representation as coadjoint_representation
from .so3 import SO3 as SO3
from .structure import StructureConstants as StructureConstants
from .su import SU as SU
