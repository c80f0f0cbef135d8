"""Clients of `aipc mcp`: that of the SDK over real stdio, and one by hand for what that one does not do."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import anyio
from mcp import ClientSession, StdioServerParameters, stdio_client, types

from tests.cells.test_kills import descendants, is_running
from tests.command import MODELS, TINY, Aipc

T = TypeVar("T")
DEPLOY = {"model": f"{TINY}#1x3x20x24", "runtime": "openvino", "source": str(MODELS)}
SERVER = ("mcp", "--engine", "venv")


@dataclass
class Client:
    """A session with a server, and what its last call told on the way."""

    session: ClientSession
    heard: list[str] = field(default_factory=list)

    async def call(self, tool: str, /, **arguments: Any) -> types.CallToolResult:
        async def hear(progress: float, total: float | None, message: str | None) -> None:
            assert (progress, total) == (len(self.heard) + 1, None)
            self.heard.append(message or "")

        self.heard.clear()
        return await self.session.call_tool(tool, arguments, progress_callback=hear)


def talk(aipc: Aipc, conversation: Callable[[Client], Awaitable[T]]) -> T:
    """Have a client of the SDK start the server in the folder of `aipc`, and talk with it."""
    python, *arguments = aipc.argv(*SERVER)
    start = StdioServerParameters(command=python, args=arguments, env=aipc.variables(), cwd=aipc.folder)

    async def begin() -> T:
        with (aipc.folder / "server.log").open("w") as log:
            async with stdio_client(start, log) as (read, write), ClientSession(read, write) as session:
                await session.initialize()
                return await conversation(Client(session))

    return anyio.run(begin)


def text(result: types.CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, types.TextContent)
    return content.text


def data(result: types.CallToolResult) -> dict[str, Any]:
    assert not result.isError, text(result)
    assert result.structuredContent is not None
    return result.structuredContent


def jobs_of_a_deploy(aipc: Aipc) -> list[int]:
    """Wait for the second step of a deploy, and return the processes below its server's."""
    deadline = time.monotonic() + 100
    running: list[int] = []
    # The job is there before its process is; the command that runs it is a process too.
    while len(running) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
        servers = [pid for pid in descendants(os.getpid()) if is_server(pid)]
        running = descendants(servers[0]) if servers and is_running(aipc, "export") else []
    return running


def is_server(pid: int) -> bool:
    try:
        return b"\0-m\0aipc\0mcp\0" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it is gone
        return False


@contextmanager
def by_hand(aipc: Aipc, **environ: str) -> Iterator[subprocess.Popen[str]]:
    """Start the server, and say hello."""
    process = subprocess.Popen(
        aipc.argv(*SERVER),
        env={**aipc.variables(), **environ},
        cwd=aipc.folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    try:
        assert ask(process, "initialize", hello)["result"]["serverInfo"]["name"] == "aipc"
        say(process, {"method": "notifications/initialized"})
        yield process
    finally:
        process.kill()
        process.communicate()


def say(process: subprocess.Popen[str], message: dict[str, Any]) -> None:
    assert process.stdin
    process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    process.stdin.flush()


def hear(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout
    return dict(json.loads(process.stdout.readline()))


def ask(process: subprocess.Popen[str], method: str, params: dict[str, Any]) -> dict[str, Any]:
    say(process, {"id": 1, "method": method, "params": params})
    return hear(process)


def begin_deploy(process: subprocess.Popen[str], aipc: Aipc) -> list[int]:
    """Begin a deploy, and return its processes when its second step runs."""
    params = {"name": "deploy", "arguments": DEPLOY, "_meta": {"progressToken": "here"}}
    say(process, {"id": 2, "method": "tools/call", "params": params})
    assert hear(process)["params"]["progressToken"] == "here"
    return jobs_of_a_deploy(aipc)
