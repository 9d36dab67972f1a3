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


# -- linear and its like -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("left", "right"), [((2, 3), (3,)), ((5, 1, 2, 3), (4, 3)), ((2, 3), (4, 3)), ((0, 3), (3,))])
def test_matvec(left, right):
    a, b = draw(*left), draw(*right)
    close(pb.matvec(a, b), np.matvec(a, b))
    close(pb.vecmat(b, np.swapaxes(a, -1, -2)), np.vecmat(b, np.swapaxes(a, -1, -2)))


@pytest.mark.parametrize(
    ("left", "right"), [((2, 3), (4, 5)), ((2,), (3,)), ((2,), (2, 3, 4)), ((), (2, 2)), ((0,), (3,)), ((2, 3), ())]
)
def test_kron(left, right):
    a, b = draw(*left), draw(*right)
    close(pb.kron(a, b), np.kron(a, b))


def test_linear_and_bilinear():
    x, y, w, b = draw(5, 2, 3), draw(2, 4), draw(6, 3), draw(6)
    close(pb.linear(x, w, b), x @ w.T + b)
    close(pb.linear(x, w), x @ w.T)
    close(pb.linear(x, w[0], bias=2.0), x @ w[0] + 2)
    close(pb.linear(x, weight=w[:0]), np.zeros((5, 2, 0)))
    close(pb.linear(x[..., :0], w[:, :0], b), np.broadcast_to(b, (5, 2, 6)))
    tensor = draw(6, 3, 4)
    close(pb.bilinear(x, y, tensor, b), np.einsum("abi,kij,bj->abk", x, tensor, y) + b)
    close(pb.vdot(x, x.reshape(3, 10)), np.vdot(x, x))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "bool"])
def test_dtypes_of_products(dtype):
    a = pb.asarray(RNG.integers(0, 2, (3, 4))).astype(dtype)
    whole = np.asarray(a).astype(np.int64)
    for got, expected in (
        (pb.linear(a, a, a[:, 0]), whole @ whole.T + whole[:, 0]), (pb.kron(a, a), np.kron(whole, whole)),
        (pb.einsum("ij,kj->ki", a, a), whole @ whole.T), (pb.vdot(a, a), np.vdot(whole, whole)),
        (pb.outer(a, a), np.outer(whole, whole)), (pb.vecdot(a, a), (whole * whole).sum(-1)),
        (pb.tensordot(a, a, axes=2), np.vdot(whole, whole)), (pb.matvec(a, a[0]), whole @ whole[0]),
    ):  # fmt: skip
        assert got.dtype.name == dtype
        np.testing.assert_array_equal(np.asarray(got).astype(np.int64), expected > 0 if dtype == "bool" else expected)


def test_half_precision_rounds_results_alone():
    x, y = np.array([[300, 1]], np.float16), np.array([[300, -30000], [300, 2]], np.float16)
    assert pb.vecdot(x, y[:1]).tolist() == [60000] and pb.einsum("ij,ij->i", x, y[:1]).tolist() == [60000]
    assert pb.matvec(y[:1], x[0]).tolist() == [60000] and pb.vecdot(x, y).dtype is pb.float16


def test_products_over_nothing_are_zero():
    a, b = draw(2, 0), draw(0, 3)
    for got, shape in (
        (pb.einsum("ij,jk->ik", a, b), (2, 3)), (pb.tensordot(a, b, axes=1), (2, 3)), (pb.vecdot(a, a), (2,)),
        (pb.inner(a, a), (2, 2)), (pb.vdot(a, b), ()), (pb.einsum("ij,jk,kl->il", a, b, draw(3, 2)), (2, 2)),
        (pb.matvec(a, a[0]), (2,)), (pb.linear(a, a), (2, 2)),
    ):  # fmt: skip
        close(got, np.zeros(shape))
    gradient = pb.grad(lambda x: pb.sum(pb.einsum("ij,jk->ik", x, b)))(pb.asarray(a))
    assert gradient.shape == (2, 0)


PRODUCT_ERRORS = {
    "matvec": (r"matvec: shapes \(2, 3\) and \(4,\) do not fit", lambda: pb.matvec(draw(2, 3), draw(4))),
    "matvec rank": ("the matrix needs at least 2 axes", lambda: pb.matvec(draw(3), draw(3))),
    "vecmat": (r"vecmat: shapes \(4,\) and \(3, 2\)", lambda: pb.vecmat(draw(4), draw(3, 2))),
    "linear": (r"weight of shape \(outputs, 3\) .* got \(4, 2\)", lambda: pb.linear(draw(5, 3), draw(4, 2))),
    "linear bias": (r"bias of shape \(4,\) .* got \(3,\)", lambda: pb.linear(draw(5, 3), draw(4, 3), draw(3))),
    "linear 0-d": ("x needs at least 1 axis", lambda: pb.linear(1.0, draw(4, 3))),
    "bilinear": (r"\(outputs, 3, 4\)", lambda: pb.bilinear(draw(3), draw(4), draw(2, 4, 3))),
    "bilinear bias": ("bilinear: a bias", lambda: pb.bilinear(draw(3), draw(4), draw(2, 3, 4), draw(3))),
    "vdot": ("vdot: 6 elements", lambda: pb.vdot(draw(2, 3), draw(5))),
}


@pytest.mark.parametrize("case", PRODUCT_ERRORS)
def test_product_errors(case):
    message, call = PRODUCT_ERRORS[case]
    with pytest.raises(pb.ShapeError, match=message):
        call()


# -- einsum: forms and orders ------------------------------------------------------------------------------------------


def test_einsum_of_lists():
    a, b = draw(2, 3), draw(3, 4)
    close(pb.einsum(a, [0, 1], b, [1, 2], [0, 2]), a @ b)
    close(pb.einsum(a, [0, 1], b, [1, 2]), a @ b)
    close(pb.einsum(a, [30, 1], b, [1, 2]), np.einsum(a, [30, 1], b, [1, 2]))  # the result's labels are sorted
    close(pb.einsum(draw(5, 3, 3) * 0 + 2, [..., 7, 7]), np.full(5, 6.0))
    c = draw(3, 2)
    close(pb.einsum(a, [..., 1], c, [1, ...], [...]), np.einsum(a, [..., 1], c, [1, ...], [...]))
    with pytest.raises(pb.ShapeError, match="list of int labels"):
        pb.einsum(a, b)
    with pytest.raises(pb.ArgumentError, match="a label must be an integer, got 'a'"):
        pb.einsum(a, ["a", 1])
    close(pb.einsum(",ij->ji", 2.0, a), 2 * a.T)


LONG = [
    ("ab,bc,cd,de,ef->af", (2, 30), (30, 3), (3, 20), (20, 2), (2, 5)), ("a,b,c,d->dcba", (2,), (3,), (2,), (3,)),
    ("abc,bd,ce,def,fg->ag", (2, 3, 4), (3, 2), (4, 3), (2, 3, 5), (5, 2)), ("ab,ab,ab,ab->", *[(3, 4)] * 4),
    ("aab,bc,...c->...a", (3, 3, 2), (2, 4), (5, 4)), ("ij,jk,kl,lm,mn,no,op,pq,qr->ir", *[(3, 3)] * 9),
    ("a,ab,abc,b,c,ca,bb->c", (2,), (2, 3), (2, 3, 4), (3,), (4,), (4, 2), (3, 3)),
]  # fmt: skip


@pytest.mark.parametrize("case", LONG, ids=lambda c: c[0])
@pytest.mark.parametrize("optimize", [None, True, False, "greedy", "optimal"])
def test_every_order_gives_the_same(case, optimize):
    subscripts, *shapes = case
    operands = [draw(*shape) for shape in shapes]
    expected = np.einsum(subscripts, *operands, optimize=True)
    got = np.asarray(pb.einsum(subscripts, *operands, optimize=optimize))
    np.testing.assert_allclose(got, expected, rtol=1e-11, atol=1e-12)
    path, report = pb.einsum_path(subscripts, *operands, optimize=optimize)
    assert path[0] == "einsum_path" and len(path) == len(operands) and "multiplications" in report
    again = np.asarray(pb.einsum(subscripts, *operands, optimize=path))
    np.testing.assert_allclose(again, expected, rtol=1e-11, atol=1e-12)


def test_paths_of_numpy_are_followed():
    operands = [draw(2, 3), draw(3, 4), draw(4, 5), draw(5, 2)]
    expected = np.einsum("ab,bc,cd,da->", *operands)
    for path in (np.einsum_path("ab,bc,cd,da->", *operands)[0], [(0, 1, 2, 3)], [(1, 3)], [(-1, 0), (0, 1), (0, 1)]):
        close(pb.einsum("ab,bc,cd,da->", *operands, optimize=path), expected)


def _cost(subscripts, shapes, path):
    """Multiplications of a path, counted label by label."""
    left, right = subscripts.split("->")
    terms = [set(labels) for labels in left.split(",")]
    sizes = {}
    for labels, shape in zip(left.split(","), shapes, strict=True):
        sizes.update(zip(labels, shape, strict=True))
    total = 0
    for i, j in path:
        pair = terms[i] | terms[j]
        rest = [t for k, t in enumerate(terms) if k not in (i, j)]
        total += int(np.prod([sizes[label] for label in pair]))
        terms = [*rest, pair & set(right).union(*rest)]
    return total


def _all_paths(count):
    if count == 1:
        yield []
    for i in range(count):
        for j in range(i + 1, count):
            for rest in _all_paths(count - 1):
                yield [(i, j), *rest]


def test_the_order_has_the_fewest_multiplications():
    rng = np.random.default_rng(5)
    chain, ring, star = "ab,bc,cd,de->ae", "abx,bcx,cdx,dax->x", "abcd,ae,bf,cg->efgd"
    for subscripts in (chain, ring, star):
        for _ in range(5):
            extents = {label: int(n) for label, n in zip("abcdefgx", rng.integers(1, 12, 8), strict=True)}
            shapes = [tuple(extents[label] for label in labels) for labels in subscripts.split("->")[0].split(",")]
            path, _ = pb.einsum_path(subscripts, *[np.zeros(shape) for shape in shapes])
            best = min(_cost(subscripts, shapes, p) for p in _all_paths(4))
            kept = [shape for shape in shapes if 1 not in shape]
            if len(kept) == 4:  # axes of one element may be dropped, which changes what is counted
                assert _cost(subscripts, shapes, path[1:]) == best


def test_many_operands_take_no_time():
    import time

    count = 60
    letters = [chr(0x4E00 + k) for k in range(count + 1)]
    subscripts = ",".join(letters[k] + letters[k + 1] for k in range(count)) + "->" + letters[0] + letters[-1]
    start = time.perf_counter()
    path, _ = pb.einsum_path(subscripts, *[np.ones((2, 2))] * count)
    assert len(path) == count and time.perf_counter() - start < 2


EINSUM_MESSAGES = [
    ("ij,jk->ik", [(2, 3), (4, 5)], r"'j' has extent 3 in operand 0 \(shape \(2, 3\)\) and extent 4 in operand 1"),
    ("ii->i", [(2, 3)], "label 'i' has extent 2 in operand 0"), ("ii->i", [(1, 3)], "label 'i' has extent 1"),
    ("ij", [(2, 3, 4)], r"'ij' names 2 axes, operand 0 has 3 \(shape \(2, 3, 4\)\); write '...ij'"),
    ("i,ijk->i", [(2,), (2, 3)], "'ijk' names 3 axes, operand 1 has 2"), ("ij->ik", [(2, 3)], "output label 'k'"),
    ("ij->ii", [(2, 3)], "output label 'i' is repeated"), ("i1->i", [(2, 3)], "got 'i1' for operand 0"),
    ("ij,jk", [(2, 3)], "names 2 operands, 1 were given"), ("...i->i", [(2, 3)], "missing from the output"),
    ("...i,...i", [(2, 3), (4, 3)], r"an axis of '...' has extent 2 in operand 0"),
]  # fmt: skip


@pytest.mark.parametrize(("subscripts", "shapes", "message"), EINSUM_MESSAGES)
def test_einsum_messages(subscripts, shapes, message):
    with pytest.raises(pb.ShapeError, match=message):
        pb.einsum(subscripts, *[draw(*shape) for shape in shapes])


@pytest.mark.parametrize(
    ("op", "call"),
    [
        ("dot_general", lambda x: pb.matmul(x[:, None], x[None, :])),
        ("dot_general", lambda x: pb.linear(x[:, None], x[:, None])),
        ("dot_general", lambda x: pb.sum(pb.tensordot(x, x, axes=0).reshape(-1))),
        ("multiply", lambda x: pb.outer(x, x)),
        ("multiply", lambda x: pb.einsum("i,j->ij", x, x)),
    ],
)
def test_sizes_beyond_any_memory(op, call):
    """2**64 elements: nothing is allocated, nor does a number overflow."""
    x = pb.broadcast_to(pb.ones(1), (1 << 32,))
    with pytest.raises(pb.DeviceError, match=rf"{op}: .*2\*\*63 bytes or more.*made at .*test_contraction.py"):
        pb.eval(call(x))


@pytest.mark.parametrize("optimize", ["best", [(0, 2)], [(0, 0)], [0, 1], 3, [()]])
def test_wrong_orders(optimize):
    with pytest.raises(pb.ArgumentError, match="einsum"):
        pb.einsum("ij,jk->ik", draw(2, 3), draw(3, 4), optimize=optimize)


@pytest.mark.usefixtures("reference_backend")
@pytest.mark.parametrize("seed", range(40))
def test_random_einsums(seed):
    """Any number of operands, diagonals, labels of one operand, extents of 1: values, and gradients by linearity."""
    rng = np.random.default_rng(seed)
    extents = dict(zip("abcde", map(int, rng.integers(1, 4, 5)), strict=True))
    groups = ["".join(rng.choice(list("abcde"), size=int(rng.integers(0, 4)))) for _ in range(rng.integers(1, 5))]
    used = sorted(set("".join(groups)))
    output = "".join(rng.permutation([label for label in used if rng.random() < 0.5]))
    subscripts = ",".join(groups) + "->" + output
    operands = [rng.normal(size=[extents[label] for label in group]) for group in groups]
    expected = np.einsum(subscripts, *operands)
    got = np.asarray(pb.einsum(subscripts, *operands))
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=1e-11, atol=1e-12)
    cotangent = rng.normal(size=expected.shape)
    for k, gradient in enumerate(pb.vjp(lambda *xs: pb.einsum(subscripts, *xs), *operands)[1](cotangent)):
        direction = rng.normal(size=operands[k].shape)
        moved = np.einsum(subscripts, *[direction if i == k else x for i, x in enumerate(operands)])
        assert np.sum(np.asarray(gradient) * direction) == pytest.approx(np.sum(cotangent * moved), rel=1e-9, abs=1e-11)
