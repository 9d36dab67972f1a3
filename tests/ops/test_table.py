"""Ops x rules: every cell of the table is filled, and what fills it works on the op's example."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import pullback as pb
from pullback import dtypes as dt
from pullback.compiler.llvm.scalar import INSTRUCTIONS
from pullback.errors import GradientError
from pullback.graph.node import Node, bind
from pullback.ops import custom, leaf
from pullback.ops import elementwise as e
from pullback.ops.record import Derivative, NoDerivative, Op
from pullback.ops.registry import ALL
from pullback.runtime.evaluate import evaluate
from tests.ops import support
from tests.ops.cases.custom import Square
from tests.ops.support import Case, gradient, node_of, tangent, value_of

EXAMPLES: dict[str, list[Case]] = {}
for _case in support.CASES:
    EXAMPLES.setdefault(_case.op, []).append(_case)

# Ops of which an operand is of another op: a call and its results, a value and what computes it again.
_X = np.array([0.3, -1.2, 2.0])


def _square(x: Node) -> Node:
    return custom.custom_result(e.square(x), custom.custom_call([x], Square()), 0)


COMPOSED = {
    "custom_call": Case("custom_call", _square, (_X,), (0,)),
    "custom_result": Case("custom_result", _square, (_X,), (0,)),
    "saved": Case("saved", lambda x: custom.saved(e.exp(e.stop_gradient(x)), e.exp(x)), (_X,), (0,)),
}

OPS = [op for op in ALL.values() if op.kind != "leaf"]


class Blank(Exception):
    """What a cell lacks."""


def _need(condition: object, what: str) -> None:
    if not condition:
        raise Blank(what)


def _example(op: Op, differentiable: bool = False) -> Case:
    cases = [case for case in EXAMPLES.get(op.name, ()) if case.differentiable or not differentiable]
    if op is e.CAST:  # between two floating dtypes, where differences are too coarse to be compared with
        cases = [case for case in EXAMPLES["cast"] if case.note == "float"]
    if not cases and op.name in COMPOSED:
        cases = [COMPOSED[op.name]]
    _need(cases, "no example to differentiate in CASES" if differentiable else "no example in CASES")
    return cases[0]


def _node(op: Op) -> Node:
    case = _example(op)
    return case.build(*[node_of(a) for a in case.arrays])


# -- the columns -------------------------------------------------------------------------------------------------------


def reference(op: Op) -> None:
    node = _node(op)
    value = np.asarray(op.reference(node, *[value_of(x) for x in node.inputs]))
    _need(value.shape == node.shape, f"gives shape {value.shape} for {node.shape}")
    _need(value.dtype == node.dtype.numpy, f"gives {value.dtype} for {node.dtype.name}")


def _derivative(op: Op) -> Case | None:
    """The example by which ``op`` is differentiated; None if its record says that there is no derivative, and why."""
    _need(isinstance(op.derivative, Derivative), "nothing declared, not even NoDerivative")
    if not isinstance(op.derivative, NoDerivative):
        return _example(op, differentiable=True)
    _need(op.derivative.why.strip(), "NoDerivative without a reason")
    node = _node(op)
    is_float = node.dtype.kind == "f" and any(x.dtype.kind == "f" for x in node.inputs)
    if is_float and not op.derivative.zero:
        with pytest.raises(GradientError, match=op.name):
            gradient(_example(op).build, [node_of(a) for a in _example(op).arrays])
    return None


def _of_floats(case: Case) -> tuple[Callable[..., Node], list[Node]]:
    def build(*given: Node) -> Node:
        operands = [node_of(a) for a in case.arrays]
        for position, x in zip(positions, given):
            operands[position] = x
        return case.build(*operands)

    positions = case.differentiable or (0,)
    return build, [node_of(case.arrays[i].astype(np.float64)) for i in positions]


def jvp(op: Op) -> None:
    case = _derivative(op)
    if case is not None:
        build, primals = _of_floats(case)
        found, output = tangent(build, primals, [leaf.ones_like(x) for x in primals]), build(*primals)
        _need((found.shape, found.dtype) == (output.shape, output.dtype), f"gives {found!r} for {output!r}")
        value_of(found)


def vjp(op: Op) -> None:
    case = _derivative(op)
    if case is not None:
        build, primals = _of_floats(case)
        for x, found in zip(primals, gradient(build, primals)):
            _need((found.shape, found.dtype) == (x.shape, x.dtype), f"gives {found!r} for {x!r}")
            value_of(found)


def batching(op: Op) -> None:
    node, size = _node(op), 2
    if op.name in COMPOSED:
        x = pb.asarray(np.stack([_X, _X]))
        result = pb.vmap(lambda row: pb.Tensor(COMPOSED[op.name].build(row.node)))(x).node
        _need((result.shape, result.dtype) == ((size, *_X.shape), pb.float64), f"gives {result!r}")
        return
    stacks = tuple([node_of(np.stack([value_of(x)] * size)) for x in node.inputs])
    result = op.batch(node, stacks, (True,) * len(stacks), size)
    _need(result.shape == (size, *node.shape), f"gives shape {result.shape} for {(size, *node.shape)}")
    _need(result.dtype is node.dtype, f"gives {result.dtype.name} for {node.dtype.name}")


def lowering(op: Op) -> None:
    _need(op.lower, "no name of an instruction or a strategy")
    if op.kind == "elementwise":
        _need(op.lower in INSTRUCTIONS, f"no instruction {op.lower!r} in compiler/llvm/scalar.py")
    node = _node(op)
    evaluate([node])
    _need(node.buffer is not None, "no value")


def dtype_rule(op: Op) -> None:
    """The rule gives the node's type; operands of any other dtype are taken, or refused with an error that names the
    op."""
    node = _node(op)
    _need(tuple(op.infer(node.inputs, *node.attrs)) == (node.shape, node.dtype), "is not what the node has")
    for dtype in dt.ALL:
        if op.name in COMPOSED:
            continue
        operands = tuple([Node(leaf.PARAMETER, (), (0,), x.shape, dtype) for x in node.inputs])
        try:
            bind(op, operands, node.attrs)
        except (TypeError, ValueError) as error:
            _need(type(error).__module__ == "pullback.errors", f"raises {error!r} for {dtype.name}")


def docstring(op: Op) -> None:
    _need(op.doc.strip(), "empty")
    _need(len(set(op.attr_names)) == len(op.attr_names), "an attribute name twice")
    _need(op.cost >= 0, "negative cost")


def example(op: Op) -> None:
    for case in EXAMPLES.get(op.name, ()):
        inputs = tuple([node_of(a) for a in case.arrays])
        node = case.build(*inputs)
        _need(node.op is op and node.inputs == inputs, f"{case} builds {node!r}")
    _example(op)


COLUMNS = (reference, jvp, vjp, batching, lowering, dtype_rule, docstring, example)


def table(ops: list[Op]) -> tuple[str, int]:
    """Ops by rules, and how many cells are blank. A cell is ``ok``, ``-`` for a derivative that the record denies, or
    what is missing, given below the table."""
    width = max([len(op.name) for op in ops] + [2])
    lines = [" ".join([f"{'op':<{width}}", *[f"{column.__name__:>10}" for column in COLUMNS]])]
    notes = []
    for op in ops:
        cells = []
        for column in COLUMNS:
            try:
                column(op)
            except Blank as blank:
                notes.append(f"{op.name}, {column.__name__}: {blank}")
                cells.append("MISSING")
            except Exception as error:  # noqa: BLE001 - whatever it is, the cell does not work
                notes.append(f"{op.name}, {column.__name__}: {type(error).__name__}: {error}")
                cells.append("FAILS")
            else:
                denied = column in (jvp, vjp) and isinstance(op.derivative, NoDerivative)
                cells.append("-" if denied else "ok")
        if not set(cells) <= {"ok", "-"}:
            lines.append(" ".join([f"{op.name:<{width}}", *[f"{cell:>10}" for cell in cells]]))
    return "\n".join(["", *lines, *notes]), len(notes)


def test_no_cell_is_blank() -> None:
    text, blank = table(OPS)
    if blank:
        pytest.fail(text, pytrace=False)


def test_leaves_are_documented() -> None:
    for op in ALL.values():
        if op.kind == "leaf":
            assert op.doc
            assert isinstance(op.derivative, NoDerivative)
            assert op.derivative.why


def test_a_blank_cell_is_found() -> None:
    """The table can fail: an op of which nothing but the name is there."""
    def nothing(*operands: object) -> None:
        raise NotImplementedError("no rule")

    bare = Op("bare", "elementwise", nothing, nothing, NoDerivative(" "), nothing, "bare")  # type: ignore[arg-type]
    text, blank = table([bare, ALL["exp"]])
    assert blank >= len(COLUMNS)
    assert "bare, jvp: NoDerivative without a reason" in text
    assert "bare, example: no example in CASES" in text
    assert "\nexp" not in text
