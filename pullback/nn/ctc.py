"""The loss of connectionist temporal classification."""

from __future__ import annotations

import math
from typing import Any

from .. import dtypes
from ..api import convert, manipulation
from ..api import elementwise as ew
from ..api import reduction as fold
from ..errors import ArgumentError, DTypeError, ShapeError
from ..graph.node import Node
from ..ops import ctc
from ..tensor import Tensor
from .operands import check_reduction, compute_dtype, float_tensor, narrowed, reduced


def ctc_loss(
    log_probs: Any,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    *,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """Negative log-probability of label sequences, summed over all alignments to the frames (Graves et al. 2006).

    An alignment emits in each frame a label or the blank; labels come in order, each once or in several frames on end,
    equal neighbours with a blank between them.

    Args:
        log_probs: (T, N, C), or (T, C) of one sequence: logarithms of probabilities, as of :func:`log_softmax`.
        targets: class numbers, the blank not among them: (N, S), where only the first ``target_lengths`` of a row
            count, or all rows one after the other, (sum of target_lengths,); of one sequence (S,).
        input_lengths: (N,), how many frames of each sequence count; of one sequence a number.
        target_lengths: (N,), how many labels each sequence has; of one sequence a number.
        blank: the class number of the blank.
        reduction: ``"mean"`` divides each loss by its target's length (at least 1) and takes the mean; ``"sum"``;
            ``"none"``.
        zero_infinity: take the loss of a sequence that fits no alignment as 0 instead of infinity; its gradient is 0
            either way.

    The derivative is that of the formula for any ``log_probs``, normalised or not. There are derivatives of first and
    second order; a third raises GradientError. Raises ShapeError and DTypeError for operands that do not fit, and when
    the loss is evaluated IndexError for a label and ArgumentError for a length out of range.
    """
    op = "ctc_loss"
    check_reduction(reduction, op)
    x = float_tensor(log_probs, op)
    dtype = x.dtype
    x = narrowed(x, compute_dtype(dtype))
    if x.ndim not in (2, 3):
        raise ShapeError(f"{op}: log_probs must be (T, N, C) or (T, C), got shape {x.shape}")
    if not 0 <= blank < x.shape[-1]:
        raise ArgumentError(f"{op}: blank must be one of the {x.shape[-1]} classes of log_probs, got {blank}")
    labels = _integers(targets, "targets")
    frames, lengths = _integers(input_lengths, "input_lengths"), _integers(target_lengths, "target_lengths")
    is_single = x.ndim == 2
    if is_single:
        if len(labels.shape) != 1 or frames.size != 1 or lengths.size != 1:
            raise ShapeError(
                f"{op}: log_probs of shape {x.shape} are of one sequence, so targets must be (S,) and the lengths "
                f"numbers; got shapes {labels.shape}, {frames.shape} and {lengths.shape}"
            )
        x = manipulation.expand_dims(x, axis=1)
        labels, frames, lengths = _reshaped(labels, (1, -1)), _reshaped(frames, (1,)), _reshaped(lengths, (1,))
    count = x.shape[1]
    if len(labels.shape) not in (1, 2) or (len(labels.shape) == 2 and labels.shape[0] != count):
        raise ShapeError(f"{op}: targets for {count} sequences must be ({count}, S) or one axis, got {labels.shape}")
    for node, name in ((frames, "input_lengths"), (lengths, "target_lengths")):
        if node.shape != (count,):
            raise ShapeError(f"{op}: {name} must have shape ({count},), one for each sequence; got {node.shape}")
    losses = Tensor(ctc.ctc_loss(x.node, labels, frames, lengths, int(blank)))
    if zero_infinity:
        losses = ew.where(losses == math.inf, 0.0, losses)
    if reduction == "mean":
        losses = losses / convert.astype(ew.maximum(Tensor(lengths), 1), losses.dtype)
    if is_single and reduction == "none":
        losses = fold.sum(losses)
    return reduced(losses, reduction, dtype)


def _integers(values: Any, name: str) -> Node:
    node = convert.as_node(values, None, "ctc_loss")
    if node.dtype.kind not in "iu" and node.size:  # an empty list holds no floats
        raise DTypeError(f"ctc_loss: {name} must be integers, got {node.dtype.name}")
    return convert.cast_node(node, dtypes.int64)


def _reshaped(node: Node, shape: tuple[int, ...]) -> Node:
    return manipulation.reshape(Tensor(node), shape).node
