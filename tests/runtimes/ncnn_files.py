"""Tiny networks in ncnn's format, written the way ncnn writes them."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

FP16 = 0x01306B47
LEAKY = "9=2 -23310=1,2.000000e-01"


@dataclasses.dataclass
class Net:
    """Layers, their numbers, and the state dict that they are. A blob is called after the layer that gives it.

    ncnn writes a Split behind a layer whose output is taken more than once; here it stands before each further use.
    """

    lines: list[str] = dataclasses.field(default_factory=lambda: ["Input in 0 1 in"])
    data: bytes = b""
    arrays: list[Mapping[str, npt.NDArray[Any]]] = dataclasses.field(default_factory=list)

    def layer(self, kind: str, takes: str, settings: str = "") -> str:
        """Add a layer and return what it is called."""
        name = f"{kind.lower()}{len(self.lines)}"
        self.lines.append(f"{kind} {name} {len(takes.split())} 1 {takes} {name} {settings}".rstrip())
        return name

    def again(self, blob: str) -> str:
        """Add a Split of `blob`; return another name of it."""
        name = f"split{len(self.lines)}"
        self.lines.append(f"Split {name} 1 2 {blob} {name}_0 {name}_1")
        return f"{name}_1"

    def convolution(self, taken: str, takes: int, gives: int, activation: str = "", *, flag: int = FP16) -> str:
        generator = np.random.default_rng(len(self.arrays))
        weight = (generator.standard_normal((gives, takes, 3, 3)) * 0.1).astype("<f2")
        bias = (generator.standard_normal(gives) * 0.1).astype("<f4")
        stored = weight.tobytes() if flag == FP16 else weight.astype("<f4").tobytes()
        self.data += struct.pack("<I", flag) + stored + b"\0" * (-len(stored) % 4) + bias.tobytes()
        self.arrays.append({"weight": weight.astype(np.float32), "bias": bias})
        return self.layer("Convolution", taken, f"0={gives} 1=3 4=1 5=1 6={weight.size} {activation}")

    def prelu(self, taken: str, count: int) -> str:
        slope = np.linspace(0.1, 0.3 + 0.01 * len(self.lines), count).astype("<f4")
        self.data += slope.tobytes()
        self.arrays.append({"weight": slope})
        return self.layer("PReLU", taken, f"0={count}")

    def change(self, kind: str, before: str, after: str, number: int = 0) -> None:
        """Write `after` for `before` in layer `number` of type `kind`."""
        place = [index for index, line in enumerate(self.lines) if line.startswith(f"{kind} ")][number]
        assert before in self.lines[place]
        self.lines[place] = self.lines[place].replace(before, after)

    def write(self, folder: Path, *, extra: bytes = b"") -> tuple[Path, Path]:
        folder.mkdir(parents=True, exist_ok=True)
        param, weights = folder / "net.param", folder / "net.bin"
        param.write_text(
            "\n".join(["7767517", f"{len(self.lines)} {len(self.lines)}", *self.lines, ""]), encoding="utf-8"
        )
        weights.write_bytes(self.data + extra)
        return param, weights


def compact(*, scale: int = 2, flag: int = FP16) -> Net:
    """An SRVGGNetCompact of 3 features and one convolution; an odd count of weights, so that padding matters."""
    net = Net()
    blob = net.prelu(net.convolution("in", 3, 3, flag=flag), 3)
    blob = net.prelu(net.convolution(blob, 3, 3, flag=flag), 3)
    blob = net.layer("PixelShuffle", net.convolution(blob, 3, 3 * scale * scale, flag=flag), f"0={scale}")
    large = net.layer("Interp", net.again("in"), f"0=1 1={scale}.000000e+00 2={scale}.000000e+00")
    net.layer("BinaryOp", f"{blob} {large}")
    return net


def esrgan() -> Net:
    """An RRDBNet of 8 features and one block."""
    net = Net()
    first = blob = net.convolution("in", 3, 8)
    for _dense in range(3):
        held, start = [blob], blob
        for number in range(4):
            taken = held[0] if number == 0 else net.layer("Concat", " ".join(net.again(each) for each in held))
            held.append(net.convolution(taken, 8 + 32 * number, 32, LEAKY))
        grown = net.convolution(net.layer("Concat", " ".join(held)), 8 + 32 * 4, 8)
        blob = net.layer("Eltwise", f"{grown} {start}", "0=1 -23301=2,2.000000e-01,1.000000e+00")
    blob = net.layer("Eltwise", f"{blob} {net.again(first)}", "0=1 -23301=2,2.000000e-01,1.000000e+00")
    blob = net.layer("BinaryOp", f"{first} {net.convolution(blob, 8, 8)}", "0=0")
    for _twice in range(2):
        blob = net.convolution(net.layer("Interp", blob, "0=1 1=2.000000e+00 2=2.000000e+00"), 8, 8, LEAKY)
    net.convolution(net.convolution(blob, 8, 8, LEAKY), 8, 3)
    return net
