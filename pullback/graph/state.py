"""What the current thread is doing: the trace it records, whether it records gradients, whose line it runs."""

from __future__ import annotations

import os
import sys
import threading
import warnings
from types import CodeType
from typing import TYPE_CHECKING, Any

from ..errors import PullbackWarning

if TYPE_CHECKING:
    from weakref import ReferenceType

    from .handle import Handle
    from .trace import Trace
    from .tracking import Scope

PACKAGE_DIRECTORY = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep

# A code object and the index of the instruction that was running; for what a derivative made, followed by the names of
# the ops that it is the derivative of: "sqrt", or "sqrt", "multiply" for a multiply in the derivative of sqrt.
Site = tuple[CodeType, int, *tuple[str, ...]]


class State(threading.local):
    """Thread-local. Each attribute is set by ``__init__``: whoever needs several reads ``state.__dict__``, once."""

    def __init__(self) -> None:
        self.trace: Trace | None = None
        self.scope: Scope | None = None  # innermost open derivative scope
        self.grad_enabled: bool = True
        self.site: Site | None = None  # set while the package builds nodes on behalf of an earlier line
        self.epoch: int = 0  # how many evaluations there have been
        # Weak references to tensors that were given a new value since the last evaluation, by id.
        self.changed: dict[int, ReferenceType[Handle]] = {}


state = State()


def open_after_fork(lock: Any) -> Any:
    """``lock``, which a forked child finds open: the thread that may have held it does not exist there.

    For locks of Python code, whose data are whole between any two instructions. Returns the lock.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lock._at_fork_reinit)  # as the standard library does for its own locks
    return lock


def describe_site(site: Site | None) -> str:
    """``file.py:12, in train`` for messages."""
    if site is None:
        return "an unknown line"
    code, instruction = site[0], site[1]
    line = code.co_firstlineno
    for start, end, number in code.co_lines():
        if start <= instruction < end and number is not None:
            line = number
    return f"{code.co_filename}:{line}, in {code.co_name}"


def describe_derivative(site: Site | None) -> str:
    """``in the derivative of sqrt``, or nothing for what the user's line made itself."""
    return "" if site is None else " ".join([f"in the derivative of {name}" for name in reversed(site[2:])])


_warned: set[str] = set()


def warn_once(cause: str, message: str) -> None:
    """A PullbackWarning at the user's line, unless there has been one for ``cause`` in this process."""
    if cause in _warned:
        return
    _warned.add(cause)
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE_DIRECTORY):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, PullbackWarning, stacklevel=level)
