"""LLVM IR of the tasks that call BLAS: they find their block from the task's number and call a Fortran routine.

Fortran takes every argument by address, and the lengths of the characters at the end. Integers are stored as 64-bit
words, of which a BLAS with 32-bit integers reads the low half: for little-endian processors, the only ones that the
runtime knows. A row-major product C = A B is the column-major product C' = B' A', so the routine's first matrix is B.
"""

from __future__ import annotations

# Params of a gemm task, in words; blas.py writes them in this order.
GEMM_PARAMS = (
    "routine", "a_slot", "a_offset", "b_slot", "b_offset", "c_slot", "c_offset",
    "m", "n", "k", "m_block", "n_block", "m_blocks", "n_blocks",
    "a_trans", "b_trans", "lda", "ldb", "ldc",
    "a_m_step", "b_n_step", "c_m_step", "c_n_step",  # bytes from block to block
    "a_batch_step", "b_batch_step", "c_batch_step",  # bytes from product to product
)  # fmt: skip
# Params of a gemv task: out = matrix vector, ``length`` results.
GEMV_PARAMS = (
    "routine", "matrix_slot", "matrix_offset", "vector_slot", "vector_offset", "out_slot", "out_offset",
    "length", "k", "block", "blocks", "trans", "ld", "vector_inc", "out_inc",
    "matrix_step", "out_step",
    "matrix_batch_step", "vector_batch_step", "out_batch_step",
)  # fmt: skip
# Params of a task that clears a row.
CLEAR_PARAMS = ("c_slot", "c_offset", "m", "row_bytes", "c_row_step", "c_batch_step")
GUARD_FUNCTIONS = ("pullback_blas_configure", "pullback_blas_enter", "pullback_blas_leave", "pullback_blas_reset")

_LOOP = """
define void @$NAME(ptr %slots, ptr %params, i64 %lo, i64 %hi, ptr %scratch) {
entry:
$ALLOCAS
$LOADS
  br label %task
task:
  %t = phi i64 [ %lo, %entry ], [ %t1, %next ]
$BODY
  br label %next
next:
  %t1 = add i64 %t, 1
  %more = icmp slt i64 %t1, %hi
  br i1 %more, label %task, label %done
done:
  ret void
}
"""

_GEMM = """
  %per = mul i64 %m_blocks, %n_blocks
  %item = sdiv i64 %t, %per
  %rest = srem i64 %t, %per
  %i = sdiv i64 %rest, %n_blocks
  %j = srem i64 %rest, %n_blocks
  %m0 = mul i64 %i, %m_block
  %n0 = mul i64 %j, %n_block
  %m.left = sub i64 %m, %m0
  %n.left = sub i64 %n, %n0
  %m.here = call i64 @llvm.smin.i64(i64 %m_block, i64 %m.left)
  %n.here = call i64 @llvm.smin.i64(i64 %n_block, i64 %n.left)
  store i64 %m.here, ptr %m.p
  store i64 %n.here, ptr %n.p
  %a.b = mul i64 %item, %a_batch_step
  %a.i = mul i64 %i, %a_m_step
  %a.s = add i64 %a.b, %a.i
  %a = getelementptr i8, ptr %a.base, i64 %a.s
  %b.b = mul i64 %item, %b_batch_step
  %b.j = mul i64 %j, %b_n_step
  %b.s = add i64 %b.b, %b.j
  %b = getelementptr i8, ptr %b.base, i64 %b.s
  %c.b = mul i64 %item, %c_batch_step
  %c.i = mul i64 %i, %c_m_step
  %c.j = mul i64 %j, %c_n_step
  %c.s = add i64 %c.b, %c.i
  %c.t = add i64 %c.s, %c.j
  %c = getelementptr i8, ptr %c.base, i64 %c.t
  call void %routine.f(ptr %b_trans.p, ptr %a_trans.p, ptr %n.p, ptr %m.p, ptr %k.p, ptr %one.p, ptr %b, ptr %ldb.p, ptr %a, ptr %lda.p, ptr %zero.p, ptr %c, ptr %ldc.p, i64 1, i64 1)
"""  # noqa: E501

_GEMV = """
  %item = sdiv i64 %t, %blocks
  %i = srem i64 %t, %blocks
  %first = mul i64 %i, %block
  %left = sub i64 %length, %first
  %here = call i64 @llvm.smin.i64(i64 %block, i64 %left)
  store i64 %here, ptr %here.p
  %x.b = mul i64 %item, %matrix_batch_step
  %x.i = mul i64 %i, %matrix_step
  %x.s = add i64 %x.b, %x.i
  %x = getelementptr i8, ptr %matrix.base, i64 %x.s
  %v.b = mul i64 %item, %vector_batch_step
  %v = getelementptr i8, ptr %vector.base, i64 %v.b
  %y.b = mul i64 %item, %out_batch_step
  %y.i = mul i64 %i, %out_step
  %y.s = add i64 %y.b, %y.i
  %y = getelementptr i8, ptr %out.base, i64 %y.s
  br label %clear
clear:
  ; Not every BLAS ignores what y holds when beta is 0: a NaN there must not get through.
  %z = phi i64 [ 0, %task ], [ %z1, %clear ]
  %z.at = mul i64 %z, %out_inc
  %z.p = getelementptr $T, ptr %y, i64 %z.at
  store $T 0.0, ptr %z.p
  %z1 = add i64 %z, 1
  %z.more = icmp slt i64 %z1, %here
  br i1 %z.more, label %clear, label %multiply
multiply:
  call void %routine.f(ptr %trans.p, ptr %rows.p, ptr %cols.p, ptr %one.p, ptr %x, ptr %ld.p, ptr %v, ptr %vector_inc.p, ptr %zero.p, ptr %y, ptr %out_inc.p, i64 1)
"""  # noqa: E501

_CLEAR = """
  %item = sdiv i64 %t, %m
  %row = srem i64 %t, %m
  %b = mul i64 %item, %c_batch_step
  %r = mul i64 %row, %c_row_step
  %s = add i64 %b, %r
  %p = getelementptr i8, ptr %c.base, i64 %s
  call void @llvm.memset.p0.i64(ptr %p, i8 0, i64 %row_bytes, i1 false)
"""

# The guard keeps a BLAS with threads of its own to one while programs that use it run, and gives the user's setting
# back after the last of them. The mutex makes a second program wait until the first one's setting is in force.
_GUARD = """
@set_threads = internal global ptr null
@get_threads = internal global ptr null
@programs = internal global i64 0, align 128
@saved = internal global i32 0
@guard_mutex = internal global [16 x i64] zeroinitializer, align 128
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)

define void @pullback_blas_configure(ptr %set, ptr %get) {
  store ptr %set, ptr @set_threads
  store ptr %get, ptr @get_threads
  %m = call i32 @pthread_mutex_init(ptr @guard_mutex, ptr null)
  ret void
}

define void @pullback_blas_enter() {
entry:
  %l = call i32 @pthread_mutex_lock(ptr @guard_mutex)
  %n = load i64, ptr @programs
  %n1 = add i64 %n, 1
  store i64 %n1, ptr @programs
  %first = icmp eq i64 %n, 0
  br i1 %first, label %ask, label %done
ask:
  %get = load ptr, ptr @get_threads
  %threads = call i32 %get()
  store i32 %threads, ptr @saved
  %already = icmp eq i32 %threads, 1
  br i1 %already, label %done, label %single
single:
  %set = load ptr, ptr @set_threads
  call void %set(i32 1)
  br label %done
done:
  %u = call i32 @pthread_mutex_unlock(ptr @guard_mutex)
  ret void
}

define void @pullback_blas_leave() {
entry:
  %l = call i32 @pthread_mutex_lock(ptr @guard_mutex)
  %n = load i64, ptr @programs
  %n1 = sub i64 %n, 1
  store i64 %n1, ptr @programs
  %last = icmp eq i64 %n1, 0
  %threads = load i32, ptr @saved
  %changed = icmp ne i32 %threads, 1
  %restore = and i1 %last, %changed
  br i1 %restore, label %give, label %done
give:
  %set = load ptr, ptr @set_threads
  call void %set(i32 %threads)
  br label %done
done:
  %u = call i32 @pthread_mutex_unlock(ptr @guard_mutex)
  ret void
}

; In a forked child no program runs.
define void @pullback_blas_reset() {
entry:
  %m = call i32 @pthread_mutex_init(ptr @guard_mutex, ptr null)
  %n = load i64, ptr @programs
  store i64 0, ptr @programs
  %running = icmp ne i64 %n, 0
  br i1 %running, label %give, label %done
give:
  %threads = load i32, ptr @saved
  %set = load ptr, ptr @set_threads
  call void %set(i32 %threads)
  br label %done
done:
  ret void
}
"""


def _load(names: tuple[str, ...]) -> list[str]:
    lines = []
    for index, name in enumerate(names):
        lines.append(f"  %{name}.w = getelementptr i64, ptr %params, i64 {index}")
        lines.append(f"  %{name} = load i64, ptr %{name}.w")
    return lines


def _base(operand: str) -> list[str]:
    return [
        f"  %{operand}.slot = getelementptr ptr, ptr %slots, i64 %{operand}_slot",
        f"  %{operand}.start = load ptr, ptr %{operand}.slot",
        f"  %{operand}.base = getelementptr i8, ptr %{operand}.start, i64 %{operand}_offset",
    ]


def _integer(name: str) -> list[str]:
    return [f"  store i64 %{name}, ptr %{name}.p"]


def _character(name: str) -> list[str]:
    return [f"  %{name}.char = trunc i64 %{name} to i8", f"  store i8 %{name}.char, ptr %{name}.p"]


def _allocas(integers: tuple[str, ...], characters: tuple[str, ...], real: str) -> list[str]:
    return [
        *(f"  %{name}.p = alloca i64" for name in integers),
        *(f"  %{name}.p = alloca i8" for name in characters),
        f"  %one.p = alloca {real}",
        f"  %zero.p = alloca {real}",
        f"  store {real} 1.0, ptr %one.p",
        f"  store {real} 0.0, ptr %zero.p",
    ]


def _function(name: str, allocas: list[str], loads: list[str], body: str) -> str:
    text = _LOOP.replace("$NAME", name).replace("$ALLOCAS", "\n".join(allocas)).replace("$LOADS", "\n".join(loads))
    return text.replace("$BODY", body)


def _gemm(suffix: str, real: str) -> str:
    loads = _load(GEMM_PARAMS)
    for operand in "abc":
        loads += _base(operand)
    for name in ("k", "lda", "ldb", "ldc"):
        loads += _integer(name)
    loads += [*_character("a_trans"), *_character("b_trans"), "  %routine.f = inttoptr i64 %routine to ptr"]
    allocas = _allocas(("m", "n", "k", "lda", "ldb", "ldc"), ("a_trans", "b_trans"), real)
    return _function(f"gemm_{suffix}", allocas, loads, _GEMM)


def _gemv(suffix: str, real: str) -> str:
    loads = _load(GEMV_PARAMS)
    for operand in ("matrix", "vector", "out"):
        loads += _base(operand)
    for name in ("k", "ld", "vector_inc", "out_inc"):
        loads += _integer(name)
    loads += [
        *_character("trans"),
        "  %routine.f = inttoptr i64 %routine to ptr",
        f"  %plain = icmp eq i64 %trans, {ord('N')}",
        "  %rows.p = select i1 %plain, ptr %here.p, ptr %k.p",
        "  %cols.p = select i1 %plain, ptr %k.p, ptr %here.p",
    ]
    allocas = _allocas(("here", "k", "ld", "vector_inc", "out_inc"), ("trans",), real)
    body = _GEMV.replace("$T", real)
    return _function(f"gemv_{suffix}", allocas, loads, body)


def blas_ir() -> tuple[str, tuple[str, ...]]:
    """The module's text and the names that it defines."""
    text = ["declare i64 @llvm.smin.i64(i64, i64)", "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)", _GUARD]
    names = ["clear", *GUARD_FUNCTIONS]
    for suffix, real in (("float32", "float"), ("float64", "double")):
        text += [_gemm(suffix, real), _gemv(suffix, real)]
        names += [f"gemm_{suffix}", f"gemv_{suffix}"]
    text.append(_function("clear", [], [*_load(CLEAR_PARAMS), *_base("c")], _CLEAR))
    return "\n".join(text), tuple(names)
