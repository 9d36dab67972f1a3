"""Ops through which a user's own derivative, or a recomputation, enters the graph.

A call of such a function makes one ``custom_call`` node of its arguments, which has no value worth computing and knows
the rule, and for each floating output a ``custom_result`` node, whose value is the output that the function computed
and whose derivative goes through the call. So a rule sees the cotangents of all outputs together.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import ReferenceType

import numpy as np

from .. import dtypes
from ..dtypes import DType
from ..errors import DTypeError, ShapeError
from ..graph.node import Node, bind
from ..shapes import Shape
from .family import ANY, infer_unary, with_batch
from .record import CustomCall, CustomResult, Jvp, Linear, Op
from .registry import register


class Rule(ABC):
    """The derivative of one call, given by nodes; the call's inputs are ``node.inputs``.

    All rules are equal, because a compiled program does not depend on them: calls with functions made anew each time
    share their program.

    hidden: weak references to values that were computed inside and that the function gave away, to a list outside, say.
        The derivative does not go through them.
    """

    hidden: Sequence[ReferenceType[Node]] = ()

    @abstractmethod
    def cotangents(self, node: Node, cotangents: Mapping[int, Node], hooked: bool) -> Sequence[Node | None]:
        """Reverse mode: the cotangent of each input from those of the results by their index; None stands for 0, and so
        does a result that is not there. hooked: gradient hooks are to be called."""

    @abstractmethod
    def tangents(self, node: Node, tangents: Sequence[Node | None]) -> Sequence[Node | None]:
        """Forward mode: the tangent of each output from those of the inputs; None stands for 0."""

    @abstractmethod
    def batched(self, batched: tuple[bool, ...], size: int, node: Node) -> Rule:
        """The rule of the call whose inputs have a leading batch axis where ``batched`` says so."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rule)

    def __hash__(self) -> int:
        return hash(Rule)


# -- calls and their results -------------------------------------------------------------------------------------------


def _infer_call(inputs: tuple[Node, ...], rule: Rule, shape: Shape) -> tuple[Shape, DType]:
    return shape, dtypes.float32


def _batch_call(node: Node, inputs: tuple[Node, ...], batched: tuple[bool, ...], size: int) -> Node:
    rule, shape = node.attrs
    return bind(node.op, inputs, (rule.batched(batched, size, node), (size, *shape)))


CUSTOM_CALL = register(Op(
    "custom_call", "custom", _infer_call, lambda node, *arrays: np.zeros(node.shape, np.float32), CustomCall(),
    _batch_call, "zeros", 0.0, ("rule", "shape"), "a call of a function with a derivative rule of its own",
))


def _infer_result(inputs: tuple[Node, ...], index: int) -> tuple[Shape, DType]:
    value, call = inputs
    if value.dtype.kind != "f" or call.op is not CUSTOM_CALL:
        raise DTypeError(f"custom_result: a floating value and its call expected, got {value!r} and {call!r}")
    return value.shape, value.dtype


def _batch_result(node: Node, inputs: tuple[Node, ...], batched: tuple[bool, ...], size: int) -> Node:
    value, call = inputs
    if not batched[1]:
        call = CUSTOM_CALL.batch(call, call.inputs, (False,) * len(call.inputs), size)
    return bind(CUSTOM_RESULT, (with_batch(value, batched[0], size), call), node.attrs)


CUSTOM_RESULT = register(Op(
    "custom_result", "custom", _infer_result, lambda node, value, call: value, CustomResult(), _batch_result, "copy",
    0.0, ("index",), "an output of a custom call: the value computed for it, the derivative from the call's rule",
))


def custom_call(inputs: Sequence[Node], rule: Rule) -> Node:
    """The call of a function with derivative ``rule`` on ``inputs``."""
    return bind(CUSTOM_CALL, tuple(inputs), (rule, ()))


def custom_result(value: Node, call: Node, index: int) -> Node:
    """``value``, with the derivative of output ``index`` of ``call``."""
    return bind(CUSTOM_RESULT, (value, call), (index,))


# -- saved and recomputed values ---------------------------------------------------------------------------------------


def _infer_pair(name: str) -> Any:
    def infer(inputs: tuple[Node, ...]) -> tuple[Shape, DType]:
        value, source = inputs
        if value.shape != source.shape or value.dtype is not source.dtype:
            raise ShapeError(f"{name}: two operands of one shape and dtype expected, got {value!r} and {source!r}")
        return value.shape, value.dtype

    return infer


def _batch_pair(node: Node, inputs: tuple[Node, ...], batched: tuple[bool, ...], size: int) -> Node:
    value, source = (with_batch(x, b, size) for x, b in zip(inputs, batched))
    return bind(node.op, (value, source))


SAVED = register(Op(
    "saved", "custom", _infer_pair("saved"), lambda node, value, source: value,
    Jvp(lambda node, tangents: tangents[1]), _batch_pair, "copy", 0.0, (),
    "the value of the first operand with the derivative of the second, which is the same value computed again",
))


def saved(value: Node, source: Node) -> Node:
    """``value``, kept from before, in the place of ``source``, which is then needed for derivatives only."""
    return bind(SAVED, (value, source))


def _batch_named(node: Node, inputs: tuple[Node, ...], batched: tuple[bool, ...], size: int) -> Node:
    return bind(NAMED, inputs, node.attrs)


NAMED = register(Op(
    "named", "custom", lambda inputs, name: infer_unary("named", ANY)(inputs), lambda node, x: x,
    Linear(lambda node, cotangent, index: cotangent), _batch_named, "copy", 0.0, ("name",),
    "x under a name by which a policy of checkpoint can keep it",
))


def named(x: Node, name: str) -> Node:
    """``x`` under a name."""
    return bind(NAMED, (x,), (name,))
