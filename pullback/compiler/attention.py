"""Attention as a step of a program: what it reads, and its launch. See llvm/attention.py."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from ..ops.attention import Setting, kept_below, named_extras, setting_of, split_keys
from ..runtime import object_cache
from ..runtime.driver import Launch, get_num_threads
from .contraction import Operand, narrow
from .llvm.attention import attention_ir, attention_name
from .llvm.attention_parts import GROUPS, LOG2_E, PARAMETERS
from .llvm.packing import group_words, tile_for
from .llvm.target import Target
from .llvm.values import STORAGE_SIZE
from .products import Axis, collapsed, rounded_up
from .values import Value
from .views import row_major

if TYPE_CHECKING:
    from .fuse import Fuser

MAX_ROWS = 2048  # forward: queries of a task, for all of which keys and values are packed once
# Rows and keys of a block of scores, forward and backward: the cache next to the core's own holds it.
BLOCK = {False: (12, 384), True: (72, 192)}
EVERYTHING = 1 << 40  # a bound that bounds nothing


@dataclass
class AttentionPlan:
    """An attention (or its gradient) of ``batch`` x ``heads`` queries, ``shared`` of whose heads have the same keys.

    dtype: of q, k and v, and the output's gradient; of half types all else is float32.
    operands: by name: q, k, v; the output with the logarithms behind it, out, and the output's gradient, dout
        (backward); first positions of queries, random keys (seeds) and counters, and the mask, where they are.
    strides: in elements.
    """

    backward: bool
    dtype: str
    operands: dict[str, Operand]
    strides: dict[str, tuple[int, ...]]
    mask: str
    batch: int
    heads: int
    shared: int
    queries: int
    keys: int
    depth: int
    width: int
    setting: Setting
    splits: int = 1

    @property
    def flops(self) -> float:
        """Of the products, were no key left out."""
        pairs = 2.0 * self.batch * self.heads * self.queries * self.keys
        return pairs * (3 * self.depth + 2 * self.width if self.backward else self.depth + self.width)

    def launch(self, places: list[tuple[int, int]], result: tuple[int, int], target: Target) -> Launch:
        """``places``: slot and byte offset of each operand's first element; ``result``: of the result's."""
        size, sum_dtype = STORAGE_SIZE[self.dtype], "float64" if self.dtype == "float64" else "float32"
        sum_size, tile = STORAGE_SIZE[sum_dtype], tile_for(target, sum_dtype)
        scale, low, high, has_first, drop = self.setting
        rows, items = self.shared * self.queries, self.batch * self.heads // self.shared
        part, key_block = BLOCK[self.backward]
        key_block = min(key_block, rounded_up(self.keys, tile.columns))
        part = min(rounded_up(part, tile.rows), rows)  # whole tiles: parts are packed one behind the other
        # Forward, rows do not depend on each other: blocks so small that every thread has some.
        wanted = max(1, 2 * get_num_threads() // max(items, 1))
        row_block = min(rows, MAX_ROWS // part * part, max(part, rounded_up(-(-rows // wanted), part)))
        row_blocks = -(-rows // row_block)
        score_row = (key_block + 16) * sum_size  # not a multiple of what a cache's ways are apart
        values = {**dict.fromkeys(PARAMETERS, 0), **self._places(places, result, size, sum_size)}
        values |= {
            "rows": rows, "queries": self.queries, "keys": self.keys, "depth": self.depth, "width": self.width,
            "row_block": row_block, "row_blocks": row_blocks, "part": part, "key_block": key_block, "items": items,
            "splits": self.splits, "split_keys": split_keys(self.keys, self.splits),
            "score_row": score_row, "k_row": self.strides["k"][2] * size, "v_row": self.strides["v"][2] * size,
            "scale": _bits(scale, sum_size), "q_scale": _bits(scale * LOG2_E, sum_size),
            "norm_scale": _bits(abs(scale) * LOG2_E, sum_size), "back_scale": _bits(1 / LOG2_E, sum_size),
            "low": -EVERYTHING if low is None else low, "high": EVERYTHING if high is None else high,
            "has_first": int(has_first),
        }  # fmt: skip
        if self.mask != "none":
            values["mask_step"] = self.strides["mask"][3] * (1 if self.mask == "choose" else sum_size)
        if drop is not None:
            values |= {"kept_below": kept_below(drop[0]), "kept_scale": _bits(1 / (1 - drop[0]), sum_size)}
        depth, width = rounded_up(self.depth, tile.columns), rounded_up(self.width, tile.columns)
        scratch = 0
        numbers = {"keys": key_block * self.depth, "scores": part * score_row // sum_size}
        if self.backward:
            table = part + 2 * tile.rows
            numbers |= {
                "q": part * depth, "dout": part * width, "values": key_block * self.width,
                "keys_again": key_block * depth, "second": numbers["scores"], "key_sums": key_block * depth,
                "value_sums": key_block * width, "sums": rows * depth, "total": rows,
            }  # fmt: skip
        else:
            table = row_block + 2 * tile.rows
            numbers |= {
                "q": table * self.depth, "values": key_block * width, "sums": row_block * width,
                "largest": row_block, "total": row_block, "query_norms": row_block, "key_norm": 1,
            }  # fmt: skip
        tables = {
            "q_rows": table, "out_rows": part, "mask_rows": table, "draw_rows": table, "key_rows": key_block,
            "value_rows": key_block, "depth": depth, "width": width, "q_lines": part, "out_lines": part,
            "lines": max(self.depth, self.width, part, key_block),
        }  # fmt: skip
        sizes = {name: 8 * count for name, count in tables.items()}
        for name, nbytes in (sizes | {name: sum_size * count for name, count in numbers.items()}).items():
            values[f"at_{name}"] = scratch
            scratch += rounded_up(nbytes, 64) + 128  # a vector may be written behind a panel
        params = [*values.values()]
        for axes in self._groups(size):
            params += group_words(axes)
        address = _function(self.dtype, self.mask, drop is not None, self.backward, target)
        return Launch(address, params, items * (self.splits if self.backward else row_blocks), 1, scratch)

    def _places(
        self, places: list[tuple[int, int]], result: tuple[int, int], size: int, sum_size: int
    ) -> dict[str, int]:
        outputs = self.batch * self.heads * self.queries * self.width * sum_size
        found = dict(zip(self.operands, places, strict=True))
        if self.backward:
            q_bytes = self.splits * self.batch * self.heads * self.queries * self.depth * sum_size
            k_bytes = self.batch * self.heads // self.shared * self.keys * self.depth * sum_size
            slot, start = result
            found |= {"dq": result, "dk": (slot, start + q_bytes), "dv": (slot, start + q_bytes + k_bytes)}
        else:
            found["out"] = result
        found["lse"] = found["out"][0], found["out"][1] + outputs
        parts = enumerate(("slot", "offset"))
        return {f"{name}_{part}": place[i] for i, part in parts for name, place in found.items()}

    def _groups(self, size: int) -> list[list[Axis]]:
        (q_batch, q_head, q_row, _), (k_batch, k_head, *_), (v_batch, v_head, *_) = (self.strides[x] for x in "qkv")
        groups, shared = self.heads // self.shared, self.shared
        m_batch, m_head, m_row, _ = self.strides.get("mask", (0, 0, 0, 0))
        first_batch, first_head = self.strides.get("first", (0, 0))
        (seed,), (counter,) = (self.strides.get(name, (0,)) for name in ("seeds", "counters"))
        _, head_draws, query_draws = self.setting.drop or (0.0, 0, 0)
        unit = 1 if self.mask == "choose" else max(size, 4)  # half types are masked in float32
        items: list[Axis] = [
            (self.batch, q_batch * size, k_batch * size, v_batch * size),
            (groups, q_head * shared * size, k_head * size, v_head * size),
        ]
        masks: list[Axis] = [(self.batch, m_batch * unit, 0), (groups, m_head * shared * unit, head_draws * shared)]
        draws: list[Axis] = [(self.batch, first_batch * 8, seed * 8, counter * 8), (groups, first_head * 8, 0, 0)]
        rows: list[Axis] = [
            (shared, q_head * size, m_head * unit, head_draws), (self.queries, q_row * size, m_row * unit, query_draws),
        ]  # fmt: skip
        found = {
            "items": collapsed(items), "item_masks": collapsed(masks), "item_draws": collapsed(draws),
            "rows": collapsed(rows),
        }  # fmt: skip
        return [found[name] for name in GROUPS]


@cache
def _function(dtype: str, mask: str, drops: bool, backward: bool, target: Target) -> int:
    name = attention_name(dtype, mask, drops, backward)
    return object_cache.compile_text(attention_ir(dtype, mask, drops, backward, target), (name,))[name]


def plan_attention(fuser: Fuser, value: Value) -> AttentionPlan:
    """How to compute ``value``, an ``attention`` or ``attention_gradient``."""
    backward = value.name == "attention_gradient"
    setting, splits = setting_of(value.attrs), value.attrs[len(Setting._fields) :]
    q, k, v, *cotangent = narrow(fuser, (*value.inputs[:3], *value.inputs[4:5]) if backward else value.inputs[:3])
    extras = named_extras(setting, value.inputs[5 if backward else 3 :])
    operands: dict[str, Operand] = {}
    strides: dict[str, tuple[int, ...]] = {}
    if backward:
        operands["out"], operands["dout"] = (Operand(fuser.materialise(x), 0) for x in (value.inputs[3], *cotangent))
    found = {"q": q, "k": k, "v": v, "first": extras.offset, "seeds": extras.keys, "counters": extras.counters}
    for name, operand in (found | {"mask": extras.mask}).items():
        if operand is None:
            continue
        base, offset, steps = fuser.strided(operand)
        needs = (1,) if name in "qkv" else (0, 1) if name == "mask" else steps[-1:]  # strides of the last axis
        if steps[-1] not in needs and operand.shape[-1] != 1:
            base, offset, steps = fuser.copy_of(operand), 0, row_major(operand.shape)
        operands[name], strides[name] = Operand(base, offset), steps
    mask = "none" if extras.mask is None else "choose" if extras.mask.dtype.kind == "b" else "add"
    batch, heads, queries, depth = q.shape
    return AttentionPlan(
        backward, q.dtype.name, operands, strides, mask, batch, heads, heads // k.shape[1], queries, k.shape[2], depth,
        v.shape[3], setting, *splits,
    )  # fmt: skip


def _bits(number: float, size: int) -> int:
    return int(struct.unpack("<i", struct.pack("<f", number))[0] if size == 4 else
               struct.unpack("<q", struct.pack("<d", number))[0])  # fmt: skip
