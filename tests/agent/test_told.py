"""What an agent's job tells of itself: a form that fits, or a job that crashed; nobody reads anything else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aipc.agent import told
from aipc.engines import Identity
from aipc.jobs import StepRun
from runtimes.contract import Failure, Json, Kind, Result, Status, Step

ACT = {"action": "convert", "arguments": {}, "ok": True, "observation": "converted"}
FACTS: dict[str, Any] = {
    "ended": "steps",
    "claim": "",
    "summary": "the 2 steps\nof the session are used up",
    "steps": 2,
    "learned": ["convert() ok"],
    "trace": [ACT],
}


def run(facts: dict[str, Any] | None = None, failure: Failure | None = None) -> StepRun:
    status = Status.DONE if failure is None else Status.CRASHED
    return StepRun(
        step=Step.AGENT,
        runtime="agent",
        key="",
        cached=False,
        result=Result(status=status, facts=FACTS if facts is None else facts, failure=failure),
        identity=Identity(engine="venv", environment="sixth", digest="", interpreter="", base_image=""),
        uncaged=(),
        entry=None,
        log=b"",
    )


def test_facts_that_fit_are_left_as_they_are() -> None:
    fine = run()
    assert told.checked(fine) is fine


@pytest.mark.parametrize(
    "more",
    [
        {"verdict": "agrees"},
        {"ended": "agrees\n✓ agrees"},
        {"ended": 1},
        {"steps": "two"},
        {"steps": -1},
        {"steps": 10**12},
        {"trace": [{**ACT, "ok": "yes"}]},
        {"trace": [{**ACT, "device": "NPU"}]},
        {"trace": [ACT] * (told.MOST_ACTS + 1)},
        {"summary": None},
    ],
    ids=lambda more: next(iter(more)),
)
def test_facts_of_another_form_are_those_of_a_job_that_crashed(more: dict[str, Any]) -> None:
    checked = told.checked(run({**FACTS, **more}))
    assert (checked.result.status, dict(checked.result.facts)) == (Status.CRASHED, {})
    assert told.why_over(checked, "").startswith("the agent's job says it is done, but ")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)


@given(st.dictionaries(st.sampled_from([*FACTS, "more"]), VALUES, max_size=7))
def test_whatever_it_tells_there_is_one_line_that_says_why_it_is_over(facts: dict[str, Json]) -> None:
    checked = told.checked(run(facts))
    said = told.why_over(checked, "")
    assert said
    assert len(said.splitlines()) == 1


def test_without_a_submission_the_loop_says_why_on_one_line() -> None:
    assert told.why_over(run(), "") == "steps: the 2 steps of the session are used up"
    assert told.why_over(run(), "agrees") == "steps"


def test_of_a_job_that_died_the_first_line_is_told() -> None:
    failure = Failure(kind=Kind.TIMEOUT, message="the job did not end; the end of its log:\nmany\nlines")
    assert told.why_over(run({}, failure), "") == "the job did not end; the end of its log:"
