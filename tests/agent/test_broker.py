"""A session: its routes, its bounds, its jobs, its key, and how it ends."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from aipc.agent import broker as broker_module
from aipc.agent.budget import usage_of
from aipc.errors import EngineError
from runtimes.contract import Misused
from tests.agent.wire import (
    ASKED,
    CHAT,
    Desk,
    Model,
    answer,
    ask,
    error,
    good,
    hangs,
    post,
    raises,
)

PRICES = {"cost": 0.01, "price_in": 100.0, "price_out": 1000.0}
FAT = json.dumps({"messages": [{"role": "user", "content": "x" * 3000}]}).encode()
UNKNOWN = "verb: 'grpah' is not one; did you mean 'graph'?"
PROMPT_TOKENS = 6
"""Of ASKED: 22 characters, 4 a token."""


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("/v1/models", ASKED, 404, "/v1/models: no such path; known are /v1/chat/completions, /jobs"),
        ("/", ASKED, 404, "no such path"),
        (CHAT, b"{", 400, "the body: not JSON that can be used"),
        (CHAT, b"\xff", 400, "the body: not JSON that can be used"),
        (CHAT, b'{"messages": [{"content": "\\ud800"}]}', 400, "the body: not JSON that can be used"),
        (CHAT, b"[" * 100_000, 400, "the body: not JSON that can be used"),
        (CHAT, b"[]", 400, "the body: not a JSON object"),
        (CHAT, {**ASKED, "stream": True}, 400, "stream: this server does not stream"),
        (CHAT, {}, 400, "messages: not a list of messages"),
        (CHAT, {"messages": []}, 400, "messages: not a list of messages"),
        (CHAT, {"messages": ["hello"]}, 400, "messages: not a list of messages"),
        ("/jobs", {}, 400, "verb: missing"),
        ("/jobs", {"verb": 1}, 400, "verb: missing, or no string"),
    ],
)
def test_what_is_no_request_is_the_agents_to_mend(
    path: str, body: dict[str, Any] | bytes, status: int, words: str, desk: Desk
) -> None:
    with desk.open() as broker:
        got, said = post(broker, path, body)
        assert (got, said["error"]["type"]) == (status, "request")
        assert words in said["error"]["message"]
        assert ask(broker)[0] == 200
    assert desk.jobs.seen == []
    assert [line["kind"] for line in desk.lines()] == ["session", "chat"]


def test_a_job_gets_its_verb_and_arguments_and_answers(desk: Desk) -> None:
    desk.jobs.does = lambda _: {"ok": False, "observation": "no Einsum", "nodes": ("a", "b")}
    with desk.open() as broker:
        got = post(broker, "/jobs", {"verb": "graph", "op": "Einsum"})
    assert got == (200, {"ok": False, "observation": "no Einsum", "nodes": ["a", "b"]})
    assert desk.jobs.seen == [{"verb": "graph", "op": "Einsum"}]


def test_an_unknown_verb_is_told_the_known_ones(desk: Desk) -> None:
    desk.jobs.does = raises(Misused(UNKNOWN))
    with desk.open() as broker:
        status, body = post(broker, "/jobs", {"verb": "grpah"})
        assert (status, body["error"]) == (400, {"type": "request", "message": UNKNOWN})
        desk.jobs.does = lambda _: {"ok": True, "observation": ""}
        assert post(broker, "/jobs", {"verb": "graph"})[0] == 200


def test_a_long_observation_keeps_its_beginning_and_its_end(desk: Desk) -> None:
    desk.jobs.does = lambda _: {"ok": False, "observation": "first" + "." * 9000 + "last"}
    with desk.open() as broker:
        text = post(broker, "/jobs", {"verb": "convert"})[1]["observation"]
    assert len(text) == 2000
    assert text.startswith("first")
    assert text.endswith("last")
    assert "[…]" in text


def test_after_the_candidate_is_submitted_the_session_is_over(desk: Desk) -> None:
    desk.jobs.does = lambda body: {"ok": body.get("claim") == "agrees", "observation": ""}
    with desk.open() as broker:
        assert post(broker, "/jobs", {"verb": "submit"})[1]["ok"] is False
        assert ask(broker)[0] == 200
        assert post(broker, "/jobs", {"verb": "submit", "claim": "agrees"})[1]["ok"] is True
        for status, body in (ask(broker), post(broker, "/jobs", {"verb": "undo"})):
            assert (status, body["error"]["type"]) == (409, "submitted")
        assert broker.ended == ""
    assert len(desk.jobs.seen) == 2


@pytest.mark.parametrize(
    ("bounds", "usage", "calls", "words"),
    [
        ({"calls": 3}, None, 3, "calls: all 3 of this session are used; [agent] calls bounds it"),
        ({"tokens": 100}, {"prompt_tokens": 30, "completion_tokens": 10}, 3, "tokens: all 100 of this session"),
        ({"tokens": 15}, {"prompt_tokens": 0, "completion_tokens": 0}, 2, "tokens: all 15 of this session"),
        ({"tokens": 15}, {"prompt_tokens": -9, "completion_tokens": 1}, 2, "tokens: all 15 of this session"),
        ({"tokens": 15}, {"prompt_tokens": True, "completion_tokens": "9"}, 2, "tokens: all 15 of this session"),
        ({"tokens": PROMPT_TOKENS - 1}, None, 0, "tokens: all 5 of this session"),
        (PRICES, {"prompt_tokens": 40, "completion_tokens": 1}, 2, "cost: all 0.01 of this session are used"),
        (PRICES, {"prompt_tokens": 1, "completion_tokens": 10}, 1, "cost: all 0.01 of this session are used"),
        ({**PRICES, "cost": 0.0}, {"prompt_tokens": 40, "completion_tokens": 1}, 5, ""),
    ],
)
def test_a_bound_ends_the_calls(
    bounds: dict[str, Any], usage: Mapping[str, Any] | None, calls: int, words: str, desk: Desk, model: Model
) -> None:
    model.replies = [good("fine", usage)]
    with desk.open(**bounds) as broker:
        for _ in range(calls):
            assert ask(broker)[0] == 200
        if words:
            status, body = ask(broker)
            assert (status, body["error"]["type"]) == (403, "budget")
            assert words in body["error"]["message"]
            assert post(broker, "/jobs", {"verb": "submit"})[0] == 200
        assert broker.spent.calls == calls
        assert broker.ended == ""
    assert len(model.seen) == calls


def test_the_seconds_bound_calls_and_jobs_but_not_the_submission(desk: Desk, model: Model) -> None:
    with desk.open(seconds=60) as broker:
        desk.clock.now = 59.9
        assert post(broker, "/jobs", {"verb": "convert"})[0] == 200
        desk.clock.now = 60
        for status, body in (ask(broker), post(broker, "/jobs", {"verb": "convert"})):
            assert (status, body["error"]["type"]) == (403, "budget")
            assert body["error"]["message"].startswith("seconds: all 60 of this session are used")
        assert post(broker, "/jobs", {"verb": "submit"})[0] == 200
        assert broker.spent.seconds == 60
    assert [job["verb"] for job in desk.jobs.seen] == ["convert", "submit"]
    assert model.seen == []


@pytest.mark.parametrize(("name", "number"), [("MOST_REQUESTS", 3), ("MOST_RECEIVED_BYTES", 3 * len(FAT) + 100)])
def test_an_agent_that_asks_for_ever_does_not_fill_the_disk(
    name: str, number: int, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_module, name, number)
    with desk.open(calls=1) as broker:
        statuses = [post(broker, CHAT, FAT) for _ in range(5)]
        assert post(broker, "/jobs", {"verb": "graph"})[0] == 403
    assert [status for status, _ in statuses] == [200, 403, 403, 403, 403]
    assert statuses[-1][1]["error"]["message"].startswith("requests: ")
    assert len(desk.lines()) == 4


def test_what_is_spent_is_counted_and_an_estimate_is_marked(desk: Desk, model: Model) -> None:
    model.replies = [good("four", {"prompt_tokens": 40, "completion_tokens": 2}), good("eight ch")]
    with desk.open(price_in=1e6, price_out=2e6) as broker:
        ask(broker)
        assert (broker.spent.cost, broker.spent.estimated) == (44.0, False)
        ask(broker)
        assert (broker.spent.cost, broker.spent.estimated) == (44.0 + PROMPT_TOKENS + 4.0, True)
    usage = [(line["usage"], line["estimated"]) for line in desk.lines()[1:]]
    assert usage == [
        ({"prompt_tokens": 40, "completion_tokens": 2}, False),
        ({"prompt_tokens": PROMPT_TOKENS, "completion_tokens": 2}, True),
    ]


def test_tokens_of_parts_and_tool_calls_are_estimated_too() -> None:
    asked = {"messages": [{"role": "user", "content": [{"type": "text", "text": "x" * 40}]}]}
    calls = [{"function": {"name": "graph", "arguments": "y" * 100}}]
    said = {"choices": [{"message": {"content": None, "tool_calls": calls}}]}
    assert usage_of(asked, said).prompt_tokens == 10
    assert usage_of(asked, said).completion_tokens > 25


def test_the_transcript_has_every_exchange_with_its_time(desk: Desk, model: Model) -> None:
    def later(_: Mapping[str, Any]) -> Mapping[str, Any]:
        desk.clock.now += 2.5
        return {"ok": True, "observation": "fits"}

    desk.jobs.does = later
    model.replies = [good("fine", {"prompt_tokens": 5, "completion_tokens": 2}), error(400, "too long")]
    sha256 = "ab" * 32
    with desk.open(model_sha256=sha256) as broker:
        desk.clock.now = 1.0
        ask(broker)
        post(broker, "/jobs", {"verb": "convert"})
        ask(broker)
        assert len(desk.lines()) == 4  # on the disk before the answer goes out
    head, first, second, third = desk.lines()
    assert head == {
        "kind": "session",
        "model": "tiny",
        "model_sha256": sha256,
        "synthetic": False,
        "base_url": model.url,
        "mode": "repair",
        "cell": "tiny/openvino/fp16@cpu",
        "schema": 1,
    }
    assert first == {
        "n": 0,
        "at": 1.0,
        "kind": "chat",
        "request": {**ASKED, "temperature": 0.0},
        "response": answer("fine", {"prompt_tokens": 5, "completion_tokens": 2}),
        "usage": {"prompt_tokens": 5, "completion_tokens": 2},
        "estimated": False,
        "seconds": 0.0,
    }
    assert second == {
        "n": 1,
        "at": 1.0,
        "kind": "job",
        "request": {"verb": "convert"},
        "response": {"ok": True, "observation": "fits"},
        "seconds": 2.5,
    }
    assert (third["n"], third["at"], third["error"]["status"], third["error"]["type"]) == (2, 3.5, 400, "request")


def test_a_transcript_is_never_written_over(desk: Desk) -> None:
    desk.transcript.write_text("of an earlier session")
    with pytest.raises(EngineError, match=r"transcript.jsonl: cannot be written: File exists"), desk.open():
        pass
    assert desk.transcript.read_text() == "of an earlier session"


def test_a_disk_that_is_full_ends_the_session_and_is_told_to_the_host(desk: Desk) -> None:
    def session() -> None:
        with desk.open() as broker:
            broker._transcript._file.close()
            broker._transcript._file = Path("/dev/full").open("w", encoding="utf-8")  # noqa: SIM115 - the session closes it
            status, body = ask(broker)
            assert (status, body["error"]["type"]) == (502, "host")
            assert ask(broker)[0] == 502

    with pytest.raises(EngineError, match=r"transcript.jsonl: cannot be written: No space left"):
        session()


def test_an_error_of_the_host_ends_the_session_and_is_raised_at_its_end(desk: Desk, model: Model) -> None:
    lost = EngineError("docker engine: the daemon is gone; start it")
    desk.jobs.does = raises(lost)

    def session() -> None:
        with desk.open() as broker:
            status, body = post(broker, "/jobs", {"verb": "convert"})
            assert (status, body["error"]) == (502, {"type": "host", "message": str(lost)})
            assert ask(broker) == (status, body)
            assert post(broker, "/jobs", {"verb": "submit"}) == (status, body)
            assert broker.ended == str(lost)

    with pytest.raises(EngineError) as caught:
        session()
    assert caught.value is lost
    assert (len(desk.jobs.seen), model.seen) == (1, [])
    assert desk.lines()[1]["error"] == {"status": 502, "type": "host", "message": str(lost)}


def test_a_bug_of_ours_ends_the_session_and_its_traceback_is_the_hosts_alone(desk: Desk) -> None:
    desk.jobs.does = raises(KeyError("inner detail"))

    def session() -> None:
        with desk.open() as broker:
            status, body = post(broker, "/jobs", {"verb": "convert"})
            assert (status, body["error"]["type"]) == (502, "host")
            assert "inner detail" not in json.dumps(body)
            assert "Traceback" not in json.dumps(body)
            assert ask(broker)[0] == 502

    with pytest.raises(KeyError, match="inner detail"):
        session()


def test_an_error_of_the_session_itself_is_not_hidden_by_that_of_a_job(desk: Desk) -> None:
    desk.jobs.does = raises(EngineError("the daemon is gone"))

    def session() -> None:
        with desk.open() as broker:
            post(broker, "/jobs", {"verb": "convert"})
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        session()


def test_a_session_without_a_call_ends_at_once(desk: Desk) -> None:
    with desk.open() as broker:
        assert broker.ended == ""
        assert broker.spent.calls == 0
    assert len(desk.lines()) == 1


def test_the_host_may_leave_while_a_call_hangs(desk: Desk, model: Model) -> None:
    begun = threading.Event()
    model.replies = [hangs(begun.set)]
    told: list[tuple[int, Any]] = []
    with desk.open() as broker:
        client = threading.Thread(target=lambda: _gone(broker, told))
        client.start()
        assert begun.wait(60)
    client.join(60)
    assert not client.is_alive()
    assert desk.lines()[1]["error"]["type"] == "upstream"


def _gone(broker: Any, told: list[tuple[int, Any]]) -> None:
    try:
        told.append(ask(broker))
    except (OSError, http.client.HTTPException):
        told.append((0, None))
