"""Every exception that the package raises on its own account.

Each type also subclasses the built-in that users of NumPy catch, so ``except ValueError`` keeps working.
An index that is out of range raises the built-in ``IndexError``.
"""

from __future__ import annotations

import numpy as np


class PullbackError(Exception):
    """Base of every error below."""


class ShapeError(PullbackError, ValueError):
    """Operands whose shapes or axes do not fit together."""


class DTypeError(PullbackError, TypeError):
    """A dtype that an operation does not accept, or a mix without a common dtype."""


class ArgumentError(PullbackError, ValueError):
    """An argument, neither an array nor an axis, of a value that is not allowed."""


class LinAlgError(ArgumentError, np.linalg.LinAlgError):
    """A matrix without the inverse or the factorisation that was asked for."""


class RangeError(PullbackError, OverflowError):
    """A Python integer that does not fit in the dtype that it would have to take."""


class GradientError(PullbackError, ValueError):
    """A derivative that was asked for and does not exist."""


class TraceError(PullbackError, TypeError):
    """A value was needed while a function was being traced, or a traced value outlived its trace."""


class NonFiniteError(PullbackError, FloatingPointError):
    """A NaN or an infinity, found while ``debug_nans`` is on."""


class DeviceError(PullbackError, RuntimeError):
    """A device that is absent, or memory that it cannot give."""


class CompileError(PullbackError, RuntimeError):
    """The compiler met a graph or a kernel that breaks its own rules: a fault of Pullback, please report it."""


class PullbackWarning(RuntimeWarning):
    """The environment is not as it should be (a cache that cannot be used, a setting that cannot be read). Results are
    right nevertheless. Each cause is told once a process."""
