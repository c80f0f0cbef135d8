"""A case that agrees, and the ways to spoil it that the judge's tests share."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from runtimes.reference.judge_case import Case, Group, Options, Placed, Samples
from runtimes.reference.measures import Tensor

SAMPLES = ("photo", "random-1", "random-4")
PICTURE = (1, 3, 6, 8)
OUTPUTS = ("boxes", "labels", "picture", "scores")

GROUPS = (
    Group(name="image", outputs=("picture",), content="picture"),
    Group(name="detections", outputs=("boxes", "scores")),
    Group(name="classes", outputs=("labels",)),
)


def good(**options: Any) -> Case:
    """Return a case that agrees: a picture, boxes and scores of one shape, and labels.

    Args:
        options: what to change in the judge's options.
    """
    draw = np.random.default_rng(7)
    samples: dict[str, dict[str, Tensor]] = {}
    golden: dict[str, dict[str, Tensor]] = {}
    outputs: dict[str, dict[str, Tensor]] = {}
    for sample, magnitude in zip(SAMPLES, (1.0, 1.0, 4.0), strict=True):
        samples[sample] = {"x": (draw.random(PICTURE) * magnitude).astype(np.float32)}
        golden[sample] = {
            "picture": draw.random(PICTURE).astype(np.float32),
            "boxes": (draw.random((1, 4, 10)) * 320).astype(np.float32),
            "scores": draw.random((1, 4, 10)).astype(np.float32),
            "labels": draw.integers(0, 80, (1, 10)),
        }
        outputs[sample] = {name: _near(tensor, draw) for name, tensor in golden[sample].items()}
    asked = {"sensitivity": {name: {"x": 0.5} for name in OUTPUTS}, **options}
    cpu = {
        sample: {name: _near(tensor, draw) for name, tensor in tensors.items()} for sample, tensors in golden.items()
    }
    return Case(
        options=Options(**{"groups": GROUPS, **asked}), samples=samples, golden=golden, outputs=outputs, cpu=cpu
    )


def accelerated(**options: Any) -> Case:
    """Return a case that agrees and claims an accelerator."""
    nodes = tuple(Placed(node=f"conv{number}", op="Conv", device="NPU") for number in range(12))
    return good(**{"accelerator": True, "placement": nodes, "accepted_devices": ("NPU",), **options})


def _near(tensor: Tensor, draw: np.random.Generator) -> Tensor:
    """Return what a good float32 artefact gives: the golden values but for rounding; labels as they are."""
    if tensor.dtype.kind != "f":
        return tensor.copy()
    return (tensor * (1 + draw.uniform(-1e-6, 1e-6, tensor.shape))).astype(np.float32)


def replace(case: Case, **fields: Any) -> Case:
    """Return the case with other sample sets or options."""
    return dataclasses.replace(case, **fields)


def asking(case: Case, **options: Any) -> Case:
    """Return the case with other options."""
    return dataclasses.replace(case, options=dataclasses.replace(case.options, **options))


def with_tensor(samples: Samples, sample: str, name: str, tensor: Tensor) -> Samples:
    """Return the sample set with one tensor set."""
    return {**samples, sample: {**samples[sample], name: tensor}}


def without_tensor(samples: Samples, sample: str, name: str) -> Samples:
    """Return the sample set without one tensor."""
    return {**samples, sample: {key: value for key, value in samples[sample].items() if key != name}}


def without(mapping: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a mapping without one key."""
    return {key: value for key, value in mapping.items() if key != name}


def mapped(samples: Samples, name: str, change: Any) -> Samples:
    """Return the sample set with one tensor changed in every sample by `change(tensor)`."""
    return {sample: {**tensors, name: change(tensors[name])} for sample, tensors in samples.items()}
