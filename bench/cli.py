"""The command line of the benchmark."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from . import same_bits
from .machine import blas_facts, installed, machine_facts
from .report import header, line, write_json
from .row import MODULES, PEERS, PRODUCT, MismatchError, Options, Outcome, Row
from .rows import ROWS


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the chosen rows; 0 when every row ran, agreed with its peers and met its bar, else 1."""
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Pullback beside its peers on the same inputs: equal numbers first, then times taken in turn.",
        epilog="Verdict: 'goal' is reached, 'pass' meets the bar in brackets, 'FAIL' neither. "
        "A ratio is the median of product time / best peer's time over the rounds.",
    )
    parser.add_argument("--rows", default="", help="comma-separated names or beginnings of names (default: all)")
    peers = ", ".join(name for name in MODULES if name != PRODUCT)
    parser.add_argument("--peers", default=",".join(PEERS), help=f"comma-separated, from {peers}")
    parser.add_argument("--json", metavar="FILE", help="also write every figure here")
    parser.add_argument("--repeat", type=int, default=15, metavar="N", help="rounds of timing (default 15)")
    parser.add_argument("--tiny", action="store_true", help="small sizes: a test of the benchmark, not a measurement")
    parser.add_argument(
        "--same-bits", action="store_true",
        help="instead of timing: whether Pullback's results are the same, bit for bit, on 1, 2, 3 and 7 threads",
    )  # fmt: skip
    parser.add_argument("--list", action="store_true", help="name the rows and stop")
    chosen = parser.parse_args(arguments)

    if chosen.list:
        for row in ROWS:
            print(f"{row.name:20} {row.what}")
        return 0
    if chosen.repeat < 1:
        parser.error("--repeat must be at least 1")
    rows = _select_rows(parser, chosen.rows)
    if chosen.same_bits:
        return same_bits.report(rows, chosen.tiny)
    options = Options(_select_peers(parser, chosen.peers), repeat=chosen.repeat, tiny=chosen.tiny)

    machine = machine_facts()
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    print(f"{machine['cpu']}, {machine['cores']} cores, {' '.join(machine['vector_flags'])}")
    print(f"Python {machine['python']}, {versions}\n")
    print(header(), flush=True)
    outcomes: list[Outcome] = []
    mismatches: list[str] = []
    for row in rows:
        try:
            for outcome in row.run(options):
                outcomes.append(outcome)
                print(line(outcome), flush=True)
        except MismatchError as mismatch:
            mismatches.append(str(mismatch))
            print(f"{row.name:24}  WRONG: {mismatch}", flush=True)
    blas = blas_facts(options.peers)
    print("\nBLAS: " + "; ".join(f"{library}: {fact}" for library, fact in blas.items()))
    if chosen.json:
        write_json(chosen.json, outcomes, machine, blas)
    behind = [outcome.row for outcome in outcomes if outcome.verdict == "FAIL"]
    if behind:
        print(f"Behind the bar: {', '.join(behind)}")
    return 1 if mismatches or (behind and not chosen.tiny) else 0


def _select_rows(parser: argparse.ArgumentParser, text: str) -> list[Row]:
    wanted = [part.strip() for part in text.split(",") if part.strip()]
    if not wanted:
        return list(ROWS)
    names = {row.name for row in ROWS}
    chosen: list[Row] = []
    for part in wanted:
        # An exact name means that row alone (gelu is not gelu-grad); else every row that begins so (gemm).
        found = [row for row in ROWS if (row.name == part if part in names else row.name.startswith(part))]
        if not found:
            parser.error(f"no row {part!r}; --list names them")
        chosen.extend(row for row in found if row not in chosen)
    return chosen


def _select_peers(parser: argparse.ArgumentParser, text: str) -> tuple[str, ...]:
    peers = []
    for peer in (part.strip() for part in text.split(",") if part.strip()):
        if peer not in MODULES or peer == PRODUCT:
            parser.error(f"no peer {peer!r}; there are {', '.join(name for name in MODULES if name != PRODUCT)}")
        if installed(peer):
            peers.append(peer)
        else:
            print(f"{peer} is not installed: left out", file=sys.stderr)
    return tuple(peers)
