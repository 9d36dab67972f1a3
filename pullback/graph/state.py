"""What the current thread is doing: the trace it records, whether it records gradients, whose line it runs."""

from __future__ import annotations

import os
import threading
from types import CodeType
from typing import TYPE_CHECKING, Any

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
    """Thread-local; the class attributes are each thread's start."""

    trace: Trace | None = None
    scope: Scope | None = None  # innermost open derivative scope
    grad_enabled: bool = True
    site: Site | None = None  # set while the package builds nodes on behalf of an earlier line
    epoch: int = 0  # how many evaluations there have been

    def __init__(self) -> None:
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
