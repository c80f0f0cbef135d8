"""The scripts of the skills run alone: they print JSON, and their exit codes say how it went."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command import MODELS, TINY
from tests.qairt import standin
from tests.skills.skill import FOLDER

AIPC = str(Path(sys.executable).with_name("aipc"))
SCRIPTS = sorted(FOLDER.glob("*/scripts/*.py"))
OF_CELLS = ("aipc/scripts/explain.py", "ortqnn/scripts/nodes.py", "rknn/scripts/placement.py")
OF_MODELS = ("aipc/scripts/deploy.py", "openvino/scripts/precisions.py", "tensorrt/scripts/targets.py")


def start(script: str, *arguments: str, cwd: Path, environ: dict[str, str] | None = None) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, str(FOLDER / script), *arguments],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        cwd=cwd,
        env={**os.environ, "AIPC_STORE": str(cwd / "store"), **(environ or {})},
    )
    return done.returncode, done.stdout, done.stderr


def test_every_script_is_tried_here() -> None:
    names = {path.relative_to(FOLDER).as_posix() for path in SCRIPTS}
    assert names == {*OF_CELLS, *OF_MODELS, "qairt/scripts/sdk.py"}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: f"{path.parts[-3]}-{path.stem}")
def test_a_script_explains_itself_and_its_exit_codes(script: Path) -> None:
    done = subprocess.run([str(script), "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Exit codes: 0" in done.stdout


@pytest.mark.parametrize("script", [*OF_CELLS, *OF_MODELS])
def test_without_aipc_a_script_says_so(script: str, tmp_path: Path) -> None:
    code, out, error = start(script, "esrgan/openvino/fp16@cpu", "--aipc", "no-such-command", cwd=tmp_path)
    assert code == 5
    assert "no-such-command" in out + error


@pytest.mark.parametrize("script", OF_CELLS)
def test_a_cell_without_a_report_ends_with_3(script: str, tmp_path: Path) -> None:
    code, out, error = start(script, "esrgan/openvino/fp16@cpu", "--aipc", AIPC, cwd=tmp_path)
    assert (code, out) == (3, "")
    assert "there is no report" in error


def test_a_command_that_aipc_refuses_ends_with_2(tmp_path: Path) -> None:
    code, out, _ = start(
        "aipc/scripts/deploy.py", "esrgam", "--aipc", AIPC, "--", "--runtime", "openvino", cwd=tmp_path
    )
    assert code == 2
    assert "esrgam" in json.loads(out)["problem"]
    code, out, _ = start("openvino/scripts/precisions.py", "esrgam", "--aipc", AIPC, cwd=tmp_path)
    assert (code, set(json.loads(out)["precisions"])) == (2, {"fp16", "fp32"})


@pytest.mark.usefixtures("reference_python", "openvino_python")
def test_a_deploy_is_told_as_json_and_explained_afterwards(tmp_path: Path) -> None:
    more = ("--runtime", "openvino", "--source", str(MODELS), "--engine", "venv")
    code, out, error = start("aipc/scripts/deploy.py", f"{TINY}#1x3x20x24", "--aipc", AIPC, "--", *more, cwd=tmp_path)
    told = json.loads(out)
    assert (code, told["verdict"]) == (0, "agrees"), out + error
    assert (tmp_path / told["report"]).is_file()
    code, out, error = start("aipc/scripts/explain.py", told["cell"], "--aipc", AIPC, cwd=tmp_path)
    explained = json.loads(out)
    assert (code, explained["verdict"], explained["failed_gates"]) == (0, "agrees", []), error
    assert [each["output"] for each in explained["worst"]] == ["output"]
    assert 0.999 < explained["worst"][0]["cosine"] <= 1
    # What is no cell of RKNN or the HTP has no layer on their processors.
    assert start("rknn/scripts/placement.py", told["cell"], "--aipc", AIPC, cwd=tmp_path)[0] == 1
    assert start("ortqnn/scripts/nodes.py", told["cell"], "--aipc", AIPC, cwd=tmp_path)[0] == 1


def test_an_sdk_is_looked_at_and_what_is_missing_is_named(tmp_path: Path) -> None:
    script = "qairt/scripts/sdk.py"
    code, out, _ = start(script, "--aipc", AIPC, cwd=tmp_path, environ={"QAIRT_SDK_ROOT": ""})
    assert (code, json.loads(out)["missing"]) == (3, ["QAIRT_SDK_ROOT is not set"])
    sdk = standin.make(tmp_path / "sdk")
    code, out, error = start(script, "--root", str(sdk), "--aipc", AIPC, cwd=tmp_path)
    told = json.loads(out)
    assert code == 1, error
    assert "qairt-converter" in told["tools"]
    assert any("python3" in each for each in told["missing"])
    assert str(sdk) in "".join(told["doctor"])
    code, out, _ = start(script, "--root", str(tmp_path), "--aipc", AIPC, cwd=tmp_path)
    assert "sdk.yaml" in json.loads(out)["missing"]
