"""The socket: what a client that is not trusted can do with it, from a cage too, and what is left of it afterwards."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from aipc.agent import server
from aipc.engines import cage
from aipc.errors import EngineError
from tests.agent.wire import ASKED, CHAT, Desk, Model, ask, connected, good, post, said, spoken

BIG = 1 << 20


def status_of(answer: bytes) -> int:
    return int(answer.split()[1])


def error_of(answer: bytes) -> dict[str, Any]:
    """Return the error in the last bytes of an answer; some of them have no headers."""
    return dict(json.loads(answer[answer.rindex(b'{"error"') :])["error"])


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"\x00\x01\x02\r\n\r\n", 400),
        (b"POST /jobs HTTP/9.9\r\n\r\n", 505),
        (b"POST /jobs HTTP/1.1 and more\r\n\r\n", 400),
        (b"POST /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n", 414),
        (b"POST /jobs HTTP/1.1\r\nX: " + b"a" * 70_000 + b"\r\n\r\n", 431),
        (b"POST /jobs HTTP/1.1\r\n" + b"X: a\r\n" * 200 + b"\r\n", 431),
        (b"GET /jobs HTTP/1.1\r\n\r\n", 501),
        (b"POST /jobs HTTP/1.1\r\n\r\n", 411),
        (b"POST /jobs HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 411),
        (b"POST /jobs HTTP/1.1\r\nContent-Length: 1e3\r\n\r\n", 411),
        (b"POST /jobs HTTP/1.1\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n", 411),
        (b"POST /jobs HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n{}", 411),
    ],
)
def test_what_is_no_http_of_ours_is_an_error_in_json(sent: bytes, status: int, desk: Desk) -> None:
    with desk.open() as broker:
        answer = spoken(broker, sent)
        assert error_of(answer)["type"] == "request"
        # To what is no HTTP/1 at all, the answer has no status.
        assert not answer.startswith(b"HTTP/") or status_of(answer) == status
        assert b"Traceback" not in answer
        assert b"Python" not in answer
        assert ask(broker)[0] == 200
    assert desk.jobs.seen == []


def test_a_body_of_a_mebibyte_passes_and_one_byte_more_does_not(desk: Desk, model: Model) -> None:
    empty = len(json.dumps({"messages": [{"role": "user", "content": ""}]}))
    for more, status in ((0, 200), (1, 413), (3 * BIG, 413)):
        body = {"messages": [{"role": "user", "content": "x" * (BIG - empty + more)}]}
        desk.transcript.unlink(missing_ok=True)
        with desk.open(tokens=10**9) as broker:
            got, answer = post(broker, CHAT, body)
            assert got == status
            assert status == 200 or "are more than 1048576" in answer["error"]["message"]
            assert ask(broker)[0] == 200
    assert len(model.seen) == 4


@pytest.mark.parametrize(
    "sent", [b"", b"POST /jo", b'POST /jobs HTTP/1.1\r\nContent-Length: 40\r\n\r\n{"verb": "graph"}']
)
def test_a_client_that_leaves_in_the_middle_of_a_request_changes_nothing(sent: bytes, desk: Desk) -> None:
    with desk.open() as broker:
        spoken(broker, sent)
        assert ask(broker)[0] == 200
    assert desk.jobs.seen == []
    assert len(desk.lines()) == 2


def test_a_client_that_does_not_wait_for_its_answer_changes_nothing(desk: Desk) -> None:
    begun, gone = threading.Event(), threading.Event()

    def job(_: Mapping[str, Any]) -> Mapping[str, Any]:
        begun.set()
        assert gone.wait(60)
        return {"ok": True, "observation": "x" * 1000}

    desk.jobs.does = job
    body = b'{"verb": "graph"}'
    with desk.open() as broker:
        with connected(broker.folder / "s") as client:
            client.sendall(b"POST /jobs HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            assert begun.wait(60)
        gone.set()
        assert ask(broker)[0] == 200
    assert [line["kind"] for line in desk.lines()] == ["session", "job", "chat"]


def test_a_bug_is_told_to_the_host_also_when_the_client_is_gone(desk: Desk) -> None:
    begun, gone = threading.Event(), threading.Event()

    def job(_: Mapping[str, Any]) -> Mapping[str, Any]:
        begun.set()
        assert gone.wait(60)
        raise KeyError("inner detail")

    desk.jobs.does = job

    def session() -> None:
        with desk.open() as broker:
            with connected(broker.folder / "s") as client:
                client.sendall(b'POST /jobs HTTP/1.1\r\nContent-Length: 17\r\n\r\n{"verb": "graph"}')
                assert begun.wait(60)
            gone.set()

    with pytest.raises(KeyError, match="inner detail"):
        session()


def test_a_client_that_says_nothing_is_let_go_and_keeps_nobody_waiting(desk: Desk) -> None:
    with desk.open(client_seconds=0.2) as broker, connected(broker.folder / "s") as silent:
        with connected(broker.folder / "s") as slow:
            slow.sendall(b"POST /jobs HTTP/1.1\r\nContent-Length: 20\r\n\r\n{")
            assert ask(broker)[0] == 200
            assert slow.recv(100) == b""
        assert silent.recv(100) == b""


def test_the_host_does_not_wait_for_a_client_that_says_nothing(desk: Desk) -> None:
    with contextlib.ExitStack() as stack:
        with desk.open(client_seconds=1000) as broker:
            silent = stack.enter_context(connected(broker.folder / "s"))
            assert ask(broker)[0] == 200  # so the silent one is in by now
        assert silent.recv(100) == b""


def test_more_clients_than_there_is_room_for_are_let_go(desk: Desk) -> None:
    with desk.open() as broker:
        path = broker.folder / "s"
        clients = [connected(path) for _ in range(server.MOST_CLIENTS)]
        with connected(path) as late:
            assert late.recv(100) == b""
        clients.pop().close()
        for client in clients:
            client.close()


def test_two_clients_are_served_one_after_the_other(desk: Desk, model: Model) -> None:
    busy, most = 0, 0
    both = threading.Barrier(2)

    def job(body: Mapping[str, Any]) -> Mapping[str, Any]:
        nonlocal busy, most
        busy += 1
        most = max(most, busy)
        assert ask_directly(model)
        busy -= 1
        return {"ok": True, "observation": str(body["n"])}

    desk.jobs.does = job
    told: dict[int, list[Any]] = {0: [], 1: []}

    def client(number: int) -> None:
        both.wait(60)
        for n in range(5):
            told[number].append(post(broker, "/jobs", {"verb": "graph", "n": 10 * number + n})[1]["observation"])

    with desk.open() as broker:
        threads = [threading.Thread(target=client, args=(number,)) for number in told]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert most == 1
    assert told == {0: [str(n) for n in range(5)], 1: [str(n) for n in range(10, 15)]}
    assert [line["n"] for line in desk.lines()[1:]] == list(range(10))


def ask_directly(model: Model) -> bool:
    """Give the other client's thread time to come in, by asking the model's server without the broker."""
    with socket.create_connection(("127.0.0.1", model.server_port), timeout=60) as client:
        client.sendall(b"POST / HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}")
        return bool(client.recv(1))


def test_the_folder_is_private_and_gone_afterwards(desk: Desk) -> None:
    with desk.open() as broker:
        inner = broker.folder
        outer = inner.parent
        assert stat.S_IMODE(outer.stat().st_mode) == 0o700
        assert stat.S_IMODE(inner.stat().st_mode) == 0o755  # a container's own user may enter what is mounted
        assert stat.S_IMODE((inner / "s").stat().st_mode) == 0o666
        assert [path.name for path in inner.iterdir()] == ["s"]
        assert len(str(inner / "s")) < 80
    assert not outer.exists()


def test_the_folder_is_gone_after_an_error_too(desk: Desk) -> None:
    folders: list[Path] = []

    def session() -> None:
        with desk.open() as broker:
            folders.append(broker.folder.parent)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        session()
    assert not folders[0].exists()


def test_a_path_that_is_too_long_for_a_socket_is_told_with_its_way_out(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = desk.folder / ("long" * 20)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with pytest.raises(EngineError, match="bytes are too long for a socket.*set TMPDIR"), desk.open():
        pass
    assert list(long.iterdir()) == []


CLIENT = """
import http.client, json, os, socket, sys

class Unix(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(os.environ["AIPC_BROKER"])

def post(path, body):
    connection = Unix("broker")
    connection.request("POST", path, json.dumps(body))
    answer = connection.getresponse()
    found = [answer.status, json.loads(answer.read())]
    connection.close()
    return found

def tried(what):
    try:
        what()
    except OSError as error:
        return type(error).__name__
    return "it worked"

asked = json.loads(sys.argv[1])
port = int(sys.argv[2])
print(json.dumps({
    "chat": post("/v1/chat/completions", asked),
    "job": post("/jobs", {"verb": "graph"}),
    "network": tried(lambda: socket.create_connection(("127.0.0.1", port), timeout=5)),
    "write": tried(lambda: open("/broker/more", "w")),
    "remove": tried(lambda: os.unlink("/broker/s")),
    "replace": tried(lambda: os.rename("/broker/s", "/broker/t")),
    "seen": sorted(os.listdir("/broker")),
}))
"""


def in_a_cage(folder: Path, *arguments: str) -> dict[str, Any]:
    """Return what the client prints in a cage without a network, where the folder of the socket is read-only."""
    system = [
        part for path in ("/usr", "/bin", "/lib", "/lib64", sys.base_prefix) for part in ("--ro-bind-try", path, path)
    ]
    argv = [shutil.which("bwrap") or "bwrap", "--unshare-all", "--die-with-parent", "--cap-drop", "ALL", *system]
    argv += ["--uid", str(cage.USER), "--gid", str(cage.USER), "--proc", "/proc", "--dev", "/dev", "--clearenv"]
    argv += ["--ro-bind", str(folder), "/broker", "--setenv", "AIPC_BROKER", "/broker/s"]
    python = str(Path(sys.base_prefix) / "bin" / "python3")
    done = subprocess.run(
        [*argv, "--", python, "-I", "-c", CLIENT, *arguments], capture_output=True, check=False, text=True
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.fixture
def with_cage() -> None:
    if why := cage.why_not():
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(why)


@pytest.mark.usefixtures("with_cage")
def test_from_a_cage_without_a_network_the_socket_is_reached_and_nothing_else(desk: Desk, model: Model) -> None:
    model.replies = [good("from outside")]
    with desk.open() as broker:
        found = in_a_cage(broker.folder, json.dumps(ASKED), str(model.server_port))
        assert ask_directly(model)  # what the cage keeps the client from works here
        assert (broker.folder / "s").is_socket()
    status, body = found["chat"]
    assert (status, said(body)) == (200, "from outside")
    assert found["job"] == [200, {"ok": True, "observation": "done"}]
    assert found["network"] in {"ConnectionRefusedError", "OSError"}
    assert {found[what] for what in ("write", "remove", "replace")} <= {"OSError", "PermissionError"}
    assert found["seen"] == ["s"]
