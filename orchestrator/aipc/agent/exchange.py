"""What the broker and a model say to each other: a request, an answer, or an error that the agent is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from runtimes.contract import Json, Misused, loads

BAD_REQUEST = 400
"""The request itself is wrong; the next one may be right."""
OVER_BUDGET = 403
SUBMITTED = 409
ENDED = 502
"""The model or the host is gone: every later call is told the same."""


class ErrorAnswer(Exception):
    """An answer other than 200.

    Attributes:
        status: of HTTP.
        kind: `request`, `budget`, `submitted`, `upstream`, `replay` or `host`.
        message: what is wrong, and what to do.
    """

    def __init__(self, status: int, kind: str, message: str) -> None:
        """Say `message`."""
        super().__init__(message)
        self.status, self.kind, self.message = status, kind, message

    @property
    def body(self) -> Mapping[str, Json]:
        """What the agent is told."""
        return {"error": {"type": self.kind, "message": self.message}}


class Over(Exception):
    """A job was ended in the middle, since the agent that asked for it is gone."""


@dataclass(frozen=True, kw_only=True)
class Identity:
    """Whose answers they are; the first line of a transcript says it.

    Attributes:
        model: its name.
        model_sha256: of its weights, or "".
        synthetic: a person wrote the answers.
        base_url: of its server, or "".
    """

    model: str
    model_sha256: str
    synthetic: bool
    base_url: str


class ChatModel(Protocol):
    """What answers: a server, or a transcript."""

    @property
    def identity(self) -> Identity:
        """Whose answers they are."""
        ...

    def answer(self, request: Mapping[str, Json], left: Callable[[], float]) -> Mapping[str, Json]:
        """Return the answer to `request`, as OpenAI's API gives it: `choices[0].message` is in it.

        Args:
            request: `messages`, and what else of the API's options was asked for; no `model`.
            left: returns how many seconds are left; raises ErrorAnswer when none are.

        Raises:
            ErrorAnswer: there is none; with the status `ENDED` there will be none later either.
        """
        ...

    def cut(self) -> None:
        """End a call that another thread waits for; a later call fails."""
        ...


def parse_object(content: bytes, where: str) -> dict[str, Json]:
    """Return the JSON object in `content`.

    Raises:
        Misused: it is none, or holds NaN, an infinity or half a character, or nests too deep.
    """
    data = loads(content, where)
    if not isinstance(data, dict):
        raise Misused(f"{where}: not a JSON object; write {{...}}")
    return data


def text_of(message: Mapping[str, Json]) -> str:
    """Return the text of a message; its content is a string, or a list of parts some of which have a text."""
    content = message.get("content")
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, Mapping)]
        return "\n".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def check_answer(answer: Mapping[str, Json]) -> str:
    """Return what is wrong with an answer of the model's, "" when nothing is."""
    choices = answer.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], Mapping):
        return "an answer without choices"
    message = choices[0].get("message")
    if not isinstance(message, Mapping):
        return "an answer without choices[0].message"
    calls = message.get("tool_calls")
    if isinstance(message.get("content"), str) or (isinstance(calls, list) and calls):
        return ""
    return "an answer whose message has neither content nor tool_calls"
