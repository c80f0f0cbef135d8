"""What of the ONNX Runtime QNN adapter, and of what it shares with QAIRT, needs no toolchain."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import onnx

from runtimes.kit import qualcomm
from runtimes.kit.qualcomm import Node
from runtimes.kit.socs import SOCS
from runtimes.ortqnn.adapter import DEVICE, FAMILY, MULTI, Precision, Target
from tests.runtimes.openvino_jobs import ROOT, conv_net
from tests.runtimes.ortqnn_jobs import deep

REFUSED = (
    "[E:onnxruntime:, qnn.cc:24 Get] Unsupported nodes in QNN EP: { name: /b, type: Einsum }{ name: , type: Det },"
)
INVALID = "[W:onnxruntime:, qnn.cc:565 Create] failed for node `/a_2` of type `Op` with error code 3110"
NOISE = "[W:onnxruntime:, qnn.cc:933 QnnEp] File mapped weights feature is only available on Windows"
CHATTER = "[I:onnxruntime:, session.cc:3 Load] failed for node `/chatter` of type `Info` with nothing"
LOG = f"""\
\x1b[0;93m2026-11-30 19:50:58.219342121 {INVALID}
\x1b[m
\x1b[1;31m2026-11-30 19:50:58.3 {REFUSED} \x1b[m
2026-11-30 19:50:58.4 {CHATTER}
\x1b[0;93m2026-11-30 19:50:58.5 {NOISE}\x1b[m
\x1b[1;31m2026-11-30 19:50:59.3 {REFUSED} \x1b[m
"""


def test_the_targets_and_precisions_are_those_that_the_runtime_declares() -> None:
    declared = tomllib.loads((ROOT / "ortqnn" / "runtime.toml").read_text(encoding="utf-8"))
    assert sorted(declared["targets"]) == sorted(target.value for target in Target)
    assert {tuple(target["devices"]) for target in declared["targets"].values()} == {(DEVICE,)}
    assert all(target["accelerator"] for target in declared["targets"].values())
    assert declared["precisions"] == [precision.value for precision in Precision]
    assert declared["precisions"] == ["fp16", *declared["quantized"]]


def test_every_soc_is_a_target_under_its_own_name_and_number() -> None:
    assert {*SOCS, MULTI} == {target.value for target in Target}
    assert set(FAMILY) <= set(SOCS)
    assert all(SOCS[name].floats for name in FAMILY)
    assert len({soc.number for soc in SOCS.values()}) == len(SOCS)


def test_a_log_is_read_without_colours_times_repetitions_and_chatter(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(LOG, encoding="utf-8")
    assert qualcomm.complaints(qualcomm.read_log(tmp_path / "log")) == [INVALID, REFUSED]


def test_the_nodes_of_the_vendors_list_are_read_before_those_of_single_lines() -> None:
    assert qualcomm.refused_in(LOG) == [Node(name="/b", op="Einsum"), Node(name="", op="Det")]
    assert qualcomm.refused_in(INVALID) == [Node(name="/a_2", op="Op")]
    assert qualcomm.refused_in("all is well") == []


def test_tensors_of_more_than_five_dimensions_are_found_with_their_nodes(tmp_path: Path) -> None:
    onnx.save_model(deep().model, tmp_path / "deep.onnx")
    found = [(each.name, each.rank, str(each.node)) for each in qualcomm.deep_tensors(tmp_path / "deep.onnx")]
    assert found == [("b", 6, "Reshape '/up'"), ("c", 6, "Sigmoid '/sigmoid'")]
    onnx.save_model(conv_net().model, tmp_path / "flat.onnx")
    assert qualcomm.deep_tensors(tmp_path / "flat.onnx") == []


def printing(then: str, log: Path) -> subprocess.CompletedProcess[str]:
    code = f"""
import ctypes, os, sys
from pathlib import Path
from runtimes.kit import qualcomm
print("before")
with qualcomm.captured(Path({str(log)!r})):
    print("from Python")
    ctypes.CDLL(None).puts(b"from C")
    os.write(2, b"to stderr\\n")
    {then}
print("after")
"""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT.parent)


def test_what_is_printed_is_captured_and_still_printed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    done = printing("pass", log)
    assert done.returncode == 0, done.stderr
    assert sorted(log.read_text().split("\n")) == ["", "from C", "from Python", "to stderr"]
    assert done.stdout.split("\n") == ["before", "after", ""]
    assert sorted(done.stderr.split("\n")) == ["", "from C", "from Python", "to stderr"]


def test_what_is_printed_before_a_crash_is_not_lost(tmp_path: Path) -> None:
    done = printing("sys.stdout.flush(); os.write(2, b'last words\\n'); os.abort()", tmp_path / "log")
    assert done.returncode == -signal.SIGABRT
    assert "last words" in done.stderr
    assert "last words" in (tmp_path / "log").read_text()


def test_what_is_printed_before_an_error_is_captured_and_nothing_stays_open(tmp_path: Path) -> None:
    before = os.dup(1)
    os.close(before)
    with contextlib.suppress(KeyError), qualcomm.captured(tmp_path / "log"):
        os.write(2, b"words\n")
        raise KeyError
    assert (tmp_path / "log").read_text() == "words\n"
    # No descriptor is left behind: the next one has the same number.
    after = os.dup(1)
    os.close(after)
    assert after == before
