"""explain and profile: what a function was compiled to, and where its time goes.

Both let every program of the process run step by step while they look on (see ``program.observe``). Bytes are those of
the elements that a kernel touches, each once; FLOPs are the ops' declared costs; the limit of a step is the longer of
its bytes at the speed of memory and its FLOPs at the speed of a matrix product, both measured once on this machine.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cache
from html import escape
from statistics import median
from typing import Any

from ..errors import ArgumentError
from ..runtime import llvm_engine, object_cache
from . import cache as kernel_cache
from .llvm.kernel import kernel_module
from .llvm.target import host
from .loops import Kernel
from .memory import nbytes_of
from .plan import Step
from .program import Program, observe

_REPEATS = 7
_VERBOSE = ("ir", "llvm", "asm")

# -- one step ----------------------------------------------------------------------------------------------------------


@dataclass
class StepReport:
    """One launch: a kernel, a matrix product or a call of a library on the host.

    wave: steps of one wave may run at the same time.   kind: the kernel's mode, "product" or "host".
    computes: the instructions, in order, each with how often it occurs.   loops: extents, outermost first.
    read, written: bytes.   flops: None where they are not known.   seconds: the median of several runs alone.
    limit: seconds that this machine needs at least.   compiled: "llvm", "disk" or "known" (earlier in the process).
    compile_seconds: what getting its code took.   texts: what ``verbose`` asked for.
    """

    wave: int
    kind: str
    computes: str
    loops: str
    read: int
    written: int
    flops: float | None
    seconds: float = 0.0
    limit: float = 0.0
    compiled: str = ""
    compile_seconds: float = 0.0
    texts: dict[str, str] = field(default_factory=dict)

    @property
    def share(self) -> float:
        """Share of the machine's limit that is reached, 0 to 1."""
        return self.limit / self.seconds if self.seconds else 0.0


def _describe(step: Step) -> StepReport:
    if step.kernel is not None and step.contraction is None:
        return _describe_kernel(step, step.kernel)
    written = sum(nbytes_of(value) for value in step.writes)
    read = sum(nbytes_of(value) for value in step.reads)
    plan = step.contraction
    if plan is not None:
        size = plan.left.base.dtype.itemsize
        sizes = [plan.batch * plan.m * plan.k * size, plan.batch * plan.k * plan.n * size]
        leads = {number: _describe_kernel(step, kernel) for number, kernel in step.leads.items()}
        read = sum(leads[n].read if n in leads else nbytes for n, nbytes in enumerate(sizes))
        shape = f"{plan.batch} of " * (plan.batch > 1) + f"{plan.m} x {plan.k} x {plan.n}"
        flops = 2.0 * plan.batch * plan.m * plan.n * plan.k
        computes = f"{plan.left.base.dtype.name} by {'the engine' if plan.library == 'engine' else plan.library}"
        for number, before in sorted(leads.items()):
            computes += f", {('left', 'right')[number]} from {before.computes}"
            flops += before.flops or 0.0
        if step.kernel is not None:
            after = _describe_kernel(step, step.kernel)
            computes += f", then {after.computes}"
            target = step.group.target
            read += after.read - (nbytes_of(target) if target is not None and target not in step.writes else 0)
            flops += after.flops or 0.0
        return StepReport(step.wave, "product", computes, shape, read, written, flops)
    (target,) = step.writes
    attention = step.attention
    if attention is not None:
        shape = (
            f"{attention.batch} x {attention.heads} of {attention.queries} x {attention.keys} x "
            f"{_times(tuple(sorted({attention.depth, attention.width})))}"
        )
        computes = f"{attention.dtype} {target.name}"
        return StepReport(step.wave, "attention", computes, shape, read, written, attention.flops)
    return StepReport(step.wave, "host", target.name, _times(target.shape), read, written, None)


def _describe_kernel(step: Step, kernel: Kernel) -> StepReport:
    points = 1
    for extent in kernel.domain:
        points *= extent
    written = {access for stage in kernel.stages for access, _ in stage.stores}
    written |= {access for access, _ in kernel.row_stores}
    if kernel.scatter is not None:
        written.add(kernel.scatter.access)
    moved = [0, 0]
    for number, access in enumerate(kernel.accesses):
        elements = 1
        for extent, stride in zip(kernel.domain, access.strides):
            elements *= extent if stride else 1
        moved[number in written] += min(elements, max(access.value.size, 1)) * access.value.dtype.itemsize
    flops = max(0.0, kernel.cost - 2.0 * len(kernel.accesses)) * points
    return StepReport(step.wave, kernel.mode, _instructions(kernel), _loops(kernel), moved[0], moved[1], flops)


def _instructions(kernel: Kernel) -> str:
    counts: dict[str, int] = {}
    for expression in kernel.expressions:
        name = {"op": expression[1], "lookup": "gather", "scan": f"scan_{expression[1]}"}.get(expression[0])
        if name is not None:
            counts[name] = counts.get(name, 0) + 1
    for fold in kernel.folds:
        name = f"reduce_{fold.instruction}"
        counts[name] = counts.get(name, 0) + 1
    if kernel.scatter is not None:
        counts[f"scatter_{kernel.scatter.mode}"] = 1
    return " ".join(name if count == 1 else f"{name}*{count}" for name, count in counts.items()) or "copy"


def _loops(kernel: Kernel) -> str:
    folded = [f"{extent}{'r' if reduced else ''}" for extent, reduced in zip(kernel.domain, kernel.reduced)]
    stages = f", {len(kernel.stages)} passes" if len(kernel.stages) > 1 else ""
    return " x ".join(folded) + stages if folded else "1"


def _times(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape)) or "1"


def _texts(kernel: Kernel, wanted: Sequence[str]) -> dict[str, str]:
    texts = {}
    if "ir" in wanted:
        texts["ir"] = "\n".join(
            [
                f"{kernel.mode} over {_loops(kernel)}",
                *(f"  access {n}: {a.value.dtype.name} + {a.offset} strides {a.strides}"
                  for n, a in enumerate(kernel.accesses)),
                *(f"  e{n} = {' '.join(map(str, e))}" for n, e in enumerate(kernel.expressions)),
                *(f"  fold {n} = {f.instruction} of e{f.argument} in pass {f.stage}"
                  for n, f in enumerate(kernel.folds)),
                *(f"  pass {n}: store {[f'e{e} to access {a}' for a, e in s.stores]}"
                  for n, s in enumerate(kernel.stages)),
                *(f"  a row: store e{e} to access {a}" for a, e in kernel.row_stores),
            ]
        )
    if "llvm" in wanted or "asm" in wanted:
        module = kernel_module({"kernel": kernel}, host())
        if "llvm" in wanted:
            texts["llvm"] = module
        if "asm" in wanted:
            texts["asm"] = llvm_engine.emit_assembly(module)
    return texts


# -- the machine -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Limits:
    """What this machine does at most: bytes a second from the caches and from memory, FLOPs a second."""

    cached: float
    memory: float
    flops: float
    cache_bytes: int

    def seconds(self, step: StepReport) -> float:
        """The least time for a step."""
        moved = step.read + step.written
        speed = self.cached if moved < self.cache_bytes else self.memory
        return max(moved / speed, (step.flops or 0.0) / self.flops)

    def or_what_was_reached(self, steps: Sequence[StepReport]) -> Limits:
        """These limits, or where a step was faster (the machine was busy when they were measured) what it reached."""
        cached, memory, flops = self.cached, self.memory, self.flops
        for step in steps:
            if step.seconds:
                moved = step.read + step.written
                flops = max(flops, (step.flops or 0.0) / step.seconds)
                if moved < self.cache_bytes:
                    cached = max(cached, moved / step.seconds)
                else:
                    memory = max(memory, moved / step.seconds)
        return Limits(max(cached, memory), memory, flops, self.cache_bytes)


@cache
def machine_limits() -> Limits:
    """Measured once a process, in some tenths of a second."""
    from ..api.contraction import matmul
    from ..api.creation import ones
    from ..api.evaluation import eval as evaluate
    from ..transforms.jit import jit

    def fastest(function: Callable[..., Any], *args: Any) -> float:
        best = float("inf")
        for _ in range(8):
            start = time.perf_counter()
            evaluate(function(*args))
            best = min(best, time.perf_counter() - start)
        return best

    negative = jit(lambda x: -x)
    small, large, side = 1 << 18, 1 << 24, 768
    cached = 8 * small / fastest(negative, ones(small))
    memory = 8 * large / fastest(negative, ones(large))
    square = ones((side, side))
    flops = 2 * side**3 / fastest(jit(lambda x: matmul(x, x)), square)
    try:
        cache_bytes = os.sysconf("SC_LEVEL3_CACHE_SIZE")
    except (AttributeError, ValueError, OSError):
        cache_bytes = 0
    return Limits(max(cached, memory), memory, flops, cache_bytes if cache_bytes > 0 else 16 << 20)


# -- explain -----------------------------------------------------------------------------------------------------------


@dataclass
class ProgramReport:
    """One program that the function ran. seconds: of a whole call. All else in bytes.

    inputs: with the arrays that the function has as constants.
    taken_over: of the outputs, those that are written over an input whose value is replaced (a parameter's, where
    nobody else holds the old one).   temporaries: the arena.   live: what the temporaries of the hungriest wave need,
    without gaps.   scratch: private memory of the calling thread.
    """

    inputs: int
    outputs: int
    taken_over: int
    temporaries: int
    live: int
    scratch: int
    seconds: float
    steps: list[StepReport]

    @property
    def peak(self) -> int:
        """Memory that a call takes at most: inputs, outputs, temporaries and scratch together."""
        return self.inputs + self.outputs - self.taken_over + self.temporaries + self.scratch

    @property
    def needed(self) -> int:
        """Memory that any placement of these buffers takes: ``peak`` without the gaps between temporaries."""
        return self.inputs + self.outputs - self.taken_over + self.live + self.scratch


@dataclass
class Explanation:
    """What ``pb.explain(f)(*args)`` found: print it, or take ``to_json()`` or ``to_html()``.

    result: what the function returned.   compilations, hits: modules that LLVM compiled, and that came from the disk.
    compile_seconds: of both.
    """

    name: str
    result: Any
    programs: list[ProgramReport]
    compilations: int
    hits: int
    compile_seconds: float

    @property
    def steps(self) -> list[StepReport]:
        """The steps of all programs."""
        return [step for program in self.programs for step in program.steps]

    @property
    def peak(self) -> int:
        """Bytes of memory that the programs take at most, one after the other."""
        return max((program.peak for program in self.programs), default=0)

    @property
    def kernels(self) -> int:
        """How many kernels run, without products and calls on the host."""
        return sum(step.kind not in ("product", "host") for step in self.steps)

    def to_dict(self) -> dict[str, Any]:
        """Everything but the result, as plain numbers and strings."""
        programs = [asdict(program) for program in self.programs]
        for program, report in zip(programs, self.programs):
            program["peak"], program["needed"] = report.peak, report.needed
            for step, source in zip(program["steps"], report.steps):
                step["share"] = source.share
        return {
            "name": self.name, "kernels": self.kernels, "peak": self.peak, "compilations": self.compilations,
            "hits": self.hits, "compile_seconds": self.compile_seconds, "programs": programs,
        }  # fmt: skip

    def to_json(self, path: str | None = None) -> str:
        """As JSON; also written to the file ``path``."""
        text = json.dumps(self.to_dict(), indent=1)
        _write(path, text)
        return text

    def to_html(self, path: str | None = None) -> str:
        """As an HTML page; also written to the file ``path``."""
        parts = ["<!doctype html><meta charset='utf-8'>", f"<title>{escape(self.name)}</title>"]
        parts.append("<style>table{border-collapse:collapse;font:13px monospace}td,th{padding:2px 8px;text-align:left;"
                     "border-bottom:1px solid #ccc}</style>")
        parts.append(f"<p>{escape(self._summary())}</p>")
        for program in self.programs:
            parts.append(f"<p>{escape(_program_line(program))}</p><table><tr>")
            parts += [f"<th>{escape(title)}</th>" for title in _TITLES]
            parts.append("</tr>")
            for number, step in enumerate(program.steps):
                parts.append("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in _cells(number, step)) + "</tr>")
            parts.append("</table>")
            for number, step in enumerate(program.steps):
                for kind, text in step.texts.items():
                    parts.append(f"<details><summary>step {number}: {kind}</summary>")
                    parts.append(f"<pre>{escape(text)}</pre></details>")
        page = "".join(parts) + "\n"
        _write(path, page)
        return page

    def _summary(self) -> str:
        products = sum(step.kind == "product" for step in self.steps)
        calls = sum(step.kind == "host" for step in self.steps)
        return (
            f"{self.name}: {_count(len(self.programs), 'program')}, {_count(self.kernels, 'kernel')}, "
            f"{_count(products, 'product')}, {_count(calls, 'host call')}; "
            f"{self.compilations} compiled, {self.hits} from disk in {_seconds(self.compile_seconds)}"
        )

    def __str__(self) -> str:
        lines = [self._summary()]
        for program in self.programs:
            rows = [_TITLES, *(_cells(number, step) for number, step in enumerate(program.steps))]
            widths = [min(60, max(len(row[column]) for row in rows)) for column in range(len(_TITLES))]
            lines += ["", _program_line(program)]
            for row in rows:
                lines.append("  ".join(_cut(cell, width).ljust(width) for cell, width in zip(row, widths)).rstrip())
            for number, step in enumerate(program.steps):
                for kind, text in step.texts.items():
                    lines += ["", f"-- step {number}: {kind} --", text]
        return "\n".join(lines)

    __repr__ = __str__


_TITLES = ("#", "wave", "kind", "computes", "loops", "read", "written", "FLOP", "time", "limit", "share", "code")


def _cells(number: int, step: StepReport) -> tuple[str, ...]:
    flops = "-" if step.flops is None else _amount(step.flops, "")
    code = f"{step.compiled} {_seconds(step.compile_seconds)}" if step.compile_seconds else step.compiled
    return (
        str(number), str(step.wave), step.kind, step.computes, step.loops, _amount(step.read, "B"),
        _amount(step.written, "B"), flops, _seconds(step.seconds), _seconds(step.limit), f"{100 * step.share:.0f}%",
        code,
    )  # fmt: skip


def _program_line(program: ProgramReport) -> str:
    alone = sum(step.seconds for step in program.steps)
    return (
        f"{_seconds(program.seconds)} a call, {_seconds(alone)} in its steps; {_amount(program.inputs, 'B')} in, "
        f"{_amount(program.outputs, 'B')} out ({_amount(program.taken_over, 'B')} of it over inputs), "
        f"{_amount(program.temporaries, 'B')} between; peak {_amount(program.peak, 'B')}"
    )


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _amount(number: float, unit: str) -> str:
    for scale, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= scale:
            return f"{number / scale:.3g} {prefix}{unit}"
    return f"{number:.0f} {unit}".rstrip()


def _seconds(seconds: float) -> str:
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def _write(path: str | None, text: str) -> None:
    if path is not None:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)


class _Watch:
    """Runs the programs of one thread step by step, several times over, and remembers what they took."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.found: list[tuple[Program, list[list[float]], list[float], int]] = []

    def __call__(self, program: Program, inputs: Sequence[Any]) -> list[Any]:
        before = observe(None)
        try:
            if threading.get_ident() != self.thread:
                return program(inputs)
            held = list(inputs)  # a second reference: no output takes over the memory of an input
            times: list[list[float]] = [[] for _ in program.plan.steps]
            whole = []
            results = program(held, lambda *_: None)
            numbers = {id(step): number for number, step in enumerate(program.plan.steps)}

            def record(_: Program, step: Step, start: float, end: float) -> None:
                times[numbers[id(step)]].append(end - start)

            for _ in range(_REPEATS):
                program(held, record)
                start = time.perf_counter()
                program(held)
                whole.append(time.perf_counter() - start)
            self.found.append((program, times, whole, sum(_nbytes(value) for value in held)))
            return results
        finally:
            observe(before)


def _nbytes(value: Any) -> int:
    return int(getattr(value, "nbytes", 8))


def explain(function: Callable[..., Any], verbose: bool | str | Sequence[str] = False) -> Callable[..., Explanation]:
    """``explain(f)(*args)`` calls ``f`` once under ``jit`` and tells what runs: a table of kernels, products
    and calls of libraries, with what was fused, loop structure (``r`` marks a folded loop), bytes, FLOPs, time alone,
    the least time on this machine and the share of it that is reached, and where the code came from.

    verbose: what to show of each kernel besides: "ir" (our own), "llvm", "asm", several of them, or True for all.

    The call has its effects (a training step trains). Times are medians of several runs of every step.
    Raises ArgumentError for another ``verbose``.
    """
    wanted = _VERBOSE if verbose is True else (verbose,) if isinstance(verbose, str) else tuple(verbose or ())
    if not set(wanted) <= set(_VERBOSE):
        raise ArgumentError(f"explain: verbose={verbose!r}; what can be shown is {', '.join(map(repr, _VERBOSE))}")

    def explained(*args: Any, **kwargs: Any) -> Explanation:
        from ..api.evaluation import eval as evaluate
        from ..transforms.jit import Jitted, jit

        limits = machine_limits()
        jitted = function if isinstance(function, Jitted) else jit(function)
        evaluate((args, kwargs))
        known = set(kernel_cache.origins)
        compilations, hits = llvm_engine.compile_count(), object_cache.hit_count()
        watch = _Watch()
        before = observe(watch)
        try:
            result = jitted(*args, **kwargs)
            evaluate(result)
        finally:
            observe(before)
        programs = [_program_report(known, wanted, *found) for found in watch.found]
        steps = [step for program in programs for step in program.steps]
        limits = limits.or_what_was_reached(steps)
        for step in steps:
            step.limit = limits.seconds(step)
        new = [origin for key, origin in kernel_cache.origins.items() if key not in known]
        return Explanation(
            getattr(function, "__name__", repr(function)), result, programs,
            llvm_engine.compile_count() - compilations, object_cache.hit_count() - hits,
            sum(seconds for _, seconds in new),
        )  # fmt: skip

    return explained


def _program_report(
    known: set[Any], wanted: Sequence[str], program: Program, times: list[list[float]], whole: list[float], inputs: int
) -> ProgramReport:
    steps = []
    for step, taken in zip(program.plan.steps, times):
        report = _describe(step)
        report.seconds = median(taken)
        for kernel in step.kernels:
            key = (host().isa_key, kernel.key)
            origin, seconds = ("known", 0.0) if key in known else kernel_cache.origins[key]
            report.compiled = max(report.compiled, origin, key=("", "known", "disk", "llvm").index)
            report.compile_seconds += seconds
            for kind, text in _texts(kernel, wanted).items():
                report.texts[kind] = "\n".join([*filter(None, [report.texts.get(kind)]), text])
        steps.append(report)
    plan = program.plan
    made = {plan.places[base.id][1]: nbytes_of(base) for base in plan.outputs if base.kind != "input"}
    return ProgramReport(
        inputs + program.constant_bytes, sum(made.values()), sum(made[number] for number in plan.donations),
        plan.arena_bytes, plan.live_bytes, program.scratch_bytes, median(whole), steps,
    )  # fmt: skip


# -- profile -----------------------------------------------------------------------------------------------------------


@contextmanager
def profile(path: str) -> Iterator[None]:
    """While it is open, every program runs step by step; then a trace of all steps is written to ``path``.

    The file is in the JSON format of Chrome's tracing and of Perfetto; times in it are microseconds.

    Steps that would run at the same time run one after the other, so the sum is a little longer than without.
    """
    events: list[dict[str, Any]] = []
    origin = time.perf_counter()

    def run(program: Program, inputs: Sequence[Any]) -> list[Any]:
        thread = threading.get_native_id()  # viewers take 32 bits

        def event(name: str, start: float, end: float, facts: dict[str, Any]) -> None:
            events.append({
                "name": name, "ph": "X", "pid": os.getpid(), "tid": thread, "args": facts,
                "ts": (start - origin) * 1e6, "dur": (end - start) * 1e6,
            })  # fmt: skip

        def record(_: Program, step: Step, start: float, end: float) -> None:
            report = _describe(step)
            facts = {"loops": report.loops, "read": report.read, "written": report.written, "flops": report.flops}
            event(f"{report.kind}: {report.computes}", start, end, facts)

        start = time.perf_counter()
        results = program(inputs, record)
        event("program", start, time.perf_counter(), {"steps": len(program.plan.steps)})
        return results

    before = observe(run)
    try:
        yield
    finally:
        observe(before)
        _write(path, json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}))
