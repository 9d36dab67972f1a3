"""Every elementwise op and the functions that make their nodes, under one name.

The declarations stand in :mod:`unary`, :mod:`special`, :mod:`activation`, :mod:`binary`, :mod:`selection` and
:mod:`random`. Operands of a function have one dtype, broadcast as in NumPy, and may be Python numbers.
"""

# ruff: noqa: F403, I001
from . import leaf, movement, reduction  # noqa: F401  (the families know each other; this order loads them all)
from .unary import *
from .special import *
from .activation import *
from .binary import *
from .selection import *
from .random import *
