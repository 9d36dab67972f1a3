"""What is fused into what: kernel counts of programs that users know, so that fusion cannot regress silently."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.compiler.program import Program, compile_program
from pullback.graph.graph import Graph
from pullback.ops import elementwise as e
from pullback.ops import leaf, movement
from pullback.runtime.evaluate import evaluate
from pullback.runtime.reference import reference_values

F = pb.nn.functional


def program_of(function: Callable[..., Any], *args: Any) -> Program:
    graph = Graph.trace(function, *args)
    return compile_program(graph.inputs, graph.outputs)


def modes(function: Callable[..., Any], *args: Any) -> list[str]:
    return [kernel.mode for kernel in program_of(function, *args).kernels]


X = np.zeros((64, 48), np.float32)
LABELS = np.zeros(64, np.int64)


def layer_norm(x: Any) -> Any:
    centred = x - pb.mean(x, axis=-1, keepdims=True)
    return centred / pb.sqrt(pb.mean(centred * centred, axis=-1, keepdims=True) + 1e-5)


def gelu(x: Any) -> Any:
    return 0.5 * x * (1.0 + pb.tanh(0.7978845608028654 * (x + 0.044715 * x**3)))


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (gelu, ["map"]),
        (pb.grad(lambda x: pb.sum(gelu(x))), ["map"]),
        (lambda x: F.softmax(x, axis=-1), ["row"]),
        (pb.grad(lambda x: pb.sum(F.softmax(x, axis=-1) ** 2)), ["row"]),
        (lambda x: F.log_softmax(x, axis=-1), ["row"]),
        (layer_norm, ["row"]),
        (pb.grad(lambda x: pb.sum(layer_norm(x) ** 3)), ["row"]),
        (lambda x: pb.var(x, axis=-1), ["row"]),
        (lambda x: pb.var(x, axis=0), ["column"]),
        (pb.grad(lambda x: pb.sum(pb.var(x, axis=-1) ** 2)), ["row"]),
        (pb.grad(lambda x: pb.sum(pb.var(x, axis=0) ** 2)), ["column"]),
        (lambda x: (pb.argmax(x, axis=-1), pb.max(x, axis=-1)), ["row"]),
        (pb.grad(lambda x: pb.sum(pb.max(x, axis=-1) ** 2)), ["row"]),
        (lambda x: x - pb.take_along_axis(x, pb.argmax(x, axis=-1, keepdims=True), axis=-1), ["row"]),
        (pb.grad(lambda x: pb.sum(F.log_softmax(x, axis=-1) * x)), ["row"]),
        (lambda x: pb.sum(pb.exp(x) * 2.0, axis=0), ["column"]),
        (lambda x: (pb.sin(x), pb.cos(x)), ["map"]),
    ],
)  # fmt: skip
def test_one_kernel(function: Callable[..., Any], expected: list[str]) -> None:
    assert modes(function, X) == expected


IMAGES = np.zeros((4, 12, 16, 16), np.float32)
SCALE, SHIFT = np.ones(48, np.float32), np.zeros(48, np.float32)
CHANNELS = np.ones(12, np.float32)
SCORES = np.zeros((4, 48, 48), np.float32)


def causal(scores: Any) -> Any:
    kept = pb.tril(pb.ones((48, 48), dtype="bool"))
    return F.softmax(pb.where(kept, scores * 0.125, -pb.inf), axis=-1)


def cube(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, *rest: pb.sum(function(x, *rest) ** 3)


def norm_of(x: Any, weight: Any, bias: Any) -> Any:
    return F.layer_norm(x, 48, weight, bias)


def root_mean_square(x: Any, weight: Any) -> Any:
    return F.rms_norm(x, 48, weight)


def norm_of_groups(x: Any, weight: Any) -> Any:
    return F.group_norm(x, 3, weight)


def norm_of_batch(x: Any, weight: Any) -> Any:
    return F.batch_norm(x, None, None, weight, training=True)


def adam(p: Any, g: Any, m: Any, v: Any) -> Any:
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    return p - 1e-3 * (m / 0.1) / (pb.sqrt(v / 0.001) + 1e-8), m, v


def targets(x: Any) -> Any:
    return F.binary_cross_entropy_with_logits(x, np.ones_like(X))


@pytest.mark.parametrize(
    ("function", "args", "expected"),
    [
        (norm_of, (X, SCALE, SHIFT), ["row"]),
        (pb.grad(cube(norm_of)), (X, SCALE, SHIFT), ["row"]),
        (pb.grad(cube(norm_of), argnums=(0, 1, 2)), (X, SCALE, SHIFT), ["row", "column", "column"]),
        (root_mean_square, (X, SCALE), ["row"]),
        (pb.grad(cube(root_mean_square)), (X, SCALE), ["row"]),
        (pb.grad(cube(root_mean_square), argnums=(0, 1)), (X, SCALE), ["row", "column"]),
        (norm_of_groups, (IMAGES, CHANNELS), ["row"]),
        (pb.grad(cube(norm_of_groups)), (IMAGES, CHANNELS), ["row"]),
        (norm_of_batch, (IMAGES, CHANNELS), ["row"]),
        (pb.grad(cube(norm_of_batch)), (IMAGES, CHANNELS), ["row"]),
        (F.instance_norm, (IMAGES,), ["row"]),
        (pb.grad(cube(F.instance_norm)), (IMAGES,), ["row"]),
        (lambda x, g: pb.vjp(lambda x: F.softmax(x, axis=-1), x)[1](g), (X, X), ["row"]),
        (lambda x, g: pb.vjp(lambda x: F.log_softmax(x, axis=-1), x)[1](g), (X, X), ["row"]),
        (lambda x: F.softmax(x, axis=0), (X,), ["column"]),
        (causal, (SCORES,), ["row"]),
        (pb.grad(cube(causal)), (SCORES,), ["row"]),
        (lambda x: pb.logsumexp(x, axis=-1), (X,), ["row"]),
        (pb.grad(lambda x: pb.sum(pb.logsumexp(x, axis=-1))), (X,), ["row"]),
        (lambda x: pb.std(x, axis=-1), (X,), ["row"]),
        (pb.grad(cube(lambda x: pb.std(x, axis=-1))), (X,), ["row"]),
        (lambda x: x / pb.linalg.vector_norm(x, axis=-1, keepdims=True), (X,), ["row"]),
        (pb.value_and_grad(lambda x: F.mse_loss(x, X)), (X,), ["row"]),
        (pb.value_and_grad(targets), (X,), ["row"]),
        (pb.grad(cube(F.silu)), (X,), ["map"]),
        (adam, (X, X, X, X), ["map"]),
    ],
)  # fmt: skip
def test_norms_losses_and_their_gradients(
    function: Callable[..., Any], args: tuple[Any, ...], expected: list[str]
) -> None:
    assert modes(function, *args) == expected


def test_gradient_of_cross_entropy_is_one_kernel_beside_the_count_of_its_labels() -> None:
    program = program_of(pb.grad(lambda x: F.cross_entropy(x, LABELS)), X)
    assert sorted(kernel.domain for kernel in program.kernels) == [(64,), (64, 48)]


def test_cross_entropy_and_its_gradient_are_one_row_kernel() -> None:
    def loss(x: Any) -> Any:
        return F.cross_entropy(x, LABELS)

    program = program_of(pb.value_and_grad(loss), X)
    assert [kernel.mode for kernel in program.kernels] == ["row", "row", "row"]
    assert [len(kernel.domain) for kernel in program.kernels].count(2) == 1


def test_sums_over_many_rows_lie_beside_their_row_kernel() -> None:
    tall = np.zeros((512, 48), np.float32)
    kernels = program_of(pb.grad(cube(norm_of), argnums=(0, 1, 2)), tall, SCALE, SHIFT).kernels
    assert [(kernel.mode, len(kernel.sides)) for kernel in kernels] == [("row", 2), ("column", 0), ("column", 0)]
    kernels = program_of(pb.grad(cube(root_mean_square), argnums=(0, 1)), tall, SCALE).kernels
    assert [(kernel.mode, len(kernel.sides)) for kernel in kernels] == [("row", 1), ("column", 0)]


def test_embedding_and_norm_are_one_kernel() -> None:
    table, places, tokens = np.zeros((100, 48), np.float32), np.zeros((8, 48), np.float32), np.zeros((4, 8), np.int64)
    function = lambda t, p, i: F.layer_norm(t[i] + p, 48)  # noqa: E731
    assert modes(function, table, places, tokens) == ["row"]


def test_an_optimizer_of_many_small_parameters_is_few_launches() -> None:
    parameters = [pb.asarray(np.zeros(n % 7 + 1, np.float32)).requires_grad_() for n in range(200)]
    optimizer = pb.optim.Adam(parameters, lr=1e-3)

    @pb.jit
    def update(gradients: Any) -> None:
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        optimizer.step()

    report = pb.explain(update)([pb.asarray(np.ones(p.shape, np.float32)) for p in parameters])
    assert len(report.steps) <= 40
    assert len({step.wave for step in report.steps}) <= 2


def test_bias_and_activation_between_products_are_one_kernel() -> None:
    w = np.zeros((48, 32), np.float32)
    b = np.zeros(32, np.float32)
    assert modes(lambda x: F.relu(x @ w + b) @ w.T, X) == ["map"]


def test_transposes_cost_no_copy() -> None:
    w = np.zeros((32, 48), np.float32)
    assert modes(lambda x: x @ w.T, X) == []
    assert modes(lambda x: x.T @ x, X) == []


def test_kernels_are_keyed_by_structure() -> None:
    small = program_of(gelu, np.zeros(7, np.float32)).kernels
    large = program_of(gelu, np.zeros(70000, np.float32)).kernels
    assert [k.key for k in small] == [k.key for k in large]
    few, many = np.zeros((3, 5), np.float32), np.zeros((9, 1000), np.float32)
    rows = [program_of(lambda x: F.softmax(x, axis=-1), x).kernels[0].key for x in (few, many)]
    assert rows[0] == rows[1]


def test_a_long_chain_is_cut_into_equal_kernels() -> None:
    def chain(x: Any) -> Any:
        for _ in range(400):
            x = pb.sin(x) + 0.5
        return x

    kernels = program_of(chain, X).kernels
    assert 2 <= len(kernels) <= 32
    assert all(k.cost < 1000 for k in kernels)
    assert len({k.key for k in kernels}) < len(kernels)


def test_a_cheap_value_that_a_long_reduction_cannot_compute_in_place() -> None:
    """x > 0 times a row is computed again by whoever needs it, except in one long walk, along which rows break off."""
    rng = np.random.default_rng(1)
    x, row, w = rng.standard_normal((40000, 5)), rng.standard_normal(5), rng.standard_normal((40000, 5))

    def function(x: pb.Tensor, row: pb.Tensor) -> tuple[pb.Tensor, pb.Tensor]:
        y = pb.where((x < row) & (x > -1.0), x, row * (x > 0))
        return y, pb.sum(y * w) + pb.sum(row * row)

    values, total = pb.jit(function)(x, row)
    expected = np.where((x < row) & (x > -1), x, row * (x > 0))
    np.testing.assert_array_equal(np.asarray(values), expected)
    np.testing.assert_allclose(np.asarray(total), np.sum(expected * w) + np.sum(row * row), rtol=1e-11)


def test_masks_of_positions_in_a_long_reduction() -> None:
    """Along one loop over a whole matrix nobody knows the row and the column, which tril and triu compare."""
    x = np.random.default_rng(2).standard_normal((400, 401))

    def function(x: pb.Tensor) -> pb.Tensor:
        return pb.sum(pb.tril(x) ** 2) + pb.sum(pb.triu(x, 1)) + pb.sum(x * pb.arange(401, dtype="float64"))

    expected = np.sum(np.tril(x) ** 2) + np.sum(np.triu(x, 1)) + np.sum(x * np.arange(401.0))
    np.testing.assert_allclose(np.asarray(function(pb.asarray(x))), expected, rtol=1e-11)
    slope = 2 * np.tril(x) + np.triu(np.ones_like(x), 1) + np.arange(401.0)
    np.testing.assert_allclose(np.asarray(pb.jit(pb.grad(function))(x)), slope, rtol=1e-12)


def test_a_value_that_is_also_part_of_an_array_that_nobody_reads() -> None:
    """The padding crops all that was taken from the joined array, which is never made; its first part is still read."""
    x = leaf.data(np.linspace(0, 3, 3).reshape(3, 1), copy=True)
    first = e.floor(e.cos(e.sin(x)))
    joined = movement.concat((first, movement.flip(first, (0,))), 0)
    taken = e.exp(movement.slice(joined, (3, 0), (6, 1), (2, 1)))
    outputs = [movement.pad(taken, 0.5, (1, -1), (0, 2)), e.abs(first)]
    expected = reference_values(outputs)
    evaluate(outputs)
    for node, value in zip(outputs, expected, strict=True):
        assert node.buffer is not None
        np.testing.assert_array_equal(node.buffer.numpy(node.shape, node.dtype.numpy), value)


def test_a_table_that_is_read_in_place_too() -> None:
    """That it must be stored shows only when the product joins a kernel, to which it was about to come along."""

    def function(x: Any, w: Any, i: Any) -> Any:
        t = pb.clip(x @ w, -1.0, 1.0)
        return t, pb.sum(t * pb.take(t, i, axis=0), axis=-1)

    rng = np.random.default_rng(3)
    x, w, i = rng.standard_normal((6, 4)), rng.standard_normal((4, 5)), np.array([3, 0, 3, 5, 1, 1])
    written = [value.id for step in program_of(function, x, w, i).plan.steps for value in step.writes]
    assert len(written) == len(set(written))
    t = np.clip(x @ w, -1, 1)
    np.testing.assert_allclose(np.asarray(pb.jit(function)(x, w, i)[1]), (t * t[i]).sum(-1), rtol=1e-12)
