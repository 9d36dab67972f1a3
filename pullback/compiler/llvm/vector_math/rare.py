"""A slow path for the few lanes that need one.

The code around is straight-line, so the branch lives in a small function that LLVM inlines: it tests whether any lane
needs the slow path and, if so, calls a function that walks the lanes and calls a scalar function for those that do
(``rare_lanes``), or one that computes all lanes another way (``rare_vectors``).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from ..builder import VectorBuilder
from ..values import LLVM_TYPE, Value


def rare_lanes(
    b: VectorBuilder, scalar: str, definition: str, inputs: Sequence[Value], quick: Sequence[Value], needed: Value
) -> list[Value]:
    """``quick``, with the lanes where ``needed`` is set taken from the scalar function.

    scalar, definition: name and text of ``{double, ...} @scalar(double, ...)``, one argument for each of ``inputs``
        and one result for each of ``quick``; f32 lanes are widened for it and its results rounded.
    """
    b.declares.setdefault(scalar, definition)
    dtype = quick[0].dtype
    vector, mask, element, width = b.type(dtype), b.type("i1"), LLVM_TYPE[dtype], b.width
    results = f"{{ {', '.join([vector] * len(quick))} }}"
    doubles = f"{{ {', '.join(['double'] * len(quick))} }}"
    name = f"{scalar}.v{width}{dtype}"

    lanes, arguments = [], []
    for k in range(len(inputs)):
        lanes.append(f"  %x{k} = extractelement {vector} %in{k}, i64 %lane")
        if dtype == "f32":
            lanes.append(f"  %w{k} = fpext float %x{k} to double")
        arguments.append(f"double %{'w' if dtype == 'f32' else 'x'}{k}")
    lanes.append(f"  %out = call {doubles} @{scalar}({', '.join(arguments)})")
    for k in range(len(quick)):
        lanes.append(f"  %{'d' if dtype == 'f32' else 'y'}{k} = extractvalue {doubles} %out, {k}")
        if dtype == "f32":
            lanes.append(f"  %y{k} = fptrunc double %d{k} to float")
        lanes.append(f"  %new{k} = insertelement {vector} %r{k}, {element} %y{k}, i64 %lane")
    carried = [f"  %r{k} = phi {vector} [ %quick{k}, %entry ], [ %new{k}, %loop ]" for k in range(len(quick))]
    operands = ", ".join(
        [f"{vector} %in{k}" for k in range(len(inputs))] + [f"{vector} %quick{k}" for k in range(len(quick))]
    )
    newline = "\n"
    b.declare("llvm.cttz.i64", "i64", "i64", "i1")
    # The lanes as bits of a number: LLVM cannot compile a call that passes <1 x i1> from AVX-512's mask registers.
    slow = f"""define internal {results} @{name}.slow({operands}, i64 %needed) noinline {{
entry:
  br label %loop
loop:
  %left = phi i64 [ %needed, %entry ], [ %rest, %loop ]
{newline.join(carried)}
  %lane = call i64 @llvm.cttz.i64(i64 %left, i1 true)
{newline.join(lanes)}
  %less = sub i64 %left, 1
  %rest = and i64 %left, %less
  %more = icmp ne i64 %rest, 0
  br i1 %more, label %loop, label %done
done:
{_pack(results, vector, [f'%new{k}' for k in range(len(quick))])}
}}"""
    b.declares.setdefault(f"{name}.slow", slow)

    test = VectorBuilder(width, b.target, names=itertools.count())
    bits = test.lane_bits(Value("%needed", "i1"))
    chosen = []
    for k in range(len(quick)):
        chosen.append(f"  %s{k} = extractvalue {results} %slow.out, {k}")
    final = [f"  %c{k} = phi {vector} [ %quick{k}, %entry ], [ %s{k}, %slow ]" for k in range(len(quick))]
    text = f"""define internal {results} @{name}({operands}, {mask} %needed) alwaysinline {{
entry:
{newline.join(test.lines)}
  %some = icmp ne i64 {bits}, 0
  br i1 %some, label %slow, label %done
slow:
  %slow.out = call {results} @{name}.slow({operands}, i64 {bits})
{newline.join(chosen)}
  br label %done
done:
{newline.join(final)}
{_pack(results, vector, [f'%c{k}' for k in range(len(quick))])}
}}"""
    call = b.call_helper(name, results, text, *map(b.typed, (*inputs, *quick, needed)))
    return [b.pure(f"extractvalue {results} {call}, {k}", dtype) for k in range(len(quick))]


def rare_vectors(
    b: VectorBuilder,
    name: str,
    slow: Callable[..., Value],
    inputs: Sequence[Value],
    quick: Value,
    needed: Value,
) -> Value:
    """``quick``, with the lanes where ``needed`` is set taken from ``slow(builder, *inputs)``, which runs only if any
    is set.

    name: of the slow path, one for each meaning of ``slow``.
    """
    vector, mask = b.type(quick.dtype), b.type("i1")
    full = f"pullback.{name}.v{b.width}{quick.dtype}"
    parameters = ", ".join(f"{b.type(x.dtype)} %in{k}" for k, x in enumerate(inputs))
    if f"{full}.slow" not in b.declares:
        body = VectorBuilder(b.width, b.target, declares=b.declares)
        value = slow(body, *[Value(f"%in{k}", x.dtype) for k, x in enumerate(inputs)])
        lines = "\n".join(body.lines)
        b.declares[f"{full}.slow"] = f"""define internal {vector} @{full}.slow({parameters}) noinline {{
{lines}
  ret {vector} {value.ref}
}}"""
    test = VectorBuilder(b.width, b.target)
    any_needed = test.any_lane(Value("%needed", "i1"))
    lines = "\n".join(test.lines)
    text = f"""define internal {vector} @{full}({parameters}, {vector} %quick, {mask} %needed) alwaysinline {{
entry:
{lines}
  br i1 {any_needed}, label %slow, label %done
slow:
  %other = call {vector} @{full}.slow({parameters})
  %merged = select {mask} %needed, {vector} %other, {vector} %quick
  br label %done
done:
  %result = phi {vector} [ %quick, %entry ], [ %merged, %slow ]
  ret {vector} %result
}}"""
    return Value(b.call_helper(full, vector, text, *map(b.typed, (*inputs, quick, needed))), quick.dtype)


def _pack(results: str, vector: str, refs: list[str]) -> str:
    """Return the values as one structure."""
    lines, whole = [], "poison"
    for k, ref in enumerate(refs):
        lines.append(f"  %pack{k} = insertvalue {results} {whole}, {vector} {ref}, {k}")
        whole = f"%pack{k}"
    return "\n".join([*lines, f"  ret {results} {whole}"])
