"""The README's code runs as it stands."""

from __future__ import annotations

import pathlib
import re

README = pathlib.Path(__file__).resolve().parent.parent / "README.md"


def python_blocks() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def test_tour_runs(capsys):
    (block,) = python_blocks()
    exec(compile(block, str(README), "exec"), {"__name__": "tour"})
    assert "(4, 3)" in capsys.readouterr().out


def test_tour_is_short():
    (block,) = python_blocks()
    code = [line for line in block.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    assert len(code) <= 40


def test_set_up_commands_are_there():
    text = README.read_text(encoding="utf-8")
    assert "pip install '.[examples]' && python examples/digits.py" in text
    assert "pip install '.[test]' && python -m pytest" in text
