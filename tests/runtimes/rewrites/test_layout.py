"""Operators on more than five axes, by the same on fewer, give the same."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from onnx import NodeProto, numpy_helper, shape_inference

from runtimes.reference import structure
from tests.runtimes.rewrites import graphs
from tests.runtimes.rewrites.graphs import PLACES, assert_same, build, node, obstacle, rewritten

PLACE = st.sampled_from(PLACES)
OPSET = st.integers(11, 23)
SEED = st.integers(0, 2**16)
SHAPE = st.lists(st.integers(1, 3), min_size=6, max_size=7)


def numbers(seed: int, shape: Any) -> np.ndarray:
    return np.asarray(np.random.default_rng(seed).standard_normal(shape), np.float32)


def high_operators(model: onnx.ModelProto) -> set[str]:
    """Return the operators that take or give a tensor of more than five axes, Reshapes apart."""
    inferred = shape_inference.infer_shapes(model, data_prop=True)
    ranks = {}
    for graph in structure.graphs_of(inferred):
        for value in (*graph.value_info, *graph.input, *graph.output):
            ranks[value.name] = len(value.type.tensor_type.shape.dim)
    return {
        each.op_type
        for each in structure.nodes_of(inferred)
        if any(ranks.get(name, 0) > 5 for name in (*each.input, *each.output))
    } - {"Reshape", "Identity", "If"}


def split(nodes: list[NodeProto], feeds: graphs.Feeds, outputs: list[str], **built: Any) -> onnx.ModelProto:
    """Return the model without its high ranks, shown to give the same."""
    # Constants as nodes: in a branch, onnx infers nothing from initializers around it.
    held = built.pop("constants", {}).items()
    fixed = [node("Constant", [], [name], value=numpy_helper.from_array(array)) for name, array in held]
    model = build([*fixed, *nodes], feeds, outputs, **built)
    assert high_operators(model)
    made, changed = rewritten(model, "split_rank")
    assert changed
    assert high_operators(made) == set()
    assert_same(model, made, graphs.with_which(feeds, built.get("place", "output")))
    return made


@given(data=st.data(), shape=SHAPE, seed=SEED, place=PLACE, opset=OPSET)
def test_a_transpose_of_many_axes_gives_the_same(
    data: Any, shape: list[int], seed: int, place: str, opset: int
) -> None:
    order = data.draw(st.permutations(range(len(shape))))
    split([node("Transpose", ["x"], ["y"], perm=order)], {"x": numbers(seed, shape)}, ["y"], place=place, opset=opset)


def test_a_transpose_in_which_no_axes_stay_together_takes_several() -> None:
    made = split(
        [node("Transpose", ["x"], ["y"], perm=[5, 3, 1, 4, 2, 0])], {"x": numbers(0, (2, 3, 4, 2, 3, 2))}, ["y"]
    )
    assert sum(each.op_type == "Transpose" for each in made.graph.node) > 1


@given(
    data=st.data(),
    name=st.sampled_from(["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceProd"]),
    shape=SHAPE,
    seed=SEED,
    keep=st.integers(0, 1),
    place=PLACE,
    opset=OPSET,
)
def test_a_reduction_of_many_axes_gives_the_same(
    data: Any, name: str, shape: list[int], seed: int, keep: int, place: str, opset: int
) -> None:
    axes = data.draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, max_size=3, unique=True))
    groups = [axis in axes for axis in range(len(shape)) if axis in axes or shape[axis] != 1]
    assume(1 + sum(last != each for last, each in itertools.pairwise(groups)) <= 5)
    over = [axis - len(shape) if data.draw(st.booleans()) else axis for axis in axes]
    newer = opset >= (13 if name == "ReduceSum" else 18)
    nodes = [
        node(name, ["x", "axes"], ["y"], keepdims=keep) if newer else node(name, ["x"], ["y"], keepdims=keep, axes=over)
    ]
    constants = {"axes": np.array(over, np.int64)} if newer else {}
    split(nodes, {"x": numbers(seed, shape)}, ["y"], place=place, opset=opset, constants=constants)


@given(
    data=st.data(),
    name=st.sampled_from(["Add", "Mul", "Sub", "Where", "Clip", "Relu", "Less", "Cast"]),
    shape=SHAPE,
    seed=SEED,
    place=PLACE,
    opset=st.integers(13, 23),
)
def test_single_elements_of_many_axes_give_the_same(
    data: Any, name: str, shape: list[int], seed: int, place: str, opset: int
) -> None:
    rank = data.draw(st.integers(0, 6))
    # Spread over the first axes of it or over its last: more than that leaves more than five groups.
    spread = data.draw(st.integers(0, rank))
    other = [1] * spread + shape[len(shape) - rank + spread :]
    feeds = {"x": numbers(seed, shape)}
    if name in {"Add", "Mul", "Sub", "Less", "Where"}:
        feeds["z"] = numbers(seed + 1, other)
    names = ["c", "x", "z"] if name == "Where" else list(feeds)
    constants = {"c": numbers(seed + 2, shape[-1:]) > 0} if name == "Where" else {}
    if name == "Clip":
        names, constants = ["x", "low", ""], {"low": np.array(-0.5, np.float32)}
    attributes: dict[str, Any] = {"to": onnx.TensorProto.INT32} if name == "Cast" else {}
    nodes = [node(name, names, ["y"], **attributes)]
    split(nodes, feeds, ["y"], place=place, opset=opset, constants=constants)


@given(data=st.data(), batch=st.lists(st.integers(1, 3), min_size=4, max_size=5), seed=SEED, place=PLACE, opset=OPSET)
def test_a_product_of_many_axes_gives_the_same(data: Any, batch: list[int], seed: int, place: str, opset: int) -> None:
    other = data.draw(st.sampled_from([batch, batch[1:], [], [1] * len(batch), [*batch[:2], *[1] * (len(batch) - 2)]]))
    pair = (numbers(seed, (*batch, 2, 3)), numbers(seed + 1, (*other, 3, 4)))
    if data.draw(st.booleans()):
        pair = (numbers(seed, (*other, 2, 3)), numbers(seed + 1, (*batch, 3, 4)))
    feeds = dict(zip("ab", pair, strict=True))
    split([node("MatMul", ["a", "b"], ["y"])], feeds, ["y"], place=place, opset=opset)


@given(
    data=st.data(),
    name=st.sampled_from(["Softmax", "LogSoftmax", "Slice", "Gather", "Concat", "Split", "Expand"]),
    shape=SHAPE,
    seed=SEED,
    place=PLACE,
    opset=st.integers(13, 23),
)
def test_what_goes_along_one_axis_of_many_gives_the_same(
    data: Any, name: str, shape: list[int], seed: int, place: str, opset: int
) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    feeds = {"x": numbers(seed, shape)}
    constants: dict[str, np.ndarray] = {}
    outputs, attributes = ["y"], {} if name in {"Expand", "Slice"} else {"axis": axis}
    if name == "Slice":
        two = data.draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, max_size=2, unique=True))
        parts = {"s": [0] * len(two), "e": [2] * len(two), "a": two, "t": [data.draw(st.integers(1, 2))] * len(two)}
        constants = {key: np.array(value, np.int64) for key, value in parts.items()}
    elif name == "Gather":
        constants = {"i": np.array(data.draw(st.sampled_from([0, [0, -1], [[0], [-1]]])), np.int64)}
    elif name == "Split":
        constants, outputs = {"s": np.array([1, shape[axis]], np.int64)}, ["y", "z"]
        feeds = {"x": numbers(seed, [size + (at == axis % len(shape)) for at, size in enumerate(shape)])}
    elif name == "Concat":
        feeds["z"] = numbers(seed + 1, shape)
    elif name == "Expand":
        constants = {"s": np.array([3, *shape], np.int64)}
    nodes = [node(name, [*feeds, *constants], outputs, **attributes)]
    split(nodes, feeds, outputs, place=place, opset=opset, constants=constants)


@given(data=st.data(), fixed=st.booleans(), seed=SEED, place=PLACE, opset=st.integers(13, 23))
def test_a_gather_by_indices_of_many_axes_gives_the_same(
    data: Any, fixed: bool, seed: int, place: str, opset: int
) -> None:
    shape = data.draw(st.lists(st.integers(2, 3), min_size=2, max_size=4))
    places = data.draw(st.lists(st.integers(1, 3), min_size=5, max_size=6))
    random = np.random.default_rng(seed)
    nd = data.draw(st.booleans())
    if nd:
        depth = data.draw(st.integers(1, len(shape)))
        indices = random.integers(-2, 2, (*places, depth))
        made = node("GatherND", ["x", "i"], ["y"])
    else:
        indices = random.integers(-2, 2, [*places, 2])
        made = node("Gather", ["x", "i"], ["y"], axis=data.draw(st.integers(0, len(shape) - 1)))
    feeds = {"x": numbers(seed, shape), **({} if fixed else {"i": indices})}
    split([made], feeds, ["y"], place=place, opset=opset, constants={"i": indices} if fixed else {})


def test_a_gather_nd_between_low_ranks_leaves_no_tensor_of_six_axes() -> None:
    """As adaptive average pools of sizes that do not divide are written: windows, and their averages."""
    rows = np.stack(np.meshgrid([[0, 1], [1, 2]], [[0, 1], [2, 3]], indexing="ij"), -1).reshape(2, 2, 2, 2, 2)
    nodes = [
        node("Transpose", ["x"], ["a"], perm=[2, 3, 0, 1]),
        node("GatherND", ["a", "i"], ["b"]),
        node("Transpose", ["b"], ["c"], perm=[4, 5, 0, 1, 2, 3]),
        node("ReduceMean", ["c"], ["y"], axes=[-3, -1], keepdims=0),
    ]
    made = split(nodes, {"x": numbers(0, (1, 5, 3, 4))}, ["y"], constants={"i": rows})
    inferred = shape_inference.infer_shapes(made, data_prop=True)
    for value in inferred.graph.value_info:
        assert len(value.type.tensor_type.shape.dim) <= 5


@pytest.mark.parametrize("opset", [11, 12])
def test_a_softmax_of_an_old_opset_is_over_all_axes_from_its_own_on(opset: int) -> None:
    nodes = [node("Softmax", ["x"], ["y"], axis=3)]
    split(nodes, {"x": numbers(0, (2, 3, 2, 2, 3, 2))}, ["y"], opset=opset)


def detour(shape: tuple[int, ...], order: list[int], sizes: tuple[int, ...]) -> list[NodeProto]:
    """Return Reshape, Transpose, Reshape between low ranks, as windows of attention and pixel shuffles have them."""
    return [
        node("Constant", [], ["wide"], value_ints=list(shape)),
        node("Constant", [], ["narrow"], value_ints=list(sizes)),
        node("Reshape", ["x", "wide"], ["a"]),
        node("Transpose", ["a"], ["b"], perm=order),
        node("Reshape", ["b", "narrow"], ["y"]),
    ]


@pytest.mark.parametrize(
    ("taken", "shape", "order", "sizes"),
    [
        ((1, 8, 8, 5), (1, 2, 4, 2, 4, 5), [0, 1, 3, 2, 4, 5], (-1, 4, 4, 5)),
        ((4, 4, 4, 5), (1, 2, 2, 4, 4, 5), [0, 1, 3, 2, 4, 5], (1, 8, 8, 5)),
        ((2, 12, 3, 5), (2, 3, 2, 2, 3, 5), [0, 1, 4, 2, 5, 3], (2, 3, 6, 10)),
        ((2, 3, 6, 10), (2, 3, 3, 2, 5, 2), [0, 1, 3, 5, 2, 4], (2, 12, 3, 5)),
    ],
    ids=["windows", "windows back", "pixel shuffle", "pixel unshuffle"],
)
@pytest.mark.parametrize("place", PLACES)
def test_a_detour_through_six_axes_is_gone(
    taken: tuple[int, ...], shape: tuple[int, ...], order: list[int], sizes: tuple[int, ...], place: str
) -> None:
    feeds = {"x": numbers(0, taken)}
    made = split(detour(shape, order, sizes), feeds, ["y"], place=place)
    inferred = shape_inference.infer_shapes(made, data_prop=True)
    for graph in structure.graphs_of(inferred):
        assert all(len(value.type.tensor_type.shape.dim) <= 5 for value in (*graph.value_info, *graph.output))


def test_a_chain_on_six_axes_leaves_them_between_its_nodes() -> None:
    nodes = [
        node("Reshape", ["x", "wide"], ["a"]),
        node("Transpose", ["a"], ["b"], perm=[0, 2, 4, 1, 3, 5]),
        node("Mul", ["b", "b"], ["c"]),
        node("Softmax", ["c"], ["d"], axis=-1),
        node("ReduceMean", ["d"], ["e"], axes=[1, 2], keepdims=0),
        node("Relu", ["e"], ["y"]),
    ]
    feeds = {"x": numbers(0, (6, 20, 6))}
    made = split(nodes, feeds, ["y"], constants={"wide": np.array((2, 3, 4, 5, 3, 2), np.int64)})
    inferred = shape_inference.infer_shapes(made, data_prop=True)
    assert max(len(value.type.tensor_type.shape.dim) for value in inferred.graph.value_info) <= 5


def test_ranks_of_five_stay() -> None:
    model = build([node("Transpose", ["x"], ["y"], perm=[4, 0, 2, 1, 3])], {"x": numbers(0, (1, 2, 3, 2, 2))}, ["y"])
    assert rewritten(model, "split_rank")[1] == []


@pytest.mark.parametrize(
    ("nodes", "feeds", "constants", "said"),
    [
        (
            [node("ReduceMax", ["x"], ["y"], axes=[0, 2, 4])],
            {"x": numbers(0, (2, 2, 2, 2, 2, 2))},
            {},
            "6 axes are left",
        ),
        (
            [node("Slice", ["x", "s", "e"], ["y"])],
            {"x": numbers(0, (2, 2, 2, 2, 2, 2)), "s": np.array([0], np.int64)},
            {"e": np.array([1], np.int64)},
            "no constant",
        ),
        ([node("MatMul", ["x", "v"], ["y"])], {"x": numbers(0, (2, 2, 2, 2, 2, 2)), "v": numbers(0, 2)}, {}, "vector"),
    ],
    ids=["a reduction of every other axis", "open bounds", "a vector"],
)
def test_what_cannot_be_on_fewer_axes_says_why(
    nodes: list[NodeProto], feeds: graphs.Feeds, constants: graphs.Feeds, said: str
) -> None:
    assert said in obstacle(build(nodes, feeds, ["y"], constants=constants), "split_rank")
