"""Ranges that AIMET found, as ONNX Runtime's quantiser takes them.

AIMET writes JSON in one of these layouts (measured with aimet-onnx 2.42.0; `version` says which):

    0.6.1   {"activation_encodings": {"r": [{"bitwidth": 8, "dtype": "int", "scale": 0.1, "offset": 0, ...}]},
             "param_encodings": {"w": [{...}, ... one for each channel]}}
    1.0.0   {"activation_encodings": [{"name": "r", "bw": 8, "dtype": "INT", "scale": [0.1], "offset": [0]}],
             "param_encodings": [{"name": "w", "scale": [... one for each channel], "offset": [...], ...}]}

A number is scale · (q + offset), with q from 0 to 2^bits − 1, so ONNX's zero point is −offset. Weights are symmetric
and become int8. Tensors that the file leaves out are calibrated; so are biases, whose scale follows from the others.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from runtimes.contract import Kind
from runtimes.kit import qualcomm
from runtimes.kit.work import refuse

SIDES = ("activation_encodings", "param_encodings")
LAYOUTS = ("0.6.1", "1.0.0")
BIAS_BITS = 32
WEIGHT_BITS = 8
MIDDLE = -128
"""The offset of symmetric weights of 8 bits."""
SHOWN = 5
"""So many of the names that a model does not have are told."""
TRANSPOSED = "transB"


@dataclass(frozen=True, kw_only=True)
class _Encoding:
    """How one tensor is stored: `scales` and `offsets` have one number, or one for each channel."""

    name: str
    bits: int
    dtype: str
    scales: tuple[float, ...]
    offsets: tuple[int, ...]


def read(path: Path, source: Path, activation_bits: int) -> dict[str, list[dict[str, Any]]]:
    """Return ONNX Runtime's `TensorQuantOverrides` for the encodings in the file at `path`.

    Args:
        path: what AIMET wrote.
        source: the ONNX model; every tensor that the file names must be in it.
        activation_bits: how wide the precision has activations.

    Raises:
        Refused: the file is of no known layout, names tensors that the model does not have, or asks for something
            that the precision is not.
    """
    graph = qualcomm.read_graph(source)
    weights = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    made = {port.name for port in graph.input} | {name for node in graph.node for name in node.output}
    activations, parameters = (list(_encodings(side, each)) for side, each in zip(SIDES, _load(path), strict=True))
    _check_names([each.name for each in activations], made | set(weights), "tensor")
    _check_names([each.name for each in parameters], made | set(weights), "weight")
    axes = _axes(graph.node)
    return {
        **{each.name: [_activation(each, activation_bits)] for each in activations},
        **{
            each.name: _weight(each, weights.get(each.name, ()), axes.get(each.name))
            for each in parameters
            if each.bits != BIAS_BITS
        },
    }


def _load(path: Path) -> list[Any]:
    """Return the encodings of activations and of parameters."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        _refuse(f"it is no JSON: {error}")
    if not isinstance(found, dict) or not set(SIDES) <= set(found):
        version = f" of version {found['version']!r}" if isinstance(found, dict) and "version" in found else ""
        _refuse(f"what is in it{version} has no {' and '.join(SIDES)}")
    return [found[side] for side in SIDES]


def _encodings(side: str, found: Any) -> Iterator[_Encoding]:
    """Return the encodings of one side, in either layout."""
    rows = found.items() if isinstance(found, Mapping) else ((None, each) for each in found)
    for name, row in rows:
        try:
            yield _one(row) if name is None else _many(name, row)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            _refuse(f"{side}: {str(row)[:80]} is no encoding: {type(error).__name__}: {error}")


def _one(row: Mapping[str, Any]) -> _Encoding:
    """Return an encoding of layout 1.0.0."""
    return _Encoding(
        name=str(row["name"]),
        bits=int(row["bw"]),
        dtype=str(row["dtype"]).lower(),
        scales=tuple(map(float, row.get("scale", ()))),
        offsets=tuple(map(int, row.get("offset", ()))),
    )


def _many(name: str, rows: Iterable[Mapping[str, Any]]) -> _Encoding:
    """Return the encoding of layout 0.6.1 that has a row for each channel."""
    rows = list(rows)
    return _Encoding(
        name=name,
        bits=int(rows[0]["bitwidth"]) if rows else 0,
        dtype=str(rows[0].get("dtype", "int")).lower() if rows else "none",
        scales=tuple(float(row["scale"]) for row in rows if "scale" in row),
        offsets=tuple(int(row["offset"]) for row in rows if "offset" in row),
    )


def _check_names(names: Iterable[str], known: set[str], what: str) -> None:
    if unknown := sorted(set(names) - known):
        more = f" and {len(unknown) - SHOWN} more" if len(unknown) > SHOWN else ""
        _refuse(f"the model has no {what} {', '.join(map(repr, unknown[:SHOWN]))}{more}")


def _check(each: _Encoding, bits: int, hint: str) -> None:
    """Refuse what is no whole numbers of so many bits."""
    if each.dtype != "int" or each.bits != bits:
        _refuse(f"{each.name!r} is {each.dtype} of {each.bits} bits, and {bits} bits are asked for", hint)
    if not each.scales or len(each.scales) != len(each.offsets):
        _refuse(f"{each.name!r} has {len(each.scales)} scales and {len(each.offsets)} offsets")
    if not all(np.isfinite(scale) and scale > 0 for scale in each.scales):
        _refuse(f"{each.name!r} has a scale that is not above 0")


def _activation(each: _Encoding, bits: int) -> dict[str, Any]:
    from onnxruntime.quantization import QuantType

    wide = bits > WEIGHT_BITS
    _check(each, bits, "take the precision int8" if wide else "take the precision a16w8")
    zero = -each.offsets[0]
    if len(each.scales) != 1 or not 0 <= zero < 1 << bits:
        _refuse(f"{each.name!r} has {len(each.scales)} scales, the first offset {each.offsets[0]}")
    return {
        "quant_type": QuantType.QUInt16 if wide else QuantType.QUInt8,
        "scale": np.array(each.scales[0], np.float32),
        "zero_point": np.array(zero, np.uint16 if wide else np.uint8),
    }


def _weight(each: _Encoding, shape: tuple[int, ...], axis: int | None) -> list[dict[str, Any]]:
    """Return an override for all of a weight, or one for each channel."""
    from onnxruntime.quantization import QuantType

    _check(each, WEIGHT_BITS, "the HTP takes weights of 8 bits here")
    if any(offset != MIDDLE for offset in each.offsets):
        _refuse(f"{each.name!r} is not symmetric: its offsets are not all {MIDDLE}")
    many = len(each.scales) > 1
    if many and (axis is None or not axis < len(shape) or len(each.scales) != shape[axis]):
        _refuse(f"{each.name!r} has {len(each.scales)} scales, and is {list(shape)}")
    made: list[dict[str, Any]] = [
        {"quant_type": QuantType.QInt8, "scale": np.array(scale, np.float32), "zero_point": np.array(0, np.int8)}
        for scale in each.scales
    ]
    if many:
        made[0]["axis"] = axis
    return made


def _axes(nodes: Iterable[Any]) -> dict[str, int]:
    """Return along which axis of each weight its channels lie."""
    axes = {}
    for node in nodes:
        turned = any(each.name == TRANSPOSED and each.i for each in node.attribute)
        axis = {"Conv": 0, "ConvTranspose": 1, "Gemm": 0 if turned else 1, "MatMul": 1}.get(node.op_type)
        if axis is not None:
            axes[node.input[1]] = axis
    return axes


def _refuse(what: str, hint: str = "") -> NoReturn:
    refuse(Kind.OPTION, f"encodings: {what}", hint=hint or f"give what AIMET wrote, of version {' or '.join(LAYOUTS)}")
