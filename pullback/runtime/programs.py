"""The programs of lazy evaluation, by the structure that they compute."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


class Programs:
    """A bounded cache: what was not used for longest is given up.

    Two generations instead of an order: what is found in the older one moves to the younger, and when that is full the
    older is dropped whole. So a hit costs one look-up. The caller holds a lock.
    """

    def __init__(self, limit: int) -> None:
        """limit: programs in a generation; up to twice as many are kept."""
        self._limit = limit
        self._young: dict[Any, Any] = {}
        self._old: dict[Any, Any] = {}

    def get(self, key: Any) -> Any:
        """The program of ``key``, or None."""
        program = self._young.get(key)
        if program is None and self._old:
            program = self._old.pop(key, None)
            if program is not None:
                self.add(key, program)
        return program

    def add(self, key: Any, program: Any) -> None:
        """Keep ``program``."""
        if len(self._young) >= self._limit:
            self._old = self._young
            self._young = {}
        self._young[key] = program

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def values(self) -> Iterator[Any]:
        """All programs."""
        yield from self._old.values()
        yield from self._young.values()
