"""Activations written out give what ONNX Runtime's own give."""

from __future__ import annotations

from math import erf
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import NodeProto

from runtimes.reference import structure
from runtimes.reference.rewrites import Unsuitable, activations
from tests.runtimes.rewrites import graphs
from tests.runtimes.rewrites.graphs import PLACES, assert_same, build, node, operators, rewritten

SPECIAL = (0.0, -0.0, 1.0, -1.0, 3.0, -3.0, 0.5, -0.5, 30.0, -30.0, 1e4, -1e4, 1e-6, -1e-30)

ACTIVATIONS: dict[str, tuple[int, dict[str, Any]]] = {
    "Celu": (12, {"alpha": 1.7}),
    "Elu": (11, {"alpha": 0.7}),
    "Gelu": (20, {"approximate": "tanh"}),
    "HardSigmoid": (11, {"alpha": 0.3, "beta": 0.4}),
    "HardSwish": (14, {}),
    "Mish": (18, {}),
    "Selu": (11, {"alpha": 1.2, "gamma": 1.4}),
    "Shrink": (11, {"bias": 0.3, "lambd": 0.6}),
    "Softplus": (11, {}),
    "Softsign": (11, {}),
    "ThresholdedRelu": (11, {"alpha": 0.6}),
}
"""By op type: the first opset from 11 that has it, and attributes that are not the defaults."""

NUMBERS = st.lists(st.sampled_from(SPECIAL) | st.floats(-20, 20, width=32), min_size=1, max_size=12)
PLACE = st.sampled_from(PLACES)


def silu(first: str, second: str) -> list[NodeProto]:
    """Return x · Sigmoid(x) after a Conv."""
    return [
        node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        node("Sigmoid", ["c"], ["s"]),
        node("Mul", [first, second], ["y"]),
    ]


def picture(seed: int, scale: float = 1.0) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {
        "x": random.standard_normal((2, 3, 5, 4), np.float32) * np.float32(scale),
        "w": random.standard_normal((4, 3, 3, 3), np.float32),
    }


@given(
    seed=st.integers(0, 99),
    swapped=st.booleans(),
    place=PLACE,
    opset=st.integers(11, 23),
    scale=st.sampled_from([1, 50]),
)
def test_the_guard_of_a_silu_changes_no_bit(seed: int, swapped: bool, place: str, opset: int, scale: float) -> None:
    feeds = picture(seed, scale)
    feeds["x"][0, 0, 0, :3] = [np.inf, -np.inf, np.nan]
    model = build(silu(*(("s", "c") if swapped else ("c", "s"))), feeds, ["y"], opset=opset, place=place)
    made, changed = rewritten(model, "guard_silu")
    assert len(changed) == len([each for each in structure.nodes_of(model) if each.op_type == "Mul"])
    assert "Relu" in operators(made)
    for which in (True, False):
        fed = graphs.with_which(feeds, place, which=which)
        before, after = graphs.run(model, fed), graphs.run(made, fed)
        assert [value.tobytes() for value in before.values()] == [value.tobytes() for value in after.values()]


def test_the_guard_goes_on_once() -> None:
    made, _ = rewritten(build(silu("c", "s"), picture(0), ["y"]), "guard_silu")
    assert rewritten(made, "guard_silu")[1] == []


@pytest.mark.parametrize(
    "nodes",
    [
        [node("Sigmoid", ["x"], ["s"]), node("Mul", ["x", "s"], ["y"])],
        [node("Conv", ["x", "w"], ["c"]), node("Sigmoid", ["w"], ["s"]), node("Mul", ["c", "c"], ["y"])],
        [node("Conv", ["x", "w"], ["c"]), node("Tanh", ["c"], ["s"]), node("Mul", ["c", "s"], ["y"])],
    ],
    ids=["no Conv before", "another Sigmoid", "a Tanh"],
)
def test_what_is_no_silu_after_a_conv_stays(nodes: list[NodeProto]) -> None:
    assert rewritten(build(nodes, picture(0), ["y"]), "guard_silu")[1] == []


def test_a_silu_after_a_batch_normalisation_of_a_conv_is_guarded() -> None:
    nodes = [
        node("Conv", ["x", "w"], ["c"]),
        node("BatchNormalization", ["c", "b", "b", "b", "v"], ["n"]),
        node("Sigmoid", ["n"], ["s"]),
        node("Mul", ["n", "s"], ["y"]),
    ]
    model = build(nodes, picture(0), ["y"], constants={"b": np.ones(4, np.float32), "v": np.ones(4, np.float32)})
    assert rewritten(model, "guard_silu")[1] == ["node_y"]


@given(
    numbers=NUMBERS,
    name=st.sampled_from(sorted(ACTIVATIONS)),
    place=PLACE,
    plain=st.booleans(),
    later=st.integers(0, 12),
)
def test_an_activation_in_full_gives_the_same(
    numbers: list[float], name: str, place: str, plain: bool, later: int
) -> None:
    opset, attributes = ACTIVATIONS[name]
    feeds = {"x": np.array([*numbers, 2.0, -2.0], np.float32)}  # so that the largest result is about 1
    nodes = [node(name, ["x"], ["y"], **({} if plain else attributes))]
    model = build(nodes, feeds, ["y"], opset=min(opset + later, 23), place=place)
    made, changed = rewritten(model, "decompose_gelu" if name == "Gelu" else "decompose_activation")
    assert changed
    assert name not in operators(made)
    assert_same(model, made, graphs.with_which(feeds, place))


def test_every_activation_of_the_rewrite_is_tried_here() -> None:
    assert set(activations.FORMULAS) | {"Gelu"} == set(ACTIVATIONS)


@given(numbers=NUMBERS, place=PLACE, opset=st.integers(11, 23))
def test_the_polynomial_of_erf_gives_the_same(numbers: list[float], place: str, opset: int) -> None:
    feeds = {"x": np.array([*numbers, np.inf, -np.inf, np.nan], np.float32)}
    model = build([node("Erf", ["x"], ["y"])], feeds, ["y"], opset=opset, place=place)
    made, _ = rewritten(model, "erf_to_polynomial")
    assert "Erf" not in operators(made)
    assert_same(model, made, graphs.with_which(feeds, place), relative=3e-7)


@pytest.mark.parametrize(("dtype", "most"), [(np.float32, 3e-7), (np.float16, 2e-3)])
def test_the_polynomial_of_erf_is_near_everywhere(dtype: type, most: float) -> None:
    numbers: np.ndarray = np.linspace(-7, 7, 60_001).astype(dtype)
    model = build([node("Erf", ["x"], ["y"])], {"x": numbers}, ["y"])
    found = graphs.run(rewritten(model, "erf_to_polynomial")[0], {"x": numbers})["y"]
    assert found.dtype == dtype
    assert np.abs(found - np.array([erf(each) for each in numbers])).max() < most


def test_a_rewrite_without_options_refuses_one() -> None:
    model = build([node("Erf", ["x"], ["y"])], {"x": np.ones(3, np.float32)}, ["y"])
    with pytest.raises(Unsuitable, match="takes no options"):
        rewritten(model, "erf_to_polynomial", degree=4)


def test_an_operator_of_another_domain_stays() -> None:
    model = build([node("Identity", ["x"], ["y"])], {"x": np.ones(3, np.float32)}, ["y"])
    foreign = onnx.ModelProto()
    foreign.CopyFrom(model)
    foreign.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    foreign.graph.node[0].op_type, foreign.graph.node[0].domain = "Gelu", "com.microsoft"
    assert rewritten(foreign, "decompose_gelu")[1] == []


@given(numbers=NUMBERS, place=PLACE, opset=st.integers(11, 23))
def test_a_sigmoid_by_powers_gives_the_same(numbers: list[float], place: str, opset: int) -> None:
    feeds = {"x": np.array([*numbers, 2.0, np.inf, -np.inf], np.float32)}
    model = build([node("Sigmoid", ["x"], ["y"])], feeds, ["y"], opset=opset, place=place)
    made, _ = rewritten(model, "sigmoid_to_exp")
    assert "Sigmoid" not in operators(made)
    assert_same(model, made, graphs.with_which(feeds, place))


def test_a_sigmoid_by_powers_keeps_its_digits_where_it_is_small() -> None:
    numbers: np.ndarray = np.linspace(-9, 0, 91).astype(np.float16)
    model = build([node("Sigmoid", ["x"], ["y"])], {"x": numbers}, ["y"])
    found = graphs.run(rewritten(model, "sigmoid_to_exp")[0], {"x": numbers})["y"]
    wanted = 1 / (1 + np.exp(-numbers.astype(np.float64)))
    assert np.abs(found / wanted - 1).max() < 2e-3
