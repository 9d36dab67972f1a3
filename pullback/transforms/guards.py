"""Guards: what a trace depends on besides tensors.

A traced function that reads ``self.training`` took one of two paths; the trace serves only as long as the flag keeps
its value. While a trace is recorded, attribute access of :class:`Guarded` objects (``nn.Module``) is recorded with it.
Outside of traces these classes read attributes at full speed; setting one advances ``epoch``, so that checking the
guards of a trace is one comparison as long as nothing was set anywhere.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any
from weakref import ref

from ..graph.handle import Handle
from ..graph.state import open_after_fork, state
from ..graph.trace import Guard, Trace

_count = itertools.count(1)
_epoch = 0
_lock = open_after_fork(threading.Lock())
_recording = 0

SCALARS = (bool, int, float, complex, str, bytes, type(None))
_MISSING = object()


def touch() -> None:
    """Say that a static attribute of some guarded object has changed."""
    global _epoch
    _epoch = next(_count)


def current_epoch() -> int:
    """Changes whenever a guard may have."""
    return _epoch


class Guarded:
    """Base of the classes whose attributes are watched: instances keep everything in their ``__dict__``.

    ``_memo`` is for what a subclass derives from its attributes, ``_tree`` for what :meth:`flat` gives.
    """

    __slots__ = ("__dict__", "__weakref__", "_memo", "_tree")

    _memo: Any
    _tree: tuple[int, list[Any], Any] | None

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        self = object.__new__(cls)
        object.__setattr__(self, "_memo", None)
        object.__setattr__(self, "_tree", None)
        trace = state.trace
        if trace is not None:
            trace.made.add(id(self))
        return self

    def __setattr__(self, name: str, value: Any) -> None:
        if object.__getattribute__(self, "__dict__").get(name, _MISSING) is not value:
            object.__setattr__(self, name, value)
            touch()

    def __delattr__(self, name: str) -> None:
        object.__delattr__(self, name)
        touch()

    def _flatten_all(self) -> list[Any] | None:
        """The tensors at and below this object in pytree order; None if they may change without notice."""
        return None

    def flat(self) -> tuple[list[Any], Any] | None:
        """The tensors at and below this object, and a token that is the same for equal structures; remembered until a
        guarded attribute changes anywhere. None if nothing can be remembered."""
        tree = self._tree
        if tree is None or tree[0] != _epoch:
            epoch = _epoch
            leaves = self._flatten_all()
            if leaves is None:
                return None
            tree = (epoch, leaves, _token(self))
            object.__setattr__(self, "_tree", tree)
        return tree[1], tree[2]

    def remember_flat(self, leaves: list[Any], token: Any) -> None:
        """Say what :meth:`flat` would find."""
        object.__setattr__(self, "_tree", (_epoch, leaves, token))


_tokens: dict[Any, object] = {}
_MAX_TOKENS = 1024


def _token(tree: Any) -> object:
    """An object that stands for the structure of ``tree``: cheaper to hash and compare than the structure."""
    from .pytree import structure

    if len(_tokens) >= _MAX_TOKENS:
        _tokens.clear()
    return _tokens.setdefault(structure(tree), object())


class recording:
    """Context manager: the watched classes record attribute reads of threads that trace."""

    def __enter__(self) -> None:
        global _recording
        with _lock:
            _recording += 1
            if _recording == 1:
                type.__setattr__(Guarded, "__getattribute__", _recording_getattribute)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        global _recording
        with _lock:
            _recording -= 1
            if _recording == 0:
                type.__delattr__(Guarded, "__getattribute__")


def _recording_getattribute(self: Any, name: str) -> Any:
    value = object.__getattribute__(self, name)
    trace = state.trace
    if trace is None or id(self) in trace.own or id(self) in trace.made:
        return value
    if name == "__dict__":
        note_all(trace, self, value)
    elif name in object.__getattribute__(self, "__dict__") or (isinstance(value, SCALARS) and name[:2] != "__"):
        note(trace, self, name, read_attribute, value)
    return value


def read_attribute(owner: Any, name: str) -> Any:
    """The attribute ``name`` as a guard sees it."""
    return getattr(owner, name, _MISSING)


def _read_names(owner: Any, name: str) -> Any:
    return tuple(owner.__dict__)


def note(trace: Trace, owner: Any, name: str, read: Callable[[Any, str], Any], value: Any) -> None:
    """Record that the function that ``trace`` records saw ``read(owner, name) == value``."""
    _pin(trace, value)
    trace.guard(Guard(owner, name, read, snapshot(value), _holds_mutable(value)))


def note_all(trace: Trace, owner: Any, attributes: dict[str, Any]) -> None:
    """Record that the function saw every attribute of ``owner``."""
    trace.guard(Guard(owner, "__dict__", _read_names, snapshot(tuple(attributes)), False))
    for name, value in attributes.items():
        note(trace, owner, name, read_attribute, value)


def _pin(trace: Trace, value: Any) -> None:
    if isinstance(value, Handle):
        trace.pin(value)
    elif isinstance(value, list | tuple):
        for element in value:
            _pin(trace, element)
    elif isinstance(value, dict):
        for element in value.values():
            _pin(trace, element)


class _Same:
    """Equal to one object only."""

    __slots__ = ("_object", "_reference")

    def __init__(self, obj: Any) -> None:
        self._object = None
        try:
            self._reference: Any = ref(obj)
        except TypeError:
            self._reference = None
            self._object = obj

    def __eq__(self, other: object) -> bool:
        mine = self._object if self._reference is None else self._reference()
        theirs = other
        if isinstance(other, _Same):
            theirs = other._object if other._reference is None else other._reference()
        return mine is not None and mine is theirs

    __hash__ = object.__hash__


def snapshot(value: Any) -> Any:
    """Equal for values that a trace need not tell apart: scalars by value, containers by contents, the rest by
    identity."""
    kind = type(value)
    if kind in SCALARS:
        return (kind, value)
    if kind is list or kind is tuple:
        return (kind, *[snapshot(element) for element in value])
    if kind is dict:
        return (kind, *[(key, snapshot(element)) for key, element in value.items()])
    return _Same(value)


class Guards:
    """The guards of a finished trace."""

    __slots__ = ("_epoch", "_stable", "_volatile")

    def __init__(self, trace: Trace) -> None:
        self._epoch = -1  # the function may itself have changed what it read
        self._stable: list[tuple[Any, str, Any, Any]] = []
        self._volatile: list[tuple[Any, str, Any, Any]] = []
        for guard in trace.guards.values():
            item = (ref(guard.owner), guard.name, guard.read, guard.value)
            (self._volatile if guard.volatile else self._stable).append(item)

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._stable or self._volatile)

    def hold(self) -> bool:
        """Whether everything is as the trace saw it."""
        epoch = _epoch
        if epoch != self._epoch:
            if not _all_hold(self._stable):
                return False
            self._epoch = epoch
        return not self._volatile or _all_hold(self._volatile)


def _all_hold(items: list[tuple[Any, str, Any, Any]]) -> bool:
    for owner, name, read, value in items:
        obj = owner()
        if obj is None or snapshot(read(obj, name)) != value:
            return False
    return True


def _holds_mutable(value: Any) -> bool:
    if isinstance(value, list | dict):
        return True
    return isinstance(value, tuple) and any(_holds_mutable(element) for element in value)
