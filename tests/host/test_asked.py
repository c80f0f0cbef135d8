"""The command that a report names: what it asks for is the cell that it stands in."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aipc import asked as asking
from aipc import config
from aipc.asked import Asked
from aipc.errors import UsageError
from tests.command import ROOT

EMPTY = Asked(
    model="",
    runtime="",
    precision="",
    target="",
    shape="",
    source=None,
    trusted=False,
    runs=Path("runs"),
    matrix_path=None,
    engine="venv",
    base_image="",
)


@pytest.mark.parametrize(
    "asked",
    [
        replace(EMPTY, model="esrgan", runtime="openvino"),
        replace(EMPTY, model="esrgan", runtime="openvino", precision="fp32", shape="64x96"),
        replace(EMPTY, model="esrgan/openvino"),
        replace(EMPTY, model="esrgan/openvino/fp32@cpu"),
        replace(EMPTY, model="esrgan#64x96/openvino/fp16@cpu"),
        replace(EMPTY, model="esrgan#1x3x64x96", runtime="rknn"),
    ],
)
def test_the_command_that_reproduces_asks_for_the_same_cell(asked: Asked) -> None:
    matrix = config.load(ROOT / "matrix.toml")
    model, cell = asking.find(matrix, asked)
    program, command, name, *words = asking.reproduce(asked, cell, "venv")
    assert (program, command) == ("aipc", "deploy")
    given = dict(zip(words[::2], words[1::2], strict=True))
    again = replace(
        EMPTY,
        model=name,
        runtime=given["--runtime"],
        precision=given["--precision"],
        target=given["--target"],
        shape=given.get("--shape", ""),
    )
    assert asking.find(matrix, again) == (model, cell)


def test_what_a_cell_was_quantised_with_is_named_and_not_for_its_cell_in_floats() -> None:
    asked = replace(EMPTY, model="esrgan/qairt/int8", calibration=Path("mine"), encodings=Path("a.encodings"))
    _, cell = asking.find(config.load(ROOT / "matrix.toml"), asked)
    words = asking.reproduce(asked, cell, "venv")
    assert words[words.index("--calibration") + 1] == "mine"
    assert words[words.index("--encodings") + 1] == "a.encodings"
    assert not {"--calibration", "--encodings"} & {*asking.reproduce(asked, replace(cell, precision="fp16"), "venv")}


def test_a_rewrite_that_is_asked_for_is_asked_for_again_and_a_quantiser_not_for_the_cell_in_floats() -> None:
    asked = replace(EMPTY, model="esrgan/ortqnn/int8", rewrites=("onnxsim", "olive_qnn_quantize"))
    _, cell = asking.find(config.load(ROOT / "matrix.toml"), asked)
    asking.check_rewrites(asked, cell)
    assert asking.reproduce(asked, cell, "venv")[-4:] == ("--rewrite", "onnxsim", "--rewrite", "olive_qnn_quantize")
    floats = replace(cell, precision="fp16")
    assert asking.reproduce(asked, floats, "venv")[-2:] == ("--rewrite", "onnxsim")
    with pytest.raises(UsageError, match="olive_qnn_quantize quantises, and fp16 is not quantised; take int8 or a16w8"):
        asking.check_rewrites(asked, floats)


def test_a_rewrite_that_there_is_not_is_named_with_the_one_that_may_be_meant() -> None:
    asked = replace(EMPTY, model="esrgan", runtime="openvino", rewrites=("onnxsm",))
    _, cell = asking.find(config.load(ROOT / "matrix.toml"), asked)
    with pytest.raises(UsageError, match="there is no 'onnxsm'; did you mean 'onnxsim'"):
        asking.check_rewrites(asked, cell)
