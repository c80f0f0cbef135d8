"""What rknn-toolkit2 calls a success and is none: each is caught, and passes where its guard is switched off."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from runtimes.contract import Kind, Status
from tests.runtimes.openvino_jobs import FLOAT, Made, conv_net, make, one, outputs, picture, reference
from tests.runtimes.rknn_jobs import Jobs

PHOTO = {"photo": {"x": picture()}}


@pytest.fixture
def jobs(tmp_path: Path, environment_python: Callable[[str], Path]) -> Jobs:
    return Jobs(tmp_path, environment_python("rknn"))


def torn(made: Made, folder: Path) -> None:
    onnx.save_model(
        made.model, folder / "model.onnx", save_as_external_data=True, location="model.onnx.data", size_threshold=0
    )
    (folder / "model.onnx.data").unlink()


def test_weights_that_are_missing_are_a_failure_and_without_the_guard_the_toolkit_builds_all_the_same(
    jobs: Jobs,
) -> None:
    caught = jobs.convert(conv_net(), PHOTO, write=torn)
    assert (caught.result.status, caught.failure.kind) == (Status.FAILED, Kind.INVALID_MODEL)
    assert (
        "model.onnx: the weights 'w1' need 864 bytes of model.onnx.data, which is not there" in caught.failure.message
    )
    passed = jobs.convert(conv_net(), PHOTO, write=torn, without="_check_stored", name="without")
    assert passed.result.status is Status.DONE
    assert np.abs(outputs(passed)["photo"]["y"] - reference(conv_net(), PHOTO["photo"])["y"]).max() > 0.1


def test_weights_beside_the_model_reach_the_artefact(jobs: Jobs) -> None:
    def beside(made: Made, folder: Path) -> None:
        onnx.save_model(
            made.model, folder / "model.onnx", save_as_external_data=True, location="model.onnx.data", size_threshold=0
        )

    ended = jobs.convert(conv_net(), PHOTO, write=beside)
    wanted = reference(conv_net(), PHOTO["photo"])["y"]
    np.testing.assert_allclose(outputs(ended)["photo"]["y"], wanted, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("op", ["Trilu", "IsNaN"])
def test_a_node_without_a_kernel_is_refused_and_without_the_guard_the_simulator_agrees(jobs: Jobs, op: str) -> None:
    made = one(op, shape=(1, 6, 6))
    if op == "IsNaN":
        nodes = [helper.make_node("IsNaN", ["x"], ["n"], "/odd"), helper.make_node("Not", ["n"], ["y"], "/last")]
        made = make(nodes, [("x", FLOAT, [1, 6, 6])], [("y", onnx.TensorProto.BOOL, [1, 6, 6])])
    feeds = {"photo": {"x": picture(shape=(1, 6, 6))}}
    caught = jobs.convert(made, feeds)
    assert (caught.result.status, caught.failure.kind) == (Status.REFUSED, Kind.UNSUPPORTED_OP)
    assert (caught.failure.op, caught.failure.node) == (op, "/odd")
    passed = jobs.convert(made, feeds, without="_check_lowered", name="without")
    np.testing.assert_allclose(
        outputs(passed)["photo"]["y"], reference(made, feeds["photo"])["y"], rtol=1e-2, atol=1e-2
    )


def test_an_output_that_the_toolkit_drops_is_a_failure_only_with_the_guard(jobs: Jobs) -> None:
    nodes = [
        helper.make_node("Sigmoid", ["x"], ["y"], "/sigmoid"),
        helper.make_node("Identity", ["y"], ["again"], "/identity"),
    ]
    made = make(nodes, [("x", FLOAT, [1, 5])], [("y", FLOAT, [1, 5]), ("again", FLOAT, [1, 5])])
    feeds = {"photo": {"x": picture(shape=(1, 5))}}
    caught = jobs.convert(made, feeds)
    assert (caught.result.status, caught.failure.kind) == (Status.FAILED, Kind.TOOLCHAIN)
    assert "the artefact is not what was asked: output 'y' is missing; its outputs are ['again']" in (
        caught.failure.message
    )
    passed = jobs.convert(made, feeds, without="_check_made_for", name="without")
    assert list(outputs(passed)["photo"]) == ["again"]


def test_a_build_that_did_not_end_is_no_success_even_where_all_its_files_are_there(jobs: Jobs) -> None:
    # What the toolkit cannot infer with fails after the artefact is written.
    made = make([helper.make_node("Sigmoid", ["x"], ["y"], "/sigmoid")], [("x", FLOAT, [])], [("y", FLOAT, [])])
    ended = jobs.convert(made, {"photo": {"x": np.float32(0.3)}})
    assert (ended.layout.tmp / "rknn" / "model.rknn").is_file()
    assert ended.failure.message.startswith("inference: IndexError: list index out of range\n\n")
    assert not list(ended.layout.outputs.iterdir())
