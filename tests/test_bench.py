"""Every row of the benchmark runs, agrees with NumPy, and is reported; sizes are tiny and times mean nothing."""

from __future__ import annotations

import json

import numpy as np
import pytest

from bench import cli, report, same_bits
from bench.limits import Limit, Work
from bench.row import Computed, Job, MismatchError, Outcome, Target, fastest_peer
from bench.rows import ROWS, TIMED
from bench.timing import check
from pullback.compiler import plan, simplify
from pullback.runtime import driver

# Rows whose tiny sizes are one piece of work even so.
ONE_CHUNK = (
    "cumsum-line", "cumsum-0", "adam-10m", "gemm-", "feed-forward", "norm-linear", "new-length", "dispatch", "logreg",
)  # fmt: skip
COMPUTED = [row for row in ROWS if isinstance(row, Computed)]


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


@pytest.mark.parametrize("row", COMPUTED, ids=lambda row: row.name)
def test_same_bits_whatever_the_number_of_threads(row, monkeypatch):
    """Chunks are made so small that even the tiny sizes are split among all threads."""
    parallel = []
    original = driver.is_parallel
    monkeypatch.setattr(plan, "CHUNK_WORK", 2000.0)
    monkeypatch.setattr(plan, "CHUNK_ELEMENTS", (8, 256))
    monkeypatch.setattr(plan, "FEW_CHUNKS", 0)
    for name, value in {"CHUNKED_SIZE": 256, "CHUNK_SIZE": 64, "COLUMNS_PER_TASK": 1, "ENOUGH_TASKS": 4}.items():
        monkeypatch.setattr(simplify, name, value)
    monkeypatch.setattr(driver, "is_parallel", lambda wave: parallel.append(original(wave)) or parallel[-1])
    found = same_bits.digests(row, True)
    assert len(set(found.values())) == 1, found
    if not row.name.startswith(ONE_CHUNK):
        assert any(parallel), row.name


def test_same_bits_is_a_command(capsys):
    assert cli.main(["--same-bits", "--tiny", "--rows", "gelu,softmax,import"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[:2]] == [["gelu", "same"], ["softmax", "same"]]
    assert lines[-1] == "The same bits on 1, 2, 3, 7 threads"


def test_different_bits_are_found(capsys, monkeypatch):
    class Unsteady:
        name = what = "unsteady"

        def run(self, options):
            return iter(())

        def computed(self, tiny):
            return [np.asarray(driver.get_num_threads() > 2)]

    assert same_bits.report([Unsteady()], True) == 1
    assert "unsteady                 DIFFERENT" in capsys.readouterr().out


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


def test_limits_are_stated_with_the_share_reached():
    by_flops = Work(flops=1e12, read=8.0, written=4.0).limit()
    by_bytes = Work(flops=8.0, read=3e6, written=1e6, dtype="float64").limit()
    assert "GFLOP/s" in by_flops.why
    assert "4 MB at" in by_bytes.why
    assert by_flops.seconds > by_bytes.seconds > 0
    seconds = {"pullback": 4.0, "torch": 2.0}
    outcome = Outcome("r", "w", Target(1.0, 1.0), seconds, "torch", 2.0, limit=Limit(1.0, "why"))
    assert outcome.shares == {"pullback": 0.25, "torch": 0.5}
    assert "limit 1 s, why; reached: pullback 25%, torch 50%" in report.line(outcome)


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
