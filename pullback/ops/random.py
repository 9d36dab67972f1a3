"""Counter-based random bits: Threefry-2x32 with 20 rounds.

Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011, and its Random123 library, whose
known answers the tests hold. Keys and counters are uint64 whose high half is word 0 of the paper's pair.
"""

from __future__ import annotations

import numpy as np

from .. import dtypes
from ..dtypes import DType
from ..errors import DTypeError
from ..graph.node import Node
from ..shapes import Shape
from .family import Array, binary_function, describe, elementwise, infer_binary
from .record import NoDerivative

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA  # the key schedule's extra word is the exclusive or of the key's words and this


def _rotate(x: Array, distance: int) -> Array:
    return (x << np.uint32(distance)) | (x >> np.uint32(32 - distance))


def threefry_bits(key: Array, counter: Array) -> Array:
    """64 random bits of each key and counter, which broadcast."""
    key, counter = np.broadcast_arrays(np.atleast_1d(key), np.atleast_1d(counter))
    low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    first, second = (key >> shift).astype(np.uint32), (key & low).astype(np.uint32)
    schedule = (first, second, first ^ second ^ np.uint32(PARITY))
    x = (counter >> shift).astype(np.uint32) + schedule[0]
    y = (counter & low).astype(np.uint32) + schedule[1]
    for group in range(5):
        for distance in ROTATIONS[group % 2]:
            x = x + y
            y = _rotate(y, distance) ^ x
        x = x + schedule[(group + 1) % 3]
        y = y + schedule[(group + 2) % 3] + np.uint32(group + 1)
    return (x.astype(np.uint64) << shift) | y.astype(np.uint64)


def _threefry_reference(node: Node, key: Array, counter: Array) -> Array:
    return threefry_bits(key, counter).reshape(node.shape)


_infer_unsigned = infer_binary("threefry", "u")


def _infer_threefry(inputs: tuple[Node, ...]) -> tuple[Shape, DType]:
    if inputs[0].dtype is not dtypes.uint64:
        raise DTypeError(f"threefry: uint64 key and counter expected, got {describe(*inputs)}")
    return _infer_unsigned(inputs)


THREEFRY = elementwise(
    "threefry", _infer_threefry, _threefry_reference, NoDerivative("random bits do not depend smoothly on a key"), 80,
    "64 random bits of a 64-bit key and counter: Threefry-2x32, 20 rounds",
)

threefry = binary_function(THREEFRY)
