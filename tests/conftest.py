"""What holds for every test."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

# Compiled code is not kept between runs: tests count compilations. tests/runtime/test_object_cache.py sets its own.
os.environ["PULLBACK_CACHE_DIR"] = ""
# Every plan and every kernel that a test compiles is checked (pullback/compiler/validate.py).
os.environ["PULLBACK_VALIDATE"] = "1"


@pytest.fixture(params=["compiled", "reference"])
def backend(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each backend in turn."""
    from tests.backends import on_backend

    with on_backend(request.param):
        yield request.param


@pytest.fixture
def reference_backend() -> Iterator[None]:
    """Evaluate node by node in NumPy: for tests of many graphs that are not about the compiler."""
    from tests.backends import on_backend

    with on_backend("reference"):
        yield
