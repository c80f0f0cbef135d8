"""A transcript, or answers that a person wrote, in the place of a model: the tests of an agent need no network.

A file is one of

- `transcript.jsonl` of an earlier session: its answers come again, in their order, its errors too;
- JSON: `{"synthetic": true, "answers": [{"content": "...", "expect": "..."}, ...]}`;
- the same as lines: `{"synthetic": true}`, then one answer a line.

`content` is what the model says; an object stands for its JSON. `expect` (optional) is a regular expression that the
last message of the user must hold. `{{skill:REGEX}}` in a written content becomes the first group of that expression in
the messages of the request: so a written agent finds a name where a real one would, or ends where it is not there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aipc.agent.exchange import ENDED, ErrorAnswer, Identity, check_answer, parse_object, text_of
from aipc.agent.transcript import CHAT, JOB, SESSION, Head
from aipc.errors import UsageError
from aipc.tables import one_line, show
from runtimes.contract import Json, Misused, decode, dumps

_SKILL = re.compile(r"\{\{skill:(.+?)\}\}(?!\})")


@dataclass(frozen=True, kw_only=True)
class _Answer:
    """What a person wrote: a text or an object, and a regular expression for the last message of the user."""

    content: str | Mapping[str, Json]
    expect: str = ""

    def __post_init__(self) -> None:
        _compile(self.expect, "expect")
        for found in _SKILL.finditer(
            self.content if isinstance(self.content, str) else "\n".join(_texts(self.content))
        ):
            if _compile(found[1], "content").groups < 1:
                raise Misused(f"content: {found[0]!r} has no group; put what is wanted in parentheses")


@dataclass(frozen=True, kw_only=True)
class _Written:
    synthetic: bool
    answers: tuple[_Answer, ...]
    model: str = "synthetic"

    def __post_init__(self) -> None:
        if not self.synthetic:
            raise Misused("synthetic: answers that a person wrote are synthetic; write true")


@dataclass(frozen=True, kw_only=True)
class _Error:
    status: int
    type: str
    message: str


@dataclass(frozen=True, kw_only=True)
class _Recorded:
    """One call of a transcript; the request is not looked at."""

    response: Mapping[str, Json] | None = None
    error: _Error | None = None

    def __post_init__(self) -> None:
        if (self.response is None) == (self.error is None):
            raise Misused("has both a response and an error, or neither; take the file as it was written")
        if self.response is not None and (wrong := check_answer(self.response)):
            raise Misused(f"response: {wrong}; take the file as it was written")


class Replay:
    """A file of answers as a model; each is given once."""

    def __init__(self, path: Path) -> None:
        """Read the file at `path`.

        Raises:
            UsageError: it cannot be read or used, or nobody knows whose answers they are.
        """
        self._where = show(path)
        try:
            self.identity, self._answers = _read(path.read_bytes())
        except OSError as error:
            raise UsageError(f"{self._where}: cannot be read: {error.strerror}; name a transcript") from error
        except Misused as error:
            raise UsageError(one_line(f"{self._where}: {error}")) from error
        self._given = 0

    def answer(self, request: Mapping[str, Json], left: Callable[[], float]) -> Mapping[str, Json]:
        """Return the next answer; see `exchange.ChatModel`."""
        left()
        if self._given == len(self._answers):
            raise self._end(f"answer {self._given + 1} is asked for, and it has {self._given}")
        answer = self._answers[self._given]
        self._given += 1
        if isinstance(answer, _Answer):
            return self._said(answer, request["messages"])
        if answer.error is not None:
            raise ErrorAnswer(answer.error.status, answer.error.type, answer.error.message)
        return answer.response or {}

    def cut(self) -> None:
        """Do nothing: no answer is waited for."""

    def _said(self, answer: _Answer, messages: Sequence[Mapping[str, Json]]) -> Mapping[str, Json]:
        last = next((text_of(message) for message in reversed(messages) if message.get("role") == "user"), "")
        if not re.search(answer.expect, last, re.MULTILINE):
            raise self._end(
                f"answer {self._given} expects {answer.expect!r}, and the last message of the user is {last!r}"
            )
        prompt = "\n".join(text_of(message) for message in messages)
        content = self._filled(answer.content, prompt)
        message = {"role": "assistant", "content": content if isinstance(content, str) else dumps(content)}
        return {
            "id": f"replay-{self._given}",
            "object": "chat.completion",
            "created": 0,
            "model": self.identity.model,
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        }

    def _filled(self, content: Json, prompt: str) -> Json:
        """Return `content` with what its expressions find in the prompt."""
        if isinstance(content, str):
            return _SKILL.sub(lambda found: self._found(found[1], prompt), content)
        if isinstance(content, Mapping):
            return {name: self._filled(item, prompt) for name, item in content.items()}
        return [self._filled(item, prompt) for item in content] if isinstance(content, list) else content

    def _found(self, expression: str, prompt: str) -> str:
        found = re.search(expression, prompt, re.MULTILINE)
        if found is None or found[1] is None:
            raise self._end(f"answer {self._given} looks for {expression!r}, and the prompt does not hold it")
        return found[1]

    def _end(self, what: str) -> ErrorAnswer:
        return ErrorAnswer(ENDED, "replay", f"{self._where}: {what}")


def _read(content: bytes) -> tuple[Identity, Sequence[_Answer | _Recorded]]:
    """Return whose answers are in a file, and the answers."""
    lines = [(number, line) for number, line in enumerate(content.splitlines(), 1) if line.strip()]
    if not lines:
        raise Misused("empty; give a transcript, or answers")
    try:
        whole = parse_object(content, "")
    except Misused:
        whole = parse_object(lines[0][1], f"line {lines[0][0]}")
    if whole.get("kind") == SESSION:
        return _recorded(lines)
    if "answers" not in whole:
        where = [f"line {number}" for number, _ in lines]
        said = [parse_object(line, place) for place, (_, line) in zip(where, lines, strict=True)]
        whole = {**said[0], "answers": said[1:]}
    written = decode(_Written, whole, "answers")
    return Identity(model=written.model, model_sha256="", synthetic=True, base_url=""), written.answers


def _recorded(lines: Sequence[tuple[int, bytes]]) -> tuple[Identity, Sequence[_Recorded]]:
    head = decode(Head, parse_object(lines[0][1], "line 1"), "line 1")
    if not (head.synthetic or head.model_sha256):
        raise Misused(
            "line 1: it was recorded from a model without model_sha256, so nobody knows whose answers they are; "
            "record it again with [agent] model_sha256"
        )
    calls = []
    for number, line in lines[1:]:
        where = f"line {number}"
        call = parse_object(line, where)
        if call.get("kind") not in {CHAT, JOB}:
            raise Misused(
                f"{where}: kind {call.get('kind')!r} is neither {CHAT!r} nor {JOB!r}; take it as it was written"
            )
        if call["kind"] == CHAT:
            calls.append(decode(_Recorded, {k: call[k] for k in ("response", "error") if k in call}, where))
    who = Identity(model=head.model, model_sha256=head.model_sha256, synthetic=head.synthetic, base_url="")
    return who, calls


def _compile(expression: str, where: str) -> re.Pattern[str]:
    try:
        return re.compile(expression, re.MULTILINE)
    except re.error as error:
        raise Misused(f"{where}: {expression!r} is no regular expression: {error}; mend it") from error


def _texts(value: Json) -> list[str]:
    """Return all strings in a JSON value."""
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return [text for item in inner for text in _texts(item)]
