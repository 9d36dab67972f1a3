"""How a contraction is cut into tasks for the engine's native functions (see llvm/contraction.py).

contraction.py says what is multiplied; ``product_launch`` chooses the blocks, and which operands are packed, and writes
the launch's parameters.

Blocks of C are tasks. An element of C is summed in the same order whatever the blocks of m and n are, so these may
depend on the number of threads; the blocks of k depend on k alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from ..errors import CompileError
from ..runtime import object_cache
from ..runtime.driver import Launch, get_num_threads
from .blockwise import BlockCall, Lead
from .llvm.block_loops import ACROSS, DIRECT, PACKED, TOGETHER
from .llvm.blockwise import CALL
from .llvm.contraction import contraction_ir, function_name
from .llvm.packing import Tile, group_words, steps_in_lane, sum_dtype_of, tile_for
from .llvm.panels import NEIGHBOURS
from .llvm.target import Target, host
from .llvm.values import STORAGE_SIZE

MAX_K_BLOCK = 384  # a panel of B of that many rows stays in the cache next to the core
PACKED_A_BYTES = 144 << 10  # of a block of A, for the cache behind it
KEPT_A_BYTES = 400 << 10  # of all rows of A, up to which they stay in that cache while panels of B pass by
MAX_COLUMNS, MAX_WIDE_COLUMNS = 512, 1600  # of a task; of one that keeps all rows of A
MAX_WHOLE_COLUMNS = 1024  # of a task that owns whole rows
# Some ten microseconds, worth waking a thread for; and what is worth sharing with one that is awake.
CHUNK_FLOPS, MIN_TASK_FLOPS = 1 << 20, 1 << 18
SMALL_BYTES = 96 << 10  # an operand that is read in place without harm
NEAR_ROWS_BYTES = 2048  # from row to row of an operand that a tile reads across without harm
DTYPES = ("float32", "float64", "float16", "bfloat16", "int32", "uint32", "int64", "uint64")
#: dtype of products -> narrower dtypes of operands that the engine widens itself, as it packs them
NARROW = {
    "float32": ("float16", "bfloat16"),
    "int32": ("int8", "uint8", "int16", "uint16"),
    "uint32": ("int8", "uint8", "int16", "uint16"),
}

Axis = tuple[int, ...]  # extent, then a stride in bytes for each operand that has the axis


@dataclass
class Product:
    """``C[batch, m, n] = sum over k of A[batch, m, k] B[batch, k, n]``, each group a list of axes, outermost first.

    Strides in bytes: of batch axes in A, B and C, of m in A and C, of n in B and C, of k in A and B.
    dtype: of A and B.   result: of C, which is that of A and B, or a wider one (see ``NARROW``).
    """

    dtype: str
    result: str
    batch: list[Axis]
    m: list[Axis]
    n: list[Axis]
    k: list[Axis]

    @property
    def extents(self) -> tuple[int, int, int, int]:
        """m, n, k, and the number of products."""
        return extent_of(self.m), extent_of(self.n), extent_of(self.k), extent_of(self.batch)


def collapsed(axes: list[Axis]) -> list[Axis]:
    """The same positions with as few axes as possible; of some axes, one at least."""
    found: list[Axis] = []
    for axis in axes:
        extent, *strides = axis
        if extent == 1:
            continue
        if found:
            outer, *steps = found[-1]
            if all(step == stride * extent for step, stride in zip(steps, strides, strict=True)):
                found[-1] = (outer * extent, *strides)
                continue
        found.append(axis)
    return found or [(1, *(0 for _ in axis[1:])) for axis in axes[:1]]


def extent_of(axes: list[Axis]) -> int:
    extent = 1
    for axis in axes:
        extent *= axis[0]
    return extent


@cache
def _function(dtype: str, result: str, target: Target) -> int:
    name = function_name(dtype, result)
    return object_cache.compile_text(contraction_ir(dtype, target, result), (name,))[name]


def prepare(dtype: str, result: str, target: Target) -> None:
    """Compile the engine for products of a dtype, if need be."""
    _function(dtype, result, target)


def has_tile(target: Target | None = None) -> bool:
    """Whether the engine has a register tile for the processor, or leaves its products to BLAS."""
    return (target or host()).has_fma


def product_launch(
    product: Product, a: tuple[int, int], b: tuple[int, int], c: tuple[int, int], target: Target,
    follow: BlockCall | None = None, leads: tuple[Lead | None, Lead | None] = (None, None),
) -> Launch:
    """The launch of a product; ``a``, ``b``, ``c``: slot and byte offset. The extent of k is not 0.

    follow: the kernel that goes over C.   leads: those that compute A and B, whose slots then hold 0.
    """
    m, n, k, batch = product.extents
    if 0 in (m, n, batch):
        return Launch(_function(product.dtype, product.result, target), (), 0, 1)
    cut = _cut(product, target, follow, leads)
    places, scratch = [], 0
    for nbytes in _scratch_of(product, target, cut, follow, leads):
        places.append(scratch)
        scratch += rounded_up(nbytes, 64) + 128  # a vector may be written behind a panel
    m_blocks, n_blocks = -(-m // cut.m_block), -(-n // cut.n_block)
    (_, a_row, c_row), (_, a_k, _) = product.m[-1], product.k[-1]
    params = [
        *a, *b, *c, m, n, k, cut.m_block, cut.n_block, m_blocks, n_blocks, cut.k_block, cut.row_block,
        cut.a_access, cut.b_access, int(cut.c_direct), a_row, a_k, c_row, *places, 0, 0,
    ]  # fmt: skip
    at_leads = len(params) - 2
    for axes in (product.batch, product.m, product.n, product.k):
        params += group_words(axes)
    sum_size = STORAGE_SIZE[sum_dtype_of(product.dtype)]
    params += [0] * len(CALL) if follow is None else follow.words(cut.n_block * sum_size)
    for number, (lead, free) in enumerate(zip(leads, (cut.row_block, cut.n_block), strict=True)):
        if lead is not None:
            params[at_leads + number] = len(params)
            params += lead.words(free, cut.k_block)
    total = batch * m_blocks * n_blocks
    task_flops = 2 * min(m, cut.m_block) * min(n, cut.n_block) * k
    chunk_flops = CHUNK_FLOPS if 2 * m * n * k * batch > 8 * CHUNK_FLOPS else MIN_TASK_FLOPS
    grain = max(1, min(total, chunk_flops // task_flops))
    weight = min(1.0, grain * task_flops / CHUNK_FLOPS)
    return Launch(_function(product.dtype, product.result, target), params, total, grain, scratch, weight=weight)


@dataclass(frozen=True)
class _Cut:
    """The blocks of a product: ``m_block`` by ``n_block`` of C are a task, which sums ``k_block`` steps at a time, of
    ``row_block`` rows of A.

    depth: lanes of a panel for a block of k.   a_access, b_access: see llvm/block_loops.py.
    b_in_place: all panels of B are read in place.
    c_direct: sums are written to C as they are.
    """

    m_block: int
    n_block: int
    k_block: int
    row_block: int
    depth: int
    a_access: int
    b_access: int
    b_in_place: bool
    c_direct: bool


def _cut(
    product: Product, target: Target, follow: BlockCall | None, leads: tuple[Lead | None, Lead | None]
) -> _Cut:
    """Blocks, and whether operands are packed: one that is read once or twice, or that the caches hold, is not."""
    m, n, k, batch = product.extents
    size = STORAGE_SIZE[product.dtype]
    sum_dtype, steps = sum_dtype_of(product.dtype), steps_in_lane(product.dtype, target)
    is_widened = sum_dtype != product.dtype
    sum_size = STORAGE_SIZE[sum_dtype]
    tile = tile_for(target, sum_dtype)
    has_one = {name: len(getattr(product, name)) == 1 for name in "mnk"}  # axis
    (_, a_row, _), (_, b_column, c_column), (_, a_k, _) = product.m[-1], product.n[-1], product.k[-1]
    lead_a, lead_b = leads
    whole_rows = follow is not None and follow.whole
    is_joined = whole_rows or lead_a is not None or lead_b is not None
    k_block = _k_block(k, steps)
    depth = -(-k_block // steps)
    is_wide = follow is None and not is_joined and m * depth * sum_size <= KEPT_A_BYTES
    m_block, n_block = _blocks(m, n, k, batch, tile, whole_rows, is_joined, is_wide)
    row_block = max(tile.rows, PACKED_A_BYTES // (depth * sum_size) // tile.rows * tile.rows)
    row_block = m_block if is_wide else min(m_block, row_block)

    # C may be in order where operands are not: what comes of windows is a plain matrix.
    in_order = all(len(collapsed([(axis[0], axis[2]) for axis in axes])) == 1 for axes in (product.m, product.n))
    c_direct = in_order and product.result == sum_dtype and (n == 1 or c_column == sum_size)
    c_direct = c_direct and not (follow is not None and follow.only)
    reads_a = not is_widened and has_one["m"] and has_one["k"]
    a_direct = reads_a and (k == 1 or a_k == size)
    a_direct = a_direct and (n_block <= 8 * tile.columns or m * k * size <= SMALL_BYTES)
    if lead_a is not None:
        a_direct = not is_widened and lead_a.is_along_k
    few_times = n_block <= (8 if abs(a_k) <= NEAR_ROWS_BYTES else 4) * tile.columns
    a_across = few_times and lead_a is None and reads_a and a_row == size
    # Of B, panels whose columns follow each other, as the native code finds out.
    b_in_order = b_column == size if lead_b is None else not lead_b.is_along_k
    is_near = abs(product.k[-1][2]) <= NEAR_ROWS_BYTES // 2  # else a panel's piece of a row is all there is of a page
    times = 16 if n * k * size <= SMALL_BYTES else 8 if is_near else 0
    b_direct = not is_widened and b_in_order and m_block <= times * tile.rows
    b_in_place = b_direct and lead_b is None and has_one["n"] and n % tile.columns == 0
    has_lines = b_in_order and steps == 1 and (lead_b is not None or has_one["n"])
    a_access = DIRECT if a_direct else ACROSS if a_across else PACKED
    b_access = DIRECT if b_direct else TOGETHER if has_lines else PACKED
    return _Cut(m_block, n_block, k_block, row_block, depth, a_access, b_access, b_in_place, c_direct)


def _scratch_of(
    product: Product, target: Target, cut: _Cut, follow: BlockCall | None, leads: tuple[Lead | None, Lead | None]
) -> list[int]:
    """Bytes of each part of the scratch, in the order of the parameters ``at_a`` to ``at_spills``."""
    sum_dtype = sum_dtype_of(product.dtype)
    tile, sum_size = tile_for(target, sum_dtype), STORAGE_SIZE[sum_dtype]
    row_block, n_block, k_block = cut.row_block, cut.n_block, cut.k_block
    c_rows = row_block if k_block >= product.extents[2] else cut.m_block
    a_rows = row_block + tile.rows + tile.few_rows
    b_columns = rounded_up(n_block, tile.columns)
    if row_block >= cut.m_block:  # panels take the place of those before
        b_columns = min(b_columns, (NEIGHBOURS if cut.b_access == TOGETHER else 1) * tile.columns)
    lead_a, lead_b = leads
    calls = [found.call for found in leads if found is not None] + ([] if follow is None else [follow])
    return [
        0 if cut.a_access == DIRECT else a_rows * cut.depth * sum_size,  # a
        0 if cut.b_in_place else b_columns * cut.depth * sum_size,  # b
        (row_block + 2 * tile.rows) * 8,  # rows
        (n_block + tile.columns) * 8,  # columns
        n_block * 8,  # out
        k_block * 8,  # ka
        k_block * 8,  # kb
        8 * (n_block // tile.columns + 1),  # panels
        k_block * 8,  # lines
        0 if cut.c_direct else c_rows * n_block * sum_size,  # c
        0 if lead_a is None else lead_a.block_bytes(row_block, k_block),
        0 if lead_b is None else lead_b.block_bytes(n_block, k_block),
        max([8 * len(call.params) for call in calls], default=0),  # call
        max([call.scratch for call in calls], default=0),  # spills
    ]


def task_blocks(dtype: str, m: int, n: int, k: int, batch: int, whole_rows: bool) -> tuple[int, int]:
    """Rows and columns of the blocks of C that are tasks, if a kernel computes an operand; ``whole_rows``: each of
    which owns whole rows."""
    return _blocks(m, n, k, batch, _tile(dtype, host()), whole_rows, joined=True)


def takes_all_of_k(k: int) -> bool:
    """Whether k is one block."""
    return _k_block(k) >= k


def _k_block(k: int, steps: int = 1) -> int:
    """Steps of k in a block, of whose panels each lane holds ``steps``."""
    return _even_block(k, MAX_K_BLOCK * steps, 8)


def whole_rows_fit(dtype: str, m: int, n: int, k: int, batch: int) -> bool:
    """Whether tasks that own whole rows of C take about as long as others."""
    tile = _tile(dtype, host())
    if n <= _blocks(m, n, k, batch, tile, joined=True)[1]:
        return True
    return n <= MAX_WHOLE_COLUMNS and batch * m >= 8 * get_num_threads() * tile.rows


def _tile(dtype: str, target: Target) -> Tile:
    """The register tile for operands of ``dtype``."""
    return tile_for(target, sum_dtype_of(dtype))


def rounded_up(value: int, multiple: int) -> int:
    """The least multiple of ``multiple`` that is not below ``value``."""
    return -(-value // multiple) * multiple


def _even_block(extent: int, limit: int, multiple: int) -> int:
    """Blocks of nearly one size, at most ``limit``."""
    return min(extent, rounded_up(-(-extent // -(-extent // limit)), multiple))


def _blocks(
    m: int, n: int, k: int, batch: int, tile: Tile, whole_rows: bool = False, joined: bool = False,
    is_wide: bool = False,
) -> tuple[int, int]:
    """Rows and columns of a task: enough tasks for all threads, none too small, and little packed twice.

    joined: a kernel computes an operand as it is packed, or goes over whole rows of the result, and few blocks suit it.
    is_wide: all rows of A stay in the cache, so that of B few panels at a time need do.
    """
    threads = get_num_threads()
    most = max(1, min(2 * m * n * k // (2 * CHUNK_FLOPS if joined else MIN_TASK_FLOPS), 8 * threads))
    fewest = 1 if whole_rows else -(-n // (MAX_WIDE_COLUMNS if is_wide else MAX_COLUMNS))
    best: tuple[float, int, int] | None = None
    for more in (1,) if whole_rows else (1, 2, 3, 4, 6, 8, 12, 16):
        n_block = rounded_up(-(-n // (fewest * more)), tile.columns)
        for m_blocks in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32):
            m_block = rounded_up(-(-m // m_blocks), tile.rows)
            tasks = -(-m // m_block) * -(-n // n_block)
            if tasks > most and (more > 1 or m_blocks > 1):
                break
            # In multiply-adds: to pack an element of B costs as much as ten, of A, which is still near when it is read,
            # as six.
            task = m_block * n_block * k + k * (6 * m_block + 10 * n_block)
            cost = -(-batch * tasks // threads) * task
            if best is None or cost < best[0]:
                best = cost, m_block, n_block
    if best is None:
        raise CompileError(f"no blocks for a product of {m} x {k} x {n}")
    return min(best[1], m), best[2]
