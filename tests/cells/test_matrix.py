"""`aipc matrix` as a person types it: all cells, on past failures, resumed, interrupted; and quantised cells."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cells.test_bad_input import NOTHING, USAGE, assert_one_line
from tests.cells.test_commands import ENGINE
from tests.command import Aipc

MATRIX = """
[precisions]
fp32 = { cosine = 0.9999 }

[runtimes.openvino]
precisions = ["fp32"]
targets = ["cpu", "npu"]

[runtimes.sixth]

[shapes]
"up/sixth" = "12x16"

[models.up]
source = "function"
function = "tiny:upscaler"
folder = "models"
inputs = [{ name = "x", shape = [1, 3, 20, 24] }]

[models.flat]
source = "function"
function = "tiny:constant"
folder = "models"
inputs = [{ name = "x", shape = [1, 3, 20, 24] }]
"""
QUANTIZE = '''

def quantize(work: Work) -> Mapping[str, Json]:
    """Stand in for a quantiser: look at the calibration data, and convert."""
    samples = tensors.load_samples(work.input("calibration"))
    return {**convert(work), "notes": [f"calibrated on {len(samples)} samples"]}
'''


@pytest.fixture
def aipc(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, sixth: Path, openvino_python: Path) -> Aipc:
    """The command in a checkout with a small matrix; all tests share a store."""
    assert openvino_python.exists()
    text = (sixth / "matrix.toml").read_text()
    pictures = text[text.index("pictures = [") :].partition("]\n")[0] + "]\n"
    (sixth / "matrix.toml").write_text(pictures + MATRIX)
    store = tmp_path_factory.getbasetemp() / "matrix-store"
    return Aipc(tmp_path, {"AIPC_HOME": str(sixth), "AIPC_STORE": str(store)})


def matrix(aipc: Aipc, *arguments: str) -> tuple[int, str, dict[str, Any]]:
    """Run the command; return its exit code, what it said, and matrix.json."""
    done = aipc("matrix", *arguments, "--engine", "venv", "--runs", str(aipc.runs))
    path = aipc.runs / "matrix.json"
    return done.code, done.out + done.error, json.loads(path.read_text()) if path.exists() else {}


def verdicts(found: dict[str, Any]) -> dict[str, str]:
    return {row["cell"]: row["verdict"] for row in found["rows"]}


def test_all_cells_are_tried_past_those_that_fail_and_a_second_run_does_nothing_again(aipc: Aipc) -> None:
    code, said, found = matrix(aipc, "up", "flat/sixth", "--markdown", str(aipc.folder / "results.md"))
    assert code == 1
    assert verdicts(found) == {
        "up/openvino/fp32@cpu": "agrees",
        "up/openvino/fp32@npu": "untried",
        "up#12x16/sixth/fp32@cpu": "agrees",
        "flat/sixth/fp32@cpu": "vacuous",
    }
    assert "1 of 4 cells are not as expected: flat/sixth/fp32@cpu" in said
    assert (found["rows"][2]["shrunk"], found["rows"][0]["loosened"]) == (1, 1)
    for row in found["rows"]:
        assert (aipc.runs / row["page"]).is_file()
    assert (aipc.runs / "index.html").read_text().count("not expected") == 1
    assert (aipc.folder / "results.md").read_text().count("| agrees |") == 2
    again = matrix(aipc, "up/openvino/fp32@cpu", "up/sixth")
    assert again[0] == 0
    assert [row["is_cached"] for row in again[2]["rows"]] == [True, True]


def test_what_is_wrong_with_a_cell_is_told_letter_by_letter_and_the_next_one_is_tried(aipc: Aipc, sixth: Path) -> None:
    lost = '[models.lost]\nsource = "onnx"\nweights = [{ path = "[/lost]/net.onnx" }]\n'
    path = sixth / "matrix.toml"
    path.write_text(path.read_text().replace("[models.up]", lost + "[models.up]"))
    code, said, found = matrix(aipc, "lost/sixth", "up/sixth")
    assert code == 1
    assert said.count("[/lost]/net.onnx: no such file") == 1, said
    assert verdicts(found) == {"lost/sixth/fp32@cpu": None, "up#12x16/sixth/fp32@cpu": "agrees"}


def test_what_the_matrix_expects_is_as_expected_and_nothing_else_is(aipc: Aipc, sixth: Path) -> None:
    with (sixth / "matrix.toml").open("a") as file:
        file.write('[expected]\n"flat/*/*@cpu" = "vacuous"\n"up/sixth" = "refused"\n')
    code, said, found = matrix(aipc, "*/sixth")
    assert code == 1
    assert [row["as_expected"] for row in found["rows"]] == [False, True]
    assert "agrees (expected: refused)" in said


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ('[expected]\n"nothing/*" = "refused"\n', "expected: 'nothing/*' fits no cell of the matrix"),
        ('[expected]\n"flat" = "vacous"\n', "did you mean 'vacuous'?"),
        ('[shapes]\n"flat/opnvino" = "8x8"\n', "shapes: 'flat/opnvino' fits no cell of the matrix"),
    ],
)
def test_an_expectation_that_says_nothing_is_one_line(aipc: Aipc, sixth: Path, more: str, said: str) -> None:
    path = sixth / "matrix.toml"
    path.write_text(path.read_text().replace('[shapes]\n"up/sixth" = "12x16"\n', "") + more)
    assert_one_line(aipc("matrix", "--runs", str(aipc.runs)), USAGE, said)


def test_a_selection_of_nothing_is_said(aipc: Aipc) -> None:
    assert_one_line(aipc("matrix", "upp/*", "--runs", str(aipc.runs)), NOTHING, "upp/*")


def test_a_place_for_the_table_that_cannot_be_written_is_said_before_any_work(aipc: Aipc) -> None:
    (aipc.folder / "file").touch()
    done = aipc("matrix", "up", "--runs", str(aipc.runs), "--markdown", str(aipc.folder / "file" / "results.md"))
    assert_one_line(done, ENGINE, "file")
    assert not (aipc.runs / "matrix.json").exists()


def test_a_matrix_that_is_a_folder_is_one_line(aipc: Aipc) -> None:
    assert_one_line(aipc("plan", "--matrix", "."), USAGE, "not a file; name a TOML file")


def test_an_interruption_leaves_the_table_of_what_was_done(aipc: Aipc) -> None:
    argv = aipc.argv("matrix", "up/*", "--engine", "venv", "--runs", str(aipc.runs))
    process = subprocess.Popen(
        argv, env=aipc.variables(), cwd=aipc.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    path = aipc.runs / "matrix.json"
    until = time.monotonic() + 100
    while not path.exists() and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, error = (part.decode() for part in process.communicate(timeout=60))
    assert process.returncode == 130, out + error
    found = json.loads(path.read_text())
    assert len(found["rows"]) + len(found["missing"]) == 3
    assert found["missing"]
    assert "not reached" in out
    assert (aipc.runs / "index.html").is_file()


# Quantised cells
@pytest.fixture
def quantizer(sixth: Path) -> Path:
    """The sixth runtime with a step that quantises; it comes after fp32."""
    folder = sixth / "runtimes" / "sixth"
    toml = (folder / "runtime.toml").read_text()
    toml = toml.replace('steps = ["convert", "run"]', 'steps = ["convert", "quantize", "run"]')
    toml = toml.replace('precisions = ["fp32"]', 'precisions = ["fp32", "int8"]\nquantized = ["int8"]')
    (folder / "runtime.toml").write_text(toml)
    with (folder / "adapter.py").open("a") as file:
        file.write(QUANTIZE)
    return folder


def deploy(aipc: Aipc, *more: str) -> tuple[int, str, dict[str, dict[str, Any]]]:
    """Deploy the small network in int8; return exit code, words and the reports by precision."""
    done = aipc.deploy("up", "--runtime", "sixth", "--precision", "int8", "--engine", "venv", *more)
    reports = [json.loads(path.read_text()) for path in aipc.runs.rglob("report.json")]
    return done.code, done.out + done.error, {each["precision"]: each for each in reports}


def test_a_quantised_cell_comes_after_its_float_cell_and_is_calibrated(aipc: Aipc, quantizer: Path) -> None:
    assert quantizer.exists()
    code, said, reports = deploy(aipc)
    assert code == 0, said
    assert {name: each["verdict"] for name, each in reports.items()} == {"fp32": "agrees", "int8": "agrees"}
    report = reports["int8"]
    assert [each["step"] for each in report["stages"]] == [
        *("prepare", "export", "calibrate", "quantize", "run", "judge")
    ]
    assert "calibrated on 32 samples" in report["notes"]
    assert any("up/sixth/fp32@cpu, is agrees" in note for note in report["notes"])
    assert report["artifact"]["components"]
    assert "optimize" in said


def test_a_quantised_cell_is_refused_where_its_float_cell_is_not_good(aipc: Aipc, quantizer: Path) -> None:
    adapter = quantizer / "adapter.py"
    adapter.write_text(adapter.read_text().replace("OFFSET = 0.0", "OFFSET = 0.5"))
    code, said, reports = deploy(aipc)
    assert code == 1
    assert reports["fp32"]["verdict"] == "disagrees"
    report = reports["int8"]
    assert (report["verdict"], report["failure"]["failure"]["kind"]) == ("refused", "prerequisite")
    assert "up/sixth/fp32@cpu comes first, and it is disagrees" in said
    assert report["stages"] == []


def test_calibration_data_of_ones_own_is_used_and_a_wrong_scale_refused(aipc: Aipc, quantizer: Path) -> None:
    assert quantizer.exists()
    folder = aipc.folder / "mine"
    folder.mkdir()
    draw = np.random.default_rng(5)
    for number in range(3):
        np.save(folder / f"{number}.npy", draw.uniform(0, 1, (1, 3, 20, 24)).astype(np.float32))
    code, said, reports = deploy(aipc, "--calibration", str(folder))
    assert code == 0, said
    assert "calibrated on 3 samples" in reports["int8"]["notes"]
    assert "--calibration" in reports["int8"]["reproduce"]
    np.save(folder / "3.npy", draw.uniform(0, 255, (1, 3, 20, 24)).astype(np.float32))
    code, said, reports = deploy(aipc, "--calibration", str(folder))
    assert (code, reports["int8"]["verdict"]) == (1, "refused")
    assert "the model takes 0 to 1" in said


@pytest.mark.parametrize(
    ("precision", "folder", "said"),
    [
        ("fp32", ".", "fp32 of sixth needs no calibration"),
        ("int8", "none", "none is no folder with files"),
        ("int8", "hidden", "hidden is no folder with files"),
    ],
)
def test_calibration_data_that_cannot_be_used_is_one_line(
    aipc: Aipc, quantizer: Path, precision: str, folder: str, said: str
) -> None:
    assert quantizer.exists()
    (aipc.folder / "hidden").mkdir()
    (aipc.folder / "hidden" / ".of-a-tool").touch()
    argv = ("up", "--runtime", "sixth", "--engine", "venv", "--precision", precision, "--calibration", folder)
    done = aipc.deploy(*argv)
    assert done.code == USAGE
    assert said in done.last_line
