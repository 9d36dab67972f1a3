"""Attention of random settings against its definition: values, gradients by every input, second derivatives.

The definition is evaluated by the NumPy references, in float64. ``PULLBACK_FUZZ_EXAMPLES`` sets how many settings.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback import nn
from pullback.nn.attention import attention_definition
from tests.backends import on_backend
from tests.threads import same_bits

EXAMPLES = max(1, int(os.environ.get("PULLBACK_FUZZ_EXAMPLES", "60")))
TOLERANCE = {"float64": 1e-9, "float32": 3e-5}


@dataclass
class Setting:
    """Arrays in float64, how they lie in memory, and the options of the call."""

    arrays: list[np.ndarray]
    layouts: list[str]
    mask: np.ndarray | None
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        shapes = [x.shape for x in self.arrays]
        mask = None if self.mask is None else (self.mask.dtype.name, self.mask.shape)
        return f"shapes {shapes}, layouts {self.layouts}, mask {mask}, {self.options}"

    @property
    def inputs(self) -> list[np.ndarray]:
        """What has a gradient."""
        return [*self.arrays, *([] if self.mask is None or self.mask.dtype == bool else [self.mask])]

    def call(self, attention: Any, inputs: list[Any], laid_out: bool) -> Any:
        mask = inputs[3] if len(inputs) > 3 else self.mask
        found = [restored(x, layout) if laid_out else x for x, layout in zip(inputs, self.layouts)]
        return attention(*found, mask=mask, **self.options)

    def allowed(self, shape: tuple[int, ...]) -> np.ndarray:
        """Which keys each query may attend to."""
        first = self.options.get("offset")
        first = shape[-1] - shape[-2] if first is None else first
        distance = np.asarray(first)[..., None, None] + np.arange(shape[-2])[:, None] - np.arange(shape[-1])
        left, right = self.options.get("window") or (None, None)
        found = np.ones(distance.shape, bool)
        if self.options.get("is_causal"):
            right = 0
        if left is not None:
            found &= distance <= left
        if right is not None:
            found &= distance >= -right
        if self.mask is not None:
            found = found & (self.mask if self.mask.dtype == bool else self.mask > -np.inf)
        return np.broadcast_to(found, shape)


LAYOUTS = {
    "plain": (0, 1, 2, 3), "tokens first": (0, 2, 1, 3), "features last but one": (0, 1, 3, 2),
    "batch last": (1, 2, 3, 0),
}  # fmt: skip


def arranged(x: np.ndarray, layout: str) -> np.ndarray:
    """As it lies in memory."""
    return np.ascontiguousarray(np.transpose(x, LAYOUTS[layout])) if x.ndim == 4 else x


def restored(x: Any, layout: str) -> Any:
    return pb.permute_dims(x, tuple(np.argsort(LAYOUTS[layout]).tolist())) if x.ndim == 4 else x


def setting(seed: int) -> Setting:
    rng = np.random.default_rng(seed)

    def extent(most: int = 17) -> int:
        return int(rng.integers(1, most + 1))

    large = rng.random() < 0.15  # beyond a tile, a part, a block
    queries, keys = (int(np.exp(rng.uniform(0, 6.3))) for _ in "qk") if large else (extent(), extent())
    depth, width, heads = extent(), extent(), extent(3)
    groups = extent(3) if rng.random() < 0.4 else 1
    lead = (extent(3),) if rng.random() < 0.8 else ()
    shapes = [(*lead, groups * heads, queries, depth), (*lead, heads, keys, depth), (*lead, heads, keys, width)]
    if lead and rng.random() < 0.15:
        shapes[2] = shapes[2][1:]  # leading axes broadcast
    options: dict[str, Any] = {"enable_gqa": True} if groups > 1 else {}
    if rng.random() < 0.4:
        options["is_causal"] = True
    if rng.random() < 0.35:
        options["window"] = tuple([None if rng.random() < 0.3 else int(rng.integers(0, keys + 1)) for _ in "lr"])
    if rng.random() < 0.4:
        options["offset"] = int(rng.integers(-2, keys + 1))
    if rng.random() < 0.3:
        options["scale"] = float(rng.choice([0.3, -0.7, 0.0, 1.5]))
    scores = (*lead, groups * heads, queries, keys)
    mask: np.ndarray | None = None
    if rng.random() < 0.6:
        dropped = int(rng.integers(0, len(scores) - 1))
        shape = tuple([1 if rng.random() < 0.3 else n for n in scores[dropped:]])
        mask = rng.random(shape) < rng.choice([0.3, 0.8])
        if shape[-2] > 1 and rng.random() < 0.5:
            mask[..., int(rng.integers(shape[-2])), :] = False
        if shape[-1] > 1 and rng.random() < 0.5:
            mask[..., int(rng.integers(shape[-1]))] = False
        if rng.random() < 0.5:
            mask = np.where(mask, rng.standard_normal(shape), -np.inf)
    layouts = [str(rng.choice(list(LAYOUTS))) for _ in shapes]
    if "offset" in options and rng.random() < 0.5:  # an operand, for each head or for several
        whole = scores[:-2][int(rng.integers(0, len(scores) - 1)) :]
        options["offset"] = rng.integers(-2, keys + 1, [1 if rng.random() < 0.4 else n for n in whole])
    if rng.random() < 0.25:
        options |= {"dropout": float(rng.choice([0.1, 0.6])), "key": pb.random.key(seed)}
    return Setting([rng.standard_normal(shape) for shape in shapes], layouts, mask, options)


def poisoned(given: Setting, rng: np.random.Generator) -> list[np.ndarray]:
    """The arrays with NaN and infinities in keys and values that no query sees, and queries that see nothing."""
    q, k, v = (x.copy() for x in given.arrays)
    scores = (*np.broadcast_shapes(q.shape[:-2], (1,) * (q.ndim - 2)), q.shape[-2], k.shape[-2])
    allowed = given.allowed(scores)
    q[~allowed.any(-1)] = rng.choice([np.nan, np.inf])
    seen = allowed.any(-2)  # (..., heads, keys)
    seen = seen.reshape(*seen.shape[:-2], k.shape[-3], -1, k.shape[-2]).any(-2)
    k[~seen] = rng.choice([np.nan, -np.inf])
    v[~(seen if v.ndim == k.ndim else seen.any(0))] = rng.choice([np.nan, np.inf])
    return [q, k, v]


def derived(call: Any, inputs: list[Any], cotangent: Any) -> list[np.ndarray]:
    value, pull = pb.vjp(lambda *xs: call(list(xs)), *inputs)
    return [np.asarray(x) for x in (value, *pull(cotangent))]


def close(got: np.ndarray, want: np.ndarray, tolerance: float, what: str) -> None:
    scale = max(1.0, float(np.abs(want).max(initial=0)))
    np.testing.assert_allclose(got, want, rtol=0, atol=tolerance * scale, err_msg=what)


def expected(given: Setting, cotangent: np.ndarray) -> list[np.ndarray]:
    with on_backend("reference"):
        inputs = [pb.asarray(x) for x in given.inputs]
        return derived(lambda xs: given.call(attention_definition, xs, False), inputs, pb.asarray(cotangent))


def output_shape(given: Setting) -> tuple[int, ...]:
    q, _, v = given.arrays
    return (*q.shape[:-1], v.shape[-1])


@pytest.mark.parametrize("seed", range(EXAMPLES))
def test_value_and_gradients(seed):
    given = setting(seed)
    rng = np.random.default_rng(seed + 10**6)
    cotangent = rng.standard_normal(output_shape(given))
    want = expected(given, cotangent)
    arrays = poisoned(given, rng)
    for dtype in ("float64", "float32"):
        inputs = [arranged(x.astype(dtype), layout) for x, layout in zip(arrays, given.layouts)]
        inputs += [x.astype(dtype) for x in given.inputs[3:]]
        got = derived(
            lambda xs: given.call(nn.scaled_dot_product_attention, xs, True), [pb.asarray(x) for x in inputs],
            pb.asarray(cotangent.astype(dtype)),
        )  # fmt: skip
        for name, mine, other, layout in zip(
            ("value", "q", "k", "v", "mask"), got, want, ["plain", *given.layouts, "plain"]
        ):
            other = arranged(other, layout) if name in "qkv" else other
            assert mine.dtype == dtype
            close(mine, other, TOLERANCE[dtype], f"{name} of {given}")


@pytest.mark.parametrize("seed", range(1000, 1000 + min(EXAMPLES // 5, 200)))
def test_products_of_the_hessian_and_a_vector(seed):
    given = setting(seed)
    rng = np.random.default_rng(seed)
    weights = pb.asarray(rng.standard_normal(output_shape(given)))
    inputs = [pb.asarray(x) for x in given.inputs]
    tangents = [pb.asarray(rng.standard_normal(x.shape)) for x in given.inputs]

    def product(attention: Any) -> list[np.ndarray]:
        def loss(*xs: Any) -> Any:
            return pb.sum(pb.sin(given.call(attention, list(xs), False)) * weights)

        found = pb.hvp(loss, tuple(inputs), tuple(tangents))
        return [np.asarray(x) for x in (found if isinstance(found, (list, tuple)) else [found])]

    with on_backend("reference"):
        want = product(attention_definition)
    for got, other in zip(product(nn.scaled_dot_product_attention), want, strict=True):
        close(got, other, 1e-8, str(given))


@pytest.mark.parametrize("seed", range(2000, 2000 + min(EXAMPLES // 9, 200)))
def test_the_same_bits_on_any_number_of_threads(seed):
    given = setting(seed)
    inputs = [pb.asarray(x.astype(np.float32)) for x in given.inputs]
    cotangent = pb.asarray(np.random.default_rng(seed).standard_normal(output_shape(given)).astype(np.float32))

    def attend(xs):
        return given.call(nn.scaled_dot_product_attention, xs, False)

    same_bits(lambda: derived(attend, inputs, cotangent), (1, 2, 5))


@pytest.mark.parametrize("dtype", [pb.float16, pb.bfloat16])
@pytest.mark.parametrize("seed", range(3000, 3000 + min(EXAMPLES // 9, 200)))
def test_half_types_are_read_narrow_and_rounded_once(seed, dtype):
    """The value is that of the same numbers in float32, rounded; so are the gradients, but for the cotangent's way."""
    given = setting(seed)
    narrow = [pb.asarray(x).astype(dtype) for x in given.inputs]
    wide = [x.astype(pb.float32) for x in narrow]
    cotangent = pb.asarray(np.random.default_rng(seed).standard_normal(output_shape(given))).astype(dtype)
    got = pb.vjp(lambda *xs: given.call(nn.scaled_dot_product_attention, list(xs), False), *narrow)
    want = pb.vjp(lambda *xs: given.call(nn.scaled_dot_product_attention, list(xs), False), *wide)
    pairs = [(got[0], want[0]), *zip(got[1](cotangent), want[1](cotangent.astype(pb.float32)))]
    for mine, other in pairs[: 4 if len(narrow) > 3 else 5]:
        assert mine.dtype is dtype
        exact = other.numpy().astype(np.float64)
        close(mine.astype(pb.float64).numpy(), exact, 1.1 * float(pb.finfo(dtype).eps), str(given))
