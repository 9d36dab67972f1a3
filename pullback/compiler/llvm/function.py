"""Writing one native function as LLVM IR text: structured control flow around a vector builder."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Generic, TypeVar

from .builder import VectorBuilder
from .target import Target
from .values import Value

B = TypeVar("B", bound=VectorBuilder)

UNROLL = 4  # bodies in one turn of a loop
Scalar = str | int  # an i64: an SSA name or a number


class Code(Generic[B]):
    """The code of a function in the making. ``b`` writes the vector instructions; the methods write scalar i64 code.

    Loop counters and variables live on the stack until LLVM promotes them.
    """

    def __init__(self, b: B) -> None:
        self.b = b
        self.variables: list[str] = []  # for the function's entry
        self._numbers = itertools.count(1)

    # -- scalars ------------------------------------------------------------------------------------------------------

    def emit(self, text: str) -> str:
        return self.b.emit(text)

    def line(self, text: str) -> None:
        self.b.lines.append(f"  {text}")

    def add(self, x: Scalar, y: Scalar) -> str:
        return self.emit(f"add i64 {x}, {y}")

    def sub(self, x: Scalar, y: Scalar) -> str:
        return self.emit(f"sub i64 {x}, {y}")

    def mul(self, x: Scalar, y: Scalar) -> str:
        return self.emit(f"mul i64 {x}, {y}")

    def div(self, x: Scalar, y: Scalar) -> str:
        """The quotient of numbers that are not negative."""
        return self.emit(f"udiv i64 {x}, {y}")

    def rem(self, x: Scalar, y: Scalar) -> str:
        return self.emit(f"urem i64 {x}, {y}")

    def min(self, x: Scalar, y: Scalar) -> str:
        self.b.declare("llvm.smin.i64", "i64", "i64", "i64")
        return self.emit(f"call i64 @llvm.smin.i64(i64 {x}, i64 {y})")

    def max(self, x: Scalar, y: Scalar) -> str:
        self.b.declare("llvm.smax.i64", "i64", "i64", "i64")
        return self.emit(f"call i64 @llvm.smax.i64(i64 {x}, i64 {y})")

    def test(self, predicate: str, x: Scalar, y: Scalar) -> str:
        return self.emit(f"icmp {predicate} i64 {x}, {y}")

    def flag(self, condition: str) -> str:
        """1 where ``condition`` holds, else 0."""
        return self.emit(f"zext i1 {condition} to i64")

    def choose(self, condition: str, x: Scalar, y: Scalar) -> str:
        return self.emit(f"select i1 {condition}, i64 {x}, i64 {y}")

    def at(self, pointer: str, nbytes: Scalar) -> str:
        """The address ``nbytes`` behind ``pointer``."""
        return self.emit(f"getelementptr i8, ptr {pointer}, i64 {nbytes}")

    def word(self, pointer: str, index: Scalar) -> str:
        """The i64 number ``index`` behind ``pointer``."""
        return self.emit(f"load i64, ptr {self.emit(f'getelementptr i64, ptr {pointer}, i64 {index}')}")

    def set_word(self, pointer: str, index: Scalar, value: Scalar) -> None:
        self.line(f"store i64 {value}, ptr {self.emit(f'getelementptr i64, ptr {pointer}, i64 {index}')}")

    # -- variables and control flow -----------------------------------------------------------------------------------

    def variable(self, kind: str = "i64") -> str:
        """The address of a new variable."""
        name = f"%x{next(self._numbers)}"
        self.variables.append(f"  {name} = alloca {kind}")
        return name

    def get(self, variable: str, kind: str = "i64") -> str:
        return self.emit(f"load {kind}, ptr {variable}")

    def set(self, variable: str, value: Scalar, kind: str = "i64") -> None:
        self.line(f"store {kind} {value}, ptr {variable}")

    def label(self, name: str) -> str:
        """A new label."""
        return f"{name}{next(self._numbers)}"

    def mark(self, label: str) -> None:
        """What follows is where ``label`` leads."""
        self.b.lines.append(f"{label}:")

    def loop(self, start: Scalar, stop: Scalar, step: Scalar, body: Callable[[str], None]) -> None:
        """``for i in range(start, stop, step): body(i)``, with a positive step."""
        counter = self.variable()
        head, inside, done = self.label("head"), self.label("body"), self.label("done")
        self.set(counter, start)
        self.line(f"br label %{head}")
        self.mark(head)
        i = self.get(counter)
        self.line(f"br i1 {self.test('slt', i, stop)}, label %{inside}, label %{done}")
        self.mark(inside)
        body(i)
        self.set(counter, self.add(i, step))
        self.line(f"br label %{head}")
        self.mark(done)

    def unrolled(self, count: Scalar, body: Callable[[str, int], None]) -> None:
        """``body(i, number)`` for i + number from 0 to ``count``, UNROLL of them at a time."""

        def several(i: str) -> None:
            for number in range(UNROLL):
                body(i, number)

        whole = self.emit(f"and i64 {count}, {-UNROLL}")
        self.loop(0, whole, UNROLL, several)
        self.loop(whole, count, 1, lambda i: body(i, 0))

    def each_vector(self, stop: Scalar, body: Callable[[str, Value | None], None], start: Scalar = 0) -> None:
        """``body(i, mask)`` for each vector from ``start`` to ``stop``; mask: of the last, if it is short."""
        lanes = self.b.width
        middle = self.emit(f"and i64 {self.sub(stop, start) if start else stop}, {-lanes}")
        if start:
            middle = self.add(start, middle)
        self.loop(start, middle, lanes, lambda i: body(i, None))
        self.loop(middle, stop, lanes, lambda i: body(i, self.b.mask_below(self.sub(stop, i))))

    def repeat(self, condition: Callable[[], str], body: Callable[[], None]) -> None:
        """``while condition(): body()``."""
        head, inside, done = self.label("while"), self.label("do"), self.label("done")
        self.line(f"br label %{head}")
        self.mark(head)
        self.line(f"br i1 {condition()}, label %{inside}, label %{done}")
        self.mark(inside)
        body()
        self.line(f"br label %{head}")
        self.mark(done)

    def when(
        self, condition: str, body: Callable[[], None], otherwise: Callable[[], None] | None = None
    ) -> None:
        """``if condition: body()``, and ``else: otherwise()``."""
        yes, no, done = self.label("then"), self.label("else"), self.label("end")
        self.line(f"br i1 {condition}, label %{yes}, label %{no if otherwise else done}")
        self.mark(yes)
        body()
        self.line(f"br label %{done}")
        if otherwise:
            self.mark(no)
            otherwise()
            self.line(f"br label %{done}")
        self.mark(done)


class Function(Code[VectorBuilder]):
    """A native function of a library.

    arguments: (type, name) of each.   is_public: else it is called within its module only.
    """

    def __init__(
        self, name: str, arguments: tuple[tuple[str, str], ...], target: Target, width: int,
        declares: dict[str, str], is_public: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(VectorBuilder(width, target, declares=declares))
        self.name = name
        self._is_public = is_public
        self._arguments = arguments

    def text(self) -> str:
        """The finished function."""
        arguments = ", ".join(f"{kind} %{name}" for kind, name in self._arguments)
        linkage, attributes = ("", "") if self._is_public else ("internal ", "noinline ")
        head = [f"define {linkage}void @{self.name}({arguments}) {attributes}{{", "entry:", *self.variables]
        return "\n".join([*head, "  br label %start", "start:", *self.b.lines, "  ret void\n}\n"])
