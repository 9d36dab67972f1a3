"""What every kernel's code is made of: the function around it, loops, addresses and expressions.

Accumulators are stack slots, like loop counters, that LLVM promotes to registers.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from ...dtypes import by_name
from ...errors import CompileError
from ..expressions import expression_arguments, expression_dtype
from ..loops import KNOWN_STEPS, Kernel
from ..stages import outer_expressions, uniform_expressions
from .builder import VectorBuilder
from .function import Code, Scalar
from .layout import ParameterLayout, main_width, unroll
from .scalar import emit as emit_instruction
from .scans import Carries, Scan
from .target import Target
from .values import REGISTER, STORAGE_SIZE, Value

RECORD_BAD_INDEX = """
define internal void @record_bad_index(ptr %slots, i64 %site, i64 %index, i64 %size) noinline cold {
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


@dataclass
class Point:
    """Where in the loops expressions are evaluated.

    pointers: for each access, its address with every loop applied but the vectorised one.
    position: the vectorised loop's variable in lane 0, or None where every lane is at the same point.
    indices: variables of the other loops.
    carries: of the scans along the walk that the point is on.
    """

    pointers: list[str]
    position: str | None
    indices: dict[int, str]
    mask: Value | None
    carries: Carries | None = None


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
        bits = f"i{self.width}"
        count = f"llvm.cttz.{bits}"
        self.declares[count] = f"declare {bits} @{count}({bits}, i1)"
        # In a function of its own: there are many checks, each little code.
        first = f"record_first_bad_index.v{self.width}"
        self.declares[first] = f"""
define internal void @{first}(ptr %slots, i64 %site, {self.type("i64")} %index, {bits} %lanes, \
i64 %size) noinline cold {{
  %lane = call {bits} @{count}({bits} %lanes, i1 true)
  %which = extractelement {self.type("i64")} %index, {bits} %lane
  call void @record_bad_index(ptr %slots, i64 %site, i64 %which, i64 %size)
  ret void
}}
"""
        self.lines.append(
            f"  call void @{first}(ptr %slots, i64 {self.site}, {self.typed(index)}, {bits} {lanes}, "
            f"i64 {size})"
        )
        self.lines.append(f"  br label %{go_on}")
        self.lines.append(f"{go_on}:")


class KernelEmitter(Code[_Builder]):
    """Writes one kernel."""

    def __init__(self, kernel: Kernel, target: Target) -> None:
        self.kernel = kernel
        self.target = target
        self.width = main_width(kernel, target)
        self.unroll = unroll(kernel)
        super().__init__(_Builder(self.width, target))
        self.b.labels = self.label
        self.layout = ParameterLayout.of(kernel)
        self.outer = outer_expressions(kernel)
        self.uniform = uniform_expressions(kernel)
        self._entry: list[str] = []
        self._parameters: dict[int, str] = {}
        self._zero_memory: str | None = None

    # -- text ---------------------------------------------------------------------------------------------------------

    def parameter(self, position: int) -> str:
        """The launch's parameter, loaded once at the function's entry."""
        found = self._parameters.get(position)
        if found is None:
            found = f"%p{position}"
            self._entry.append(f"  %pp{position} = getelementptr i64, ptr %params, i64 {position}")
            self._entry.append(f"  {found} = load i64, ptr %pp{position}")
            self._parameters[position] = found
        return found

    def finish(self, name: str) -> str:
        """The function around the lines written so far."""
        if self.kernel.streams:
            self.b.fence_streams()
        self.line("ret void")
        pointers = "ptr noalias %slots, ptr noalias %params, i64 %lo, i64 %hi, ptr noalias %scratch"
        head = [f"define void @{name}({pointers}) {{", "entry:"]
        return "\n".join([*head, *self.variables, *self._entry, "  br label %start", "start:", *self.b.lines, "}\n"])

    @property
    def declares(self) -> dict[str, str]:
        return self.b.declares

    # -- loops --------------------------------------------------------------------------------------------------------

    def row_extents(self, indices: dict[int, str]) -> dict[int, str]:
        """How far each row loop runs in this task: a chunk at the end may be short."""
        extents = {dim: self.parameter(self.layout.extents[dim]) for dim in self.kernel.row_loops}
        if self.kernel.chunks is not None:
            cut = self.kernel.row_loops[0]
            length = extents[cut]
            start = self.mul(indices[0], length)
            extents[cut] = self.min(length, self.sub(self.parameter(self.layout.row_extent), start))
        return extents

    def nest(self, loops: list[int], extents: dict[int, str], body: Callable[[dict[int, str]], None]) -> None:
        """Nested counting loops, outermost first; counting down where the kernel's rows are walked backwards."""
        if not loops:
            body({})
            return
        first, rest = loops[0], loops[1:]
        extent = extents[first]

        def inside(i: str) -> None:
            if self.kernel.reverse:
                i = self.sub(extent, i)
                i = self.sub(i, 1)
            self.nest(rest, extents, lambda inner: body({first: i, **inner}))

        self.loop("0", extent, 1, inside)

    def vector_loop(
        self,
        start: str,
        stop: str,
        body: Callable[[list[str], list[Value | None]], None],
        reverse: bool = False,
        singly: bool = False,
    ) -> None:
        """Call ``body(positions, masks)`` so that it covers ``start`` to ``stop``; ``reverse``: from the end on.

        singly: vectors that are whole but too few for the unrolled loop go unmasked, where a loop is often that short.
        """
        step = self.width * self.unroll
        if self.kernel.short:
            places = range(0, self.kernel.short, self.width)
            body([str(place) for place in places], [None] * len(places))
            return
        singly = singly and self.unroll > 1
        length = self.sub(stop, start)
        whole = self.emit(f"and i64 {length}, {-step}")
        middle = self.add(start, whole)

        def main(i: str) -> None:
            positions = [i] + [self.add(i, u * self.width) for u in range(1, self.unroll)]
            body(positions, [None] * self.unroll)

        def tail(i: str) -> None:
            remaining = self.sub(stop, i)
            body([i], [self.b.mask_below(remaining)])

        end = middle
        if singly:
            end = self.emit(f"add i64 {start}, {self.emit(f'and i64 {length}, {-self.width}')}")
        if not reverse:
            self.loop(start, middle, step, main)
            if singly:
                self.loop(middle, end, self.width, lambda i: body([i], [None]))
            self.loop(end, stop, self.width, tail)
            return
        last = self.sub(middle, step)
        last = self.add(last, start)
        self.loop(end, stop, self.width, tail)
        if singly:
            self.loop(middle, end, self.width, lambda i: body([i], [None]))
        self.loop(start, middle, step, lambda i: main(self.sub(last, i)))

    def interleave(self, copies: Iterable[Callable[[], None]]) -> None:
        """Write independent copies of a body so that their instructions alternate.

        Out-of-order execution sees tens of instructions ahead, fewer than one long body has: copies that follow each
        other would run one after the other.
        """
        lines = self.b.lines
        texts = []
        for copy in copies:
            self.b.lines = []
            copy()
            texts.append(self.b.lines)
        self.b.lines = lines
        if any(line.endswith(":") for text in texts for line in text):
            lines += itertools.chain.from_iterable(texts)
        else:
            columns = itertools.zip_longest(*texts)
            lines += [line for column in columns for line in column if line is not None]

    def tasks(self, body: Callable[[str], None]) -> None:
        """The tasks from ``%lo`` to ``%hi``; where rows go backwards so do they, because prefetching follows memory in
        one direction."""
        if not self.kernel.reverse:
            self.loop("%lo", "%hi", 1, body)
            return
        ends = self.add("%lo", "%hi")
        last = self.sub(ends, 1)
        self.loop("%lo", "%hi", 1, lambda i: body(self.sub(last, i)))

    def walk_tasks(self, loops: list[int], body: Callable[[dict[int, str]], None]) -> None:
        """The tasks from ``%lo`` to ``%hi``, each given the variables of ``loops``, which are counted on from task to
        task: where a task is a few vectors, the divisions of ``split_task`` take longer than its work."""
        if len(loops) < 2 or self.kernel.reverse:
            self.tasks(lambda number: body(self.split_task(number, loops)))
            return
        counters = {dim: self.variable() for dim in loops}
        for dim, first in self.split_task("%lo", loops).items():
            self.set(counters[dim], first)

        def task(_: str) -> None:
            indices = {dim: self.get(counter) for dim, counter in counters.items()}
            body(indices)
            step: Scalar = 1
            for dim in reversed(loops[1:]):
                following = self.add(indices[dim], step)
                is_over = self.test("eq", following, self.parameter(self.layout.extents[dim]))
                self.set(counters[dim], self.choose(is_over, 0, following))
                step = self.flag(is_over)
            self.set(counters[loops[0]], self.add(indices[loops[0]], step))

        self.tasks(task)

    def split_task(self, task: str, loops: list[int]) -> dict[int, str]:
        """The variables of ``loops``, outermost first, in task number ``task``."""
        indices: dict[int, str] = {}
        rest = task
        for dim in reversed(loops[1:]):
            extent = self.parameter(self.layout.extents[dim])
            indices[dim] = self.rem(rest, extent)
            rest = self.div(rest, extent)
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
        moved: list[str] = []
        ways: list[str] = []  # from the pointer to the one moved, in bytes; "" for none
        for number, pointer in enumerate(pointers):
            twin = self.kernel.twins[number]
            way = ways[twin] if twin < number else self._way(number, indices)
            ways.append(way)
            moved.append(self.at(pointer, way) if way else pointer)
        return moved

    def _way(self, number: int, indices: dict[int, str]) -> str:
        """How far the loops in ``indices`` move an access, in bytes; "" where they do not."""
        strides, access = self.layout.accesses[number][2], self.kernel.accesses[number]
        way = ""
        for dim, index in indices.items():
            if dim in strides:
                step = self.mul(index, self.parameter(strides[dim]))
            elif access.strides[dim] and dim == self.kernel.vector_loop:
                step = self.mul(index, access.strides[dim] * STORAGE_SIZE[access.value.dtype.name])
            else:
                continue
            way = self.add(way, step) if way else step
        return way

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
                env[number] = self.evaluate_once(number, point, env)

    def evaluate_all(self, roots: list[int], point: Point, env: dict[int, Value]) -> None:
        for number in self.needed(roots, set(env)):
            env[number] = self.evaluate(number, point, env)

    def evaluate_once(self, number: int, point: Point, env: dict[int, Value]) -> Value:
        """An expression ahead of a loop: an integer that all lanes share is computed in one, then spread."""
        expression = self.kernel.expressions[number]
        if self.width == 1 or not self.uniform[number] or by_name(expression_dtype(expression)).kind not in "iu":
            return self.evaluate(number, point, env)
        known = expression_arguments(expression)
        alone = replace(point, mask=None)  # it does not depend on which lanes there are
        with self.one_lane({argument: env[argument] for argument in known}) as narrow:
            value = self.evaluate(number, alone, narrow)
            scalar = self.b.first(value)
        return self.b.splat(scalar, value.dtype)

    @contextmanager
    def one_lane(self, env: dict[int, Value]) -> Iterator[dict[int, Value]]:
        """Code that is written inside is for one lane; gives ``env``, whose lanes are all alike, of that width."""
        wide = self.b
        self.b = wide.at_width(1)
        try:
            yield {number: self.b.splat(wide.first(value), value.dtype) for number, value in env.items()}
        finally:
            self.b = wide

    def address(self, access: int, point: Point) -> tuple[str, str | int]:
        """The address in lane 0, and the distance between lanes in bytes."""
        dtype = self.kernel.accesses[access].value.dtype.name
        stride = self.kernel.accesses[access].strides[-1] if self.kernel.domain else 0
        pointer = point.pointers[access]
        if point.position is None or stride == 0:
            return pointer, 0
        if stride in KNOWN_STEPS:
            distance = stride * STORAGE_SIZE[dtype]
            moved = self.mul(point.position, distance)
            return self.at(pointer, moved), distance
        step = self.parameter(self.layout.accesses[access][2][self.kernel.vector_loop])
        moved = self.mul(point.position, step)
        return self.at(pointer, moved), step

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
        if kind == "shifted":
            return self._shifted(expression, point)
        if kind == "inside":
            return self._inside(expression[1], point)
        if kind == "guarded":
            return self._guarded(expression, point)
        if kind == "scan":
            if point.carries is None:
                raise CompileError(f"no walk carries the scan {expression}")
            in_row = self.kernel.mode == "row"
            operands = [env[a] for a in expression[3]]
            return point.carries.advance(b, number, operands, point.mask, in_row, self.kernel.reverse)
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
            return self._lookup(expression, point, env)
        raise KeyError(kind)

    def _lookup(self, expression: tuple[Any, ...], point: Point, env: dict[int, Value]) -> Value:
        """The element that the indices choose: where all lanes have the same indices, of a row as if it were given."""
        b = self.b
        _, access, dtype, terms = expression
        pointer, step = self.address(access, point)
        offsets = self._offsets(terms, env)
        if offsets is not None and all(self.uniform[argument] for argument, _ in terms):
            pointer = self.at(pointer, b.first(offsets))
            offsets = None
        if offsets is None:
            return b.load_scalar(dtype, pointer) if step == 0 else b.load_strided(dtype, pointer, step, point.mask)
        if step != 0:
            offsets = b.add(offsets, b.mul(b.iota(), b.splat(str(step), "i64")))
        return b.gather(dtype, pointer, offsets, point.mask)

    def scans(self, roots: list[int], known: set[int]) -> dict[int, Scan]:
        """The scans that ``roots`` need, by expression."""
        found: dict[int, Scan] = {}
        for number in self.needed(roots, known):
            expression = self.kernel.expressions[number]
            if expression[0] == "scan":
                found[number] = Scan(expression[1], expression[2], expression[4])
        return found

    def carries(self, roots: list[int], known: set[int]) -> Carries:
        """Slots for the scans that ``roots`` need, set to their start."""
        return Carries.allocate(self.b, self.variable, self.scans(roots, known))

    def _shifted(self, expression: tuple[Any, ...], point: Point) -> Value:
        """The element some steps away, 0 where there is none; nothing outside the buffer is read."""
        b = self.b
        _, access, dtype, moved, guard = expression
        inside = b.cmp("ge", self._iota(guard, "int64", point), b.const(0, "i64"))
        pointer, step = self.address(moved, point)
        mask = point.mask
        coefficients = self.kernel.iotas[guard][1]
        if point.position is not None and coefficients[self.kernel.vector_loop]:
            mask = inside if mask is None else b.and_(inside, mask)
        else:
            # Every lane is inside, or none is: then the element that is not moved is read, and not used.
            safe, _ = self.address(access, point)
            pointer = self.emit(f"select i1 {b.first(inside)}, ptr {pointer}, ptr {safe}")
        value = b.load_scalar(dtype, pointer) if step == 0 else b.load_strided(dtype, pointer, step, mask)
        return b.select(inside, value, b.const(0, value.dtype))

    def _inside(self, guards: tuple[tuple[int, bool], ...], point: Point) -> Value:
        """Whether the linear forms are negative, or not, each as its guard says."""
        b = self.b
        inside = []
        for guard, below in guards:
            total, step = self._linear(guard, point)
            if step == "1":  # then the first lanes are, up to some lane
                negative = b.mask_below(self.max(self.sub(0, total), 0))
                inside.append(negative if below else b.not_(negative))
            else:
                form = b.splat(total, "i64")
                if step is not None:
                    form = b.add(form, b.mul(b.iota(), b.splat(step, "i64")))
                inside.append(b.cmp("lt" if below else "ge", form, b.const(0, "i64")))
        return functools.reduce(b.and_, inside)

    def _guarded(self, expression: tuple[Any, ...], point: Point) -> Value:
        """The element at an access where the guards allow it, else 0; nothing outside of the buffer is read."""
        b = self.b
        _, access, dtype, guards = expression
        inside = self._inside(guards, point)
        pointer, step = self.address(access, point)
        steps = [step for guard, _ in guards for step in self.kernel.iotas[guard][1][-1:]]
        if (point.position is None or not any(steps)) and step in (0, STORAGE_SIZE[dtype]):
            # Every lane is inside, or none is: then zeros are read instead.
            pointer = self.emit(f"select i1 {b.first(inside)}, ptr {pointer}, ptr {self._zeros()}")
            return b.load_scalar(dtype, pointer) if step == 0 else b.load(dtype, pointer, point.mask)
        mask = inside if point.mask is None else b.and_(inside, point.mask)
        if step == 0:
            return b.gather(dtype, pointer, b.const(0, "i64"), mask)
        return b.load_strided(dtype, pointer, step, mask)

    def _zeros(self) -> str:
        """Memory for a vector of zeros."""
        if self._zero_memory is None:
            kind = f"[{8 * self.width} x i8]"
            self._zero_memory = self.variable(f"{kind}, align 64")
            self._entry.append(f"  store {kind} zeroinitializer, ptr {self._zero_memory}")
        return self._zero_memory

    def _offsets(self, terms: tuple[tuple[int, int], ...], env: dict[int, Value]) -> Value | None:
        """The sum of index * stride, in bytes."""
        b = self.b
        total: Value | None = None
        for argument, term in terms:
            product = b.mul(env[argument], b.splat(self.parameter(self.layout.terms[term]), "i64"))
            total = product if total is None else b.add(total, product)
        return total

    def _linear(self, number: int, point: Point) -> tuple[str, str | None]:
        """A linear form's value in lane 0, and its step from lane to lane; None where all lanes are alike."""
        offset, strides = self.layout.iotas[number]
        coefficients = self.kernel.iotas[number][1]
        total = self.parameter(offset)
        lanes: str | None = None
        for dim, coefficient in enumerate(coefficients):
            if coefficient == 0:
                continue
            vectorised = dim == self.kernel.vector_loop and point.position is not None
            index = point.position if vectorised else point.indices.get(dim)
            if index is None:
                continue
            step = self.parameter(strides[dim]) if dim in strides else "1"
            product = index if step == "1" else self.mul(index, step)
            total = self.add(total, product)
            if vectorised:
                lanes = step
        return total, lanes

    def _iota(self, number: int, dtype: str, point: Point) -> Value:
        b = self.b
        total, step = self._linear(number, point)
        value = b.splat(total, "i64")
        if step is not None:
            value = b.add(value, b.iota() if step == "1" else b.mul(b.iota(), b.splat(step, "i64")))
        return b.convert(value, "int64", dtype)

    def store(self, access: int, value: Value, point: Point) -> None:
        dtype = self.kernel.accesses[access].value.dtype.name
        pointer, step = self.address(access, point)
        if step == 0:
            self.b.store_scalar(dtype, pointer, value)
        elif access in self.kernel.streams and point.mask is None:
            self.b.store_stream(dtype, pointer, value)
        else:
            self.b.store_strided(dtype, pointer, step, value, point.mask)


def _parse_literal(text: str) -> float | int | bool:
    if text in ("True", "False"):
        return text == "True"
    try:
        return int(text)
    except ValueError:
        return float(text)
