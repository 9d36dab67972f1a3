"""Functions that move, join, cut, repeat and pad. All are linear."""

from __future__ import annotations

import numpy as np

import pullback as pb
from tests.functions.row import Row, integers, normal, spread

X = spread(-2, 2, 2, 3, 4)
M = spread(-2, 2, 3, 4)
V = spread(-2, 2, 5)
SCALAR = np.array(1.7)
EMPTY = np.zeros((0, 3))

ROWS = [
    # Shape.
    Row("reshape", lambda x: pb.reshape(x, (4, -1)), (X,), torch=lambda t: lambda x: t.reshape(x, (4, -1))),
    Row("reshape", lambda x: pb.reshape(x, (1, 1)), (SCALAR,), note="0-d"),
    Row("reshape", lambda x: pb.reshape(x, (3, 0, 2)), (EMPTY,), by=(), note="empty"),
    Row("ravel", pb.ravel, (X,), torch=lambda t: t.ravel),
    Row("flatten", lambda x: pb.flatten(x, 1), (X,), torch=lambda t: lambda x: t.flatten(x, 1)),
    Row("flatten", lambda x: pb.flatten(x, -3, -2), (X,), note="negative",
        torch=lambda t: lambda x: t.flatten(x, -3, -2)),
    Row("flatten", pb.flatten, (SCALAR,), note="0-d", torch=lambda t: t.flatten),
    Row("squeeze", pb.squeeze, (X[:1, :, :1],), torch=lambda t: t.squeeze),
    Row("squeeze", lambda x: pb.squeeze(x, axis=-1), (X[:1, :, :1],), note="axis", torch=lambda t: lambda x: t.squeeze(
        x, -1)),
    Row("expand_dims", lambda x: pb.expand_dims(x, -2), (X,), torch=lambda t: lambda x: t.unsqueeze(x, -2)),
    Row("expand_dims", lambda x: pb.expand_dims(x, (0, -1)), (X,), note="two"),
    Row("broadcast_to", lambda x: pb.broadcast_to(x, (5, 2, 3, 4)), (X[:, :1],),
        torch=lambda t: lambda x: t.broadcast_to(
        x, (5, 2, 3, 4))),
    Row("broadcast_to", lambda x: pb.broadcast_to(x, (0, 3)), (V[:3],), note="to nothing"),
    Row("broadcast_arrays", pb.broadcast_arrays, (M, V[:3, None], SCALAR), torch=lambda t: t.broadcast_tensors),
    Row("atleast_1d", pb.atleast_1d, (SCALAR,), torch=lambda t: t.atleast_1d),
    Row("atleast_2d", pb.atleast_2d, (V,), torch=lambda t: t.atleast_2d),
    Row("atleast_3d", pb.atleast_3d, (V,), note="vector", torch=lambda t: t.atleast_3d),
    Row("atleast_3d", pb.atleast_3d, (M,), note="matrix", torch=lambda t: t.atleast_3d),
    # Order.
    Row("permute_dims", lambda x: pb.permute_dims(x, (2, 0, -2)), (X,),
        torch=lambda t: lambda x: t.permute(x, (2, 0, 1))),
    Row("transpose", pb.transpose, (X,), torch=lambda t: lambda x: x.permute(2, 1, 0)),
    Row("moveaxis", lambda x: pb.moveaxis(x, (0, 1), (-1, 0)), (X,), torch=lambda t: lambda x: t.moveaxis(
        x, (0, 1), (-1, 0))),
    Row("swapaxes", lambda x: pb.swapaxes(x, 0, -1), (X,), torch=lambda t: lambda x: t.swapaxes(x, 0, -1)),
    Row("matrix_transpose", pb.matrix_transpose, (X,), torch=lambda t: lambda x: x.mT),
    Row("flip", lambda x: pb.flip(x, axis=(0, -1)), (X,), torch=lambda t: lambda x: t.flip(x, (0, -1))),
    Row("flip", pb.flip, (X,), note="all", torch=lambda t: lambda x: t.flip(x, (0, 1, 2))),
    Row("fliplr", pb.fliplr, (X,), torch=lambda t: t.fliplr),
    Row("flipud", pb.flipud, (X,), torch=lambda t: t.flipud),
    *[Row("rot90", lambda x, k=k: pb.rot90(x, k, (2, 0)), (X,), note=str(k), torch=lambda t, k=k: lambda x: t.rot90(
        x, k, (2, 0))) for k in (-1, 0, 1, 2, 3)],
    Row("roll", lambda x: pb.roll(x, 5), (X,), note="flat", torch=lambda t: lambda x: t.roll(x, 5)),
    Row("roll", lambda x: pb.roll(x, (1, -7), axis=(0, -1)), (X,),
        torch=lambda t: lambda x: t.roll(x, (1, -7), (0, -1))),
    Row("roll", lambda x: pb.roll(x, 2, axis=0), (EMPTY,), by=(), note="empty"),
    # Joining.
    Row("concat", lambda x, y: pb.concat([x, y, x * y], axis=-1), (M, M[::-1].copy()),
        torch=lambda t: lambda x, y: t.concat(
        [x, y, x * y], -1)),
    Row("concat", lambda x, y: pb.concat([x, y], axis=None), (M, V), note="flat"),
    Row("concat", lambda x, y: pb.concat([x, y]), (np.zeros((0, 4)), M), by=(1,), note="empty"),
    Row("concatenate", lambda x, y: pb.concatenate([x, y]), (M, M[:1]),
        torch=lambda t: lambda x, y: t.concatenate([x, y])),
    Row("stack", lambda x, y: pb.stack([x, y, x], axis=1), (M, normal(3, 4)), torch=lambda t: lambda x, y: t.stack(
        [x, y, x], 1)),
    Row("stack", lambda x, y: pb.stack([x, y], axis=-1), (SCALAR, np.array(0.3)), note="0-d",
        torch=lambda t: lambda x, y:
        t.stack([x, y], -1)),
    Row("vstack", lambda x, y: pb.vstack([x, y]), (V[:4], M), torch=lambda t: lambda x, y: t.vstack([x, y])),
    Row("hstack", lambda x, y: pb.hstack([x, y]), (M, M[:, :1]), torch=lambda t: lambda x, y: t.hstack([x, y])),
    Row("hstack", lambda x, y: pb.hstack([x, y]), (SCALAR, V), note="vectors",
        torch=lambda t: lambda x, y: t.hstack([x, y])),
    Row("dstack", lambda x, y: pb.dstack([x, y]), (M, X[0]), torch=lambda t: lambda x, y: t.dstack([x, y])),
    Row("dstack", lambda x, y: pb.dstack([x, y]), (V, V[::-1].copy()), note="vectors",
        torch=lambda t: lambda x, y: t.dstack(
        [x, y])),
    Row("column_stack", lambda x, y: pb.column_stack([x, y]), (V[:3], M), torch=lambda t: lambda x, y: t.column_stack(
        [x, y])),
    Row("block", lambda x, y, z: pb.block([[x, y], [z]]), (M, normal(3, 1), V)),
    Row("block", lambda x, y: pb.block([x, y, 1.0]), (V, SCALAR), note="line"),
    # Cutting.
    Row("unstack", lambda x: pb.unstack(x, axis=1), (X,), torch=lambda t: lambda x: t.unbind(x, 1)),
    Row("split", lambda x: pb.split(x, 2, axis=-1), (X,), torch=lambda t: lambda x: t.split(x, 2, -1)),
    Row("split", lambda x: pb.split(x, [1, 3], axis=2), (X,), note="positions",
        torch=lambda t: lambda x: t.tensor_split(
        x, (1, 3), 2)),
    Row("array_split", lambda x: pb.array_split(x, 3, axis=2), (X,), torch=lambda t: lambda x: t.tensor_split(x, 3, 2)),
    Row("chunk", lambda x: pb.chunk(x, 3, axis=-1), (X,), torch=lambda t: lambda x: t.chunk(x, 3, -1)),
    Row("chunk", lambda x: pb.chunk(x, 4), (V,), note="fewer", torch=lambda t: lambda x: t.chunk(x, 4)),
    Row("hsplit", lambda x: pb.hsplit(x, 2), (M,), torch=lambda t: lambda x: t.hsplit(x, 2)),
    Row("hsplit", lambda x: pb.hsplit(x, [2]), (V,), note="vector", torch=lambda t: lambda x: t.hsplit(x, [2])),
    Row("vsplit", lambda x: pb.vsplit(x, 3), (M,), torch=lambda t: lambda x: t.vsplit(x, 3)),
    Row("dsplit", lambda x: pb.dsplit(x, 2), (X,), torch=lambda t: lambda x: t.dsplit(x, 2)),
    Row("narrow", lambda x: pb.narrow(x, -1, 1, 2), (X,), torch=lambda t: lambda x: t.narrow(x, -1, 1, 2)),
    Row("narrow", lambda x: pb.narrow(x, 1, -2, 2), (X,), note="negative",
        torch=lambda t: lambda x: t.narrow(x, 1, -2, 2)),
    # Repeating.
    Row("tile", lambda x: pb.tile(x, (2, 1, 3)), (X,), torch=lambda t: lambda x: t.tile(x, (2, 1, 3))),
    Row("tile", lambda x: pb.tile(x, (2, 2, 1, 1)), (M,), note="more axes",
        torch=lambda t: lambda x: t.tile(x, (2, 2, 1, 1))),
    Row("tile", lambda x: pb.tile(x, 2), (SCALAR,), note="0-d", torch=lambda t: lambda x: t.tile(x, (2,))),
    Row("repeat", lambda x: pb.repeat(x, 3), (M,), note="flat", torch=lambda t: lambda x: t.repeat_interleave(x, 3)),
    Row("repeat", lambda x: pb.repeat(x, 2, axis=-2), (X,), torch=lambda t: lambda x: t.repeat_interleave(x, 2, -2)),
    Row("repeat", lambda x: pb.repeat(x, [1, 0, 2], axis=1), (X,), note="counts", torch=lambda t: lambda x:
        t.repeat_interleave(x, t.tensor([1, 0, 2]), 1)),
    Row("repeat", lambda x, n: pb.repeat(x, n, axis=0, total_repeat_length=7), (M, np.array([2, 0, 3])),
        note="to length"),
    Row("repeat", lambda x, n: pb.repeat(x, n, axis=-1, total_repeat_length=3), (M, np.array([2, 0, 3, 1])),
        note="cut"),
    # Padding.
    Row("pad", lambda x, v: pb.pad(x, ((1, 0), (0, 2)), constant_values=v), (M, SCALAR), note="constant"),
    Row("pad", lambda x, v: pb.pad(x, {-1: 2}, constant_values=v), (M, normal(2, 2)), note="constants"),
    *[Row("pad", lambda x, m=mode: pb.pad(x, ((1, 2), (3, 1)), mode=m), (M,), note=mode,
        torch=lambda t, m=mode: lambda x:
          t.nn.functional.pad(x[None], (3, 1, 1, 2), mode={"edge": "replicate", "wrap": "circular"}.get(m, m))[0])
      for mode in ("edge", "reflect", "wrap")],
    *[Row("pad", lambda x, m=mode: pb.pad(x, ((0, 0), (9, 11)), mode=m), (M,), note=f"{mode} wide")
      for mode in ("edge", "reflect", "symmetric", "wrap")],
    # Windows.
    *[Row("unfold", lambda x, a=axis, n=size, s=step: pb.unfold(x, a, n, s), (spread(-2, 2, 3, 7),),
          note=f"{axis} {size} {step}", torch=lambda t, a=axis, n=size, s=step: lambda x: x.unfold(a, n, s))
      for axis, size, step in ((1, 3, 1), (-1, 5, 2), (0, 2, 1), (1, 2, 3), (1, 7, 1), (1, 1, 2))],
    Row("sliding_window_view", lambda x: pb.sliding_window_view(x, (2, 3)), (M,), torch=lambda t: lambda x: x.unfold(
        0, 2, 1).unfold(1, 3, 1)),
    Row("sliding_window_view", lambda x: pb.sliding_window_view(x, 3, axis=-1), (M,), note="axis"),
    # Diagonals.
    Row("tril", lambda x: pb.tril(x, -1), (X,), torch=lambda t: lambda x: t.tril(x, -1)),
    Row("triu", lambda x: pb.triu(x, 1), (X,), torch=lambda t: lambda x: t.triu(x, 1)),
    *[Row("diagonal", lambda x, k=k: pb.diagonal(x, k, -1, 1), (X,), note=str(k),
        torch=lambda t, k=k: lambda x: t.diagonal(
        x, k, -1, 1)) for k in (-2, 0, 1, 3)],
    *[Row("diag", lambda x, k=k: pb.diag(x, k), (V,), note=f"vector {k}", torch=lambda t, k=k: lambda x: t.diag(x, k))
      for k in (-2, 0, 1)],
    Row("diag", lambda x: pb.diag(x, 1), (M,), note="matrix", torch=lambda t: lambda x: t.diag(x, 1)),
    Row("diagflat", lambda x: pb.diagflat(x, -1), (M,), torch=lambda t: lambda x: t.diagflat(x, -1)),
    Row("diag_embed", lambda x: pb.diag_embed(x, 1, 0, -2), (M,), torch=lambda t: lambda x: t.diag_embed(x, 1, 0, -2)),
    Row("diag_embed", pb.diag_embed, (np.zeros((2, 0)),), by=(), note="empty"),
    Row("trace", pb.trace, (X,), torch=lambda t: lambda x: t.diagonal(x, 0, -2, -1).sum(-1)),
    Row("trace", lambda x: pb.trace(x, 1, 0, 1), (X,), note="axes"),
    Row("trace", pb.trace, (integers(-9, 9, 3, 3),), note="integers", torch=lambda t: t.trace),
    Row("meshgrid", lambda x, y: pb.meshgrid(x, y, indexing="ij"), (V, V[:3]), torch=lambda t: lambda x, y: t.meshgrid(
        x, y, indexing="ij")),
    Row("meshgrid", lambda x, y, z: pb.meshgrid(x, y, z), (V, V[:3], V[:2]), note="xy"),
    Row("meshgrid", lambda x, y: pb.meshgrid(x, y, sparse=True), (V, V[:3]), note="sparse"),
]  # fmt: skip
