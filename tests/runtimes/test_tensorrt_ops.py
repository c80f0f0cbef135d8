"""Which operators TensorRT for RTX takes: the list is measured, and the docs say the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tests.runtimes.openvino_jobs import ROOT
from tests.runtimes.tensorrt_jobs import Jobs
from tests.runtimes.tensorrt_ops import PROGRAM, REFUSED, cases, typed

DOCS = ROOT.parent / "docs" / "runtimes" / "tensorrt.md"


def test_the_operators_that_are_not_taken_are_those_of_the_list_each_named_with_its_node(
    tmp_path: Path, environment_python: Callable[[str], Path]
) -> None:
    known = list(cases())
    folder = tmp_path / "models"
    folder.mkdir()
    for number, each in enumerate(known):
        (folder / f"{number}.onnx").write_bytes(typed(each))
    found = Jobs(tmp_path, environment_python("tensorrt")).program(PROGRAM, str(folder))
    lines = [json.loads(line) for line in found if line.startswith("[")]
    assert len(lines) == len(known)
    refused = {}
    for number, kind, op, node, _ in lines:
        each = known[int(number)]
        if kind != "built":
            refused[each.name] = kind
        if kind == "unsupported_op":
            assert (op, node) == (each.op, f"/the/{each.op}")
    assert refused == dict(REFUSED)


def test_the_docs_name_every_operator_that_is_not_taken() -> None:
    text = DOCS.read_text(encoding="utf-8")
    ops = {each.op for each in cases() if each.name in REFUSED}
    assert [op for op in sorted(ops - {"Relu", "ConstantOfShape"}) if f"`{op}`" not in text] == []
