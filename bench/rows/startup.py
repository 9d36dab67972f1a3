"""Time before the first result: importing, and a fresh process from import to each row's first numbers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from ..row import MODULES, PRODUCT, Options, Outcome, Target, Timed, fastest_peer

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def bytecode_environment() -> dict[str, str]:
    """The environment of a process that keeps Python's bytecode, as an installed package has it."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def fresh_environment(cache: str) -> dict[str, str]:
    """The environment of a process that finds no compiled kernels on disk: every cache goes to ``cache``, empty."""
    return {
        **bytecode_environment(),
        "PULLBACK_CACHE_DIR": cache,
        "XDG_CACHE_HOME": cache,
        "TORCHINDUCTOR_CACHE_DIR": cache,
        "TRITON_CACHE_DIR": cache,
    }


@dataclass(frozen=True)
class FirstCall:
    """A fresh process for each library, from the import to the first result of ``row``.

    warm: the product finds on disk what an earlier process compiled; its peers compile, as they do by default.
    """

    row: Timed
    warm: bool = False
    repeat: int = 3

    @property
    def name(self) -> str:
        return f"first-call{'-warm' if self.warm else ''}/{self.row.name}"

    @property
    def what(self) -> str:
        found = "code found on disk" if self.warm else "caches empty"
        return f"a fresh process, from import to the row's first result, {found}"

    def run(self, options: Options) -> Iterator[Outcome]:
        libraries = [PRODUCT, *(peer for peer in options.peers if peer in self.row.builders and peer != "numpy")]
        times: dict[str, list[float]] = {library: [] for library in libraries}
        with tempfile.TemporaryDirectory() as kept:
            for number in range(1 if options.tiny else self.repeat + 1):
                for library in libraries:
                    taken = self._time(library, options, kept if self.warm and library == PRODUCT else None)
                    if number or options.tiny:  # the first run writes bytecode and reads the disk
                        times[library].append(taken)
        seconds = {library: median(values) for library, values in times.items()}
        best = fastest_peer(seconds, judges=("jax",))  # which compiles too
        ratio = seconds[PRODUCT] / seconds[best] if best else None
        target = Target(0.3, 1.0) if self.warm else Target(0.5, 1.0)
        yield Outcome(self.name, self.what, target, seconds, best, ratio)

    def _time(self, library: str, options: Options, kept: str | None) -> float:
        command = [sys.executable, "-m", "bench.first_call", self.row.name, library]
        command += ["--tiny"] if options.tiny else []
        with tempfile.TemporaryDirectory() as empty:
            environment = fresh_environment(kept or empty)
            done = subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True)
        return float(json.loads(done.stdout.splitlines()[-1])["seconds"])


@dataclass(frozen=True)
class Import:
    """``import`` of the package in a fresh process, less the time of a process that imports nothing."""

    name: str = "import"
    what: str = "importing the package, over bare Python; the fastest of several processes"
    repeat: int = 10

    def run(self, options: Options) -> Iterator[Outcome]:
        libraries = [PRODUCT, *dict.fromkeys(MODULES[peer] for peer in options.peers)]
        statements = {"": "pass", **{library: f"import {MODULES[library]}" for library in libraries}}
        fastest = dict.fromkeys(statements, float("inf"))
        for _ in range(1 if options.tiny else self.repeat):
            for library, statement in statements.items():
                start = time.perf_counter()
                subprocess.run([sys.executable, "-c", statement], cwd=ROOT, env=bytecode_environment(), check=True)
                fastest[library] = min(fastest[library], time.perf_counter() - start)
        bare = fastest.pop("")
        seconds = {library: max(value - bare, 0.0) for library, value in fastest.items()}
        yield Outcome(
            self.name,
            self.what,
            Target(goal=0.150, bar=0.150, absolute=True),
            seconds,
            fastest_peer(seconds),
            notes=[f"bare Python {bare * 1e3:.0f} ms; NumPy, which {PRODUCT} needs, is part of its time"],
        )
