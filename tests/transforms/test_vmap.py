"""vmap: axes, pytrees, nesting, what it shares, errors."""

from __future__ import annotations

import numpy as np
import pytest

import pullback as pb

RNG = np.random.default_rng(1)
A, B = RNG.standard_normal((4, 3, 5)), RNG.standard_normal((4, 3, 5))


def test_in_axes_and_out_axes():
    def f(x, y):
        return pb.sum(x * y, axis=0)

    for axis in (0, 1, 2, -1, -2, -3):
        expected = np.stack([(np.take(A, i, axis) * np.take(B, i, axis)).sum(0) for i in range(A.shape[axis])])
        for out in (0, 1, -1, -2):
            found = pb.vmap(f, in_axes=axis, out_axes=out)(A, B)
            np.testing.assert_allclose(np.asarray(found), np.moveaxis(expected, 0, out), rtol=1e-13)


def test_arguments_that_are_not_mapped():
    def f(x, y):
        return pb.sum(x) + y

    found = pb.vmap(f, in_axes=(0, None))(A, B[0])
    np.testing.assert_allclose(np.asarray(found), A.sum((1, 2))[:, None, None] + B[0], rtol=1e-13)
    found = pb.vmap(f, in_axes=(None, -1), out_axes=2)(A, B)
    np.testing.assert_allclose(np.asarray(found), A.sum() + B.transpose(0, 1, 2), rtol=1e-13)


def test_different_axes_for_different_arguments():
    def f(x, y):
        return x @ y

    left, right = RNG.standard_normal((3, 6, 4)), RNG.standard_normal((6, 4, 2))
    found = pb.vmap(f, in_axes=(1, 0))(left, right)
    np.testing.assert_allclose(np.asarray(found), np.einsum("ibj,bjk->bik", left, right), rtol=1e-12)


def test_pytrees_of_arguments_axes_and_results():
    def f(d, pair):
        assert d["a"].shape == (3, 5)
        assert pair[0].shape == ()
        return {"s": pb.sum(d["a"]) * pair[0], "t": (d["b"], pair[1])}

    args = {"a": A, "b": B}, (np.arange(4.0), np.float64(7.0))
    in_axes = ({"a": 0, "b": None}, (0, None))
    found = pb.vmap(f, in_axes, {"s": 0, "t": (None, None)})(*args)
    np.testing.assert_allclose(np.asarray(found["s"]), A.sum((1, 2)) * np.arange(4.0), rtol=1e-13)
    assert found["t"][0].shape == B.shape
    assert found["t"][1].shape == ()
    # A prefix stands for all below it.
    found = pb.vmap(lambda d, s: d["a"] + d["b"] * s, in_axes=(0, None))({"a": A, "b": B}, 2.0)
    np.testing.assert_allclose(np.asarray(found), A + 2 * B, rtol=1e-13)


def test_none_and_static_arguments():
    def f(x, nothing, mode):
        assert nothing is None
        return x * 2 if mode == "twice" else x

    np.testing.assert_array_equal(np.asarray(pb.vmap(f, in_axes=(0, None, None))(np.ones(3), None, "twice")), [2.0] * 3)
    np.testing.assert_array_equal(np.asarray(pb.vmap(lambda x, n: x)(np.ones(3), None)), np.ones(3))


def test_keyword_arguments_are_mapped_along_their_first_axis():
    found = pb.vmap(lambda x, *, scale: x * scale, in_axes=(1,))(A[0], scale=np.arange(5.0))
    np.testing.assert_allclose(np.asarray(found), (A[0] * np.arange(5.0)).T, rtol=1e-13)


def test_results_that_do_not_depend_on_the_batch_are_repeated():
    found = pb.vmap(lambda x: (pb.asarray([1.0, 2.0]), 3.0))(np.ones(4))
    np.testing.assert_array_equal(np.asarray(found[0]), [[1.0, 2.0]] * 4)
    np.testing.assert_array_equal(np.asarray(found[1]), [3.0] * 4)


def test_unmapped_work_stays_unbatched():
    def f(x, w):
        return x * pb.sum(pb.exp(w))

    graph = pb.graph_of(pb.vmap(f, in_axes=(0, None)))(np.ones(4), np.ones(1000))
    (exp,) = [node for node in graph.nodes if node.op.name == "exp"]
    assert exp.shape == (1000,)


def test_nested():
    found = pb.vmap(pb.vmap(lambda x, y: x * y, (None, 0)), (0, None))(np.arange(3.0), np.arange(4.0))
    np.testing.assert_array_equal(np.asarray(found), np.outer(np.arange(3.0), np.arange(4.0)))
    inner = pb.vmap(lambda x, y: pb.sum(x * y), in_axes=(1, None))
    found = pb.vmap(inner, in_axes=(-1, None), out_axes=1)(A, A[:, 0, 0])
    np.testing.assert_allclose(np.asarray(found), np.einsum("ijk,i->jk", A, A[:, 0, 0]), rtol=1e-12)


def test_a_closure_over_an_outer_mapped_value():
    found = pb.vmap(lambda x: pb.vmap(lambda y: x + y)(np.arange(3.0)))(np.arange(2.0))
    np.testing.assert_array_equal(np.asarray(found), np.arange(2.0)[:, None] + np.arange(3.0))


def test_batch_of_size_one_and_zero():
    assert pb.vmap(lambda x: pb.sum(pb.sin(x)))(np.ones((1, 3))).shape == (1,)
    assert pb.vmap(lambda x: pb.sin(x))(np.ones((0, 3))).shape == (0, 3)


def test_gradients_for_each_example():
    w, x, y = RNG.standard_normal(3), RNG.standard_normal((6, 3)), RNG.standard_normal(6)
    def loss(w, x, y):
        return (pb.sum(w * x) - y) ** 2

    found = pb.vmap(pb.grad(loss), in_axes=(None, 0, 0))(w, x, y)
    np.testing.assert_allclose(np.asarray(found), 2 * (x @ w - y)[:, None] * x, rtol=1e-12)


def test_grad_through_vmap_and_back():
    w, x = RNG.standard_normal(3), RNG.standard_normal((6, 3))
    def f(w):
        return pb.sum(pb.vmap(lambda x: pb.tanh(pb.sum(w * x)))(x))

    expected = ((1 - np.tanh(x @ w) ** 2)[:, None] * x).sum(0)
    np.testing.assert_allclose(np.asarray(pb.grad(f)(w)), expected, rtol=1e-12)
    np.testing.assert_allclose(float(pb.jvp(f, (w,), (w,))[1]), expected @ w, rtol=1e-12)
    hessians = pb.vmap(pb.hessian(lambda x: pb.sum(x**3)))(x)
    np.testing.assert_allclose(np.asarray(hessians), 6 * x[:, :, None] * np.eye(3), rtol=1e-12)


def test_no_grad_inside_is_kept():
    def f(x):
        with pb.no_grad():
            y = x * x
        return x * y

    found = pb.grad(lambda x: pb.sum(pb.vmap(f)(x)))(np.array([2.0, 3.0]))
    np.testing.assert_array_equal(np.asarray(found), [4.0, 9.0])


def test_integer_and_bool_elements():
    found = pb.vmap(lambda i, m, x: pb.where(m, x[i], 0))(
        np.array([2, 0]), np.array([True, False]), np.arange(6.0).reshape(2, 3)
    )
    np.testing.assert_array_equal(np.asarray(found), [2.0, 0.0])


def test_mutation_inside():
    def f(x, v):
        y = x.copy()
        y[1] = v
        y += 1
        return y

    found = pb.vmap(f)(np.zeros((2, 3)), np.array([5.0, 7.0]))
    np.testing.assert_array_equal(np.asarray(found), [[1, 6, 1], [1, 8, 1]])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: pb.vmap(lambda x: x)(3.0), r"argument args\[0\] has shape \(\) and no axis 0"),
        (lambda: pb.vmap(lambda x: x, in_axes=-2)(np.ones(3)), r"shape \(3,\) and no axis -2"),
        (lambda: pb.vmap(lambda x, y: x)(np.ones(3), np.ones(4)),
         r"args\[0\] has 3, argument args\[1\] has 4 \(shape \(4,\), axis 0\)"),
        (lambda: pb.vmap(lambda d: d)({"a": np.ones(3), "b": [np.ones(2)]}), r"args\[0\]\['b'\]\[0\] has 2"),
        (lambda: pb.vmap(lambda x, **k: x)(np.ones(3), s=np.ones(2)), r"kwargs\['s'\] has 2"),
        (lambda: pb.vmap(lambda x: x, in_axes=(0, 0))(np.ones(3)), r"2 entries for 1 positional"),
        (lambda: pb.vmap(lambda x: x, in_axes=None)(np.ones(3)), r"no argument is mapped"),
        (lambda: pb.vmap(lambda x: x, in_axes=0.5)(np.ones(3)), r"in_axes must hold ints and None, got 0.5"),
        (lambda: pb.vmap(lambda x: x, in_axes=({"a": 0},))({"b": np.ones(3)}), r"in_axes.*does not fit"),
        (lambda: pb.vmap(lambda x: (x, x), out_axes=(0, None))(np.ones(3)), r"out_axes is None for result\[1\]"),
        (lambda: pb.vmap(lambda x: x, out_axes=1)(np.ones(3)), r"out_axes=1 puts out of range"),
        (lambda: pb.vmap(lambda x: x, out_axes=(0, 0))(np.ones(3)), r"out_axes.*does not fit"),
    ],
)
def test_shape_errors(call, message):
    with pytest.raises(pb.ShapeError, match=message):
        call()


@pytest.mark.parametrize(
    "use", [lambda x: x if x > 0 else -x, lambda x: float(x) * x, lambda x: x * int(np.asarray(x))],
    ids=["branch", "float", "array"],
)
def test_values_of_mapped_arguments_cannot_be_asked_for(use):
    with pytest.raises(pb.TraceError, match=r"test_vmap.py:\d+.*pb.where\(.*pb.cond\("):
        pb.vmap(use)(np.ones(3))


def test_results_must_be_tensors():
    with pytest.raises(pb.TraceError, match=r"returned a str at result\['a'\]"):
        pb.vmap(lambda x: {"a": "text"})(np.ones(3))
    with pytest.raises(pb.TraceError, match=r"kwargs\['s'\] is a str and cannot be mapped"):
        pb.vmap(lambda x, **k: x)(np.ones(3), s="text")


def test_a_value_that_outlives_its_vmap_says_so():
    kept = []
    pb.vmap(lambda x: kept.append(x * 2) or x)(np.ones(3))
    with pytest.raises(pb.TraceError, match=r"test_vmap.py"):
        np.asarray(kept[0])
