"""Pooling and resizing of ``pb.nn``."""

from __future__ import annotations

from typing import Any

import pullback as pb
from tests.functions.row import Row, normal, spread

F = pb.nn.functional
LINE, PLANE, VOLUME = spread(-2, 2, 2, 3, 11), spread(-2, 2, 2, 2, 7, 6, seed=1), spread(-2, 2, 2, 4, 3, 5, seed=2)
PIXELS = normal(2, 8, 2, 3, seed=3)
POSITIVE = spread(0.3, 2, 2, 2, 5, 7, seed=4)


def _row(name: str, call: Any, x: Any, note: str = "", **options: Any) -> Row:
    return Row(f"nn.{name}", call(F), (x,), torch=lambda t: call(t.nn.functional), note=note, **options)


ROWS = [
    _row("max_pool1d", lambda f: lambda x: f.max_pool1d(x, 3), LINE),
    _row("max_pool1d", lambda f: lambda x: f.max_pool1d(x, 2, 3, 1, 2, True, True), LINE, "all options"),
    _row("max_pool1d", lambda f: lambda x: f.max_pool1d(x, 3, 1, 1), LINE[0], "no batch"),
    _row("max_pool2d", lambda f: lambda x: f.max_pool2d(x, 2), PLANE),
    _row("max_pool2d", lambda f: lambda x: f.max_pool2d(x, 3, 2, 1), PLANE, "overlapping"),
    _row("max_pool2d", lambda f: lambda x: f.max_pool2d(x, (3, 2), (2, 1), (1, 0), (2, 3), False, True), PLANE,
         "dilated"),
    _row("max_pool2d", lambda f: lambda x: f.max_pool2d(x, 2, 3, 0, 1, True, True), PLANE, "gaps"),
    _row("max_pool2d", lambda f: lambda x: f.max_pool2d(x, 3, 1, 1), PLANE[:0], "empty batch"),
    _row("max_pool3d", lambda f: lambda x: f.max_pool3d(x, (2, 2, 3), 2, (1, 1, 0), 1, True, True), VOLUME),
    _row("avg_pool1d", lambda f: lambda x: f.avg_pool1d(x, 3), LINE),
    _row("avg_pool1d", lambda f: lambda x: f.avg_pool1d(x, 4, 3, 2, True, False), LINE, "all options"),
    _row("avg_pool2d", lambda f: lambda x: f.avg_pool2d(x, 2), PLANE),
    _row("avg_pool2d", lambda f: lambda x: f.avg_pool2d(x, (3, 2), (2, 3), 1, True), PLANE, "ceil mode"),
    _row("avg_pool2d", lambda f: lambda x: f.avg_pool2d(x, 3, 1, 1, False, False), PLANE, "without padding"),
    _row("avg_pool2d", lambda f: lambda x: f.avg_pool2d(x, 3, 2, 1, False, True, 5), PLANE[0], "divisor"),
    _row("avg_pool2d", lambda f: lambda x: f.avg_pool2d(x, 2), PLANE[:0], "empty batch"),
    _row("avg_pool3d", lambda f: lambda x: f.avg_pool3d(x, (2, 3, 2), (2, 1, 3), 1, True, False), VOLUME[None]),
    _row("lp_pool1d", lambda f: lambda x: f.lp_pool1d(x, 2, 3, 2), spread(0.3, 2, 2, 2, 7)),
    _row("lp_pool2d", lambda f: lambda x: f.lp_pool2d(x, 3, 2, ceil_mode=True), POSITIVE),
    _row("lp_pool2d", lambda f: lambda x: f.lp_pool2d(x, 1, (2, 3)), PLANE, "norm 1"),
    _row("lp_pool3d", lambda f: lambda x: f.lp_pool3d(x, 2, 2), POSITIVE),
    _row("adaptive_avg_pool1d", lambda f: lambda x: f.adaptive_avg_pool1d(x, 4), LINE),
    _row("adaptive_avg_pool1d", lambda f: lambda x: f.adaptive_avg_pool1d(x, 14), LINE, "more than there are"),
    _row("adaptive_avg_pool2d", lambda f: lambda x: f.adaptive_avg_pool2d(x, 1), PLANE, "global"),
    _row("adaptive_avg_pool2d", lambda f: lambda x: f.adaptive_avg_pool2d(x, (3, 2)), PLANE),
    _row("adaptive_avg_pool2d", lambda f: lambda x: f.adaptive_avg_pool2d(x, (None, 4)), PLANE[0], "one axis"),
    _row("adaptive_avg_pool3d", lambda f: lambda x: f.adaptive_avg_pool3d(x, (3, 2, 4)), VOLUME),
    _row("adaptive_max_pool1d", lambda f: lambda x: f.adaptive_max_pool1d(x, 4), LINE),
    _row("adaptive_max_pool2d", lambda f: lambda x: f.adaptive_max_pool2d(x, (3, 4), True), PLANE, "indices"),
    _row("adaptive_max_pool2d", lambda f: lambda x: f.adaptive_max_pool2d(x, (7, 3), True), PLANE, "even"),
    _row("adaptive_max_pool3d", lambda f: lambda x: f.adaptive_max_pool3d(x, (3, 2, 4)), VOLUME),
    _row("max_unpool1d", lambda f: lambda x: f.max_unpool1d(*f.max_pool1d(x, 3, return_indices=True), 3), LINE),
    _row("max_unpool2d",
         lambda f: lambda x: f.max_unpool2d(*f.max_pool2d(x, 2, return_indices=True), 2, output_size=(7, 6)), PLANE),
    _row("max_unpool3d",
         lambda f: lambda x: f.max_unpool3d(*f.max_pool3d(x, 2, return_indices=True), 2, output_size=VOLUME.shape[1:]),
         VOLUME),
    _row("interpolate", lambda f: lambda x: f.interpolate(x, 7), LINE, "nearest"),
    _row("interpolate", lambda f: lambda x: f.interpolate(x, scale_factor=(1.5, 0.7), mode="nearest-exact"), PLANE,
         "nearest exact"),
    _row("interpolate", lambda f: lambda x: f.interpolate(x, 16, mode="linear"), LINE, "linear"),
    _row("interpolate", lambda f: lambda x: f.interpolate(x, (3, 9), mode="bilinear"), PLANE, "bilinear"),
    _row("interpolate", lambda f: lambda x: f.interpolate(x, (10, 4), mode="bilinear", align_corners=True), PLANE,
         "corners"),
    _row("interpolate", lambda f: lambda x: f.interpolate(x, scale_factor=1.7, mode="bilinear"), PLANE, "factor"),
    _row("interpolate",
         lambda f: lambda x: f.interpolate(x, scale_factor=1.7, mode="bilinear", recompute_scale_factor=True), PLANE,
         "recomputed factor"),
    _row("interpolate", lambda f: lambda x: f.interpolate(x, (3, 4), mode="bilinear", antialias=True), PLANE,
         "filtered"),
    _row("interpolate", lambda f: lambda x: f.interpolate(x, (5, 13), mode="bicubic"), PLANE, "bicubic"),
    _row("interpolate", lambda f: lambda x: f.interpolate(x, (9, 1), mode="bicubic", align_corners=True), PLANE,
         "bicubic corners"),
    _row("interpolate", lambda f: lambda x: f.interpolate(x, (3, 8), mode="bicubic", antialias=True), PLANE,
         "bicubic filtered"),
    _row("interpolate", lambda f: lambda x: f.interpolate(x, (3, 5, 4), mode="trilinear"), VOLUME[None], "trilinear"),
    _row("interpolate", lambda f: lambda x: f.interpolate(x, (3, 4), mode="area"), PLANE, "area"),
    _row("interpolate", lambda f: lambda x: f.interpolate(x, (3, 4), mode="bilinear"), PLANE[:0], "empty batch"),
    _row("pixel_shuffle", lambda f: lambda x: f.pixel_shuffle(x, 2), PIXELS),
    _row("pixel_unshuffle", lambda f: lambda x: f.pixel_unshuffle(x, 3), normal(2, 6, 3)),
]
