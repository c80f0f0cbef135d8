"""A hostile process in the agent's place: whatever it tries, its host is as it was, and its claim is not believed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cheats import attacks
from tests.cheats.attacks import WORKED
from tests.cheats.scene import KEY, Scene
from tests.command import Done

HERE = Path(__file__).parent
GUARDS_OFF = {
    "venv": """
from aipc.engines import cage
cage.why_not = lambda *_: "a test has switched it off"
""",
    "docker": """
import os
import docker as sdk
from aipc.engines import cage, container, docker, hardening
mounts, variables, config = hardening.mounts, cage.variables, sdk.APIClient.create_host_config
key = {"AIPC_AGENT_KEY": os.environ["AIPC_AGENT_KEY"]}
more = [hardening._bind(os.getcwd(), os.getcwd(), read_only=False), hardening._bind(STORE, STORE, read_only=False)]
hardening.mounts = lambda *given: [*({**each, "ReadOnly": False} for each in mounts(*given)), *more]
cage.variables = lambda *given: {**variables(*given), **key}
sdk.APIClient.create_host_config = lambda self, **given: config(
    self, **{**given, "network_mode": "host", "read_only": False}
)
container.UNPRIVILEGED = docker.UNPRIVILEGED = os.getuid()
""",
}
"""What takes the cage away: each engine's own."""
WIDE_SOCKET = """
from aipc.agent import server, workbench
server.LARGEST_REQUEST_BYTES = 1 << 30
whole = workbench.Workbench.__call__
def call(self, request):
    known = {name: value for name, value in request.items() if name not in ("artifact", "more", "verdict")}
    return whole(self, {**known, "verb": {"judge": "failure"}.get(request["verb"], request["verb"])})
workbench.Workbench.__call__ = call
"""
"""What takes any verb, any argument and any length for good."""


@dataclass(frozen=True)
class Loose:
    """A deploy with the hostile agent: how it ended, what the agent says of each attack, and what is changed by it."""

    done: Done
    found: Mapping[str, str]
    changed: Sequence[str]


def let_loose(scene: Scene, engine: str, off: str = "") -> Loose:
    """Deploy with the hostile agent in the agent's place."""
    agent = scene.checkout / "runtimes" / "agent"
    shutil.copyfile(HERE / "hostile.py", agent / "adapter.py")
    shutil.copyfile(HERE / "attacks.py", agent / "attacks.py")
    with scene.aims(engine) as aims:
        (agent / "aims.json").write_text(json.dumps(aims))
        before = scene.hashes(engine)
        done = scene.deploy(*scene.replayed(), "--engine", engine, off=off)
    assert (scene.folder / "runs").exists(), done.out + done.error
    after = scene.hashes(engine)
    changed = sorted(path for path, held in before.items() if after.get(path) != held)
    (said,) = [
        line["request"]["summary"]
        for line in scene.jobs()
        if line["request"]["verb"] == "submit" and "artifact" not in line["request"]
    ]
    return Loose(done, json.loads(said), changed)


@pytest.mark.timeout(600)
def test_a_hostile_agent_reaches_nothing_and_its_claim_of_success_is_not_believed(scene: Scene, engine: str) -> None:
    loose = let_loose(scene, engine)
    done, found = loose.done, loose.found
    assert loose.changed == []
    assert scene.seen == []
    for name in (*attacks.ATTACKS, "remove_socket"):
        assert found[name].endswith(("Error", "Unreachable")), (name, found[name])
    assert found["large_body"].startswith("413: ")
    assert found["unknown_verb"].startswith("400: verb: there is no 'judge'")
    assert found["artefact"].startswith("400: submit: takes no 'artifact'")
    assert found["constant"].startswith("not done: patch_graph is not taken: "), found["constant"]
    assert scene.jobs()[-1]["error"]["status"] == 409
    assert done.code == 1, done.out + done.error
    report = scene.aipc.report()
    assert report["verdict"] == "refused"
    work = scene.work()
    assert (work["claim"], work["verdict"], work["taken"]) == ("agrees", "refused", False)
    assert work["ended"].startswith("the agent's job says it is done, but "), work["ended"]
    assert "99.0" not in json.dumps(report)
    assert not [
        path for path in (scene.folder / "runs").rglob("*") if path.is_file() and KEY in path.read_text("latin-1")
    ]


@pytest.mark.timeout(600)
def test_without_the_cage_the_same_agent_has_it_all_its_own_way(scene: Scene, engine: str) -> None:
    """The control: it changes the judge, which then believes a constant."""
    loose = let_loose(scene, engine, off=f"STORE = {str(scene.store)!r}{GUARDS_OFF[engine]}")
    done, found = loose.done, loose.found
    assert {name: found[name] for name in attacks.ATTACKS} == dict.fromkeys(attacks.ATTACKS, WORKED)
    for path in (scene.sentinel, scene.kept, scene.checkout / "runtimes" / "reference" / "judge.py"):
        assert str(path) in loose.changed
    assert set(scene.seen) == {"network", "abstract socket"}
    assert found["remove_socket"] == WORKED
    assert found["constant"].startswith("done: "), found["constant"]
    assert done.code == 0, done.out + done.error
    assert scene.work()["taken"] is True
    assert ("without a cage" in done.out) is (engine == "venv")
    assert ("Not caged: file system" in done.out) is (engine == "venv")


def test_a_socket_that_took_everything_would_take_this_too(scene: Scene) -> None:
    """The control of the broker's own guards."""
    loose = let_loose(scene, "venv", off=WIDE_SOCKET)
    found = loose.found
    assert loose.done.code == 1
    assert found["large_body"].startswith("done: ")
    assert found["unknown_verb"].startswith("done: ")
    assert found["artefact"].startswith("done: ")


STUBBORN = """
def agent(work):
    while True:
        pass
"""
SHORT = """
from aipc import jobs
jobs.GRACE_SECONDS = 1.0
"""


def test_an_agent_whose_process_loops_for_ever_is_killed_and_the_result_of_the_rules_is_kept(scene: Scene) -> None:
    (scene.checkout / "runtimes" / "agent" / "adapter.py").write_text(STUBBORN)
    with (scene.checkout / "matrix.toml").open("a") as file:
        file.write("\n[agent]\nseconds = 3\n")
    done = scene.deploy(*scene.replayed(), "--engine", "venv", off=SHORT)
    assert (done.code, done.error) == (1, ""), done.out + done.error
    assert scene.aipc.report()["verdict"] == "refused"
    work = scene.work()
    assert work["ended"].startswith("the job did not end within 4 s and was killed"), work["ended"]
    assert (work["claim"], work["taken"]) == ("", False)
