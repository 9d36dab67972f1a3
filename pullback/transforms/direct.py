"""The shortest way of a jitted call: Python written for the number of arguments and results.

For a few tensors in and out, of a function that reads and rebinds nothing else, what is done at each call is so little
that loops, lists and calls between functions cost more than the work. So it is written out, as ``dataclasses`` does
with constructors: the checks of ``Shortcut.call``, the steps of ``Program.__call__``, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from .. import dtypes
from ..graph.state import PACKAGE_DIRECTORY
from ..runtime import evaluate
from ..runtime.buffers import allocate, recycled
from ..tensor import Tensor
from .variant import MISS, Variant, new_result

MAX_ARGUMENTS = 8
MAX_RESULTS = 4

_SOURCE = """
def make(kinds, specs, rings, sizes, call, record, answer, take_arena, arenas, hold, modes):
    {kinds} = kinds
    {specs} = specs
    {rings} = rings
    {sizes} = sizes
    grad_enabled, default_float, mode = modes

    def direct(args, grad):
        if (
            len(args) != {count}
            or grad is not grad_enabled
            or dtypes._default_float is not default_float
            or evaluate._mode is not mode
            or program._observer is not None
        ):
            return MISS
        {arguments} = args
        if {no_tensors} or {aliases}:
            return MISS
        {nodes}
        if {wrong_types}:
            return MISS
        {buffers}
        if {pending}{changed}:
            return MISS
        {outputs}
        {take_arena}
        status = call({addresses})
        {give_arena}
        if status:
            answer(status)
        return {result}

    return direct
"""


def direct_call(variant: Variant, kinds: Sequence[Any], modes: Sequence[Any]) -> Callable[..., Any] | None:
    """A function of the arguments and whether gradients are recorded, which gives the result or MISS.

    kinds: class, shape, dtype, weak type and ``rg`` of the arguments, which are tensors. None if the call is not so
    simple.
    """
    parts = variant.direct_parts()
    if parts is None or not 1 <= len(kinds) <= MAX_ARGUMENTS or not 1 <= len(parts.specs) <= MAX_RESULTS:
        return None
    entry = parts.entry
    recycles = tuple([ring is not None for ring in entry.rings])
    arena = 0 if not entry.has_arena else 1 if entry.arenas is None else 2
    make = _maker(len(kinds), recycles, parts.is_single, arena, parts.hold is not None)
    made: Callable[..., Any] = make(
        kinds, parts.specs, entry.rings, entry.sizes, entry.call, entry.record, entry.answer, entry.take_arena,
        entry.arenas, parts.hold, modes,
    )  # fmt: skip
    return made


@lru_cache(128)
def _maker(count: int, recycles: tuple[bool, ...], is_single: bool, arena: int, watches: bool) -> Callable[..., Any]:
    """The function ``make`` of ``_SOURCE``.

    recycles: for each output, whether its buffer comes from a ring.   arena: 0 none, 1 an allocated one, 2 one that is
    kept.   watches: whether names outside are to be looked at.
    """
    inputs, outputs = range(count), range(len(recycles))

    def listed(template: str, numbers: range) -> str:
        return "".join([template.format(k) + ", " for k in numbers])

    def alternatives(template: str, numbers: range) -> str:
        return " or ".join([template.format(k) for k in numbers])

    def lines(template: str, numbers: range) -> str:
        return "\n        ".join([template.format(k) for k in numbers])

    if count <= 3:
        aliases = " or ".join([f"a{i} is a{k}" for k in inputs for i in range(k)]) or "False"
    else:
        aliases = f"len({{{listed('id(a{})', inputs)}}}) != {count}"
    arena_address = "arena.address, " if arena else ""
    results = listed("new_result(o{0}, p{0})", outputs)
    source = _SOURCE.format(
        count=count,
        kinds=listed("(_, s{0}, d{0}, w{0}, r{0})", inputs),
        specs=listed("p{}", outputs),
        rings=listed("g{}", outputs),
        sizes=listed("z{}", outputs),
        arguments=listed("a{}", inputs),
        no_tensors=alternatives("type(a{}) is not Tensor", inputs),
        aliases=aliases,
        nodes=lines("n{0} = a{0}._node", inputs),
        wrong_types=alternatives(
            "n{0}.dtype is not d{0} or n{0}.shape != s{0} or n{0}.rg is not r{0} or n{0}.weak is not w{0} "
            "or n{0}.scope is not None or n{0}.trace is not None",
            inputs,
        ),
        buffers=lines("b{0} = n{0}.buffer", inputs),
        pending=alternatives("b{} is None", inputs),
        changed=" or not hold()" if watches else "",
        outputs="\n        ".join([
            f"o{k} = recycled(g{k}, z{k})" if recycled_ else f"o{k} = allocate(z{k})"
            for k, recycled_ in enumerate(recycles)
        ]),
        take_arena="arena = take_arena()" if arena else "pass",
        addresses=f"record, {arena_address}{listed('b{}.address', inputs)}{listed('o{}.address', outputs)}",
        give_arena="arenas.append(arena)" if arena == 2 else "pass",
        result="new_result(o0, p0)" if is_single else f"({results})",
    )
    from ..compiler import program

    names: dict[str, Any] = {
        "MISS": MISS, "Tensor": Tensor, "allocate": allocate, "dtypes": dtypes, "evaluate": evaluate,
        "new_result": new_result, "program": program, "recycled": recycled,
    }  # fmt: skip
    exec(compile(source, f"{PACKAGE_DIRECTORY}<jitted call>", "exec"), names)
    made: Callable[..., Any] = names["make"]
    return made
