"""Module: parameters, buffers and settings as plain attributes of an object.

A module is also a pytree: its leaves are its tensors, everything else is part of its structure. So ``pb.grad`` takes a
model as an argument, and ``pb.pytree.map`` over a model gives a model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np

from ..api import convert
from ..dtypes import as_dtype
from ..errors import DTypeError, ShapeError
from ..graph.node import Node
from ..graph.state import state
from ..graph.tracking import open_scope
from ..ops import elementwise as ops
from ..ops.leaf import PARAMETER
from ..tensor import Tensor
from ..tensor import _leaf as leaf_node
from ..transforms import pytree
from ..transforms.guards import Guarded, current_epoch

M = TypeVar("M", bound="Module")

_LISTED = 10  # names in an error message


def Parameter(value: Any) -> Tensor:
    """A tensor of the given value (a floating tensor, array or number) that a module trains."""
    return Tensor(convert.as_node(value, None, "Parameter")).requires_grad_()


class _Slot:
    """In a container's skeleton, the place of a tensor or module."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index

    def __eq__(self, other: object) -> bool:
        return type(other) is _Slot and other.index == self.index

    __hash__ = None  # type: ignore[assignment]


class _Structure:
    """What a module is apart from its tensors and submodules (its *children*).

    names: attributes that hold children, each with its skeleton, None for a child itself.   paths: of all children.
    trained: for each True if it is a parameter, None if it is a frozen one, else False.   static: the other attributes.
    plain: the attributes that are children, if no container holds any.
    """

    __slots__ = ("cls", "inherited", "is_mutable", "key", "names", "paths", "plain", "static", "trained")

    def __init__(self, module: Module) -> None:
        self.cls = type(module)
        self.static: dict[str, Any] = {}
        self.is_mutable = False
        names: list[tuple[str, Any]] = []
        children: list[Any] = []
        paths: list[str] = []
        for name, value in module.__dict__.items():
            if isinstance(value, Tensor | Module):
                names.append((name, None))
                children.append(value)
                paths.append(name)
            elif isinstance(value, list | tuple | dict) and _holds_children(value):
                names.append((name, _skeleton(value, name, children, paths)))
                self.is_mutable = self.is_mutable or _is_mutable(value)
            else:
                self.static[name] = value
        self.names = tuple(names)
        self.paths = tuple(paths)
        self.plain = self.paths if len(self.paths) == len(names) and all(s is None for _, s in names) else None
        inherited = module._inherited or ()
        self.trained: tuple[bool | None, ...] = tuple([
            (path in inherited or child._requires_grad) if isinstance(child, Tensor) else False
            for child, path in zip(children, paths)
        ])
        self.inherited = frozenset([path for path, trained in zip(paths, self.trained) if trained])
        self.key = hash((self.cls, self.paths, self.trained))

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, _Structure)
            and self.cls is other.cls
            and self.paths == other.paths
            and self.trained == other.trained
            and self.names == other.names
            and self.static.keys() == other.static.keys()
            and all(_same_static(value, other.static[name]) for name, value in self.static.items())
        )

    def __hash__(self) -> int:
        return self.key

    def __repr__(self) -> str:
        return self.cls.__name__

    def children(self, module: Module) -> list[Any]:
        """Those of another module of this structure."""
        attributes = module.__dict__
        if self.plain is not None:
            return [attributes[name] for name in self.plain]
        found: list[Any] = []
        for name, skeleton in self.names:
            if skeleton is None:
                found.append(attributes[name])
            else:
                _collect(attributes[name], found)
        return found

    def attributes(self, children: list[Any]) -> dict[str, Any]:
        """The attributes of a module with these children."""
        found = dict(self.static)
        if self.plain is not None:
            found.update(zip(self.plain, children))
            return found
        position = 0
        for name, skeleton in self.names:
            if skeleton is None:
                found[name] = children[position]
                position += 1
            else:
                found[name] = _fill(skeleton, children)
                position += _count_slots(skeleton)
        return found


def _count_slots(skeleton: Any) -> int:
    if isinstance(skeleton, _Slot):
        return 1
    if isinstance(skeleton, dict):
        return sum(_count_slots(element) for element in skeleton.values())
    return sum(_count_slots(element) for element in skeleton) if isinstance(skeleton, list | tuple) else 0


def _holds_children(value: Any) -> bool:
    for element in value.values() if isinstance(value, dict) else value:
        if isinstance(element, Tensor | Module):
            return True
        if isinstance(element, list | tuple | dict) and _holds_children(element):
            return True
    return False


def _collect(value: Any, found: list[Any]) -> None:
    for element in value.values() if isinstance(value, dict) else value:
        if isinstance(element, Tensor | Module):
            found.append(element)
        elif isinstance(element, list | tuple | dict):
            _collect(element, found)


def _skeleton(value: Any, path: str, children: list[Any], paths: list[str]) -> Any:
    """``value`` with slots for its children, which are appended to ``children``."""
    if isinstance(value, Tensor | Module):
        children.append(value)
        paths.append(path)
        return _Slot(len(children) - 1)
    if isinstance(value, dict):
        return {key: _skeleton(element, f"{path}.{key}", children, paths) for key, element in value.items()}
    if isinstance(value, list | tuple):
        elements = [_skeleton(element, f"{path}.{i}", children, paths) for i, element in enumerate(value)]
        return elements if isinstance(value, list) else _rebuild_tuple(value, elements)
    return value


def _rebuild_tuple(like: tuple[Any, ...], elements: list[Any]) -> tuple[Any, ...]:
    return type(like)(*elements) if hasattr(like, "_fields") else tuple(elements)


def _fill(skeleton: Any, children: list[Any]) -> Any:
    if isinstance(skeleton, _Slot):
        return children[skeleton.index]
    if isinstance(skeleton, dict):
        return {key: _fill(element, children) for key, element in skeleton.items()}
    if isinstance(skeleton, list):
        return [_fill(element, children) for element in skeleton]
    if isinstance(skeleton, tuple):
        return _rebuild_tuple(skeleton, [_fill(element, children) for element in skeleton])
    return skeleton


def _same_static(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b)
    return bool(a == b)


def _is_followed(node: Node) -> bool:
    """Whether a transform outside follows ``node``, or will put something else in its place, or has named a parameter
    anew, as ``checkpoint`` and ``custom_vjp`` do with their arguments."""
    if node.op is PARAMETER or (node.op is ops.ALIAS and node.rg and not node.constant):
        return True
    return node.scope is not None and open_scope(node.scope) is not None


def _listed(names: list[str]) -> str:
    text = ", ".join(names[:_LISTED])
    return text if len(names) <= _LISTED else f"{text} and {len(names) - _LISTED} more"


class Module(Guarded):
    """Base class of layers and models.

    Assign tensors, modules, and lists, tuples or dicts of these to attributes in ``__init__`` (there is no base
    ``__init__`` to call), and write ``forward``; calling the module calls it. A tensor that requires a gradient is a
    parameter (see :func:`Parameter`), any other tensor is a buffer; everything else is a static setting.

    ``training`` is True until ``eval()``.

    Inside ``jit``, settings that ``forward`` reads are watched: changing one later compiles the function again. A
    tensor attribute that is replaced inside (``self.mean = ...``) is rebound, so every call does it.
    """

    __slots__ = ("_inherited",)

    training: bool
    # Paths of the tensors that stand for parameters in a module rebuilt from its leaves.
    _inherited: frozenset[str] | None

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        self = super().__new__(cls)
        object.__setattr__(self, "_inherited", None)
        self.__dict__["training"] = True
        return self

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        pytree.register(cls, _flatten, _unflatten)

    def __setattr__(self, name: str, value: Any) -> None:
        trace = state.trace
        if trace is not None and isinstance(value, Tensor) and id(self) not in trace.made:
            before = object.__getattribute__(self, "__dict__").get(name)
            if isinstance(before, Tensor) and before is not value and before._node.trace is not trace:
                if before.shape != value.shape or before.dtype is not value.dtype:
                    raise ShapeError(
                        f"{type(self).__name__}.{name}: inside jit a tensor attribute can only be replaced by one of "
                        "its "
                        f"shape and dtype, {before.dtype.name}{list(before.shape)}; got "
                        f"{value.dtype.name}{list(value.shape)}"
                    )
                before.rebind(value.node)
                return
        super().__setattr__(name, value)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What calling the module computes; every subclass writes its own."""
        raise TypeError(f"{type(self).__name__} has no forward method; define forward(self, ...)")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)

    # -- what is inside ----------------------------------------------------------------------------------------------

    def _own(self) -> tuple[_Structure, list[Any]]:
        """Structure and children, remembered as long as no guarded attribute anywhere changes."""
        memo = self._memo
        if memo is not None:
            structure, epoch = memo
            if epoch == current_epoch():
                children = structure.children(self)
                if self._inherited is not None or all(
                    child._requires_grad is flag
                    for child, flag in zip(children, structure.trained)
                    if type(child) is Tensor
                ):
                    return structure, children
        structure = _Structure(self)
        if not structure.is_mutable:
            object.__setattr__(self, "_memo", (structure, current_epoch()))
        return structure, structure.children(self)

    def _flatten_all(self) -> list[Any] | None:
        leaves: list[Any] = []
        stack: list[Any] = [self]
        while stack:
            item = stack.pop()
            if not isinstance(item, Module):
                leaves.append(item)
                continue
            structure, children = item._own()
            if structure.is_mutable:
                return None
            stack += reversed(children)
        return leaves

    def _named_children(self) -> Iterator[tuple[str, Any, bool | None]]:
        """Path, tensor or module, and whether it is a parameter (None: a frozen one)."""
        structure, children = self._own()
        return zip(structure.paths, children, structure.trained)

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """This module and all below it, with dotted paths; each once."""
        seen: set[int] = set()
        stack: list[tuple[str, Module]] = [(prefix, self)]
        while stack:
            path, module = stack.pop()
            if id(module) in seen:
                continue
            seen.add(id(module))
            yield path, module
            below = [
                (f"{path}.{name}" if path else name, child)
                for name, child, _ in module._named_children()
                if isinstance(child, Module)
            ]
            stack += reversed(below)

    def modules(self) -> Iterator[Module]:
        """This module and all below it, each once."""
        return (module for _, module in self.named_modules())

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The modules directly below."""
        seen: set[int] = set()
        for name, child, _ in self._named_children():
            if isinstance(child, Module) and id(child) not in seen:
                seen.add(id(child))
                yield name, child

    def children(self) -> Iterator[Module]:
        """The modules directly below."""
        return (child for _, child in self.named_children())

    def _named_tensors(self) -> Iterator[tuple[str, Tensor, bool | None]]:
        for path, module in self.named_modules():
            for name, child, trained in module._named_children():
                if isinstance(child, Tensor):
                    yield f"{path}.{name}" if path else name, child, trained

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """Every parameter with its dotted path, a shared one once."""
        seen: set[int] = set()
        for name, tensor, trained in self._named_tensors():
            if trained is not False and id(tensor) not in seen:
                seen.add(id(tensor))
                yield name, tensor

    def parameters(self) -> Iterator[Tensor]:
        """Every tensor that requires a gradient, or did until it was frozen; a shared one once."""
        return (tensor for _, tensor in self.named_parameters())

    def named_buffers(self) -> Iterator[tuple[str, Tensor]]:
        """Every other tensor with its dotted path, a shared one once."""
        seen: set[int] = set()
        for name, tensor, trained in self._named_tensors():
            if trained is False and id(tensor) not in seen:
                seen.add(id(tensor))
                yield name, tensor

    def buffers(self) -> Iterator[Tensor]:
        """Every tensor that is no parameter, a shared one once."""
        return (tensor for _, tensor in self.named_buffers())

    # -- state ---------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Tensor]:
        """Path -> value of every parameter and buffer, as they are now: later changes do not show."""
        return {name: tensor.detach() for name, tensor, _ in self._named_tensors()}

    def load_state_dict(self, values: Mapping[str, Any], strict: bool = True) -> tuple[list[str], list[str]]:
        """Assign tensors or arrays to the parameters and buffers of the same paths.

        strict: every path must be given and every name given must be a path. Returns (missing, unexpected) names.
        Raises KeyError for these, ShapeError or DTypeError for a value that does not fit; then nothing was changed.
        """
        own = {name: tensor for name, tensor, _ in self._named_tensors()}
        missing = [name for name in own if name not in values]
        unexpected = [name for name in values if name not in own]
        if strict and (missing or unexpected):
            parts = [f"missing: {_listed(missing)}"] if missing else []
            parts += [f"not in the module: {_listed(unexpected)}"] if unexpected else []
            raise KeyError(f"{type(self).__name__}.load_state_dict: {'; '.join(parts)} (strict=False ignores these)")
        new: list[tuple[Tensor, Any]] = []
        wrong: list[str] = []
        for name, tensor in own.items():
            if name not in values:
                continue
            value = convert.wrap(convert.as_node(values[name], tensor.dtype, "load_state_dict"))
            if value.shape != tensor.shape:
                wrong.append(f"{name} has shape {tensor.shape}, the value {value.shape}")
            elif (value.dtype.kind == "f") is not (tensor.dtype.kind == "f"):
                raise DTypeError(
                    f"{type(self).__name__}.load_state_dict: {name} is {tensor.dtype.name}, "
                    f"the value {value.dtype.name}"
                )
            new.append((tensor, value))
        if wrong:
            raise ShapeError(f"{type(self).__name__}.load_state_dict: {'; '.join(wrong[:_LISTED])}")
        for tensor, value in new:
            tensor.assign(convert.astype(value, tensor.dtype))
        return missing, unexpected

    def train(self: M, mode: bool = True) -> M:
        """Set ``training`` here and below; returns the module."""
        for module in self.modules():
            module.training = mode
        return self

    def eval(self: M) -> M:
        """``train(False)``."""
        return self.train(False)

    def zero_grad(self) -> None:
        """Set the ``.grad`` of every parameter to None."""
        for tensor in self.parameters():
            tensor.grad = None

    def requires_grad_(self: M, requires_grad: bool = True) -> M:
        """Freeze every parameter (False), or train every parameter again."""
        for tensor in list(self.parameters()):
            tensor.requires_grad_(requires_grad)
        return self

    def astype(self: M, dtype: Any) -> M:
        """Convert every floating parameter and buffer, in place; returns the module."""
        target = as_dtype(dtype)
        if target.kind != "f":
            raise DTypeError(f"{type(self).__name__}.astype: a floating dtype expected, got {target.name}")
        for _, tensor, _ in list(self._named_tensors()):
            if tensor.dtype.kind == "f" and tensor.dtype is not target:
                tensor.rebind(ops.cast(tensor.node, target))
                tensor.grad = None
        return self

    to = astype

    def apply(self: M, function: Callable[[Module], Any]) -> M:
        """Call ``function`` on every module below and on this one; returns the module."""
        for module in list(self.modules()):
            function(module)
        return self

    # -- printing ------------------------------------------------------------------------------------------------------

    def extra_repr(self) -> str:
        """The settings shown in the repr."""
        return ""

    def __repr__(self) -> str:
        lines = _lines(self)
        count = sum(tensor.size for tensor in self.parameters())
        head = f"{lines[0]}  # {count:,} parameters" if count or len(lines) > 1 else lines[0]
        return "\n".join([head, *lines[1:]])

    def __getstate__(self) -> dict[str, Any]:
        return dict(self.__dict__)

    def __setstate__(self, attributes: dict[str, Any]) -> None:
        self.__dict__.update(attributes)


def _lines(module: Module) -> list[str]:
    """The module as lines: settings, then one line or block a child."""
    name, extra = type(module).__name__, module.extra_repr()
    children = list(module.named_children())
    if not children:
        return [f"{name}({extra})"]
    lines = [f"{name}({extra}"]
    for path, child in children:
        first, *rest = _lines(child)
        count = sum(tensor.size for tensor in child.parameters())
        note = f"  # {count:,}" if count else ""
        lines.append(f"  ({path}): {first}{note}")
        lines += [f"  {line}" for line in rest]
    return [*lines, ")"]


def _is_mutable(skeleton: Any) -> bool:
    if isinstance(skeleton, list | dict):
        return True
    return isinstance(skeleton, tuple) and any(_is_mutable(element) for element in skeleton)


def _flatten(module: Module) -> tuple[list[Any], _Structure, tuple[str, ...]]:
    structure, children = module._own()
    return children, structure, structure.paths


def _unflatten(structure: _Structure, children: Any) -> Module:
    """A module of other children. At the place of a parameter, a tensor that no transform follows becomes a parameter:
    it starts a history of its own."""
    module: Module = structure.cls.__new__(structure.cls)
    given = list(children)
    for i, trained in enumerate(structure.trained):
        child = given[i]
        if trained is not False and type(child) is Tensor and child._requires_grad is not trained:
            node = child.node
            if node.dtype.kind == "f" and not _is_followed(node):
                child = given[i] = Tensor(leaf_node(node) if trained else node)
                child._requires_grad = trained
    module.__dict__.update(structure.attributes(given))
    object.__setattr__(module, "_inherited", structure.inherited)
    if not structure.is_mutable:
        object.__setattr__(module, "_memo", (structure, current_epoch()))
    return module


pytree.register(Module, _flatten, _unflatten)
