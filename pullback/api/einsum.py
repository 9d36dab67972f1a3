"""einsum: the summation convention, lowered to dot_general, sums, diagonals and permutations.

Each operand is first reduced on its own (a label repeated within it takes the diagonal, a label that nobody else needs
is summed); then operands are multiplied in pairs, in the order that einsum_path.py chooses.
"""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_lowercase, ascii_uppercase
from typing import Any

from ..errors import ArgumentError, ShapeError
from ..graph.node import Node
from ..ops import contraction as dots
from ..ops import elementwise as ops
from ..ops import movement as move
from ..ops import reduction as fold
from ..runtime.evaluate import get_matmul_precision
from ..shapes import Shape, as_int
from ..tensor import Tensor
from .convert import ArrayLike, promote, promote_to
from .diagonal import diagonal_node
from .einsum_path import Path, contraction_path, multiplications

_ELLIPSIS_LABELS = [chr(0xE000 + i) for i in range(64)]  # private-use characters stand for the axes of "..."
_LETTERS = ascii_uppercase + ascii_lowercase  # in the order that sorts them

Term = tuple[Node, str]


def einsum(
    subscripts: str | ArrayLike, /, *operands: Any, optimize: Any = None, preferred_dtype: Any = None
) -> Tensor:
    """Sums of products named by labels: ``einsum("bij,bjk->bik", a, b)``.

    subscripts: one group of letters for each operand, separated by commas; ``...`` stands for axes that broadcast, and
    an axis of extent 1 broadcasts too. A label repeated in one group takes a diagonal. Without ``->`` the result has
    the labels that occur once, in alphabetical order, after the axes of ``...``. NumPy's other form gives lists of ints
    in place of letters: ``einsum(a, [0, 1], b, [1, 2], [0, 2])``.
    preferred_dtype: of all products, sums and the result; see :func:`matmul`.
    optimize: the order of the products: None and True find the one with the fewest multiplications (greedily for more
    than 8 operands), "optimal" and "greedy" choose how, False goes from left to right, and a path is one that
    :func:`einsum_path` or NumPy's made.

    Bools give bools (whether any product holds), integers wrap, float16 and bfloat16 accumulate in float32.
    Raises ShapeError for a label with two extents, a wrong number of operands or labels, or an unknown output label;
    ArgumentError for another ``optimize``.
    """
    text, arrays = _arguments(subscripts, operands)
    terms, output, sizes = _terms(text, arrays, preferred_dtype)
    for pair in _chosen_path(terms, output, sizes, optimize):
        taken = [terms[position] for position in pair]
        terms = [term for position, term in enumerate(terms) if position not in pair]
        product = taken[0]
        for count, term in enumerate(taken[1:], 2):
            left = [*terms, *taken[count:]]
            product = _multiply(product, term, set(output).union(*[labels for _, labels in left]))
        terms.append(product)
    return Tensor(_arrange(*terms[0], output, sizes))


def einsum_path(subscripts: str | ArrayLike, /, *operands: Any, optimize: Any = None) -> tuple[list[Any], str]:
    """The order in which :func:`einsum` multiplies its operands, in NumPy's form, and a sentence on what it costs.

    The list begins with "einsum_path"; then each pair of positions is taken out of the list of operands, and its
    product put at the end. ``einsum(..., optimize=path)`` follows it. Errors as of :func:`einsum`.
    """
    text, arrays = _arguments(subscripts, operands)
    terms, output, sizes = _terms(text, arrays)
    path = _chosen_path(terms, output, sizes, optimize)
    report = f"{len(terms)} operands"
    if all(len(pair) == 2 for pair in path):
        work, largest = multiplications([labels for _, labels in terms], output, sizes, path)  # type: ignore[arg-type]
        report += f", {work} multiplications, largest product of {largest} elements"
    return ["einsum_path", *path], report


def _arguments(first: Any, rest: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """The subscripts as one string, and the operands, from either form of the call."""
    if isinstance(first, str):
        return first, rest
    given = (first, *rest)
    pairs, output = given[: len(given) // 2 * 2], given[len(given) // 2 * 2 :]
    lists = [*pairs[1::2], *output]
    if any(not isinstance(entry, Sequence) or isinstance(entry, str) for entry in lists):
        raise ShapeError("einsum: a string of subscripts, or operands each followed by a list of int labels, expected")
    labels = sorted({as_int(label, "einsum", "a label") for entry in lists for label in entry if label is not Ellipsis})
    if len(labels) > len(_LETTERS):
        raise ShapeError(f"einsum: at most {len(_LETTERS)} different labels, got {len(labels)}")
    letter = dict(zip(labels, _LETTERS, strict=False))
    texts = ["".join(["..." if label is Ellipsis else letter[label] for label in entry]) for entry in lists]
    count = len(pairs) // 2
    return ",".join(texts[:count]) + ("->" + texts[count] if output else ""), pairs[0::2]


def _terms(
    text: str, arrays: tuple[Any, ...], preferred_dtype: Any = None
) -> tuple[list[Term], str, dict[str, int]]:
    """The operands reduced each on its own, the output's labels, and the extent of every label."""
    nodes = promote(*arrays, op="einsum")
    if preferred_dtype is not None:
        nodes = promote_to(preferred_dtype, *nodes, op="einsum")
    inputs, output = parse(text, [n.shape for n in nodes])
    sizes = _label_sizes(text, inputs, nodes)
    terms = [_without_unit_axes(n, labels, sizes) for n, labels in zip(nodes, inputs, strict=True)]
    return [_reduce_alone(i, terms, output) for i in range(len(terms))], output, sizes


def _chosen_path(
    terms: list[Term], output: str, sizes: dict[str, int], optimize: Any
) -> Sequence[tuple[int, ...]]:
    if optimize is None or optimize is True or (isinstance(optimize, str) and optimize in ("optimal", "greedy")):
        optimal = optimize == "optimal" if isinstance(optimize, str) else None
        return contraction_path(tuple([labels for _, labels in terms]), output, tuple(sizes.items()), optimal)
    count = len(terms)
    if optimize is False:
        return _from_left(count)
    given = list(optimize) if isinstance(optimize, Sequence) and not isinstance(optimize, str) else [optimize]
    if given and given[0] == "einsum_path":
        given = given[1:]
    path = []
    for entry in given:
        if not isinstance(entry, Sequence) or isinstance(entry, str) or not all(isinstance(i, int) for i in entry):
            raise ArgumentError(
                f"einsum: optimize must be a bool, 'optimal', 'greedy' or a path of positions, got {optimize!r}"
            )
        pair = tuple([i + count if i < 0 else i for i in entry])
        if not pair or len(set(pair)) != len(pair) or not all(0 <= i < count for i in pair):
            raise ArgumentError(f"einsum: {tuple(entry)} in the path does not choose among {count} operands")
        count -= len(pair) - 1
        path.append(pair)
    # A path that ends early leaves the rest to be multiplied from the left.
    return [*path, *_from_left(count)]


def _from_left(count: int) -> Path:
    """The first two operands, then that product with the next one, and so on."""
    return tuple([(0, 1 if k == 0 else count - k - 1) for k in range(count - 1)])


def parse(subscripts: str, shapes: list[Shape]) -> tuple[list[str], str]:
    """The labels of each operand's axes and of the result's, ``...`` written out."""
    text = subscripts.replace(" ", "")
    left, arrow, right = text.partition("->")
    groups = left.split(",")
    if len(groups) != len(shapes):
        raise ShapeError(f"einsum: {subscripts!r} names {len(groups)} operands, {len(shapes)} were given")
    longest = 0
    inputs: list[str] = []
    for position, (group, shape) in enumerate(zip(groups, shapes, strict=True)):
        named = group.replace("...", "", 1)
        if named and not named.isalpha():
            raise ShapeError(f"einsum: labels must be letters, got {group!r} for operand {position} in {subscripts!r}")
        count = len(shape) - len(named)
        if count < 0 or (count > 0 and "..." not in group):
            hint = f"; write '...{group}' to keep the others" if count > 0 else ""
            raise ShapeError(
                f"einsum: {group!r} names {len(named)} axes, operand {position} has {len(shape)} (shape {shape}){hint}"
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
    for label in named:
        if named.count(label) > 1:
            raise ShapeError(f"einsum: output label {label!r} is repeated in {subscripts!r}")
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
    owner: dict[str, int] = {}
    for position, (labels, node) in enumerate(zip(inputs, nodes, strict=True)):
        for label, extent in zip(labels, node.shape, strict=True):
            known = sizes.setdefault(label, extent)
            first = owner.setdefault(label, position)
            if known == extent or (first != position and extent == 1):
                continue
            if known != 1 or first == position:
                name = f"label {label!r}" if label not in _ELLIPSIS_LABELS else "an axis of '...'"
                raise ShapeError(
                    f"einsum: {name} has extent {known} in operand {first} (shape {nodes[first].shape}) and extent "
                    f"{extent} in operand {position} (shape {node.shape}), in {subscripts!r}"
                )
            sizes[label], owner[label] = extent, position
    return sizes


def _without_unit_axes(node: Node, labels: str, sizes: dict[str, int]) -> Term:
    """Axes of extent 1 that broadcast against a larger extent carry nothing: they are dropped."""
    kept = [a for a, label in enumerate(labels) if node.shape[a] == sizes[label]]
    if len(kept) == len(labels):
        return node, labels
    return move.reshape(node, tuple([node.shape[a] for a in kept])), "".join([labels[a] for a in kept])


def _reduce_alone(position: int, terms: list[Term], output: str) -> Term:
    """Diagonals of repeated labels, then sums over labels that neither another operand nor the output has."""
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
        get_matmul_precision(),
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
