"""A derivative at a point, kept as a graph: what ``vjp`` and ``linearize`` return and Jacobians are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..dtypes import int64 as _COUNT
from ..graph.graph import remake
from ..graph.node import Node
from ..graph.state import state
from ..graph.tracking import Scope
from ..ops.elementwise import cast, equal
from ..ops.leaf import iota, parameter
from ..ops.movement import reshape
from ..shapes import Shape, size_of
from .batching import batch_nodes, dependents


class LinearMap:
    """A linear function of placeholders, built once and applied as often as wanted.

    Applying it makes only the nodes that depend on its arguments anew. What they share (the residuals of a forward
    pass) is held by the map, so it can be applied when the transform that made it is long over.
    """

    __slots__ = ("order", "outputs", "placeholders")

    def __init__(
        self,
        like: Sequence[Node],
        build: Callable[[list[Node]], Sequence[Node | None]],
        older: Sequence[Node],
    ) -> None:
        """``build`` makes the outputs from placeholders of the shapes and dtypes of ``like``.

        older: nodes of before, the point at which the derivative is taken; what they depend on is not looked at."""
        grad_enabled = state.grad_enabled
        with Scope() as scope:
            # A scope marks what depends on the placeholders, which it does not under no_grad; the nodes that are
            # made when the map is applied see the flag of that moment.
            state.grad_enabled = True
            try:
                self.placeholders = [parameter(i, node.shape, node.dtype) for i, node in enumerate(like)]
                for placeholder in self.placeholders:
                    placeholder.scope = scope
                self.outputs = list(build(self.placeholders))
            finally:
                state.grad_enabled = grad_enabled

            # Not by scope: what is computed again for a derivative may depend on them through constants.
            found = [node for node in self.outputs if node is not None]
            self.order, dependent = dependents(found, self.placeholders, older)
            # What does not depend on the arguments of a linear function is 0.
            self.outputs = [None if node is None or id(node) not in dependent else node for node in self.outputs]

    def __call__(self, values: Sequence[Node]) -> list[Node | None]:
        """The outputs for ``values``; None for an output that is 0 whatever they are."""
        new = {id(placeholder): value for placeholder, value in zip(self.placeholders, values)}
        for node in self.order:
            new[id(node)] = remake(node, tuple([new.get(id(operand), operand) for operand in node.inputs]))
        return [None if node is None else new.get(id(node), node) for node in self.outputs]

    def batched(self, values: Sequence[Node], size: int) -> list[Node | None]:
        """The outputs for ``size`` values at once, stacked along a leading axis in ``values`` and in the result."""
        found = [node for node in self.outputs if node is not None]
        results = iter(batch_nodes(self.order, dict(zip(self.placeholders, values)), found, size))
        return [None if node is None else next(results) for node in self.outputs]


def basis(node: Node) -> tuple[Node, int]:
    """The unit vectors of the space of ``node``, stacked along a leading axis, and their number."""
    size = size_of(node.shape)
    index = (size, size)
    ones = equal(iota(index, 0, _COUNT), iota(index, 1, _COUNT))
    shape: Shape = (size, *node.shape)
    return reshape(cast(ones, node.dtype), shape), size
