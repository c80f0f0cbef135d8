"""ONNX Runtime slice by slice: the same answers, and the weights of one slice in memory at a time."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import NodeProto, TensorProto, helper, numpy_helper

import runtimes
from runtimes.kit import tensors
from runtimes.reference import sessions, slices
from tests.runtimes.rewrites.graphs import Feeds, build, node, run

MIB = 2**20
WIDTH = 4
WEIGHT_BYTES = WIDTH * WIDTH * 4
X = np.random.default_rng(2).normal(size=(3, WIDTH)).astype(np.float32)
MEASURE = """
import sys
from pathlib import Path
from runtimes.contract import Job, Layout, Step
from runtimes.kit.work import Work
from runtimes.kit.worker import peak_memory
from runtimes.reference import rewrite, slices
rewrite.LEAN_BYTES, slices.SLICE_BYTES = 0, 2**23
name, *folders = sys.argv[1:]
options = {"rewrites": [{"name": name}]}
for folder in folders:
    job = Job(step=Step.REWRITE, runtime="reference", inputs=("model", "samples", "golden"), options=options)
    rewrite.rewrite(Work(Layout(Path(folder)), job))
    print(peak_memory())
"""


def weight(number: int) -> np.ndarray:
    return np.random.default_rng(number).normal(size=(WIDTH, WIDTH)).astype(np.float32)


def chain(sources: list[int], weights: list[int]) -> onnx.ModelProto:
    """Products, the result of each with a weight, what comes of an earlier one added; weights may be shared."""
    nodes, last = [], "x"
    for number, (source, which) in enumerate(zip(sources, weights, strict=True)):
        earlier = "x" if source >= number else f"v{source}"
        nodes.append(node("MatMul", [last, f"w{which}"], [f"p{number}"]))
        nodes.append(node("Add", [f"p{number}", earlier], [f"s{number}"]))
        nodes.append(node("Tanh", [f"s{number}"], [f"v{number}"]))
        last = f"v{number}"
    return build(nodes, {"x": X}, [last, "v0"], constants={f"w{which}": weight(which) for which in weights})


def sliced(model: onnx.ModelProto, feeds: Feeds, folder: Path = Path()) -> Feeds:
    return slices.run(model, folder, {"one": feeds}, [value.name for value in model.graph.output])["one"]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a slice hold two weights."""
    monkeypatch.setattr(slices, "SLICE_BYTES", 2 * WEIGHT_BYTES)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5)), min_size=2, max_size=9))
def test_the_answers_are_those_of_the_whole_graph(steps: list[tuple[int, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slices, "SLICE_BYTES", 2 * WEIGHT_BYTES)
        model = chain([source for source, _which in steps], [which for _source, which in steps])
        parts = slices.cut(model)
        found, expected = sliced(model, {"x": X}), run(model, {"x": X})
    assert all(len(part.weights) <= 2 for part in parts)
    assert len(parts) * 2 >= len({which for _source, which in steps})
    assert sorted(each.name for part in parts for each in part.nodes) == sorted(each.name for each in model.graph.node)
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)


def _many_of_one_size() -> tuple[list[NodeProto], Feeds]:
    constant = node("Constant", [], ["k"], value=numpy_helper.from_array(weight(9)))
    nodes = [node("MatMul", ["x", "w0"], ["a"]), constant, node("MatMul", ["a", "k"], ["b"])]
    return [*nodes, node("MatMul", ["b", "w1"], ["c"]), node("MatMul", ["c", "k"], ["y"])], {}


def _a_branch_that_reads_around_itself() -> tuple[list[NodeProto], Feeds]:
    def branch(which: str) -> onnx.GraphProto:
        given = helper.make_tensor_value_info(f"{which}_y", TensorProto.FLOAT, [3, WIDTH])
        return helper.make_graph([node("MatMul", ["a", which], [f"{which}_y"])], which, [], [given])

    choice = {"then_branch": branch("w2"), "else_branch": branch("w3")}
    nodes = [
        node("MatMul", ["x", "w0"], ["a"]),
        node("MatMul", ["a", "w1"], ["b"]),
        node("If", ["yes"], ["c"], **choice),
    ]
    return [*nodes, node("Add", ["b", "c"], ["y"])], {"yes": np.array(True)}


def _a_size_that_differs() -> tuple[list[NodeProto], Feeds]:
    nodes = [node("MatMul", ["x", "w0"], ["a"]), node("NonZero", ["a"], ["b"]), node("MatMul", ["a", "w1"], ["c"])]
    nodes += [node("MatMul", ["c", "w2"], ["d"]), node("GatherND", ["d", "t"], ["y"])]
    return [*nodes[:2], node("Transpose", ["b"], ["t"]), *nodes[2:]], {}


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("make", [_many_of_one_size, _a_branch_that_reads_around_itself, _a_size_that_differs])
def test_what_slices_hand_over_is_all_that_they_read(make: Callable[[], tuple[list[NodeProto], Feeds]]) -> None:
    nodes, constants = make()
    weights = {f"w{number}": weight(number) for number in range(4)}
    model = build(nodes, {"x": X}, ["y"], constants={**weights, **constants})
    samples = {"one": {"x": X}, "two": {"x": np.maximum(X, 0)}}
    assert len(slices.cut(model)) > 1
    for name, found in slices.run(model, Path(), samples, ["y"]).items():
        np.testing.assert_array_equal(found["y"], run(model, samples[name])["y"])


@pytest.mark.usefixtures("small")
def test_a_graph_in_which_a_sequence_goes_from_node_to_node_is_one_slice() -> None:
    nodes = [node("MatMul", ["x", "w0"], ["a"]), node("SequenceConstruct", ["a", "x"], ["s"])]
    nodes += [node("MatMul", ["a", "w1"], ["b"]), node("MatMul", ["b", "w2"], ["c"])]
    nodes += [node("ConcatFromSequence", ["s"], ["d"], axis=0), node("Concat", ["c", "d"], ["y"], axis=0)]
    model = build(nodes, {"x": X}, ["y"], constants={f"w{number}": weight(number) for number in range(3)})
    assert len(slices.cut(model)) == 1
    np.testing.assert_array_equal(sliced(model, {"x": X})["y"], run(model, {"x": X})["y"])


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("read", [False, True])
def test_an_output_may_be_a_constant_that_no_node_gives(tmp_path: Path, read: bool) -> None:
    constant = node("Constant", [], ["k"], value=numpy_helper.from_array(weight(9)))
    nodes = [constant, node("MatMul", ["x", "w1"], ["a"]), node("MatMul", ["a", "w2"], ["b"])]
    nodes += [node("MatMul", ["b", "k"], ["c"]), node("MatMul", ["c", "w0"], ["y"])] if read else []
    last = "y" if read else "b"
    model = build(nodes, {"x": X}, [last], constants={f"w{number}": weight(number) for number in range(3)})
    square = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [WIDTH, WIDTH]) for name in ("k", "w0")]
    model.graph.output.extend(square)
    expected, inside = run(model, {"x": X}), sliced(model, {"x": X})
    onnx.save(model, tmp_path / "model.onnx", save_as_external_data=True, location="data", size_threshold=0)
    beside = onnx.load(tmp_path / "model.onnx", load_external_data=False)
    for found in (inside, sliced(beside, {"x": X}, tmp_path)):
        assert set(found) == {last, "k", "w0"}
        for name, array in expected.items():
            np.testing.assert_array_equal(found[name], array)


def test_without_samples_nothing_is_calculated() -> None:
    assert slices.run(chain([0], [0]), Path(), {}, ["v0"]) == {}


@pytest.mark.usefixtures("small")
def test_an_input_of_another_size_than_the_graph_declares_is_refused() -> None:
    with pytest.raises(sessions.errors(), match="Got invalid dimensions for input: x"):
        sliced(chain([0, 0, 0], [0, 1, 2]), {"x": X[:2]})


def workspace(root: Path, count: int, width: int) -> Path:
    """A job on a model of `count` weights, which lie outside the file."""
    draw = np.random.default_rng(4)
    scale = np.float32((2 / width) ** 0.5)
    weights = {f"w{number}": draw.standard_normal((width, width), np.float32) * scale for number in range(count)}
    x = draw.standard_normal((2, width), np.float32)
    nodes, y = [], x
    for number, (name, array) in enumerate(weights.items()):
        nodes.append(node("Einsum", [f"h{number}" if number else "x", name], [f"p{number}"], equation="ij,jk->ik"))
        nodes.append(node("Relu", [f"p{number}"], [f"h{number + 1}" if number + 1 < count else "y"]))
        y = np.maximum(y @ array, 0)
    x_port, y_port = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, width]) for name in "xy")
    held = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "large", [x_port], [y_port], held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    folder = root / "in" / "model"
    folder.mkdir(parents=True)
    onnx.save(model, folder / "model.onnx", save_as_external_data=True, location="model.onnx.data")
    tensors.save_samples(root / "in" / "samples", {"one": {"x": x}})
    tensors.save_samples(root / "in" / "golden", {"one": {"y": y}})
    return root


@pytest.mark.parametrize("name", ["fp16", "einsum_to_matmul"])
def test_a_rewrite_takes_at_most_one_and_a_half_times_the_memory_of_a_large_model(name: str, tmp_path: Path) -> None:
    tiny, large = workspace(tmp_path / "tiny", 2, 8), workspace(tmp_path / "large", 32, 1024)
    command = [sys.executable, "-P", "-c", MEASURE, name, str(tiny), str(large)]
    root = str(Path(next(iter(runtimes.__path__))).parent)
    environment = {"PYTHONPATH": root, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    before, after = (int(line) for line in done.stdout.split())
    assert after - before < 1.5 * 32 * 4 * MIB
