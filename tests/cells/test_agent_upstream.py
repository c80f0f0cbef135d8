"""A deploy whose language model is no help: one line says why, and what the rules reached stays."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.agent.wire import Model, Reply, error, good, raw
from tests.cells.test_repairs import REFUSES, graph, save
from tests.cheats.scene import KEY, Scene, add_sixth

QUICK = """
from aipc.agent import upstream
upstream.FIRST_DELAY_SECONDS = 0.02
"""
"""Waits less between two tries than people's servers need."""
DEAF = f"""{QUICK}
from aipc.agent.broker import Broker
def chat(self, request):
    (self.folder / "s").unlink()
    self._server._server.hang_up()
    return {{"response": {{}}}}
Broker._chat = chat
"""
"""The broker's socket dies when the model is asked."""


def dies(handler: object) -> None:
    """Hang up without an answer."""
    handler.close_connection = True  # type: ignore[attr-defined]


CASES: dict[str, tuple[Reply, str, int]] = {
    "401": (error(401, "who are you?"), "401 Unauthorized: who are you?; the variable AIPC_AGENT_KEY", 1),
    "429": (error(429, "slowly"), "429 Too Many Requests: slowly (4 tries)", 4),
    "500": (error(500, "oh"), "500 Internal Server Error: oh (4 tries)", 4),
    "half an answer": (raw(200, b'{"choices', {"Content-Length": "90"}), "half an answer: 81 of 90 bytes", 4),
    "invalid JSON": (raw(200, b"<html>"), "its answer: ", 4),
    "a socket that dies": (dies, "the connection failed", 4),
    "no decision": (good("I would rather talk."), "3 answers in a row hold no decision", 3),
}
"""What the server does; what is said of it; how often it is asked."""


@pytest.fixture
def model() -> Iterator[Model]:
    with Model() as server:
        yield server


@pytest.fixture
def scene(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, environment_python: Callable[[str], Path]) -> Scene:
    """A net with an Einsum, which the sixth runtime refuses; no rule mends it."""
    for name in ("reference", "agent"):
        assert environment_python(name).exists()
    net = save(tmp_path / "net.onnx", graph())
    made = Scene(
        tmp_path,
        tmp_path_factory.getbasetemp() / "upstream-store",
        (str(net), "--runtime", "sixth", "--engine", "venv", "--agent", "repair"),
    )
    add_sixth(made, REFUSES, "Einsum")
    return made


def deploy(scene: Scene, url: str, off: str = QUICK) -> str:
    """Deploy with the model's server at `url`; return why the agent ended, once the rest is as it must be."""
    with (scene.checkout / "matrix.toml").open("a") as file:
        file.write(f'\n[agent]\nbase_url = "{url}"\nmodel = "tiny"\n')
    done = scene.deploy(off=off)
    assert (done.code, done.error) == (1, ""), done.out + done.error
    report = scene.aipc.report()
    assert report["verdict"] == "refused"
    assert report["failure"]["failure"]["op"] == "Einsum"
    work = scene.work()
    assert (work["claim"], work["edits"], work["verdict"], work["taken"]) == ("", [], None, False)
    ended = str(work["ended"])
    assert "\n" not in ended
    assert f"It ended: {ended}." in done.out
    assert KEY not in done.out
    return ended


@pytest.mark.parametrize("what", CASES)
def test_a_server_that_is_no_help_is_one_line_and_the_result_of_the_rules_is_kept(
    scene: Scene, model: Model, what: str
) -> None:
    reply, words, times = CASES[what]
    model.replies = [reply]
    told = deploy(scene, model.url)
    assert words in told, told
    assert len(model.seen) == times
    if what != "no decision":
        assert told.startswith(f"{model.url}/chat/completions: ")


def test_a_wrong_base_url_is_one_line_and_the_result_of_the_rules_is_kept(scene: Scene) -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    told = deploy(scene, f"http://127.0.0.1:{port}/v1")
    assert told.startswith(f"http://127.0.0.1:{port}/v1/chat/completions: the connection failed: ")
    assert "check that the server runs and that [agent] base_url is its URL" in told


def test_a_broker_that_dies_is_one_line_and_the_result_of_the_rules_is_kept(scene: Scene, model: Model) -> None:
    assert deploy(scene, model.url, DEAF).startswith("the broker's socket s: ")
