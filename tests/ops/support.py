"""What the tests of the operations share: an example or more of every op, and checks against definitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import numpy as np

from pullback import dtypes as dt
from pullback.graph.node import Node
from pullback.graph.tracking import Scope
from pullback.ops import contraction, indexing, leaf, movement, reduction, sorting
from pullback.ops import elementwise as e
from pullback.runtime.reference import reference_values
from pullback.transforms.derivative import gradients_of, tangents_of

Array = np.ndarray[Any, Any]
Build = Callable[..., Node]


def node_of(array: Any, dtype: dt.DType | None = None) -> Node:
    """A data node of ``array``."""
    array = np.asarray(array, None if dtype is None else dtype.numpy)
    return leaf.data(array)


def value_of(node: Node) -> Array:
    """The node's value by the reference."""
    return reference_values([node])[0]


def run(build: Build, *arrays: Any) -> Array:
    """``build`` applied to data nodes of ``arrays``, evaluated by the reference."""
    return value_of(build(*[node_of(a) for a in arrays]))


@dataclass(frozen=True)
class Case:
    """One use of an op: ``build(*nodes)`` is the op's node and its operands are exactly ``nodes``.

    differentiable: positions of the operands by which it is smooth at ``arrays``.
    order: of the derivatives that there are.
    """

    op: str
    build: Build
    arrays: tuple[Array, ...]
    differentiable: tuple[int, ...] = ()
    note: str = ""
    order: int = 2

    def __str__(self) -> str:
        return f"{self.op}{'-' if self.note else ''}{self.note}"


def grid(low: float, high: float, shape: tuple[int, ...], seed: int = 0) -> Array:
    """Well separated values in no order, so that there are no ties and no value lies near 0."""
    size = int(np.prod(shape, dtype=int))
    line = low + (high - low) * (np.arange(size) + 0.37) / max(size, 1)
    return np.random.default_rng(seed).permutation(line).reshape(shape)


def ints(low: int, high: int, shape: tuple[int, ...], dtype: Any = np.int64, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)


def bools(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).random(shape) < 0.5


def _cases() -> list[Case]:
    cases: list[Case] = []

    def case(op: str, build: Build, *arrays: Array, by: Sequence[int] = (), note: str = "") -> None:
        cases.append(Case(op, build, tuple(map(np.asarray, arrays)), tuple(by), note))

    # Elementwise, one operand: the interval in which it is smooth.
    everywhere, positive, inside = (-2.0, 2.0), (0.2, 3.0), (-0.9, 0.9)
    smooth = dict.fromkeys(
        ("negative", "abs", "square", "cube", "exp", "exp2", "expm1", "sigmoid", "erf", "erfc", "sin", "cos", "atan",
         "sinh", "cosh", "tanh", "asinh", "gelu", "gelu_slope", "gelu_tanh", "gelu_tanh_slope", "stop_gradient",
         "alias"), everywhere,
    )
    smooth |= dict.fromkeys(("reciprocal", "sqrt", "rsqrt", "cbrt", "log", "log2", "log10", "log1p"), positive)
    smooth |= dict.fromkeys(("tan", "asin", "acos", "atanh"), inside)
    smooth |= {"acosh": (1.2, 3.0)}
    for name, (low, high) in smooth.items():
        case(name, getattr(e, name), grid(low, high, (3, 4)), by=() if name == "stop_gradient" else (0,))
    for name in ("sign", "floor", "ceil", "round", "trunc"):
        case(name, getattr(e, name), grid(-3, 3, (5,)), by=(0,))
    for name in ("isnan", "isinf", "isfinite"):
        case(name, getattr(e, name), np.array([[1.0, np.nan], [np.inf, -np.inf]]))
    case("logical_not", e.logical_not, bools(4))
    case("bitwise_invert", e.bitwise_invert, ints(-9, 9, (4,), np.int16))
    case("cast", lambda x: e.cast(x, dt.float32), grid(-2, 2, (3,)), note="float")
    case("cast", lambda x: e.cast(x, dt.int32), grid(-20, 20, (3, 2)), note="integer")
    case("bitcast", lambda x: e.bitcast(x, dt.int64), grid(-2, 2, (3,)))
    case("check_index", lambda x: e.check_index(x, 5, "x"), ints(-5, 5, (3, 2), np.int32))

    # Elementwise, two operands: of one shape, and broadcast both ways.
    shapes = {"same": ((3, 4), (3, 4)), "outer": ((3, 1), (4,)), "scalar": ((2, 3), ()), "ranks": ((4,), (2, 3, 1))}
    for note, (left, right) in shapes.items():
        x, y = grid(0.3, 2.9, left, 1), grid(0.4, 3.1, right, 2)
        for name in ("add", "subtract", "multiply", "divide", "pow", "atan2", "maximum", "minimum", "strong_multiply",
                     "strong_product"):
            case(name, getattr(e, name), x, y, by=(0, 1), note=note)
        case("remainder", e.remainder, x, y, by=(0, 1), note=note)
        case("floor_divide", e.floor_divide, x, y, by=(0, 1), note=note)
        case("copysign", e.copysign, grid(-2, 2, left), grid(-2, 2, right, 5), by=(0, 1), note=note)
        for name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"):
            case(name, getattr(e, name), ints(0, 3, left), ints(0, 3, right), note=note)
        for name in ("logical_and", "logical_or", "logical_xor"):
            case(name, getattr(e, name), bools(*left), bools(*right, seed=1), note=note)
        for name in ("bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift"):
            case(name, getattr(e, name), ints(0, 40, left), ints(0, 40, right), note=note)
        case("threefry", e.threefry, ints(0, 2**62, left, np.uint64), ints(0, 2**62, right, np.uint64), note=note)
        case("where", e.where, bools(*left), grid(-1, 1, right), grid(1, 2, left), by=(1, 2), note=note)
        case("where", e.where, bools(*right), grid(-1, 1, left), grid(1, 2, ()), by=(1, 2), note=f"{note}2")
        low, high = np.full(right, -0.51), np.full((), 0.62)
        case("clip", e.clip, grid(-1, 1, left), low, high, by=(0, 1, 2), note=note)
    for exponent in (0.0, 0.5, 1.0, 2.0, 3.0, -1.5):
        case("pow", e.pow, grid(0.3, 2.9, (3,)), np.array(exponent), by=(0, 1), note=str(exponent))

    # Reductions.
    x = grid(-2.2, 2.4, (2, 3, 4))
    for axes in ((0,), (1,), (2,), (0, 2), (0, 1, 2), ()):
        keepdims = axes == (1,)
        note = f"{axes}{keepdims}"
        for name in ("reduce_sum", "reduce_prod", "reduce_max", "reduce_min"):
            op = getattr(reduction, name.upper())
            case(name, lambda x, op=op, a=axes, k=keepdims: bind_op(op, (x,), (a, k)), x, by=(0,), note=note)
        for name in ("reduce_any", "reduce_all"):
            op = getattr(reduction, name.upper())
            case(name, lambda x, op=op, a=axes, k=keepdims: bind_op(op, (x,), (a, k)), bools(2, 3, 4), note=note)
        if len(axes) == 1:
            for name in ("argmax", "argmin"):
                function = getattr(reduction, name)
                case(name, lambda x, f=function, a=axes, k=keepdims: f(x, a, k), x, note=note)
    zeros = np.array([[2.0, 0, 3], [0, 0, 5], [1, 2, 3]])
    case("reduce_prod", lambda x: reduction.reduce_prod(x, (1,)), zeros, by=(0,), note="zeros")

    # Movement.
    x = grid(-1, 1, (2, 3, 4))
    case("reshape", lambda x: movement.reshape(x, (4, 6)), x, by=(0,))
    case("permute", lambda x: movement.permute(x, (2, 0, 1)), x, by=(0,))
    case("broadcast_to", lambda x: movement.broadcast_to(x, (5, 2, 4)), grid(-1, 1, (2, 1)), by=(0,))
    case("broadcast_to", lambda x: movement.broadcast_to(x, (2, 3)), grid(-1, 1, ()), by=(0,), note="scalar")
    case("slice", lambda x: movement.slice(x, (0, 1, 1), (2, 3, 4), (1, 1, 2)), x, by=(0,))
    case("slice", lambda x: movement.slice(x, (1, 0, 2), (1, 3, 3), (1, 2, 5)), x, by=(0,), note="empty")
    case("flip", lambda x: movement.flip(x, (0, 2)), x, by=(0,))
    value = np.array(0.7)
    for note, low, high, interior in (
        ("around", (1, 0), (2, 3), (0, 0)), ("between", (0, 2), (1, 0), (2, 1)), ("cropped", (-1, 2), (1, -2), (1, 0)),
    ):
        attrs = (low, high, interior)
        case("pad", lambda x, v, a=attrs: movement.pad(x, v, *a), grid(-1, 1, (3, 4)), value, by=(0, 1), note=note)
    for axis in (0, 1):
        parts = [grid(-1, 1, (2, 3), seed) for seed in range(3)]
        case("concat", lambda *x, axis=axis: movement.concat(x, axis), *parts, by=(0, 1, 2), note=str(axis))

    # Indexing.
    table = grid(0.5, 2.5, (4, 3, 5))
    for note, axes, index_shape in (
        ("front", (0,), (6,)), ("middle", (1,), (2, 3)), ("two", (0, 2), (4,)), ("scalar", (2,), ()),
        ("swapped", (2, 0), (3,)), ("all", (0, 1, 2), (2, 2)), ("none", (1,), (0,)),
    ):
        index = [ints(0, table.shape[a], index_shape, seed=a) for a in axes]
        case("gather", lambda x, *i, a=axes: indexing.gather(x, i, a), table, *index, by=(0,), note=note)
        rest = tuple(n for a, n in enumerate(table.shape) if a not in axes)
        updates = grid(0.6, 2.4, (*index_shape, *rest), 3)
        for mode in ("set", "add", "multiply", "min", "max"):
            case(f"scatter_{mode}", lambda x, u, *i, a=axes, m=mode: indexing.scatter(x, u, i, a, m), table, updates,
                 *index, by=(0, 1), note=note)
    zeros = np.array([2.0, 0.0, 0.0, 3.0, 0.5])
    case("scatter_multiply", lambda x, u, i: indexing.scatter(x, u, [i], (0,), "multiply"), np.array([1.5, 0.0, 2.0]),
         zeros, np.array([0, 0, 1, 1, 0]), by=(0, 1), note="zeros")

    # Contraction and sorting.
    for note, left, right, contract, batch in (
        ("matmul", (3, 4), (4, 2), ((1,), (0,)), ((), ())),
        ("inner", (4,), (4,), ((0,), (0,)), ((), ())),
        ("outer", (3,), (2,), ((), ()), ((), ())),
        ("batched", (2, 3, 4), (2, 4, 5), ((2,), (1,)), ((0,), (0,))),
        ("two", (2, 3, 4, 2), (4, 2, 3), ((1, 2), (2, 0)), ((0,), (1,))),
        ("crossed", (5, 2, 3), (3, 4, 2), ((2, 1), (0, 2)), ((), ())),
        ("last", (3, 2, 4), (5, 3, 2), ((), ()), ((0, 1), (1, 2))),
    ):
        case("dot_general", lambda a, b, c=contract, g=batch: contraction.dot_general(a, b, c, g),
             grid(-1, 1, left, 1), grid(-1, 1, right, 2), by=(0, 1), note=note)
        # Of float64 nothing is rounded.
        case("rounded_dot_general",
             lambda a, b, c=contract, g=batch: bind_op(contraction.ROUNDED_DOT_GENERAL, (a, b), (c, g)),
             grid(-1, 1, left, 1), grid(-1, 1, right, 2), by=(0, 1), note=note)
    for descending in (False, True):
        case("argsort", lambda x, d=descending: sorting.argsort(x, 1, d), ints(0, 3, (2, 7, 2)), note=str(descending))
    return cases


def bind_op(op: Any, inputs: tuple[Node, ...], attrs: tuple[Any, ...]) -> Node:
    from pullback.graph.node import bind

    return bind(op, inputs, attrs)


def _families() -> list[Case]:
    """The examples of the families that have a module of their own, ``tests/ops/cases/<family>.py`` with ``CASES``."""
    modules = sorted(m.name for m in iter_modules(import_module("tests.ops.cases").__path__))
    return [case for name in modules for case in import_module(f"tests.ops.cases.{name}").CASES]


CASES = _cases() + _families()


# -- derivatives against finite differences ----------------------------------------------------------------------------


def gradient(build: Build, inputs: Sequence[Node], cotangent: Node | float = 1.0) -> list[Node]:
    """Reverse mode through ``build`` at ``inputs``; zeros where nothing arrives."""
    with Scope() as scope:
        leaves = _leaves(inputs, scope)
        output = build(*leaves)
        if not isinstance(cotangent, Node):
            cotangent = leaf.full(output.shape, cotangent, output.dtype)
        found = gradients_of([output], [cotangent], leaves, scope)
        return [leaf.zeros_like(x) if g is None else g for x, g in zip(inputs, found)]


def tangent(build: Build, inputs: Sequence[Node], tangents: Sequence[Node]) -> Node:
    """Forward mode through ``build`` at ``inputs``."""
    with Scope() as scope:
        leaves = _leaves(inputs, scope)
        output = build(*leaves)
        (found,) = tangents_of([output], leaves, tangents, scope)
        return leaf.zeros_like(output) if found is None else found


def _leaves(inputs: Sequence[Node], scope: Scope) -> list[Node]:
    leaves = [e.alias(x) for x in inputs]
    for x in leaves:
        x.scope = scope
    return leaves


def check_derivative(build: Build, arrays: Sequence[Array], order: int = 2, seed: int = 0, eps: float = 1e-5) -> None:
    """Both modes against differences of the reference in float64; then the derivatives' derivatives, in all pairs."""
    rng = np.random.default_rng(seed)
    inputs = [node_of(a) for a in arrays]
    directions = [rng.uniform(-1, 1, a.shape) for a in arrays]

    def moved(step: float) -> Array:
        return run(build, *[a + step * d for a, d in zip(arrays, directions)])

    def slope(step: float) -> Array:
        return (moved(step) - moved(-step)) / (2 * step)

    expected = (4 * slope(eps / 2) - slope(eps)) / 3
    cotangent = rng.uniform(-1, 1, expected.shape)
    ct_node, tangents = node_of(cotangent), [node_of(d) for d in directions]
    forward = value_of(tangent(build, inputs, tangents))
    np.testing.assert_allclose(forward, expected, rtol=1e-6, atol=1e-7, err_msg="forward mode")
    gradients = [value_of(g) for g in gradient(build, inputs, ct_node)]
    for g, a in zip(gradients, arrays):
        assert g.shape == a.shape
        assert g.dtype == a.dtype
    reverse = sum([float(np.sum(g * d)) for g, d in zip(gradients, directions)])
    np.testing.assert_allclose(reverse, np.sum(cotangent * expected), rtol=1e-6, atol=1e-7, err_msg="reverse mode")
    if order > 1:
        def by_forward(*xs: Node) -> Node:
            return tangent(build, xs, tangents)

        def by_reverse(*xs: Node) -> Node:
            total: Node | None = None
            for g, direction in zip(gradient(build, xs, ct_node), tangents):
                term = e.multiply(g, direction)
                term = reduction.reduce_sum(term, tuple(range(term.ndim)))
                total = term if total is None else e.add(total, term)
            assert total is not None
            return total

        check_derivative(by_forward, arrays, order - 1, seed + 1, eps)
        check_derivative(by_reverse, arrays, order - 1, seed + 2, eps)
