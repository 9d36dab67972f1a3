"""explain and profile: what they say is what runs."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback import nn, optim
from pullback.compiler import explain
from pullback.compiler import program as program_module
from pullback.compiler.llvm.target import host
from pullback.errors import ArgumentError


def softmax_loss(x: Any) -> Any:
    return pb.sum(nn.softmax(x) ** 2)


def test_kernels_of_a_softmax_gradient() -> None:
    x = pb.asarray(np.random.default_rng(0).standard_normal((64, 128)).astype(np.float32))
    found = pb.explain(pb.grad(softmax_loss))(x)
    assert found.kernels == 1
    (program,) = found.programs
    (step,) = program.steps
    assert step.kind == "row"
    assert step.loops == "64 x 128r, 4 passes"
    assert "exp" in step.computes
    assert step.written == program.outputs == 64 * 128 * 4
    assert 0 <= step.read - step.written <= 16  # and the numbers in the formula
    assert 0 <= program.inputs - step.written <= 16
    assert step.flops > 64 * 128 * 10
    assert 0 < step.seconds < 1
    assert 0 < step.limit < 1
    assert step.share == step.limit / step.seconds <= 1 + 1e-9
    np.testing.assert_allclose(np.asarray(found.result), np.asarray(pb.grad(softmax_loss)(x)), rtol=1e-6)


def test_products_host_calls_and_gathers() -> None:
    def function(a: Any, b: Any, i: Any) -> Any:
        return pb.sort(a @ b, axis=0)[i]

    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((30, 40)), rng.standard_normal((40, 20))
    found = pb.explain(function)(a, b, np.array([3, 1]))
    kinds = [step.kind for step in found.steps]
    assert "product" in kinds
    assert "host" in kinds
    product = next(step for step in found.steps if step.kind == "product")
    assert product.loops == "30 x 40 x 20"
    assert product.flops == 2 * 30 * 40 * 20
    assert product.written == 30 * 20 * 8
    assert any("gather" in step.computes for step in found.steps)
    np.testing.assert_allclose(np.asarray(found.result), np.sort(a @ b, axis=0)[[3, 1]])


@pytest.mark.skipif(not host().is_x86, reason="other processors' baseline has a fused multiply-add")
def test_where_the_engine_has_no_tile_blas_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULLBACK_TARGET", "generic128")
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((3, 40, 30)), rng.standard_normal((30, 3, 20))
    x, w = rng.standard_normal((2, 3, 9, 9)), rng.standard_normal((4, 3, 3, 3))

    def function(a: Any, b: Any, x: Any, w: Any) -> Any:
        return pb.einsum("bmk,kbn->bmn", a, b), pb.grad(lambda w: pb.sum(nn.conv2d(x, w, stride=2) ** 2))(w)

    found = pb.explain(function)(a, b, x, w)
    products = [step for step in found.steps if step.kind == "product"]
    assert len(products) == 3
    assert all(step.computes == "float64 by BLAS" for step in products)
    monkeypatch.delenv("PULLBACK_TARGET")
    for value, other in zip(found.result, function(*map(pb.asarray, (a, b, x, w))), strict=True):
        np.testing.assert_allclose(np.asarray(value), np.asarray(other), rtol=1e-11)


def test_a_training_step_is_explained_and_happens_once() -> None:
    def train(explained: bool) -> list[np.ndarray[Any, Any]]:
        pb.random.seed(0)
        model = nn.Linear(4, 3)
        optimizer = optim.Adam(model.parameters(), lr=0.1)

        @pb.jit
        def step(x: Any, y: Any) -> Any:
            optimizer.zero_grad()
            loss = nn.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        x, y = np.linspace(-1, 1, 24, dtype=np.float32).reshape(6, 4), np.arange(6) % 3
        step(x, y)
        if explained:
            found = pb.explain(step)(x, y)
            assert found.compilations == 0
            assert all(s.compiled in ("known", "") for s in found.steps)
        else:
            step(x, y)
        return [np.array(p) for p in model.parameters()]

    for mine, plain in zip(train(True), train(False)):
        np.testing.assert_array_equal(mine, plain)


def test_where_the_code_came_from() -> None:
    x = np.linspace(0, 1, 7)
    function = lambda x: pb.cos(pb.exp(x) * 1.25 - pb.log1p(x))  # noqa: E731
    first = pb.explain(function)(x)
    assert first.compilations == 1
    assert first.steps[0].compiled == "llvm"
    assert first.compile_seconds == first.steps[0].compile_seconds > 0
    again = pb.explain(lambda x: pb.cos(pb.exp(x) * 1.25 - pb.log1p(x)))(x)
    assert again.compilations == 0
    assert again.steps[0].compiled == "known"


def test_text_json_and_html(tmp_path: Any) -> None:
    found = pb.explain(softmax_loss, verbose=True)(np.ones((4, 8), np.float32))
    text = str(found)
    assert "softmax_loss: 1 program" in text
    assert "reduce_maximum" in text.replace("...", "reduce_maximum")
    assert "define void @kernel" in text
    assert "row over 4 x 8r" in text
    assert "\tret" in text or "ret" in found.steps[0].texts["asm"]
    document = json.loads(found.to_json(str(tmp_path / "e.json")))
    assert json.loads((tmp_path / "e.json").read_text()) == document
    assert document["programs"][0]["steps"][0]["kind"] == "row"
    page = found.to_html(str(tmp_path / "e.html"))
    assert (tmp_path / "e.html").read_text() == page
    assert "<table>" in page
    assert "define void @kernel" in page
    assert pb.explain(softmax_loss, verbose="llvm")(np.ones((4, 8), np.float32)).steps[0].texts.keys() == {"llvm"}
    assert pb.explain(softmax_loss)(np.ones((4, 8), np.float32)).steps[0].texts == {}
    with pytest.raises(ArgumentError, match="what can be shown is 'ir', 'llvm', 'asm'"):
        pb.explain(softmax_loss, verbose="wasm")


def test_memory_of_a_step(tmp_path: Any) -> None:
    """Inputs, a constant of the function, a temporary that the output cannot take over, and the output."""
    constant = np.ones((50, 60), np.float32)

    def function(x: Any) -> Any:
        return pb.sum(pb.matrix_transpose(x @ constant) @ x, axis=0)

    x = np.ones((70, 50), np.float32)
    found = pb.explain(function)(x)
    (program,) = found.programs
    assert program.inputs == x.nbytes + constant.nbytes
    assert program.outputs == 50 * 4
    assert program.taken_over == 0
    assert program.live == 70 * 60 * 4 + 60 * 50 * 4
    assert program.live <= program.temporaries <= program.live + 2 * 4096
    assert found.peak == program.peak == program.inputs + program.outputs + program.temporaries + program.scratch
    assert program.needed <= program.peak
    document = json.loads(found.to_json())
    assert document["peak"] == document["programs"][0]["peak"] == found.peak
    assert document["programs"][0]["needed"] == program.needed
    assert document["kernels"] == found.kernels == 1
    assert {"seconds", "limit", "share", "read", "written", "flops", "compiled", "compile_seconds"} <= set(
        document["programs"][0]["steps"][0]
    )
    assert "between; peak" in str(found)
    assert "between; peak" in found.to_html()


def test_limits_are_not_below_what_was_reached() -> None:
    slow = explain.Limits(1e9, 1e9, 1e9, 1 << 20)
    step = explain.StepReport(0, "row", "", "", 1000, 1000, 8e6, seconds=1e-6)
    large = explain.StepReport(0, "row", "", "", 1 << 20, 1 << 20, None, seconds=1e-4)
    limits = slow.or_what_was_reached([step, large])
    assert limits.flops == pytest.approx(8e12)
    assert limits.memory == pytest.approx(2e4 * (1 << 20))
    assert limits.seconds(step) <= step.seconds * 1.0001
    assert limits.seconds(large) == pytest.approx(large.seconds)


def test_an_error_inside_leaves_nobody_watching() -> None:
    with pytest.raises(IndexError, match="index 9 is out of range"):
        pb.explain(lambda x, i: x[i])(np.ones(3), np.array([9]))
    assert program_module._observer is None
    with pytest.raises(ZeroDivisionError), pb.profile("/dev/null"):
        raise ZeroDivisionError
    assert program_module._observer is None


def test_a_trace_of_what_ran(tmp_path: Any) -> None:
    path = tmp_path / "trace.json"
    x = pb.asarray(np.random.default_rng(0).standard_normal((50, 60)))
    with pb.profile(str(path)):
        total = float(pb.sum(pb.sort(pb.tanh(x @ pb.matrix_transpose(x)), axis=1)))
    np.testing.assert_allclose(total, np.tanh(np.asarray(x) @ np.asarray(x).T).sum(), rtol=1e-9)
    events = json.loads(path.read_text())["traceEvents"]
    names = [event["name"] for event in events]
    assert any(name.startswith("product") for name in names)
    assert any(name.startswith("host: sort") for name in names)
    whole = [event for event in events if event["name"] == "program"]
    assert whole
    for event in events:
        assert event["ph"] == "X"
        assert event["dur"] >= 0
        assert 0 <= event["pid"] < 1 << 32
        assert 0 <= event["tid"] < 1 << 32  # more is cut off or dropped by viewers
    inside = sum(event["dur"] for event in events if event["name"] != "program")
    assert inside <= sum(event["dur"] for event in whole)
