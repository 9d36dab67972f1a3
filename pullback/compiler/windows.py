"""Padding and concatenation read in place: what lies in an operand is loaded from there, behind a guard.

An element of ``pad(x)`` is one of ``x`` where its position, less the padding before it, is inside of ``x``, and else
the filler; one of ``concat([x, y])`` is one of ``x`` or one of ``y``. So a kernel that reads such a value need not wait
until it lies in memory. Its operands must, but for cheap elementwise values, which are computed behind the guard.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import CompileError
from .values import Value
from .views import Linear, NotAffineError, split

if TYPE_CHECKING:
    from .fuse import Fuser
    from .schedule import KernelBuilder

Guards = tuple[tuple[int, bool], ...]  # linear forms, by number, and whether each must be negative or must not

KINDS = ("pad", "concat")
MAX_OPERANDS = 4  # each is loaded (or skipped) at every element


def is_window(value: Value) -> bool:
    """Whether ``value`` can be read in place: a padding without gaps, or few operands one behind the other.

    A padding of another name is one that is to be stored, since many places of a kernel read it."""
    if value.kind == "pad":
        return value.name == "pad" and value.inputs[0].size > 0 and not any(value.attrs[2])
    return value.name == "concat" and len(value.inputs) <= MAX_OPERANDS


def _operands(value: Value) -> Sequence[Value]:
    return value.inputs[:1] if value.kind == "pad" else value.inputs


def _is_computed(value: Value) -> bool:
    """Whether ``value`` may be computed of anything: an index that nobody uses must not be found bad."""
    return value.kind == "elementwise" and value.name != "check_index"


def _literal(value: Value) -> Value | None:
    while value.kind == "view":
        value = value.inputs[0]
    return value if value.kind == "literal" else None


def tables(fuser: Fuser, window: Value, limit: float) -> list[Value]:
    """What must be in memory before ``window`` can be read in place; elementwise operands that cost no more than
    ``limit`` are computed again."""
    found = []
    stack = list(_operands(window))
    while stack:
        value = stack.pop()
        free = fuser.free.get(value.id)
        if _literal(value) is not None:
            continue
        if _is_computed(value) and free is not None and free.cost <= limit:
            stack += value.inputs
        else:
            found.append(fuser.strided(value)[0])
    return found


def read(b: KernelBuilder, window: Value, index: Linear) -> int:
    """The expression for the element of ``window`` at ``index``."""
    forms = split(index, window.shape, b.domain)
    if forms is None:
        raise NotAffineError(window)
    if window.kind == "pad":
        source, filler = window.inputs
        moved = []
        guards: Guards = ()
        for (start, steps), low, extent in zip(forms, window.attrs[0], source.shape, strict=True):
            moved.append((start - low, steps))
            guards += _bounds(b, moved[-1], extent)
        inside = guarded(b, source, moved, guards)
        if not guards:
            return inside
        outside = b.operand(window, window.shape, filler, index)
        return choose(b, guards, inside, outside, window)
    (axis,) = window.attrs
    start, steps = forms[axis]
    result = -1
    for source in window.inputs:
        if source.size == 0:
            continue
        here = (start, steps)
        inside = guarded(b, source, [*forms[:axis], here, *forms[axis + 1 :]], _bounds(b, here, source.shape[axis]))
        result = inside if result < 0 else choose(b, _bounds(b, here, None), inside, result, window)
        start -= source.shape[axis]
    return result


def _bounds(b: KernelBuilder, form: Linear, extent: int | None) -> Guards:
    """That ``form`` is at least 0, and below ``extent``; what always holds is left out."""
    start, steps = form
    reach = [step * (n - 1) for step, n in zip(steps, b.domain, strict=True)]
    guards = []
    if start + sum(min(0, far) for far in reach) < 0:
        guards.append((_iota(b, form), False))
    if extent is not None and start + sum(max(0, far) for far in reach) >= extent:
        guards.append((_iota(b, (start - extent, steps)), True))
    return tuple(guards)


def _iota(b: KernelBuilder, form: Linear) -> int:
    if form not in b.iotas:
        b.iotas.append(form)
    return b.iotas.index(form)


def choose(b: KernelBuilder, guards: Guards, inside: int, outside: int, window: Value) -> int:
    """``inside`` where all guards hold, else ``outside``."""
    if not guards:
        return inside
    dtype = window.dtype.name
    condition = b.intern(("inside", guards, "bool"), float(len(guards)))
    arguments = (condition, inside, outside)
    return b.intern(("op", "where", dtype, ("bool", dtype, dtype), arguments, ()), 1.0, arguments)


def guarded(b: KernelBuilder, value: Value, forms: Sequence[Linear], guards: Guards) -> int:
    """The element of ``value`` at ``forms``, a position for each axis; anything where a guard does not hold."""
    literal = _literal(value)
    if literal is not None:
        return b.expression(literal, (0, (0,) * len(b.domain)))
    owner = b.fuser.group_of.get(value.id)
    if _is_computed(value) and (owner is None or not b.fuser.precedes(value, b.group)):
        arguments = []
        for operand in value.inputs:
            lead = len(value.shape) - len(operand.shape)
            still = (0, (0,) * len(b.domain))
            here = [forms[lead + axis] if extent != 1 else still for axis, extent in enumerate(operand.shape)]
            arguments.append(guarded(b, operand, here, guards))
        if value.op is None:
            raise CompileError(f"{value} cannot be computed")
        return b.instruction(value, tuple(arguments))
    base, offset, strides = b.fuser.strided(value, b.group)
    total = [0] * len(b.domain)
    for (start, steps), stride in zip(forms, strides, strict=True):
        offset += start * stride
        for dim, step in enumerate(steps):
            total[dim] += step * stride
    if base.kind != "input":
        b.demanded[base.id] = base
    access = b.access(base, (offset, tuple(total)))
    if not guards:
        return b.intern(("load", access, value.dtype.name))
    return b.intern(("guarded", access, value.dtype.name, guards), 1.0)
