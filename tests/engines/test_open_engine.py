"""Which engine is taken, and why."""

from __future__ import annotations

import socketserver
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aipc import engines
from aipc.engines import ping
from aipc.engines.venv import VenvEngine
from aipc.errors import UsageError


@contextmanager
def daemon(answer: bytes, wait_seconds: float = 0) -> Iterator[str]:
    """A daemon that says `answer` to everything; yields its address."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            assert self.rfile.readline().startswith(b"GET /_ping ")
            time.sleep(wait_seconds)
            self.wfile.write(answer)

    # The path of a socket may have 107 bytes at most, and pytest's own folders have long names.
    with tempfile.TemporaryDirectory(prefix="aipc-") as folder:
        path = str(Path(folder) / "docker.sock")
        with socketserver.ThreadingUnixStreamServer(path, Handler) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            try:
                yield f"unix://{path}"
            finally:
                server.shutdown()
                thread.join()


@contextmanager
def network_daemon() -> Iterator[int]:
    """A daemon on a port of this machine; yields the port."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.rfile.readline()
            self.wfile.write(FINE)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield int(server.server_address[1])
        finally:
            server.shutdown()
            thread.join()


FINE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK"


def test_an_unknown_engine_is_named_with_the_nearest_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no engine 'dokcer'; did you mean 'docker'?"):
        engines.open_engine("dokcer", tmp_path)


def test_the_engine_that_was_asked_for_is_taken(tmp_path: Path) -> None:
    engine = engines.open_engine("venv", tmp_path)
    assert isinstance(engine, VenvEngine)
    assert (engine.name, engine.reason) == ("venv", "it was asked for")
    engine.close()


def test_a_daemon_that_answers_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with daemon(FINE) as address:
        monkeypatch.setenv("DOCKER_HOST", address)
        assert engines.ask_daemon() == (address, f"a daemon answers on {address}")


@pytest.mark.parametrize("socket", ["docker.sock", "podman/podman.sock"])
def test_a_users_own_daemon_is_found(monkeypatch: pytest.MonkeyPatch, socket: str) -> None:
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/1000")
    assert f"unix:///run/user/1000/{socket}" in engines.daemon_addresses()
    assert engines.daemon_addresses()[0] == "unix:///var/run/docker.sock"


def test_where_no_daemon_answers_auto_takes_venv_and_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    engine = engines.open_engine("auto", tmp_path)
    assert engine.name == "venv"
    assert engine.reason == (
        f"no Docker or Podman daemon can be used (unix://{tmp_path}/none.sock: no such file or directory)"
    )


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n", "answered with status 503"),
        (b"what?\r\n\r\n", "what?"),
        (b"", "without response"),
    ],
)
def test_a_daemon_that_answers_wrongly_is_no_daemon(monkeypatch: pytest.MonkeyPatch, answer: bytes, why: str) -> None:
    with daemon(answer) as address:
        monkeypatch.setenv("DOCKER_HOST", address)
        found, reason = engines.ask_daemon()
    assert found == ""
    assert why in reason


def test_a_daemon_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ping, "PING_SECONDS", 0.2)
    with daemon(FINE, wait_seconds=1) as address:
        began = time.monotonic()
        assert "timed out" in ping.ping(address)
        assert time.monotonic() - began < 0.9


@pytest.mark.parametrize("scheme", ["tcp", "http", "ssh"])
def test_where_docker_host_names_a_daemon_over_the_network_auto_takes_venv_and_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, scheme: str
) -> None:
    # It answers, and could run containers; but no job of this machine.
    with network_daemon() as port:
        monkeypatch.setenv("DOCKER_HOST", f"{scheme}://127.0.0.1:{port}")
        engine = engines.open_engine("auto", tmp_path)
    assert engine.name == "venv"
    assert engine.reason == (
        f"no Docker or Podman daemon can be used ({scheme}://127.0.0.1:{port}: it is no unix:// socket, "
        "and a daemon over the network cannot see this machine's files)"
    )
