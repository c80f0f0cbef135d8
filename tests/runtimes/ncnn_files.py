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


@dataclasses.dataclass
class Net:
    """A chain of layers, its numbers, and the state dict that they are."""

    lines: list[str] = dataclasses.field(default_factory=lambda: ["Input x 0 1 data"])
    data: bytes = b""
    arrays: list[Mapping[str, npt.NDArray[Any]]] = dataclasses.field(default_factory=list)

    def convolution(self, takes: int, gives: int, *, flag: int = FP16) -> None:
        generator = np.random.default_rng(len(self.lines))
        weight = (generator.standard_normal((gives, takes, 3, 3)) * 0.1).astype("<f2")
        bias = (generator.standard_normal(gives) * 0.1).astype("<f4")
        stored = weight.tobytes() if flag == FP16 else weight.astype("<f4").tobytes()
        self.lines.append(
            f"Convolution c{len(self.lines)} 1 1 a b 0={gives} 1=3 4=1 5=1 6={weight.size} 9=2 -23310=1,2.0e-01"
        )
        self.data += struct.pack("<I", flag) + stored + b"\0" * (-len(stored) % 4) + bias.tobytes()
        self.arrays.append({"weight": weight.astype(np.float32), "bias": bias})

    def prelu(self, count: int) -> None:
        slope = np.linspace(0.1, 0.3 + 0.01 * len(self.lines), count).astype("<f4")
        self.lines.append(f"PReLU p{len(self.lines)} 1 1 a b 0={count}")
        self.data += slope.tobytes()
        self.arrays.append({"weight": slope})

    def layers(self, kind: str, count: int, keys: str = "") -> None:
        """Add `count` layers without weights."""
        self.lines += [f"{kind} l{len(self.lines)}_{number} 1 1 a b {keys}".rstrip() for number in range(count)]

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
    net.convolution(3, 3, flag=flag)
    net.prelu(3)
    net.convolution(3, 3, flag=flag)
    net.prelu(3)
    net.convolution(3, 3 * scale * scale, flag=flag)
    net.layers("PixelShuffle", 1, f"0={scale}")
    net.layers("Interp", 1, f"0=1 1={scale}.0 2={scale}.0")
    net.layers("BinaryOp", 1)
    return net


def esrgan() -> Net:
    """An RRDBNet of 8 features and one block."""
    net = Net()
    net.convolution(3, 8)
    for _dense in range(3):
        for number in range(4):
            net.convolution(8 + 32 * number, 32)
        net.convolution(8 + 32 * 4, 8)
    for _last in range(4):
        net.convolution(8, 8)
    net.convolution(8, 3)
    net.layers("Concat", 12)
    net.layers("Eltwise", 4)
    net.layers("BinaryOp", 1)
    net.layers("Interp", 2, "0=1 1=2.0 2=2.0")
    return net
