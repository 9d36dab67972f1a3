"""Index algebra: positions under views, and common refinements of shapes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from pullback.compiler.views import join, refine, row_major, split


@pytest.mark.parametrize(
    ("domain", "shape", "expected"),
    [
        ((6,), (2, 3), (2, 3)),
        ((4, 6), (8, 3), (4, 2, 3)),
        ((4, 6), (2, 2, 6), (2, 2, 6)),
        ((4, 6), (6, 4), None),
        ((), (1, 1), ()),
        ((2, 3), (7,), None),
    ],
)
def test_refine(domain: tuple[int, ...], shape: tuple[int, ...], expected: tuple[int, ...] | None) -> None:
    found = refine(domain, (False,) * len(domain), shape)
    assert (found[0] if found else None) == expected


def test_refine_keeps_the_kind_of_each_loop() -> None:
    assert refine((4, 6), (False, True), (2, 2, 3, 2)) == ((2, 2, 3, 2), (False, False, True, True))


@pytest.mark.parametrize(
    ("shape", "domain"), [((4, 6), (4, 6)), ((4, 6), (2, 2, 3, 2)), ((24,), (4, 6)), ((8, 3), (4, 2, 3))]
)
def test_split_and_join_agree_with_unravel(shape: tuple[int, ...], domain: tuple[int, ...]) -> None:
    index = (0, row_major(domain))
    axes = split(index, shape, domain)
    assert axes is not None
    assert join(axes, shape, len(domain)) == index
    for position, point in enumerate(itertools.product(*map(range, domain))):
        found = tuple(start + sum(c * i for c, i in zip(steps, point, strict=True)) for start, steps in axes)
        assert found == tuple(int(i) for i in np.unravel_index(position, shape))


def test_split_refuses_a_carry() -> None:
    assert split((0, (1,)), (2, 3), (6,)) is None
    assert split((0, (4, 1)), (4, 6), (6, 4)) is None
