"""Attributes left out, or written out: the graph says the same."""

from __future__ import annotations

import numpy as np
import pytest

from runtimes.kit.tensors import Array
from tests.runtimes.rewrites import graphs

NORMAL = np.random.default_rng(0).normal


def normal(*shape: int) -> Array:
    return NORMAL(0, 1, shape).astype(np.float32)


@pytest.mark.parametrize(("operator", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
def test_a_recurrent_layer_loses_the_layout_that_it_has_anyway(operator: str, gates: int) -> None:
    feeds = {"x": normal(5, 2, 3)}
    weights = {"w": normal(1, gates * 4, 3), "r": normal(1, gates * 4, 4)}
    node = graphs.node(operator, ["x", "w", "r"], ["y"], "layer", hidden_size=4, layout=0)
    model = graphs.build([node], feeds, ["y"], constants=weights)
    made, changed = graphs.rewritten(model, "drop_layout")
    assert changed == ["layer"]
    assert [each.name for each in made.graph.node[0].attribute] == ["hidden_size"]
    assert graphs.run(made, feeds)["y"].tobytes() == graphs.run(model, feeds)["y"].tobytes()


def test_a_recurrent_layer_without_a_layout_is_left_alone() -> None:
    weights = {"w": normal(1, 4, 3), "r": normal(1, 4, 4)}
    node = graphs.node("RNN", ["x", "w", "r"], ["y"], "layer", hidden_size=4)
    model = graphs.build([node], {"x": normal(5, 2, 3)}, ["y"], constants=weights)
    assert graphs.rewritten(model, "drop_layout")[1] == []


@pytest.mark.parametrize("given", [{}, {"axis": 1}, {"epsilon": 0.5}])
def test_axis_and_epsilon_of_a_layer_norm_are_written_out_as_they_were_meant(given: dict[str, float]) -> None:
    feeds = {"x": normal(2, 3, 4)}
    scale = normal(3, 4) if "axis" in given else normal(4)
    node = graphs.node("LayerNormalization", ["x", "s"], ["y"], "norm", **given)
    model = graphs.build([node], feeds, ["y"], constants={"s": scale})
    made, changed = graphs.rewritten(model, "write_layer_norm")
    assert changed == ["norm"]
    assert sorted(each.name for each in made.graph.node[0].attribute) == ["axis", "epsilon"]
    assert graphs.run(made, feeds)["y"].tobytes() == graphs.run(model, feeds)["y"].tobytes()


def test_a_layer_norm_that_says_both_is_left_alone() -> None:
    node = graphs.node("LayerNormalization", ["x", "s"], ["y"], "norm", axis=-1, epsilon=1e-6)
    model = graphs.build([node], {"x": normal(2, 4)}, ["y"], constants={"s": normal(4)})
    assert graphs.rewritten(model, "write_layer_norm")[1] == []
