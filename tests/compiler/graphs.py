"""Random programs: a list of instructions, run on a pool of tensors.

An instruction is the name of one of ``STEPS`` and a few numbers, which that step takes its choices from. Any list is a
valid program, so a shorter one that fails as well can be found by leaving instructions out.

Two kinds of values keep a comparison meaningful: *exact* ones are small integers, of any dtype, on which every step is
exact, and results must be equal; *smooth* ones are floats of magnitude at most 1, on which no step enlarges an error
much, and results and gradients must be close.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import pullback as pb
from pullback.dtypes import by_name
from pullback.graph.node import Node
from pullback.runtime.evaluate import evaluate
from pullback.runtime.reference import reference_values

Instruction = tuple[str, Sequence[int]]

FLOATS = ("float64", "float32", "float16", "bfloat16")
INTEGERS = ("int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8")
DTYPES = (*FLOATS, *INTEGERS, "bool")
EXTENTS = (1, 2, 3, 5, 8, 17, 67, 0)
MAX_SIZE = 6000
LIMIT = 8  # of exact values


class Choices:
    """Numbers of an instruction, taken one after the other; zeros when they are used up."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self._numbers = iter(numbers)

    def below(self, stop: int) -> int:
        return next(self._numbers, 0) % stop

    def of(self, options: Sequence[Any]) -> Any:
        return options[self.below(len(options))]

    def flag(self) -> bool:
        return self.below(2) == 1


def data(shape: tuple[int, ...], dtype: str, seed: int, exact: bool) -> np.ndarray:
    """An input: small integers, or numbers of magnitude below 1 without ties."""
    kind = by_name(dtype)
    rng = np.random.default_rng(seed)
    if exact:
        low = 0 if kind.kind in "ub" else -3
        return np.asarray(rng.integers(low, 2 if kind.kind == "b" else 4, shape)).astype(kind.numpy)
    return np.asarray(rng.uniform(-0.9, 0.9, shape)).astype(kind.numpy)


def with_special_values(array: np.ndarray, seed: int) -> np.ndarray:
    """Some elements of floats replaced by NaN, infinities and -0.0, which exact steps pass on exactly."""
    if by_name(array.dtype.name).kind != "f" or not array.size:
        return array
    rng = np.random.default_rng(seed)
    array = array.copy()
    for value in (np.nan, np.inf, -np.inf, -0.0):
        if rng.random() < 0.6:
            array.reshape(-1)[rng.integers(array.size)] = value
    return array


class Run:
    """A pool of tensors, and the steps that enlarge it."""

    def __init__(self, inputs: Sequence[Any], exact: bool) -> None:
        self.pool = list(inputs)
        self.exact = exact

    # -- picking ------------------------------------------------------------------------------------------------------

    def pick(self, c: Choices, rank: int = 0, filled: bool = False) -> Any:
        """A tensor of at least ``rank`` axes; mostly the last one, so that chains get long. ``filled``: one
        that is not empty."""
        fitting = [t for t in reversed(self.pool) if t.ndim >= rank and (t.size or not filled)]
        if fitting:
            return fitting[min(c.below(3) * c.below(3), len(fitting) - 1)]
        return pb.asarray(data((3, 2)[: max(rank, 1)], self.pool[0].dtype.name, 1, self.exact))

    def partner(self, c: Choices, x: Any) -> Any:
        """A tensor that broadcasts to the shape of ``x``, of any dtype that promotes with its dtype."""
        fitting = [t for t in reversed(self.pool) if t.ndim <= x.ndim and _broadcasts(t.shape, x.shape)]
        if fitting and c.below(3):
            return c.of(fitting)
        shape = tuple([1 if c.flag() else extent for extent in x.shape])
        return pb.asarray(data(shape, x.dtype.name, c.below(100), self.exact))

    def index(self, c: Choices, shape: tuple[int, ...], size: int) -> Any:
        """Positions along an axis of ``size``, negative and repeated ones among them."""
        dtype = c.of(("int64", "int32", "uint8", "int8"))
        low = 0 if dtype == "uint8" else -size
        return pb.asarray(np.random.default_rng(c.below(100)).integers(low, size, shape).astype(dtype))

    def tame(self, x: Any) -> Any:
        """``x`` in the range that all dtypes hold exactly."""
        if not self.exact or x.dtype.kind == "b":
            return x
        return pb.clip(x, 0 if x.dtype.kind == "u" else -LIMIT, LIMIT)

    def numbers(self, x: Any) -> Any:
        """``x`` as numbers: bools become small integers."""
        return x.astype("int32") if x.dtype.kind == "b" else x

    # -- steps --------------------------------------------------------------------------------------------------------

    def step(self, instruction: Instruction) -> None:
        name, numbers = instruction
        result = STEPS[name](self, Choices(numbers))
        if result is not None and result.size <= MAX_SIZE and result.ndim <= 5:
            self.pool.append(result)

    def unary(self, c: Choices) -> Any:
        x = self.numbers(self.pick(c))
        if self.exact:
            name = c.of(("negative", "abs", "square", "sign", "floor", "trunc"))
            return self.tame(getattr(pb, name)(x))
        name = c.of(("sin", "cos", "tanh", "sigmoid", "square", "erf", "negative", "expm1", "exp", "arctan"))
        if name == "sigmoid":
            return pb.nn.functional.sigmoid(x)
        if name in ("exp", "expm1"):
            return getattr(pb, name)(x - 1.0)
        return getattr(pb, name)(x)

    def binary(self, c: Choices) -> Any:
        x = self.numbers(self.pick(c))
        y = self.numbers(self.partner(c, x))
        if not _promote(x, y):
            y = y.astype(x.dtype)
        if c.flag():
            x, y = y, x
        name = c.of(("add", "multiply", "subtract", "maximum", "minimum"))
        result = getattr(pb, name)(x, y)
        return self.tame(result) if self.exact else result * 0.5 if name in ("add", "subtract") else result

    def constant(self, c: Choices) -> Any:
        """Algebra with numbers that the compiler knows."""
        x = self.numbers(self.pick(c))
        number = c.of((0, 1, 2)) if x.dtype.kind == "u" else c.of((0, 1, -1, 2))
        name = c.of(("multiply", "add", "subtract"))
        if not self.exact and (name != "multiply" or number == 2):
            return x * 1.0 if name == "multiply" else x - 0.0
        return self.tame(getattr(pb, name)(x, number))

    def choose(self, c: Choices) -> Any:
        x = self.pick(c)
        y = self.partner(c, x)
        z = y if _promote(x, y) else y.astype(x.dtype)
        how = c.below(4)
        if how == 0 or not self.exact:  # of what is compared, errors must not decide
            mask = pb.asarray(data(x.shape, "bool", c.below(100), True))
        else:
            first, second = self.numbers(x), self.numbers(z)
            second = second if _promote(first, second) else second.astype(first.dtype)
            mask = (pb.less, pb.equal, pb.greater_equal)[how - 1](first, second)
        return pb.where(mask, x, z)

    def compare(self, c: Choices) -> Any:
        x = self.numbers(self.pick(c))
        if not self.exact:
            return None
        y = self.numbers(self.partner(c, x))
        y = y if _promote(x, y) else y.astype(x.dtype)
        return getattr(pb, c.of(("less", "equal", "not_equal", "greater")))(x, y)

    def cast(self, c: Choices) -> Any:
        x = self.pick(c)
        if not self.exact:
            return None
        name = c.of(DTYPES)
        if name[0] == "u" and x.dtype.kind in "fi":
            x = pb.abs(x)
        return x.astype(name)

    def reduce(self, c: Choices) -> Any:
        x = self.pick(c, 1, filled=True)
        axes = tuple([axis for axis in range(x.ndim) if c.flag()]) or (c.below(x.ndim),)
        keep = c.flag()
        if not self.exact:
            name = c.of(("mean", "max", "min", "prod", "var"))
            return getattr(pb, name)(x, axis=axes, keepdims=keep)
        if x.dtype.kind == "b":
            return getattr(pb, c.of(("any", "all")))(x, axis=axes, keepdims=keep)
        name = c.of(("sum", "max", "min", "prod", "argmax", "argmin"))
        if name in ("argmax", "argmin"):
            return self.tame(getattr(pb, name)(x, axis=axes[0], keepdims=keep))
        if name == "prod":
            x = pb.clip(x, 0 if x.dtype.kind == "u" else -1, 1)
        return self.tame(getattr(pb, name)(x, axis=axes, keepdims=keep))

    def normalise(self, c: Choices) -> Any:
        """Composites of several passes over a row."""
        x = self.pick(c, 1, filled=True)
        axis = c.below(x.ndim)
        if self.exact:
            x = self.numbers(x)
            y = x - pb.max(x, axis=axis, keepdims=True) if x.dtype.kind != "u" else x
            return self.tame(y * pb.min(x, axis=axis, keepdims=True))
        y = pb.nn.functional.softmax(x, axis=axis)
        return y if c.flag() else (x - pb.mean(x, axis=axis, keepdims=True)) * 0.5

    def scan(self, c: Choices) -> Any:
        x = self.numbers(self.pick(c, 1))
        axis, reverse, exclusive = c.below(x.ndim), c.flag(), c.flag()
        name = c.of(("cumsum", "cumprod", "cummax", "cummin"))
        options: dict[str, Any] = {"axis": axis, "reverse": reverse}
        if name in ("cumsum", "cumprod"):
            options["exclusive"] = exclusive
        if self.exact and name == "cumprod":
            x = pb.clip(x, 0 if x.dtype.kind == "u" else -1, 1)
        result = getattr(pb, name)(x, **options)
        if self.exact:
            return self.tame(result)
        return result * (1.0 / max(x.shape[axis], 1)) if name == "cumsum" else result

    def permute(self, c: Choices) -> Any:
        x = self.pick(c, 2)
        axes = list(range(x.ndim))
        return pb.permute_dims(x, tuple([axes.pop(c.below(len(axes))) for _ in range(x.ndim)]))

    def reshape(self, c: Choices) -> Any:
        x = self.pick(c)
        if c.flag() or x.ndim < 2:
            return pb.reshape(x, (x.size,) if c.flag() else (1, *x.shape))
        axis = c.below(x.ndim - 1)
        return pb.reshape(x, (*x.shape[:axis], x.shape[axis] * x.shape[axis + 1], *x.shape[axis + 2 :]))

    def split(self, c: Choices) -> Any:
        """One axis as two."""
        x = self.pick(c, 1, filled=True)
        axis = c.below(x.ndim)
        extent = x.shape[axis]
        inner = c.of([d for d in range(1, extent + 1) if extent % d == 0])
        return pb.reshape(x, (*x.shape[:axis], extent // inner, inner, *x.shape[axis + 1 :]))

    def view(self, c: Choices) -> Any:
        x = self.pick(c, 1)
        how = c.of(("flip", "stride", "back", "broadcast", "windows", "roll", "diagonal", "newaxis", "crop"))
        axis = c.below(x.ndim)
        extent = x.shape[axis]
        before = (slice(None),) * axis
        if how == "flip":
            return pb.flip(x, axis=axis)
        if how == "stride":
            return x[(*before, slice(c.below(3), None, 2 + c.below(2)))]
        if how == "back":
            return x[(*before, slice(None, None, -1 - c.below(2)))]
        if how == "broadcast":
            return pb.broadcast_to(x, (2, *x.shape))
        if how == "windows" and extent:
            return pb.unfold(x, axis, 1 + c.below(min(extent, 4)), 1 + c.below(3))
        if how == "roll":
            return pb.roll(x, c.below(5) - 2, axis=axis)
        if how == "diagonal" and x.ndim > 1:
            return pb.diagonal(x, c.below(3) - 1, 0, x.ndim - 1)
        if how == "crop":
            return x[(*before, slice(c.below(4), extent - c.below(3)))]
        return x[(*before, None)]

    def join(self, c: Choices) -> Any:
        x = self.pick(c, 1)
        axis = c.below(x.ndim)
        parts = [x, pb.flip(x, axis=axis)]
        fitting = [t for t in self.pool if t.ndim == x.ndim and t.dtype is x.dtype and _but(t, axis) == _but(x, axis)]
        parts += [c.of(fitting)] if fitting else []
        return pb.stack(parts[:2], axis=axis) if c.flag() else pb.concat(parts, axis=axis)

    def pad(self, c: Choices) -> Any:
        x = self.pick(c, 1)
        return pb.pad(x, [(c.below(3), c.below(3)) for _ in range(x.ndim)], constant_values=c.below(2))

    def triangle(self, c: Choices) -> Any:
        x = self.pick(c, 2)
        return (pb.tril if c.flag() else pb.triu)(x, c.below(5) - 2)

    def positions(self, c: Choices) -> Any:
        """A mask made of positions."""
        x = self.pick(c, 2)
        row, column = pb.arange(x.shape[-2])[:, None], pb.arange(x.shape[-1])
        return pb.where(row * 2 + c.below(3) >= column, x, pb.zeros_like(x))

    def gather(self, c: Choices) -> Any:
        x = self.pick(c, 1, filled=True)
        axis = c.below(x.ndim)
        if c.flag():
            return pb.take(x, self.index(c, (c.of((1, 4, 7)),), x.shape[axis]), axis=axis)
        if x.ndim > 1 and c.flag():
            first, second = self.index(c, (3, 1), x.shape[0]), self.index(c, (4,), x.shape[1])
            return x[first, second]
        index = self.index(c, (*x.shape[:axis], 3, *x.shape[axis + 1 :]), x.shape[axis])
        return pb.take_along_axis(x, index, axis=axis)

    def scatter(self, c: Choices) -> Any:
        x = self.numbers(self.pick(c, 1, filled=True))
        axis = c.below(x.ndim)
        index = self.index(c, (*x.shape[:axis], 3, *x.shape[axis + 1 :]), x.shape[axis])
        source = pb.asarray(data(tuple(index.shape), x.dtype.name, c.below(100), self.exact))
        mode = c.of(("add", "set", "max", "min") + (("multiply",) if self.exact else ()))
        result = pb.scatter(x, axis, index, source, mode, include_self=c.flag() or not self.exact or mode != "multiply")
        return self.tame(result) if self.exact else result * 0.25 if mode == "add" else result

    def assign(self, c: Choices) -> Any:
        """In-place: the tensor is bound anew, whoever read it before keeps the old value."""
        source = self.pick(c, 1, filled=True)
        x = source + 0 if source.dtype.kind != "b" else source & True
        axis = c.below(x.ndim)
        before = (slice(None),) * axis
        how = c.of(("one", "slice", "mask", "index", "add"))
        number = c.flag() if x.dtype.kind == "b" else c.below(2)
        if how == "one":
            x[(*before, c.below(x.shape[axis]))] = number
        elif how == "slice":
            part = (*before, slice(c.below(2), None, 1 + c.below(2)))
            x[part] = pb.flip(source, axis=axis)[part]
        elif how == "mask":
            mask = pb.asarray(data(x.shape, "bool", c.below(100), True))
            x[mask] = number
        elif how == "index":
            rows = np.random.default_rng(c.below(100)).integers(0, x.shape[0], 3)
            x[rows] = source[:1]
        elif x.dtype.kind != "b":
            x[(*before, slice(1, None))] += source[(*before, slice(0, -1))]
            return self.tame(x) if self.exact else x * 0.5
        return x

    def product(self, c: Choices) -> Any:
        x = self.numbers(self.pick(c, 1, filled=True))
        y = pb.asarray(data((x.shape[-1], c.of((1, 3, 4))), x.dtype.name, c.below(100), self.exact))
        fitting = [t for t in self.pool if t.ndim == 2 and t.size and t.dtype is x.dtype and t.shape[1] == x.shape[-1]]
        if fitting and c.flag():
            y = c.of(fitting).T
        result = x @ y
        return self.tame(result) if self.exact else result * (1.0 / x.shape[-1])

    def convolve(self, c: Choices) -> Any:
        """One or two axes; strides, dilations and groups; transposed, too."""
        x = self.numbers(self.pick(c, 1, filled=True))
        rank = min(x.ndim, 1 + c.below(2))
        lead = x.shape[: x.ndim - rank]
        extents, channels = x.shape[x.ndim - rank :], lead[-1] if lead else 1
        x = pb.reshape(x, (int(np.prod(lead[:-1])), channels, *extents))
        groups = c.of([n for n in (1, 2, 3, channels) if channels % n == 0])
        taps = tuple([1 + c.below(3) for _ in extents])
        stride = tuple([1 + c.below(3) for _ in extents])
        name, shape = f"conv{rank}d", (c.of((1, 2)) * groups, channels // groups, *taps)
        options: dict[str, Any] = {"stride": stride, "padding": tuple([n // 2 + c.below(2) for n in taps])}
        if c.flag():
            name, shape = f"conv_transpose{rank}d", (channels, c.of((1, 2)), *taps)
            options = {"stride": stride}
        elif c.flag():
            options = {"padding": taps, "dilation": 2}
        w = pb.asarray(data(shape, x.dtype.name, c.below(100), self.exact))
        result = getattr(pb.nn, name)(x, w, groups=groups, **options)
        return self.tame(result) if self.exact else result * (1.0 / (channels // groups * int(np.prod(taps))))

    def order(self, c: Choices) -> Any:
        x = self.pick(c, 1)
        axis, down = c.below(x.ndim), c.flag()
        if self.exact and c.flag():
            return self.tame(pb.argsort(x, axis=axis, descending=down))
        return pb.sort(x, axis=axis, descending=down)


def _but(x: Any, axis: int) -> tuple[int, ...]:
    return (*x.shape[:axis], *x.shape[axis + 1 :])


def _broadcasts(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    return all(a in (1, b) for a, b in zip(reversed(shape), reversed(target)))


def _promote(x: Any, y: Any) -> bool:
    """Whether the two promote to a dtype in which all exact values are exact."""
    try:
        pb.result_type(x.dtype, y.dtype)
    except pb.errors.DTypeError:
        return False
    return True


STEPS: dict[str, Callable[[Run, Choices], Any]] = {
    name: getattr(Run, name)
    for name in (
        "unary", "binary", "constant", "choose", "compare", "cast", "reduce", "normalise", "scan", "permute", "reshape",
        "split", "view", "join", "pad", "triangle", "positions", "gather", "scatter", "assign", "product", "convolve",
        "order",
    )
}  # fmt: skip


def execute(program: Sequence[Instruction], inputs: Sequence[Any], exact: bool) -> list[Any]:
    """The tensors that a program makes; its inputs if it makes none."""
    run = Run(inputs, exact)
    for instruction in program:
        run.step(instruction)
    return run.pool[len(inputs) :] or run.pool


def outputs_of(made: list[Any]) -> list[Any]:
    """Those that are compared: the last ones and one from the middle."""
    return [*made[-3:], made[len(made) // 2]]


def gradients_of(program: Sequence[Instruction], inputs: Sequence[Any], exact: bool) -> list[Any]:
    """Outputs, and the gradients of their weighted sum by the inputs of floats."""
    floats = [i for i, x in enumerate(inputs) if x.dtype.kind == "f"]

    def loss(*given: Any) -> Any:
        full = list(inputs)
        for position, value in zip(floats, given):
            full[position] = value
        total = pb.asarray(0.0, dtype="float64")
        for number, output in enumerate(outputs_of(execute(program, full, exact))):
            total = total + pb.mean(output.astype("float64") * (number + 1)) if output.size else total
        return total

    value, gradients = pb.value_and_grad(loss, argnums=tuple(range(len(floats))))(*[inputs[i] for i in floats])
    return [value, *gradients]


def compare(outputs: Sequence[Any], exact: bool, tolerance: float = 0.0) -> None:
    """Evaluate ``outputs`` by the references and compiled, all in one program, and compare."""
    nodes: list[Node] = [output.node for output in outputs]
    expected = reference_values(nodes)
    evaluate(nodes)
    for node, value in zip(nodes, expected, strict=True):
        assert node.buffer is not None
        got = node.buffer.numpy(node.shape, node.dtype.numpy)
        assert got.dtype == value.dtype
        wide, right = (a.astype(np.float64) if node.dtype.kind == "f" else a for a in (got, value))
        if exact or node.dtype.kind != "f":
            np.testing.assert_array_equal(wide, right, err_msg=repr(node))
        else:
            scale = max(1.0, float(np.max(np.abs(right), initial=0.0, where=np.isfinite(right))))
            np.testing.assert_allclose(wide, right, rtol=tolerance, atol=tolerance * scale, err_msg=repr(node))


def steps_in_place(program: Sequence[Instruction], arrays: Sequence[np.ndarray], exact: bool) -> list[np.ndarray]:
    """The state and the results after each of three calls of a jitted step that binds its state anew."""
    state, *others = (pb.asarray(array) for array in arrays)

    @pb.jit
    def step() -> list[Any]:
        made = execute(program, [state, *others], exact)
        fitting = [t for t in reversed(made) if t.shape == state.shape and t.dtype is state.dtype]
        if fitting:
            state.assign(fitting[0])
        return outputs_of(made)

    results = []
    for _ in range(3):
        results += [np.array(output) for output in [*step(), state]]
    return results


def mapped(program: Sequence[Instruction], arrays: Sequence[np.ndarray], exact: bool, whole: bool) -> list[np.ndarray]:
    """The results of a program over two stacked inputs (the others are shared): by ``vmap``, or else one by one."""
    stacked, *others = arrays

    def function(x: Any) -> Any:
        return tuple(outputs_of(execute(program, [x, *others], exact)))

    others = [pb.asarray(array) for array in others]
    if whole:
        return [np.array(output) for output in pb.vmap(function)(pb.asarray(stacked))]
    each = [[np.array(output) for output in function(pb.asarray(x))] for x in stacked]
    return [np.stack(outputs) for outputs in zip(*each, strict=True)]
