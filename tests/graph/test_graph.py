"""Graph: tracing, printing, validation, substitution, structural keys."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref

import numpy as np
import pytest

import pullback as pb
from pullback import CompileError, Graph, ShapeError, dtypes
from pullback.graph.graph import substitute, validate
from pullback.graph.node import Node
from pullback.graph.structure import structural_key
from pullback.ops import elementwise as e
from pullback.ops import leaf, movement, reduction
from pullback.runtime.reference import reference_values


def data(values) -> Node:
    return leaf.data(np.asarray(values))


def layer(x, w, b):
    return pb.tanh(x @ w + b)


ARGS = np.ones((2, 3), np.float32), np.ones((3, 4), np.float32), np.ones(4, np.float32)


def test_trace_and_run():
    graph = Graph.trace(layer, *ARGS)
    assert [node.shape for node in graph.inputs] == [(2, 3), (3, 4), (4,)]
    assert [node.shape for node in graph.outputs] == [(2, 4)]
    graph.validate()
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(a.shape).astype(np.float32) for a in ARGS]
    (result,) = reference_values(graph.substitute([data(a) for a in arrays]))
    np.testing.assert_allclose(result, np.tanh(arrays[0] @ arrays[1] + arrays[2]), rtol=1e-6)


def test_trace_of_pytrees_and_unused_arguments():
    graph = Graph.trace(lambda d, unused: {"s": d["a"] + d["b"], "t": [d["a"], 2.0]}, {"a": 1.0, "b": ARGS[2]}, ARGS[0])
    assert len(graph.inputs) == 3
    assert len(graph.outputs) == 3
    graph.validate()


def test_other_arguments_are_passed_as_they_are():
    def f(x, mode, *, flag, scale):
        assert mode == "twice"
        assert flag is True
        return x * scale

    graph = pb.graph_of(f)(ARGS[0], "twice", flag=True, scale=3.0)
    assert [node.shape for node in graph.inputs] == [(2, 3), ()]


def test_print():
    text = str(pb.graph_of(lambda x, n: pb.sum(x * n, axis=1))(ARGS[0], 2.0))
    lines = text.splitlines()
    assert lines[0] == "graph(%0: float32[2,3], %1: float32[]) {"
    assert lines[1].split("#")[0].split() == ["%2:", "float32[2,3]", "=", "multiply(%0,", "%1)"]
    assert "reduce_sum(%2, axes=(1,), keepdims=False)" in lines[2]
    assert "test_graph.py:" in lines[2]
    assert lines[-2:] == ["  return %3", "}"]


def test_captured_values_are_shown_as_such():
    constant = pb.asarray(ARGS[0])
    graph = Graph.trace(lambda x: x + constant, ARGS[0])
    assert "= captured" in repr(graph)
    assert "#" not in repr(graph)


def test_the_value_of_a_placeholder_cannot_be_asked_for():
    with pytest.raises(pb.TraceError, match=r"test_graph.py:.*pb.where"):
        Graph.trace(lambda x: x if float(pb.sum(x)) > 0 else -x, ARGS[0])
    with pytest.raises(pb.TraceError, match=r"returned a str at result\[1\]"):
        Graph.trace(lambda x: (x, "text"), ARGS[0])


# -- validation --------------------------------------------------------------------------------------------------------


def broken(**changes) -> Node:
    node = e.add(data([1.0, 2.0]), data([3.0, 4.0]))
    for name, value in changes.items():
        setattr(node, name, value)
    return node


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (broken(shape=(3,)), r"is float64\[3\], its op's rule says float64\[2\]"),
        (broken(dtype=dtypes.float32), r"is float32\[2\], its op's rule says float64\[2\]"),
        (broken(inputs=(data([1.0]), data([1]))), r"is rejected by its op's rule"),
        (broken(attrs=(1,)), r"has attributes \(1,\)"),
        (broken(shape=(2.0,)), r"has the shape"),
        (broken(op=reduction.REDUCE_SUM, attrs=([0], False)), r"cannot be hashed"),
        (broken(op=leaf.CONSTANT, attrs=(1, False), shape=()), r"is a leaf and has inputs"),
        (Node(leaf.DATA, (), (), (2,), dtypes.float64), r"data without a buffer"),
        (Node(leaf.CONSTANT, (), (1.0, False), (2,), dtypes.float64), r"constant of shape"),
        (Node(leaf.DATA, (), (), (9,), dtypes.float64, False, data([1.0]).buffer), r"needs 72 bytes"),
    ],
)
def test_validate_finds(node, message):
    with pytest.raises(CompileError, match=message) as caught:
        validate([e.negative(node) if node.shape != (2.0,) else node])
    assert "test_graph.py" in str(caught.value)


def test_validate_finds_a_foreign_placeholder():
    own, foreign = (leaf.parameter(0, (2,), dtypes.float64) for _ in range(2))
    Graph([own], [e.negative(own)]).validate()
    with pytest.raises(CompileError, match="a placeholder of another graph"):
        Graph([own], [e.add(own, foreign)]).validate()


# -- substitution ------------------------------------------------------------------------------------------------------


def test_substitute_shares_what_does_not_change():
    x, y = leaf.parameter(0, (2,), dtypes.float64), data([1.0, 2.0])
    shared = e.exp(y)
    output = e.add(e.negative(x), shared)
    value = data([5.0, 6.0])
    (new,) = substitute([output], {x: value})
    assert new.inputs[1] is shared
    assert new.inputs[0].inputs == (value,)
    assert new.site == output.site
    assert output.inputs[0].inputs == (x,)
    assert substitute([shared], {x: value}) == [shared]


def test_substitute_keeps_constants_constant():
    x = leaf.parameter(0, (2,), dtypes.float64)
    with pb.no_grad():
        y = e.exp(x)
    (new,) = substitute([e.multiply(x, y)], {x: data([1.0, 2.0])})
    assert new.inputs[1].constant
    assert not new.constant


def test_substitute_checks_types():
    graph = Graph.trace(lambda x: -x, ARGS[0])
    with pytest.raises(ShapeError, match=r"input 0 is float32\[2,3\], the value given for it is float64\[2\]"):
        graph.substitute([data([1.0, 2.0])])
    with pytest.raises(ShapeError, match="2 values given for 1 inputs"):
        graph.substitute([data([1.0])] * 2)


# -- structural keys ---------------------------------------------------------------------------------------------------


def static(value) -> Node:
    return leaf.constant(value, dtypes.float64, static=True)


def key(*nodes: Node):
    return structural_key(nodes)[0]


def test_equal_structures_have_equal_keys():
    def make(values):
        return e.tanh(e.add(data(values), e.exp(data(values))))

    one, other = make([1.0, 2.0]), make([3.0, 4.0])
    assert key(one) == key(other)
    assert hash(key(one)) == hash(key(other))
    _, arguments = structural_key([one])
    assert [value.tolist() for value in reference_values(arguments)] == [[1.0, 2.0], [1.0, 2.0]]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda x, y: e.add(x, y), lambda x, y: e.subtract(x, y)),
        (lambda x, y: e.add(x, y), lambda x, y: e.add(x, x)),
        (lambda x, y: e.subtract(e.exp(x), y), lambda x, y: e.subtract(y, e.exp(x))),
        (lambda x, y: movement.reshape(x, (2, 1)), lambda x, y: movement.reshape(x, (1, 2))),
        (lambda x, y: e.cast(x, dtypes.float32), lambda x, y: e.cast(x, dtypes.float16)),
        (lambda x, y: e.exp(x), lambda x, y: e.exp(data([1.0, 2.0, 3.0]))),
        (lambda x, y: e.exp(x), lambda x, y: e.exp(data(np.ones(2, np.float32)))),
        (lambda x, y: e.multiply(x, 1), lambda x, y: e.multiply(x, 2.5)),
        (lambda x, y: e.multiply(x, 0.0), lambda x, y: e.multiply(x, -0.0)),
        (lambda x, y: leaf.constant(1, dtypes.int64), lambda x, y: leaf.constant(1, dtypes.bool_)),
        (lambda x, y: static(2.5), lambda x, y: static(3.5)),
        (lambda x, y: leaf.parameter(0, (2,), dtypes.float64), lambda x, y: leaf.parameter(0, (3,), dtypes.float64)),
    ],
)
def test_different_structures_have_different_keys(one, other):
    x, y = data([1.0, 2.0]), data([3.0, 4.0])
    assert key(one(x, y)) != key(other(x, y))


def test_numbers_are_arguments_except_those_that_change_structure():
    x = data([1.0, 2.0])
    assert key(e.multiply(x, 2.5)) == key(e.multiply(x, 3.5))
    _, arguments = structural_key([e.multiply(x, 2.5)])
    assert {node.op.name for node in arguments} == {"data", "constant"}
    def nan():
        return leaf.constant(float("nan"), dtypes.float64, static=True)

    assert key(nan()) == key(nan())


def test_the_order_and_number_of_outputs_count():
    x = data([1.0, 2.0])
    a, b = e.exp(x), e.sin(x)
    assert key(a, b) != key(b, a)
    assert key(a) != key(a, b)
    assert key(a, a) != key(a)


def test_an_evaluated_node_ends_the_pending_graph():
    x = data([1.0, 2.0])
    y = e.exp(x)
    y.buffer = data(np.exp([1.0, 2.0])).buffer
    assert key(e.sin(y)) == key(e.sin(x))
    assert structural_key([e.sin(y)])[1] == [y]


def test_keys_of_graphs():
    def trace(f):
        return Graph.trace(f, ARGS[0], ARGS[0])

    assert trace(lambda a, b: a - b).key == trace(lambda a, b: a - b).key
    assert trace(lambda a, b: a - b).key != trace(lambda a, b: b - a).key


def test_the_structural_hash_is_the_same_in_another_process():
    program = (
        "import numpy as np, pullback as pb\n"
        "f = lambda x, w, b: pb.tanh(x @ w + b)\n"
        "args = np.ones((2, 3), np.float32), np.ones((3, 4), np.float32), np.ones(4, np.float32)\n"
        "print(pb.graph_of(f)(*args).structural_hash())\n"
    )
    other = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()
    assert other == Graph.trace(layer, *ARGS).structural_hash()
    assert other != Graph.trace(lambda x, w, b: pb.sinh(x @ w + b), *ARGS).structural_hash()


# -- depth -------------------------------------------------------------------------------------------------------------


def test_nothing_recurses():
    x = y = leaf.parameter(0, (2,), dtypes.float64)
    for _ in range(100_000):
        y = e.sin(y)
    graph = Graph([x], [y])
    graph.validate()
    hash(graph.key)
    (new,) = graph.substitute([data([1.0, 2.0])])
    assert len(graph.text(sites=False).splitlines()) == 100_003
    reference = weakref.ref(new)
    del new, graph, y
    gc.collect()
    assert reference() is None
