"""The kernel IR: loops over a domain, scalar expressions inside, loads, folds and stores.

A :class:`Kernel` says what is computed at each point, not with which vectors or for which processor. Its ``key`` holds
everything that changes the machine code: loop structure, expressions, dtypes, and for each access which loops move it
(and whether the vectorised loop does so by one element). Extents, strides and offsets are run-time parameters, so one
kernel serves every size.

Modes, by which loop is vectorised:

map         no folds; the last loop.
row         folds over the last loop (and others): a task is one row, its stages walk the row one after the other.
column      folds over leading loops: a task is a block of neighbouring columns, the folded loops run inside. Also
            without folds, where the loops inside are short (see turn.py).
walk        a column kernel with scans alone, or with light folds over much memory: the block is wide, so that each step
            touches long pieces of memory, and what is carried from row to row lies in a small array.
scalar      a single point.
scatter     updates of a target, in order along the row loops. No two steps of another loop meet at one element: those
            run over columns, over parts of the target that updates keep to, over chunks that have a copy each.

A scan makes the loops of its axis row loops, which then run in order (backwards if ``reverse``). In a column kernel
each lane carries a running value of its own; in a row kernel the lanes are steps of one row.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .values import Value

Expression = tuple[Any, ...]
# ("load", access, dtype)                       the element at the access's position
# ("literal", repr, dtype)                      a number in the code
# ("iota", number, dtype)                       a linear form of the loop variables
# ("op", instruction, dtype, operand dtypes, arguments, attrs)
# ("check", argument, number)                   an index, checked and wrapped; number: which check of the kernel
# ("lookup", access, dtype, ((argument, term), ...))   the element at the access's position plus index * stride
# ("fold", number, dtype)                       the finished value of a fold
# ("scan", instruction, dtype, arguments, variant)     the running value at this step of the row loops; variant: that
#                                               before the step (exclusive), or of a strong scan that its gate is late
# ("shifted", access, dtype, moved, iota)       the element at the access ``moved`` where the iota is not negative, else
#                                               0; ``access`` is the same one not moved, in bounds everywhere
# ("inside", ((iota, below), ...), "bool")      whether each of the iotas is negative if ``below``, and not if not
# ("guarded", access, dtype, ((iota, below), ...))   the element at the access's position where that is so, else 0, and
#                                               nothing is read


# Elements from lane to lane for which there is a better way than a gather: neighbours, every other one, backwards.
KNOWN_STEPS = {1: "1", 2: "2", -1: "r"}


@dataclass
class Access:
    """Positions in a buffer, in elements: ``offset + sum(strides[d] * loop[d])``."""

    value: Value
    offset: int
    strides: tuple[int, ...]


@dataclass
class Fold:
    """``instruction`` applied over the row loops to ``argument``, an expression of ``dtype``."""

    instruction: str
    argument: int
    dtype: str
    stage: int = 0


MANY_ACCESSES = 8  # of a kernel, from which it is worth knowing which of them move alike
SIDE_ROWS = 32  # rows of which one task takes partial sums: few enough for float32


@dataclass
class Side:
    """Partial sums beside the rows: ``instruction`` over each ``SIDE_ROWS`` rows of ``argument``, of ``dtype``.

    access: of the result, a line of elements for each task; it is moved by the row loops alone.
    """

    instruction: str
    argument: int
    dtype: str
    stage: int
    access: int


@dataclass
class Stage:
    """One walk over the row: which folds advance, what is stored, what is kept for later stages."""

    folds: list[int] = field(default_factory=list)
    stores: list[tuple[int, int]] = field(default_factory=list)  # access, expression
    spills: list[tuple[int, int]] = field(default_factory=list)  # expression, scratch row
    reloads: dict[int, int] = field(default_factory=dict)  # expression -> scratch row


@dataclass
class Scatter:
    """Combine ``value`` into the element at ``access`` plus the sum of index * stride over ``terms``.

    copies: of the target, by turns for the lanes; ``copy_term`` is how far apart they are.
    """

    access: int
    value: int
    terms: tuple[tuple[int, int], ...]
    mode: str
    copies: int = 1
    copy_term: int | None = None


@dataclass
class Kernel:
    """See the module's text. ``chunks``: (number, length, extent) by which the outermost row loop is cut; the chunk is
    then loop 0. ``wide``: whether sums of float32 are carried in float64. ``short``: the steps of the last
    loop where the code is for so many alone; else 0. ``streams``: accesses that are stored past the caches (see
    stream.py)."""

    mode: str
    domain: tuple[int, ...]
    reduced: tuple[bool, ...]
    expressions: list[Expression]
    accesses: list[Access]
    iotas: list[tuple[int, tuple[int, ...]]]
    checks: list[tuple[int, Value]]
    terms: list[int]  # in elements of the access that uses them
    folds: list[Fold]
    stages: list[Stage]
    row_stores: list[tuple[int, int]]
    scatter: Scatter | None = None
    chunks: tuple[int, int, int] | None = None
    cost: float = 1.0
    spill_dtypes: tuple[str, ...] = ()
    reverse: bool = False
    wide: bool = True
    short: int = 0
    streams: tuple[int, ...] = ()
    sides: list[Side] = field(default_factory=list)
    _key: tuple[Any, ...] | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def vector_loop(self) -> int:
        """The loop that lanes run over; -1 where there is none."""
        return len(self.domain) - 1

    @property
    def has_scan(self) -> bool:
        """Whether the row loops must run in order."""
        return any(expression[0] == "scan" for expression in self.expressions)

    @property
    def is_copy(self) -> bool:
        """Whether each point is loaded and stored as it is."""
        stores = [store for stage in self.stages for store in stage.stores]
        return self.mode == "map" and len(stores) == 1 and [e[0] for e in self.expressions] == ["load"]

    @property
    def row_loops(self) -> list[int]:
        return [dim for dim, folded in enumerate(self.reduced) if folded]

    @property
    def grid_loops(self) -> list[int]:
        """Loops that are divided among tasks, without the vector loop of map, column, walk and scatter kernels."""
        lanes = self.vector_loop if self.mode in ("map", "column", "walk", "scatter") else -1
        return [dim for dim, folded in enumerate(self.reduced) if not folded and dim != lanes]

    def access_of_term(self, term: int) -> int:
        """The access that an index term moves."""
        if self.scatter is not None:
            if term == self.scatter.copy_term or any(number == term for _, number in self.scatter.terms):
                return self.scatter.access
        for expression in self.expressions:
            if expression[0] == "lookup" and any(number == term for _, number in expression[3]):
                return int(expression[1])
        raise KeyError(term)

    def step_classes(self, access: Access) -> str:
        """For each loop how it moves the access: "0" not at all, "s" by a run-time stride; the last one also by steps
        that the code knows (see ``KNOWN_STEPS``)."""
        last = len(self.domain) - 1
        return "".join(
            "0" if stride == 0 else KNOWN_STEPS.get(stride, "s") if dim == last else "s"
            for dim, stride in enumerate(access.strides)
        )

    @property
    def twins(self) -> tuple[int, ...]:
        """For each access the first one of the same value that moves as it does: the code then computes how far it has
        moved once. In kernels with few accesses each is its own, so that the code is the same for all shapes."""
        if len(self.accesses) < MANY_ACCESSES:
            return tuple(range(len(self.accesses)))
        first: dict[tuple[int, tuple[int, ...]], int] = {}
        return tuple([first.setdefault((a.value.id, a.strides), i) for i, a in enumerate(self.accesses)])

    @property
    def key(self) -> tuple[Any, ...]:
        """What the machine code depends on; asked for when the kernel is complete."""
        if self._key is None:  # not a cached_property, whose lock a forked child may find closed
            self._key = self._structure()
        return self._key

    def _structure(self) -> tuple[Any, ...]:
        scatter = self.scatter
        return (
            self.mode,
            self.reduced,
            tuple(self.expressions),
            tuple((self.step_classes(a), a.value.dtype.name) for a in self.accesses),
            tuple(tuple("01"[c == 1] if c in (0, 1) else "s" for c in coefficients) for _, coefficients in self.iotas),
            tuple((f.instruction, f.argument, f.dtype, f.stage) for f in self.folds),
            tuple(
                (tuple(s.folds), tuple(s.stores), tuple(s.spills), tuple(sorted(s.reloads.items())))
                for s in self.stages
            ),
            tuple(self.row_stores),
            None if scatter is None else astuple(scatter),
            self.chunks is not None,
            self.reverse,
            self.wide,
            self.short,
            self.streams,
            tuple(astuple(side) for side in self.sides),
            self.twins,
        )
