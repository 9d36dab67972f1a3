"""All operations by name. A family module registers what it declares; nothing is added after import."""

from __future__ import annotations

from .record import Op

ALL: dict[str, Op] = {}


def register(op: Op) -> Op:
    """Add ``op`` to the table and return it; a second op of the same name is a ValueError."""
    if op.name in ALL:
        raise ValueError(f"an op named {op.name!r} is already registered")
    ALL[op.name] = op
    return op


def by_name(name: str) -> Op:
    """The op called ``name``; KeyError if there is none."""
    return ALL[name]
