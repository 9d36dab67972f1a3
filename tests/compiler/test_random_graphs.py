"""Programs found by hypothesis, compiled and evaluated by the references.

``PULLBACK_FUZZ_EXAMPLES=5000`` tries as many of each kind, different ones at each run; without it over two thousand
in all, always the same. They are small, and a program that runs again at other sizes finds most kernels compiled.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import pullback as pb
from pullback.dtypes import by_name
from tests.backends import on_backend
from tests.compiler.examples import examples
from tests.compiler.graphs import (
    DTYPES,
    EXTENTS,
    MAX_SIZE,
    STEPS,
    compare,
    data,
    execute,
    gradients_of,
    mapped,
    outputs_of,
    steps_in_place,
    with_special_values,
)

instructions = st.tuples(st.sampled_from(list(STEPS)), st.lists(st.integers(0, 999), min_size=2, max_size=9))
shapes = st.lists(st.sampled_from(EXTENTS), max_size=4).map(tuple)


@st.composite
def tensors(draw: Any, dtypes: tuple[str, ...], exact: bool) -> list[Any]:
    """Up to three inputs: of one shape, or broadcasting against the first."""
    shape = draw(shapes)
    while 0 in shape[1:]:
        shape = shape[1:]
    inputs = []
    for number in range(draw(st.integers(1, 3))):
        mine = shape
        if number and draw(st.booleans()):
            mine = tuple([1 if draw(st.booleans()) else extent for extent in shape])
            mine = mine[draw(st.integers(0, len(mine))) :]
        inputs.append(pb.asarray(data(mine, draw(st.sampled_from(dtypes)), number, exact)))
    return inputs


@examples(500)
@given(st.lists(instructions, min_size=1, max_size=14), tensors(DTYPES, True))
def test_exact_values_of_all_dtypes(program: Any, inputs: Any) -> None:
    compare(outputs_of(execute(program, inputs, True)), True)


@examples(250)
@given(st.lists(instructions, min_size=1, max_size=12), tensors(("float64",), False))
def test_float64(program: Any, inputs: Any) -> None:
    compare(outputs_of(execute(program, inputs, False)), False, 1e-12)


@examples(250)
@given(st.lists(instructions, min_size=1, max_size=10), tensors(("float32",), False))
def test_float32(program: Any, inputs: Any) -> None:
    compare(outputs_of(execute(program, inputs, False)), False, 1e-5)


@examples(250)
@given(st.lists(instructions, min_size=1, max_size=9), tensors(("float64",), False))
def test_gradients(program: Any, inputs: Any) -> None:
    compare(gradients_of(program, inputs, False), False, 1e-11)


@examples(180)
@given(st.lists(instructions, min_size=1, max_size=9), tensors(("float64", "int32", "bool", "float32"), True))
def test_gradients_of_exact_values(program: Any, inputs: Any) -> None:
    """Ties, kinks and repeated positions everywhere."""
    if any(by_name(x.dtype.name).kind == "f" for x in inputs):
        compare(gradients_of(program, inputs, True), False, 1e-5 if _holds(inputs, "float32") else 1e-12)


def _holds(inputs: Any, name: str) -> bool:
    return any(x.dtype.name == name for x in inputs)


def resized(array: np.ndarray, by: int, exact: bool) -> np.ndarray:
    """Other values, and each extent above 1 replaced by another: equal ones by equal ones, so that all still fits."""
    choices = [extent for extent in EXTENTS if extent > 1]
    shape = [choices[(choices.index(n) + by) % len(choices)] if n in choices else n for n in array.shape]
    while np.prod(shape) > MAX_SIZE:
        shape = [min(n, 8) if n > 1 else n for n in shape]
    return data(tuple(shape), array.dtype.name, by, exact)


@examples(80)
@given(st.lists(instructions, min_size=1, max_size=9), tensors(DTYPES, True))
def test_the_same_program_at_other_sizes(program: Any, inputs: Any) -> None:
    for by in range(1, 4):
        given = [pb.asarray(resized(np.array(x), by, True)) for x in inputs]
        compare(outputs_of(execute(program, given, True)), True)


@examples(60)
@given(st.lists(instructions, min_size=1, max_size=7), tensors(("float64",), False))
def test_gradients_at_other_sizes(program: Any, inputs: Any) -> None:
    for by in range(1, 4):
        given = [pb.asarray(resized(np.array(x), by, False)) for x in inputs]
        compare(gradients_of(program, given, False), False, 1e-11)


@examples(150)
@given(st.lists(instructions, min_size=1, max_size=10), tensors(DTYPES, True), st.integers(0, 99))
def test_special_values(program: Any, inputs: Any, seed: int) -> None:
    given = [pb.asarray(with_special_values(np.array(x), seed + n)) for n, x in enumerate(inputs)]
    compare(outputs_of(execute(program, given, True)), True)


@examples(100)
@given(st.lists(instructions, min_size=1, max_size=10), tensors(DTYPES, True))
def test_jitted_steps_that_rebind_their_state(program: Any, inputs: Any) -> None:
    """An output may take over the memory of the state that it replaces."""
    arrays = [np.array(x) for x in inputs]
    got = steps_in_place(program, arrays, True)
    with on_backend("reference"):
        expected = steps_in_place(program, arrays, True)
    for value, right in zip(got, expected, strict=True):
        assert value.dtype == right.dtype
        np.testing.assert_array_equal(value, right)


@examples(100)
@given(st.lists(instructions, min_size=1, max_size=8), tensors(DTYPES, True))
def test_mapped_programs(program: Any, inputs: Any) -> None:
    first, *others = (np.array(x) for x in inputs)
    arrays = [np.stack([first, data(first.shape, first.dtype.name, 50, True)]), *others]
    for value, right in zip(mapped(program, arrays, True, True), mapped(program, arrays, True, False), strict=True):
        assert value.dtype == right.dtype
        np.testing.assert_array_equal(value, right)
