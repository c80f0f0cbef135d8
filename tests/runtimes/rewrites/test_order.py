"""`sort_nodes`, `unique_names`, `drop_duplicate_outputs`: what a file needs before anything else takes it."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto

from runtimes.reference import gates, structure
from runtimes.reference.rewrites import Unsuitable, find
from tests.runtimes.gate_models import same_output_twice, two_weights_of_one_name
from tests.runtimes.rewrites.graphs import PLACES, assert_same, build, node, rewritten, with_which

X = np.random.default_rng(1).normal(size=(2, 3)).astype(np.float32)
PATH = Path("model.onnx")


def chain(place: str) -> onnx.ModelProto:
    nodes = [
        *(node("Relu", ["x"], ["a"]), node("Add", ["a", "w"], ["b"]), node("Neg", ["a"], ["c"])),
        *(node("Mul", ["b", "c"], ["d"]), node("Sub", ["d", "a"], ["y"])),
    ]
    return build(nodes, {"x": X}, ["y"], place=place, constants={"w": X})


@settings(max_examples=40, deadline=None)
@given(place=st.sampled_from(PLACES), seed=st.integers(0, 999))
def test_nodes_in_any_order_are_sorted(place: str, seed: int) -> None:
    sound, shuffled = chain(place), chain(place)
    shuffle = random.Random(seed)
    for graph in structure.graphs_of(shuffled):
        nodes = list(graph.node)
        shuffle.shuffle(nodes)
        del graph.node[:]
        graph.node.extend(nodes)
    after, changed = rewritten(shuffled, "sort_nodes")
    assert bool(changed) == bool(structure.find_out_of_order(shuffled, PATH))
    assert structure.find_out_of_order(after, PATH) == []
    assert_same(sound, after, with_which({"x": X}, place))


def test_a_circle_cannot_be_sorted() -> None:
    circle = chain("output")
    circle.graph.node[0].input[0] = "d"
    with pytest.raises(Unsuitable, match="the graph goes in a circle"):
        rewritten(circle, "sort_nodes")


@settings(max_examples=40, deadline=None)
@given(
    place=st.sampled_from(PLACES),
    names=st.lists(st.sampled_from(["", "one", "two"]), min_size=12, max_size=12),
)
def test_any_names_of_nodes_become_unique(place: str, names: list[str]) -> None:
    sound, renamed = chain(place), chain(place)
    for graph in structure.graphs_of(renamed):
        for each, name in zip(graph.node, names, strict=False):
            each.name = name
    after, changed = rewritten(renamed, "unique_names")
    assert bool(changed) == bool(structure.find_bad_node_names(renamed, PATH))
    assert structure.find_bad_node_names(after, PATH) == []
    assert_same(sound, after, with_which({"x": X}, place))


def test_two_constants_of_one_name_are_one_where_they_are_equal() -> None:
    before = two_weights_of_one_name()
    before.graph.initializer[1].CopyFrom(before.graph.initializer[0])
    after, changed = rewritten(before, "unique_names")
    assert changed == ["constant w, once more"]
    assert structure.find_repeated_value_names(after, PATH) == []


def test_two_different_constants_of_one_name_are_not() -> None:
    with pytest.raises(Unsuitable, match="two constants are called w, and are not the same"):
        rewritten(two_weights_of_one_name(), "unique_names")


@pytest.mark.parametrize("count", [2, 3])
def test_one_of_several_equal_casts_is_left(count: int) -> None:
    before = same_output_twice()
    first = before.graph.node[0]
    for index in range(count - 2):
        before.graph.node.insert(1, first)
        before.graph.node[1].name = f"more{index}"
    after, changed = rewritten(before, "drop_duplicate_outputs")
    assert len(changed) == count - 1
    assert [each.name for each in after.graph.node] == ["one", "y"]
    assert structure.find_written_twice(after, PATH) == []


def test_two_casts_to_different_types_are_not_the_same() -> None:
    before = same_output_twice()
    before.graph.node[1].attribute[0].i = TensorProto.DOUBLE
    with pytest.raises(Unsuitable, match="'one' \\(Cast\\) and 'two' \\(Cast\\) both write a, and are not the same"):
        rewritten(before, "drop_duplicate_outputs")


def test_equal_casts_in_a_branch_are_dropped_too() -> None:
    before = chain("branch")
    (condition,) = (each for each in before.graph.node if each.op_type == "If")
    inner = condition.attribute[0].g
    inner.node.insert(1, inner.node[0])
    after, changed = rewritten(before, "drop_duplicate_outputs")
    assert len(changed) == 1
    assert_same(chain("branch"), after, with_which({"x": X}, "branch"))


@pytest.mark.parametrize("name", ["sort_nodes", "unique_names", "drop_duplicate_outputs"])
def test_a_sound_file_is_left_alone(name: str) -> None:
    assert rewritten(chain("nested"), name)[1] == []


def test_every_repair_of_a_given_file_fits_the_words_of_its_gate(tmp_path: Path) -> None:
    """The lines of repairs.toml, each with a file that it mends."""
    import re
    import tomllib

    import runtimes

    folder = Path(next(iter(runtimes.__path__))) / "reference"
    lines = tomllib.loads((folder / "repairs.toml").read_text(encoding="utf-8"))["repairs"]
    unsorted = chain("output")
    unsorted.graph.node.reverse()
    nameless = chain("output")
    nameless.graph.node[0].name = ""
    twice = two_weights_of_one_name()
    twice.graph.initializer[1].CopyFrom(twice.graph.initializer[0])
    files = {
        "sort_nodes": [unsorted],
        "unique_names": [nameless, twice],
        "drop_duplicate_outputs": [same_output_twice()],
    }
    assert {line["rewrite"] for line in lines} == set(files)
    for name, models in files.items():
        (line,) = (each for each in lines if each["rewrite"] == name)
        for model in models:
            path = tmp_path / "model.onnx"
            path.write_bytes(model.SerializeToString())
            results = gates.check(path)
            failed = next(result for result in results if not result)
            assert failed.kind in line["kinds"]
            assert re.search(line["message"], gates.describe(results))
            after, _changed = rewritten(model, name)
            path.write_bytes(after.SerializeToString())
            assert all(gates.check(path)), gates.describe(gates.check(path))


PROMISES = {
    "two nodes of one name": ("unique_names", "two nodes are called a"),
    "two values of one name": ("unique_names", "two values are called same"),
    "a value written twice": ("drop_duplicate_outputs", "two nodes write same"),
}


@pytest.mark.parametrize(("name", "said"), PROMISES.values(), ids=PROMISES.keys())
def test_a_promise_that_is_broken_is_told(name: str, said: str) -> None:
    values = [ir.Value(name="x")]
    nodes = [ir.node("Relu", values, name="a"), ir.node("Neg", values, name="a" if "nodes are" in said else "b")]
    for number, made in enumerate(nodes):
        made.outputs[0].name = f"v{number}" if "nodes are" in said else "same"
    graph = ir.Graph(values, [made.outputs[0] for made in nodes], nodes=nodes, opset_imports={"": 17}, name="g")
    ensures = find(name).ensures
    assert said in ensures(ir.Model(graph, ir_version=8))
    nodes[0].name, nodes[0].outputs[0].name = "other", "another"
    assert ensures(ir.Model(graph, ir_version=8)) == ""
