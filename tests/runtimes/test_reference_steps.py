"""prepare, export and inspect with the real PyTorch: it works, it refuses, it fails."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest

from runtimes.contract import Kind, Status, Step
from runtimes.reference import structure
from tests.runtimes import ncnn_files
from tests.runtimes.reference_bench import Bench, Ended, function

pytestmark = pytest.mark.toolchain

IMAGE = {"name": "image", "shape": [1, 3, 6, 8], "content": "picture"}
TOKENS = {"name": "tokens", "shape": [1, 5], "dtype": "int64", "content": "integers", "high": 49.0}
DETECTOR = function("Detector", IMAGE, TOKENS, outputs=["features", "scores", "best"])
GATES = (
    *("readable", "external_data", "ir_version", "opset", "operators", "node_names", "value_names", "ssa", "order"),
    *("static_shapes", "wide_integers", "checker", "session", "asked_opset", "asked_values", "fp16_range", "agreement"),
)


@pytest.fixture(scope="module")
def bench(reference_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("bench"), reference_python)


@pytest.fixture(scope="module")
def code(bench: Bench) -> dict[str, Path]:
    folder = bench.root / "user"
    folder.mkdir()
    (folder / "reference_models.py").write_bytes((Path(__file__).parent / "reference_models.py").read_bytes())
    return {"source": folder}


@pytest.fixture(scope="module")
def detector(bench: Bench, code: dict[str, Path]) -> Ended:
    return bench.prepare("detector", code, DETECTOR)


@pytest.fixture(scope="module")
def smooth(bench: Bench, code: dict[str, Path]) -> Ended:
    return bench.prepare("smooth", code, function("Smooth"))


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_prepare_tells_what_the_model_is(detector: Ended) -> None:
    facts = detector.facts
    assert (facts["reference"], facts["parameters"], facts["notes"]) == ("pytorch", 320, [])
    assert [each["name"] for each in facts["inputs"]] == ["image", "tokens"]
    assert facts["outputs"] == [
        {"name": "features", "shape": [1, 4, 6, 8], "dtype": "float32"},
        {"name": "scores", "shape": [1, 6, 8], "dtype": "float32"},
        {"name": "best", "shape": [1], "dtype": "int64"},
    ]
    assert detector.result.versions["torch"].startswith("2.")


def test_every_sample_has_golden_outputs(detector: Ended) -> None:
    samples, golden = detector.samples("samples"), detector.samples("golden")
    assert set(samples) == set(golden) == {"photo", "random-0.5", "random-1", "other-image", "other-tokens"}
    assert all(set(outputs) == {"features", "scores", "best"} for outputs in golden.values())


def test_sensitivity_tells_which_output_depends_on_which_input(detector: Ended) -> None:
    found = detector.facts["sensitivity"]
    assert found["features"]["image"] > 0.1
    assert found["features"]["tokens"] == 0.0
    assert found["scores"]["tokens"] > 0.01


def test_an_output_that_never_changes_has_no_sensitivity(bench: Bench, code: dict[str, Path]) -> None:
    prepared = bench.prepare("constant", code, function("Constant"))
    assert prepared.facts["sensitivity"] == {"output": {"x": 0.0}}


def test_a_golden_output_that_is_not_finite_fails(bench: Bench, code: dict[str, Path]) -> None:
    ended = bench.prepare("infinite", code, function("Infinite"))
    assert ended.result.status is Status.FAILED
    assert "sample photo: output output of the reference: 144 of 144 values are NaN" in ended.failure.message


def test_preparing_twice_gives_the_same_bytes(bench: Bench, code: dict[str, Path], detector: Ended) -> None:
    again = bench.prepare("elsewhere/again", code, DETECTOR)
    for name in ("samples", "golden"):
        files = sorted(path.relative_to(again.output(name)) for path in again.output(name).rglob("*") if path.is_file())
        assert len(files) > 10
        assert all(sha256(again.output(name) / path) == sha256(detector.output(name) / path) for path in files)


@pytest.mark.parametrize(("exporter", "opset"), [("torchscript", 17), ("dynamo", 18)])
def test_an_export_is_what_was_asked_for_and_agrees(
    exporter: str, opset: int, bench: Bench, code: dict[str, Path], detector: Ended
) -> None:
    how = {"exporter": exporter, "opset": opset}
    first, second = (
        bench.export(f"{folder}/{exporter}", code, DETECTOR, detector, **how) for folder in ("one", "two/and-deeper")
    )
    assert first.facts["opset"] == opset
    assert [gate["name"] for gate in first.facts["gates"]] == list(GATES)
    assert all(gate["passed"] for gate in first.facts["gates"])
    assert set(first.facts["agreement"]) == {"features", "scores", "best"}
    assert all(each["cosine"] > 0.99999 for each in first.facts["agreement"].values())
    assert first.facts["nodes"]["Conv"] == 1
    path = first.output("model") / "model.onnx"
    model = onnx.load(path)
    assert first.facts["size_bytes"] == path.stat().st_size
    assert {value.name: structure.sizes_of(value) for value in (*model.graph.input, *model.graph.output)} == {
        "image": [1, 3, 6, 8],
        "tokens": [1, 5],
        "features": [1, 4, 6, 8],
        "scores": [1, 6, 8],
        "best": [1],
    }
    cpu, golden = first.samples("cpu"), detector.samples("golden")
    assert set(cpu) == set(golden)
    np.testing.assert_allclose(cpu["photo"]["scores"], golden["photo"]["scores"], atol=1e-5)
    # The same bytes from another folder, and nothing in them that tells of either.
    assert sha256(path) == sha256(second.output("model") / "model.onnx")
    for word in (str(bench.root), "reference_models", "site-packages", "return self"):
        assert word.encode() not in path.read_bytes()


def test_an_opset_that_quietly_became_another_fails(bench: Bench, code: dict[str, Path], smooth: Ended) -> None:
    ended = bench.export("smooth", code, function("Smooth"), smooth, exporter="dynamo", opset=17)
    assert (ended.result.status, ended.failure.kind) == (Status.FAILED, Kind.UNSUPPORTED_OPSET)
    assert "asked for opset 17, the dynamo exporter wrote 18 without a word" in ended.failure.message


def test_an_export_that_does_not_agree_fails_with_the_numbers(bench: Bench, code: dict[str, Path]) -> None:
    prepared = bench.prepare("otherwise", code, function("Otherwise"))
    ended = bench.export("otherwise", code, function("Otherwise"), prepared)
    assert (ended.result.status, ended.failure.kind) == (Status.FAILED, Kind.TOOLCHAIN)
    assert "output output, sample photo: ONNX Runtime does not agree with pytorch: cosine 0." in ended.failure.message


def test_a_model_that_draws_at_random_is_told_by_its_node(bench: Bench, code: dict[str, Path]) -> None:
    prepared = bench.prepare("random", code, function("Random"))
    ended = bench.export("random", code, function("Random"), prepared)
    assert (ended.result.status, ended.failure.kind) == (Status.FAILED, Kind.UNSUPPORTED_OP)
    assert "draws at random, so no two answers are equal" in ended.failure.message


@pytest.mark.parametrize("exporter", ["torchscript", "dynamo"])
def test_an_error_of_the_model_while_it_is_exported_is_told_in_plain_words(
    exporter: str, bench: Bench, code: dict[str, Path]
) -> None:
    name = f"exporting-{exporter}"
    prepared = bench.prepare(name, code, function("Exporting"))
    ended = bench.export(name, code, function("Exporting"), prepared, exporter=exporter, opset=18)
    assert (ended.result.status, ended.failure.kind) == (Status.FAILED, Kind.TOOLCHAIN)
    assert f"the {exporter} exporter, opset 18: " in ended.failure.message
    assert "reference_models.Odd" in ended.failure.message
    assert ": not to be exported" in ended.failure.message
    assert "\x1b" not in ended.failure.message


def test_an_operator_that_the_exporter_does_not_know_fails_by_name(bench: Bench, code: dict[str, Path]) -> None:
    prepared = bench.prepare("fourier", code, function("Fourier"))
    ended = bench.export("fourier", code, function("Fourier"), prepared)
    assert (ended.result.status, ended.failure.kind) == (Status.FAILED, Kind.UNSUPPORTED_OP)
    assert "aten::fft_fft" in ended.failure.message
    assert "try the dynamo exporter" in ended.failure.hint


def test_an_input_that_the_exporter_drops_fails(bench: Bench, code: dict[str, Path]) -> None:
    model = function("Deaf", IMAGE, {"name": "ignored", "shape": [1]})
    ended = bench.export("deaf", code, model, bench.prepare("deaf", code, model))
    assert (ended.result.status, ended.failure.kind) == (Status.FAILED, Kind.TOOLCHAIN)
    assert "ignored [1]" in ended.failure.message
    assert "take it out of the model's inputs" in ended.failure.hint


def test_ncnn_weights_go_all_the_way(bench: Bench) -> None:
    ncnn_files.compact().write(bench.root / "net")
    model = {"source": "ncnn", "architecture": "compact", "shape": [6, 8], "outputs": ["big"]}
    weights = {"weights": bench.root / "net"}
    prepared = bench.prepare("ncnn", weights, model)
    ended = bench.export("ncnn", weights, model, prepared)
    assert prepared.facts["parameters"] == 510
    assert prepared.facts["sensitivity"]["big"]["input"] > 0.05
    assert ended.facts["nodes"] == {"Add": 1, "Constant": 1, "Conv": 3, "DepthToSpace": 1, "PRelu": 2, "Resize": 1}
    described = bench.job("ncnn-inspect", Step.INSPECT, {"file": bench.root / "net"}, {})
    layers = {"BinaryOp": 1, "Convolution": 3, "Input": 1, "Interp": 1, "PReLU": 2, "PixelShuffle": 1, "Split": 1}
    assert described.facts["nodes"] == layers


@pytest.fixture(scope="module")
def files(bench: Bench, code: dict[str, Path], reference_python: Path) -> Path:
    """A folder with a program of an open size, and a checkpoint that spandrel does not know."""
    folder = bench.root / "files"
    folder.mkdir()
    (folder / "program").mkdir()
    (folder / "checkpoint").mkdir()
    text = (
        "import sys, torch, reference_models; m = reference_models.Small().eval()\n"
        "h = torch.export.Dim('h', min=4, max=64)\n"
        "p = torch.export.export(m, (torch.ones(1, 3, 6, 8),), dynamic_shapes=({2: h},))\n"
        "torch.export.save(p, sys.argv[1] + '/program/net.pt2')\n"
        "torch.save(m.state_dict(), sys.argv[1] + '/checkpoint/net.pth')\n"
    )
    subprocess.run(
        [reference_python, "-c", text, folder], check=True, cwd=folder, env={"PYTHONPATH": str(code["source"])}
    )
    return folder


PROGRAM = {"source": "exported", "shape": [10, 8]}


@pytest.fixture(scope="module")
def program(bench: Bench, files: Path) -> Ended:
    return bench.prepare("program", {"weights": files / "program"}, PROGRAM)


@pytest.mark.parametrize(
    ("exporter", "opset", "trusted"), [("torchscript", 17, False), ("dynamo", 18, False), ("torchscript", 17, True)]
)
def test_an_exported_program_goes_all_the_way(
    exporter: str, opset: int, trusted: bool, program: Ended, bench: Bench, files: Path
) -> None:
    weights = {"weights": files / "program"}
    how = {"exporter": exporter, "opset": opset, "trusted": trusted}
    ended = bench.export(f"program-{exporter}-{trusted}", weights, PROGRAM, program, **how)
    assert ended.facts["agreement"]["output"]["cosine"] > 0.99999
    assert ended.samples("cpu")["photo"]["output"].shape == (1, 4, 10, 8)


def test_an_exported_program_that_leaves_a_size_open_is_refused(bench: Bench, files: Path) -> None:
    refused = bench.prepare("program-open", {"weights": files / "program"}, {"source": "exported"})
    assert (refused.result.status, refused.failure.kind) == (Status.REFUSED, Kind.DYNAMIC_SHAPE)


def test_inspect_describes_a_program(bench: Bench, files: Path) -> None:
    facts = bench.job("program-inspect", Step.INSPECT, {"file": files / "program"}, {}).facts
    assert (facts["format"], facts["parameters"], facts["outputs"]) == ("PyTorch exported program", 120, 1)
    (each,) = facts["inputs"]
    assert (each["name"], each["shape"][3]) == ("x", 8)


def test_inspect_describes_a_checkpoint(bench: Bench, files: Path) -> None:
    facts = bench.job("checkpoint-inspect", Step.INSPECT, {"file": files / "checkpoint"}, {}).facts
    assert (facts["format"], facts["architecture"]) == ("PyTorch checkpoint", "")
    assert facts["tensors"]["conv.weight"] == {"dtype": "float32", "shape": [4, 3, 3, 3]}
