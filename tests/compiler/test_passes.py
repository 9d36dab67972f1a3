"""With any one pass of the compiler off, results are the reference's, and what was compiled is kept apart."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.compiler import cache as kernel_cache
from pullback.compiler import options, schedule, simplify
from pullback.compiler.program import Program, compile_program
from pullback.dtypes import by_name
from pullback.errors import ArgumentError
from pullback.graph.graph import Graph
from pullback.runtime import evaluate
from pullback.transforms import pytree
from tests.backends import on_backend
from tests.compiler import graphs, test_fuzz

F = pb.nn.functional
RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, (12, 20))
Y = RNG.uniform(0.5, 2, (12, 20))
LABELS = RNG.integers(0, 20, 12)
ROWS = RNG.integers(-12, 12, 9)


def with_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """Value, gradient by the first argument, and the second derivative along a line."""

    def both(x: Any, *rest: Any) -> Any:
        weights = pb.asarray(np.linspace(0.5, 1.5, x.shape[-1])).astype(x.dtype)

        def loss(x: Any) -> Any:
            value = function(x, *rest)
            return pb.sum(value * weights if value.shape[-1:] == weights.shape else value)

        return function(x, *rest), pb.grad(loss)(x), pb.hvp(loss, (x,), (pb.ones_like(x),))

    return both


def attention(x: Any, y: Any) -> Any:
    q, k, v = (pb.permute_dims(pb.reshape(t, (2, 6, 4, 5)), (0, 2, 1, 3)) for t in (x, y, x * y))
    scores = q @ pb.permute_dims(k, (0, 1, 3, 2)) / 5**0.5
    scores = pb.where(pb.tril(pb.ones((6, 6), dtype="bool")), scores, -pb.inf)
    return pb.reshape(pb.permute_dims(F.softmax(scores, axis=-1) @ v, (0, 2, 1, 3)), (12, 20))


def adam_steps(x: Any, y: Any) -> Any:
    first, second, p = pb.zeros_like(x), pb.zeros_like(x), x
    for step in range(1, 4):
        g = pb.grad(lambda p: pb.sum(pb.tanh(p) * y))(p)
        first, second = 0.9 * first + 0.1 * g, 0.999 * second + 0.001 * g * g
        p = p - 0.01 * (first / (1 - 0.9**step)) / (pb.sqrt(second / (1 - 0.999**step)) + 1e-8)
    return p, first, second


def in_place(x: Any, y: Any) -> Any:
    z = x * 1.0
    z[3] = y[4]
    z[::2, 1:5] += 1.0
    z[ROWS] *= 0.5
    z[z > 1.0] = 0.25
    return z, x * z


COMPOSITES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "softmax": (with_gradient(lambda x: F.softmax(x, axis=-1)), (X,)),
    "softmax-0": (with_gradient(lambda x: F.log_softmax(x, axis=0)), (X,)),
    "layer_norm": (with_gradient(lambda x, y: F.layer_norm(x, 20, y[0], y[1])), (X, Y)),
    "rms_norm": (with_gradient(lambda x, y: F.rms_norm(x, 20, y[0])), (X, Y)),
    "group_norm": (with_gradient(lambda x: F.group_norm(pb.reshape(x, (2, 6, 20)), 3)), (X,)),
    "batch_norm": (
        with_gradient(lambda x: F.batch_norm(pb.reshape(x, (3, 4, 20)), None, None, training=True)), (X,)
    ),
    "cross_entropy": (with_gradient(lambda x: F.cross_entropy(x, LABELS)), (X,)),
    "attention": (with_gradient(attention), (X, Y)),
    "adam": (adam_steps, (X, Y)),
    "gather": (with_gradient(lambda x: pb.take(x, ROWS, axis=0) * x[ROWS, LABELS[:9]][:, None]), (X,)),
    "scatter": (
        with_gradient(lambda x, y: pb.segment_sum(x * y, LABELS % 5, 6) + pb.segment_max(x, LABELS % 6, 6)), (X, Y)
    ),
    "scan": (with_gradient(lambda x: pb.cumsum(x * x, axis=0) + pb.cumprod(pb.tanh(x), axis=1, reverse=True)), (X,)),
    "windows": (with_gradient(lambda x: pb.sum(pb.unfold(x, 1, 5, 2) ** 2, axis=-1)), (X,)),
    "strides": (with_gradient(lambda x: pb.sin(x[::-2, 1::3]) * x[1::2, -7:] + x[6:, 13:20][::-1]), (X,)),
    "concat": (with_gradient(lambda x, y: pb.pad(pb.concat([x, y[2:], x * y]), 2, constant_values=1.5)), (X, Y)),
    "sort": (with_gradient(lambda x: pb.sort(x, axis=0) * pb.argsort(x, axis=-1)), (X,)),
    "sums": (lambda x, y: (pb.sum(x), pb.mean(x * y, axis=0), pb.max(x), pb.sum(y, axis=1), pb.var(x)), (X, Y)),
    "norms": (with_gradient(lambda x: x / pb.linalg.vector_norm(x, axis=0)), (X,)),
    "in_place": (in_place, (X, Y)),
    "algebra": (
        lambda x, y: ((x * 1 - 0.0) / 1, -pb.negative(x), pb.where(True, x, y), x * -1, (x.T.T + 0) * y, x * 0),
        (X, Y),
    ),
}  # fmt: skip


@cache
def reference_of(name: str, dtype: str) -> list[np.ndarray]:
    function, arrays = COMPOSITES[name]
    with on_backend("reference"):
        result = function(*[pb.asarray(a).astype(dtype) for a in arrays])
        return [np.array(leaf) for leaf in pytree.leaves(result)]


@pytest.fixture
def _small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small reductions are cut in chunks, and small folds walk, as only large ones do otherwise."""
    for name, value in {"CHUNKED_SIZE": 64, "CHUNK_SIZE": 16, "COLUMNS_PER_TASK": 1, "ENOUGH_TASKS": 4}.items():
        monkeypatch.setattr(simplify, name, value)
    monkeypatch.setattr(schedule, "MIN_WALK_POINTS", 64)
    monkeypatch.setattr(schedule, "MIN_WALK_COLUMNS", 4)


@pytest.mark.usefixtures("_small_limits")
@pytest.mark.parametrize("switch", ["", *options.PASSES])
@pytest.mark.parametrize("name", COMPOSITES)
def test_composites(name: str, switch: str) -> None:
    function, arrays = COMPOSITES[name]
    for dtype, tolerance in (("float64", 1e-12), ("float32", 1e-5)):
        given = [pb.asarray(a).astype(dtype) for a in arrays]
        with options.without(*[switch] if switch else []):
            got = [np.array(leaf) for leaf in pytree.leaves(pb.jit(function)(*given))]
        for number, (value, expected) in enumerate(zip(got, reference_of(name, dtype), strict=True)):
            assert value.dtype == expected.dtype
            scale = max(1.0, float(np.max(np.abs(expected), initial=0.0)))
            message = f"{name}, {dtype}, result {number}"
            np.testing.assert_allclose(value, expected, rtol=tolerance, atol=tolerance * scale, err_msg=message)


@pytest.mark.parametrize("switch", options.PASSES)
@pytest.mark.parametrize("seed", range(3000, 3006))
def test_random_graphs_of_float64(seed: int, switch: str) -> None:
    with options.without(switch):
        test_fuzz.check(seed, pb.float64)


def random_program(seed: int, length: int) -> list[graphs.Instruction]:
    rng = np.random.default_rng(seed)
    names = list(graphs.STEPS)
    return [(names[rng.integers(len(names))], rng.integers(0, 1000, 9).tolist()) for _ in range(length)]


def random_inputs(seed: int, dtypes: tuple[str, ...], exact: bool) -> list[Any]:
    rng = np.random.default_rng(seed)
    shape = tuple(int(extent) for extent in rng.choice(graphs.EXTENTS[:-1], rng.integers(1, 4)))
    shapes = [shape, tuple(extent if rng.random() < 0.5 else 1 for extent in shape), shape]
    return [pb.asarray(graphs.data(s, str(rng.choice(dtypes)), seed + n, exact)) for n, s in enumerate(shapes)]


@pytest.mark.parametrize("switch", options.PASSES)
@pytest.mark.parametrize("seed", range(8))
def test_random_graphs_of_all_dtypes(seed: int, switch: str) -> None:
    with options.without(switch):
        made = graphs.execute(random_program(seed, 14), random_inputs(seed, graphs.DTYPES, True), True)
        graphs.compare(graphs.outputs_of(made), True)


@pytest.mark.parametrize("switch", options.PASSES)
@pytest.mark.parametrize("seed", range(5))
def test_gradients_of_random_graphs(seed: int, switch: str) -> None:
    with options.without(switch):
        inputs = random_inputs(100 + seed, ("float64",), False)
        graphs.compare(graphs.gradients_of(random_program(100 + seed, 8), inputs, False), False, 1e-11)


# -- the switches ------------------------------------------------------------------------------------------------------


def program_of(function: Callable[..., Any], *args: Any, without: str = "", donate: tuple[int, ...] = ()) -> Program:
    graph = Graph.trace(function, *args)
    return compile_program(graph.inputs, graph.outputs, donate, without=frozenset([without] if without else []))


def instructions(program: Program) -> list[str]:
    return [e[1] for kernel in program.kernels for e in kernel.expressions if e[0] == "op"]


def arena_of(function: Callable[..., Any], *args: Any) -> tuple[int, int]:
    return tuple([program_of(function, *args, without=name).plan.arena_bytes for name in ("", "reuse")])  # type: ignore[return-value]


def products(x: Any, w: Any) -> Any:
    for _ in range(4):
        x = x @ w
    return x


SMALL = np.ones((4, 5), np.float32)
LONG = np.ones(1 << 18, np.float32)
TALL = np.ones((1 << 12, 1 << 9), np.float32)


def test_without_simplify() -> None:
    function = lambda x: pb.sin(x * 1)  # noqa: E731
    assert instructions(program_of(function, SMALL)) == ["sin"]
    assert instructions(program_of(function, SMALL, without="simplify")) == ["multiply", "sin"]


def test_without_share() -> None:
    function = lambda x: pb.sum(pb.sin(x), axis=0) + pb.sum(pb.sin(x), axis=0)  # noqa: E731
    assert sum(len(k.folds) for k in program_of(function, SMALL).kernels) == 1
    assert sum(len(k.folds) for k in program_of(function, SMALL, without="share").kernels) == 2


def test_without_fuse() -> None:
    function = lambda x: pb.sum(pb.sin(x) * pb.cos(x))  # noqa: E731
    assert len(program_of(function, SMALL).kernels) == 1
    assert len(program_of(function, SMALL, without="fuse").kernels) == 4


def test_without_launch() -> None:
    function = lambda a, b, n: (a * n, b * n)  # noqa: E731
    args = np.ones(12), np.ones(12), np.asarray(2.0)
    assert len(program_of(function, *args).kernels) == 1
    assert len(program_of(function, *args, without="launch").kernels) == 2


def test_without_chunk() -> None:
    assert [k.chunks is not None for k in program_of(pb.sum, LONG).kernels] == [True, False]
    assert [k.chunks for k in program_of(pb.sum, LONG, without="chunk").kernels] == [None]


def test_without_reuse() -> None:
    less, more = arena_of(products, np.ones((64, 64)), np.ones((64, 64)))
    assert 0 < less < more


def test_without_donate() -> None:
    assert program_of(pb.sin, LONG, donate=(0,)).donations == {0: 0}
    assert program_of(pb.sin, LONG, donate=(0,), without="donate").donations == {}


def test_without_walk() -> None:
    function = lambda x: pb.sum(x, axis=0)  # noqa: E731
    assert [k.mode for k in program_of(function, TALL).kernels][:1] == ["walk"]
    assert [k.mode for k in program_of(function, TALL, without="walk").kernels][:1] == ["column"]


def test_without_wide() -> None:
    function = lambda x: pb.sum(x, axis=1)  # noqa: E731
    wide, narrow = (program_of(function, SMALL, without=name).kernels[0] for name in ("", "wide"))
    assert wide.key != narrow.key
    x = np.full((1, 1 << 20), 0.1, np.float32)
    right = 0.1 * (1 << 20)
    with options.without("wide", "chunk"):
        narrowly = float(pb.jit(function)(x)[0])
    assert abs(float(pb.jit(function)(x)[0]) - right) < abs(narrowly - right) < 1e-3 * right


def test_names_are_checked() -> None:
    with pytest.raises(ArgumentError, match=r"no pass 'fusion'.*simplify, share, fuse"):
        options.without("fusion").__enter__()
    with pytest.raises(ArgumentError, match=r"PULLBACK_DISABLE: .* 'x'"):
        options.parse("fuse,x", "PULLBACK_DISABLE")
    assert options.parse(" fuse, simplify,", "PULLBACK_DISABLE") == {"fuse", "simplify"}
    assert options.disabled() == frozenset()


def test_contexts_nest_and_end_with_an_error() -> None:
    with options.without("fuse", "share"), options.without("fuse"):
        assert options.disabled() == {"fuse", "share"}
    with pytest.raises(KeyError), options.without("fuse"):
        raise KeyError
    assert options.disabled() == frozenset()


def test_threads_switch_at_once() -> None:
    """A context that another thread ends first takes nothing from the one that is still open."""
    inside, leave, ended = threading.Event(), threading.Event(), threading.Event()

    def other() -> None:
        with options.without("fuse", "chunk"):
            inside.set()
            leave.wait(10)
        ended.set()

    thread = threading.Thread(target=other)
    thread.start()
    assert inside.wait(10)
    with options.without("fuse"):
        assert options.disabled() == {"fuse", "chunk"}
        leave.set()
        assert ended.wait(10)
        assert options.disabled() == {"fuse"}
    thread.join()
    assert options.disabled() == frozenset()


def test_the_environment_names_passes() -> None:
    code = "from pullback.compiler import options; print(*sorted(options.disabled()))"

    def run(value: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, options.ENVIRONMENT_VARIABLE: value}
        return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)

    assert run("fuse, simplify").stdout.split() == ["fuse", "simplify"]
    failed = run("fuse,speed")
    assert failed.returncode != 0
    assert "PULLBACK_DISABLE: the compiler has no pass 'speed'" in failed.stderr


def test_jitted_calls_are_kept_apart() -> None:
    traces = []

    @pb.jit
    def function(x: pb.Tensor) -> pb.Tensor:
        traces.append(options.disabled())
        return pb.sin(x) + 1.0

    x = pb.asarray(np.arange(3.0))
    for _ in range(2):
        function(x)
        with options.without("fuse"):
            function(x)
            function(x)
        function(x)
    assert traces == [frozenset(), {"fuse"}]


def test_lazy_programs_are_kept_apart() -> None:
    def run() -> set[int]:
        before = {id(program) for program in evaluate._programs.values()}
        np.asarray(pb.cos(pb.sin(pb.asarray(np.arange(3.5)))) * 1.25)
        return {id(program) for program in evaluate._programs.values()} - before

    run()
    assert not run()
    with options.without("fuse"):
        made = run()
        (program,) = [p for p in evaluate._programs.values() if id(p) in made]
        assert len(program.kernels) > 1
        assert not run()
    assert not run()


def test_kernels_of_narrow_sums_are_compiled_apart() -> None:
    function = lambda x: pb.sum(x * 1.75, axis=1)  # noqa: E731
    for name in ("", "wide"):
        kernel = program_of(function, SMALL, without=name).kernels[0]
        assert any(key[1] == kernel.key and kernel.wide is (name == "") for key in kernel_cache._addresses)


def test_exact_values_are_exact() -> None:
    """What the comparison of random graphs relies on."""
    for name in graphs.DTYPES:
        kind = by_name(name)
        values = np.arange(0 if kind.kind in "ub" else -graphs.LIMIT, 2 if kind.kind == "b" else graphs.LIMIT + 1)
        np.testing.assert_array_equal(values.astype(kind.numpy).astype(np.int64), values)
