"""Where buffers are: what takes over whose memory, how tightly the rest lies, and what a step takes at most."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback import nn, optim
from pullback.api import scatter as indexing
from pullback.compiler.program import Program, compile_program
from pullback.compiler.validate import validate_plan
from pullback.graph.graph import Graph
from pullback.runtime import buffers
from pullback.transforms import pytree

RNG = np.random.default_rng(0)
SQUARE = RNG.standard_normal((64, 64)) / 8
NBYTES = SQUARE.nbytes


def program_of(function: Callable[..., Any], *args: Any, donate: tuple[int, ...] = ()) -> Program:
    graph = Graph.trace(function, *args)
    program = compile_program(graph.inputs, graph.outputs, donate)
    validate_plan(program.plan)
    return program


def run(program: Program, *args: np.ndarray) -> list[np.ndarray]:
    outputs = program([buffers.from_numpy(array) for array in args])
    return [
        np.array(buffer.numpy(base.shape, base.dtype.numpy))
        for buffer, base in zip(outputs, program.plan.outputs, strict=True)
    ]


# -- taking over -------------------------------------------------------------------------------------------------------


def test_a_chain_that_ends_in_the_output_needs_no_arena() -> None:
    def function(x: Any, w: Any) -> Any:
        return pb.sin(x @ w)

    program = program_of(function, SQUARE, SQUARE)
    assert program.plan.arena_bytes == program.plan.live_bytes == 0
    np.testing.assert_allclose(run(program, SQUARE, SQUARE)[0], np.sin(SQUARE @ SQUARE), rtol=1e-10, atol=1e-12)


def test_a_chain_of_products_needs_two_blocks() -> None:
    def function(x: Any, w: Any) -> Any:
        for _ in range(5):
            x = pb.sin(x @ w)
        return x

    program = program_of(function, SQUARE, SQUARE)
    # What is multiplied and the product: one of them lies in the output.
    assert program.plan.live_bytes <= 2 * NBYTES
    expected = SQUARE
    for _ in range(5):
        expected = np.sin(expected @ SQUARE)
    np.testing.assert_allclose(run(program, SQUARE, SQUARE)[0], expected, rtol=1e-10, atol=1e-12)


def test_rows_are_written_over_what_they_are_made_of() -> None:
    def function(x: Any, w: Any) -> Any:
        return nn.softmax(x @ w, axis=-1) @ w

    program = program_of(function, SQUARE, SQUARE)
    assert program.plan.live_bytes == NBYTES
    scores = np.exp(SQUARE @ SQUARE)
    expected = scores / scores.sum(axis=-1, keepdims=True) @ SQUARE
    np.testing.assert_allclose(run(program, SQUARE, SQUARE)[0], expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: (lambda h: pb.sin(h) + h.T)(x @ w) @ w,  # read elsewhere too
        lambda x, w: pb.sin((x @ w).T) @ w,  # written elsewhere
        lambda x, w: pb.flip(x @ w, axis=0) @ w,
        lambda x, w: (lambda h: (pb.sin(h) @ w) * h)(x @ w),  # read later
        lambda x, w: (lambda h: nn.softmax(h, axis=-1) + h[:, ::-1])(x @ w) @ w,
        lambda x, w: (lambda h: pb.take(h, pb.argmax(h, axis=0) * 0 + pb.arange(64), axis=0))(x @ w) @ w,
        lambda x, w: (lambda h: pb.cumsum(h, axis=0) - h)(x @ w) @ w,
        lambda x, w: (lambda h: (h - pb.mean(h, axis=1, keepdims=True)) * pb.max(h, axis=1, keepdims=True))(x @ w) @ w,
        lambda x, w: (lambda h: (pb.sin(h) @ w, pb.cos(h) @ w))(x @ w),  # two that would like to
    ],
)
def test_what_is_still_needed_is_left_alone(function: Callable[..., Any]) -> None:
    """Numbers are right whatever was taken over, and the validator agrees."""
    program = program_of(function, SQUARE, SQUARE)
    graph = Graph.trace(function, SQUARE, SQUARE)
    pb.set_backend("reference")
    try:
        expected = [np.array(leaf) for leaf in pb.jit(function)(SQUARE, SQUARE)] if len(graph.outputs) > 1 else [
            np.array(function(pb.asarray(SQUARE), pb.asarray(SQUARE)))
        ]
    finally:
        pb.set_backend("compiled")
    for value, right in zip(run(program, SQUARE, SQUARE), expected, strict=True):
        np.testing.assert_allclose(value, right, rtol=1e-10, atol=1e-12)


def test_rows_overwrite_a_donated_input() -> None:
    x = RNG.standard_normal((300, 500)).astype(np.float32)
    program = program_of(lambda x: nn.softmax(x, axis=-1), x, donate=(0,))
    assert program.donations == {0: 0}
    program = program_of(lambda x: nn.softmax(x.T, axis=-1).T * 1.0, x, donate=(0,))
    assert run(program, x)[0].shape == x.shape


# -- states ------------------------------------------------------------------------------------------------------------


def _put(state: Any, rows: Any, start: Any) -> Any:
    """As a cache of keys is written: some tokens from a position on."""
    state[:, start + pb.arange(rows.shape[1])] = rows
    return pb.sum(state[:, start])


def test_a_jitted_state_is_written_where_it_lies() -> None:
    step = pb.jit(_put)
    state, expected = pb.zeros((2, 500, 64)), np.zeros((2, 500, 64), np.float32)
    places = set()
    for start in (0, 7, 3, 498):
        rows = RNG.standard_normal((2, 2, 64)).astype(np.float32)
        step(state, rows, start)
        expected[:, start : start + 2] = rows
        np.testing.assert_array_equal(np.asarray(state), expected)
        places.add(state.node.buffer.address)
    assert len(places) == 2  # the zeros of the start, which are a constant, and one more


def test_an_index_out_of_range_leaves_the_state_as_it_was() -> None:
    step = pb.jit(_put)
    state, rows = pb.zeros((2, 500, 64)), np.ones((2, 3, 64), np.float32)
    for start in (1, 2):
        step(state, rows, start)
    before, place = np.array(state), state.node.buffer.address
    with pytest.raises(IndexError, match="index 500 is out of range"):
        step(state, 5 * rows, 498)
    np.testing.assert_array_equal(np.asarray(state), before)
    assert state.node.buffer.address == place


def test_a_state_that_somebody_else_holds_is_copied() -> None:
    step = pb.jit(_put)
    state, rows = pb.zeros((2, 500, 64)), np.ones((2, 3, 64), np.float32)
    for start in (1, 2):
        step(state, rows, start)
    other, before = state[...], np.array(state)
    step(state, 5 * rows, 100)
    np.testing.assert_array_equal(np.asarray(other), before)
    assert np.asarray(state)[0, 100, 0] == 5


@pytest.mark.parametrize(
    ("function", "donations"),
    [
        (lambda x, i, v: indexing.index_put(x, (i,), v), {0: 0}),
        (lambda x, i, v: (pb.sum(x), indexing.index_put(x, (i,), v)), {1: 0}),
        (lambda x, i, v: indexing.index_put(x, (i,), x[:2] + v), {}),  # read by what changes it
        (lambda x, i, v: indexing.index_put(x, (i,), v, accumulate=True), {0: 0}),
        (lambda x, i, v: (lambda y: (y, x + y))(indexing.index_put(x, (i,), v)), {1: 0}),  # read later
        (lambda x, i, v: indexing.index_put(x, (i,), x[i] + v), {}),
        (lambda x, i, v: (indexing.index_put(x, (i,), v), v[i]), {0: 0}),
        (lambda x, i, v: (lambda y: (y, v[pb.argmax(y) * 0]))(indexing.index_put(x, (i,), v)), {}),  # may fail later
    ],
)  # fmt: skip
def test_scatters_over_a_donated_input(function: Callable[..., Any], donations: dict[int, int]) -> None:
    x, v, i = RNG.standard_normal((300, 128)), RNG.standard_normal((2, 128)), np.array([1, 0])
    program = program_of(function, x, i, v, donate=(0,))
    expected = pytree.leaves(function(*map(pb.asarray, (x, i, v))))
    found = run(program, x, i, v)
    for value, right in zip(found, expected, strict=True):
        np.testing.assert_array_equal(value, np.asarray(right))
    assert program.donations == donations


# -- steps of training -------------------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any, mask: Any) -> Any:
        batch, length, width = x.shape

        def heads(t: Any) -> Any:
            return pb.permute_dims(pb.reshape(t, (batch, length, 4, width // 4)), (0, 2, 1, 3))

        q, k, v = map(heads, pb.split(self.qkv(self.first(x)), 3, axis=-1))
        scores = nn.softmax(pb.where(mask, q @ pb.matrix_transpose(k) * (width // 4) ** -0.5, -np.inf))
        x = x + self.out(pb.reshape(pb.permute_dims(scores @ v, (0, 2, 1, 3)), (batch, length, width)))
        return x + self.down(nn.gelu(self.up(self.second(x))))


class Transformer(nn.Module):
    def __init__(self, width: int, length: int, layers: int, classes: int) -> None:
        self.tokens, self.places = nn.Embedding(classes, width), nn.Embedding(length, width)
        self.blocks = [Block(width) for _ in range(layers)]
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, tokens: Any) -> Any:
        length = tokens.shape[1]
        x = self.tokens(tokens) + self.places(pb.arange(length))
        mask = pb.tril(pb.ones((length, length), dtype=pb.bool))
        for block in self.blocks:
            x = block(x, mask)
        return self.head(self.norm(x))


Step = tuple[Callable[..., Any], tuple[Any, ...], list[Any], Any]  # with its arguments, the parameters, the optimizer


def step_of(model: Any, optimizer: Any, inputs: np.ndarray, labels: np.ndarray) -> Step:
    @pb.jit
    def step(inputs: Any, labels: Any) -> Any:
        optimizer.zero_grad()
        scores = model(inputs)
        loss = nn.cross_entropy(pb.reshape(scores, (-1, scores.shape[-1])), pb.reshape(labels, (-1,)))
        loss.backward()
        optimizer.step()
        return loss

    return step, (inputs, labels), list(model.parameters()), optimizer


def transformer() -> Step:
    model = Transformer(64, 48, 2, 31)
    tokens = RNG.integers(0, 31, (4, 48))
    return step_of(model, optim.Adam(model.parameters(), lr=1e-3), tokens, np.roll(tokens, -1))


def perceptron(optimizer: Callable[..., Any], *widths: int) -> Step:
    layers: list[Any] = []
    for fan_in, fan_out in itertools.pairwise(widths):
        layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
    model = nn.Sequential(*layers[:-1])
    x, y = RNG.standard_normal((64, widths[0])).astype(np.float32), RNG.integers(0, widths[-1], 64)
    return step_of(model, optimizer(model.parameters()), x, y)


def residual() -> Step:
    """The value and all gradients of fifty layers."""
    weights = [pb.asarray(RNG.standard_normal((32, 32)).astype(np.float32) / 8) for _ in range(50)]

    def loss(weights: Any, x: Any) -> Any:
        for w in weights:
            x = x + pb.tanh(x @ w)
        return pb.mean(x * x)

    x = pb.asarray(RNG.standard_normal((128, 32)).astype(np.float32))
    return pb.jit(pb.value_and_grad(loss)), (weights, x), [], None


STEPS: dict[str, Callable[[], Step]] = {
    "transformer": transformer,
    "lenet-300-100": lambda: perceptron(lambda p: optim.SGD(p, lr=0.1, momentum=0.9), 784, 300, 100, 10),
    "wide": lambda: perceptron(lambda p: optim.Adam(p, lr=0.1), 64, 512, 512, 512, 10),
    "residual": residual,
}


@pytest.mark.parametrize("name", STEPS)
def test_a_step_takes_little_more_than_what_must_live(name: str) -> None:
    step, arguments, parameters, _ = STEPS[name]()
    step(*arguments)
    found = pb.explain(step)(*arguments)
    (program,) = found.programs
    assert program.needed <= found.peak == program.peak <= 1.1 * program.needed
    assert program.live > 0
    assert program.temporaries <= 1.1 * program.live + 4096  # few small ones may leave gaps of a cache line each
    state = sum(p.nbytes for p in parameters)
    assert program.taken_over >= state  # every parameter is written over itself
    assert f"peak {program.peak / 1e6:.3g} MB" in str(found)


@pytest.mark.parametrize("name", ["transformer", "lenet-300-100", "wide"])
def test_a_step_allocates_nothing_new(name: str) -> None:
    """Parameters, the optimizer's state (which may change places among themselves) and gradients stay where they are;
    temporaries come from what was freed."""
    step, arguments, parameters, optimizer = STEPS[name]()
    for _ in range(3):
        step(*arguments)

    def places() -> tuple[set[int], list[int]]:
        """Small ones take turns in a few buffers."""
        kept = [leaf for leaf in pytree.leaves(optimizer.state_dict()["state"]) if isinstance(leaf, pb.Tensor)]
        large = [tensor for tensor in [*parameters, *kept] if tensor.nbytes > buffers.RECYCLED_BYTES]
        gradients = [p.grad for p in parameters if p.nbytes > buffers.RECYCLED_BYTES]
        assert len(gradients) > 1
        return {tensor.node.buffer.address for tensor in large}, [tensor.node.buffer.address for tensor in gradients]

    before = places()
    made: list[int] = []
    original = buffers._new_block
    buffers._new_block = lambda size: made.append(size) or original(size)
    try:
        for _ in range(5):
            step(*arguments)
    finally:
        buffers._new_block = original
    assert made == []
    assert places() == before


# -- constants ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["array", "tensor"])
def test_a_large_constant_is_no_part_of_the_code(kind: str) -> None:
    """40 MB that the function closes over: the code does not grow with it, and there is one copy of an array (which
    somebody may change) and none of a tensor."""
    array = np.linspace(0, 1, 5_000_000)
    constant = array if kind == "array" else pb.asarray(array)
    x = pb.asarray(np.ones_like(array))
    function = pb.jit(lambda x: pb.sum(x * constant))
    expected = array.sum()
    tracemalloc.start()
    try:
        np.testing.assert_allclose(float(function(x)), expected, rtol=1e-12)
        np.testing.assert_allclose(float(function(x)), expected, rtol=1e-12)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < {"array": 1.3, "tensor": 0.3}[kind] * array.nbytes
    found = pb.explain(function, verbose=("ir", "llvm"))(x)
    assert all(len(text) < 50_000 for step in found.steps for text in step.texts.values())
    assert 2 * array.nbytes <= found.programs[0].inputs <= 2 * array.nbytes + 100
