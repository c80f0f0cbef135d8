"""Networks that each hold one thing at which a toolchain stumbles, and that a rule of aipc mends."""

from __future__ import annotations

import torch
from torch import nn


class Attention(nn.Module):
    """Compares a picture [N,3,H,W] with eight keys by an Einsum, as YOLO-World does with its texts."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, 8, 3, padding=1)
        self.keys = nn.Parameter(torch.randn(8, 8))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return how near each pixel is to each key, [N,8,H,W]."""
        return torch.tanh(torch.einsum("bchw,kc->bkhw", self.embed(image), self.keys))


class Length(nn.Module):
    """Weighs the features of a picture [N,3,H,W] by their length, the sum of their absolute values."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, 6, 3, padding=1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return the weighed features, [N,6,H,W]."""
        features = self.embed(image)
        return features * torch.norm(features, p=1, dim=1, keepdim=True)


class Activation(nn.Module):
    """Two convolutions over a picture [N,3,H,W] with a CELU between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 6, 3, padding=1)
        self.second = nn.Conv2d(6, 6, 3, padding=1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return the features, [N,6,H,W]."""
        return self.second(torch.celu(self.first(image)))


def attention() -> nn.Module:
    """Return the network with the Einsum, its weights seeded."""
    torch.manual_seed(0)
    return Attention().eval()


def length() -> nn.Module:
    """Return the network with the ReduceL1, its weights seeded."""
    torch.manual_seed(0)
    return Length().eval()


def activation() -> nn.Module:
    """Return the network with the Celu, its weights seeded."""
    torch.manual_seed(0)
    return Activation().eval()
