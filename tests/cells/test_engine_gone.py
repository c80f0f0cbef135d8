"""`aipc matrix` with a daemon that dies: it stops there, and says what is kept."""

from __future__ import annotations

import json
import socketserver
import tempfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from tests.cells.test_commands import ENGINE
from tests.command import Aipc

MATRIX = """
[precisions]
fp32 = { cosine = 0.9999 }

[runtimes.openvino]
precisions = ["fp32"]
targets = ["cpu", "npu"]

[models.lost]
source = "onnx"
weights = [{ path = "gone/net.onnx" }]

[models.up]
source = "function"
function = "tiny:upscaler"
folder = "models"
inputs = [{ name = "x", shape = [1, 3, 20, 24] }]
"""
ANSWERS = {
    "/_ping": {},
    "/version": {"ApiVersion": "1.41", "Version": "20.10", "Components": [{"Name": "Engine"}]},
    "/info": {"ID": "stand-in", "DockerRootDir": "/"},
    "/containers/json": [],
}
"""What is asked when the engine is opened."""


class Server(socketserver.ThreadingUnixStreamServer):
    """Stands in for a daemon that dies of the first question about an image; `asked` is what it was asked."""

    daemon_threads = True

    def __init__(self, path: Path) -> None:
        super().__init__(str(path), Handler)
        self.path = path
        self.asked: list[str] = []


class Handler(BaseHTTPRequestHandler):
    """Answers one connection."""

    server: Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        path = path.removeprefix("/v1.41")
        self.server.asked.append(path)
        if path not in ANSWERS:
            self.server.path.unlink(missing_ok=True)
            self.close_connection = True
            return
        body = json.dumps(ANSWERS[path]).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the name is the base's
        """Say nothing."""


@pytest.fixture
def daemon() -> Iterator[Server]:
    with tempfile.TemporaryDirectory() as folder, Server(Path(folder) / "d.sock") as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_daemon_that_dies_ends_the_matrix_and_what_was_done_is_kept(
    tmp_path: Path, checkout: Path, daemon: Server
) -> None:
    text = (checkout / "matrix.toml").read_text()
    pictures = text[text.index("pictures = [") :].partition("]\n")[0] + "]\n"
    (checkout / "matrix.toml").write_text(pictures + MATRIX)
    aipc = Aipc(tmp_path, {"AIPC_HOME": str(checkout), "DOCKER_HOST": f"unix://{daemon.path}"})
    done = aipc("matrix", "--engine", "docker", "--runs", str(aipc.runs))
    assert daemon.asked[-1].startswith("/images/"), daemon.asked
    assert done.code == ENGINE, done.out + done.error
    assert "see whether the daemon still runs" in done.last_line
    assert "2 of 4 cells are done, and all that was made is kept" in done.last_line
    assert "goes on with up/openvino/fp32@cpu" in done.last_line
    found = json.loads((aipc.runs / "matrix.json").read_text())
    assert [row["cell"] for row in found["rows"]] == ["lost/openvino/fp32@cpu", "lost/openvino/fp32@npu"]
    assert found["missing"] == ["up/openvino/fp32@cpu", "up/openvino/fp32@npu"]
    assert "not reached" in done.out
    assert "Traceback" not in done.error
