"""Lazy evaluation: from pending nodes to buffers.

The pending graph below the requested nodes is named by its structure; a structure seen before runs at once, another is
compiled first. An evaluation also keeps the value of every pending node that a live tensor names, and of every
contraction that a derivative may still need, so nothing is computed twice.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, ClassVar, Literal

from ..compiler import options
from ..errors import ArgumentError, NonFiniteError, TraceError
from ..graph.node import Node, topological_order
from ..graph.state import describe_site, open_after_fork, state
from ..graph.structure import Structure
from ..graph.tracking import is_tracked
from ..ops.contraction import Precision
from .programs import Programs

Backend = Literal["compiled", "reference"]

MAX_GRAPH = 1000  # nodes in one program; a longer pending graph is cut
_MAX_LASTING = 64  # settings, one after the other, that may be about to be entered: of as many threads
MAX_CACHED = 1 << 16  # nodes in the programs that are kept, in each of two generations: some 130 MB in all


@dataclass(frozen=True, eq=False)
class Mode:
    """How values are computed, by a compiler without which passes (see compiler/options.py), what is looked for in them
    (see runtime/nonfinite.py), and what products of float32 are made with.

    There is one object for each mode, compared by identity: it is part of the key of every jitted call.
    """

    backend: Backend
    looks_for: Kinds | None
    without: frozenset[str]
    matmul_precision: Precision


Kinds = Literal["nan", "nonfinite"]

_modes: dict[tuple[Any, ...], Mode] = {}

_mode: Mode
_mode_lock = open_after_fork(threading.Lock())


def _set(field: str, value: Any) -> None:
    """Change one field of the mode; its lock is held."""
    global _mode
    fields = {**vars(_mode), field: value}
    _mode = _modes.setdefault(tuple(fields.values()), Mode(**fields))


_mode = Mode("compiled", None, options.disabled(), "highest")
_modes[tuple(vars(_mode).values())] = _mode


def _set_passes() -> None:
    with _mode_lock:
        _set("without", options.disabled())


options.watch(_set_passes)


class Setting:
    """A field of the mode from here on, or as a context manager until the end of the context, in all threads.

    What counts is the latest that has not ended: contexts of several threads may overlap.
    """

    _field: ClassVar[str]
    _in_force: ClassVar[list[Setting]]  # the latest last

    def __init_subclass__(cls, field: str) -> None:
        cls._field = field
        cls._in_force = []

    def __init__(self, value: Any) -> None:
        self._value = value
        self._entered = 0  # how many contexts of it are open
        with _mode_lock:
            settings = self._in_force
            # One that lasts counts no more once another follows it; but that one may be about to be entered.
            if len(settings) > _MAX_LASTING and not any(setting._entered for setting in settings[-_MAX_LASTING:]):
                del settings[-_MAX_LASTING]
            if not settings:
                settings.append(self._default(getattr(_mode, self._field)))
            settings.append(self)
            _set(self._field, value)

    @classmethod
    def _default(cls, value: Any) -> Setting:
        setting = object.__new__(cls)
        setting._value, setting._entered = value, 0
        return setting

    def __enter__(self) -> None:
        with _mode_lock:
            if not self._entered and self in self._in_force:
                self._in_force.remove(self)
            self._in_force.append(self)
            self._entered += 1
            _set(self._field, self._value)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with _mode_lock:
            settings = self._in_force
            place = len(settings) - 1 - settings[::-1].index(self)
            del settings[place]
            while len(settings) > place and not settings[place]._entered:
                del settings[place]  # made inside the context
            self._entered -= 1
            _set(self._field, settings[-1]._value)


_lock = open_after_fork(threading.RLock())
_programs = Programs(MAX_CACHED)


def set_backend(name: Backend) -> None:
    """Choose what evaluates: "compiled" (the default), or "reference": NumPy, node by node, for debugging.

    Raises ArgumentError for another name.
    """
    if name not in ("compiled", "reference"):
        raise ArgumentError(f"set_backend: {name!r} is neither 'compiled' nor 'reference'")
    with _mode_lock:
        _set("backend", name)


def get_backend() -> Backend:
    """The backend that evaluates."""
    return _mode.backend


def looks_for() -> Kinds | None:
    """What ``debug_nans`` looks for at present."""
    return _mode.looks_for


class debug_nans(Setting, field="looks_for"):
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
        super().__init__(("nonfinite" if inf else "nan") if on else None)


class set_matmul_precision(Setting, field="matmul_precision"):
    """Choose what products of float32 are made with from here on, in all threads.

    "highest" (the default): float32 as it is. "bf16": the operands are rounded to bfloat16, which leaves 8 of 24 bits
    of them, and the products, which are then exact, summed in float32; so are the products in derivatives. That is a
    relative error of up to 2**-8 for each product, for operands of half the size in memory.

    It goes for ``matmul`` and ``@``, ``matvec``, ``vecmat``, ``linear``, ``bilinear``, ``dot``, ``inner``,
    ``tensordot``, ``einsum``, ``dot_general`` and what is made of these, for float32 operands only; not for linear
    algebra, convolutions and attention. What counts is the time of the call that makes the product: one that is lazy
    keeps its precision, and so do its derivatives. Jitted functions are recorded for each precision.

    As a context manager, ``with pb.set_matmul_precision("bf16"): ...``, what was before comes back at the end.
    Raises ArgumentError for another name.
    """

    def __init__(self, precision: Precision) -> None:
        if precision not in ("highest", "bf16"):
            raise ArgumentError(f"set_matmul_precision: {precision!r} is neither 'highest' nor 'bf16'")
        super().__init__(precision)


def get_matmul_precision() -> Precision:
    """What products of float32 are made with: "highest" or "bf16"; see :class:`set_matmul_precision`."""
    return _mode.matmul_precision


def evaluate(nodes: Sequence[Node]) -> None:
    """Give every one of ``nodes`` a buffer.

    Raises TraceError where one depends on a placeholder of a running transform, IndexError for an index out of range.
    """
    pending = [node for node in nodes if node.buffer is None]
    if not pending:
        return
    if state.changed and state.trace is None:
        changed = _take_changed()
        if changed:
            try:
                _evaluate([*pending, *changed])
                return
            except (IndexError, TraceError):
                pass  # if the fault is theirs, what was asked for can still be had
    _evaluate(pending)


def _take_changed() -> list[Node]:
    """The pending values that tensors of this thread were given since the last evaluation.

    They are the state of a loop (a parameter after its update, a gradient): evaluated now, in the same program, they
    cannot grow into a history that every later evaluation goes through again.
    """
    handles = [reference() for reference in state.changed.values()]
    state.changed.clear()
    return [handle._node for handle in handles if handle is not None and handle._node.buffer is None]


def _evaluate(nodes: list[Node]) -> None:
    """Give the pending ``nodes`` their buffers."""
    state.epoch += 1
    if _mode.looks_for is not None:
        _evaluate_and_look(nodes, _mode.looks_for)
        return
    with _lock:
        structure = Structure([node for node in nodes if node.buffer is None])
        if len(structure.nodes) > MAX_GRAPH:
            for kept in _pieces(structure):
                part = Structure(kept, keep=False)
                _finish(kept, _run(*_prepare(part)))
            return
        work = _prepare(structure)
    kept = structure.kept
    buffers = _run(*work)
    with _lock:
        _finish(kept, buffers)


def _evaluate_and_look(nodes: list[Node], kinds: Kinds) -> None:
    """As ``_evaluate``; NonFiniteError for a bad value leaves every node as it was."""
    from .nonfinite import look_at

    with _lock:
        pending = [node for node in nodes if node.buffer is None]
        done: list[Node] = []
        try:
            structure = Structure(pending)
            for kept in _pieces(structure):
                buffers = _run(*_prepare(Structure(kept, keep=False)))
                done += kept
                _hand_out(kept, buffers)
            look_at(pending, kinds)
        except NonFiniteError:
            for node in done:
                node.buffer = None
            raise
        _let_go(done)


def _pieces(structure: Structure) -> list[list[Node]]:
    """The graph in pieces of at most MAX_GRAPH nodes, inputs before users: for each, the nodes that must be kept."""
    order = topological_order(structure.kept, lambda node: node.buffer is not None)
    last_use: dict[Node, int] = {}
    for position, node in enumerate(order):
        if node.buffer is None:
            for operand in node.inputs:
                last_use[operand] = position
    wanted = set(structure.kept)
    pieces = []
    for start in range(0, len(order), MAX_GRAPH):
        stop = start + MAX_GRAPH
        piece = [
            node for node in order[start:stop]
            if node in wanted
            or (last_use.get(node, -1) >= stop and node.inputs and node.buffer is None)
        ]
        if piece:
            pieces.append(piece)
    return pieces


def _prepare(structure: Structure) -> tuple[Any, list[Any], list[Node]]:
    """The program of a graph, the values that it is given, and what it computes."""
    arguments, kept = structure.arguments, structure.kept
    values = []
    for node in arguments:
        buffer = node.buffer
        if buffer is not None:
            values.append(buffer)
        elif node.op.name == "constant":
            values.append(node.attrs[0])
        else:
            raise _placeholder_error(node, structure.nodes)
    mode = _mode
    if mode.backend == "reference":
        return None, [], kept
    key = (structure.key, mode.without) if mode.without else structure.key
    program = _programs.get(key)
    if program is None:
        from ..compiler.program import compile_program

        program = compile_program(arguments, kept, without=mode.without)
        _programs.add(key, program, len(structure.nodes))
    return program, values, kept


def _placeholder_error(placeholder: Node, nodes: list[Node]) -> TraceError:
    user = next((node for node in nodes if placeholder in node.inputs), placeholder)
    where = "jit" if state.trace is not None else "a transform (vmap, or a finished trace)"
    return TraceError(
        f"the value of a traced tensor is not known inside {where}; it comes from {describe_site(user.site)}. "
        "To choose by a value use pb.where(condition, x, y) or pb.cond(condition, true_function, false_function, ...); "
        "to look at values call the function without the transform"
    )


def _run(program: Any, values: list[Any], kept: list[Node]) -> list[Any]:
    if program is None:
        from .reference import evaluate_reference

        evaluate_reference(kept)
        return []
    buffers: list[Any] = program(values)
    return buffers


def _finish(kept: list[Node], buffers: list[Any]) -> None:
    """Hand out the buffers and let go of what is not needed any more."""
    _hand_out(kept, buffers)
    _let_go(kept)


def _hand_out(kept: list[Node], buffers: list[Any]) -> None:
    for node, buffer in zip(kept, buffers):
        if node.buffer is None:
            node.buffer = buffer


def _let_go(kept: list[Node]) -> None:
    """Values that no derivative can reach any more need no inputs."""
    for node in kept:
        # A derivative ends at a constant: one that requires a gradient is a leaf.
        if node.inputs and (node.constant or not is_tracked(node)):
            node.inputs = ()
