"""Products that sum: matmul in all ranks, einsum in all its forms, and their like."""

from __future__ import annotations

import numpy as np

import pullback as pb
from tests.functions.row import Row, integers, normal


def _operands(*shapes: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    return tuple([normal(*shape, seed=k) if shape else np.array(0.7 + k) for k, shape in enumerate(shapes)])


def _pair(name: str, *shapes: tuple[int, ...], note: str = "", torch_name: str | None = None) -> Row:
    there = name if torch_name is None else torch_name
    return Row(name, getattr(pb, name), _operands(*shapes), note=note or " ".join(map(str, shapes)),
               torch=(lambda t: getattr(t, there)) if there else None)  # fmt: skip


_MATMUL = [
    ((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 4)), ((2, 3), (3, 4)), ((5, 2, 3), (3, 4)), ((2, 3), (5, 3, 4)),
    ((5, 2, 3), (5, 3, 4)), ((5, 2, 3), (3,)), ((3,), (5, 3, 4)), ((2, 1, 2, 3), (3, 3, 2)), ((1, 2, 3), (2, 3, 2)),
]  # fmt: skip
_EINSUM = [
    ("i,i->", (3,), (3,)), ("ij,jk", (2, 3), (3, 4)), ("ji", (2, 3)), ("ij->", (2, 3)), ("ii->i", (3, 3)),
    ("iij->j", (3, 3, 2)), ("iii->i", (2, 2, 2)), ("bij,bjk->bik", (2, 2, 3), (2, 3, 2)), ("i,j->ij", (2,), (3,)),
    ("ij,j->ij", (2, 3), (3,)), ("ij,kj->ki", (2, 3), (4, 3)), ("...ij,...jk->...ik", (2, 1, 2, 3), (3, 3, 2)),
    ("i...->...i", (2, 3, 2)), ("...i,...i", (2, 3), (3,)), ("bqhd,bkhd->bhqk", (2, 3, 2, 2), (2, 2, 2, 2)),
    ("ij,jk,kl->il", (2, 3), (3, 2), (2, 3)), ("ij,jk,kl->", (2, 3), (3, 2), (2, 3)), ("i,ij,j->", (2,), (2, 3), (3,)),
    ("a,b,c->cab", (2,), (3,), (2,)), ("ij,ik->i", (2, 3), (2, 2)), ("ij,ij->i", (2, 1), (2, 3)),
    ("ab,bc,cd,de,ea->", (2, 3), (3, 2), (2, 2), (2, 3), (3, 2)), ("ijk,jil->kl", (2, 3, 2), (3, 2, 2)),
]  # fmt: skip

ROWS = [
    *[_pair("matmul", *shapes) for shapes in _MATMUL],
    Row("matmul", pb.matmul, _operands((2, 0), (0, 3)), by=(), note="empty", torch=lambda t: t.matmul),
    Row("matmul", pb.matmul, (integers(-5, 5, 2, 3), integers(-5, 5, 3, 2)), note="integers", torch=lambda t: t.matmul),
    _pair("dot", (3,), (3,)), _pair("dot", (5, 2, 3), (2, 3, 2), torch_name=""),
    _pair("dot", (), (2, 3), torch_name=""),
    _pair("inner", (2, 3), (4, 3)), _pair("inner", (3,), (2, 2, 3)), _pair("inner", (), (2, 3)),
    _pair("outer", (2,), (3,)), _pair("outer", (2, 2), (3,), torch_name=""),
    _pair("vdot", (4,), (4,)), _pair("vdot", (2, 3), (3, 2), torch_name=""),
    Row("vecdot", pb.vecdot, _operands((2, 3), (5, 1, 3)), torch=lambda t: t.linalg.vecdot),
    Row("vecdot", lambda x, y: pb.vecdot(x, y, axis=-2), _operands((3, 2), (3, 1)), note="axis",
        torch=lambda t: lambda x, y: t.linalg.vecdot(x, y, dim=-2)),
    _pair("matvec", (2, 1, 2, 3), (4, 3), torch_name=""), _pair("matvec", (2, 3), (3,), torch_name="mv"),
    _pair("vecmat", (4, 3), (2, 1, 3, 2), torch_name=""), _pair("vecmat", (3,), (3, 2), torch_name=""),
    _pair("kron", (2, 3), (3, 2)), _pair("kron", (2,), (2, 1, 3)), _pair("kron", (), (3,)),
    *[Row("tensordot", lambda x, y, a=axes: pb.tensordot(x, y, axes=a), _operands((2, 3, 4), (3, 4, 2)), note=note,
          torch=lambda t, a=axes: lambda x, y: t.tensordot(x, y, dims=a))
      for note, axes in (("outer", 0), ("two", 2), ("pairs", ([1, 0], [0, -1])), ("one", ([-1], [1])))],
    Row("dot_general", lambda x, y: pb.dot_general(x, y, ((2,), (0,)), ((0,), (1,))), _operands((2, 3, 4), (4, 2, 5)),
        torch=lambda t: lambda x, y: t.einsum("bij,jbk->bik", x, y), note="batch"),
    Row("dot_general", lambda x, y: pb.dot_general(x, y, ((-1, 0), (-1, 1))), _operands((2, 3, 4), (5, 2, 4)),
        torch=lambda t: lambda x, y: t.einsum("bij,kbj->ik", x, y), note="two axes"),
    Row("dot_general", lambda x, y: pb.dot_general(x, y, ((), ())), _operands((2,), (3,)), note="outer",
        torch=lambda t: t.outer),
    Row("linear", pb.linear, _operands((2, 2, 3), (4, 3), (4,)), torch=lambda t: t.nn.functional.linear),
    Row("linear", pb.linear, _operands((3,), (4, 3)), note="vector", torch=lambda t: t.nn.functional.linear),
    Row("linear", lambda x, w, b: pb.linear(x, w, bias=b), _operands((2, 3), (3,), ()), note="one output",
        torch=lambda t: lambda x, w, b: x @ w + b),
    Row("bilinear", pb.bilinear, _operands((4, 2), (4, 3), (2, 2, 3), (2,)), torch=lambda t: t.nn.functional.bilinear),
    Row("bilinear", pb.bilinear, _operands((2,), (4, 3), (2, 2, 3)), note="broadcast"),
    *[Row("einsum", lambda *x, s=subscripts: pb.einsum(s, *x), _operands(*shapes), note=subscripts,
          torch=lambda t, s=subscripts: lambda *x: t.einsum(s, *x)) for subscripts, *shapes in _EINSUM],
    Row("einsum", lambda x, y: pb.einsum(x, [0, 1], y, [1, 2], [0, 2]), _operands((2, 3), (3, 4)), note="lists",
        torch=lambda t: lambda x, y: t.einsum(x, [0, 1], y, [1, 2], [0, 2])),
    Row("einsum", lambda x, y: pb.einsum(x, [..., 5, 1], y, [..., 1, 7]), _operands((2, 2, 3), (3, 4)),
        note="lists with dots", torch=lambda t: lambda x, y: t.einsum(x, [..., 5, 1], y, [..., 1, 7])),
    Row("einsum", lambda x: pb.einsum("ij,jk->ik", x, x), (integers(-4, 4, 3, 3),), note="integers"),
    Row("einsum", lambda x: pb.einsum("ij,jk->ik", x, x), (integers(0, 2, 3, 3) == 1,), note="bools"),
    Row("einsum", lambda x, y: pb.einsum("ij,jk->ik", x, y), _operands((2, 0), (0, 3)), by=(), note="empty"),
]  # fmt: skip
