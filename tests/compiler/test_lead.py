"""Kernels that lead a product: which do, and that they compute what they would by themselves."""

from __future__ import annotations

import json

import numpy as np
import pytest

import pullback as pb
from pullback import nn
from pullback.compiler import options, products

pytestmark = pytest.mark.skipif(not products.has_tile(), reason="the engine has no register tile for this processor")
rng = np.random.default_rng(0)
X, W = rng.standard_normal((70, 50)), rng.standard_normal((50, 90))
MANY_X, MANY_W = rng.standard_normal((3, 70, 50)), rng.standard_normal((3, 50, 90))
HEADS = rng.standard_normal((2, 30, 4, 20))
TALL_X, WIDE_W = rng.standard_normal((650, 800)), rng.standard_normal((800, 400))
ROWS = rng.integers(-70, 70, 130)


def report_of(function, *arrays):
    report = json.loads(pb.explain(function)(*map(pb.asarray, arrays)).to_json())
    (program,) = report["programs"]
    return program


def steps(function, *arrays):
    return [step["kind"] for step in report_of(function, *arrays)["steps"]]


def heads(x):
    return pb.permute_dims(x, (0, 2, 1, 3))


CASES = {
    "activation": (lambda x, w: nn.gelu(x) @ w, (X, W)),
    "on the right": (lambda x, w: x @ pb.exp(w), (X, W)),
    "both": (lambda x, w: nn.relu(x) @ pb.tanh(w), (X, W)),
    "transposed": (lambda x, w: nn.gelu(x.mT) @ w, (X.T.copy(), W)),
    "transposed afterwards": (lambda x, w: nn.gelu(x).mT @ nn.gelu(w).mT, (X.T.copy(), W.T.copy())),
    "mask": (lambda x, w, m: pb.where(m > 0, x, 0.0) @ w, (X, W, rng.standard_normal(X.shape))),
    "scale of rows and columns": (lambda x, w: (x * x[:, :1] + w[:, 0]) @ w, (X, W)),
    "positions": (lambda x, w: (x + pb.arange(50.0, dtype=x.dtype)) @ w, (X, W)),
    "rows by index": (lambda x, w, i: x[i] @ w, (X, W, ROWS)),
    "rows by index, scaled": (lambda x, w, i: (x[i] * 2) @ w, (X, W, ROWS)),
    "columns by index": (lambda x, w, i: x[:, i] @ pb.permute_dims(x, (1, 0))[:70], (X[:, :70], None, ROWS % 50)),
    "padding": (lambda x, w: pb.pad(x * 2, [(2, 1), (3, 4)]) @ w, (X[:67, :43], W)),
    "batch": (lambda x, w: nn.relu(x) @ pb.exp(w), (MANY_X, MANY_W)),
    "folded batch": (lambda x, w: nn.relu(x) @ pb.exp(w), (MANY_X, W)),
    "shared left": (lambda x, w: nn.relu(x) @ w, (X, MANY_W)),
    "heads": (lambda q, k: heads(q * 2) @ pb.permute_dims(k * 3, (0, 2, 3, 1)), (HEADS, HEADS[:, ::-1])),
    "part of it": (lambda x, w: nn.gelu(x)[3:40, 2:30] @ w[:28], (X, W)),
    "with what follows": (lambda x, w: nn.gelu(nn.gelu(x) @ w + w[0]), (X, W)),
    "blocks": (lambda x, w: nn.silu(x) @ nn.silu(w), (TALL_X, WIDE_W)),
    "blocks of a transposed one": (lambda x, w: (nn.silu(x).mT @ nn.silu(w).mT), (TALL_X.T[:650], TALL_X[:, :650])),
    "two products": (lambda x, w: pb.exp(x @ w) @ pb.exp(w.mT @ x.mT), (X, W)),
    "vector": (lambda x, w: pb.exp(x[0]) @ w, (X, W)),
}  # fmt: skip
CASES["columns by index"] = (lambda x, w, i: (x[:, i] @ w), (X, rng.standard_normal((130, 90)), ROWS % 50))


def run(function, arrays):
    return [leaf.numpy() for leaf in pb.pytree.flatten(pb.jit(function)(*arrays))[0]]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_leaders_compute_what_they_would_by_themselves(name, dtype):
    function, arrays = CASES[name]
    arrays = [array.astype(dtype) if array.dtype.kind == "f" else array for array in arrays]
    together = run(function, arrays)
    with options.without("lead"):
        apart = run(function, arrays)
    for got, want in zip(together, apart, strict=True):
        np.testing.assert_array_equal(got, want)
    with np.errstate(all="ignore"):
        before = pb.get_backend()
        try:
            pb.set_backend("reference")
            wide = [array.astype(np.float64) if array.dtype.kind == "f" else array for array in arrays]
            want = [leaf.numpy() for leaf in pb.pytree.flatten(function(*map(pb.asarray, wide)))[0]]
        finally:
            pb.set_backend(before)
    tolerance = {"float64": 1e-11, "float32": 1e-4, "float16": 0.05}[np.dtype(dtype).name]
    for got, exact in zip(together, want, strict=True):
        if np.dtype(dtype) != np.float16 or np.abs(exact).max() < 6e4:
            np.testing.assert_allclose(got, exact, rtol=tolerance, atol=tolerance * np.abs(exact).max())


#: Copied into order first, a sum of products, a result in another order, blocks that would be computed twice.
NOT_ALONE = ("padding", "vector", "shared left", "blocks of a transposed one", "two products")


@pytest.mark.parametrize("name", [name for name in CASES if name not in NOT_ALONE])
def test_a_product_and_what_leads_it_are_one_launch(name):
    function, arrays = CASES[name]
    program = report_of(function, *arrays)
    assert [step["kind"] for step in program["steps"]] == ["product"]
    assert program["temporaries"] == 0
    assert " from " in program["steps"][0]["computes"]
