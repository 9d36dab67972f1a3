"""Functions of class numbers: one_hot, embedding, and the checks that losses of classes share."""

from __future__ import annotations

from typing import Any

from .. import dtypes
from ..api import convert, indexing, manipulation, reduction, scatter
from ..api import elementwise as ew
from ..errors import ArgumentError, DTypeError, ShapeError
from ..ops import leaf
from ..tensor import Tensor
from .operands import constant, float_tensor


def embedding(indices: Any, weight: Any, padding_idx: int | None = None) -> Tensor:
    """Row ``indices[...]`` of ``weight``.

    indices: integers of any shape; weight: (num_embeddings, embedding_dim), floating; result: the shape of ``indices``
        followed by (embedding_dim,).
    padding_idx: the row that gets no gradient; negative counts from the end.

    Raises IndexError for an index that is negative or not below num_embeddings when it is evaluated, DTypeError for
    indices that are not integers, ShapeError for a weight that is no matrix.
    """
    table = float_tensor(weight, "embedding")
    if table.ndim != 2:
        raise ShapeError(f"embedding: weight must have shape (num_embeddings, embedding_dim), got {table.shape}")
    labels = convert.wrap(convert.as_node(indices, None, "embedding"))
    if labels.dtype.kind not in "iu":
        raise DTypeError(f"embedding: indices must be integers, got {labels.dtype.name}")
    count = table.shape[0]
    rows = checked_labels(labels, count, "embedding: row")
    chosen = indexing.take(table, rows, axis=0)
    if padding_idx is None:
        return chosen
    is_padding = rows == padding_row(padding_idx, count, "embedding")
    return ew.where(manipulation.expand_dims(is_padding, axis=-1), constant(chosen), chosen)


def padding_row(padding_idx: int, count: int, op: str) -> int:
    """``padding_idx`` counted from the front; ArgumentError if it is no row."""
    if not -count <= padding_idx < count:
        raise ArgumentError(f"{op}: padding_idx {padding_idx} is out of range for {count} embeddings")
    return padding_idx % count


def checked_labels(labels: Tensor, classes: int, op: str) -> Tensor:
    """Class numbers as int64; one that is negative or not below ``classes`` raises IndexError when it is evaluated."""
    return Tensor(scatter.checked_numbers(labels.node, classes, op))


def one_hot(labels: Any, num_classes: int = -1, dtype: Any = dtypes.int64) -> Tensor:
    """1 at the position of each label, else 0.  labels: integers of any shape; result: that shape + (num_classes,).

    num_classes: -1 takes the largest label plus 1, which needs the labels' values.
    Raises IndexError for a label out of range, DTypeError for labels that are not integers.
    """
    labels = convert.wrap(convert.as_node(labels, None, "one_hot"))
    if labels.dtype.kind not in "iu":
        raise DTypeError(f"one_hot: labels must be integers, got {labels.dtype.name}")
    if num_classes == -1:
        num_classes = int(reduction.max(labels).item()) + 1 if labels.size else 0
    checked = checked_labels(labels, num_classes, "one_hot: label")
    return convert.astype(is_label(checked, num_classes, labels.ndim), dtype)


def is_label(checked: Tensor, classes: int, axis: int) -> Tensor:
    """Bools with a new ``axis`` of extent ``classes``: whether the position on it is the label."""
    shape = list(checked.shape)
    shape.insert(axis, classes)
    # As narrow as the class numbers allow: kernels compare as many at once as they have floats.
    dtype = dtypes.int32 if classes < 1 << 31 else dtypes.int64
    positions = Tensor(leaf.iota(tuple(shape), axis, dtype))
    return positions == convert.astype(manipulation.expand_dims(checked, axis=axis), dtype)
