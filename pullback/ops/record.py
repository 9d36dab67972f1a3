"""The record that declares an operation, once and in one place.

An :class:`Op` holds everything that the rest of the package may ask about an operation: the shape and dtype rule,
the NumPy reference, the derivative, the batching rule, the cost and the lowering. The derivative is declared
once and serves both modes; how, is one of these forms:

``Partials``
    for elementwise ops: the partial derivative with respect to each input.
``Linear``
    for ops linear in each of some inputs (or in all of them together): the transpose.
``Jvp``
    for the others: the tangent of the output in terms of ops; the engine transposes its linear part.
``CustomCall``, ``CustomResult``
    for functions whose derivative the user gives: a call and its results.
``NoDerivative``
    says why there is none. ``zero=True`` marks a derivative that is 0 wherever it exists and is used as 0 (``floor``,
    ``stop_gradient``); otherwise asking for it is an error (never for integer and bool outputs, which carry
    no derivative at all).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal[
    "leaf",         # data, constant, parameter, iota: no inputs
    "elementwise",  # one output element from the elements at the same (broadcast) position
    "view",         # the same elements at other positions: reshape, permute, broadcast_to, slice, flip
    "reduction",    # folds some axes
    "scan",         # a recurrence along one axis: running sums and their kin
    "shift",        # the elements at a fixed distance along an axis, zeros beyond its ends
    "gather",       # elements chosen by index operands
    "scatter",      # elements written at positions given by index operands
    "pad",
    "concat",
    "contraction",  # dot_general
    "attention",    # a kernel of its own for scores, softmax and weighted sums
    "custom",       # no computation of its own: carries a derivative rule or a name
    "host",         # run by a library between two native segments: sorting, LAPACK
]


@dataclass(frozen=True)
class Partials:
    """``fn(node, *inputs)`` gives, for each input, its partial: ``None`` for 0, a Python number for a constant, or a
    function without arguments that builds the partial's node (called only when it is needed)."""

    fn: Callable[..., tuple[Any, ...]]


@dataclass(frozen=True)
class Linear:
    """``transpose(node, cotangent, index)`` gives the cotangent of input ``index``.

    ``inputs`` are the linear ones; empty stands for every input. ``joint``: linear in all of them together (concat),
    else in each with the others held (dot_general). ``others(node, tangents)``, for ops that are not linear in the
    remaining inputs but have a derivative by them (a triangular solve, by its matrix), gives what those add to the
    output's tangent, as in :class:`Jvp`; the tangents of the linear inputs are ``None``.
    """

    transpose: Callable[..., Any]
    inputs: tuple[int, ...] = (0,)
    joint: bool = False
    others: Callable[..., Any] | None = None


@dataclass(frozen=True)
class Limit:
    """What the derivative leaves out of an op that divides by differences of its own results (eigenvalues), where these
    vanish. A function of the results that is smooth all the same takes there the form 0/0, and its derivative is the
    limit as the results move apart, which the engine finds by differentiating once more (l'Hopital's rule).

    ``apart(node)``: directions of the result in which such differences grow from 0; 0 elsewhere.
    ``fn(node, tangents, index)``: what is left out, as in :class:`Jvp`, to be differentiated along direction ``index``
    of these and summed, with how fast the differences grow in place of the differences.
    ``ops``: names of ops (this one too) whose results move together, if they have the same operand; ``apart`` knows
    them all.
    """

    apart: Callable[..., Any]
    fn: Callable[..., Any]
    ops: tuple[str, ...]


@dataclass(frozen=True)
class Jvp:
    """``fn(node, tangents)`` gives the output's tangent; ``tangents[i]`` is ``None`` where input i has none."""

    fn: Callable[..., Any]
    limit: Limit | None = None


@dataclass(frozen=True)
class NoDerivative:
    """``why`` completes the sentence "<op> has no derivative: ..."."""

    why: str
    zero: bool = False


@dataclass(frozen=True)
class CustomCall:
    """``node.attrs[0]`` is a rule (ops/custom.py) that maps the cotangents of all the call's results at once."""


@dataclass(frozen=True)
class CustomResult:
    """The derivative is that of result ``node.attrs[0]`` of the call, the second operand."""


Derivative = Partials | Linear | Jvp | NoDerivative | CustomCall | CustomResult


@dataclass(frozen=True, eq=False)
class Op:
    """One operation.

    infer: ``(inputs, *attrs) -> (shape, dtype)``; raises ShapeError or DTypeError.
    reference: ``(node, *arrays) -> array`` in NumPy, of the node's shape and dtype.
    batch: ``(node, inputs, batched, size) -> Node``; where ``batched[i]``, input i has an extra leading axis of
        ``size``; the result has the extra leading axis.
    cost: floating-point operations for one output element (for a reduction or contraction: for one input element).
    lower: for an elementwise op the scalar instruction of the kernel IR; for a reduction the combining instruction; for
        other kinds the name of the lowering strategy.
    into: for a host op, ``(node, out, *arrays)``: as ``reference``, with the result written to ``out``.
    """

    name: str
    kind: Kind
    infer: Callable[..., tuple[tuple[int, ...], Any]]
    reference: Callable[..., Any]
    derivative: Derivative
    batch: Callable[..., Any]
    lower: str
    cost: float = 1.0
    attr_names: tuple[str, ...] = ()
    doc: str = ""
    into: Callable[..., None] | None = None

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        from .registry import by_name

        return (by_name, (self.name,))
