"""Ready-made systems; each returns `(System, mu0)`."""

from ..fluids.torus import fourier_to_matrix as fourier_to_matrix
from ..fluids.torus import matrix_to_fourier as matrix_to_fourier
from .euler_sphere import euler_sphere as euler_sphere
from .heavy_top import heavy_top as heavy_top
from .kirchhoff import kirchhoff as kirchhoff
from .maxwell_bloch import maxwell_bloch as maxwell_bloch
from .mhd import boussinesq as boussinesq
from .mhd import mhd as mhd
from .rigid_body import rigid_body as rigid_body
from .sine_euler import sine_euler as sine_euler
from .spin_chain import spin_chain as spin_chain
