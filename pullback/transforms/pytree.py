"""Pytrees: nested containers of tensors, through optree.

Containers are tuples, lists, dicts, named tuples, dataclasses and every class registered here (``nn.Module`` registers
itself). ``None`` has no leaves. Anything else is a leaf. The leaves of a dict come in the order of its sorted keys, so
equal dicts have equal structures however they were built; a dict that is rebuilt keeps its own insertion order.
"""

from __future__ import annotations

import builtins
import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from ..errors import ShapeError

NAMESPACE = "pullback"

T = TypeVar("T", bound=type)

Structure = Any  # optree.PyTreeSpec; optree is imported when the first tree is flattened


def flatten(tree: Any) -> tuple[list[Any], Structure]:
    """The leaves of ``tree`` and its structure."""
    import optree

    found, spec = optree.tree_flatten(tree, namespace=NAMESPACE)
    while _has_new_dataclass(found):
        found, spec = optree.tree_flatten(tree, namespace=NAMESPACE)
    return found, spec


def unflatten(structure: Structure, leaves: Iterable[Any]) -> Any:
    """The tree of ``structure`` with other leaves."""
    return structure.unflatten(leaves)


def leaves(tree: Any) -> list[Any]:
    """The leaves of ``tree`` in order."""
    return flatten(tree)[0]


def leaves_above(tree: Any, cls: type) -> list[Any]:
    """The leaves of ``tree`` if instances of ``cls`` are taken as leaves."""
    import optree

    flatten(tree)  # registers dataclasses
    return optree.tree_leaves(tree, is_leaf=lambda node: isinstance(node, cls), namespace=NAMESPACE)


def structure(tree: Any) -> Structure:
    """The structure of ``tree``: comparable and hashable."""
    return flatten(tree)[1]


def leaves_with_paths(tree: Any) -> list[tuple[str, Any]]:
    """Each leaf with the expression that reaches it from the root: ``['w'][0]``, ``.weight``."""
    import optree

    flatten(tree)  # registers dataclasses
    accessors, found, _ = optree.tree_flatten_with_accessor(tree, namespace=NAMESPACE)
    return [(accessor.codify(""), leaf) for accessor, leaf in zip(accessors, found)]


def map(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """``tree`` with ``function`` applied to each leaf and the leaves of ``others`` at its place.

    Raises ShapeError if their structures differ.
    """
    first, spec = flatten(tree)
    columns = [match(spec, other, "map") for other in others]
    return spec.unflatten([function(*group) for group in zip(first, *columns)])


def match(expected: Structure, tree: Any, what: str) -> list[Any]:
    """The leaves of ``tree``, which must have the structure ``expected``; ShapeError naming ``what`` otherwise."""
    found, actual = flatten(tree)
    if actual != expected:
        raise ShapeError(f"{what}: expected the structure {describe(expected)}, got {describe(actual)}")
    return found


def describe(spec: Structure) -> str:
    """A structure for messages: ``({'b': *, 'w': *}, *)``."""
    text = str(spec).removeprefix("PyTreeSpec(").removesuffix(")")
    return text.removesuffix(f", namespace='{NAMESPACE}'")


def broadcast_prefix(prefix: Any, tree: Any, what: str) -> list[Any]:
    """For each leaf of ``tree``, the leaf of ``prefix`` above it. In ``prefix`` None is a leaf.

    Raises ShapeError naming ``what`` if ``prefix`` is not the top of a tree like ``tree``.
    """
    import optree

    flatten(tree)  # registers dataclasses
    tops, top = optree.tree_flatten(prefix, none_is_leaf=True, namespace=NAMESPACE)
    try:
        subtrees = top.flatten_up_to(tree)
    except ValueError as error:
        raise ShapeError(f"{what}={prefix!r} does not fit {describe(structure(tree))}: {error}") from error
    result = []
    for value, subtree in zip(tops, subtrees):
        result += [value] * len(flatten(subtree)[0])
    return result


def register(
    cls: T,
    flatten_function: Callable[[Any], tuple[Iterable[Any], Any, Iterable[Any]]],
    unflatten_function: Callable[[Any, Iterable[Any]], Any],
    attributes: bool = True,
) -> T:
    """Make ``cls`` a container.

    flatten_function: gives (children, static, names); ``static`` is hashable and part of the structure.
    unflatten_function: gives an instance from (static, children).
    attributes: children are reached as ``tree.name``, else as ``tree[name]``.
    """
    import optree

    entry = optree.GetAttrEntry if attributes else optree.AutoEntry
    optree.register_pytree_node(cls, flatten_function, unflatten_function, path_entry_type=entry, namespace=NAMESPACE)
    return cls


def register_dataclass(cls: T) -> T:
    """Make a dataclass a container of its fields. A field with ``metadata={"static": True}`` is part of the structure.

    Dataclasses that are met as arguments are registered by themselves; this is for those with static fields that are
    better checked early.
    """
    names = [f.name for f in dataclasses.fields(cls) if not f.metadata.get("static")]
    fixed = [f.name for f in dataclasses.fields(cls) if f.metadata.get("static")]

    def flatten_function(obj: Any) -> tuple[Iterable[Any], Any, Iterable[Any]]:
        return [getattr(obj, n) for n in names], tuple([getattr(obj, n) for n in fixed]), names

    def unflatten_function(static: Any, children: Iterable[Any]) -> Any:
        # Past __init__ and __post_init__: a field may hold a placeholder that they would reject.
        obj: Any = object.__new__(cls)
        for name, value in zip([*fixed, *names], [*static, *children]):
            object.__setattr__(obj, name, value)
        return obj

    return register(cls, flatten_function, unflatten_function)


_plain: set[type] = set()  # classes of leaves that are known not to be dataclasses


def _has_new_dataclass(found: list[Any]) -> bool:
    """Whether some leaves are dataclass instances; their classes are now registered, so flatten again."""
    classes = set(builtins.map(type, found))
    if classes <= _plain:
        return False
    registered = False
    for cls in classes - _plain:
        if dataclasses.is_dataclass(cls):
            register_dataclass(cls)
            registered = True
        else:
            _plain.add(cls)
    return registered
