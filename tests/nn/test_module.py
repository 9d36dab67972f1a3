"""Modules: what they find in their attributes, state, pytrees, printing; layers and containers."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import pullback as pb
from pullback import nn, optim, pytree
from pullback.errors import ArgumentError, DTypeError, ShapeError


class Block(nn.Module):
    def __init__(self):
        self.gain = nn.Parameter(np.ones(3, np.float32))
        self.count = pb.zeros((), dtype=pb.int64)
        self.name = "block"

    def forward(self, x):
        return x * self.gain


class Net(nn.Module):
    def __init__(self):
        self.blocks = [Block(), Block()]
        self.table = {"a": pb.zeros(2), "b": (nn.Linear(3, 2), "text", 4)}
        self.shared = self.blocks[0]
        self.size = 3

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.table["b"][0](x)


NAMES = ["blocks.0.gain", "blocks.1.gain", "table.b.0.weight", "table.b.0.bias"]


def test_parameters_buffers_and_modules_are_found_in_attributes():
    net = Net()
    assert [name for name, _ in net.named_parameters()] == NAMES
    assert [name for name, _ in net.named_buffers()] == ["table.a", "blocks.0.count", "blocks.1.count"]
    assert [name for name, _ in net.named_modules()] == ["", "blocks.0", "blocks.1", "table.b.0"]
    assert len(list(net.modules())) == 4
    assert len(list(net.children())) == 3
    assert len(list(net.parameters())) == 4
    assert all(p.requires_grad for p in net.parameters())
    assert not any(b.requires_grad for b in net.buffers())


def test_attributes_may_change():
    net = Block()
    assert [n for n, _ in net.named_parameters()] == ["gain"]
    net.extra = nn.Parameter(1.0)
    assert [n for n, _ in net.named_parameters()] == ["gain", "extra"]
    del net.gain
    assert [n for n, _ in net.named_parameters()] == ["extra"]
    net.extra.requires_grad_(False)  # frozen, and still a parameter
    assert [n for n, p in net.named_parameters() if not p.requires_grad] == ["extra"]
    outer = Net()
    outer.blocks.append(Block())
    assert "blocks.2.gain" in dict(outer.named_parameters())


def test_train_and_eval():
    net = Net()
    assert net.training and net.blocks[1].training
    assert net.eval() is net
    assert not net.training and not net.blocks[1].training and not net.table["b"][0].training
    net.train()
    assert net.blocks[1].training


def test_state_dict_is_a_snapshot_and_loads():
    net, other = Net(), Net()
    saved = net.state_dict()
    assert set(saved) == {*NAMES, "table.a", "blocks.0.count", "blocks.1.count"}
    net.blocks[0].gain.assign([5.0, 6.0, 7.0])
    np.testing.assert_array_equal(np.asarray(saved["blocks.0.gain"]), np.ones(3))
    other.load_state_dict(net.state_dict())
    for (name, a), (_, b) in zip(net.named_parameters(), other.named_parameters()):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b), err_msg=name)
        assert b.requires_grad
    other.load_state_dict({k: np.asarray(v) for k, v in saved.items()})
    np.testing.assert_array_equal(np.asarray(other.blocks[0].gain), np.ones(3))
    loaded = pickle.loads(pickle.dumps(saved))
    other.load_state_dict(loaded)


def test_load_state_dict_says_what_is_wrong_and_changes_nothing():
    net = Block()
    good = net.state_dict()
    with pytest.raises(KeyError, match="missing: count"):
        net.load_state_dict({"gain": np.zeros(3)})
    with pytest.raises(KeyError, match="not in the module: extra"):
        net.load_state_dict({**good, "extra": np.zeros(3)})
    with pytest.raises(ShapeError, match=r"gain has shape \(3,\), the value \(2,\)"):
        net.load_state_dict({**good, "gain": np.zeros(2)})
    with pytest.raises(DTypeError, match="count"):
        net.load_state_dict({"gain": np.zeros(3), "count": 0.5})
    np.testing.assert_array_equal(np.asarray(net.gain), np.ones(3))
    assert net.load_state_dict({"gain": np.zeros(3), "more": 1}, strict=False) == (["count"], ["more"])
    np.testing.assert_array_equal(np.asarray(net.gain), np.zeros(3))
    assert net.gain.dtype is pb.float32


def test_zero_grad_and_freezing():
    net = Block()
    net(pb.ones(3)).sum().backward()
    np.testing.assert_array_equal(np.asarray(net.gain.grad), np.ones(3))
    net.zero_grad()
    assert net.gain.grad is None
    net.requires_grad_(False)
    assert [n for n, _ in net.named_parameters()] == ["gain"] and not net(pb.ones(3)).requires_grad
    net.requires_grad_()
    assert [n for n, _ in net.named_parameters()] == ["gain"] and net(pb.ones(3)).requires_grad


def test_astype():
    net = Net().astype("float64")
    assert {p.dtype for p in net.parameters()} == {pb.float64}
    assert net.blocks[0].count.dtype is pb.int64
    assert all(p.requires_grad for p in net.parameters())
    assert net(pb.ones((1, 3), dtype=pb.float64)).dtype is pb.float64
    with pytest.raises(DTypeError):
        net.astype("int32")


def test_apply_visits_every_module():
    seen = []
    Net().apply(lambda m: seen.append(type(m).__name__))
    assert sorted(seen) == ["Block", "Block", "Linear", "Net"]


def test_repr_shows_settings_and_counts():
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 10, bias=False))
    assert repr(model) == (
        "Sequential(  # 9,600 parameters\n"
        "  (0): Linear(in_features=64, out_features=128)  # 8,320\n"
        "  (1): ReLU()\n"
        "  (2): Dropout(p=0.2)\n"
        "  (3): Linear(in_features=128, out_features=10, bias=False)  # 1,280\n"
        ")"
    )
    assert repr(nn.ReLU()) == "ReLU()"
    assert "Block" in repr(Net())


def test_a_module_without_forward():
    class Nothing(nn.Module):
        pass

    with pytest.raises(TypeError, match="Nothing has no forward"):
        Nothing()(1)


def test_copies_and_pickles():
    net = Net()
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(Block()))):
        assert all(p.requires_grad for p in other.parameters())
        other.eval()
    assert net.training
    deep = copy.deepcopy(net)
    deep.blocks[0].gain.assign([0.0, 0.0, 0.0])
    np.testing.assert_array_equal(np.asarray(net.blocks[0].gain), np.ones(3))
    assert deep.shared is deep.blocks[0]


# -- pytrees -----------------------------------------------------------------------------------------------------------


def test_flatten_and_unflatten():
    net = Net()
    leaves, structure = pytree.flatten(net)
    assert len(leaves) == 9  # a shared module counts for each place
    again = pytree.unflatten(structure, leaves)
    assert type(again) is Net and again.size == 3 and again.table["b"][1:] == ("text", 4)
    assert again.blocks[0].gain is net.blocks[0].gain
    assert pytree.structure(again) == structure and hash(pytree.structure(again)) == hash(structure)
    assert pytree.structure(Net()) == structure
    other = Net()
    other.size = 4
    assert pytree.structure(other) != structure
    other.size = 3
    assert pytree.structure(other) == structure
    other.eval()
    assert pytree.structure(other) != structure
    paths = [path for path, _ in pytree.leaves_with_paths(Block())]
    assert paths == [".gain", ".count"]


def test_map_gives_a_module_whose_parameters_are_leaves():
    model = nn.Linear(2, 2)
    x = pb.ones((1, 2))
    for _ in range(3):
        grads = pb.grad(lambda m: m(x).sum())(model)
        assert type(grads) is nn.Linear
        model = pytree.map(lambda p, g: p - 0.1 * g, model, grads)
        assert [n for n, _ in model.named_parameters()] == ["weight", "bias"]
        assert (model.weight.requires_grad and not model.weight.node.inputs) or model.weight.node.constant
    pb.eval(model)
    assert not model.weight.node.inputs
    model(x).sum().backward()
    np.testing.assert_array_equal(np.asarray(model.weight.grad), np.ones((2, 2)))


def test_inside_a_transform_rebuilt_modules_keep_their_parameters_and_history():
    model = nn.Linear(2, 1, bias=False)

    def penalty(m):
        assert [n for n, _ in m.named_parameters()] == ["weight"]
        scaled = pytree.map(lambda p: p * 3.0, m)
        return sum(pb.sum(p * p) for p in scaled.parameters())

    grads = pb.grad(penalty)(model)
    np.testing.assert_allclose(np.asarray(grads.weight), 18 * np.asarray(model.weight), rtol=1e-6)


def test_meta_gradient_through_an_inner_step():
    model = nn.Linear(2, 1, bias=False, dtype=pb.float64)
    x = pb.asarray([[1.0, 2.0]], dtype=pb.float64)

    def inner(m, rate):
        grads = pb.grad(lambda m: pb.sum(m(x) ** 2))(m)
        return pytree.map(lambda p, g: p - rate * g, m, grads)

    def outer(rate):
        return pb.sum(inner(model, rate)(x) ** 2)

    rate = pb.asarray(0.05, dtype=pb.float64)
    step = 1e-6
    expected = (float(outer(rate + step)) - float(outer(rate - step))) / (2 * step)
    np.testing.assert_allclose(float(pb.grad(outer)(rate)), expected, rtol=1e-6)


def test_vmap_over_modules():
    models = [nn.Linear(3, 2) for _ in range(4)]
    stacked = pytree.map(lambda *ps: pb.stack(ps), *models)
    x = pb.asarray(np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32))
    found = pb.vmap(lambda m, x: m(x), in_axes=(0, None))(stacked, x)
    expected = np.stack([np.asarray(m(x)) for m in models])
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-5, atol=1e-6)
    grads = pb.grad(lambda s: pb.sum(pb.vmap(lambda m: pb.sum(pytree.map(lambda p: p * 2.0, m)(x)))(s)))(stacked)
    np.testing.assert_allclose(np.asarray(grads.bias), np.full((4, 2), 10.0), rtol=1e-5)


# -- layers ------------------------------------------------------------------------------------------------------------


def test_linear():
    layer = nn.Linear(3, 2)
    assert layer.weight.shape == (2, 3) and layer.bias.shape == (2,)
    x = np.random.default_rng(0).standard_normal((4, 5, 3)).astype(np.float32)
    expected = x @ np.asarray(layer.weight).T + np.asarray(layer.bias)
    np.testing.assert_allclose(np.asarray(layer(x)), expected, rtol=1e-5, atol=1e-6)
    assert nn.Linear(3, 2, bias=False).bias is None
    with pytest.raises(ShapeError, match=r"3 elements, got shape \(4,\)"):
        layer(pb.ones(4))
    with pytest.raises(ShapeError):
        nn.Linear(-1, 2)


def test_linear_with_an_activation():
    x = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    layer = nn.Linear(3, 2, activation="gelu")
    plain = nn.Linear(3, 2)
    plain.load_state_dict(layer.state_dict())
    assert repr(layer).startswith("Linear(in_features=3, out_features=2, activation=gelu)")
    np.testing.assert_allclose(np.asarray(layer(x)), np.asarray(nn.gelu(plain(x))), rtol=1e-6, atol=1e-7)
    compiled = pb.jit(layer)
    np.testing.assert_allclose(np.asarray(compiled(x)), np.asarray(nn.gelu(plain(x))), rtol=1e-6, atol=1e-7)
    layer.activation = pb.tanh
    np.testing.assert_allclose(np.asarray(compiled(x)), np.tanh(np.asarray(plain(x))), rtol=1e-6, atol=1e-7)
    with_module = nn.Linear(3, 2, activation=nn.PReLU())
    assert [name for name, _ in with_module.named_parameters()] == ["weight", "bias", "activation.weight"]
    for wrong in ("gellu", 3):
        with pytest.raises(ArgumentError, match="activation must be a function or one of 'relu'"):
            nn.Linear(3, 2, activation=wrong)
        with pytest.raises(ArgumentError, match="activation must be a function or one of 'relu'"):
            nn.linear(x, layer.weight, activation=wrong)


def test_linear_starts_uniform_as_pytorch_does():
    pb.random.seed(0)
    layer = nn.Linear(400, 300)
    for tensor in (layer.weight, layer.bias):
        values = np.asarray(tensor)
        assert np.abs(values).max() <= 1 / 20
        assert abs(values.std() - 1 / 20 / np.sqrt(3)) < 0.003
    key = pb.random.key(5)
    a, b = nn.Linear(3, 3, key=key), nn.Linear(3, 3, key=key)
    np.testing.assert_array_equal(np.asarray(a.weight), np.asarray(b.weight))


def test_sequential():
    model = nn.Sequential(nn.Linear(3, 4), pb.tanh, nn.Linear(4, 2))
    assert len(model) == 3 and model[1] is pb.tanh and isinstance(model[:2], nn.Sequential) and len(list(model)) == 3
    assert [n for n, _ in model.named_parameters()] == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert model(pb.ones((1, 3))).shape == (1, 2)
    assert pytree.map(lambda p: p * 1.0, model)[1] is pb.tanh
    model.append(nn.Flatten(0))
    assert model(pb.ones((1, 3))).shape == (2,)
    with pytest.raises(TypeError, match="callable"):
        nn.Sequential(3)


def test_flatten_and_identity():
    x = pb.ones((2, 3, 4, 5))
    assert nn.Flatten()(x).shape == (2, 60)
    assert nn.Flatten(1, 2)(x).shape == (2, 12, 5)
    assert nn.Identity()(x) is x


@pytest.mark.parametrize(
    ("fill", "deviation"),
    [
        (lambda t: nn.init.xavier_uniform_(t), np.sqrt(2 / 500)),
        (lambda t: nn.init.xavier_normal_(t), np.sqrt(2 / 500)),
        (lambda t: nn.init.kaiming_uniform_(t, nonlinearity="relu"), np.sqrt(2 / 200)),
        (lambda t: nn.init.kaiming_normal_(t, mode="fan_out", nonlinearity="relu"), np.sqrt(2 / 300)),
        (lambda t: nn.init.uniform_(t, -1, 1), 1 / np.sqrt(3)),
        (lambda t: nn.init.normal_(t, 0, 3.0), 3.0),
    ],
)
def test_initialisers(fill, deviation):
    pb.random.seed(1)
    tensor = nn.Parameter(np.zeros((300, 200), np.float32))
    assert fill(tensor) is tensor
    values = np.asarray(tensor)
    assert tensor.requires_grad and abs(values.mean()) < 0.02 * deviation
    np.testing.assert_allclose(values.std(), deviation, rtol=0.02)


def test_constant_initialisers_and_errors():
    tensor = nn.Parameter(np.zeros((2, 2), np.float32))
    for fill, value in ((nn.init.ones_, 1), (nn.init.zeros_, 0), (lambda t: nn.init.constant_(t, 3), 3)):
        np.testing.assert_array_equal(np.asarray(fill(tensor)), np.full((2, 2), value))
    with pytest.raises(ShapeError):
        nn.init.xavier_uniform_(nn.Parameter(np.zeros(2)))
    with pytest.raises(ValueError, match="nonlinearity"):
        nn.init.calculate_gain("step")
    with pytest.raises(ValueError, match="mode"):
        nn.init.kaiming_uniform_(tensor, mode="fan")
    assert nn.init.calculate_gain("leaky_relu", 1.0) == 1.0


def test_frozen_parameters_stay_parameters() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    model.scale = pb.ones(2)  # a buffer
    names = [name for name, _ in model.named_parameters()]
    model.requires_grad_(False)
    assert [name for name, _ in model.named_parameters()] == names
    assert not any(p.requires_grad for p in model.parameters())
    copied = copy.deepcopy(model)
    loaded = pickle.loads(pickle.dumps(model))
    for frozen in (model, copied, loaded):
        for p in frozen.parameters():
            p.requires_grad_(True)
        assert [name for name, p in frozen.named_parameters() if p.requires_grad] == names
        assert [name for name, _ in frozen.named_buffers()] == ["scale"]


def test_an_optimizer_trains_what_is_not_frozen() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    model[0].requires_grad_(False)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    before = [np.array(p) for p in model.parameters()]

    @pb.jit
    def step(x):
        optimizer.zero_grad()
        loss = pb.mean(model(x) ** 2)
        loss.backward()
        optimizer.step()
        return loss

    x = np.ones((4, 2), np.float32)
    step(x)
    after = [np.array(p) for p in model.parameters()]
    assert [bool(np.any(a != b)) for a, b in zip(after, before)] == [False, False, True, True]
    model[0].requires_grad_(True)
    step(x)
    assert all(np.any(np.asarray(p) != b) for p, b in zip(model.parameters(), after))
