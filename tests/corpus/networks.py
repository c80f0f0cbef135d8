# mypy: disable-error-code="misc, no-any-return"
"""The list of architectures that the corpus exports, each with the inputs that it is traced with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tests.corpus.layers import Bert, Crnn, DnCnn, Espcn, First, Keywords, Recurrent, Sentiment, Style, UNet

# torchvision from PyPI is built for the CUDA build of PyTorch, and asks for these two operators when it is imported.
_SCHEMAS = torch.library.Library("torchvision", "DEF")
_SCHEMAS.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
_SCHEMAS.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


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
    "bert": Network(
        make=transformers("BertModel", "BertConfig", text=True, initializer_range=0.1, **SMALL),
        inputs=masked(24, 30522),
    ),
    "distilbert": Network(
        make=transformers(
            *("DistilBertModel", "DistilBertConfig"),
            text=True,
            dim=128,
            n_layers=3,
            n_heads=4,
            hidden_dim=256,
            initializer_range=0.1,
        ),
        inputs=masked(24, 30522),
    ),
    "roberta": Network(
        make=transformers("RobertaModel", "RobertaConfig", text=True, initializer_range=0.1, **SMALL),
        inputs=masked(24, 30000),
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
        make=transformers("AlbertModel", "AlbertConfig", text=True, embedding_size=64, initializer_range=0.1, **SMALL),
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
