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


class Broad(nn.Module):
    """Much of what an exported program can hold: inner graphs, text, infinities, sizes, constants, containers."""

    def __init__(self) -> None:
        super().__init__()
        self.small = Small()
        self.register_buffer("scale", torch.full((1,), 2.0), persistent=False)
        self.shift = torch.full((4, 1, 1), 0.5)

    def forward(self, x: torch.Tensor) -> dict[str, object]:
        with torch.no_grad():
            features = self.small(x) * self.scale + self.shift
        flat = features.view(x.shape[0], 2, x.shape[2] * 16)
        masked = flat.masked_fill(flat > 0.7, float("-inf")).softmax(-1)
        large = nn.functional.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)
        return {"a-b": masked, "more": [torch.div(large, 0.3, rounding_mode="floor"), torch.einsum("bchw->bhc", x)]}


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


class Odd(Exception):
    """An error of a kind that only the user's code knows."""


class Silent(Exception):
    """An error that raises another one when it is asked what it says."""

    def __str__(self) -> str:
        raise Odd("no words")


class Raising(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise Odd(f"\x1b[31mno {x.ndim}\x1b[0m dimensions")


class Exporting(nn.Module):
    """Runs, and raises an error of its own once it is exported."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch.onnx.is_in_onnx_export() or torch.compiler.is_exporting():
            raise Odd("\x1b[1mnot\x1b[0m to be exported")
        return x


class Otherwise(nn.Module):
    """Gives another answer once it is exported."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        is_exported = torch.onnx.is_in_onnx_export() or torch.compiler.is_exporting()
        return torch.cos(40.0 * x) if is_exported else x * 2.0


class Leaving(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise SystemExit(x.ndim)


class Greedy(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.empty(2**60) + x


class Late(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        importlib.import_module("a_package_of_nobody.part")
        return x


class Unready(nn.Module):
    def train(self, mode: bool = True) -> "Unready":
        raise Odd("not ready" if not mode else "")


def odd() -> nn.Module:
    raise Odd("nothing to build")


def silent() -> nn.Module:
    raise Silent


def leaving() -> nn.Module:
    raise SystemExit("no licence")


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
