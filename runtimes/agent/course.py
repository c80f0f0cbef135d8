"""The course of a session: what was done, how it went, and why it ended."""

from __future__ import annotations

import enum
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from runtimes.agent.broker import Gone
from runtimes.contract import Json, dumps

MOST_FAILURES = 3
"""An action that failed so often with the same arguments, while the candidate stayed as it was, ends the session."""
TRACE_CHARACTERS = 300
ARGUMENT_CHARACTERS = 1000
EDITS = frozenset({"rewrite", "patch_graph", "patch_source"})
"""What changes the candidate; `undo` takes the last of them back."""
LEARNED = EDITS | {"undo", "export", "convert", "compare", "submit"}
"""What a later session, or a person, wants to know of an earlier one."""


class Ended(enum.StrEnum):
    """Why a session is over."""

    SUBMITTED = "submitted"
    GAVE_UP = "gave_up"
    STEPS = "steps"
    SECONDS = "seconds"
    REPEATED = "repeated"
    BUDGET = "budget"
    MODEL = "model"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One decision of the model, and what came of it.

    Attributes:
        action: its name, "" for an answer that holds no decision.
        arguments: as they were decoded.
        ok: whether it did what was asked.
        observation: what the model is told.
    """

    action: str
    arguments: Mapping[str, Json]
    ok: bool
    observation: str

    @property
    def call(self) -> str:
        """The action as people write it: `rewrite(name=einsum_to_matmul)`."""
        if not self.action:
            return "no action"
        given = (f"{name}={clip(text_of(value), 80)}" for name, value in self.arguments.items())
        return f"{self.action}({', '.join(given)})"


@dataclass(kw_only=True)
class Course:
    """A session from its first decision to its end.

    Attributes:
        steps: most decisions.
        seconds: most wall time.
        started: when it began, on the monotonic clock.
        trace: the decisions so far.
        candidate: the edits that are in force, as calls.
        ended: why it is over; None while it goes on.
        claim: what the model says of the candidate: `agrees`, `gave_up` or "".
        summary: the model's own words at the end, or why there are none.
        gone: the broker does not answer any more.
    """

    steps: int
    seconds: float
    started: float = field(default_factory=time.monotonic)
    trace: list[Entry] = field(default_factory=list)
    candidate: list[str] = field(default_factory=list)
    ended: Ended | None = None
    claim: str = ""
    summary: str = ""
    gone: Gone | None = None
    _failures: Counter[str] = field(default_factory=Counter)

    @property
    def seconds_left(self) -> float:
        """How much of the wall time is left; negative when it is over."""
        return self.started + self.seconds - time.monotonic()

    @property
    def over(self) -> bool:
        """Whether nothing more is to be done."""
        return self.ended is not None or self.gone is not None

    def end(self, why: Ended, summary: str) -> None:
        """End the session; the first reason stays."""
        if self.ended is None:
            self.ended, self.summary = why, summary

    def add(self, entry: Entry) -> None:
        """Note a decision, and end the session where it must not go on like this."""
        self.trace.append(entry)
        if entry.ok and entry.action in EDITS:
            self.candidate.append(entry.call)
        elif entry.ok and entry.action == "undo":
            del self.candidate[-1:]
        if entry.ok and entry.action in EDITS | {"undo"}:
            # Another candidate: what failed before may work now.
            self._failures.clear()
        if entry.action:
            self._failures[""] = 0
        if not entry.ok:
            self._count(entry)

    def _count(self, entry: Entry) -> None:
        key = dumps([entry.action, entry.arguments]) if entry.action else ""
        self._failures[key] += 1
        if self._failures[key] >= MOST_FAILURES:
            if entry.action:
                self.end(Ended.REPEATED, f"{entry.call} failed {MOST_FAILURES} times: {entry.observation}")
            else:
                self.end(Ended.MODEL, f"{MOST_FAILURES} answers in a row hold no decision: {entry.observation}")

    def check_bounds(self) -> None:
        """End the session where its steps or its seconds are used up."""
        if self.seconds_left <= 0:
            self.end(Ended.SECONDS, f"the {self.seconds:g} s of the session are over")
        if len(self.trace) >= self.steps:
            self.end(Ended.STEPS, f"the {self.steps} steps of the session are used up")

    def facts(self) -> Mapping[str, Json]:
        """Return what the host is told."""
        told = (f"{entry.call} {outcome(entry)}" for entry in self.trace if entry.action in LEARNED)
        return {
            "ended": self.ended,
            "claim": self.claim,
            "summary": self.summary,
            "steps": len(self.trace),
            "learned": list(dict.fromkeys(clip(line, TRACE_CHARACTERS) for line in told)),
            "trace": [
                {
                    "action": entry.action,
                    "arguments": {name: _short(value) for name, value in entry.arguments.items()},
                    "ok": entry.ok,
                    "observation": clip(entry.observation, TRACE_CHARACTERS),
                }
                for entry in self.trace
            ],
        }


def outcome(entry: Entry) -> str:
    """Return how an action went, in words."""
    return f"{'ok' if entry.ok else 'FAILED'}: {entry.observation}"


def text_of(value: Json) -> str:
    """Return an argument as text."""
    return value if isinstance(value, str) else dumps(value)


def clip(text: str, most: int) -> str:
    """Return `text` in at most so many characters: its beginning and its end, as errors stand at either."""
    if len(text) <= most:
        return text
    mark = " … "
    if most <= len(mark):
        return text[: max(most, 0)]
    tail = (most - len(mark)) // 3
    return text[: most - len(mark) - tail] + mark + (text[-tail:] if tail else "")


def _short(value: Json) -> Json:
    return clip(value, ARGUMENT_CHARACTERS) if isinstance(value, str) else value
