"""Attention over a graph on rknn-toolkit2: what it fails at, and what the repair makes of it."""

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

FEEDS = {"x": picture(shape=(1, 15, 24)) - 0.5}


@pytest.fixture
def jobs(tmp_path: Path, environment_python: Callable[[str], Path]) -> Jobs:
    return Jobs(tmp_path, environment_python("rknn"))


def triggers(rewrite: str) -> list[dict[str, Any]]:
    return [line for line in repairs() if line["rewrite"] == rewrite]


def scores() -> Made:
    """A score for each pair of 15 nodes: a column, and a row that is a column turned."""
    generator = np.random.default_rng(1)
    weights = {name: generator.normal(size=(24, 1)).astype(np.float32) for name in ("v", "w")}
    nodes = [
        helper.make_node("MatMul", ["x", "v"], ["p"], "/from"),
        helper.make_node("Transpose", ["p"], ["row"], "/turn", perm=[0, 2, 1]),
        helper.make_node("MatMul", ["x", "w"], ["column"], "/to"),
        helper.make_node("Add", ["column", "row"], ["y"], "/pair"),
    ]
    return make(nodes, [("x", FLOAT, [1, 15, 24])], [("y", FLOAT, [1, 15, 15])], weights)


def masked() -> Made:
    """A Softmax over rows of which those that begin with a number below 0 are masked all along."""
    constants = {"low": np.float32(-1e9), "zero": np.float32(0), "begin": np.array([0]), "end": np.array([1])}
    nodes = [
        helper.make_node("Slice", ["x", "begin", "end", "two"], ["first"], "/first"),
        helper.make_node("Less", ["first", "zero"], ["hidden"], "/hidden"),
        helper.make_node("Where", ["hidden", "low", "x"], ["seen"], "/seen"),
        helper.make_node("Softmax", ["seen"], ["y"], "/softmax", axis=-1),
    ]
    constants["two"] = np.array([2])
    return make(nodes, [("x", FLOAT, [1, 15, 24])], [("y", FLOAT, [1, 15, 24])], constants)


def test_a_sum_of_a_column_and_a_row_ends_the_toolkit_and_its_repair_agrees(jobs: Jobs) -> None:
    made = scores()
    ended = jobs.convert(made, {"a": FEEDS}, name="asked")
    assert (ended.result.status, ended.failure.kind) == (Status.FAILED, Kind.CRASH)
    assert triggers("expand_operand") == [{"rewrite": "expand_operand", "kinds": ["crash"]}]
    mended = dataclasses.replace(made, model=rewritten(made.model, "expand_operand")[0])
    found = outputs(jobs.convert(mended, {"a": FEEDS}, name="mended"))["a"]["y"]
    np.testing.assert_allclose(found, reference(made, FEEDS)["y"], atol=2e-2)


def test_a_row_that_is_all_masked_is_nan_and_its_repair_agrees(jobs: Jobs) -> None:
    made = masked()
    before = outputs(jobs.convert(made, {"a": FEEDS}, name="asked"))["a"]["y"]
    assert np.isnan(before).any()
    assert triggers("lift_masks") == [{"rewrite": "lift_masks", "verdict": "disagrees"}]
    mended = dataclasses.replace(made, model=rewritten(made.model, "lift_masks")[0])
    found = outputs(jobs.convert(mended, {"a": FEEDS}, name="mended"))["a"]["y"]
    np.testing.assert_allclose(found, reference(made, FEEDS)["y"], atol=1e-3)
