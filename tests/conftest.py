"""What holds for every test."""

from __future__ import annotations

import os

# Compiled code is not kept between runs: tests count compilations. tests/runtime/test_object_cache.py sets its own.
os.environ["PULLBACK_CACHE_DIR"] = ""
