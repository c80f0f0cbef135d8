"""The MCP server: it listens on stdin, runs the commands that a client asks for, and answers on stdout."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any, cast

import anyio
from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.lowlevel.helper_types import ReadResourceContents
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import McpError

import aipc
from aipc.errors import AipcError, NothingSelected
from aipc.home import RUNS
from aipc.reports import schema
from aipc.serving import answers, child, skills
from aipc.serving.tools import COMMANDS, Tool
from runtimes.contract import Json

INSTRUCTIONS = (
    "aipc takes a PyTorch model or an ONNX file to an accelerator's runtime and believes only what its judge has "
    "measured: a cell is deployed when its verdict is `agrees`. Read the skill `aipc` first (tool `skills`), then that "
    "of the runtime. Paths are relative to the folder that the server was started in."
)
REPORT_SCHEMA = "aipc://report.schema.json"
SCHEMA_TYPE = "application/schema+json"
NOT_FOUND = -32002
"""The protocol's code for a resource that there is not."""
CHUNK = 65536

_REPORT: dict[str, Json] = {
    "type": "object",
    "properties": {
        "verdict": {"enum": ["agrees", "disagrees", "vacuous", "refused", "failed", "untried"]},
        "folder": {"type": "string", "description": "with report.json, report.html and the artefact"},
        "report": {"type": "object", "description": f"parts of report.json, in the form of {REPORT_SCHEMA}"},
    },
    "required": ["verdict", "folder", "report"],
}
_SKILLS = types.Tool(
    name="skills",
    title="Read a skill",
    description="What to know before and while deploying: without arguments the skills that there are; with a name its "
    "SKILL.md, or another file of it.",
    inputSchema={
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "of the skill, for instance aipc or openvino"},
            "file": {"type": "string", "description": "for instance references/operators.md"},
        },
        "additionalProperties": False,
    },
    annotations=types.ToolAnnotations(readOnlyHint=True, openWorldHint=False),
)


def serve(start: Mapping[str, str]) -> None:
    """Serve one client, until it goes or a signal comes.

    Args:
        start: the options that the server was started with, for the commands that take them.
    """
    if sys.stdin.isatty():
        sys.stderr.write(
            "aipc mcp: this speaks MCP over stdin and stdout; a client starts it, see docs/coding-agents.md\n"
        )
    # The protocol gets a stdout of its own: whatever prints goes to stderr, and no child can read what the client says.
    voice, ear = os.dup(1), os.dup(0)
    os.dup2(2, 1)
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    anyio.run(_serve, start, ear, voice)


async def _serve(start: Mapping[str, str], ear: int, voice: int) -> None:
    heard, mouth = socket.socketpair()
    threading.Thread(target=_relay, args=(ear, mouth), daemon=True).start()
    words = anyio.wrap_file(heard.makefile("r", encoding="utf-8", errors="replace"))
    said = anyio.wrap_file(cast("IO[str]", _Voice(voice, mouth)))
    server = _server(start)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_until_signal, mouth)
        async with stdio_server(words, said) as (read, write):
            await server.run(read, write, server.create_initialization_options())
        tasks.cancel_scope.cancel()


def _relay(ear: int, mouth: socket.socket) -> None:
    """Hand on what the client says, to the end; a signal, or a client that is deaf, makes an end of it too."""
    with contextlib.suppress(OSError):
        while said := os.read(ear, CHUNK):
            mouth.sendall(said)
    _end(mouth)


def _end(mouth: socket.socket) -> None:
    """Make an end of what is heard: calls that run are cancelled, and end what they started."""
    with contextlib.suppress(OSError):
        mouth.shutdown(socket.SHUT_WR)


async def _until_signal(mouth: socket.socket) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            _end(mouth)


class _Voice(io.TextIOBase):
    """What the client hears; one that does not listen any more is gone."""

    def __init__(self, voice: int, mouth: socket.socket) -> None:
        self._voice = voice
        self._mouth = mouth

    def write(self, text: str) -> int:
        """Write all of `text`."""
        rest = text.encode()
        try:
            while rest:
                rest = rest[os.write(self._voice, rest) :]
        except OSError:
            _end(self._mouth)
        return len(text)


def _server(start: Mapping[str, str]) -> Server[Any, Any]:
    server: Server[Any, Any] = Server("aipc", version=aipc.__version__, instructions=INSTRUCTIONS)
    tools = {tool.name: tool for tool in COMMANDS}

    async def list_tools() -> list[types.Tool]:
        return [*map(_described, COMMANDS), _SKILLS]

    async def call(name: str, given: dict[str, Any]) -> types.CallToolResult:
        if name == _SKILLS.name:
            return _read_skill(**given)
        if name not in tools:
            raise NothingSelected(f"there is no tool {name!r}; known are {', '.join([*tools, _SKILLS.name])}")
        tool = tools[name]
        ended = await child.run(tool.command(given, start), _Progress(server).tell)
        made = answers.answer(name, ended, Path(start.get("--runs", RUNS)), given.get("keys", ()))
        return types.CallToolResult(content=[_text(made.text)], structuredContent=made.data)

    server.list_tools()(list_tools)  # type: ignore[no-untyped-call]
    server.call_tool()(call)
    server.list_resources()(_list_resources)  # type: ignore[no-untyped-call]
    server.read_resource()(_read_resource)  # type: ignore[no-untyped-call]
    return server


class _Progress:
    """Tells a client that asked for it how far its call is: each line of the command is one more."""

    def __init__(self, server: Server[Any, Any]) -> None:
        context = server.request_context
        self._session = context.session
        self._request = str(context.request_id)
        self._token = context.meta.progressToken if context.meta else None
        self._lines = 0

    async def tell(self, line: str) -> None:
        """Send one line."""
        self._lines += 1
        if self._token is not None:
            await self._session.send_progress_notification(
                self._token, self._lines, message=line, related_request_id=self._request
            )


def _described(tool: Tool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        inputSchema=tool.schema,
        outputSchema=_REPORT if tool.name in {"deploy", "report"} else None,
        annotations=types.ToolAnnotations(
            readOnlyHint=not tool.writes, destructiveHint=False, idempotentHint=True, openWorldHint=False
        ),
    )


def _read_skill(name: str = "", file: str = skills.MAIN) -> types.CallToolResult:
    if name:
        return types.CallToolResult(content=[_text(skills.read(name, file))])
    found = [
        {"name": each.name, "description": each.description, "files": list(each.files)} for each in skills.all_skills()
    ]
    said = "\n".join(f"{each['name']}: {each['description']}" for each in found)
    return types.CallToolResult(content=[_text(said)], structuredContent={"skills": found})


def _text(text: str) -> types.TextContent:
    return types.TextContent(type="text", text=text)


async def _list_resources() -> list[types.Resource]:
    found = [
        {
            "uri": f"{skills.SCHEME}{skill.name}/{file}",
            "name": f"{skill.name}/{file}",
            "description": skill.description if file == skills.MAIN else None,
            "mimeType": skills.type_of(file),
        }
        for skill in skills.all_skills()
        for file in skill.files
    ]
    form = {"uri": REPORT_SCHEMA, "name": schema.PUBLISHED.name, "mimeType": SCHEMA_TYPE}
    return [types.Resource.model_validate(each) for each in (*found, form)]


async def _read_resource(uri: object) -> Iterable[ReadResourceContents]:
    name = str(uri)
    if name == REPORT_SCHEMA:
        return [ReadResourceContents(content=schema.published(), mime_type=SCHEMA_TYPE)]
    skill, _, file = name.removeprefix(skills.SCHEME).partition("/")
    try:
        if not name.startswith(skills.SCHEME):
            raise NothingSelected(f"{name}: there is no such resource; those of skills begin with {skills.SCHEME}")
        return [ReadResourceContents(content=skills.read(skill, file), mime_type=skills.type_of(file))]
    except AipcError as error:
        raise McpError(types.ErrorData(code=NOT_FOUND, message=str(error))) from error
