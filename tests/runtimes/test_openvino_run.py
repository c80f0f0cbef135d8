"""Running an artefact with OpenVINO: the real toolchain, started as the engine starts it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from runtimes.contract import Json, Kind, Status, Step
from tests.runtimes.openvino_jobs import Jobs, conv_net, picture

pytestmark = pytest.mark.toolchain


@pytest.fixture
def jobs(tmp_path: Path, openvino_python: Path) -> Jobs:
    return Jobs(tmp_path, openvino_python)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"precision": "int9"}, "options.precision: 'int9' is not allowed"),
        ({"target": "gpuu"}, "options.target: 'gpuu' is not allowed; did you mean 'gpu'"),
        ({"precison": "fp32"}, "options: unknown key 'precison'; did you mean 'precision'"),
    ],
)
def test_options_that_do_not_fit_are_misuse(jobs: Jobs, options: Mapping[str, Json], words: str) -> None:
    jobs.root.joinpath("nothing").mkdir()
    told = {"precision": "fp32", "target": "cpu", **options}
    ended = jobs.job(Step.RUN, {"artifact": jobs.root / "nothing"}, told, "run")
    assert ended.result.status is Status.MISUSED
    assert words in ended.failure.message


def test_a_device_that_is_not_here_can_be_built_for(jobs: Jobs) -> None:
    converted = jobs.convert(conv_net(), precision="fp16", target="npu")
    assert converted.result.facts["placement"] == []
    assert converted.result.facts["notes"] == [
        "where each node would run is unknown: OpenVINO sees no NPU here, only CPU"
    ]


@pytest.mark.parametrize(
    ("feeds", "words"),
    [
        ({"x": picture(), "z": picture()}, "input 'z' was never asked for"),
        ({"x": picture().transpose(0, 1, 3, 2)}, "input 'x' has the shape [1, 3, 20, 16] instead of [1, 3, 16, 20]"),
    ],
)
def test_a_sample_that_does_not_fit_is_misuse(jobs: Jobs, feeds: Mapping[str, Any], words: str) -> None:
    converted = jobs.convert(conv_net())
    ended = jobs.run(converted.artifact, {"a": {"x": picture()}, "b": feeds})
    assert ended.result.status is Status.MISUSED
    assert f"in/samples: 'b' does not fit the artefact: {words}" in ended.failure.message


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda artifact: (artifact / "model.bin").write_bytes(b""), "Exception from src/inference"),
        (lambda artifact: (artifact / "model.xml").write_text("<net>"), "Exception from src/inference"),
        (lambda artifact: (artifact / "model.xml").unlink(), "Exception from src/inference"),
    ],
)
def test_an_artefact_that_is_not_whole_is_a_failure(jobs: Jobs, spoil: Callable[[Path], object], words: str) -> None:
    artifact = jobs.convert(conv_net()).artifact
    spoil(artifact)
    ended = jobs.run(artifact, {"photo": {"x": picture()}})
    assert (ended.result.status, ended.failure.kind) == (Status.FAILED, Kind.TOOLCHAIN)
    assert words in ended.failure.message
