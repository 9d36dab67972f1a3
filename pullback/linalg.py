"""``pb.linalg``: linear algebra of matrices in the last two axes, all other axes being batch axes.

The names are those of the array API and of NumPy. Results of several parts are named tuples. Every function that has a
derivative has it in both modes and to every order; see the functions for what happens where matrices degenerate.
"""

from .api.contraction import matmul as matmul
from .api.contraction import outer as outer
from .api.contraction import tensordot as tensordot
from .api.contraction import vecdot as vecdot
from .api.diagonal import trace as trace
from .api.linalg import EighResult as EighResult
from .api.linalg import LstsqResult as LstsqResult
from .api.linalg import LUResult as LUResult
from .api.linalg import QRResult as QRResult
from .api.linalg import SlogdetResult as SlogdetResult
from .api.linalg import SVDResult as SVDResult
from .api.linalg import cholesky as cholesky
from .api.linalg import det as det
from .api.linalg import eigh as eigh
from .api.linalg import eigvalsh as eigvalsh
from .api.linalg import expm as expm
from .api.linalg import inv as inv
from .api.linalg import lstsq as lstsq
from .api.linalg import lu as lu
from .api.linalg import matrix_exp as matrix_exp
from .api.linalg import matrix_power as matrix_power
from .api.linalg import multi_dot as multi_dot
from .api.linalg import pinv as pinv
from .api.linalg import qr as qr
from .api.linalg import slogdet as slogdet
from .api.linalg import solve as solve
from .api.linalg import solve_triangular as solve_triangular
from .api.linalg import svd as svd
from .api.linalg import svdvals as svdvals
from .api.manipulation import matrix_transpose as matrix_transpose
from .api.norms import cond as cond
from .api.norms import cross as cross
from .api.norms import diagonal as diagonal
from .api.norms import matrix_norm as matrix_norm
from .api.norms import matrix_rank as matrix_rank
from .api.norms import norm as norm
from .api.norms import vector_norm as vector_norm
from .errors import LinAlgError as LinAlgError
