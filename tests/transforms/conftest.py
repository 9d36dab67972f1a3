from __future__ import annotations

from collections.abc import Iterator

import pytest

import pullback as pb


@pytest.fixture
def reference_backend() -> Iterator[None]:
    """Evaluate node by node in NumPy: these tests are about graphs, and make thousands of different ones."""
    pb.set_backend("reference")
    yield
    pb.set_backend("compiled")
