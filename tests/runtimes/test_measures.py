from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from runtimes import contract
from runtimes.reference import measures
from runtimes.reference.measures import SNR_CAP_DB, kind_of, measure, same_values, worst_at

PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
SHAPES = hnp.array_shapes(max_dims=4, max_side=5)
TYPES = st.sampled_from(("float16", "float32", "float64", "bool", "int8", "uint8", "int64", "uint64"))
TAME = st.floats(-1e6, 1e6, width=64)


def tensors(shape: tuple[int, ...]) -> st.SearchStrategy[NDArray[Any]]:
    """Return any tensors of a shape, NaN, infinity and denormals included."""
    return TYPES.flatmap(lambda dtype: hnp.arrays(dtype=dtype, shape=shape))


def tame(shape: tuple[int, ...]) -> st.SearchStrategy[NDArray[np.float64]]:
    return hnp.arrays(dtype=np.float64, shape=shape, elements=TAME)


PAIRS = SHAPES.flatmap(lambda shape: st.tuples(tensors(shape), tensors(shape)))
TAME_PAIRS = SHAPES.flatmap(lambda shape: st.tuples(tame(shape), tame(shape)))


@PATIENT
@given(PAIRS)
def test_whatever_is_compared_travels_as_json(pair: tuple[NDArray[Any], NDArray[Any]]) -> None:
    contract.dumps(measure(*pair))
    contract.dumps(worst_at(*pair))


def test_a_cosine_is_never_rounded_past_one() -> None:
    draw = np.random.default_rng(1)
    values = [draw.normal(size=3) for _ in range(300)]
    assert max(measure(value, value * 2).cosine or 0.0 for value in values) == 1.0


@PATIENT
@given(PAIRS)
def test_cosine_and_snr_stay_in_their_ranges(pair: tuple[NDArray[Any], NDArray[Any]]) -> None:
    found = measure(*pair)
    assert found.cosine is None or -1.0 <= found.cosine <= 1.0
    assert found.snr_db is None or -SNR_CAP_DB <= found.snr_db <= SNR_CAP_DB
    assert found.max_abs is None or found.max_abs >= 0.0


@PATIENT
@given(SHAPES.flatmap(tensors))
def test_a_tensor_matches_itself_exactly(tensor: NDArray[Any]) -> None:
    found = measure(tensor, tensor.copy())
    if np.isfinite(tensor).any():
        assert (found.cosine, found.snr_db, found.max_abs, found.max_rel) == (1.0, SNR_CAP_DB, 0.0, 0.0)
    else:
        assert found.cosine is None


@PATIENT
@given(TAME_PAIRS)
def test_cosine_and_the_largest_difference_do_not_depend_on_the_side(
    pair: tuple[NDArray[np.float64], NDArray[np.float64]],
) -> None:
    there, back = measure(*pair), measure(*reversed(pair))
    assert there.cosine == pytest.approx(back.cosine, abs=1e-12)
    assert there.max_abs == back.max_abs


@PATIENT
@given(TAME_PAIRS)
def test_only_equal_values_are_an_exact_match(pair: tuple[NDArray[np.float64], NDArray[np.float64]]) -> None:
    assert (measure(*pair).max_abs == 0.0) == bool((pair[0] == pair[1]).all())


@PATIENT
@given(TAME_PAIRS)
def test_the_numbers_are_those_of_the_textbook(pair: tuple[NDArray[np.float64], NDArray[np.float64]]) -> None:
    golden, output = (tensor.ravel() for tensor in pair)
    assume(np.abs(golden).max() > 1e-3 and np.abs(output).max() > 1e-3 and np.abs(golden - output).max() > 1e-3)
    found = measure(golden, output)
    cosine = golden @ output / (np.linalg.norm(golden) * np.linalg.norm(output))
    snr = 10 * math.log10((golden @ golden) / ((golden - output) @ (golden - output)))
    assert found.cosine == pytest.approx(cosine, abs=1e-12)
    assert found.snr_db == pytest.approx(snr, abs=1e-9)
    assert found.max_abs == np.abs(golden - output).max()
    assert found.max_rel == pytest.approx(np.abs(golden - output).max() / np.abs(golden).max())


@PATIENT
@given(SHAPES.flatmap(tame), st.floats(0.01, 0.9))
def test_a_wrong_scale_shows_in_the_snr_and_not_in_the_cosine(golden: NDArray[np.float64], change: float) -> None:
    assume(np.abs(golden).max() > 1e-3)
    found = measure(golden, golden * (1 + change))
    assert found.cosine == pytest.approx(1.0, abs=1e-12)
    assert found.snr_db == pytest.approx(-20 * math.log10(change), abs=1e-6)


@PATIENT
@given(SHAPES.flatmap(tame), st.integers(-1000, 1000))
def test_the_numbers_do_not_depend_on_the_unit(golden: NDArray[np.float64], power: int) -> None:
    golden = np.where(np.abs(golden) < 1.0, 1.0, golden)
    output = golden + np.linspace(0.1, 1.0, golden.size).reshape(golden.shape)
    found, scaled = measure(golden, output), measure(np.ldexp(golden, power), np.ldexp(output, power))
    assert scaled.cosine == pytest.approx(found.cosine, abs=1e-9)
    assert scaled.snr_db == pytest.approx(found.snr_db, abs=1e-6)


@PATIENT
@given(PAIRS, st.integers(1, 7))
def test_the_numbers_do_not_depend_on_the_size_of_the_pieces(
    pair: tuple[NDArray[Any], NDArray[Any]], size: int
) -> None:
    whole = measure(*pair)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measures, "PIECE", size)
        pieces = measure(*pair)
    for name, value in dataclasses.asdict(whole).items():
        found = getattr(pieces, name)
        assert found is value is None or found == pytest.approx(value, rel=1e-9, abs=1e-9), name


@pytest.mark.parametrize(
    ("golden", "output", "cosine", "snr_db", "max_abs", "max_rel"),
    [
        ([0.0, 0.0], [0.0, 0.0], 1.0, 200.0, 0.0, 0.0),
        ([0.0, 0.0], [0.0, 2.0], 0.0, -200.0, 2.0, 1.0),
        ([0.0, 4.0], [0.0, 0.0], 0.0, 0.0, 4.0, 1.0),
        ([1.0, 1.0], [-1.0, -1.0], -1.0, -6.0205999132796, 2.0, 2.0),
        ([], [], 1.0, 200.0, 0.0, 0.0),
        ([1.0, math.nan], [1.0, 7.0], 1.0, 200.0, 0.0, 0.0),
        ([math.nan], [1.0], None, None, None, None),
        ([math.inf], [math.inf], None, None, None, None),
        ([1.0, 2.0], [1.0, math.nan], None, None, None, None),
        ([1.0, 2.0], [1.0, -math.inf], None, None, None, None),
        ([1e308, 1.0], [-1e308, 1.0], -1.0, -5.0943111983349, 1.7976931348623157e308, 1.7976931348623157),
        ([5e-324], [1e308], 1.0, -200.0, 1e308, 1.7976931348623157e308),
    ],
)
def test_the_edges_follow_the_rules_that_are_written_down(
    golden: list[float],
    output: list[float],
    cosine: float | None,
    snr_db: float | None,
    max_abs: float | None,
    max_rel: float | None,
) -> None:
    found = measure(np.array(golden), np.array(output))
    wanted = [cosine, snr_db, max_abs, max_rel]
    assert [found.cosine, found.snr_db, found.max_abs, found.max_rel] == pytest.approx(wanted, abs=1e-9)


def test_what_is_not_finite_is_counted_wherever_it_stands() -> None:
    golden = np.array([1.0, np.nan, 3.0, 4.0, np.inf])
    found = measure(golden, np.array([np.nan, np.nan, np.inf, 4.0, -np.inf]))
    assert (found.nan, found.inf) == (2, 2)


@pytest.mark.parametrize(
    ("golden", "output", "distance"),
    [
        (np.array([2**62 + 1]), np.array([2**62]), 1.0),
        (np.array([-(2**63)]), np.array([2**63 - 1]), 2.0**64),
        (np.array([2**64 - 1], dtype=np.uint64), np.array([-1]), 2.0**64),
        (np.array([-1]), np.array([2**64 - 1], dtype=np.uint64), 2.0**64),
        (np.array([200], dtype=np.uint8), np.array([-56], dtype=np.int8), 256.0),
        (np.array([True, False]), np.array([True, True]), 1.0),
        (np.array([1], dtype=np.int32), np.array([1.5], dtype=np.float16), 0.5),
    ],
)
def test_whole_numbers_are_told_apart_at_any_size(golden: NDArray[Any], output: NDArray[Any], distance: float) -> None:
    assert measure(golden, output).max_abs == distance


def test_a_half_float_is_measured_in_double_precision() -> None:
    golden = np.full(100_000, 60000.0, dtype=np.float16)
    found = measure(golden, (golden * np.float16(0.5)).astype(np.float16))
    assert found.snr_db == pytest.approx(20 * math.log10(2))
    assert found.max_abs == 30000.0


def test_another_shape_is_no_match_even_when_it_could_be_broadcast() -> None:
    with pytest.raises(ValueError, match=r"shape \(1,\) is not the golden shape \(3,\)"):
        measure(np.ones(3), np.ones(1))
    with pytest.raises(ValueError, match="is not the golden shape"):
        worst_at(np.ones(3), np.ones(1))


@pytest.mark.parametrize("tensor", [np.array([1j]), np.array(["1"]), np.array([None])])
def test_what_is_no_real_number_is_refused(tensor: NDArray[Any]) -> None:
    with pytest.raises(ValueError, match="is no real number"):
        kind_of(tensor)
    with pytest.raises(ValueError, match="is no real number"):
        measure(tensor, tensor)


def test_the_largest_difference_has_a_place() -> None:
    golden = np.zeros((2, 3))
    golden[1, 2] = 5.0
    output = golden + 0.5
    output[0, 1] = 9.0
    assert worst_at(golden, output) == (0, 1)
    assert worst_at(np.zeros((0, 3)), np.zeros((0, 3))) == ()


def test_a_value_that_is_not_finite_is_the_worst_of_all() -> None:
    golden = np.array([1.0, 2.0, 3.0, np.inf])
    assert worst_at(golden, np.array([900.0, 2.0, np.nan, 0.0])) == (2,)


def test_widths_and_signs_of_zero_do_not_matter_for_the_same_value() -> None:
    left = np.array([0.0, 1.5, np.nan, np.inf], dtype=np.float16)
    assert same_values(left, np.array([-0.0, 1.5, np.nan, np.inf])).all()
    assert not same_values(left, np.array([1e-9, 1.25, 0.0, -np.inf])).any()
