"""``python -m bench.first_call ROW LIBRARY``: seconds from the import of LIBRARY to ROW's first result, as JSON.

Made for fresh processes: nothing but the standard library is imported before the clock starts. Making the
inputs is not counted.
"""

from __future__ import annotations

import argparse
import importlib
import json
import time

LIBRARY_MODULES = {"pullback": "pullback", "numpy": "numpy", "torch": "torch", "torch.compile": "torch", "jax": "jax"}


def main() -> None:
    """Times one row in one library."""
    parser = argparse.ArgumentParser(prog="python -m bench.first_call")
    parser.add_argument("row")
    parser.add_argument("library", choices=LIBRARY_MODULES)
    parser.add_argument("--tiny", action="store_true")
    chosen = parser.parse_args()

    start = time.perf_counter()
    importlib.import_module(LIBRARY_MODULES[chosen.library])
    imported = time.perf_counter() - start

    from .rows import TIMED

    row = next(row for row in TIMED if row.name == chosen.row)
    inputs = row.inputs(chosen.tiny)

    start = time.perf_counter()
    row.builders[chosen.library](inputs).step()
    seconds = imported + time.perf_counter() - start
    print(json.dumps({"seconds": seconds, "import": imported}))


if __name__ == "__main__":
    main()
