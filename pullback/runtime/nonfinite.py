"""Finding the op that first produced a NaN or an infinity: what ``pb.debug_nans`` turns on.

Only values that were asked for are looked at. Where one is not finite, its graph is computed again node by node through
the ops' references, and followed from the bad elements back to the earliest op that made such a value from operands
without one. Infinities and NaN that do not arrive in what was asked for (behind a mask, a ``where``, a strong zero) are
nobody's fault, and neither are infinities that came in as data or constants (a mask of -inf).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from ..errors import NonFiniteError
from ..graph.node import Node, topological_order
from ..graph.state import describe_derivative, describe_site
from .reference import argument_value

Array = np.ndarray[Any, Any]
Kinds = Literal["nan", "nonfinite"]  # what is looked for
Bad = Callable[[Array], Array]


def _not_finite(array: Array) -> Array:
    return ~np.isfinite(array)


_BAD: dict[Kinds, Bad] = {"nan": np.isnan, "nonfinite": _not_finite}


def look_at(nodes: Sequence[Node], kinds: Kinds) -> None:
    """Raise NonFiniteError if an evaluated node among ``nodes`` holds what ``kinds`` says and an op is at fault."""
    suspects = [
        node for node in nodes
        if node.dtype.kind == "f" and node.buffer is not None and _BAD[kinds](_value(node)).any()
    ]
    if suspects:
        _Finder({}, {}).report([(node, _value(node)) for node in suspects], kinds)


def _value(node: Node) -> Array:
    if node.buffer is None:
        raise ValueError(f"{node!r} has no value")
    return node.buffer.numpy(node.shape, node.dtype.numpy)


class CheckedProgram:
    """A program whose outputs are looked at after each call. It keeps the graph."""

    def __init__(
        self, program: Any, inputs: Sequence[Node], outputs: Sequence[Node], names: Sequence[str], kinds: Kinds
    ) -> None:
        """names: what a message calls the inputs."""
        self._program = program
        self._inputs = tuple(inputs)
        self._outputs = tuple(outputs)
        self._names = {id(node): name for node, name in zip(inputs, names)}
        self._kinds = kinds

    def __call__(self, values: Sequence[Any]) -> list[Any]:
        buffers: list[Any] = self._program(values)
        suspects = []
        for node, buffer in zip(self._outputs, buffers):
            if node.dtype.kind == "f":
                value = buffer.numpy(node.shape, node.dtype.numpy)
                if _BAD[self._kinds](value).any():
                    suspects.append((node, value))
        if suspects:
            arguments = {id(node): argument_value(node, value) for node, value in zip(self._inputs, values)}
            _Finder(arguments, self._names).report(suspects, self._kinds)
        return buffers


class _Finder:
    """One search through a graph."""

    def __init__(self, given: Mapping[int, Array], names: Mapping[int, str]) -> None:
        """given: values of some nodes by id.   names: what those are called."""
        self._given = given
        self._names = names
        self._values: dict[int, Array] = {}

    def report(self, suspects: Sequence[tuple[Node, Array]], kinds: Kinds) -> None:
        """Raise NonFiniteError for the op at fault for bad elements of ``suspects``, if there is one."""
        outputs = [node for node, _ in suspects]
        order = topological_order(outputs)
        self._compute(order)
        culprits, sources = self._walk(order, outputs, _BAD[kinds])
        if not culprits and kinds == "nonfinite":
            # Infinities that were given are as they should be; a NaN made of them is not.
            culprits, sources = self._walk(order, outputs, np.isnan)
        if culprits:
            raise NonFiniteError(self._describe(*culprits[0]))
        nans = [(node, mask) for node, mask in sources if node.op.name != "constant"]
        nans = [(node, mask & np.isnan(self._values[id(node)])) for node, mask in nans]
        nans = [(node, mask) for node, mask in nans if mask.any()]
        if nans:
            raise NonFiniteError(self._describe_source(*nans[0]))
        for node, value in suspects:
            again = self._values[id(node)]
            mask = _BAD[kinds](value)
            if not _BAD[kinds](again)[mask].any():
                raise NonFiniteError(
                    f"debug_nans: the value of {_what(node)} is {_first(value, mask)} compiled, and finite as the "
                    f"reference computes it (pb.set_backend('reference')); {_origin(node)}"
                )

    def _compute(self, order: Sequence[Node]) -> None:
        """The value of every node."""
        known = self._values
        for node in order:
            if id(node) in self._given:
                known[id(node)] = self._given[id(node)]
            elif node.buffer is not None:
                known[id(node)] = _value(node)
            else:
                known[id(node)] = self._apply(node, [known[id(x)] for x in node.inputs])

    @staticmethod
    def _apply(node: Node, operands: Sequence[Array]) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(node.op.reference(node, *operands))

    def _walk(
        self, order: Sequence[Node], outputs: Sequence[Node], bad: Bad
    ) -> tuple[list[tuple[Node, Array]], list[tuple[Node, Array]]]:
        """The nodes that made bad elements which arrive in the outputs, and the leaves that had some, each with the
        mask of these elements; inputs before users."""
        interest = {id(node): bad(self._values[id(node)]) for node in outputs}
        culprits, sources = [], []
        for node in reversed(order):
            mask = interest.get(id(node))
            if mask is None or not mask.any():
                continue
            if not node.inputs or id(node) in self._given:
                sources.append((node, mask))
                continue
            own, passed = self._blame(node, mask, bad)
            if own.any():
                culprits.append((node, own))
            for operand, elements in passed:
                before = interest.get(id(operand))
                interest[id(operand)] = elements if before is None else before | elements
        return culprits[::-1], sources[::-1]

    def _blame(self, node: Node, mask: Array, bad: Bad) -> tuple[Array, list[tuple[Node, Array]]]:
        """Which elements of ``mask`` the node made itself, and which bad elements of its operands made the others.

        An operand is to blame if its bad elements alone make the result bad, the others' replaced by a finite number:
        so the branch that a ``where`` does not take, what a gather does not read, and what a zero masks are not.
        """
        operands = [self._values[id(x)] for x in node.inputs]
        faults = [
            bad(value) if x.dtype.kind == "f" else np.zeros(value.shape, bool)
            for x, value in zip(node.inputs, operands)
        ]
        if node.op.kind == "elementwise":
            faults = [fault & _shrink(mask, fault.shape) for fault in faults]
        guilty = [i for i, fault in enumerate(faults) if fault.any()]
        if not guilty:
            return mask, []
        mended = [np.where(fault, np.ones((), x.dtype), x) if i in guilty else x
                  for i, (x, fault) in enumerate(zip(operands, faults))]
        try:
            own = mask & bad(self._apply(node, mended))
            rest = mask & ~own
            if not rest.any():
                return own, []
            if len(guilty) > 1:
                alone = []
                for i in guilty:
                    result = self._apply(node, [operands[k] if k == i else mended[k] for k in range(len(operands))])
                    if (rest & bad(result)).any():
                        alone.append(i)
                guilty = alone or guilty
        except (ValueError, ArithmeticError):  # a decomposition that does not exist for the mended values
            own = np.zeros_like(mask)
        return own, [(node.inputs[i], faults[i]) for i in guilty]

    # -- messages ----------------------------------------------------------------------------------------------------

    def _describe(self, node: Node, mask: Array) -> str:
        value = self._values[id(node)]
        text = f"debug_nans: {node.op.name} produced {_first(value, mask)} in {_what(node)}"
        if node.op.kind == "elementwise":
            index = tuple(np.argwhere(mask)[0])
            numbers = [
                np.broadcast_to(self._values[id(x)], value.shape)[index].item() for x in node.inputs
            ]
            text += f", from {' and '.join(map(str, numbers))}"
        elif node.inputs:
            text += f", from {' and '.join([_what(x) for x in node.inputs[:4]])}"
        return f"{text}; {_origin(node)}"

    def _describe_source(self, node: Node, mask: Array) -> str:
        found = f"{_first(self._values[id(node)], mask)} in {_what(node)}"
        name = self._names.get(id(node))
        if name is not None:
            return f"debug_nans: {found} was given: it is {name}"
        how = "computed before by a function or step that was not looked at" if node.rg or node.op.name != "data" else (
            "given as data, or computed before"
        )
        return f"debug_nans: {found} was {how}; {_origin(node)}"


def _shrink(mask: Array, shape: tuple[int, ...]) -> Array:
    """``mask`` over the result of an elementwise op, as one over an operand of ``shape`` that was broadcast to it."""
    mask = np.asarray(mask.any(axis=tuple(range(mask.ndim - len(shape)))))
    axes = tuple([axis for axis, extent in enumerate(shape) if extent == 1 and mask.shape[axis] != 1])
    return np.asarray(mask.any(axis=axes, keepdims=True))


def _what(node: Node) -> str:
    return f"{node.dtype.name}[{','.join(map(str, node.shape))}]"


def _first(value: Array, mask: Array) -> str:
    """``nan at [1, 0] (2 of 6 elements)``."""
    positions = np.argwhere(mask)
    index = tuple(positions[0])
    where = f" at [{', '.join(map(str, map(int, index)))}] ({len(positions)} of {value.size} elements)" if index else ""
    return f"{value[index].item()}{where}"


def _origin(node: Node) -> str:
    derivative = describe_derivative(node.site)
    place = describe_site(node.site)
    return f"{derivative} made at {place}" if derivative else f"made at {place}"
