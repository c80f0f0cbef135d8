"""A cell with an agent: replayed answers, the real broker, smolagents in its cage, and the host's own jobs.

The rules are taken out, and the answers hold no name of a rewrite: it is what they read in SKILL.md at run time.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.cells.test_repairs import graph, save
from tests.command import ROOT, Aipc, Done

READ = {"thought": "read", "action": "read_skill", "section": "ortqnn#what-to-rewrite"}
REPAIR = {
    "thought": "the table names it",
    "action": "rewrite",
    "name": "{{skill:\\| `Einsum` \\|[^|]*\\| `(\\w+)` \\|}}",
}
EXPORT, CONVERT, COMPARE = ({"thought": "next", "action": name} for name in ("export", "convert", "compare"))
SUBMIT = {"thought": "it agrees", "action": "submit", "summary": "Einsum is rewritten"}
GIVE_UP = {"thought": "no idea", "action": "give_up", "summary": "nothing helps"}
RENAME = {
    "thought": "other names",
    "action": "patch_graph",
    "code": "def patch(model):\n    for node in model.graph:\n        node.name = 'mine_' + node.op_type + node.name\n",
}
SPOIL = {
    "thought": "another activation",
    "action": "patch_graph",
    "code": "def patch(model):\n    for node in model.graph:\n"
    "        node.op_type = {'Tanh': 'Sin'}.get(node.op_type, node.op_type)\n",
}


class Workshop:
    """A checkout without rules for ortqnn, and an ONNX file with an Einsum."""

    def __init__(self, folder: Path, checkout: Path) -> None:
        shutil.copytree(ROOT / "skills", checkout / "skills")
        (checkout / "runtimes" / "ortqnn" / "repairs.toml").write_text("")
        self.skill = checkout / "skills" / "ortqnn" / "SKILL.md"
        self.folder = folder
        self.aipc = Aipc(folder, {"AIPC_HOME": str(checkout)})
        self.net = save(folder / "net.onnx", graph())

    def section(self) -> str:
        """The section of the skill with the table that names the rewrite, as the agent calls it."""
        before = self.skill.read_text().split("| `Einsum` |")[0]
        heading = re.findall(r"^#+ (.+)$", before, re.MULTILINE)[-1]
        slug = re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-")
        return f"ortqnn#{slug}"

    def deploy(self, answers: list[dict[str, Any]], *more: str, engine: str = "venv") -> Done:
        written = [{**each, "section": self.section()} if each is READ else each for each in answers]
        replay = self.folder / "replay.json"
        replay.write_text(json.dumps({"synthetic": True, "answers": [{"content": each} for each in written]}))
        options = ("--runtime", "ortqnn", "--engine", engine, "--replay", str(replay))
        return self.aipc.deploy(str(self.net), *options, *more)

    def transcript(self) -> list[dict[str, Any]]:
        (path,) = (self.aipc.runs / "transcripts").iterdir()
        return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def workshop(tmp_path: Path, checkout: Path, reference_python: Path) -> Workshop:
    assert reference_python.exists()
    return Workshop(tmp_path, checkout)


def test_an_agent_repairs_what_the_rules_do_not_by_what_it_reads_in_the_skill(workshop: Workshop) -> None:
    done = workshop.deploy([READ, REPAIR, CONVERT, COMPARE, SUBMIT], "--agent", "repair")
    assert done.code == 0, done.out + done.error
    asked = [line["request"]["verb"] for line in workshop.transcript() if line["kind"] == "job"]
    assert asked == ["failure", "rewrite", "convert", "compare", "submit"]
    assert "einsum_to_matmul before the first conversion, as asked for: 1 place changed" in done.out


def test_without_that_line_of_the_skill_the_agent_does_not_find_the_repair(workshop: Workshop) -> None:
    lines = workshop.skill.read_text().splitlines(keepends=True)
    section = workshop.section()
    workshop.skill.write_text("".join(line for line in lines if not line.startswith("| `Einsum` |")))
    workshop.section = lambda: section  # type: ignore[method-assign]
    done = workshop.deploy([READ, REPAIR, CONVERT, COMPARE, SUBMIT], "--agent", "repair")
    assert done.code == 1
    assert "refused" in done.out


def test_an_agent_conducts_a_cell_from_the_export_on(workshop: Workshop) -> None:
    done = workshop.deploy([EXPORT, CONVERT, READ, REPAIR, CONVERT, COMPARE, SUBMIT], "--agent", "drive")
    assert done.code == 0, done.out + done.error


@pytest.mark.timeout(600)
@pytest.mark.parametrize("engine", ["venv", "docker"])
def test_code_of_its_own_changes_the_graph_and_the_report_shows_it(
    workshop: Workshop, engine: str, request: pytest.FixtureRequest
) -> None:
    if engine == "docker":
        request.getfixturevalue("docker_daemon")
    done = workshop.deploy([READ, REPAIR, RENAME, COMPARE, SUBMIT], "--agent", "repair", engine=engine)
    assert done.code == 0, done.out + done.error
    work = workshop.aipc.report()["agent"]
    assert (work["ended"], work["claim"], work["verdict"], work["taken"]) == ("submitted", "agrees", "agrees", True)
    assert [edit["rewrite"] for edit in work["edits"]] == ["einsum_to_matmul", "patch_graph"]
    assert work["edits"][1]["code"] == RENAME["code"]


def test_code_that_changes_the_answers_is_not_taken(workshop: Workshop) -> None:
    done = workshop.deploy([READ, REPAIR, SPOIL, COMPARE, SUBMIT], "--agent", "repair")
    assert done.code == 0, done.out + done.error
    assert [edit["rewrite"] for edit in workshop.aipc.report()["agent"]["edits"]] == ["einsum_to_matmul"]
    (spoilt,) = [line for line in workshop.transcript() if line.get("request", {}).get("verb") == "patch_graph"]
    assert spoilt["response"]["ok"] is False
    assert "does not hold" in spoilt["response"]["observation"]


def test_a_claim_of_success_is_not_believed(workshop: Workshop) -> None:
    """It submits at once: what it submits is built and judged, and the verdict of the rules stays."""
    done = workshop.deploy([SUBMIT], "--agent", "repair")
    assert done.code == 1
    assert "Einsum" in done.out
    assert "agrees" not in done.out.replace("disagrees", "")


def test_an_agent_that_gives_up_leaves_the_result_of_the_rules(workshop: Workshop) -> None:
    done = workshop.deploy([GIVE_UP], "--agent", "repair")
    assert done.code == 1
    assert "unsupported_op" in done.out, done.out
    assert "operator Einsum" in done.out


def test_the_judges_inputs_are_drawn_after_the_candidate_is_frozen(workshop: Workshop) -> None:
    """The inputs that the agent compared on come of the matrix's seed, those of the verdict of another."""
    done = workshop.deploy([READ, REPAIR, COMPARE, SUBMIT], "--agent", "repair")
    assert done.code == 0, done.out + done.error
    prepared = [
        entry["parts"]["options"]["seed"]
        for path in workshop.aipc.store.glob("*/entry.json")
        if (entry := json.loads(path.read_text()))["parts"]["step"] == "prepare"
    ]
    assert len(prepared) == 2
    assert 2718 in prepared
    assert len(set(prepared)) == 2


def test_an_agent_that_is_switched_off_is_not_asked(workshop: Workshop) -> None:
    done = workshop.deploy([GIVE_UP], "--agent", "off")
    assert done.code == 1
    assert not (workshop.aipc.runs / "transcripts").exists()


def test_a_model_that_cannot_be_asked_is_one_line(workshop: Workshop) -> None:
    options = ("--runtime", "ortqnn", "--engine", "venv", "--agent", "repair")
    done = workshop.aipc.deploy(str(workshop.net), *options)
    assert (done.code, done.error.count("\n")) == (2, 1)
    assert "base_url" in done.last_line
