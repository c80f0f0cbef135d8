"""A case that agrees, and the ways to spoil it that the judge's tests share."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from runtimes.kit.tensors import Array
from runtimes.reference.judge_case import Case, Group, Options, Placed, Port, Samples

SAMPLES = ("photo", "random-1", "random-4")
PICTURE = (1, 3, 6, 8)
OUTPUTS = ("boxes", "labels", "picture", "scores")


def group(name: str, *outputs: str, **fields: Any) -> Group:
    """Return a group with the tolerances of fp32; `fields` are what else it has."""
    usual = {"inputs": (), "content": "tensor", "cosine": 0.99999, "snr_db": 60.0, "max_abs": None}
    return Group(name=name, outputs=outputs, **{**usual, **fields})


GROUPS = (
    group("image", "picture", content="picture"),
    group("detections", "boxes", "scores"),
    group("classes", "labels"),
)


def good(**options: Any) -> Case:
    """Return a case that agrees: a picture, boxes and scores of one shape, and labels.

    Args:
        options: what to change in the judge's options.
    """
    draw = np.random.default_rng(7)
    samples: dict[str, dict[str, Array]] = {}
    golden: dict[str, dict[str, Array]] = {}
    outputs: dict[str, dict[str, Array]] = {}
    for sample, magnitude in zip(SAMPLES, (1.0, 1.0, 4.0), strict=True):
        samples[sample] = {"x": (draw.random(PICTURE) * magnitude).astype(np.float32)}
        golden[sample] = {
            "picture": draw.random(PICTURE).astype(np.float32),
            "boxes": (draw.random((1, 4, 10)) * 320).astype(np.float32),
            "scores": draw.random((1, 4, 10)).astype(np.float32),
            "labels": draw.integers(0, 80, (1, 10)),
        }
        outputs[sample] = {name: _near(tensor, draw) for name, tensor in golden[sample].items()}
    cpu = {
        sample: {name: _near(tensor, draw) for name, tensor in tensors.items()} for sample, tensors in golden.items()
    }
    case = Case(options=asked(golden, GROUPS), samples=samples, golden=golden, outputs=outputs, cpu=cpu)
    return asking(case, **options)


def asked(golden: Samples, groups: tuple[Group, ...], inputs: tuple[str, ...] = ("x",)) -> Options:
    """Return the options of a cell without accelerator whose artefact declares what golden is."""
    ports = tuple(
        Port(name=name, shape=tensor.shape, dtype=tensor.dtype.name)
        for name, tensor in next(iter(golden.values())).items()
    )
    return Options(
        groups=groups,
        sensitivity={port.name: dict.fromkeys(inputs, 0.5) for port in ports},
        expected_samples=tuple(golden),
        expected_outputs=ports,
        declared_outputs=ports,
        quantized=False,
        accelerator=False,
        placement=(),
        accepted_devices=(),
    )


def accelerated(**options: Any) -> Case:
    """Return a case that agrees and claims an accelerator."""
    return claimed(good(), **options)


def claimed(case: Case, **options: Any) -> Case:
    """Return the case with the claim of an accelerator that did all the work."""
    nodes = tuple(Placed(node=f"conv{number}", op="Conv", device="NPU") for number in range(12))
    return asking(case, **{"accelerator": True, "placement": nodes, "accepted_devices": ("NPU",), **options})


def _near(tensor: Array, draw: np.random.Generator) -> Array:
    """Return what a good float32 artefact gives: the golden values but for rounding; labels as they are."""
    if tensor.dtype.kind != "f":
        return tensor.copy()
    return (tensor * (1 + draw.uniform(-1e-6, 1e-6, tensor.shape))).astype(np.float32)


def only(case: Case, output: str, golden: Samples, **limits: Any) -> Case:
    """Return a case of one output, which the artefact gives exactly."""
    groups = (group(output, output, **limits),)
    return dataclasses.replace(case, options=asked(golden, groups), golden=golden, outputs=golden, cpu={})


def with_tokens(case: Case, draw: Callable[[int], Array]) -> Case:
    """Return the case with a second input, of whole numbers; `draw` gets the number of the sample."""
    samples = {}
    for number, (sample, tensors) in enumerate(case.samples.items()):
        samples[sample] = {**tensors, "tokens": draw(number)}
    changes = {name: {"x": 0.5, "tokens": 0.5} for name in case.options.sensitivity}
    return asking(replace(case, samples=samples), sensitivity=changes)


def replace(case: Case, **fields: Any) -> Case:
    """Return the case with other sample sets or options."""
    return dataclasses.replace(case, **fields)


def asking(case: Case, **options: Any) -> Case:
    """Return the case with other options."""
    return dataclasses.replace(case, options=dataclasses.replace(case.options, **options))


def with_tensor(samples: Samples, sample: str, name: str, tensor: Array) -> Samples:
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
