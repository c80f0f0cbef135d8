"""Sessions of the agent in its real environment, against a broker whose answers are written down beforehand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from runtimes.agent.actions import Mode, of_mode
from runtimes.agent.prompt import MOST_CHARACTERS
from runtimes.contract import Kind, Status
from tests.runtimes.agent_jobs import AgentJobs, Answer, Broker, Raw, Refusal, Script, act, found
from tests.runtimes.openvino_jobs import Ended

FAILURE = "convert failed: Einsum is not supported"
UNSUPPORTED = {"ok": False, "observation": FAILURE}
GIVE_UP = act("give_up", summary="nothing is left")
TOOL_CALL = {
    "choices": [
        {"message": {"tool_calls": [{"function": {"name": "give_up", "arguments": '{"summary": "by a tool"}'}}]}}
    ]
}


@pytest.fixture
def jobs(tmp_path: Path, environment_python: Callable[[str], Path]) -> AgentJobs:
    return AgentJobs(tmp_path, environment_python("agent"))


def facts(ended: Ended) -> Any:
    assert ended.result, (ended.result.failure, ended.log)
    return ended.result.facts


def trace(ended: Ended) -> list[tuple[str, bool]]:
    return [(entry["action"], entry["ok"]) for entry in facts(ended)["trace"]]


def test_a_model_that_reads_the_skill_mends_converts_compares_and_submits(jobs: AgentJobs) -> None:
    broker = Broker(
        chat=[
            act("read_skill", section="toy#failures"),
            found(r"Einsum is not supported \| the rewrite `(\w+)`", lambda name: act("rewrite", name=name)),
            act("convert"),
            act("compare"),
            act("submit", summary="Einsum is gone"),
        ],
        jobs={"failure": [FAILURE], "compare": ["agrees"]},
    )
    ended = jobs.session(broker)
    told = facts(ended)
    assert (told["ended"], told["claim"], told["summary"]) == ("submitted", "agrees", "Einsum is gone")
    assert [name for name, _ in trace(ended)] == ["read_skill", "rewrite", "convert", "compare", "submit"]
    assert told["steps"] == len(broker.asked) == 5
    assert broker.done[1] == {"verb": "rewrite", "name": "einsum_to_matmul"}
    assert broker.done[-1] == {"verb": "submit", "claim": "agrees", "summary": "Einsum is gone"}
    assert "rewrite(name=einsum_to_matmul) ok: rewrite is done" in told["learned"]
    assert ended.result.versions["smolagents"].startswith("1.26.")
    assert FAILURE in broker.prompts[0]
    assert "2. rewrite(name=einsum_to_matmul) ok" in ended.log


def test_a_model_may_give_up(jobs: AgentJobs) -> None:
    broker = Broker(chat=[GIVE_UP])
    told = facts(jobs.session(broker))
    assert (told["ended"], told["claim"], told["summary"]) == ("gave_up", "gave_up", "nothing is left")
    assert broker.done[-1] == {"verb": "submit", "claim": "gave_up", "summary": "nothing is left"}


def test_a_submission_that_the_host_refuses_does_not_end_it(jobs: AgentJobs) -> None:
    refused = {"ok": False, "observation": "nothing was compared"}
    broker = Broker(chat=[act("submit", summary="a"), act("compare"), GIVE_UP], jobs={"submit": [refused, "frozen"]})
    ended = jobs.session(broker)
    assert trace(ended) == [("submit", False), ("compare", True), ("give_up", True)]
    assert facts(ended)["claim"] == "gave_up"


def test_the_steps_end_it_without_one_more_question_to_the_model(jobs: AgentJobs) -> None:
    broker = Broker(chat=[act("graph"), act("rewrites"), act("failure")])
    told = facts(jobs.session(broker, steps=3))
    assert (told["ended"], told["claim"], told["steps"]) == ("steps", "", 3)
    assert len(broker.asked) == 3


def test_a_submission_at_the_last_step_is_one(jobs: AgentJobs) -> None:
    assert facts(jobs.session(Broker(chat=[act("submit", summary="a")]), steps=1))["ended"] == "submitted"


def test_a_success_told_in_words_at_the_last_step_is_none(jobs: AgentJobs) -> None:
    told = facts(jobs.session(Broker(chat=['{"action": "final_answer", "answer": "it agrees"}']), steps=1))
    assert (told["ended"], told["claim"]) == ("steps", "")


def test_the_seconds_end_it_while_the_model_thinks(jobs: AgentJobs) -> None:
    broker = Broker(chat=[act("graph")], delay_seconds=1.5)
    told = facts(jobs.session(broker, seconds=1))
    assert (told["ended"], told["steps"]) == ("seconds", 0)


def test_an_action_that_failed_three_times_ends_it(jobs: AgentJobs) -> None:
    broker = Broker(chat=[act("convert"), act("graph")] * 3, jobs={"convert": [UNSUPPORTED]})
    told = facts(jobs.session(broker))
    assert told["ended"] == "repeated"
    assert broker.verbs.count("convert") == 3
    assert "convert() failed 3 times" in told["summary"]
    assert told["learned"] == [f"convert() FAILED: {FAILURE}"]


def test_an_action_may_fail_again_after_the_candidate_changed(jobs: AgentJobs) -> None:
    edits = [act("rewrite", name="a"), act("rewrite", name="b"), act("undo")]
    chat = [act("convert"), act("convert"), *edits, act("convert"), act("convert"), GIVE_UP]
    assert facts(jobs.session(Broker(chat=chat, jobs={"convert": [UNSUPPORTED]})))["ended"] == "gave_up"


@pytest.mark.parametrize("where", ["chat", "jobs"])
def test_a_spent_budget_ends_it(jobs: AgentJobs, where: str) -> None:
    spent = Refusal(403, "budget", "40 of 40 calls are used up")
    chat: list[Answer] = [act("graph"), spent] if where == "chat" else [act("graph")]
    told = facts(jobs.session(Broker(chat=chat, jobs={"graph": [spent]} if where == "jobs" else {})))
    assert (told["ended"], told["summary"]) == ("budget", "40 of 40 calls are used up")
    assert told["steps"] == 1


@pytest.mark.parametrize("where", ["chat", "jobs"])
def test_a_model_whose_server_is_gone_ends_it(jobs: AgentJobs, where: str) -> None:
    gone = Refusal(502, "upstream", "no answer after 4 tries")
    chat = [gone] if where == "chat" else [act("graph")]
    told = facts(jobs.session(Broker(chat=chat, jobs={"graph": [gone]} if where == "jobs" else {})))
    assert (told["ended"], told["summary"]) == ("model", "no answer after 4 tries")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Raw(b""), "RemoteDisconnected"),
        (Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"), "ends 99 bytes too early"),
        (Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{"), "no JSON that can be used"),
        (Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]"), "no JSON object"),
        (Raw(b"nonsense\r\n\r\n"), "BadStatusLine"),
        (Refusal(502, "host", "the disk is full"), "the disk is full"),
    ],
    ids=["at once", "half", "no JSON", "no object", "no HTTP", "the host"],
)
@pytest.mark.parametrize("where", ["chat", "jobs"])
def test_a_broker_that_dies_fails_the_job_and_says_how(
    jobs: AgentJobs, where: str, answer: Raw | Refusal, words: str
) -> None:
    chat = [act("graph"), answer] if where == "chat" else [act("graph")]
    ended = jobs.session(Broker(chat=chat, jobs={"graph": [answer]} if where == "jobs" else {}))
    assert ended.result.status is Status.FAILED
    assert ended.failure.kind is Kind.PREREQUISITE
    assert words in ended.failure.message


def test_a_socket_that_is_not_there_fails_the_job(jobs: AgentJobs) -> None:
    spoil = "import os\nos.environ['AIPC_BROKER'] += 'x'\n"
    failure = jobs.session(Broker(chat=[GIVE_UP]), spoil=spoil).failure
    assert failure.kind is Kind.PREREQUISITE
    assert "FileNotFoundError" in failure.message


@pytest.mark.parametrize("answer", ["I would convert it.", "", '{"thought": "I will', "{}", '{"action": 3}', "[1, 2]"])
def test_a_model_that_never_decides_ends_it(jobs: AgentJobs, answer: str) -> None:
    told = facts(jobs.session(Broker(chat=[answer])))
    assert (told["ended"], told["steps"]) == ("model", 3)
    assert "3 answers in a row hold no decision" in told["summary"]


def test_a_decision_that_cannot_be_carried_out_is_explained_to_the_model(jobs: AgentJobs) -> None:
    chat = ["no", act("converts"), act("rewrite", op="Einsum"), "no", "no", act("graph", op=""), GIVE_UP]
    broker = Broker(chat=chat)
    ended = jobs.session(broker)
    assert [ok for _, ok in trace(ended)] == [False] * 5 + [True, True]
    assert "the answer holds no JSON object" in broker.prompts[1]
    assert "there is no action 'converts'; did you mean 'convert'?" in broker.prompts[2]
    assert "rewrite needs the string 'name'; you gave op" in broker.prompts[3]
    assert {"verb": "graph"} in broker.done


def test_a_section_that_is_not_there_is_explained_to_the_model(jobs: AgentJobs) -> None:
    broker = Broker(chat=[act("read_skill", section="toy#failure"), GIVE_UP])
    ended = jobs.session(broker)
    assert trace(ended)[0] == ("read_skill", False)
    assert "there is no section 'toy#failure'; did you mean 'toy#failures'?" in broker.prompts[1]


def test_reading_the_same_page_again_is_told_to_be_of_no_use(jobs: AgentJobs) -> None:
    read = act("read_skill", section="toy#failures")
    broker = Broker(chat=[read, read, GIVE_UP])
    assert trace(jobs.session(broker)) == [("read_skill", True), ("read_skill", False), ("give_up", True)]
    assert "toy#failures is the page that you see" in broker.prompts[2]


def test_arguments_that_the_host_refuses_are_explained_to_the_model(jobs: AgentJobs) -> None:
    unknown = Refusal(400, "request", "rewrite: there is no 'einsum'; did you mean 'einsum_to_matmul'?")
    broker = Broker(chat=[act("rewrite", name="einsum"), GIVE_UP], jobs={"rewrite": [unknown]})
    assert trace(jobs.session(broker)) == [("rewrite", False), ("give_up", True)]
    assert unknown.message in broker.prompts[1]


def no_schema(then: str) -> Script:
    refusal = Refusal(400, "request", "response_format is not supported")
    return lambda body: refusal if "response_format" in body else then


def test_a_server_without_schemas_is_asked_again_without_one_and_then_never_with_one(jobs: AgentJobs) -> None:
    chat = [no_schema("unused"), no_schema(f"I think:\n```json\n{act('graph')}\n```"), no_schema(GIVE_UP)]
    broker = Broker(chat=chat)
    assert trace(jobs.session(broker)) == [("graph", True), ("give_up", True)]
    assert ["response_format" in body for body in broker.asked] == [True, False, False]


def test_a_server_that_refuses_that_too_ends_it(jobs: AgentJobs) -> None:
    broker = Broker(chat=[Refusal(400, "request", "no")])
    told = facts(jobs.session(broker))
    assert (told["ended"], len(broker.asked)) == ("model", 2)


def test_a_model_that_answers_with_a_tool_call_is_understood(jobs: AgentJobs) -> None:
    assert facts(jobs.session(Broker(chat=[TOOL_CALL])))["summary"] == "by a tool"


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("skills", [True, False])
def test_the_schema_that_is_sent_names_exactly_the_actions_of_the_mode(
    jobs: AgentJobs, mode: Mode, skills: bool
) -> None:
    broker = Broker(chat=[act("read_skill", section="toy") if not skills else GIVE_UP, GIVE_UP])
    ended = jobs.session(broker, mode=mode, skills=skills)
    sent = broker.asked[0]["response_format"]["json_schema"]["schema"]
    Draft202012Validator.check_schema(sent)
    names = [form["properties"]["action"]["const"] for form in sent["anyOf"]]
    assert names == list(of_mode(mode, skills=skills))
    assert ("export" in names, "read_skill" in names) == (mode is Mode.DRIVE, skills)
    assert ("toy#" in broker.prompts[0]) == skills
    assert trace(ended)[0][1] == skills


def test_no_prompt_is_longer_than_agreed_whatever_the_host_tells(jobs: AgentJobs) -> None:
    long = "Einsum " * 400
    chat = [act("read_skill", section="toy#failures"), act("graph", node="n" * 5000), act("convert"), act("compare")]
    broker = Broker(chat=[*chat, GIVE_UP], jobs={verb: [long] for verb in ("failure", "graph", "convert", "compare")})
    facts(jobs.session(broker))
    assert max(map(len, broker.prompts)) <= MOST_CHARACTERS


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        ("import os\ndel os.environ['AIPC_BROKER']\n", "AIPC_BROKER: is not set"),
        ("import os\ndel os.environ['AIPC_SKILLS']\n", "AIPC_SKILLS: is not set"),
        ("import os\nos.environ['AIPC_SKILLS'] += 'x'\n", "holds no toy/SKILL.md"),
    ],
)
def test_a_session_that_the_host_did_not_furnish_is_misused(jobs: AgentJobs, spoil: str, words: str) -> None:
    ended = jobs.session(Broker(chat=[GIVE_UP]), spoil=spoil)
    assert ended.result.status is Status.MISUSED
    assert words in ended.failure.message


def test_a_session_without_a_step_is_misused(jobs: AgentJobs) -> None:
    assert "steps: 0 is not above 0" in jobs.session(Broker(chat=[GIVE_UP]), steps=0).failure.message


def test_a_bug_of_ours_is_no_end_of_the_session(jobs: AgentJobs) -> None:
    spoil = "from runtimes.agent import model\nmodel.text_of = lambda answer: answer['gone']\n"
    ended = jobs.session(Broker(chat=[GIVE_UP]), spoil=spoil)
    assert ended.result.status is Status.BROKEN
    spoil = "from runtimes.agent import tools\ntools.CLAIMS = None\n"
    assert jobs.session(Broker(chat=[GIVE_UP]), spoil=spoil).result.status is Status.BROKEN
