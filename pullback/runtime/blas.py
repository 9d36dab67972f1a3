"""Matrix products through BLAS, cut into tasks for the driver.

The Fortran routines are taken from the library that NumPy is linked with: it is in the process already. Where its
symbols are not to be found, SciPy's ``cython_blas`` exports the addresses of its own; that extension is loaded by its
file's path, for importing ``scipy.linalg`` takes a third of a second. A product's blocks are a function of its sizes
alone, and each block is one single-threaded call, so results do not depend on the number of threads.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.machinery
import importlib.util
import os
import sys
import threading
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import CompileError, DeviceError, DTypeError
from . import blas_ir, object_cache
from .driver import Launch

_INT_MAX = (1 << 31) - 1  # BLAS may have 32-bit integers
_CHUNK_FLOPS = 1 << 20  # work of a chunk of small tasks: some ten microseconds
_GEMV_BLOCK_BYTES = 1 << 19
_MAX_BLOCKS = 64
_ROUTINES = {"float32": ("sgemm", "sgemv"), "float64": ("dgemm", "dgemv")}
_ITEMSIZE = {"float32": 4, "float64": 8}
# How the usual builds of NumPy name Fortran routines: the wheels' OpenBLAS, then a plain BLAS.
_ROUTINE_NAMES = ("scipy_{}_64_", "scipy_{}_", "{}_64_", "{}_")
# (set, get) of the number of threads, by the names under which the usual libraries export them.
_THREAD_FUNCTIONS = (
    ("scipy_openblas_set_num_threads64_", "scipy_openblas_get_num_threads64_"),
    ("scipy_openblas_set_num_threads", "scipy_openblas_get_num_threads"),
    ("openblas_set_num_threads64_", "openblas_get_num_threads64_"),
    ("openblas_set_num_threads", "openblas_get_num_threads"),
    ("MKL_Set_Num_Threads", "MKL_Get_Max_Threads"),
)


class Operand(NamedTuple):
    """A matrix, or a batch of them, in a slot of the program.

    byte_offset: of the first element from the slot's address. The strides count elements; ``batch_stride`` 0 uses one
    matrix for the whole batch. One of ``row_stride`` and ``col_stride`` is 1 (or meaningless, along an extent of 1).
    """

    slot: int
    byte_offset: int
    row_stride: int
    col_stride: int
    batch_stride: int = 0


class _Layout(NamedTuple):
    row_major: bool
    leading: int  # elements from one row (column) to the next


def _layout(rows: int, cols: int, row_stride: int, col_stride: int) -> _Layout | None:
    """How BLAS can address a matrix, or None. A stride along an extent of 1 or 0 is meaningless."""
    if rows == 0 or cols == 0:
        return _Layout(True, max(cols, 1))
    if (col_stride == 1 or cols == 1) and (rows == 1 or cols <= row_stride <= _INT_MAX):
        return _Layout(True, row_stride if rows > 1 else cols)
    if (row_stride == 1 or rows == 1) and (cols == 1 or rows <= col_stride <= _INT_MAX):
        return _Layout(False, col_stride if cols > 1 else rows)
    return None


def accepts(rows: int, cols: int, row_stride: int, col_stride: int) -> bool:
    """Whether a ``rows`` x ``cols`` operand with these strides can be given to BLAS without a copy."""
    return rows <= _INT_MAX and cols <= _INT_MAX and _layout(rows, cols, row_stride, col_stride) is not None


def gemm_launch(
    dtype_name: str, m: int, n: int, k: int, a: Operand, b: Operand, c: Operand, batch: int = 1
) -> Launch:
    """The launch of C = A B for ``batch`` products of m x k and k x n matrices of float32 or float64.

    C is written whole, rows contiguous, and must not overlap A or B. K = 0 gives zeros; no work where C is empty.

    Raises DTypeError for other dtypes and CompileError for strides that ``accepts`` refuses.
    """
    if dtype_name not in _ROUTINES:
        raise DTypeError(f"BLAS multiplies float32 and float64, not {dtype_name}")
    item = _ITEMSIZE[dtype_name]
    library = _get_library()
    if m == 0 or n == 0 or batch == 0:
        return Launch(library.functions["clear"], (0,) * len(blas_ir.CLEAR_PARAMS), 0, 1)
    if batch > 1:
        m, a, b, c, batch = _fold_batch(m, n, k, a, b, c, batch)
    a_layout = _layout(m, k, a.row_stride, a.col_stride)
    b_layout = _layout(k, n, b.row_stride, b.col_stride)
    c_layout = _layout(m, n, c.row_stride, c.col_stride)
    if n == 1 and m > 1 and c.row_stride >= 1:
        c_layout = _Layout(True, c.row_stride)
    if max(m, n, k) > _INT_MAX or a_layout is None or b_layout is None or c_layout is None or not c_layout.row_major:
        raise CompileError(f"BLAS cannot multiply {m}x{k} by {k}x{n} with the operands {a}, {b}, {c}")
    if k == 0:
        clear = (c.slot, c.byte_offset, m, n * item, c_layout.leading * item, c.batch_stride * item)
        return Launch(library.functions["clear"], clear, batch * m, max(1, (1 << 20) // (n * item)))
    if m == 1 or n == 1:
        return _gemv(library, dtype_name, m, n, k, a, b, c, a_layout, b_layout, c_layout, batch)
    m_block, n_block = _block(m, n, k, batch)
    m_blocks, n_blocks = -(-m // m_block), -(-n // n_block)
    params = (
        library.routines[_ROUTINES[dtype_name][0]],
        a.slot, a.byte_offset, b.slot, b.byte_offset, c.slot, c.byte_offset,
        m, n, k, m_block, n_block, m_blocks, n_blocks,
        ord("N" if a_layout.row_major else "T"), ord("N" if b_layout.row_major else "T"),
        a_layout.leading, b_layout.leading, c_layout.leading,
        m_block * item * (a_layout.leading if a_layout.row_major else 1),
        n_block * item * (1 if b_layout.row_major else b_layout.leading),
        m_block * item * c_layout.leading, n_block * item,
        a.batch_stride * item, b.batch_stride * item, c.batch_stride * item,
    )  # fmt: skip
    function = library.functions[f"gemm_{dtype_name}"]
    total = batch * m_blocks * n_blocks
    grain = max(1, _CHUNK_FLOPS // (2 * m_block * n_block * k))
    return Launch(function, params, total, grain, guard=library.guard)


def _fold_batch(
    m: int, n: int, k: int, a: Operand, b: Operand, c: Operand, batch: int
) -> tuple[int, Operand, Operand, Operand, int]:
    """One product with ``batch * m`` rows where B is shared and the rows of A and of C follow each other evenly."""
    if b.batch_stride != 0 or (a.col_stride != 1 and k > 1) or (c.col_stride != 1 and n > 1):
        return m, a, b, c, batch
    a_row, c_row = (a.batch_stride, c.batch_stride) if m == 1 else (a.row_stride, c.row_stride)
    if a_row < k or c_row < n or a.batch_stride != m * a_row or c.batch_stride != m * c_row:
        return m, a, b, c, batch
    return batch * m, a._replace(row_stride=a_row), b, c._replace(row_stride=c_row), 1


def _block(m: int, n: int, k: int, batch: int) -> tuple[int, int]:
    """Rows and columns of a block. Four times the work makes twice the blocks, of twice the work each.

    A block packs its rows of A and columns of B once more; repacking B was measured to cost about three times as much.
    """
    flops = 2 * m * n * k
    if flops < 2 << 20 or batch >= _MAX_BLOCKS:
        return m, n
    blocks = 2
    limit = 48 << 20
    while flops >= limit and blocks * 2 * batch <= _MAX_BLOCKS:
        blocks *= 2
        limit *= 4
    best: tuple[int, int] = (m, n)
    best_cost: int | None = None
    columns = 1
    while columns <= blocks:
        rows = blocks // columns
        m_block, n_block = _round_up(-(-m // rows), 4), _round_up(-(-n // columns), 16)
        cost = columns * m + 3 * rows * n
        if (rows == 1 or m_block >= 32) and (columns == 1 or n_block >= 32) and (best_cost is None or cost < best_cost):
            best, best_cost = (min(m_block, m), min(n_block, n)), cost
        columns *= 2
    return best


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def _gemv(
    library: _Library, dtype_name: str, m: int, n: int, k: int, a: Operand, b: Operand, c: Operand,
    a_layout: _Layout, b_layout: _Layout, c_layout: _Layout, batch: int,
) -> Launch:  # fmt: skip
    """A product with one row or one column: several times faster through gemv than through gemm."""
    item = _ITEMSIZE[dtype_name]
    if m == 1:  # c' = B' a'; B in row-major order is the column-major n x k matrix B'
        length, matrix, vector, layout, plain = n, b, a, b_layout, b_layout.row_major
        vector_inc, out_inc = a.col_stride, 1
    else:  # c = A b
        length, matrix, vector, layout, plain = m, a, b, a_layout, not a_layout.row_major
        vector_inc, out_inc = b.row_stride, c_layout.leading
    if k == 1:
        vector_inc = 1
    nbytes = length * k * item
    if plain:  # a block is a stripe of every row of B': narrow stripes are slow to read
        blocks = max(2, length // 2048) if nbytes >= 4 * _GEMV_BLOCK_BYTES and length >= 256 else 1
    else:
        blocks = min(max(1, nbytes // _GEMV_BLOCK_BYTES), -(-length // 16))
    blocks = min(blocks, max(1, _MAX_BLOCKS // batch))
    block = _round_up(-(-length // blocks), 16)
    blocks = -(-length // block)
    params = (
        library.routines[_ROUTINES[dtype_name][1]],
        matrix.slot, matrix.byte_offset, vector.slot, vector.byte_offset, c.slot, c.byte_offset,
        length, k, block, blocks, ord("N" if plain else "T"), layout.leading, vector_inc, out_inc,
        block * item * (1 if plain else layout.leading), block * item * out_inc,
        matrix.batch_stride * item, vector.batch_stride * item, c.batch_stride * item,
    )  # fmt: skip
    grain = max(1, _CHUNK_FLOPS // (8 * min(block, length) * k))  # memory-bound: a quarter of the speed
    return Launch(library.functions[f"gemv_{dtype_name}"], params, batch * blocks, grain, guard=library.guard)


class _Library:
    """The BLAS of the process.

    path: the extension that is linked with it.   routines: addresses of the Fortran routines.
    functions: addresses of the tasks in blas_ir.
    guard: functions around a program that hold BLAS to one thread, or None where it is not known how.
    """

    def __init__(self) -> None:
        names = [name for pair in _ROUTINES.values() for name in pair]
        self.path, self.routines = _numpy_routines(names) or _scipy_routines(names)
        text, defined = blas_ir.blas_ir()
        self.functions = object_cache.compile_text(text, defined, quick=True)
        self.guard: tuple[int, int] | None = None
        self.reset: Any = None
        threads = _thread_functions(self.path)
        if threads is not None:
            configure_type = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
            configure_type(self.functions["pullback_blas_configure"])(*threads)
            self.guard = (self.functions["pullback_blas_enter"], self.functions["pullback_blas_leave"])
            self.reset = ctypes.CFUNCTYPE(None)(self.functions["pullback_blas_reset"])


def _numpy_routines(names: list[str]) -> tuple[str, dict[str, int]] | None:
    """The routines of NumPy's BLAS, found through the extension that is linked with it, or None."""
    for package in ("numpy._core", "numpy.core"):
        path = getattr(sys.modules.get(package + "._multiarray_umath"), "__file__", None)
        if path is None:
            continue
        try:
            library = ctypes.CDLL(path)  # symbols of its dependencies are found through it
        except OSError:
            continue
        for pattern in _ROUTINE_NAMES:
            found = {name: _symbol(library, pattern.format(name)) for name in names}
            addresses = {name: address for name, address in found.items() if address}
            if len(addresses) == len(names):
                return path, addresses
    return None


def _scipy_routines(names: list[str]) -> tuple[str, dict[str, int]]:
    module = _cython_blas()
    return module.__file__, {name: _capsule_address(module.__pyx_capi__[name]) for name in names}


def _symbol(library: ctypes.CDLL, name: str) -> int | None:
    try:
        return ctypes.cast(library[name], ctypes.c_void_p).value
    except AttributeError:
        return None


def _cython_blas() -> Any:
    name = "scipy.linalg.cython_blas"
    if name in sys.modules:
        return sys.modules[name]
    package = importlib.util.find_spec("scipy")
    if package is None or not package.submodule_search_locations:
        raise DeviceError("matrix products need SciPy, which is not installed")
    for suffix in importlib.machinery.EXTENSION_SUFFIXES:
        path = Path(package.submodule_search_locations[0], "linalg", "cython_blas" + suffix)
        if path.is_file():
            spec = importlib.util.spec_from_file_location(name, path)
            if spec is not None and spec.loader is not None:
                module = importlib.util.module_from_spec(spec)
                spec.loader.exec_module(module)
                return module
    return importlib.import_module(name)  # an installation that is not laid out as files


def _capsule_address(capsule: Any) -> int:
    get_name, get_pointer = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    get_name.restype, get_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    address: int = get_pointer(capsule, get_name(capsule))
    return address


def _thread_functions(path: str) -> tuple[int, int] | None:
    """Addresses of ``void set(int)`` and ``int get(void)`` of the BLAS that the extension at ``path`` links to."""
    try:
        library = ctypes.CDLL(path)
    except OSError:
        return None
    for names in _THREAD_FUNCTIONS:
        set_threads, get_threads = (_symbol(library, name) for name in names)
        if set_threads and get_threads:
            return set_threads, get_threads
    return None


_lock = threading.Lock()
_library: _Library | None = None


def _get_library() -> _Library:
    global _library
    if _library is None:
        with _lock:
            if _library is None:
                _library = _Library()
    return _library


def _after_fork_in_child() -> None:
    if _library is not None and _library.reset is not None:
        _library.reset()
    _lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_after_fork_in_child)
