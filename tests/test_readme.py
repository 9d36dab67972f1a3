"""The README's code runs as it stands."""

from __future__ import annotations

import pathlib
import re

README = pathlib.Path(__file__).resolve().parent.parent / "README.md"


def python_blocks() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def test_code_runs(capsys):
    for block in python_blocks():
        exec(compile(block, str(README), "exec"), {"__name__": "readme"})
    printed = capsys.readouterr().out
    for shape in ("(4, 3)", "(8, 16, 8, 8) (8, 16, 16, 16)", "(2, 8, 100, 64)", "(32, 64)"):
        assert shape in printed


def test_code_is_short():
    tour, products = python_blocks()
    for block in (tour, products):
        code = [line for line in block.splitlines() if line.strip() and not line.lstrip().startswith("#")]
        assert len(code) <= 40


def test_set_up_commands_are_there():
    text = README.read_text(encoding="utf-8")
    assert "pip install '.[examples]' && python examples/digits.py" in text
    assert "pip install '.[test]' && python -m pytest" in text
