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
        """limit: nodes in the graphs of a generation, each of which takes about a kilobyte in a program."""
        self._limit = limit
        self._nodes = 0
        self._young: dict[Any, tuple[Any, int]] = {}
        self._old: dict[Any, tuple[Any, int]] = {}

    def get(self, key: Any) -> Any:
        """The program of ``key``, or None."""
        found = self._young.get(key)
        if found is not None:
            return found[0]
        if self._old:
            found = self._old.pop(key, None)
            if found is not None:
                self.add(key, *found)
                return found[0]
        return None

    def add(self, key: Any, program: Any, nodes: int) -> None:
        """Keep the ``program`` of a graph of so many ``nodes``."""
        if self._nodes and self._nodes + nodes > self._limit:
            self._old = self._young
            self._young = {}
            self._nodes = 0
        self._young[key] = program, nodes
        self._nodes += nodes

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def values(self) -> Iterator[Any]:
        """All programs."""
        for generation in (self._old, self._young):
            for program, _ in generation.values():
                yield program
