"""Ranges that AIMET found, in place of those that calibration samples give.

`aimet/` holds what aimet-onnx 2.42.0 wrote of `conv_net()`: `compute_encodings` on four pictures, 8 bits for weights
and activations, then its export in both layouts.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runtimes.contract import Kind, Status, Step
from runtimes.kit import tensors
from tests.runtimes.openvino_jobs import Ended, Made, conv_net, outputs, picture, reference
from tests.runtimes.ortqnn_jobs import QnnJobs, snr

AIMET = Path(__file__).parent / "aimet"
LAYOUTS = ("0.6.1", "1.0.0")
SEEN = {f"seen-{index}": {"x": picture(index)} for index in range(4)}
NEW = {"new": {"x": picture(9)}}
WIDE = {"seen": {"x": picture(0) * 100}}
"""Calibration samples that give ranges a hundred times too wide."""


@pytest.fixture
def jobs(tmp_path: Path, environment_python: Callable[[str], Path]) -> QnnJobs:
    return QnnJobs(tmp_path, environment_python("ortqnn"))


def quantize(
    jobs: QnnJobs, encodings: Path, samples: Any = None, *, precision: str = "int8", name: str = "quantize"
) -> Ended:
    """Quantise `conv_net()` with encodings."""
    made = conv_net()
    calibration = jobs.root / f"{name}-given"
    tensors.save_samples(calibration, samples or SEEN)
    model = jobs.root / f"{name}-of"
    model.mkdir()
    (model / "model.onnx").write_bytes(made.model.SerializeToString())
    options = {"precision": precision, "target": "sm8650", "inputs": made.inputs, "outputs": made.outputs}
    inputs = {"model": model, "calibration": calibration, "encodings": encodings}
    return jobs.job(Step.QUANTIZE, inputs, options, name)


def near(jobs: QnnJobs, built: Ended, made: Made, name: str) -> float:
    assert built.result, built.log[-3000:]
    found = outputs(jobs.run(built.artifact, NEW, precision="int8", name=name))["new"]["y"]
    return snr(found, reference(made, NEW["new"])["y"])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_aimet_wrote_is_used_and_the_calibration_is_not(jobs: QnnJobs, layout: str) -> None:
    made = conv_net()
    built = quantize(jobs, AIMET / f"conv_net-{layout}.encodings", WIDE, name="with")
    assert "the scales of 5 tensors are AIMET's" in built.result.facts["notes"]
    assert near(jobs, built, made, "run-with") > 25
    without = jobs.quantize(made, WIDE, name="without")
    assert near(jobs, without, made, "run-without") < 10


def test_both_layouts_and_equal_ones_give_equal_bytes(jobs: QnnJobs) -> None:
    first, second = (quantize(jobs, AIMET / f"conv_net-{layout}.encodings", name=layout) for layout in LAYOUTS)
    assert first.hashes() == second.hashes()


def change(layout: str, edit: Callable[[Any], None]) -> str:
    """Return what AIMET wrote, changed."""
    found = json.loads((AIMET / f"conv_net-{layout}.encodings").read_text())
    edit(found)
    return json.dumps(found)


def rename(found: Any) -> None:
    found["activation_encodings"] |= {"nowhere": found["activation_encodings"]["r"], "neither": []}


def stretch(found: Any) -> None:
    found["activation_encodings"][1] |= {"bw": 16}


def float_(found: Any) -> None:
    found["activation_encodings"][1] |= {"bw": 16, "dtype": "FLOAT", "scale": [], "offset": []}


def drop_channel(found: Any) -> None:
    found["param_encodings"]["w1"].pop()


def shift(found: Any) -> None:
    found["param_encodings"][0]["offset"][1] = -3


def vanish(found: Any) -> None:
    found["activation_encodings"]["r"][0]["scale"] = 0.0


def bare(found: Any) -> None:
    del found["param_encodings"][0]["name"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (change("0.6.1", rename), "encodings: the model has no tensor 'neither', 'nowhere'"),
        (change("1.0.0", stretch), "encodings: 'r' is int of 16 bits, and 8 bits are asked for"),
        (change("1.0.0", float_), "encodings: 'r' is float of 16 bits, and 8 bits are asked for"),
        (change("0.6.1", drop_channel), "encodings: 'w1' has 7 scales, and is [8, 3, 3, 3]"),
        (change("1.0.0", shift), "encodings: 'w1' is not symmetric"),
        (change("0.6.1", vanish), "encodings: 'r' has a scale that is not above 0"),
        (change("1.0.0", bare), "is no encoding: KeyError: 'name'"),
        ('{"version": "2.0.0", "encodings": []}', "encodings: what is in it of version '2.0.0' has no activation_enc"),
        ("scale: 1", "encodings: it is no JSON"),
    ],
)
def test_encodings_that_cannot_be_used_are_refused_in_one_line(jobs: QnnJobs, text: str, said: str) -> None:
    file = jobs.root / "a.encodings"
    file.write_text(text)
    ended = quantize(jobs, file)
    assert (ended.result.status, ended.failure.kind) == (Status.REFUSED, Kind.OPTION), ended.failure
    assert said in ended.failure.message


def test_encodings_of_8_bits_do_not_become_16(jobs: QnnJobs) -> None:
    ended = quantize(jobs, AIMET / "conv_net-1.0.0.encodings", precision="a16w8")
    assert "'x' is int of 8 bits, and 16 bits are asked for" in ended.failure.message
    assert ended.failure.hint == "take the precision int8"
