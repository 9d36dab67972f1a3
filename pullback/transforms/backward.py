"""``loss.backward()``: reverse mode in PyTorch's style, from a tensor to the leaves that asked for a gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from weakref import ref

from ..errors import GradientError
from ..graph.graph import lineage
from ..graph.node import Node, hooks_of
from ..graph.state import describe_site, state
from ..graph.tracking import no_grad
from ..ops.elementwise import add
from .derivative import Hook, gradients_of, ones_of

if TYPE_CHECKING:
    from ..tensor import Tensor


def backward(tensor: Tensor, gradient: Any = None, create_graph: bool = False) -> None:
    """Add the gradient of ``tensor`` to ``.grad`` of every leaf that it depends on.

    A leaf is a tensor on which ``requires_grad_()`` was called. Nothing is freed: calling this again adds again.

    Args:
        gradient: the cotangent, of the tensor's shape; may be left out where the tensor has one element.
        create_graph: the gradients can be differentiated themselves. Otherwise they are constants.

    Raises GradientError if the tensor does not depend on a leaf, is not floating, needs a cotangent, or if an op on the
    way has no derivative.
    """
    node = tensor.node
    if node.dtype.kind != "f":
        raise GradientError(
            f"backward: the tensor has dtype {node.dtype.name} and shape {node.shape}; only floating tensors have "
            "derivatives"
        )
    if not node.rg:
        raise GradientError(
            f"backward: the tensor (shape {node.shape}, made at {describe_site(node.site)}) does not depend on a "
            "tensor that requires a gradient; call x.requires_grad_() on the inputs before computing it, and not under "
            "pb.no_grad()"
        )
    if gradient is None:
        if node.size != 1:
            raise GradientError(
                f"backward: the tensor has shape {node.shape}; only a tensor of one element has a gradient without a "
                "cotangent. Reduce it with pb.sum or pb.mean, or pass gradient=, a tensor of its shape"
            )
        cotangent = ones_of(node)
    else:
        from . import pytree
        from .primals import matching

        (cotangent,) = matching("backward", "gradient", [node], pytree.structure(tensor), gradient)
    leaves, hooks = _leaves(node)
    if state.trace is not None:
        if not create_graph:
            state.trace.consume([node])
    elif node.buffer is None:
        # Who asks for the gradient mostly looks at the loss as well: computed together, they are one program.
        state.changed[id(tensor)] = ref(tensor)
    if create_graph:
        found = gradients_of([node], [cotangent], leaves, hooks=hooks)
        _collect(leaves, found)
        return
    with no_grad():
        found = gradients_of([node], [cotangent], leaves, hooks=hooks)
        _collect(leaves, found)


class RegisteredHook:
    """What ``register_hook`` returns."""

    __slots__ = ("_hook", "_hooks")

    def __init__(self, hooks: list[Any], hook: Callable[[Tensor], Any]) -> None:
        self._hooks = hooks
        self._hook = hook

    def remove(self) -> None:
        """Do not call the hook any more."""
        if self._hook in self._hooks:
            self._hooks.remove(self._hook)


def register_hook(tensor: Tensor, hook: Callable[[Tensor], Any]) -> RegisteredHook:
    """Call ``hook(gradient)`` in every ``backward`` that reaches the value that ``tensor`` now names.

    What the hook returns, if not None, replaces the gradient: a tensor of the same shape and dtype.
    Raises GradientError if the tensor does not require a gradient.
    """
    node = tensor.node
    if not node.rg:
        raise GradientError("register_hook: the tensor does not require a gradient; call x.requires_grad_() first")
    # A leaf's hooks are the tensor's, whatever value an optimizer gives it; others belong to the value.
    owner: Any = tensor if tensor._requires_grad else node
    name = "_hooks" if tensor._requires_grad else "hooks"
    hooks = getattr(owner, name, None)
    if hooks is None:
        hooks = []
        setattr(owner, name, hooks)
    hooks.append(hook)
    return RegisteredHook(hooks, hook)


def _owners(leaf: Node) -> list[Any]:
    """The live tensors that collect the gradient of ``leaf``: those that it was made for, whatever value they have by
    now (a loss may be older than the last step of the optimizer)."""
    handles = leaf.handles
    if handles is None:
        return []
    found = [reference() for reference in (handles if isinstance(handles, tuple) else (handles,))]
    return list({id(handle): handle for handle in found if handle is not None and handle._requires_grad}.values())


def _leaves(output: Node) -> tuple[list[Node], dict[int, Hook]]:
    """The nodes below ``output`` at which gradients are collected, and the hooks of the tensors on the way."""
    leaves: list[Node] = []
    hooked: list[tuple[Node, list[Any]]] = []
    seen = {output}
    stack = [output]
    while stack:
        node = stack.pop()
        is_leaf = True
        if not node.constant:
            for operand in lineage(node):
                if operand.rg:
                    is_leaf = False
                    if operand not in seen:
                        seen.add(operand)
                        stack.append(operand)
        if is_leaf:
            leaves.append(node)
            functions = [hook for handle in _owners(node) if handle._hooks for hook in handle._hooks]
            if functions:
                hooked.append((node, functions))
    # Now that the history of jitted calls, which hooks are part of, is there.
    hooks = {id(node): chained(own) for node in seen if (own := hooks_of(node))}
    for node, functions in hooked:
        hooks[id(node)] = chained([*hooks_of(node), *functions])
    return leaves, hooks


def chained(functions: Sequence[Callable[[Tensor], Any]]) -> Hook:
    """The hooks ``functions``, one after another, as a function of a node."""
    from ..tensor import Tensor

    def run(cotangent: Node) -> Node:
        for function in functions:
            result = function(Tensor(cotangent))
            if result is None:
                continue
            if not isinstance(result, Tensor) or result.shape != cotangent.shape or result.dtype is not cotangent.dtype:
                raise GradientError(
                    f"a gradient hook must return None or a tensor of shape {cotangent.shape} and dtype "
                    f"{cotangent.dtype.name}"
                )
            cotangent = result.node
        return cotangent

    return run


def _collect(leaves: list[Node], found: list[Node | None]) -> None:
    from ..tensor import Tensor

    for leaf, gradient in zip(leaves, found):
        if gradient is None:
            continue
        for handle in _owners(leaf):
            if handle.shape != leaf.shape or handle.dtype is not leaf.dtype:
                raise GradientError(
                    f"backward: a tensor of shape {leaf.shape} and dtype {leaf.dtype.name} is {handle.dtype.name}"
                    f"{list(handle.shape)} by now; compute the result again, or convert before computing it"
                )
            before = handle.grad
            handle.grad = Tensor(gradient if before is None else add(before.node, gradient))
