"""The language model as smolagents sees it: asked through the broker, and held to one decision in JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from runtimes.agent.actions import Action, Undecided, decide, schema
from runtimes.agent.broker import CHAT, Gone, Late, Rejected
from runtimes.agent.course import Course, Ended, Entry
from runtimes.contract import Json

MOST_TOKENS = 1024
"""No answer is longer; a patch of sixty lines fits."""

Post = Callable[[str, Mapping[str, Json], float], Mapping[str, Json]]
"""Sends a body to a route of the broker's, waits so many seconds at most, and returns the answer."""


class Over(Exception):
    """The session ended while the model was asked; the course says why."""


class Asker:
    """Asks the model, and does without the schema where its server knows none."""

    def __init__(self, post: Post, course: Course, actions: Mapping[str, Action]) -> None:
        self._post = post
        self._course = course
        named = {"name": "decision", "schema": schema(actions)}
        self._format: Json = {"type": "json_schema", "json_schema": named}

    def ask(self, messages: list[Json]) -> Mapping[str, Json]:
        """Return the answer, as OpenAI's API gives it.

        Raises:
            Over: there will be none; the course is ended.
        """
        body = {"messages": messages, "max_tokens": MOST_TOKENS}
        try:
            if self._format is None:
                return self._post(CHAT, body, self._course.seconds_left)
            try:
                return self._post(CHAT, {**body, "response_format": self._format}, self._course.seconds_left)
            except Rejected as error:
                if error.status != HTTPStatus.BAD_REQUEST:
                    raise
            answer = self._post(CHAT, body, self._course.seconds_left)
        except (Rejected, Late, Gone) as error:
            end(self._course, error)
            raise Over from error
        self._format = None
        return answer


def end(course: Course, error: Rejected | Late | Gone) -> None:
    """End the session for what the broker answered, or did not."""
    match error:
        case Gone():
            course.gone = error
        case Late():
            course.end(Ended.SECONDS, f"the {course.seconds:g} s of the session are over")
        case Rejected(status=HTTPStatus.FORBIDDEN):
            course.end(Ended.BUDGET, error.message)
        case Rejected(status=HTTPStatus.BAD_GATEWAY, kind="host"):
            course.gone = Gone(f"the host ended the session: {error.message}")
        case _:
            course.end(Ended.MODEL, error.message)


def text_of(answer: Mapping[str, Json]) -> str:
    """Return what the model said: its text, or its first tool call as a decision; "" for neither."""
    choices = answer.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(message, dict):
        return ""
    content, calls = message.get("content"), message.get("tool_calls")
    call = calls[0] if isinstance(calls, list) and calls else None
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return content if isinstance(content, str) else ""
    given = function.get("arguments")
    try:
        arguments = json.loads(given) if isinstance(given, str) else given
    except (ValueError, RecursionError):
        arguments = None
    return json.dumps({"action": function.get("name"), "arguments": arguments})


def tokens_of(answer: Mapping[str, Json]) -> tuple[int, int]:
    """Return the tokens of the prompt and of the answer, 0 where the server does not say."""
    usage = answer.get("usage")
    counts = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")] if isinstance(usage, dict) else []
    asked, answered = [count if isinstance(count, int) else 0 for count in counts] or [0, 0]
    return asked, answered


def make(post: Post, course: Course, actions: Mapping[str, Action]) -> Any:
    """Return a smolagents Model whose every answer becomes one tool call, or a failed step of the course."""
    from smolagents.models import (
        ChatMessage,
        ChatMessageToolCall,
        ChatMessageToolCallFunction,
        MessageRole,
        Model,
        TokenUsage,
    )

    asker = Asker(post, course, actions)

    class BrokerModel(Model):  # type: ignore[misc]  # smolagents is not where mypy runs
        """Asks the broker. smolagents' stop sequences and tool schemas are left out: the decision's schema is all."""

        def generate(self, messages: list[Any], **_: Any) -> Any:
            told = [{"role": each.role.value, "content": each.content} for each in messages]
            answer = asker.ask(told)
            asked, answered = tokens_of(answer)
            return ChatMessage(
                role=MessageRole.ASSISTANT,
                content=text_of(answer),
                token_usage=TokenUsage(input_tokens=asked, output_tokens=answered),
            )

        def parse_tool_calls(self, message: Any) -> Any:
            try:
                decision = decide(message.content, actions)
            except Undecided as error:
                course.add(Entry(action=error.action, arguments=error.arguments, ok=False, observation=str(error)))
                raise
            function = ChatMessageToolCallFunction(name=decision.action, arguments=dict(decision.arguments))
            message.tool_calls = [ChatMessageToolCall(function=function, id="decision", type="function")]
            return message

    return BrokerModel(model_id="broker")
