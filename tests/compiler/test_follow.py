"""Kernels that follow a product: how many launches remain, and that they compute what they would by themselves."""

from __future__ import annotations

import json

import numpy as np
import pytest

import pullback as pb
from pullback import nn
from pullback.compiler import options, products
from pullback.compiler.follow import GAP, _Order
from tests.threads import same_bits

pytestmark = pytest.mark.skipif(not products.has_tile(), reason="the engine has no register tile for this processor")
rng = np.random.default_rng(0)
X, W = rng.standard_normal((70, 50)), rng.standard_normal((50, 90))
BIAS, RESIDUAL = rng.standard_normal(90), rng.standard_normal((70, 90))
MANY_X, MANY_W = rng.standard_normal((3, 70, 50)), rng.standard_normal((3, 50, 90))
TALL_X, WIDE_W = rng.standard_normal((650, 400)), rng.standard_normal((400, 1100))


def steps(function, *arrays):
    report = json.loads(pb.explain(function)(*map(pb.asarray, arrays)).to_json())
    return [step["kind"] for program in report["programs"] for step in program["steps"]]


CASES = {
    "bias and gelu": (lambda x, w, b: nn.gelu(x @ w + b), (X, W, BIAS)),
    "residual": (lambda x, w, r: nn.relu(x @ w) + r, (X, W, RESIDUAL)),
    "product is a result too": (lambda x, w, b: (x @ w, nn.relu(x @ w + b)), (X, W, BIAS)),
    "two results": (lambda x, w, b: (pb.exp(x @ w), pb.tanh(x @ w + b)), (X, W, BIAS)),
    "transposed": (lambda x, w, b: (w.mT @ x.mT).mT * 2 + b, (X, W, BIAS)),
    "folded batch": (lambda x, w, b: nn.gelu(x @ w + b), (MANY_X, W, BIAS)),
    "batch": (lambda x, w, b: nn.gelu(x @ w + b), (MANY_X, MANY_W, BIAS)),
    "blocks of rows and columns": (lambda x, w: nn.silu(x @ w) + pb.arange(1100.0, dtype=x.dtype), (TALL_X, WIDE_W)),
    "column": (lambda x, w, r: (x @ w) * r[:, :1], (X, W, RESIDUAL)),
    "softmax": (lambda x, w, b: nn.softmax(x @ w + b), (X, W, BIAS)),
    "residual and norm": (lambda x, w, r: (lambda h: (h, nn.layer_norm(h, 90)))(r + x @ w), (X, W, RESIDUAL)),
    "root of the mean square": (lambda x, w, b: nn.rms_norm(nn.gelu(x @ w), 90) * b, (X, W, BIAS)),
    "a number for each row": (lambda x, w: pb.logsumexp(x @ w, axis=-1), (X, W)),
    "extremes of rows": (lambda x, w: (x @ w, pb.max(x @ w, axis=-1), pb.argmin(x @ w, axis=-1)), (X, W)),
    "running sums": (lambda x, w: pb.cumulative_sum(x @ w, axis=-1), (X, W)),
    "rows of a batch": (lambda x, w: nn.softmax(x @ w * 0.5), (MANY_X, MANY_W)),
    "rows of a folded batch": (lambda x, w: nn.softmax(x @ w), (MANY_X, W)),
    "wide rows": (lambda x, w: nn.softmax(x @ w[:, :700] * 0.1), (TALL_X, WIDE_W)),
    "rows by index": (lambda x, w, r: (x @ w) + pb.take(r, pb.asarray([*range(69, -1, -1)]), axis=0), (X, W, RESIDUAL)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_followers_compute_what_they_would_by_themselves(name, dtype):
    function, arrays = CASES[name]
    arrays = [array.astype(dtype) for array in arrays]
    together = [leaf.numpy() for leaf in pb.pytree.flatten(pb.jit(function)(*arrays))[0]]
    with options.without("follow"):
        apart = [leaf.numpy() for leaf in pb.pytree.flatten(pb.jit(function)(*arrays))[0]]
    for got, want in zip(together, apart, strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", [name for name in CASES if name not in ("transposed", "rows by index")])
def test_a_product_and_what_follows_it_are_one_launch(name):
    function, arrays = CASES[name]
    assert steps(function, *arrays).count("product") == 1
    assert [kind for kind in steps(function, *arrays) if kind != "product"] == []


def test_what_needs_the_whole_product_does_not_follow():
    assert steps(lambda x, w: nn.softmax(x @ w, axis=0), X, W) == ["product", "column"]
    assert steps(lambda x, w: nn.softmax(x @ w), TALL_X, WIDE_W) == ["product", "row"]  # rows longer than a block
    assert steps(lambda x, w: nn.softmax(x @ w, axis=(-2, -1)), MANY_X, MANY_W) == ["product", "row"]
    assert steps(lambda x, w: (x @ w)[::-1] * 2 + (x @ w), X, W) == ["product", "map"]


def test_a_follower_that_waits_for_another_made_of_the_product():
    def function(x, w):
        y = x @ w
        return y * pb.sum(y, axis=0)  # the sum needs all of y first

    want = (X @ W) * (X @ W).sum(0)
    np.testing.assert_allclose(pb.jit(function)(X, W).numpy(), want, rtol=1e-10)


def test_two_products_that_follow_each_other_crosswise():
    def function(x, w, v):
        a, b = x @ w, x @ v
        return a * pb.tanh(b), b * pb.tanh(a)

    v = rng.standard_normal(W.shape)
    a, b = X @ W, X @ v
    got = pb.jit(function)(X, W, v)
    for mine, want in zip(got, (a * np.tanh(b), b * np.tanh(a)), strict=True):
        np.testing.assert_allclose(mine.numpy(), want, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ["blocks of rows and columns", "wide rows", "softmax"])
def test_the_same_bits_on_any_number_of_threads(name):
    function, arrays = CASES[name]
    arrays = [array.astype(np.float32) for array in arrays]
    same_bits(lambda: pb.jit(lambda *operands: function(*operands))(*arrays))


def test_a_kernel_that_waits_for_others_of_the_product_does_not_follow():
    """Steps between the product and the kernel, of the product and not: the order is right in both cases."""

    def elsewhere(x, w, v):
        product = x @ w
        return nn.relu(product) * 2 + nn.softmax(product @ v, axis=-1)

    def beside(x, w, v):
        first = x @ w
        second = nn.softmax(x @ v, axis=-1) @ v
        return first, nn.softmax(first, axis=-1), nn.relu(first)[:, :50] + second, pb.tanh(second)

    square = rng.standard_normal((90, 90)) / 10
    for function, arrays in ((elsewhere, (X, W, square)), (beside, (X, W, rng.standard_normal((50, 50)) / 10))):
        together = [leaf.numpy() for leaf in pb.pytree.flatten(pb.jit(function)(*arrays))[0]]
        with options.without("follow"):
            apart = [leaf.numpy() for leaf in pb.pytree.flatten(pb.jit(function)(*arrays))[0]]
        for got, want in zip(together, apart, strict=True):
            np.testing.assert_array_equal(got, want)


def test_places_of_steps_that_run_together():
    """Random orders: what is joined stays behind what it needs and before what needs it, and no cycle is made."""
    random = np.random.default_rng(1)
    for _ in range(200):
        count = int(random.integers(3, 40))
        edges = {(a, b) for b in range(1, count) for a in range(b) if random.random() < 2.5 / count}
        order = _Order([])
        order.places = [number * GAP for number in range(count)]
        order._needs = [{a for a, b in edges if b == number} for number in range(count)]
        order._needed_by = [{b for a, b in edges if a == number} for number in range(count)]
        alive = set(range(count))
        for first, second in sorted(edges):
            if first in alive and second in alive and second in order._needed_by[first]:
                reached = set(order._needed_by[first]) - {second}
                pending = list(reached)
                while pending:
                    further = order._needed_by[pending.pop()] - reached
                    reached |= further
                    pending += further
                assert order.leads_elsewhere_to(first, second) == (second in reached)
                if second in reached:
                    continue
                order.join(first, second)
                alive.remove(second)
                for number in alive:
                    assert all(order.places[a] < order.places[number] for a in order._needs[number])
                    assert order._needs[number] <= alive
                    assert order._needed_by[number] <= alive
