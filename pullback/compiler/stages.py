"""The loops of a kernel: fewer of them where neighbours can be one, and the stages of a row."""

from __future__ import annotations

from typing import Any

from .expressions import expression_arguments, expression_dtype
from .loops import Access, Kernel, Stage

SPILL_COST = 8.0  # an expression this dear is kept in scratch memory between the stages of a row


def collapse(
    domain: tuple[int, ...],
    reduced: tuple[bool, ...],
    accesses: list[Access],
    iotas: list[tuple[int, tuple[int, ...]]],
    chunks: tuple[int, int, int] | None,
) -> tuple[Any, Any, list[Access], list[tuple[int, tuple[int, ...]]], Any]:
    """Drop loops of one step, and make one loop of two neighbours wherever all positions allow it."""
    # The chunk loop and the row loop that it cuts keep their places even with one step.
    first = 1 if chunks is not None else 0
    cut = reduced.index(True) if chunks is not None else -1
    keep = [dim for dim, extent in enumerate(domain) if extent != 1 or dim < first or dim == cut]
    groups: list[list[int]] = []
    for dim in keep:
        last = groups[-1] if groups else None
        if (
            last is not None
            and last[-1] >= first
            and reduced[last[-1]] == reduced[dim]
            and all(a.strides[last[-1]] == a.strides[dim] * domain[dim] for a in accesses)
            and all(c[last[-1]] == c[dim] * domain[dim] for _, c in iotas)
        ):
            last.append(dim)
        else:
            groups.append([dim])
    extents = []
    for group in groups:
        extent = 1
        for dim in group:
            extent *= domain[dim]
        extents.append(extent)
        if chunks is not None and cut in group:
            inner = extent // domain[cut]
            chunks = (chunks[0], chunks[1] * inner, chunks[2] * inner)
    last_of = [group[-1] for group in groups]
    return (
        tuple(extents),
        tuple(reduced[dim] for dim in last_of),
        [Access(a.value, a.offset, tuple(a.strides[dim] for dim in last_of)) for a in accesses],
        [(offset, tuple(c[dim] for dim in last_of)) for offset, c in iotas],
        chunks,
    )


def plan_stages(kernel: Kernel, stores: list[tuple[int, int]], costs: list[float], depths: list[int]) -> None:
    """Divide folds and stores into walks over the row, and choose what is kept in scratch between them."""
    count = 1 + max(
        [fold.stage for fold in kernel.folds]
        + [depths[expression] for _, expression in stores]
        + [side.stage for side in kernel.sides],
        default=0,
    )
    stages = [Stage() for _ in range(count)]
    for number, fold in enumerate(kernel.folds):
        stages[fold.stage].folds.append(number)
    for access, expression in stores:
        stages[depths[expression]].stores.append((access, expression))
    kernel.stages = stages
    if kernel.mode != "row" or count == 1:
        return
    outer = outer_expressions(kernel)
    rows: dict[int, int] = {}
    for depth, stage in enumerate(stages):
        stack = [kernel.folds[n].argument for n in stage.folds] + [stored for _, stored in stage.stores]
        stack += [side.argument for side in kernel.sides if side.stage == depth]
        seen: set[int] = set()
        while stack:
            number = stack.pop()
            if number in seen or outer[number]:
                continue
            seen.add(number)
            here = kernel.expressions[number]
            if depths[number] < depth and costs[number] >= SPILL_COST and here[0] != "load":
                if number not in rows:
                    rows[number] = len(rows)
                    stages[depths[number]].spills.append((number, rows[number]))
                stage.reloads[number] = rows[number]
                continue
            stack.extend(expression_arguments(here))
    kernel.spill_dtypes = tuple(expression_dtype(kernel.expressions[number]) for number in rows)


def outer_expressions(kernel: Kernel) -> list[bool]:
    """For each expression whether it has one value a row (row, column kernels) or a vector loop (map kernels)."""
    if kernel.mode == "scalar":
        return [True] * len(kernel.expressions)
    loops = kernel.row_loops if kernel.mode in ("row", "column", "walk", "scatter") else [kernel.vector_loop]
    return _still_expressions(kernel, loops, [True] * len(kernel.folds))


def uniform_expressions(kernel: Kernel) -> list[bool]:
    """For each expression whether it is the same in all lanes."""
    if not kernel.domain:
        return [True] * len(kernel.expressions)
    loops = [kernel.vector_loop] if kernel.domain else []
    # Where the lanes are columns, each has folds of its own.
    return _still_expressions(kernel, loops, [kernel.mode == "row"] * len(kernel.folds))


def _still_expressions(kernel: Kernel, loops: list[int], folds: list[bool]) -> list[bool]:
    """For each expression whether it stays the same along ``loops``; ``folds`` says so of the folds' results."""
    found: list[bool] = []
    for expression in kernel.expressions:
        kind = expression[0]
        still = all(found[a] for a in expression_arguments(expression))
        if kind in ("load", "lookup"):
            strides = kernel.accesses[expression[1]].strides
            still = still and not any(strides[dim] for dim in loops)
        elif kind == "shifted":
            coefficients = kernel.iotas[expression[4]][1]
            strides = kernel.accesses[expression[1]].strides
            still = not any(strides[dim] or coefficients[dim] for dim in loops)
        elif kind in ("guarded", "inside"):
            moves = [kernel.iotas[guard][1] for guard, _ in (expression[3] if kind == "guarded" else expression[1])]
            if kind == "guarded":
                moves.append(kernel.accesses[expression[1]].strides)
            still = not any(steps[dim] for steps in moves for dim in loops)
        elif kind == "iota":
            coefficients = kernel.iotas[expression[1]][1]
            still = not any(coefficients[dim] for dim in loops)
        elif kind == "scan":
            still = False
        elif kind == "fold":
            still = folds[expression[1]]
        found.append(still)
    return found
