"""GridSample by Gather and arithmetic."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from runtimes.reference import edits
from runtimes.reference.expansion import Graft, attribute, expansion, given, open_shape, static, type_of


def _pixels(graft: Graft, grid: ir.Value, size: int, *, corners: bool) -> ir.Value:
    """Return places in pixels of an axis of `size` for places from -1 to 1."""
    if corners:
        return graft.op("Mul", graft.op("Add", grid, 1.0), (size - 1) / 2)
    return graft.op("Add", graft.op("Mul", grid, size / 2), (size - 1) / 2)


def _held(graft: Graft, pixels: ir.Value, size: int) -> ir.Value:
    return graft.op("Clip", pixels, 0.0, float(size - 1))


def _inside(graft: Graft, pixels: ir.Value, size: int) -> ir.Value:
    """Return 1 where whole numbers are pixels of an axis of `size`, else 0, as numbers."""
    away = graft.op("Abs", graft.op("Sub", pixels, _held(graft, pixels, size)))
    return graft.op("Add", graft.op("Neg", graft.op("Clip", away, 0.0, 1.0)), 1.0)


def _corner(graft: Graft, node: ir.Node, rows: ir.Value, at: tuple[ir.Value, ir.Value]) -> ir.Value:
    """Return the pixels at the whole numbers `at` (x and y), as `[batch, height, width, channels]`."""
    batch, _, height, width = static(given(node, 0))
    x, y = (_held(graft, each, size) for each, size in zip(at, (width, height), strict=True))
    # In int32, since a float16 does not count to the last pixel.
    across, down = (graft.cast(each, ir.DataType.INT32) for each in (x, y))
    places = graft.op("Add", graft.op("Mul", down, width), across)
    if batch > 1:
        firsts = np.arange(batch, dtype=np.int32).reshape(batch, 1, 1) * np.int32(height * width)
        places = graft.op("Add", places, graft.constant(firsts))
    picked = graft.op("Gather", rows, places, axis=0)
    if attribute(node, "padding_mode", "zeros") != "zeros":
        return picked
    inside = graft.op("Mul", _inside(graft, at[0], width), _inside(graft, at[1], height))
    return graft.op("Mul", picked, graft.unsqueeze(inside, 3))


def _sample(graft: Graft, node: ir.Node) -> ir.Value:
    value, grid = given(node, 0), given(node, 1)
    batch, channels, height, width = static(value)
    corners = bool(attribute(node, "align_corners", 0))
    _, out_height, out_width, _ = static(grid)
    rows = graft.reshape(graft.transpose(value, [0, 2, 3, 1]), [batch * height * width, channels])
    flat = graft.split(grid, [1, 1], 3)
    shape = [batch, out_height, out_width]
    x, y = (
        _pixels(graft, graft.reshape(each, shape), size, corners=corners)
        for each, size in zip(flat, (width, height), strict=True)
    )
    if attribute(node, "padding_mode", "zeros") == "border":
        x, y = _held(graft, x, width), _held(graft, y, height)
    if attribute(node, "mode", "linear") == "nearest":
        made = _corner(graft, node, rows, (graft.op("Round", x), graft.op("Round", y)))
        return graft.transpose(made, [0, 3, 1, 2])
    left, top = graft.op("Floor", x), graft.op("Floor", y)
    right, bottom = graft.op("Add", left, 1.0), graft.op("Add", top, 1.0)
    to_right, to_bottom = (graft.unsqueeze(graft.op("Sub", *pair), 3) for pair in ((x, left), (y, top)))
    above = _between(graft, [_corner(graft, node, rows, (each, top)) for each in (left, right)], to_right)
    below = _between(graft, [_corner(graft, node, rows, (each, bottom)) for each in (left, right)], to_right)
    return graft.transpose(_between(graft, [above, below], to_bottom), [0, 3, 1, 2])


def _between(graft: Graft, ends: list[ir.Value], share: ir.Value) -> ir.Value:
    first, second = ends
    return graft.op("Add", first, graft.op("Mul", graft.op("Sub", second, first), share))


def _obstacle(node: ir.Node) -> str:
    why = open_shape(node, 0, 1)
    if why:
        return why
    mode, padding = attribute(node, "mode", "linear"), attribute(node, "padding_mode", "zeros")
    if edits.rank_of(given(node, 0)) != 4:
        return "it samples in three dimensions"
    if mode not in {"bilinear", "linear", "nearest"}:
        return f"its mode is {mode}"
    if padding not in {"zeros", "border"}:
        return f"its padding is {padding}"
    dtype = type_of(given(node, 0))
    return "" if dtype.is_floating_point() and dtype == type_of(given(node, 1)) else f"it samples {dtype.name}"


REWRITES = (
    expansion(
        name="grid_sample_to_gather",
        summary="GridSample of pictures, linear or nearest, zeros or border around, by Gather and arithmetic",
        ops=["GridSample"],
        build=_sample,
        obstacle=_obstacle,
    ),
)
