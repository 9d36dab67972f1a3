"""Scans in vector registers: one step of a recurrence for each lane, or as many steps of one row as there are lanes.

Between steps the running value, the *carry*, lies in a stack slot that LLVM promotes to a register. A float32 sum,
product or gated recurrence is carried in float64, half types in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .builder import VectorBuilder
from .combine import COMBINE, identity
from .values import LLVM_TYPE, REGISTER, Value, is_float

GATED = ("gated", "strong")
SLOT_ALIGNMENT = 16  # of a carry at least, on the stack or in scratch memory


@dataclass(frozen=True)
class Scan:
    """A scan expression. variant: exclusive; of a strong scan whether its gates come late."""

    instruction: str
    dtype: str
    variant: bool

    @property
    def register(self) -> str:
        """The register dtype of the carry."""
        if self.dtype == "float32" and self.instruction not in ("maximum", "minimum"):
            return "f64"
        return REGISTER[self.dtype]

    @property
    def is_parallel(self) -> bool:
        """Whether the steps of one row may be combined in any grouping: not products of floats, in which a part may
        overflow although the whole does not."""
        return self.instruction not in GATED and not (self.instruction == "multiply" and is_float(self.register))

    def start(self) -> float | int | bool:
        """The first carry. A sum starts from -0, which keeps the sign of a zero, but what is before all elements is
        0."""
        if self.instruction in GATED:
            return 0
        if self.instruction == "add" and is_float(self.register) and not self.variant:
            return -0.0
        return identity(self.instruction, self.dtype)

    def neutral(self, operand: int) -> float | int | bool:
        """An operand of a step that leaves the carry as it is."""
        if self.instruction in GATED:
            return (1, -0.0)[operand]
        if self.instruction == "add" and is_float(self.register):
            return -0.0
        return identity(self.instruction, self.dtype)


def step(b: VectorBuilder, scan: Scan, before: Value, operands: Sequence[Value]) -> tuple[Value, Value]:
    """The value at this step and the carry to the next, each lane by itself."""
    if scan.instruction not in GATED:
        after = b.combine(COMBINE[scan.instruction], before, operands[0])
        return (before if scan.variant else after), after
    gate, term = operands
    if scan.instruction == "gated":
        value = b.fma(before, gate, term)
        return value, value
    if scan.variant:
        value = b.add(before, term)
        return value, _strong(b, value, gate)
    value = _strong_step(b, before, gate, term)
    return value, value


def _strong_step(b: VectorBuilder, before: Value, gate: Value, term: Value) -> Value:
    """``before * gate + term``, zeros strong: the comparisons are beside the product, not behind it."""
    return b.select(_either_zero(b, before, gate), term, b.fma(before, gate, term))


def _strong(b: VectorBuilder, x: Value, gate: Value) -> Value:
    return b.select(_either_zero(b, x, gate), b.const(0, x.dtype), b.mul(x, gate))


def _either_zero(b: VectorBuilder, x: Value, gate: Value) -> Value:
    zero = b.const(0, x.dtype)
    return b.or_(b.cmp("eq", x, zero), b.cmp("eq", gate, zero))


def scan_lanes(
    b: VectorBuilder, scan: Scan, before: Value, operands: Sequence[Value], mask: Value | None, reverse: bool
) -> tuple[Value, Value]:
    """The values at as many steps of one row as there are lanes (the last lane first if ``reverse``), and the carry.

    before and the carry hold one number in every lane. Steps that the mask leaves out change nothing.
    """
    if mask is not None:
        operands = [b.select(mask, x, b.const(scan.neutral(i), x.dtype)) for i, x in enumerate(operands)]
    return (_prefix if scan.is_parallel else _in_order)(b, scan, before, operands, reverse)


def _moved(b: VectorBuilder, value: Value, filler: Value, distance: int, reverse: bool) -> Value:
    """Every lane's value ``distance`` steps later, ``filler`` in the lanes before."""
    lanes = []
    for lane in range(b.width):
        source = lane + distance if reverse else lane - distance
        lanes.append(source if 0 <= source < b.width else b.width)
    chosen = ", ".join(f"i32 {lane}" for lane in lanes)
    kind = b.type(value.dtype)
    return b.pure(f"shufflevector {kind} {value.ref}, {kind} {filler.ref}, <{b.width} x i32> <{chosen}>", value.dtype)


def _everywhere(b: VectorBuilder, value: Value, lane: int) -> Value:
    """One lane in every lane."""
    kind = b.type(value.dtype)
    chosen = ", ".join([f"i32 {lane}"] * b.width)
    return b.pure(f"shufflevector {kind} {value.ref}, {kind} poison, <{b.width} x i32> <{chosen}>", value.dtype)


def _prefix(
    b: VectorBuilder, scan: Scan, before: Value, operands: Sequence[Value], reverse: bool
) -> tuple[Value, Value]:
    """Combined in steps of 1, 2, 4... lanes, so that from one vector to the next there is one operation to wait for."""
    how = COMBINE[scan.instruction]
    running = operands[0]
    neutral = b.const(scan.neutral(0), running.dtype)
    distance = 1
    while distance < b.width:
        running = b.combine(how, _moved(b, running, neutral, distance, reverse), running)
        distance *= 2
    last = 0 if reverse else b.width - 1
    carry = b.combine(how, before, _everywhere(b, running, last))
    if scan.variant:
        running = _moved(b, running, neutral, 1, reverse)
    return b.combine(how, before, running), carry


def _in_order(
    b: VectorBuilder, scan: Scan, before: Value, operands: Sequence[Value], reverse: bool
) -> tuple[Value, Value]:
    """One lane after the other."""
    one = b.at_width(1)

    carry = b.lane(before, 0)
    result = Value("poison", before.dtype)
    last: tuple[Value, Value] | None = None  # of a late gate: the value and the gate of the lane before
    for number in reversed(range(b.width)) if reverse else range(b.width):
        here = [b.lane(x, number) for x in operands]
        value, carry = step(one, scan, carry, here)
        if scan.instruction == "strong" and scan.variant:
            # One multiply-add from value to value: the carry, a product, is only for the next vector.
            if last is not None:
                value = _strong_step(one, *last, here[1])
                carry = _strong(one, value, here[0])
            last = value, here[0]
        element = f"{LLVM_TYPE[value.dtype]} {one.first(value)}"
        result = b.pure(f"insertelement {b.typed(result)}, {element}, i64 {number}", before.dtype)
    return result, b.splat(one.first(carry), carry.dtype)


@dataclass(frozen=True)
class Carries:
    """The scans of one walk and where their carries are, by the number of the scan's expression."""

    scans: dict[int, Scan]
    slots: dict[int, str]

    @classmethod
    def allocate(cls, b: VectorBuilder, alloca: Callable[[str], str], scans: dict[int, Scan]) -> Carries:
        """Slots on the stack for one vector of each scan, set to its start."""
        carries = cls(scans, {n: alloca(f"{b.type(scan.register)}, align 64") for n, scan in scans.items()})
        carries.reset(b)
        return carries

    def reset(self, b: VectorBuilder) -> None:
        """Set the carries to where the scans start."""
        for number, scan in self.scans.items():
            start = b.typed(b.const(scan.start(), scan.register))
            b.lines.append(f"  store {start}, ptr {self.slots[number]}, align {SLOT_ALIGNMENT}")

    def advance(
        self, b: VectorBuilder, number: int, operands: Sequence[Value], mask: Value | None, in_row: bool, reverse: bool
    ) -> Value:
        """The scan's value here; its carry is moved on. in_row: the lanes are steps of one row."""
        scan, slot = self.scans[number], self.slots[number]
        wide = [b.cast(x, scan.register) for x in operands]
        before = Value(b.emit(f"load {b.type(scan.register)}, ptr {slot}, align {SLOT_ALIGNMENT}"), scan.register)
        if in_row:
            value, carry = scan_lanes(b, scan, before, wide, mask, reverse)
        else:
            value, carry = step(b, scan, before, wide)
        b.lines.append(f"  store {b.typed(carry)}, ptr {slot}, align {SLOT_ALIGNMENT}")
        return b.cast(value, REGISTER[scan.dtype])
