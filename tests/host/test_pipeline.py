"""What the pipeline decides by itself: how an undeclared output is judged, and whether the right device ran."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from aipc import bisection, pipeline
from aipc.building import Build
from aipc.cell import Cell
from aipc.deployment import Deployment
from aipc.engines import Identity
from aipc.jobs import Session, StepRun
from aipc.model import Model, Origin, OutputContent, Source, Tolerance
from aipc.runtime import Runtime, Target
from runtimes.contract import Json, Result, Status, Step, Verdict

MODEL = Model(name="net", source=Origin.ONNX, weights=(Source(path="net.onnx"),))
USUAL = Tolerance(cosine=0.999, snr_db=30.0)


@pytest.mark.parametrize(
    ("dtype", "shape", "content"),
    [
        ("float32", [1, 3, 16, 20], OutputContent.PICTURE),
        ("int64", [1, 1, 16, 20], OutputContent.TENSOR),
        ("bool", [1, 1, 16, 20], OutputContent.TENSOR),
        ("float32", [1, 4, 16, 20], OutputContent.TENSOR),
        ("float32", [1, 3, 8, 20], OutputContent.TENSOR),
    ],
)
def test_only_a_floating_output_with_the_form_of_a_picture_is_judged_as_one(
    dtype: str, shape: list[int], content: OutputContent
) -> None:
    facts = {
        "inputs": [{"name": "x", "content": "picture"}],
        "outputs": [{"name": "y", "dtype": dtype, "shape": shape}],
    }
    (group,) = pipeline.judged_groups(MODEL, facts, USUAL)
    assert group.content is content
    assert (group.cosine, group.snr_db) == (0.999, 30.0)


NPU = Target(devices=("NPU", "CPU"), accelerator=True)
CPU = Target(devices=("CPU", "GPU"))


def ran(step: Step, **facts: Json) -> StepRun:
    return StepRun(
        step=step,
        runtime="alpha",
        key="",
        cached=False,
        result=Result(status=Status.DONE, facts=facts),
        identity=Identity(engine="venv", environment="alpha", digest="", interpreter="", base_image=""),
        uncaged=(),
        entry=None,
        log=b"",
    )


def deployment(*runs: StepRun) -> Deployment:
    return Deployment(
        cell=Cell(model="net", runtime="alpha", precision="fp16", target="npu"),
        model=MODEL,
        runtime=Runtime(name="alpha", title="Alpha", steps=(Step.PREPARE,)),
        verdict=Verdict.AGREES,
        reasons=(),
        runs=runs,
        path=runs,
    )


@pytest.mark.parametrize(
    ("target", "device", "right"),
    [
        (NPU, "NPU", True),
        (NPU, "NPU.0", True),
        (NPU, "CPU", False),
        (NPU, "", False),
        (CPU, "CPU", True),
        (CPU, "GPU", True),
        (CPU, "NPU", False),
    ],
)
def test_an_artefact_for_an_accelerator_ran_on_it_and_not_on_what_may_stand_beside_it(
    target: Target, device: str, right: bool
) -> None:
    done = deployment(ran(Step.CONVERT, device=""), ran(Step.RUN, device=device), ran(Step.JUDGE))
    assert (pipeline._elsewhere(done, target) == "") is right


def test_only_the_last_attempt_says_where_the_artefact_ran() -> None:
    before = (ran(Step.CONVERT, device="NPU"), ran(Step.JUDGE), ran(Step.REWRITE))
    done = deployment(*before, ran(Step.CONVERT), ran(Step.JUDGE))
    assert "ran on '', not on 'NPU'" in pipeline._elsewhere(done, NPU)
    assert pipeline._elsewhere(deployment(*before, ran(Step.CONVERT, device="NPU")), NPU) == ""


@pytest.mark.parametrize(
    ("verdict", "gate", "precision", "looked"),
    [
        (Verdict.DISAGREES, "snr:y", "fp16", True),
        (Verdict.DISAGREES, "placed", "fp16", False),
        (Verdict.DISAGREES, "snr:y", "int8", False),
        (Verdict.VACUOUS, "snr:y", "fp16", False),
    ],
)
def test_the_first_bad_node_is_looked_for_where_the_numbers_of_a_floating_cell_are_wrong(
    verdict: Verdict, gate: str, precision: str, looked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples: list[str] = []
    monkeypatch.setattr(bisection, "bisect", lambda *given: samples.append(given[4]))
    measures: list[Json] = [{"sample": "fine", "snr_db": 40.0}, {"sample": "worst", "snr_db": None}]
    judged = ran(
        Step.JUDGE, verdict=verdict.value, gates=[{"name": gate, "passed": False}], measures=cast("Json", measures)
    )
    build = SimpleNamespace(
        cell=SimpleNamespace(precision=precision),
        runtime=SimpleNamespace(quantized=("int8",)),
        reference=None,
        model=None,
        samples=None,
        piece=print,
    )
    monkeypatch.setattr(pipeline, "replace", lambda session, **_: session)
    session = SimpleNamespace(listener=SimpleNamespace(started=lambda _: None))
    pipeline._bisect(cast("Session", session), cast("Build", build), judged, USUAL)
    assert samples == (["worst"] if looked else [])
