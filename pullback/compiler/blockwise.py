"""Kernels that the contraction engine calls on blocks, as launch parameters: see llvm/blockwise.py.

Those that follow a product go over its rows (follow.py), those that lead compute an operand as it is packed (lead.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from ..runtime.driver import Launch
from .llvm.layout import ParameterLayout
from .llvm.values import STORAGE_SIZE
from .loops import Kernel
from .values import Value


@dataclass
class BlockCall:
    """A kernel on blocks; see ``CALL`` in llvm/blockwise.py.

    only: the value that it shares with the product is nowhere but in scratch.   whole: it needs whole rows.
    params, scratch: of its launch over its whole domain.   columns: the position of its last loop's extent among them.
    moves: (position, step) of those that move by ``step`` for each column before the first.
    offsets: positions of the offsets of what is in scratch.
    rows: (position, count) of strides in scratch that are ``count`` rows long.
    """

    address: int
    only: bool
    whole: bool
    params: list[int]
    scratch: int
    columns: int
    moves: list[tuple[int, int]]
    offsets: list[int]
    rows: list[tuple[int, int]]

    @classmethod
    def of(cls, kernel: Kernel, launch: Launch, shared: Value, only: bool) -> BlockCall:
        """launch: over the kernel's whole domain.   shared: the value that is the product's result or operand."""
        layout = ParameterLayout.of(kernel)
        last = len(kernel.domain) - 1
        call = cls(
            launch.address, only, kernel.mode == "row", list(launch.params), launch.scratch_bytes, layout.extents[last],
            [], [], [],
        )  # fmt: skip
        for access, (_, offset, strides) in zip(kernel.accesses, layout.accesses, strict=True):
            if only and access.value is shared:
                call.offsets.append(offset)
                for dim, position in strides.items():
                    if dim != last:
                        call.rows.append((position, access.strides[dim] // kernel.domain[last]))
            elif access.strides[last]:
                call.moves.append((offset, access.strides[last] * STORAGE_SIZE[access.value.dtype.name]))
        for (_, coefficients), (offset, _) in zip(kernel.iotas, layout.iotas, strict=True):
            if coefficients[last]:
                call.moves.append((offset, coefficients[last]))
        return call

    def words(self, row_bytes: int) -> list[int]:
        """As launch parameters; ``row_bytes``: from row to row in scratch."""
        params = list(self.params)
        for position, count in self.rows:
            params[position] = count * row_bytes
        head = [self.address, int(self.only), len(params), self.columns, len(self.moves), len(self.offsets)]
        return [*head, *params, *(word for move in self.moves for word in move), *self.offsets]


@dataclass
class Lead:
    """The kernel that computes an operand, and in bytes how the operand lies in the value that it computes: a row of
    that, an element, from row to row of A (or column to column of B), and from one k to the next."""

    call: BlockCall
    row_bytes: int
    element: int
    free_step: int
    k_step: int

    @property
    def is_along_k(self) -> bool:
        """Whether the value's rows are the operand's along k."""
        return self.k_step == self.element

    def block_row(self, free: int, ks: int) -> int:
        """Bytes from row to row of a block in scratch, of at most ``free`` rows of A and ``ks`` along k."""
        return (ks if self.is_along_k else free) * self.element

    def block_bytes(self, free: int, ks: int) -> int:
        return free * ks * self.element

    def words(self, free: int, ks: int) -> list[int]:
        """As launch parameters, for blocks of at most that size."""
        row = self.block_row(free, ks)
        places = (row, self.element) if self.is_along_k else (self.element, row)
        return [self.row_bytes, self.element, row, self.free_step, self.k_step, *places, *self.call.words(row)]
