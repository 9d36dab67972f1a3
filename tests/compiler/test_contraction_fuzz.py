"""Random products, with what is read and what follows them chosen at random too, against the references.

Operands are views of every kind (transposes, slices, flips, strides, broadcasts, windows, padding, gathers), products
have several axes of each kind, and what is made of them goes over rows, columns, other residuals, several results.
Values are small integers wherever they may be, so that every sum is exact and every bit counts.

``PULLBACK_FUZZ_EXAMPLES=5000`` tries as many of each kind, different ones at each run; without it over two hundred in
all, always the same.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pullback as pb
from pullback import nn
from pullback.compiler import options
from pullback.dtypes import by_name
from tests.backends import on_backend
from tests.compiler.examples import examples
from tests.threads import same_bits

EXTENTS = (1, 2, 3, 5, 8, 17, 33)
LAYOUTS = (
    "mk,kn->mn", "mk,nk->mn", "km,kn->nm", "mk,kn->nm", "bmk,bkn->bmn", "bmk,kn->bmn", "mk,bkn->bmn", "bmk,knb->mbn",
    "mkl,lkn->mn", "kml,nlk->mn", "abk,kcd->cabd", "abkl,bklc->abc", "mk,k->m", "k,kn->n", "bk,bk->b", "k,k->",
    "m,n->mn", "bm,bn->bmn", "aak,kn->an", "akb,kcc->abc", "mk,lk->m",
)  # fmt: skip


def integers(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    """Small integers; seldom more than 2048 in any sum, so that float16 holds those too."""
    values = np.random.default_rng(seed).integers(-2, 3, shape)
    return (values > 0) if dtype == "bool" else values.astype(by_name(dtype).numpy)


# -- what is read ------------------------------------------------------------------------------------------------------
# Each: the shape of what is stored, for an operand of some shape, and the view of it.


def along(axis: int, part: slice) -> Callable[[Any], Any]:
    return lambda x: x[(slice(None),) * axis + (part,)]


def with_extent(shape: tuple[int, ...], axis: int, extent: int) -> tuple[int, ...]:
    return (*shape[:axis], extent, *shape[axis + 1 :])


def windows(shape: tuple[int, ...], axis: int) -> tuple[tuple[int, ...], Callable[[Any], Any]]:
    """The last axis lies in windows along another, which overlap."""
    if len(shape) < 2 or axis == len(shape) - 1:
        return shape, lambda x: x
    last = len(shape) - 1
    stored = with_extent(shape, axis, shape[axis] + shape[last] - 1)[:last]
    return stored, lambda x: pb.sliding_window_view(x, shape[last], axis=axis)


VIEWS: dict[str, Callable[[tuple[int, ...], int], tuple[tuple[int, ...], Callable[[Any], Any]]]] = {
    "whole": lambda shape, axis: (shape, lambda x: x),
    "transposed": lambda shape, axis: (shape[::-1], lambda x: pb.permute_dims(x, tuple(range(len(shape)))[::-1])),
    "backwards": lambda shape, axis: (shape, along(axis, slice(None, None, -1))),
    "every other": lambda shape, axis: (
        with_extent(shape, axis, 2 * shape[axis]), along(axis, slice(None, None, 2))
    ),
    "backwards by two": lambda shape, axis: (
        with_extent(shape, axis, 2 * shape[axis] - 1), along(axis, slice(None, None, -2))
    ),
    "inner": lambda shape, axis: (with_extent(shape, axis, shape[axis] + 5), along(axis, slice(3, -2))),
    "broadcast": lambda shape, axis: (with_extent(shape, axis, 1), lambda x: pb.broadcast_to(x, shape)),
    "windows": windows,
    "padded": lambda shape, axis: (
        with_extent(shape, axis, max(1, shape[axis] - 3)),
        lambda x: pb.pad(x, [(1, 2) if a == axis else (0, 0) for a in range(len(shape))])[
            (slice(None),) * axis + (slice(0, shape[axis]),)
        ],
    ),
    "rows by index": lambda shape, axis: (
        with_extent(shape, axis, 4),
        lambda x: pb.take(x, pb.asarray(np.arange(shape[axis]) * 7 % 4), axis=axis),
    ),
}  # fmt: skip
PROLOGUES: dict[str, Callable[[Any], Any]] = {
    "none": lambda x: x,
    "scaled": lambda x: x * 2 if x.dtype.kind != "b" else ~x,
    "positive": lambda x: pb.where(x > 0, x, pb.zeros_like(x)) if x.dtype.kind != "b" else x,
    "cast": lambda x: x.astype("int8").astype(x.dtype),
    "positions": lambda x: x * (pb.arange(x.shape[-1]) % 2).astype(x.dtype) if x.ndim else x,
    "less its row's largest": lambda x: x - pb.max(x, axis=-1, keepdims=True) if x.dtype.kind != "b" else x,
    "running extremes": lambda x: pb.maximum(x, x[..., :1] - pb.min(x, axis=-1, keepdims=True))
    if x.dtype.kind != "b"
    else x,
    "looked up": lambda x: pb.take(x + x, pb.asarray(np.arange(x.shape[0]) * 5 % x.shape[0]), axis=0),
}

# -- what is made of a product -----------------------------------------------------------------------------------------
# Each: of the value so far and a function that gives fresh data of a shape.

Fresh = Callable[[tuple[int, ...]], Any]
EPILOGUES: dict[str, Callable[[Any, Fresh], Any]] = {
    "row": lambda c, data: c + data(c.shape[-1:]),
    "column": lambda c, data: c + data((*c.shape[:-1], 1)) if c.ndim else c,
    "residual": lambda c, data: pb.maximum(c, pb.zeros_like(c)) + data(c.shape),
    "residual the other way": lambda c, data: c + pb.permute_dims(data(c.shape[::-1]), tuple(range(c.ndim))[::-1]),
    "mask": lambda c, data: pb.where(data(c.shape) > 0, c, pb.zeros_like(c)),
    "positions": lambda c, data: c + pb.arange(c.shape[-1]).astype(c.dtype) if c.ndim else c,
    "negative": lambda c, data: -c,
    "cast": lambda c, data: c.astype("float64"),
    "backwards": lambda c, data: c[::-1] if c.ndim else c,
    "transposed": lambda c, data: pb.permute_dims(c, tuple(range(c.ndim))[::-1]),
    "with its sum": lambda c, data: c + pb.max(c, axis=-1, keepdims=True) if c.ndim else c,
    "less its row's largest": lambda c, data: c - pb.max(c, axis=-1, keepdims=True) if c.ndim else c,
    "where its row's largest is": lambda c, data: c + pb.argmax(c, axis=-1)[..., None].astype(c.dtype) if c.ndim else c,
    "rows' extremes": lambda c, data: pb.min(c + data(c.shape), axis=-1) if c.ndim > 1 else c,
    "columns' extremes": lambda c, data: pb.min(c, axis=0) if c.ndim > 1 else c,
    "rows by index": lambda c, data: c + pb.take(data((3, *c.shape[1:])), pb.arange(c.shape[0]) % 3, axis=0)
    if c.ndim
    else c,
    "padded": lambda c, data: pb.pad(c, [(1, 2)] * c.ndim),
    "joined": lambda c, data: pb.concat([c, data(c.shape)], axis=-1) if c.ndim else c,
}


@st.composite
def operands(draw: Any) -> tuple[str, list[tuple[int, ...]], list[tuple[str, int, str]]]:
    """Subscripts, the shapes of both operands, and of each its view, the axis of that and what is done before."""
    text = draw(st.sampled_from(LAYOUTS))
    extents = {letter: draw(st.sampled_from(EXTENTS)) for letter in sorted(set(text) - set(",->"))}
    left, right = text.split("->")[0].split(",")
    if max(np.prod([extents[c] for c in part]) for part in (left, right, text.split("->")[1])) > 4000:
        extents = {letter: min(extent, 5) for letter, extent in extents.items()}
    shapes = [tuple([extents[c] for c in part]) for part in (left, right)]
    kinds, prologues = st.sampled_from(list(VIEWS)), st.sampled_from(list(PROLOGUES))
    views = [(draw(kinds), draw(st.integers(0, len(shape) - 1)), draw(prologues)) for shape in shapes]
    return text, shapes, views


chains = st.lists(st.tuples(st.sampled_from(list(EPILOGUES)), st.booleans()), max_size=4)


def stored(case: Any, dtypes: tuple[str, str], seed: int) -> list[np.ndarray]:
    """What the operands are views of."""
    _, shapes, views = case
    return [
        integers(VIEWS[view](shape, axis)[0], dtype, seed + n)
        for n, (shape, (view, axis, _), dtype) in enumerate(zip(shapes, views, dtypes, strict=True))
    ]


def product_of(case: Any, a: Any, b: Any) -> Any:
    text, shapes, views = case
    read = [
        PROLOGUES[prologue](VIEWS[view](shape, axis)[1](x))
        for x, shape, (view, axis, prologue) in zip((a, b), shapes, views, strict=True)
    ]
    return pb.einsum(text, *read)


def results_of(case: Any, chain: Any, a: Any, b: Any) -> list[Any]:
    """The last value of the chain, and those before it that are wanted."""
    value = product_of(case, a, b)
    if value.dtype.kind == "b":
        value = value.astype("int32")
    results = []
    for number, (name, wanted) in enumerate(chain):
        if wanted:
            results.append(value)

        def data(shape: tuple[int, ...], number: int = number, dtype: str = value.dtype.name) -> Any:
            return pb.asarray(integers(shape, dtype, 100 + number))

        value = EPILOGUES[name](value, data)
    return [value, *results]


def assert_same(got: list[Any], want: list[Any], tolerance: float = 0.0) -> None:
    for value, right in zip(got, want, strict=True):
        assert value.dtype is right.dtype
        assert value.shape == right.shape
        ours, theirs = (np.asarray(x.numpy(), np.float64 if x.dtype.kind == "f" else None) for x in (value, right))
        if tolerance:
            np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)
        else:
            np.testing.assert_array_equal(ours, theirs)


TYPES = ("float64", "float32", "float32", "float16", "int32", "int8", "uint8", "bool")


def compare_with_reference(case: Any, chain: Any, dtype: str, seed: int) -> None:
    """A product and what is made of it, jitted, beside the reference."""
    arrays = stored(case, (dtype, dtype), seed)
    got = pb.jit(lambda a, b: results_of(case, chain, a, b))(*arrays)
    with on_backend("reference"):
        want = results_of(case, chain, *map(pb.asarray, arrays))
        pb.eval(want)
    assert_same(got, want)


@examples(40)
@given(operands(), chains, st.sampled_from(TYPES), st.integers(0, 9))
def test_products_and_what_is_made_of_them(case: Any, chain: Any, dtype: str, seed: int) -> None:
    compare_with_reference(case, chain, dtype, seed)


@examples(40)
@given(
    operands(), chains, st.sampled_from(["follow", "lead", "fuse", "reuse", "window", "simplify", "turn"]),
    st.integers(0, 9),
)  # fmt: skip
def test_products_without_a_pass(case: Any, chain: Any, name: str, seed: int) -> None:
    arrays = stored(case, ("float32", "float32"), seed)
    with options.without(name):
        got = pb.jit(lambda a, b: results_of(case, chain, a, b))(*arrays)
    with on_backend("reference"):
        want = results_of(case, chain, *map(pb.asarray, arrays))
        pb.eval(want)
    assert_same(got, want)


@examples(6)
@given(operands(), st.lists(st.sampled_from(["row", "residual", "mask", "negative", "transposed"]), max_size=2))
def test_gradients_of_products(case: Any, chain: Any) -> None:
    """Of a function whose second derivative in both operands is not constant; that derivative too."""
    arrays = stored(case, ("float64", "float64"), 3)
    if any(prologue != "none" for _, _, prologue in case[2]):
        case = (*case[:2], [(view, axis, "none") for view, axis, _ in case[2]])

    def loss(a: Any, b: Any) -> Any:
        value = results_of(case, [(name, False) for name in chain], a, b)[0]
        return pb.sum(value * value * value)

    def derivatives(a: Any, b: Any) -> list[Any]:
        gradients, along = pb.jvp(pb.grad(loss, argnums=(0, 1)), (a, b), (a, pb.ones_like(b)))
        return [*gradients, *along]

    got = pb.jit(derivatives)(*arrays)
    with on_backend("reference"):
        want = derivatives(*map(pb.asarray, arrays))
        pb.eval(want)
    assert_same(got, want)


UPDATES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "added to": lambda x, a, b: x + a @ b,
    "an operand of its own": lambda x, a, b: x + x @ b,
    "both operands of its own": lambda x, a, b: a + x.mT @ x,
    "read elsewhere": lambda x, a, b: x[::-1] + a @ b,
    "read across": lambda x, a, b: x.mT + pb.maximum(a @ b, x),
    "made first": lambda x, a, b: x - (x * 2) @ b,
    "a row of it": lambda x, a, b: x[:1] + (a @ b) * x,
    "two products": lambda x, a, b: x + a @ b + (x @ a),
    "in turn": lambda x, a, b: x + pb.minimum(pb.maximum(x @ a, -3.0), 3.0) @ b,
    "the product too": lambda x, a, b: (lambda c: x + c - pb.max(c, axis=0))(a @ b),
}


@examples(8)
@given(
    st.lists(st.sampled_from(list(UPDATES)), min_size=1, max_size=3), st.sampled_from((1, 2, 7, 16, 33, 50)),
    st.sampled_from(("float32", "float64")),
)  # fmt: skip
def test_states_that_products_are_added_to(names: Any, n: int, dtype: str) -> None:
    """A jitted step writes over its state where it may, and only there."""
    arrays = [integers((n, n), dtype, seed) for seed in range(3)]

    def run(compiled: bool) -> list[Any]:
        x, y, b = (pb.asarray(array) * 1 for array in arrays)
        pb.eval(x, y, b)

        def step() -> None:
            for name in names:
                old = x * 1
                x.assign(pb.remainder(UPDATES[name](x, y, b), 5.0))
                y.assign(pb.remainder(y + old.mT @ x, 3.0))

        take = pb.jit(step) if compiled else step
        for _ in range(3):
            take()
            pb.eval(x, y)
        return [x, y]

    got = run(True)
    with on_backend("reference"):
        want = run(False)
    assert_same(got, want)


PREPARED: dict[str, Callable[[Any], Any]] = {
    "none": lambda x: x,
    "relu": nn.relu,
    "gelu": nn.gelu,
    "softmax": nn.softmax,
    "norm": lambda x: nn.rms_norm(x, x.shape[-1]),
    "looked up": lambda x: x[pb.arange(x.shape[0])[::-1]] * 2,
}
FINISHED: dict[str, Callable[[Any], Any]] = {
    "none": lambda c: c,
    "relu": lambda c: nn.relu(c) + 1,
    "softmax": nn.softmax,
    "norm": lambda c: nn.layer_norm(c, c.shape[-1]),
    "logsumexp": lambda c: pb.logsumexp(c, axis=-1),
    "sum": lambda c: pb.sum(c, axis=-1),
}


@examples(16)
@given(
    st.tuples(*[st.integers(1, 400)] * 3), st.sampled_from(("mk,kn->mn", "km,nk->mn", "mk,nk->nm")),
    st.sampled_from(("float32", "float64", "bfloat16")), st.tuples(*[st.sampled_from(list(PREPARED))] * 2),
    st.sampled_from(list(FINISHED)), st.booleans(),
)  # fmt: skip
def test_the_same_bits_on_any_number_of_threads(
    extents: Any, text: str, dtype: str, prologues: tuple[str, str], epilogue: str, wanted: bool
) -> None:
    sizes = dict(zip("mnk", extents, strict=True))
    rng = np.random.default_rng(0)
    left, right = text.split("->")[0].split(",")
    a, b = (
        rng.standard_normal([sizes[c] for c in part]).astype(by_name(dtype).numpy) for part in (left, right)
    )
    led = [PREPARED[name] for name in prologues]

    def compute(a: Any, b: Any) -> list[Any]:
        c = pb.einsum(text, led[0](a), led[1](b))
        return [FINISHED[epilogue](c), *([c] if wanted else [])]

    step = pb.jit(compute)
    once, anew = same_bits(lambda: (step(a, b), pb.jit(lambda a, b: compute(a, b))(a, b)))
    for value, other in zip(once, anew, strict=True):
        assert value.tobytes() == other.tobytes()


def fits(case: Any) -> bool:
    (_, extents, taps, dilation, padding), _, _, groups, _, _, _ = case
    del groups
    return all(
        n + 2 * p >= (t - 1) * d + 1 for n, t, d, p in zip(extents, taps, dilation, padding, strict=True)
    )


@st.composite
def convolutions(draw: Any) -> Any:
    rank = draw(st.sampled_from((1, 2, 2)))

    def per_axis(low: int, high: int) -> tuple[int, ...]:
        return tuple([draw(st.integers(low, high)) for _ in range(rank)])

    extents, taps, dilation, padding = per_axis(1, 17), per_axis(1, 4), per_axis(1, 3), per_axis(0, 3)
    groups = draw(st.sampled_from((1, 1, 2, 3)))
    channels, outputs = groups * draw(st.integers(1, 3)), groups * draw(st.integers(1, 4))
    transposed = draw(st.booleans())
    return (
        (rank, extents, taps, dilation, padding), draw(st.integers(1, 3)), (channels, outputs), groups,
        per_axis(1, 3), transposed, draw(st.sampled_from(("channels_first", "channels_last"))),
    )  # fmt: skip


@examples(6)
@given(convolutions().filter(fits), st.sampled_from(("float64", "float32")))
def test_convolutions_and_their_gradients(case: Any, dtype: str) -> None:
    (rank, extents, taps, dilation, padding), batch, (channels, outputs), groups, stride, transposed, layout = case
    name = f"conv_transpose{rank}d" if transposed else f"conv{rank}d"
    if transposed and any(
        (n - 1) * s + (t - 1) * d + 1 - 2 * p < 1
        for n, s, t, d, p in zip(extents, stride, taps, dilation, padding, strict=True)
    ):
        padding = (0,) * rank
    shape = (batch, channels, *extents) if layout == "channels_first" else (batch, *extents, channels)
    of_w = (channels, outputs // groups) if transposed else (outputs, channels // groups)
    arrays = [integers(shape, dtype, 0), integers((*of_w, *taps), dtype, 1)]

    def both(x: Any, w: Any) -> list[Any]:
        def loss(x: Any, w: Any) -> Any:
            y = getattr(nn, name)(
                x, w, stride=stride, padding=padding, dilation=dilation, groups=groups, layout=layout
            )
            return pb.sum(pb.maximum(y, 0) * pb.minimum(y, 2)), y

        gradients, y = pb.grad(loss, argnums=(0, 1), has_aux=True)(x, w)
        return [y, *gradients]

    got = pb.jit(both)(*arrays)
    with on_backend("reference"):
        want = both(*map(pb.asarray, arrays))
        pb.eval(want)
    assert_same(got, want)


# -- where operands end ------------------------------------------------------------------------------------------------


class Fenced:
    """Memory between two pages that must not be touched, at the end of what lies between them or at its beginning."""

    def __init__(self, array: np.ndarray, at_end: bool) -> None:
        page, libc = mmap.PAGESIZE, ctypes.CDLL(None, use_errno=True)
        pages = max(1, -(-array.nbytes // page))
        self.memory = mmap.mmap(-1, (pages + 2) * page)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        for fence in (start, start + (pages + 1) * page):
            if libc.mprotect(ctypes.c_void_p(fence), ctypes.c_size_t(page), 0):
                raise OSError(ctypes.get_errno(), "mprotect")
        offset = (pages + 1) * page - array.nbytes if at_end else page
        self.array = np.frombuffer(self.memory, array.dtype, array.size, offset).reshape(array.shape)
        self.array[...] = array


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="protects pages")
@examples(150)
@given(
    st.tuples(*[st.one_of(st.integers(1, 40), st.sampled_from((48, 96, 127, 128, 129)))] * 2),
    st.one_of(st.integers(1, 40), st.sampled_from((63, 64, 65, 383, 384, 385))),
    st.sampled_from(("mk,kn->mn", "km,kn->mn", "mk,nk->nm", "km,nk->mn")),
    st.sampled_from(("float32", "float64", "float16", "int32", "int8", "uint16")), st.booleans(),
    st.lists(st.sampled_from((slice(None), slice(None, None, -1), slice(None, None, 2))), min_size=2, max_size=2),
    st.tuples(st.booleans(), st.booleans(), st.booleans()),
)  # fmt: skip
def test_nothing_outside_an_operand_is_read(
    sizes: tuple[int, int], k: int, text: str, dtype: str, at_end: bool, parts: list[slice], led: tuple[bool, ...]
) -> None:
    """led: whether a kernel leads, of each operand; and whether one follows."""
    extents = {"m": sizes[0], "n": sizes[1], "k": k}
    left, right = text.split("->")[0].split(",")
    fenced, read = [], []
    for seed, (part, rows) in enumerate(zip((left, right), parts, strict=True)):
        shape = [extents[c] for c in part]
        if rows.step == 2:  # the last row is the last one stored
            shape[0] = 2 * shape[0] - 1
        fenced.append(Fenced(integers(tuple(shape), dtype, seed), at_end))
        read.append(pb.asarray(fenced[-1].array, copy=False)[rows])
    want = np.einsum(text, *[f.array[rows].astype(np.int64) for f, rows in zip(fenced, parts, strict=True)])
    read = [-x if is_led else x for x, is_led in zip(read, led)]
    sign = (-1) ** sum(led)
    product = pb.einsum(text, *read)
    got = (-product if led[2] else product).numpy()
    np.testing.assert_array_equal(got, (sign * want).astype(by_name(dtype).numpy))
