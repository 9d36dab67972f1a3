"""Embedding: a table of vectors, read by row number."""

from __future__ import annotations

from typing import Any

from ..api import creation
from ..errors import ShapeError
from ..tensor import Tensor
from . import init, labels
from .module import Module, Parameter


class Embedding(Module):
    """:func:`~pullback.nn.embedding` of a weight (num_embeddings, embedding_dim), which starts normal.

    padding_idx: a row that starts at 0 and gets no gradient; negative counts from the end.
    key: a random key for the start; without one the global generator is used.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        dtype: Any = None,
        key: Any = None,
    ) -> None:
        if num_embeddings < 0 or embedding_dim < 0:
            raise ShapeError(f"Embedding: sizes must not be negative, got {num_embeddings} and {embedding_dim}")
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        if padding_idx is not None:
            padding_idx = labels.padding_row(padding_idx, num_embeddings, "Embedding")
        self.padding_idx = padding_idx
        self.weight = Parameter(creation.zeros((num_embeddings, embedding_dim), dtype=dtype))
        init.normal_(self.weight, key=key)
        if padding_idx is not None:
            self.weight.assign(self.weight.detach().at[padding_idx].set(0.0))

    def forward(self, indices: Any) -> Tensor:
        return labels.embedding(indices, self.weight, self.padding_idx)

    def extra_repr(self) -> str:
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}"
