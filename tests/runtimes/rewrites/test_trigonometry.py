"""Trigonometry by polynomials and exponentials gives what ONNX Runtime's own gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtimes.reference.rewrites import trigonometry
from tests.runtimes.rewrites import graphs
from tests.runtimes.rewrites.graphs import PLACES, assert_same, build, node, operators, rewritten

DOMAINS = {
    "Acos": (-1.0, 1.0),
    "Acosh": (1.0, 1e4),
    "Asin": (-1.0, 1.0),
    "Asinh": (-1e4, 1e4),
    "Atan": (-1e6, 1e6),
    "Atanh": (-0.9990234375, 0.9990234375),
    "Cosh": (-80.0, 80.0),
    "Sinh": (-80.0, 80.0),
    "Tan": (-1.5, 1.5),
}
"""By op type: where it is tried."""


@given(data=st.data(), name=st.sampled_from(sorted(DOMAINS)), place=st.sampled_from(PLACES), opset=st.integers(11, 21))
def test_trigonometry_written_out_gives_the_same(data: Any, name: str, place: str, opset: int) -> None:
    least, most = DOMAINS[name]
    numbers = data.draw(st.lists(st.floats(least, most, width=32), min_size=1, max_size=12))
    # The ends and 1 give a result of a size that 2e-5 of it is measured by.
    feeds = {"x": np.array([*numbers, least, most, 1.0 if most > 1 else 0.5], np.float32)}
    model = build([node(name, ["x"], ["y"])], feeds, ["y"], opset=opset, place=place)
    made, changed = rewritten(model, "atan_to_polynomial" if name == "Atan" else "decompose_trigonometry")
    assert changed
    assert name not in operators(made)
    assert_same(model, made, graphs.with_which(feeds, place))


def test_every_function_of_the_rewrite_is_tried_here() -> None:
    assert set(trigonometry.FORMULAS) | {"Atan"} == set(DOMAINS)


@pytest.mark.parametrize(("dtype", "most"), [(np.float32, 3e-7), (np.float16, 4e-3)])
def test_the_polynomial_of_atan_is_near_everywhere(dtype: type, most: float) -> None:
    special = [np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 6e4, -6e4]
    numbers: np.ndarray = np.array([*special, *np.linspace(-9, 9, 60_001)]).astype(dtype)
    model = build([node("Atan", ["x"], ["y"])], {"x": numbers}, ["y"])
    found = graphs.run(rewritten(model, "atan_to_polynomial")[0], {"x": numbers})["y"]
    assert found.dtype == dtype
    assert np.abs(found - np.arctan(numbers.astype(np.float64))).max() < most


@pytest.mark.parametrize(
    ("name", "number"),
    [
        *[(name, np.nan) for name in DOMAINS],
        *[("Asin", 1.5), ("Acos", -2.0), ("Acosh", 0.5), ("Atanh", 2.0), ("Atanh", 1.0), ("Atanh", -1.0)],
        *[("Sinh", np.inf), ("Cosh", -np.inf), ("Asinh", np.inf), ("Acosh", np.inf), ("Sinh", 89.0), ("Cosh", -89.0)],
    ],
)
def test_where_a_function_is_infinite_or_undefined_it_stays_so(name: str, number: float) -> None:
    feeds = {"x": np.array([number, 0.5], np.float32)}
    model = build([node(name, ["x"], ["y"])], feeds, ["y"])
    made, _ = rewritten(model, "atan_to_polynomial" if name == "Atan" else "decompose_trigonometry")
    assert_same(model, made, feeds)
