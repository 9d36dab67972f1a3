"""Folds in vector registers: accumulators, one for each copy of the body, and how they end in one value a row."""

from __future__ import annotations

from collections.abc import Callable

from .combine import COMBINE, identity
from .emitter import KernelEmitter
from .values import REGISTER, Value

UNSET = -1  # the index that an argmax accumulator starts with


class FoldEmitter(KernelEmitter):
    """Adds reductions to the emitter."""

    def accumulators(self, fold: int, copies: int) -> list[tuple[str, ...]]:
        """Stack slots for a fold, one for each copy of the body, set to the identity."""
        b = self.b
        instruction, dtype = self.kernel.folds[fold].instruction, self.kernel.folds[fold].dtype
        register = REGISTER[dtype]
        slots: list[tuple[str, ...]] = []
        for _ in range(copies):
            value = self.alloca(b.type(register))
            self.line(f"  store {b.typed(b.const(identity(instruction, dtype), register))}, ptr {value}")
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

    def finish_column(self, fold: int, slots: tuple[str, ...]) -> Value:
        """The fold's value in each lane, where every lane has its own column."""
        register = REGISTER[self.kernel.folds[fold].dtype]
        if len(slots) == 2:
            return Value(self.emit(f"load {self.b.type('i64')}, ptr {slots[1]}"), "i64")
        return Value(self.emit(f"load {self.b.type(register)}, ptr {slots[0]}"), register)

    def publish(self, fold: int, value: Value, env: dict[int, Value]) -> None:
        """Let expressions that read the finished fold find it."""
        for number, expression in enumerate(self.kernel.expressions):
            if expression[0] == "fold" and expression[1] == fold:
                env[number] = value

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
