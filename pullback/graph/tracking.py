"""Which values a derivative may still be asked of.

A graph grows without end if every evaluated node keeps its inputs, and loses its gradient if none does. A node keeps
them while it is *tracked*: it depends on a tensor made with ``requires_grad_()`` (``node.rg``), or on an input of a
functional transform that is still running (``node.scope``). Nodes made under ``no_grad`` depend on neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .state import state

if TYPE_CHECKING:
    from types import TracebackType

    from .node import Node


class Scope:
    """One running call of a functional transform (``grad``, ``vjp``, ``jvp``...), entered as a context manager.

    A node remembers the innermost scope that it depends on; when that one has closed, the scope around it stands in.
    This may track a node longer than needed, which costs memory, and never drops one, which would cost a gradient.
    """

    __slots__ = ("depth", "is_open", "parent")

    def __init__(self) -> None:
        self.parent: Scope | None = None
        self.depth = 0
        self.is_open = False

    def __enter__(self) -> Scope:
        self.parent = state.scope
        self.depth = 0 if self.parent is None else self.parent.depth + 1
        self.is_open = True
        state.scope = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.is_open = False
        state.scope = self.parent


def open_scope(scope: Scope | None) -> Scope | None:
    """``scope`` or the nearest scope around it that is still open."""
    while scope is not None and not scope.is_open:
        scope = scope.parent
    return scope


def is_tracked(node: Node) -> bool:
    """Whether a derivative through ``node`` may still be asked for."""
    return node.rg or open_scope(node.scope) is not None


class no_grad:
    """Context manager and decorator: values made inside are constants to every derivative taken outside."""

    def __enter__(self) -> None:
        self._before = state.grad_enabled
        state.grad_enabled = False

    def __exit__(self, *exc: object) -> None:
        state.grad_enabled = self._before

    def __call__(self, function):  # type: ignore[no-untyped-def]
        import functools

        @functools.wraps(function)
        def wrapped(*args, **kwargs):  # type: ignore[no-untyped-def]
            with no_grad():
                return function(*args, **kwargs)

        return wrapped
