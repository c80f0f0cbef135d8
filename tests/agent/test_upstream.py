"""What the agent gets of a server that works, and of one that does not: a clear word, and no more tries than fit."""

from __future__ import annotations

import email.utils
import json
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aipc.agent import upstream
from aipc.agent.key import Key
from aipc.agent.upstream import Upstream
from aipc.errors import UsageError
from tests.agent.wire import ASKED, CHAT, KEY, Desk, Model, Reply, answer, ask, error, good, hangs, post, raw, said


def test_what_the_model_says_comes_back_as_it_is(desk: Desk, model: Model) -> None:
    whole = {**answer("fine", {"prompt_tokens": 7, "completion_tokens": 1}), "id": "x", "system_fingerprint": "f"}
    model.replies = [raw(200, json.dumps(whole).encode())]
    with desk.open() as broker:
        assert ask(broker) == (200, whole)
    assert model.seen[0].path == "/v1/chat/completions"
    assert "Authorization" not in model.seen[0].headers


def test_the_key_goes_to_the_server_and_the_host_names_the_model(desk: Desk, model: Model) -> None:
    with desk.open(key=KEY, temperature=0.25) as broker:
        asked = {"model": "gpt-9", "user": "me", "n": 8, "tools": [], "max_tokens": 9, "stop": ["."], "seed": 1}
        assert ask(broker, **asked, response_format={"type": "json_object"})[0] == 200
        assert ask(broker, temperature=0.5)[0] == 200
    assert model.seen[0].headers["Authorization"] == f"Bearer {KEY}"
    assert model.seen[0].body == {
        **ASKED,
        "model": "tiny",
        "temperature": 0.25,
        "max_tokens": 9,
        "stop": ["."],
        "seed": 1,
        "response_format": {"type": "json_object"},
    }
    assert model.seen[1].body["temperature"] == 0.5


def test_an_answer_by_tool_calls_is_one(desk: Desk, model: Model) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "graph", "arguments": "{}"}}
    body = {"choices": [{"message": {"role": "assistant", "content": None, "tool_calls": [call]}}]}
    model.replies = [raw(200, json.dumps(body).encode())]
    with desk.open() as broker:
        assert ask(broker) == (200, body)


def chunked(handler: Any) -> None:
    handler.protocol_version = "HTTP/1.1"
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    handler.wfile.write(b"20\r\n" + json.dumps(answer("x")).encode()[:32] + b"\r\n")


def not_http(handler: Any) -> None:
    handler.wfile.write(b"SSH-2.0\r\n")


PASSING: dict[str, tuple[Reply, str]] = {
    "500": (error(500, "out of memory"), "500 Internal Server Error: out of memory"),
    "503 of a proxy": (raw(503, b"<html>\nno backend"), "503 Service Unavailable: <html> no backend"),
    "429": (error(429, "slow down"), "429 Too Many Requests: slow down"),
    "half an answer": (raw(200, b'{"choices": [', {"Content-Length": "900"}), "half an answer: 887 of 900 bytes"),
    "half an answer in chunks": (chunked, "the connection failed: IncompleteRead"),
    "no JSON": (raw(200, b"Hello!"), "its answer: not JSON that can be used"),
    "NaN": (raw(200, b'{"choices": NaN}'), "its answer: not JSON that can be used: NaN is no number"),
    "deep JSON": (raw(200, b"[" * 100_000), "its answer: not JSON that can be used"),
    "JSON that is no object": (raw(200, b"[1]"), "its answer: not a JSON object"),
    "nothing": (raw(200, b""), "its answer: not JSON"),
    "no choices": (raw(200, b'{"error": {"message": "no credits"}}'), "an answer without choices: no credits"),
    "empty choices": (raw(200, b'{"choices": []}'), "an answer without choices"),
    "no message": (raw(200, b'{"choices": [{}]}'), "an answer without choices[0].message"),
    "an empty message": (raw(200, b'{"choices": [{"message": {}}]}'), "neither content nor tool_calls"),
    "a closed connection": (lambda handler: handler.connection.shutdown(socket.SHUT_RDWR), "the connection failed"),
    "no HTTP": (not_http, "the connection failed"),
}


@pytest.mark.parametrize("what", PASSING)
def test_what_may_pass_is_tried_again(what: str, desk: Desk, model: Model) -> None:
    model.replies = [PASSING[what][0], good("now it works")]
    with desk.open() as broker:
        assert said(ask(broker)[1]) == "now it works"
        assert broker.ended == ""
    assert desk.slept == [1.0]


@pytest.mark.parametrize("what", PASSING)
def test_what_does_not_pass_ends_the_session_after_four_tries(what: str, desk: Desk, model: Model) -> None:
    reply, words = PASSING[what]
    model.replies = [reply]
    with desk.open() as broker:
        status, body = ask(broker)
        assert (status, body["error"]["type"]) == (502, "upstream")
        for part in (f"{model.url}/chat/completions: ", words, "(4 tries)", "[agent] base_url"):
            assert part in body["error"]["message"]
        assert ask(broker) == (status, body)
        assert post(broker, "/jobs", {"verb": "graph"}) == (status, body)
        assert broker.ended == body["error"]["message"]
    assert desk.slept == [1.0, 2.0, 4.0]
    assert len(model.seen) == 4
    assert desk.jobs.seen == []


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (
            error(401, "no"),
            "401 Unauthorized: no; the variable AIPC_AGENT_KEY ([agent] key_variable) is not set",
        ),
        (error(403), "403 Forbidden; the variable AIPC_AGENT_KEY"),
        (error(404, "no such model"), "404 Not Found: no such model; check [agent] base_url, which often ends in /v1"),
        (error(402, "no credit"), "402 Payment Required: no credit"),
        (raw(301, b"", {"Location": "http://127.0.0.1:9/"}), "301 Moved Permanently; check [agent] base_url"),
        (raw(204, b""), "204 No Content; check [agent] base_url"),
    ],
)
def test_what_does_not_pass_by_itself_ends_the_session_at_once(
    reply: Reply, words: str, desk: Desk, model: Model
) -> None:
    model.replies = [reply]
    with desk.open() as broker:
        status, body = ask(broker)
        assert ask(broker) == (status, body)
    assert (status, body["error"]["type"]) == (502, "upstream")
    assert f"{model.url}/chat/completions: {words}" in body["error"]["message"]
    assert (len(model.seen), desk.slept) == (1, [])


def test_a_key_that_is_not_taken_is_said_to_be_there(desk: Desk, model: Model) -> None:
    model.replies = [error(401)]
    with desk.open(key=KEY) as broker:
        assert "AIPC_AGENT_KEY ([agent] key_variable) holds a key that it does not take" in str(ask(broker)[1])


def test_a_request_that_the_server_refuses_is_the_agents_to_mend(desk: Desk, model: Model) -> None:
    model.replies = [error(400, "response_format is not supported"), good("without it")]
    with desk.open() as broker:
        status, body = ask(broker, response_format={"type": "json_schema"})
        assert (status, body["error"]["type"]) == (400, "request")
        assert "response_format is not supported" in body["error"]["message"]
        assert said(ask(broker)[1]) == "without it"
    assert desk.slept == []


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.mark.parametrize(
    ("url", "words"),
    [
        (lambda: f"http://127.0.0.1:{free_port()}/v1", "Connection refused"),
        (lambda: "http://no-such-host.invalid/v1", "its host cannot be found"),
        (lambda: "http://" + "a" * 70 + ".invalid/v1", "its host cannot be found"),
    ],
)
def test_a_server_that_is_not_there_is_named(url: Callable[[], str], words: str, desk: Desk) -> None:
    base_url = url()
    with desk.open(base_url=base_url) as broker:
        status, body = ask(broker)
    assert (status, body["error"]["type"]) == (502, "upstream")
    for part in (f"{base_url}/chat/completions: ", words, "[agent] base_url"):
        assert part in body["error"]["message"]


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate of this machine that no authority has signed, and its private key, in one file."""
    if not shutil.which("openssl"):
        pytest.skip("openssl is not installed")
    made = tmp_path / "made.pem"
    argv = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost")
    named = ("-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(made), "-out", str(tmp_path / "public.pem"))
    subprocess.run([*argv, *named], check=True, capture_output=True)
    made.write_bytes(made.read_bytes() + (tmp_path / "public.pem").read_bytes())
    return made


def test_a_server_is_believed_by_its_certificate_alone(
    desk: Desk, model: Model, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    model.socket = tls.wrap_socket(model.socket, server_side=True)
    base_url = model.url.replace("http://", "https://")
    with desk.open(base_url=base_url, key=KEY) as broker:
        message = ask(broker)[1]["error"]["message"]
    assert "its certificate is not trusted: " in message
    assert "SSL_CERT_FILE" in message
    assert (model.seen, desk.slept) == ([], [])
    desk.transcript.unlink()
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.with_name("public.pem")))
    with desk.open(base_url=base_url, key=KEY) as broker:
        assert said(ask(broker)[1]) == "fine"


def test_a_server_without_tls_is_told_from_one_with_it(desk: Desk, model: Model) -> None:
    with desk.open(base_url=model.url.replace("http://", "https://")) as broker:
        status, body = ask(broker)
    assert status == 502
    assert "SSL" in body["error"]["message"]


def test_the_server_says_how_long_to_wait(desk: Desk, model: Model) -> None:
    at = email.utils.formatdate(time.time() + 100, usegmt=True)
    model.replies = [
        error(429, headers={"Retry-After": "17"}),
        error(503, headers={"Retry-After": at}),
        error(500, headers={"Retry-After": "soon"}),
        good("fine"),
    ]
    with desk.open() as broker:
        assert ask(broker)[0] == 200
    first, second, third = desk.slept
    assert first == 17
    assert 90 < second <= 100
    assert third == 4


def test_a_wait_past_the_end_of_the_session_is_not_begun(desk: Desk, model: Model) -> None:
    model.replies = [error(429, "come back tomorrow", headers={"Retry-After": "86400"})]
    with desk.open(seconds=1800) as broker:
        status, body = ask(broker)
    assert (status, body["error"]["type"]) == (502, "upstream")
    assert "come back tomorrow; the next try is 86400 s away, and 1800 s are left" in body["error"]["message"]
    assert (len(model.seen), desk.slept) == (1, [])


def test_waits_grow_and_differ(desk: Desk, model: Model) -> None:
    model.replies = [error(500)]
    numbers = iter((0.0, 1.0, 0.5))
    settings = desk.settings()
    patient = Upstream(settings, Key(), sleep=desk.slept.append, jitter=lambda: next(numbers, 0.0))
    with desk.open(replay=patient) as broker:
        assert ask(broker)[0] == 502
    assert desk.slept == [0.5, 3.0, 4.0]


def test_a_server_that_hangs_is_left_when_the_seconds_are_over(desk: Desk, model: Model) -> None:
    def later() -> None:
        desk.clock.now = 101

    model.replies = [hangs(later)]
    with desk.open(seconds=100) as broker:
        desk.clock.now = 99.8  # so the connection is cut after 0.2 seconds of this machine's own time
        status, body = ask(broker)
        assert (status, body["error"]["type"]) == (403, "budget")
        assert "seconds: all 100 of this session are used" in body["error"]["message"]
    assert len(model.seen) == 1


def test_the_end_of_the_session_cuts_a_call_that_hangs(desk: Desk, model: Model) -> None:
    client = Upstream(desk.settings(), Key(), sleep=desk.slept.append)
    model.replies = [hangs(client.cut)]
    with desk.open(replay=client) as broker:
        assert "closed while it was asked" in ask(broker)[1]["error"]["message"]
        assert len(model.seen) == 1


def test_an_answer_without_an_end_is_not_read_to_it(desk: Desk, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream, "LARGEST_ANSWER_BYTES", 1 << 20)
    model.replies = [good("x" * (1 << 20))]
    with desk.open() as broker:
        assert "an answer of more than 1 MiB (4 tries)" in ask(broker)[1]["error"]["message"]


def test_the_proxy_of_the_environment_is_asked(desk: Desk, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", model.url.removesuffix("/v1").replace("http://", "http://me:word@"))
    with desk.open(base_url="http://models.invalid/v1") as broker:
        assert ask(broker)[0] == 200
    assert model.seen[0].path == "http://models.invalid/v1/chat/completions"
    assert model.seen[0].headers["Proxy-Authorization"] == "Basic bWU6d29yZA=="


def test_a_proxy_is_asked_for_a_tunnel_and_sees_no_key(
    desk: Desk, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("https_proxy", f"me:word@127.0.0.1:{model.server_port}")
    with desk.open(base_url="https://models.invalid/v1", key=KEY) as broker:
        assert "Tunnel connection failed: 502" in ask(broker)[1]["error"]["message"]
    assert model.seen[0].path == "models.invalid:443"
    assert model.seen[0].headers["Proxy-Authorization"] == "Basic bWU6d29yZA=="
    assert "Authorization" not in model.seen[0].headers


def test_a_host_that_needs_no_proxy_is_asked_itself(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with desk.open() as broker:
        assert ask(broker)[0] == 200


@pytest.mark.parametrize("proxy", ["socks5://me:word@x:1", "http://me:word@x:port", "http://"])
def test_a_proxy_that_is_none_is_refused_and_not_shown(proxy: str, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", proxy)
    with pytest.raises(UsageError, match="http_proxy: no URL of an HTTP proxy") as caught:
        Upstream(desk.settings(), Key())
    assert "word" not in str(caught.value)


def test_no_header_of_ours_says_more_than_it_must(desk: Desk, model: Model) -> None:
    with desk.open() as broker:
        assert post(broker, CHAT, ASKED)[0] == 200
    sent = {"Host", "Content-Length", "Content-Type", "Accept", "Accept-Encoding", "Connection", "User-Agent"}
    assert set(model.seen[0].headers) == sent
