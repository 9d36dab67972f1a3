"""A vector with a matrix of a narrow type: one kernel reads the matrix as it is stored, whichever way it lies."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import pullback as pb

FORMS = {
    "row": lambda v, w: v @ w,
    "row, transposed": lambda v, w: v @ w.T,
    "column": lambda v, w: w @ v.T,
    "column, transposed": lambda v, w: w.T @ v.T,
    "vector": lambda v, w: v[0] @ w,
    "vector on the right": lambda v, w: w @ v[0],
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int8", "uint8"])
@pytest.mark.parametrize("size", [301, 192])
def test_they_are_one_kernel(form: str, dtype: str, size: int) -> None:
    rng = np.random.default_rng(size)
    w = rng.integers(0 if dtype == "uint8" else -9, 9, (size, size))
    v = rng.integers(-9, 9, (1, size))
    weights = pb.astype(pb.asarray(w.astype(np.float32)), getattr(pb, dtype))
    is_half = "float" in dtype
    vector = pb.astype(pb.asarray(v.astype(np.float32)), weights.dtype if is_half else pb.float32)

    def function(v: Any, w: Any) -> Any:
        return FORMS[form](v, w if is_half else pb.astype(w, pb.float32))

    expected = FORMS[form](v.astype(np.float64), w.astype(np.float64))
    found = np.asarray(pb.astype(pb.jit(function)(vector, weights), pb.float64))
    np.testing.assert_allclose(found, expected, rtol=2**-7 if dtype == "bfloat16" else 2**-10 if is_half else 1e-6)
    report = json.loads(pb.explain(function)(vector, weights).to_json())
    steps = [step for program in report["programs"] for step in program["steps"]]
    assert len(steps) == 1 and steps[0]["kind"] != "product"


def test_their_gradients_are_the_matrix_again() -> None:
    rng = np.random.default_rng(3)
    v, w = rng.standard_normal((1, 300)), rng.standard_normal((300, 260))
    narrow = pb.astype(pb.asarray(w.astype(np.float32)), pb.float16)

    def loss(v: Any) -> Any:
        return pb.sum(pb.matmul(v, pb.astype(narrow, pb.float32)) ** 2)

    wide = np.asarray(pb.astype(narrow, pb.float64))
    found = pb.grad(loss)(pb.asarray(v.astype(np.float32)))
    np.testing.assert_allclose(found.numpy(), 2 * v @ wide @ wide.T, rtol=1e-4, atol=1e-2)
