from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aipc.facts import Gate, Measure
from aipc.reports import summary, words
from aipc.reports.report import Report, Thresholds
from runtimes.contract import Kind, Status, Verdict


@given(st.floats(-1.0, 1.0))
@example(0.99999)
@example(0.9989999999)
@example(1 - 1e-16)
def test_a_cosine_is_never_shown_better_than_it_is(value: float) -> None:
    assert Decimal(words.cosine(value)) <= Decimal(repr(value))


@pytest.mark.parametrize("threshold", [0.95, 0.999, 0.99999])
@given(shortfall=st.floats(1e-12, 0.5))
def test_a_cosine_below_its_threshold_is_shown_below_it(threshold: float, shortfall: float) -> None:
    assert Decimal(words.cosine(threshold - shortfall)) < Decimal(repr(threshold))


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1.0, "1"),
        (0.99999, "0.999990"),
        (0.999999997, "0.999999997"),
        (0.9999999999999, "0.999999999"),
        (0.95, "0.95000"),
        (0.0, "0.00000"),
        (-0.3, "-0.30000"),
        (None, "n/a"),
    ],
)
def test_a_cosine_has_the_digits_that_matter(value: float | None, shown: str) -> None:
    assert words.cosine(value) == shown


@given(st.floats(-200, 200))
@example(29.97)
def test_an_snr_is_never_shown_better_than_it_is(value: float) -> None:
    assert Decimal(words.snr(value)) <= Decimal(repr(value))


@given(st.floats(0, 1e30))
@example(0.0500001)
@example(9.999)
def test_a_difference_is_never_shown_smaller_than_it_is(value: float) -> None:
    assert Decimal(words.difference(value)) >= Decimal(repr(value))


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.0, "0"), (5.6e-4, "5.60e-4"), (0.0123401, "0.0124"), (4.05, "4.05"), (123456.0, "1.24e5"), (None, "n/a")],
)
def test_a_difference_has_three_digits(value: float | None, shown: str) -> None:
    assert words.difference(value) == shown


@pytest.mark.parametrize("value", [0.99999, 0.9999999, 30.0, 1e-3, 0.05, 60.0])
def test_a_threshold_is_shown_with_all_its_digits(value: float) -> None:
    assert float(words.exact(value)) == value


@pytest.mark.parametrize(
    ("gate", "measured", "asked"),
    [
        ("cosine:scores", "0.99640", "≥ 0.999"),
        ("snr:scores", "24.1 dB", "≥ 30 dB"),
        ("max_abs:boxes", "4.05", "≤ 0.5"),
        ("finite", "19", "0"),
        ("sensitive", "2e-06", "≥ 0.001"),
    ],
)
def test_a_gate_says_which_side_is_good(gate: str, measured: str, asked: str) -> None:
    values = {
        "cosine:scores": (0.9964, 0.999),
        "snr:scores": (24.14, 30.0),
        "max_abs:boxes": (4.0499, 0.5),
        "finite": (19.0, 0.0),
        "sensitive": (2e-6, 1e-3),
    }[gate]
    assert (words.measured(values[0], gate), words.asked(values[1], gate)) == (measured, asked)


def test_escape_sequences_and_hidden_characters_do_not_get_through() -> None:
    text = "\x1b[31mred\x1b[0m \x1b]8;;http://x\x07link\x1b]8;;\x07 a\u202eb\u2066c\x00d\x08e\x9bf\ttab"
    assert words.plain(text) == "red link abcdef\ttab"


def test_of_an_overprinted_line_the_last_state_stays() -> None:
    assert words.plain("  1%\r 50%\r100%\nnext\r\nlast\r") == "100%\nnext\nlast"


def test_a_headline_is_the_exception_and_not_the_traceback_above_it() -> None:
    assert words.headline("Traceback:\n  File x\nValueError: no such op\n") == "ValueError: no such op …"
    assert words.headline("first\nsecond") == "first …"
    assert words.headline("only") == "only"
    assert len(words.headline("x" * 1000)) <= 240


def test_every_word_of_the_contract_has_a_sentence() -> None:
    assert set(words.MEANINGS) == set(Verdict)
    assert set(words.ENDINGS) == set(Status)
    assert set(words.KINDS) == set(Kind)


def test_an_onnx_model_is_not_compared_with_pytorch() -> None:
    assert "PyTorch" in words.meaning(Verdict.AGREES, "pytorch")
    assert "PyTorch" not in words.meaning(Verdict.AGREES, "onnxruntime")
    assert "ONNX Runtime FP32" in words.meaning(Verdict.AGREES, "onnxruntime")


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.644, "0.64 s"), (21.44, "21.4 s"), (754.0, "12 min 34 s"), (7260.0, "2 h 01 min")]
)
def test_a_duration_is_for_people(seconds: float, shown: str) -> None:
    assert words.duration(seconds) == shown


@pytest.mark.parametrize(
    ("size_bytes", "shown"), [(999, "999 B"), (1_812_007, "1.8 MB"), (999_960, "1.0 MB"), (8_510_000_000, "8.5 GB")]
)
def test_a_size_is_for_people(size_bytes: int, shown: str) -> None:
    assert words.size(size_bytes) == shown


def test_looser_tolerances_and_smaller_inputs_are_told(reports: Mapping[str, Report]) -> None:
    assert summary.caveats(reports["disagrees"]) == (
        "Looser tolerance for boxes: cosine ≥ 0.99 instead of 0.999.",
        "Looser tolerance for boxes: SNR ≥ 20 dB instead of 30 dB.",
        "Smaller input: image was tried at 1×3×256×320, the model declares 1×3×640×640.",
    )


def test_a_limit_that_is_lifted_or_widened_is_told(reports: Mapping[str, Report]) -> None:
    tolerance = reports["agrees"].tolerances[0]
    limited = dataclasses.replace(tolerance.default, max_abs=0.1)
    for max_abs, said in ((None, "no limit on max abs instead of 0.1"), (0.2, "max abs ≤ 0.2 instead of 0.1")):
        applied = dataclasses.replace(limited, max_abs=max_abs)
        looser = dataclasses.replace(tolerance, default=limited, applied=applied)
        report = dataclasses.replace(reports["agrees"], tolerances=(looser,))
        assert summary.caveats(report) == (f"Looser tolerance for image: {said}.",)


def test_stricter_tolerances_and_larger_inputs_are_no_caveats(reports: Mapping[str, Report]) -> None:
    report = reports["agrees"]
    strict = dataclasses.replace(report.tolerances[0], applied=Thresholds(cosine=0.9999, snr_db=40, max_abs=0.1))
    larger = dataclasses.replace(report.inputs[0], declared=(1, 3, 24, 32))
    assert summary.caveats(dataclasses.replace(report, tolerances=(strict,), inputs=(larger,))) == ()


def test_the_worst_of_each_number_is_found_in_its_own_sample(reports: Mapping[str, Report]) -> None:
    report = reports["agrees"]
    first = dataclasses.replace(report.measures[0], cosine=0.9991, max_abs=7.0)
    (group,) = summary.group_numbers(dataclasses.replace(report, measures=(first, *report.measures[1:])))
    assert [(number.name, number.sample, number.shown) for number in group.numbers] == [
        ("cosine", "photo", "0.99910"),
        ("SNR", "random-10.0", "86.1 dB"),
        ("max abs", "photo", "7"),
    ]
    assert group


def measure(**change: float | None) -> Measure:
    good = Measure(group="g", output="y", sample="s", cosine=1.0, snr_db=200.0, max_abs=0.0, max_rel=0.0)
    return dataclasses.replace(good, **change)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "off"),
    [
        ({}, set()),
        ({"cosine": 0.9}, {"cosine"}),
        ({"cosine": None}, {"cosine"}),
        ({"snr_db": 29.99}, {"snr_db"}),
        ({"max_abs": 0.6}, {"max_abs"}),
        ({"nan": 1}, {"nan"}),
        ({"inf": 1}, {"inf"}),
        ({"equal": 1.0, "cosine": 0.0, "snr_db": 0.0}, set()),
        ({"equal": 0.9}, {"equal"}),
    ],
)
def test_a_row_fails_where_it_misses_what_it_was_held_to(
    reports: Mapping[str, Report], change: Mapping[str, float | None], off: set[str]
) -> None:
    asked = Thresholds(cosine=0.99, snr_db=30.0, max_abs=0.5)
    tolerance = dataclasses.replace(reports["agrees"].tolerances[0], group="g", applied=asked)
    gates = tuple(Gate(name=f"{name}:g", passed=False) for name in ("cosine", "snr", "max_abs", "equal"))
    report = dataclasses.replace(reports["disagrees"], gates=gates)
    assert summary.failing(report, tolerance, measure(**change)) == off


def test_broken_values_are_worse_than_any_number() -> None:
    broken, far, good = measure(nan=1, cosine=None, snr_db=None), measure(snr_db=-10.0), measure()
    assert summary.worst([good, far, broken]) is broken
    assert summary.worst([good, far]) is far
    assert summary.worst([]) is None
