"""Connectionist temporal classification (Graves et al. 2006): the loss, and its first and second derivative.

A label sequence of length S is aligned to T frames through 2 S + 1 states: the labels with blanks before, between and
after them. The recursions over the frames run in log space for all sequences and states at once. The loss is the
negative logarithm of the sum over alignments; its derivative by a log-probability is minus the *occupancy*, the
probability that the alignment emits that class in that frame; the derivative of that is a covariance, of which
:func:`ctc_curvature` gives the product with a vector.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .. import dtypes
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

# -- the recursion -----------------------------------------------------------------------------------------------------


class _Lattice(NamedTuple):
    """The states of all sequences, padded to the longest.

    classes: (N, L), what each state emits.   skips: (N, L), 0 where the state may follow the one two before it, else
    -inf.   frames: (N,), of each sequence.   last: (N,), its last state, the blank after all labels.
    """

    classes: Array
    skips: Array
    frames: Array
    last: Array


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
    skips = np.full(states.shape, -np.inf)
    skips[:, 2:][(states[:, 2:] != blank) & (states[:, 2:] != states[:, :-2])] = 0.0
    return _Lattice(states, skips, frames, 2 * lengths)


def _check_lengths(lengths: Array, most: int, name: str, unit: str, site: str) -> None:
    wrong = lengths[(lengths < 0) | (lengths > most)]
    if wrong.size:
        raise ArgumentError(f"ctc_loss: {name} must be from 0 to {most}, the number of {unit}; got {wrong[0]} {site}")


_LOWEST = -np.finfo(np.float64).max


def _arrivals(emitted: Array, skips: Array, moved: Array | None, digits: type) -> tuple[Array, Array]:
    """For each frame and state the log-probability to get there, having emitted all frames before; and its tangent, if
    ``moved`` is that of the emissions (else nothing).

    emitted: (T, N, L).   digits: np.float32 where results are no wider; exponentials of differences are taken in it,
    several times as fast, while sums over frames stay in float64.
    """
    arrived = np.full(emitted.shape, -np.inf)
    slopes = np.zeros(emitted.shape if moved is not None else 0)
    arrived[:1, :, :2] = 0.0
    count, states = skips.shape
    # To stay, to step, to skip: views of the frame before, with two states in front of it that nothing comes from.
    before, turned = np.full((count, states + 2), -np.inf), np.zeros((count, states + 2))
    ways, chances = np.empty((3, count, states)), np.empty((3, count, states), digits)
    for t in range(1, len(emitted)):
        np.add(arrived[t - 1], emitted[t - 1], out=before[:, 2:])
        ways[0], ways[1] = before[:, 2:], before[:, 1:-1]
        np.add(before[:, :-2], skips, out=ways[2])
        top = np.maximum(np.maximum(np.maximum(ways[0], ways[1]), ways[2]), _LOWEST)
        np.exp(np.subtract(ways, top, out=chances, casting="same_kind"), out=chances)
        total = chances[0] + chances[1] + chances[2]
        np.add(top, np.log(total), out=arrived[t])
        if moved is not None:
            np.add(slopes[t - 1], moved[t - 1], out=turned[:, 2:])
            turn = chances[0] * turned[:, 2:] + chances[1] * turned[:, 1:-1] + chances[2] * turned[:, :-2]
            slopes[t] = turn / np.where(total == 0.0, 1.0, total)
    return arrived, slopes


def _turned_round(x: Array, lattice: _Lattice) -> Array:
    """(T, N, L) values of frames and states, each sequence from its end; its own inverse within the sequences."""
    frames, count, states = x.shape
    time = np.maximum(lattice.frames - 1 - np.arange(frames)[:, None], 0) * count + np.arange(count)
    state = np.maximum(lattice.last[:, None] - np.arange(states), 0)
    return x.ravel().take(time[:, :, None] * states + state)


def _skips_from_the_end(lattice: _Lattice) -> Array:
    """What skips are where each sequence runs from its end: from two after to a state, if from it to two after."""
    place = lattice.last[:, None] + 2 - np.arange(lattice.skips.shape[1])
    inside = (place >= 2) & (place < lattice.skips.shape[1])
    found = np.take_along_axis(lattice.skips, np.where(inside, place, 0), axis=1)
    return np.where(inside, found, -np.inf)


def _at_the_end(lattice: _Lattice, x: Array, fill: float) -> tuple[Array, Array]:
    """(N,) of ``x`` in the last frame of each sequence: in its last state, and in the one before, if there is one."""
    if not len(x):
        return np.full(len(lattice.frames), fill), np.full(len(lattice.frames), fill)
    rows, last = np.arange(len(lattice.frames)), np.maximum(lattice.frames - 1, 0)
    before = x[last, rows, np.maximum(lattice.last - 1, 0)]
    return x[last, rows, lattice.last], np.where(lattice.last > 0, before, fill)


def _evidence(lattice: _Lattice, alpha: Array) -> Array:
    """(N,), the log-probability of each sequence. Without frames only an empty sequence is possible."""
    total = np.logaddexp(*_at_the_end(lattice, alpha, -np.inf))
    return np.where(lattice.frames > 0, total, np.where(lattice.last > 0, -np.inf, 0.0))


def _emissions(lattice: _Lattice, x: Array) -> Array:
    """(T, N, L): what the states emit in each frame."""
    frames, count, classes = x.shape
    places = np.arange(count)[:, None] * classes + lattice.classes
    return x.reshape(frames, count * classes).take(places, axis=1).astype(np.float64)


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
        alpha = _arrivals(emitted, lattice.skips, None, _digits(node))[0] + emitted
        return (0.0 - _evidence(lattice, alpha)).astype(node.dtype.numpy)


def _digits(node: Node) -> type:
    return np.float64 if node.dtype is dtypes.float64 else np.float32


def _posterior(
    lattice: _Lattice, emitted: Array, moved: Array | None, digits: type
) -> tuple[Array, Array | None]:
    """The probability (T, N, L) of each state in each frame, 0 throughout for a sequence that is impossible; and its
    tangent. Both directions run in one recursion, the second through the sequences from their ends."""
    count = len(lattice.frames)
    both = np.concatenate([emitted, _turned_round(emitted, lattice)], axis=1)
    turns = None if moved is None else np.concatenate([moved, _turned_round(moved, lattice)], axis=1)
    arrived, slopes = _arrivals(both, np.concatenate([lattice.skips, _skips_from_the_end(lattice)]), turns, digits)
    alpha, beta = arrived[:, :count] + emitted, _turned_round(arrived[:, count:], lattice)
    total = _evidence(lattice, alpha)
    inside = (np.arange(len(emitted))[:, None] < lattice.frames)[:, :, None]
    inside = inside & (np.arange(emitted.shape[2]) <= lattice.last[:, None]) & (total != -np.inf)[:, None]
    logarithms = alpha + beta - np.where(total == -np.inf, 0.0, total)[:, None]
    chances = np.where(inside, np.exp(logarithms.astype(digits)), 0.0)
    if moved is None:
        return chances, None
    turn = slopes[:, :count] + moved
    weights = [np.exp(end - total) for end in _at_the_end(lattice, alpha, -np.inf)]
    change = sum(np.where(w == 0.0, 0.0, w * end) for w, end in zip(weights, _at_the_end(lattice, turn, 0.0)))
    turn = turn + _turned_round(slopes[:, count:], lattice) - np.asarray(change)[:, None]
    return chances, np.where(chances == 0.0, 0.0, chances * turn)


def _occupancy_reference(node: Node, log_probs: Array, *rest: Array) -> Array:
    lattice = _lattice(node, *rest)
    with np.errstate(all="ignore"):
        chances, _ = _posterior(lattice, _emissions(lattice, widen(log_probs, node.dtype)), None, _digits(node))
        return _by_class(lattice, chances, log_probs.shape[2]).astype(node.dtype.numpy)


def _curvature_reference(node: Node, log_probs: Array, direction: Array, *rest: Array) -> Array:
    lattice = _lattice(node, *rest)
    with np.errstate(all="ignore"):
        emitted = _emissions(lattice, widen(log_probs, node.dtype))
        moved = _emissions(lattice, widen(direction, node.dtype))
        _, change = _posterior(lattice, emitted, moved, _digits(node))
        return _by_class(lattice, np.asarray(change), log_probs.shape[2]).astype(node.dtype.numpy)


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
