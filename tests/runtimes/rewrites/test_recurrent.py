"""Recurrent layers step by step give what ONNX Runtime's own give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.runtimes.rewrites import graphs
from tests.runtimes.rewrites.graphs import PLACES, assert_same, build, node, obstacle, operators, rewritten

GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}
Arrays = dict[str, np.ndarray]


def numbers(seed: int, *shape: int) -> np.ndarray:
    return np.asarray(np.random.default_rng(seed).standard_normal(shape), np.float32)


def layer(
    name: str,
    *,
    length: int = 3,
    batch: int = 2,
    hidden: int = 2,
    bias: bool = True,
    starts: str = "none",
    directions: int = 1,
) -> tuple[list[str], Arrays, Arrays]:
    """Return the names of a layer's inputs, its feeds, and its constants.

    `starts` says where the states to start from come from: `none`, `input` or `constant`.
    """
    count = GATES[name] * hidden
    constants = {"w": numbers(1, directions, count, 3), "r": numbers(2, directions, count, hidden)}
    if bias:
        constants["b"] = numbers(3, directions, 2 * count)
    feeds = {"x": numbers(0, length, batch, 3)}
    names = ["x", "w", "r", "b" if bias else "", ""]
    if starts != "none":
        states = {"h": numbers(4, directions, batch, hidden)}
        if name == "LSTM":
            states["c"] = numbers(5, directions, batch, hidden)
        (feeds if starts == "input" else constants).update(states)
        names += list(states)
    return names, feeds, constants


SIZES = st.fixed_dictionaries(
    {
        "length": st.integers(1, 5),
        "batch": st.integers(1, 3),
        "hidden": st.integers(1, 4),
        "bias": st.booleans(),
        "starts": st.sampled_from(["none", "input", "constant"]),
    }
)


@given(
    data=st.data(),
    name=st.sampled_from(sorted(GATES)),
    sizes=SIZES,
    direction=st.sampled_from(["forward", "reverse", "bidirectional"]),
    place=st.sampled_from(PLACES),
    opset=st.integers(11, 23),
)
def test_a_recurrent_layer_step_by_step_gives_the_same(
    data: Any, name: str, sizes: dict[str, Any], direction: str, place: str, opset: int
) -> None:
    directions, hidden = 2 if direction == "bidirectional" else 1, sizes["hidden"]
    names, feeds, constants = layer(name, directions=directions, **sizes)
    attributes: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
    if name == "GRU":
        attributes["linear_before_reset"] = data.draw(st.integers(0, 1))
    if data.draw(st.booleans()):
        count = {"GRU": 2, "LSTM": 3, "RNN": 1}[name] * directions
        kinds = st.sampled_from(["Relu", "Sigmoid", "Tanh"])
        attributes["activations"] = data.draw(st.lists(kinds, min_size=count, max_size=count))
    outputs = ["y", "last", "cell"][: 3 if name == "LSTM" else 2]
    looked_at = data.draw(st.lists(st.sampled_from(outputs), min_size=1, unique=True))
    gives = [each if each in looked_at else "" for each in outputs]
    model = build(
        [node(name, names, gives, "layer", **attributes)],
        feeds,
        sorted(looked_at),
        opset=opset,
        place=place,
        constants=constants,
    )
    made, changed = rewritten(model, "unroll_recurrent")
    assert changed
    assert name not in operators(made)
    assert_same(model, made, graphs.with_which(feeds, place))


def test_lengths_that_are_those_of_the_input_are_none_of_their_own() -> None:
    names, feeds, constants = layer("LSTM")
    names[4] = "lengths"
    nodes = [node("LSTM", names, ["y"], hidden_size=2)]
    same = build(nodes, feeds, ["y"], constants={**constants, "lengths": np.array([3, 3], np.int32)})
    assert_same(same, rewritten(same, "unroll_recurrent")[0], feeds)
    shorter = build(nodes, feeds, ["y"], constants={**constants, "lengths": np.array([3, 2], np.int32)})
    assert "lengths of their own" in obstacle(shorter, "unroll_recurrent")


@pytest.mark.parametrize(
    ("said", "attributes"),
    [
        ("clips", {"clip": 0.5}),
        ("couples", {"input_forget": 1}),
        ("activations are ['HardSigmoid'", {"activations": ["HardSigmoid", "Tanh", "Tanh"]}),
    ],
)
def test_an_lstm_with_extras_is_left_alone(said: str, attributes: dict[str, Any]) -> None:
    names, feeds, constants = layer("LSTM")
    nodes = [node("LSTM", names, ["y"], hidden_size=2, **attributes)]
    assert said in obstacle(build(nodes, feeds, ["y"], constants=constants), "unroll_recurrent")


def test_peepholes_are_left_alone() -> None:
    names, feeds, constants = layer("LSTM", starts="constant")
    constants["p"] = numbers(6, 1, 6)
    model = build([node("LSTM", [*names, "p"], ["y"], hidden_size=2)], feeds, ["y"], constants=constants)
    assert "peepholes" in obstacle(model, "unroll_recurrent")


def test_a_long_sequence_is_left_alone() -> None:
    names, feeds, constants = layer("RNN", length=513)
    model = build([node("RNN", names, ["y"], hidden_size=2)], feeds, ["y"], constants=constants)
    assert "513 steps" in obstacle(model, "unroll_recurrent")


@pytest.mark.parametrize(("name", "said"), [("w", "weights"), ("b", "bias")])
def test_weights_that_come_in_are_left_alone(name: str, said: str) -> None:
    names, feeds, constants = layer("GRU")
    feeds[name] = constants.pop(name)
    model = build([node("GRU", names, ["y"], hidden_size=2)], feeds, ["y"], constants=constants)
    assert said in obstacle(model, "unroll_recurrent")
