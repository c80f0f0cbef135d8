"""What the tests of the broker speak with: a real server, a client of a Unix socket, a clock that is told."""

from __future__ import annotations

import http.client
import http.server
import json
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from aipc.agent.broker import Broker
from aipc.agent.exchange import ChatModel
from aipc.agent.key import Key
from aipc.agent.settings import Mode, Settings
from aipc.agent.upstream import Upstream

KEY = "sk-a-key-of-the-tests/42"
CHAT = "/v1/chat/completions"
ASKED = {"messages": [{"role": "system", "content": "Be short."}, {"role": "user", "content": "What is wrong?"}]}


class Model(http.server.ThreadingHTTPServer):
    """An OpenAI-compatible server on this machine; each request gets the next of its replies, the last one for ever."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.replies: list[Reply] = [good("fine")]
        self.seen: list[Seen] = []
        self.over = threading.Event()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.shutdown()
        self._thread.join()
        self.server_close()

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a client that hung up."""


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Model

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.seen.append(Seen(path=self.path, headers=dict(self.headers), body=json.loads(body)))
        replies = self.server.replies
        (replies.pop(0) if len(replies) > 1 else replies[0])(self)

    def do_CONNECT(self) -> None:
        self.server.seen.append(Seen(path=self.path, headers=dict(self.headers), body={}))
        self.send_error(502)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@dataclass(frozen=True)
class Seen:
    """A request, as the server saw it."""

    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]


Reply = Callable[[_Handler], None]


def raw(status: int, content: bytes, headers: Mapping[str, str] | None = None) -> Reply:
    """Return a reply of these bytes; a Content-Length in `headers` need not be theirs."""

    def reply(handler: _Handler) -> None:
        handler.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **(headers or {})}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(content)

    return reply


def answer(content: str, usage: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return an answer of a model's, as OpenAI's API gives it."""
    message = {"role": "assistant", "content": content}
    body: dict[str, Any] = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    return body | ({"usage": usage} if usage is not None else {})


def good(content: str, usage: Mapping[str, Any] | None = None) -> Reply:
    return raw(200, json.dumps(answer(content, usage)).encode())


def error(status: int, message: str = "", headers: Mapping[str, str] | None = None) -> Reply:
    return raw(status, json.dumps({"error": {"message": message}}).encode(), headers)


def hangs(then: Callable[[], None]) -> Reply:
    """Return a reply that begins, calls `then`, and does not end before the test does."""

    def reply(handler: _Handler) -> None:
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(b'{"choices"')
        then()
        handler.server.over.wait()

    return reply


@dataclass
class Clock:
    """A clock that shows what it is told."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Jobs:
    """Does no job: notes what it is asked, and answers or raises as it is told."""

    seen: list[Mapping[str, Any]] = field(default_factory=list)
    does: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda _: {"ok": True, "observation": "done"}

    def __call__(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        self.seen.append(body)
        return self.does(body)


def raises(what: Exception) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    """Return a job that raises `what`."""

    def job(_: Mapping[str, Any]) -> Mapping[str, Any]:
        raise what

    return job


@dataclass
class Desk:
    """All that a session needs, in one place; `slept` is how long each wait between two tries was to be."""

    model: Model
    folder: Path
    clock: Clock = field(default_factory=Clock)
    jobs: Jobs = field(default_factory=Jobs)
    slept: list[float] = field(default_factory=list)

    @property
    def transcript(self) -> Path:
        return self.folder / "transcript.jsonl"

    def settings(self, **more: Any) -> Settings:
        return Settings(**{"mode": Mode.REPAIR, "base_url": self.model.url, "model": "tiny", **more})

    def open(
        self, *, key: str = "", replay: ChatModel | None = None, client_seconds: float = 30, **more: Any
    ) -> Broker:
        """Return a broker that is not entered yet."""
        settings = self.settings(**more)
        return Broker(
            settings=settings,
            model=replay or Upstream(settings, Key(key), sleep=self.slept.append, jitter=lambda: 0.5),
            jobs=self.jobs,
            transcript=self.transcript,
            cell="tiny/openvino/fp16@cpu",
            key=Key(key),
            clock=self.clock,
            client_seconds=client_seconds,
        )

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.transcript.read_text(encoding="utf-8").splitlines()]


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("broker", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = connected(self._path)


def connected(path: Path) -> socket.socket:
    """Return a socket that is connected to the one at `path`."""
    made = socket.socket(socket.AF_UNIX)
    made.settimeout(60)
    made.connect(str(path))
    return made


def post(broker: Broker, path: str, body: Mapping[str, Any] | bytes) -> tuple[int, Any]:
    """Return the status and the JSON of the broker's answer, through its socket."""
    connection = _UnixConnection(broker.folder / "s")
    try:
        connection.request("POST", path, body if isinstance(body, bytes) else json.dumps(body).encode())
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def ask(broker: Broker, **more: Any) -> tuple[int, Any]:
    return post(broker, CHAT, {**ASKED, **more})


def said(body: Mapping[str, Any]) -> str:
    """Return the text of an answer of the model's."""
    return str(body["choices"][0]["message"]["content"])


def spoken(broker: Broker, sent: bytes) -> bytes:
    """Return all that the broker answers to these bytes, after which the client says no more."""
    with connected(broker.folder / "s") as client:
        client.sendall(sent)
        client.shutdown(socket.SHUT_WR)
        parts = []
        while part := client.recv(65536):
            parts.append(part)
        return b"".join(parts)
