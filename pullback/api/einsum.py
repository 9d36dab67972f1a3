"""einsum: the summation convention, lowered to dot_general, sums, diagonals and permutations.

Each operand is first reduced on its own (a label repeated within it takes the diagonal, a label that nobody else needs
is summed); then operands are multiplied in pairs, at each step the pair whose result is smallest.
"""

from __future__ import annotations

import math
from typing import Any

from ..errors import ShapeError
from ..graph.node import Node
from ..ops import contraction as dots
from ..ops import elementwise as ops
from ..ops import movement as move
from ..ops import reduction as fold
from ..tensor import Tensor
from .convert import ArrayLike, promote

_ELLIPSIS_LABELS = [chr(0xE000 + i) for i in range(64)]  # private-use characters stand for the axes of "..."

Term = tuple[Node, str]


def einsum(subscripts: str, /, *operands: ArrayLike, optimize: Any = None) -> Tensor:
    """Sums of products named by labels: ``einsum("bij,bjk->bik", a, b)``.

    subscripts: one group of letters for each operand, separated by commas; ``...`` stands for axes that broadcast.
    Without ``->`` the result has the labels that occur once, in alphabetical order, after the axes of ``...``.
    optimize: accepted for NumPy's sake; the order is chosen by the sizes of intermediate results.

    Raises ShapeError for a label with two extents, a wrong number of operands or labels, or an unknown output label.
    """
    nodes = promote(*operands, op="einsum")
    inputs, output = parse(subscripts, [len(n.shape) for n in nodes])
    sizes = _label_sizes(subscripts, inputs, nodes)
    terms = [_without_unit_axes(n, labels, sizes) for n, labels in zip(nodes, inputs, strict=True)]
    terms = [_reduce_alone(i, terms, output) for i in range(len(terms))]
    while len(terms) > 1:
        i, j = _cheapest_pair(terms, output, sizes)
        rest = [t for k, t in enumerate(terms) if k not in (i, j)]
        needed = set(output).union(*[labels for _, labels in rest])
        terms = [_multiply(terms[i], terms[j], needed), *rest]
    return Tensor(_arrange(*terms[0], output, sizes))


def parse(subscripts: str, ranks: list[int]) -> tuple[list[str], str]:
    """The labels of each operand's axes and of the result's, ``...`` written out."""
    text = subscripts.replace(" ", "")
    left, arrow, right = text.partition("->")
    groups = left.split(",")
    if len(groups) != len(ranks):
        raise ShapeError(f"einsum: {subscripts!r} names {len(groups)} operands, {len(ranks)} were given")
    longest = 0
    inputs: list[str] = []
    for position, (group, rank) in enumerate(zip(groups, ranks, strict=True)):
        named = group.replace("...", "", 1)
        if named and not named.isalpha():
            raise ShapeError(f"einsum: labels must be letters, got {group!r} in {subscripts!r}")
        count = rank - len(named)
        if count < 0 or (count > 0 and "..." not in group):
            raise ShapeError(
                f"einsum: {group!r} names {len(named)} axes, operand {position} has {rank}"
            )
        longest = max(longest, count)
        inputs.append(group.replace("...", "\0" * count))
    # "..." aligns at the last axis, as broadcasting does.
    inputs = [_write_out(labels, longest) for labels in inputs]
    dots_label = "".join(_ELLIPSIS_LABELS[:longest])
    if not arrow:
        every = "".join(inputs)
        singles = sorted({c for c in every if c not in dots_label and every.count(c) == 1})
        return inputs, dots_label + "".join(singles)
    named = right.replace("...", "", 1)
    if named and not named.isalpha():
        raise ShapeError(f"einsum: labels must be letters, got {right!r} in {subscripts!r}")
    output = right.replace("...", dots_label)
    if len(set(output)) != len(output):
        raise ShapeError(f"einsum: an output label is repeated in {subscripts!r}")
    for label in named:
        if not any(label in labels for labels in inputs):
            raise ShapeError(f"einsum: output label {label!r} names no axis of an operand in {subscripts!r}")
    if longest and "..." not in right:
        raise ShapeError(f"einsum: the axes of '...' are missing from the output in {subscripts!r}")
    return inputs, output


def _write_out(labels: str, longest: int) -> str:
    count = labels.count("\0")
    return labels.replace("\0" * count, "".join(_ELLIPSIS_LABELS[longest - count : longest])) if count else labels


def _label_sizes(subscripts: str, inputs: list[str], nodes: list[Node]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for labels, node in zip(inputs, nodes, strict=True):
        for label, extent in zip(labels, node.shape, strict=True):
            known = sizes.setdefault(label, extent)
            if known == extent or extent == 1:
                continue
            if known != 1:
                name = f"label {label!r}" if label not in _ELLIPSIS_LABELS else "an axis of '...'"
                shapes = ", ".join(str(n.shape) for n in nodes)
                raise ShapeError(
                    f"einsum: {name} has extents {known} and {extent} in {subscripts!r} of shapes {shapes}"
                )
            sizes[label] = extent
    return sizes


def _without_unit_axes(node: Node, labels: str, sizes: dict[str, int]) -> Term:
    """Axes of extent 1 that broadcast against a larger extent carry nothing: they are dropped."""
    kept = [a for a, label in enumerate(labels) if node.shape[a] == sizes[label]]
    if len(kept) == len(labels):
        return node, labels
    return move.reshape(node, tuple([node.shape[a] for a in kept])), "".join([labels[a] for a in kept])


def _reduce_alone(position: int, terms: list[Term], output: str) -> Term:
    """Diagonals of repeated labels, then sums over labels that neither another operand nor the output has."""
    from .diagonal import diagonal_node

    node, labels = terms[position]
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            order = [a for a in range(len(labels)) if a not in (first, second)]
            node = diagonal_node(move.permute(node, (*order, first, second)))
            labels = "".join([labels[a] for a in order]) + label
    needed = set(output).union(*[t for k, (_, t) in enumerate(terms) if k != position])
    return _sum_over(node, labels, [label for label in labels if label not in needed])


def _sum_over(node: Node, labels: str, gone: list[str]) -> Term:
    if not gone:
        return node, labels
    axes = tuple([a for a, label in enumerate(labels) if label in gone])
    folded = (fold.reduce_any if node.dtype.kind == "b" else fold.reduce_sum)(node, axes, False)
    return folded, "".join([label for label in labels if label not in gone])


def _cheapest_pair(terms: list[Term], output: str, sizes: dict[str, int]) -> tuple[int, int]:
    """The pair of terms with the smallest product; of equals the first, so two operands keep their order."""
    if len(terms) == 2:
        return 0, 1
    best = (math.inf, 0, 1)
    for i in range(len(terms)):
        for j in range(i + 1, len(terms)):
            needed = set(output).union(*[labels for k, (_, labels) in enumerate(terms) if k not in (i, j)])
            before, result, work = 0, 1, 1
            for label in set(terms[i][1]) | set(terms[j][1]):
                work *= sizes[label]
                if label in needed:
                    result *= sizes[label]
            for _, labels in (terms[i], terms[j]):
                size = 1
                for label in labels:
                    size *= sizes[label]
                before += size
            cost = float(result - before) + 1e-9 * work
            if cost < best[0]:
                best = (cost, i, j)
    return best[1], best[2]


def _multiply(x: Term, y: Term, needed: set[str]) -> Term:
    """The product of two terms, summed over the labels that are no longer needed."""
    (a, labels_a), (b, labels_b) = x, y
    a, labels_a = _sum_over(a, labels_a, [c for c in labels_a if c not in needed and c not in labels_b])
    b, labels_b = _sum_over(b, labels_b, [c for c in labels_b if c not in needed and c not in labels_a])
    shared = [c for c in labels_a if c in labels_b]
    contract = [c for c in shared if c not in needed]
    batch = [c for c in shared if c in needed]
    if not contract:
        return _pointwise(a, labels_a, b, labels_b)
    node = dots.dot_general(
        a,
        b,
        (tuple([labels_a.index(c) for c in contract]), tuple([labels_b.index(c) for c in contract])),
        (tuple([labels_a.index(c) for c in batch]), tuple([labels_b.index(c) for c in batch])),
    )
    free_a = [c for c in labels_a if c not in shared]
    free_b = [c for c in labels_b if c not in shared]
    return node, "".join([*batch, *free_a, *free_b])


def _pointwise(a: Node, labels_a: str, b: Node, labels_b: str) -> Term:
    """A product without a sum, by broadcasting, which fuses with its neighbours."""
    labels = labels_a + "".join([c for c in labels_b if c not in labels_a])
    a = move.reshape(a, a.shape + (1,) * (len(labels) - len(labels_a)))
    b = _spread(b, labels_b, labels)
    product = ops.logical_and(a, b) if a.dtype.kind == "b" else ops.multiply(a, b)
    return product, labels


def _spread(node: Node, labels: str, target: str) -> Node:
    """Axes in the order of ``target``, extent 1 for labels that the node lacks."""
    order = tuple(sorted(range(len(labels)), key=lambda a: target.index(labels[a])))
    if order != tuple(range(len(order))):
        node = move.permute(node, order)
    extents = iter(node.shape)
    return move.reshape(node, tuple([next(extents) if c in labels else 1 for c in target]))


def _arrange(node: Node, labels: str, output: str, sizes: dict[str, int]) -> Node:
    """The last term in the output's axis order; labels that only had extent-1 axes come back."""
    node, labels = _sum_over(node, labels, [c for c in labels if c not in output])
    if labels != output:
        node = _spread(node, labels, output)
    shape = tuple([sizes[c] for c in output])
    return node if node.shape == shape else move.broadcast_to(node, shape)
