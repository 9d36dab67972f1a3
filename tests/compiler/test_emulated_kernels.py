"""Kernels for processors that this machine is not, run by emulators and compared with the references.

AVX-512 with and without VNNI and BF16 takes the package ``bochscpu-python``, AArch64 ``unicorn``. Reads and writes
outside of a buffer, be it by one byte, stop the code (see emulation.py).

``PULLBACK_FUZZ_EXAMPLES=500`` tries as many random programs and products on each, on more processors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pullback as pb
from pullback import nn
from pullback.compiler.llvm.contraction import contraction_ir
from pullback.compiler.llvm.target import host
from pullback.dtypes import by_name
from pullback.runtime import llvm_engine
from tests.backends import on_backend
from tests.compiler.emulation import MACHINES, emulated
from tests.compiler.emulators import PAGE, Bochs, Fault, Unicorn, new_pages
from tests.compiler.examples import MANY, examples
from tests.compiler.graphs import DTYPES, compare, execute, gradients_of, outputs_of, with_special_values
from tests.compiler.test_contraction_fuzz import TYPES, chains, compare_with_reference, operands
from tests.compiler.test_random_graphs import instructions, tensors
from tests.compiler.test_vector_math import EXACT, NUMPY, UNARY, check, exact, samples

# Where buffers lie between the pages that may not be touched: they end where their pages do, or begin there.
FLUSH = {"x86-64-v4": "start"}
CHOSEN = tuple(MACHINES) if MANY else ("znver5", "x86-64-v4", "neoverse-n1")
EMULATORS = {"x86_64": ("bochscpu", Bochs), "aarch64": ("unicorn", Unicorn)}


@pytest.fixture(scope="module")
def processors() -> Iterator[dict[str, Any]]:
    found: dict[str, Any] = {}
    yield found
    for processor in found.values():
        processor.close()


@pytest.fixture(scope="module", params=CHOSEN, autouse=True)
def processor(request: Any, processors: dict[str, Any]) -> Iterator[Any]:
    """Everything in this module is compiled for, and run on, each of the machines."""
    machine = MACHINES[request.param]
    package, emulator = EMULATORS[machine.name]
    if machine.name not in processors:
        try:
            processors[machine.name] = emulator()
        except ImportError as error:
            pytest.skip(f"no {package} to run code for {request.param}: {error}")
    flush = FLUSH.get(request.param, "end")
    with emulated(machine, processors[machine.name], flush), np.errstate(all="ignore"):
        yield processors[machine.name]


def numbers(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    """Small integers, so that sums of products are exact."""
    low = 0 if by_name(dtype).kind == "u" else -3
    return np.random.default_rng(seed).integers(low, 4, shape).astype(by_name(dtype).numpy)


def floats(shape: tuple[int, ...], dtype: str = "float32", seed: int = 0) -> Any:
    return pb.asarray(np.random.default_rng(seed).uniform(-2, 2, shape)).astype(dtype)


# -- the emulation itself ----------------------------------------------------------------------------------------------


def test_what_may_not_be_touched(processor: Any) -> None:
    text = """define i32 @last(ptr %p, i64 %n) {
  %end = getelementptr i32, ptr %p, i64 %n
  %last = getelementptr i32, ptr %end, i64 -1
  %value = load i32, ptr %last, align 4
  store i32 7, ptr %last, align 4
  ret i32 %value
}
"""
    function = llvm_engine.compile_ir(text, ["last"])["last"]
    start, memory = new_pages(3 * PAGE)
    start += PAGE
    memory[2 * PAGE - 4] = 3
    processor.allow(start, PAGE, True)
    assert processor.call(function, start, PAGE // 4) & 0xFF == 3
    assert memory[2 * PAGE - 4] == 7
    for size in (0, PAGE // 4 + 1):
        with pytest.raises(Fault):
            processor.call(function, start, size)
    processor.allow(start, PAGE, False)
    with pytest.raises(Fault):
        processor.call(function, start, 4)
    processor.forbid(start, PAGE)
    with pytest.raises(Fault):
        processor.call(function, start, 4)


def test_the_code_is_the_machines(request: Any) -> None:
    """A product of bytes and one of bfloat16 have the instructions of the machine."""
    name = request.node.callspec.params["processor"]
    wanted = {
        "znver5": ("vpdpwssd", "vdpbf16ps"), "x86-64-v4": ("vpmaddwd", "vfmadd231ps"), "neoverse-n1": ("mla", "fmla"),
    }  # fmt: skip
    for (dtype, result), instruction in zip((("int8", "int32"), ("bfloat16", "float32")), wanted.get(name, ())):
        assert f"\t{instruction}\t" in llvm_engine.emit_assembly(contraction_ir(dtype, host(), result))


# -- values ------------------------------------------------------------------------------------------------------------


def test_elementary_functions() -> None:
    for dtype in ("float32", "float64"):
        x = {name: np.resize(samples(name, dtype, 5), 37) for name in UNARY}
        values = {name: getattr(pb, name)(pb.asarray(x[name])) for name in x}
        pb.eval(values)
        for name, value in values.items():
            wide = x[name].astype(np.longdouble)
            check(name, x[name], value.numpy(), NUMPY[name](wide) if name in NUMPY else exact(EXACT[name], x[name]))


SPECIAL = (
    0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-45, -1e-40, 1e-38, 65504.0, 65520.0, 1e5, 3e38, 0.5, 88.7, -104.0,
)  # fmt: skip


@pytest.mark.parametrize("size", [1, 17])
def test_special_values_of_elementary_functions(size: int) -> None:
    """One element, which is not a vector, and one more than a vector."""
    for dtype in ("float32", "float64"):
        for name in ("exp", "log", "tanh", "sin", "erf", "sigmoid", "log1p", "expm1", "sqrt", "cbrt"):
            for x in np.resize(np.array(SPECIAL, dtype), (-(-len(SPECIAL) // size), size)):
                value = getattr(pb, name)(pb.asarray(x))
                with on_backend("reference"):
                    want = getattr(pb, name)(pb.asarray(x)).numpy()
                np.testing.assert_allclose(value.numpy(), want, rtol=4 * np.finfo(dtype).eps, atol=0, err_msg=name)


def test_casts() -> None:
    rng = np.random.default_rng(0)
    wide = np.concatenate([SPECIAL, rng.standard_normal(40) * 2.0 ** rng.integers(-30, 17, 40)])
    bits = rng.integers(0, 1 << 16, 75).astype(np.uint16)
    given = [pb.asarray(wide.astype(dtype)) for dtype in ("float32", "float64")]
    given += [pb.asarray(bits.view(by_name(name).numpy)) for name in ("float16", "bfloat16")]
    compare([x.astype(name) for x in given for name in ("float16", "bfloat16", "float32", "float64", "bool")], True)
    whole = [pb.asarray(rng.integers(0, 100, 37).astype(name)) for name in DTYPES if name != "bool"]
    compare([x.astype(name) for x in whole for name in DTYPES], True)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int8", "bool"])
def test_tails(dtype: str) -> None:
    """One kernel at all sizes around its vectors."""
    made = pb.jit(lambda x, y: (pb.where(x > y, x, y), pb.sum((x == y).astype("int32"))))
    for size in (*range(1, 36), 63, 64, 65, 127, 130):
        x, y = numbers((size,), dtype, size), numbers((size,), dtype, size + 1)
        value, equal = made(pb.asarray(x), pb.asarray(y))
        np.testing.assert_array_equal(value.numpy(), np.where(x > y, x, y))
        assert int(equal) == (x == y).sum()


def test_reductions_and_scans() -> None:
    for shape in ((37,), (33, 7), (3, 5, 17)):
        for dtype in ("float32", "float64", "float16", "uint8"):
            x = pb.asarray(numbers(shape, dtype))
            functions = (pb.sum, pb.max, pb.argmin, pb.cumsum, pb.cummax)
            values = [function(x, axis=axis) for axis in range(x.ndim) for function in functions]
            compare([*values, pb.sum(x), pb.min(x)], True)
        y = floats(shape)
        rows = [nn.softmax(y), nn.layer_norm(y, shape[-1]), pb.logsumexp(y, axis=0), pb.cumprod(y, axis=-1)]
        compare([*rows, pb.var(y)], False, 3e-6)


def test_positions() -> None:
    for dtype in ("float32", "float64", "int8", "bfloat16"):
        x = pb.asarray(numbers((7, 19), dtype))
        rows = pb.asarray(np.random.default_rng(0).integers(-7, 7, 23))
        across = pb.asarray(np.random.default_rng(1).integers(-19, 19, (7, 21)).astype(np.int32))
        source = pb.asarray(numbers((7, 21), dtype, 1))
        values = [x[rows], x[:, rows], pb.take_along_axis(x, across, axis=1), x[::-1, ::-2], x.mT[1:], pb.roll(x, 3, 1)]
        values += [pb.scatter(x, 1, across, source, mode) for mode in ("add", "set", "max")]
        compare([*values, pb.pad(x, [(1, 2), (3, 0)]), pb.concat([x, x], axis=1), pb.sort(x, axis=1)], True)


def test_a_position_out_of_range() -> None:
    x, index = floats((5, 3)), pb.asarray(np.array([0, 4, 4, 1])) + pb.asarray(np.array([0, 0, 1, 0]))
    with pytest.raises(IndexError, match="index 5 is out of range for size 5"):
        x[index].numpy()
    with pytest.raises(IndexError):
        pb.take(floats((4,)), pb.asarray(4)).numpy()


def test_random_numbers() -> None:
    def drawn() -> list[np.ndarray]:
        key = pb.random.key(7)
        samplers = (pb.random.uniform, pb.random.normal, pb.random.bits)
        return [np.asarray(sampler(shape=(n,), key=key)) for sampler in samplers for n in (1, 18, 70)]

    with on_backend("reference"):
        want = drawn()
    for mine, other in zip(drawn(), want, strict=True):
        np.testing.assert_allclose(mine, other, rtol=2e-6, atol=1e-7)


# -- products ----------------------------------------------------------------------------------------------------------

PRODUCTS = (
    ("float32", "float32"), ("float64", "float64"), ("bfloat16", "float32"), ("bfloat16", "bfloat16"),
    ("float16", "float32"), ("int8", "int32"), ("uint8", "int32"), ("int16", "int32"), ("int32", "int32"),
)  # fmt: skip
EXTENTS = ((2, 3, 1), (13, 31, 2), (14, 32, 3), (15, 33, 17), (29, 65, 35), (7, 16, 8), (35, 5, 34), (8, 40, 401))


@pytest.mark.parametrize(("dtype", "result"), PRODUCTS)
def test_products(dtype: str, result: str) -> None:
    """Sizes around the tile, each operand as it is and transposed, and with several blocks of k."""
    for number, (m, n, k) in enumerate(EXTENTS):
        a, b = numbers((m, k), dtype, 1), numbers((k, n), dtype, 2)
        want = a.astype(np.float64) @ b.astype(np.float64)
        want = want.astype(by_name(result).numpy)
        x = pb.asarray(a) if number % 2 else pb.asarray(a.T.copy()).mT
        y = pb.asarray(b) if number % 4 < 2 else pb.asarray(b.T.copy()).mT
        np.testing.assert_array_equal(pb.matmul(x, y, preferred_dtype=by_name(result)).numpy(), want)


FOLLOWERS: dict[str, Callable[[Any, Any], Any]] = {
    "bias and relu": lambda c, x: nn.relu(c + x[0, 0]),
    "gelu": lambda c, x: nn.gelu(c),
    "softmax": lambda c, x: nn.softmax(c),
    "mask": lambda c, x: pb.where(c > 0, c, 0),
}
LEADERS: dict[str, Callable[[Any], Any]] = {
    "scale": lambda x: x * 2,
    "mask": lambda x: pb.where(x > 0, x, 0),
    "look-up": lambda x: x[pb.arange(x.shape[0])[::-1]],
    "norm": lambda x: nn.rms_norm(x, x.shape[-1]),
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_products_with_followers_and_leaders(dtype: str) -> None:
    x, w, stack = floats((37, 34), dtype), floats((34, 19), dtype, 1), floats((3, 37, 34), dtype, 2)
    made = [follow(x @ w, x) for follow in FOLLOWERS.values()] + [lead(x) @ w for lead in LEADERS.values()]
    made += [x @ LEADERS["mask"](w), stack @ w, stack.mT @ stack, pb.einsum("bmk,bnk->mnb", stack, stack * 2)]
    compare(made, False, 1e-5 if dtype == "float32" else 2e-2)


def test_products_and_gradients_of_networks() -> None:
    x, w, v = floats((9, 21)), floats((21, 33), seed=1), floats((33, 4), seed=2)

    def loss(w: Any, v: Any) -> Any:
        return pb.mean(nn.softmax(pb.tanh(x @ w) @ v)[:, 0] ** 2)

    compare(pb.value_and_grad(loss, argnums=(0, 1))(w, v)[1], False, 1e-5)


def test_convolutions() -> None:
    w = floats((8, 6, 3, 3), seed=1)
    for layout, x in (("channels_first", floats((2, 6, 9, 11))), ("channels_last", floats((2, 9, 11, 6)))):

        def loss(x: Any, w: Any, layout: str = layout) -> Any:
            return pb.sum(nn.conv2d(x, w, stride=2, padding=1, layout=layout) ** 2)

        value, gradients = pb.value_and_grad(loss, argnums=(0, 1))(x, w)
        compare([value, *gradients], False, 1e-5)
    x, w = floats((2, 6, 9, 11)), floats((6, 1, 3, 3), seed=1)
    compare([nn.conv2d(x, w, groups=6, padding=1)], False, 1e-5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_attention(dtype: str) -> None:
    mask = pb.asarray(np.random.default_rng(0).random((33, 18)) < 0.7)
    for queries, keys, depth, options in (
        (5, 7, 4, {}), (19, 35, 17, {"is_causal": True}), (33, 18, 16, {"mask": mask}),
    ):  # fmt: skip
        q, k, v = (floats((1, 2, n, depth), dtype, seed) for seed, n in enumerate((queries, keys, keys)))

        def loss(q: Any, k: Any, v: Any, options: Any = options) -> Any:
            return pb.sum(pb.sin(nn.scaled_dot_product_attention(q, k, v, **options)).astype("float64"))

        def both(q: Any, k: Any, v: Any, loss: Any = loss) -> list[Any]:
            value, gradients = pb.value_and_grad(loss, argnums=(0, 1, 2))(q, k, v)
            return [value, *gradients]

        with on_backend("reference"):
            want = both(q, k, v)
            pb.eval(want)
        tolerance = {"float32": 1e-5, "bfloat16": 5e-2}[dtype]
        for mine, other in zip(both(q, k, v), want, strict=True):
            mine, other = (np.asarray(x.numpy(), np.float64) for x in (mine, other))
            np.testing.assert_allclose(mine, other, rtol=tolerance, atol=tolerance * max(1, np.abs(other).max()))


# -- whatever comes ----------------------------------------------------------------------------------------------------


@examples(7)
@given(st.lists(instructions, min_size=1, max_size=9), tensors(DTYPES, True), st.integers(0, 99))
def test_random_programs(program: Any, inputs: Any, seed: int) -> None:
    compare(outputs_of(execute(program, inputs, True)), True)
    given = [pb.asarray(with_special_values(np.array(x), seed + n)) for n, x in enumerate(inputs)]
    compare(outputs_of(execute(program, given, True)), True)


@examples(4)
@given(st.lists(instructions, min_size=1, max_size=8), tensors(("float32",), False))
def test_random_gradients(program: Any, inputs: Any) -> None:
    compare(gradients_of(program, inputs, False), False, 2e-5)


@examples(5)
@given(operands(), chains, st.sampled_from(TYPES), st.integers(0, 9))
def test_random_products(case: Any, chain: Any, dtype: str, seed: int) -> None:
    compare_with_reference(case, chain, dtype, seed)
