"""Every public function with its examples, one module a family: each has ``ROWS``, a list of rows."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from tests.functions.row import Row

ROWS: list[Row] = [
    row for module in sorted(m.name for m in iter_modules(__path__))
    for row in import_module(f"{__name__}.{module}").ROWS
]
