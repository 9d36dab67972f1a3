"""Bad input: an error of the package's own, which names the operation and says what to do."""

from __future__ import annotations

import numpy as np
import pytest

import pullback as pb
from pullback import nn, optim
from tests.backends import on_backend

x = pb.arange(6)
small = pb.ones(2, dtype="int8")
weight = nn.Parameter(np.ones(3, np.float32))

CASES = {
    "integer too large for a list": (lambda: pb.asarray([2**70]), OverflowError, "asarray: a Python integer"),
    "integer too large": (lambda: pb.asarray(2**63), OverflowError, "asarray: .*int64 .*no dtype is wider"),
    "integer too large for the other operand": (lambda: small + 300, OverflowError, "add: .*300.*int8.*wider dtype"),
    "integer too large to be stored": (lambda: small.__setitem__(0, 300), OverflowError, r"x\[index\].*300"),
    "negative power": (lambda: x**-2, ValueError, r"int64\[6\] to -2.*astype"),
    "in place": (lambda: x.__iadd__(1.5), TypeError, r"x \+= v: the result has dtype float32"),
    "no memory": (lambda: pb.zeros((2**40, 2**40)).tolist(), RuntimeError, "memory"),
    "more elements than 64 bits count": (lambda: pb.zeros((2**33, 2**33)).sum().item(), RuntimeError, "2..63 bytes"),
    "extent": (lambda: pb.zeros(2**70), ValueError, "zeros: extent .* 64 bits"),
    "copy forbidden": (lambda: pb.asarray([1], copy=False), ValueError, "asarray: .*copy"),
    "probability": (lambda: nn.Dropout(1.5), ValueError, "Dropout: p must be"),
    "probability of a wrong type": (lambda: nn.Dropout("half"), TypeError, "Dropout: p is a number"),
    "choice": (lambda: nn.gelu(pb.ones(2), approximate="no"), ValueError, "gelu: approximate"),
    "reduction": (lambda: nn.mse_loss(pb.ones(2), pb.ones(2), reduction="no"), ValueError, "mse_loss: reduction"),
    "batch size": (lambda: list(pb.data.batches(np.ones(3), batch_size=0)), ValueError, "batches: batch_size"),
    "learning rate": (lambda: optim.SGD([weight], lr=-1.0), ValueError, "SGD: lr must not"),
    "learning rate of a wrong type": (lambda: optim.SGD([weight], lr="0.1"), TypeError, "lr: a number .*'0.1'"),
    "no parameters": (lambda: optim.SGD([], lr=0.1), ValueError, "SGD: no parameters"),
    "a module for its parameters": (lambda: optim.SGD(nn.Linear(2, 2), lr=0.1), ValueError, r"SGD.*\.parameters\(\)"),
    "a group without parameters": (lambda: optim.SGD([{"lr": 0.1}], lr=0.1), ValueError, "SGD: a group is"),
    "an unknown option": (lambda: optim.SGD([{"params": [weight], "a": 1}], lr=0.1), ValueError, "SGD: unknown option"),
    "threads": (lambda: pb.set_num_threads(0), ValueError, "set_num_threads"),
    "backend": (lambda: pb.set_backend("x"), ValueError, "set_backend"),
}


@pytest.mark.parametrize("name", CASES)
def test_bad_input(name):
    call, built_in, message = CASES[name]
    with pytest.raises(pb.PullbackError, match=message) as caught:
        call()
    assert isinstance(caught.value, built_in)


@pytest.mark.parametrize("backend", ["compiled", "reference"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_numbers_beyond_a_dtype_become_infinities_without_a_warning(dtype, backend):
    with on_backend(backend):
        one = pb.ones(2, dtype=dtype)
        for result in (one * 1e300, one.at[0].set(1e300)[:1], pb.full(2, 1e300, dtype=dtype), one / (one - 1)):
            assert np.isinf(np.asarray(result, np.float32)).all() and result.dtype == one.dtype
