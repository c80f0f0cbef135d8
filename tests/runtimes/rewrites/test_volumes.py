"""Over two dimensions and then one gives the same as over three."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.runtimes.rewrites import graphs
from tests.runtimes.rewrites.graphs import PLACES, assert_same, build, node, obstacle, operators, rewritten

VOLUME = np.random.default_rng(9).standard_normal((1, 2, 3, 4, 5)).astype(np.float32)


@given(
    factors=st.tuples(*[st.sampled_from([0.5, 1.0, 1.6, 2.0, 3.0])] * 3),
    by_scale=st.booleans(),
    mode=st.sampled_from(["nearest", "linear"]),
    where=st.sampled_from(["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"]),
    place=st.sampled_from(PLACES[:3]),
    opset=st.integers(13, 19),
)
def test_a_resize_in_three_dimensions_gives_the_same(
    factors: tuple[float, float, float], by_scale: bool, mode: str, where: str, place: str, opset: int
) -> None:
    scales = np.array([1, 1, *factors], np.float32)
    sizes = np.floor(np.array(VOLUME.shape) * scales).astype(np.int64)
    names, constants = (["x", "", "s"], {"s": scales}) if by_scale else (["x", "", "", "s"], {"s": sizes})
    one = node("Resize", names, ["y"], mode=mode, coordinate_transformation_mode=where)
    model = build([one], {"x": VOLUME}, ["y"], opset=opset, place=place, constants=constants)
    made, changed = rewritten(model, "split_resize")
    assert changed
    assert "Reshape" in operators(made)
    assert_same(model, made, graphs.with_which({"x": VOLUME}, place))


@pytest.mark.parametrize(
    ("names", "attributes", "why"),
    [
        (["x", "", "s"], {}, "it changes the batch or the channels"),
        (["x", "roi", "t"], {"coordinate_transformation_mode": "tf_crop_and_resize"}, "only a part of its input"),
    ],
)
def test_what_cannot_be_taken_apart_is_told(names: list[str], attributes: dict[str, str], why: str) -> None:
    constants = {
        "s": np.array([1, 2, 2, 2, 2], np.float32),
        "t": np.array([1, 1, 2, 2, 2], np.float32),
        "roi": np.array([0] * 5 + [1] * 5, np.float32),
    }
    given = {name: held for name, held in constants.items() if name in names}
    model = build([node("Resize", names, ["y"], mode="nearest", **attributes)], {"x": VOLUME}, ["y"], constants=given)
    assert why in obstacle(model, "split_resize")


def test_a_resize_of_pictures_stays() -> None:
    feeds, held = {"x": VOLUME[0]}, {"s": np.array([1, 1, 2, 2], np.float32)}
    model = build([node("Resize", ["x", "", "s"], ["y"], mode="nearest")], feeds, ["y"], constants=held)
    assert rewritten(model, "split_resize")[1] == []


@given(place=st.sampled_from(PLACES[:3]), opset=st.integers(11, 23), epsilon=st.sampled_from([1e-5, 0.1]))
def test_the_instances_of_a_volume_are_normalised_as_those_of_a_picture(place: str, opset: int, epsilon: float) -> None:
    constants = {"scale": np.array([0.5, -2], np.float32), "shift": np.array([1, 0.25], np.float32)}
    one = node("InstanceNormalization", ["x", "scale", "shift"], ["y"], epsilon=epsilon)
    model = build([one], {"x": VOLUME}, ["y"], opset=opset, place=place, constants=constants)
    made, changed = rewritten(model, "flatten_instance_norm")
    assert changed
    assert_same(model, made, graphs.with_which({"x": VOLUME}, place))
    assert rewritten(made, "flatten_instance_norm")[1] == []
