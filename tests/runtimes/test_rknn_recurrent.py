"""Recurrent nodes on rknn-toolkit2: what it takes as it is, and what its repair makes of the rest."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

from runtimes.contract import Kind, Status
from tests.runtimes.openvino_jobs import FLOAT, Made, make, outputs, picture, reference
from tests.runtimes.rewrites.graphs import rewritten
from tests.runtimes.rknn_jobs import Jobs, repairs

FEEDS = {"x": picture(shape=(5, 1, 6)) - 0.5}


@pytest.fixture
def jobs(tmp_path: Path, environment_python: Callable[[str], Path]) -> Jobs:
    return Jobs(tmp_path, environment_python("rknn"))


def bidirectional(op: str, *outputs: str) -> Made:
    """Return a node over 5 steps in both directions, whose output y is its last states where its first is left out."""
    gates = {"GRU": 3, "LSTM": 4}[op]
    generator = np.random.default_rng(1)
    weights = {
        name: generator.normal(0, 0.3, shape).astype(np.float32)
        for name, shape in {"w": (2, gates * 8, 6), "r": (2, gates * 8, 8), "b": (2, 2 * gates * 8)}.items()
    }
    before: dict[str, Any] = {"linear_before_reset": 1} if op == "GRU" else {}
    taken = ["x", *weights]
    node = helper.make_node(op, taken, outputs, "/both", hidden_size=8, direction="bidirectional", **before)
    shape = [5, 2, 1, 8] if outputs[0] else [2, 1, 8]
    return make([node], [("x", FLOAT, [5, 1, 6])], [("y", FLOAT, shape)], weights)


@pytest.mark.parametrize("op", ["GRU", "LSTM"])
def test_a_bidirectional_node_with_all_outputs_agrees(jobs: Jobs, op: str) -> None:
    made = bidirectional(op, "y")
    found = outputs(jobs.convert(made, {"a": FEEDS}))["a"]["y"]
    np.testing.assert_allclose(found, reference(made, FEEDS)["y"], atol=5e-3)


@pytest.mark.parametrize("op", ["GRU", "LSTM"])
def test_a_node_that_leaves_out_an_output_is_named_and_its_repair_agrees(jobs: Jobs, op: str) -> None:
    made = bidirectional(op, "", "y")
    ended = jobs.convert(made, {"a": FEEDS}, name="asked")
    assert (ended.result.status, ended.failure.kind) == (Status.REFUSED, Kind.UNSUPPORTED_OP)
    assert (ended.failure.op, ended.failure.node) == (op, "/both")
    assert "Could not find OrtValue with name ''" in ended.failure.message
    (line,) = (each for each in repairs() if op in each.get("ops", ()))
    mended, _ = rewritten(made.model, line["rewrite"])
    repaired = jobs.convert(dataclasses.replace(made, model=mended), {"a": FEEDS}, name="mended")
    np.testing.assert_allclose(outputs(repaired)["a"]["y"], reference(made, FEEDS)["y"], atol=5e-3)
