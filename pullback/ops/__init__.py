"""The primitives: one record an operation, one module a family. Importing this package registers them all."""

from . import leaf  # isort: skip  (first: the other families build on it)
from . import elementwise, reduction, movement, indexing, contraction, sorting, random  # isort: skip

__all__ = ["contraction", "elementwise", "indexing", "leaf", "movement", "random", "reduction", "sorting"]
