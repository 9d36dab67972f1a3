"""matmul in all ranks, dot, tensordot, einsum and their like, against NumPy; what their errors name."""

import numpy as np
import pytest

import pullback as pb

RNG = np.random.default_rng(0)


def draw(*shape):
    return RNG.normal(size=shape)


def close(got, expected):
    got = np.asarray(got)
    assert got.shape == np.shape(expected) and got.dtype == np.asarray(expected).dtype
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-13)


MATMUL = [
    ((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 4)), ((2, 3), (3, 4)), ((5, 2, 3), (3, 4)), ((2, 3), (5, 3, 4)),
    ((5, 2, 3), (5, 3, 4)), ((5, 2, 3), (3,)), ((3,), (5, 3, 4)), ((6, 1, 2, 3), (5, 3, 4)), ((1, 2, 3), (5, 3, 4)),
    ((6, 5, 2, 3), (6, 5, 3, 4)), ((6, 1, 2, 3), (1, 5, 3, 4)), ((1, 5, 2, 3), (6, 1, 3, 4)), ((6, 1, 2, 3),
    (6, 5, 3, 4)),
    ((2, 0), (0, 3)), ((0, 3), (3, 2)), ((4, 0, 2), (2, 3)), ((1, 1), (1, 1)), ((1, 1, 2, 3), (3, 4)),
]  # fmt: skip


@pytest.mark.parametrize(("left", "right"), MATMUL)
def test_matmul(left, right):
    a, b = draw(*left), draw(*right)
    close(pb.matmul(a, b), np.matmul(a, b))
    close(pb.asarray(a) @ b, a @ b)
    close(a @ pb.asarray(b), a @ b)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int32", "uint8", "bool"])
def test_matmul_dtypes(dtype):
    a, b = RNG.integers(0, 2, (4, 6)), RNG.integers(0, 2, (6, 3))
    got = pb.asarray(a).astype(dtype) @ pb.asarray(b).astype(dtype)
    assert got.dtype.name == dtype
    expected = (a @ b) > 0 if dtype == "bool" else a @ b
    np.testing.assert_array_equal(np.asarray(got).astype(np.float64), expected)


def test_matmul_promotes():
    assert (pb.ones((2, 2), dtype="int8") @ pb.ones((2, 2))).dtype is pb.float32


@pytest.mark.parametrize(
    ("left", "right"),
    [((), (3,)), ((3,), ()), ((2, 3), (2, 3)), ((3,), (4,)), ((5, 2, 3), (4, 3, 2)), ((2, 3), (4,)), ((3,), (4, 2))],
)
def test_matmul_errors_name_both_shapes(left, right):
    a, b = pb.ones(left), pb.ones(right)
    with pytest.raises(pb.ShapeError) as raised:
        a @ b
    assert "matmul" in str(raised.value) and str(left) in str(raised.value) and str(right) in str(raised.value)


@pytest.mark.parametrize(
    ("left", "right"),
    [((), (3,)), ((3,), (3,)), ((2, 3), (3,)), ((2, 3), (3, 4)), ((5, 2, 3), (6, 3, 4)), ((2,), (3, 2, 4))],
)
def test_dot(left, right):
    a, b = draw(*left), draw(*right)
    close(pb.dot(a, b), np.dot(a, b))
    close(pb.asarray(a).dot(b), np.dot(a, b))


def test_inner_outer_vecdot():
    a, b = draw(2, 3), draw(4, 3)
    close(pb.inner(a, b), np.inner(a, b))
    close(pb.inner(2.0, a), np.inner(2.0, a))
    close(pb.outer(a, b), np.outer(a, b))
    close(pb.vecdot(a, draw(5, 1, 3) * 0 + b[:2]), np.broadcast_to((a * b[:2]).sum(-1), (5, 2)))
    close(pb.vecdot(a, a, axis=0), (a * a).sum(0))
    close(pb.vecdot(a[0], b[0]), a[0] @ b[0])
    for bad in (lambda: pb.inner(a, draw(2)), lambda: pb.vecdot(a, draw(2, 2)), lambda: pb.dot(a, a)):
        with pytest.raises(pb.ShapeError):
            bad()


@pytest.mark.parametrize("axes", [0, 1, 2, ([1], [0]), ([0, 1], [1, 0]), (0, 1), ([-1], [-2])])
def test_tensordot(axes):
    a, b = draw(3, 3), draw(3, 3)
    close(pb.tensordot(a, b, axes=axes), np.tensordot(a, b, axes=axes))


def test_tensordot_errors():
    a, b = draw(2, 3), draw(4, 5)
    for axes in (1, 3, -1, ([0, 1], [0]), ([0],), ([0], [5])):
        with pytest.raises(pb.ShapeError, match="tensordot"):
            pb.tensordot(a, b, axes=axes)


EINSUM = [
    ("i,i->", (3,), (3,)), ("ij,jk->ik", (2, 3), (3, 4)), ("ij,jk", (2, 3), (3, 4)), ("ij->ji", (2, 3)), ("ij", (2, 3)),
    ("ji", (2, 3)), ("ij->", (2, 3)), ("ij->i", (2, 3)), ("ii->i", (3, 3)), ("ii", (3, 3)), ("ii->", (3, 3)),
    ("iij->j", (3, 3, 2)), ("iii->i", (2, 2, 2)), ("bij,bjk->bik", (5, 2, 3), (5, 3, 4)), ("i,j->ij", (2,), (3,)),
    ("ij,ij->ij", (2, 3), (2, 3)), ("ij,j->ij", (2, 3), (3,)), ("ij,kj->ik", (2, 3), (4, 3)),
    ("...ij,...jk->...ik", (5, 2, 3), (3, 4)), ("...ij,...jk->...ik", (6, 1, 2, 3), (5, 3, 4)), ("...i->...", (2, 3)),
    ("i...->...i", (2, 3, 4)), ("...", (2, 3)), ("...,...->...", (2, 3), (3,)), ("...i,...i", (2, 3), (3,)),
    ("ij,jk,kl->il", (2, 3), (3, 4), (4, 5)), ("ij,jk,kl->", (2, 3), (3, 4), (4, 5)), ("a,b,c->cab", (2,), (3,), (4,)),
    ("ijk,jil->kl", (2, 3, 4), (3, 2, 5)), ("bqhd,bkhd->bhqk", (2, 3, 4, 5), (2, 6, 4, 5)), ("i,ij,j->", (2,), (2, 3),
    (3,)),
    ("ij,ik->i", (2, 3), (2, 4)), ("ij,kl->", (2, 3), (4, 5)), (" i j , j k -> k i ", (2, 3), (3, 4)),
    ("ij,jk->ik", (1, 3), (3, 1)), ("ij,ij->i", (2, 1), (2, 3)), ("i,i", (1,), (4,)), ("ij->j", (0, 3)),
    ("ij,jk->ik", (2, 0), (0, 3)), ("...ab,...bc->...ac", (1, 2, 3), (4, 3, 2)), ("AbC,b->CA", (2, 3, 4), (3,)),
]  # fmt: skip


@pytest.mark.parametrize("case", EINSUM, ids=str)
def test_einsum(case):
    subscripts, *shapes = case
    operands = [draw(*shape) for shape in shapes]
    close(pb.einsum(subscripts, *operands), np.einsum(subscripts, *operands))


def test_einsum_of_integers_and_bools():
    a, b = RNG.integers(-5, 5, (2, 3)), RNG.integers(-5, 5, (3, 4))
    close(pb.einsum("ij,jk->ki", a, b), np.einsum("ij,jk->ki", a, b))
    got = pb.einsum("ij->i", a > 0)
    np.testing.assert_array_equal(np.asarray(got), (a > 0).any(1))


@pytest.mark.parametrize(
    ("subscripts", "shapes"),
    [
        ("ij,jk", [(2, 3)]), ("ij", [(2, 3, 4)]), ("ijk", [(2, 3)]), ("ij,jk->ik", [(2, 3), (4, 5)]),
        ("ij->ik", [(2, 3)]),
        ("ij->ii", [(2, 3)]), ("i1->i", [(2, 3)]), ("ii->i", [(2, 3)]), ("...i->i", [(2, 3)]), ("i.j", [(2, 3)]),
        ("...,...->...", [(2, 3), (4,)]),
    ],
)  # fmt: skip
def test_einsum_errors(subscripts, shapes):
    with pytest.raises(pb.ShapeError, match="einsum"):
        pb.einsum(subscripts, *[draw(*shape) for shape in shapes])


def test_gradients():
    from pullback.testing import check_grads

    for case in (
        ((2, 3), (3, 4)), ((6, 1, 2, 3), (5, 3, 4)), ((3,), (5, 3, 4)), ((5, 2, 3), (3,)),
    ):  # fmt: skip
        check_grads(pb.matmul, [pb.asarray(draw(*shape)) for shape in case])
    for subscripts, *shapes in (
        ("iij,jk->k", (2, 2, 3), (3, 4)), ("...ij,...jk->...ik", (2, 2, 3), (3, 2)), ("ij,jk,kl->", (2, 3), (3, 2),
        (2, 3)),
        ("ij,ij->i", (2, 1), (2, 3)),
    ):  # fmt: skip
        check_grads(lambda *a, s=subscripts: pb.einsum(s, *a), [pb.asarray(draw(*shape)) for shape in shapes])
