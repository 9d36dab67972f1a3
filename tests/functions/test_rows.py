"""Every row: its derivatives against finite differences, compiled against the reference, vmap against a loop, and all
against PyTorch where that is installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.testing import check_grads
from pullback.transforms import pytree
from tests.backends import on_backend
from tests.functions.row import Array, Row
from tests.functions.rows import ROWS

SMOOTH = [row for row in ROWS if row.differentiable]
SIZE = 3

pytestmark = pytest.mark.filterwarnings("error")


def _tensors(row: Row) -> list[Any]:
    return [pb.asarray(a) if isinstance(a, np.ndarray) else a for a in row.arrays]


def _arrays(tree: Any) -> list[Array]:
    return [np.array(leaf) for leaf in pytree.leaves(tree)]


def _cotangents(tree: Any, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)

    def like(leaf: Any) -> Any:
        dtype = leaf.dtype if leaf.dtype.kind == "f" else pb.float64
        return pb.asarray(rng.uniform(-1, 1, leaf.shape)).astype(dtype)

    return pytree.map(like, tree)


@pytest.mark.parametrize("row", SMOOTH, ids=str)
def test_derivatives(row: Row, reference_backend: None) -> None:
    positions = row.differentiable
    primals = [row.arrays[i] for i in positions]
    check_grads(row.of(positions, _tensors(row)), primals, order=row.order, rtol=row.rtol, atol=row.rtol)


def _derivatives(row: Row) -> Any:
    """Value, tangent and cotangents in one function of all arrays."""
    positions = row.differentiable

    def function(*operands: Any) -> Any:
        full = list(row.arrays)
        for position, value in zip(row.mapped, operands):
            full[position] = value
        value, pull = pb.vjp(row.of(positions, full), *[full[i] for i in positions])
        gradients = pull(_cotangents(value))
        tangents = tuple(_cotangents(tuple(full[i] for i in positions), 1))
        return value, gradients, pb.jvp(row.of(positions, full), tuple(full[i] for i in positions), tangents)[1]

    return function if positions else row.of(row.mapped)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_compiled(row: Row) -> None:
    """Value and both derivatives, in one compiled program, are the reference's."""
    operands = [pb.asarray(row.arrays[i]) for i in row.mapped]
    function = _derivatives(row)
    got = _arrays(pb.jit(function)(*operands))
    with on_backend("reference"):
        expected = _arrays(function(*operands))
    for a, b in zip(got, expected, strict=True):
        assert a.dtype == b.dtype
        single = a.dtype == np.float32  # integers give the default float dtype
        np.testing.assert_allclose(a, b, rtol=1e-6 if single else 1e-11, atol=1e-7 if single else 1e-12)


@pytest.mark.parametrize("row", [row for row in ROWS if row.mapped and row.vmap], ids=str)
def test_vmap(row: Row, reference_backend: None) -> None:
    """vmap of value and derivatives equals a loop; and so does vmap of vmap."""
    function = _derivatives(row)
    stacks = [_others(row.arrays[i], i) for i in row.mapped]
    got = _arrays(pb.vmap(function)(*[pb.asarray(s) for s in stacks]))
    loop = [_arrays(function(*[pb.asarray(s[k]) for s in stacks])) for k in range(SIZE)]
    for index, a in enumerate(got):
        np.testing.assert_allclose(a, np.stack([one[index] for one in loop]), rtol=1e-9, atol=1e-10)
    twice = [np.stack([s, s[::-1]]) for s in stacks]
    plain = row.of(row.mapped)
    got = _arrays(pb.vmap(pb.vmap(plain))(*[pb.asarray(t) for t in twice]))
    loop = [_arrays(plain(*[pb.asarray(t[j, k]) for t in twice])) for j in range(2) for k in range(SIZE)]
    for index, a in enumerate(got):
        stacked = np.stack([one[index] for one in loop])
        np.testing.assert_allclose(a, stacked.reshape(a.shape), rtol=1e-9, atol=1e-10)


def _others(array: Array, seed: int) -> Array:
    """Arrays that hold the elements of ``array`` along its first axis in another order."""
    rng = np.random.default_rng(seed)
    if array.ndim == 0:
        return np.stack([array] * SIZE)
    return np.stack([array, *[rng.permutation(array, axis=0) for _ in range(SIZE - 1)]])


@pytest.mark.parametrize("row", [row for row in ROWS if row.torch is not None], ids=str)
def test_torch(row: Row) -> None:
    """Values to 1e-9 and gradients to 1e-8 in float64."""
    torch = pytest.importorskip("torch")
    assert row.torch is not None
    positions = row.differentiable if row.torch_by is None else row.torch_by
    operands = [torch.tensor(a) if isinstance(a, np.ndarray) else a for a in row.arrays]
    for i in positions:
        operands[i].requires_grad_()
    outputs = pytree.leaves(row.torch(torch)(*operands))
    mine, pull = pb.vjp(row.of(positions, _tensors(row)), *[row.arrays[i] for i in positions]) if positions else (
        row.function(*_tensors(row)), None)
    leaves = pytree.leaves(mine)
    for a, b in zip(leaves, outputs, strict=True):
        np.testing.assert_allclose(np.array(a), b.detach().numpy(), rtol=1e-9, atol=1e-9)
    if pull is None:
        return
    cotangents = _cotangents(mine)
    pairs = [(b, c) for b, c in zip(outputs, pytree.leaves(cotangents)) if b.requires_grad]
    expected = torch.autograd.grad(
        [b for b, _ in pairs], [operands[i] for i in positions], [torch.tensor(np.array(c)) for _, c in pairs],
        allow_unused=True,
    )
    for a, b in zip(_arrays(pull(cotangents)), expected, strict=True):
        np.testing.assert_allclose(a, np.zeros_like(a) if b is None else b.numpy(), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("row", {row.name: row for row in reversed(SMOOTH)}.values(), ids=str)
def test_backward(row: Row, reference_backend: None) -> None:
    """``backward()`` gives leaves what ``vjp`` gives, for one row of each function."""
    positions = row.differentiable
    function = row.of(positions, _tensors(row))
    _, pull = pb.vjp(function, *[row.arrays[i] for i in positions])
    leaves = [pb.asarray(row.arrays[i]).requires_grad_() for i in positions]
    outputs = function(*leaves)
    cotangents = _cotangents(outputs)
    total = sum([
        pb.sum(a * c) for a, c in zip(pytree.leaves(outputs), pytree.leaves(cotangents)) if a.requires_grad
    ])
    total.backward()
    for leaf, expected in zip(leaves, _arrays(pull(cotangents)), strict=True):
        got = np.zeros(leaf.shape) if leaf.grad is None else np.asarray(leaf.grad)
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-13)
