"""What a traced function sees of Python besides its arguments: closures, globals, attributes of plain objects.

The trace bakes in the values of these names, so it serves only as long as they have them. Names whose values the
function itself changes while it is traced (a counter, a list that it appends to) are effects and are not watched.
"""

from __future__ import annotations

import dis
import sysconfig
from collections.abc import Iterator
from functools import lru_cache, partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple
from weakref import ref

from ..errors import TraceError
from ..graph.handle import Handle
from ..graph.state import PACKAGE_DIRECTORY
from ..graph.trace import Trace
from .guards import SCALARS, Guarded, snapshot
from .pytree import leaves

_MAX_FUNCTIONS = 100  # that are looked into
_MAX_ELEMENTS = 100  # of a container that is compared by its contents
_LIBRARIES = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))
_PACKAGE = __name__.partition(".")[0]
_CONTAINERS = (list, tuple, dict, set)
_MISSING = object()


class _Name(NamedTuple):
    """Where a value is found. holder: a cell, a dict of globals, or a weak reference to an object."""

    kind: str  # "variable" (of an enclosing function), "global", "attribute"
    holder: Any
    name: str

    def read(self) -> Any:
        """The value now; ``_MISSING`` if there is none."""
        if self.kind == "global":
            return self.holder.get(self.name, _MISSING)
        if self.kind == "variable":
            try:
                return self.holder.cell_contents
            except ValueError:
                return _MISSING
        owner = self.holder()
        return _MISSING if owner is None else owner.__dict__.get(self.name, _MISSING)


    def write(self, value: Any) -> None:
        """Make the name stand for ``value``."""
        if self.kind == "global":
            self.holder[self.name] = value
        elif self.kind == "variable":
            self.holder.cell_contents = value
        elif (owner := self.holder()) is not None:
            owner.__dict__[self.name] = value


def _is_traced(leaf: Any, trace: Trace) -> bool:
    return isinstance(leaf, Handle) and leaf._node.trace is trace


def _type(handle: Handle) -> str:
    return f"{handle.node.dtype.name}{list(handle.node.shape)}"


class Surroundings:
    """The watched names of one function, with the values that they had when this was made."""

    __slots__ = ("_attributes", "_before", "_cells", "_items", "_others")

    def __init__(self, function: Any, objects: list[Any]) -> None:
        walk = _Walk(function, objects)
        self._before = list(walk.found.values())
        # What holds one object, a scalar or one that is followed weakly, is compared in line.
        self._cells: list[tuple[Any, Any, Any]] = []
        self._items: list[tuple[dict[str, Any], str, Any, Any]] = []
        self._attributes: list[tuple[Any, str, Any, Any]] = []
        self._others: list[tuple[_Name, Any]] = []
        for name, value in walk.found.values():
            is_scalar = type(value) in SCALARS
            if not (is_scalar or type(value).__weakrefoffset__) or type(value) in _CONTAINERS:
                self._others.append((name, _snapshot(value)))
                continue
            reference = None if is_scalar else ref(value)
            value = value if is_scalar else None
            if name.kind == "variable":
                self._cells.append((name.holder, reference, value))
            elif name.kind == "global":
                self._items.append((name.holder, name.name, reference, value))
            else:
                self._attributes.append((name.holder, name.name, reference, value))

    def __bool__(self) -> bool:
        return bool(self._cells or self._items or self._attributes or self._others)

    def hold(self) -> bool:
        """Whether every name has the value that it had."""
        try:
            for cell, reference, value in self._cells:
                found = cell.cell_contents
                if found is not (value if reference is None else reference()) and not _equal(found, reference, value):
                    return False
        except ValueError:  # an empty cell
            return False
        for holder, name, reference, value in self._items:
            found = holder.get(name, _MISSING)
            if found is not (value if reference is None else reference()) and not _equal(found, reference, value):
                return False
        for owner, name, reference, value in self._attributes:
            obj = owner()
            found = _MISSING if obj is None else obj.__dict__.get(name, _MISSING)
            if found is not (value if reference is None else reference()) and not _equal(found, reference, value):
                return False
        return not self._others or all(_snapshot(where.read()) == value for where, value in self._others)

    def put_back(self, trace: Trace, rebind: bool) -> None:
        """Give names that the traced function has bound to tensors of its own what they were bound to before.

        rebind: a tensor that was replaced by one of its shape and dtype is rebound, as if the function had assigned to
        it. Raises TraceError for a value with tensors in it that was replaced by another.
        """
        changed = []
        for name, value in self._before:
            now = name.read()
            if now is not value and any(isinstance(leaf, Handle) for leaf in leaves(value)):
                changed.append((name, value, now))
        if not any(_is_traced(leaf, trace) for *_, now in changed for leaf in leaves(now)):
            return
        for name, value, _ in changed:
            name.write(value)
        if not rebind:
            return
        new = []
        for name, before, after in changed:
            if not (isinstance(before, Handle) and isinstance(after, Handle)):
                what = "values with tensors in them"
            elif before.node.shape != after.node.shape or before.node.dtype is not after.node.dtype:
                what = f"{_type(before)} and {_type(after)}"
            else:
                new.append((before, after.node))
                continue
            raise TraceError(
                f"jit: the function replaces the {name.kind} {name.name!r}, which jit can do for a tensor by one of "
                f"its shape and dtype only, not for {what}; return the new value and replace it outside"
            )
        for before, node in new:
            before.rebind(node)

    def settle(self) -> None:
        """Watch no longer what has changed since this was made."""
        self._before = []
        self._cells = [item for item in self._cells if _equal(_Name("variable", item[0], "").read(), *item[1:])]
        self._items = [item for item in self._items if _equal(item[0].get(item[1], _MISSING), *item[2:])]
        self._attributes = [
            item for item in self._attributes if _equal(_Name("attribute", *item[:2]).read(), *item[2:])
        ]
        self._others = [item for item in self._others if _snapshot(item[0].read()) == item[1]]


def _equal(found: Any, reference: Any, value: Any) -> bool:
    if reference is not None:
        return found is reference()
    return type(found) is type(value) and bool(found == value)


def _snapshot(value: Any) -> Any:
    if type(value) in _CONTAINERS and not _is_small(value):
        return id(value), len(value)
    if type(value) is set:
        return set, frozenset(map(id, value))
    return snapshot(value)


def _is_small(value: Any, budget: int = _MAX_ELEMENTS) -> bool:
    """Whether a container, with those inside, has few elements."""
    stack, count = [value], 0
    while stack:
        container = stack.pop()
        count += len(container)
        if count > budget:
            return False
        elements = container.values() if isinstance(container, dict) else container
        stack += [element for element in elements if type(element) in _CONTAINERS]
    return True


class _Walk:
    """Collects the names that a function reads, and the functions and methods that it names."""

    def __init__(self, function: Any, objects: list[Any]) -> None:
        self.found: dict[tuple[int, str], tuple[_Name, Any]] = {}
        self._functions: dict[int, FunctionType] = {}
        self._objects: dict[int, Any] = {}
        self._into(function)
        for obj in objects:
            self._into(obj)
            self._object(obj)
        names: set[str] = set()
        looked_at: set[tuple[type, str]] = set()
        while True:
            names = {name for each in self._functions.values() for name in _attributes_read(each.__code__)}
            new = {(type(obj), name) for obj in self._objects.values() for name in names} - looked_at
            if not new:
                break
            looked_at |= new
            for kind, name in new:
                self._into(_plain(getattr(kind, name, None)))
        for obj in self._objects.values():
            own = obj.__dict__
            for name in sorted(names & own.keys()):
                if isinstance(own[name], Guarded) or not callable(own[name]):
                    self.found[id(obj), name] = _Name("attribute", ref(obj), name), own[name]

    def _into(self, function: Any) -> None:
        """Follow a callable."""
        if isinstance(function, MethodType):
            self._into(function.__func__)
            self._object(function.__self__)
        elif isinstance(function, partial):
            self._into(function.func)
        elif isinstance(function, FunctionType):
            self._function(function)
        elif type(function).__module__.partition(".")[0] == _PACKAGE and hasattr(function, "__wrapped__"):
            self._into(function.__wrapped__)

    def _function(self, function: FunctionType) -> None:
        if id(function) in self._functions or len(self._functions) >= _MAX_FUNCTIONS:
            return
        code = function.__code__
        if code.co_filename.startswith(_LIBRARIES) or code.co_filename.startswith(PACKAGE_DIRECTORY):
            return
        self._functions[id(function)] = function
        for name, cell in zip(code.co_freevars, function.__closure__ or ()):
            self._name(_Name("variable", cell, name), id(cell))
        for name in _globals_read(code):
            self._name(_Name("global", function.__globals__, name), id(function.__globals__))

    def _name(self, name: _Name, owner: int) -> None:
        value = name.read()
        if value is _MISSING or isinstance(value, ModuleType | type) or (owner, name.name) in self.found:
            return
        if callable(value) and not isinstance(value, Guarded):
            self._into(value)
            if name.kind == "global" and not isinstance(value, FunctionType):
                return
        self.found[owner, name.name] = name, value
        self._object(value)

    def _object(self, obj: Any) -> None:
        """Note a plain object, whose attributes are read where functions name them."""
        kind = type(obj)
        if isinstance(obj, Guarded | FunctionType | MethodType | ModuleType | type):
            return
        if kind.__module__.partition(".")[0] in (_PACKAGE, "builtins", "numpy") or not kind.__weakrefoffset__:
            return
        if type(getattr(obj, "__dict__", None)) is dict:
            self._objects[id(obj)] = obj


def _plain(member: Any) -> Any:
    """The function below a method that is decorated by this package."""
    if type(member).__module__.partition(".")[0] == _PACKAGE:
        return getattr(member, "__wrapped__", member)
    return member


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


@lru_cache(1024)
def _globals_read(code: CodeType) -> tuple[str, ...]:
    """Names of globals that the code, or a function defined in it, reads."""
    names = {i.argval for part in _codes(code) for i in dis.get_instructions(part) if i.opname == "LOAD_GLOBAL"}
    return tuple(sorted(names))


@lru_cache(1024)
def _attributes_read(code: CodeType) -> tuple[str, ...]:
    """Names of attributes, of whatever object, that the code reads."""
    opnames = ("LOAD_ATTR", "LOAD_METHOD")
    names = {i.argval for part in _codes(code) for i in dis.get_instructions(part) if i.opname in opnames}
    return tuple(sorted(names))
