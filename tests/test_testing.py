"""check_grads passes what is right and names what is wrong; assert_close names what differs."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pytest

import pullback as pb
from pullback import nn
from pullback.ops import elementwise as e
from pullback.ops.record import Jvp, Linear, Partials
from pullback.testing import assert_close, check_grads

RNG = np.random.default_rng(0)
W, B = RNG.normal(size=(3, 4)), RNG.normal(size=4)


def _fails(match, function, args, **options):
    with pytest.raises(pb.GradientError, match=match) as caught:
        check_grads(function, args, **options)
    return str(caught.value)


def _numbers(message):
    """The derivative and what differences give."""
    found = re.search(r" is (\S+), differences give (\S+) \(difference (\S+)\)", message)
    assert found is not None
    return float(found[1]), float(found[2])


@pytest.fixture
def wrong():
    """Gives an op another derivative until the test is over."""
    before = []

    def make(op, derivative):
        before.append((op, op.derivative))
        object.__setattr__(op, "derivative", derivative)

    yield make
    for op, derivative in reversed(before):
        object.__setattr__(op, "derivative", derivative)


# -- what is right -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("modes", [("fwd", "rev"), ("fwd",), ["rev"], "rev"])
def test_right_derivatives_pass(modes):
    def function(parameters, factor):
        hidden = pb.tanh(parameters["w"] @ parameters["b"]) * factor
        return {"mean": pb.mean(hidden), "all": [hidden, pb.exp(-hidden)]}

    check_grads(function, ({"w": W, "b": B}, 1.5), order=2, modes=modes)


def test_third_order():
    check_grads(lambda x: pb.sum(pb.sin(x) * x), (B,), order=3)


def test_arguments_of_any_kind():
    """Integers, bools and strings are passed as they are; float32 becomes float64."""
    @dataclass
    class Settings:
        scale: float
        count: int

    seen = []

    def function(settings, index, flag, name, x, weights):
        seen.append((type(settings.count), index.dtype, flag, name, x.dtype, settings.scale.dtype))
        picked = x[index] * settings.scale**settings.count
        return (picked if flag else x, pb.argmax(x), pb.sum(weights[0]) * 2.0)

    index = pb.asarray(np.array([2, 0]))
    check_grads(function, (Settings(1.5, 2), index, True, "name", B.astype(np.float32), [pb.asarray(B)]))
    assert set(seen) == {(int, pb.int64, True, "name", pb.float64, pb.float64)}


def test_modules_and_functions_of_nothing():
    model = nn.Linear(4, 2)
    check_grads(lambda m, x: pb.mean(m(x) ** 2), (model, RNG.normal(size=(3, 4))))
    check_grads(lambda x: x * 2, (np.zeros((0, 3)),))
    check_grads(lambda x, y: (x * 2, pb.zeros(3, dtype=pb.float64)), (np.array(1.0), np.array(2.0)))


def test_half_the_outputs_in_float32():
    check_grads(lambda x: (pb.sin(x), pb.sin(x).astype(pb.float32)), (B,), order=1, atol=2e-3, rtol=2e-3)


def test_a_large_argument():
    x = np.random.default_rng(1).normal(size=(40, 50))
    check_grads(lambda x: pb.sin(x) * pb.sum(x), (x,), order=1)


# -- the entry, the mode, the value, the line --------------------------------------------------------------------------


def test_the_entry_is_named_in_forward_mode():
    def function(parameters):
        y = pb.tanh(parameters["w"])
        wrong = y * np.where(np.arange(12).reshape(3, 4) == 6, 1.0, 0.0)
        return [parameters["b"], {"y": y - wrong + pb.stop_gradient(wrong)}]  # at [1, 2] the derivative is 0

    where = r"d output\[1\]\['y'\]\[1, 2\] / d args\[0\]\['w'\]\[1, 2\]"
    for mode in ("fwd", "rev"):
        message = _fails(rf"^check_grads: {mode}: {where} is ", function, ({"w": W, "b": B},), order=1, modes=(mode,))
        found, truth = _numbers(message)
        assert found == 0
        assert truth == pytest.approx(1 - np.tanh(W[1, 2]) ** 2, rel=1e-6)
        line = function.__code__.co_firstlineno + 3
        assert message.endswith(f"the output was made at {__file__}:{line}, in function")


@pytest.mark.parametrize("mode", ["fwd", "rev"])
def test_the_entry_is_found_among_many(mode):
    """By halving; the output's entry and the input's are different ones."""
    x = np.random.default_rng(1).normal(size=(30, 40))

    def function(x):
        y = pb.sin(x).T
        extra = x[17, 23] * 3.0
        return y.at[5, 11].add(pb.stop_gradient(extra))

    message = _fails(rf"{mode}: d output\[5, 11\] / d args\[0\]\[17, 23\] is 0", function, (x,), order=1, modes=mode)
    assert _numbers(message)[1] == pytest.approx(3, rel=1e-6)


def test_0d_arguments_and_outputs():
    message = _fails(r"fwd: d output / d args\[1\] is ", lambda x, y: x + pb.stop_gradient(y), (1.0, 2.0))
    assert _numbers(message) == pytest.approx((0, 1))


def _wrong_second_order(x):
    """x**2 whose first derivative is right and whose second is 0."""
    constant = pb.stop_gradient(x)
    return constant**2 + 2 * constant * (x - constant)


@pytest.mark.parametrize(
    ("modes", "chain"),
    [(("fwd",), "fwd then fwd: d tangent.output."), (("rev",), r"rev then rev: d gradient.args\[0\]."),
     (("fwd", "rev"), "fwd then fwd: d tangent.output.")],
)  # fmt: skip
def test_a_wrong_second_derivative(modes, chain):
    check_grads(_wrong_second_order, (B,), order=1, modes=modes)
    message = _fails(rf"^check_grads: {chain}\[\d\] / d args\[0\]\[\d\] is ", _wrong_second_order, (B,), modes=modes)
    found, truth = _numbers(message)
    assert found == 0
    assert truth != 0


def test_a_wrong_partial(wrong):
    partial = Partials(lambda node, x: (lambda: e.multiply(e.cos(x), 1.5),))
    wrong(e.SIN, partial)
    message = _fails(r"fwd: d output\[\d, \d\] / d args\[0\]\[\d, \d\] is ", lambda x: pb.sin(x) + x, (W,))
    found, truth = _numbers(message)
    assert (found - 1) / (truth - 1) == pytest.approx(1.5, rel=1e-6)


def test_modes_that_disagree(wrong):
    """A wrong transpose: forward mode is right, reverse mode is not."""
    wrong(pb.ops.movement.FLIP, Linear(lambda node, cotangent, index: cotangent))
    check_grads(lambda x: pb.sin(pb.flip(x)), (B,), modes=("fwd",), order=1)
    _fails(r"^check_grads: rev: d output\[\d\] / d args\[0\]\[\d\] is ", lambda x: pb.sin(pb.flip(x)), (B,))


def test_modes_that_disagree_by_less_than_differences_see(wrong):
    """Off by 1e-7, far below the error of differences, in one mode."""
    right = pb.ops.movement.FLIP.derivative
    wrong(
        pb.ops.movement.FLIP,
        Linear(lambda node, cotangent, index: e.multiply(right.transpose(node, cotangent, index), 1 + 1e-7)),
    )

    def function(x):
        return pb.sin(pb.flip(x))

    check_grads(function, (B,), modes=("rev",), order=1)
    _fails(r"^check_grads: fwd and rev disagree: <gradient, direction> is .*made at .*in function", function, (B,))
    check_grads(function, (B,), order=1, mode_rtol=1e-6)


def test_a_derivative_of_nan(wrong):
    wrong(e.SIN, Partials(lambda node, x: (lambda: e.log(e.negative(e.square(x))),)))
    for mode in ("fwd", "rev"):
        message = _fails(
            rf"{mode}: d output\[0\] / d args\[0\]\[0\] is nan, differences give 0.5",
            pb.sin, (np.array([np.pi / 3]),), modes=mode,
        )
        assert "made at" in message


def test_a_wrong_jvp(wrong):
    """The sum of the tangents instead of that of the largest."""
    maximum, total = pb.ops.reduction.REDUCE_MAX, pb.ops.reduction.reduce_sum
    wrong(maximum, Jvp(lambda node, tangents: total(tangents[0], node.attrs[0])))
    for mode in ("fwd", "rev"):
        message = _fails(rf"^check_grads: {mode}: d output / d args\[0\]\[\d\] is ", pb.max, (B,), modes=mode)
        assert _numbers(message) == pytest.approx((1, 0))


def test_a_kink_within_the_step_is_reported():
    _fails(r"fwd: d output\[1\] / d args\[0\]\[1\] is 1, differences give", nn.relu, (np.array([1.0, 1e-5]),))
    check_grads(nn.relu, (np.array([1.0, 1e-3]),))


def test_values_that_are_not_finite():
    _fails(r"output\[1\] is nan \(1 of 2 entries\)", pb.log, (np.array([1.0, -1.0]),))
    _fails(
        r"output\['a'\]\[0\] has, within .*, a difference quotient that is inf \(1 of 2",
        lambda x: {"a": 1 / pb.maximum(x, 0)}, (np.array([1e-5, 1.0]),), order=1,
    )
    check_grads(lambda x: pb.where(x > 0, x, -pb.inf), (B,))  # a constant infinity has the derivative 0
    edge = np.array([0.0, 1.0])
    _fails(r"output\[0\] has, within eps=0.0001 of args, a difference quotient that is nan", pb.sqrt, (edge,))


def test_what_cannot_be_checked():
    _fails("args hold no floating array", lambda n: n * 2.0, (3, np.array([1, 2])))
    _fails("returned no floating tensor", lambda x: x > 0, (B,))
    _fails("returned no floating tensor", lambda x: float(pb.sum(x)), (B,))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"order": 0}, "order must be an int of at least 1, got 0"), ({"order": True}, "order must be"),
        ({"order": 1.5}, "order must be"), ({"modes": ()}, "modes must be"), ({"modes": ("fwd", "back")}, "modes must"),
        ({"modes": "reverse"}, "modes must be 'fwd', 'rev' or both, got 'reverse'"), ({"eps": 0}, "eps must be"),
        ({"atol": -1.0}, "atol must be"), ({"rtol": np.nan}, "rtol must be"), ({"mode_rtol": -1}, "mode_rtol must"),
    ],
)  # fmt: skip
def test_bad_options(options, match):
    with pytest.raises(pb.ArgumentError, match=f"check_grads: {match}"):
        check_grads(pb.sin, (B,), **options)


def test_bad_arguments():
    with pytest.raises(pb.ArgumentError, match=r"args must be a tuple.*got ndarray; .* write \(x,\)"):
        check_grads(pb.sin, B)
    with pytest.raises(pb.ArgumentError, match="a function expected, got int"):
        check_grads(3, (B,))


# -- assert_close ------------------------------------------------------------------------------------------------------


def test_close_values_pass():
    assert_close(pb.ones(3), np.ones(3, np.float32) + 1e-6)
    assert_close({"a": [pb.ones(2), 1.0]}, {"a": [np.ones(2, np.float32), 1 + 1e-9]})
    assert_close(pb.asarray([1, 2]), np.array([1, 2]))
    assert_close(pb.asarray([True]), np.array([True]))
    assert_close(pb.asarray([np.inf, -np.inf]), np.array([np.inf, -np.inf], np.float32))
    assert_close(pb.ones(2, dtype="bfloat16"), pb.ones(2, dtype="bfloat16") * 1.01)
    assert_close(pb.asarray([np.nan, 1.0]), pb.asarray([np.nan, 1.0]), equal_nan=True)
    assert_close(pb.asarray([2**62 + 1]), np.array([2**62 + 1]))
    assert_close(pb.zeros((0, 3)), np.zeros((0, 3), np.float32))


@pytest.mark.parametrize(
    ("actual", "expected", "options", "match"),
    [
        (pb.ones(3), np.array([1, 1, 1.5], np.float32), {}, r"actual\[2\] is 1.0, expected 1.5 \(1 of 3 entries"),
        ({"a": [pb.ones((2, 2))]}, {"a": [np.eye(2, dtype=np.float32)]}, {}, r"actual\['a'\]\[0\]\[0, 1\] is 1.0"),
        (pb.asarray([2**62 + 1]), np.array([2**62]), {}, r"actual\[0\] is 4611686018427387905, expected"),
        (pb.ones(3), np.ones(3), {}, "actual has dtype float32, expected float64"),
        (pb.ones(3), np.ones(2, np.float32), {}, r"actual has shape \(3,\), expected \(2,\)"),
        ([pb.ones(1)], (pb.ones(1),), {}, "structures differ"),
        (pb.asarray([np.nan]), pb.asarray([np.nan]), {}, r"actual\[0\] is nan, expected nan"),
        (pb.asarray([np.nan, 2.0]), pb.asarray([1.0, 9.0]), {}, r"actual\[0\] is nan, expected 1.0 \(2 of 2"),
        (pb.asarray([np.inf]), pb.asarray([-np.inf]), {}, r"actual\[0\] is inf, expected -inf"),
        (pb.asarray([1.0]), pb.asarray([1.01]), {"rtol": 1e-3, "atol": 0}, "more than atol=0, rtol=0.001"),
        (True, False, {}, "actual is True, expected False"),
    ],
)  # fmt: skip
def test_differences_are_named(actual, expected, options, match):
    with pytest.raises(AssertionError, match=f"assert_close: .*{match}"):
        assert_close(actual, expected, **options)
