"""Lazy evaluation: from pending nodes to buffers.

The pending graph below the requested nodes is named by its structure; a structure seen before runs at once, another is
compiled first. An evaluation also keeps the value of every pending node that a live tensor names, and of every
contraction that a derivative may still need, so nothing is computed twice.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal

from ..compiler import options
from ..errors import ArgumentError, NonFiniteError, TraceError
from ..graph.graph import structural_key
from ..graph.handle import is_named
from ..graph.node import Node, topological_order
from ..graph.state import describe_site, open_after_fork, state
from ..graph.tracking import is_tracked

Backend = Literal["compiled", "reference"]

MAX_GRAPH = 1000  # nodes in one program; a longer pending graph is cut
MAX_PROGRAMS = 4096


@dataclass(frozen=True, eq=False)
class Mode:
    """How values are computed, by a compiler without which passes (see compiler/options.py), and what is looked for in
    them (see runtime/nonfinite.py).

    There is one object for each mode, compared by identity: it is part of the key of every jitted call.
    """

    backend: Backend
    looks_for: Kinds | None
    without: frozenset[str]


Kinds = Literal["nan", "nonfinite"]

_modes: dict[tuple[Backend, Kinds | None, frozenset[str]], Mode] = {}


def _set(backend: Backend, looks_for: Kinds | None) -> None:
    global _mode
    key = backend, looks_for, options.disabled()
    _mode = _modes.setdefault(key, Mode(*key))


_mode: Mode
_set("compiled", None)
options.watch(lambda: _set(_mode.backend, _mode.looks_for))
_lock = open_after_fork(threading.RLock())
_programs: OrderedDict[Any, Any] = OrderedDict()


def set_backend(name: Backend) -> None:
    """Choose what evaluates: "compiled" (the default), or "reference": NumPy, node by node, for debugging.

    Raises ArgumentError for another name.
    """
    if name not in ("compiled", "reference"):
        raise ArgumentError(f"set_backend: {name!r} is neither 'compiled' nor 'reference'")
    _set(name, _mode.looks_for)


def get_backend() -> Backend:
    """The backend that evaluates."""
    return _mode.backend


def looks_for() -> Kinds | None:
    """What ``debug_nans`` looks for at present."""
    return _mode.looks_for


class debug_nans:
    """Find the first op that produced a NaN or an infinity, and name the user's line.

    ``pb.debug_nans()`` or ``pb.debug_nans(True)`` turns it on from there on, ``pb.debug_nans(False)`` off; as a context
    manager, ``with pb.debug_nans(): ...``, what was before comes back at the end. It holds for all threads.

    While it is on, every value that is asked for (printed, converted, evaluated, returned by a jitted function, bound
    to a parameter by an optimizer's step) is looked at. If one is not finite, NonFiniteError names the first op whose
    own result was bad while its operands were not, the element, the operands, and the line that made it, also where it
    is the derivative of that line ("in the derivative of sqrt"). This goes for evaluation without ``jit``, for jitted
    functions (recorded anew while it is on; a failed call changes nothing), and for both backends.

    A bad value that does not arrive in what was asked for is no error: behind a mask, a branch of ``where`` not taken,
    under a strong zero. Neither is an infinity that was given (a mask of -inf); a NaN that was given is named as such.

    Args:
        on: whether to look.
        inf: look for infinities as well as for NaN.

    Looking costs a pass over each result; what was found is computed again, node by node, by the NumPy references.
    """

    def __init__(self, on: bool = True, inf: bool = True) -> None:
        if not isinstance(on, bool) or not isinstance(inf, bool):
            raise ArgumentError(f"debug_nans: on and inf are True or False, got {on!r} and {inf!r}")
        self._before = _mode.looks_for
        _set(_mode.backend, ("nonfinite" if inf else "nan") if on else None)

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _set(_mode.backend, self._before)


def _is_evaluated(node: Node) -> bool:
    return node.buffer is not None


def evaluate(nodes: Sequence[Node]) -> None:
    """Give every one of ``nodes`` a buffer.

    Raises TraceError where one depends on a placeholder of a running transform, IndexError for an index out of range.
    """
    if all(node.buffer is not None for node in nodes):
        return
    changed = _take_changed()
    if changed:
        try:
            _evaluate([*nodes, *changed])
            return
        except (IndexError, TraceError):
            pass  # if the fault is theirs, what was asked for can still be had
    _evaluate(nodes)


def _take_changed() -> list[Node]:
    """The pending values that tensors of this thread were given since the last evaluation.

    They are the state of a loop (a parameter after its update, a gradient): evaluated now, in the same program, they
    cannot grow into a history that every later evaluation goes through again.
    """
    if state.trace is not None or not state.changed:
        return []
    handles = [reference() for reference in state.changed.values()]
    state.changed.clear()
    return [handle._node for handle in handles if handle is not None and handle._node.buffer is None]


def _evaluate(nodes: Sequence[Node]) -> None:
    state.epoch += 1
    if _mode.looks_for is not None:
        _evaluate_and_look(nodes, _mode.looks_for)
        return
    with _lock:
        order = topological_order([node for node in nodes if node.buffer is None], _is_evaluated)
        pieces = _cut(order, nodes)
        if len(pieces) == 1:
            work = _capture(*pieces[0])
        else:
            for piece in pieces:
                _finish(*_run(_capture(*piece)))
            return
    done = _run(work)
    with _lock:
        _finish(*done)


def _evaluate_and_look(nodes: Sequence[Node], kinds: Kinds) -> None:
    """As ``_evaluate``; NonFiniteError for a bad value leaves every node as it was."""
    from .nonfinite import look_at

    with _lock:
        pending = [node for node in nodes if node.buffer is None]
        done: list[Node] = []
        try:
            for piece in _cut(topological_order(pending, _is_evaluated), nodes):
                kept, buffers = _run(_capture(*piece))
                done += kept
                _hand_out(kept, buffers)
            look_at(pending, kinds)
        except NonFiniteError:
            for node in done:
                node.buffer = None
            raise
        _let_go(done)


def _cut(order: list[Node], requested: Sequence[Node]) -> list[tuple[list[Node], list[Node]]]:
    """The graph in pieces of at most MAX_GRAPH nodes: for each its nodes, and those of them that must be kept."""
    wanted = {id(node) for node in requested}
    pieces = []
    if len(order) <= MAX_GRAPH:
        ranges = [(0, len(order))]
    else:
        ranges = [(start, min(start + MAX_GRAPH, len(order))) for start in range(0, len(order), MAX_GRAPH)]
    older = _used_across_evaluations(order)
    last_use: dict[int, int] = {}
    if len(ranges) > 1:
        for position, node in enumerate(order):
            for operand in node.inputs:
                last_use[id(operand)] = position
    for start, stop in ranges:
        part = order[start:stop]
        kept = []
        for node in part:
            if node.buffer is not None or (not node.inputs and node.op.name in ("constant", "parameter")):
                if id(node) not in wanted:
                    continue
            if (
                id(node) in wanted
                or last_use.get(id(node), -1) >= stop
                or id(node) in older
                or is_named(node)
                or (node.op.kind == "contraction" and is_tracked(node))
            ):
                kept.append(node)
        pieces.append((part, [node for node in kept if node.buffer is None]))
    return pieces


def _used_across_evaluations(order: list[Node]) -> set[int]:
    """Pending nodes that an earlier evaluation passed by and that a later node uses: values that live on.

    They are kept, so that a loop which only ever asks for something else does not compute them from the start again.
    """
    found: set[int] = set()
    for node in order:
        if node.buffer is None:
            for operand in node.inputs:
                if operand.epoch < node.epoch and operand.buffer is None:
                    while operand.op.kind == "view" and operand.buffer is None:
                        operand = operand.inputs[0]
                    if operand.buffer is None and operand.inputs:
                        found.add(id(operand))
    return found


Work = tuple[Any, list[Any], list[Node]]


def _capture(part: list[Node], kept: list[Node]) -> Work:
    """The program for ``kept``, its inputs' values, and ``kept``."""
    key, arguments = structural_key(kept)
    for node in arguments:
        if node.buffer is None and node.op.name == "parameter":
            raise _placeholder_error(node, part)
    mode = _mode
    if mode.backend == "reference":
        return None, [], kept
    if mode.without:
        key = key, mode.without
    program = _programs.get(key)
    if program is None:
        from ..compiler.program import compile_program

        program = compile_program(arguments, kept, without=mode.without)
        _programs[key] = program
        if len(_programs) > MAX_PROGRAMS:
            _programs.popitem(last=False)
    return program, [node.attrs[0] if node.buffer is None else node.buffer for node in arguments], kept


def _placeholder_error(placeholder: Node, part: list[Node]) -> TraceError:
    user = next((node for node in part if placeholder in node.inputs), placeholder)
    where = "jit" if state.trace is not None else "a transform (vmap, or a finished trace)"
    return TraceError(
        f"the value of a traced tensor is not known inside {where}; it comes from {describe_site(user.site)}. "
        "To choose by a value use pb.where(condition, x, y) or pb.cond(condition, true_function, false_function, ...); "
        "to look at values call the function without the transform"
    )


def _run(work: Work) -> tuple[list[Node], list[Any]]:
    program, values, kept = work
    if program is None:
        from .reference import evaluate_reference

        evaluate_reference(kept)
        return kept, []
    return kept, program(values)


def _finish(kept: list[Node], buffers: list[Any]) -> None:
    """Hand out the buffers and let go of what is not needed any more."""
    _hand_out(kept, buffers)
    _let_go(kept)


def _hand_out(kept: list[Node], buffers: list[Any]) -> None:
    for node, buffer in zip(kept, buffers, strict=False):
        if node.buffer is None:
            node.buffer = buffer


def _let_go(kept: list[Node]) -> None:
    """Values that no derivative can reach any more need no inputs."""
    for node in kept:
        # A derivative ends at a constant: one that requires a gradient is a leaf.
        if node.inputs and (node.constant or not is_tracked(node)):
            node.inputs = ()
