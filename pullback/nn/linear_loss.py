"""Softmax cross entropy of a linear layer's outputs, which are never in memory as a whole.

With a vocabulary of 50,000 words the logits are by far the largest array of a language model's step, and they are
needed for three numbers a row only: the logarithm of the sum of exponentials, the label's logit, and the mean. These
are collected chunk by chunk of the vocabulary (running maximum and sum: Milakov and Gimelshein, "Online normalizer
calculation for softmax", 2018); for the gradient, the logits of a chunk are computed once more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ..api import convert, indexing, joining, manipulation
from ..api import elementwise as ew
from ..api import reduction as fold
from ..dtypes import DType
from ..errors import ArgumentError, CompileError, DTypeError, ShapeError
from ..graph.node import Node
from ..ops import elementwise as ops
from ..ops import leaf
from ..ops import movement as move
from ..ops.contraction import Precision, dot_general
from ..runtime.evaluate import get_matmul_precision
from ..shapes import as_number, size_of
from ..tensor import Tensor
from ..transforms.fused import Inputs, fused
from .labels import checked_labels, is_label
from .operands import check_reduction, compute_dtype, float_tensor, narrowed, reduced, strong
from .probability import exponentials

MAX_CHUNKS = 16
CHUNK_SIZE = 1 << 21  # logits of a chunk, unless that makes more chunks


def linear_cross_entropy(
    x: Any,
    weight: Any,
    labels: Any,
    bias: Any = None,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    class_weight: Any = None,
    reduction: str = "mean",
) -> Tensor:
    """``cross_entropy(linear(x, weight, bias), labels)``, without the logits.

    Args:
        x: (..., D), floating.
        weight: (C, D), floating: a row for each class, as of :func:`linear`.
        labels: (...), integers: class numbers.
        bias: (C,), or None.
        ignore_index: labels of this number count for nothing.
        label_smoothing: the target becomes this much of the uniform distribution.
        class_weight: (C,): the weight of each class, the ``weight`` of :func:`cross_entropy`; the mean is then weighted
            too.
        reduction: ``"mean"`` over the labels that count (NaN if none does), ``"sum"`` or ``"none"``.

    At most a sixteenth of the logits is in memory at a time, forward and in reverse mode's first derivative, which
    computes them once more. Forward mode, derivatives of higher order and, with label smoothing, those by
    ``class_weight`` go through all of them. Few logits (2 million) are computed at once.

    Raises IndexError (when the loss is evaluated) for a class number out of range, ShapeError, DTypeError and
    ArgumentError for operands that do not fit.
    """
    op = "linear_cross_entropy"
    check_reduction(reduction, op)
    if not 0.0 <= as_number(label_smoothing, op, "label_smoothing") <= 1.0:
        raise ArgumentError(f"{op}: label_smoothing must be in [0, 1], got {label_smoothing}")
    rows, parameters, target, dtype = _operands(x, weight, labels, bias, op)
    classes = parameters[0].shape[0]
    counted = None
    if target.dtype.kind == "i" or ignore_index >= 0:
        counted = target != ignore_index
        target = ew.where(counted, target, 0)
    target = checked_labels(target, classes, f"{op}: class number")
    width = compute_dtype(dtype)
    weights = None if class_weight is None else _class_weights(class_weight, classes, width, op)
    smooths, labels = label_smoothing > 0.0, manipulation.reshape(target, (-1,))
    summary = _Summary(
        classes, width, smooths, bias is not None, smooths and weights is not None, get_matmul_precision(), CHUNK_SIZE
    )
    found = summary(rows, parameters, weights, labels)
    losses, mass = found[0] - found[1], None
    if weights is not None:
        mass = indexing.take(weights, labels, axis=0)
        losses = strong(mass, losses)
    if smooths:
        spread = found[0] if weights is None else found[0] * fold.mean(weights)
        losses = losses * (1.0 - label_smoothing) + (spread - found[2]) * label_smoothing
    losses = manipulation.reshape(losses, target.shape)
    mass = None if mass is None else manipulation.reshape(mass, target.shape)
    if counted is not None:
        losses = ew.where(counted, losses, 0.0)
        mass = convert.astype(counted, width) if mass is None else ew.where(counted, mass, 0.0)
    if mass is not None and reduction == "mean":
        return narrowed(fold.sum(losses) / fold.sum(mass), dtype)
    return reduced(losses, reduction, dtype)


def _class_weights(given: Any, classes: int, dtype: DType, op: str) -> Tensor:
    weights = float_tensor(given, op)
    if weights.shape != (classes,):
        raise ShapeError(f"{op}: a class_weight of shape ({classes},) expected, got {weights.shape}")
    return narrowed(weights, dtype)


def _operands(x: Any, weight: Any, labels: Any, bias: Any, op: str) -> tuple[Tensor, list[Tensor], Tensor, DType]:
    """Rows (N, D); weight, and bias if there is one; labels; the dtype of the result."""
    inputs = float_tensor(x, op)
    given = [float_tensor(p, op) for p in ((weight,) if bias is None else (weight, bias))]
    dtype = convert.result_type(inputs, *given)
    w = given[0]
    if not inputs.ndim or w.ndim != 2 or w.shape[1] != inputs.shape[-1]:
        raise ShapeError(f"{op}: x (..., D) and a weight (C, D) expected, got shapes {inputs.shape} and {w.shape}")
    if bias is not None and given[1].shape != w.shape[:1]:
        raise ShapeError(f"{op}: a bias of shape {w.shape[:1]} expected for weight {w.shape}, got {given[1].shape}")
    target = convert.wrap(convert.as_node(labels, None, op))
    if target.dtype.kind not in "iu":
        raise DTypeError(f"{op}: labels must be class numbers (integers), got {target.dtype.name}")
    if target.shape != inputs.shape[:-1]:
        raise ShapeError(
            f"{op}: x of shape {inputs.shape} needs labels of shape {inputs.shape[:-1]}, got {target.shape}"
        )
    if not w.shape[0] and target.size:
        raise ShapeError(f"{op}: a class at least expected, got a weight of shape {w.shape}")
    rows = manipulation.reshape(inputs, (size_of(target.shape), inputs.shape[-1]))
    return rows, given, target, dtype


@dataclass(frozen=True)
class _Summary:
    """What the loss needs of the logits of each row: (3, N) or, with the mean, (4, N).

    The logarithm of the sum of exponentials, the label's logit and the mean logit, all less the row's largest logit,
    and that one itself, a constant to derivatives: logits that are large as a whole do not cancel. The mean is over all
    classes, of logits by class weights if there are any.

    Inputs: x, the layer's weight, its bias if there is one, class weights if the mean has any, labels.
    """

    classes: int
    dtype: DType
    has_mean: bool
    has_bias: bool
    has_weights: bool
    precision: Precision
    chunk_size: int

    def __call__(self, x: Tensor, parameters: list[Tensor], weights: Tensor | None, labels: Tensor) -> Tensor:
        weighing = [weights.node] if weights is not None and self.has_weights else []
        inputs = [x.node, *[p.node for p in parameters], *weighing, labels.node]
        if len(self._chunks(x.shape[0])) == 1 or not x.shape[1]:
            return Tensor(self._definition(inputs))
        return Tensor(fused(inputs, self._definition, self._kernel, self._gradient, keeps_value=True))

    def _chunks(self, rows: int) -> list[tuple[int, int]]:
        """Of the classes, first and last + 1."""
        count = max(1, min(MAX_CHUNKS, -(-rows * self.classes // self.chunk_size)))
        width = max(1, -(-self.classes // count))
        return [(start, min(start + width, self.classes)) for start in range(0, self.classes, width)] or [(0, 0)]

    def _definition(self, inputs: Inputs) -> Node:
        logits = self._logits(self._widened(inputs[0]), inputs, 0, self.classes)
        largest, shifted, total = exponentials(logits, 1, "linear_cross_entropy")
        chosen = is_label(Tensor(inputs[-1]), self.classes, 1)
        found = [_logarithm(total)[:, 0], fold.sum(ew.where(chosen, shifted, 0.0), axis=1)]
        if self.has_mean:
            found.append(fold.mean(self._weighted(shifted, inputs, 0, self.classes), axis=1))
        return joining.stack([*found, largest[:, 0]]).node

    def _widened(self, node: Node) -> Tensor:
        return Tensor(convert.cast_node(node, self.dtype))

    def _logits(self, x: Tensor, inputs: Inputs, start: int, stop: int) -> Tensor:
        """Of the classes from ``start`` to ``stop``; half types are widened chunk by chunk."""
        weight = self._rows_of(inputs[1], start, stop)
        product = Tensor(dot_general(x.node, weight.node, ((1,), (1,)), precision=self.precision))
        return product + self._rows_of(inputs[2], start, stop) if self.has_bias else product

    def _weights(self, inputs: Inputs, start: int, stop: int) -> Tensor | None:
        """Of the classes from ``start`` to ``stop``."""
        return self._rows_of(inputs[3 if self.has_bias else 2], start, stop) if self.has_weights else None

    def _weighted(self, logits: Tensor, inputs: Inputs, start: int, stop: int) -> Tensor:
        weights = self._weights(inputs, start, stop)
        return logits if weights is None else strong(weights, logits)

    def _rows_of(self, node: Node, start: int, stop: int) -> Tensor:
        if (start, stop) != (0, node.shape[0]):
            node = move.slice_axis(node, 0, start, stop)
        return self._widened(node)

    def _kernel(self, inputs: Inputs) -> Node:
        x, labels = self._widened(inputs[0]), Tensor(inputs[-1])
        largest = base = total = label = mean = Tensor(leaf.full((x.shape[0],), 0.0, self.dtype))
        mass: Any = 0  # of the classes before
        for start, stop in self._chunks(x.shape[0]):
            # One chunk after the other, so that only one is in memory: its rows are not read before the last is done.
            logits = self._logits(_after(x, total) if start else x, inputs, start, stop)
            top = fold.max(logits, axis=1)
            before, old_base = largest, base
            largest = ew.maximum(before, top) if start else top
            base = ew.where(largest == -math.inf, 0.0, largest)
            shifted = logits - base[:, None]
            chosen = is_label(labels - start, stop - start, 1)
            sums = fold.sum(ew.exp(shifted), axis=1), fold.sum(ew.where(chosen, shifted, 0.0), axis=1)
            part = fold.sum(self._weighted(shifted, inputs, start, stop), axis=1)
            weights = self._weights(inputs, start, stop)
            mass_here = stop - start if weights is None else fold.sum(weights)
            if not start:
                (total, label), mean, mass = sums, part, mass_here
                continue
            # What was before is less the new largest logit from here on.
            total = total * ew.exp(before - base) + sums[0]
            label = ew.where(labels < start, label - (base - old_base), sums[1])
            mean = mean - (base - old_base) * mass + part
            mass = mass + mass_here
        found = [_logarithm(total), label, *([mean / self.classes] if self.has_mean else []), base]
        return joining.stack(found).node

    def _gradient(self, inputs: Inputs, cotangent: Node) -> list[Node | None]:
        *inputs, kept = inputs
        by_total, by_label, *by_mean = [Tensor(cotangent)[i] for i in range(3 if self.has_mean else 2)]
        logarithm, base = Tensor(kept)[0], Tensor(kept)[-1]
        is_empty = logarithm == -math.inf
        by_total = ew.where(is_empty, 0.0, by_total)
        shift = ew.where(is_empty, 0.0, base + logarithm)
        labels = Tensor(inputs[-1])
        x = self._widened(inputs[0])
        done = [Tensor(kept)]
        by_x: Tensor | None = None
        parameters = inputs[1 : 3 if self.has_bias else 2]
        by_parameters: list[list[Node]] = [[] for _ in parameters]
        for start, stop in self._chunks(x.shape[0]):
            # What the forward pass has computed is computed again, not kept; and one chunk after the other.
            rows = x
            for found in done:
                rows = _after(rows, found)
            logits = self._logits(rows, inputs, start, stop)
            by_logits = strong(by_total[:, None], ew.exp(logits - shift[:, None]))
            by_logits = by_logits + ew.where(is_label(labels - start, stop - start, 1), by_label[:, None], 0.0)
            if by_mean:
                weights = self._weights(inputs, start, stop)
                share = by_mean[0][:, None] / self.classes
                by_logits = by_logits + (share if weights is None else share * weights)
            part = self._product(by_logits, self._rows_of(inputs[1], start, stop), 1, 0)
            by_x = part if by_x is None else by_x + part
            by_chunk = [self._product(by_logits, x, 0, 0)]
            if self.has_bias:
                by_chunk.append(fold.sum(by_logits, axis=0))
            for parts, found, parameter in zip(by_parameters, by_chunk, parameters, strict=True):
                parts.append(convert.cast_node(found.node, parameter.dtype))
            done = [by_x, *by_chunk]
        if by_x is None:
            raise CompileError("linear_cross_entropy: no chunks")
        by_rows = convert.cast_node(by_x.node, inputs[0].dtype)
        by_inputs = [by_rows, *[move.concat(parts, 0) for parts in by_parameters]]
        return [*by_inputs, *[None] * (len(inputs) - len(by_inputs))]

    def _product(self, a: Tensor, b: Tensor, axis_a: int, axis_b: int) -> Tensor:
        return Tensor(dot_general(a.node, b.node, ((axis_a,), (axis_b,)), precision=self.precision))


def _logarithm(total: Tensor) -> Tensor:
    """Of sums of exponentials; -inf, with derivative 0, of one over a row of -inf."""
    is_empty = total == 0.0
    return ew.where(is_empty, -math.inf, ew.log(ew.where(is_empty, 1.0, total)))


def _after(x: Tensor, other: Tensor) -> Tensor:
    """``x``, not before ``other``."""
    first = move.slice(other.node, (0,) * other.ndim, (1,) * other.ndim, (1,) * other.ndim)
    return Tensor(ops.barrier(x.node, move.reshape(first, ())))
