"""Activations, gates, linear, softmax, dropout and embedding of ``pb.nn``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import pullback as pb
from tests.functions.row import Row, integers, normal, spread

F = pb.nn.functional

# Values on both sides of 0 and of every kink of the piecewise ones, none of them on one.
X = spread(-4.3, 4.1, 3, 6)


def _quick(t: Any) -> Callable[..., Any]:
    return lambda x: x * t.sigmoid(1.702 * x)


def _linear(note: str, activation: Any = None, there: Any = None) -> Row:
    """there: given torch, its activation."""

    def peer(t: Any) -> Any:
        follow = there(t) if there is not None else lambda x: x
        return lambda *operands: follow(t.nn.functional.linear(*operands))

    arrays = (normal(3, 2, 5, seed=1), normal(4, 5, seed=2), normal(4, seed=3))
    return Row("nn.linear", lambda *a: pb.nn.linear(*a, activation=activation), arrays, note=note, torch=peer)


def _swiglu(t: Any, axis: int) -> Callable[..., Any]:
    def function(x: Any) -> Any:
        a, b = x.chunk(2, axis)
        return t.nn.functional.silu(a) * b

    return function


def _activation(name: str, note: str = "", *args: Any, torch_name: str | None = None, x: Any = X) -> Row:
    found = torch_name or name
    return Row(
        f"nn.{name}", lambda x: getattr(F, name)(x, *args), (x,), note=note,
        torch=lambda t: lambda x: getattr(t.nn.functional, found)(x, *args),
    )


ROWS = [
    _activation("relu"), _activation("relu", "0-d", x=np.array(1.3)), _activation("relu", "empty", x=np.zeros((0, 3))),
    _activation("relu6", x=spread(-3.1, 8.2, 3, 6)),
    _activation("leaky_relu"), _activation("leaky_relu", "0.3", 0.3), _activation("leaky_relu", "negative", -0.5),
    _activation("elu"), _activation("elu", "0.7", 0.7),
    _activation("celu"), _activation("celu", "2", 2.0),
    _activation("selu"),
    _activation("gelu"), _activation("gelu", "0-d", x=np.array(-0.8)),
    Row("nn.gelu", lambda x: F.gelu(x, "tanh"), (X,), note="tanh",
        torch=lambda t: lambda x: t.nn.functional.gelu(x, approximate="tanh")),
    Row("nn.gelu", lambda x: F.gelu(x, approximate="quick"), (X,), note="quick", torch=_quick),
    _activation("silu"), _activation("mish"),
    Row("nn.sigmoid", F.sigmoid, (X,), torch=lambda t: t.sigmoid),
    Row("nn.tanh", F.tanh, (X,), torch=lambda t: t.tanh),
    _activation("hardswish"), _activation("hardsigmoid"),
    _activation("hardtanh"), _activation("hardtanh", "wide", -2.2, 3.3),
    _activation("softplus"), _activation("softplus", "2", 2.0), _activation("softplus", "threshold", 1.0, 2.03),
    _activation("softsign"), _activation("log_sigmoid", torch_name="logsigmoid"), _activation("tanhshrink"),
    _activation("hardshrink"), _activation("hardshrink", "1.1", 1.1),
    _activation("softshrink"), _activation("softshrink", "1.1", 1.1), _activation("threshold", "", 0.31, -2.0),
    Row("nn.prelu", F.prelu, (X, np.array(0.3)), note="number",
        torch=lambda t: lambda x, w: t.nn.functional.prelu(x, w.reshape(1))),
    Row("nn.prelu", F.prelu, (X, spread(-1, 1, 6)), note="channels", torch=lambda t: t.nn.functional.prelu),
    Row("nn.prelu", F.prelu, (spread(-4, 4, 2, 3, 2, 2), spread(-1, 1, 3)), note="image",
        torch=lambda t: t.nn.functional.prelu),
    _activation("glu"), _activation("glu", "axis 0", 0, x=X.T), _activation("glu", "axis -2", -2, x=normal(2, 4, 3)),
    Row("nn.geglu", F.geglu, (X,), torch=lambda t: lambda x: t.nn.functional.gelu(x[..., :3]) * x[..., 3:]),
    Row("nn.geglu", lambda x: F.geglu(x, 0, "tanh"), (X.T,), note="axis 0, tanh",
        torch=lambda t: lambda x: t.nn.functional.gelu(x[:3], approximate="tanh") * x[3:]),
    Row("nn.swiglu", F.swiglu, (X,), torch=lambda t: _swiglu(t, -1)),
    Row("nn.swiglu", lambda x: F.swiglu(x, 0), (X.T,), note="axis 0", torch=lambda t: _swiglu(t, 0)),
    _linear(""), _linear("gelu", "gelu", lambda t: t.nn.functional.gelu),
    _linear("function", pb.tanh, lambda t: t.tanh), _linear("gate", "swiglu", lambda t: _swiglu(t, -1)),
    _activation("softmax", "", -1), _activation("softmax", "axis 0", 0), _activation("softmax", "middle", 1,
                                                                                     x=normal(2, 3, 4)),
    Row("nn.softmax", lambda x: F.softmax(x, (0, 2)), (normal(2, 3, 4),), note="two axes"),
    _activation("softmax", "empty", 1, x=np.zeros((2, 0))), _activation("softmax", "no rows", -1, x=np.zeros((0, 3))),
    _activation("softmin", "", -1), _activation("softmin", "axis -2", -2),
    _activation("log_softmax", "", -1), _activation("log_softmax", "axis 0", 0),
    Row("nn.log_softmax", lambda x: F.log_softmax(x, (1, 2)), (normal(2, 3, 4),), note="two axes"),
    Row("nn.dropout", lambda x: F.dropout(x, 0.4, key=pb.random.key(3)), (X,), vmap=False),
    Row("nn.dropout", lambda x: F.dropout(x, 0.4, training=False), (X,), note="eval",
        torch=lambda t: lambda x: t.nn.functional.dropout(x, 0.4, training=False)),
    Row("nn.dropout", lambda x: F.dropout(x, 1.0), (X,), note="all",
        torch=lambda t: lambda x: t.nn.functional.dropout(x, 1.0)),
    Row("nn.dropout1d", lambda x: F.dropout1d(x, 0.4, key=pb.random.key(3)), (normal(2, 3, 2),), vmap=False),
    Row("nn.dropout2d", lambda x: F.dropout2d(x, 0.4, key=pb.random.key(3)), (normal(2, 3, 2, 2),), vmap=False),
    Row("nn.dropout3d", lambda x: F.dropout3d(x, 0.4, key=pb.random.key(3)), (normal(4, 2, 1, 2),), vmap=False),
    Row("nn.alpha_dropout", lambda x: F.alpha_dropout(x, 0.4, key=pb.random.key(3)), (X,), vmap=False),
    Row("nn.alpha_dropout", lambda x: F.alpha_dropout(x, 0.4, training=False), (X,), note="eval",
        torch=lambda t: lambda x: t.nn.functional.alpha_dropout(x, 0.4, training=False)),
    Row("nn.embedding", F.embedding, (integers(0, 5, 2, 4), normal(5, 3)), torch=lambda t: t.nn.functional.embedding),
    Row("nn.embedding", F.embedding, (np.array(3), normal(5, 3)), note="0-d",
        torch=lambda t: t.nn.functional.embedding),
    Row("nn.embedding", F.embedding, (np.zeros((0, 2), int), normal(5, 3)), note="empty",
        torch=lambda t: t.nn.functional.embedding),
    Row("nn.embedding", lambda i, w: F.embedding(i, w, 5), (integers(0, 5, 3, 2), normal(6, 3)), note="padding apart"),
    Row("nn.one_hot", lambda i: F.one_hot(i, 5), (integers(0, 5, 2, 3),),
        torch=lambda t: lambda i: t.nn.functional.one_hot(i, 5)),
]
