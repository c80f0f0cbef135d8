"""The key: in no answer, no transcript and no error, whatever a server or a job says."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from aipc.agent.key import STARS
from aipc.errors import EngineError
from tests.agent.wire import (
    ASKED,
    KEY,
    Desk,
    Model,
    Reply,
    answer,
    ask,
    error,
    post,
    raises,
    raw,
)


def echoes(handler: Any) -> None:
    """Answer with the key that was sent, wherever an answer has room for it."""
    key = handler.headers["Authorization"].removeprefix("Bearer ")
    body = answer(f"your key is {key}{key}", {"prompt_tokens": 1, "completion_tokens": 1, key: key})
    raw(200, json.dumps({**body, "id": key, key: [{"deep": key}]}).encode())(handler)


def echoes_in_errors(status: int, padding: int) -> Reply:
    """Return an error that holds the key, at the place where long words are cut."""

    def reply(handler: Any) -> None:
        key = handler.headers["Authorization"].removeprefix("Bearer ")
        handler.send_response(status, f"Bad {key}")
        handler.end_headers()
        handler.wfile.write(json.dumps({"error": {"message": "x" * padding + key}}).encode())

    return reply


@given(key=st.text("abcXYZ0189._~+/=:-", min_size=8, max_size=60))
@hypothesis_settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_the_key_is_in_no_answer_and_no_transcript_whatever_the_server_says(key: str, desk: Desk, model: Model) -> None:
    for reply in (echoes, echoes_in_errors(400, 296), echoes_in_errors(401, 0), echoes_in_errors(500, 10)):
        desk.transcript.unlink(missing_ok=True)
        model.replies = [reply]
        model.seen.clear()
        desk.jobs.does = lambda _: {"ok": True, "observation": "." * 1330 + key, key: key}
        with desk.open(key=key) as broker:
            told = [ask(broker), post(broker, "/jobs", {"verb": "graph", key: key}), ask(broker)]
            seen = json.dumps(told) + desk.transcript.read_text(encoding="utf-8") + broker.ended
        assert model.seen[0].headers["Authorization"] == f"Bearer {key}"
        assert STARS in seen
        # Also in JSON inside of a string of JSON, and not by its beginning.
        for part in (key, key.replace("/", "\\/"), "x" + key[:4]):
            assert part not in seen or part in str(ASKED)


def test_the_key_is_shown_to_nobody_who_prints_the_session(desk: Desk) -> None:
    with desk.open(key=KEY) as broker:
        assert KEY not in repr(vars(broker)) + repr(vars(broker._model))


def test_an_error_that_ended_the_session_is_scrubbed_for_the_host_too(desk: Desk, model: Model) -> None:
    model.replies = [error(401, f"{KEY} is wrong")]
    with desk.open(key=KEY) as broker:
        assert ask(broker)[0] == 502
        assert f"{STARS} is wrong" in broker.ended


def test_an_error_of_the_host_is_scrubbed_for_the_agent_and_the_report(desk: Desk) -> None:
    desk.jobs.does = raises(EngineError(f"sent {KEY}"))

    def session() -> None:
        with desk.open(key=KEY) as broker:
            assert post(broker, "/jobs", {"verb": "graph"})[1]["error"]["message"] == f"sent {STARS}"
            assert broker.ended == f"sent {STARS}"

    with pytest.raises(EngineError):
        session()
    assert KEY not in desk.transcript.read_text()
