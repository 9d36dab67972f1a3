"""Tensor: a mutable name for a value. Operators, changes, copies, values out, gradients in PyTorch's style."""

import copy
import operator
import pickle

import numpy as np
import pytest

import pullback as pb

X = np.array([[1.0, -2.0, 3.5], [4.0, 0.5, -6.0]])

BINARY = [
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow,
    operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne,
]  # fmt: skip


@pytest.mark.parametrize("op", BINARY, ids=lambda f: f.__name__)
@pytest.mark.parametrize("other", [2.5, 2, True, np.float64(1.5), X[::-1].copy(), X[0], [1.0, 2.0, 3.0]], ids=repr)
def test_operators_and_their_reflections(op, other):
    x = np.abs(X)
    other_array = np.abs(np.asarray(other))
    got, reflected = op(pb.asarray(x), abs(other) if np.isscalar(other) else np.abs(other).tolist()), None
    np.testing.assert_allclose(np.asarray(got), op(x, other_array), rtol=1e-13)
    reflected = op(abs(other) if np.isscalar(other) else np.abs(other), pb.asarray(x))
    assert isinstance(reflected, pb.Tensor)
    np.testing.assert_allclose(np.asarray(reflected), op(other_array, x), rtol=1e-13)


@pytest.mark.parametrize("op", [operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift])
def test_integer_operators(op):
    a, b = np.array([5, 12, 7]), np.array([1, 2, 3])
    for other in (b, 2, pb.asarray(b)):
        plain = np.asarray(other)
        np.testing.assert_array_equal(np.asarray(op(pb.asarray(a), other)), op(a, plain))
        np.testing.assert_array_equal(np.asarray(op(other, pb.asarray(a))), op(plain, a))


def test_unary_operators():
    x = pb.asarray(X)
    for op in (operator.neg, operator.pos, operator.abs):
        np.testing.assert_array_equal(np.asarray(op(x)), op(X))
    np.testing.assert_array_equal(np.asarray(~(x > 0)), ~(X > 0))
    np.testing.assert_array_equal(np.asarray(round(x)), np.round(X))
    quotient, rest = divmod(x, 2)
    np.testing.assert_array_equal(np.asarray(quotient), X // 2)
    np.testing.assert_array_equal(np.asarray(rest), X % 2)


def test_operators_with_strangers():
    x = pb.ones(2)

    class Friend:
        def __radd__(self, other):
            return "friend"

    assert x + Friend() == "friend"
    for op in (operator.add, operator.matmul, operator.pow, operator.and_):
        with pytest.raises(TypeError):
            op(x, object())


# -- attributes --------------------------------------------------------------------------------------------------------


def test_attributes():
    x = pb.asarray(X)
    assert (x.shape, x.ndim, x.size, x.itemsize, x.nbytes, x.device) == ((2, 3), 2, 6, 8, 48, "cpu")
    assert x.dtype is pb.float64 and len(x) == 2
    assert x.__array_namespace__() is pb
    assert x.to_device("cpu") is x
    with pytest.raises(TypeError, match="0-d"):
        len(pb.asarray(1))


def test_hash_is_identity_and_equality_is_elementwise():
    x, y = pb.ones(2), pb.ones(2)
    assert len({x, y}) == 2 and x in {x} and {x: 1}[x] == 1
    assert (x == y).tolist() == [True, True]


def test_iteration_and_membership():
    x = pb.asarray(X)
    assert [row.tolist() for row in x] == X.tolist()
    assert 3.5 in x and 7 not in x
    a, b = pb.asarray([1, 2])
    assert (a.item(), b.item()) == (1, 2)
    with pytest.raises(TypeError, match="0-d"):
        iter(pb.asarray(1))


# -- values out --------------------------------------------------------------------------------------------------------


def test_python_values():
    assert float(pb.asarray(2.5)) == 2.5 and int(pb.asarray([2.7])) == 2 and complex(pb.asarray(1.0)) == 1
    assert isinstance(pb.asarray(2).item(), int) and isinstance(pb.asarray(True).item(), bool)
    assert pb.asarray(X).item(1, 2) == -6 and pb.asarray(X).tolist() == X.tolist()
    assert isinstance(pb.asarray(1.5, dtype="bfloat16").item(), float)
    assert [10, 20, 30][pb.asarray(1)] == 20 and list(range(pb.asarray(3))) == [0, 1, 2]
    assert bool(pb.asarray(1)) and not pb.asarray([0.0])
    for bad in (float, int, bool, complex, lambda x: x.item()):
        with pytest.raises(pb.ShapeError):
            bad(pb.ones(2))
    with pytest.raises(pb.ShapeError):
        bool(pb.ones(0))
    for bad in (pb.asarray(1.0), pb.asarray([1])):
        with pytest.raises(pb.DTypeError):
            [1, 2][bad]


def test_values_are_not_available_while_tracing():
    def branches(x):
        if x > 0:
            return x
        return -x

    for bad in (branches, lambda x: float(x), lambda x: [1, 2][x], lambda x: x.numpy(), lambda x: x.tolist()):
        with pytest.raises(pb.TraceError, match=r"pb\.where") as raised:
            pb.jit(bad)(pb.asarray(1))
        assert "test_tensor.py" in str(raised.value)
    with pytest.raises(pb.TraceError):
        pb.vmap(branches)(pb.ones(3))


# -- changes -----------------------------------------------------------------------------------------------------------


def test_in_place_operators_rebind():
    x = pb.asarray(X)
    alias, before = x, x.copy()
    x += 1
    x *= pb.asarray([1.0, 2.0, 3.0])
    x -= X
    x /= 2
    x **= 2
    x //= 0.5
    x %= 7
    expected = ((((X + 1) * [1, 2, 3] - X) / 2) ** 2) // 0.5 % 7
    np.testing.assert_allclose(np.asarray(x), expected)
    assert alias is x
    np.testing.assert_array_equal(np.asarray(before), X)
    i = pb.asarray([5, 6])
    i &= 4
    i |= 1
    i ^= 3
    i <<= 2
    i >>= 1
    assert i.tolist() == [((((v & 4) | 1) ^ 3) << 2) >> 1 for v in (5, 6)]
    m = pb.eye(2)
    m @= 2 * pb.eye(2)
    assert m.tolist() == [[2, 0], [0, 2]]


def test_in_place_operators_keep_dtype_and_shape():
    x = pb.ones(3, dtype="float32")
    x += np.ones(3)
    assert x.dtype is pb.float32 and x.tolist() == [2, 2, 2]
    with pytest.raises(pb.ShapeError, match="shape"):
        x += pb.ones((2, 3))
    i = pb.ones(3, dtype="int32")
    i += 1
    assert i.dtype is pb.int32
    for bad in (0.5, pb.ones(3)):
        with pytest.raises(pb.DTypeError, match="int32"):
            i += bad
    with pytest.raises(pb.DTypeError):
        i /= 2


def test_assign():
    x = pb.zeros((2, 2))
    assert x.assign([[1, 2], [3, 4]]) is x
    assert x.tolist() == [[1, 2], [3, 4]]
    x.assign(5)
    assert x.tolist() == [[5, 5], [5, 5]] and x.dtype is pb.float32
    x.assign(np.ones(2))
    assert x.tolist() == [[1, 1], [1, 1]]
    with pytest.raises(pb.ShapeError, match="assign"):
        x.assign(np.ones(3))
    with pytest.raises(pb.ShapeError, match="assign"):
        x.assign(np.ones((3, 2, 2)))
    i = pb.zeros(2, dtype="int32")
    with pytest.raises(pb.DTypeError, match="assign"):
        i.assign(pb.ones(2))


def test_copies():
    x = pb.asarray(X)
    for copied in (copy.copy(x), copy.deepcopy(x), x.copy(), pickle.loads(pickle.dumps(x))):
        assert copied is not x and copied.dtype is x.dtype and copied.shape == x.shape
        copied[0] = 0
        np.testing.assert_array_equal(np.asarray(x), X)
    w = pb.tensor([1.0, 2.0], requires_grad=True)
    w.grad = pb.ones(2)
    deep = copy.deepcopy({"w": w, "again": w})
    assert deep["w"] is deep["again"] and deep["w"].requires_grad and deep["w"].grad.tolist() == [1, 1]
    (3 * deep["w"]).sum().backward()
    assert deep["w"].grad.tolist() == [4, 4] and w.grad.tolist() == [1, 1]
    loaded = pickle.loads(pickle.dumps(w))
    assert loaded.requires_grad and loaded.tolist() == [1, 2]


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
def test_pickle(dtype, shape):
    x = pb.ones(shape, dtype=dtype)
    loaded = pickle.loads(pickle.dumps(x))
    assert loaded.dtype is x.dtype and loaded.shape == shape
    np.testing.assert_array_equal(np.asarray(loaded), np.asarray(x))


def test_methods():
    x = pb.asarray(X)
    for got, expected in (
        (x.reshape(3, 2), X.reshape(3, 2)), (x.reshape((3, -1)), X.reshape(3, 2)), (x.reshape(-1), X.ravel()),
        (x.transpose(), X.T), (x.transpose(1, 0), X.T), (x.transpose((1, 0)), X.T), (x.T, X.T), (x.flatten(),
        X.ravel()),
        (x.ravel(), X.ravel()), (x.reshape(1, 2, 3).squeeze(), X), (x.swapaxes(0, 1), X.T), (x.clip(0, 1),
        X.clip(0, 1)),
        (x.clip(max=1), X.clip(max=1)), (x.round(), X.round()), (x.dot(X.T), X @ X.T), (x.take([0, 2], 1),
        X[:, [0, 2]]),
        (x.repeat(2, 0), X.repeat(2, 0)), (x.astype("int32"), X.astype("int32")), (x.argsort(), X.argsort()),
    ):  # fmt: skip
        np.testing.assert_array_equal(np.asarray(got), expected)


# -- gradients ---------------------------------------------------------------------------------------------------------


def test_backward_fills_grad():
    x = pb.tensor([1.0, 2.0], requires_grad=True)
    assert x.requires_grad and x.grad is None and (x * 2).requires_grad
    (x * x).sum().backward()
    (3 * x).sum().backward()
    assert x.grad.tolist() == [5, 7]
    x.grad = None
    (x * x).backward(pb.asarray([1.0, 10.0]))
    assert x.grad.tolist() == [2, 40]


def test_detach_and_no_grad():
    x = pb.tensor(2.0, requires_grad=True)
    assert not x.detach().requires_grad
    y = x * x.detach()
    y.backward()
    assert x.grad.item() == 2
    with pb.no_grad():
        assert not (x * 2).requires_grad
    assert pb.grad(lambda a: a * a.detach())(pb.asarray(3.0)).item() == 3


def test_requires_grad_can_be_taken_back():
    x = pb.ones(2).requires_grad_()
    x.requires_grad = False
    assert not x.requires_grad and not (x + 1).requires_grad
    x.requires_grad = True
    assert x.requires_grad


def test_changing_a_leaf():
    x = pb.tensor([1.0, 2.0], requires_grad=True)
    for bad in (lambda: operator.iadd(x, 1), lambda: operator.setitem(x, 0, 1.0)):
        with pytest.raises(pb.GradientError, match="no_grad"):
            bad()
    with pb.no_grad():
        x -= 0.5
        x[0] = 7
    x.assign(x + 1)
    assert x.requires_grad and x.tolist() == [8, 2.5]
    (x * x).sum().backward()
    assert x.grad.tolist() == [16, 5]


def test_writes_into_a_constant_carry_gradients():
    w = pb.tensor(3.0, requires_grad=True)
    x = pb.zeros(3)
    x[1] = w * w
    x += w
    x.sum().backward()
    assert w.grad.item() == 6 + 3


def test_gradient_errors():
    with pytest.raises(pb.GradientError, match="int64"):
        pb.asarray([1, 2]).requires_grad_()
    x = pb.ones(2)
    with pytest.raises(pb.ShapeError, match="grad"):
        x.grad = pb.ones(3)
    x.grad = np.array([1, 2])
    assert x.grad.tolist() == [1, 2]


def test_a_training_loop_does_not_grow():
    from pullback.graph.node import topological_order

    w = pb.tensor(np.ones(3), requires_grad=True)
    for _ in range(5):
        w.grad = None
        ((w * w).sum()).backward()
        with pb.no_grad():
            w -= 0.1 * w.grad
        pb.eval(w)
    assert len(topological_order([w.node])) <= 3
    np.testing.assert_allclose(w.tolist(), 0.8**5)
