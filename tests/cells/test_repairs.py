"""Repairs from command to verdict: a runtime that does not take an operator, or calculates it badly, and its lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.command import Aipc, Done

REFUSES = """    import onnxruntime
    from runtimes.contract import Kind
    from runtimes.kit.work import refuse
    graph = (work.input("model") / "model.onnx").read_bytes()
    for op in OPS:
        if b"\\x22" + bytes([len(op)]) + op.encode() in graph:  # field 4 of a node: its operator
            refuse(Kind.UNSUPPORTED_OP, f"Unsupported nodes: {op}", op=op, node="/attention")
"""
MISCALCULATES = """    import onnxruntime
    graph = (work.input("model") / "model.onnx").read_bytes()
    wrong = b"\\x22\\x06Einsum" in graph
"""
EINSUM = """
[[repairs]]
rewrite = "einsum_to_matmul"
kinds = ["unsupported_op"]
ops = ["Einsum"]
"""


@pytest.fixture
def net(tmp_path: Path) -> Path:
    """An ONNX file with an Einsum of two operands."""
    return save(tmp_path / "net.onnx", graph())


def graph() -> onnx.ModelProto:
    draw = np.random.default_rng(3)
    weight = numpy_helper.from_array(draw.normal(size=(4, 6)).astype(np.float32), "weight")
    nodes = [
        helper.make_node("Einsum", ["x", "weight"], ["mixed"], "/attention", equation="bnc,cd->bnd"),
        helper.make_node("Tanh", ["mixed"], ["y"], "/activation"),
    ]
    made = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 5, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 5, 6])],
        [weight],
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def save(path: Path, model: onnx.ModelProto) -> Path:
    path.write_bytes(model.SerializeToString())
    return path


class Picky:
    """The sixth runtime of a checkout, which does not take some operators, and its repairs.toml."""

    def __init__(self, aipc: Aipc, checkout: Path, net: Path) -> None:
        self.aipc = aipc
        self.folder = checkout / "runtimes" / "sixth"
        self.net = net

    def refuse(self, *ops: str) -> None:
        text = (self.folder / "adapter.py").read_text().replace("    import onnxruntime\n", REFUSES, 1)
        (self.folder / "adapter.py").write_text(f"{text}\n\nOPS = {ops!r}\n")

    def miscalculate(self) -> None:
        """Add 0.5 to every answer of a model with an Einsum."""
        text = (self.folder / "adapter.py").read_text().replace("    import onnxruntime\n", MISCALCULATES, 1)
        for old, new in (
            ('    return {"placement"', '    (artifact / "wrong").write_text(str(wrong))\n    return {"placement"'),
            ("value.dtype.type(OFFSET)", '0.5 * ((work.input("artifact") / "wrong").read_text() == "True")'),
        ):
            assert old in text
            text = text.replace(old, new)
        (self.folder / "adapter.py").write_text(text)

    def repairs(self, text: str) -> None:
        (self.folder / "repairs.toml").write_text(text)

    def deploy(self, *more: str) -> Done:
        return self.aipc.deploy(str(self.net), "--runtime", "sixth", "--engine", "venv", *more)

    def report(self) -> dict[str, Any]:
        return self.aipc.report()

    def tried(self) -> list[tuple[str, str, int, bool]]:
        """Return for each repair its name, how it ended, how much it changed and whether it helped."""
        return [
            (each["rewrite"], each["status"], len(each["changed"]), each["helped"]) for each in self.report()["repairs"]
        ]


@pytest.fixture
def picky(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, sixth: Path, net: Path) -> Picky:
    """The runtime; all tests share a store: what comes before the toolchain is the same each time."""
    store = tmp_path_factory.getbasetemp() / "repair-store"
    return Picky(Aipc(tmp_path, {"AIPC_HOME": str(sixth), "AIPC_STORE": str(store)}), sixth, net)


def test_an_operator_that_is_not_taken_is_rewritten_and_the_report_says_so(picky: Picky) -> None:
    picky.refuse("Einsum")
    picky.repairs(EINSUM)
    done = picky.deploy()
    assert done.code == 0, done.out + done.error
    report = picky.report()
    assert report["verdict"] == "agrees"
    assert picky.tried() == [("einsum_to_matmul", "done", 1, True)]
    symptom = report["repairs"][0]["symptom"]
    assert (symptom["step"], symptom["kind"], symptom["op"]) == ("convert", "unsupported_op", "Einsum")
    assert [each["step"] for each in report["stages"]] == [
        *("prepare", "export", "convert", "rewrite", "convert", "run", "judge")
    ]
    assert "Einsum" not in report["export"]["nodes"]
    assert report["artifact"]["manifest"]["rewrites"] == ["einsum_to_matmul"]
    assert "einsum_to_matmul for operator Einsum, node /attention (convert): 1 place changed, helped" in done.out
    again = picky.deploy()
    assert again.out.count("in the store") == 7, again.out


def test_an_operator_that_no_rewrite_mends_is_named_with_the_runtime_and_what_was_tried(picky: Picky) -> None:
    picky.refuse("Tanh")
    picky.repairs('[[repairs]]\nrewrite = "unique_names"\n' + EINSUM.replace('ops = ["Einsum"]', ""))
    done = picky.deploy()
    assert done.code == 1
    report = picky.report()
    assert report["verdict"] == "refused"
    assert picky.tried() == [("unique_names", "done", 0, False), ("einsum_to_matmul", "done", 1, False)]
    (said,) = [reason for reason in report["reasons"] if "rewrites that were tried" in reason]
    for word in ("A sixth runtime", "operator Tanh", "node /attention", "unique_names", "einsum_to_matmul"):
        assert word in said
    assert said in done.out
    assert report["artifact"] is None


def test_a_rewrite_that_cannot_be_done_is_written_down_and_the_next_line_has_its_turn(picky: Picky) -> None:
    picky.refuse("Einsum")
    picky.repairs('[[repairs]]\nrewrite = "lower_opset"\noptions = { opset = -1 }\n' + EINSUM)
    done = picky.deploy()
    assert done.code == 0, done.out + done.error
    (first, second) = picky.report()["repairs"]
    assert (first["rewrite"], first["changed"], first["helped"]) == ("lower_opset", [], False)
    assert first["status"] != "done"
    assert first["problem"]
    assert (second["rewrite"], second["helped"]) == ("einsum_to_matmul", True)
    again = picky.deploy()
    assert again.out.count("in the store") == len(picky.report()["stages"]), again.out


def test_what_always_comes_first_and_cannot_be_done_refuses_the_model_and_names_the_node(picky: Picky) -> None:
    model = graph()
    model.graph.node[1].CopyFrom(helper.make_node("Pad", ["mixed", "pads"], ["y"], "/border", mode="wrap"))
    model.graph.initializer.append(numpy_helper.from_array(np.zeros(6, np.int64), "pads"))
    model.opset_import[0].version = 19
    model.ir_version = 9
    save(picky.net, model)
    picky.repairs('[[always]]\nrewrite = "lower_opset"\noptions = { opset = 18 }\n')
    done = picky.deploy()
    assert done.code == 1
    report = picky.report()
    assert report["verdict"] == "refused"
    failure = report["failure"]["failure"]
    assert (failure["kind"], failure["op"], failure["node"]) == ("rewrite", "Pad", "/border"), failure
    assert any("operator Pad, node /border" in reason for reason in report["reasons"]), report["reasons"]


def test_wrong_numbers_lead_to_a_rewrite_too(picky: Picky) -> None:
    picky.miscalculate()
    picky.repairs('[[repairs]]\nrewrite = "einsum_to_matmul"\nverdict = "disagrees"\n')
    done = picky.deploy()
    assert done.code == 0, done.out + done.error
    assert picky.tried() == [("einsum_to_matmul", "done", 1, True)]
    assert [each["step"] for each in picky.report()["stages"]].count("judge") == 2


def test_a_rewrite_that_brings_a_failure_does_not_cost_the_verdict(picky: Picky) -> None:
    picky.miscalculate()
    picky.refuse("MatMul")
    picky.repairs('[[repairs]]\nrewrite = "einsum_to_matmul"\nverdict = "disagrees"\n')
    done = picky.deploy()
    assert done.code == 1
    report = picky.report()
    assert report["verdict"] == "disagrees", report["reasons"]
    assert picky.tried() == [("einsum_to_matmul", "done", 1, False)]
    assert "1 place changed, did not help and was taken back" in done.out
    assert "Einsum" in report["export"]["nodes"]
    assert report["artifact"]["manifest"]["rewrites"] == []
    assert report["bisection"]["first"]["op"] == "Einsum"


def test_what_always_comes_first_comes_before_the_first_conversion_for_its_precisions(picky: Picky) -> None:
    picky.refuse("Einsum")
    picky.repairs('[[always]]\nrewrite = "einsum_to_matmul"\nprecisions = ["fp32"]\n')
    done = picky.deploy()
    assert done.code == 0, done.out + done.error
    assert picky.tried() == [("einsum_to_matmul", "done", 1, False)]
    report = picky.report()
    assert report["repairs"][0]["symptom"] is None
    assert [each["step"] for each in report["stages"]] == ["prepare", "export", "rewrite", "convert", "run", "judge"]


def test_a_given_file_that_is_out_of_order_is_repaired_before_it_is_taken(picky: Picky) -> None:
    model = graph()
    nodes = list(model.graph.node)[::-1]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    save(picky.net, model)
    reference = picky.folder.parent / "reference" / "repairs.toml"
    reference.write_text('[[repairs]]\nrewrite = "sort_nodes"\nkinds = ["invalid_model"]\n')
    done = picky.deploy()
    assert done.code == 0, done.out + done.error
    assert picky.tried() == [("sort_nodes", "done", 2, True)]
    assert any("was repaired before it was taken: sort_nodes" in note for note in picky.report()["notes"])


def test_where_a_runtime_goes_wrong_is_found_and_the_piece_lies_beside_the_report(picky: Picky) -> None:
    picky.miscalculate()
    done = picky.deploy()
    assert done.code == 1
    report = picky.report()
    assert report["verdict"] == "disagrees"
    assert report["bisection"]["first"]["op"] == "Einsum"
    assert "The first bad node is /attention (Einsum)" in done.out
    (piece,) = picky.aipc.runs.rglob("first-bad/model/model.onnx")
    assert [node.op_type for node in onnx.load(piece).graph.node] == ["Einsum"]
    assert json.loads(next(picky.aipc.runs.rglob("report.json")).read_text())["piece_folder"] == "first-bad"
