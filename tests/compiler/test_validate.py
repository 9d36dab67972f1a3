"""The validator of kernels and plans finds every fault that is planted, and none in sound ones."""

from __future__ import annotations

import copy
import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.compiler import options
from pullback.compiler.loops import Access, Fold, Kernel, Scatter, Stage
from pullback.compiler.program import Program, compile_program
from pullback.compiler.validate import validate_kernel, validate_plan
from pullback.errors import CompileError
from pullback.graph.graph import Graph

F = pb.nn.functional
X = np.ones((6, 40), np.float32)
COLUMN = np.ones((40, 1), np.float32)
LABELS = np.zeros(6, np.int64)


def program_of(function: Callable[..., Any], *args: Any, donate: tuple[int, ...] = ()) -> Program:
    graph = Graph.trace(function, *args)
    return compile_program(graph.inputs, graph.outputs, donate)


def kernel_of(function: Callable[..., Any], *args: Any, number: int = 0) -> Kernel:
    """A copy, so that a fault stays in its test."""
    kernel = program_of(function, *args).kernels[number]
    parts: dict[str, Any] = {"stages": [copy.deepcopy(stage) for stage in kernel.stages]}
    for name in ("expressions", "accesses", "iotas", "checks", "terms", "row_stores"):
        parts[name] = list(getattr(kernel, name))
    parts["folds"] = [dataclasses.replace(fold) for fold in kernel.folds]
    copied = dataclasses.replace(kernel, **parts)
    validate_kernel(copied)
    return copied


def fails(kernel: Kernel, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        validate_kernel(kernel)


def find(kernel: Kernel, kind: str) -> int:
    return next(n for n, expression in enumerate(kernel.expressions) if expression[0] == kind)


def moved(access: Access, by: int) -> Access:
    return Access(access.value, access.offset + by, access.strides)


def softmax() -> Kernel:
    return kernel_of(lambda x: F.softmax(x * 2.0, axis=-1), X)


def elementwise() -> Kernel:
    return kernel_of(lambda x, y: pb.sin(x) * y.T, X, COLUMN)


def column_sum() -> Kernel:
    return kernel_of(lambda x: pb.sum(x, axis=0), X)


def chunked_sum() -> Kernel:
    return kernel_of(pb.sum, np.ones(1 << 18, np.float32))


def running_sum() -> Kernel:
    return kernel_of(lambda x: pb.cumsum(x, axis=0), X)


def gather() -> Kernel:
    return kernel_of(lambda x, i: pb.take(x, i, axis=0), X, LABELS)


def scatter() -> Kernel:
    def function(x: Any, i: Any) -> Any:
        x[i] = pb.ones((6, 40), dtype="float32")
        return x

    program = program_of(function, X, LABELS)
    number = next(n for n, kernel in enumerate(program.kernels) if kernel.scatter is not None)
    return kernel_of(function, X, LABELS, number=number)


def test_an_expression_reads_a_later_one() -> None:
    kernel = elementwise()
    number = find(kernel, "op")
    kernel.expressions[number] = (*kernel.expressions[number][:4], (number,), ())
    fails(kernel, "reads what is not known before it")


def test_an_expression_reads_none() -> None:
    kernel = elementwise()
    number = find(kernel, "op")
    kernel.expressions[number] = (*kernel.expressions[number][:4], (-1,), ())
    fails(kernel, "reads what is not known before it")


def test_operand_dtypes() -> None:
    kernel = elementwise()
    number = find(kernel, "op")
    kind, name, dtype, _, arguments, attrs = kernel.expressions[number]
    kernel.expressions[number] = (kind, name, dtype, ("float64",) * len(arguments), arguments, attrs)
    fails(kernel, r"is given \['float32'\]")


def test_a_load_of_another_dtype() -> None:
    kernel = elementwise()
    number = find(kernel, "load")
    kernel.expressions[number] = ("load", kernel.expressions[number][1], "float64")
    fails(kernel, "reads a buffer of float32")


def test_an_access_that_is_not_there() -> None:
    kernel = elementwise()
    kernel.expressions[find(kernel, "load")] = ("load", 17, "float32")
    fails(kernel, "has no access")


def test_an_unknown_kind() -> None:
    kernel = elementwise()
    kernel.expressions.append(("guess", 0, "float32"))
    fails(kernel, "is of no kind")


@pytest.mark.parametrize("by", [1, -1, 100000])
def test_positions_out_of_bounds(by: int) -> None:
    kernel = elementwise()
    number = kernel.expressions[find(kernel, "load")][1]
    kernel.accesses[number] = moved(kernel.accesses[number], by)
    fails(kernel, "access .* goes from")


def test_a_store_out_of_bounds() -> None:
    kernel = elementwise()
    number, _ = kernel.stages[0].stores[0]
    kernel.accesses[number] = moved(kernel.accesses[number], 1)
    fails(kernel, "access .* goes from 1 to 240")


def test_a_stride_too_long() -> None:
    kernel = elementwise()
    number = kernel.expressions[find(kernel, "load")][1]
    access = kernel.accesses[number]
    kernel.accesses[number] = Access(access.value, 0, tuple(2 * stride for stride in access.strides))
    fails(kernel, "access .* goes from 0")


def test_strides_for_another_domain() -> None:
    kernel = elementwise()
    kernel.accesses[0] = Access(kernel.accesses[0].value, 0, (*kernel.accesses[0].strides, 1))
    fails(kernel, "an access with strides")


def test_two_points_store_to_one_element() -> None:
    kernel = elementwise()
    number, _ = kernel.stages[0].stores[0]
    access = kernel.accesses[number]
    kernel.accesses[number] = Access(access.value, 0, (0,) * len(access.strides))
    fails(kernel, "two points store to one element")


def test_a_store_of_another_dtype() -> None:
    kernel = elementwise()
    access, _ = kernel.stages[0].stores[0]
    kernel.expressions.append(("literal", "1", "int64"))
    kernel.stages[0].stores[0] = (access, len(kernel.expressions) - 1)
    fails(kernel, "stores int64")


def test_a_store_over_an_input() -> None:
    kernel = elementwise()
    source = kernel.expressions[find(kernel, "load")][1]
    kernel.stages[0].stores.append((source, find(kernel, "load")))
    fails(kernel, "over the input")


def test_a_store_of_no_expression() -> None:
    kernel = elementwise()
    kernel.stages[0].stores[0] = (kernel.stages[0].stores[0][0], 99)
    fails(kernel, "stores no expression")


def test_a_map_with_folds() -> None:
    kernel = softmax()
    kernel.mode = "map"
    fails(kernel, "map over")


def test_a_row_kernel_whose_last_loop_is_not_folded() -> None:
    kernel = column_sum()
    assert kernel.mode == "column"
    kernel.mode = "row"
    fails(kernel, "row over")


def test_an_unknown_mode() -> None:
    kernel = elementwise()
    kernel.mode = "spiral"
    fails(kernel, "mode 'spiral'")


def test_flags_and_loops() -> None:
    kernel = elementwise()
    kernel.reduced = (*kernel.reduced, False)
    fails(kernel, "flags")


def test_rows_backwards_without_a_scan() -> None:
    kernel = column_sum()
    kernel.reverse = True
    fails(kernel, "backwards without a scan")


def test_a_fold_in_no_stage() -> None:
    kernel = softmax()
    kernel.stages[0].folds.clear()
    fails(kernel, r"fold 0 of stage 0 advances in stages \[\]")


def test_a_fold_that_folds_nothing() -> None:
    kernel = softmax()
    kernel.folds[0].argument = 999
    fails(kernel, "folds nothing")


def test_a_fold_of_another_dtype() -> None:
    kernel = softmax()
    fold = kernel.folds[0]
    kernel.folds[0] = Fold(fold.instruction, fold.argument, "float64", fold.stage)
    fails(kernel, "is the result of|is given float32")


def test_a_fold_that_is_not_there() -> None:
    kernel = softmax()
    kernel.expressions[find(kernel, "fold")] = ("fold", 7, "float32")
    fails(kernel, "has no fold")


def test_a_fold_is_needed_before_it_ends() -> None:
    kernel = softmax()
    last = kernel.stages[-1]
    kernel.stages[0].stores, last.stores = last.stores, []
    fails(kernel, "stage 0 needs a fold that ends in stage")


def test_what_is_kept_between_stages() -> None:
    kernel = softmax()
    keeping = next(stage for stage in kernel.stages if stage.spills)
    saved = list(keeping.spills)
    keeping.spills.clear()
    fails(kernel, "which is not kept")
    keeping.spills[:] = [(saved[0][0], 5)]
    kernel.stages[-1].reloads = {}
    fails(kernel, "nowhere|which is not kept")
    keeping.spills[:] = saved
    kernel.spill_dtypes = ("float64",)
    fails(kernel, "keeps float32 among float64|which is not kept")


def test_a_row_stores_what_is_not_the_rows() -> None:
    kernel = column_sum()
    access, _ = kernel.row_stores[0]
    kernel.row_stores[0] = (access, find(kernel, "load"))
    fails(kernel, "depends on the place in the row")


@pytest.mark.parametrize("chunks", [(3, 1 << 15, 1 << 18), (8, 1 << 15, 1 << 17), (8, 1 << 16, 1 << 18)])
def test_chunks(chunks: tuple[int, int, int]) -> None:
    kernel = chunked_sum()
    assert kernel.chunks == (8, 1 << 15, 1 << 18)
    kernel.chunks = chunks
    fails(kernel, "chunk")


def test_a_chunk_begins_elsewhere() -> None:
    kernel = chunked_sum()
    number = kernel.expressions[find(kernel, "load")][1]
    access = kernel.accesses[number]
    kernel.accesses[number] = Access(access.value, 0, (access.strides[0] - 1, *access.strides[1:]))
    fails(kernel, "a chunk, not")


def test_a_scan_without_a_row_loop() -> None:
    kernel = running_sum()
    kernel.reduced = (False,) * len(kernel.reduced)
    fails(kernel, "without a row loop")


def test_a_scan_of_another_dtype() -> None:
    kernel = running_sum()
    number = find(kernel, "scan")
    kind, instruction, _, arguments, variant = kernel.expressions[number]
    kernel.expressions[number] = (kind, instruction, "float64", arguments, variant)
    fails(kernel, "is given")


def test_a_shift_that_its_guard_lets_out() -> None:
    kernel = kernel_of(pb.grad(lambda x: pb.sum(pb.cummax(x, axis=0) * pb.cumsum(x, axis=1))), X, number=0)
    program = program_of(pb.grad(lambda x: pb.sum(pb.cumprod(x, axis=1, reverse=True) ** 2)), X)
    kernels = [k for k in (kernel, *program.kernels) if any(e[0] == "shifted" for e in k.expressions)]
    assert kernels
    for kernel in kernels:
        guard = next(e[4] for e in kernel.expressions if e[0] == "shifted")
        offset, coefficients = kernel.iotas[guard]
        iotas = list(kernel.iotas)
        iotas[guard] = (offset + 1, coefficients)
        fails(dataclasses.replace(kernel, iotas=iotas), "out of bounds")


def test_checked_indices_that_leave_the_table() -> None:
    kernel = gather()
    assert kernel.checks[0][0] == 6
    kernel.checks[0] = (7, kernel.checks[0][1])
    fails(kernel, "checked indices go from 0 to 279")


def test_an_index_without_a_stride() -> None:
    kernel = gather()
    kernel.terms.clear()
    fails(kernel, "no stride for an index")


def test_a_scatter() -> None:
    kernel = scatter()
    scattered = kernel.scatter
    assert scattered is not None
    kernel.scatter = Scatter(scattered.access, 99, scattered.terms, scattered.mode)
    fails(kernel, "stores no expression")
    kernel.scatter = Scatter(scattered.access, scattered.value, ((scattered.terms[0][0], 3),), scattered.mode)
    fails(kernel, "no stride for an index")
    kernel.scatter = scattered
    kernel.accesses[scattered.access] = moved(kernel.accesses[scattered.access], 1)
    fails(kernel, "indices go from 1 to 240")


def test_several_stages_of_a_walk() -> None:
    kernel = kernel_of(lambda x: pb.sum(x, axis=0), np.ones((1 << 12, 1 << 9), np.float32))
    assert kernel.mode == "walk"
    kernel.stages.append(Stage())
    fails(kernel, "a walk of several stages")


# -- plans -------------------------------------------------------------------------------------------------------------


def products(x: Any, w: Any) -> Any:
    for _ in range(4):
        x = pb.sin(x @ w)
    return x


def test_memory_that_is_used_twice() -> None:
    plan = program_of(products, np.ones((64, 64)), np.ones((64, 64))).plan
    validate_plan(plan)
    arena = [number for number, (where, _) in plan.places.items() if where == "arena"]
    for number in arena:
        plan.places[number] = ("arena", 0)
    with pytest.raises(CompileError, match="share memory while both are needed"):
        validate_plan(plan)


def test_memory_outside_of_the_arena() -> None:
    plan = program_of(products, np.ones((64, 64)), np.ones((64, 64))).plan
    plan.arena_bytes -= 64
    with pytest.raises(CompileError, match="outside of the arena"):
        validate_plan(plan)


def test_a_value_is_read_too_early() -> None:
    plan = program_of(products, np.ones((64, 64)), np.ones((64, 64))).plan
    for step in plan.steps:
        step.wave = 0
    with pytest.raises(CompileError, match="is not complete"):
        validate_plan(plan)


def test_an_input_that_is_overwritten_too_early() -> None:
    plan = program_of(lambda x: (pb.sin(x), pb.sum(x)), np.ones(1 << 18), donate=(0,)).plan
    validate_plan(plan)
    plan.donations = {0: 0}
    reader = next(step for step in plan.steps if all(value.kind == "input" for value in step.reads))
    late = dataclasses.replace(reader, wave=max(step.wave for step in plan.steps) + 1, writes=[])
    plan.steps.append(late)
    with pytest.raises(CompileError, match="which is still read"):
        validate_plan(plan)


# -- the switch --------------------------------------------------------------------------------------------------------


def test_on_in_tests_and_off_by_default() -> None:
    assert options.VALIDATE
    code = "from pullback.compiler import options; print(options.VALIDATE)"
    for value, expected in ((None, "False"), ("", "False"), ("0", "False"), ("1", "True")):
        environment = {name: text for name, text in os.environ.items() if name != options.VALIDATE_VARIABLE}
        if value is not None:
            environment[options.VALIDATE_VARIABLE] = value
        done = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
        assert done.stdout.strip() == expected
