"""The shortest way of a jitted call: Python written for the number of arguments and results.

For a few tensors and numbers in and a few tensors out, of a function that reads and rebinds nothing else, what is done
at each call is so little that loops, lists and calls between functions cost more than the work. So it is written out,
as ``dataclasses`` does with constructors: the checks of ``Shortcut.call`` and the steps of ``Program.__call__``, one
after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

from .. import dtypes
from ..graph.state import PACKAGE_DIRECTORY
from ..runtime import evaluate
from ..runtime.buffers import allocate, recycled
from ..tensor import Tensor
from .variant import MISS, Variant, new_result

INT64 = range(-(1 << 63), 1 << 63)
MAX_ARGUMENTS = 8
MAX_RESULTS = 4

_SOURCE = """
def make(kinds, specs, rings, sizes, bits, call, record, answer, take_arena, arenas, hold, modes):
    {kinds} = kinds
    {specs} = specs
    {rings} = rings
    {sizes} = sizes
    {bits} = bits
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
        if {wrong_classes}:
            return MISS
        {nodes}
        if {wrong_types}:
            return MISS
        {outputs}
        {take_arena}
        status = call({given})
        {give_arena}
        if status:
            answer(status)
        return {result}

    return direct
"""


def direct_call(
    variant: Variant, kinds: Sequence[Any], firsts: Sequence[int], modes: Sequence[Any]
) -> Callable[..., Any] | None:
    """A function of the arguments and whether gradients are recorded, which gives the result or MISS.

    kinds: class, shape, dtype, weak type and ``rg`` of the arguments.   firsts: for each, the first that is the same
    tensor.   None if the call is not so simple.
    """
    parts = variant.direct_parts(len(kinds))
    if parts is None or not 1 <= len(kinds) <= MAX_ARGUMENTS or not 1 <= len(parts.specs) <= MAX_RESULTS:
        return None
    classes = tuple([kind[0] for kind in kinds])
    if not {Tensor, float, int}.issuperset(classes):
        return None
    entry = parts.entry
    recycles = tuple([ring is not None for ring in entry.rings])
    arena = 0 if not entry.has_arena else 1 if entry.arenas is None else 2
    make = _maker(
        classes, tuple(firsts), parts.positions, entry.slot, recycles, parts.is_single, arena, parts.hold is not None
    )
    made: Callable[..., Any] = make(
        kinds, parts.specs, entry.rings, entry.sizes, entry.bits, entry.call, entry.record, entry.answer,
        entry.take_arena, entry.arenas, parts.hold, modes,
    )  # fmt: skip
    return made


@lru_cache(128)
def _maker(
    classes: tuple[type, ...], firsts: tuple[int, ...], positions: tuple[int, ...], slot: int,
    recycles: tuple[bool, ...], is_single: bool, arena: int, watches: bool,
) -> Callable[..., Any]:
    """The function ``make`` of ``_SOURCE``.

    classes: of the arguments.   firsts: for each, the first that is the same tensor.   positions: for each input of the
    program, the argument.   slot: the first input's.   recycles: for each output, whether its buffer comes from a ring.
    arena: 0 none, 1 an allocated one, 2 one that is kept.   watches: whether names outside are to be looked at.
    """
    count, outputs = len(classes), range(len(recycles))
    tensors = [k for k in range(count) if classes[k] is Tensor]

    def listed(template: str, numbers: Iterable[int]) -> str:
        return "".join([template.format(k) + ", " for k in numbers])

    def lines(template: str, numbers: Iterable[int]) -> str:
        return "\n        ".join([template.format(k) for k in numbers]) or "pass"

    distinct = [k for k in tensors if firsts[k] == k]
    wrong_same = [f"a{k} is not a{firsts[k]}" for k in tensors if firsts[k] != k]
    if len(distinct) <= 3:
        wrong_same += [f"a{i} is a{k}" for k in distinct for i in distinct if i < k]
    else:
        wrong_same.append(f"len({{{listed('id(a{})', distinct)}}}) != {len(distinct)}")
    wrong_classes = [
        f"type(a{k}) is not {cls.__name__}" + (f" or a{k} not in INT64" if cls is int else "")
        for k, cls in enumerate(classes)
    ]
    wrong_types = [
        f"n{k}.dtype is not d{k} or n{k}.shape != s{k} or n{k}.rg is not r{k} or n{k}.weak is not w{k} or "
        f"n{k}.scope is not None or n{k}.trace is not None or (b{k} := n{k}.buffer) is None"
        for k in tensors
    ]
    addresses = [f"b{k}.address" if classes[k] is Tensor else "0" for k in positions]
    numbers = [
        f"{slot + place}, t{place}(a{k})" for place, k in enumerate(positions) if classes[k] is not Tensor
    ]
    given = [
        "record", *["arena.address"] * bool(arena), *addresses, *[f"o{k}.address" for k in outputs], *numbers,
    ]
    source = _SOURCE.format(
        count=count,
        kinds=listed("(_, s{0}, d{0}, w{0}, r{0})", range(count)),
        specs=listed("p{}", outputs),
        rings=listed("g{}", outputs),
        sizes=listed("z{}", outputs),
        bits=listed("t{}", range(len(positions))) + "*_",
        arguments=listed("a{}", range(count)),
        wrong_classes=" or ".join([*wrong_classes, *wrong_same]),
        nodes=lines("n{0} = a{0}._node", tensors),
        wrong_types=" or ".join([*wrong_types, *["not hold()"] * watches]) or "False",
        outputs="\n        ".join([
            f"o{k} = recycled(g{k}, z{k})" if again else f"o{k} = allocate(z{k})" for k, again in enumerate(recycles)
        ]),
        take_arena="arena = take_arena()" if arena else "pass",
        given=", ".join(given),
        give_arena="arenas.append(arena)" if arena == 2 else "pass",
        result="new_result(o0, p0)" if is_single else f"({listed('new_result(o{0}, p{0})', outputs)})",
    )
    from ..compiler import program

    names: dict[str, Any] = {
        "INT64": INT64, "MISS": MISS, "Tensor": Tensor, "allocate": allocate, "dtypes": dtypes, "evaluate": evaluate,
        "new_result": new_result, "program": program, "recycled": recycled,
    }  # fmt: skip
    exec(compile(source, f"{PACKAGE_DIRECTORY}<jitted call>", "exec"), names)
    made: Callable[..., Any] = names["make"]
    return made
