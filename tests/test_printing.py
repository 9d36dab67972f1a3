"""Printing: NumPy's layout with shape and dtype; traced tensors print and never raise."""

import numpy as np
import pytest

import pullback as pb


def test_repr():
    assert repr(pb.asarray([[1.0, 2.0], [3.0, 4.5]])) == (
        "Tensor([[1. , 2. ],\n        [3. , 4.5]], shape=(2, 2), dtype=float32)"
    )
    assert repr(pb.asarray(3)) == "Tensor(3, dtype=int64)"
    assert repr(pb.asarray([True])) == "Tensor([ True], shape=(1,), dtype=bool)"
    assert repr(pb.zeros((0, 3))) == "Tensor([], shape=(0, 3), dtype=float32)"
    assert repr(pb.asarray([1.5, 2], dtype="bfloat16")) == "Tensor([1.5, 2. ], shape=(2,), dtype=bfloat16)"
    assert repr(pb.tensor(1.0, requires_grad=True)) == "Tensor(1., dtype=float32, requires_grad=True)"
    assert "..." in repr(pb.arange(5000)) and "shape=(5000,)" in repr(pb.arange(5000))


def test_str_is_numpys():
    for x in (np.arange(6.0).reshape(2, 3), np.array(2.5), np.array([1, 2]), np.zeros((0,))):
        assert str(pb.asarray(x)) == str(x)


def test_print_options_are_numpys():
    with np.printoptions(precision=2):
        assert repr(pb.asarray([1.23456])) == "Tensor([1.23], shape=(1,), dtype=float32)"


def test_format():
    x = pb.asarray(2.34567)
    assert f"{x:.2f}" == "2.35" and f"{x}" == str(x) and f"{pb.asarray([3]):d}" == "3"
    with pytest.raises(TypeError, match="format"):
        f"{pb.ones(2):.2f}"


@pytest.mark.parametrize("transform", ["jit", "vmap", "graph_of"])
def test_traced_tensors_print(transform):
    seen = []

    def f(x):
        y = x * 2
        seen.extend([repr(x), str(y), f"{y:.2f}", f"{y}"])
        return y

    getattr(pb, transform)(f)(pb.ones(3))
    assert len(seen) == 4
    for text in seen:
        assert "traced" in text and "dtype=float32" in text and "test_printing.py" in text


def test_a_tensor_left_over_from_a_trace_prints():
    kept = []

    @pb.jit
    def f(x):
        kept.append(x * 2)
        return x

    f(pb.ones(3))
    text = repr(kept[0])
    assert "left over from a trace" in text and "shape=(3,)" in text and "test_printing.py" in text
    assert str(kept[0]) == f"{kept[0]}" == f"{kept[0]:.2f}" == text
    with pytest.raises(pb.TraceError, match=r"test_printing\.py"):
        kept[0] + 1
