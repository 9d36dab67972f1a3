"""The example runs, learns, is deterministic and writes what it promises."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("sklearn")
pytest.importorskip("matplotlib")
pytest.importorskip("tqdm")

ROOT = Path(__file__).parents[2]


def run(directory: Path, *options: str) -> dict[str, float]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "digits.py"), "--json", "result.json", *options],
        cwd=directory, env=environment, capture_output=True, text=True, timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "accuracy on 359 held-out digits" in done.stdout
    return json.loads((directory / "result.json").read_text())


def test_it_reaches_97_percent(tmp_path):
    result = run(tmp_path)
    assert result["accuracy"] >= 0.97
    assert result["seconds"] > 0 and result["ms_per_step"] > 0
    assert (tmp_path / "digits.png").stat().st_size > 10_000


def test_a_seed_fixes_the_result(tmp_path):
    first, again = (run(tmp_path, "--epochs", "2", "--seed", "5") for _ in range(2))
    assert first["accuracy"] == again["accuracy"]
