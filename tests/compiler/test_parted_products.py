"""Products with few results and long sums: parts of the sum are computed side by side, then added."""

from __future__ import annotations

import numpy as np
import pytest

import pullback as pb
from tests.threads import same_bits


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize(("m", "n"), [(64, 64), (3, 130), (17, 5)])
@pytest.mark.parametrize("k", [4096, 4099, 10007])
def test_values(dtype: str, m: int, n: int, k: int) -> None:
    rng = np.random.default_rng(k + m)
    x, y = (pb.asarray(rng.normal(size=(k, extent))).astype(dtype) for extent in (m, n))
    exact = np.asarray(x.astype("float64")).T @ np.asarray(y.astype("float64"))
    result = pb.jit(lambda x, y: x.T @ y)(x, y)
    assert result.dtype == x.dtype
    size = np.abs(np.asarray(x.astype("float64"))).T @ np.abs(np.asarray(y.astype("float64")))
    rounding = {"float32": 0.0, "float64": 0.0, "bfloat16": 2.0**-8}[dtype]
    bound = {"float32": 1e-6, "float64": 1e-14, "bfloat16": 1e-6}[dtype]
    assert np.all(np.abs(np.asarray(result.astype("float64")) - exact) <= bound * size + rounding * np.abs(exact))


def test_a_weight_gradient_is_cut() -> None:
    report = pb.explain(lambda x, g: x.T @ g)(pb.ones((20000, 48)), pb.ones((20000, 32)))
    product, fold = report.steps
    assert product.loops == "8 of 48 x 2500 x 32"
    assert "reduce_add" in fold.computes


def test_several_summed_axes_and_a_batch() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(3, 50, 7, 121)), rng.normal(size=(3, 50, 121, 9))
    result = pb.einsum("batk,bakn->tn", pb.asarray(x), pb.asarray(y))
    np.testing.assert_allclose(np.asarray(result), np.einsum("batk,bakn->tn", x, y), rtol=1e-12, atol=1e-11)


def test_bits_do_not_depend_on_threads() -> None:
    rng = np.random.default_rng(1)
    x, y = (pb.asarray(rng.normal(size=(30011, extent)).astype(np.float32)) for extent in (33, 20))
    same_bits(lambda: pb.jit(lambda x, y: x.T @ y + 1)(x, y), (1, 2, 3))


def test_a_batch_of_products_with_a_vector_is_read_as_it_is() -> None:
    """One question to each of several caches of keys."""
    rng = np.random.default_rng(0)
    weights, values = (rng.standard_normal(shape, dtype=np.float32) for shape in ((3, 2, 1, 9000), (3, 2, 9000, 16)))
    function = pb.jit(pb.matmul)
    np.testing.assert_allclose(function(weights, values).numpy(), weights @ values, rtol=1e-4, atol=1e-3)
    assert '"computes": "float32 by BLAS"' in pb.explain(function)(weights, values).to_json()
