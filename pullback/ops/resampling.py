"""Weighted sums of a few elements along an axis, at positions that are known beforehand: interpolation, adaptive means.

The transpose of such an operation is another one: each element goes to a few results, with the same weights. So no
gradient adds up by scattered writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, reduce

import numpy as np

from ..graph.node import Node
from ..shapes import size_of
from . import elementwise as e
from . import leaf, movement
from .custom import Rule, custom_call, custom_result
from .family import Array
from .indexing import gather
from .reduction import reduce_sum

MAX_UNROLLED = 8  # taps up to which each is code of its own


class Taps:
    """Result o along an axis is the sum over t of ``weights[o, t] * x[positions[o, t]]``, of an axis of ``extent``.

    positions: (results, taps), each below ``extent``; weights: of the same shape. An element of weight 0 does not
    count, even if it is infinite or NaN.
    """

    def __init__(self, extent: int, positions: Array, weights: Array) -> None:
        self.extent = extent
        self.positions = np.ascontiguousarray(positions, np.int64)
        self.weights = np.ascontiguousarray(weights, np.float64)

    @property
    def count(self) -> int:
        """The number of results."""
        return self.positions.shape[0]

    @cached_property
    def filled(self) -> tuple[Array, Array]:
        """Positions and weights of which none is 0 beside others: an unused tap takes half of the weight of the one
        before, at its position, which changes no bit of the sum. So nothing need be masked."""
        order = np.argsort(self.weights == 0, axis=1, kind="stable")  # used taps first
        positions = np.take_along_axis(self.positions, order, 1)
        weights = np.take_along_axis(self.weights, order, 1)
        for tap in range(1, weights.shape[1]):
            unused = weights[:, tap] == 0
            positions[unused, tap] = positions[unused, tap - 1]
            weights[unused, tap - 1] /= 2
            weights[unused, tap] = weights[unused, tap - 1]
        return positions, weights

    @cached_property
    def transposed(self) -> Taps:
        """For each element the results that it goes to."""
        results, taps = np.nonzero(self.weights)
        elements = self.positions[results, taps]
        order = np.argsort(elements, kind="stable")
        results, taps, elements = results[order], taps[order], elements[order]
        counts = np.bincount(elements, minlength=self.extent)
        place = np.arange(len(elements)) - (np.cumsum(counts) - counts)[elements]
        most = max(int(counts.max(initial=0)), 1)
        positions = np.zeros((self.extent, most), np.int64)
        weights = np.zeros((self.extent, most))
        positions[elements, place] = results
        weights[elements, place] = self.weights[results, taps]
        return Taps(self.count, positions, weights)


def resample(x: Node, axis: int, taps: Taps) -> Node:
    """``x`` with ``taps`` taken along ``axis``, which counts from the end (-1 is the last). x is floating, unless each
    result is one element of weight 1."""
    value = _resample(x, axis, taps)
    if x.dtype.kind != "f":
        return value
    return custom_result(value, custom_call((x,), _ResampleRule(axis, taps)), 0)


def _resample(x: Node, axis: int, taps: Taps) -> Node:
    at = len(x.shape) + axis
    front, extent, back = x.shape[:at], x.shape[at], x.shape[at + 1 :]
    shape = (*front, taps.count, *back)
    if 0 in shape:
        return leaf.full(shape, 0, x.dtype)
    x = movement.reshape(x, (size_of(front), extent, size_of(back)))
    positions, weights = taps.filled
    if positions.shape[1] <= MAX_UNROLLED:
        # Tap by tap: a loop over few of them would cost more than they do.
        parts = [_weighted(_chosen(x, positions[:, tap]), weights[:, tap]) for tap in range(positions.shape[1])]
        return movement.reshape(reduce(e.add, parts), shape)
    chosen = movement.permute(gather(x, [leaf.data(positions.T)], (1,)), (0, 2, 1, 3))
    return movement.reshape(reduce_sum(_weighted(chosen, weights.T), (0,)), shape)


def _chosen(x: Node, positions: Array) -> Node:
    """What lies at ``positions`` of the middle of three axes."""
    return movement.permute(gather(x, [leaf.data(np.ascontiguousarray(positions))], (1,)), (1, 0, 2))


def _weighted(chosen: Node, weights: Array) -> Node:
    """``chosen``, of shape (..., front, results, back), times ``weights``, of shape (..., results)."""

    def table(values: Array) -> Node:
        return leaf.data(np.ascontiguousarray(values)[..., None, :, None])

    if (weights != 1).any():
        chosen = e.multiply(chosen, table(weights.astype(chosen.dtype.numpy)))
    if (weights == 0).any():  # results of nothing: their whole rows are 0
        chosen = e.where(table(weights != 0), chosen, 0)
    return chosen


class _ResampleRule(Rule):
    """The axis counts from the end, so batching leaves the rule as it is."""

    def __init__(self, axis: int, taps: Taps) -> None:
        self.axis = axis
        self.taps = taps

    def batched(self, batched: tuple[bool, ...], size: int, node: Node) -> Rule:
        return self

    def tangents(self, node: Node, tangents: Sequence[Node | None]) -> Sequence[Node | None]:
        return [None if tangents[0] is None else resample(tangents[0], self.axis, self.taps)]

    def cotangents(self, node: Node, cotangents: Mapping[int, Node], hooked: bool) -> Sequence[Node | None]:
        return [resample(cotangents[0], self.axis, self.taps.transposed)]
