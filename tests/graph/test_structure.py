"""What an evaluation reads of a pending graph: its key and what has to be kept."""

from __future__ import annotations

import numpy as np

import pullback as pb
from pullback.graph.node import Node
from pullback.graph.structure import Structure, structural_key
from pullback.ops import elementwise as e
from pullback.ops import leaf, movement


def data(values) -> Node:
    return leaf.data(np.asarray(values))


def key(*nodes: Node):
    return structural_key(nodes)[0]


def test_a_shared_value_is_not_two_equal_ones():
    x = data([1.0, 2.0])
    y = e.exp(x)
    assert key(e.add(y, y)) != key(e.add(e.exp(x), e.exp(x)))
    assert key(e.add(e.exp(x), e.exp(x))) != key(e.add(e.exp(x), e.exp(data([1.0, 2.0]))))


def test_operands_are_told_from_what_follows():
    x, y, z = data([1.0]), data([2.0]), data([3.0])
    one = movement.concat([movement.concat([x, y], 0), movement.concat([z, z, z], 0)], 0)
    other = movement.concat([movement.concat([x, y, z], 0), movement.concat([z, z], 0)], 0)
    assert key(one) != key(other)


def test_a_live_name_is_kept_and_part_of_the_key():
    x = pb.asarray([1.0, 2.0])

    def structure(hold: bool) -> tuple[Structure, list[Node]]:
        inner = pb.exp(x)
        outer = pb.sin(inner)
        held = [inner.node]
        if not hold:
            del inner
        return Structure([outer.node]), [outer.node, *held]

    named, nodes = structure(True)  # the name lives until here
    assert named.kept == nodes
    unnamed, nodes = structure(False)
    assert unnamed.kept == nodes[:1]
    assert named.key != unnamed.key
    assert structure(False)[0].key == unnamed.key


def test_numbers_are_not_kept_though_they_have_names():
    number = pb.asarray(2.5)
    result = pb.asarray([1.0]) * number
    structure = Structure([result.node])
    assert structure.kept == [result.node]
    assert number.node in structure.arguments


def test_contractions_are_kept_while_a_derivative_may_need_them():
    w = pb.asarray([[1.0, 2.0], [3.0, 4.0]]).requires_grad_()
    result = pb.exp(pb.asarray([[1.0, 2.0]]) @ w)
    product = result.node.inputs[0]
    assert Structure([result.node]).kept == [result.node, product]
    assert Structure([result.node], keep=False).kept == [result.node]
    with pb.no_grad():
        result = pb.exp(pb.asarray([[1.0, 2.0]]) @ w)
    assert Structure([result.node]).kept == [result.node]


def test_what_an_earlier_evaluation_passed_by_is_kept_when_it_is_used_again():
    w = pb.asarray([1.0, 2.0]).requires_grad_()
    hidden = pb.exp(w)
    node = hidden.node
    del hidden
    pb.eval(pb.asarray([1.0]) + 1)
    result = pb.sum(pb.sin(pb.exp(pb.asarray([1.0]))))
    later = e.sin(node)
    assert later.epoch > node.epoch
    assert Structure([later, result.node]).kept == [later, result.node, node]


def test_a_long_pending_graph_is_evaluated_in_pieces():
    x = pb.asarray(np.ones(4, np.float32))
    y = x
    for _ in range(2500):
        y = y * 1.001 + x
    assert y.node.buffer is None
    expected = np.ones(4)
    for _ in range(2500):
        expected = expected * 1.001 + 1
    np.testing.assert_allclose(y.numpy(), expected, rtol=1e-4)
