"""cond, known and traced."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pullback as pb


def choose(x: Any) -> Any:
    return pb.cond(pb.sum(x) > 0, lambda x: {"y": pb.sqrt(pb.sum(x))}, lambda x: {"y": pb.sum(x) * 2.0}, x)["y"]


def test_only_the_chosen_branch_runs_where_the_value_is_known() -> None:
    calls: list[str] = []
    pb.cond(pb.asarray(True), lambda: calls.append("true"), lambda: calls.append("false"))
    assert calls == ["true"]


@pytest.mark.parametrize("x", [[1.0, 3.0], [-1.0, -3.0]])
def test_traced_and_known_agree(x: list[float]) -> None:
    tensor = pb.asarray(x)
    expected = float(choose(tensor))
    assert float(pb.jit(choose)(tensor)) == pytest.approx(expected)
    slope = np.asarray(pb.grad(choose)(tensor))
    np.testing.assert_allclose(np.asarray(pb.jit(pb.grad(choose))(tensor)), slope, rtol=1e-6)
    rows = pb.vmap(choose)(pb.asarray([x, [-v for v in x]]))
    assert float(rows[0]) == pytest.approx(expected)


def test_errors() -> None:
    with pytest.raises(pb.ShapeError, match="shape \\(\\)"):
        pb.cond(pb.asarray([True, False]), lambda: 1, lambda: 2)
    with pytest.raises(pb.DTypeError, match="must be bool"):
        pb.cond(pb.asarray(1), lambda: 1, lambda: 2)

    @pb.jit
    def shapes(x: Any) -> Any:
        return pb.cond(x[0] > 0, lambda: x, lambda: x[:1])

    with pytest.raises(pb.ShapeError, match="branches give shapes"):
        shapes(pb.ones(3))
