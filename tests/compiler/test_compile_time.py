"""What a compilation costs, counted in lines of Python and of LLVM IR: linear in the size of the graph."""

import sys
from collections.abc import Callable
from typing import Any

import pytest

import pullback as pb
from pullback.compiler import options, program
from pullback.compiler.llvm.kernel import kernel_module
from pullback.compiler.llvm.target import host
from pullback.graph.graph import Graph


def executed_lines(run: Callable[[], Any]) -> int:
    """How many lines of Python ``run()`` executes."""
    count = 0

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(before)
    return count


def compilation(f: Callable[..., Any], args: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """Lines of Python that compile ``f``'s graph, but for the kernels; and of LLVM IR in the kernels that differ."""
    graph = Graph.trace(f, *args)
    programs: list[program.Program] = []
    with monkeypatch.context() as patch:
        patch.setattr(options, "VALIDATE", False)
        patch.setattr(program, "kernel_addresses", lambda kernels, *rest: {id(kernel): 0 for kernel in kernels})
        lines = executed_lines(lambda: programs.append(program.compile_program(graph.inputs, graph.outputs)))
    kernels = {kernel.key: kernel for kernel in programs[0].kernels}
    return lines, sum(kernel_module({"k": kernel}, host()).count("\n") for kernel in kernels.values())


def chain(count: int) -> Callable[..., Any]:
    def f(x: Any) -> Any:
        for step in range(count):
            x = pb.where(x > 0.1 * step, x * 0.9, x + 1.0) if step % 2 else pb.sin(x) * x
        return x

    return f


def layers(count: int) -> Callable[..., Any]:
    def loss(x: Any, w: Any) -> Any:
        for _ in range(count):
            h = x @ w
            h = (h - pb.mean(h, axis=-1, keepdims=True)) / pb.std(h, axis=-1, keepdims=True)
            x = x + pb.tanh(h)
        return pb.sum(x * x)

    return pb.value_and_grad(loss, argnums=(0, 1))


def residual(count: int) -> Callable[..., Any]:
    """A training step of a network of so many layers, each with parameters of its own."""

    def loss(parameters: Any, x: Any) -> Any:
        for w, b in parameters:
            x = x + pb.tanh(x @ w + b)
        return pb.mean(x * x)

    def step(parameters: Any, x: Any) -> Any:
        value, gradients = pb.value_and_grad(loss)(parameters, x)
        return value, [(w - 0.1 * dw, b - 0.1 * db) for (w, b), (dw, db) in zip(parameters, gradients, strict=True)]

    return step


def residual_arguments(count: int) -> Any:
    return [(pb.eye(8), pb.ones(8)) for _ in range(count)], pb.ones((4, 8))


def momentum(count: int) -> Callable[..., Any]:
    """An optimizer's step for so many parameters."""

    def step(parameters: Any, rate: Any) -> Any:
        velocities = [0.9 * v + g for _, g, v in parameters]
        return [p - rate * v for (p, _, _), v in zip(parameters, velocities, strict=True)], velocities

    return step


def momentum_arguments(count: int) -> Any:
    shapes = [(8, 8), (8,), (16, 4), (3, 5)]
    return [tuple(pb.ones(shapes[number % 4]) for _ in range(3)) for number in range(count)], pb.asarray(0.01)


def parameters(count: int) -> Callable[..., Any]:
    def f(x: Any) -> Any:
        return [pb.sum(x[:, k : k + 4] * float(k)) for k in range(count)]

    return f


@pytest.mark.parametrize(("build", "arguments", "size"), [
    (chain, lambda count: (pb.ones((64, 64)),), 60),
    (layers, lambda count: (pb.ones((8, 16)), pb.eye(16)), 6),
    (parameters, lambda count: (pb.ones((8, 2000)),), 100),  # more than one kernel holds
    (residual, residual_arguments, 100),
    (momentum, momentum_arguments, 500),
])  # fmt: skip
def test_linear_in_the_graph(build, arguments, size, monkeypatch):
    def compiled(count: int) -> tuple[int, int]:
        return compilation(build(count), arguments(count), monkeypatch)

    compiled(2)  # imports, and what is made once
    small, middle, large = compiled(size), compiled(2 * size), compiled(4 * size)
    for less, more, most in zip(small, middle, large, strict=True):
        assert most - more <= 2.2 * max(more - less, 0.1 * less)
