"""The table and the JSON file."""

from __future__ import annotations

import json
from typing import Any

from .row import PRODUCT, Outcome

COLUMNS = ("row", PRODUCT, "against", "ratio", "wanted", "", "all peers")
WIDTHS = (24, 10, 17, 6, 12, 5, 0)


def format_seconds(seconds: float) -> str:
    """Three significant digits with a unit: ``1.23 us``."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= 0.9995 * scale:  # so that nothing rounds to 1000 of the unit below
            return f"{seconds / scale:.3g} {unit}" if seconds < 999.5 * scale else f"{seconds / scale:.0f} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def header() -> str:
    """The table's head."""
    return _line(COLUMNS) + "\n" + "-" * 110


def line(outcome: Outcome) -> str:
    """One line of the table, and one below it for each note."""
    ours = outcome.seconds.get(PRODUCT)
    best = outcome.best_peer
    target = outcome.target
    if target.absolute:
        wanted = f"<= {format_seconds(target.goal)}"
    elif target.bar == target.goal:
        wanted = f"{target.goal:g}"
    else:
        wanted = f"{target.goal:g} ({target.bar:g})"
    peers = ", ".join(f"{name} {format_seconds(time)}" for name, time in outcome.seconds.items() if name != PRODUCT)
    cells = (
        outcome.row,
        "-" if ours is None else format_seconds(ours),
        "-" if best is None else f"{best} {format_seconds(outcome.seconds[best])}",
        "-" if outcome.ratio is None else f"{outcome.ratio:.2f}",
        wanted,
        outcome.verdict,
        peers,
    )
    notes = list(outcome.notes)
    if outcome.limit is not None:
        reached = ", ".join(f"{library} {share:.0%}" for library, share in outcome.shares.items())
        notes.append(f"limit {format_seconds(outcome.limit.seconds)}, {outcome.limit.why}; reached: {reached}")
    return "\n".join([_line(cells), *(f"    {note}" for note in notes)])


def write_json(path: str, outcomes: list[Outcome], machine: dict[str, Any], blas: dict[str, str]) -> None:
    """Writes every figure to ``path``."""
    document = {
        "machine": machine,
        "blas": blas,
        "rows": [
            {
                "row": outcome.row,
                "what": outcome.what,
                "seconds": outcome.seconds,
                "best_peer": outcome.best_peer,
                "ratio": outcome.ratio,
                "goal": outcome.target.goal,
                "bar": outcome.target.bar,
                "absolute": outcome.target.absolute,
                "verdict": outcome.verdict,
                "notes": outcome.notes,
                **({"facts": outcome.facts} if outcome.facts else {}),
                **({"limit": vars(outcome.limit), "shares": outcome.shares} if outcome.limit else {}),
            }
            for outcome in outcomes
        ],
    }
    with open(path, "w", encoding="utf-8") as file:
        json.dump(document, file, indent=1)
        file.write("\n")


def _line(cells: tuple[str, ...]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, WIDTHS, strict=True)).rstrip()
