"""The primitives: one record an operation, one module a family. Importing this package registers them all."""

from . import leaf  # isort: skip  (first: the other families build on it)
from . import elementwise, reduction, movement, indexing, contraction, sorting, random, custom, scan  # isort: skip
from . import attention, convolution, ctc, linalg, determinant, norm, spectral, windows  # isort: skip

__all__ = [
    "attention", "contraction", "convolution", "ctc", "custom", "determinant", "elementwise", "indexing", "leaf",
    "linalg", "movement", "norm", "random", "reduction", "scan", "sorting", "spectral", "windows",
]
