"""Attention and rotary embeddings in full give what ONNX Runtime's own give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.runtimes.rewrites import graphs
from tests.runtimes.rewrites.graphs import PLACES, assert_same, build, node, obstacle, operators, rewritten

PLACE = st.sampled_from(PLACES)


def numbers(seed: int, *shape: int) -> np.ndarray:
    return np.asarray(np.random.default_rng(seed).standard_normal(shape), np.float32)


@given(
    data=st.data(),
    shared=st.integers(1, 3),
    groups=st.integers(1, 2),
    length=st.integers(1, 4),
    flat=st.booleans(),
    causal=st.integers(0, 1),
    mask=st.sampled_from(["none", "numbers", "truths"]),
    place=PLACE,
)
def test_attention_in_full_gives_the_same(
    data: Any, shared: int, groups: int, length: int, flat: bool, causal: int, mask: str, place: str
) -> None:
    heads, batch, size, value_size = shared * groups, data.draw(st.integers(1, 2)), 4, 3
    past = 0 if flat else data.draw(st.sampled_from([0, 2]))
    # ONNX Runtime lets a single query see keys that come after it; the gates of the step keep such a model as it was.
    keys = 1 if causal and length == 1 else data.draw(st.integers(length, 5))
    feeds = {
        "q": numbers(0, batch, heads, length, size),
        "k": numbers(1, batch, groups, keys, size),
        "v": numbers(2, batch, groups, keys, value_size),
    }
    attributes: dict[str, Any] = {"is_causal": causal}
    if flat:
        feeds = {name: np.swapaxes(each, 1, 2).reshape(batch, each.shape[2], -1) for name, each in feeds.items()}
        attributes.update(q_num_heads=heads, kv_num_heads=groups)
    if data.draw(st.booleans()):
        attributes["scale"] = 0.7
    if data.draw(st.booleans()):
        attributes["softcap"] = 1.5
    names, outputs = ["q", "k", "v"], ["y"]
    if mask != "none":
        shape = data.draw(st.sampled_from([(length, keys + past), (batch, 1, length, keys + past)]))
        seen = np.random.default_rng(3).random(shape) < 0.7
        # The first key always counts: a row without any is tried below.
        seen[..., 0] = True
        feeds["m"] = seen if mask == "truths" else numbers(4, *shape)
    names.append("m" if mask != "none" else "")
    if past:
        feeds.update(pk=numbers(5, batch, groups, past, size), pv=numbers(6, batch, groups, past, value_size))
        names, outputs = [*names, "pk", "pv"], ["y", "nk", "nv"]
    model = build([node("Attention", names, outputs, **attributes)], feeds, outputs, opset=23, place=place)
    made, _ = rewritten(model, "decompose_attention")
    assert "Attention" not in operators(made)
    assert_same(model, made, graphs.with_which(feeds, place))


def test_a_row_that_attends_to_nothing_gives_nothing() -> None:
    feeds = {name: numbers(index, 1, 1, 3, 4) for index, name in enumerate("qkv")}
    feeds["m"] = np.array([[True, False, False], [False, False, False], [True, True, True]])
    model = build([node("Attention", ["q", "k", "v", "m"], ["y"])], feeds, ["y"], opset=23)
    found = graphs.run(rewritten(model, "decompose_attention")[0], feeds)["y"]
    assert np.all(found[0, 0, 1] == 0)
    assert np.all(found[0, 0, 0] != 0)


def test_attention_whose_scores_are_used_is_left_alone() -> None:
    feeds = {name: numbers(index, 1, 1, 3, 4) for index, name in enumerate("qkv")}
    model = build([node("Attention", ["q", "k", "v"], ["y", "", "", "s"])], feeds, ["y", "s"], opset=23)
    assert "scores are used" in obstacle(model, "decompose_attention")


@given(
    flat=st.booleans(),
    positions=st.booleans(),
    interleaved=st.integers(0, 1),
    partly=st.booleans(),
    place=PLACE,
    batch=st.integers(1, 2),
    heads=st.integers(1, 3),
)
def test_a_rotary_embedding_in_full_gives_the_same(
    flat: bool, positions: bool, interleaved: int, partly: bool, place: str, batch: int, heads: int
) -> None:
    length, size = 3, 8
    width = 4 if partly else size
    attributes: dict[str, Any] = {"interleaved": interleaved}
    if partly:
        attributes["rotary_embedding_dim"] = width
    # Partial rotation is told apart from a full one by the number of heads.
    if flat or partly:
        attributes["num_heads"] = heads
    x = numbers(0, batch, heads, length, size)
    feeds = {"x": np.swapaxes(x, 1, 2).reshape(batch, length, -1) if flat else x}
    cache = (7, width // 2) if positions else (batch, length, width // 2)
    feeds.update(cos=numbers(1, *cache), sin=numbers(2, *cache))
    if positions:
        feeds["at"] = np.random.default_rng(3).integers(0, 7, (batch, length))
    model = build([node("RotaryEmbedding", list(feeds), ["y"], **attributes)], feeds, ["y"], opset=23, place=place)
    made, _ = rewritten(model, "decompose_rotary_embedding")
    assert "RotaryEmbedding" not in operators(made)
    assert_same(model, made, graphs.with_which(feeds, place))


@pytest.mark.parametrize("name", ["decompose_attention", "decompose_rotary_embedding"])
def test_an_older_model_has_nothing_of_it(name: str) -> None:
    model = build([node("Relu", ["x"], ["y"])], {"x": numbers(0, 2, 3)}, ["y"])
    assert rewritten(model, name)[1] == []
