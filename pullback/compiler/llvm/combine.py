"""What folds and scans combine with: the builder's name of each combining instruction, and what it starts from."""

from __future__ import annotations

from ...dtypes import by_name

#: instruction -> ``VectorBuilder.combine``
COMBINE = {
    "add": "add", "multiply": "mul", "maximum": "max", "minimum": "min", "logical_or": "or", "logical_and": "and",
}  # fmt: skip


def identity(instruction: str, dtype: str) -> float | int | bool:
    """The number of the storage dtype that changes nothing it is combined with; for argmax and argmin that loses."""
    kind = by_name(dtype)
    if instruction == "add":
        return 0
    if instruction == "multiply":
        return 1
    if instruction in ("logical_or", "logical_and"):
        return instruction == "logical_and"
    largest = instruction in ("minimum", "argmin")
    if kind.kind == "f":
        return float("inf") if largest else float("-inf")
    if kind.kind == "b":
        return largest
    bits = 8 * kind.itemsize
    if kind.kind == "u":
        return (1 << bits) - 1 if largest else 0
    return (1 << (bits - 1)) - 1 if largest else -(1 << (bits - 1))
