"""The rows, in the order of the table. One module a family."""

from __future__ import annotations

from ..row import Row, Timed
from . import (
    attention,
    blocks,
    convolution,
    derivatives,
    dispatch,
    elementwise,
    gemm,
    images,
    indexing,
    logreg,
    memory,
    mlp,
    networks,
    normalise,
    scan,
    shapes,
    startup,
)  # fmt: skip

TIMED: tuple[Timed, ...] = (
    *mlp.ROWS, *elementwise.ROWS, *normalise.ROWS, *scan.ROWS, *memory.ROWS, *indexing.ROWS, *logreg.ROWS, *gemm.ROWS,
    *convolution.ROWS, *images.ROWS, *attention.ROWS, *blocks.ROWS, *networks.ROWS, *dispatch.ROWS,
)  # fmt: skip

ROWS: tuple[Row, ...] = (
    *TIMED,
    *gemm.FOLLOWED,
    *shapes.ROWS,
    *derivatives.ROWS,
    *(startup.FirstCall(row, warm) for warm in (False, True) for row in TIMED if row.first_call),
    startup.Import(),
)
