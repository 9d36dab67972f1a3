"""Writing vector code as LLVM IR text.

A :class:`VectorBuilder` appends instructions on vectors of one width to a list of lines. It writes straight-line code;
where a function needs a branch (a rare slow path, a loop), that is in an internal helper function put in ``declares``
beside the intrinsics' declarations.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...errors import CompileError
from .arithmetic import Arithmetic
from .values import REGISTER, STORAGE_SIZE, STORAGE_TYPE, Value, is_float

#: the register dtype of what memory holds, before it is expanded
_STORED = REGISTER | {"bool": "u8", "float16": "u16", "bfloat16": "u16"}


class VectorBuilder(Arithmetic):
    """Arithmetic, and memory: loads, stores, gathers, reductions across lanes.

    A storage dtype is given by name. ``mask`` None means every lane; masked lanes load as 0 and their memory is
    never touched. No alignment beyond the element's is assumed.
    """

    # ---- loads and stores

    def load(self, dtype_name: str, pointer: str, mask: Value | None = None) -> Value:
        """``width`` consecutive elements at the pointer."""
        vector = f"<{self.width} x {STORAGE_TYPE[dtype_name]}>"
        size = STORAGE_SIZE[dtype_name]
        if mask is None:
            ref = self.emit(f"load {vector}, ptr {pointer}, align {size}")
        elif self._masks_by_branching(size):
            name, text = self._masked_copy(dtype_name, load=True)
            self.declares.setdefault(name, text)
            ref = self.emit(f"call {vector} @{name}(ptr {pointer}, i64 {self.lane_bits(mask)})")
        else:
            name = f"llvm.masked.load.{self._suffix(dtype_name)}.p0"
            self.declare(name, vector, "ptr", self.type("i1"), vector)
            ref = self.emit(
                f"call {vector} @{name}(ptr align {size} {pointer}, {self.typed(mask)}, {vector} zeroinitializer)"
            )
        return self.expand(Value(ref, _STORED[dtype_name]), dtype_name)

    def store(self, dtype_name: str, pointer: str, value: Value, mask: Value | None = None) -> None:
        """``width`` consecutive elements to the pointer."""
        vector = f"<{self.width} x {STORAGE_TYPE[dtype_name]}>"
        size = STORAGE_SIZE[dtype_name]
        stored = self.shrink(value, dtype_name)
        if mask is None:
            self.lines.append(f"  store {vector} {stored.ref}, ptr {pointer}, align {size}")
            return
        if self._masks_by_branching(size):
            name, text = self._masked_copy(dtype_name, load=False)
            self.declares.setdefault(name, text)
            self.lines.append(
                f"  call void @{name}(ptr {pointer}, {vector} {stored.ref}, i64 {self.lane_bits(mask)})"
            )
            return
        name = f"llvm.masked.store.{self._suffix(dtype_name)}.p0"
        self.declare(name, "void", vector, "ptr", self.type("i1"))
        self.lines.append(
            f"  call void @{name}({vector} {stored.ref}, ptr align {size} {pointer}, {self.typed(mask)})"
        )

    def store_stream(self, dtype_name: str, pointer: str, value: Value) -> None:
        """``width`` consecutive elements past the caches, to a multiple of their own size (of 64 bytes at most)."""
        vector = f"<{self.width} x {STORAGE_TYPE[dtype_name]}>"
        stored = self.shrink(value, dtype_name)
        self.declares["stream"] = "!0 = !{i32 1}"
        alignment = min(64, self.width * STORAGE_SIZE[dtype_name])
        self.lines.append(f"  store {vector} {stored.ref}, ptr {pointer}, align {alignment}, !nontemporal !0")

    def prefetch(self, pointer: str, is_written: bool = False) -> None:
        """Ask for the line at an address, which need not be one, in the caches; for itself alone if it is written."""
        self.declares["llvm.prefetch"] = "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)"
        self.lines.append(f"  call void @llvm.prefetch.p0(ptr {pointer}, i32 {int(is_written)}, i32 3, i32 1)")

    def fence_streams(self) -> None:
        """Let other threads see streamed stores before whatever is stored later. (x86 alone orders them otherwise.)"""
        if self.target.is_x86:
            self.declares["sfence"] = "declare void @llvm.x86.sse.sfence()"
            self.lines.append("  call void @llvm.x86.sse.sfence()")

    def _masks_by_branching(self, size: int) -> bool:
        """Would LLVM turn a masked access of elements of this size into a branch a lane? Those take it long to
        compile, so a loop in a function of its own is written instead."""
        t = self.target
        return self.width > 2 and not (t.has_avx512 or (t.vector_bits >= 256 and size >= 4))

    def lane_bits(self, mask: Value) -> str:
        """The mask as the low bits of a scalar i64."""
        packed = self.pure(f"bitcast {self.typed(mask)} to i{self.width}", "").ref
        return packed if self.width == 64 else self.pure(f"zext i{self.width} {packed} to i64", "").ref

    def _masked_copy(self, dtype_name: str, load: bool) -> tuple[str, str]:
        """Name and text of a function that copies the elements whose bits are set between memory and a vector."""
        element, size = STORAGE_TYPE[dtype_name], STORAGE_SIZE[dtype_name]
        vector = f"<{self.width} x {element}>"
        name = f"pullback.masked_{'load' if load else 'store'}.{self._suffix(dtype_name)}"
        source, destination = ("%memory", "%lanes") if load else ("%lanes", "%memory")
        self.declare("llvm.cttz.i64", "i64", "i64", "i1")
        return name, f"""define internal {vector if load else "void"} @{name}(ptr %memory, \
{"" if load else f"{vector} %value, "}i64 %mask) noinline {{
entry:
  %lanes = alloca {vector}
  store {vector} {"zeroinitializer" if load else "%value"}, ptr %lanes
  %some = icmp ne i64 %mask, 0
  br i1 %some, label %loop, label %done
loop:
  %left = phi i64 [ %mask, %entry ], [ %rest, %loop ]
  %lane = call i64 @llvm.cttz.i64(i64 %left, i1 true)
  %from = getelementptr {element}, ptr {source}, i64 %lane
  %to = getelementptr {element}, ptr {destination}, i64 %lane
  %one = load {element}, ptr %from, align {size}
  store {element} %one, ptr %to, align {size}
  %less = sub i64 %left, 1
  %rest = and i64 %left, %less
  %more = icmp ne i64 %rest, 0
  br i1 %more, label %loop, label %done
done:
{f"  %result = load {vector}, ptr %lanes" if load else ""}
  ret {f"{vector} %result" if load else "void"}
}}"""

    def load_scalar(self, dtype_name: str, pointer: str) -> Value:
        """One element, in every lane."""
        stored = STORAGE_TYPE[dtype_name]
        ref = self.emit(f"load {stored}, ptr {pointer}, align {STORAGE_SIZE[dtype_name]}")
        one = self.at_width(1)
        value = one.expand(one.splat(ref, _STORED[dtype_name]), dtype_name)
        return self.splat(one.first(value), value.dtype)

    def store_scalar(self, dtype_name: str, pointer: str, value: Value) -> None:
        """Lane 0, as one element."""
        one = self.at_width(1)
        one.store(dtype_name, pointer, one.splat(self.first(value), value.dtype))

    def gather(self, dtype_name: str, base: str, offsets: Value, mask: Value | None = None) -> Value:
        """The elements at ``base`` + ``offsets`` (i64, in bytes)."""
        vector = f"<{self.width} x {STORAGE_TYPE[dtype_name]}>"
        pointers, pointer_vector = self._pointers(base, offsets)
        name = f"llvm.masked.gather.{self._suffix(dtype_name)}.v{self.width}p0"
        self.declare(name, vector, pointer_vector, self.type("i1"), vector)
        ref = self.emit(
            f"call {vector} @{name}({pointer_vector} align {STORAGE_SIZE[dtype_name]} {pointers}, "
            f"{self.typed(mask or self.const(True, 'i1'))}, {vector} zeroinitializer)"
        )
        return self.expand(Value(ref, _STORED[dtype_name]), dtype_name)

    def scatter(self, dtype_name: str, base: str, offsets: Value, value: Value, mask: Value | None = None) -> None:
        """Store to ``base`` + ``offsets`` (i64, in bytes), lane 0 first."""
        vector = f"<{self.width} x {STORAGE_TYPE[dtype_name]}>"
        stored = self.shrink(value, dtype_name)
        pointers, pointer_vector = self._pointers(base, offsets)
        name = f"llvm.masked.scatter.{self._suffix(dtype_name)}.v{self.width}p0"
        self.declare(name, "void", vector, pointer_vector, self.type("i1"))
        self.lines.append(
            f"  call void @{name}({vector} {stored.ref}, {pointer_vector} align {STORAGE_SIZE[dtype_name]} {pointers}, "
            f"{self.typed(mask or self.const(True, 'i1'))})"
        )

    def load_strided(self, dtype_name: str, pointer: str, stride: str | int, mask: Value | None = None) -> Value:
        """``width`` elements, ``stride`` bytes apart (an int or a scalar i64)."""
        size = STORAGE_SIZE[dtype_name]
        if stride == size:
            return self.load(dtype_name, pointer, mask)
        if mask is None and self.width > 1:
            if stride == -size:
                first = self.emit(f"getelementptr i8, ptr {pointer}, i64 {-size * (self.width - 1)}")
                return self._shuffled(self.load(dtype_name, first), None, range(self.width - 1, -1, -1))
            if stride == 2 * size:
                # Two vectors that end where the last element does: nothing behind it is read.
                second = self.emit(f"getelementptr i8, ptr {pointer}, i64 {size * (self.width - 1)}")
                half = self.width // 2
                lanes = [*range(0, self.width, 2), *(self.width + 1 + 2 * i for i in range(half))]
                return self._shuffled(self.load(dtype_name, pointer), self.load(dtype_name, second), lanes)
        return self.gather(dtype_name, pointer, self._strided_offsets(stride), mask)

    def _shuffled(self, x: Value, y: Value | None, lanes: Iterable[int]) -> Value:
        """The lanes of ``x`` and behind them those of ``y``, chosen by number."""
        order = ", ".join(f"i32 {lane}" for lane in lanes)
        other = "poison" if y is None else y.ref
        kind = self.type(x.dtype)
        return self.pure(f"shufflevector {kind} {x.ref}, {kind} {other}, <{self.width} x i32> <{order}>", x.dtype)

    def store_strided(
        self, dtype_name: str, pointer: str, stride: str | int, value: Value, mask: Value | None = None
    ) -> None:
        """``width`` elements, ``stride`` bytes apart (an int or a scalar i64)."""
        if stride == STORAGE_SIZE[dtype_name]:
            self.store(dtype_name, pointer, value, mask)
        else:
            self.scatter(dtype_name, pointer, self._strided_offsets(stride), value, mask)

    def _strided_offsets(self, stride: str | int) -> Value:
        if isinstance(stride, int):
            return Value(f"<{', '.join(f'i64 {i * stride}' for i in range(self.width))}>", "i64")
        return self.mul(self.iota(), self.splat(stride, "i64"))

    def _pointers(self, base: str, offsets: Value) -> tuple[str, str]:
        vector = f"<{self.width} x ptr>"
        return self.pure(f"getelementptr i8, ptr {base}, {self.typed(offsets)}", "").ref, vector

    def _suffix(self, dtype_name: str) -> str:
        stored = STORAGE_TYPE[dtype_name]
        return f"v{self.width}" + {"float": "f32", "double": "f64"}.get(stored, stored)

    # ---- across lanes

    def horizontal(self, op: str, value: Value) -> Value:
        """All lanes combined, in every lane. op: add, mul, min, max (NaN wins), and, or, xor.

        Halves are combined with halves, so the order depends on the width only.
        """
        b = self
        while b.width > 1:
            half = b.width // 2
            narrow = b.at_width(half)
            parts = []
            for start in (0, half):
                lanes = ", ".join(f"i32 {i}" for i in range(start, start + half))
                parts.append(
                    b.pure(f"shufflevector {b.typed(value)}, {b.type(value.dtype)} poison, <{half} x i32> <{lanes}>",
                           value.dtype)
                )  # fmt: skip
            value = narrow.combine(op, *parts)
            b = narrow
        return value if self.width == 1 else self.splat(b.first(value), value.dtype)

    def lane(self, value: Value, number: int) -> Value:
        """One lane, as a vector of width 1."""
        kind = self.type(value.dtype)
        return self.pure(f"shufflevector {kind} {value.ref}, {kind} poison, <1 x i32> <i32 {number}>", value.dtype)

    def combine(self, op: str, x: Value, y: Value) -> Value:
        """One step of a reduction: add, mul, min, max (NaN wins), and, or, xor. On i1, add is or, mul is and."""
        if op == "max":
            return self.maximum(x, y, signed_zero=False)
        if op == "min":
            return self.minimum(x, y, signed_zero=False)
        if x.dtype == "i1":
            op = {"add": "or", "mul": "and"}.get(op, op)
        elif is_float(x.dtype):
            op = "f" + op
        return self.binary(op, x, y)

    # ---- for the kernel emitter to override

    def on_bad_index(self, bad: Value, index: Value, size: str | int) -> None:
        """Called with the mask of lanes whose index (i64, as given) is outside [-size, size). ``size`` is an int or a
        scalar i64. A kernel records the first such index."""
        raise CompileError(f"no record of errors here: {index} (mask {bad}, size {size}) cannot be checked")
