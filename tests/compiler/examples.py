"""How many random examples a test tries."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import HealthCheck, settings

MANY = int(os.environ.get("PULLBACK_FUZZ_EXAMPLES", "0"))


def examples(count: int) -> Any:
    """``count`` examples, always the same; or as many as PULLBACK_FUZZ_EXAMPLES says, different ones at each run."""
    return settings(
        max_examples=MANY or count,
        derandomize=not MANY,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
