"""Checks of what the compiler has made, before it runs: kernels whose parts do not fit together, positions outside of
buffers, values that are read before they are written, memory that is used for two things at once.

On in the test suite; ``PULLBACK_VALIDATE=1`` switches it on elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from ..dtypes import by_name
from ..errors import CompileError
from ..runtime.buffers import padded
from .expressions import expression_arguments, expression_dtype
from .groups import reduced_strides
from .loops import SIDE_ROWS, Access, Expression, Kernel, Scatter
from .memory import first_change, may_overwrite
from .plan import Plan, Step
from .stream import ALIGNMENT as STREAM_ALIGNMENT
from .values import Value

MAX_ENUMERATED = 1 << 16  # points of a domain up to which positions are listed one by one

KINDS = ("load", "literal", "iota", "op", "check", "lookup", "fold", "scan", "shifted", "inside", "guarded")
POSITIONS = ("argmax", "argmin")


def validate_plan(plan: Plan) -> None:
    """Check every kernel of ``plan``, and the order and the memory of its steps. Raises CompileError."""
    written: dict[int, int] = {}  # value -> the last wave that writes it
    for step in plan.steps:
        for value in step.writes:
            whole = value is not step.group.target  # else several steps write a part each
            _require(not (whole and value.id in written), f"step {step.number} writes {value} a second time")
            written[value.id] = max(written.get(value.id, -1), step.wave)
    lives: dict[int, tuple[Value, int, int]] = {}
    for step in plan.steps:
        for kernel in step.kernels:
            validate_kernel(kernel)
        for value in step.reads:
            complete = value.kind == "input" or (value.id in written and written[value.id] < step.wave)
            adds = any(value is target for target in step.writes)  # a scatter, to what earlier steps have written
            earlier = any(s.wave < step.wave and value in s.writes for s in plan.steps) if adds else False
            _require(complete or earlier, f"step {step.number}, wave {step.wave}, reads {value}, which is not complete")
        for value in (*step.reads, *step.writes):
            _, begin, end = lives.get(value.id, (value, step.wave, step.wave))
            lives[value.id] = value, min(begin, step.wave), max(end, step.wave)
    _validate_memory(plan, list(lives.values()))
    _validate_donations(plan)


def _validate_memory(plan: Plan, lives: list[tuple[Value, int, int]]) -> None:
    """No two values that are alive in one wave share memory, but for one that is written over the other."""
    outputs = {base.id for base in plan.outputs}
    placed: dict[Any, list[tuple[int, int, int, int, Value]]] = {}
    for value, begin, end in sorted(lives, key=lambda life: life[1]):
        if value.kind == "input":
            continue
        _require(value.id in plan.places, f"{value} has no place")
        where, start = plan.places[value.id]
        stop = padded(max(1, value.size) * value.dtype.itemsize)
        if where == "arena":
            region: Any = where
            stop += start
            _require(start >= 0 and stop <= plan.arena_bytes, f"{value} lies outside of the arena")
        else:
            region, start = (where, start), 0
            taken_over = value.id not in outputs and region[1] in plan.donations
            _require(not taken_over, f"{value} lies in the memory of an input")
        if value.id in outputs:
            end = plan.steps[-1].wave + len(plan.steps)
        for other_start, other_stop, other_begin, other_end, other in placed.setdefault(region, []):
            if stop > other_start and other_stop > start and end >= other_begin and other_end >= begin:
                over = other_start == start and other_end == begin and _is_written_over(plan, value, other, begin)
                _require(over, f"{value} and {other} share memory while both are needed")
        placed[region].append((start, stop, begin, end, value))


def _is_written_over(plan: Plan, value: Value, other: Value, wave: int) -> bool:
    """Whether one step alone writes ``value``, and it alone reads ``other`` then, element for element."""
    writers = [step for step in plan.steps if value in step.writes]
    readers = [step for step in plan.steps if other in step.reads and step.wave >= wave]
    return len(writers) == 1 and readers == writers and may_overwrite(writers[0], value, other)


def _validate_donations(plan: Plan) -> None:
    """An output written over an input: no other step reads that input when it changes or later."""
    for number, position in plan.donations.items():
        writers = [s for s in plan.steps if any(plan.places.get(v.id) == ("output", number) for v in s.writes)]
        changed = first_change(writers[0], writers[1:])
        _require(changed is not None, f"output {number} is written over an input by {len(writers)} steps")
        late = [s for s in plan.steps if s is not writers[0] and s.wave >= (changed or 0) and _reads(s, position)]
        _require(not late, f"output {number} is written over input {position}, which is still read")


def _reads(step: Step, position: int) -> bool:
    return any(value.kind == "input" and value.attrs[0] == position for value in step.reads)


def validate_kernel(kernel: Kernel) -> None:
    """Check that the parts of ``kernel`` fit together. Raises CompileError, which says what does not.

    Expressions read earlier ones, of the dtypes that they expect; every position lies in its buffer at every point of
    the domain; what is stored, folded, kept and read back exists when it is needed; no two points store to one element;
    loops, scans and chunks are such as the mode can run.
    """
    _validate_loops(kernel)
    for number, expression in enumerate(kernel.expressions):
        _validate_expression(kernel, number, expression)
    _validate_folds(kernel)
    _validate_stages(kernel)
    _validate_rows(kernel)
    _validate_sides(kernel)
    if 0 not in kernel.domain:
        for number in _used(kernel):
            _validate_bounds(kernel, number)
        _validate_stores(kernel)


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise CompileError(f"invalid: {message}")


# -- loops -------------------------------------------------------------------------------------------------------------


def _validate_loops(kernel: Kernel) -> None:
    mode, domain, reduced = kernel.mode, kernel.domain, kernel.reduced
    _require(len(domain) == len(reduced), f"{len(domain)} loops and {len(reduced)} flags")
    _require(all(extent >= 0 for extent in domain), f"a loop of less than no steps in {domain}")
    for what, strides in [("access", a.strides) for a in kernel.accesses] + [("iota", c) for _, c in kernel.iotas]:
        _require(len(strides) == len(domain), f"an {what} with strides {strides} in {len(domain)} loops")
    walks = bool(kernel.folds) or kernel.has_scan
    fits = {
        "scalar": not domain and not walks and kernel.scatter is None,
        "map": bool(domain) and not any(reduced) and not walks and kernel.scatter is None,
        "row": bool(domain) and reduced[-1:] == (True,) and walks and kernel.scatter is None,
        "column": bool(domain) and reduced[-1:] == (False,) and any(reduced) and kernel.scatter is None,
        "walk": bool(domain) and reduced[-1:] == (False,) and walks and kernel.scatter is None,
        "scatter": kernel.scatter is not None and not walks,
    }
    _require(mode in fits, f"mode {mode!r}")
    _require(fits[mode], f"{mode} over {domain}, reduced {reduced}, folds or scans: {walks}")
    _require(not walks or any(reduced), "folds or scans without a row loop")
    _require(not kernel.reverse or kernel.has_scan, "rows walked backwards without a scan")
    if mode == "walk":
        _require(len(kernel.stages) == 1, "a walk of several stages")
        _require(not (kernel.folds and kernel.has_scan), "a walk of scans and folds")
    short = kernel.mode in ("map", "scatter") and domain[-1:] == (kernel.short,) and reduced[-1:] == (False,)
    _require(not kernel.short or short, f"code for {kernel.short} steps of the last loop of {mode} over {domain}")
    _validate_chunks(kernel)


def _validate_chunks(kernel: Kernel) -> None:
    if kernel.chunks is None:
        return
    number, length, extent = kernel.chunks
    rows = kernel.row_loops
    _require(bool(rows) and kernel.domain[0] == number and not kernel.reduced[0], "chunks that are not loop 0")
    _require(kernel.domain[rows[0]] == extent, f"chunks of {extent} in a loop of {kernel.domain[rows[0]]}")
    _require((number - 1) * length < extent <= number * length, f"{number} chunks of {length} are not {extent}")
    _require(not kernel.has_scan, "a scan in chunks")
    _require(len(kernel.stages) == 1, "chunks in several stages")
    stored = {access for access, _ in kernel.row_stores}
    if kernel.scatter is not None:
        stored.add(kernel.scatter.access)
    for position, access in enumerate(kernel.accesses):
        if position not in stored:
            step = length * access.strides[rows[0]]
            _require(access.strides[0] == step, f"access {position} moves {access.strides[0]} a chunk, not {step}")
    for _, coefficients in kernel.iotas:
        _require(coefficients[0] == length * coefficients[rows[0]], f"an iota {coefficients} in chunks of {length}")


# -- expressions -------------------------------------------------------------------------------------------------------


def _validate_expression(kernel: Kernel, number: int, expression: Expression) -> None:
    kind, dtype = expression[0], expression_dtype(expression)
    here = f"expression {number}, {expression},"
    _require(kind in KINDS, f"{here} is of no kind")
    arguments = expression_arguments(expression)
    _require(all(0 <= argument < number for argument in arguments), f"{here} reads what is not known before it")
    given = [expression_dtype(kernel.expressions[argument]) for argument in arguments]
    match expression:
        case ("load", access, _):
            _validate_load(kernel, here, access, dtype)
        case ("shifted", access, _, moved, guard):
            _validate_load(kernel, here, access, dtype)
            _validate_load(kernel, here, moved, dtype)
            _require(0 <= guard < len(kernel.iotas), f"{here} has no guard")
            still, shifted = kernel.accesses[access], kernel.accesses[moved]
            _require(still.value is shifted.value, f"{here} moves to another buffer")
            _require(still.strides == shifted.strides, f"{here} does not move by a fixed distance")
        case ("inside", guards, _):
            _require(all(0 <= guard < len(kernel.iotas) for guard, _ in guards), f"{here} has no linear form")
        case ("guarded", access, _, guards):
            _validate_load(kernel, here, access, dtype)
            _require(bool(guards), f"{here} has no guard")
            _require(all(0 <= guard < len(kernel.iotas) for guard, _ in guards), f"{here} has no linear form")
            _validate_guarded(kernel, kernel.accesses[access], guards)
        case ("lookup", access, _, terms):
            _validate_load(kernel, here, access, dtype)
            _require(all(0 <= term < len(kernel.terms) for _, term in terms), f"{here} has no stride for an index")
            _require(all(name == "int64" for name in given), f"{here} is indexed by {given}")
        case ("iota", iota, _):
            _require(0 <= iota < len(kernel.iotas), f"{here} has no linear form")
        case ("op", _, _, expected, _, _):
            _require(tuple(given) == tuple(expected), f"{here} is given {given}")
        case ("scan", _, _, _, _):
            _require(all(name == dtype for name in given), f"{here} is given {given}")
        case ("check", _, check):
            _require(by_name(given[0]).kind in "iu", f"{here} is given {given}")
            _require(0 <= check < len(kernel.checks), f"{here} has no size")
        case ("fold", fold, _):
            _require(0 <= fold < len(kernel.folds), f"{here} has no fold")
            spec = kernel.folds[fold]
            result = "int64" if spec.instruction in POSITIONS else spec.dtype
            _require(dtype == result, f"{here} is the result of {spec}")


def _validate_load(kernel: Kernel, here: str, access: int, dtype: str) -> None:
    _require(0 <= access < len(kernel.accesses), f"{here} has no access")
    stored = kernel.accesses[access].value.dtype.name
    _require(stored == dtype, f"{here} reads a buffer of {stored}")


def _validate_folds(kernel: Kernel) -> None:
    for number, fold in enumerate(kernel.folds):
        _require(0 <= fold.argument < len(kernel.expressions), f"fold {number} folds nothing")
        given = expression_dtype(kernel.expressions[fold.argument])
        _require(given == fold.dtype, f"fold {number} of {fold.dtype} is given {given}")
        found = [n for n, stage in enumerate(kernel.stages) if number in stage.folds]
        _require(found == [fold.stage], f"fold {number} of stage {fold.stage} advances in stages {found}")


# -- stages and stores -------------------------------------------------------------------------------------------------


def _reachable(kernel: Kernel, roots: Iterable[int], known: Iterable[int] = ()) -> set[int]:
    """The expressions evaluated for ``roots`` at one point, where those in ``known`` are there already."""
    found: set[int] = set()
    stack = [root for root in roots if root not in known]
    while stack:
        number = stack.pop()
        if number not in found:
            found.add(number)
            stack += [a for a in expression_arguments(kernel.expressions[number]) if a not in known]
    return found


def _validate_stages(kernel: Kernel) -> None:
    expressions = kernel.expressions
    kept: dict[int, int] = {}  # scratch row -> the expression that it holds
    for number, stage in enumerate(kernel.stages):
        where = f"stage {number}"
        for access, expression in stage.stores:
            _validate_store(kernel, where, access, expression)
        for expression, row in stage.reloads.items():
            _require(kept.get(row) == expression, f"{where} reads expression {expression} back, which is not kept")
        roots = [kernel.folds[fold].argument for fold in stage.folds]
        roots += [expression for _, expression in stage.stores] + [expression for expression, _ in stage.spills]
        roots += [side.argument for side in kernel.sides if side.stage == number]
        _require(all(0 <= root < len(expressions) for root in roots), f"{where} needs an expression that is not there")
        for expression in _reachable(kernel, roots, stage.reloads):
            if expressions[expression][0] == "fold":
                fold = kernel.folds[expressions[expression][1]]
                _require(fold.stage < number, f"{where} needs a fold that ends in stage {fold.stage}")
        for expression, row in stage.spills:
            _require(0 <= row < len(kernel.spill_dtypes), f"{where} keeps expression {expression} nowhere")
            dtype = expression_dtype(expressions[expression])
            _require(kernel.spill_dtypes[row] == dtype, f"{where} keeps {dtype} among {kernel.spill_dtypes[row]}")
            _require(row not in kept, f"{where} keeps two expressions in scratch row {row}")
            kept[row] = expression
    _require(not kept or kernel.mode == "row", f"a {kernel.mode} kernel keeps values between stages")


def _validate_sides(kernel: Kernel) -> None:
    """Sums beside the rows: of something in some stage, to a line of the row's elements for each few rows."""
    _require(not kernel.sides or kernel.mode == "row", f"a {kernel.mode} kernel with sums beside its rows")
    row = math.prod(extent for extent, folded in zip(kernel.domain, kernel.reduced) if folded)
    rows = math.prod(extent for extent, folded in zip(kernel.domain, kernel.reduced) if not folded)
    for side in kernel.sides:
        _validate_store(kernel, "a sum beside the rows", side.access, side.argument)
        _require(0 <= side.stage < len(kernel.stages), f"{side} is taken in no stage")
        _require(expression_dtype(kernel.expressions[side.argument]) == side.dtype, f"{side} is given another dtype")
        access = kernel.accesses[side.access]
        lines = reduced_strides(kernel.domain, tuple(not folded for folded in kernel.reduced))
        _require((access.offset, access.strides) == (0, lines), f"{side} has no lines")
        _require(access.value.size == row * -(-rows // SIDE_ROWS), f"{access.value} has not a line for each few rows")


def _validate_rows(kernel: Kernel) -> None:
    """What is stored once a row, and what a scatter combines."""
    for access, expression in kernel.row_stores:
        _validate_store(kernel, "a row", access, expression)
    for expression in _reachable(kernel, [expression for _, expression in kernel.row_stores]):
        text = kernel.expressions[expression]
        _require(text[0] != "scan", f"a row stores a step of a scan, {text}")
        for strides in _strides_of(kernel, text):
            still = not any(strides[dim] for dim in kernel.row_loops)
            _require(still, f"a row stores what depends on the place in the row, {text}")
    scatter = kernel.scatter
    if scatter is not None:
        _validate_store(kernel, "a scatter", scatter.access, scatter.value)
        for argument, term in scatter.terms:
            _require(0 <= argument < len(kernel.expressions), "a scatter has no index")
            _require(expression_dtype(kernel.expressions[argument]) == "int64", "a scatter by no int64")
            _require(0 <= term < len(kernel.terms), "a scatter has no stride for an index")
        _validate_apart(kernel, scatter)


def _validate_apart(kernel: Kernel, scatter: Scatter) -> None:
    """The steps of a scatter's loops that do not go in order keep to elements of their own."""
    moves = [kernel.accesses[scatter.access].strides]
    for argument, term in scatter.terms:
        if kernel.expressions[argument][0] == "iota" and kernel.terms[term]:
            moves.append(kernel.iotas[kernel.expressions[argument][1]][1])
    for dim, (extent, folded) in enumerate(zip(kernel.domain, kernel.reduced)):
        apart = folded or extent <= 1 or any(strides[dim] for strides in moves)
        _require(apart, f"a scatter whose loop {dim} is in no order, and whose steps write to the same elements")
    if scatter.copies > 1:
        has = scatter.copy_term is not None and 0 <= scatter.copy_term < len(kernel.terms)
        _require(has, f"a scatter to {scatter.copies} copies with no distance between them")


def _strides_of(kernel: Kernel, expression: Expression) -> list[tuple[int, ...]]:
    match expression:
        case ("load" | "lookup", int(access), *_):
            return [kernel.accesses[access].strides]
        case ("shifted", int(access), _, _, int(guard)):
            return [kernel.accesses[access].strides, kernel.iotas[guard][1]]
        case ("guarded", int(access), _, guards):
            return [kernel.accesses[access].strides, *(kernel.iotas[guard][1] for guard, _ in guards)]
        case ("inside", guards, _):
            return [kernel.iotas[guard][1] for guard, _ in guards]
        case ("iota", int(iota), _):
            return [kernel.iotas[iota][1]]
    return []


def _validate_store(kernel: Kernel, where: str, access: int, expression: int) -> None:
    _require(0 <= access < len(kernel.accesses), f"{where} stores nowhere")
    _require(0 <= expression < len(kernel.expressions), f"{where} stores no expression")
    given = expression_dtype(kernel.expressions[expression])
    value = kernel.accesses[access].value
    _require(value.dtype.name == given, f"{where} stores {given} in {value}")
    _require(value.kind != "input", f"{where} stores over the input {value}")


def _validate_stores(kernel: Kernel) -> None:
    """No two points of the domain write one element."""
    grid = tuple(1 if folded else extent for extent, folded in zip(kernel.domain, kernel.reduced))
    stores = [(access, kernel.domain) for stage in kernel.stages for access, _ in stage.stores]
    for number in kernel.streams:
        access = kernel.accesses[number]
        _require(any(number == stored for stored, _ in stores), f"access {number} is streamed and not stored")
        size = access.value.dtype.itemsize
        aligned = not any(step * size % STREAM_ALIGNMENT for step in (access.offset, *access.strides[:-1]))
        _require(access.strides[-1] == 1 and aligned, f"access {number} is streamed to where no vector is aligned")
    stores += [(access, grid) for access, _ in kernel.row_stores]
    for number, domain in stores:
        access = kernel.accesses[number]
        if kernel.chunks is not None and domain is kernel.domain:
            domain = (1, *domain[1:])
        if math.prod(domain) <= MAX_ENUMERATED:
            positions = _positions(access.offset, access.strides, domain)
            _require(np.unique(positions).size == positions.size, f"two points store to one element of {access.value}")


# -- bounds ------------------------------------------------------------------------------------------------------------


def _used(kernel: Kernel) -> set[int]:
    """The accesses whose every position is touched: not those of a shift, which are guarded."""
    stores = [access for stage in kernel.stages for access, _ in stage.stores]
    stores += [access for access, _ in kernel.row_stores]
    loads = [int(expression[1]) for expression in kernel.expressions if expression[0] in ("load", "lookup", "shifted")]
    scatter = [] if kernel.scatter is None else [kernel.scatter.access]
    return {*stores, *loads, *scatter}


def _extents(kernel: Kernel, access: Access) -> tuple[int, ...]:
    """How far each loop goes; of chunks, whose last may be short, all of them together are the loop that they cut."""
    if kernel.chunks is None or access.strides[0] != kernel.chunks[1] * access.strides[kernel.row_loops[0]]:
        return kernel.domain
    return (1, *kernel.domain[1:])


def _positions(offset: int, strides: tuple[int, ...], domain: tuple[int, ...]) -> np.ndarray[Any, np.dtype[np.int64]]:
    positions = np.full(1, offset, np.int64)
    for stride, extent in zip(strides, domain, strict=True):
        positions = np.add.outer(positions, stride * np.arange(extent, dtype=np.int64)).reshape(-1)
    return positions


def _reach(offset: int, strides: tuple[int, ...], domain: tuple[int, ...]) -> tuple[int, int]:
    """The lowest and the highest position."""
    steps = [stride * (extent - 1) for stride, extent in zip(strides, domain, strict=True)]
    return offset + sum(min(0, step) for step in steps), offset + sum(max(0, step) for step in steps)


def _validate_bounds(kernel: Kernel, number: int) -> None:
    access = kernel.accesses[number]
    domain = _extents(kernel, access)
    low, high = _reach(access.offset, access.strides, domain)
    _require(
        low >= 0 and high < access.value.size,
        f"access {number} goes from {low} to {high} in {access.value}, of {access.value.size} elements",
    )
    for expression in kernel.expressions:
        if expression[0] == "shifted" and expression[1] == number:
            _validate_shift(kernel, access, kernel.accesses[expression[3]], kernel.iotas[expression[4]])
        elif expression[0] == "lookup" and expression[1] == number:
            _validate_terms(kernel, access, high, expression[3])
    if kernel.scatter is not None and kernel.scatter.access == number:
        _validate_terms(kernel, access, high, kernel.scatter.terms)


def _validate_terms(kernel: Kernel, access: Access, high: int, terms: Iterable[tuple[int, int]]) -> None:
    """Indices that were checked stay in the buffer. (Of others only the run knows.)"""
    low = 0
    scatter = kernel.scatter
    if scatter is not None and scatter.copy_term is not None and terms is scatter.terms:
        high += kernel.terms[scatter.copy_term] * (scatter.copies - 1)
    for argument, term in terms:
        size = _checked_size(kernel, kernel.expressions[argument])
        if size is not None:
            reach = kernel.terms[term] * (size - 1)
            low, high = low + min(0, reach), high + max(0, reach)
    base, _ = _reach(access.offset, access.strides, kernel.domain)
    inside = base + low >= 0 and high < access.value.size
    _require(inside, f"checked indices go from {base + low} to {high} in {access.value}")


def _checked_size(kernel: Kernel, expression: Expression) -> int | None:
    """What an index was found to be below, here or in the kernel that stored it."""
    if expression[0] == "check":
        return kernel.checks[expression[2]][0]
    if expression[0] == "load":
        source = kernel.accesses[expression[1]].value
        return int(source.attrs[0]) if source.name == "check_index" else None
    return None


def _validate_guarded(kernel: Kernel, access: Access, guards: Iterable[tuple[int, bool]]) -> None:
    """Wherever the guards let it, the access is in its buffer."""
    if math.prod(kernel.domain) > MAX_ENUMERATED:
        return
    domain = _extents(kernel, access)
    inside = np.logical_and.reduce([(_positions(*kernel.iotas[guard], domain) < 0) == below for guard, below in guards])
    there = _positions(access.offset, access.strides, domain)[inside]
    fits = there.size == 0 or bool(there.min() >= 0 and there.max() < access.value.size)
    _require(fits, f"{access.value} is read out of bounds behind a guard")


def _validate_shift(kernel: Kernel, still: Access, moved: Access, guard: tuple[int, tuple[int, ...]]) -> None:
    """Wherever the guard lets it, the moved access is in its buffer."""
    if math.prod(kernel.domain) > MAX_ENUMERATED:
        return
    domain = _extents(kernel, still)
    there = _positions(moved.offset, moved.strides, domain)[_positions(*guard, domain) >= 0]
    inside = there.size == 0 or bool(there.min() >= 0 and there.max() < moved.value.size)
    _require(inside, f"a shift reads {moved.value} out of bounds")
