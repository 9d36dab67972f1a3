"""Every op has every field of its record, an example, and a lowering."""

from __future__ import annotations

import pickle
from typing import get_args

import pytest

from pullback.graph.node import Node
from pullback.ops import elementwise as e
from pullback.ops import leaf
from pullback.ops.record import Derivative, Jvp, Kind, Linear, NoDerivative, Op, Partials
from pullback.ops.registry import ALL, by_name, register
from tests.ops.support import CASES, node_of

EXAMPLES = {case.op for case in CASES}


@pytest.mark.parametrize("op", ALL.values(), ids=str)
def test_no_cell_is_blank(op: Op) -> None:
    assert op.kind in get_args(Kind)
    for rule in (op.infer, op.reference, op.batch):
        assert callable(rule)
    assert isinstance(op.derivative, Derivative)
    if isinstance(op.derivative, NoDerivative):
        assert op.derivative.why
    assert op.lower
    assert op.doc
    assert op.cost >= 0
    assert len(set(op.attr_names)) == len(op.attr_names)


# These stand for the value of another node; tests/transforms/test_{custom,checkpoint}.py exercise them.
NO_EXAMPLE = ("custom_result", "saved")


@pytest.mark.parametrize("op", [op for op in ALL.values() if op.kind != "leaf" and op.name not in NO_EXAMPLE], ids=str)
def test_every_op_has_an_example(op: Op) -> None:
    cases = [case for case in CASES if case.op == op.name]
    assert cases
    for case in cases:
        inputs = tuple(node_of(a) for a in case.arrays)
        node = case.build(*inputs)
        assert node.op is op
        assert node.inputs == inputs
        assert len(node.attrs) == len(op.attr_names)
        hash(node.attrs)
    if isinstance(op.derivative, Partials | Linear | Jvp) and op is not e.CAST:
        assert any(case.differentiable for case in cases), "no derivative is checked"


def test_names() -> None:
    assert all(by_name(name) is op and op.name == name for name, op in ALL.items())
    assert pickle.loads(pickle.dumps(e.EXP)) is e.EXP
    with pytest.raises(ValueError, match="already registered"):
        register(e.EXP)


def test_elementwise_functions_carry_the_ops_name_and_doc() -> None:
    for name, op in ALL.items():
        if op.kind == "elementwise":
            assert getattr(e, name).__doc__, name


def test_weak_operands() -> None:
    weak, strong = leaf.constant(2.0, _f32(), weak=True), node_of([1.0, 2.0], _f32())
    assert e.exp(weak).weak
    assert e.add(weak, weak).weak
    assert not e.add(weak, strong).weak
    assert not e.less(weak, weak).weak
    assert not e.cast(weak, _f32()).weak


def _f32():  # type: ignore[no-untyped-def]
    from pullback.dtypes import float32

    return float32


def test_python_numbers_take_the_other_operands_dtype() -> None:
    from pullback.dtypes import float16

    x = node_of([1.0], float16)
    for node in (e.add(1, x), e.add(x, 1), e.where(e.less(x, 0), 0, x), e.clip(x, -1, 1)):
        assert isinstance(node, Node)
        assert node.dtype is float16
