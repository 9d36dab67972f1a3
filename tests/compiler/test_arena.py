"""Where blocks of memory lie: apart while both are needed, and in little more than must live."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from pullback.compiler.arena import MANY_BLOCKS, Block, place
from pullback.runtime.buffers import padded


def check(blocks: list[Block]) -> float:
    """That blocks that are needed at once lie apart, inside of the arena; its size over the bytes that must live."""
    offsets, size = place(blocks)
    ends = [offset + padded(max(1, nbytes)) for offset, (nbytes, _, _) in zip(offsets, blocks, strict=True)]
    assert max(ends, default=0) <= size
    waves: dict[int, list[int]] = {}
    for number, (_, first, last) in enumerate(blocks):
        for wave in range(first, last + 1):
            waves.setdefault(wave, []).append(number)
    most = 1
    for numbers in waves.values():
        most = max(most, sum(ends[number] - offsets[number] for number in numbers))
        numbers.sort(key=offsets.__getitem__)
        assert all(ends[a] <= offsets[b] for a, b in pairwise(numbers))
    return size / most


@pytest.mark.parametrize("count", [0, 1, 50, MANY_BLOCKS, MANY_BLOCKS + 1, 3 * MANY_BLOCKS])
@pytest.mark.parametrize("waves", [1, 12, 100])
def test_random_blocks(count, waves):
    rng = random.Random(count + waves)
    blocks = []
    for _ in range(count):
        first = rng.randrange(waves)
        last = min(waves - 1, first + rng.choice([0, 1, 2, waves]))
        blocks.append((rng.choice([0, 8, 64, 1000, rng.randrange(100_000)]), first, last))
    assert check(blocks) <= 1.1


def test_a_network_backwards():
    """What each of many layers keeps for the gradient, with temporaries between, needs no more than lives at once."""
    layers = 2 * MANY_BLOCKS
    kept = [(4096, layer, 2 * layers - layer) for layer in range(layers)]
    between = [(1024, wave, wave + 1) for wave in range(2 * layers)]
    assert check(kept + between) <= 1.01
