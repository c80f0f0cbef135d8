"""Jobs of the TensorRT adapter, and what it is given and fooled with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from runtimes.contract import Kind, Status
from tests.runtimes.openvino_jobs import FLOAT, Ended, Made, make
from tests.runtimes.openvino_jobs import Jobs as AnyJobs

FLOAT16 = TensorProto.FLOAT16


class Jobs(AnyJobs):
    """Jobs of the TensorRT adapter; the target is sm89 unless a test says otherwise."""

    def __init__(self, root: Path, python: Path) -> None:
        super().__init__(root, python, "tensorrt")

    def convert(self, made: Made, *, target: str = "sm89", **options: Any) -> Ended:
        return super().convert(made, target=target, **options)

    def run(
        self, artifact: Path, samples: Mapping[str, Mapping[str, Any]], *, target: str = "sm89", **options: Any
    ) -> Ended:
        return super().run(artifact, samples, target=target, **options)


def half_net(wide_heads: int = 0) -> Made:
    """Return a network that takes and gives float32 and calculates in float16, but for its last `wide_heads` layers."""
    generator = np.random.default_rng(7)
    weights: dict[str, Any] = {
        f"w{index}": generator.normal(0, 0.2, (3, 3, 3, 3)).astype(np.float16) for index in (1, 2)
    }
    nodes = [
        helper.make_node("Cast", ["x"], ["half"], "/down", to=FLOAT16),
        helper.make_node("Conv", ["half", "w1"], ["c1"], "/body/Conv", pads=[1, 1, 1, 1]),
    ]
    if wide_heads:
        weights["w2"] = weights["w2"].astype(np.float32)
        nodes += [
            helper.make_node("Cast", ["c1"], ["wide"], "/up", to=FLOAT),
            helper.make_node("Conv", ["wide", "w2"], ["y"], "/head/Conv", pads=[1, 1, 1, 1]),
        ]
    else:
        nodes += [
            helper.make_node("Conv", ["c1", "w2"], ["c2"], "/head/Conv", pads=[1, 1, 1, 1]),
            helper.make_node("Cast", ["c2"], ["y"], "/up", to=FLOAT),
        ]
    shape = [1, 3, 16, 20]
    return make(nodes, [("x", FLOAT, shape)], [("y", FLOAT, shape)], weights)


def is_failure(ended: Ended, status: Status, kind: Kind, words: str) -> bool:
    """Return whether a job ended so, with these words in its message."""
    assert (ended.result.status, ended.failure.kind) == (status, kind), (ended.failure, ended.log)
    return words in ended.failure.message
