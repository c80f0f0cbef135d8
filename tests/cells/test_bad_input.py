"""Bad input gets one clear line and the right exit code, and nothing is lost."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.command import ROOT, Aipc, Done, tiny

USAGE, NOTHING, DISK, NOT_GREEN = 2, 3, 4, 1


def assert_one_line(done: Done, code: int, *words: str) -> None:
    assert done.code == code, done.out + done.error
    lines = done.error.strip().splitlines()
    assert len(lines) == 1, done.error
    assert lines[0].startswith("aipc: ")
    for word in words:
        assert word in lines[0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("esrgn", "--runtime", "openvino"), ("esrgn", "did you mean 'esrgan'?")),
        (("esrgan", "--runtime", "openvin"), ("openvin", "did you mean 'openvino'?")),
        (("esrgan", "--runtime", "openvino", "--precision", "fp61"), ("fp61", "fp16")),
        (("esrgan", "--runtime", "openvino", "--target", "cpuu"), ("cpuu", "did you mean 'cpu'?")),
        (("esrgan", "--runtime", "openvino", "--shape", "64"), ("64",)),
        (("esrgan", "--runtime", "openvino", "--shape", "0x64"), ("0x64",)),
        (("esrgan",), ("--runtime", "missing")),
        (("esrgan/openvino/fp16@cpu", "--precision", "fp32"), ("whole cell",)),
        (("none.onnx", "--runtime", "openvino"), ("none.onnx", "no such file")),
        (("nothing:here#1x3x8x8", "--runtime", "openvino"), ("nothing",)),
        (("esrgn/openvino/fp16@cpu",), ("esrgn", "did you mean 'esrgan'?")),
        (("esrgan", "--runtime", "openvino", "--source", "."), ("--source",)),
    ],
)
def test_an_unknown_name_is_one_line_with_a_suggestion(
    tmp_path: Path, arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    assert_one_line(Aipc(tmp_path).deploy(*arguments), USAGE, *words)


def test_a_selection_of_nothing_is_an_error(tmp_path: Path) -> None:
    assert_one_line(Aipc(tmp_path)("plan", "yollo*"), NOTHING, "yollo*")


@pytest.mark.toolchain  # it fetches the weights
def test_a_wrong_sha256_is_refused_before_any_work(tmp_path: Path) -> None:
    text = (ROOT / "matrix.toml").read_text()
    before = 'sha256 = "548a36f9'
    assert before in text
    matrix = tmp_path / "matrix.toml"
    text = text.replace('folder = "', f'folder = "{ROOT}/')
    matrix.write_text(text.replace(before, 'sha256 = "648a36f9'))
    done = Aipc(tmp_path).deploy("esrgan-compact", "--runtime", "openvino", "--engine", "venv", "--matrix", str(matrix))
    assert_one_line(done, USAGE, "realesr-animevideov3-x4.bin", "648a36f9", "548a36f9")


def model(path: Path, *, shape: tuple[int | str, ...] = (1, 3, 8, 10), opset: int = 17) -> onnx.ModelProto:
    """Write a small network with weights at `path`, and return it."""
    weights = np.random.default_rng(0).normal(size=(4, 3, 3, 3)).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["image", "weights"], ["features"], "conv", pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["features"], ["out"], "relu"),
        ],
        "small",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, (shape[0], 4, *shape[2:]))],
        [numpy_helper.from_array(weights, "weights")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    onnx.save(made, path)
    return made


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def unsort(path: Path) -> None:
    made = onnx.load(path)
    made.graph.node.reverse()
    onnx.save(made, path)


def name_twice(path: Path) -> None:
    made = onnx.load(path)
    made.graph.node[1].name = "conv"
    onnx.save(made, path)


def write_twice(path: Path) -> None:
    made = onnx.load(path)
    made.graph.node.append(helper.make_node("Relu", ["features"], ["out"], "again"))
    onnx.save(made, path)


def opset_99(path: Path) -> None:
    made = onnx.load(path)
    made.opset_import[0].version = 99
    onnx.save(made, path)


def ir_99(path: Path) -> None:
    made = onnx.load(path)
    made.ir_version = 99
    onnx.save(made, path)


def move_outside(path: Path, location: str) -> None:
    made = onnx.load(path)
    tensor = made.graph.initializer[0]
    (path.parent / "data.bin").write_bytes(tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    path.write_bytes(made.SerializeToString())


def lose_data(path: Path) -> None:
    move_outside(path, "data.bin")
    (path.parent / "data.bin").unlink()


def data_outside(path: Path) -> None:
    move_outside(path, "../data.bin")
    (path.parent / "data.bin").rename(path.parent.parent / "data.bin")


def data_elsewhere(path: Path) -> None:
    move_outside(path, "/etc/passwd")


def link_the_data(path: Path) -> None:
    move_outside(path, "data.bin")
    (path.parent / "data.bin").rename(path.parent.parent / "elsewhere.bin")
    (path.parent / "data.bin").symlink_to(path.parent.parent / "elsewhere.bin")


BROKEN = [
    (truncate, "small.onnx"),
    (empty, "small.onnx"),
    (link_the_data, "data.bin"),
    (opset_99, "99"),
    (ir_99, "99"),
    (lose_data, "data.bin"),
    (data_outside, "../data.bin"),
    (data_elsewhere, "/etc/passwd"),
]


@pytest.mark.parametrize(("breaks", "word"), BROKEN)
def test_a_broken_onnx_file_is_refused_and_its_fault_named(
    aipc: Aipc, breaks: Callable[[Path], None], word: str
) -> None:
    folder = aipc.folder / "models"
    folder.mkdir()
    path = folder / "small.onnx"
    model(path)
    breaks(path)
    done = aipc.deploy(str(path), "--runtime", "openvino", "--engine", "venv")
    if breaks in {lose_data, data_outside, data_elsewhere, link_the_data}:
        # The host itself sees where the data is: nothing outside the folder is ever read.
        assert_one_line(done, USAGE, "small.onnx", word)
        assert not aipc.runs.exists()
        return
    assert done.code == NOT_GREEN, done.out + done.error
    report = aipc.report()
    assert report["verdict"] == "refused", report["failure"]
    assert report["failure"]["step"] == "prepare"
    assert word in report["failure"]["failure"]["message"]


@pytest.mark.parametrize(
    ("breaks", "rewrite"),
    [(unsort, "sort_nodes"), (name_twice, "unique_names"), (write_twice, "drop_duplicate_outputs")],
)
def test_an_onnx_file_whose_fault_can_be_mended_is_repaired_and_the_report_says_so(
    aipc: Aipc, breaks: Callable[[Path], None], rewrite: str
) -> None:
    path = aipc.folder / "small.onnx"
    model(path)
    breaks(path)
    done = aipc.deploy(str(path), "--runtime", "openvino", "--engine", "venv")
    assert done.code == 0, done.out + done.error
    assert [each["rewrite"] for each in aipc.report()["repairs"]] == [rewrite]
    assert f"note: the given file was repaired before it was taken: {rewrite}" in done.out


def test_an_onnx_file_of_ones_own_agrees_and_says_who_the_reference_is(aipc: Aipc) -> None:
    path = aipc.folder / "small.onnx"
    model(path)
    done = aipc.deploy(str(path), "--runtime", "openvino", "--engine", "venv")
    assert done.code == 0, done.out + done.error
    report = aipc.report()
    assert report["model"]["reference"] == "onnxruntime"
    assert report["cell"].startswith("small-")


def test_external_data_beside_the_file_travels_with_it(aipc: Aipc) -> None:
    path = aipc.folder / "small.onnx"
    model(path)
    move_outside(path, "data.bin")
    done = aipc.deploy(str(path), "--runtime", "openvino", "--engine", "venv")
    assert done.code == 0, done.out + done.error


def test_a_dynamic_shape_is_refused_until_a_shape_is_given(aipc: Aipc) -> None:
    path = aipc.folder / "small.onnx"
    model(path, shape=(1, 3, "h", "w"))
    done = aipc.deploy(str(path), "--runtime", "openvino", "--engine", "venv")
    assert done.code == NOT_GREEN
    failure = aipc.report()["failure"]["failure"]
    assert failure["kind"] == "dynamic_shape"
    assert "image" in failure["message"]
    other = Aipc(aipc.folder / "given")
    other.folder.mkdir()
    done = other.deploy(str(path), "--runtime", "openvino", "--engine", "venv", "--shape", "12x16")
    assert done.code == 0, done.out + done.error


def test_a_checkpoint_that_needs_full_pickle_is_refused_until_it_is_trusted(aipc: Aipc, reference_python: Path) -> None:
    path = aipc.folder / "own.pth"
    save = "import sys, torch; from fractions import Fraction; torch.save({'weights': Fraction(1, 3)}, sys.argv[1])"
    subprocess.run([reference_python, "-c", save, path], check=True)
    done = aipc.deploy(str(path), "--runtime", "openvino", "--engine", "venv", "--shape", "8x10")
    assert done.code == NOT_GREEN
    failure = aipc.report()["failure"]["failure"]
    assert failure["kind"] == "untrusted_weights", failure
    assert "--trusted" in failure["hint"] or "trusted" in failure["hint"]
    trusted = Aipc(aipc.folder / "trusted")
    trusted.folder.mkdir()
    done = trusted.deploy(str(path), "--runtime", "openvino", "--engine", "venv", "--shape", "8x10", "--trusted")
    assert done.code == NOT_GREEN
    # It is read now, and found to be no checkpoint of a network.
    assert trusted.report()["failure"]["failure"]["kind"] == "invalid_model"


def test_a_run_folder_that_cannot_be_written_is_found_before_any_work(aipc: Aipc) -> None:
    # Root may write to any folder that has a mode, but to none in /proc.
    done = aipc("deploy", *tiny(), "--engine", "venv", "--runs", "/proc/runs")
    assert_one_line(done, DISK, "/proc/runs")
    assert not aipc.store.exists()


def test_a_read_only_run_folder_is_found_by_one_who_is_not_root(aipc: Aipc) -> None:
    aipc.runs.mkdir(mode=0o555)
    if os.getuid():
        assert_one_line(aipc.tiny(), DISK, "runs")
        return
    argv = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
    probe = "import sys; from pathlib import Path; from aipc import cli; cli._check_writable(Path(sys.argv[1]))"
    search = os.pathsep.join(sys.path)
    for parent in (aipc.folder, *aipc.folder.parents):
        if parent.owner() == "root" and parent.name.startswith(("pytest", "test", "pt")):
            parent.chmod(0o755)
    done = subprocess.run(
        [*argv, sys.executable, "-c", probe, str(aipc.runs)],
        env={"PYTHONPATH": search, "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    if "Permission denied" not in done.stderr or str(aipc.runs) not in done.stderr:
        pytest.skip(f"nobody cannot run this Python here: {done.stderr[-200:]}")
    assert "PermissionError" in done.stderr


def test_a_run_folder_that_is_a_file_is_one_line(aipc: Aipc) -> None:
    aipc.runs.write_text("")
    assert_one_line(aipc.tiny(), DISK, "runs")


@pytest.mark.skipif(os.getuid() != 0, reason="mounting a small disk needs root")
def test_a_full_disk_is_one_line_and_the_next_deploy_goes_on(aipc: Aipc) -> None:
    aipc.store.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=160k", "tmpfs", str(aipc.store)], check=True)
    try:
        assert_one_line(aipc.tiny(), DISK, "No space left")
    finally:
        subprocess.run(["umount", str(aipc.store)], check=True)
    assert aipc.tiny().code == 0


def test_a_matrix_that_is_wrong_names_its_file_and_line(tmp_path: Path) -> None:
    matrix = tmp_path / "matrix.toml"
    matrix.write_text("seed = 1\nmagnitudes = [1.0, 0.1\n")
    assert_one_line(Aipc(tmp_path)("plan", "--matrix", str(matrix)), USAGE, "matrix.toml:")


def test_no_network_during_set_up_is_one_line_and_leaves_nothing_half_made(tmp_path: Path) -> None:
    nowhere = {
        "AIPC_CACHE": str(tmp_path / "cache"),
        "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
        "PIP_EXTRA_INDEX_URL": "",
        "PIP_FIND_LINKS": "",
        "PIP_RETRIES": "0",
        "PIP_NO_CACHE_DIR": "1",
        "PIP_CONFIG_FILE": os.devnull,
    }
    done = Aipc(tmp_path, nowhere).deploy(*tiny(), "--engine", "venv")
    assert_one_line(done, DISK, "scikit-image==0.26.0", "pip cannot download it", "check the name, the network")
    assert not list((tmp_path / "cache").rglob("complete.json"))


def test_a_matrix_that_is_no_file_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.toml")
    assert_one_line(Aipc(tmp_path)("plan", "--matrix", str(tmp_path / "pipe.toml")), USAGE, "pipe.toml: not a file")
