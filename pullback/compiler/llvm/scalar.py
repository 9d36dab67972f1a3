"""The scalar instructions of the kernel IR, as vector code.

``INSTRUCTIONS`` holds, for the ``lower`` name of every elementwise operation, the function that writes it. Values
arrive and leave in registers, so float16 and bfloat16 are computed in f32; only ``cast`` and a store round to them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ...errors import CompileError
from . import integers
from . import vector_math as vm
from .builder import VectorBuilder
from .threefry import threefry
from .values import BITS, REGISTER, STORAGE_TYPE, Value, is_float, is_signed


class Instruction(NamedTuple):
    """What an instruction is asked to do: ``args`` of the storage dtypes ``operands`` to a result of ``dtype``."""

    dtype: str
    operands: tuple[str, ...]
    args: tuple[Value, ...]
    attrs: tuple[Any, ...]


Writer = Callable[[VectorBuilder, Instruction], Value]


def emit(
    b: VectorBuilder,
    name: str,
    dtype_name: str,
    operand_dtype_names: tuple[str, ...],
    args: list[Value] | tuple[Value, ...],
    attrs: tuple[Any, ...] = (),
) -> Value:
    """Write the instruction ``name`` on ``args``; the result is in the register dtype of ``dtype_name``.

    Raises CompileError if there is no such instruction, or none for these dtypes.
    """
    writer = INSTRUCTIONS.get(name)
    if writer is None:
        raise CompileError(f"no instruction {name!r}")
    result = writer(b, Instruction(dtype_name, tuple(operand_dtype_names), tuple(args), attrs))
    if result.dtype != REGISTER[dtype_name]:
        raise CompileError(f"{name} of {', '.join(operand_dtype_names)} gives {result.dtype}, not {dtype_name}")
    return result


def _simple(function: Callable[..., Value]) -> Writer:
    """One function for every dtype."""
    return lambda b, i: function(b, *i.args)


def _float(function: Callable[..., Value]) -> Writer:
    """A function of floats only."""

    def write(b: VectorBuilder, i: Instruction) -> Value:
        if not all(is_float(a.dtype) for a in i.args):
            raise CompileError(f"a function of floats got {', '.join(i.operands)}")
        return function(b, *i.args)

    return write


def _by_kind(floating: Callable[..., Value], integer: Callable[..., Value], boolean: Callable[..., Value]) -> Writer:
    """Different functions for floats, integers and bools."""

    def write(b: VectorBuilder, i: Instruction) -> Value:
        dtype = i.args[0].dtype
        return (floating if is_float(dtype) else boolean if dtype == "i1" else integer)(b, *i.args)

    return write


def _identity(_b: VectorBuilder, x: Value) -> Value:
    return x


def _rounding(function: Callable[[VectorBuilder, Value], Value]) -> Writer:
    """Integers and bools are whole already."""
    return _by_kind(function, _identity, _identity)


def _classify(floating: Callable[[VectorBuilder, Value], Value], integer: bool) -> Writer:
    def constant(b: VectorBuilder, _x: Value) -> Value:
        return b.const(integer, "i1")

    return _by_kind(floating, constant, constant)


def _compare(predicate: str) -> Writer:
    return lambda b, i: b.cmp(predicate, *i.args)


def _logical(opcode: str) -> Writer:
    return lambda b, i: b.binary(opcode, b.cast(i.args[0], "i1"), b.cast(i.args[1], "i1"))


def _sign(b: VectorBuilder, x: Value) -> Value:
    zero, one = b.const(0, x.dtype), b.const(1, x.dtype)
    positive = b.cmp("gt", x, zero)
    if is_float(x.dtype):
        rest = b.select(b.cmp("eq", x, zero), zero, x)  # NaN stays
        return b.select(positive, one, b.select(b.cmp("lt", x, zero), b.const(-1, x.dtype), rest))
    if is_signed(x.dtype):
        return b.select(positive, one, b.shr(x, b.const(BITS[x.dtype] - 1, x.dtype)))
    return b.select(positive, one, zero)


def _isinf(b: VectorBuilder, x: Value) -> Value:
    return b.cmp("eq", b.abs(x), b.const(float("inf"), x.dtype))


def _isfinite(b: VectorBuilder, x: Value) -> Value:
    return b.cmp("lt", b.abs(x), b.const(float("inf"), x.dtype))


def _reciprocal(b: VectorBuilder, x: Value) -> Value:
    return b.fdiv(b.const(1, x.dtype), x)


def _rsqrt(b: VectorBuilder, x: Value) -> Value:
    return b.fdiv(b.const(1, x.dtype), b.sqrt(x))


def _square(b: VectorBuilder, x: Value) -> Value:
    return b.mul(x, x)


def _one_minus_square(b: VectorBuilder, x: Value) -> Value:
    one = b.const(1, x.dtype)
    return b.mul(b.sub(one, x), b.add(one, x))


def _cube(b: VectorBuilder, x: Value) -> Value:
    return b.mul(b.mul(x, x), x)


def _and(b: VectorBuilder, x: Value, y: Value) -> Value:
    return b.and_(x, y)


def _or(b: VectorBuilder, x: Value, y: Value) -> Value:
    return b.or_(x, y)


def _xor(b: VectorBuilder, x: Value, y: Value) -> Value:
    return b.xor(x, y)


def _where(b: VectorBuilder, i: Instruction) -> Value:
    mask, x, y = i.args
    return b.select(b.cast(mask, "i1"), x, y)


def _clip(b: VectorBuilder, x: Value, low: Value, high: Value) -> Value:
    return b.minimum(b.maximum(x, low), high)


def _cast(b: VectorBuilder, i: Instruction) -> Value:
    return b.convert(i.args[0], i.operands[0], i.dtype)


def _bitcast(b: VectorBuilder, i: Instruction) -> Value:
    source, dtype = i.operands[0], i.dtype
    if source == dtype:
        return i.args[0]
    stored = b.shrink(i.args[0], source)
    memory = "u8" if dtype == "bool" else "u16" if STORAGE_TYPE[dtype] == "i16" else REGISTER[dtype]
    result = b.bitcast(stored, memory)
    return b.expand(result, dtype) if dtype in ("bool", "float16", "bfloat16") else Value(result.ref, REGISTER[dtype])


def _strong_multiply(b: VectorBuilder, i: Instruction) -> Value:
    """A zero cotangent stays zero whatever it meets."""
    cotangent, partial = i.args
    product = b.and_(cotangent, partial) if cotangent.dtype == "i1" else b.mul(cotangent, partial)
    if not is_float(cotangent.dtype):
        return product
    zero = b.const(0, cotangent.dtype)
    return b.select(b.cmp("eq", cotangent, zero), zero, product)


def _strong_product(b: VectorBuilder, i: Instruction) -> Value:
    """A zero on either side wins."""
    x, y = i.args
    zero = b.const(0, x.dtype)
    is_zero = b.or_(b.cmp("eq", x, zero), b.cmp("eq", y, zero))
    return b.select(is_zero, zero, b.mul(x, y))


def _integer_fmod(b: VectorBuilder, x: Value, y: Value) -> Value:
    """What truncating division leaves, of x's sign; by zero 0."""
    rest = integers.remainder(b, x, y)
    if not is_signed(x.dtype):
        return rest
    zero = b.const(0, x.dtype)
    differ = b.and_(b.cmp("ne", rest, zero), b.cmp("lt", b.xor(rest, x), zero))
    return b.select(differ, b.sub(rest, y), rest)


def _ignoring_nan(function: Callable[[VectorBuilder, Value, Value], Value]) -> Callable[..., Value]:
    """An extremum that takes the other operand where one is NaN."""

    def call(b: VectorBuilder, x: Value, y: Value) -> Value:
        return function(b, b.select(b.is_nan(x), y, x), b.select(b.is_nan(y), x, y))

    return call


def _nextafter(b: VectorBuilder, i: Instruction) -> Value:
    """One step of x's own format toward y: magnitudes are ordered as their bits are."""
    x, y = i.args
    storage = i.operands[0]
    zero = b.const(0, x.dtype)
    stored = b.shrink(x, storage)
    bits = Value(stored.ref, stored.dtype.replace("u", "i")) if storage in ("float16", "bfloat16") else b.bits(x)
    outward = b.xor(b.cmp("gt", y, x), b.cmp("lt", x, zero))
    step = b.select(outward, b.const(1, bits.dtype), b.const(-1, bits.dtype))
    moved = b.add(bits, step)
    if storage in ("float16", "bfloat16"):
        result, least = b.expand(Value(moved.ref, stored.dtype), storage), b.const(1, stored.dtype)
        smallest = b.expand(least, storage)
    else:
        result, smallest = b.bitcast(moved, x.dtype), b.bitcast(b.const(1, bits.dtype), x.dtype)
    result = b.select(b.cmp("eq", x, zero), b.copysign(smallest, y), result)
    result = b.select(b.cmp("eq", x, y), y, result)
    return b.select(b.cmp("uno", x, y), b.const(float("nan"), x.dtype), result)


def _with_order(function: Callable[[VectorBuilder, Value, int], Value]) -> Writer:
    """A function of one float and a whole number that is fixed in the code."""

    def write(b: VectorBuilder, i: Instruction) -> Value:
        return function(b, i.args[0], i.attrs[0])

    return write


def _check_index(b: VectorBuilder, i: Instruction) -> Value:
    """Negative indices count from the end; one out of range is reported and replaced by 0."""
    size: str | int = i.attrs[0]
    given = i.args[0]
    # An unsigned 64-bit one too large for i64 turns negative: it is reported so, and is out of range either way.
    index = b.cast(given, "i64")
    zero = b.const(0, "i64")
    extent = b.const(size, "i64") if isinstance(size, int) else b.splat(size, "i64")
    wrapped = b.select(b.cmp("lt", index, zero), b.add(index, extent), index) if _may_be_negative(given) else index
    bad = b.cmp("ge", Value(wrapped.ref, "u64"), Value(extent.ref, "u64"))
    b.on_bad_index(bad, index, size)
    return b.select(bad, zero, wrapped)


def _may_be_negative(value: Value) -> bool:
    return is_signed(value.dtype)


def _threefry(b: VectorBuilder, i: Instruction) -> Value:
    return threefry(b, *i.args)


INSTRUCTIONS: dict[str, Writer] = {
    # arithmetic
    "add": _by_kind(VectorBuilder.add, VectorBuilder.add, _or),
    "subtract": _by_kind(VectorBuilder.sub, VectorBuilder.sub, _xor),
    "multiply": _by_kind(VectorBuilder.mul, VectorBuilder.mul, _and),
    "divide": _float(VectorBuilder.fdiv),
    "floor_divide": _by_kind(vm.floor_divide, integers.floor_divide, _and),
    "remainder": _by_kind(vm.remainder, integers.remainder, lambda b, x, _y: b.const(False, x.dtype)),
    "fmod": _by_kind(vm.fmod, _integer_fmod, lambda b, x, _y: b.const(False, x.dtype)),
    "pow": _by_kind(vm.pow, integers.power, lambda b, x, y: b.or_(x, b.not_(y))),
    "negative": _by_kind(VectorBuilder.neg, VectorBuilder.neg, _identity),
    "abs": _by_kind(VectorBuilder.abs, VectorBuilder.abs, _identity),
    "sign": _by_kind(_sign, _sign, _identity),
    "square": _by_kind(_square, _square, _identity),
    "cube": _by_kind(_cube, _cube, _identity),
    "reciprocal": _by_kind(_reciprocal, integers.reciprocal, _identity),
    "sqrt": _float(VectorBuilder.sqrt),
    "rsqrt": _float(_rsqrt),
    "maximum": _simple(VectorBuilder.maximum),
    "minimum": _simple(VectorBuilder.minimum),
    "fmax": _by_kind(_ignoring_nan(VectorBuilder.maximum), VectorBuilder.maximum, VectorBuilder.maximum),
    "fmin": _by_kind(_ignoring_nan(VectorBuilder.minimum), VectorBuilder.minimum, VectorBuilder.minimum),
    "clip": _simple(_clip),
    "copysign": _float(VectorBuilder.copysign),
    "nextafter": _nextafter,
    "one_minus_square": _float(_one_minus_square),
    "strong_multiply": _strong_multiply,
    "strong_product": _strong_product,
    # rounding and classification
    "floor": _rounding(VectorBuilder.floor),
    "ceil": _rounding(VectorBuilder.ceil),
    "round": _rounding(VectorBuilder.rint),
    "trunc": _rounding(VectorBuilder.trunc),
    "isnan": _classify(VectorBuilder.is_nan, False),
    "isinf": _classify(_isinf, False),
    "isfinite": _classify(_isfinite, True),
    # comparison, logic, bits
    "equal": _compare("eq"),
    "not_equal": _compare("ne"),
    "less": _compare("lt"),
    "less_equal": _compare("le"),
    "greater": _compare("gt"),
    "greater_equal": _compare("ge"),
    "logical_and": _logical("and"),
    "logical_or": _logical("or"),
    "logical_xor": _logical("xor"),
    "logical_not": lambda b, i: b.not_(b.cast(i.args[0], "i1")),
    "bitwise_and": _simple(_and),
    "bitwise_or": _simple(_or),
    "bitwise_xor": _simple(_xor),
    "bitwise_invert": _simple(VectorBuilder.not_),
    "left_shift": _simple(integers.left_shift),
    "right_shift": _simple(integers.right_shift),
    "where": _where,
    # conversion
    "cast": _cast,
    "bitcast": _bitcast,
    "stop_gradient": _simple(_identity),
    "alias": _simple(_identity),
    "barrier": _simple(lambda b, x, after: x),
    # indices and random bits
    "check_index": _check_index,
    "threefry": _threefry,
}
INSTRUCTIONS |= {name: _float(getattr(vm, name)) for name in (*vm.UNARY, *vm.ACTIVATIONS)}
INSTRUCTIONS |= {name: _float(getattr(vm, name)) for name in ("atan2", "hypot", "logaddexp", "logaddexp2")}
INSTRUCTIONS |= {"polygamma": _with_order(vm.polygamma), "sinc": _with_order(vm.sinc)}
