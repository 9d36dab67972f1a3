"""Contractions: which elements of its operands a ``dot_general`` reads, and who computes it.

``dot_general`` contracts any axes of any views: transposes, slices, windows, broadcasts. The engine (products.py) takes
an axis as it comes, with a stride in each operand, so nothing is copied. Where it has no register tile for the
processor, BLAS computes the product; BLAS wants one batch, one row and one column stride, and an operand that has not
is copied first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..runtime import blas
from .blockwise import BlockCall, Lead
from .llvm.packing import MAX_AXES
from .products import DTYPES, NARROW, Axis, Product, collapsed, extent_of, has_tile, product_launch
from .values import Value
from .views import row_major

if TYPE_CHECKING:
    from ..dtypes import DType
    from ..runtime.driver import Launch
    from .fuse import Fuser
    from .llvm.target import Target

FEW_ROWS = 32  # of a product; then a batch that shares the other operand adds rows,
FEW_COLUMNS = 512  # and with fewer than that columns


@dataclass
class Operand:
    """What an operand reads: elements of ``base``, from ``offset`` on."""

    base: Value
    offset: int


@dataclass
class ContractionPlan:
    """``C[batch, m, n] = sum over k of A[batch, m, k] B[batch, k, n]``, C contiguous in the order of ``dot_general``.

    Each group is a list of axes: an extent, then strides in elements. Of batch axes in A, B and C, of m in A and C, of
    n in B and C, of k in A and B.
    library: "engine" or "BLAS".
    """

    library: str
    left: Operand
    right: Operand
    batch_axes: list[Axis] = field(default_factory=list)
    m_axes: list[Axis] = field(default_factory=list)
    n_axes: list[Axis] = field(default_factory=list)
    k_axes: list[Axis] = field(default_factory=list)

    def launch(
        self, dtype: DType, places: list[tuple[int, int]], target: Target, follow: BlockCall | None = None,
        leads: tuple[Lead | None, Lead | None] = (None, None),
    ) -> Launch:  # fmt: skip
        """The launch; ``places``: slot and byte offset of A's, B's and C's first element."""
        if self.library == "BLAS":
            return self._blas_launch(dtype, places)
        read = self.left.base.dtype
        mine, result = read.itemsize, dtype.itemsize
        scaled = []
        for axes, sizes in (
            (self.batch_axes, (mine, mine, result)), (self.m_axes, (mine, result)), (self.n_axes, (mine, result)),
            (self.k_axes, (mine, mine)),
        ):  # fmt: skip
            scaled.append([
                (axis[0], *[stride * size for stride, size in zip(axis[1:], sizes, strict=True)]) for axis in axes
            ])
        a, b, c = places
        return product_launch(Product(read.name, dtype.name, *scaled), a, b, c, target, follow, leads)

    def _blas_launch(self, dtype: DType, places: list[tuple[int, int]]) -> Launch:
        a_steps = [matrix_stride(axes, 1) or 0 for axes in (self.m_axes, self.k_axes, self.batch_axes)]
        b_steps = [
            matrix_stride(axes, column) or 0
            for axes, column in ((self.k_axes, 2), (self.n_axes, 1), (self.batch_axes, 2))
        ]
        a, b = (blas.Operand(*place, *steps) for place, steps in zip(places, (a_steps, b_steps)))
        c = blas.Operand(*places[2], self.n, 1, self.m * self.n)
        return blas.gemm_launch(dtype.name, self.m, self.n, self.k, a, b, c, self.batch)

    def operand_steps(self, number: int) -> tuple[int | None, int | None]:
        """Elements from row to row of A (0), or column to column of B (1), and from one k to the next; None where there
        is no such step."""
        return matrix_stride((self.m_axes, self.n_axes)[number], 1), matrix_stride(self.k_axes, number + 1)

    @property
    def batch(self) -> int:
        return extent_of(self.batch_axes)

    @property
    def m(self) -> int:
        return extent_of(self.m_axes)

    @property
    def n(self) -> int:
        return extent_of(self.n_axes)

    @property
    def k(self) -> int:
        return extent_of(self.k_axes)


def plan_contraction(fuser: Fuser, value: Value) -> ContractionPlan:
    """How to compute ``value`` (a ``dot_general``); copies that it needs are placed in ``fuser``."""
    uses_engine = value.dtype.name in DTYPES and has_tile()
    if uses_engine and _is_line(value):
        plan = _read(fuser, value, [], "BLAS")
        if not _refused(plan):
            return plan
    copies: list[int] = []
    while True:
        plan = _read(fuser, value, copies, "engine" if uses_engine else "BLAS")
        wrong = _unreadable(plan) if uses_engine else _refused(plan)
        wrong = [number for number in wrong if number not in copies]
        if not wrong:
            break
        copies += wrong
    if uses_engine:
        _fold_batch(plan)
    return plan


def narrow(fuser: Fuser, values: tuple[Value, ...]) -> tuple[Value, ...]:
    """Operands; of one narrow type that was widened, as they were before: the engine widens them, too."""
    found = {cast_source(v).dtype for v in values}
    if len(found) == 1 and found.pop().name in NARROW.get(values[0].dtype.name, ()):
        return tuple(_before_cast(fuser, v) for v in values)
    return values


def cast_source(value: Value) -> Value:
    """What is cast under views; the value itself where nothing is."""
    below = value
    while below.kind == "view":
        below = below.inputs[0]
    return below.inputs[0] if below.name == "cast" else value


def _before_cast(fuser: Fuser, value: Value) -> Value:
    """Views of a cast as the same views of what it casts."""
    if value.name == "cast":
        return value.inputs[0]
    below = _before_cast(fuser, value.inputs[0])
    return fuser.builder.raw("view", value.name, value.op, (below,), value.attrs, value.shape, below.dtype)


def _is_line(value: Value) -> bool:
    """Whether it is a product with a vector, which BLAS reads at the speed of memory."""
    if value.dtype.name not in ("float32", "float64"):
        return False
    contract, batch = value.attrs
    free = [_rest(v, of_v, axes) for v, of_v, axes in zip(value.inputs, contract, batch, strict=True)]
    return any(all(v.shape[axis] == 1 for axis in axes) for v, axes in zip(value.inputs, free, strict=True))


def _read(fuser: Fuser, value: Value, copies: list[int], library: str) -> ContractionPlan:
    """The plan with the operands in ``copies`` laid out anew: batch, then rows, then columns of the matrix."""
    contract, batch = value.attrs
    operands: list[Operand] = []
    strides = []
    inputs = narrow(fuser, value.inputs) if library == "engine" else value.inputs
    for number, operand in enumerate(inputs):
        free = _rest(operand, contract[number], batch[number])
        if number in copies:
            inner = (*free, *contract[number]) if number == 0 else (*contract[number], *free)
            base, offset, steps = _arranged(fuser, operand, (*batch[number], *inner))
        else:
            base, offset, steps = fuser.strided(operand)
        operands.append(Operand(base, offset))
        strides.append(steps)
    x, y = value.inputs
    (a, b), c = strides, row_major(value.shape)
    free_x, free_y = (_rest(v, of_v, axes) for v, of_v, axes in zip(value.inputs, contract, batch, strict=True))
    batches, rows = len(batch[0]), len(free_x)
    batch_axes: list[Axis] = [(x.shape[i], a[i], b[j], c[n]) for n, (i, j) in enumerate(zip(*batch, strict=True))]
    m_axes: list[Axis] = [(x.shape[i], a[i], c[batches + n]) for n, i in enumerate(free_x)]
    n_axes: list[Axis] = [(y.shape[j], b[j], c[batches + rows + n]) for n, j in enumerate(free_y)]
    k_axes: list[Axis] = [(x.shape[i], a[i], b[j]) for i, j in zip(*contract, strict=True)]
    if library == "engine":
        k_axes.sort(key=lambda axis: -abs(axis[1]) - abs(axis[2]))  # neighbours in memory one after the other
        k_axes = _forwards(k_axes, operands, is_along_k=(not _is_run(m_axes), not _is_run(n_axes)))
    left, right = operands
    return ContractionPlan(
        library, left, right,
        batch_axes=collapsed(batch_axes) or [(1, 0, 0, 0)],
        m_axes=collapsed(m_axes) or [(1, 0, 0)],
        n_axes=collapsed(n_axes) or [(1, 0, 0)],
        k_axes=collapsed(k_axes) or [(1, 0, 0)],
    )  # fmt: skip


def _is_run(axes: list[Axis]) -> bool:
    """Whether the elements of an operand follow each other along the last of its ``axes``."""
    return any(axis[0] > 1 for axis in axes) and [axis for axis in axes if axis[0] > 1][-1][1] == 1


def _forwards(k_axes: list[Axis], operands: list[Operand], is_along_k: tuple[bool, bool]) -> list[Axis]:
    """``k_axes``, with those turned round that run backwards in an operand which is packed along k: of flipped weights
    (a convolution's gradient by its input) whole vectors are read. It is the same sum in another order."""
    turned = []
    for extent, *strides in k_axes:
        if any(is_along_k) and strides[is_along_k.index(True)] < 0:
            for operand, stride in zip(operands, strides, strict=True):
                operand.offset += (extent - 1) * stride
            strides = [-stride for stride in strides]
        turned.append((extent, *strides))
    return turned


def _arranged(fuser: Fuser, value: Value, order: tuple[int, ...]) -> tuple[Value, int, tuple[int, ...]]:
    """A copy of ``value`` with its axes in ``order``; base, offset and the strides of ``value``'s axes in it."""
    from ..ops.registry import by_name

    shape = tuple(value.shape[axis] for axis in order)
    arranged = value
    if order != tuple(range(len(order))):
        arranged = fuser.builder.raw("view", "permute", by_name("permute"), (value,), (order,), shape, value.dtype)
    copy = fuser.copy_of(arranged)
    strides = dict(zip(order, row_major(shape), strict=True))
    return copy, 0, tuple(strides[axis] for axis in range(len(order)))


def _unreadable(plan: ContractionPlan) -> list[int]:
    """The operands that have more axes than the engine takes."""
    if all(len(axes) <= MAX_AXES for axes in (plan.batch_axes, plan.m_axes, plan.n_axes, plan.k_axes)):
        return []
    return [0, 1]


def _refused(plan: ContractionPlan) -> list[int]:
    """The operands whose strides BLAS does not take."""
    found = []
    for number, rows, columns, of_rows, of_columns in (
        (0, plan.m_axes, plan.k_axes, 1, 1),
        (1, plan.k_axes, plan.n_axes, 2, 1),
    ):
        batch = matrix_stride(plan.batch_axes, number + 1)
        row, column = matrix_stride(rows, of_rows), matrix_stride(columns, of_columns)
        fits = batch is not None and row is not None and column is not None
        if not fits or not blas.accepts(extent_of(rows), extent_of(columns), row or 0, column or 0):
            found.append(number)
    return found


def matrix_stride(axes: list[Axis], column: int) -> int | None:
    """The one stride with which ``axes``, outermost first, can be walked; None where there is none."""
    pairs = collapsed([(axis[0], axis[column]) for axis in axes])
    return pairs[0][1] if len(pairs) == 1 else None


def _fold_batch(plan: ContractionPlan) -> None:
    """A batch that shares an operand makes more rows or columns where one product has few: the shared operand is then
    packed once for all of them. It always makes rows where these follow each other evenly."""
    kept: list[Axis] = []
    for axis in plan.batch_axes:
        extent, a, b, c = axis
        rows = collapsed([(extent, a, c), *plan.m_axes])
        columns = [(extent, b, c), *plan.n_axes]
        if b == 0 and a != 0 and (len(rows) == 1 or (plan.m < FEW_ROWS and len(rows) <= MAX_AXES)):
            plan.m_axes = rows
        elif a == 0 and b != 0 and plan.n < FEW_COLUMNS and len(columns) <= MAX_AXES:
            plan.n_axes = collapsed(columns)
        else:
            kept.append(axis)
    plan.batch_axes = kept or [(1, 0, 0, 0)]


def _rest(value: Value, contract: tuple[int, ...], batch: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(axis for axis in range(len(value.shape)) if axis not in contract and axis not in batch)
