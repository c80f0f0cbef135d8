"""Small networks that a user could have written; tests deploy them as module:function."""

from __future__ import annotations

from typing import cast

import torch
from torch import nn


class Upscaler(nn.Module):
    """Makes an image [N,3,H,W] twice as large."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.second = nn.Conv2d(8, 12, 3, padding=1)
        self.shuffle = nn.PixelShuffle(2)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        features = torch.relu(self.first(image))
        return cast("torch.Tensor", self.shuffle(self.second(features)))


def upscaler() -> nn.Module:
    """Return the network with seeded weights."""
    torch.manual_seed(0)
    return Upscaler().eval()


class Constant(nn.Module):
    """Gives the same whatever comes in: every broken artefact would agree with it."""

    def __init__(self) -> None:
        super().__init__()
        self.ramp = nn.Parameter(torch.linspace(0.0, 1.0, 24))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return image * 0.0 + self.ramp


def constant() -> nn.Module:
    """Return a network that ignores its input."""
    return Constant().eval()


def missing() -> nn.Module:
    """Ask for a package that no environment has."""
    import not_a_package  # type: ignore[import-not-found]

    return cast("nn.Module", not_a_package.Network())
