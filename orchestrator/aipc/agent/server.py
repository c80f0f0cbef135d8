"""HTTP/1.1 with JSON over a Unix socket, for a client that is not trusted: bounded, and never a traceback."""

from __future__ import annotations

import contextlib
import http.server
import re
import socket
import socketserver
import sys
import threading
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Self

from runtimes.contract import Json, dumps

LARGEST_REQUEST_BYTES = 1 << 20
CLIENT_SECONDS = 30.0
"""How long a client may say nothing in the middle of a request, or not take its answer."""
MOST_CLIENTS = 16
FAILED = "the host failed, and says why itself; the session is ended"

_DRAINED_BYTES = 16 << 20
_CHUNK_BYTES = 1 << 16

Answer = Callable[[str, bytes], tuple[int, Json]]
"""Takes the path and the body of a request; returns the status and the JSON of its answer."""


class Server:
    """Answers at a socket from `__enter__` to `__exit__`, each client in a thread of its own."""

    def __init__(self, path: Path, answer: Answer, client_seconds: float = CLIENT_SECONDS) -> None:
        """Make the socket at `path`, which every user may write to: its folder says who may reach it."""
        self._server = _Server(path, answer, client_seconds)
        path.chmod(0o666)
        self._thread = threading.Thread(target=self._server.serve_forever, name="aipc-broker")

    @property
    def failed(self) -> BaseException | None:
        """What `answer` raised, if it did: the first of it."""
        return self._server.failed

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A socket that is shut wakes the thread that waits for clients, which then sees that it is to end.
        with contextlib.suppress(OSError):
            self._server.socket.shutdown(socket.SHUT_RDWR)
        self._server.shutdown()
        self._thread.join()
        self._server.hang_up()
        self._server.server_close()  # waits for the threads of clients


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    request_queue_size = MOST_CLIENTS

    def __init__(self, path: Path, answer: Answer, client_seconds: float) -> None:
        super().__init__(str(path), _Handler)
        self.answer, self.client_seconds = answer, client_seconds
        self.failed: BaseException | None = None
        self._free = threading.BoundedSemaphore(MOST_CLIENTS)
        self._clients: set[socket.socket] = set()

    def process_request(self, request: socket.socket, client_address: str) -> None:  # type: ignore[override]
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        self._clients.add(request)
        super().process_request(request, client_address)

    def process_request_thread(self, request: socket.socket, client_address: str) -> None:  # type: ignore[override]
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._clients.discard(request)
            self._free.release()

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002 - socketserver's signature
        error = sys.exception()
        # A client that is gone is no error of ours.
        if error is not None and not isinstance(error, ConnectionError | TimeoutError):
            self.keep(error)

    def keep(self, error: BaseException) -> None:
        """Keep an error for the host, if it is the first."""
        self.failed = self.failed or error

    def hang_up(self) -> None:
        """Let go of the clients that are left."""
        for client in list(self._clients):
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def setup(self) -> None:
        self.request.settimeout(self.server.client_seconds)
        super().setup()

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if "Transfer-Encoding" in self.headers or not re.fullmatch(r"[0-9]{1,18}", length):
            self.send_error(HTTPStatus.LENGTH_REQUIRED, "say by Content-Length how long the body is")
            return
        if int(length) > LARGEST_REQUEST_BYTES:
            self.send_error(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"{length} bytes are more than {LARGEST_REQUEST_BYTES}; ask for less",
            )
            self._drain(min(int(length), _DRAINED_BYTES))
            return
        content = self.rfile.read(int(length))
        if len(content) < int(length):  # the client is gone
            self.close_connection = True
            return
        try:
            status, answer = self.server.answer(self.path, content)
        except BaseException as error:
            self.server.keep(error)
            self._send(HTTPStatus.BAD_GATEWAY, {"error": {"type": "host", "message": FAILED}})
            raise
        self._send(status, answer)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002
        """Answer what is no request of ours; http.server calls it too."""
        words = message or HTTPStatus(code).phrase
        self._send(code, {"error": {"type": "request", "message": words}})

    def version_string(self) -> str:
        return "aipc"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing: the transcript has it all."""

    def _send(self, status: int, answer: Json) -> None:
        content = dumps(answer).encode("utf-8", "backslashreplace")
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(content)

    def _drain(self, size_bytes: int) -> None:
        """Take what the client still sends, so that it comes to read the answer."""
        while size_bytes > 0 and (chunk := self.rfile.read1(min(size_bytes, _CHUNK_BYTES))):
            size_bytes -= len(chunk)
