# mypy: disable-error-code="misc"
"""Models as a user writes them; copied as the source folder of jobs and never imported by the tests themselves."""

import importlib
import pathlib

import torch
from torch import nn


class Small(nn.Module):
    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)
        self.drop = nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.drop(self.norm(self.conv(x)).relu())


class Detector(nn.Module):
    """A picture and tokens in; a dict with a tuple and a None in it out, and the input is worked on in place."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = Small()
        self.words = nn.Embedding(50, 4)

    def forward(self, image: torch.Tensor, tokens: torch.Tensor) -> dict[str, object]:
        image.mul_(2.0)
        features = self.backbone(image)
        text = self.words(tokens).mean(dim=1)
        scores = torch.sigmoid((features * text[:, :, None, None]).sum(dim=1))
        return {"boxes": (features, None), "scores": scores, "best": scores.flatten(1).argmax(dim=1)}


class Constant(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ones_like(x) * 3.0


class Infinite(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 1.0 / (x - x)


class Random(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand_like(x)


class Fourier(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.fft.fft(x).real


class Smooth(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.interpolate(x, scale_factor=2, mode="bilinear", antialias=True)


class Deaf(nn.Module):
    def forward(self, x: torch.Tensor, ignored: torch.Tensor) -> torch.Tensor:
        del ignored
        return x * 2.0


class Nested(nn.Module):
    def forward(self, x: torch.Tensor) -> object:
        return {"x": x, "y": "text"}


def small() -> nn.Module:
    return Small().train()


def half() -> nn.Module:
    return Small().half()


def with_weights(weights: pathlib.Path) -> nn.Module:
    made = Small()
    path = weights if weights.is_file() else weights / "b.pth"
    made.load_state_dict(torch.load(path, weights_only=True))
    return made


def picky() -> nn.Module:
    module = importlib.import_module("a_package_of_nobody.part")
    return module.make()


def broken() -> nn.Module:
    raise KeyError("no such layer")


def text() -> str:
    return "no module"


NUMBER = 3
