"""``python -m bench``: see cli.py."""

from __future__ import annotations

import os
import sys

# Both slow a current OpenBLAS down, and OpenBLAS reads them when it loads: start again without them.
OPENBLAS_OVERRIDES = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")

if __name__ == "__main__":
    if any(name in os.environ for name in OPENBLAS_OVERRIDES):
        environment = {name: value for name, value in os.environ.items() if name not in OPENBLAS_OVERRIDES}
        os.execve(sys.executable, [sys.executable, "-m", "bench", *sys.argv[1:]], environment)

    from .cli import main

    sys.exit(main())
