"""What the job of an agent tells of itself: none of it is believed, but its form must fit before anybody reads it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from aipc.agent.deviations import Act
from aipc.jobs import StepRun
from aipc.tables import one_line
from runtimes.contract import Failure, Json, Kind, Misused, Result, Status, decode

MOST_ACTS = 10_000
MOST_WORDS = 300
"""Characters of what is shown of why a session was over."""

_WORD = re.compile(r"[a-z_]{1,20}")


@dataclass(frozen=True, kw_only=True)
class Told:
    """The facts of Step.AGENT.

    Attributes:
        ended: in a word, why the session was over.
        claim: what the model says of its candidate.
        summary: the model's words at the end, or why there are none.
        steps: its decisions.
        learned: what a later session wants to know.
        trace: the decisions, one by one.
    """

    ended: str
    claim: str
    summary: str
    steps: int
    learned: tuple[str, ...]
    trace: tuple[Act, ...]

    def __post_init__(self) -> None:
        if not _WORD.fullmatch(self.ended):
            raise Misused(f"ended: {self.ended[:40]!r} is no word")
        if not 0 <= self.steps <= MOST_ACTS or len(self.trace) > MOST_ACTS:
            raise Misused(f"steps: {self.steps}, with {len(self.trace)} of them told, are not from 0 to {MOST_ACTS}")


def checked(run: StepRun) -> StepRun:
    """Return the job of an agent, as one that crashed where what it tells is not of the form of `Told`."""
    if not run:
        return run
    try:
        decode(Told, run.result.facts, "facts of the agent")
    except Misused as error:
        failure = Failure(kind=Kind.ADAPTER, message=f"the agent's job says it is done, but {error}")
        return replace(run, result=Result(status=Status.CRASHED, failure=failure))
    return run


def why_over(run: StepRun, claim: str) -> str:
    """Return on one line why a session was over.

    Args:
        run: the agent's job, checked.
        claim: what the agent handed in; "" for nothing, and then its own loop says why.
    """
    facts: Mapping[str, Json] = run.result.facts
    failure = run.result.failure
    if failure is not None:
        words = failure.message.partition("\n")[0]
    elif claim or not facts["summary"]:
        words = str(facts["ended"])
    else:
        words = f"{facts['ended']}: {one_line(facts['summary'])}"
    return words if len(words) <= MOST_WORDS else f"{words[:MOST_WORDS]}…"
