"""Converting with rknn-toolkit2: the real toolkit and its simulator, started as the engine starts them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from runtimes.contract import Kind, Status
from tests.runtimes.openvino_jobs import FLOAT, INT64, Made, conv_net, make, one, outputs, picture, reference
from tests.runtimes.rknn_jobs import Jobs

SHAPE = [1, 3, 4, 5]


@pytest.fixture
def jobs(tmp_path: Path, environment_python: Callable[[str], Path]) -> Jobs:
    return Jobs(tmp_path, environment_python("rknn"))


def chain(*ops: str, shape: Any = SHAPE, given: Any = None) -> Made:
    """Return a model of operators one after the other, from x to y."""
    names = ["x", *(f"v{index}" for index in range(1, len(ops))), "y"]
    nodes = [helper.make_node(op, [names[i]], [names[i + 1]], f"/{i}/{op}") for i, op in enumerate(ops)]
    return make(nodes, [("x", FLOAT, shape)], [("y", FLOAT, shape)], given)


def at_opset(made: Made, version: int) -> Made:
    made.model.opset_import[0].version = version
    return made


def test_a_conv_net_is_built_and_the_simulator_agrees_with_onnx_runtime(jobs: Jobs) -> None:
    made = conv_net()
    samples = {"photo": {"x": picture()}, "random-4": {"x": picture(1) * 4}}
    ended = jobs.convert(made, samples)
    assert [path.name for path in ended.artifact.iterdir()] == ["model.rknn"]
    assert ended.result.outputs == ("artifact", "outputs")
    facts = ended.result.facts
    assert facts["placement"] == [
        {"node": "/body/Conv", "op": "ConvRelu", "device": "NPU"},
        {"node": "/head/Conv", "op": "Conv", "device": "NPU"},
    ]
    assert facts["io"] == {
        "inputs": [{"name": "x", "shape": [1, 3, 16, 20], "dtype": "float32", "layout": "nchw"}],
        "outputs": [{"name": "y", "shape": [1, 4, 16, 20], "dtype": "float32", "layout": "nchw"}],
    }
    assert facts["execution"] == {"target_platform": "rk3588", "layer_dtypes": {"FLOAT16": 2}, "disable_rules": []}
    assert (facts["device"], facts["simulated"]) == ("NPU", "the RKNN simulator of rknn-toolkit2 2.5.0")
    assert facts["notes"] == []
    assert ended.result.versions["rknn-toolkit2"] == "2.5.0"
    for sample, feeds in samples.items():
        found, wanted = outputs(ended)[sample]["y"], reference(made, feeds)["y"]
        np.testing.assert_allclose(found, wanted, rtol=1e-2, atol=1e-2)
        # Half precision shows: this is not the CPU's answer.
        assert np.abs(found - wanted).max() > 1e-5


def test_what_the_toolkit_leaves_in_the_current_folder_does_not_reach_the_outputs(jobs: Jobs) -> None:
    ended = jobs.convert(conv_net(), {"photo": {"x": picture()}})
    assert list((ended.layout.tmp / "rknn").glob("check*.onnx"))
    assert not list(ended.layout.outputs.rglob("*.onnx"))
    assert (
        sorted(path.name for path in ended.layout.root.iterdir())
        == [
            *("in", "job.json", "log.txt", "out", "result.json", "tmp"),
        ]
        or (ended.layout.root / "events.jsonl").is_file()
    )


def test_inputs_keep_the_layout_that_the_model_has_even_where_their_sizes_are_equal(jobs: Jobs) -> None:
    weights = np.random.default_rng(1).normal(0, 0.3, (3, 3, 3, 1)).astype(np.float32)
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], "/conv", pads=[1, 0, 1, 0])]
    made = make(nodes, [("x", FLOAT, [1, 3, 3, 3])], [("y", FLOAT, [1, 3, 3, 3])], {"w": weights})
    feeds = {"x": picture(shape=(1, 3, 3, 3))}
    wanted = reference(made, feeds)["y"]
    assert np.abs(reference(made, {"x": feeds["x"].transpose(0, 3, 1, 2).copy()})["y"] - wanted).max() > 0.1
    found = outputs(jobs.convert(made, {"a": feeds}))["a"]["y"]
    np.testing.assert_allclose(found, wanted, rtol=1e-2, atol=5e-3)


def test_inputs_and_outputs_of_every_rank_and_kind_that_the_toolkit_takes_agree(jobs: Jobs) -> None:
    ranks = {"a": [1, 3, 4, 5], "b": [7], "c": [1, 5], "d": [2, 3, 4], "e": [2, 3, 4, 5], "f": [1, 2, 3, 4, 5]}
    feeds: dict[str, Any] = {name: picture(shape=shape) for name, shape in ranks.items()}
    nodes = [helper.make_node("Sigmoid", [name], [f"y_{name}"], f"/{name}") for name in ranks]
    kinds = {"half": np.float16, "double": np.float64, "byte": np.int8, "int": np.int32, "flag": np.bool_}
    for name, kind in kinds.items():
        feeds[name] = np.array([[0, 1, 1, 0, 1]], dtype=kind)
        nodes.append(helper.make_node("Cast", [name], [f"f_{name}"], f"/cast_{name}", to=FLOAT))
        nodes.append(helper.make_node("Sigmoid", [f"f_{name}"], [f"y_{name}"], f"/{name}"))
    feeds["tokens"] = np.array([[0, 49406, 70000, 3]], np.int64)
    table = np.random.default_rng(2).normal(0, 1, (70001, 3)).astype(np.float32)
    nodes.append(helper.make_node("Gather", ["table", "tokens"], ["y_tokens"], "/embed"))
    # Whole numbers stay whole: half precision would lose 70001.
    nodes.append(helper.make_node("Add", ["tokens", "tokens"], ["y_twice"], "/twice"))
    nodes.append(helper.make_node("Greater", ["a", "half_way"], ["y_above"], "/above"))
    nodes.append(helper.make_node("ReduceMean", ["d"], ["y_mean"], "/mean", keepdims=0))
    givens = {"table": table, "half_way": np.float32(0.5)}
    inputs = [(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape) for name, array in feeds.items()]
    drafts = [node.output[0] for node in nodes if node.output[0].startswith("y_")]
    draft = make(nodes, inputs, [(name, FLOAT, []) for name in drafts], givens)
    for output in draft.model.graph.output:
        output.CopyFrom(helper.make_empty_tensor_value_info(output.name))
    wanted = reference(draft, feeds)
    answers = [(name, helper.np_dtype_to_tensor_dtype(wanted[name].dtype), wanted[name].shape) for name in drafts]
    made = make(nodes, inputs, answers, givens)
    ended = jobs.convert(made, {"one": feeds})
    found = outputs(ended)["one"]
    assert {name: (array.shape, array.dtype.name) for name, array in found.items()} == {
        name: (array.shape, array.dtype.name) for name, array in wanted.items()
    }
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-2, atol=1e-3 if array.dtype.kind == "f" else 0)
    assert [note for note in ended.result.facts["notes"] if "half" in note or "double" in note] == [
        "'half' is float32 in the artefact, float16 in the model",
        "'double' is float32 in the artefact, float64 in the model",
    ]


def test_a_node_on_the_boards_cpu_is_listed_there(jobs: Jobs) -> None:
    ended = jobs.convert(chain("Relu", "Erf", "Sigmoid"), {"a": {"x": picture(shape=SHAPE)}})
    devices = {row["op"]: row["device"] for row in ended.result.facts["placement"]}
    assert devices == {"Conv": "NPU", "Relu": "NPU", "Erf": "CPU", "Sigmoid": "NPU"}


def test_the_table_of_layers_is_whole_where_python_prints_right_behind_it(jobs: Jobs) -> None:
    nodes = [
        helper.make_node("Unsqueeze", ["m", "a"], ["u"], "/unsqueeze"),
        helper.make_node("Expand", ["u", "s"], ["e"], "/expand"),
        helper.make_node("Cast", ["e"], ["c"], "/cast", to=FLOAT),
        helper.make_node("Mul", ["h", "c"], ["y"], "/mul"),
    ]
    constants = {"a": np.array([-1]), "s": np.array([1, 8, 16])}
    made = make(nodes, [("h", FLOAT, [1, 8, 16]), ("m", INT64, [1, 8])], [("y", FLOAT, [1, 8, 16])], constants)
    ended = jobs.convert(made, {"a": {"h": picture(shape=(1, 8, 16)), "m": np.ones((1, 8), np.int64)}})
    assert ended.result.status is Status.DONE, ended.failure.message
    rulers = [line for line in ended.log.splitlines() if "-" * 60 in line]
    assert rulers
    assert all(line.rstrip().endswith("-") for line in rulers)


def test_names_with_blanks_come_back_whole(jobs: Jobs) -> None:
    made = chain("Relu", "Sigmoid")
    made.model.graph.node[1].name = "a name: with blanks, and longer than any column of the table is wide"
    ended = jobs.convert(made, {"a": {"x": picture(shape=SHAPE)}})
    assert made.model.graph.node[1].name in [row["node"] for row in ended.result.facts["placement"]]


def test_the_artefact_is_for_the_chip_that_was_asked_for(jobs: Jobs) -> None:
    ended = jobs.convert(conv_net(), {"photo": {"x": picture()}}, target="rk3566")
    assert b'"target_platform":["rk3566"],"version":"2.5.0"' in (ended.artifact / "model.rknn").read_bytes()


def test_a_rule_of_the_optimiser_that_fails_is_disabled_and_noted(jobs: Jobs) -> None:
    given = {"scale": np.arange(5, dtype=np.float32), "bias": np.ones(5, np.float32)}
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], "/relu"),
        # The toolkit's own rule asks for an axis that may be left out.
        helper.make_node("LayerNormalization", ["r", "scale", "bias"], ["y"], "/norm"),
    ]
    made = make(nodes, [("x", FLOAT, [1, 3, 5])], [("y", FLOAT, [1, 3, 5])], given)
    feeds = {"x": picture(shape=(1, 3, 5))}
    ended = jobs.convert(made, {"a": feeds})
    rule = "convert_layernorm_to_exnorm"
    assert ended.result.facts["execution"]["disable_rules"] == [rule]
    assert ended.result.facts["notes"] == [
        f"the rule {rule} of the toolkit's graph optimiser failed on this model and was disabled"
    ]
    np.testing.assert_allclose(outputs(ended)["a"]["y"], reference(made, feeds)["y"], rtol=1e-2, atol=1e-2)


def branches() -> Made:
    def side(op: str) -> onnx.GraphProto:
        answer = helper.make_tensor_value_info("b", FLOAT, SHAPE)
        return helper.make_graph([helper.make_node(op, ["r"], ["b"], f"/{op}")], op, [], [answer])

    nodes = [
        helper.make_node("Relu", ["x"], ["r"], "/relu"),
        helper.make_node("Cast", ["c"], ["flag"], "/cast", to=TensorProto.BOOL),
        helper.make_node("If", ["flag"], ["y"], "/if", then_branch=side("Neg"), else_branch=side("Exp")),
    ]
    return make(nodes, [("x", FLOAT, SHAPE), ("c", FLOAT, [1])], [("y", FLOAT, SHAPE)])


def known_branch() -> Made:
    def side(op: str) -> onnx.GraphProto:
        answer = helper.make_tensor_value_info("b", FLOAT, SHAPE)
        return helper.make_graph([helper.make_node(op, ["x"], ["b"], f"/{op}")], op, [], [answer])

    nodes = [helper.make_node("If", ["flag"], ["y"], "/if", then_branch=side("Neg"), else_branch=side("Exp"))]
    return make(nodes, [("x", FLOAT, SHAPE)], [("y", FLOAT, SHAPE)], {"flag": np.array(True)})


def indices() -> Made:
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], "/relu"),
        helper.make_node("NonZero", ["r"], ["i"], "/nonzero"),
        helper.make_node("ReduceMax", ["i"], ["y"], "/max"),
    ]
    return make(nodes, [("x", FLOAT, SHAPE)], [("y", INT64, [1, 1])])


def lists() -> Made:
    nodes = [
        helper.make_node("SequenceConstruct", ["x", "x"], ["s"], "/list"),
        helper.make_node("ConcatFromSequence", ["s"], ["y"], "/join", axis=0),
    ]
    return make(nodes, [("x", FLOAT, SHAPE)], [("y", FLOAT, [2, 3, 4, 5])])


REFUSED = {
    "no kernel": (one("Det", shape=(2, 3, 3)), Kind.UNSUPPORTED_OP, "Det", "/odd", "No lowering found for: /odd, "),
    "dynamic nodes": (indices(), Kind.UNSUPPORTED_OP, "NonZero", "/nonzero", "need to be constant! It will cause"),
    "branches": (branches(), Kind.UNSUPPORTED_OP, "If", "/if", "will cause the graph to be a dynamic graph!"),
    "known branch": (known_branch(), Kind.UNSUPPORTED_OP, "If", "/if", "KeyError: 'flag'"),
    "lists": (lists(), Kind.UNSUPPORTED_OP, "SequenceConstruct", "", "is not supported yet, please remove it"),
    "chance": (one("RandomNormalLike"), Kind.UNSUPPORTED_OP, "RandomNormalLike", "/odd", "Found Random node '/odd'"),
    "own domain": (
        one("Fancy", domain="com.acme"),
        *(Kind.UNSUPPORTED_OP, "Fancy", "/odd", "No opset import for domain 'com.acme'"),
    ),
    "unknown": (one("Fancy"), Kind.UNSUPPORTED_OP, "Fancy", "/odd", "No Op registered for Fancy"),
    "new opset": (at_opset(chain("Relu"), 20), Kind.UNSUPPORTED_OPSET, "", "", "Unsupport onnx opset 20, need <= 19!"),
    "dynamic": (
        chain("Relu", shape=["n", 3, 4, 5]),
        *(Kind.DYNAMIC_SHAPE, "", "x", "The input shape ['n', 3, 4, 5] of 'x' is not support!"),
    ),
}


def feeds_of(made: Made) -> dict[str, Any]:
    return {
        each["name"]: picture(shape=[size if isinstance(size, int) else 1 for size in each["shape"]]).astype(
            each["dtype"]
        )
        for each in made.inputs
    }


@pytest.mark.parametrize("what", REFUSED)
def test_what_the_toolkit_refuses_names_the_node_and_keeps_its_words(jobs: Jobs, what: str) -> None:
    made, kind, op, node, words = REFUSED[what]
    feeds = feeds_of(made)
    for each in (*made.inputs, *made.outputs):
        each["shape"] = [size if isinstance(size, int) else 1 for size in each["shape"]]
    ended = jobs.convert(made, {"a": feeds})
    assert (ended.result.status, ended.failure.kind) == (Status.REFUSED, kind), ended.failure.message
    assert (ended.failure.op, ended.failure.node) == (op, node)
    assert words in ended.failure.message
    assert ended.failure.hint
    assert not list(ended.layout.outputs.iterdir())


def test_a_chip_without_floating_point_refuses_it(jobs: Jobs) -> None:
    ended = jobs.convert(conv_net(), {"photo": {"x": picture()}}, target="rv1106")
    assert (ended.result.status, ended.failure.kind) == (Status.REFUSED, Kind.OPTION)
    assert "Current target_platform(rv1106) not support do_quantization = False!" in ended.failure.message
    assert ended.failure.hint == "take int8 for this target: it has no floating-point units"


def unsorted() -> Made:
    made = chain("Relu", "Sigmoid")
    nodes = list(made.model.graph.node)
    del made.model.graph.node[:]
    made.model.graph.node.extend(reversed(nodes))
    return made


def twins() -> Made:
    nodes = [helper.make_node("Relu", ["x"], [name], f"/{name}") for name in ("y", "z")]
    return make(nodes, [("x", FLOAT, SHAPE)], [("y", FLOAT, SHAPE), ("z", FLOAT, SHAPE)])


def unused() -> Made:
    nodes = [helper.make_node("Relu", ["x"], ["y"], "/relu")]
    return make(nodes, [("x", FLOAT, SHAPE), ("u", FLOAT, [1, 5])], [("y", FLOAT, SHAPE)])


FAILS = {
    "unsorted": (unsorted(), Kind.INVALID_MODEL, "KeyError: 'v1'"),
    "scalar": (chain("Relu", shape=[]), Kind.TOOLCHAIN, "IndexError: list index out of range"),
    "unused input": (unused(), Kind.TOOLCHAIN, "the artefact is not what was asked: input 'u' is missing"),
}


@pytest.mark.parametrize("what", FAILS)
def test_what_the_toolkit_fails_at_keeps_its_words(jobs: Jobs, what: str) -> None:
    made, kind, words = FAILS[what]
    ended = jobs.convert(made, {"a": feeds_of(made)})
    assert (ended.result.status, ended.failure.kind) == (Status.FAILED, kind), ended.failure.message
    assert words in ended.failure.message
    assert not list(ended.layout.outputs.iterdir())


def test_a_crash_keeps_the_toolkits_last_words_and_names_the_node_that_is_known_for_it(jobs: Jobs) -> None:
    scales = {"s": np.array([1, 1, 2, 2], np.float32)}
    nodes = [helper.make_node("Resize", ["x", "", "s"], ["y"], "/up", mode="cubic")]
    made = make(nodes, [("x", FLOAT, SHAPE)], [("y", FLOAT, [1, 3, 8, 10])], scales)
    ended = jobs.convert(made, {"a": {"x": picture(shape=SHAPE)}})
    assert (ended.result.status, ended.failure.kind) == (Status.FAILED, Kind.CRASH)
    assert (ended.failure.op, ended.failure.node) == ("Resize", "/up")
    assert "rknn-toolkit2 was killed by SIGSEGV in build; its last words" in ended.failure.message
    assert "start: OpEmit\nFatal Python error: Segmentation fault" in ended.failure.message


@pytest.mark.parametrize("op", ["MaxPool", "Resize"])
def test_three_dimensions_take_the_toolkit_down_and_the_node_is_named(jobs: Jobs, op: str) -> None:
    shape, factors = [1, 2, 4, 4, 4], {"s": np.array([1, 1, 2, 2, 2], np.float32)}
    node, given, wanted = helper.make_node("Resize", ["x", "", "s"], ["y"], "/it"), factors, [1, 2, 8, 8, 8]
    if op == "MaxPool":
        node = helper.make_node("MaxPool", ["x"], ["y"], "/it", kernel_shape=[2] * 3, strides=[2] * 3)
        given, wanted = {}, [1, 2, 2, 2, 2]
    made = make([node], [("x", FLOAT, shape)], [("y", FLOAT, wanted)], given)
    ended = jobs.convert(made, {"a": {"x": picture(shape=shape)}})
    assert (ended.result.status, ended.failure.kind) == (Status.FAILED, Kind.CRASH)
    assert (ended.failure.op, ended.failure.node) == (op, "/it")


def test_a_crash_of_no_known_cause_keeps_the_toolkits_words(jobs: Jobs) -> None:
    nodes = [helper.make_node("BitShift", ["x", "x"], ["y"], "/shift", direction="LEFT")]
    made = make(nodes, [("x", TensorProto.UINT8, SHAPE)], [("y", TensorProto.UINT8, SHAPE)])
    ended = jobs.convert(made, {"a": {"x": np.ones(SHAPE, np.uint8)}})
    assert (ended.result.status, ended.failure.kind, ended.failure.op) == (Status.FAILED, Kind.CRASH, "")
    assert "was killed by SIGABRT in build" in ended.failure.message
    assert "Not Support Dtype: 2. please check precision!" in ended.failure.message


def test_a_file_that_is_no_onnx_is_a_failure_and_a_folder_without_one_is_misuse(jobs: Jobs) -> None:
    feeds = {"photo": {"x": picture()}}
    ended = jobs.convert(conv_net(), feeds, write=lambda _, folder: (folder / "model.onnx").write_bytes(b"no model"))
    assert (ended.result.status, ended.failure.kind) == (Status.FAILED, Kind.INVALID_MODEL)
    ended = jobs.convert(conv_net(), feeds, write=lambda _, folder: (folder / "other").touch(), name="none")
    assert ended.failure.message == "in/model: holds no model.onnx; export writes it"


def test_a_sample_that_does_not_fit_is_misuse(jobs: Jobs) -> None:
    ended = jobs.convert(conv_net(), {"a": {"x": picture().transpose(0, 1, 3, 2)}})
    assert ended.result.status is Status.MISUSED
    assert "in/samples: 'a' does not fit the model: input 'x' has the shape [1, 3, 20, 16]" in ended.failure.message
