"""The order in which einsum multiplies more than two operands.

A set of labels is a bit mask. Up to :data:`_OPTIMAL_LIMIT` operands the order with the fewest multiplications is found
by dynamic programming over their subsets; beyond, pairs are taken greedily, the one that shrinks the operands most
first (as opt_einsum does: Smith and Gray, "opt_einsum", JOSS 3 (2018) 753).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

_OPTIMAL_LIMIT = 8

Path = tuple[tuple[int, int], ...]


@lru_cache(maxsize=512)
def contraction_path(
    inputs: tuple[str, ...], output: str, sizes: tuple[tuple[str, int], ...], optimal: bool | None = None
) -> Path:
    """Pairs of positions in the list of operands; a pair is taken out and its product put at the end.

    inputs: labels of each operand, of which each is in another operand or in ``output``. sizes: extent of each label.
    optimal: whether to search for the best order or to go greedily; None: by the number of operands.
    """
    place = {label: 1 << k for k, (label, _) in enumerate(sizes)}
    masks = [sum(place[label] for label in set(labels)) for labels in inputs]
    size = _Sizes([extent for _, extent in sizes])
    kept = sum(place[label] for label in set(output))
    if len(masks) <= 2:
        return ((0, 1),) * (len(masks) - 1)
    if optimal is None:
        optimal = len(masks) <= _OPTIMAL_LIMIT
    return _best_order(masks, kept, size) if optimal else _greedy_order(masks, kept, size)


class _Sizes:
    """The product of the extents of a set of labels, remembered."""

    def __init__(self, extents: Sequence[int]) -> None:
        self._extents = extents
        self._known: dict[int, int] = {0: 1}

    def __call__(self, mask: int) -> int:
        found = self._known.get(mask)
        if found is None:
            lowest = mask & -mask
            found = self._known[mask] = self(mask ^ lowest) * self._extents[lowest.bit_length() - 1]
        return found


def _best_order(masks: list[int], kept: int, size: _Sizes) -> Path:
    """The order with the fewest multiplications; of several, the one with the smallest intermediate results."""
    count = len(masks)
    everything = (1 << count) - 1
    union = [0] * (everything + 1)
    for subset in range(1, everything + 1):
        lowest = subset & -subset
        union[subset] = union[subset ^ lowest] | masks[lowest.bit_length() - 1]
    # The labels of a subset's product: those that the rest or the output still needs.
    labels = [union[subset] & (kept | union[everything ^ subset]) for subset in range(everything + 1)]
    cost: list[tuple[float, float]] = [(0, 0)] * (everything + 1)
    halves = [0] * (everything + 1)
    for subset in range(1, everything + 1):
        if subset & (subset - 1) == 0:
            continue
        best: tuple[float, float] = (math.inf, math.inf)
        produced = size(labels[subset])
        lowest = subset & -subset
        half = (subset - 1) & subset
        while half:
            if half & lowest:  # each division once
                other = subset ^ half
                (work_a, space_a), (work_b, space_b) = cost[half], cost[other]
                found = (work_a + work_b + size(labels[half] | labels[other]), space_a + space_b + produced)
                if found < best:
                    best, halves[subset] = found, half
            half = (half - 1) & subset
        cost[subset] = best
    return _as_path(everything, halves, count)


def _as_path(everything: int, halves: list[int], count: int) -> Path:
    """The tree of halves as pairs of positions, products first."""
    stack, products = [everything], []
    while stack:
        subset = stack.pop()
        if subset & (subset - 1):
            products.append(subset)
            stack += [halves[subset], subset ^ halves[subset]]
    present = [1 << k for k in range(count)]
    path = []
    for subset in reversed(products):
        i, j = sorted((present.index(halves[subset]), present.index(subset ^ halves[subset])))
        path.append((i, j))
        present = [s for k, s in enumerate(present) if k not in (i, j)] + [subset]
    return tuple(path)


def _greedy_order(masks: list[int], kept: int, size: _Sizes) -> Path:
    """At each step the pair whose product is smallest against its factors; of several, the one with the least work."""
    masks = list(masks)
    path = []
    while len(masks) > 1:
        seen_once = seen_twice = seen_more = 0
        for mask in masks:
            seen_more |= seen_twice & mask
            seen_twice |= seen_once & mask
            seen_once |= mask
        only_two = seen_twice & ~seen_more & ~kept
        best: tuple[float, float, int, int] = (math.inf, math.inf, 0, 1)
        for i, a in enumerate(masks):
            for j in range(i + 1, len(masks)):
                b = masks[j]
                both = a | b
                found = (size(both & ~(a & b & only_two)) - size(a) - size(b), size(both), i, j)
                if found < best:
                    best = found
        _, _, i, j = best
        a, b = masks[i], masks[j]
        path.append((i, j))
        masks = [m for k, m in enumerate(masks) if k not in (i, j)] + [(a | b) & ~(a & b & only_two)]
    return tuple(path)


def multiplications(inputs: Sequence[str], output: str, sizes: dict[str, int], path: Path) -> tuple[int, int]:
    """The multiplications of ``path`` and the elements of its largest intermediate result."""
    terms = [set(labels) for labels in inputs]
    work, largest = 0, 0
    for i, j in path:
        pair = terms[i] | terms[j]
        terms = [t for k, t in enumerate(terms) if k not in (i, j)]
        result = pair & set(output).union(*terms)
        work += _product(pair, sizes)
        largest = max(largest, _product(result, sizes))
        terms.append(result)
    return work, largest


def _product(labels: set[str], sizes: dict[str, int]) -> int:
    total = 1
    for label in labels:
        total *= sizes[label]
    return total
