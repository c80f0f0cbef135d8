"""What is said to differ between two models: the nodes, else the weights, else the graph; descriptions never."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from runtimes.reference import differences
from tests.runtimes.rewrites.graphs import build, node, run

X = np.ones((2, 3), np.float32)


def model() -> onnx.ModelProto:
    nodes = [
        node("Relu", ["x"], ["a"], "relu"),
        node("LeakyRelu", ["a"], ["b"], "leaky", alpha=0.5),
        node("Add", ["b", "w"], ["y"], "add"),
    ]
    return build(nodes, {"x": X}, ["y"], constants={"w": np.array([1, 2, 3], np.float32)})


def edited(edit: Callable[[onnx.ModelProto], object]) -> list[str]:
    made = model()
    edit(made)
    return differences.between(model(), made)


def nested(made: onnx.ModelProto, alpha: float) -> None:
    """Put an If around nodes of the same names, with another number deep inside."""
    inner = node("Elu", ["x"], ["in"], "elu", alpha=alpha)
    branch = helper.make_graph([inner], "branch", [], [onnx.ValueInfoProto(name="in")])
    made.graph.node.append(node("If", ["c"], ["z"], "if", then_branch=branch, else_branch=branch))


def in_another_order(made: onnx.ModelProto) -> None:
    made.graph.node.insert(0, made.graph.node.pop(1))


@pytest.mark.parametrize(
    ("edit", "names"),
    [
        (lambda made: made.graph.node[0].ClearField("name"), ["relu", "node without a name (Relu)"]),
        (lambda made: setattr(made.graph.node[0], "op_type", "Abs"), ["relu"]),
        (lambda made: setattr(made.graph.node[1].attribute[0], "f", 0.25), ["leaky"]),
        (lambda made: made.graph.node.append(node("Abs", ["x"], ["z"], "new")), ["new"]),
        (lambda made: made.graph.node.pop(1), ["leaky"]),
        (lambda made: made.graph.initializer[0].CopyFrom(numpy_helper.from_array(X[0], "w")), ["w"]),
        (lambda made: made.graph.initializer.add(name="more", data_type=1, dims=[0]), ["more"]),
        (in_another_order, [differences.GRAPH]),
        (lambda made: setattr(made.opset_import[0], "version", 18), [differences.GRAPH]),
        (lambda made: made.graph.output.pop(), [differences.GRAPH]),
    ],
)
def test_what_differs_is_named(edit: Callable[[onnx.ModelProto], object], names: list[str]) -> None:
    assert edited(edit) == names


def other_storage(made: onnx.ModelProto) -> None:
    weight = made.graph.initializer[0]
    values = numpy_helper.to_array(weight)
    weight.ClearField("raw_data")
    weight.float_data.extend(float(each) for each in values)


@pytest.mark.parametrize(
    "edit",
    [
        lambda made: setattr(made, "producer_name", "somebody"),
        lambda made: setattr(made.graph.node[0], "doc_string", "from a stack trace"),
        lambda made: made.graph.node[0].metadata_props.add(key="scope", value="net"),
        lambda made: made.graph.value_info.add(name="a"),
        lambda made: made.opset_import.add(domain="com.microsoft", version=1),
        lambda made: setattr(made.graph.node[0], "domain", "ai.onnx"),
        other_storage,
    ],
)
def test_what_says_nothing_of_the_calculation_does_not_count(edit: Callable[[onnx.ModelProto], object]) -> None:
    assert edited(edit) == []


def test_a_number_deep_inside_a_branch_counts_and_its_descriptions_do_not() -> None:
    before, same, other = model(), model(), model()
    nested(before, 1.0)
    nested(same, 1.0)
    nested(other, 0.5)
    same.graph.node[3].attribute[0].g.value_info.add(name="in")
    same.graph.node[3].attribute[0].g.node[0].doc_string = "said"
    assert differences.between(before, same) == []
    assert differences.between(before, other) == ["if"]


def test_data_outside_is_compared_by_its_values_where_its_folder_is_known(tmp_path: Path) -> None:
    made = []
    for name, weights in (("a", [1, 2, 3]), ("b", [1, 2, 3]), ("c", [1, 2, 4])):
        folder = tmp_path / name
        folder.mkdir()
        kept = model()
        kept.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.array(weights, np.float32), "w"))
        assert run(kept, {"x": X})["y"].shape == (2, 3)
        onnx.save(kept, folder / "model.onnx", save_as_external_data=True, location="there.bin", size_threshold=0)
        made.append((onnx.load(folder / "model.onnx", load_external_data=False), folder))
    (first, a), (second, b), (third, c) = made
    assert differences.between(first, second, a, b) == []
    assert differences.between(first, third, a, c) == ["w"]
    assert differences.between(first, third) == []
    assert differences.between(first, model(), a) == []
