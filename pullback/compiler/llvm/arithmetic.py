"""Arithmetic on vectors, written as LLVM IR text.

The half of the builder that touches no memory: constants, arithmetic, comparison, selection, rounding and conversion.
It knows which instructions a target lacks and what LLVM would turn into a slow sequence or a library call.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from typing import Self

from .target import Target
from .values import BITS, LLVM_TYPE, REGISTER, SUFFIX, Value, is_float, is_signed, literal

_UNSIGNED_PREDICATES = {"lt": "ult", "le": "ule", "gt": "ugt", "ge": "uge"}
_FLOAT_PREDICATES = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "uno": "uno"}


class Arithmetic:
    """Emits instructions on vectors of ``width`` lanes (a power of two, at least 1) for ``target``.

    lines: the function's text so far; the caller may add its own lines, labels included.
    declares: name -> text of a declaration or internal function, one of each to be put in the module.
    names: where SSA numbers come from; builders that write into one function share it.
    """

    def __init__(
        self,
        width: int,
        target: Target,
        lines: list[str] | None = None,
        declares: dict[str, str] | None = None,
        names: Iterator[int] | None = None,
    ) -> None:
        self.width = width
        self.target = target
        self.lines: list[str] = [] if lines is None else lines
        self.declares: dict[str, str] = {} if declares is None else declares
        self.names = itertools.count() if names is None else names
        self._memo: dict[str, str] = {}
        self._memo_lines: list[str] = self.lines
        self._seen = len(self.lines)
        self._types = {dtype: f"<{width} x {name}>" for dtype, name in LLVM_TYPE.items()}

    def at_width(self, width: int) -> Self:
        """A builder of another width that writes into the same function."""
        other = copy.copy(self)
        other.width = width
        other._memo = {}
        other._types = {dtype: f"<{width} x {name}>" for dtype, name in LLVM_TYPE.items()}
        return other

    # ---- text

    def type(self, dtype: str) -> str:
        """The vector type of a register dtype, such as ``<8 x float>``."""
        return self._types[dtype]

    def typed(self, value: Value) -> str:
        """The value with its type, as an instruction's operand."""
        return f"{self._types[value.dtype]} {value.ref}"

    def emit(self, text: str) -> str:
        """Append an instruction; the name of its result."""
        name = f"%v{next(self.names)}"
        self.lines.append(f"  {name} = {text}")
        return name

    def pure(self, text: str, dtype: str) -> Value:
        """An instruction that depends on its operands only, written once a basic block."""
        lines = self.lines
        if lines is not self._memo_lines or self._seen > len(lines):
            self._memo.clear()
            self._memo_lines, self._seen = lines, len(lines)
        elif any(line.endswith(":") for line in itertools.islice(lines, self._seen, None)):
            self._memo.clear()  # a label: names above it need not reach here
        ref = self._memo.get(text)
        if ref is None:
            ref = self._memo[text] = self.emit(text)
        self._seen = len(lines)
        return Value(ref, dtype)

    def declare(self, name: str, result: str, *operands: str) -> str:
        """Note the declaration of an intrinsic; its name with the ``@``."""
        self.declares.setdefault(name, f"declare {result} @{name}({', '.join(operands)})")
        return f"@{name}"

    def call(self, intrinsic: str, dtype: str, *args: Value, suffix: str | None = None, extra: str = "") -> Value:
        """``llvm.<intrinsic>`` overloaded on the result's (or ``suffix``) vector type; ``extra`` is trailing text."""
        name = f"llvm.{intrinsic}.{suffix or f'v{self.width}{SUFFIX[dtype]}'}"
        types = [self._types[a.dtype] for a in args]
        self.declare(name, self._types[dtype], *types, *([extra.split()[0]] if extra else []))
        operands = [self.typed(a) for a in args] + ([extra] if extra else [])
        return self.pure(f"call {self._types[dtype]} @{name}({', '.join(operands)})", dtype)

    def call_helper(self, name: str, result: str, definition: str, *args: str) -> str:
        """Call an internal function, whose ``definition`` goes into the module once; ``args`` are typed operands."""
        self.declares.setdefault(name, definition)
        return self.pure(f"call {result} @{name}({', '.join(args)})", "").ref

    # ---- constants

    def const(self, value: float | int | bool, dtype: str) -> Value:
        """The same number in every lane."""
        return Value(f"splat ({LLVM_TYPE[dtype]} {literal(value, dtype)})", dtype)

    def splat(self, scalar_ref: str, dtype: str) -> Value:
        """A scalar in every lane."""
        vector = self.pure(f"insertelement {self._types[dtype]} poison, {LLVM_TYPE[dtype]} {scalar_ref}, i64 0", dtype)
        if self.width == 1:
            return vector
        zeros = f"<{self.width} x i32> zeroinitializer"
        return self.pure(f"shufflevector {self.typed(vector)}, {self._types[dtype]} poison, {zeros}", dtype)

    def iota(self, dtype: str = "i64") -> Value:
        """0, 1, ... width-1."""
        if is_float(dtype):
            return Value(f"<{', '.join(f'{LLVM_TYPE[dtype]} {literal(i, dtype)}' for i in range(self.width))}>", dtype)
        return Value(f"<{', '.join(f'{LLVM_TYPE[dtype]} {i}' for i in range(self.width))}>", dtype)

    def mask_below(self, count_ref: str) -> Value:
        """The mask of the first ``count`` lanes; ``count_ref`` is a scalar i64 >= 0."""
        self.declare("llvm.umin.i64", "i64", "i64", "i64")
        count = self.pure(f"call i64 @llvm.umin.i64(i64 {count_ref}, i64 {self.width})", "").ref
        count = self.pure(f"trunc i64 {count} to i32", "").ref  # 32-bit compares: half the registers of 64-bit ones
        return self.cmp("lt", self.iota("u32"), self.splat(count, "u32"))

    def first(self, value: Value) -> str:
        """Lane 0 as a scalar."""
        return self.pure(f"extractelement {self.typed(value)}, i64 0", value.dtype).ref

    # ---- arithmetic

    def binary(self, opcode: str, x: Value, y: Value, dtype: str | None = None) -> Value:
        """Any two-operand instruction by its LLVM opcode."""
        return self.pure(f"{opcode} {self._types[x.dtype]} {x.ref}, {y.ref}", dtype or x.dtype)

    def add(self, x: Value, y: Value) -> Value:
        return self.binary("fadd" if is_float(x.dtype) else "add", x, y)

    def sub(self, x: Value, y: Value) -> Value:
        return self.binary("fsub" if is_float(x.dtype) else "sub", x, y)

    def mul(self, x: Value, y: Value) -> Value:
        return self.binary("fmul" if is_float(x.dtype) else "mul", x, y)

    def fdiv(self, x: Value, y: Value) -> Value:
        return self.binary("fdiv", x, y)

    def neg(self, x: Value) -> Value:
        if is_float(x.dtype):
            return self.pure(f"fneg {self.typed(x)}", x.dtype)
        return self.sub(self.const(0, x.dtype), x)

    def fma(self, x: Value, y: Value, z: Value) -> Value:
        """x*y + z: fused where the target has the instruction, else rounded twice; integers wrap."""
        if self.target.has_fma and is_float(x.dtype):
            return self.call("fma", x.dtype, x, y, z)
        return self.add(self.mul(x, y), z)

    def fnma(self, x: Value, y: Value, z: Value) -> Value:
        """z - x*y."""
        return self.fma(self.neg(x), y, z)

    def polynomial(self, x: Value, coefficients: tuple[float, ...], square: Value | None = None) -> Value:
        """c[0] + c[1]*x + c[2]*x**2 + ... by Horner's rule; given x**2, even and odd powers apart, which takes half the
        time of one chain and no more instructions."""
        if square is not None and len(coefficients) > 3:
            even, odd = self.polynomial(square, coefficients[::2]), self.polynomial(square, coefficients[1::2])
            return self.fma(odd, x, even)
        result = self.const(coefficients[-1], x.dtype)
        for c in reversed(coefficients[:-1]):
            result = self.fma(result, x, self.const(c, x.dtype))
        return result

    def sqrt(self, x: Value) -> Value:
        return self.call("sqrt", x.dtype, x)

    def abs(self, x: Value) -> Value:
        """Integers wrap at the most negative one, as in NumPy."""
        if is_float(x.dtype):
            return self.call("fabs", x.dtype, x)
        return self.call("abs", x.dtype, x, extra="i1 false") if is_signed(x.dtype) else x

    def copysign(self, magnitude: Value, sign: Value) -> Value:
        return self.call("copysign", magnitude.dtype, magnitude, sign)

    def fmin(self, x: Value, y: Value) -> Value:
        """The smaller; y where either is NaN or both are zeros: one instruction."""
        return self.select(self.cmp("lt", x, y), x, y)

    def fmax(self, x: Value, y: Value) -> Value:
        """The larger; y where either is NaN or both are zeros: one instruction."""
        return self.select(self.cmp("gt", x, y), x, y)

    def maximum(self, x: Value, y: Value, signed_zero: bool = True) -> Value:
        """NaN where either is; ``signed_zero``: of zeros +0 is the larger (without it, one of them: cheaper)."""
        return self._extremum(x, y, signed_zero, "gt", "maximum", "max")

    def minimum(self, x: Value, y: Value, signed_zero: bool = True) -> Value:
        """NaN where either is; ``signed_zero``: of zeros -0 is the smaller (without it, one of them: cheaper)."""
        return self._extremum(x, y, signed_zero, "lt", "minimum", "min")

    def _extremum(self, x: Value, y: Value, signed_zero: bool, predicate: str, intrinsic: str, integer: str) -> Value:
        if x.dtype == "i1":
            return self.binary("or" if integer == "max" else "and", x, y)
        if not is_float(x.dtype):
            return self.call(("s" if is_signed(x.dtype) else "u") + integer, x.dtype, x, y)
        if x.ref.startswith("splat"):
            x, y = y, x
        if y.ref.startswith("splat") and y != self.const(float("nan"), y.dtype):
            # "y > x ? y : x" is one instruction and keeps a NaN in x. A tie gives x, which can only be wrong for zeros.
            result = self.select(self.cmp(predicate, y, x), y, x)
            if signed_zero and y == self.const(0.0 if integer == "max" else -0.0, y.dtype):
                if integer == "min":
                    return self.call(intrinsic, x.dtype, x, y)
                return self.add(result, self.const(0.0, y.dtype))  # -0 + 0 = 0
            return result
        if signed_zero:
            return self.call(intrinsic, x.dtype, x, y)
        return self.select(self.cmp("uno", x, x), x, self.select(self.cmp(predicate, x, y), x, y))

    # ---- rounding to integers, as floats

    def _round(self, intrinsic: str, x: Value) -> Value:
        if self.target.has_round:
            return self.call(intrinsic, x.dtype, x)
        # Without the instruction LLVM calls a library function a lane. Adding and taking away 2**23 (2**52) rounds
        # to nearest even; numbers at least that large are integers (or NaN) already.
        big = self.const(2.0**23 if x.dtype == "f32" else 2.0**52, x.dtype)
        size = self.abs(x)
        nearest = self.sub(self.add(size, big), big)
        if intrinsic == "trunc":
            nearest = self.sub(nearest, self._one_where(self.cmp("gt", nearest, size), x.dtype))
        signed = self.copysign(nearest, x)
        if intrinsic == "floor":
            signed = self.sub(signed, self._one_where(self.cmp("gt", signed, x), x.dtype))
        elif intrinsic == "ceil":
            signed = self.copysign(self.add(signed, self._one_where(self.cmp("lt", signed, x), x.dtype)), x)
        return self.select(self.cmp("lt", size, big), signed, x)

    def _one_where(self, mask: Value, dtype: str) -> Value:
        return self.select(mask, self.const(1, dtype), self.const(0, dtype))

    def rint(self, x: Value) -> Value:
        """To the nearest integer, halves to even."""
        return self._round("rint", x)

    def floor(self, x: Value) -> Value:
        return self._round("floor", x)

    def ceil(self, x: Value) -> Value:
        return self._round("ceil", x)

    def trunc(self, x: Value) -> Value:
        return self._round("trunc", x)

    # ---- bits, comparison, selection

    def and_(self, x: Value, y: Value) -> Value:
        return self.binary("and", x, y)

    def or_(self, x: Value, y: Value) -> Value:
        return self.binary("or", x, y)

    def xor(self, x: Value, y: Value) -> Value:
        return self.binary("xor", x, y)

    def not_(self, x: Value) -> Value:
        return self.xor(x, self.const(-1 if x.dtype != "i1" else True, x.dtype))

    def shl(self, x: Value, y: Value) -> Value:
        """y must be below the width, here and in ``shr``."""
        return self.binary("shl", x, y)

    def shr(self, x: Value, y: Value) -> Value:
        """Arithmetic for signed integers, logical for unsigned ones."""
        return self.binary("ashr" if is_signed(x.dtype) else "lshr", x, y)

    def cmp(self, predicate: str, x: Value, y: Value) -> Value:
        """eq, ne, lt, le, gt, ge (NaN: only ne is true), or uno (either is NaN) -> i1."""
        if is_float(x.dtype):
            return self.pure(f"fcmp {_FLOAT_PREDICATES[predicate]} {self.typed(x)}, {y.ref}", "i1")
        if predicate not in ("eq", "ne"):
            predicate = "s" + predicate if is_signed(x.dtype) else _UNSIGNED_PREDICATES[predicate]
        return self.pure(f"icmp {predicate} {self.typed(x)}, {y.ref}", "i1")

    def select(self, mask: Value, x: Value, y: Value) -> Value:
        """x where the mask is true, else y."""
        return self.pure(f"select {self.typed(mask)}, {self.typed(x)}, {self.typed(y)}", x.dtype)

    def bitcast(self, x: Value, dtype: str) -> Value:
        """The same bits as another register dtype of the same size."""
        if LLVM_TYPE[x.dtype] == LLVM_TYPE[dtype]:
            return Value(x.ref, dtype)
        return self.pure(f"bitcast {self.typed(x)} to {self._types[dtype]}", dtype)

    def bits(self, x: Value) -> Value:
        """A float's bits as i32 or i64."""
        return self.bitcast(x, "i32" if x.dtype == "f32" else "i64")

    def any_lane(self, mask: Value) -> str:
        """Scalar i1: is any lane of the mask true?"""
        if self.width == 1:
            return self.first(mask)
        packed = self.pure(f"bitcast {self.typed(mask)} to i{self.width}", "").ref
        return self.pure(f"icmp ne i{self.width} {packed}, 0", "").ref

    def is_nan(self, x: Value) -> Value:
        return self.cmp("uno", x, x)

    # ---- conversion

    def cast(self, x: Value, dtype: str) -> Value:
        """To another register dtype. Out-of-range floats to integers give an unspecified integer, not poison; to i1:
        is it nonzero?"""
        source = x.dtype
        if source == dtype:
            return x
        if dtype == "i1":
            return self.cmp("ne", x, self.const(0, source))
        wider, same = BITS[dtype] > BITS[source], BITS[dtype] == BITS[source]
        if is_float(source) and is_float(dtype):
            opcode = "fpext" if wider else "fptrunc"
        elif is_float(source):
            if BITS[dtype] < 32:  # through i32, so that an out-of-range number wraps as it does in NumPy
                return self.cast(self.cast(x, "i32"), dtype)
            opcode = "fptosi" if is_signed(dtype) else "fptoui"
        elif is_float(dtype):
            opcode = "sitofp" if is_signed(source) else "uitofp"
        elif same:
            return Value(x.ref, dtype)
        elif wider:
            opcode = "sext" if is_signed(source) else "zext"
        else:
            opcode = "trunc"
        result = self.pure(f"{opcode} {self.typed(x)} to {self._types[dtype]}", dtype)
        return self.pure(f"freeze {self.typed(result)}", dtype) if opcode.startswith("fpto") else result

    def convert(self, x: Value, source: str, dtype: str) -> Value:
        """From one storage dtype to another; a float16 or bfloat16 result is rounded to what its storage holds."""
        if source == dtype:
            return x
        if dtype in ("float16", "bfloat16"):
            if source in ("bool", "int8", "uint8"):
                return self.cast(x, "f32")  # exact
            if x.dtype == "f64" and dtype == "float16":
                x = self._round_to_odd(x)
            return self.expand(self.shrink(self.cast(x, "f32"), dtype), dtype)
        register = REGISTER[dtype]
        if is_float(x.dtype) and not is_float(register) and register != "i1":
            return self._saturated(x, register)
        return self.cast(x, register)

    def _saturated(self, x: Value, dtype: str) -> Value:
        """A float as an integer, the same on every target: NaN becomes 0, what does not fit the nearest that does.

        ``llvm.fptosi.sat`` says the same, and AVX2 runs it one lane at a time.
        """
        bits = BITS[dtype]
        low, high = (-1 << (bits - 1), (1 << (bits - 1)) - 1) if is_signed(dtype) else (0, (1 << bits) - 1)
        precision = 24 if x.dtype == "f32" else 53
        spare = max(high.bit_length() - precision, 0)
        top = high >> spare << spare  # the largest number that both types hold
        number = self.select(self.is_nan(x), self.const(0, x.dtype), x)
        inside = self.minimum(self.maximum(number, self.const(float(low), x.dtype)), self.const(float(top), x.dtype))
        result = self.cast(inside, dtype)
        if not spare:
            return result
        return self.select(self.cmp("gt", number, self.const(float(top), x.dtype)), self.const(high, dtype), result)

    def _round_to_odd(self, x: Value) -> Value:
        """f64 -> f32 such that rounding once more, to 11 bits or fewer, gives what rounding once would have."""
        nearest = self.cast(x, "f32")
        bits = self.bits(nearest)
        back = self.cast(nearest, "f64")
        even = self.cmp("eq", self.and_(bits, self.const(1, "i32")), self.const(0, "i32"))
        # An inexact even result: its odd neighbour on the side of x. Toward 0 is one bit pattern down.
        step = self.select(
            self.cmp("gt", self.abs(back), self.abs(x)), self.const(-1, "i32"), self.const(1, "i32")
        )
        moved = self.bitcast(self.add(bits, step), "f32")
        inexact = self.and_(self.cmp("ne", back, x), self.not_(self.is_nan(x)))
        return self.select(self.and_(even, inexact), moved, nearest)

    def expand(self, stored: Value, dtype_name: str) -> Value:
        """What memory holds (as an unsigned or signed register of STORAGE_TYPE) -> the register value."""
        if dtype_name == "bool":
            return self.cmp("ne", stored, self.const(0, "u8"))
        if dtype_name == "bfloat16":
            return self.bitcast(self.shl(self.cast(stored, "u32"), self.const(16, "u32")), "f32")
        if dtype_name == "float16":
            if self.target.has_f16c:
                half = self.pure(f"bitcast {self.typed(stored)} to <{self.width} x half>", "").ref
                return self.pure(f"fpext <{self.width} x half> {half} to {self._types['f32']}", "f32")
            # The exponent and mantissa in place, scaled by the difference of the biases: exact for subnormals too.
            wide = self.cast(stored, "u32")
            magnitude = self.and_(wide, self.const(0x7FFF, "u32"))
            placed = self.shl(magnitude, self.const(13, "u32"))
            scaled = self.bitcast(self.mul(self.bitcast(placed, "f32"), self.const(2.0**112, "f32")), "u32")
            special = self.or_(placed, self.const(0x7F800000, "u32"))
            bits = self.select(self.cmp("ge", magnitude, self.const(0x7C00, "u32")), special, scaled)
            sign = self.shl(self.and_(wide, self.const(0x8000, "u32")), self.const(16, "u32"))
            return self.bitcast(self.or_(bits, sign), "f32")
        return stored

    def shrink(self, x: Value, dtype_name: str) -> Value:
        """The register value -> what memory holds; rounds to nearest even, keeps NaN."""
        if dtype_name == "bool":
            return self.pure(f"zext {self.typed(x)} to {self._types['u8']}", "u8")
        if dtype_name == "bfloat16":
            bits = self.bitcast(x, "u32")
            upper = self.shr(bits, self.const(16, "u32"))
            even = self.add(self.and_(upper, self.const(1, "u32")), self.const(0x7FFF, "u32"))
            rounded = self.shr(self.add(bits, even), self.const(16, "u32"))
            quiet = self.or_(upper, self.const(0x40, "u32"))
            return self.cast(self.select(self.is_nan(x), quiet, rounded), "u16")
        if dtype_name == "float16":
            if self.target.has_f16c:
                half = self.pure(f"fptrunc {self.typed(x)} to <{self.width} x half>", "").ref
                return self.pure(f"bitcast <{self.width} x half> {half} to {self._types['u16']}", "u16")
            return self._half_bits(x)
        return x

    def _half_bits(self, x: Value) -> Value:
        """float -> half, in integer arithmetic (F. Giesen, "float_to_half_fast3_rtne", public domain)."""
        u = "u32"
        bits = self.bitcast(x, u)
        sign = self.and_(bits, self.const(0x80000000, u))
        size = self.xor(bits, sign)
        # Subnormal halves: adding 0.5 lets the float adder round at the right bit.
        magic = self.const(0.5, "f32")
        small = self.sub(self.bitcast(self.add(self.bitcast(size, "f32"), magic), u), self.const(0x3F000000, u))
        odd = self.and_(self.shr(size, self.const(13, u)), self.const(1, u))
        biased = self.add(self.add(size, self.const(((15 - 127) << 23) + 0xFFF, u)), odd)
        normal = self.shr(biased, self.const(13, u))
        finite = self.select(self.cmp("lt", size, self.const(113 << 23, u)), small, normal)
        special = self.select(
            self.cmp("gt", size, self.const(0x7F800000, u)), self.const(0x7E00, u), self.const(0x7C00, u)
        )
        result = self.select(self.cmp("ge", size, self.const(143 << 23, u)), special, finite)
        return self.cast(self.or_(result, self.shr(sign, self.const(16, u))), "u16")
