"""Small graphs around the nodes under test, and what a rewrite makes of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
from onnx import NodeProto, TensorProto, helper, numpy_helper

from runtimes.kit.tensors import Array
from runtimes.reference import edits, rewrites, structure
from runtimes.reference.rewrites import Given

PLACES = ("output", "inside", "used_twice", "branch", "nested")
"""Where the nodes under test stand.

`output`: what they give is the model's output. `inside`: another node takes it. `used_twice`: both, and once more.
`branch`: in both branches of an If that takes the inputs from around it. `nested`: in an If inside an If.
"""

Feeds = Mapping[str, Array]


def node(
    operator: str, takes: Sequence[str], gives: Sequence[str], name: str | None = None, **attributes: Any
) -> NodeProto:
    return helper.make_node(operator, takes, gives, name or f"node_{gives[0]}", **attributes)


def build(
    nodes: Sequence[NodeProto],
    feeds: Feeds,
    outputs: Sequence[str],
    *,
    opset: int = 17,
    place: str = "output",
    constants: Feeds | None = None,
) -> onnx.ModelProto:
    """Return a model of `nodes`.

    Args:
        nodes: in order.
        feeds: example inputs by name; the model's inputs have their types and sizes.
        outputs: what the nodes give that is looked at.
        opset: of ONNX's own operators.
        place: one of `PLACES`.
        constants: initializers by name.
    """
    placed, given = _place(nodes, outputs, place)
    inputs = [_typed(name, array) for name, array in feeds.items()]
    if place in {"branch", "nested"}:
        inputs.append(helper.make_tensor_value_info("which", TensorProto.BOOL, []))
    weights = [numpy_helper.from_array(np.asarray(array), name) for name, array in (constants or {}).items()]
    untyped = [onnx.ValueInfoProto(name=name) for name in given]
    graph = helper.make_graph(placed, "graph", inputs, untyped, weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=min(10, onnx.IR_VERSION))
    found = run(made, with_which(feeds, place))
    del made.graph.output[:]
    made.graph.output.extend(_typed(name, array) for name, array in found.items())
    onnx.checker.check_model(made, full_check=True)
    return made


def with_which(feeds: Feeds, place: str, *, which: bool = True) -> dict[str, Array]:
    """Return `feeds`, and which branch to take where the nodes stand in one."""
    return {**feeds, **({"which": np.array(which)} if place in {"branch", "nested"} else {})}


def run(model: onnx.ModelProto, feeds: Feeds) -> dict[str, Array]:
    """Return what ONNX Runtime makes of `feeds`, with nothing optimised."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(feeds)), strict=True))


def rewritten(
    model: onnx.ModelProto, name: str, samples: Mapping[str, Feeds] | None = None, **options: Any
) -> tuple[onnx.ModelProto, list[str]]:
    """Return what the rewrite called `name` makes of a model, as the step does it, and what it says that it changed.

    What it makes is checked: onnx's checker with shapes and types, the inputs and outputs, `ensures`.
    """
    rewrite = rewrites.find(name)
    proto = onnx.ModelProto()
    proto.CopyFrom(model)
    changed = rewrite.mend(proto) if rewrite.mend else []
    graph = ir.from_proto(proto)
    edits.infer(graph)
    why = rewrite.requires(graph)
    assert why == "", why
    changed += rewrite.rewrite(graph, Given(options=options, samples=samples or {}, calibration=samples or {}))
    if changed:
        edits.tidy(graph)
    left = rewrite.ensures(graph)
    assert left == "", left
    made = ir.to_proto(graph)
    onnx.checker.check_model(made, full_check=True)
    assert ports(made) == ports(model)
    return made, changed


def obstacle(model: onnx.ModelProto, name: str) -> str:
    """Return why the rewrite called `name` cannot be tried on a model, or ""."""
    graph = ir.from_proto(model)
    edits.infer(graph)
    return rewrites.find(name).requires(graph)


def ports(model: onnx.ModelProto) -> list[tuple[str, int, Any]]:
    """Return name, type and sizes of each input and output, in order."""
    values = (*structure.inputs_of(model.graph), *model.graph.output)
    return [(value.name, value.type.tensor_type.elem_type, structure.sizes_of(value)) for value in values]


def operators(model: onnx.ModelProto) -> set[str]:
    """Return the operators of a model, in subgraphs too."""
    return {each.op_type for each in structure.nodes_of(model)}


def assert_same(before: onnx.ModelProto, after: onnx.ModelProto, feeds: Feeds, *, relative: float = 2e-5) -> None:
    """Assert that two models give the same: within `relative` of the largest value, integers exactly."""
    old, new = run(before, feeds), run(after, feeds)
    assert list(old) == list(new)
    for name, expected in old.items():
        found = new[name]
        assert found.dtype == expected.dtype
        assert found.shape == expected.shape
        if expected.dtype.kind != "f":
            np.testing.assert_array_equal(found, expected)
            continue
        finite = np.isfinite(expected)
        scale = float(np.abs(expected[finite]).max(initial=0.0)) or 1.0
        np.testing.assert_allclose(found, expected, rtol=relative, atol=relative * scale)


def _place(nodes: Sequence[NodeProto], outputs: Sequence[str], place: str) -> tuple[list[NodeProto], list[str]]:
    if place == "output":
        return list(nodes), list(outputs)
    behind = [node("Identity", [name], [f"{name}_behind"]) for name in outputs]
    if place == "inside":
        return [*nodes, *behind], [each.output[0] for each in behind]
    if place == "used_twice":
        more = [node("Identity", [name], [f"{name}_again"]) for name in outputs]
        return [*nodes, *behind, *more], [
            name for each in outputs for name in (each, f"{each}_behind", f"{each}_again")
        ]
    inner = list(nodes)
    for level in range(2 if place == "nested" else 1):
        inner = [_either(inner, outputs, level)]
    return [*inner, *behind], [each.output[0] for each in behind]


def _either(nodes: Sequence[NodeProto], outputs: Sequence[str], level: int) -> NodeProto:
    """Return an If with the nodes in both branches, under other names in the second."""
    branches = {
        f"{word}_branch": helper.make_graph(
            list(_renamed(nodes, f"_{word}{level}")),
            f"{word}{level}",
            [],
            [onnx.ValueInfoProto(name=f"{name}_{word}{level}") for name in outputs],
        )
        for word in ("then", "else")
    }
    return node("If", ["which"], list(outputs), f"if_{level}", **branches)


def _renamed(nodes: Sequence[NodeProto], end: str) -> Iterator[NodeProto]:
    made = {name for each in nodes for name in each.output if name}
    for each in nodes:
        new = NodeProto()
        new.CopyFrom(each)
        new.name = f"{each.name}{end}"
        new.input[:] = [f"{name}{end}" if name in made else name for name in each.input]
        new.output[:] = [f"{name}{end}" if name else "" for name in each.output]
        yield new


def _typed(name: str, array: Array) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
