"""Weights in ncnn's format: a text file of layers (`.param`) and a file of numbers (`.bin`), as a PyTorch state dict.

    .param   7767517, then "<layers> <blobs>", then a layer a line:
             <type> <name> <inputs> <outputs> <blob>... <key>=<value>...
    .bin     layer after layer: of a Convolution a u32 flag, weights, biases (fp32); of a PReLU its slopes (fp32)

Only the numbers are taken. So the file must hold the network that the architecture is: the same layers in the same
order, joined in the same way, each with the same settings. One with another slope, or a layer more, is another network.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

MAGIC = "7767517"
FLAG_FP16 = 0x01306B47
FLAG_FP32 = 0
_ARRAY = -23300
Weights = npt.NDArray[np.float32]


class BadWeights(ValueError):
    """Files that are not what they should be: `<where>: <what is wrong>; <what to do>`."""


Setting = float | tuple[float, ...]
"""What a layer is set to: a number, or an array of numbers."""

_OTHER = "it is another network; give it as a PyTorch checkpoint, or as module:function"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layer:
    """One layer of a `.param` file.

    Attributes:
        kind: its type.
        name: what it is called.
        takes: the blobs that it takes.
        gives: the blobs that it gives.
        values: its settings by their number there; an array, whose key is −23300−n, stands under n.
    """

    kind: str
    name: str
    takes: tuple[str, ...]
    gives: tuple[str, ...]
    values: Mapping[int, Setting]

    def number(self, key: int, default: int | None = None) -> int:
        """Return the whole number under `key`.

        Raises:
            BadWeights: it is missing and has no default, or is no whole number.
        """
        value = self.values.get(key, default)
        if isinstance(value, tuple) or value is None or not float(value).is_integer():
            raise BadWeights(f"layer {self.name}: key {key} is {value}, not a whole number; get the file anew")
        return int(value)


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
    held = parse(param)
    layers = [layer for layer in held if layer.kind != "Split"]
    expected = ARCHITECTURES[architecture](layers)
    _check(layers, expected, _names(held), f"{param.name}: architecture {architecture}")
    buffer = weights.read_bytes()
    state: dict[str, Weights] = {}
    offset = 0
    for layer, part in zip(layers, expected, strict=True):
        if part.name:
            taken, offset = _READERS[layer.kind](layer, buffer, offset)
            state.update({f"{part.name}.{key}": array for key, array in taken.items()})
    if offset != len(buffer):
        raise BadWeights(
            f"{weights.name}: {len(buffer) - offset} of {len(buffer)} bytes are left over after the last layer of "
            f"{param.name}; the two files do not belong together"
        )
    return state


def parse(param: Path) -> list[Layer]:
    """Return the layers of a `.param` file.

    Raises:
        BadWeights: it is no such file.
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
        kind, name, takes, gives = words[0], words[1], int(words[2]), int(words[3])
        blobs, pairs = words[4 : 4 + takes + gives], [word.split("=", 1) for word in words[4 + takes + gives :]]
        values = dict(_parse_setting(int(key), value) for key, value in pairs)
    except (IndexError, ValueError) as error:
        raise BadWeights(f"{where}: {' '.join(words)!r} is no layer ({error}); get the file anew") from error
    if len(blobs) != takes + gives:
        raise BadWeights(f"{where}: {' '.join(words)!r} names {len(blobs)} blobs; get the file anew")
    return Layer(kind=kind, name=name, takes=tuple(blobs[:takes]), gives=tuple(blobs[takes:]), values=values)


def _parse_setting(key: int, text: str) -> tuple[int, Setting]:
    if key > _ARRAY:
        return key, float(text)
    length, *numbers = text.split(",")
    if int(length) != len(numbers):
        raise ValueError(f"an array of {length} numbers holds {len(numbers)}")
    return _ARRAY - key, tuple(float(number) for number in numbers)


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Part:
    """What a layer of an architecture is.

    Attributes:
        kind: its type.
        takes: the places, in the list of layers, of those whose outputs it takes.
        settings: the settings that it must have; one that is not listed must not be there.
        free: the settings that the weights tell, or that only say how large a picture may be.
        name: what PyTorch calls it; "" where it has no weights.
    """

    kind: str
    takes: tuple[int, ...]
    settings: Mapping[int, Setting] = dataclasses.field(default_factory=dict)
    free: frozenset[int] = frozenset()
    name: str = ""


_BY_WIDTH: dict[int, Setting | str] = {11: "1", 12: "2", 13: "3", 14: "4", 15: "4", 16: "14"}
"""What a convolution takes down the picture, and on its other side, for as it does across."""

_DEFAULTS: Mapping[str, Mapping[int, Setting | str]] = {
    "BinaryOp": {0: 0, 1: 0, 2: 0},
    "Concat": {0: 0},
    "Convolution": {1: 0, 2: 1, 3: 1, 4: 0, 5: 0, 8: 0, 9: 0, 10: (), 18: 0, 19: 0, **_BY_WIDTH},
    "Eltwise": {0: 0, 1: ()},
    "Interp": {0: 0, 1: 1, 2: 1, 3: 0, 4: 0, 5: 0, 6: 0},
    "PixelShuffle": {0: 1, 1: 0},
}
"""What ncnn takes a setting for that is not written; text is the number of another setting, whose value it takes."""

_INPUT = _Part(kind="Input", takes=(), free=frozenset({0, 1, 2}))


def _convolve(takes: int, name: str, *, slope: float | None = None) -> _Part:
    """Return a convolution of 3×3 that keeps the size, with a leaky ReLU of `slope` behind it or none."""
    activation: dict[int, Setting] = {} if slope is None else {9: 2, 10: (slope,)}
    settings: dict[int, Setting] = {1: 3, 2: 1, 3: 1, 4: 1, 5: 1, **activation}
    return _Part(kind="Convolution", takes=(takes,), settings=settings, free=frozenset({0, 6}), name=name)


def _add(first: int, second: int) -> _Part:
    return _Part(kind="BinaryOp", takes=(first, second))


def _enlarge(takes: int, factor: int) -> _Part:
    """Return a layer that repeats each pixel (the method "nearest")."""
    return _Part(kind="Interp", takes=(takes,), settings={0: 1, 1: factor, 2: factor})


def _plan_esrgan(layers: list[Layer]) -> list[_Part]:
    """Return the layers of an RRDBNet, of as many blocks as the file has."""
    count = sum(layer.kind == "Convolution" for layer in layers)
    blocks = (count - 6) // 15
    if count != 6 + 15 * blocks or blocks < 1:
        raise BadWeights(
            f"architecture esrgan: {count} convolutions are not 15 a block and 6 more; "
            "name the architecture that the file holds"
        )
    parts = [_INPUT, _convolve(0, "conv_first")]
    for block in range(blocks):
        start = len(parts) - 1
        for dense in (1, 2, 3):
            _grow(parts, f"body.{block}.rdb{dense}")
        parts.append(_scale(len(parts) - 1, start))
    parts.append(_convolve(len(parts) - 1, "conv_body"))
    parts.append(_add(1, len(parts) - 1))
    for number in (1, 2):
        parts.append(_enlarge(len(parts) - 1, 2))
        parts.append(_convolve(len(parts) - 1, f"conv_up{number}", slope=0.2))
    parts.append(_convolve(len(parts) - 1, "conv_hr", slope=0.2))
    parts.append(_convolve(len(parts) - 1, "conv_last"))
    return parts


def _grow(parts: list[_Part], name: str) -> None:
    """Add a dense block behind the last of `parts`: each of its convolutions takes what all before it gave."""
    held = [len(parts) - 1]
    for number in range(1, 6):
        if number > 1:
            parts.append(_Part(kind="Concat", takes=tuple(held)))
        slope = None if number == 5 else 0.2
        parts.append(_convolve(len(parts) - 1, f"{name}.conv{number}", slope=slope))
        held.append(len(parts) - 1)
    parts.append(_scale(held[-1], held[0]))


def _scale(takes: int, beside: int) -> _Part:
    """Return 0.2 times `takes`, plus `beside`."""
    return _Part(kind="Eltwise", takes=(takes, beside), settings={0: 1, 1: (0.2, 1.0)})


def _plan_compact(layers: list[Layer]) -> list[_Part]:
    """Return the layers of an SRVGGNetCompact, of as many convolutions as the file has, and as large a factor."""
    count = sum(layer.kind == "Convolution" for layer in layers)
    slopes = sum(layer.kind == "PReLU" for layer in layers)
    if count < 2 or slopes != count - 1:
        raise BadWeights(
            f"architecture compact: {count} convolutions and {slopes} PReLU are not convolution and PReLU by turns, a "
            "convolution first and last; name the architecture that the file holds"
        )
    factor = next((layer.number(0, 1) for layer in layers if layer.kind == "PixelShuffle"), 1)
    parts = [_INPUT]
    for index in range(2 * count - 1):
        before = len(parts) - 1
        prelu = _Part(kind="PReLU", takes=(before,), free=frozenset({0}), name=f"body.{index}")
        parts.append(prelu if index % 2 else _convolve(before, f"body.{index}"))
    last = len(parts) - 1
    parts.append(_Part(kind="PixelShuffle", takes=(last,), settings={0: factor}))
    return [*parts, _enlarge(0, factor), _add(last + 1, last + 2)]


ARCHITECTURES: Mapping[str, Callable[[list[Layer]], list[_Part]]] = {
    "esrgan": _plan_esrgan,
    "compact": _plan_compact,
}
"""The layers of an architecture, in the order of the file, given those of the file without its Splits."""


def _names(layers: list[Layer]) -> dict[str, str]:
    """Return, for each blob that a Split gives, the blob that it is."""
    same: dict[str, str] = {}
    for layer in layers:
        if layer.kind == "Split":
            same.update({blob: same.get(layer.takes[0], layer.takes[0]) for blob in layer.gives})
    return same


def _check(layers: list[Layer], expected: list[_Part], same: Mapping[str, str], where: str) -> None:
    """Refuse layers that are not those of the architecture."""
    places: dict[str, int] = {}
    for place, (layer, part) in enumerate(zip(layers, expected, strict=False)):
        said = f"{where}: layer {layer.name}"
        if layer.kind != part.kind:
            raise BadWeights(f"{said} is a {layer.kind}, not a {part.kind}: {_OTHER}")
        takes = tuple(places.get(same.get(blob, blob), -1) for blob in layer.takes)
        if takes != part.takes and not (layer.kind == "BinaryOp" and takes[::-1] == part.takes):
            wanted = ", ".join(layers[each].name for each in part.takes) or "nothing"
            raise BadWeights(f"{said} takes {', '.join(layer.takes) or 'nothing'}, not what {wanted} gives: {_OTHER}")
        _check_settings(layer, part, said)
        places.update(dict.fromkeys(layer.gives, place))
    if len(layers) != len(expected):
        raise BadWeights(f"{where}: has {len(layers)} layers, that architecture {len(expected)}: {_OTHER}")


def _check_settings(layer: Layer, part: _Part, said: str) -> None:
    defaults = _DEFAULTS.get(layer.kind, {})
    for key in sorted({*layer.values, *defaults} - part.free):
        wanted, found = _resolve(key, part.settings, defaults), _resolve(key, layer.values, defaults)
        if wanted is None or not _near(found, wanted):
            raise BadWeights(f"{said}: setting {key} of its {layer.kind} is {found}, not {_show(wanted)}: {_OTHER}")


def _show(setting: Setting | None) -> str:
    return "left out" if setting is None else str(setting)


def _resolve(key: int, settings: Mapping[int, Setting], defaults: Mapping[int, Setting | str]) -> Setting | None:
    """Return a setting, or what ncnn takes it for where it is not written; None where ncnn has none of that number."""
    if key in settings:
        return settings[key]
    default = defaults.get(key)
    return _resolve(int(default), settings, defaults) if isinstance(default, str) else default


def _near(found: Setting | None, wanted: Setting) -> bool:
    """Tell whether two settings are the same number in float32, or the same numbers."""
    if isinstance(found, tuple) and isinstance(wanted, tuple):
        return len(found) == len(wanted) and all(_near(*pair) for pair in zip(found, wanted, strict=True))
    return (
        isinstance(found, float | int) and isinstance(wanted, float | int) and np.float32(found) == np.float32(wanted)
    )
