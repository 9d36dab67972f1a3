"""Pytrees."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict, namedtuple

import pytest

import pullback as pb
from pullback.transforms import pytree

Pair = namedtuple("Pair", "first second")


@dataclasses.dataclass
class Node:
    left: object
    right: object
    kind: str = dataclasses.field(default="n", metadata={"static": True})

    def __post_init__(self):
        self.made = True


@dataclasses.dataclass(frozen=True)
class Frozen:
    value: object


class Box:
    def __init__(self, content, label):
        self.content = content
        self.label = label


pytree.register(Box, lambda b: ([b.content], b.label, ["content"]), lambda label, children: Box(*children, label))

TREES = [
    1.0,
    None,
    (),
    [1, [2, (3,)], None],
    {"b": 1, "a": {"z": 2}},
    OrderedDict(y=1, x=2),
    Pair(1, [2, 3]),
    Node(1, Node(2, None, "m"), "k"),
    Frozen({"a": (1, 2)}),
    {"m": [Node(1, Frozen(2))]},
]


@pytest.mark.parametrize("tree", TREES, ids=repr)
def test_round_trip(tree):
    leaves, structure = pytree.flatten(tree)
    again = pytree.unflatten(structure, leaves)
    assert again == tree
    assert type(again) is type(tree)
    assert pytree.structure(again) == structure
    assert hash(pytree.structure(again)) == hash(structure)


def test_leaves_and_none():
    assert pytree.leaves([1, None, (2, [None])]) == [1, 2]
    assert pytree.leaves("text") == ["text"]
    tensor = pb.ones(3)
    assert pytree.leaves({"t": tensor})[0] is tensor


def test_dicts_of_the_same_keys_have_the_same_structure_and_keep_their_order():
    one, other = {"b": 1, "a": 2}, {"a": 20, "b": 10}
    assert pytree.structure(one) == pytree.structure(other)
    assert pytree.map(lambda x, y: x + y, one, other) == {"b": 11, "a": 22}
    assert list(pytree.map(lambda x: x, one)) == ["b", "a"]
    assert pytree.map(lambda x: -x, defaultdict(list, k=1))["k"] == -1


def test_static_fields_are_part_of_the_structure():
    assert pytree.structure(Node(1, 2, "a")) == pytree.structure(Node(3, 4, "a"))
    assert pytree.structure(Node(1, 2, "a")) != pytree.structure(Node(1, 2, "b"))
    assert pytree.structure(Box(1, "a")) != pytree.structure(Box(1, "b"))
    assert pytree.map(lambda x: x + 1, Box(1, "a")).content == 2


def test_paths():
    tree = {"w": [Node(1, (2, 3)), Box(4, "x")], "p": Pair(5, 6)}
    assert dict(pytree.leaves_with_paths(tree)) == {
        "['p'].first": 5, "['p'].second": 6, "['w'][0].left": 1, "['w'][0].right[0]": 2, "['w'][0].right[1]": 3,
        "['w'][1].content": 4,
    }


def test_structures_that_differ():
    with pytest.raises(pb.ShapeError, match=r"map: expected the structure \{'a': \*\}, got \[\*\]"):
        pytree.map(lambda x, y: x, {"a": 1}, [1])


def test_broadcast_prefix():
    tree = ((1, 2), None, {"a": (1, None), "b": 3})
    assert pytree.broadcast_prefix(7, tree, "axes") == [7] * 4
    assert pytree.broadcast_prefix((0, None, {"a": 1, "b": None}), tree, "axes") == [0, 0, 1, None]
    with pytest.raises(pb.ShapeError, match=r"axes=.* does not fit"):
        pytree.broadcast_prefix((0, 1), tree, "axes")
