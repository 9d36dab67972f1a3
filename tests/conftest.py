"""What holds for every test."""

from __future__ import annotations

import os

# Compiled code is not kept between runs: tests count compilations. tests/runtime/test_object_cache.py sets its own.
os.environ["PULLBACK_CACHE_DIR"] = ""
# Every plan and every kernel that a test compiles is checked (pullback/compiler/validate.py).
os.environ["PULLBACK_VALIDATE"] = "1"
