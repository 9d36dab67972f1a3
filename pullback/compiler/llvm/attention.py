"""The native functions of attention: products of blocks of queries and keys, softmax as they go by, and the gradient.

The matrix of scores is never there as a whole. Forward (attention_forward.py), a task owns a block of queries and
walks over blocks of keys: it keeps the largest score so far, the sum of the exponentials and the weighted sum of the
values of each query, and scales the latter two whenever the first grows (Milakov and Gimelshein, "Online normalizer
calculation for softmax", 2018; Dao et al., "FlashAttention", 2022). Backward (attention_backward.py), a task owns the
queries of one head of keys and values; it computes each block of scores again from the logarithm of the sum, and adds
up the three gradients.

Each query may attend to a range of keys: those from ``t + low`` to ``t + high`` for query ``t`` (causal masks, windows,
offsets). Blocks outside of every range are skipped. A mask besides is added, or chooses, element by element.

Weights are dropped by random bits whose counter is the place of the score, so that both directions draw the same.

float16 and bfloat16 are widened as they are packed; scores, sums, mask and results are then float32.
"""

from __future__ import annotations

from .attention_backward import BackwardLibrary
from .attention_forward import ForwardLibrary
from .target import Target


def attention_name(dtype: str, mask: str, drops: bool, backward: bool) -> str:
    return f"attend_{dtype}_{mask}{'_drop' * drops}{'_backward' * backward}"


def attention_ir(dtype: str, mask: str, drops: bool, backward: bool, target: Target) -> str:
    """The module for q, k and v of ``dtype``.

    mask: "none"; "choose": bools, True where a query may attend to a key; "add": numbers that are added to the scores.
    drops: whether weights are dropped at random.
    """
    name = attention_name(dtype, mask, drops, backward)
    return (BackwardLibrary if backward else ForwardLibrary)(dtype, mask, drops, target).module(name)
