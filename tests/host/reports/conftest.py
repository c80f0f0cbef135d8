"""Reports of every verdict, as real as they can be without a toolchain, and a run folder with their pictures."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageChops, ImageDraw, ImageFilter

from aipc.facts import Agreement, ExportFacts, Gate, IoContract, Measure, PictureSet, Placed, Port
from aipc.reports.report import (
    EnvironmentUsed,
    FailedStep,
    GroupTolerance,
    InputUsed,
    ModelFacts,
    Report,
    StageTaken,
    Thresholds,
)
from runtimes.contract import Artifact, Component, Failure, Kind, Status, Step, Verdict
from tests.host.reports.mended import AGENT, BISECTION, QNN_WORDS, REPAIRS

SHA = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
SAMPLES = ("photo", "random-0.1", "random-1.0", "random-10.0")
LOG = "\n".join(
    f"2026-11-30 16:{minute:02}:07.{minute * 37:06} [V:onnxruntime:, qnn_model_wrapper.cc:{100 + minute}] "
    f"Validating node /model.{minute}/cv{minute % 3}/conv/Conv of type Conv"
    for minute in range(40)
)
LONG_WORDS = (
    "E RKNN: [16:34:12.034] Catch exception when building RKNN model!\n"
    'E build: Traceback (most recent call last):\n  File "rknn/api/rknn_log.py", line 344, in rknn.api.rknn_log.log\n'
    + "".join(
        f'  File "rknn/api/rknn_base.py", line {1900 + number}, in rknn.api.rknn_base.RKNNBase.build_{number}\n'
        for number in range(24)
    )
    + "ValueError: The input shape [1, 3, 'h', 'w'] of 'input' is not support! "
    + "/very/long/path/without/a/single/blank" * 8
)


def _measures(group: str, output: str, snr: float, drop: float, far: float) -> tuple[Measure, ...]:
    return tuple(
        Measure(
            group=group,
            output=output,
            sample=sample,
            cosine=1 - drop * (index + 1),
            snr_db=snr - 2.7 * index,
            max_abs=far * 3**index,
            max_rel=far * (index + 1),
        )
        for index, sample in enumerate(SAMPLES)
    )


def _gates(groups: Mapping[str, Thresholds], measures: tuple[Measure, ...]) -> tuple[Gate, ...]:
    found = [
        Gate(name="samples_complete", passed=True, measured=0.0, threshold=0.0, detail="all 4 samples were answered"),
        Gate(name="outputs_named", passed=True, measured=0.0, threshold=0.0, detail="the same outputs in every sample"),
        Gate(name="shapes_match", passed=True, measured=0.0, threshold=0.0, detail="every shape is the golden one"),
        Gate(name="dtypes_match", passed=True, measured=0.0, threshold=0.0, detail="every type is the golden one"),
    ]
    broken = sum(measure.nan + measure.inf for measure in measures)
    found.append(
        Gate(name="finite", passed=not broken, measured=float(broken), threshold=0.0, detail="NaN or infinite")
    )
    for group, asked in groups.items():
        of_group = [measure for measure in measures if measure.group == group]
        cosine = min((measure.cosine for measure in of_group if measure.cosine is not None), default=0.0)
        snr = min((measure.snr_db for measure in of_group if measure.snr_db is not None), default=0.0)
        passed = cosine >= asked.cosine
        found.append(Gate(name=f"cosine:{group}", passed=passed, measured=cosine, threshold=asked.cosine))
        found.append(Gate(name=f"snr:{group}", passed=snr >= asked.snr_db, measured=snr, threshold=asked.snr_db))
        if asked.max_abs is not None:
            far = max(measure.max_abs for measure in of_group if measure.max_abs is not None)
            passed = far <= asked.max_abs
            found.append(Gate(name=f"max_abs:{group}", passed=passed, measured=far, threshold=asked.max_abs))
    found.append(
        Gate(name="sensitive", passed=True, measured=0.31, threshold=1e-3, detail="'output' depends on 'input'")
    )
    found.append(Gate(name="inputs_varied", passed=True, detail="3 magnitudes, none constant"))
    return tuple(found)


def _stages(*steps: Step, last: Status = Status.DONE) -> tuple[StageTaken, ...]:
    seconds = {Step.PREPARE: 4.31, Step.EXPORT: 7.92, Step.CONVERT: 21.4, Step.RUN: 1.18, Step.JUDGE: 0.64}
    return tuple(
        StageTaken(
            step=step,
            status=last if step is steps[-1] else Status.DONE,
            seconds=seconds[step],
            cached=step in (Step.PREPARE, Step.EXPORT),
            key=SHA[::-1],
            peak_memory_bytes=int(seconds[step] * 91e6),
        )
        for step in steps
    )


def _agrees() -> Report:
    asked = Thresholds(cosine=0.999, snr_db=30.0)
    measures = _measures("image", "output", 94.2, 3.1e-10, 9.3e-4)
    reference = {
        "torch": "2.13.0+cpu",
        "onnx": "1.23.2",
        "onnxruntime": "1.32.0",
        "numpy": "2.4.6",
        "spandrel": "0.4.2",
    }
    return Report(
        cell="esrgan#64x48/openvino/fp16@cpu",
        runtime="openvino",
        runtime_title="OpenVINO",
        precision="fp16",
        target="cpu",
        verdict=Verdict.AGREES,
        reasons=(),
        made="2026-11-30T16:34:12+00:00",
        seconds=24.7,
        reproduce=("aipc", "deploy", "esrgan#64x48/openvino/fp16@cpu", "--engine", "docker"),
        engine="docker",
        engine_reason="the daemon answers",
        model=ModelFacts(
            name="esrgan",
            source="ncnn",
            licence="BSD-3-Clause",
            weights=(Component(name="realesr-x4plus.bin", sha256=SHA, size_bytes=33_437_212),),
            parameters=16_697_987,
            sensitivity={"output": {"input": 0.914}},
        ),
        host={"aipc": "0.1.0", "Python": "3.11.7", "system": "Linux-6.1.0-x86_64-with-glibc2.36"},
        inputs=(InputUsed(name="input", shape=(1, 3, 48, 64), dtype="float32", content="picture"),),
        tolerances=(
            GroupTolerance(group="image", outputs=("output",), content="picture", applied=asked, default=asked),
        ),
        gates=_gates({"image": asked}, measures),
        measures=measures,
        pictures=(
            PictureSet(
                output="output",
                sample="photo",
                input="pictures/input.png",
                golden="pictures/golden.png",
                output_picture="pictures/output.png",
                error="pictures/error.png",
                scale=9.3e-4,
            ),
        ),
        stages=_stages(Step.PREPARE, Step.EXPORT, Step.CONVERT, Step.RUN, Step.JUDGE),
        environments=(
            EnvironmentUsed(
                name="reference",
                engine="docker",
                digest=SHA,
                interpreter="3.11.14",
                base_image=f"sha256:{SHA}",
                steps=(Step.PREPARE, Step.EXPORT, Step.JUDGE),
                versions=reference,
            ),
            EnvironmentUsed(
                name="openvino",
                engine="docker",
                digest=SHA[::-1],
                interpreter="3.11.14",
                base_image=f"sha256:{SHA}",
                steps=(Step.CONVERT, Step.RUN),
                versions={"openvino": "2026.4.1", "numpy": "2.4.6", "nncf": "3.2.0"},
            ),
        ),
        artifact=Artifact(
            components=(
                Component(name="model.xml", sha256=SHA, size_bytes=1_812_007),
                Component(name="model.bin", sha256=SHA[::-1], size_bytes=33_401_100),
            ),
            manifest={"aipc": "0.1.0", "target": "cpu", "opset": 17},
        ),
        io=IoContract(
            inputs=(Port(name="input", shape=(1, 3, 48, 64), dtype="float32", layout="NCHW"),),
            outputs=(Port(name="output", shape=(1, 3, 192, 256), dtype="float32", layout="NCHW"),),
        ),
        placement=tuple(Placed(node=f"n{number}", op="Convolution", device="CPU") for number in range(351)),
        device="Intel(R) Xeon(R) CPU @ 2.20GHz",
        execution={"INFERENCE_PRECISION_HINT": "f32", "NUM_STREAMS": 1, "threads": [0, 1]},
        export=ExportFacts(
            opset=17,
            ir_version=8,
            nodes={"Conv": 351, "LeakyRelu": 279, "Concat": 276, "Mul": 92, "Add": 93, "Resize": 2, "Constant": 94},
            gates=(
                Gate(name="checker", passed=True, detail="full_check"),
                Gate(name="sorted", passed=True, detail="in topological order"),
            ),
            agreement={"output": Agreement(cosine=0.99999999999, snr_db=118.4, max_abs=4.1e-6)},
            size_bytes=66_901_322,
        ),
        notes=("OpenVINO keeps weights in FP16 and computes in FP32.",),
    )


def _disagrees(good: Report) -> Report:
    strict = Thresholds(cosine=0.999, snr_db=30.0)
    loose = Thresholds(cosine=0.99, snr_db=20.0, max_abs=0.5)
    scores = (
        *_measures("scores", "scores", 24.1, 3.6e-3, 0.29)[:3],
        Measure(
            group="scores",
            output="scores",
            sample="random-10.0",
            cosine=None,
            snr_db=None,
            max_abs=None,
            max_rel=None,
            nan=17,
            inf=2,
        ),
    )
    measures = (*_measures("boxes", "boxes", 61.0, 1.1e-7, 0.15), *scores)
    return dataclasses.replace(
        good,
        cell="yoloworld#320x256/openvino/fp16@cpu",
        verdict=Verdict.DISAGREES,
        reproduce=("aipc", "deploy", "yoloworld#320x256/openvino/fp16@cpu", "--engine", "venv"),
        engine="venv",
        engine_reason="no Docker daemon answers",
        reasons=(
            "finite: output 'scores' in sample 'random-10.0' has 17 NaN and 2 infinite of 8400 values",
            "cosine:scores: cosine of output 'scores' in sample 'random-10.0' has no value, at least 0.999 is asked",
        ),
        inputs=(
            InputUsed(
                name="image", shape=(1, 3, 256, 320), dtype="float32", content="picture", declared=(1, 3, 640, 640)
            ),
            InputUsed(name="tokens", shape=(1, 80, 77), dtype="int64", content="integers"),
        ),
        tolerances=(
            GroupTolerance(group="boxes", outputs=("boxes",), content="tensor", applied=loose, default=strict),
            GroupTolerance(group="scores", outputs=("scores",), content="tensor", applied=strict, default=strict),
        ),
        measures=measures,
        gates=_gates({"boxes": loose, "scores": strict}, measures),
        model=dataclasses.replace(good.model, name="yoloworld", source="function"),
        uncaged=("network (bubblewrap is missing)", "memory (counted per process)"),
        simulated="the HTP emulator of onnxruntime-qnn 2.7.0",
        repairs=REPAIRS,
        bisection=BISECTION,
        piece_folder="first-bad",
        agent=AGENT,
    )


def _failed(good: Report, status: Status, failure: Failure, log: str) -> Report:
    return dataclasses.replace(
        good,
        cell="yoloworld#320x256/rknn/fp16@rk3588",
        runtime="rknn",
        runtime_title="RKNN",
        target="rk3588",
        reproduce=("aipc", "deploy", "yoloworld#320x256/rknn/fp16@rk3588"),
        verdict=Verdict.REFUSED if status is Status.REFUSED else Verdict.FAILED,
        reasons=(f"convert: {failure.message}",),
        tolerances=(),
        gates=(),
        measures=(),
        pictures=(),
        artifact=None,
        io=None,
        placement=(),
        device="",
        execution={},
        stages=_stages(Step.PREPARE, Step.EXPORT, Step.CONVERT, last=status),
        not_reached=(Step.RUN, Step.JUDGE),
        failure=FailedStep(step=Step.CONVERT, status=status, failure=failure, log_tail=log),
        notes=(),
    )


@pytest.fixture(scope="session")
def reports() -> Mapping[str, Report]:
    """A report per verdict, by its word."""
    good = _agrees()
    words = Failure(
        kind=Kind.UNSUPPORTED_OP,
        message=QNN_WORDS,
        hint="rewrite Einsum as MatMul",
        op="Einsum",
        node="/model.12/attn/Einsum",
    )
    option = Failure(kind=Kind.NO_DEVICE, message="no RK3588 board is connected", hint="name one in devices.toml")
    refused = _failed(good, Status.REFUSED, words, LOG)
    untried = dataclasses.replace(
        refused,
        verdict=Verdict.UNTRIED,
        reasons=("no RK3588 board is connected",),
        stages=_stages(Step.PREPARE, Step.EXPORT, Step.CONVERT, Step.RUN, last=Status.REFUSED),
        not_reached=(Step.JUDGE,),
        failure=FailedStep(step=Step.RUN, status=Status.REFUSED, failure=option),
        artifact=good.artifact,
        io=good.io,
    )
    vacuous = dataclasses.replace(
        good,
        verdict=Verdict.VACUOUS,
        reasons=("output 'output' changes by 2e-6 when 'input' changes; 0.001 is the least that proves something",),
        gates=(
            *(gate for gate in good.gates if gate.name != "sensitive"),
            Gate(
                name="sensitive",
                passed=False,
                measured=2e-6,
                threshold=1e-3,
                detail="'output' hardly depends on 'input'",
            ),
        ),
    )
    return {
        "agrees": good,
        "disagrees": _disagrees(good),
        "vacuous": vacuous,
        "refused": refused,
        "failed": _failed(good, Status.CRASHED, Failure(kind=Kind.CRASH, message=LONG_WORDS), LOG),
        "untried": untried,
    }


def draw(folder: Path) -> None:
    """Draw the four pictures of a sample: a small scene, twice as it should be, and the difference to one bad tile."""
    random.seed(7)
    scene = Image.new("RGB", (256, 192), (118, 160, 205))
    pen: Any = ImageDraw.Draw(scene)
    for _ in range(60):
        x, y, r = random.randrange(256), random.randrange(192), random.randrange(6, 34)
        pen.ellipse((x - r, y - r, x + r, y + r), fill=tuple(random.randrange(30, 250) for _ in range(3)))
    scene = scene.filter(ImageFilter.GaussianBlur(1.2))
    made = scene.copy()
    made.paste(scene.crop((60, 40, 124, 104)).filter(ImageFilter.GaussianBlur(2)), (60, 40))
    folder.mkdir(parents=True, exist_ok=True)
    scene.resize((64, 48)).save(folder / "input.png")
    scene.save(folder / "golden.png")
    made.save(folder / "output.png")
    ImageChops.difference(scene, made).convert("L").point([min(255, 6 * level) for level in range(256)]).save(
        folder / "error.png"
    )


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder that holds the pictures of the reports."""
    folder = tmp_path_factory.mktemp("run")
    draw(folder / "pictures")
    return folder
