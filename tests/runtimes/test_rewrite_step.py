"""The step `rewrite`: what it makes is checked as every ONNX file is, and answers as the model before did."""

from __future__ import annotations

import dataclasses
import hashlib
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto

import runtimes
from runtimes.contract import Job, Json, Kind, Layout, Status, Step
from runtimes.kit import tensors
from runtimes.kit.tensors import Array
from runtimes.kit.work import Failed, Refused, Work
from runtimes.reference import adapter, edits, export, gates, rewrite, rewrites, slices
from runtimes.reference.retyping import Retyping
from runtimes.reference.rewrites import Given, Rewrite, Unsuitable, always
from tests.runtimes.gate_models import outside, same_output_twice
from tests.runtimes.reference_bench import Bench
from tests.runtimes.rewrites.graphs import build, node, operators, run

Feeds = Mapping[str, Array]


def einsum() -> tuple[onnx.ModelProto, Feeds]:
    rng = np.random.default_rng(5)
    feeds = {name: rng.normal(size=(3, 4)).astype(np.float32) for name in ("a", "b")}
    nodes = [node("Relu", ["a"], ["r"]), node("Einsum", ["r", "b"], ["y"], equation="ij,kj->ik")]
    return build(nodes, feeds, ["y"]), feeds


def work_of(
    root: Path,
    model: onnx.ModelProto | Path,
    names: list[str],
    samples: Mapping[str, Feeds] | None = None,
    golden: Mapping[str, Feeds] | None = None,
) -> Work:
    """A job in a new workspace. `golden` is what ONNX Runtime gives where it is not told."""
    layout = Layout(root)
    folder = layout.inputs / "model"
    folder.mkdir(parents=True)
    if isinstance(model, Path):
        for file in model.iterdir():
            (folder / file.name).write_bytes(file.read_bytes())
    else:
        (folder / "model.onnx").write_bytes(model.SerializeToString())
    inputs = ["model"]
    if samples is not None:
        assert golden is not None or isinstance(model, onnx.ModelProto)
        expected = golden or {name: run(model, feeds) for name, feeds in samples.items()}  # type: ignore[arg-type]
        tensors.save_samples(layout.inputs / "samples", samples)
        tensors.save_samples(layout.inputs / "golden", expected)
        inputs += ["samples", "golden"]
    options: Json = {"rewrites": [{"name": name} for name in names]}
    return Work(layout, Job(step=Step.REWRITE, runtime="reference", inputs=tuple(inputs), options=options))


def made(work: Work) -> onnx.ModelProto:
    return onnx.load(work.layout.outputs / "model" / "model.onnx")


def test_it_makes_the_model_its_answers_and_the_facts(tmp_path: Path) -> None:
    model, feeds = einsum()
    work = work_of(tmp_path, model, ["einsum_to_matmul"], {"one": feeds})
    facts = adapter.rewrite(work)
    assert operators(made(work)) == {"Relu", "MatMul", "Transpose"}
    answers = tensors.load_samples(work.layout.outputs / "cpu")
    np.testing.assert_allclose(answers["one"]["y"], run(model, feeds)["y"], rtol=1e-5)
    assert facts["changed"] == {"einsum_to_matmul": ["node_y"]}
    assert facts["nodes"] == {"MatMul": 1, "Relu": 1, "Transpose": 1}
    assert facts["opset"] == 17
    assert {gate["name"] for gate in facts["gates"]} >= {"order", "session", "fp16_range", "agreement", "neutral"}
    assert facts["agreement"]["y"]["snr_db"] > 100
    assert facts["size_bytes"] == (work.layout.outputs / "model" / "model.onnx").stat().st_size


def test_what_finds_nothing_to_change_leaves_every_byte(tmp_path: Path) -> None:
    x = np.ones((2, 3), np.float32)
    model = build([node("Relu", ["x"], ["y"])], {"x": x}, ["y"])
    work = work_of(tmp_path, model, ["einsum_to_matmul", "sort_nodes"], {"one": {"x": x}})
    assert adapter.rewrite(work)["changed"] == {"einsum_to_matmul": [], "sort_nodes": []}
    assert (work.layout.outputs / "model" / "model.onnx").read_bytes() == model.SerializeToString()


def test_a_file_that_is_not_prepared_yet_is_compared_with_nothing(tmp_path: Path) -> None:
    work = work_of(tmp_path, same_output_twice(), ["drop_duplicate_outputs"])
    facts = adapter.rewrite(work)
    assert facts["changed"] == {"drop_duplicate_outputs": ["two"]}
    assert facts["agreement"] == {}
    assert not (work.layout.outputs / "cpu").exists()
    assert all(gates.check(work.layout.outputs / "model" / "model.onnx"))


def test_several_rewrites_are_done_in_order(tmp_path: Path) -> None:
    model, feeds = einsum()
    model.graph.node.reverse()
    golden = {"one": run(einsum()[0], feeds)}
    work = work_of(tmp_path, model, ["sort_nodes", "einsum_to_matmul"], {"one": feeds}, golden)
    facts = adapter.rewrite(work)
    assert {name: len(nodes) for name, nodes in facts["changed"].items()} == {"sort_nodes": 2, "einsum_to_matmul": 1}


def test_an_unknown_rewrite_is_refused(tmp_path: Path) -> None:
    work = work_of(tmp_path, einsum()[0], ["einsum_to_matmull"])
    with pytest.raises(Refused, match="did you mean 'einsum_to_matmul'") as refused:
        adapter.rewrite(work)
    assert refused.value.failure.kind is Kind.OPTION


def _double(model: ir.Model, _given: Given) -> list[str]:
    (relu,) = edits.nodes_of(model, "Relu")
    new = edits.Nodes(relu)
    new.replace(new.op("Mul", new.op("Relu", relu.inputs[0]), new.constant(1.01, np.float32)))
    return ["relu"]


def _halve(model: ir.Model, _given: Given) -> list[str]:
    """Convert to float16 whatever the range."""
    return Retyping(model, ir.DataType.FLOAT, ir.DataType.FLOAT16, []).convert()


def _rename(model: ir.Model, _given: Given) -> list[str]:
    model.graph.inputs[0].name = "other"
    return ["a"]


def _swap(model: ir.Model, _given: Given) -> list[str]:
    first, second = model.graph.inputs
    model.graph.inputs[:] = [second, first]
    return ["a"]


def _narrow(model: ir.Model, _given: Given) -> list[str]:
    (einsum,) = edits.nodes_of(model, "Einsum")
    new = edits.Nodes(einsum)
    new.replace(new.op("ReduceMax", new.op("Einsum", *einsum.inputs, equation="ij,kj->ik"), axes=[1]))
    output = model.graph.outputs[0]
    output.shape = ir.Shape([3, 1])
    return ["y"]


def _unsuitable(_model: ir.Model, _given: Given) -> list[str]:
    raise Unsuitable("node n (Relu): has no size")


def _unknown(_model: ir.Model) -> str:
    raise Unsuitable("x: its type is not known")


def _invalid(model: ir.Model, _given: Given) -> list[str]:
    (relu,) = edits.nodes_of(model, "Relu")
    relu.op_type = "NoSuchOperator"
    return ["relu"]


BAD: Mapping[str, tuple[dict[str, Any], str]] = {
    "changes the answers": ({"rewrite": _double}, "gate neutral: output y, sample one: .* SNR 40.0 dB"),
    "renames an input": ({"rewrite": _rename}, "the inputs were a float .*, and are other float"),
    "swaps two inputs": ({"rewrite": _swap}, "the inputs were a .* b .*, and are b .* a "),
    "changes a size": ({"rewrite": _narrow}, "the outputs were y float \\[3, 3\\], and are y float \\[3, 1\\]"),
    "breaks its promise": (
        {"ensures": lambda _model: "an Einsum is left"},
        "does not do|did not do .*an Einsum is left",
    ),
    "cannot tell whether it kept its promise": ({"ensures": _unknown}, "did not do .* x: its type is not known"),
    "makes no valid graph": ({"rewrite": _invalid}, "gate operators: .*NoSuchOperator"),
}


@pytest.fixture
def changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, Any]], Work]:
    """Return a job with a rewrite that differs from one that does nothing."""

    def make(change: dict[str, Any]) -> Work:
        good = Rewrite(name="bad", summary="bad", requires=always, rewrite=lambda _model, _given: [], ensures=always)
        monkeypatch.setattr(rewrites, "known", lambda: {"bad": dataclasses.replace(good, **change)})
        model, feeds = einsum()
        return work_of(tmp_path, model, ["bad"], {"one": feeds})

    return make


@pytest.mark.parametrize(("change", "words"), BAD.values(), ids=BAD.keys())
def test_a_rewrite_that_is_wrong_fails(
    change: dict[str, Any], words: str, changed: Callable[[dict[str, Any]], Work]
) -> None:
    with pytest.raises(Failed, match=words) as failed:
        adapter.rewrite(changed(change))
    assert failed.value.failure.kind is Kind.REWRITE


@pytest.mark.parametrize(
    ("change", "words", "place"),
    [
        ({"rewrite": _unsuitable}, "node n (Relu): has no size", ("n", "Relu")),
        ({"requires": lambda _model: "node without a name (Relu): too old"}, "too old", ("", "Relu")),
        ({"requires": lambda _model: "too old"}, "too old", ("", "")),
        ({"requires": _unknown}, "x: its type is not known", ("", "")),
    ],
)
def test_a_graph_that_a_rewrite_cannot_take_is_refused_and_the_node_is_named(
    change: dict[str, Any], words: str, place: tuple[str, str], changed: Callable[[dict[str, Any]], Work]
) -> None:
    with pytest.raises(Refused) as refused:
        adapter.rewrite(changed(change))
    failure = refused.value.failure
    assert (failure.kind, failure.node, failure.op) == (Kind.REWRITE, *place)
    assert failure.message.startswith("rewrite bad: ")
    assert failure.message.endswith(words)


def test_an_answer_far_from_the_golden_one_fails_too(tmp_path: Path) -> None:
    model, feeds = einsum()
    golden = {"one": {"y": run(model, feeds)["y"] * np.float32(1.01)}}
    work = work_of(tmp_path, model, ["einsum_to_matmul"], {"one": feeds}, golden)
    with pytest.raises(Failed, match="gate agreement: output y, sample one: .*the reference"):
        adapter.rewrite(work)


def test_a_half_precision_model_is_held_to_what_halves_can_do(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    a, b = (rng.normal(size=(40, 50)).astype(np.float32) for _ in range(2))
    nodes = [
        node("Cast", ["a"], ["h"], to=TensorProto.FLOAT16),
        node("Einsum", ["h", "w"], ["p"], equation="ij,kj->ik"),
        node("Cast", ["p"], ["y"], to=TensorProto.FLOAT),
    ]
    model = build(nodes, {"a": a}, ["y"], constants={"w": b.astype(np.float16)})
    golden = {"one": {"y": a @ b.T}}
    exact = export.compare(golden, {"one": run(model, {"a": a})}, "numpy", export.Tolerance(cosine=1.0, snr_db=80.0))
    assert exact.problems
    work = work_of(tmp_path, model, ["einsum_to_matmul"], {"one": {"a": a}}, golden)
    assert adapter.rewrite(work)["changed"]["einsum_to_matmul"] == ["node_p"]


@pytest.mark.parametrize(("name", "width"), [("einsum_to_matmul", 4), ("fp16", 2)])
def test_data_outside_the_file_stays_outside(name: str, width: int, tmp_path: Path) -> None:
    weights = np.random.default_rng(1).normal(size=(60, 50)).astype(np.float32)
    x = np.ones((2, 60), np.float32)
    model = build([node("Einsum", ["x", "w"], ["y"], equation="ij,jk")], {"x": x}, ["y"], constants={"w": weights})
    golden = {"one": run(model, {"x": x})}
    folder = tmp_path / "source"
    folder.mkdir()
    onnx.save(model, folder / "model.onnx", save_as_external_data=True, location="there.bin", size_threshold=0)
    work = work_of(tmp_path / "work", folder, [name], {"one": {"x": x}}, golden)
    facts = adapter.rewrite(work)
    held = {file.name: file.stat().st_size for file in (work.layout.outputs / "model").iterdir()}
    assert set(held) == {"model.onnx", "model.onnx.data"}
    assert held["model.onnx.data"] == weights.size * width
    assert facts["size_bytes"] == sum(held.values())


def test_a_large_model_is_tried_slice_by_slice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewrite, "LEAN_BYTES", 0)
    model, feeds = einsum()
    facts = adapter.rewrite(work_of(tmp_path, model, ["einsum_to_matmul"], {"one": feeds}))
    assert "fp16_range" in {gate["name"] for gate in facts["gates"]}
    assert facts["agreement"]["y"]["snr_db"] > 100


def test_a_half_that_overflows_inside_a_large_model_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What becomes infinite is clipped: the outputs are those of the model before."""
    monkeypatch.setattr(rewrite, "LEAN_BYTES", 0)
    monkeypatch.setattr(slices, "SLICE_BYTES", 64)
    weights = {f"w{number}": np.eye(8, dtype=np.float32) for number in range(3)}
    nodes = [
        *(node("MatMul", ["x", "w0"], ["a"]), node("Mul", ["a", "k"], ["b"]), node("MatMul", ["b", "w1"], ["c"])),
        *(node("Clip", ["c", "", "k"], ["d"]), node("MatMul", ["d", "w2"], ["y"])),
    ]
    x = np.linspace(100, 300, 16, dtype=np.float32).reshape(2, 8)
    model = build(nodes, {"x": x}, ["y"], constants={**weights, "k": np.array(1000, np.float32)})
    half = dataclasses.replace(rewrites.find("fp16"), rewrite=_halve)
    monkeypatch.setattr(rewrites, "known", lambda: {"fp16": half})
    with pytest.raises(Failed, match=r"gate fp16_range: node node_b \(Mul\): its float16 output b reaches "):
        adapter.rewrite(work_of(tmp_path, model, ["fp16"], {"one": {"x": x}}))


def test_data_outside_the_folder_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret.bin").write_bytes(b"0" * 12)
    work = work_of(tmp_path / "work", outside("../../../secret.bin"), ["einsum_to_matmul"])
    with pytest.raises(Failed, match="the file to rewrite does not hold: gate external_data: .* no path below"):
        adapter.rewrite(work)


def test_what_no_graph_can_be_read_from_fails(tmp_path: Path) -> None:
    work = work_of(tmp_path, same_output_twice(), ["sort_nodes"])
    with pytest.raises(Failed, match="onnx_ir does not read the file: Output 'a' is redeclared"):
        adapter.rewrite(work)


def test_equal_inputs_give_equal_bytes_in_another_process(tmp_path: Path) -> None:
    model, _feeds = einsum()
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    code = """
import sys, pathlib
from runtimes.reference import rewrite, rewrites
from runtimes.contract import Job, Layout, Step
from runtimes.kit.work import Work
layout = Layout(pathlib.Path(sys.argv[1]))
options = {"rewrites": [{"name": "einsum_to_matmul"}]}
rewrite.rewrite(Work(layout, Job(step=Step.REWRITE, runtime="reference", inputs=("model",), options=options)))
"""
    root = str(Path(next(iter(runtimes.__path__))).parent)
    hashes = set()
    for seed in ("1", "2"):
        layout = work_of(tmp_path / seed, model, []).layout
        environment = {"PYTHONPATH": root, "PYTHONHASHSEED": seed, "PYTHONDONTWRITEBYTECODE": "1"}
        subprocess.run([sys.executable, "-P", "-c", code, str(layout.root)], check=True, env=environment)
        hashes.add(hashlib.sha256((layout.outputs / "model" / "model.onnx").read_bytes()).hexdigest())
    assert len(hashes) == 1


def test_a_job_in_the_reference_environment_rewrites(reference_python: Path, tmp_path: Path) -> None:
    model, feeds = einsum()
    work = work_of(tmp_path / "made", model, [], {"one": feeds})
    bench = Bench(tmp_path, reference_python)
    inputs = {name: work.layout.inputs / name for name in ("model", "samples", "golden")}
    chosen = [{"name": "einsum_to_matmul"}, {"name": "fp16"}, {"name": "lower_opset", "options": {"opset": 15}}]
    ended = bench.job("good", Step.REWRITE, inputs, {"rewrites": chosen})
    assert ended.facts["opset"] == 15
    assert all(ended.facts["changed"].values())
    assert ended.samples("cpu")["one"]["y"].dtype == np.float32
    failed = bench.job("bad", Step.REWRITE, inputs, {"rewrites": [{"name": "lower_opset"}]})
    assert failed.result.status is Status.REFUSED
    assert failed.failure.kind is Kind.REWRITE
    unknown = bench.job("unknown", Step.REWRITE, inputs, {"rewrites": [{"name": "no_such"}]})
    assert unknown.result.status is Status.REFUSED
