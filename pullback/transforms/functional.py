"""Derivatives of functions: grad, vjp, jvp, Jacobians, and gradients between tensors.

Arguments and results are pytrees of tensors; a derivative has the structure of what it is a derivative by. Transforms
nest in any order and to any depth. The function runs on lazy tensors that have values, so it may branch on them
(outside ``jit`` and ``vmap``).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from ..errors import GradientError
from ..graph.node import Node, topological_order
from ..graph.state import describe_site
from ..graph.tracking import Scope, is_tracked
from ..ops.custom import CUSTOM_CALL
from ..ops.elementwise import stop_gradient as stop_gradient_node
from ..ops.leaf import full
from ..ops.movement import permute, reshape
from ..tensor import Tensor
from . import pytree
from .derivative import followed, gradients_of, ones_of, tangents_of, zeros_of
from .linear_map import LinearMap, basis
from .primals import Function, Primals, Run, all_of, kind_of, matching, select, stand_in

# -- gradients ---------------------------------------------------------------------------------------------------------


def value_and_grad(function: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Function:
    """A function that returns ``(value, gradient)`` of a scalar ``function``.

    Args:
        argnums: which positional arguments to differentiate by; an int gives one gradient, a tuple gives a tuple.
            Each has the structure, shapes and dtypes of its argument.
        has_aux: the function returns ``(value, aux)``; the result is ``((value, aux), gradient)``.

    Raises GradientError for an argument that is not floating (naming it), a result that is no floating scalar, or an
    op on the way that has no derivative.
    """
    return _value_and_grad("value_and_grad", function, argnums, has_aux)


def _value_and_grad(name: str, function: Function, argnums: int | Sequence[int], has_aux: bool) -> Function:
    @functools.wraps(function, updated=())
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with Scope() as scope:
            primals, call = select(name, scope, argnums, args, kwargs)
            run = Run(name, function, has_aux)
            run(primals, call)
            output = run.scalar()
            gradient = primals.tree(gradients_of([output], [ones_of(output)], primals.nodes, scope))
            value = Tensor(output) if not isinstance(run.result, Tensor) else run.result
            return run.output((value, run.aux) if has_aux else value), gradient

    return wrapped


def grad(function: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Function:
    """The gradient of a scalar ``function``: :func:`value_and_grad` without the value (with ``has_aux``:
    ``(gradient, aux)``)."""
    both = _value_and_grad("grad", function, argnums, has_aux)

    @functools.wraps(function, updated=())
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        value, gradient = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return wrapped


def gradients(output: Any, inputs: Any, cotangent: Any = None) -> Any:
    """The gradient of ``output`` by ``inputs``, tensors on which it was computed, in the structure of ``inputs``.

    Args:
        output: a tensor or a pytree of tensors.
        inputs: a tensor or a pytree of tensors, each made with ``x.requires_grad_()`` or inside a running transform, or
            computed from such ones.
        cotangent: of the shape and dtype of ``output``; may be left out where that has one element.

    Nothing is accumulated, and the result can be differentiated again. An input on which ``output`` does not depend
    gets zeros. Raises GradientError if a tensor is not tracked, shapes do not fit, or an op has no derivative.
    """
    outputs, structure = pytree.flatten(output)
    leaves, inputs_structure = pytree.flatten(inputs)
    targets = []
    for index, leaf in enumerate(leaves):
        where = f"inputs{pytree.leaves_with_paths(inputs)[index][0]}"
        if not isinstance(leaf, Tensor):
            raise GradientError(f"gradients: {where} is {kind_of(leaf)}, not a tensor")
        node = leaf.node
        if node.dtype.kind != "f":
            raise GradientError(
                f"gradients: {where} has dtype {node.dtype.name} and shape {node.shape}; only floating tensors have "
                "derivatives"
            )
        if not is_tracked(node):
            raise GradientError(
                f"gradients: {where} (shape {node.shape}, made at {describe_site(node.site)}) is not tracked; call "
                "x.requires_grad_() on it before computing with it"
            )
        targets.append(node)
    nodes = []
    for leaf in outputs:
        if not isinstance(leaf, Tensor):
            raise GradientError(f"gradients: output is {kind_of(leaf)}, not a tensor")
        nodes.append(_differentiable(leaf.node, "gradients"))
    cotangents = _cotangents("gradients", nodes, structure, cotangent)
    found = gradients_of(nodes, cotangents, targets)
    _check_hidden(nodes, [target for target, node in zip(targets, found) if node is None])
    return pytree.unflatten(
        inputs_structure, [Tensor(zeros_of(own) if node is None else node) for node, own in zip(found, targets)]
    )


def _check_hidden(outputs: list[Node], targets: list[Node]) -> None:
    """A target may have no path to the outputs because a function with a rule of its own kept it to itself."""
    if not targets:
        return
    known = {id(node): node for node in targets}
    for node in topological_order(outputs, operands=lambda node: followed(node, None)):
        if node.op is not CUSTOM_CALL:
            continue
        for reference in node.attrs[0].hidden:
            inner = known.get(id(reference()))
            if inner is not None:
                raise GradientError(
                    f"gradients: an input (shape {inner.shape}, made at {describe_site(inner.site)}) was computed "
                    "inside a function called through checkpoint or with a rule of its own, and the derivative does "
                    "not go through it; return it from that function and use what the call returns"
                )


def _differentiable(node: Node, name: str) -> Node:
    if node.dtype.kind != "f":
        raise GradientError(f"{name}: output has dtype {node.dtype.name}; only floating tensors have derivatives")
    if not is_tracked(node):
        raise GradientError(
            f"{name}: output (shape {node.shape}, made at {describe_site(node.site)}) does not depend on a tracked "
            "tensor; call x.requires_grad_() on the inputs before computing it, and not under pb.no_grad()"
        )
    return node


def _cotangents(name: str, nodes: list[Node], structure: Any, cotangent: Any) -> list[Node]:
    if cotangent is None:
        for node in nodes:
            if node.size != 1:
                raise GradientError(
                    f"{name}: output has shape {node.shape} and needs a cotangent of that shape; only for a tensor of "
                    "one element is it 1"
                )
        return [ones_of(node) for node in nodes]
    return matching(name, "cotangent", nodes, structure, cotangent)


# -- vjp and jvp -------------------------------------------------------------------------------------------------------


def vjp(function: Function, *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """``(output, pullback)`` of ``function`` at ``primals``.

    ``pullback(cotangent)`` takes a cotangent of the structure of ``output`` and returns a tuple, the cotangent of each
    primal. It may be called many times and at any later time; the forward pass is not repeated.
    has_aux: the function returns ``(output, aux)``; the result is ``(output, pullback, aux)``.
    """
    with Scope() as scope:
        arguments, call = all_of("vjp", scope, primals)
        run = Run("vjp", function, has_aux)
        run(arguments, call)
        floats = [i for i, node in enumerate(run.nodes) if node.dtype.kind == "f"]
        outputs = [run.nodes[i] for i in floats]
        transpose = LinearMap(
            outputs, lambda cotangents: gradients_of(outputs, cotangents, arguments.nodes, scope), arguments.nodes
        )
        result, structure = run.output(_tensors(run)), run.structure
        aux = run.output(run.aux)
    like = [stand_in(node) for node in run.nodes]
    arguments.release()

    def pullback(cotangent: Any) -> tuple[Any, ...]:
        values = matching("vjp", "cotangent", like, structure, cotangent)
        return arguments.tree(transpose([values[i] for i in floats]))

    return (result, pullback, aux) if has_aux else (result, pullback)


def _tensors(run: Run) -> Any:
    return pytree.unflatten(
        run.structure, [x if isinstance(x, Tensor) else Tensor(node) for x, node in zip(run.leaves, run.nodes)]
    )


def jvp(function: Function, primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False) -> tuple[Any, ...]:
    """``(output, tangent)``: ``function`` at ``primals``, and its derivative there in the direction ``tangents``.

    primals, tangents: tuples, one entry for each argument; a tangent has its primal's structure, shapes and dtypes.
    has_aux: the function returns ``(output, aux)``; the result is ``(output, tangent, aux)``.
    """
    with Scope() as scope:
        arguments, call = all_of("jvp", scope, primals)
        given = _tangents("jvp", arguments, tangents)
        run = Run("jvp", function, has_aux)
        run(arguments, call)
        found = tangents_of(run.nodes, arguments.nodes, given, scope)
        tangent = _output_tree(run.nodes, run.structure, found)
        result = run.output(_tensors(run))
        return (result, tangent, run.output(run.aux)) if has_aux else (result, tangent)


def _tangents(name: str, arguments: Primals, tangents: Any) -> list[Node]:
    if not isinstance(tangents, (tuple, list)):
        raise GradientError(f"{name}: tangents must be a tuple, one entry for each primal, got {kind_of(tangents)}")
    return matching(name, "tangents", arguments.nodes, arguments.structure, tuple(tangents))


def _output_tree(outputs: Sequence[Node], structure: Any, found: Sequence[Node | None]) -> Any:
    return pytree.unflatten(
        structure, [Tensor(zeros_of(own) if node is None else node) for node, own in zip(found, outputs)]
    )


def linearize(function: Function, *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """``(output, pushforward)``: ``pushforward(*tangents)`` is the derivative of ``function`` at ``primals`` in the
    direction ``tangents``. It may be called many times; the forward pass is not repeated.

    has_aux: the function returns ``(output, aux)``; the result is ``(output, pushforward, aux)``.
    """
    with Scope() as scope:
        arguments, call = all_of("linearize", scope, primals)
        run = Run("linearize", function, has_aux)
        run(arguments, call)
        derivative = LinearMap(
            arguments.nodes, lambda tangents: tangents_of(run.nodes, arguments.nodes, tangents, scope), arguments.nodes
        )
        result, structure = run.output(_tensors(run)), run.structure
        aux = run.output(run.aux)
    like = [stand_in(node) for node in run.nodes]
    arguments.release()

    def pushforward(*tangents: Any) -> Any:
        return _output_tree(like, structure, derivative(_tangents("linearize", arguments, tangents)))

    return (result, pushforward, aux) if has_aux else (result, pushforward)


# -- Jacobians ---------------------------------------------------------------------------------------------------------


def jacrev(function: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Function:
    """The Jacobian of ``function`` by reverse mode, all rows at once: right where outputs are fewer than inputs.

    The result has the structure of the output, in each leaf of which is the structure of the argument (for a tuple of
    ``argnums``, a tuple of these). A leaf has the output's shape followed by the input's.
    has_aux: the function returns ``(output, aux)``; the result is ``(jacobian, aux)``.
    """

    @functools.wraps(function, updated=())
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with Scope() as scope:
            primals, call = select("jacrev", scope, argnums, args, kwargs)
            run = Run("jacrev", function, has_aux)
            run(primals, call)
            rows = [_rows(node, primals, scope) for node in _float_outputs(run)]
            jacobian = pytree.unflatten(run.structure, rows)
            return (jacobian, run.output(run.aux)) if has_aux else jacobian

    return wrapped


def _rows(output: Node, primals: Primals, scope: Scope) -> Any:
    if output.size == 1:
        found = gradients_of([output], [ones_of(output)], primals.nodes, scope)
    else:
        transpose = LinearMap(
            [output], lambda cotangents: gradients_of([output], cotangents, primals.nodes, scope), primals.nodes
        )
        vectors, size = basis(output)
        found = transpose.batched([vectors], size)
    return pytree.unflatten(
        primals.structure,
        [_jacobian_block(node, (*output.shape, *own.shape), own) for node, own in zip(found, primals.nodes)],
    )


def _jacobian_block(node: Node | None, shape: tuple[int, ...], like: Node) -> Tensor:
    if node is None:
        return Tensor(full(shape, 0, like.dtype))
    return Tensor(node if node.shape == shape else reshape(node, shape))


def jacfwd(function: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Function:
    """The Jacobian of ``function`` by forward mode, all columns at once: right where inputs are fewer than outputs.

    Results as of :func:`jacrev`.
    """

    @functools.wraps(function, updated=())
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with Scope() as scope:
            primals, call = select("jacfwd", scope, argnums, args, kwargs)
            run = Run("jacfwd", function, has_aux)
            run(primals, call)
            outputs = _float_outputs(run)
            columns = [_columns(outputs, own, primals, scope) for own in primals.nodes]
            jacobian = pytree.unflatten(
                run.structure,
                [pytree.unflatten(primals.structure, [column[i] for column in columns]) for i in range(len(outputs))],
            )
            return (jacobian, run.output(run.aux)) if has_aux else jacobian

    return wrapped


def _columns(outputs: list[Node], own: Node, primals: Primals, scope: Scope) -> list[Tensor]:
    """The derivative of every output by one input."""
    if own.size == 1:
        found = tangents_of(outputs, [own], [ones_of(own)], scope)
    else:
        derivative = LinearMap([own], lambda tangents: tangents_of(outputs, [own], tangents, scope), primals.nodes)
        vectors, size = basis(own)
        # The batch axis counts the input's elements, which come last in a Jacobian.
        found = [
            None if node is None else permute(node, (*range(1, node.ndim), 0))
            for node in derivative.batched([vectors], size)
        ]
    return [
        _jacobian_block(node, (*output.shape, *own.shape), output) for node, output in zip(found, outputs)
    ]


def _float_outputs(run: Run) -> list[Node]:
    for index, node in enumerate(run.nodes):
        if node.dtype.kind != "f":
            path = pytree.leaves_with_paths(run.result)[index][0]
            raise GradientError(f"{run.name}: result{path} has dtype {node.dtype.name}; only floating tensors have "
                                "derivatives (further results go through has_aux=True)")
    return run.nodes


def hessian(function: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Function:
    """The matrix of second derivatives of ``function``: forward mode over reverse mode, all columns at once.

    The structure is that of :func:`jacfwd` of :func:`jacrev`; for a scalar function of one array, its shape twice.
    """
    return jacfwd(jacrev(function, argnums, has_aux), argnums, has_aux)


def hvp(function: Function, primals: Any, tangents: Any) -> Any:
    """The Hessian of a scalar ``function`` at ``primals`` times ``tangents``, by forward over reverse mode.

    primals, tangents: tuples, one entry for each argument of the function; the result is the product's entry for the
    only argument, or a tuple of them. A single primal that is no tuple may be given as it is.
    """
    if not isinstance(primals, (tuple, list)):
        primals, tangents = (primals,), (tangents,)
    numbers = 0 if len(primals) == 1 else tuple(range(len(primals)))
    return jvp(_renamed("hvp", function, numbers), primals, tangents)[1]


def _renamed(name: str, function: Function, argnums: int | tuple[int, ...]) -> Function:
    both = _value_and_grad(name, function, argnums, False)
    return lambda *args: both(*args)[1]


# -- constants ---------------------------------------------------------------------------------------------------------


def stop_gradient(tree: Any) -> Any:
    """``tree`` with every tensor made a constant to derivatives, in value unchanged."""
    return pytree.map(lambda leaf: Tensor(stop_gradient_node(leaf.node)) if isinstance(leaf, Tensor) else leaf, tree)
