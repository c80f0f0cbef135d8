"""Running an artefact with OpenVINO: the real toolchain, started as the engine starts it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runtimes.contract import Json, Kind, Status, Step
from tests.runtimes.openvino_bench import Bench, conv_net, picture

pytestmark = pytest.mark.toolchain


@pytest.fixture
def bench(tmp_path: Path, openvino_python: Path) -> Bench:
    return Bench(tmp_path, openvino_python)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"precision": "int8"}, "options.precision: 'int8' is not allowed"),
        ({"target": "gpuu"}, "options.target: 'gpuu' is not allowed; did you mean 'gpu'"),
        ({"extra": {"inference_precison": "f32"}}, "unknown key 'inference_precison'; did you mean"),
        ({"extra": {"inference_precision": "f64"}}, "inference_precision: 'f64' is not allowed"),
    ],
)
def test_options_that_do_not_fit_are_misuse(bench: Bench, options: Mapping[str, Json], words: str) -> None:
    bench.root.joinpath("nothing").mkdir()
    told = {"precision": "fp32", "target": "cpu", "extra": {}, **options}
    ended = bench.job(Step.RUN, {"artifact": bench.root / "nothing"}, told, "run")
    assert ended.result.status is Status.MISUSED
    assert words in ended.failure.message


def test_a_device_that_is_not_here_builds_but_is_refused_to_run(bench: Bench) -> None:
    converted = bench.convert(conv_net(), precision="fp16", target="npu")
    assert converted.result.facts["placement"] == []
    assert converted.result.facts["notes"] == [
        "where each node would run is unknown: OpenVINO sees no NPU here, only CPU"
    ]
    ended = bench.run(converted.artifact, {"photo": {"x": picture()}}, target="npu")
    assert (ended.result.status, ended.failure.kind) == (Status.REFUSED, Kind.NO_DEVICE)
    assert ended.failure.message == "target npu: OpenVINO sees no NPU here, only CPU"
    assert ended.failure.hint


@pytest.mark.parametrize(
    ("feeds", "words"),
    [
        ({}, "input 'x' is missing"),
        ({"x": picture(), "z": picture()}, "input 'z' was never asked for"),
        ({"x": picture().astype(np.float64)}, "input 'x' is float64 instead of float32"),
        ({"x": picture().transpose(0, 1, 3, 2)}, "input 'x' has the shape [1, 3, 20, 16] instead of [1, 3, 16, 20]"),
    ],
)
def test_a_sample_that_does_not_fit_is_misuse(bench: Bench, feeds: Mapping[str, Any], words: str) -> None:
    # OpenVINO itself takes the first and the third: it fills in what is missing, and casts.
    converted = bench.convert(conv_net())
    ended = bench.run(converted.artifact, {"a": {"x": picture()}, "b": feeds})
    assert ended.result.status is Status.MISUSED
    assert f"in/samples: 'b' does not fit the artefact: {words}" in ended.failure.message


def test_a_precision_that_the_device_swaps_for_another_is_a_failure(bench: Bench) -> None:
    # No CPU of today calculates f16 for all layers: the plugin takes bf16 or f32 instead, and says so only when asked.
    converted = bench.convert(conv_net())
    ended = bench.run(converted.artifact, {"photo": {"x": picture()}}, extra={"inference_precision": "f16"})
    if ended.result:
        assert ended.result.facts["execution"]["inference_precision"] == "f16"
        pytest.skip("this CPU calculates in f16")
    assert (ended.result.status, ended.failure.kind) == (Status.FAILED, Kind.TOOLCHAIN)
    assert "inference_precision f16 was asked for, but CPU calculates in " in ended.failure.message


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda artifact: (artifact / "model.bin").write_bytes(b""), "Exception from src/inference"),
        (lambda artifact: (artifact / "model.xml").write_text("<net>"), "Exception from src/inference"),
        (lambda artifact: (artifact / "model.xml").unlink(), "Exception from src/inference"),
    ],
)
def test_an_artefact_that_is_not_whole_is_a_failure(bench: Bench, spoil: Callable[[Path], object], words: str) -> None:
    artifact = bench.convert(conv_net()).artifact
    spoil(artifact)
    ended = bench.run(artifact, {"photo": {"x": picture()}})
    assert (ended.result.status, ended.failure.kind) == (Status.FAILED, Kind.TOOLCHAIN)
    assert words in ended.failure.message


def test_outputs_that_nobody_can_tell_apart_are_a_failure(bench: Bench) -> None:
    artifact = bench.convert(conv_net()).artifact
    xml = (artifact / "model.xml").read_text(encoding="utf-8")
    nameless = xml.replace(' output_names="y"', "").replace(' names="y"', "")
    (artifact / "model.xml").write_text(nameless, encoding="utf-8")
    ended = bench.run(artifact, {"photo": {"x": picture()}})
    assert (ended.result.status, ended.failure.kind) == (Status.FAILED, Kind.MISSING_RESULT)
    assert ended.failure.message == "the outputs of the artefact are called ['']; each needs a name of its own"
