"""A broker on a real Unix socket whose answers are written down beforehand, and jobs of the agent that reach it."""

from __future__ import annotations

import contextlib
import http.server
import json
import re
import socketserver
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runtimes.agent.broker import CHAT
from runtimes.contract import Json, Step
from tests.runtimes.openvino_jobs import Ended, Workspaces

SKILL = """---
name: toy
description: A toolchain for tests.
---
# Toy

Convert with `aipc deploy net --runtime toy`.

## Failures

| failure | repair |
|---|---|
| Einsum is not supported | the rewrite `einsum_to_matmul` |

## Layout

It wants NHWC.
"""
GENERAL = "---\nname: aipc\ndescription: Stages.\n---\n# Stages\n\nprepare, export, convert, verify.\n"


@dataclass(frozen=True)
class Refusal:
    """An answer other than 200."""

    status: int
    kind: str
    message: str

    @property
    def body(self) -> Json:
        return {"error": {"type": self.kind, "message": self.message}}


@dataclass(frozen=True)
class Raw:
    """Bytes that are sent in place of an HTTP answer; then the connection ends."""

    content: bytes = b""


Answer = str | Mapping[str, Json] | Refusal | Raw
Script = Callable[[Json], Answer]


def act(action: str, **arguments: Json) -> str:
    return json.dumps({"thought": "so", "action": action, **arguments})


def found(pattern: str, write: Callable[[str], str]) -> Script:
    """Return an answer made of what a regular expression finds in the prompt."""

    def answer(body: Json) -> Answer:
        match = re.search(pattern, "\n".join(message["content"] for message in body["messages"]))
        assert match, f"the prompt does not hold {pattern}"
        return write(match[1])

    return answer


@dataclass(kw_only=True)
class Broker:
    """What the host's broker is to the agent.

    Attributes:
        chat: the model's answers, in order; the last one again and again.
        jobs: verb to the answers of the host, likewise.
        asked: the bodies of the chat requests.
        done: the bodies of the jobs.
    """

    chat: Sequence[Answer | Script]
    jobs: Mapping[str, Sequence[Answer]] = field(default_factory=dict)
    asked: list[Json] = field(default_factory=list)
    done: list[Json] = field(default_factory=list)
    delay_seconds: float = 0.0

    @property
    def prompts(self) -> list[str]:
        return ["\n".join(message["content"] for message in body["messages"]) for body in self.asked]

    @property
    def verbs(self) -> list[str]:
        return [body["verb"] for body in self.done]

    def answer(self, route: str, body: Json) -> Answer:
        if route == CHAT:
            self.asked.append(body)
            time.sleep(self.delay_seconds)
            each = self.chat[min(len(self.asked), len(self.chat)) - 1]
            said = each(body) if callable(each) else each
            return {"choices": [{"message": {"content": said}}]} if isinstance(said, str) else said
        self.done.append(body)
        answers = self.jobs.get(body["verb"], [{"ok": True, "observation": f"{body['verb']} is done"}])
        answer = answers[min(self.verbs.count(body["verb"]), len(answers)) - 1]
        return {"ok": True, "observation": answer} if isinstance(answer, str) else answer


class _Server(socketserver.UnixStreamServer):
    broker: Broker


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = self.server.broker.answer(self.path, body)
        if isinstance(answer, Raw):
            self.wfile.write(answer.content)
            return
        status, data = (answer.status, answer.body) if isinstance(answer, Refusal) else (200, answer)
        content = json.dumps(data).encode()
        with contextlib.suppress(BrokenPipeError):
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    def address_string(self) -> str:
        return "the agent"

    def log_message(self, *_: Any) -> None:
        """A test shows what it needs itself."""


@contextlib.contextmanager
def serving(broker: Broker) -> Iterator[Path]:
    """Serve a broker on a socket in a folder with a short path."""
    with tempfile.TemporaryDirectory(prefix="aipc-") as folder:
        path = Path(folder) / "s"
        with _Server(str(path), _Handler) as server:
            server.broker = broker
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
            thread.start()
            try:
                yield path
            finally:
                server.shutdown()
                thread.join()


class AgentJobs(Workspaces):
    """Sessions of the agent."""

    def __init__(self, root: Path, python: Path) -> None:
        super().__init__(root, python, "agent")
        self.skills = root / "skills"
        for name, text in (("toy", SKILL), ("aipc", GENERAL)):
            (self.skills / name).mkdir(parents=True)
            (self.skills / name / "SKILL.md").write_text(text)
        self.variables: dict[str, str] = {}

    @property
    def _environment(self) -> dict[str, str]:
        return {**super()._environment, **self.variables}

    def session(
        self,
        broker: Broker,
        *,
        mode: str = "repair",
        steps: int = 20,
        seconds: int = 60,
        skills: bool = True,
        without: str = "",
        spoil: str = "",
    ) -> Ended:
        options = {"mode": mode, "cell": "net/toy/fp16", "runtime": "toy"}
        options |= {"steps": steps, "seconds": seconds, "skills": skills}  # type: ignore[dict-item]
        with serving(broker) as path:
            self.variables = {"AIPC_BROKER": str(path), "AIPC_SKILLS": str(self.skills)}
            name = f"session-{len(list(self.root.glob('session-*')))}"
            return self.job(Step.AGENT, {}, options, name, without=without, spoil=spoil)
