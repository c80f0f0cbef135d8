# mypy: disable-error-code="misc, no-any-return"
"""Common architectures with seeded weights, exported as users do: `torch.onnx.export` with nothing but a free batch.

    python networks.py FOLDER PHOTOGRAPHS [NAME…]

Runs in the environment `corpus`. Seeded networks all but ignore their inputs, and then any artefact agrees with them.
So each is calibrated before its export: batch normalisation on photographs with a rising share of noise, layers that
start as zeros on small numbers. One whose output hardly changes with its input is not written, and said.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

# torchvision from PyPI is built for the CUDA build of PyTorch, and asks for these two operators when it is imported.
_SCHEMAS = torch.library.Library("torchvision", "DEF")
_SCHEMAS.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
_SCHEMAS.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

NOISE = (0.0, 0.1, 0.3, 0.7, 1.0, 1.0)
"""The share of noise in each photograph."""

LEAST_CHANGE = 0.1
"""By how much of its size an output must change with the input."""


@dataclass(frozen=True, kw_only=True)
class Network:
    """One of them.

    Attributes:
        make: returns the module.
        inputs: names of its inputs, and for two of them what they hold: [N, …] with N = 2, since one is taken for a
            size that never changes.
        fixed: its batch stays 1.
    """

    make: Callable[[], nn.Module]
    inputs: dict[str, Tensor]
    fixed: bool = False


def image(height: int, width: int, channels: int = 3) -> dict[str, Tensor]:
    return {"image": torch.rand(2, channels, height, width)}


def tokens(length: int, vocabulary: int) -> dict[str, Tensor]:
    return {"input_ids": torch.randint(vocabulary, (2, length))}


def masked(length: int, vocabulary: int) -> dict[str, Tensor]:
    mask = torch.ones(2, length, dtype=torch.int64)
    mask[1, length * 3 // 4 :] = 0
    return {**tokens(length, vocabulary), "attention_mask": mask}


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


def torchvision(name: str, **options: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import torchvision

        module: nn.Module = torchvision.models.get_model(name, weights=None, **options)
        return module

    return make


def segmenter(name: str) -> Callable[[], nn.Module]:
    options = {"weights_backbone": None, "num_classes": 8}
    return lambda: First(torchvision(name, **options)(), "out")


def ssdlite() -> nn.Module:
    """The detector up to the choice among its boxes, whose number would depend on the picture."""
    whole: Any = torchvision("ssdlite320_mobilenet_v3_large", weights_backbone=None, num_classes=8)()

    class Raw(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backbone, self.head = whole.backbone, whole.head

        def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
            found = self.head(list(self.backbone(image).values()))
            return found["bbox_regression"], found["cls_logits"]

    return Raw()


def timm(name: str, **options: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import timm as package

        module: nn.Module = package.create_model(name, pretrained=False, **options)
        return module

    return make


def transformers(network: str, config: str, *names: str, text: bool = False, **options: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import transformers as package

        module: nn.Module = getattr(package, network)(getattr(package, config)(**options))
        return Bert(module, *names) if text else First(module, *names)

    return make


def whisper() -> nn.Module:
    """Whisper's encoder."""
    import transformers as package

    config = package.WhisperConfig(
        d_model=128,
        encoder_layers=3,
        encoder_attention_heads=4,
        encoder_ffn_dim=256,
        max_source_positions=100,
        decoder_layers=1,
        decoder_attention_heads=4,
    )
    return First(package.WhisperModel(config).encoder, HIDDEN)


HIDDEN = "last_hidden_state"
SMALL: dict[str, Any] = {"hidden_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 256}

NETWORKS: dict[str, Network] = {
    # CNNs
    "resnet18": Network(make=torchvision("resnet18"), inputs=image(64, 96)),
    "mobilenet-v2": Network(make=torchvision("mobilenet_v2"), inputs=image(64, 96)),
    "mobilenet-v3-small": Network(make=torchvision("mobilenet_v3_small"), inputs=image(64, 96)),
    "efficientnet-b0": Network(make=torchvision("efficientnet_b0"), inputs=image(64, 96)),
    "shufflenet-v2": Network(make=torchvision("shufflenet_v2_x0_5"), inputs=image(64, 96)),
    "regnet-y": Network(make=torchvision("regnet_y_400mf"), inputs=image(64, 96)),
    "densenet121": Network(make=torchvision("densenet121"), inputs=image(64, 96)),
    "squeezenet": Network(make=torchvision("squeezenet1_1"), inputs=image(64, 96)),
    "convnext-atto": Network(make=timm("convnext_atto"), inputs=image(64, 96)),
    # transformers for pictures
    "vit-tiny": Network(make=timm("vit_tiny_patch16_224", img_size=(64, 96)), inputs=image(64, 96)),
    "deit-tiny": Network(make=timm("deit_tiny_distilled_patch16_224", img_size=(64, 96)), inputs=image(64, 96)),
    "swin-tiny": Network(
        make=timm("swin_tiny_patch4_window7_224", img_size=(56, 112), embed_dim=48, depths=(2, 2, 2)),
        inputs=image(56, 112),
    ),
    "mobilevit-xxs": Network(make=timm("mobilevit_xxs"), inputs=image(64, 96)),
    # detection and segmentation
    "ssdlite": Network(make=ssdlite, inputs=image(128, 160)),
    "lraspp": Network(make=segmenter("lraspp_mobilenet_v3_large"), inputs=image(64, 96)),
    "deeplabv3": Network(make=segmenter("deeplabv3_mobilenet_v3_large"), inputs=image(64, 96)),
    "segformer": Network(
        make=transformers("SegformerForSemanticSegmentation", "SegformerConfig", "logits", num_labels=8),
        inputs=image(64, 96),
    ),
    "yolos": Network(
        make=transformers(
            "YolosForObjectDetection",
            "YolosConfig",
            "logits",
            "pred_boxes",
            image_size=[64, 96],
            initializer_range=0.2,
            **SMALL,
        ),
        inputs=image(64, 96),
    ),
    # text
    "bert": Network(make=transformers("BertModel", "BertConfig", text=True, **SMALL), inputs=masked(24, 30522)),
    "distilbert": Network(
        make=transformers(
            *("DistilBertModel", "DistilBertConfig"), text=True, dim=128, n_layers=3, n_heads=4, hidden_dim=256
        ),
        inputs=masked(24, 30522),
    ),
    "roberta": Network(
        make=transformers("RobertaModel", "RobertaConfig", text=True, **SMALL), inputs=masked(24, 30000)
    ),
    "gpt2": Network(
        make=transformers(
            "GPT2LMHeadModel",
            "GPT2Config",
            "logits",
            n_embd=128,
            n_layer=3,
            n_head=4,
            vocab_size=1000,
            use_cache=False,
        ),
        inputs=tokens(24, 1000),
    ),
    "albert": Network(
        make=transformers("AlbertModel", "AlbertConfig", text=True, embedding_size=64, **SMALL),
        inputs=masked(24, 30000),
    ),
    # audio
    "wav2vec2": Network(
        make=transformers(
            *("Wav2Vec2ForCTC", "Wav2Vec2Config", "logits"),
            **{"conv_dim": (64,) * 7, "num_conv_pos_embedding_groups": 4, **SMALL},
        ),
        inputs={"waveform": torch.randn(2, 4000)},
    ),
    "whisper-encoder": Network(
        make=whisper,
        inputs={"features": torch.randn(2, 80, 200)},
    ),
    "keywords": Network(make=Keywords, inputs={"waveform": torch.randn(2, 1, 4000)}),
    # recurrent
    "lstm": Network(make=Sentiment, inputs=tokens(16, 1000)),
    "gru": Network(make=lambda: Recurrent(nn.GRU), inputs={"series": torch.randn(2, 20, 8)}),
    "crnn": Network(make=Crnn, inputs=image(32, 96, 1)),
    # pictures to pictures
    "unet": Network(make=UNet, inputs=image(64, 96)),
    "dncnn": Network(make=DnCnn, inputs=image(48, 64)),
    "style": Network(make=Style, inputs=image(64, 96)),
    "espcn": Network(make=Espcn, inputs=image(32, 48)),
    "swin2sr": Network(
        make=transformers(
            "Swin2SRForImageSuperResolution",
            "Swin2SRConfig",
            "reconstruction",
            image_size=32,
            embed_dim=48,
            depths=[2, 2],
            num_heads=[4, 4],
            upscale=2,
            initializer_range=0.2,
        ),
        inputs=image(32, 48),
    ),
}


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
