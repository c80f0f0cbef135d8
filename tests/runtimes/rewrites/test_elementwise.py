"""Comparisons and arithmetic in place of operators of single elements give the same."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto

from runtimes.reference import rewrites
from runtimes.reference.rewrites import Unsuitable
from tests.runtimes.rewrites import graphs
from tests.runtimes.rewrites.graphs import PLACES, assert_same, build, node, obstacle, operators, rewritten

PLACE = st.sampled_from(PLACES)
OPSET = st.integers(11, 23)
SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.5, -2.5, 1e30, -1e30, float("inf"), float("-inf"), float("nan"))
NUMBER = st.sampled_from(SPECIAL) | st.floats(-100, 100, width=32)
NUMBERS = st.lists(NUMBER, min_size=1, max_size=12)


@given(numbers=NUMBERS, place=PLACE, opset=st.integers(13, 23))
def test_isnan_by_a_comparison_gives_the_same(numbers: list[float], place: str, opset: int) -> None:
    feeds = {"x": np.array(numbers, np.float32)}
    model = build([node("IsNaN", ["x"], ["y"])], feeds, ["y"], opset=opset, place=place)
    made, _ = rewritten(model, "isnan_to_compare")
    assert "IsNaN" not in operators(made)
    assert_same(model, made, graphs.with_which(feeds, place))


@given(numbers=NUMBERS, place=PLACE, opset=OPSET, positive=st.integers(0, 1), negative=st.integers(0, 1))
def test_isinf_by_a_comparison_gives_the_same(
    numbers: list[float], place: str, opset: int, positive: int, negative: int
) -> None:
    feeds = {"x": np.array([*numbers, np.finfo(np.float32).max], np.float32)}
    nodes = [node("IsInf", ["x"], ["y"], detect_positive=positive, detect_negative=negative)]
    model = build(nodes, feeds, ["y"], opset=opset, place=place)
    made, _ = rewritten(model, "isinf_to_compare")
    assert "IsInf" not in operators(made)
    assert_same(model, made, graphs.with_which(feeds, place))


@given(
    pairs=st.lists(
        st.tuples(st.integers(-(2**20), 2**20), st.integers(-50, 50).filter(bool) | st.just(2**30)),
        min_size=1,
        max_size=9,
    ),
    fmod=st.integers(0, 1),
    dtype=st.sampled_from([np.int32, np.int64, np.uint32, np.uint64]),
    place=PLACE,
    opset=OPSET,
)
def test_mod_of_integers_gives_the_same(
    pairs: list[tuple[int, int]], fmod: int, dtype: type, place: str, opset: int
) -> None:
    signed = np.issubdtype(dtype, np.signedinteger)
    numbers: np.ndarray = np.array(pairs if signed else np.abs(pairs), dtype)
    feeds = {"x": numbers[:, 0], "by": numbers[:, 1]}
    model = build([node("Mod", ["x", "by"], ["y"], fmod=fmod)], feeds, ["y"], opset=opset, place=place)
    made, _ = rewritten(model, "mod_to_arithmetic")
    assert "Mod" not in operators(made)
    assert_same(model, made, graphs.with_which(feeds, place))


@given(
    numbers=st.lists(st.sampled_from([0.0, -0.0, 7.5, -7.5]) | st.floats(-1e3, 1e3, width=32), min_size=1, max_size=9),
    divisor=st.sampled_from([1.0, -2.0, 0.25, 3.0, -7.5, float("inf"), 6.2831855]),
    place=PLACE,
    opset=OPSET,
)
def test_mod_of_floats_gives_the_same(numbers: list[float], divisor: float, place: str, opset: int) -> None:
    feeds = {"x": np.array([*numbers, 0.9], np.float32), "by": np.array([divisor], np.float32)}
    model = build([node("Mod", ["x", "by"], ["y"], fmod=1)], feeds, ["y"], opset=opset, place=place)
    made, _ = rewritten(model, "mod_to_arithmetic")
    fed = graphs.with_which(feeds, place)
    for expected, found in zip(graphs.run(model, fed).values(), graphs.run(made, fed).values(), strict=True):
        # A rest of nothing and one of the whole divisor are neighbours: rounding may go either way.
        apart = np.abs(found - expected)
        assert np.minimum(apart, np.abs(abs(divisor) - apart)).max() <= 1.3e-4
        assert np.all(found * feeds["x"] >= 0), "the rest has the sign of the dividend"


def test_mod_by_zero_and_of_infinity_is_not_a_number_as_before() -> None:
    feeds = {"x": np.array([1.0, np.inf, np.nan, 5.0], np.float32), "by": np.array([0.0, 2, 2, 2], np.float32)}
    model = build([node("Mod", ["x", "by"], ["y"], fmod=1)], feeds, ["y"])
    assert_same(model, rewritten(model, "mod_to_arithmetic")[0], feeds)


def test_mod_of_small_integers_is_left_alone() -> None:
    feeds = {"x": np.array([7, 8], np.int8), "by": np.array([3, 3], np.int8)}
    model = build([node("Mod", ["x", "by"], ["y"])], feeds, ["y"])
    assert "INT8" in obstacle(model, "mod_to_arithmetic")


@given(
    name=st.sampled_from(["Ceil", "Sign", "Min", "Mean"]),
    rows=st.lists(st.tuples(NUMBER, NUMBER, NUMBER), min_size=1, max_size=6),
    count=st.integers(1, 3),
    place=PLACE,
    opset=st.integers(13, 23),
)
def test_floats_by_other_operators_give_the_same(
    name: str, rows: list[tuple[float, float, float]], count: int, place: str, opset: int
) -> None:
    table = np.array(rows, np.float32)
    if name in {"Mean", "Min"}:
        # What infinities of both signs and NaN give depends on the order, in ONNX Runtime too.
        table = np.nan_to_num(table, nan=0.0, posinf=50.0, neginf=-50.0)
        table = np.clip(table, -1e6, 1e6)
    if name == "Sign":
        table = np.nan_to_num(table, nan=0.0)
    names = ["a", "b", "c"][: count if name in {"Mean", "Min"} else 1]
    feeds = {each: table[:, index] for index, each in enumerate(names)}
    model = build([node(name, names, ["y"])], feeds, ["y"], opset=opset, place=place)
    made, changed = rewritten(model, "decompose_elementwise")
    assert changed
    assert name not in operators(made)
    assert_same(model, made, graphs.with_which(feeds, place))


@given(name=st.sampled_from(["Or", "Xor"]), place=PLACE, opset=OPSET, wide=st.booleans())
def test_truths_by_other_operators_give_the_same(name: str, place: str, opset: int, wide: bool) -> None:
    feeds = {"a": np.array([[False, True, False, True]]), "b": np.array([[False, False, True, True]])}
    if wide:
        feeds["b"] = np.array([[True], [False]])
    model = build([node(name, ["a", "b"], ["y"])], feeds, ["y"], opset=opset, place=place)
    made, _ = rewritten(model, "decompose_elementwise")
    assert name not in operators(made)
    assert_same(model, made, graphs.with_which(feeds, place))


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_a_sign_of_narrow_integers_is_left_alone(dtype: type) -> None:
    model = build([node("Sign", ["x"], ["y"])], {"x": np.array([1, 0], dtype)}, ["y"])
    assert "too narrow" in obstacle(model, "decompose_elementwise")


def test_mod_of_a_type_that_nobody_knows_is_not_tried() -> None:
    nodes = [ir.node("Mod", [ir.Value(name="a"), ir.Value(name="b")])]
    model = ir.Model(ir.Graph([], [], nodes=nodes, opset_imports={"": 17}), ir_version=10)
    assert "type is unknown" in rewrites.find("mod_to_arithmetic").requires(model)


@given(
    kind=st.sampled_from([np.float32, np.bool_, np.int32, np.uint8]),
    wanted=st.sampled_from([6, 7]),
    numbers=st.lists(st.integers(0, 200), min_size=1, max_size=6),
    place=PLACE,
    opset=OPSET,
)
def test_a_cast_by_way_of_int32_gives_the_same(
    kind: type, wanted: int, numbers: list[int], place: str, opset: int
) -> None:
    feeds: graphs.Feeds = {"x": np.array(numbers).astype(kind)}
    if kind is np.float32:
        feeds = {"x": (np.array(numbers, np.float32) - np.float32(100)) * np.float32(0.25)}
    model = build([node("Cast", ["x"], ["y"], to=wanted)], feeds, ["y"], opset=opset, place=place)
    made, changed = rewritten(model, "cast_through_int32")
    assert bool(changed) == (wanted == 7 and kind is not np.int32)
    assert_same(model, made, graphs.with_which(feeds, place))
    assert rewritten(made, "cast_through_int32")[1] == []


@given(
    kind=st.sampled_from([np.float32, np.int32, np.int64]),
    numbers=st.lists(st.integers(-200, 200), min_size=1, max_size=6),
    place=PLACE,
    opset=st.integers(13, 23),
)
def test_a_negated_integer_by_a_difference_is_the_same(kind: type, numbers: list[int], place: str, opset: int) -> None:
    feeds: graphs.Feeds = {"x": np.array(numbers).astype(kind)}
    model = build([node("Neg", ["x"], ["y"])], feeds, ["y"], opset=opset, place=place)
    made, changed = rewritten(model, "neg_to_sub")
    assert bool(changed) == (kind is not np.float32)
    assert_same(model, made, graphs.with_which(feeds, place))


@given(numbers=st.lists(st.integers(-200, 200), min_size=1, max_size=6), place=PLACE, opset=OPSET)
def test_a_constant_factor_goes_behind_the_other(numbers: list[int], place: str, opset: int) -> None:
    feeds = {"x": np.array(numbers, np.float32)}
    nodes = [node("Mul", ["w", "x"], ["a"]), node("Mul", ["a", "w"], ["b"]), node("Mul", ["b", "x"], ["y"])]
    constants: dict[str, np.ndarray] = {"w": np.array([0.3], np.float32)}
    model = build(nodes, feeds, ["y"], opset=opset, place=place, constants=constants)
    made, changed = rewritten(model, "constant_factor_last")
    assert {"a" in name for name in changed} == {True}
    before, after = (graphs.run(each, graphs.with_which(feeds, place)) for each in (model, made))
    assert [value.tobytes() for value in before.values()] == [value.tobytes() for value in after.values()]
    assert rewritten(made, "constant_factor_last")[1] == []


@pytest.mark.parametrize("number", [3e9, 1e9, -2.5e9])
def test_a_cast_of_numbers_that_int32_does_not_hold_is_refused(number: float) -> None:
    feeds = {"x": np.array([1.5, number], np.float32)}
    nodes = [node("Add", ["x", "x"], ["a"]), node("Cast", ["a"], ["y"], to=TensorProto.INT64)]
    model = build(nodes, feeds, ["y"])
    with pytest.raises(Unsuitable, match=r"node_y \(Cast\): it takes numbers up to .*int32 holds up to"):
        rewritten(model, "cast_through_int32", {"one": feeds})
    small = {"x": np.array([1.5, 1e6], np.float32)}
    assert rewritten(model, "cast_through_int32", {"one": small})[1]


@given(
    numbers=st.lists(st.sampled_from([0.0, -0.0, 2.5, -2.5]) | st.floats(-50, 50, width=32), min_size=1, max_size=9),
    exponent=st.sampled_from([0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 1.5, 9.0, -1.0]),
    kind=st.sampled_from([np.float32, np.int64]),
    shape=st.sampled_from([(), (1,)]),
    place=PLACE,
    opset=OPSET.filter(lambda number: number >= 13),
)
def test_a_power_by_products_is_the_same(
    numbers: list[float], exponent: float, kind: type, shape: tuple[int, ...], place: str, opset: int
) -> None:
    feeds = {"x": np.abs(np.array(numbers, np.float32)) if exponent % 1 else np.array(numbers, np.float32)}
    constants: dict[str, np.ndarray] = {"e": np.full(shape, exponent).astype(kind if exponent % 1 == 0 else np.float32)}
    model = build([node("Pow", ["x", "e"], ["y"])], feeds, ["y"], opset=opset, place=place, constants=constants)
    made, changed = rewritten(model, "power_to_mul")
    assert bool(changed) == (exponent not in {1.5, 9.0, -1.0})
    assert ("Pow" in operators(made)) != bool(changed)
    assert_same(model, made, graphs.with_which(feeds, place))
    assert rewritten(made, "power_to_mul")[1] == []


@pytest.mark.parametrize(
    ("end", "axis", "factor", "stays"),
    [
        ("Reciprocal", -1, "w", True),
        ("Reciprocal", 1, "w", True),
        ("Neg", -1, "w", False),
        ("Reciprocal", 0, "w", False),
        ("Reciprocal", -1, "x", False),
    ],
)
@pytest.mark.parametrize("opset", [17, 18])
def test_only_the_squares_of_a_normalisation_that_htp_knows_stay(
    end: str, axis: int, factor: str, stays: bool, opset: int
) -> None:
    feeds = {"x": np.array([[1.5, -3, 0.25]], np.float32)}
    mean = node("ReduceMean", ["p"], ["m"], axes=[axis]) if opset < 18 else node("ReduceMean", ["p", "axes"], ["m"])
    nodes = [
        node("Pow", ["x", "two"], ["p"]),
        mean,
        node("Add", ["m", "two"], ["a"]),
        node("Sqrt", ["a"], ["s"]),
        node(end, ["s"], ["r"]),
        node("Mul", ["x", "r"], ["n"]),
        node("Mul", ["n", factor], ["y"]),
    ]
    constants: dict[str, np.ndarray] = {"two": np.array(2, np.float32), "w": np.ones(3, np.float32)}
    constants |= {} if opset < 18 else {"axes": np.array([axis])}
    model = build(nodes, feeds, ["y"], opset=opset, constants=constants)
    made, changed = rewritten(model, "power_to_mul")
    assert not changed if stays else changed
    assert_same(model, made, feeds)


def test_a_power_whose_exponent_gives_it_dimensions_is_refused() -> None:
    feeds: graphs.Feeds = {"x": np.array([2, 3], np.float32)}
    constants: dict[str, np.ndarray] = {"e": np.full((1, 1), 2, np.float32)}
    model = build([node("Pow", ["x", "e"], ["y"])], feeds, ["y"], opset=17, constants=constants)
    assert "gives it dimensions" in obstacle(model, "power_to_mul")


def test_a_power_of_whole_numbers_stays() -> None:
    feeds: graphs.Feeds = {"x": np.array([2, 3], np.int64)}
    model = build([node("Pow", ["x", "e"], ["y"])], feeds, ["y"], opset=17, constants={"e": np.array(2)})
    assert rewritten(model, "power_to_mul")[1] == []


@pytest.mark.parametrize(("shape", "fits"), [((), True), ((1,), False)])
def test_a_power_of_unknown_rank_is_by_products_where_the_exponent_is_a_scalar(
    shape: tuple[int, ...], fits: bool
) -> None:
    feeds: graphs.Feeds = {"x": np.array([2, -3], np.float32), "s": np.array([2, 1])}
    constants: dict[str, np.ndarray] = {"e": np.full(shape, 2, np.float32)}
    nodes = [node("Reshape", ["x", "s"], ["r"]), node("Pow", ["r", "e"], ["p"]), node("Reshape", ["p", "flat"], ["y"])]
    model = build(nodes, feeds, ["y"], opset=17, constants={**constants, "flat": np.array([2])})
    model.graph.input[1].type.tensor_type.shape.dim[0].dim_param = "rank"
    if fits:
        assert_same(model, rewritten(model, "power_to_mul")[0], feeds)
    else:
        assert "gives it dimensions" in obstacle(model, "power_to_mul")


@given(numbers=st.lists(st.integers(0, 255), min_size=1, max_size=9), place=PLACE, opset=OPSET)
def test_a_cast_of_bytes_by_way_of_int32_is_the_same(numbers: list[int], place: str, opset: int) -> None:
    feeds = {"x": np.array(numbers, np.uint8)}
    model = build([node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)], feeds, ["y"], opset=opset, place=place)
    made, changed = rewritten(model, "cast_bytes_through_int32")
    assert changed
    assert_same(model, made, graphs.with_which(feeds, place))
    assert rewritten(made, "cast_bytes_through_int32")[1] == []


@given(rows=st.integers(1, 4), columns=st.integers(1, 4), batch=st.sampled_from([(), (2,)]), place=PLACE, opset=OPSET)
def test_an_add_of_a_column_and_a_row_with_one_expanded_is_the_same(
    rows: int, columns: int, batch: tuple[int, ...], place: str, opset: int
) -> None:
    rng = np.random.default_rng(0)
    feeds = {"x": rng.normal(size=(*batch, rows, 1)).astype("f"), "r": rng.normal(size=(1, columns)).astype("f")}
    model = build([node("Add", ["x", "r"], ["y"])], feeds, ["y"], opset=opset, place=place)
    made, changed = rewritten(model, "expand_operand")
    assert bool(changed) == (columns > 1 and (rows > 1 or bool(batch)))
    assert_same(model, made, graphs.with_which(feeds, place))
    assert rewritten(made, "expand_operand")[1] == []
