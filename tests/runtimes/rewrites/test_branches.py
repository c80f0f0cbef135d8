"""`inline_branches`: no If and no function is left, and the answers stay what they were for either condition."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from tests.runtimes.rewrites.graphs import assert_same, build, node, operators, rewritten, with_which

X = np.random.default_rng(2).normal(size=(2, 3)).astype(np.float32)


@pytest.mark.parametrize("which", [True, False])
@pytest.mark.parametrize("place", ["branch", "nested"])
def test_both_branches_are_calculated_and_one_is_chosen(place: str, which: bool) -> None:
    nodes = [node("Relu", ["x"], ["a"]), node("Add", ["a", "w"], ["y"])]
    before = build(nodes, {"x": X}, ["y"], place=place, constants={"w": X})
    after, changed = rewritten(before, "inline_branches")
    assert min(changed).startswith("if_0")
    assert operators(after) == {"Relu", "Add", "Where"}
    assert_same(before, after, with_which({"x": X}, place, which=which))


UNARY = ("Relu", "Neg", "Sigmoid", "Exp", "Identity", "Abs")


@settings(max_examples=40, deadline=None)
@given(
    yes=st.lists(st.sampled_from(UNARY), min_size=0, max_size=3),
    no=st.lists(st.sampled_from(UNARY), min_size=0, max_size=3),
    condition=st.sampled_from(["input", "constant", "calculated"]),
    which=st.booleans(),
    last=st.booleans(),
)
def test_any_two_branches_give_the_same(yes: list[str], no: list[str], condition: str, which: bool, last: bool) -> None:
    before = choice(yes, no, condition, which, last=last)
    feeds = {"x": X, **({"c": np.array(which)} if condition == "input" else {})}
    after, changed = rewritten(before, "inline_branches")
    assert changed == ["choice"]
    assert "If" not in operators(after)
    assert ("Where" in operators(after)) == (condition == "input")
    assert_same(before, after, feeds)


def choice(yes: list[str], no: list[str], condition: str, which: bool, *, last: bool) -> onnx.ModelProto:
    """A model with one If: branches of unary nodes, which may give what is outside or a constant of their own."""
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)]
    nodes = []
    if condition == "input":
        inputs.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
    elif condition == "constant":
        nodes.append(node("Constant", [], ["c"], value=numpy_helper.from_array(np.array(which))))
    else:
        limit = numpy_helper.from_array(np.array(3 if which else 7))
        nodes += [
            *(node("Constant", [], ["limit"], value=limit), node("Size", ["x"], ["size"])),
            node("Greater", ["size", "limit"], ["c"]),
        ]
    branches = {"then_branch": branch("yes", yes), "else_branch": branch("no", no)}
    nodes.append(node("If", ["c"], ["y"] if last else ["r"], "choice", **branches))
    nodes += [] if last else [node("Relu", ["r"], ["y"])]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, X.shape)
    graph = helper.make_graph(nodes, "graph", inputs, [output])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def branch(name: str, chain: list[str]) -> onnx.GraphProto:
    names = ["x", *(f"{name}{index}" for index in range(len(chain)))]
    nodes = [node(operator, [names[i]], [names[i + 1]]) for i, operator in enumerate(chain)]
    weights = [] if nodes else [numpy_helper.from_array(X * 2, f"{name}_weights")]
    given = names[-1] if nodes else f"{name}_weights"
    output = helper.make_tensor_value_info(given, TensorProto.FLOAT, X.shape)
    return helper.make_graph(nodes, name, [], [output], weights)


def refused(model: onnx.ModelProto) -> str:
    with pytest.raises(AssertionError) as failed:
        rewritten(model, "inline_branches")
    return str(failed.value)


def test_branches_of_two_sizes_are_left_and_told() -> None:
    before = choice(["Relu"], [], "input", True, last=True)
    (small,) = (each.g for each in before.graph.node[0].attribute if each.name == "else_branch")
    small.initializer[0].CopyFrom(numpy_helper.from_array(X[:1], small.initializer[0].name))
    small.output[0].type.tensor_type.shape.dim[0].dim_value = 1
    before.graph.output[0].type.tensor_type.shape.dim[0].dim_param = "n"
    assert "node choice (If) is left: its branches give" in refused(before)


def test_a_division_of_integers_is_not_done_where_it_was_not() -> None:
    feeds = {"n": np.array([6, 8]), "d": np.array([1, 2])}
    before = build([node("Div", ["n", "d"], ["y"])], feeds, ["y"], place="branch")
    assert "(Div) may not run where it did not" in refused(before)


def test_functions_are_inlined() -> None:
    body = [node("Mul", ["a", "a"], ["b"])]
    function = helper.make_function("own", "Square", ["a"], ["b"], body, [helper.make_opsetid("", 17)])
    square = helper.make_node("Square", ["x"], ["y"], "square", domain="own")
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, X.shape) for name in "xy")
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    graph = helper.make_graph([square], "graph", [x], [y])
    before = helper.make_model(graph, functions=[function], opset_imports=opsets, ir_version=8)
    after, changed = rewritten(before, "inline_branches")
    assert changed == ["function Square"]
    assert [each.op_type for each in after.graph.node] == ["Mul"]
    assert not after.functions
    assert_same(before, after, {"x": X})


def test_a_graph_without_branches_is_left_alone() -> None:
    before = build([node("Relu", ["x"], ["y"])], {"x": X}, ["y"])
    assert rewritten(before, "inline_branches")[1] == []
    assert ir.from_proto(before).graph.num_nodes() == 1


def test_a_branch_whose_condition_hangs_on_the_size_of_what_another_gives_becomes_the_one_that_is_taken() -> None:
    def side(nodes: list[onnx.NodeProto], answer: str, rank: int) -> onnx.GraphProto:
        typed = helper.make_tensor_value_info(answer, TensorProto.FLOAT, [None] * rank)
        return helper.make_graph(nodes, f"of {answer}", [], [typed])

    nodes = [
        node("If", ["flag"], ["r"], "outer", then_branch=side([node("Relu", ["x"], ["a"])], "a", 2)),
        *(node("Shape", ["r"], ["shape"]), node("Gather", ["shape", "one"], ["size"])),
        node("Equal", ["size", "three"], ["is_three"]),
        node("If", ["is_three"], ["s"], "inner", then_branch=side([node("Neg", ["r"], ["b"])], "b", 2)),
        node("Identity", ["s"], ["y"]),
    ]
    nodes[0].attribute.append(helper.make_attribute("else_branch", side([node("Transpose", ["x"], ["c"])], "c", 2)))
    flat = [node("Unsqueeze", ["r", "axis"], ["d"])]
    nodes[4].attribute.append(helper.make_attribute("else_branch", side(flat, "d", 3)))
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, X.shape)],
        [
            *(numpy_helper.from_array(np.array(True), "flag"), numpy_helper.from_array(np.array(1), "one")),
            *(numpy_helper.from_array(np.array(3), "three"), numpy_helper.from_array(np.array([0]), "axis")),
        ],
    )
    before = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    after, changed = rewritten(before, "inline_branches")
    assert sorted(changed) == ["inner", "outer"]
    assert operators(after) <= {"Relu", "Neg", "Identity"}
    assert_same(before, after, {"x": X})
