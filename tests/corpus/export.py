# mypy: disable-error-code="misc, no-any-return"
"""Common architectures with seeded weights, exported as users do: `torch.onnx.export` with nothing but a free batch.

    python -m tests.corpus.export FOLDER PHOTOGRAPHS [NAME…]

Runs in the environment `corpus`. Seeded networks all but ignore their inputs, and then any artefact agrees with them.
So each is calibrated before its export: batch normalisation on photographs with a rising share of noise, layers that
start as zeros on small numbers. One whose output hardly changes with its input is not written, and said.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tests.corpus.networks import NETWORKS, Network

NOISE = (0.0, 0.1, 0.3, 0.7, 1.0, 1.0)
"""The share of noise in each photograph."""

LEAST_CHANGE = 0.1
"""By how much of its size an output must change with the input."""


def photographs(folder: Path, size: tuple[int, int], channels: int) -> Tensor:
    """Return six photographs [6, channels, height, width] from 0 to 1, with a rising share of noise."""
    from PIL import Image

    pictures = []
    height, width = size
    for path in sorted(folder.iterdir())[: len(NOISE)]:
        with Image.open(path) as opened:
            scaled = opened.convert("L" if channels == 1 else "RGB").resize((width, height))
        pictures.append(np.asarray(scaled, np.float32).reshape(height, width, channels).transpose(2, 0, 1) / 255)
    images, share = torch.from_numpy(np.stack(pictures)), torch.tensor(NOISE).reshape(-1, 1, 1, 1)
    return images * (1 - share) + torch.rand_like(images) * share


def calibrate(module: nn.Module, inputs: dict[str, Tensor], folder: Path) -> None:
    """Let normalisation fit the seeded weights, and make what starts as nothing count.

    With a bias of 0 a deep seeded network is chaotic: it turns a rounding error of float16 into one of 30 dB. Without
    batch normalisation the first layer takes the place of what people do to a picture before: centre and scale it.
    """
    for name, parameter in module.named_parameters():
        if parameter.ndim >= 2 and not parameter.any():
            nn.init.normal_(parameter, std=0.05)
        last = name.rsplit(".", 1)[-1]
        if parameter.ndim == 1 and last in {"gamma", "layer_scale"}:
            nn.init.ones_(parameter)
        if last.startswith("weight_ih"):
            parameter.data.mul_(3.0)
    first = next(iter(inputs.values()))
    norms = [each for each in module.modules() if isinstance(each, nn.modules.batchnorm._BatchNorm)]
    if not norms:
        _turn_up(module, pictured=first.ndim == 4)
        return
    for norm in norms:
        norm.momentum = 1.0
        nn.init.constant_(norm.bias, 0.5)
    taken = torch.randn(6, *first.shape[1:])
    if first.ndim == 4:
        taken = photographs(folder, (first.shape[2], first.shape[3]), first.shape[1])
    with torch.no_grad():
        module.train()(taken)
    module.eval()


def _turn_up(module: nn.Module, *, pictured: bool) -> None:
    """Make a network without batch normalisation depend more on its input than on its own biases."""
    stem = next((each for each in module.modules() if isinstance(each, nn.Conv1d | nn.Conv2d)), None)
    if stem is not None:
        stem.weight.data.mul_(4.0)
        if pictured and stem.bias is not None:
            stem.bias.data.sub_(0.5 * stem.weight.data.sum((1, 2, 3)))


def change(module: nn.Module, inputs: dict[str, Tensor], folder: Path) -> float:
    """Return by how much of its size the least sensitive output changes with the first input."""
    name, given = next(iter(inputs.items()))
    before, others = given, [torch.rand_like(given.float()) * 2 - 1]
    if given.dtype == torch.int64:
        others = [torch.randint(int(given.max()), given.shape)]
    elif given.ndim == 4:
        before = photographs(folder, (given.shape[2], given.shape[3]), given.shape[1])[:1].repeat(2, 1, 1, 1)
        others = [torch.rand_like(given), 0.1 * torch.rand_like(given)]
    with torch.no_grad():
        answers = [_tuple(module(*{**inputs, name: each}.values())) for each in (before, *others)]
    return min(
        max(float((one - other).norm() / max(one.norm(), other.norm())) for other in found)
        for one, *found in zip(*answers, strict=True)
    )


def _tuple(answer: Any) -> tuple[Tensor, ...]:
    return answer if isinstance(answer, tuple) else (answer,)


def export(name: str, network: Network, folder: Path, pictures: Path) -> str:
    """Write one network, and return what came of it."""
    torch.manual_seed(0)
    module = network.make().eval()
    calibrate(module, network.inputs, pictures)
    moved = change(module, network.inputs, pictures)
    if moved < LEAST_CHANGE:
        return f"not written: its output changes by {moved:.3f} only"
    path = folder / f"{name}.onnx"
    free = None if network.fixed else tuple({0: "batch"} for _ in network.inputs)
    names = list(network.inputs)
    arguments = tuple(network.inputs.values())
    torch.onnx.export(
        module, arguments, path, input_names=names, dynamic_shapes=free, external_data=False, verbose=False
    )
    return f"{path.stat().st_size / 1e6:.1f} MB, its output changes by {moved:.2f}"


def main() -> int:
    folder, pictures, *names = sys.argv[1:]
    warnings.simplefilter("ignore")
    failed = 0
    for name in names or NETWORKS:
        if (Path(folder) / f"{name}.onnx").exists():
            continue
        try:
            said = export(name, NETWORKS[name], Path(folder), Path(pictures))
        except (RuntimeError, ValueError, TypeError, ImportError, KeyError, AttributeError) as error:
            failed, said = failed + 1, f"FAILED: {type(error).__name__}: {str(error).strip()[:300]}"
        print(f"{name}: {said}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
