"""One session of an agent: its socket, and what stands between it and the model, and between it and the host's jobs."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from aipc.agent.budget import Budget, Spent, usage_of
from aipc.agent.exchange import BAD_REQUEST, ENDED, OVER_BUDGET, SUBMITTED, ChatModel, ErrorAnswer, Over, parse_object
from aipc.agent.key import Key
from aipc.agent.server import CLIENT_SECONDS, FAILED, Server
from aipc.agent.settings import Settings
from aipc.agent.transcript import CHAT, JOB, SESSION, Head, Transcript
from aipc.engines import SOCKET
from aipc.errors import AipcError, EngineError
from runtimes.contract import Json, Misused, encode

MOST_PATH_BYTES = 80
"""Of a socket's path: Linux takes 107, others less."""
MOST_OBSERVATION = 2000
"""Characters of a job's observation: the model reads it."""
MOST_REQUESTS = 1000
MOST_RECEIVED_BYTES = 64 << 20
"""Of a session: a transcript may not fill the host's disk, whatever runs in the container."""
SUBMIT = "submit"

_ROUTES = {"/v1/chat/completions": CHAT, "/jobs": JOB}
_TAKEN = ("messages", "response_format", "temperature", "max_tokens", "stop", "seed")

Jobs = Callable[[Mapping[str, Json]], Mapping[str, Json]]
"""Does what a body of /jobs asks for: `verb` and its arguments. Returns `ok`, `observation` and whatever else the agent
is told. Raises Misused for a verb or an argument that is none, and AipcError when the host cannot go on."""


class Broker:
    """A session, from `__enter__` to `__exit__`; an error of the host that ended it is raised at the end.

    Attributes:
        folder: what the agent's container gets, read-only, with the socket `s` in it.
    """

    def __init__(
        self,
        *,
        settings: Settings,
        model: ChatModel,
        jobs: Jobs,
        transcript: Path,
        cell: str,
        key: Key | None = None,
        clock: Callable[[], float] = time.monotonic,
        client_seconds: float = CLIENT_SECONDS,
    ) -> None:
        """Begin nothing yet.

        Args:
            settings: the bounds.
            model: answers.
            jobs: does what the agent asks of the host; one call at a time, in a thread of the broker's.
            transcript: the file to write; there must be none.
            cell: what is worked on.
            key: what must get out nowhere.
            clock: returns the time, in seconds.
            client_seconds: how long a client may keep its connection waiting.
        """
        self._settings, self._model, self._jobs, self._key = settings, model, jobs, key or Key()
        self._path, self._cell, self._clock, self._client_seconds = transcript, cell, clock, client_seconds
        self._turn = threading.Lock()
        self._stack = contextlib.ExitStack()
        self._ended: ErrorAnswer | None = None
        self._host_error: AipcError | None = None
        self._submitted = False
        self._number = self._requests = self._received_bytes = 0

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self._transcript = stack.enter_context(Transcript(self._path))
            self._budget = Budget(self._settings, self._clock)
            who = encode(self._model.identity)
            head = Head(kind=SESSION, mode=self._settings.mode.value, cell=self._cell, **who)
            self._transcript.write(self._key.scrub(encode(head)))
            self.folder = stack.enter_context(_private_folder())
            self._server = stack.enter_context(Server(self.folder / SOCKET, self.answer, self._client_seconds))
            stack.callback(self._model.cut)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
        kept = self._host_error or self._server.failed
        if kept is not None and error is None:
            raise kept

    @property
    def spent(self) -> Spent:
        """What is used by now."""
        return self._budget.spent

    @property
    def ended(self) -> str:
        """Why the model or the host was gone before the agent was done; "" when neither was."""
        return str(self._key.scrub(self._ended.message)) if self._ended else ""

    def answer(self, path: str, content: bytes) -> tuple[int, Json]:
        """Return the status and the JSON that answer a request, one request after the other.

        Args:
            path: of the URL.
            content: the body.
        """
        with self._turn:
            try:
                self._count(content)
                return 200, self._taken(path, content)
            except ErrorAnswer as error:
                return error.status, self._key.scrub(error.body)

    def _count(self, content: bytes) -> None:
        self._requests += 1
        self._received_bytes += len(content)
        if self._requests > MOST_REQUESTS or self._received_bytes > MOST_RECEIVED_BYTES:
            raise ErrorAnswer(OVER_BUDGET, "budget", "requests: too many, or too large; the session is over")

    def _taken(self, path: str, content: bytes) -> Json:
        """Return the answer to a request that is one; it is in the transcript by then, and so is an error."""
        if path not in _ROUTES:
            raise ErrorAnswer(404, "request", f"{path}: no such path; known are {', '.join(_ROUTES)}")
        kind = _ROUTES[path]
        try:
            body = parse_object(content, "the body")
            request = _chat_request(body, self._settings) if kind == CHAT else _job_request(body)
        except Misused as error:
            raise ErrorAnswer(BAD_REQUEST, "request", str(error)) from error
        began = self.spent.seconds
        failed: ErrorAnswer | None = None
        try:
            outcome = self._chat(request) if kind == CHAT else {"response": self._job(request)}
        except ErrorAnswer as error:
            failed = error
            outcome = {"error": {"status": error.status, **error.body["error"]}}
        now, number = self.spent.seconds, self._number
        self._number += 1
        line = {"n": number, "at": round(began, 3), "kind": kind, "request": request, "seconds": round(now - began, 3)}
        self._transcript.write(self._key.scrub({**line, **outcome}))
        if failed is not None:
            raise failed
        return outcome["response"]

    def _chat(self, request: Mapping[str, Json]) -> Mapping[str, Json]:
        self._check_open()
        self._budget.begin_call(request)
        try:
            response = self._key.scrub(self._model.answer(request, self._budget.left))
        except ErrorAnswer as error:
            if error.status == ENDED:
                self._ended = error
            raise
        usage = usage_of(request, response)
        self._budget.end_call(usage)
        tokens = {"prompt_tokens": usage.prompt_tokens, "completion_tokens": usage.completion_tokens}
        return {"response": response, "usage": tokens, "estimated": usage.estimated}

    def _job(self, request: Mapping[str, Json]) -> Mapping[str, Json]:
        self._check_open()
        # A candidate can be handed in at any time.
        if request["verb"] != SUBMIT:
            self._budget.left()
        try:
            done = self._key.scrub(encode(self._jobs(request)))
        except Misused as error:
            raise ErrorAnswer(BAD_REQUEST, "request", str(error)) from error
        except Over as error:
            raise ErrorAnswer(ENDED, "host", str(error)) from error
        except AipcError as error:
            self._host_error = error
            self._ended = ErrorAnswer(ENDED, "host", str(error))
            raise self._ended from error
        self._submitted = request["verb"] == SUBMIT and done["ok"]
        return {**done, "observation": _shortened(done["observation"])}

    def _check_open(self) -> None:
        if self._server.failed is not None and self._ended is None:
            self._ended = ErrorAnswer(ENDED, "host", FAILED)
        if self._ended is not None:
            raise self._ended
        if self._submitted:
            raise ErrorAnswer(SUBMITTED, "submitted", "the candidate is submitted; the session is over")


@contextlib.contextmanager
def _private_folder() -> Iterator[Path]:
    """Make a folder that others on this machine cannot get at, though the user of a container can once it has it."""
    outer = Path(tempfile.mkdtemp(prefix="aipc-"))
    try:
        # Two, since mounts go past the outer one: a job with a number of its own may enter the inner one.
        inner = outer / "b"
        inner.mkdir()
        inner.chmod(0o755)
        length = len(str(inner / SOCKET).encode())
        if length > MOST_PATH_BYTES:
            raise EngineError(
                f"{inner / SOCKET}: {length} bytes are too long for a socket, which may have {MOST_PATH_BYTES}; "
                "set TMPDIR to a folder with a shorter path"
            )
        yield inner
    finally:
        shutil.rmtree(outer)


def _chat_request(body: Mapping[str, Json], settings: Settings) -> Mapping[str, Json]:
    """Return what is taken of a request to the model."""
    if body.get("stream"):
        raise Misused("stream: this server does not stream; leave it out")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(each, Mapping) for each in messages):
        raise Misused("messages: not a list of messages; give one or more, each with a role and a content")
    taken = {name: body[name] for name in _TAKEN if body.get(name) is not None}
    usual = {"temperature": settings.temperature, **({"seed": settings.seed} if settings.seed else {})}
    return {**usual, **taken}


def _job_request(body: Mapping[str, Json]) -> Mapping[str, Json]:
    if not isinstance(body.get("verb"), str):
        raise Misused("verb: missing, or no string; say what to do")
    return body


def _shortened(text: str) -> str:
    """Return `text` without its middle where it is too long: errors are told at the beginning or at the end."""
    mark = "\n[…]\n"
    if len(text) <= MOST_OBSERVATION:
        return text
    head = MOST_OBSERVATION * 2 // 3
    return text[:head] + mark + text[len(text) - (MOST_OBSERVATION - head - len(mark)) :]
