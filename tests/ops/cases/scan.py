"""Examples of the scans along one axis, and of the shift."""

from __future__ import annotations

import numpy as np

from pullback.graph.node import Node
from pullback.ops import scan
from tests.ops.support import Case, grid, ints

CASES: list[Case] = []

_X = grid(-1.6, 1.7, (3, 5, 2))
_ZEROS = np.array([[2.0, 0, 3, -1], [0, 0, 5, 2], [1, 2, 3, 0]])


def _add(op: str, arrays: tuple[np.ndarray, ...], by: tuple[int, ...], note: str, *attrs: object) -> None:
    def build(*nodes: Node) -> Node:
        return getattr(scan, op)(*nodes, *attrs)

    CASES.append(Case(op, build, arrays, by, note))


for _axis in (0, 1, 2):
    for _reverse in (False, True):
        for _exclusive in (False, True):
            _note = f"{_axis}{'-reverse' if _reverse else ''}{'-exclusive' if _exclusive else ''}"
            for _op in ("scan_sum", "scan_prod", "scan_max", "scan_min"):
                # Before the first step a running extreme is infinite, of which there are no differences.
                _by = () if _exclusive and _op in ("scan_max", "scan_min") else (0,)
                _add(_op, (_X,), _by, _note, _axis, _reverse, _exclusive)
        _gates = grid(-1.2, 1.1, _X.shape, 1)
        _note = f"{_axis}{'-reverse' if _reverse else ''}"
        _add("gated_scan", (_gates, _X), (0, 1), _note, _axis, _reverse)
        for _late in (False, True):
            _add("strong_scan", (_gates, _X), (0, 1), f"{_note}{'-late' if _late else ''}", _axis, _reverse, _late)
for _exclusive in (False, True):
    _add("scan_prod", (_ZEROS,), (0,), f"zeros{_exclusive}", 1, False, _exclusive)
_add("gated_scan", (_ZEROS, _ZEROS[::-1].copy()), (0, 1), "zeros", 1)
_add("scan_sum", (ints(-5, 5, (4, 3)),), (), "integers", 0)
_add("scan_max", (np.random.default_rng(0).random((4, 3)) < 0.5,), (), "bools", 0)
for _op in ("scan_sum", "scan_prod", "scan_max", "scan_min"):
    _add(_op, (grid(-1, 1, (2, 0)),), (0,), "empty", 1)
    _add(_op, (grid(-1, 1, (2, 1)),), (), "single", 1, False, True)
_add("gated_scan", (grid(-1, 1, (0, 2)), grid(-1, 1, (0, 2))), (0, 1), "empty", 0)
_add("gated_scan", (grid(-1, 1, (1, 2)), grid(-1, 1, (1, 2), 1)), (0, 1), "single", 0)
for _axis, _offset in ((0, 1), (0, -2), (1, 1), (1, -3), (2, 1)):
    _add("shift", (_X,), (0,), f"{_axis}by{_offset}", _axis, _offset)
