"""Matrix products against NumPy: layouts, strides, batches, degenerate sizes, blocks, threads."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys

import numpy as np
import pytest

from pullback.errors import CompileError, DTypeError
from pullback.runtime import blas, driver
from pullback.runtime.blas import Operand
from tests.threads import same_bits

DTYPES = ["float32", "float64"]


def operand(slot: int, array: np.ndarray, batched: bool) -> Operand:
    """The operand that describes ``array`` ([batch,] rows, cols), its slot pointing at the first element."""
    strides = [stride // array.itemsize for stride in array.strides]
    return Operand(slot, 0, strides[-2], strides[-1], strides[0] if batched else 0)


def multiply(a: np.ndarray, b: np.ndarray, c: np.ndarray, batch: int = 1) -> driver.Launch:
    """Run C = A B through the driver; the launch that was run."""
    slots = np.zeros(5, np.int64)
    slots[2:] = [a.ctypes.data, b.ctypes.data, c.ctypes.data]
    launch = blas.gemm_launch(
        c.dtype.name, c.shape[-2], c.shape[-1], a.shape[-1],
        operand(2, a, a.ndim == 3), operand(3, b, b.ndim == 3), operand(4, c, c.ndim == 3), batch,
    )  # fmt: skip
    driver.run(driver.build_table([[launch]]), slots.ctypes.data)
    return launch


def layouts(rows: int, cols: int, dtype: str, rng: np.random.Generator, batch: int = 0) -> list[np.ndarray]:
    """Row-major, column-major and padded arrays with the same shape."""
    shape = (batch,) if batch else ()
    plain = rng.standard_normal((*shape, rows, cols)).astype(dtype)
    transposed = rng.standard_normal((*shape, cols, rows)).astype(dtype).swapaxes(-1, -2)
    padded = rng.standard_normal((*shape, rows + 2, cols + 3)).astype(dtype)[..., 1 : 1 + rows, 2 : 2 + cols]
    padded_t = rng.standard_normal((*shape, cols + 1, rows + 5)).astype(dtype)[..., :cols, 3 : 3 + rows]
    return [plain, transposed, padded, padded_t.swapaxes(-1, -2)]


def check(c: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    scale = 1e-5 if c.dtype == np.float32 else 1e-13
    want = np.broadcast_to(np.matmul(a.astype(np.float64), b.astype(np.float64)), c.shape)
    np.testing.assert_allclose(c, want, rtol=scale * 10, atol=scale * max(1, a.shape[-1]) ** 0.5 * 10)


SIZES = [(1, 1, 1), (1, 7, 5), (6, 1, 5), (5, 7, 1), (1, 1, 9), (1, 9, 1), (9, 1, 1), (3, 4, 5), (17, 33, 65)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
def test_every_layout(dtype: str, size: tuple[int, int, int]) -> None:
    m, n, k = size
    rng = np.random.default_rng(0)
    for a, b in itertools.product(layouts(m, k, dtype, rng), layouts(k, n, dtype, rng)):
        for c in (np.full((m, n), np.nan, dtype), np.full((m, n + 4), np.nan, dtype)[:, :n]):
            multiply(a, b, c)
            check(c, a, b)
            if c.base is not None:
                assert np.isnan(c.base[:, n:]).all(), "wrote outside its rows"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
def test_batches(dtype: str, size: tuple[int, int, int]) -> None:
    m, n, k = size
    rng = np.random.default_rng(1)
    lefts = [*layouts(m, k, dtype, rng, 3), *layouts(m, k, dtype, rng)]
    rights = [*layouts(k, n, dtype, rng, 3), *layouts(k, n, dtype, rng)]
    for a, b in itertools.product(lefts, rights):
        c = np.full((3, m, n), np.nan, dtype)
        multiply(a, b, c, 3)
        check(c, a, b)


@pytest.mark.parametrize("dtype", DTYPES)
def test_batch_in_the_middle(dtype: str) -> None:
    """Heads of an attention: the batch is an inner axis of each operand."""
    rng = np.random.default_rng(2)
    q = rng.standard_normal((10, 4, 8)).astype(dtype).transpose(1, 0, 2)
    k = rng.standard_normal((12, 4, 8)).astype(dtype).transpose(1, 2, 0)
    c = np.full((10, 4, 12), np.nan, dtype).transpose(1, 0, 2)
    multiply(q, k, c, 4)
    check(c, q, k)


@pytest.mark.parametrize("size", [(0, 3, 4), (3, 0, 4), (3, 4, 0), (0, 0, 0), (1, 4, 0), (4, 1, 0), (1, 0, 3)])
@pytest.mark.parametrize("batch", [0, 1, 2])
def test_empty(size: tuple[int, int, int], batch: int) -> None:
    m, n, k = size
    a, b = np.ones((batch, m, k), np.float32), np.ones((batch, k, n), np.float32)
    whole = np.full((batch, m, n + 2), np.nan, np.float32)
    c = whole[:, :, :n]
    multiply(a, b, c, batch)
    assert (c == 0).all()
    assert np.isnan(whole[:, :, n:]).all()


@pytest.mark.parametrize("size", [(300, 200, 100), (37, 500, 310), (2000, 32, 70), (33, 4100, 64), (129, 257, 1031)])
def test_blocks(size: tuple[int, int, int]) -> None:
    m, n, k = size
    rng = np.random.default_rng(3)
    for a, b in itertools.product(layouts(m, k, "float32", rng)[:2], layouts(k, n, "float32", rng)[:2]):
        c = np.full((m, n), np.nan, np.float32)
        launch = multiply(a, b, c)
        assert launch.total > 1
        check(c, a, b)


@pytest.mark.parametrize("size", [(1, 3000, 700), (3000, 1, 700), (1, 700, 3000), (700, 1, 3000)])
def test_gemv_blocks(size: tuple[int, int, int]) -> None:
    m, n, k = size
    rng = np.random.default_rng(4)
    for a, b in itertools.product(layouts(m, k, "float32", rng), layouts(k, n, "float32", rng)):
        c = np.full((m, n + 1), np.nan, np.float32)[:, :n]
        launch = multiply(a, b, c)
        assert launch.total > 1
        check(c, a, b)


def test_block_function_covers_every_product() -> None:
    rng = np.random.default_rng(5)
    for m, n, k in rng.integers(1, 5000, (300, 3)).tolist():
        m_block, n_block = blas._block(m, n, k, 1)
        assert 1 <= m_block <= m
        assert 1 <= n_block <= n
        assert -(-m // m_block) * -(-n // n_block) <= blas._MAX_BLOCKS


def test_same_bits_on_any_number_of_threads() -> None:
    rng = np.random.default_rng(6)
    a, b = rng.standard_normal((256, 300)).astype("f4"), rng.standard_normal((300, 260)).astype("f4")

    def product() -> np.ndarray:
        c = np.empty((256, 260), "f4")
        for _ in range(5):
            multiply(a, b, c)
        return c

    same_bits(product, (1, 2, 3))


def test_small_products_stay_on_the_calling_thread() -> None:
    a, b, c = np.ones((8, 8), "f4"), np.ones((8, 8), "f4"), np.ones((8, 8), "f4")
    launch = multiply(a, b, c)
    assert launch.total == 1
    assert not driver.is_parallel([launch, launch])


def test_refusals() -> None:
    plain = Operand(2, 0, 4, 1)
    with pytest.raises(DTypeError):
        blas.gemm_launch("float16", 4, 4, 4, plain, plain, plain)
    for bad in (Operand(2, 0, 8, 2), Operand(2, 0, 0, 1), Operand(2, 0, -4, 1), Operand(2, 0, 3, 1)):
        assert not blas.accepts(4, 4, bad.row_stride, bad.col_stride)
        with pytest.raises(CompileError):
            blas.gemm_launch("float32", 4, 4, 4, bad, plain, plain)
    with pytest.raises(CompileError):
        blas.gemm_launch("float32", 4, 4, 4, plain, plain, Operand(2, 0, 1, 4))
    assert blas.accepts(4, 4, 1, 4)
    assert blas.accepts(1, 4, 77, 1)
    assert blas.accepts(4, 1, 3, 0)


def subprocess_run(code: str, **environment: str) -> str:
    """Run ``code`` in a fresh interpreter; its output."""
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=120,
        env={**os.environ, **environment}, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return result.stdout.strip()


PRELUDE = """
import numpy as np, sys
from pullback.runtime import blas, driver
def product(m, n, k):
    a, b, c = np.ones((m, k), 'f4'), np.ones((k, n), 'f4'), np.empty((m, n), 'f4')
    slots = np.array([0, 0, a.ctypes.data, b.ctypes.data, c.ctypes.data])
    o = blas.Operand
    launch = blas.gemm_launch('float32', m, n, k, o(2, 0, k, 1), o(3, 0, n, 1), o(4, 0, n, 1))
    driver.run(driver.build_table([[launch]]), slots.ctypes.data)
    assert (c == k).all()
"""


@pytest.mark.parametrize("source", ["numpy", "scipy"])
def test_the_library_keeps_its_threads_for_others(source: str) -> None:
    code = PRELUDE + f"""
if {source!r} == 'scipy':
    blas._numpy_routines = lambda names: None
import ctypes
product(300, 300, 300)
library = blas._get_library()
assert {source!r} in library.path
assert 'scipy.linalg' not in sys.modules
names = [names for names in blas._THREAD_FUNCTIONS if hasattr(ctypes.CDLL(library.path), names[1])]
get = ctypes.CDLL(library.path)[names[0][1]] if names else lambda: 2
assert bool(names) == (library.guard is not None)
print(get())
import scipy.linalg
a = np.eye(5) + np.ones((5, 5))
assert np.allclose(scipy.linalg.inv(a) @ a, np.eye(5))
product(300, 300, 300)
product(1, 3000, 300)
product(3, 3, 0)
print(get())
"""
    assert subprocess_run(code, OPENBLAS_NUM_THREADS="2", MKL_NUM_THREADS="2") == "2\n2"


def test_python_threads_at_once() -> None:
    code = PRELUDE + """
import ctypes, threading
product(3, 3, 3)
library = blas._get_library()
names = [names for names in blas._THREAD_FUNCTIONS if hasattr(ctypes.CDLL(library.path), names[1])]
get = ctypes.CDLL(library.path)[names[0][1]] if names else lambda: 2
before = get()
failures = []
def work():
    try:
        for _ in range(100):
            product(100, 90, 80)
            product(1, 90, 80)
            product(300, 200, 100)
    except BaseException as error:
        failures.append(error)
        raise
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert not failures
assert get() == before
"""
    subprocess_run(code, OPENBLAS_NUM_THREADS="2")


def test_a_library_without_known_thread_functions() -> None:
    code = PRELUDE + """
blas._THREAD_FUNCTIONS = ()
product(300, 300, 300)
assert blas._get_library().guard is None
"""
    subprocess_run(code)


def test_after_scipy_linalg_was_imported() -> None:
    code = "import scipy.linalg\n" + PRELUDE + """
blas._numpy_routines = lambda names: None
product(30, 30, 30)
"""
    subprocess_run(code)


def test_fork() -> None:
    if not hasattr(os, "fork"):
        pytest.skip("no fork here")
    code = PRELUDE + """
import os
product(300, 300, 300)
child = os.fork()
if child == 0:
    product(300, 300, 300)
    product(400, 300, 300)
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
product(300, 300, 300)
"""
    assert subprocess_run(code.replace("import os", "import os, warnings; warnings.simplefilter('ignore')")) == "7"
