"""What the judge lets itself be told: all that it needs, and every limit that a matrix takes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aipc import model
from runtimes import contract
from runtimes.contract import Json, Misused, Verdict
from runtimes.reference.judge import decide
from runtimes.reference.judge_case import Group, Options
from tests.runtimes.judge_cases import GROUPS, asking, good

OPTIONS = contract.encode(good().options)
GROUP: Mapping[str, Json] = OPTIONS["groups"][0]
NUMBERS = st.floats(allow_nan=True, allow_infinity=True)


def accepts(cls: type[Group | model.Tolerance], fields: Mapping[str, Json]) -> bool:
    try:
        contract.decode(cls, fields, "limits")
    except Misused:
        return False
    return True


@given(cosine=NUMBERS | st.floats(-1, 1), snr_db=NUMBERS, max_abs=st.none() | NUMBERS)
@example(cosine=-1.0, snr_db=-1e308, max_abs=0.0)
@example(cosine=1.0, snr_db=1e308, max_abs=1e308)
@example(cosine=1.0000001, snr_db=0.0, max_abs=None)
@example(cosine=math.nan, snr_db=0.0, max_abs=None)
@example(cosine=0.0, snr_db=math.nan, max_abs=None)
@example(cosine=0.0, snr_db=-math.inf, max_abs=None)
@example(cosine=0.0, snr_db=0.0, max_abs=-1e-9)
@example(cosine=0.0, snr_db=0.0, max_abs=math.inf)
@example(cosine=0.0, snr_db=0.0, max_abs=math.nan)
def test_the_judge_takes_exactly_the_limits_that_a_matrix_takes(
    cosine: float, snr_db: float, max_abs: float | None
) -> None:
    limits = {"cosine": cosine, "snr_db": snr_db, "max_abs": max_abs}
    assert accepts(Group, {**GROUP, **limits}) == accepts(model.Tolerance, limits)


@pytest.mark.parametrize("snr_db", [-1.7e308, -201.0, 201.0, 1.7e308])
def test_a_limit_that_no_snr_reaches_is_judged_all_the_same(snr_db: float) -> None:
    groups = (dataclasses.replace(GROUPS[0], snr_db=snr_db), *GROUPS[1:])
    expected = Verdict.VACUOUS if snr_db < 0 else Verdict.DISAGREES
    assert decide(asking(good(), groups=groups)).verdict is expected


def test_a_group_of_the_matrix_is_a_group_of_the_judge() -> None:
    usual = model.Tolerance(cosine=0.999, snr_db=30.0)
    declared = model.Group(name="a", outputs=("y",), content=model.OutputContent.PICTURE)
    limited = dataclasses.replace(declared, **contract.encode(declared.tolerance(usual)))
    found = contract.decode(Group, contract.encode(limited), "group")
    assert (found.cosine, found.snr_db, found.max_abs, found.content) == (0.999, 30.0, None, "picture")
    assert {content.value for content in model.OutputContent} == {"tensor", "picture"}


@pytest.mark.parametrize("key", [field.name for field in dataclasses.fields(Options)])
def test_no_option_can_be_left_out(key: str) -> None:
    with pytest.raises(Misused, match=f"the key '{key}' is missing"):
        contract.decode(Options, {name: value for name, value in OPTIONS.items() if name != key}, "options")


@pytest.mark.parametrize("key", [field.name for field in dataclasses.fields(Group)])
def test_no_limit_of_a_group_can_be_left_out(key: str) -> None:
    with pytest.raises(Misused, match=f"the key '{key}' is missing"):
        contract.decode(Group, {name: value for name, value in GROUP.items() if name != key}, "group")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"groups": [{**GROUP, "cosine": 1.1}]}, "group 'image': cosine 1.1; write a number from -1 to 1"),
        ({"groups": [{**GROUP, "snr_db": -math.inf}]}, "snr_db -inf; write a finite number"),
        ({"groups": [{**GROUP, "max_abs": -1.0}]}, "max_abs -1.0; write a finite number that is not negative"),
        ({"groups": [{**GROUP, "content": "image"}]}, "content 'image'; write one of tensor, pic"),
        ({"groups": [GROUP, {**GROUP, "outputs": ["z"]}]}, "a name stands there twice"),
        ({"groups": [GROUP, {**GROUP, "name": "b"}]}, "an output stands there twice"),
        ({"gates": ["cosine"]}, "unknown key 'gates'"),
        ({"sensitivity_floor": 1e-9}, "unknown key 'sensitivity_floor'"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: Mapping[str, Json], message: str) -> None:
    with pytest.raises(Misused, match=message):
        contract.decode(Options, {**OPTIONS, **options}, "job.json: options")
