"""Weights in ncnn's format: a text file of layers (`.param`) and a file of numbers (`.bin`), as a PyTorch state dict.

    .param   7767517, then "<layers> <blobs>", then a layer a line:
             <type> <name> <inputs> <outputs> <blob>... <key>=<value>...
    .bin     layer after layer: of a Convolution a u32 flag, weights, biases (fp32); of a PReLU its slopes (fp32)

Only the numbers are taken, in the order of the file; the architecture says what they are called. So the file must hold
that architecture and nothing more: a network with another layer behind it is not the network.
"""

from __future__ import annotations

import collections
import dataclasses
import struct
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

MAGIC = "7767517"
FLAG_FP16 = 0x01306B47
FLAG_FP32 = 0
WEIGHTLESS = frozenset({"BinaryOp", "Concat", "Eltwise", "Input", "Interp", "PixelShuffle", "Split"})
"""The types of layer that have nothing in the `.bin` file."""

Weights = npt.NDArray[np.float32]


class BadWeights(ValueError):
    """Files that are not what they should be: `<where>: <what is wrong>; <what to do>`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layer:
    """One layer of a `.param` file; `values` by their number there, arrays (keys below −23300) left out."""

    kind: str
    name: str
    values: Mapping[int, str]

    def number(self, key: int, default: int | None = None) -> int:
        """Return the whole number under `key`.

        Raises:
            BadWeights: it is missing and has no default, or is no whole number.
        """
        text = self.values.get(key)
        if text is None and default is not None:
            return default
        try:
            return int(text or "")
        except ValueError as error:
            raise BadWeights(
                f"layer {self.name}: key {key} is {text!r}, not a whole number; get the file anew"
            ) from error


def read(param: Path, weights: Path, architecture: str) -> dict[str, Weights]:
    """Return the state dict of a network: name to float32 array, in the order of the files.

    Args:
        param: the `.param` file.
        weights: the `.bin` file.
        architecture: a key of `ARCHITECTURES`, which says what the layers are called.

    Raises:
        BadWeights: a file is no ncnn file or does not fit the other, bytes are left over, or the layers do not fit
            the architecture.
    """
    layers = parse(param)
    buffer = weights.read_bytes()
    named = ARCHITECTURES[architecture]([layer for layer in layers if layer.kind not in WEIGHTLESS])
    _check_rest(layers, architecture, param.name)
    state: dict[str, Weights] = {}
    offset = 0
    for layer, name in named:
        taken, offset = _READERS[layer.kind](layer, buffer, offset)
        state.update({f"{name}.{key}": array for key, array in taken.items()})
    if offset != len(buffer):
        raise BadWeights(
            f"{weights.name}: {len(buffer) - offset} of {len(buffer)} bytes are left over after the last layer of "
            f"{param.name}; the two files do not belong together"
        )
    return state


def parse(param: Path) -> list[Layer]:
    """Return the layers of a `.param` file.

    Raises:
        BadWeights: it is no such file, or names a type of layer that this reader does not know.
    """
    try:
        lines = param.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise BadWeights(f"{param.name}: {error}; this is no ncnn text file") from error
    if lines[0].strip() != MAGIC or len(lines) < 2:
        raise BadWeights(f"{param.name}: starts with {lines[0][:20]!r}, not {MAGIC}; this is no ncnn text file")
    layers = [_parse_layer(line.split(), param.name) for line in lines[2:] if line.strip()]
    if lines[1].split()[:1] != [str(len(layers))]:
        raise BadWeights(
            f"{param.name}: its second line is {lines[1]!r}, but {len(layers)} layers follow; get the file anew"
        )
    return layers


def _parse_layer(words: list[str], where: str) -> Layer:
    try:
        kind, name, skip = words[0], words[1], 4 + int(words[2]) + int(words[3])
        pairs = [word.split("=", 1) for word in words[skip:]]
        values = {int(key): value for key, value in pairs if int(key) > -23300}
    except (IndexError, ValueError) as error:
        raise BadWeights(f"{where}: {' '.join(words)!r} is no layer ({error}); get the file anew") from error
    if kind not in WEIGHTLESS and kind not in _READERS:
        raise BadWeights(
            f"{where}: layer {name} is a {kind}, whose weights this reader does not know; "
            "give the model as a PyTorch checkpoint, or as module:function"
        )
    return Layer(kind=kind, name=name, values=values)


def _convolution(layer: Layer, buffer: bytes, offset: int) -> tuple[dict[str, Weights], int]:
    outputs, width, count = layer.number(0), layer.number(1), layer.number(6)
    height = layer.number(11, width)
    if min(outputs, width, height, count) < 1 or count % (outputs * width * height):
        raise BadWeights(
            f"layer {layer.name}: {count} weights do not fill {outputs} kernels of {height}×{width}; get the file anew"
        )
    (flag,) = struct.unpack("<I", _take(layer, buffer, offset, 4))
    if flag not in (FLAG_FP16, FLAG_FP32):
        raise BadWeights(
            f"layer {layer.name}: flag 0x{flag:08X} at byte {offset} is neither fp16 (0x{FLAG_FP16:08X}) nor fp32 (0); "
            "the two files do not belong together, or the weights are quantised"
        )
    offset += 4
    kind, size = ("<f2", -(-count * 2 // 4) * 4) if flag == FLAG_FP16 else ("<f4", count * 4)
    weight = np.frombuffer(_take(layer, buffer, offset, size), kind, count).astype(np.float32)
    taken = {"weight": weight.reshape(outputs, -1, height, width)}
    offset += size
    if layer.number(5, 0):
        taken["bias"] = np.frombuffer(_take(layer, buffer, offset, outputs * 4), "<f4").astype(np.float32)
        offset += outputs * 4
    return taken, offset


def _prelu(layer: Layer, buffer: bytes, offset: int) -> tuple[dict[str, Weights], int]:
    size = layer.number(0) * 4
    return {"weight": np.frombuffer(_take(layer, buffer, offset, size), "<f4").astype(np.float32)}, offset + size


def _take(layer: Layer, buffer: bytes, offset: int, size: int) -> bytes:
    if offset + size > len(buffer):
        raise BadWeights(
            f"layer {layer.name}: needs bytes {offset} to {offset + size} of the .bin file, which has {len(buffer)}; "
            "it is cut short, or the two files do not belong together"
        )
    return buffer[offset : offset + size]


_READERS: Mapping[str, Callable[[Layer, bytes, int], tuple[dict[str, Weights], int]]] = {
    "Convolution": _convolution,
    "PReLU": _prelu,
}


def _check_rest(layers: list[Layer], architecture: str, where: str) -> None:
    """Refuse a file whose layers without weights are not those of the architecture."""
    counts = collections.Counter("BinaryOp" if layer.kind == "Eltwise" else layer.kind for layer in layers)
    if architecture == "esrgan":
        blocks = (counts["Convolution"] - 6) // 15
        expected = {"BinaryOp": 4 * blocks + 1, "Concat": 12 * blocks, "Interp": 2, "PixelShuffle": 0}
    else:
        expected = {"BinaryOp": 1, "Concat": 0, "Interp": 1, "PixelShuffle": 1}
    for kind, count in expected.items():
        if counts[kind] != count:
            raise BadWeights(
                f"{where}: has {counts[kind]} layers {kind}, architecture {architecture} has {count}: "
                "it is another network; give it as a PyTorch checkpoint, or as module:function"
            )
    for layer in layers:
        if layer.kind == "Interp" and layer.number(0) != 1:
            raise BadWeights(
                f"{where}: layer {layer.name} resizes by method {layer.number(0)}, architecture {architecture} by 1 "
                "(nearest): it is another network; give it as a PyTorch checkpoint, or as module:function"
            )


def _name_esrgan(layers: list[Layer]) -> list[tuple[Layer, str]]:
    """Name the convolutions of an RRDBNet: one first, 15 a block, five last."""
    blocks, rest = divmod(len(layers) - 6, 15)
    if rest or blocks < 1 or any(layer.kind != "Convolution" for layer in layers):
        raise BadWeights(
            f"architecture esrgan: {len(layers)} layers with weights are not 15 convolutions a block and 6 more; "
            "name the architecture that the file holds"
        )
    body = [
        f"body.{block}.rdb{dense}.conv{conv}" for block in range(blocks) for dense in (1, 2, 3) for conv in range(1, 6)
    ]
    names = ["conv_first", *body, "conv_body", "conv_up1", "conv_up2", "conv_hr", "conv_last"]
    return list(zip(layers, names, strict=True))


def _name_compact(layers: list[Layer]) -> list[tuple[Layer, str]]:
    """Name the layers of an SRVGGNetCompact: convolution and PReLU by turns, a convolution first and last."""
    kinds = ["Convolution" if index % 2 == 0 else "PReLU" for index in range(len(layers))]
    if len(layers) < 3 or len(layers) % 2 == 0 or [layer.kind for layer in layers] != kinds:
        raise BadWeights(
            f"architecture compact: {len(layers)} layers with weights are not convolution and PReLU by turns; "
            "name the architecture that the file holds"
        )
    return [(layer, f"body.{index}") for index, layer in enumerate(layers)]


ARCHITECTURES: Mapping[str, Callable[[list[Layer]], list[tuple[Layer, str]]]] = {
    "esrgan": _name_esrgan,
    "compact": _name_compact,
}
"""What an architecture calls the layers that have weights, given in the order of the file."""
