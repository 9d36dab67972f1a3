"""Random graphs, compiled and evaluated by the reference: the same numbers."""

from __future__ import annotations

import numpy as np
import pytest

from pullback import dtypes
from pullback.compiler import simplify
from pullback.graph.node import Node
from pullback.ops import contraction, elementwise, indexing, leaf, movement, reduction, scan
from pullback.runtime.evaluate import evaluate
from pullback.runtime.reference import reference_values

UNARY = ("negative", "abs", "tanh", "sigmoid", "sin", "cos", "square", "erf", "floor", "exp")
BINARY = ("add", "subtract", "multiply", "maximum", "minimum", "strong_multiply", "strong_product")
EXTENTS = (1, 1, 2, 3, 5, 8, 17)


class RandomGraph:
    """Grows a pool of nodes by random operations; every value stays of moderate size."""

    def __init__(self, seed: int, dtype: dtypes.DType) -> None:
        self.rng = np.random.default_rng(seed)
        self.dtype = dtype
        self.shape = tuple(int(self.rng.choice(EXTENTS)) for _ in range(self.rng.integers(1, 4)))
        self.pool: list[Node] = [self.data(self.shape) for _ in range(3)]

    def data(self, shape: tuple[int, ...]) -> Node:
        return leaf.data(self.rng.standard_normal(shape).astype(self.dtype.numpy), copy=True)

    def pick(self, minimum_rank: int = 0) -> Node:
        candidates = [n for n in self.pool if n.ndim >= minimum_rank]
        if not candidates:
            candidates = [self.data((3, 5, 2))]
        # Recent nodes are likelier: chains get long.
        weights = np.arange(1, len(candidates) + 1, dtype=float)
        return candidates[self.rng.choice(len(candidates), p=weights / weights.sum())]

    def bounded(self, x: Node) -> Node:
        return elementwise.clip(x, -4.0, 4.0)

    def index(self, shape: tuple[int, ...], size: int) -> Node:
        values = self.rng.integers(-size, size, shape)
        return elementwise.check_index(leaf.data(values, copy=True), size, "fuzz")

    def grow(self) -> None:
        rng = self.rng
        kind = rng.integers(0, 17)
        x = self.pick()
        if kind <= 2:
            name = str(rng.choice(UNARY))
            node = getattr(elementwise, name)(self.bounded(x))
        elif kind <= 4:
            y = self.partner(x)
            node = self.bounded(getattr(elementwise, str(rng.choice(BINARY)))(x, y))
        elif kind == 5:
            y = self.partner(x)
            node = elementwise.where(elementwise.less(x, y), x, y)
        elif kind == 6 and x.ndim:
            count = int(rng.integers(1, x.ndim + 1))
            axes = tuple(sorted(int(a) for a in rng.choice(x.ndim, count, replace=False)))
            name = str(rng.choice(["reduce_sum", "reduce_max", "reduce_min", "reduce_prod"]))
            operand = self.bounded(x) if name != "reduce_prod" else elementwise.tanh(x)
            reduced = getattr(reduction, name)(operand, axes, True)
            node = elementwise.tanh(reduced) if rng.random() < 0.5 else reduced
        elif kind == 7 and x.ndim:
            order = tuple(int(a) for a in rng.permutation(x.ndim))
            node = movement.permute(x, order)
        elif kind == 8 and x.ndim:
            flat = movement.reshape(x, (x.size,))
            node = flat if rng.random() < 0.3 else movement.reshape(movement.flip(flat, (0,)), x.shape)
        elif kind == 9 and x.ndim:
            axis = int(rng.integers(x.ndim))
            y = movement.flip(x, (axis,))
            joined = movement.concat((x, y), axis)
            extent = joined.shape[axis]
            start = int(rng.integers(0, extent))
            step = int(rng.integers(1, 3))
            starts = tuple(start if a == axis else 0 for a in range(x.ndim))
            steps = tuple(step if a == axis else 1 for a in range(x.ndim))
            node = movement.slice(joined, starts, joined.shape, steps)
        elif kind == 10 and x.ndim:
            pads = tuple(int(p) for p in rng.integers(-1, 3, x.ndim))
            inner = tuple(int(p) for p in rng.integers(0, 2, x.ndim))
            high = tuple(max(int(p), 1 - low) for p, low in zip(rng.integers(0, 2, x.ndim), pads, strict=True))
            node = movement.pad(x, leaf.constant(0.5, self.dtype), pads, high, inner)
        elif kind == 11 and x.ndim:
            axis = int(rng.integers(x.ndim))
            index = self.index((4,), x.shape[axis])
            node = indexing.gather(x, [index], axes=(axis,))
            if rng.random() < 0.5:
                rest = tuple(e for a, e in enumerate(x.shape) if a != axis)
                mode = str(rng.choice(["add", "set", "max"]))
                node = indexing.scatter(x, self.data((4, *rest)), [index], axes=(axis,), mode=mode)
        elif kind == 12:
            y = self.pick(2)
            z = self.data((y.shape[-1], 4))
            node = contraction.dot_general(y, z, ((y.ndim - 1,), (0,)), ((), ()))
        elif kind == 13 and x.ndim:
            axes = rng.integers(0, x.ndim, 2)
            row, column = (leaf.iota(x.shape, int(axis), dtypes.int64) for axis in axes)
            kept = elementwise.less_equal(row, elementwise.add(column, leaf.constant(1, dtypes.int64)))
            node = elementwise.where(kept, x, elementwise.cast(elementwise.multiply(row, column), self.dtype))
        elif kind in (14, 15) and x.ndim:
            axis, reverse, flag = int(rng.integers(x.ndim)), bool(rng.random() < 0.5), bool(rng.random() < 0.3)
            name = str(rng.choice(["scan_sum", "scan_prod", "scan_max", "scan_min", "gated_scan", "strong_scan"]))
            if name in ("gated_scan", "strong_scan"):
                gate = elementwise.tanh(movement.broadcast_to(self.partner(x), x.shape))
                options = (reverse, flag) if name == "strong_scan" else (reverse,)
                node = self.bounded(getattr(scan, name)(gate, x, axis, *options))
            else:
                operand = elementwise.tanh(x) if name == "scan_prod" else x
                node = self.bounded(getattr(scan, name)(operand, axis, reverse, flag))
        elif kind == 16 and x.ndim:
            axis = int(rng.integers(x.ndim))
            node = scan.shift(x, axis, int(rng.integers(-2, 3)))
        else:
            return
        if 0 < node.size < 4000:
            self.pool.append(node)

    def partner(self, x: Node) -> Node:
        matching = [n for n in self.pool if n.shape == x.shape or n.ndim == 0]
        if matching and self.rng.random() < 0.7:
            return matching[self.rng.integers(len(matching))]
        shape = tuple(e if self.rng.random() < 0.5 else 1 for e in x.shape)
        return self.data(shape)


def check(seed: int, dtype: dtypes.DType, steps: int = 25) -> None:
    graph = RandomGraph(seed, dtype)
    for _ in range(steps):
        graph.grow()
    outputs = graph.pool[-4:] + [graph.pool[graph.rng.integers(len(graph.pool))]]
    expected = reference_values(outputs)
    evaluate(outputs)
    tolerance = 2e-4 if dtype is dtypes.float32 else 1e-11
    for node, value in zip(outputs, expected, strict=True):
        assert node.buffer is not None
        got = node.buffer.numpy(node.shape, node.dtype.numpy)
        np.testing.assert_allclose(got, value, rtol=tolerance, atol=tolerance, err_msg=f"seed {seed}: {node!r}")


@pytest.mark.parametrize("seed", range(60))
def test_random_graph_float64(seed: int) -> None:
    check(seed, dtypes.float64)


@pytest.mark.parametrize("seed", range(1000, 1040))
def test_random_graph_float32(seed: int) -> None:
    # No tanh of large cancellations: differences stay at float32's own rounding.
    check(seed, dtypes.float32, steps=12)


@pytest.mark.parametrize("seed", range(2000, 2040))
def test_random_graph_with_reductions_in_chunks(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reductions are cut as only long ones are otherwise."""
    for name, value in {"CHUNKED_SIZE": 64, "CHUNK_SIZE": 16, "COLUMNS_PER_TASK": 1, "ENOUGH_TASKS": 4}.items():
        monkeypatch.setattr(simplify, name, value)
    check(seed, dtypes.float64)


def test_every_reduction_of_one_long_tensor() -> None:
    """Their partial results look alike: same operand, same chunks, same dtype."""
    x = np.random.default_rng(0).uniform(0.9, 1.1, 1 << 18)
    node = leaf.data(x, copy=True)
    names = ("reduce_sum", "reduce_max", "reduce_min", "reduce_prod")
    outputs = [getattr(reduction, name)(node, (0,)) for name in names]
    expected = reference_values(outputs)
    evaluate(outputs)
    for output, value in zip(outputs, expected, strict=True):
        assert output.buffer is not None
        np.testing.assert_allclose(output.buffer.numpy((), output.dtype.numpy), value, rtol=1e-11)
