"""YOLO-World v2 small with CLIP's text tower as one model: a picture and the tokens of texts in, boxes and scores out.

`aipc` calls `build`. Its folder of weights holds six photographs and, where the user has them, trained files:

| file | what |
|---|---|
| `yolov8s-worldv2.pt` | the detector, as ultralytics publishes it: a pickle, read only where it is trusted |
| `ViT-B-32.pt` | CLIP ViT-B/32, as OpenAI publishes it; its text tower is used |

Without them the weights are drawn from the seed. Such a network all but ignores its inputs, and any broken artefact
would agree with it. So its normalisation is calibrated on the photographs, and its heads are turned up: its outputs
then depend on its inputs, though it detects nothing.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional

# Before it is imported, which asks whether the machine has a network.
os.environ["YOLO_OFFLINE"] = "true"

from ultralytics.hub.utils import events
from ultralytics.nn.modules import WorldDetect
from ultralytics.nn.tasks import WorldModel
from ultralytics.utils import SETTINGS

# A traced size becomes a constant, as it should: the graph is made for one size.
warnings.filterwarnings("ignore", category=torch.jit.TracerWarning)
# Neither of them sends anything here, and neither shall anywhere.
events.enabled = False
SETTINGS["sync"] = False

CONFIGURATION = "yolov8s-worldv2.yaml"
DETECTOR, CLIP = "yolov8s-worldv2.pt", "ViT-B-32.pt"
PICTURES = (".jpg", ".jpeg", ".png")
HEIGHT, WIDTH = 256, 320
"""Pixels: the photographs that calibrate a seeded network are cut to this size."""

VOCABULARY, LENGTH, FEATURES, LAYERS, HEADS = 49408, 77, 512, 12, 8
"""Of CLIP's text tower."""

MASKED = -1e4
"""Added to the score of what a token must not see: it vanishes in every precision, and float16 holds it."""

NOISE = (0.0, 0.1, 0.3, 0.7, 1.0, 1.0)
"""The share of noise in each photograph that calibrates. A network that has only seen photographs is chaotic on noise:
weights rounded to float16 alone leave it an SNR of 28 dB there."""

BATCH_NORM_WEIGHT, CONTRAST_BIAS, CONTRAST_SCALE, BOX_GAIN = 0.5, -2.0, 1.2, 8.0
"""How a seeded detector is tuned: its outputs move with its inputs, and its scores are neither all 0 nor all 1."""


class Block(nn.Module):
    """One layer of the text tower; its parameters are called as in OpenAI's file."""

    def __init__(self) -> None:
        super().__init__()
        self.attn = nn.MultiheadAttention(FEATURES, HEADS)
        self.ln_1 = nn.LayerNorm(FEATURES)
        self.mlp = nn.Sequential()
        self.mlp.add_module("c_fc", nn.Linear(FEATURES, 4 * FEATURES))
        self.mlp.add_module("gelu", QuickGelu())
        self.mlp.add_module("c_proj", nn.Linear(4 * FEATURES, FEATURES))
        self.ln_2 = nn.LayerNorm(FEATURES)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Return the [N,L,F] of the next layer for the [N,L,F] of this one; `mask` [L,L] is added to the scores."""
        seen = tokens + self._attend(self.ln_1(tokens), mask)
        return seen + cast("Tensor", self.mlp(self.ln_2(seen)))

    def _attend(self, tokens: Tensor, mask: Tensor) -> Tensor:
        # Written out: PyTorch's own takes other ways when it is exported than when it is called.
        count = tokens.shape[0]
        joined = functional.linear(tokens, self.attn.in_proj_weight, self.attn.in_proj_bias)
        query, key, value = (
            part.reshape(count, LENGTH, HEADS, FEATURES // HEADS).transpose(1, 2) for part in joined.chunk(3, dim=-1)
        )
        scores = query @ key.transpose(2, 3) * (FEATURES // HEADS) ** -0.5 + mask
        mixed = (scores.softmax(dim=-1) @ value).transpose(1, 2).reshape(count, LENGTH, FEATURES)
        return cast("Tensor", self.attn.out_proj(mixed))


class QuickGelu(nn.Module):
    """The activation that CLIP was trained with."""

    def forward(self, values: Tensor) -> Tensor:
        """Return x · sigmoid(1.702 · x)."""
        return values * torch.sigmoid(1.702 * values)


class TextTower(nn.Module):
    """CLIP's encoder of words: tokens [N,77] to unit vectors [N,512]; its parameters are called as in OpenAI's file."""

    def __init__(self) -> None:
        super().__init__()
        self.token_embedding = nn.Embedding(VOCABULARY, FEATURES)
        self.positional_embedding = nn.Parameter(torch.empty(LENGTH, FEATURES))
        self.transformer = nn.Module()
        self.transformer.resblocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_final = nn.LayerNorm(FEATURES)
        self.text_projection = nn.Parameter(torch.empty(FEATURES, FEATURES))
        self.register_buffer("mask", torch.full((LENGTH, LENGTH), MASKED).triu(1), persistent=False)
        self._draw()

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the features of each row of tokens; the end of a text is its largest token."""
        values = self.token_embedding(tokens) + self.positional_embedding
        for block in cast("nn.ModuleList", self.transformer.resblocks):
            values = block(values, self.mask)
        rows = torch.arange(tokens.shape[0])
        features = self.ln_final(values)[rows, tokens.argmax(dim=-1)] @ self.text_projection
        return cast("Tensor", features / features.norm(dim=-1, keepdim=True))

    def _draw(self) -> None:
        """Draw the weights as CLIP's training did at its start."""
        nn.init.normal_(self.token_embedding.weight, std=0.02)
        nn.init.normal_(self.positional_embedding, std=0.01)
        for block in cast("nn.ModuleList", self.transformer.resblocks):
            nn.init.normal_(block.attn.in_proj_weight, std=FEATURES**-0.5)
            nn.init.normal_(block.attn.out_proj.weight, std=(FEATURES * 2 * LAYERS) ** -0.5)
            nn.init.normal_(block.mlp.c_fc.weight, std=(2 * FEATURES) ** -0.5)
            nn.init.normal_(block.mlp.c_proj.weight, std=(FEATURES * 2 * LAYERS) ** -0.5)
        nn.init.normal_(self.text_projection, std=FEATURES**-0.5)


class BoxesAndScores(WorldDetect):  # type: ignore[misc]
    """The detector's head, whose two answers stay apart: together, large boxes hide small errors of scores."""

    def forward(self, maps: list[Tensor], text: Tensor) -> tuple[Tensor, Tensor]:
        """Return boxes [N,4,A] as x, y of the middle, width and height in pixels, and scores [N,T,A] from 0 to 1.

        Args:
            maps: [N,C,H,W] of each level; A is the sum of their H·W.
            text: features of the T texts, [N,T,512].
        """
        sides = torch.cat([branch(each).flatten(2) for branch, each in zip(self.cv2, maps, strict=True)], 2)
        branches = zip(self.cv3, self.cv4, maps, strict=True)
        logits = torch.cat([contrast(features(each), text).flatten(2) for features, contrast, each in branches], 2)
        middles, strides = self._places([(int(each.shape[2]), int(each.shape[3])) for each in maps])
        return self.decode_bboxes(self.dfl(sides), middles) * strides, logits.sigmoid()

    def _places(self, sizes: list[tuple[int, int]]) -> tuple[Tensor, Tensor]:
        """Return the middle of each cell, in cells, and how many pixels wide a cell is, [1,2,A] and [1,1,A]."""
        # By numpy, so that they are constants of the graph.
        grids = [np.mgrid[:height, :width][::-1].reshape(2, -1) + 0.5 for height, width in sizes]
        spans = [np.full(height * width, int(each)) for (height, width), each in zip(sizes, self.stride, strict=True)]
        middles, strides = np.concatenate(grids, 1)[np.newaxis], np.concatenate(spans)[np.newaxis, np.newaxis]
        return torch.from_numpy(middles.astype(np.float32)), torch.from_numpy(strides.astype(np.float32))


class YoloWorld(nn.Module):
    """The whole: image [1,3,H,W] from 0 to 1, H and W multiples of 32, and tokens [T,77] to boxes and scores.

    Attributes:
        notes: what a report should say about its weights.
    """

    def __init__(self, detector: nn.Module, text: nn.Module, notes: tuple[str, ...]) -> None:
        super().__init__()
        self.detector = detector
        self.text = text
        self.notes = notes

    def forward(self, image: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Return boxes and scores; see `BoxesAndScores.forward`."""
        predict: Any = self.detector.predict
        boxes, scores = predict(image, txt_feats=self.text(tokens).unsqueeze(0))
        return boxes, scores


def build(weights: Path, *, trusted: bool = False) -> YoloWorld:
    """Return the model.

    Args:
        weights: the folder of the photographs and, with trained weights, of both files.
        trusted: the files may run code while they are read.

    Raises:
        ValueError: one file is there without the other, is not trusted, or does not hold this model's weights.
    """
    held = {path.name: path for path in sorted(weights.iterdir())}
    photographs = [path for path in held.values() if path.suffix.lower() in PICTURES]
    given = [name for name in (DETECTOR, CLIP) if name in held]
    if len(given) == 1:
        raise ValueError(f"weights: only {given[0]}; give both {DETECTOR} and {CLIP}")
    if given and not trusted:
        raise ValueError(f"weights: {DETECTOR} runs code when it is read; say trusted = true if you trust it")
    if not given and len(photographs) != len(NOISE):
        raise ValueError(f"weights: {len(photographs)} photographs; name six to calibrate the seeded network with")
    detector = WorldModel(CONFIGURATION, verbose=False)
    # It has the same layers: only what becomes of their answers is another.
    detector.model[-1].__class__ = BoxesAndScores
    text = TextTower()
    if given:
        _load(detector, torch.load(held[DETECTOR], map_location="cpu", weights_only=False)["model"])
        _load(text, torch.jit.load(str(held[CLIP]), map_location="cpu"))
        return YoloWorld(detector, text, ())
    model = YoloWorld(detector, text, ("seeded weights: structure and numerics only, no detections",))
    _calibrate(model, photographs)
    return model


def _load(module: nn.Module, trained: nn.Module) -> None:
    """Give `module` the weights of `trained`, which may hold more: CLIP's file has its tower for pictures too."""
    own, found = module.state_dict(), trained.float().state_dict()
    missing = [name for name, tensor in own.items() if name not in found or found[name].shape != tensor.shape]
    if missing:
        raise ValueError(f"weights: {len(missing)} of {len(own)} tensors are missing, the first is {missing[0]}")
    module.load_state_dict({name: found[name] for name in own})


def _calibrate(model: YoloWorld, photographs: list[Path]) -> None:
    """Let the detector's normalisation fit its seeded weights, in one pass over the photographs."""
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 1.0
        nn.init.constant_(norm.weight, BATCH_NORM_WEIGHT)
    head: Any = model.detector.model[-1]
    for contrast in head.cv4:
        nn.init.constant_(contrast.bias, CONTRAST_BIAS)
        nn.init.constant_(contrast.logit_scale, CONTRAST_SCALE)
    for branch in head.cv2:
        branch[-1].weight.data.mul_(BOX_GAIN)
    images = torch.stack([_picture(path) for path in photographs])
    share = torch.tensor(NOISE).reshape(-1, 1, 1, 1)
    with torch.no_grad():
        model.train()(images * (1 - share) + torch.rand_like(images) * share, torch.randint(VOCABULARY, (5, LENGTH)))
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    model.eval()


def _picture(path: Path) -> Tensor:
    """Return a photograph as [3, HEIGHT, WIDTH] from 0 to 1."""
    with Image.open(path) as opened:
        scaled = opened.convert("RGB").resize((WIDTH, HEIGHT), Image.Resampling.BILINEAR)
    return torch.from_numpy(np.asarray(scaled, dtype=np.float32).transpose(2, 0, 1) / 255.0)
