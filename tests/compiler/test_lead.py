"""Kernels that lead a product: which do, and that they compute what they would by themselves."""

from __future__ import annotations

import json

import numpy as np
import pytest

import pullback as pb
from pullback import nn
from pullback.compiler import options, products
from tests.backends import on_backend
from tests.threads import same_bits

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
    "columns by index": (lambda x, w, i: x[:, i] @ w, (X, rng.standard_normal((130, 90)), ROWS % 50)),
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
    "norm": (lambda x, w: nn.rms_norm(x, 50) @ w, (X, W)),
    "norm and activation": (lambda x, w: nn.gelu(nn.layer_norm(x, 50)) @ nn.gelu(w), (X, W)),
    "softmax": (lambda x, w: nn.softmax(x) @ w, (MANY_X, MANY_W)),
    "softmax on the right": (lambda x, w: x @ nn.softmax(w).mT, (X, W.T.copy())),
    "norms before and after": (lambda x, w: nn.rms_norm(nn.rms_norm(x, 50) @ w, 90), (X, W)),
    "norm of long rows": (lambda x, w: nn.rms_norm(x, 800) @ w, (TALL_X, WIDE_W)),
    "vector": (lambda x, w: pb.exp(x[0]) @ w, (X, W)),
}  # fmt: skip


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
    wide = [array.astype(np.float64) if array.dtype.kind == "f" else array for array in arrays]
    with np.errstate(all="ignore"), on_backend("reference"):
        exact = [leaf.numpy() for leaf in pb.pytree.flatten(function(*map(pb.asarray, wide)))[0]]
    tolerance = {"float64": 1e-11, "float32": 1e-4, "float16": 0.05}[np.dtype(dtype).name]
    for got, want in zip(together, exact, strict=True):
        if dtype is not np.float16 or np.abs(want).max() < 6e4:
            np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * np.abs(want).max())


#: Copied into order first, a sum of products, a result in another order, blocks that would be computed twice, rows
#: that are more than one block of k.
NOT_ALONE = ("padding", "vector", "shared left", "blocks of a transposed one", "two products", "norm of long rows")


@pytest.mark.parametrize("name", [name for name in CASES if name not in NOT_ALONE])
def test_a_product_and_what_leads_it_are_one_launch(name):
    function, arrays = CASES[name]
    program = report_of(function, *arrays)
    assert [step["kind"] for step in program["steps"]] == ["product"]
    assert program["temporaries"] == 0
    assert " from " in program["steps"][0]["computes"]


def test_what_somebody_else_reads_does_not_lead():
    assert steps(lambda x, w: (lambda y: (y, y @ w))(nn.gelu(x)), X, W) == ["map", "product"]
    assert steps(lambda x, w: (lambda y: (y.mT @ y))(nn.gelu(x)), X, W) == ["map", "product"]


def test_what_is_read_in_many_blocks_leads_only_if_it_is_cheap():
    x, w = rng.standard_normal((900, 64)).astype(np.float32), rng.standard_normal((64, 1200)).astype(np.float32)
    assert steps(lambda x, w: pb.where(x > 0, x, 0.0) @ w, x, w) == ["product"]
    assert steps(lambda x, w: nn.gelu(x) @ w, x, w) == ["map", "product"]


def test_an_index_that_does_not_exist():
    lookup = pb.jit(lambda x, w, i: x[i] @ w)
    assert steps(lambda x, w, i: x[i] @ w, X, W, ROWS) == ["product"]
    for bad in (70, -71):
        rows = ROWS.copy()
        rows[100] = bad
        with pytest.raises(IndexError, match=f"index {bad} is out of range for size 70"):
            lookup(X, W, rows).numpy()
    np.testing.assert_allclose(lookup(X, W, ROWS).numpy(), X[ROWS] @ W, rtol=1e-10, atol=1e-12)


def test_a_state_that_leads_its_own_update():
    """What a leader reads is read to the end: the result is not written over it."""
    square = rng.standard_normal((64, 64))
    for update in (
        lambda x, w: x + nn.relu(x) @ w,
        lambda x, w: pb.tanh(x) @ w,
        lambda x, w: nn.relu(x) @ nn.relu(x * w),
        lambda x, w: nn.softmax(x) @ w - x,
        lambda x, w: nn.softmax(x + w @ nn.relu(x)),
    ):
        state, want = pb.asarray(square) * 1, square
        step = pb.jit(lambda update=update, state=state: state.assign(update(state, pb.asarray(square))))
        for _ in range(3):
            step()
            with on_backend("reference"):
                want = update(pb.asarray(want), pb.asarray(square)).numpy()
        np.testing.assert_allclose(state.numpy(), want, rtol=1e-9, atol=1e-9 * np.abs(want).max())


@pytest.mark.parametrize("name", ["blocks", "blocks of a transposed one", "norm", "rows by index", "heads"])
def test_the_same_bits_on_any_number_of_threads(name):
    function, arrays = CASES[name]
    arrays = [array.astype(np.float32) if array.dtype.kind == "f" else array for array in arrays]
    same_bits(lambda: pb.jit(lambda *operands: function(*operands))(*arrays), (1, 2, 3))


def test_gradients_through_leaders():
    def loss(x, w, i):
        return pb.sum(pb.tanh(nn.rms_norm(x[i], 50) @ nn.gelu(w)) ** 2)

    got = pb.jit(pb.grad(loss, argnums=(0, 1)))(X, W, ROWS)
    with on_backend("reference"):
        want = pb.grad(loss, argnums=(0, 1))(*map(pb.asarray, (X, W, ROWS)))
        pb.eval(want)
    for mine, exact in zip(got, want, strict=True):
        np.testing.assert_allclose(mine.numpy(), exact.numpy(), rtol=1e-9, atol=1e-10)
