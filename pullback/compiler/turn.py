"""Which loop the lanes of a kernel run over: the last one, unless it is short and a longer one is at hand.

Rows of three would fill three lanes of eight, each row behind a mask (a softmax of a million of them took 31 ms, and
takes 14). So the lanes run over rows instead, a block of them to a task, and the short loop runs inside: as a row loop,
over which nothing need be folded.
"""

from __future__ import annotations

from collections.abc import Sequence

from .loops import Access, Expression

SHORT = 16  # steps up to which the last loop is short: with more of them, rows are as fast
FILLED = 8  # and where nothing is folded and its elements follow each other, with more of them than these
LONG = 64  # steps from which another one is long enough,
NEAR = 7  # and from which one is, if the lanes find what they read and write
NEAR_STEP = 4  # elements at most from each other
WALKS = ("fold", "scan")

Iota = tuple[int, tuple[int, ...]]
Loops = tuple[tuple[int, ...], tuple[bool, ...], list[Access], list[Iota]]


def turn(
    domain: tuple[int, ...], reduced: tuple[bool, ...], accesses: list[Access], iotas: list[Iota],
    expressions: Sequence[Expression],
) -> Loops:  # fmt: skip
    """The loops with a long one that is not folded, the nearest to it, behind a short last one; else as they are."""
    last = len(domain) - 1
    if last < 1 or domain[last] > SHORT or any(expression[0] == "lookup" for expression in expressions):
        return domain, reduced, accesses, iotas
    if domain[last] > FILLED and not any(reduced) and all(a.strides[last] in (0, 1) for a in accesses):
        return domain, reduced, accesses, iotas
    loops = [dim for dim in range(last - 1, -1, -1) if not reduced[dim] and domain[dim] > domain[last]]
    near = [dim for dim in loops if domain[dim] >= NEAR and all(abs(a.strides[dim]) <= NEAR_STEP for a in accesses)]
    long = next(iter(near + [dim for dim in loops if domain[dim] >= LONG]), None)
    if long is None:
        return domain, reduced, accesses, iotas
    order = [dim for dim in range(last + 1) if dim != long] + [long]
    # Loops that moved outwards run inside of a task still, where there are no others that the kernel folds.
    free = not any(expression[0] in WALKS for expression in expressions)
    folded = [flag or (free and dim > long) for dim, flag in enumerate(reduced)]
    return (
        tuple(domain[dim] for dim in order),
        tuple(folded[dim] for dim in order),
        [Access(a.value, a.offset, tuple(a.strides[dim] for dim in order)) for a in accesses],
        [(offset, tuple(steps[dim] for dim in order)) for offset, steps in iotas],
    )
