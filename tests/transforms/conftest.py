from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

import pullback as pb


@pytest.fixture
def reference_backend() -> Iterator[None]:
    """Evaluate node by node in NumPy: these tests are about graphs, and make thousands of different ones.

    ``PULLBACK_TEST_BACKEND=compiled`` runs them compiled all the same, which takes minutes.
    """
    pb.set_backend(os.environ.get("PULLBACK_TEST_BACKEND", "reference"))
    yield
    pb.set_backend("compiled")
