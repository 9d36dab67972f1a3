"""Random numbers: distributions, keys, the global generator, the same numbers in every mode."""

import numpy as np
import pytest
from scipy import stats

import pullback as pb

N = 20_000
KEY = 1234


def sample(function, *arguments, **keywords):
    return np.asarray(function(*arguments, key=pb.random.key(KEY), **keywords)).astype(np.float64)


def fits(values, distribution):
    assert np.isfinite(values).all()
    assert stats.kstest(values.ravel(), distribution).pvalue > 1e-3


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_continuous_distributions(dtype):
    fits(sample(pb.random.uniform, (N,), dtype=dtype), "uniform")
    fits(sample(pb.random.uniform, (N,), low=-2, high=5, dtype=dtype), stats.uniform(-2, 7).cdf)
    fits(sample(pb.random.normal, (N // 2, 2), dtype=dtype), "norm")
    fits(sample(pb.random.normal, (N,), mean=3, std=0.5, dtype=dtype), stats.norm(3, 0.5).cdf)
    fits(sample(pb.random.exponential, (N,), scale=2.0, dtype=dtype), stats.expon(0, 2).cdf)
    fits(sample(pb.random.gumbel, (N,), dtype=dtype), "gumbel_r")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision(dtype):
    unit = sample(pb.random.uniform, (N,), dtype=dtype)
    assert unit.min() >= 0 and unit.max() < 1 and abs(unit.mean() - 0.5) < 0.01
    normal = sample(pb.random.normal, (N,), dtype=dtype)
    assert abs(normal.mean()) < 0.03 and abs(normal.std() - 1) < 0.03


def test_moments_and_independence_of_normals():
    x = sample(pb.random.normal, (100, N // 100), dtype="float64")
    assert abs(x.mean()) < 0.03 and abs(x.var() - 1) < 0.05
    assert abs(stats.skew(x.ravel())) < 0.08 and abs(stats.kurtosis(x.ravel())) < 0.15
    flat = x.ravel()
    assert abs(np.corrcoef(flat[:-1], flat[1:])[0, 1]) < 0.03


def test_uniform_bits_are_balanced():
    words = np.asarray(pb.random.bits((4096,), key=pb.random.key(KEY)))
    assert words.dtype == np.uint64
    ones = np.unpackbits(words.view(np.uint8)).reshape(4096, 64).mean(0)
    assert np.abs(ones - 0.5).max() < 0.04
    assert len(np.unique(words)) == 4096
    assert pb.random.bits((3,), "uint8", key=pb.random.key(1)).dtype is pb.uint8


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "int64", "uint64"])
def test_randint(dtype):
    got = pb.random.randint(3, 13, (N,), dtype, key=pb.random.key(KEY))
    assert got.dtype.name == dtype
    counts = np.bincount(np.asarray(got).astype(int), minlength=13)
    assert counts[:3].sum() == 0 and stats.chisquare(counts[3:]).pvalue > 1e-3


def test_randint_ranges():
    key = pb.random.key(KEY)
    x = np.asarray(pb.random.randint(-5, 5, (N,), key=key))
    assert x.min() == -5 and x.max() == 4
    assert set(np.asarray(pb.random.randint(8, shape=(1000,), key=key))) == set(range(8))
    assert np.asarray(pb.random.randint(1, shape=(10,), key=key)).tolist() == [0] * 10
    wide = np.asarray(pb.random.randint(-(2**63), 2**63 - 1, (N,), key=key))
    assert abs(wide.astype(float).mean()) < 2**63 / 50
    assert np.asarray(pb.random.randint(0, 2**64, (N,), "uint64", key=key)).max() > 2**63
    large = np.asarray(pb.random.randint(0, 3 * 2**40, (N,), key=key))
    assert large.max() < 3 * 2**40 and abs(large.mean() / (3 * 2**40) - 0.5) < 0.01
    computed = np.asarray(pb.random.randint(pb.asarray(2), pb.asarray(6), (1000,), key=key))
    assert set(computed) == {2, 3, 4, 5}
    with pytest.raises(pb.ShapeError, match="no integer"):
        pb.random.randint(5, 5)
    with pytest.raises(OverflowError):
        pb.random.randint(0, 300, dtype="uint8")
    with pytest.raises(pb.DTypeError):
        pb.random.randint(3, dtype="float32")


def test_bernoulli():
    x = pb.random.bernoulli(0.3, (N,), key=pb.random.key(KEY))
    assert x.dtype is pb.bool and abs(np.asarray(x).mean() - 0.3) < 0.015
    p = np.array([0.0, 1.0, 0.5])
    rows = np.asarray(pb.random.bernoulli(p, (N // 4, 3), "float32", key=pb.random.key(KEY)))
    assert rows[:, 0].sum() == 0 and rows[:, 1].all() and abs(rows[:, 2].mean() - 0.5) < 0.03
    assert pb.random.bernoulli(p).shape == (3,)
    with pytest.raises(pb.ShapeError):
        pb.random.bernoulli(p, (2,))


def test_permutation():
    key = pb.random.key(KEY)
    order = np.asarray(pb.random.permutation(1000, key=key))
    assert sorted(order) == list(range(1000)) and list(order) != list(range(1000))
    x = np.arange(12).reshape(4, 3)
    rows = np.asarray(pb.random.permutation(x, key=key))
    assert sorted(map(tuple, rows)) == sorted(map(tuple, x))
    columns = np.asarray(pb.random.permutation(x, axis=1, key=key))
    assert sorted(map(tuple, columns.T)) == sorted(map(tuple, x.T))
    first = [pb.random.permutation(4, key=pb.random.key(i))[0].item() for i in range(400)]
    assert stats.chisquare(np.bincount(first, minlength=4)).pvalue > 1e-3
    t = pb.asarray(x)
    pb.random.shuffle(t, key=key)
    np.testing.assert_array_equal(np.asarray(t), rows)
    with pytest.raises(pb.DTypeError):
        pb.random.shuffle(x)


@pytest.mark.parametrize("axis", [-1, 0])
def test_categorical(axis):
    p = np.array([[0.1, 0.2, 0.7], [0.5, 0.5, 0.0]])
    with np.errstate(divide="ignore"):
        logits = np.log(p) + 3.0
    logits = logits if axis == -1 else logits.T
    got = pb.random.categorical(logits, axis=axis, shape=(N // 2, 2), key=pb.random.key(KEY))
    assert got.dtype is pb.int64
    for column, expected in zip(np.asarray(got).T, p, strict=True):
        np.testing.assert_allclose(np.bincount(column, minlength=3) / len(column), expected, atol=0.02)
    assert pb.random.categorical(logits, axis=axis).shape == (2,)
    with pytest.raises(pb.ShapeError):
        pb.random.categorical(logits, axis=axis, shape=(3,))
    with pytest.raises(pb.ShapeError):
        pb.random.categorical(np.zeros((2, 0)))


def test_choice():
    key = pb.random.key(KEY)
    x = np.array([10, 20, 30, 40])
    assert set(np.asarray(pb.random.choice(x, (1000,), key=key))) == set(x)
    assert sorted(np.asarray(pb.random.choice(x, (2, 2), replace=False, key=key)).ravel()) == sorted(x)
    p = np.array([0.0, 0.5, 0.5, 0.0])
    with np.errstate(divide="ignore"):
        assert set(np.asarray(pb.random.choice(x, (1000,), p=p, key=key))) == {20, 30}
        assert set(np.asarray(pb.random.choice(4, (2,), replace=False, p=p, key=key))) == {1, 2}
    assert pb.random.choice(np.ones((2, 3)), (4, 5), axis=1, key=key).shape == (2, 4, 5)
    with pytest.raises(pb.ShapeError):
        pb.random.choice(3, (4,), replace=False)
    with pytest.raises(pb.ShapeError):
        pb.random.choice(3, (4,), p=np.ones(2))


# -- keys and the generator --------------------------------------------------------------------------------------------


def test_keys():
    key = pb.random.key(7)
    assert key.dtype is pb.uint64 and key.shape == ()
    keys = pb.random.split(key, 1000)
    assert keys.shape == (1000,) and len(set(keys.tolist())) == 1000
    folded = [pb.random.fold_in(key, i).item() for i in range(100)]
    assert len(set(folded)) == 100 and not set(folded) & set(keys.tolist())
    assert pb.random.fold_in(key, pb.asarray(3)).item() == folded[3]
    assert pb.random.key(-1).item() == 2**64 - 1
    for bad in (pb.asarray(3), keys, 1.5):
        with pytest.raises(pb.DTypeError, match="key"):
            pb.random.uniform((2,), key=bad)
    with pytest.raises(pb.DTypeError):
        pb.random.key(1.5)
    with pytest.raises(OverflowError):
        pb.random.key(2**64)


def test_a_key_gives_the_same_numbers_again():
    key = pb.random.key(3)
    assert pb.random.normal((5,), key=key).tolist() == pb.random.normal((5,), key=key).tolist()


def test_seed_and_state():
    pb.random.seed(11)
    first = [pb.random.uniform((3,)).tolist(), pb.random.uniform((3,)).tolist()]
    assert first[0] != first[1]
    state = pb.random.get_state()
    third = pb.random.normal((3,)).tolist()
    pb.random.seed(11)
    assert [pb.random.uniform((3,)).tolist(), pb.random.uniform((3,)).tolist()] == first
    pb.random.set_state(state)
    assert pb.random.normal((3,)).tolist() == third


def test_known_answer():
    """Threefry-2x32-20 of key and counter 0, from the Random123 distribution's known-answer file."""
    from pullback.api.random import _threefry

    assert _threefry(0, 0) == 0x6B20015999BA4EFE
    words = pb.random.bits((4,), key=pb.random.key(99)).tolist()
    assert words == [_threefry(99, i) for i in range(4)]


def test_jit_draws_anew_and_the_same_as_without():
    def f(x):
        return x + pb.random.normal((4,)) * pb.random.uniform((4,))

    pb.random.seed(5)
    plain = [f(pb.zeros(4)).tolist() for _ in range(3)]
    pb.random.seed(5)
    jitted = pb.jit(f)
    traced = [jitted(pb.zeros(4)).tolist() for _ in range(3)]
    assert traced[0] != traced[1]
    np.testing.assert_allclose(traced, plain, rtol=1e-6)
    assert pb.random.uniform((2,)).tolist() != traced[0][:2]


def test_backends_draw_the_same_numbers():
    before = pb.get_backend()
    drawn = {}
    try:
        for name in ("reference", "compiled"):
            pb.set_backend(name)
            key = pb.random.key(21)
            drawn[name] = [
                np.asarray(f)
                for f in (
                    pb.random.bits((100,), key=key), pb.random.uniform((100,), key=key),
                    pb.random.randint(100, shape=(100,), key=key),
                    pb.random.permutation(50, key=key), pb.random.normal((100,), key=key),
                )
            ]  # fmt: skip
    finally:
        pb.set_backend(before)
    for a, b in zip(drawn["reference"][:-1], drawn["compiled"][:-1], strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_allclose(drawn["reference"][-1], drawn["compiled"][-1], rtol=1e-5, atol=1e-6)


def test_vmap_over_keys():
    keys = pb.random.split(pb.random.key(0), 5)
    rows = pb.vmap(lambda k: pb.random.normal((3,), key=k))(keys)
    expected = [pb.random.normal((3,), key=keys[i]).tolist() for i in range(5)]
    np.testing.assert_allclose(np.asarray(rows), expected, rtol=1e-6)


def test_gradients_flow_to_parameters():
    key = pb.random.key(1)
    noise = pb.random.normal((100,), key=key, dtype="float64")
    by_mean, by_std = pb.grad(
        lambda m, s: pb.sum(pb.random.normal((100,), mean=m, std=s, dtype="float64", key=key)), argnums=(0, 1)
    )(pb.asarray(0.5, dtype="float64"), pb.asarray(2.0, dtype="float64"))
    assert by_mean.item() == 100 and by_std.item() == pytest.approx(pb.sum(noise).item())


def test_orders_of_arguments_of_other_libraries_are_errors():
    with pytest.raises(TypeError):
        pb.random.uniform(0, 1, 5)
    with pytest.raises(TypeError):
        pb.random.normal(0.0, 1.0, (3,))
    with pytest.raises(ValueError, match="a key as key="):
        pb.random.normal(pb.random.key(0), (3,))
