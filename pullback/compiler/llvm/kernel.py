"""Kernel IR to LLVM IR.

Every kernel becomes one function ``void k(ptr slots, ptr params, i64 lo, i64 hi, ptr scratch)`` that runs tasks ``lo`` to
``hi``. Main loops are unmasked and unrolled with an accumulator for each copy; one masked loop takes the tail. Loop counters
and accumulators are stack slots that LLVM promotes to registers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

from ...dtypes import by_name
from ..loops import Kernel
from ..schedule import expression_arguments, expression_dtype, outer_expressions
from .builder import VectorBuilder
from .scalar import emit as emit_instruction
from .target import Target
from .values import REGISTER, STORAGE_SIZE, Value

COMBINE = {
    "add": "add", "multiply": "mul", "maximum": "max", "minimum": "min", "logical_or": "or", "logical_and": "and",
}  # fmt: skip
UNSET = -1  # the index that an argmax accumulator starts with

RECORD_BAD_INDEX = """define internal void @record_bad_index(ptr %slots, i64 %site, i64 %index, i64 %size) noinline cold {
  %record = load ptr, ptr %slots
  %r = cmpxchg ptr %record, i64 0, i64 1 acq_rel monotonic
  %won = extractvalue { i64, i1 } %r, 1
  br i1 %won, label %write, label %done
write:
  %p1 = getelementptr i64, ptr %record, i64 1
  store i64 %site, ptr %p1
  %p2 = getelementptr i64, ptr %record, i64 2
  store i64 %index, ptr %p2
  %p3 = getelementptr i64, ptr %record, i64 3
  store i64 %size, ptr %p3
  br label %done
done:
  ret void
}
"""


def main_width(kernel: Kernel, target: Target) -> int:
    """Lanes of the kernel's vectors: as many as a register holds of the widest type that it calculates in."""
    if kernel.mode in ("scalar", "sequential"):
        return 1
    floats = integers = 0
    for expression in kernel.expressions:
        dtype = by_name(expression_dtype(expression))
        itemsize = 4 if dtype.name in ("float16", "bfloat16") else dtype.itemsize
        if dtype.kind == "f":
            floats = max(floats, itemsize)
        elif expression[0] in ("op", "load", "literal"):
            integers = max(integers, itemsize)
    itemsize = floats or integers or 8
    return max(1, min(target.vector_bits // (8 * itemsize), 32))


def unroll(kernel: Kernel) -> int:
    """Copies of the body in the main loop: more for small bodies."""
    if kernel.cost <= 24:
        return 4
    return 2 if kernel.cost <= 90 else 1


def column_block(kernel: Kernel, target: Target) -> int:
    """Columns that one task of a column kernel takes."""
    return main_width(kernel, target) * (1 if kernel.scatter is not None else unroll(kernel))


@dataclass
class ParameterLayout:
    """Which parameter of a launch means what; shared by the code that reads them and the plan that writes them."""

    extents: list[int] = field(default_factory=list)
    row_extent: int = -1
    accesses: list[tuple[int, int, dict[int, int]]] = field(default_factory=list)  # slot, offset, stride of each loop
    iotas: list[tuple[int, dict[int, int]]] = field(default_factory=list)
    checks: list[tuple[int, int]] = field(default_factory=list)  # size, site
    terms: list[int] = field(default_factory=list)
    spills: list[int] = field(default_factory=list)
    count: int = 0

    @classmethod
    def of(cls, kernel: Kernel) -> ParameterLayout:
        layout = cls()
        counter = itertools.count()
        layout.extents = [next(counter) for _ in kernel.domain]
        if kernel.chunks is not None:
            layout.row_extent = next(counter)
        for access in kernel.accesses:
            slot, offset = next(counter), next(counter)
            classes = kernel.step_classes(access)
            layout.accesses.append((slot, offset, {d: next(counter) for d, c in enumerate(classes) if c == "s"}))
        for _, coefficients in kernel.iotas:
            offset = next(counter)
            layout.iotas.append((offset, {d: next(counter) for d, c in enumerate(coefficients) if c not in (0, 1)}))
        layout.checks = [(next(counter), next(counter)) for _ in kernel.checks]
        layout.terms = [next(counter) for _ in kernel.terms]
        layout.spills = [next(counter) for _ in kernel.spill_dtypes]
        layout.count = next(counter)
        return layout


@dataclass
class Point:
    """Where in the loops expressions are evaluated.

    pointers: for each access, its address with every loop applied but the vectorised one.
    position: the vectorised loop's variable in lane 0, or None where every lane is at the same point.
    indices: variables of the other loops.
    """

    pointers: list[str]
    position: str | None
    indices: dict[int, str]
    mask: Value | None


class _Builder(VectorBuilder):
    """A vector builder that knows how to report a bad index from inside a kernel."""

    mask: Value | None = None
    site: str = "0"
    labels: Callable[[str], str]

    def on_bad_index(self, bad: Value, index: Value, size: str | int) -> None:
        if self.mask is not None:
            bad = self.binary("and", bad, self.mask)
        self.declares["record_bad_index"] = RECORD_BAD_INDEX
        lanes = self.emit(f"bitcast {self.typed(bad)} to i{self.width}")
        some = self.emit(f"icmp ne i{self.width} {lanes}, 0")
        report, go_on = self.labels("bad"), self.labels("good")
        self.lines.append(f"  br i1 {some}, label %{report}, label %{go_on}")
        self.lines.append(f"{report}:")
        count = f"llvm.cttz.i{self.width}"
        self.declares[count] = f"declare i{self.width} @{count}(i{self.width}, i1)"
        lane = self.emit(f"call i{self.width} @{count}(i{self.width} {lanes}, i1 true)")
        which = self.emit(f"extractelement {self.typed(index)}, i{self.width} {lane}")
        self.lines.append(f"  call void @record_bad_index(ptr %slots, i64 {self.site}, i64 {which}, i64 {size})")
        self.lines.append(f"  br label %{go_on}")
        self.lines.append(f"{go_on}:")


class KernelEmitter:
    """Writes one kernel."""

    def __init__(self, kernel: Kernel, target: Target) -> None:
        self.kernel = kernel
        self.target = target
        self.width = main_width(kernel, target)
        self.unroll = 1 if kernel.scatter is not None else unroll(kernel)
        self.b = _Builder(self.width, target)
        self.b.labels = self.label
        self.layout = ParameterLayout.of(kernel)
        self.outer = outer_expressions(kernel)
        self._labels = itertools.count()
        self._allocas: list[str] = []
        self._entry: list[str] = []
        self._parameters: dict[int, str] = {}

    # -- text ---------------------------------------------------------------------------------------------------------

    def label(self, name: str) -> str:
        return f"{name}{next(self._labels)}"

    def line(self, text: str) -> None:
        self.b.lines.append(text)

    def mark(self, label: str) -> None:
        self.b.lines.append(f"{label}:")

    def emit(self, text: str) -> str:
        return self.b.emit(text)

    def alloca(self, kind: str) -> str:
        name = f"%a{len(self._allocas)}"
        self._allocas.append(f"  {name} = alloca {kind}")
        return name

    def parameter(self, position: int) -> str:
        """The launch's parameter, loaded once at the function's entry."""
        found = self._parameters.get(position)
        if found is None:
            found = f"%p{position}"
            self._entry.append(f"  %pp{position} = getelementptr i64, ptr %params, i64 {position}")
            self._entry.append(f"  {found} = load i64, ptr %pp{position}")
            self._parameters[position] = found
        return found

    def function(self, name: str) -> str:
        """The function's text; declarations are left in ``declares``."""
        getattr(self, f"_{self.kernel.mode}")()
        self.line("  ret void")
        head = f"define void @{name}(ptr noalias %slots, ptr noalias %params, i64 %lo, i64 %hi, ptr noalias %scratch) {{"
        return "\n".join([head, "entry:", *self._allocas, *self._entry, "  br label %start", "start:", *self.b.lines, "}\n"])

    @property
    def declares(self) -> dict[str, str]:
        return self.b.declares

    # -- loops --------------------------------------------------------------------------------------------------------

    def loop(self, start: str, stop: str, step: int | str, body: Callable[[str], None]) -> None:
        """``for i in range(start, stop, step): body(i)``."""
        counter = self.alloca("i64")
        head, inside, done = self.label("head"), self.label("body"), self.label("done")
        self.line(f"  store i64 {start}, ptr {counter}")
        self.line(f"  br label %{head}")
        self.mark(head)
        i = self.emit(f"load i64, ptr {counter}")
        more = self.emit(f"icmp slt i64 {i}, {stop}")
        self.line(f"  br i1 {more}, label %{inside}, label %{done}")
        self.mark(inside)
        body(i)
        following = self.emit(f"add i64 {i}, {step}")
        self.line(f"  store i64 {following}, ptr {counter}")
        self.line(f"  br label %{head}")
        self.mark(done)

    def vector_loop(self, start: str, stop: str, body: Callable[[list[str], list[Value | None]], None]) -> None:
        """Call ``body(positions, masks)`` so that it covers ``start`` to ``stop``."""
        step = self.width * self.unroll
        length = self.emit(f"sub i64 {stop}, {start}")
        whole = self.emit(f"and i64 {length}, {-step}")
        middle = self.emit(f"add i64 {start}, {whole}")

        def main(i: str) -> None:
            positions = [i] + [self.emit(f"add i64 {i}, {u * self.width}") for u in range(1, self.unroll)]
            body(positions, [None] * self.unroll)

        def tail(i: str) -> None:
            remaining = self.emit(f"sub i64 {stop}, {i}")
            body([i], [self.lanes_below(remaining)])

        self.loop(start, middle, step, main)
        self.loop(middle, stop, self.width, tail)

    def lanes_below(self, remaining: str) -> Value:
        """The mask of the first ``remaining`` lanes."""
        return self.b.mask_below(remaining)

    def tasks(self, body: Callable[[str], None]) -> None:
        self.loop("%lo", "%hi", 1, body)

    def split_task(self, task: str, loops: list[int]) -> dict[int, str]:
        """The variables of ``loops``, outermost first, in task number ``task``."""
        indices: dict[int, str] = {}
        rest = task
        for dim in reversed(loops[1:]):
            extent = self.parameter(self.layout.extents[dim])
            indices[dim] = self.emit(f"urem i64 {rest}, {extent}")
            rest = self.emit(f"udiv i64 {rest}, {extent}")
        if loops:
            indices[loops[0]] = rest
        return indices

    def bases(self) -> list[str]:
        """The address of each access at the start of all loops; loaded at the entry."""
        pointers = []
        for number, (slot, offset, _) in enumerate(self.layout.accesses):
            where, moved = self.parameter(slot), self.parameter(offset)
            self._entry += [
                f"  %sl{number} = getelementptr i64, ptr %slots, i64 {where}",
                f"  %ba{number} = load ptr, ptr %sl{number}",
                f"  %b{number} = getelementptr i8, ptr %ba{number}, i64 {moved}",
            ]
            pointers.append(f"%b{number}")
        return pointers

    def advance(self, pointers: list[str], indices: dict[int, str]) -> list[str]:
        """The addresses after the loops in ``indices``."""
        moved = []
        for number, pointer in enumerate(pointers):
            strides = self.layout.accesses[number][2]
            access = self.kernel.accesses[number]
            for dim, index in indices.items():
                if dim in strides:
                    step = self.emit(f"mul i64 {index}, {self.parameter(strides[dim])}")
                elif access.strides[dim] == 1 and dim == self.kernel.vector_loop:
                    step = self.emit(f"mul i64 {index}, {STORAGE_SIZE[access.value.dtype.name]}")
                else:
                    continue
                pointer = self.emit(f"getelementptr i8, ptr {pointer}, i64 {step}")
            moved.append(pointer)
        return moved

    # -- expressions --------------------------------------------------------------------------------------------------

    def needed(self, roots: list[int], known: set[int]) -> list[int]:
        """Expressions to evaluate for ``roots``, arguments first; those in ``known`` are there already."""
        found: set[int] = set()
        stack = [root for root in roots if root not in known]
        while stack:
            number = stack.pop()
            if number in found:
                continue
            found.add(number)
            stack.extend(a for a in expression_arguments(self.kernel.expressions[number]) if a not in known)
        return sorted(found)

    def evaluate_outer(self, roots: list[int], point: Point, env: dict[int, Value]) -> None:
        """Those parts of ``roots`` that have one value for the whole inner loop, ahead of it."""
        for number in self.needed(roots, set(env)):
            if self.outer[number] and self.kernel.expressions[number][0] != "fold":
                env[number] = self.evaluate(number, point, env)

    def evaluate_all(self, roots: list[int], point: Point, env: dict[int, Value]) -> None:
        for number in self.needed(roots, set(env)):
            env[number] = self.evaluate(number, point, env)

    def address(self, access: int, point: Point) -> tuple[str, str | int]:
        """The address in lane 0, and the distance between lanes in bytes."""
        dtype = self.kernel.accesses[access].value.dtype.name
        stride = self.kernel.accesses[access].strides[-1] if self.kernel.domain else 0
        pointer = point.pointers[access]
        if point.position is None or stride == 0:
            return pointer, 0
        size = STORAGE_SIZE[dtype]
        if stride == 1:
            moved = self.emit(f"mul i64 {point.position}, {size}")
            return self.emit(f"getelementptr i8, ptr {pointer}, i64 {moved}"), size
        step = self.parameter(self.layout.accesses[access][2][self.kernel.vector_loop])
        moved = self.emit(f"mul i64 {point.position}, {step}")
        return self.emit(f"getelementptr i8, ptr {pointer}, i64 {moved}"), step

    def evaluate(self, number: int, point: Point, env: dict[int, Value]) -> Value:
        expression = self.kernel.expressions[number]
        kind = expression[0]
        b = self.b
        if kind == "op":
            _, instruction, dtype, operand_dtypes, arguments, attrs = expression
            return emit_instruction(b, instruction, dtype, operand_dtypes, [env[a] for a in arguments], attrs)
        if kind == "load":
            pointer, step = self.address(expression[1], point)
            if step == 0:
                return b.load_scalar(expression[2], pointer)
            return b.load_strided(expression[2], pointer, step, point.mask)
        if kind == "literal":
            return b.const(_parse_literal(expression[1]), REGISTER[expression[2]])
        if kind == "iota":
            return self._iota(expression[1], expression[2], point)
        if kind == "check":
            size, site = self.layout.checks[expression[2]]
            b.mask = point.mask
            b.site = self.parameter(site)
            return emit_instruction(
                b, "check_index", "int64", ("int64",), [env[expression[1]]], (self.parameter(size), "")
            )
        if kind == "lookup":
            pointer, step = self.address(expression[1], point)
            offsets = self._offsets(expression[3], env)
            if step != 0:
                lanes = b.mul(b.iota(), b.splat(str(step), "i64"))
                offsets = lanes if offsets is None else b.add(offsets, lanes)
            return b.gather(expression[2], pointer, offsets or b.const(0, "i64"), point.mask)
        raise KeyError(kind)

    def _offsets(self, terms: tuple[tuple[int, int], ...], env: dict[int, Value]) -> Value | None:
        """The sum of index * stride, in bytes."""
        b = self.b
        total: Value | None = None
        for argument, term in terms:
            product = b.mul(env[argument], b.splat(self.parameter(self.layout.terms[term]), "i64"))
            total = product if total is None else b.add(total, product)
        return total

    def _iota(self, number: int, dtype: str, point: Point) -> Value:
        b = self.b
        offset, strides = self.layout.iotas[number]
        coefficients = self.kernel.iotas[number][1]
        total = self.parameter(offset)
        lanes: Value | None = None
        for dim, coefficient in enumerate(coefficients):
            if coefficient == 0:
                continue
            vectorised = dim == self.kernel.vector_loop and point.position is not None
            index = point.position if vectorised else point.indices.get(dim)
            if index is None:
                continue
            step = self.parameter(strides[dim]) if dim in strides else "1"
            product = index if step == "1" else self.emit(f"mul i64 {index}, {step}")
            total = self.emit(f"add i64 {total}, {product}")
            if vectorised:
                lanes = b.iota() if step == "1" else b.mul(b.iota(), b.splat(step, "i64"))
        value = b.splat(total, "i64")
        if lanes is not None:
            value = b.add(value, lanes)
        return b.convert(value, "int64", dtype)

    def store(self, access: int, value: Value, point: Point) -> None:
        dtype = self.kernel.accesses[access].value.dtype.name
        pointer, step = self.address(access, point)
        if step == 0:
            self.b.store_scalar(dtype, pointer, value)
        else:
            self.b.store_strided(dtype, pointer, step, value, point.mask)

    # -- folds --------------------------------------------------------------------------------------------------------

    def accumulators(self, fold: int, copies: int) -> list[tuple[str, ...]]:
        """Stack slots for a fold, one for each copy of the body, set to the identity."""
        b = self.b
        instruction, dtype = self.kernel.folds[fold].instruction, self.kernel.folds[fold].dtype
        register = REGISTER[dtype]
        slots: list[tuple[str, ...]] = []
        for _ in range(copies):
            value = self.alloca(b.type(register))
            self.line(f"  store {b.typed(b.const(_identity(instruction, dtype), register))}, ptr {value}")
            if instruction in ("argmax", "argmin"):
                index = self.alloca(b.type("i64"))
                self.line(f"  store {b.typed(b.const(UNSET, 'i64'))}, ptr {index}")
                slots.append((value, index))
            else:
                slots.append((value,))
        return slots

    def accumulate(
        self, fold: int, slots: tuple[str, ...], value: Value, mask: Value | None, position: Callable[[], Value]
    ) -> None:
        """Fold one more vector into the accumulator; ``position`` gives each lane's place in the row."""
        b = self.b
        instruction = self.kernel.folds[fold].instruction
        before = Value(self.emit(f"load {b.type(value.dtype)}, ptr {slots[0]}"), value.dtype)
        if instruction not in ("argmax", "argmin"):
            after = b.combine(COMBINE[instruction], before, value)
            if mask is not None:
                after = b.select(mask, after, before)
            self.line(f"  store {b.typed(after)}, ptr {slots[0]}")
            return
        best = Value(self.emit(f"load {b.type('i64')}, ptr {slots[1]}"), "i64")
        better = b.cmp("gt" if instruction == "argmax" else "lt", value, before)
        better = b.binary("or", better, b.cmp("eq", best, b.const(UNSET, "i64")))
        if value.dtype[0] == "f":
            new_nan = b.cmp("uno", value, value)
            had_nan = b.cmp("uno", before, before)
            first_nan = b.binary("and", new_nan, b.binary("xor", had_nan, b.const(True, "i1")))
            better = b.binary("or", better, first_nan)
        if mask is not None:
            better = b.binary("and", better, mask)
        self.line(f"  store {b.typed(b.select(better, value, before))}, ptr {slots[0]}")
        self.line(f"  store {b.typed(b.select(better, position(), best))}, ptr {slots[1]}")

    def finish_rows(self, fold: int, slots: list[tuple[str, ...]]) -> Value:
        """The fold's value, in every lane, from accumulators that hold parts of one row."""
        b = self.b
        spec = self.kernel.folds[fold]
        register = REGISTER[spec.dtype]
        values = [Value(self.emit(f"load {b.type(register)}, ptr {s[0]}"), register) for s in slots]
        argument = spec.instruction in ("argmax", "argmin")
        how = {"argmax": "max", "argmin": "min"}.get(spec.instruction) or COMBINE[spec.instruction]
        total = b.horizontal(how, self._tree(how, values))
        if not argument:
            return total
        candidates = []
        for value, slot in zip(values, slots, strict=True):
            index = Value(self.emit(f"load {b.type('i64')}, ptr {slot[1]}"), "i64")
            equal = b.cmp("eq", value, total)
            if register[0] == "f":
                both_nan = b.binary("and", b.cmp("uno", value, value), b.cmp("uno", total, total))
                equal = b.binary("or", equal, both_nan)
            equal = b.binary("and", equal, b.cmp("ne", index, b.const(UNSET, "i64")))
            candidates.append(b.select(equal, index, b.const((1 << 63) - 1, "i64")))
        return b.horizontal("min", self._tree("min", candidates))

    def _tree(self, how: str, values: list[Value]) -> Value:
        while len(values) > 1:
            values = [
                self.b.combine(how, values[i], values[i + 1]) if i + 1 < len(values) else values[i]
                for i in range(0, len(values), 2)
            ]
        return values[0]

    def stage_roots(self, stage: int) -> list[int]:
        spec = self.kernel.stages[stage]
        return (
            [self.kernel.folds[n].argument for n in spec.folds]
            + [expression for _, expression in spec.stores]
            + [expression for expression, _ in spec.spills]
        )

    # -- modes --------------------------------------------------------------------------------------------------------

    def _scalar(self) -> None:
        point = Point(self.bases(), None, {}, None)
        env: dict[int, Value] = {}
        for stage in self.kernel.stages:
            self.evaluate_all([e for _, e in stage.stores], point, env)
            for access, expression in stage.stores:
                self.store(access, env[expression], point)

    def _map(self) -> None:
        bases = self.bases()
        stores = [store for stage in self.kernel.stages for store in stage.stores]
        roots = [expression for _, expression in stores]
        grid = self.kernel.grid_loops

        def run(pointers: list[str], indices: dict[int, str], start: str, stop: str) -> None:
            outer: dict[int, Value] = {}
            self.evaluate_outer(roots, Point(pointers, None, indices, None), outer)

            def body(positions: list[str], masks: list[Value | None]) -> None:
                for position, mask in zip(positions, masks, strict=True):
                    point = Point(pointers, position, indices, mask)
                    env = dict(outer)
                    self.evaluate_all(roots, point, env)
                    for access, expression in stores:
                        self.store(access, env[expression], point)

            self.vector_loop(start, stop, body)

        if not grid:
            run(bases, {}, "%lo", "%hi")
            return

        def task(number: str) -> None:
            indices = self.split_task(number, grid)
            extent = self.parameter(self.layout.extents[self.kernel.vector_loop])
            run(self.advance(bases, indices), indices, "0", extent)

        self.tasks(task)

    def row_extents(self, indices: dict[int, str]) -> dict[int, str]:
        """How far each row loop runs in this task: a chunk at the end may be short."""
        extents = {dim: self.parameter(self.layout.extents[dim]) for dim in self.kernel.row_loops}
        if self.kernel.chunks is not None:
            cut = self.kernel.row_loops[0]
            length = extents[cut]
            start = self.emit(f"mul i64 {indices[0]}, {length}")
            left = self.emit(f"sub i64 {self.parameter(self.layout.row_extent)}, {start}")
            self.b.declares["llvm.smin.i64"] = "declare i64 @llvm.smin.i64(i64, i64)"
            extents[cut] = self.emit(f"call i64 @llvm.smin.i64(i64 {length}, i64 {left})")
        return extents

    def nest(self, loops: list[int], extents: dict[int, str], body: Callable[[dict[int, str]], None]) -> None:
        """Nested counting loops, outermost first."""
        if not loops:
            body({})
            return
        first, rest = loops[0], loops[1:]
        self.loop("0", extents[first], 1, lambda i: self.nest(rest, extents, lambda inner: body({first: i, **inner})))

    def row_position(self, inner: dict[int, str], extents: dict[int, str], last: str | None) -> str:
        """The place in the row, counted in row-major order of the row loops; ``last`` is the innermost variable."""
        total: str | None = None
        for dim in self.kernel.row_loops:
            index = inner.get(dim, last)
            if index is None:
                continue
            if total is None:
                total = index
            else:
                scaled = self.emit(f"mul i64 {total}, {extents[dim]}")
                total = self.emit(f"add i64 {scaled}, {index}")
        return total or "0"

    def _row(self) -> None:
        bases = self.bases()
        kernel = self.kernel
        grid = kernel.grid_loops
        last = kernel.vector_loop
        walked = kernel.row_loops[:-1]

        def task(number: str) -> None:
            indices = self.split_task(number, grid)
            pointers = self.advance(bases, indices)
            extents = self.row_extents(indices)
            here = Point(pointers, None, indices, None)
            outer: dict[int, Value] = {}
            for stage_number, stage in enumerate(kernel.stages):
                roots = self.stage_roots(stage_number)
                self.evaluate_outer(roots, here, outer)
                slots = {fold: self.accumulators(fold, self.unroll) for fold in stage.folds}
                reloads = {e: self.scratch_row(row) for e, row in stage.reloads.items()}
                spills = [(e, self.scratch_row(row)) for e, row in stage.spills]

                def walk(
                    inner: dict[int, str], stage=stage, roots=roots, slots=slots, reloads=reloads, spills=spills
                ) -> None:
                    moved = self.advance(pointers, inner) if inner else pointers
                    everywhere = {**indices, **inner}

                    def body(positions: list[str], masks: list[Value | None]) -> None:
                        for copy, (position, mask) in enumerate(zip(positions, masks, strict=True)):
                            point = Point(moved, position, everywhere, mask)
                            env = dict(outer)
                            place = ""
                            if reloads or spills:
                                place = self.row_position(inner, extents, position)
                            for e, row in reloads.items():
                                dtype = expression_dtype(kernel.expressions[e])
                                env[e] = self.b.load(dtype, self.scratch_address(row, dtype, place))
                            self.evaluate_all(roots, point, env)
                            for access, e in stage.stores:
                                self.store(access, env[e], point)
                            for e, row in spills:
                                dtype = expression_dtype(kernel.expressions[e])
                                self.b.store(dtype, self.scratch_address(row, dtype, place), env[e], mask)
                            for fold in stage.folds:
                                self.accumulate(
                                    fold, slots[fold][copy], env[kernel.folds[fold].argument], mask,
                                    lambda position=position: self.b.add(
                                        self.b.splat(self.row_position(inner, extents, position), "i64"), self.b.iota()
                                    ),
                                )  # fmt: skip

                    self.vector_loop("0", extents[last], body)

                self.nest(walked, extents, walk)
                for fold in stage.folds:
                    value = self.finish_rows(fold, slots[fold])
                    for number_, expression in enumerate(kernel.expressions):
                        if expression[0] == "fold" and expression[1] == fold:
                            outer[number_] = value
            self._store_rows(here, outer)

        self.tasks(task)

    def _store_rows(self, point: Point, env: dict[int, Value]) -> None:
        self.evaluate_all([e for _, e in self.kernel.row_stores], point, env)
        for access, expression in self.kernel.row_stores:
            self.store(access, env[expression], point)

    def scratch_row(self, row: int) -> str:
        offset = self.parameter(self.layout.spills[row])
        return self.emit(f"getelementptr i8, ptr %scratch, i64 {offset}")

    def scratch_address(self, row: str, dtype: str, position: str) -> str:
        moved = self.emit(f"mul i64 {position}, {STORAGE_SIZE[dtype]}")
        return self.emit(f"getelementptr i8, ptr {row}, i64 {moved}")

    def _column(self) -> None:
        bases = self.bases()
        kernel = self.kernel
        grid = kernel.grid_loops
        last = kernel.vector_loop
        block = self.width * self.unroll

        def task(number: str) -> None:
            extent = self.parameter(self.layout.extents[last])
            padded = self.emit(f"add i64 {extent}, {block - 1}")
            blocks = self.emit(f"udiv i64 {padded}, {block}")
            which = self.emit(f"urem i64 {number}, {blocks}")
            rest = self.emit(f"udiv i64 {number}, {blocks}")
            indices = self.split_task(rest, grid)
            pointers = self.advance(bases, indices)
            start = self.emit(f"mul i64 {which}, {block}")
            stop = self.emit(f"add i64 {start}, {block}")
            positions = [start] + [self.emit(f"add i64 {start}, {u * self.width}") for u in range(1, self.unroll)]
            whole = self.emit(f"icmp sle i64 {stop}, {extent}")
            full, partly, done = self.label("full"), self.label("partly"), self.label("done")
            self.line(f"  br i1 {whole}, label %{full}, label %{partly}")
            self.mark(full)
            self._columns(pointers, indices, positions, [None] * self.unroll)
            self.line(f"  br label %{done}")
            self.mark(partly)
            masks: list[Value | None] = []
            self.b.declares["llvm.smax.i64"] = "declare i64 @llvm.smax.i64(i64, i64)"
            for position in positions:
                left = self.emit(f"sub i64 {extent}, {position}")
                masks.append(self.lanes_below(self.emit(f"call i64 @llvm.smax.i64(i64 {left}, i64 0)")))
            self._columns(pointers, indices, positions, masks)
            self.line(f"  br label %{done}")
            self.mark(done)

        self.tasks(task)

    def _columns(
        self, pointers: list[str], indices: dict[int, str], positions: list[str], masks: list[Value | None]
    ) -> None:
        """All stages over one block of columns."""
        kernel = self.kernel
        heads = [Point(pointers, p, indices, m) for p, m in zip(positions, masks, strict=True)]
        outers: list[dict[int, Value]] = [{} for _ in heads]
        extents = self.row_extents(indices)
        for stage_number, stage in enumerate(kernel.stages):
            roots = self.stage_roots(stage_number) + self._scatter_roots()
            for head, outer in zip(heads, outers, strict=True):
                self.evaluate_outer(roots, head, outer)
            slots = {fold: self.accumulators(fold, len(heads)) for fold in stage.folds}

            def row(inner: dict[int, str], stage=stage, roots=roots, slots=slots) -> None:
                moved = self.advance(pointers, inner)
                for copy, head in enumerate(heads):
                    point = Point(moved, head.position, {**indices, **inner}, head.mask)
                    env = dict(outers[copy])
                    self.evaluate_all(roots, point, env)
                    for access, e in stage.stores:
                        self.store(access, env[e], point)
                    if kernel.scatter is not None:
                        self._combine(point, env)
                    for fold in stage.folds:
                        self.accumulate(
                            fold, slots[fold][copy], env[kernel.folds[fold].argument], None,
                            lambda: self.b.splat(self.row_position(inner, extents, None), "i64"),
                        )  # fmt: skip

            self.nest(kernel.row_loops, extents, row)
            for fold in stage.folds:
                for copy, outer in enumerate(outers):
                    value = self._finish_column(fold, slots[fold][copy])
                    for number, expression in enumerate(kernel.expressions):
                        if expression[0] == "fold" and expression[1] == fold:
                            outer[number] = value
        for head, outer in zip(heads, outers, strict=True):
            self._store_rows(head, outer)

    def _finish_column(self, fold: int, slots: tuple[str, ...]) -> Value:
        register = REGISTER[self.kernel.folds[fold].dtype]
        if len(slots) == 2:
            return Value(self.emit(f"load {self.b.type('i64')}, ptr {slots[1]}"), "i64")
        return Value(self.emit(f"load {self.b.type(register)}, ptr {slots[0]}"), register)

    def _scatter_roots(self) -> list[int]:
        scatter = self.kernel.scatter
        return [] if scatter is None else [scatter.value, *(argument for argument, _ in scatter.terms)]

    def _combine(self, point: Point, env: dict[int, Value]) -> None:
        """One update of a scatter: read, combine, write."""
        scatter = self.kernel.scatter
        assert scatter is not None
        b = self.b
        dtype = self.kernel.accesses[scatter.access].value.dtype.name
        pointer, step = self.address(scatter.access, point)
        # Every lane writes to the same row: the indices do not depend on the column.
        offset = self._offsets(scatter.terms, env)
        if offset is not None:
            pointer = self.emit(f"getelementptr i8, ptr {pointer}, i64 {b.first(offset)}")
        value = env[scatter.value]
        distance = step if step != 0 else STORAGE_SIZE[dtype]
        if scatter.mode != "set":
            before = b.load_strided(dtype, pointer, distance, point.mask)
            how = {"add": "add", "multiply": "mul", "min": "min", "max": "max"}[scatter.mode]
            value = b.combine(how, before, value)
        b.store_strided(dtype, pointer, distance, value, point.mask)

    def _sequential(self) -> None:
        bases = self.bases()
        kernel = self.kernel

        def task(number: str) -> None:
            extents = {dim: self.parameter(self.layout.extents[dim]) for dim in kernel.row_loops}

            def row(inner: dict[int, str]) -> None:
                point = Point(self.advance(bases, inner), None, inner, None)
                env: dict[int, Value] = {}
                self.evaluate_all(self._scatter_roots(), point, env)
                self._combine(point, env)

            self.nest(kernel.row_loops, extents, row)

        self.tasks(task)


def _identity(instruction: str, dtype: str) -> float | int | bool:
    kind = by_name(dtype)
    if instruction == "add":
        return 0
    if instruction == "multiply":
        return 1
    if instruction in ("logical_or", "logical_and"):
        return instruction == "logical_and"
    largest = instruction in ("minimum", "argmin")
    if kind.kind == "f":
        return float("inf") if largest else float("-inf")
    if kind.kind == "b":
        return largest
    bits = 8 * kind.itemsize
    if kind.kind == "u":
        return (1 << bits) - 1 if largest else 0
    return (1 << (bits - 1)) - 1 if largest else -(1 << (bits - 1))


def _parse_literal(text: str) -> float | int | bool:
    if text in ("True", "False"):
        return text == "True"
    try:
        return int(text)
    except ValueError:
        return float(text)


def kernel_module(kernels: dict[str, Kernel], target: Target) -> str:
    """One module's text with a function for each named kernel."""
    declares: dict[str, str] = {}
    functions = []
    for name, kernel in kernels.items():
        emitter = KernelEmitter(kernel, target)
        functions.append(emitter.function(name))
        declares.update(emitter.declares)
    return "\n".join([*declares.values(), *functions])
