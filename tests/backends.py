"""Which backend evaluates."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pullback as pb


@contextmanager
def on_backend(name: Any) -> Iterator[None]:
    """What is evaluated inside is evaluated by ``name``, "compiled" or "reference"."""
    before = pb.get_backend()
    pb.set_backend(name)
    try:
        yield
    finally:
        pb.set_backend(before)
