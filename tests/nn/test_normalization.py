"""Normalisation: running statistics, modes, shapes, large inputs, and the modules against PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest

import pullback as pb
from pullback import nn
from pullback.errors import ArgumentError, DTypeError, ShapeError
from pullback.nn import functional as F
from tests.backends import on_backend


def sample(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


# -- running statistics ------------------------------------------------------------------------------------------------

SHAPES = {"BatchNorm1d": [(6, 3), (4, 3, 5)], "BatchNorm2d": [(2, 3, 4, 5)], "BatchNorm3d": [(2, 3, 2, 3, 2)],
          "InstanceNorm1d": [(4, 3, 5), (3, 5)], "InstanceNorm2d": [(2, 3, 4, 5), (3, 4, 5)],
          "InstanceNorm3d": [(2, 3, 2, 3, 2)]}
CASES = [(name, shape) for name, shapes in SHAPES.items() for shape in shapes]


@pytest.mark.parametrize(("name", "shape"), CASES)
@pytest.mark.parametrize("momentum", [0.1, None])
def test_training_and_eval_are_those_of_pytorch(name, shape, momentum):
    """Values, buffers and gradients over three batches, then in eval mode."""
    torch = pytest.importorskip("torch")
    if momentum is None and name.startswith("Instance"):
        pytest.skip("PyTorch's instance norm does not count batches and takes None as 0")
    options = {"momentum": momentum, "affine": True, "track_running_stats": True, "eps": 1e-3}
    ours = getattr(nn, name)(3, dtype=pb.float64, **options)
    theirs = getattr(torch.nn, name)(3, dtype=torch.float64, **options)
    weight, bias = sample(3, seed=1), sample(3, seed=2)
    ours.load_state_dict({"weight": weight, "bias": bias}, strict=False)
    theirs.load_state_dict({"weight": torch.tensor(weight), "bias": torch.tensor(bias)}, strict=False)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for batch in range(4):
        if batch == 3:
            ours.eval()
            theirs.eval()
        x, cotangent = 2 * sample(*shape, seed=batch) + 1, sample(*shape, seed=10 + batch)
        leaf = torch.tensor(x, requires_grad=True)
        expected = theirs(leaf)
        wanted = torch.autograd.grad(expected, [leaf, theirs.weight, theirs.bias], torch.tensor(cotangent))
        tensor = pb.asarray(x).requires_grad_()
        for parameter in ours.parameters():
            parameter.grad = None
        found = ours(tensor)
        pb.sum(found * cotangent).backward()
        np.testing.assert_allclose(np.asarray(found), expected.detach().numpy(), rtol=1e-9, atol=1e-9)
        for a, b in zip((tensor.grad, ours.weight.grad, ours.bias.grad), wanted, strict=True):
            np.testing.assert_allclose(np.asarray(a), b.numpy(), rtol=1e-8, atol=1e-8)
        for key, value in theirs.state_dict().items():
            if key == "num_batches_tracked" and name.startswith("Instance"):
                continue
            np.testing.assert_allclose(np.asarray(ours.state_dict()[key]), value.numpy(), rtol=1e-9, err_msg=key)


def test_instance_norm_without_momentum_averages_all_batches():
    layer = nn.InstanceNorm1d(2, momentum=None, track_running_stats=True, dtype=pb.float64)
    batches = [sample(3, 2, 4, seed=seed) for seed in range(3)]
    for x in batches:
        layer(pb.asarray(x))
    expected = np.mean([x.mean((0, 2)) for x in batches], axis=0)
    np.testing.assert_allclose(np.asarray(layer.running_mean), expected, rtol=1e-12)


def test_running_statistics_inside_jit():
    """They are rebound by each call, as outside."""
    layers = [nn.BatchNorm1d(3, dtype=pb.float64) for _ in range(2)]
    step = pb.jit(lambda x: layers[1](x))
    for batch in range(3):
        x = pb.asarray(sample(5, 3, seed=batch))
        np.testing.assert_allclose(np.asarray(step(x)), np.asarray(layers[0](x)), rtol=1e-12)
    for (name, a), (_, b) in zip(layers[0].named_buffers(), layers[1].named_buffers(), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-12, err_msg=name)
    assert int(layers[1].num_batches_tracked) == 3
    layers[1].eval()
    mean, var = layers[1].running_mean, layers[1].running_var
    np.testing.assert_allclose(
        np.asarray(step(x)), (np.asarray(x) - np.asarray(mean)) / np.sqrt(np.asarray(var) + 1e-5), rtol=1e-12
    )
    assert int(layers[1].num_batches_tracked) == 3


def test_a_jitted_training_step_updates_the_buffers_once():
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    optimizer = pb.optim.SGD(net.parameters(), lr=0.1)

    @pb.jit
    def step(x):
        optimizer.zero_grad()
        loss = pb.mean(net(x) ** 2)
        loss.backward()
        optimizer.step()
        return loss

    losses = [float(step(pb.asarray(sample(8, 3).astype(np.float32)))) for _ in range(5)]
    assert losses[-1] < losses[0]
    assert int(net[1].num_batches_tracked) == 5


def test_functional_gradients_update_the_buffers_too():
    net = nn.BatchNorm1d(2, dtype=pb.float64)
    x = pb.asarray(sample(4, 2))
    pb.grad(lambda model, x: pb.sum(model(x) ** 3))(net, x)
    np.testing.assert_allclose(np.asarray(net.running_mean), 0.1 * np.asarray(x).mean(0), rtol=1e-12)
    assert int(net.num_batches_tracked) == 1
    assert not net.running_mean.requires_grad


def test_without_running_statistics_the_batch_is_always_used():
    layer = nn.BatchNorm1d(3, affine=False, track_running_stats=False, dtype=pb.float64).eval()
    assert list(layer.state_dict()) == []
    x = sample(5, 3)
    expected = (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5)
    np.testing.assert_allclose(np.asarray(layer(pb.asarray(x))), expected, rtol=1e-10)


def test_reset_running_stats():
    layer = nn.BatchNorm1d(2)
    layer(pb.asarray(sample(4, 2).astype(np.float32)))
    layer.reset_running_stats()
    assert np.asarray(layer.running_mean).tolist() == [0, 0]
    assert np.asarray(layer.running_var).tolist() == [1, 1]
    assert int(layer.num_batches_tracked) == 0


def test_half_inputs_with_statistics_in_float32():
    layer = nn.BatchNorm1d(3, affine=False)
    x = pb.asarray(300 * sample(6, 3)).astype("float16")
    found = layer(x)
    assert found.dtype is pb.float16
    assert layer.running_var.dtype is pb.float32
    wide = np.asarray(x, np.float32)
    np.testing.assert_allclose(np.asarray(layer.running_var), 0.9 + 0.1 * wide.var(0, ddof=1), rtol=1e-5)
    expected = (wide - wide.mean(0)) / wide.std(0)
    np.testing.assert_allclose(np.asarray(found, np.float32), expected, rtol=2e-3, atol=1e-3)


def test_an_empty_batch_changes_nothing():
    layer = nn.BatchNorm1d(3)
    assert layer(pb.zeros((0, 3))).shape == (0, 3)
    assert np.asarray(layer.running_var).tolist() == [1, 1, 1]


def test_vmap_of_batch_norm():
    x = sample(4, 5, 3)
    found = pb.vmap(lambda x: F.batch_norm(x, None, None, training=True))(pb.asarray(x))
    loop = [np.asarray(F.batch_norm(pb.asarray(row), None, None, training=True)) for row in x]
    np.testing.assert_allclose(np.asarray(found), np.stack(loop), rtol=1e-12)


# -- large and small numbers -------------------------------------------------------------------------------------------

NORMS = {
    "layer_norm": lambda x: F.layer_norm(x, (5,)), "rms_norm": lambda x: F.rms_norm(x, (5,)),
    "group_norm": lambda x: F.group_norm(x, 2), "instance_norm": F.instance_norm,
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
}  # fmt: skip


@pytest.mark.parametrize("backend", ["reference", "compiled"])
@pytest.mark.parametrize("scale", [1e-19, 1e15, 1e19])
@pytest.mark.parametrize("name", NORMS)
def test_float32_of_any_size(name, scale, backend):
    """Values and gradients are those of float64, relative to the largest."""
    x, cotangent = sample(4, 6, 5) * scale, sample(4, 6, 5, seed=1)
    eps = {"rms_norm": np.finfo(np.float32).eps}.get(name)
    function = NORMS[name] if eps is None else lambda x: F.rms_norm(x, (5,), eps=eps)

    def both(dtype):
        value, pull = pb.vjp(function, pb.asarray(x.astype(np.float32).astype(dtype)))
        return np.asarray(value, np.float64), np.asarray(pull(pb.asarray(cotangent.astype(dtype)))[0], np.float64)

    with on_backend(backend):
        for found, expected in zip(both(np.float32), both(np.float64), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


def test_a_constant_row_is_0_with_a_finite_gradient():
    x = pb.full((2, 4), 3.0)
    np.testing.assert_array_equal(np.asarray(F.layer_norm(x, 4)), 0)
    gradient = pb.grad(lambda x: pb.sum(F.layer_norm(x, 4) * pb.arange(4.0)))(x)
    assert np.isfinite(np.asarray(gradient)).all()
    zeros = pb.grad(lambda x: pb.sum(F.rms_norm(x, 4)))(pb.zeros((2, 4)))
    assert np.isfinite(np.asarray(zeros)).all()


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_refusals():
    x = pb.ones((2, 4, 3))
    for call, error, match in (
        (lambda: F.layer_norm(x, 4), ShapeError, "normalized_shape"),
        (lambda: F.layer_norm(x, 3, pb.ones(4)), ShapeError, "weight"),
        (lambda: F.layer_norm(x, 3, pb.ones(3), pb.ones((1, 3))), ShapeError, "bias"),
        (lambda: F.rms_norm(x, (4, 3), pb.ones(3)), ShapeError, "weight"),
        (lambda: F.group_norm(x, 3), ArgumentError, "num_groups"),
        (lambda: F.group_norm(x, 0), ArgumentError, "num_groups"),
        (lambda: F.group_norm(x, 2, pb.ones(2)), ShapeError, "weight"),
        (lambda: F.batch_norm(pb.ones(3), None, None, training=True), ShapeError, "channel axis"),
        (lambda: F.batch_norm(pb.ones((1, 3)), None, None, training=True), ShapeError, "more than one value"),
        (lambda: F.batch_norm(x, None, None), ArgumentError, "running_mean"),
        (lambda: F.batch_norm(x, pb.zeros(3), pb.ones(3)), ShapeError, "running_mean"),
        (lambda: F.batch_norm(x, np.zeros(4), np.ones(4), training=True), DTypeError, "in place"),
        (lambda: F.batch_norm(x, pb.zeros(3), pb.ones(4), training=True), ShapeError, "running_mean"),
        (lambda: F.batch_norm(pb.arange(6).reshape(2, 3), None, None, training=True), DTypeError, "batch_norm"),
        (lambda: F.instance_norm(pb.ones((2, 3))), ShapeError, "after the channels"),
        (lambda: F.instance_norm(pb.ones((2, 3, 1))), ShapeError, "more than one value"),
        (lambda: F.instance_norm(x, use_input_stats=False), ArgumentError, "running_mean"),
        (lambda: nn.BatchNorm2d(4)(x), ShapeError, "BatchNorm2d"),
        (lambda: nn.InstanceNorm1d(4)(pb.ones(4)), ShapeError, "InstanceNorm1d"),
        (lambda: nn.GroupNorm(3, 4), ArgumentError, "GroupNorm"),
        (lambda: nn.GroupNorm(2, 6)(x), ShapeError, "GroupNorm"),
    ):
        with pytest.raises(error, match=match):
            call()


def test_group_norm_module():
    layer = nn.GroupNorm(2, 4, eps=1e-3, dtype=pb.float64)
    x = sample(3, 4, 5)
    np.testing.assert_allclose(
        np.asarray(layer(pb.asarray(x))), np.asarray(F.group_norm(pb.asarray(x), 2, eps=1e-3)), rtol=1e-12
    )
    assert [name for name, _ in layer.named_parameters()] == ["weight", "bias"]
    assert "2, 4" in repr(layer)
