"""``python -m bench.accuracy``: the largest and mean errors of the compiled elementary functions, as docs/accuracy.md.

By default a sample that takes a minute; ``--full`` is the measurement of the document.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import pullback as pb
from pullback.compiler.llvm.target import ENVIRONMENT_VARIABLE, host

from .arguments import CHUNK, float32_arguments, float64_arguments, random_arguments, random_pairs
from .elementary import BY_NAME, ELEMENTARY, Elementary
from .machine import machine_facts
from .ulp import DIGITS, Accuracy, Run, measure

Array = Any
SECOND_TARGET = "generic128"


@dataclass(frozen=True)
class Effort:
    """How many arguments: of float32; of float64 against mpmath; of float64 against long double, where that is known
    to be right to its last digits."""

    float32: int
    exact: int
    long: int
    pairs: int


QUICK = Effort(float32=1 << 22, exact=500, long=1 << 20, pairs=1 << 22)
FULL = Effort(float32=1 << 28, exact=20000, long=1 << 23, pairs=1 << 26)
#: for targets other than the machine's own
BRIEF = Effort(float32=1 << 20, exact=500, long=1 << 18, pairs=1 << 20)


def compiled(function: Elementary) -> Run:
    """The function as users run it, on arrays."""
    jitted = pb.jit(function.call)
    return lambda *arrays: np.asarray(jitted(*(pb.tensor(a) for a in arrays)).numpy())


def _long_arguments(function: Elementary, count: int) -> Iterator[tuple[Array, ...]]:
    rng = np.random.default_rng(13)
    size = min(count, CHUNK // 4)
    for _ in range(count // size):
        if function.arity == 2:
            yield random_pairs(function, rng, size, np.float64)
        else:
            yield (random_arguments(function, rng, size),)


def accuracies(function: Elementary, effort: Effort, run: Run | None = None) -> list[Accuracy]:
    """Of float32, then of float64. ``run`` computes the function on arrays (default: compiled for this machine)."""
    run = run or compiled(function)
    count = effort.float32 if function.arity == 1 else effort.pairs
    single = measure(function, np.float32, run, float32_arguments(function, count))
    double = measure(function, np.float64, run, [float64_arguments(function, effort.exact)], exact=True)
    if function.long and effort.long and np.finfo(np.longdouble).nmant >= 63:
        more = measure(function, np.float64, run, _long_arguments(function, effort.long))
        points = double.points + more.points
        mean = (double.mean_ulp * double.points + more.mean_ulp * more.points) / points
        worse = max(double, more, key=lambda a: a.max_ulp)
        double = Accuracy(function.name, "float64", points, worse.max_ulp, worse.where, mean)
    return [single, double]


def _measured_elsewhere(target: str, names: Sequence[str]) -> list[Accuracy]:
    """Briefly, by a process that compiles for another target."""
    command = [sys.executable, "-m", "bench.accuracy", "--brief", "--json", "--functions", ";".join(names)]
    environment = {**os.environ, ENVIRONMENT_VARIABLE: target}
    result = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, text=True)
    return [Accuracy(**{**row, "where": tuple(row["where"])}) for row in json.loads(result.stdout)]


# -- the document ------------------------------------------------------------------------------------------------------


def _points(count: int) -> str:
    return f"2^{count.bit_length() - 1}" if count >= 1 << 20 else f"{count:,}"


def _where(accuracy: Accuracy) -> str:
    digits = np.float32 if accuracy.dtype == "float32" else np.float64
    return ", ".join(str(digits(value)) for value in accuracy.where)


def _table(rows: Sequence[Accuracy], remarks: bool) -> list[str]:
    lines = [
        "| function | dtype | points | max error (ulp) | at | mean error (ulp) |" + (" remarks |" if remarks else ""),
        "|---|---|---|---|---|---|" + ("---|" if remarks else ""),
    ]
    for a in rows:
        line = f"| {a.function} | {a.dtype} | {_points(a.points)} | {a.max_ulp:.3f} | {_where(a)} | {a.mean_ulp:.3f} |"
        lines.append(line + (f" {BY_NAME[a.function].remark} |" if remarks else ""))
    return lines


def document(own: Sequence[Accuracy], other: Sequence[Accuracy], full: bool, seconds: float) -> str:
    """The text of docs/accuracy.md."""
    facts = machine_facts()
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    worst = max(own, key=lambda a: a.max_ulp)
    lines = [
        "# Accuracy of the elementary functions",
        "",
        "Written by `python -m bench.accuracy --full --out docs/accuracy.md`; do not edit."
        if full else "Written by `python -m bench.accuracy --out ...`: a quick sample, not the full measurement.",
        "",
        f"The largest error found is {worst.max_ulp:.3f} ulp, of {worst.function} in {worst.dtype}; the library's",
        "bound is 2 ulp, which `tests/compiler/test_accuracy.py` enforces on samples, with and without fused",
        "multiply-add.",
        "Two kinds of results are differences of larger numbers and keep all digits in float32, while in float64 what",
        "holds for them is an absolute error, given in units of the last place of 1: `lgamma` and `digamma` near their",
        "zeros among the negative numbers (between any two poles), and `logaddexp` where `exp(x) + exp(y)` is near 1.",
        "",
        "Subnormal arguments and results are kept, and special values follow C99 Annex F",
        "(`tests/compiler/test_vector_math.py`, where higher orders of `polygamma` and `sinc` are tested too).",
        "float16 and bfloat16 are computed in float32 and rounded once.",
        "",
        "## Method",
        "",
        "The functions run as users run them: `pb.jit(function)` on arrays, one thread. An *ulp* is the distance of",
        "the dtype's numbers at the exact result, also among subnormal ones; an infinite result counts as the power of",
        "two after the largest number. *max* is the largest error and *at* its argument.",
        "",
        "- **float32, one argument**: bit patterns in equal steps with a random offset in each, seven eighths among",
        "  the magnitudes where the function is neither linear, constant nor out of range, one eighth among all",
        "  numbers, infinities and the outside of the domain included; against float64 (NumPy, SciPy). The largest",
        f"  errors are computed again with mpmath to {DIGITS} digits, and those figures are reported.",
        "- **float32, two arguments**: random pairs over all exponents, chosen so that the result is in range.",
        "- **float64**: half hard arguments (subnormals; powers of two; numbers near 1, near zeros, poles and the ends",
        "  of the range, and where a function changes its formula; all with their neighbours; for sin, cos and tan the",
        "  doubles nearest to a multiple of pi/2 in every binade to 1e308), half random, against mpmath; and where the",
        "  C library's long double is right to the last digits, many more random ones against it, the largest errors",
        "  again with mpmath.",
        "",
        f"Machine: {facts['cpu']}, {' '.join(facts['vector_flags'])}; target `{host().name}`. Python "
        f"{facts['python']}, {versions}. The measurement took {seconds / 60:.0f} minutes on one core.",
        "",
        "## Results",
        "",
        *_table(own, remarks=True),
        "",
    ]  # fmt: skip
    if other:
        lines += [
            f"## Without fused multiply-add: `PULLBACK_TARGET={SECOND_TARGET}`",
            "",
            "The code for x86-64 processors without AVX2, measured with fewer arguments.",
            "",
            *_table(other, remarks=False),
            "",
        ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures; 0 if every error is within its function's bound, else 1."""
    parser = argparse.ArgumentParser(prog="python -m bench.accuracy", description=__doc__)
    parser.add_argument("--full", action="store_true", help="2^28 arguments of float32, 20,000 of float64 with mpmath")
    parser.add_argument("--brief", action="store_true", help="fewer arguments still: a few seconds")
    parser.add_argument("--functions", default="", help="names as in the table, separated by commas or semicolons")
    parser.add_argument("--out", metavar="FILE", help="write the document here (default: print the table)")
    parser.add_argument("--json", action="store_true", help="print the figures alone, as JSON")
    chosen = parser.parse_args(arguments)
    functions = _select(parser, chosen.functions)

    pb.set_num_threads(1)
    started = time.perf_counter()
    effort = FULL if chosen.full else BRIEF if chosen.brief else QUICK
    own: list[Accuracy] = []
    for function in functions:
        own += accuracies(function, effort)
        if not chosen.json:
            for a in own[-2:]:
                error = f"{a.max_ulp:7.3f} ulp at {_where(a)}, mean {a.mean_ulp:.3f}"
                print(f"{a.function:22} {a.dtype:8} {error}", flush=True)
    if chosen.json:
        print(json.dumps([asdict(a) for a in own]))
        return 0
    other: list[Accuracy] = []
    if chosen.out and host().name != SECOND_TARGET:
        other = _measured_elsewhere(SECOND_TARGET, [function.name for function in functions])
    if chosen.out:
        text = document(own, other, chosen.full, time.perf_counter() - started)
        Path(chosen.out).write_text(text, encoding="utf-8")
    beyond = [a for a in (*own, *other) if a.max_ulp > BY_NAME[a.function].bound]
    for a in beyond:
        print(f"BEYOND {BY_NAME[a.function].bound} ulp: {a.function} of {a.dtype}, {a.max_ulp:.3f} at {_where(a)}")
    return 1 if beyond else 0


def _select(parser: argparse.ArgumentParser, text: str) -> list[Elementary]:
    """The functions named, all of them for no name; the rows of one function by the function's name too."""
    if not text.strip():
        return list(ELEMENTARY)
    # A comma belongs to some names: split at those that no space follows.
    names = [name.strip() for part in text.split(";") for name in part.replace(", ", "\0").split(",")]
    names = [name.replace("\0", ", ") for name in names if name]
    chosen = [f for f in ELEMENTARY if f.name in names or f.name.split(",")[0] in names]
    known = {f.name for f in ELEMENTARY} | {f.name.split(",")[0] for f in ELEMENTARY}
    for name in names:
        if name not in known:
            parser.error(f"no function {name!r}: one of {'; '.join(f.name for f in ELEMENTARY)}")
    return chosen


if __name__ == "__main__":
    sys.exit(main())
