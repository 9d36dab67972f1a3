"""Connectionist temporal classification (Graves et al. 2006): the loss, and its first and second derivative.

A label sequence of length S is aligned to T frames through 2 S + 1 states: the labels with blanks before, between and
after them. Forward and backward recursions over the frames run in log space, for all sequences and states at once, in
float64. The loss is the negative logarithm of the sum over alignments; its derivative by a log-probability is minus the
*occupancy*, the probability that the alignment emits that class in that frame; the derivative of that is a covariance,
of which :func:`ctc_curvature` gives the product with a vector.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..dtypes import DType
from ..errors import ArgumentError, GradientError
from ..graph.node import Node, bind
from ..graph.state import describe_site
from ..shapes import Shape
from . import elementwise as e
from . import movement
from .family import FLOAT, INTEGER, Array, kind_error, rank_error, widen, with_batch
from .record import Jvp, Linear, Op
from .reduction import reduce_sum
from .registry import register

# -- the recursions ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Lattice:
    """The states of all sequences, padded to the longest.

    classes: (N, L), what each state emits.   skips: (N, L), whether the state may follow the one two before it.
    last: (N,), the last frame of each.   finals: (N, L), whether an alignment may end in the state.
    """

    classes: Array
    skips: Array
    last: Array
    finals: Array


def _lattice(node: Node, targets: Array, frames: Array, lengths: Array) -> _Lattice:
    """Raises IndexError for a label and ArgumentError for a length out of range."""
    count, classes = node.inputs[0].shape[1:]
    blank = node.attrs[0]
    site = f"(made at {describe_site(node.site)})"
    _check_lengths(frames, node.inputs[0].shape[0], "input_lengths", "frames", site)
    longest = int(lengths.max(initial=0))
    if targets.ndim == 2:
        _check_lengths(lengths, targets.shape[1], "target_lengths", "labels a row", site)
    else:
        _check_lengths(lengths, targets.shape[0], "target_lengths", "labels", site)
        if lengths.sum() != targets.shape[0]:
            raise ArgumentError(
                f"ctc_loss: the target_lengths of concatenated targets add up to {lengths.sum()}, but there are "
                f"{targets.shape[0]} labels {site}"
            )
    inside = np.arange(longest) < lengths[:, None]
    labels = np.full((count, longest), blank, np.int64)
    labels[inside] = targets[:, :longest][inside] if targets.ndim == 2 else targets
    wrong = labels[inside & ((labels < 0) | (labels >= classes) | (labels == blank))]
    if wrong.size:
        raise IndexError(
            f"ctc_loss: label {wrong[0]} is not one of the {classes} classes without the blank, {blank} {site}"
        )
    states = np.full((count, 2 * longest + 1), blank, np.int64)
    states[:, 1::2] = labels
    skips = np.zeros(states.shape, bool)
    skips[:, 2:] = (states[:, 2:] != blank) & (states[:, 2:] != states[:, :-2])
    place, end = np.arange(states.shape[1]), 2 * lengths[:, None]
    return _Lattice(states, skips, frames - 1, (place == end) | (place == end - 1))


def _check_lengths(lengths: Array, most: int, name: str, unit: str, site: str) -> None:
    wrong = lengths[(lengths < 0) | (lengths > most)]
    if wrong.size:
        raise ArgumentError(f"ctc_loss: {name} must be from 0 to {most}, the number of {unit}; got {wrong[0]} {site}")


def _shifted(x: Array, by: int, fill: float) -> Array:
    """``x`` moved by ``by`` states, ``fill`` where nothing arrives."""
    result = np.full_like(x, fill)
    if abs(by) < x.shape[1]:
        if by > 0:
            result[:, by:] = x[:, :-by]
        else:
            result[:, :by] = x[:, -by:]
    return result


def _merged(branches: list[Array], slopes: list[Array] | None) -> tuple[Array, Array | None]:
    """logsumexp of the branches, and its tangent from theirs."""
    total = np.logaddexp(np.logaddexp(branches[0], branches[1]), branches[2])
    if slopes is None:
        return total, None
    shift = np.where(total == -np.inf, 0.0, total)
    return total, sum(np.exp(branch - shift) * slope for branch, slope in zip(branches, slopes))


def _forward(lattice: _Lattice, emitted: Array, moved: Array | None) -> tuple[Array, Array | None]:
    """For each frame and state the log-probability to be there having emitted all frames up to it; its tangent, if
    that of the emissions is given."""
    alpha = np.full(emitted.shape, -np.inf)
    slope = None if moved is None else np.zeros(emitted.shape)
    alpha[:1, :, :2] = emitted[:1, :, :2]
    if slope is not None and moved is not None:
        slope[:1] = moved[:1]
    for t in range(1, len(emitted)):
        before = alpha[t - 1]
        jump = np.where(lattice.skips, _shifted(before, 2, -np.inf), -np.inf)
        slopes = None
        if slope is not None:
            slopes = [slope[t - 1], _shifted(slope[t - 1], 1, 0.0), _shifted(slope[t - 1], 2, 0.0)]
        total, turn = _merged([before, _shifted(before, 1, -np.inf), jump], slopes)
        alpha[t] = total + emitted[t]
        if slope is not None and moved is not None and turn is not None:
            slope[t] = turn + moved[t]
    return alpha, slope


def _backward(lattice: _Lattice, emitted: Array, moved: Array | None) -> tuple[Array, Array | None]:
    """For each frame and state the log-probability to emit the frames after it from there; its tangent."""
    beta = np.full(emitted.shape, -np.inf)
    slope = None if moved is None else np.zeros(emitted.shape)
    # Whether the state two after may follow this one.
    skips = np.zeros_like(lattice.skips)
    skips[:, :-2] = lattice.skips[:, 2:]
    for t in range(len(emitted) - 1, -1, -1):
        if t + 1 < len(emitted):
            after = beta[t + 1] + emitted[t + 1]
            jump = np.where(skips, _shifted(after, -2, -np.inf), -np.inf)
            slopes = None
            if slope is not None and moved is not None:
                turn = slope[t + 1] + moved[t + 1]
                slopes = [turn, _shifted(turn, -1, 0.0), _shifted(turn, -2, 0.0)]
            beta[t], found = _merged([after, _shifted(after, -1, -np.inf), jump], slopes)
            if slope is not None and found is not None:
                slope[t] = found
        ends = lattice.last == t
        beta[t, ends] = np.where(lattice.finals[ends], 0.0, -np.inf)
        if slope is not None:
            slope[t, ends] = 0.0
    return beta, slope


def _evidence(lattice: _Lattice, alpha: Array, slope: Array | None) -> tuple[Array, Array | None]:
    """The log-probability of each sequence: what its last frame holds in final states; its tangent."""
    count, states = lattice.classes.shape
    if not len(alpha):
        return np.where(lattice.finals[:, 0], 0.0, -np.inf), None if slope is None else np.zeros(count)
    rows = np.arange(count)
    final = np.where(lattice.finals, alpha[np.maximum(lattice.last, 0), rows], -np.inf)
    # Without frames only an empty sequence is possible.
    none = (lattice.last < 0)[:, None]
    final = np.where(none, np.where((np.arange(states) == 0) & lattice.finals, 0.0, -np.inf), final)
    top = final.max(axis=1, initial=-np.inf)
    shift = np.where(np.isfinite(top), top, 0.0)
    total = np.log(np.exp(final - shift[:, None]).sum(axis=1)) + shift
    if slope is None:
        return total, None
    weights = np.exp(final - np.where(total == -np.inf, 0.0, total)[:, None])
    turns = np.where(none, 0.0, slope[np.maximum(lattice.last, 0), rows])
    return total, (weights * turns).sum(axis=1)


def _emissions(lattice: _Lattice, x: Array) -> Array:
    """(T, N, L): what the states emit in each frame."""
    return np.take_along_axis(x.astype(np.float64), lattice.classes[None], axis=2)


def _by_class(lattice: _Lattice, x: Array, classes: int) -> Array:
    """(T, N, C): ``x`` of states added up by the class that they emit."""
    frames, count, _ = x.shape
    places = np.arange(frames * count).reshape(frames, count, 1) * classes + lattice.classes
    summed = np.bincount(places.ravel(), x.ravel(), frames * count * classes)
    return summed.reshape(frames, count, classes)


def _loss_reference(node: Node, log_probs: Array, *rest: Array) -> Array:
    lattice = _lattice(node, *rest)
    with np.errstate(all="ignore"):
        emitted = _emissions(lattice, widen(log_probs, node.dtype))
        return (-_evidence(lattice, _forward(lattice, emitted, None)[0], None)[0]).astype(node.dtype.numpy)


def _posterior(alpha: Array, beta: Array, total: Array) -> Array:
    """The probability of each state in each frame; 0 throughout for a sequence that is impossible."""
    possible = total != -np.inf
    chances = np.exp(alpha + beta - np.where(possible, total, 0.0)[:, None])
    return np.where(possible[:, None], chances, 0.0)


def _occupancy_reference(node: Node, log_probs: Array, *rest: Array) -> Array:
    lattice = _lattice(node, *rest)
    with np.errstate(all="ignore"):
        emitted = _emissions(lattice, widen(log_probs, node.dtype))
        alpha, beta = _forward(lattice, emitted, None)[0], _backward(lattice, emitted, None)[0]
        chances = _posterior(alpha, beta, _evidence(lattice, alpha, None)[0])
        return _by_class(lattice, chances, log_probs.shape[2]).astype(node.dtype.numpy)


def _curvature_reference(node: Node, log_probs: Array, direction: Array, *rest: Array) -> Array:
    lattice = _lattice(node, *rest)
    with np.errstate(all="ignore"):
        emitted = _emissions(lattice, widen(log_probs, node.dtype))
        moved = _emissions(lattice, widen(direction, node.dtype))
        alpha, alpha_slope = _forward(lattice, emitted, moved)
        beta, beta_slope = _backward(lattice, emitted, moved)
        total, slope = _evidence(lattice, alpha, alpha_slope)
        chances = _posterior(alpha, beta, total)
        turns = np.asarray(alpha_slope) + np.asarray(beta_slope) - np.asarray(slope)[:, None]
        change = np.where(chances == 0.0, 0.0, chances * turns)
        return _by_class(lattice, change, log_probs.shape[2]).astype(node.dtype.numpy)


# -- the records -------------------------------------------------------------------------------------------------------


def _check(name: str, inputs: tuple[Node, ...], blank: int) -> None:
    log_probs, targets, frames, lengths = inputs
    if log_probs.dtype.kind not in FLOAT:
        raise kind_error(name, FLOAT, log_probs)
    for x in (targets, frames, lengths):
        if x.dtype.kind not in INTEGER:
            raise kind_error(name, INTEGER, x)
    if len(log_probs.shape) != 3 or len(targets.shape) not in (1, 2):
        raise rank_error(name, "log_probs needs 3 axes, targets 1 or 2", log_probs, targets)
    count = log_probs.shape[1]
    if frames.shape != (count,) or lengths.shape != (count,) or (len(targets.shape) == 2 and targets.shape[0] != count):
        raise rank_error(name, f"targets and lengths for {count} sequences are needed", targets, frames, lengths)
    if not 0 <= blank < log_probs.shape[2]:
        raise rank_error(name, f"blank {blank} is not one of the {log_probs.shape[2]} classes", log_probs)


def _infer_loss(inputs: tuple[Node, ...], blank: int) -> tuple[Shape, DType]:
    _check("ctc_loss", inputs, blank)
    return (inputs[0].shape[1],), inputs[0].dtype


def _infer_occupancy(inputs: tuple[Node, ...], blank: int) -> tuple[Shape, DType]:
    _check("ctc_occupancy", inputs, blank)
    return inputs[0].shape, inputs[0].dtype


def _infer_curvature(inputs: tuple[Node, ...], blank: int) -> tuple[Shape, DType]:
    log_probs, direction, *rest = inputs
    _check("ctc_curvature", (log_probs, *rest), blank)
    if direction.shape != log_probs.shape or direction.dtype is not log_probs.dtype:
        raise rank_error("ctc_curvature", "the direction must be of the log-probabilities' shape", log_probs, direction)
    return log_probs.shape, log_probs.dtype


def _loss_tangent(node: Node, tangents: tuple[Node | None, ...]) -> Node | None:
    tangent = tangents[0]
    if tangent is None:
        return None
    occupancy = bind(CTC_OCCUPANCY, node.inputs, node.attrs)
    return e.negative(reduce_sum(e.strong_product(tangent, occupancy), (0, 2)))


def _occupancy_tangent(node: Node, tangents: tuple[Node | None, ...]) -> Node | None:
    tangent = tangents[0]
    if tangent is None:
        return None
    log_probs, *rest = node.inputs
    return bind(CTC_CURVATURE, (log_probs, tangent, *rest), node.attrs)


def _curvature_transpose(node: Node, cotangent: Node, index: int) -> Node:
    # A matrix of second derivatives is symmetric.
    log_probs, _, *rest = node.inputs
    return bind(CTC_CURVATURE, (log_probs, cotangent, *rest), node.attrs)


def _no_third(node: Node, tangents: tuple[Node | None, ...]) -> Node | None:
    raise GradientError(
        f"ctc_loss has derivatives of first and second order only, and a third is asked for (made at "
        f"{describe_site(node.site)}); pb.stop_gradient(x) treats a value as a constant"
    )


def _batch(node: Node, inputs: tuple[Node, ...], batched: tuple[bool, ...], size: int) -> Node:
    """The batch is so many more sequences."""
    parts = [with_batch(x, b, size) for x, b in zip(inputs, batched)]
    _, frames, count, classes = parts[0].shape

    def merged(x: Node) -> Node:
        if len(x.shape) == 4:  # by frames first
            return movement.reshape(movement.permute(x, (1, 0, 2, 3)), (frames, size * count, classes))
        return movement.reshape(x, (x.shape[0] * x.shape[1], *x.shape[2:]))

    result = bind(node.op, tuple([merged(x) for x in parts]), node.attrs)
    if len(node.shape) == 1:
        return movement.reshape(result, (size, count))
    return movement.permute(movement.reshape(result, (frames, size, count, classes)), (1, 0, 2, 3))


CTC_LOSS = register(Op(
    "ctc_loss", "host", _infer_loss, _loss_reference, Jvp(_loss_tangent), _batch, "ctc_loss", 30.0, ("blank",),
    "negative log-probability of label sequences, summed over their alignments; derivative: minus the occupancy",
))
CTC_OCCUPANCY = register(Op(
    "ctc_occupancy", "host", _infer_occupancy, _occupancy_reference, Jvp(_occupancy_tangent), _batch, "ctc_occupancy",
    60.0, ("blank",), "probability that the alignment emits a class in a frame, given the label sequence",
))
CTC_CURVATURE = register(Op(
    "ctc_curvature", "host", _infer_curvature, _curvature_reference,
    Linear(_curvature_transpose, inputs=(1,), others=_no_third), _batch, "ctc_curvature", 120.0, ("blank",),
    "derivative of the occupancy in a direction",
))


def ctc_loss(log_probs: Node, targets: Node, frames: Node, lengths: Node, blank: int) -> Node:
    """Negative log-probability (N,) of label sequences; infinite for one that fits no alignment.

    log_probs: (T, N, C); targets: (N, S), or (sum of lengths,); frames, lengths: (N,), of each sequence and its labels.
    """
    return bind(CTC_LOSS, (log_probs, targets, frames, lengths), (blank,))


def ctc_occupancy(log_probs: Node, targets: Node, frames: Node, lengths: Node, blank: int) -> Node:
    """Probability (T, N, C) that the alignment emits a class in a frame; operands as in :func:`ctc_loss`."""
    return bind(CTC_OCCUPANCY, (log_probs, targets, frames, lengths), (blank,))


def ctc_curvature(
    log_probs: Node, direction: Node, targets: Node, frames: Node, lengths: Node, blank: int
) -> Node:
    """How the occupancy (T, N, C) changes as the log-probabilities move in ``direction``."""
    return bind(CTC_CURVATURE, (log_probs, direction, targets, frames, lengths), (blank,))
