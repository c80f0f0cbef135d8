"""`inspect` shows single nodes of an ONNX file: what goes in and out, with sizes, and the attributes."""

from __future__ import annotations

from pathlib import Path

import pytest

from runtimes.contract import Job, Json, Layout, Step
from runtimes.kit.work import Refused, Work
from runtimes.reference import adapter
from tests.runtimes.test_rewrite_step import einsum

EINSUM = {
    "name": "node_y",
    "op": "Einsum",
    "domain": "",
    "inputs": ["r float[3,4]", "b float[3,4]"],
    "outputs": ["y float[3,3]"],
    "attributes": {"equation": "ij,kj->ik"},
}


def inspected(root: Path, name: str, **options: str) -> Json:
    layout = Layout(root)
    (layout.inputs / "file").mkdir(parents=True)
    (layout.inputs / "file" / name).write_bytes(einsum()[0].SerializeToString())
    return adapter.inspect(Work(layout, Job(step=Step.INSPECT, runtime="reference", inputs=("file",), options=options)))


def test_nodes_of_an_operator_are_shown(tmp_path: Path) -> None:
    assert inspected(tmp_path, "model.onnx", op="Einsum")["matches"] == [EINSUM]


def test_a_node_is_shown_by_its_name(tmp_path: Path) -> None:
    assert inspected(tmp_path, "model.onnx", node="node_y")["matches"] == [EINSUM]


def test_operator_and_name_must_both_fit(tmp_path: Path) -> None:
    assert inspected(tmp_path, "model.onnx", op="Relu", node="node_y")["matches"] == []


def test_nothing_is_shown_where_nothing_is_asked_for(tmp_path: Path) -> None:
    assert "matches" not in inspected(tmp_path, "model.onnx")


def test_a_file_without_operators_is_refused(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    (layout.inputs / "file").mkdir(parents=True)
    (layout.inputs / "file" / "net.param").write_text("7767517\n0 0\n")
    job = Job(step=Step.INSPECT, runtime="reference", inputs=("file",), options={"op": "Relu"})
    with pytest.raises(Refused, match="has no operators"):
        adapter.inspect(Work(layout, job))
