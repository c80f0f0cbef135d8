"""A file as a model: in its order, as it was, and never beyond what it holds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from aipc.agent.exchange import ErrorAnswer
from aipc.agent.replay import Replay
from aipc.errors import UsageError
from tests.agent.wire import KEY, Desk, Model, ask, error, good, post, said

SKILL = "## Einsum\nThe rewrite `einsum_to_matmul` replaces it.\n"
SHA256 = "ab" * 32
HEAD = {
    "kind": "session",
    "model": "tiny",
    "model_sha256": SHA256,
    "synthetic": False,
    "base_url": "http://127.0.0.1:1/v1",
    "mode": "repair",
    "cell": "tiny/openvino/fp16@cpu",
    "schema": 1,
}


def written(folder: Path, answers: Sequence[Mapping[str, Any]], *, lines: bool = False, **more: Any) -> Replay:
    """Return a replay of answers that a person wrote."""
    head = {"synthetic": True, **more}
    path = folder / "answers.json"
    if lines:
        path.write_text("".join(f"{json.dumps(line)}\n" for line in (head, *answers)))
    else:
        path.write_text(json.dumps({**head, "answers": answers}, indent=1))
    return Replay(path)


def heard(replay: Replay, *texts: str) -> str:
    """Return what the replay answers to messages of the user."""
    request = {"messages": [{"role": "user", "content": text} for text in texts]}
    return said(replay.answer(request, lambda: 1.0))


@pytest.mark.parametrize("lines", [False, True])
def test_written_answers_come_in_their_order_and_run_out(lines: bool, desk: Desk) -> None:
    replay = written(desk.folder, [{"content": "one"}, {"content": {"action": "graph"}}], lines=lines)
    assert (replay.identity.synthetic, replay.identity.model, replay.identity.base_url) == (True, "synthetic", "")
    with desk.open(replay=replay) as broker:
        assert said(ask(broker)[1]) == "one"
        assert json.loads(said(ask(broker)[1])) == {"action": "graph"}
        status, body = ask(broker)
        assert (status, body["error"]["type"]) == (502, "replay")
        assert "answers.json: answer 3 is asked for, and it has 2" in body["error"]["message"]
        assert post(broker, "/jobs", {"verb": "graph"}) == (status, body)
    assert desk.lines()[0]["synthetic"] is True
    assert [line["estimated"] for line in desk.lines()[1:3]] == [True, True]


def test_an_answer_may_expect_what_it_answers(tmp_path: Path) -> None:
    answers = [{"expect": "^failure: .*Einsum", "content": "one"}, {"expect": "agrees", "content": "two"}]
    replay = written(tmp_path, answers, model="scripted")
    assert replay.identity.model == "scripted"
    assert heard(replay, "Begin.", "state\nfailure: no Einsum") == "one"
    with pytest.raises(ErrorAnswer, match="answer 2 expects 'agrees', and the last message of the user is 'it is bad'"):
        heard(replay, "agrees", "it is bad")


def test_a_written_answer_takes_a_name_from_the_prompt(tmp_path: Path) -> None:
    by_name = "{{skill:rewrite `(\\w{3,})` replaces}}"
    answers: list[dict[str, Any]] = [
        {"content": "{{skill:(Einsum)\\n.{3}}}"},
        {"content": {"action": "rewrite", "name": by_name, "more": [by_name, 1]}},
        {"content": f"I take {by_name}, {{{{skill:(E[a-z]{{5}})}}}}"},
    ]
    replay = written(tmp_path, answers)
    assert heard(replay, SKILL) == "Einsum"
    decision = json.loads(heard(replay, SKILL, "What now?"))
    assert decision == {"action": "rewrite", "name": "einsum_to_matmul", "more": ["einsum_to_matmul", 1]}
    assert heard(replay, SKILL, "What now?") == "I take einsum_to_matmul, Einsum"


def test_a_name_that_the_prompt_does_not_hold_ends_the_session(desk: Desk) -> None:
    replay = written(desk.folder, [{"content": "{{skill:rewrite `(\\w+)`}}"}, {"content": "never"}])
    with desk.open(replay=replay) as broker:
        status, body = ask(broker)
        assert (status, body["error"]["type"]) == (502, "replay")
        assert "answer 1 looks for 'rewrite `(\\\\w+)`', and the prompt does not hold it" in body["error"]["message"]
        assert ask(broker) == (status, body)


@given(name=st.text(min_size=1).filter(lambda text: "\n" not in text and "\r" not in text and text == text.strip()))
@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_whatever_is_found_is_a_string_of_the_decision(name: str, tmp_path: Path) -> None:
    replay = written(tmp_path, [{"content": {"name": "{{skill:<<(.*)>>}}"}}])
    assert json.loads(heard(replay, f"<<{name}>>")) == {"name": name}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty; give a transcript"),
        ("\n \n", "empty; give a transcript"),
        ("Hello", "line 1: not JSON"),
        ('{"synthetic": true, "answers": [', "line 1: not JSON"),
        ('{"answers": []}', "'synthetic' is missing"),
        ('{"synthetic": false, "answers": []}', "answers that a person wrote are synthetic"),
        ('{"synthetic": true, "answers": [{}]}', "answers.answers[0]: the key 'content' is missing"),
        ('{"synthetic": true, "answers": [{"content": 1}]}', "answers.answers[0].content: 1 is not"),
        ('{"synthetic": true, "answers": [{"content": "x", "expects": "y"}]}', "did you mean 'expect'?"),
        ('{"synthetic": true, "answers": [{"content": "x", "expect": "("}]}', "expect: '(' is no regular expression"),
        ('{"synthetic": true, "answers": [{"content": "{{skill:[}}"}]}', "content: '[' is no regular expression"),
        ('{"synthetic": true, "answers": [{"content": {"a": ["{{skill:x}}"]}}]}', "'{{skill:x}}' has no group"),
        ('{"synthetic": true}\n{"content": "x"}\n{"content"', "line 3: not JSON"),
    ],
)
def test_a_file_that_is_none_is_refused_with_its_place(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "answers.json"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        Replay(path)
    assert "answers.json: " in str(caught.value)
    assert words in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="gone.jsonl: cannot be read: No such file"):
        Replay(tmp_path / "gone.jsonl")


def recorded(folder: Path, head: Mapping[str, Any], *calls: Mapping[str, Any]) -> Path:
    path = folder / "recorded.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in (head, *calls)))
    return path


def test_nobody_replays_answers_of_an_unknown_model(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="recorded from a model without model_sha256"):
        Replay(recorded(tmp_path, {**HEAD, "model_sha256": ""}))
    assert Replay(recorded(tmp_path, {**HEAD, "model_sha256": "", "synthetic": True})).identity.synthetic
    known = Replay(recorded(tmp_path, HEAD)).identity
    assert (known.model, known.model_sha256, known.synthetic, known.base_url) == ("tiny", SHA256, False, "")


@pytest.mark.parametrize(
    ("head", "call", "words"),
    [
        ({**HEAD, "schema": 2}, {}, "line 1: schema 2 is not 1"),
        ({**HEAD, "more": 2}, {}, "line 1: unknown key 'more'"),
        (HEAD, {"kind": "talk"}, "line 2: kind 'talk' is neither 'chat' nor 'job'"),
        (HEAD, {"kind": "chat"}, "line 2: has both a response and an error, or neither"),
        (HEAD, {"kind": "chat", "response": {"choices": []}}, "line 2: response: an answer without choices"),
        (HEAD, {"kind": "chat", "error": {"status": "bad"}}, "line 2.error"),
    ],
)
def test_a_transcript_that_was_changed_is_refused(
    head: Mapping[str, Any], call: Mapping[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError) as caught:
        Replay(recorded(tmp_path, head, call))
    assert words in str(caught.value)


def session(desk: Desk, replay: Replay | None) -> tuple[list[tuple[int, Any]], list[dict[str, Any]]]:
    """Return what an agent is told in a session that works, fails and ends, and its transcript without times."""
    with desk.open(replay=replay, key=KEY, model_sha256=SHA256, calls=5) as broker:
        told = [ask(broker), ask(broker, stream=True), ask(broker, response_format={"type": "json_schema"})]
        told += [post(broker, "/jobs", {"verb": "graph"}), ask(broker), ask(broker), ask(broker)]
    lines = [{name: line[name] for name in line if name not in {"at", "seconds", "base_url"}} for line in desk.lines()]
    return told, lines


@pytest.mark.parametrize("last", [error(401, "expired"), good("the last")])
def test_a_session_that_was_recorded_is_told_the_same_again(last: Any, desk: Desk, model: Model) -> None:
    model.replies = [
        good("one", {"prompt_tokens": 3, "completion_tokens": 1}),
        error(400, "no json_schema"),
        error(500),
        good(f"two {KEY}"),
        last,
    ]
    first = session(desk, None)
    assert {status for status, _ in first[0]} >= {200, 400}
    before = len(model.seen)
    kept = desk.transcript.rename(desk.folder / "first.jsonl")
    again = session(desk, Replay(kept))
    assert again == first
    assert len(model.seen) == before
    # The transcript of a replay is one of the same model, and can be replayed itself.
    kept = desk.transcript.rename(desk.folder / "second.jsonl")
    assert session(desk, Replay(kept)) == first


def test_a_template_in_a_recorded_answer_is_only_text(tmp_path: Path) -> None:
    call = {"kind": "chat", "response": {"choices": [{"message": {"content": "{{skill:(x)}}"}}]}}
    assert heard(Replay(recorded(tmp_path, HEAD, call)), "x") == "{{skill:(x)}}"


def test_a_replay_keeps_the_bounds_of_its_session(desk: Desk) -> None:
    replay = written(desk.folder, [{"content": "one"}, {"content": "two"}])
    with desk.open(replay=replay, calls=1) as broker:
        assert ask(broker)[0] == 200
        assert ask(broker)[0] == 403
