"""custom_vjp and custom_jvp: functions whose derivative the user gives.

The rule becomes a node of the graph (see ops/custom.py), so every transform meets it: it is called when a derivative is
taken, on the tensors of that moment, and what it computes can be differentiated again.
"""

from __future__ import annotations

import copyreg
import functools
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from ..errors import DTypeError, GradientError, ShapeError
from ..graph.handle import is_named
from ..graph.node import Node, topological_order
from ..graph.state import describe_site, state
from ..graph.tracking import is_tracked
from ..ops.custom import Rule, custom_call, custom_result
from ..ops.elementwise import alias, cast
from ..tensor import Tensor
from . import pytree
from .derivative import followed, transpose_linear, zeros_of
from .linearity import checked_transpose
from .primals import ARRAYS, Function, as_array_node, kind_of, stand_in
from .rules import BatchedRule, own_sites

# -- trees whose tensors are nodes of a call ---------------------------------------------------------------------------


class Packed(NamedTuple):
    """A pytree whose tensors are the nodes from ``start`` on, and whose other leaves are kept as they are."""

    structure: Any
    leaves: tuple[Any, ...]  # _NODE stands for a tensor
    start: int

    def tree(self, nodes: Sequence[Any]) -> Any:
        """The tree with ``nodes[start:]`` for its tensors."""
        following = iter(nodes[self.start :])
        return pytree.unflatten(self.structure, [next(following) if x is _NODE else x for x in self.leaves])

    def tangents(self, nodes: Sequence[Any]) -> Any:
        """The tree with ``nodes[start:]`` for its tensors, and the tangents of constants for its other leaves."""
        following = iter(nodes[self.start :])
        leaves = [next(following) if x is _NODE else _constant_tangent(x) for x in self.leaves]
        return pytree.unflatten(self.structure, leaves)

    @property
    def stop(self) -> int:
        return self.start + sum(leaf is _NODE for leaf in self.leaves)


_NODE = object()


def _constant_tangent(leaf: Any) -> Tensor | None:
    """0 for a floating number or array, None for what has no derivative."""
    if not isinstance(leaf, (float, np.ndarray, np.generic)):
        return None
    node = as_array_node(leaf)
    return Tensor(zeros_of(node)) if node.dtype.kind == "f" else None


def pack(tree: Any, nodes: list[Node]) -> Packed:
    """Append the tensors of ``tree`` to ``nodes``."""
    start = len(nodes)
    leaves, structure = pytree.flatten(tree)
    kept: list[Any] = []
    for leaf in leaves:
        if isinstance(leaf, Tensor):
            nodes.append(leaf.node)
            leaf = _NODE
        kept.append(leaf)
    return Packed(structure, tuple(kept), start)


class Outputs(NamedTuple):
    """What a call returned: its structure, and a stand-in for each leaf."""

    structure: Any
    like: tuple[Node, ...]

    def tree(self, nodes: Sequence[Node | None]) -> Any:
        """Tensors of ``nodes`` in the structure of the result, zeros for None."""
        return pytree.unflatten(
            self.structure, [Tensor(zeros_of(own) if node is None else node) for node, own in zip(nodes, self.like)]
        )


# -- rules -------------------------------------------------------------------------------------------------------------


class _UserRule(Rule):
    """What the rules of both transforms know of the call: its arguments and results."""

    def __init__(self, function: Any, arguments: Packed, static: dict[int, Any], outputs: Outputs) -> None:
        self.function = function
        self.arguments = arguments
        self.static = static
        self.outputs = outputs
        self.name = function.name

    def batched(self, batched: tuple[bool, ...], size: int, node: Node) -> Rule:
        return BatchedRule(self, node, batched, size)

    def given(self, node: Node) -> tuple[Any, ...]:
        """The arguments that may be differentiated by, as tensors."""
        return self.arguments.tree([Tensor(x) for x in node.inputs])

    def leading(self) -> list[Any]:
        return [self.static[position] for position in sorted(self.static)]


def _checked_part(what: str, kind: str, where: str, own: Node, part: Any) -> Node | None:
    """A cotangent or tangent that a user's function returned for ``own``; None for zeros."""
    if part is None or own.dtype.kind != "f":
        return None
    if not isinstance(part, ARRAYS):
        raise GradientError(f"{what} returned {kind_of(part)} as the {kind} of {where}, expected a tensor")
    node = as_array_node(part)
    if node.shape != own.shape:
        raise ShapeError(f"{what} returned a {kind} of shape {node.shape} for {where}, which has shape {own.shape}")
    if node.dtype is not own.dtype:
        if not node.weak:
            raise DTypeError(
                f"{what} returned a {kind} of dtype {node.dtype.name} for {where}, which has dtype {own.dtype.name}; "
                f"cast it with x.astype(pb.{own.dtype.name})"
            )
        node = cast(node, own.dtype)
    return node


class _VjpRule(_UserRule):
    def __init__(
        self, function: Any, arguments: Packed, static: dict[int, Any], outputs: Outputs, residuals: Packed
    ) -> None:
        super().__init__(function, arguments, static, outputs)
        self.residuals = residuals

    def cotangents(self, node: Node, cotangents: Mapping[int, Node], hooked: bool) -> Sequence[Node | None]:
        residuals = self.residuals.tree([Tensor(x) for x in node.inputs])
        results = [cotangents.get(index) for index in range(len(self.outputs.like))]
        with own_sites():
            returned = self.function.bwd(*self.leading(), residuals, self.outputs.tree(results))
        found = self._checked(returned, node)
        return [*found, *[None] * (len(node.inputs) - len(found))]

    def _checked(self, returned: Any, node: Node) -> list[Node | None]:
        """The cotangents of the argument tensors, in the order of the call's inputs."""
        what = f"custom_vjp: the backward function of {self.name} (called at {describe_site(node.site)})"
        trees = self.arguments.tree([(x,) for x in node.inputs[: self.arguments.stop]])
        count = len(trees)
        if not isinstance(returned, (tuple, list)):
            raise GradientError(
                f"{what} must return a tuple with one cotangent for each of its {count} arguments, got "
                f"{kind_of(returned)}"
            )
        if len(returned) != count:
            raise GradientError(f"{what} returned {len(returned)} cotangents for {count} arguments")
        found: list[Node | None] = []
        numbers = [n for n in range(count + len(self.static)) if n not in self.static]
        for number, value, argument in zip(numbers, returned, self.given(node)):
            leaves, structure = pytree.flatten(argument)
            if value is None:
                parts: list[Any] = [None] * len(leaves)
            else:
                try:
                    parts = structure.flatten_up_to(value)
                except ValueError as error:
                    raise GradientError(
                        f"{what} returned a cotangent of another structure for argument {number}: expected "
                        f"{pytree.describe(structure)}, got {pytree.describe(pytree.structure(value))}"
                    ) from error
            paths = [path for path, _ in pytree.leaves_with_paths(argument)]
            for path, leaf, part in zip(paths, leaves, parts):
                if isinstance(leaf, Tensor):
                    found.append(_checked_part(what, "cotangent", f"argument {number}{path}", leaf.node, part))
        return found

    def tangents(self, node: Node, tangents: Sequence[Node | None]) -> Sequence[Node | None]:
        """Forward mode: the transpose of the backward function, which must be linear in the cotangent."""
        floats = [i for i, own in enumerate(self.outputs.like) if own.dtype.kind == "f"]
        placeholders: list[Node] = []
        results: list[Node | None] = []

        def pull(cotangents: tuple[Node, ...]) -> Sequence[Node | None]:
            placeholders.extend(cotangents)
            results.extend(self.cotangents(node, dict(zip(floats, cotangents)), False))
            return results

        found = transpose_linear(pull, [self.outputs.like[i] for i in floats], tangents)
        checked = checked_transpose(results, found, placeholders, [*node.inputs, *tangents])
        if checked is None:
            raise GradientError(
                f"custom_vjp: {self.name} (called at {describe_site(node.site)}) cannot be differentiated in forward "
                "mode (jvp, jacfwd, hessian), because its backward function is not linear in the cotangent; use "
                "reverse mode only, or give the derivative with pb.custom_jvp"
            )
        by_output: list[Node | None] = [None] * len(self.outputs.like)
        for index, tangent in zip(floats, checked):
            by_output[index] = tangent
        return by_output


class _JvpRule(_UserRule):
    def tangents(self, node: Node, tangents: Sequence[Node | None]) -> Sequence[Node | None]:
        primals = self.given(node)
        filled = [
            None if own.dtype.kind != "f" else Tensor(zeros_of(own) if tangent is None else tangent)
            for own, tangent in zip(node.inputs, tangents)
        ]
        with own_sites():
            returned = self.function.rule(*self.leading(), primals, self.arguments.tangents(filled))
        what = f"custom_jvp: the rule of {self.name} (called at {describe_site(node.site)})"
        if not (isinstance(returned, (tuple, list)) and len(returned) == 2):
            raise GradientError(f"{what} must return (output, tangent of the output), got {kind_of(returned)}")
        self._check_output(what, returned[0])
        try:
            parts = self.outputs.structure.flatten_up_to(returned[1])
        except ValueError as error:
            raise GradientError(
                f"{what} returned a tangent of another structure than the output: expected "
                f"{pytree.describe(self.outputs.structure)}, got {pytree.describe(pytree.structure(returned[1]))}"
            ) from error
        single = len(parts) == 1
        return [
            _checked_part(what, "tangent", "the output" if single else f"output {index}", own, part)
            for index, (own, part) in enumerate(zip(self.outputs.like, parts))
        ]

    def _check_output(self, what: str, output: Any) -> None:
        """The value is the function's own; but an output of another form is a rule of another function."""
        leaves, structure = pytree.flatten(output)
        shapes = [getattr(leaf, "shape", ()) for leaf in leaves]
        own = [node.shape for node in self.outputs.like]
        if structure != self.outputs.structure or shapes != own:
            raise GradientError(
                f"{what} returned an output of structure {pytree.describe(structure)} and shapes {shapes}, the "
                f"function one of {pytree.describe(self.outputs.structure)} and {own}"
            )

    def cotangents(self, node: Node, cotangents: Mapping[int, Node], hooked: bool) -> Sequence[Node | None]:
        count = self.arguments.stop
        floats = [i for i in range(count) if node.inputs[i].dtype.kind == "f"]
        placeholders: list[Node] = []
        results: list[Node | None] = []

        def push(tangents: tuple[Node, ...]) -> Sequence[Node | None]:
            placeholders.extend(tangents)
            given: list[Node | None] = [None] * len(node.inputs)
            for index, tangent in zip(floats, tangents):
                given[index] = tangent
            results.extend(self.tangents(node, given))
            return results

        by_output = [cotangents.get(index) for index in range(len(self.outputs.like))]
        found = transpose_linear(push, [node.inputs[i] for i in floats], by_output)
        checked = checked_transpose(results, found, placeholders, [*node.inputs, *by_output])
        if checked is None:
            raise GradientError(
                f"custom_jvp: the tangent that the rule of {self.name} computes (called at "
                f"{describe_site(node.site)}) is not linear in the tangents of its arguments, so it has no reverse "
                "mode; a derivative is linear"
            )
        by_input: list[Node | None] = [None] * len(node.inputs)
        for index, cotangent in zip(floats, checked):
            by_input[index] = cotangent
        return by_input


# -- calls -------------------------------------------------------------------------------------------------------------


class _Custom:
    """A function with a derivative of its own."""

    kind = ""

    def __init__(self, function: Function, nondiff_argnums: int | Sequence[int] = ()) -> None:
        if not callable(function):
            raise GradientError(f"{self.kind}: expected a function, got {kind_of(function)}")
        for attribute in functools.WRAPPER_ASSIGNMENTS:
            if hasattr(function, attribute):
                setattr(self, attribute, getattr(function, attribute))
        self.__wrapped__ = function
        self.function = function
        self.name = getattr(function, "__name__", repr(function))
        numbers = (nondiff_argnums,) if isinstance(nondiff_argnums, int) else tuple(nondiff_argnums)
        self.nondiff_argnums = numbers

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise GradientError(f"{self.kind}: {self.name} has no derivative yet")

    def __get__(self, instance: Any, owner: type) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __reduce__(self) -> Any:
        # A function of a module is pickled by name, as without a rule; any other with its rule.
        name = getattr(self, "__qualname__", "")
        found: Any = sys.modules.get(getattr(self, "__module__", ""))
        for part in name.split("."):
            found = getattr(found, part, None)
        return name if found is self else (copyreg.__newobj__, (type(self),), self.__dict__)  # type: ignore[attr-defined]

    def _check_rules(self, *functions: Any) -> None:
        for function in functions:
            if not callable(function):
                raise GradientError(f"{self.kind}: the rule of {self.name} must be a function, got {function!r}")

    def _positional(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        if not kwargs:
            return args
        bound = inspect.signature(self.function).bind(*args, **kwargs)
        bound.apply_defaults()
        if bound.kwargs:
            raise GradientError(
                f"{self.kind}: {self.name} has keyword-only arguments {sorted(bound.kwargs)}; make them positional, "
                "so that the rule has a place for them"
            )
        return bound.args

    def _split(self, args: tuple[Any, ...]) -> tuple[dict[int, Any], list[Any]]:
        """Arguments named in ``nondiff_argnums``, by position, and the others."""
        static = {}
        for number in self.nondiff_argnums:
            if not -len(args) <= number < len(args):
                raise GradientError(
                    f"{self.kind}: nondiff_argnums={self.nondiff_argnums} names argument {number}; {self.name} was "
                    f"called with {len(args)}"
                )
            static[number % len(args)] = args[number % len(args)]
        return static, [arg for position, arg in enumerate(args) if position not in static]

    def _call(self, function: Function, args: tuple[Any, ...]) -> tuple[Any, dict[int, Any], Packed, list[Node]] | None:
        """Call ``function`` with aliases for tensors: its result, the static arguments, the others and their nodes.
        None if no derivative can be asked of the result."""
        static, rest = self._split(args)
        nodes: list[Node] = []
        arguments = pack(tuple(rest), nodes)
        if state.trace is None and not any(node.dtype.kind == "f" and is_tracked(node) for node in nodes):
            return None
        names = [alias(node) for node in nodes]
        tensors = [Tensor(node) for node in names]
        others = iter(arguments.tree(tensors))
        full = [static[position] if position in static else next(others) for position in range(len(args))]
        result = function(*full)
        handles = [leaf for leaf in pytree.leaves(tuple(rest)) if isinstance(leaf, Tensor)]
        for tensor, handle, name in zip(tensors, handles, names):
            if tensor.node is not name:  # the function rebound its argument: a running mean
                handle.rebind(tensor.node)
        return result, static, arguments, [*nodes, *names]

    def _results(self, result: Any, given: list[Node], make_rule: Callable[[Outputs], Rule], inputs: list[Node]) -> Any:
        """``result`` with the derivative of the rule."""
        leaves, structure = pytree.flatten(result)
        nodes = []
        for index, leaf in enumerate(leaves):
            if not isinstance(leaf, ARRAYS):
                path = pytree.leaves_with_paths(result)[index][0]
                raise GradientError(f"{self.kind}: {self.name} returned {kind_of(leaf)} at result{path}; expected "
                                    "tensors")
            nodes.append(as_array_node(leaf))
        inside = self._check_closure(nodes, given)
        rule = make_rule(Outputs(structure, tuple([stand_in(node) for node in nodes])))
        rule.hidden = [ref(node) for node in inside if is_named(node)]
        call = custom_call(inputs, rule)
        return pytree.unflatten(structure, [
            Tensor(custom_result(node, call, index) if node.dtype.kind == "f" else node)
            for index, node in enumerate(nodes)
        ])

    def _check_closure(self, outputs: list[Node], given: list[Node]) -> list[Node]:
        """A tensor that the function reads besides its arguments would silently get no gradient. Returns what it
        computed."""
        known = {id(node) for node in given}

        def is_leaf(node: Node) -> bool:
            return node.constant or not any(is_tracked(operand) for operand in node.inputs)

        order = topological_order(outputs, lambda x: id(x) in known, lambda x: followed(x, None))
        for node in order:
            if id(node) not in known and node.dtype.kind == "f" and is_tracked(node) and is_leaf(node):
                raise GradientError(
                    f"{self.kind}: {self.name} reads a tensor of shape {node.shape} (made at "
                    f"{describe_site(node.site)}) that is not among its arguments and that a gradient is asked for; "
                    "pass it as an argument, or read pb.stop_gradient(x)"
                )
        return [node for node in order if id(node) not in known]


class custom_vjp(_Custom):
    """A function with a reverse-mode derivative of its own. Use as a decorator, then call ``f.defvjp(fwd, bwd)``.

    ``fwd(*args)`` returns ``(output, residuals)``; ``bwd(residuals, cotangent)`` gets the residuals, any pytree, and a
    cotangent of the structure of the output, and returns a tuple with a cotangent for each argument, of its structure,
    shapes and dtypes; None stands for zeros. nondiff_argnums: positions of arguments that are passed as they are, to
    ``bwd`` before the residuals.

    The result can be differentiated again, through what ``fwd`` and ``bwd`` compute. Forward mode transposes ``bwd``,
    which must then be linear in the cotangent. Raises GradientError, ShapeError or DTypeError, naming the argument,
    for a wrong number, structure, shape or dtype of cotangents, and GradientError for a tensor in the function's
    closure that a gradient is asked for.

    A straight-through estimator::

        @pb.custom_vjp
        def round_through(x):
            return pb.round(x)

        round_through.defvjp(lambda x: (pb.round(x), None), lambda _, cotangent: (cotangent,))
    """

    kind = "custom_vjp"

    def __init__(self, function: Function, nondiff_argnums: int | Sequence[int] = ()) -> None:
        super().__init__(function, nondiff_argnums)
        self.fwd: Function | None = None
        self.bwd: Function | None = None

    def defvjp(self, fwd: Function, bwd: Function) -> None:
        """Set the two functions of the derivative."""
        self._check_rules(fwd, bwd)
        self.fwd = fwd
        self.bwd = bwd

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        args = self._positional(args, kwargs)
        if self.fwd is None or self.bwd is None:
            raise GradientError(f"custom_vjp: {self.name} has no derivative yet; call {self.name}.defvjp(fwd, bwd)")
        called = self._call(self.fwd, args)
        if called is None:
            return self.function(*args)
        result, static, arguments, given = called
        if not (isinstance(result, tuple) and len(result) == 2):
            raise GradientError(
                f"custom_vjp: the forward function of {self.name} must return (output, residuals), got "
                f"{kind_of(result)}"
            )
        output, kept = result
        inputs = given[: arguments.stop]
        residuals = pack(kept, inputs)
        return self._results(
            output, given, lambda outputs: _VjpRule(self, arguments, static, outputs, residuals), inputs
        )


class custom_jvp(_Custom):
    """A function with a forward-mode derivative of its own, which reverse mode transposes. Use as a decorator, then
    ``f.defjvp(rule)``.

    ``rule(primals, tangents)`` gets two tuples, one entry for each argument, and returns ``(output, tangent)``. The
    tangent must be linear in ``tangents``; that of an integer argument is None. nondiff_argnums: positions of arguments
    that are passed as they are, to the rule before the primals. Errors as of :class:`custom_vjp`.
    """

    kind = "custom_jvp"

    def __init__(self, function: Function, nondiff_argnums: int | Sequence[int] = ()) -> None:
        super().__init__(function, nondiff_argnums)
        self.rule: Function | None = None

    def defjvp(self, rule: Function) -> Function:
        """Set the rule; returns it, so that this can be a decorator."""
        self._check_rules(rule)
        self.rule = rule
        return rule

    def defjvps(self, *rules: Function | None) -> None:
        """Set a rule for each argument: ``rule(tangent, output, *primals)`` gives what that argument's tangent adds to
        the output's tangent; None where it adds nothing. For functions with one output."""

        def rule(*given: Any) -> Any:
            *leading, primals, tangents = given
            if len(primals) != len(rules):
                raise GradientError(f"custom_jvp: {self.name} has {len(primals)} arguments and {len(rules)} rules")
            output = self(*self._together(leading, primals))
            total = None
            for one, tangent in zip(rules, tangents):
                if one is not None and tangent is not None:
                    part = one(tangent, output, *leading, *primals)
                    total = part if total is None else total + part
            return output, total

        self.rule = rule

    def _together(self, leading: Sequence[Any], primals: Sequence[Any]) -> list[Any]:
        count = len(leading) + len(primals)
        positions = sorted(number % count for number in self.nondiff_argnums)
        rest, fixed = iter(primals), iter(leading)
        return [next(fixed) if position in positions else next(rest) for position in range(count)]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        args = self._positional(args, kwargs)
        if self.rule is None:
            raise GradientError(f"custom_jvp: {self.name} has no derivative yet; call {self.name}.defjvp(rule)")
        called = self._call(self.function, args)
        if called is None:
            return self.function(*args)
        result, static, arguments, given = called
        inputs = given[: arguments.stop]
        return self._results(result, given, lambda outputs: _JvpRule(self, arguments, static, outputs), inputs)
