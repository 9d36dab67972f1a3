"""The short way of a jitted call: whether its arguments are as at the last call, without a key and a dictionary.

Most calls have arguments of the types that the call before had. To see that costs a look at each leaf; to make a key of
all the types, hash it and compare it costs several. A structure of arguments is likewise recognised by walking along
the one that was met, which is many times faster than flattening it anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from .. import dtypes
from ..runtime import evaluate as evaluation
from ..runtime.buffers import from_numpy
from ..tensor import Tensor
from .direct import INT64, direct_call
from .guards import Guarded
from .variant import MISS, Seen, Variant

LEAVES = frozenset({Tensor, np.ndarray, float, int, bool, str})  # arguments that are one leaf

# Appends the leaves of a tree to a list; false if it has not the structure that the walk was made for.
Walk = Callable[[Any, list[Any]], bool]


class Shortcut:
    """The way to a variant that served a call whose leaves were tensors, arrays, floats and integers."""

    __slots__ = (
        "_count", "_default_float", "_grad_enabled", "_kinds", "_mode", "_seen", "_tensors", "_variant", "_walks",
    )  # fmt: skip

    def __init__(self, args: tuple[Any, ...], walks: Sequence[Walk | None] | None, leaves: Sequence[Any],
                 variant: Variant, modes: Sequence[Any]) -> None:  # fmt: skip
        self._count = len(args)
        self._walks = walks
        self._kinds = [_kind(leaf) for leaf in leaves]
        tensors = [position for position, leaf in enumerate(leaves) if type(leaf) is Tensor]
        # How to pick the tensors, of which no two may be one: None for all leaves.
        self._tensors = None if len(tensors) == len(leaves) else tensors
        self._variant = variant
        self._seen = Seen()
        self._grad_enabled, self._default_float, self._mode = modes

    def call(self, args: tuple[Any, ...], grad_enabled: bool) -> Any:
        """The result; MISS or IN_LINE if this way is not open to ``args``."""
        if (
            len(args) != self._count
            or grad_enabled is not self._grad_enabled
            or dtypes._default_float is not self._default_float
            or evaluation._mode is not self._mode
        ):
            return MISS
        leaves: Sequence[Any] = args
        walks = self._walks
        if walks is not None:
            leaves = []
            for arg, walk in zip(args, walks):
                if walk is None:
                    leaves.append(arg)
                elif not walk(arg, leaves):
                    return MISS
        if self._tensors is None:
            try:
                nodes = [leaf._node for leaf in leaves]
            except AttributeError:
                return MISS
            if self._seen.are(nodes):
                if self._variant.is_stateful:
                    return self._variant.run_in_turn(leaves, nodes)
                return self._variant.run(leaves, nodes, [node.buffer for node in nodes])
            del nodes
        values = []
        for leaf, (cls, shape, dtype, weak, rg) in zip(leaves, self._kinds):
            if type(leaf) is not cls:
                return MISS
            if cls is Tensor:
                node = leaf._node
                buffer = node.buffer
                if (
                    node.dtype is not dtype
                    or node.shape != shape
                    or node.rg is not rg
                    or node.weak is not weak
                    or buffer is None
                    or node.scope is not None
                    or node.trace is not None
                ):
                    return MISS
                values.append(buffer)
            elif cls is np.ndarray:
                if leaf.dtype != dtype or leaf.shape != shape:
                    return MISS
                values.append(from_numpy(leaf))
            elif cls is int and leaf not in INT64:
                return MISS
            else:
                values.append(leaf)
        # No reference of ours may count where it is asked who else holds a value.
        node = buffer = None
        if self._variant.is_stateful:
            values.clear()
        if self._tensors is not None:
            if len({id(leaves[position]) for position in self._tensors}) != len(self._tensors):
                return MISS
            return self._variant(leaves) if self._variant.is_stateful else self._variant.run(leaves, None, values)
        if len(set(map(id, leaves))) != len(leaves):
            return MISS
        nodes = [leaf._node for leaf in leaves]
        self._seen.remember(nodes)
        if self._variant.is_stateful:
            return self._variant.run_in_turn(leaves, nodes)
        return self._variant.run(leaves, nodes, values)


def _kind(leaf: Any) -> tuple[Any, ...]:
    """Class and type of a leaf; of an array the shape and dtype."""
    cls = type(leaf)
    if cls is Tensor:
        node = leaf._node
        return cls, node.shape, node.dtype, node.weak, node.rg
    if cls is np.ndarray:
        return cls, leaf.shape, leaf.dtype, None, None
    return cls, None, None, None, None


def _firsts(leaves: Sequence[Any]) -> list[int]:
    """For each leaf its position; of a tensor that is given several times, the first one."""
    first: dict[int, int] = {}
    return [first.setdefault(id(leaf), k) if type(leaf) is Tensor else k for k, leaf in enumerate(leaves)]


def find_shortcut(
    args: tuple[Any, ...], leaves: Sequence[Any], variant: Variant, modes: Sequence[Any]
) -> Callable[[tuple[Any, ...], bool], Any] | None:
    """The short way for calls like this one; None if there is no short way to see that a call is like it.

    leaves: of all of ``args``.   modes: whether gradients are recorded, the default dtype, and how values are computed.
    """
    if not all(type(leaf) in (Tensor, np.ndarray, float, int) for leaf in leaves):
        return None
    firsts = _firsts(leaves)
    has_twins = firsts != list(range(len(leaves)))
    if all(type(arg) in LEAVES for arg in args):
        made = direct_call(variant, [_kind(leaf) for leaf in leaves], firsts, modes)
        if made is not None or has_twins:
            return made
        return Shortcut(args, None, leaves, variant, modes).call
    if has_twins:
        return None
    walks = [_below(arg) for arg in args]
    if _no_walk in walks:
        return None
    found: list[Any] = []
    for arg, walk in zip(args, walks):
        if walk is None:
            found.append(arg)
        elif not walk(arg, found):
            return None
    if len(found) != len(leaves) or not all(a is b for a, b in zip(found, leaves)):
        return None
    return Shortcut(args, walks, leaves, variant, modes).call


def _no_walk(tree: Any, leaves: list[Any]) -> bool:
    """For trees of classes that are not followed here."""
    return False


def _walk(tree: Any) -> Walk:
    """The walk along trees of the structure of ``tree``: of dicts with strings for keys, lists, tuples and modules."""
    cls = type(tree)
    if isinstance(tree, Guarded):
        return _walk_module(tree)
    if cls is dict and all(type(key) is str for key in tree):
        keys = sorted(tree)
        below = [_below(tree[key]) for key in keys]
        return _no_walk if _no_walk in below else _walk_dict(keys, below)
    if cls is list or cls is tuple:
        below = [_below(element) for element in tree]
        return _no_walk if _no_walk in below else _walk_sequence(cls, below)
    return _no_walk


def _below(tree: Any) -> Walk | None:
    return None if type(tree) in LEAVES else _walk(tree)


def _walk_module(module: Guarded) -> Walk:
    cls, flat = type(module), module.flat()
    if flat is None:
        return _no_walk
    token = flat[1]

    def walk(tree: Any, leaves: list[Any]) -> bool:
        if type(tree) is not cls:
            return False
        flat = tree.flat()
        if flat is None or flat[1] is not token:
            return False
        leaves += flat[0]
        return True

    return walk


def _walk_dict(keys: list[str], below: list[Walk | None]) -> Walk:
    count = len(keys)
    pick = itemgetter(*keys) if count > 1 else lambda tree: [tree[key] for key in keys]
    follow = _follow(below)

    def walk(tree: Any, leaves: list[Any]) -> bool:
        if type(tree) is not dict or len(tree) != count:
            return False
        try:
            return follow(pick(tree), leaves)
        except KeyError:
            return False

    return walk


def _walk_sequence(cls: Any, below: list[Walk | None]) -> Walk:
    count = len(below)
    follow = _follow(below)

    def walk(tree: Any, leaves: list[Any]) -> bool:
        return type(tree) is cls and len(tree) == count and follow(tree, leaves)

    return walk


def _follow(below: list[Walk | None]) -> Callable[[Sequence[Any], list[Any]], bool]:
    """The walk along the elements of a container. None among ``below``: the element is a leaf."""
    if all(walk is None for walk in below):

        def take(elements: Sequence[Any], leaves: list[Any]) -> bool:
            leaves += elements
            return True

        return take

    def follow(elements: Sequence[Any], leaves: list[Any]) -> bool:
        for element, walk in zip(elements, below):
            if walk is None:
                leaves.append(element)
            elif not walk(element, leaves):
                return False
        return True

    return follow
