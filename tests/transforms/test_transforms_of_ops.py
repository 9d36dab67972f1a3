"""The transforms over every op: vmap along any axis, vmap of gradients, and the two ways to a Jacobian.

That each op's derivative and batching rule is right by itself is tested in tests/ops.
"""

from __future__ import annotations

import numpy as np
import pytest

import pullback as pb
from pullback import Tensor
from pullback.ops.registry import by_name
from tests.ops.support import CASES, Case

pytestmark = pytest.mark.usefixtures("reference_backend")

SMOOTH = [case for case in CASES if case.differentiable]
STRUCTURAL = [case for case in SMOOTH if by_name(case.op).kind != "elementwise"]


def _function(case: Case):
    """The case's op as a function of the operands by which it is smooth."""

    def function(*smooth):
        operands = [pb.asarray(a) for a in case.arrays]
        for position, tensor in zip(case.differentiable, smooth):
            operands[position] = tensor
        return Tensor(case.build(*[t.node for t in operands]))

    return function, [case.arrays[i] for i in case.differentiable]


def _shuffled(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Other values of which the op's domain is known to hold."""
    return rng.permutation(array.ravel()).reshape(array.shape)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_vmap_is_a_loop_along_any_axis(case: Case):
    rng, size = np.random.default_rng(3), 3
    def function(*tensors):
        return Tensor(case.build(*[t.node for t in tensors]))

    elements = [[_shuffled(a, rng) for a in case.arrays] for _ in range(size)]
    in_axes = tuple(int(rng.integers(-a.ndim - 1, a.ndim + 1)) for a in case.arrays)
    stacked = [np.stack(column, axis) for column, axis in zip(zip(*elements), in_axes)]
    expected = [np.asarray(function(*map(pb.asarray, element))) for element in elements]
    out_axis = int(rng.integers(-expected[0].ndim - 1, expected[0].ndim + 1))
    found = pb.vmap(function, in_axes, out_axis)(*stacked)
    assert np.dtype(found.dtype) == expected[0].dtype
    np.testing.assert_allclose(np.asarray(found), np.stack(expected, out_axis), rtol=1e-13)


@pytest.mark.parametrize("case", STRUCTURAL, ids=str)
def test_vmap_of_grad_is_a_loop(case: Case):
    function, arrays = _function(case)
    rng = np.random.default_rng(5)

    def gradient(*x):
        return pb.grad(lambda *y: pb.sum(pb.sin(function(*y))), argnums=tuple(range(len(arrays))))(*x)

    elements = [[_shuffled(a, rng) for a in arrays] for _ in range(3)]
    found = pb.vmap(gradient)(*[np.stack(column) for column in zip(*elements)])
    expected = zip(*[gradient(*map(pb.asarray, element)) for element in elements])
    for a, b in zip(found, expected):
        np.testing.assert_allclose(np.asarray(a), np.stack([np.asarray(x) for x in b]), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("case", SMOOTH, ids=str)
def test_forward_and_reverse_jacobians_agree(case: Case):
    function, arrays = _function(case)
    numbers = tuple(range(len(arrays)))
    forward, reverse = pb.jacfwd(function, numbers)(*arrays), pb.jacrev(function, numbers)(*arrays)
    for a, b, array in zip(forward, reverse, arrays):
        assert a.shape == b.shape == (*function(*map(pb.asarray, arrays)).shape, *array.shape)
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-12, atol=1e-12)
