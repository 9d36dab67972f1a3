"""The scans' own rules: errors, where a walk starts, and the derivatives that have no smooth example."""

from __future__ import annotations

import numpy as np
import pytest

from pullback import dtypes as dt
from pullback.errors import DTypeError, ShapeError
from pullback.graph.node import Node
from pullback.ops import elementwise as e
from pullback.ops import scan
from tests.ops.support import check_derivative, grid, node_of, value_of

X = grid(-1.6, 1.7, (4, 5))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("function", [scan.scan_max, scan.scan_min])
def test_extremes_of_what_came_before(function: scan.Scan, reverse: bool, axis: int) -> None:
    def build(x: Node) -> Node:
        before = function(x, axis, reverse, True)
        return e.where(scan.first_step(x.shape, axis, reverse), x, before)

    check_derivative(build, [X])


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_the_transpose_turns_the_walk_and_the_gate(reverse: bool, late: bool) -> None:
    """As matrices: column i is the response to a term of 1 at step i."""
    gates = grid(-1.2, 1.3, (6,))
    ones = np.eye(6)

    def matrix(reverse: bool, late: bool) -> np.ndarray:
        rows = [value_of(scan.strong_scan(node_of(gates), node_of(row), 0, reverse, late)) for row in ones]
        return np.stack(rows, 1)

    np.testing.assert_allclose(matrix(reverse, late), matrix(not reverse, not late).T, rtol=1e-14)


@pytest.mark.parametrize("reverse", [False, True])
def test_step_before(reverse: bool) -> None:
    got = value_of(scan.step_before(node_of(X), 1, reverse, 7))
    expected = np.full(X.shape, 7.0)
    if reverse:
        expected[:, :-1] = X[:, 1:]
    else:
        expected[:, 1:] = X[:, :-1]
    np.testing.assert_array_equal(got, expected)


def test_shifts_beyond_the_ends() -> None:
    for offset in (5, -5, 9):
        np.testing.assert_array_equal(value_of(scan.shift(node_of(X), 1, offset)), 0)
    x = node_of(X)
    assert scan.shift(x, 0, 0) is x


def test_errors() -> None:
    x, y = node_of(X), node_of(X, dt.float32)
    with pytest.raises(DTypeError, match=r"gated_scan: operands of one dtype expected, got float64\[4,5\] and float32"):
        scan.gated_scan(x, y, 0)
    with pytest.raises(ShapeError, match=r"gated_scan: operands of one shape expected, got float64\[4,5\] and"):
        scan.gated_scan(x, node_of(X[0]), 0)
    with pytest.raises(ShapeError, match="scan_sum: there is no axis 2"):
        scan.scan_sum(x, 2)
    with pytest.raises(DTypeError, match="scan_sum: numeric operands expected, got bool"):
        scan.scan_sum(node_of(X > 0), 0)
    with pytest.raises(DTypeError, match="gated_scan: floating operands expected, got int64"):
        scan.gated_scan(node_of([1, 2]), node_of([1, 2]), 0)
