"""Each batching rule against a Python loop over the batch."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from pullback.ops.leaf import parameter
from pullback.transforms.batching import batch_nodes, dependents
from tests.ops.support import CASES, Case, node_of, run, value_of

SIZE = 3


def _others(array: np.ndarray, seed: int) -> np.ndarray:
    """Arrays like ``array`` with other values, those of ``array`` in another order."""
    rng = np.random.default_rng(seed)
    return np.stack([rng.permuted(array.reshape(-1)).reshape(array.shape) for _ in range(SIZE)])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_batch_equals_loop(case: Case) -> None:
    count = len(case.arrays)
    stacks = [_others(a, seed) for seed, a in enumerate(case.arrays)]
    node = case.build(*[node_of(a) for a in case.arrays])
    for batched in itertools.product((False, True), repeat=count):
        if not any(batched):
            continue
        operands = [s if b else a for s, a, b in zip(stacks, case.arrays, batched)]
        result = node.op.batch(node, tuple(node_of(x) for x in operands), batched, SIZE)
        expected = [run(case.build, *[x[i] if b else x for x, b in zip(operands, batched)]) for i in range(SIZE)]
        assert result.shape == (SIZE, *node.shape)
        assert result.dtype is node.dtype
        np.testing.assert_allclose(value_of(result), np.stack(expected), rtol=1e-14, err_msg=str(batched))


@pytest.mark.parametrize("case", [c for c in CASES if len(c.arrays) <= 2], ids=str)
def test_batch_of_a_batch(case: Case) -> None:
    """The rules compose: batching the batched node equals two loops."""
    stacks = [_others(a, 7) for a in case.arrays]
    twice = [np.stack([s, s[::-1]]) for s in stacks]
    node = case.build(*[node_of(a) for a in case.arrays])
    parameters = [parameter(i, s.shape, x.dtype) for i, (s, x) in enumerate(zip(stacks, node.inputs))]
    inner = node.op.batch(node, tuple(parameters), (True,) * len(stacks), SIZE)
    order, _ = dependents([inner], parameters)
    (outer,) = batch_nodes(order, {p: node_of(t) for p, t in zip(parameters, twice)}, [inner], 2)
    expected = [[run(case.build, *[t[j, i] for t in twice]) for i in range(SIZE)] for j in range(2)]
    np.testing.assert_allclose(value_of(outer), expected, rtol=1e-14)
