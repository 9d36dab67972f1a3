"""Folds in vector registers: accumulators, one for each copy of the body, and how they end in one value a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..loops import Kernel
from .combine import COMBINE, identity
from .emitter import KernelEmitter
from .layout import SLOT_BYTES, Record, element_register
from .target import Target
from .values import REGISTER, Value

UNSET = -1  # the index that an argmax accumulator starts with
SETTLE_AFTER = 32  # additions into one float32 lane before it is emptied: 1e-7 of rounding, a twentieth of the work

Groups = Mapping[int, Sequence[Sequence[tuple[str, ...]]]]  # for each fold, accumulators that share a float64 sum


@dataclass
class WideSums:
    """float64 sums into which float32 accumulators are emptied now and then, so that a mean of 1e8 elements is right.

    slots: for each fold that has them, one for each group.   count: additions since they were emptied.
    """

    slots: dict[int, list[str]]
    count: str


class FoldEmitter(KernelEmitter):
    """Adds reductions to the emitter."""

    def __init__(self, kernel: Kernel, target: Target) -> None:
        super().__init__(kernel, target)
        self.record = Record.of(kernel, self.width)

    def wide_sums(self, folds: Sequence[int], groups: int) -> WideSums | None:
        """Sums for the float32 additions among ``folds``, set to 0; None if there are none. (A scan's walk has none: it
        cannot be cut.)"""
        specs = self.kernel.folds
        sums = [n for n in folds if specs[n].instruction == "add" and REGISTER[specs[n].dtype] == "f32"]
        if not sums or not self.kernel.wide or self.kernel.has_scan or self.kernel.reverse:
            return None
        b = self.b
        slots = {n: [self.variable(b.type("f64")) for _ in range(groups)] for n in sums}
        for slot in (slot for group in slots.values() for slot in group):
            self.line(f"store {b.typed(b.const(0.0, 'f64'))}, ptr {slot}")
        count = self.variable()
        self.set(count, 0)
        return WideSums(slots, count)

    def settle(self, wide: WideSums, groups: Groups, additions: str) -> None:
        """After ``additions`` more into each lane: empty the accumulators if they have had enough."""
        total = self.add(self.get(wide.count), additions)
        self.set(wide.count, total)

        def empty() -> None:
            zero = self.b.typed(self.b.const(0.0, "f32"))
            for fold, sums in wide.slots.items():
                for slot, group in zip(sums, groups[fold], strict=True):
                    self.line(f"store {self.b.typed(self._widened(slot, group))}, ptr {slot}")
                    for accumulator in group:
                        self.line(f"store {zero}, ptr {accumulator[0]}")
            self.set(wide.count, 0)

        self.when(self.test("sge", total, SETTLE_AFTER), empty)

    def _widened(self, slot: str, group: Sequence[tuple[str, ...]]) -> Value:
        """A float64 sum with what its accumulators hold."""
        b = self.b
        values = [Value(self.emit(f"load {b.type('f32')}, ptr {a[0]}"), "f32") for a in group]
        before = Value(self.emit(f"load {b.type('f64')}, ptr {slot}"), "f64")
        return b.add(before, b.cast(self._tree("add", values), "f64"))

    def accumulators(self, fold: int, copies: int) -> list[tuple[str, ...]]:
        """Stack slots for a fold, one for each copy of the body, set to the identity."""
        b = self.b
        instruction, dtype = self.kernel.folds[fold].instruction, self.kernel.folds[fold].dtype
        register = REGISTER[dtype]
        slots: list[tuple[str, ...]] = []
        for _ in range(copies):
            value = self.variable(b.type(register))
            self.line(f"store {b.typed(b.const(identity(instruction, dtype), register))}, ptr {value}")
            if instruction in ("argmax", "argmin"):
                index = self.variable(b.type("i64"))
                self.line(f"store {b.typed(b.const(UNSET, 'i64'))}, ptr {index}")
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
            self.line(f"store {b.typed(after)}, ptr {slots[0]}")
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
        self.line(f"store {b.typed(b.select(better, value, before))}, ptr {slots[0]}")
        self.line(f"store {b.typed(b.select(better, position(), best))}, ptr {slots[1]}")

    def finish_rows(self, fold: int, slots: list[tuple[str, ...]], wide: WideSums | None) -> Value:
        """The fold's value, in every lane, from accumulators that hold parts of one row."""
        b = self.b
        if wide is not None and fold in wide.slots:
            return b.cast(b.horizontal("add", self._widened(wide.slots[fold][0], slots)), "f32")
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

    def finish_column(self, fold: int, slots: tuple[str, ...], wide: WideSums | None, copy: int) -> Value:
        """The fold's value in each lane, where every lane has its own column."""
        if wide is not None and fold in wide.slots:
            return self.b.cast(self._widened(wide.slots[fold][copy], [slots]), "f32")
        register = REGISTER[self.kernel.folds[fold].dtype]
        if len(slots) == 2:
            return Value(self.emit(f"load {self.b.type('i64')}, ptr {slots[1]}"), "i64")
        return Value(self.emit(f"load {self.b.type(register)}, ptr {slots[0]}"), register)

    # -- folds of many columns at once, whose accumulators are in scratch memory ---------------------------------------

    def _element(self, fold: int, record: str) -> tuple[str, str]:
        """The register of an accumulator, and its address in a vector's record."""
        offset = self.record.folds[fold]
        slot = record if offset == 0 else self.at(record, offset)
        return element_register(self.kernel, fold), slot

    def _load_element(self, register: str, slot: str) -> Value:
        return Value(self.emit(f"load {self.b.type(register)}, ptr {slot}, align {SLOT_BYTES}"), register)

    def _store_element(self, value: Value, slot: str) -> None:
        self.line(f"store {self.b.typed(value)}, ptr {slot}, align {SLOT_BYTES}")

    def reset_element(self, fold: int, record: str) -> None:
        """Set one accumulator to the fold's identity."""
        register, slot = self._element(fold, record)
        spec = self.kernel.folds[fold]
        self._store_element(self.b.const(identity(spec.instruction, spec.dtype), register), slot)

    def accumulate_element(self, fold: int, record: str, values: Sequence[Value]) -> None:
        """Fold more rows, at least one, into an accumulator; float32 values of a float64 sum are added beforehand, with
        a rounding each. Lanes beyond the last column hold anything: nobody reads them."""
        b = self.b
        register, slot = self._element(fold, record)
        total = self._load_element(register, slot)
        how = COMBINE[self.kernel.folds[fold].instruction]
        if register != values[0].dtype:
            values = [self._tree(how, list(values))]
        for value in values:
            total = b.combine(how, total, b.cast(value, register))
        self._store_element(total, slot)

    def finish_element(self, fold: int, record: str) -> Value:
        """The fold's value for one vector of columns."""
        register, slot = self._element(fold, record)
        return self.b.cast(self._load_element(register, slot), REGISTER[self.kernel.folds[fold].dtype])

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
            + [side.argument for side in self.kernel.sides if side.stage == stage]
        )
