"""The loop: smolagents asks, decides and acts; what is told to the model, and when it is over, is decided here."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from runtimes.agent import model, prompt, tools
from runtimes.agent.course import Course, clip, outcome
from runtimes.agent.model import Post
from runtimes.contract import Failure, Json, Kind
from runtimes.kit.work import Failed, Work

LOGGED_CHARACTERS = 400


def run(work: Work, session: prompt.Session, course: Course, post: Post) -> Mapping[str, Json]:
    """Let the model decide until the session is over, and return the facts of it.

    smolagents stops for `interrupt` only before its next step, asks the model once more at its own step limit, and
    skips its final checks then: its limit is out of reach here, and nothing that it returns is used.

    Raises:
        Failed: the broker is gone.
    """
    from smolagents.utils import AgentError

    hands = tools.Hands(post, course, session.library)
    _, failure = hands.ask("failure", {})
    course.check_bounds()
    if not course.over:
        agent = _make(work, session, course, hands, post, failure)
        try:
            agent.run(session.cell)
        except AgentError:
            # An error that did not end the session is a bug, of ours or of smolagents.
            if not course.over:
                raise
    if course.gone is not None:
        hint = "see how the host's own part of the session ended"
        raise Failed(Failure(kind=Kind.PREREQUISITE, message=str(course.gone), hint=hint)) from course.gone
    return course.facts()


def _make(work: Work, session: prompt.Session, course: Course, hands: tools.Hands, post: Post, failure: str) -> Any:
    """Return a smolagents agent that is told the compact prompt, and interrupted when the session is over."""
    from smolagents import LogLevel, ToolCallingAgent
    from smolagents.agents import EMPTY_PROMPT_TEMPLATES
    from smolagents.models import ChatMessage, MessageRole

    class CompactAgent(ToolCallingAgent):  # type: ignore[misc]  # smolagents is not where mypy runs
        """Its memory grows, what the model is told does not."""

        def write_memory_to_messages(self, summary_mode: bool = False) -> list[Any]:  # noqa: ARG002
            pinned = prompt.Pinned(failure=failure, page=hands.page)
            system, user = prompt.build(session, course, pinned)
            return [
                ChatMessage(role=MessageRole.SYSTEM, content=system),
                ChatMessage(role=MessageRole.USER, content=user),
            ]

    def after(step: Any, agent: Any) -> None:
        if not course.over and len(course.trace) < step.step_number:
            raise step.error or TypeError(f"smolagents' step {step.step_number} did nothing and reported nothing")
        if len(course.trace) == step.step_number:
            _log(work, course)
        course.check_bounds()
        if course.over:
            agent.interrupt()

    return CompactAgent(
        tools=tools.make(session.actions, hands.do),
        model=model.make(post, course, session.actions),
        prompt_templates=EMPTY_PROMPT_TEMPLATES,
        max_steps=course.steps + 1,
        step_callbacks=[after],
        verbosity_level=LogLevel.OFF,
    )


def _log(work: Work, course: Course) -> None:
    entry, number = course.trace[-1], len(course.trace)
    work.progress(f"step {number} of {course.steps}: {entry.call}")
    sys.stdout.write(f"{number}. {clip(f'{entry.call} {outcome(entry)}', LOGGED_CHARACTERS)}\n")
