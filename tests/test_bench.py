"""Every row of the benchmark runs, agrees with NumPy, and is reported; sizes are tiny and times mean nothing."""

from __future__ import annotations

import json

import numpy as np
import pytest

from bench import cli, report
from bench.row import Job, MismatchError, Outcome, Target, fastest_peer
from bench.rows import ROWS, TIMED
from bench.timing import check


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_row_runs_and_agrees(row, tmp_path, capsys):
    path = tmp_path / "bench.json"
    assert cli.main(["--tiny", "--repeat", "1", "--peers", "numpy", "--rows", row.name, "--json", str(path)]) == 0
    document = json.loads(path.read_text())
    assert document["machine"]["cores"] >= 1
    assert document["rows"]
    for line in document["rows"]:
        assert line["row"].startswith(row.name)
        assert line["seconds"]["pullback"] > 0
        assert line["row"] in capsys.readouterr().out
        if row in TIMED and "numpy" in row.builders:
            assert line["best_peer"] == "numpy"
            assert line["ratio"] > 0


def test_new_length_compiles_nothing(tmp_path):
    path = tmp_path / "bench.json"
    cli.main(["--tiny", "--peers", "", "--rows", "new-", "--json", str(path)])
    lines = json.loads(path.read_text())["rows"]
    assert [line["facts"]["llvm_compilations"] for line in lines] == [0, 0]


def test_unequal_numbers_are_found():
    row = TIMED[0]
    jobs = {
        "pullback": Job(lambda: None, lambda last: [np.ones(3)]),
        "numpy": Job(lambda: None, lambda last: [np.ones(3) + [0, 0, 0.01]]),
    }
    with pytest.raises(MismatchError, match="array 0 differs from numpy's"):
        check(row, jobs)
    jobs["pullback"] = Job(lambda: None, lambda last: [np.full(3, np.nan)])
    with pytest.raises(MismatchError, match="differs"):
        check(row, jobs)


def test_rows_are_chosen_by_name_and_by_beginning(capsys):
    assert cli.main(["--list"]) == 0
    listed = capsys.readouterr().out
    assert all(row.name in listed for row in ROWS)
    with pytest.raises(SystemExit):
        cli.main(["--rows", "nothing"])
    with pytest.raises(SystemExit):
        cli.main(["--peers", "cobol"])


def test_verdicts_and_units():
    target = Target(goal=0.5, bar=0.8)
    assert [target.verdict(value) for value in (0.4, 0.7, 0.9, None)] == ["goal", "pass", "FAIL", "-"]
    outcome = Outcome("r", "w", target, {"pullback": 2e-6, "numpy": 4e-6, "jax": 3e-6}, "jax", ratio=2 / 3)
    assert fastest_peer(outcome.seconds) == "jax"
    assert fastest_peer(outcome.seconds, judges=("numpy",)) == "numpy"
    assert fastest_peer(outcome.seconds, judges=("torch",)) == "jax"
    assert fastest_peer({"pullback": 1.0}) is None
    assert outcome.verdict == "pass"
    assert "2 us" in report.line(outcome)
    assert report.format_seconds(1.5) == "1.5 s"
    assert report.format_seconds(0.00025) == "250 us"
    assert report.format_seconds(0.9996e-3) == "1 ms"
