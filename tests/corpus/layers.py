# mypy: disable-error-code="misc, no-any-return"
"""Networks that are written here, and what stands around those of packages."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class First(nn.Module):
    """A network of transformers, or another that answers with an object: its tensors alone."""

    def __init__(self, network: nn.Module, *names: str) -> None:
        super().__init__()
        self.network = network
        self.names = names

    def forward(self, given: Tensor) -> tuple[Tensor, ...]:
        answer = self.network(given)
        return tuple(answer[name] for name in self.names)


class Bert(nn.Module):
    """A network of transformers that takes tokens and a mask, by their names."""

    def __init__(self, network: nn.Module, name: str = "last_hidden_state") -> None:
        super().__init__()
        self.network = network
        self.name = name

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        answer: Tensor = self.network(input_ids=input_ids, attention_mask=attention_mask)[self.name]
        return answer


class UNet(nn.Module):
    """Ronneberger's, with three levels."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        sizes = [width, 2 * width, 4 * width]
        self.down = nn.ModuleList(_twice(before, after) for before, after in zip([3, *sizes], sizes, strict=False))
        self.middle = _twice(sizes[-1], 8 * width)
        self.raise_ = nn.ModuleList(nn.ConvTranspose2d(2 * size, size, 2, stride=2) for size in reversed(sizes))
        self.up = nn.ModuleList(_twice(2 * size, size) for size in reversed(sizes))
        self.last = nn.Conv2d(width, 3, 1)

    def forward(self, image: Tensor) -> Tensor:
        kept = []
        for block in self.down:
            image = block(image)
            kept.append(image)
            image = functional.max_pool2d(image, 2)
        image = self.middle(image)
        for raised, block in zip(self.raise_, self.up, strict=True):
            image = block(torch.cat([raised(image), kept.pop()], 1))
        return torch.sigmoid(self.last(image))


def _twice(before: int, after: int) -> nn.Sequential:
    return nn.Sequential(
        *(nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()),
        *(nn.Conv2d(after, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()),
    )


class DnCnn(nn.Module):
    """Takes the noise out of a picture: what it finds is subtracted."""

    def __init__(self, width: int = 32, depth: int = 8) -> None:
        super().__init__()
        inner = [
            layer
            for _ in range(depth)
            for layer in (nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        ]
        self.body = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1), nn.ReLU(), *inner, nn.Conv2d(width, 3, 3, padding=1)
        )

    def forward(self, image: Tensor) -> Tensor:
        return image - 0.2 * torch.tanh(self.body(image))


class Style(nn.Module):
    """Johnson's network for styles: strides, residual blocks, instance normalisation, nearest neighbours."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.head = nn.Sequential(
            _normed(3, width, 9), _normed(width, 2 * width, 3, 2), _normed(2 * width, 4 * width, 3, 2)
        )
        self.body = nn.ModuleList(_normed(4 * width, 4 * width, 3) for _ in range(3))
        self.tail = nn.ModuleList([_normed(4 * width, 2 * width, 3), _normed(2 * width, width, 3)])
        self.last = nn.Conv2d(width, 3, 9, padding=4, padding_mode="reflect")

    def forward(self, image: Tensor) -> Tensor:
        image = self.head(image)
        for block in self.body:
            image = image + block(image)
        for block in self.tail:
            image = block(functional.interpolate(image, scale_factor=2.0, mode="nearest"))
        answer: Tensor = self.last(image)
        return answer


def _normed(before: int, after: int, size: int, stride: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(before, after, size, stride, padding=size // 2, padding_mode="reflect")
    return nn.Sequential(conv, nn.InstanceNorm2d(after, affine=True), nn.ReLU())


class Espcn(nn.Module):
    """Makes a picture three times as large by shuffling pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Conv2d(3, 64, 5, padding=2), nn.Tanh(), nn.Conv2d(64, 32, 3, padding=1), nn.Tanh()),
            *(nn.Conv2d(32, 27, 3, padding=1), nn.PixelShuffle(3)),
        )

    def forward(self, image: Tensor) -> Tensor:
        answer: Tensor = self.body(image)
        return answer + functional.interpolate(image, scale_factor=3.0, mode="bilinear", align_corners=False)


class Crnn(nn.Module):
    """Reads a line of text: convolutions, a recurrent network both ways, scores for each column."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d((8, 1))),
        )
        self.recurrent = nn.LSTM(64, 48, num_layers=2, bidirectional=True, batch_first=True)
        self.scores = nn.Linear(96, 37)

    def forward(self, image: Tensor) -> Tensor:
        columns = self.features(image).squeeze(2).transpose(1, 2)
        answer: Tensor = self.scores(self.recurrent(columns)[0])
        return answer


class Recurrent(nn.Module):
    """Forecasts a series: two recurrent layers, and the last state's opinion."""

    def __init__(self, kind: type[nn.Module], **options: Any) -> None:
        super().__init__()
        self.recurrent: Any = kind(8, 64, num_layers=2, batch_first=True, **options)
        self.last = nn.Linear(64, 12)

    def forward(self, series: Tensor) -> Tensor:
        answer: Tensor = self.last(self.recurrent(series)[0][:, -1])
        return answer


class Sentiment(nn.Module):
    """Words to a class by an LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(1000, 48)
        self.recurrent = nn.LSTM(48, 64, batch_first=True)
        self.last = nn.Linear(64, 4)

    def forward(self, input_ids: Tensor) -> Tensor:
        answer: Tensor = self.last(self.recurrent(self.words(input_ids))[0].mean(1))
        return answer


class Keywords(nn.Module):
    """M5: words in a waveform, by convolutions of one dimension."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before, after, size, stride in ((1, width, 80, 4), (width, width, 3, 1), (width, 2 * width, 3, 1)):
            layers += [nn.Conv1d(before, after, size, stride), nn.BatchNorm1d(after), nn.ReLU(), nn.MaxPool1d(4)]
        self.body = nn.Sequential(*layers)
        self.last = nn.Linear(2 * width, 12)

    def forward(self, waveform: Tensor) -> Tensor:
        answer: Tensor = self.last(self.body(waveform).mean(-1))
        return answer
