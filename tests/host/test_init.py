"""`aipc init`: what a new project has, that it works, and that nothing of the user's is ever changed."""

from __future__ import annotations

import json
import math
import os
import shlex
import shutil
import subprocess
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aipc import cell as cells
from aipc import config, home, materials, runtime
from aipc.errors import UsageError
from aipc.scaffold import Wanted, make
from aipc.scaffold.configuration import _value, configure
from tests.cells.test_bad_input import assert_one_line, model
from tests.command import MODELS, ROOT, Aipc

USAGE, DISK = 2, 4
BUILDERS = [each.name for each in runtime.all_runtimes() if each.builds]


@pytest.fixture
def aipc(tmp_path: Path) -> Aipc:
    return Aipc(tmp_path)


def tree(folder: Path) -> dict[str, object]:
    """Return all that is below `folder`: links with what they say, files with content and time."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        said = str(path.readlink()) if path.is_symlink() else None
        found[str(path.relative_to(folder))] = said or (
            (path.read_bytes(), path.stat().st_mtime_ns) if path.is_file() else "folder"
        )
    return found


def test_a_project_has_instructions_a_plan_a_configuration_and_skills(aipc: Aipc) -> None:
    done = aipc("init", "new/project", "--model", "esrgan#64x96", "--runtime", "openvino", "--precision", "fp32")
    assert done.code == 0, done.error
    project = aipc.folder / "new" / "project"
    assert done.out.splitlines()[0] == "added  new/project/AGENTS.md"
    assert done.out.splitlines()[-1] == "next   cd new/project && aipc deploy 'esrgan#64x96/openvino/fp32@cpu'"
    assert (project / "CLAUDE.md").readlink() == Path("AGENTS.md")
    assert "## `esrgan#64x96/openvino/fp32@cpu`" in (project / "PLAN.md").read_text()
    for stage in ("prepare", "export", "convert", "verify", "optimize", "report"):
        assert f"- [ ] {stage}\n" in (project / "PLAN.md").read_text()
    assert {path.name for path in (project / ".agents" / "skills").iterdir()} == {"aipc", "openvino"}
    for name in ("aipc", "openvino"):
        assert (project / ".claude/skills" / name).readlink() == Path("../../.agents/skills", name)
        for path in (path for path in (ROOT / "skills" / name).rglob("*") if path.suffix in {".md", ".py"}):
            copy = project / ".claude/skills" / path.relative_to(ROOT / "skills")
            assert copy.read_bytes() == path.read_bytes()
            assert os.access(copy, os.X_OK) == os.access(path, os.X_OK)


def test_the_agents_page_says_commands_that_there_are_and_files_that_are_there(aipc: Aipc) -> None:
    assert aipc("init", "project").code == 0
    page = (aipc.folder / "project" / "AGENTS.md").read_text()
    for name in ("PLAN.md", "matrix.toml", ".agents/skills/"):
        assert f"`{name}`" in page
        assert (aipc.folder / "project" / name).exists()
    commands = [line for line in page.splitlines() if line.startswith("aipc ")]
    assert len(commands) > 5
    for line in commands:
        _, command, *rest = shlex.split(line)
        said = aipc(command, "--help").out
        assert all(option in said for option in rest if option.startswith("--"))


def test_without_a_runtime_all_of_them_are_in_it_and_without_a_model_the_quickest(aipc: Aipc) -> None:
    assert aipc("init", "project").code == 0
    there = config.load(aipc.folder / "project" / "matrix.toml")
    assert [str(each) for each in cells.cells(there)] == [
        str(cells.make("esrgan-compact", (), name)) for name in BUILDERS
    ]
    assert {path.parent.name for path in (aipc.folder / "project/.agents/skills").glob("*/SKILL.md")} == {
        path.parent.name for path in (ROOT / "skills").glob("*/SKILL.md")
    }


@pytest.mark.parametrize("name", config.load(ROOT / "matrix.toml").models)
def test_a_model_of_the_matrix_is_the_same_in_a_project(name: str, tmp_path: Path) -> None:
    own = config.load(ROOT / "matrix.toml")
    found = configure(Wanted(model=f"{name}#64x96", runtimes=("rknn", "openvino"), precision="int8"), tmp_path)
    (tmp_path / "matrix.toml").write_text(found.text)
    there = config.load(tmp_path / "matrix.toml")
    assert there.models == {name: replace(own.models[name], precisions=())}
    assert (there.pictures, there.seed, there.magnitudes) == (own.pictures, own.seed, own.magnitudes)
    assert cells.cells(there) == found.cells
    assert [str(each) for each in found.cells] == [f"{name}#64x96/rknn/int8@rk3588", f"{name}#64x96/openvino/int8@cpu"]


def test_a_file_of_the_project_is_named_relative_to_it_and_another_as_it_is(aipc: Aipc, tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    for place, said in (("project/mine.onnx", "mine.onnx"), ("far.onnx", str(tmp_path / "far.onnx"))):
        model(tmp_path / place)
        (tmp_path / "project" / "matrix.toml").unlink(missing_ok=True)
        (tmp_path / "project" / "PLAN.md").unlink(missing_ok=True)
        done = aipc("init", "project", "--model", place, "--runtime", "openvino")
        assert done.code == 0, done.error
        table = tomllib.loads((tmp_path / "project" / "matrix.toml").read_text())
        ((name, entry),) = table["models"].items()
        assert name.startswith(Path(place).stem)
        assert entry["weights"][0]["path"] == said
        assert len(entry["weights"][0]["sha256"]) == 64


def test_a_whole_cell_is_the_project(aipc: Aipc) -> None:
    assert aipc("init", "project", "--model", "esrgan#32x48/ortqnn/fp16@sm8550").code == 0
    there = config.load(aipc.folder / "project" / "matrix.toml")
    assert [str(each) for each in cells.cells(there)] == ["esrgan#32x48/ortqnn/fp16@sm8550"]


def test_a_project_deploys_as_it_says(aipc: Aipc, reference_python: Path, openvino_python: Path) -> None:
    assert reference_python.exists()
    assert openvino_python.exists()
    project = aipc.folder / "project"
    shutil.copytree(MODELS, project / "models", ignore=shutil.ignore_patterns("__pycache__"))
    asked = ("--model", "tiny:upscaler#1x3x20x24", "--source", "project/models", "--runtime", "openvino")
    done = aipc("init", "project", *asked)
    assert done.code == 0, done.error
    command = shlex.split(done.out.splitlines()[-1].partition("&& aipc ")[2])
    inside = replace(aipc, folder=project)
    deployed = inside(*command, "--engine", "venv", "--json")
    assert deployed.code == 0, deployed.error
    report = json.loads(deployed.out)
    assert report["verdict"] == "agrees"
    assert report["reproduce"][-4:] == ["--matrix", "matrix.toml", "--engine", "venv"]
    assert "✓ convert" in deployed.error
    assert inside("plan").out.split() == [report["cell"]]
    assert json.loads(inside("report", report["cell"], "--json").out) == report
    again = inside("matrix", "--engine", "venv")
    assert again.code == 0, again.out + again.error
    # What the agent writes beside it makes no difference.
    assert aipc("init", "project", *asked).out.splitlines()[0] == "nothing was missing"


def test_the_link_in_a_project_does_not_keep_its_own_source_from_being_deployed(aipc: Aipc) -> None:
    project = aipc.folder / "project"
    assert aipc("init", "project", "--runtime", "openvino").code == 0
    (project / "nets.py").write_text("def build(): ...")
    found = materials.of_folder(project, project / "runs", "--source")
    assert {file.path for file in found.files} == {"AGENTS.md", "CLAUDE.md", "PLAN.md", "matrix.toml", "nets.py"}
    sizes = {file.path: file.size_bytes for file in found.files}
    assert sizes["CLAUDE.md"] == sizes["AGENTS.md"]
    for target in ("../elsewhere.py", "CLAUDE.md", "nowhere.py", ".", "/etc/hostname"):
        (project / "link.py").symlink_to(target)
        with pytest.raises(UsageError, match=r"link\.py: is a link or a pipe"):
            materials.of_folder(project, project / "runs", "--source")
        (project / "link.py").unlink()


# What is there already
def test_the_same_command_again_changes_nothing(aipc: Aipc) -> None:
    asked = ("init", "project", "--model", "esrgan", "--runtime", "rknn")
    assert aipc(*asked).code == 0
    before = tree(aipc.folder / "project")
    done = aipc(*asked)
    assert (done.code, done.out.splitlines()[0], done.error) == (0, "nothing was missing", "")
    assert tree(aipc.folder / "project") == before


def test_what_was_lost_is_added_again(aipc: Aipc) -> None:
    assert aipc("init", "project", "--runtime", "rknn").code == 0
    before = {path: each for path, each in tree(aipc.folder / "project").items() if not isinstance(each, tuple)}
    shutil.rmtree(aipc.folder / "project" / ".agents")
    done = aipc("init", "project", "--runtime", "rknn")
    assert done.code == 0, done.error
    assert [line for line in done.out.splitlines() if line.startswith("added")] == [
        "added  project/.agents/skills/aipc",
        "added  project/.agents/skills/rknn",
    ]
    after = {path: each for path, each in tree(aipc.folder / "project").items() if not isinstance(each, tuple)}
    assert after == before


def test_a_file_that_is_another_is_kept_and_told(aipc: Aipc) -> None:
    project = aipc.folder / "project"
    (project / ".agents/skills/aipc").mkdir(parents=True)
    mine = {"AGENTS.md": "my own rules", "matrix.toml": "seed = 1", ".agents/skills/aipc/SKILL.md": "mine"}
    for name, content in mine.items():
        (project / name).write_text(content)
    done = aipc("init", "project", "--runtime", "openvino")
    assert_one_line(done, USAGE, *(f"project/{name}" for name in mine), "kept, though not what was asked for")
    assert {name: (project / name).read_text() for name in mine} == mine
    assert (project / "CLAUDE.md").read_text() == "my own rules"
    assert (project / ".agents/skills/aipc/references/report.md").is_file()
    assert (project / "PLAN.md").is_file()


def test_a_runtime_that_is_asked_for_later_gets_its_skill(aipc: Aipc) -> None:
    assert aipc("init", "project", "--runtime", "openvino").code == 0
    done = aipc("init", "project", "--runtime", "rknn")
    assert_one_line(done, USAGE, "project/PLAN.md, project/matrix.toml: kept")
    assert (aipc.folder / "project/.claude/skills/rknn/SKILL.md").is_file()


def test_a_skill_of_the_users_own_for_claude_stays(aipc: Aipc) -> None:
    own = aipc.folder / "project/.claude/skills/own/SKILL.md"
    own.parent.mkdir(parents=True)
    own.write_text("mine")
    assert aipc("init", "project", "--runtime", "openvino").code == 0
    assert own.read_text() == "mine"
    assert (own.parent.parent / "openvino/SKILL.md").is_file()


TWO = "are two files that say different things; put all of it into AGENTS.md, remove CLAUDE.md"


@pytest.mark.parametrize(
    ("agents", "claude", "words"),
    [
        ("mine", "another", TWO),
        ("mine", None, ""),
        (None, "mine", "is there without AGENTS.md; rename it to AGENTS.md"),
        ("same", "same", ""),
        ("mine", "-> AGENTS.md", ""),
        (None, "-> AGENTS.md", ""),
        ("-> CLAUDE.md", "mine", ""),
        ("mine", "-> nothing.md", "CLAUDE.md: is a link that leads nowhere"),
        ("-> nothing.md", None, "AGENTS.md: is a link that leads nowhere"),
        ("mine", "-> other.md", TWO),
    ],
)
def test_instructions_that_are_there_stay_and_two_of_them_are_an_error(
    aipc: Aipc, agents: str | None, claude: str | None, words: str
) -> None:
    project = aipc.folder / "project"
    project.mkdir()
    (project / "other.md").write_text("another")
    for name, content in (("AGENTS.md", agents), ("CLAUDE.md", claude)):
        if content and content.startswith("-> "):
            (project / name).symlink_to(content.removeprefix("-> "))
        elif content:
            (project / name).write_text(content)
    before = tree(project)
    done = aipc("init", "project", "--runtime", "openvino")
    if words:
        assert_one_line(done, USAGE, words)
        assert tree(project) == before
    else:
        assert done.code == (USAGE if agents else 0)
        assert (project / "AGENTS.md").read_bytes() == (project / "CLAUDE.md").read_bytes()
        assert before.items() <= tree(project).items()


@pytest.mark.parametrize("error", [OSError(1, "Operation not permitted"), NotImplementedError()])
def test_where_links_are_not_allowed_there_are_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise error

    monkeypatch.setattr(Path, "symlink_to", refuse)
    wanted = Wanted(runtimes=("openvino",))
    made = make(tmp_path / "project", wanted)
    assert made.kept == ()
    project = tmp_path / "project"
    assert not [path for path in project.rglob("*") if path.is_symlink()]
    assert (project / "CLAUDE.md").read_bytes() == (project / "AGENTS.md").read_bytes()
    copied = project / ".claude/skills/openvino"
    assert (copied / "SKILL.md").read_bytes() == (ROOT / "skills/openvino/SKILL.md").read_bytes()
    again = make(project, wanted)
    assert (again.added, again.kept) == ((), ())


def test_a_folder_behind_a_link_gets_the_project(aipc: Aipc) -> None:
    (aipc.folder / "real").mkdir()
    (aipc.folder / "link").symlink_to("real")
    assert aipc("init", "link/project", "--runtime", "openvino").code == 0
    assert aipc("init", "link", "--runtime", "openvino").code == 0
    for place in ("real", "real/project"):
        assert (aipc.folder / place / "CLAUDE.md").read_text().startswith("# For coding agents")


# Bad input
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--runtime", "openvin"), f"--runtime: there is no 'openvin'; known are {', '.join(BUILDERS)}"),
        (("--runtime", "reference"), "--runtime: there is no 'reference'"),
        (("--model", "esrgn"), "model 'esrgn': not in the matrix; did you mean 'esrgan'?"),
        (("--model", "missing.onnx"), "missing.onnx: no such file"),
        (("--model", "esrgan#0x4"), "0 is no dimension"),
        (("--precision", "fp61"), "has no precision 'fp61'"),
        (("--runtime", "openvino", "--target", "rk3588"), "has no target 'rk3588'"),
        (("--model", "esrgan/openvino", "--runtime", "rknn"), "is a whole cell"),
    ],
)
def test_what_is_not_known_is_said_before_anything_is_made(aipc: Aipc, arguments: tuple[str, ...], words: str) -> None:
    assert_one_line(aipc("init", "project", *arguments), USAGE, words)
    assert not (aipc.folder / "project").exists()


@pytest.mark.parametrize(
    ("put", "place", "words"),
    [
        ({"file": ""}, "file", "file: is no folder"),
        ({"file": ""}, "file/project", "file: is no folder"),
        ({"link": "-> nowhere"}, "link", "link: is a link that leads nowhere"),
        ({"project/.agents": ""}, "project", "project/.agents: is no folder, and one has to be there"),
        ({"project/.agents": "-> ../elsewhere", "elsewhere/x": ""}, "project", "outside the project; remove that link"),
        ({"project/.claude": "-> nowhere"}, "project", "project/.claude: is a link that leads nowhere"),
        ({"project/PLAN.md/x": ""}, "project", "project/PLAN.md: is no file, and one has to be there"),
        ({"project/matrix.toml": "-> nowhere"}, "project", "project/matrix.toml: is a link that leads nowhere"),
    ],
)
def test_what_is_in_the_way_is_said_before_anything_is_made(
    aipc: Aipc, put: dict[str, str], place: str, words: str
) -> None:
    for name, content in put.items():
        path = aipc.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content.startswith("-> "):
            path.symlink_to(content.removeprefix("-> "))
        else:
            path.write_text(content)
    before = tree(aipc.folder)
    assert_one_line(aipc("init", place, "--runtime", "openvino"), USAGE, words)
    assert tree(aipc.folder) == before


def test_aipcs_own_folder_is_no_project(aipc: Aipc) -> None:
    assert_one_line(aipc("init", str(home.HOME)), USAGE, "is where aipc itself is; name a folder of your own")


def test_where_nothing_can_be_written_is_the_disks_fault(aipc: Aipc) -> None:
    assert_one_line(aipc("init", "/proc/project", "--runtime", "openvino"), DISK, "/proc/project")


def test_a_disk_that_is_full_half_way_leaves_nothing_half_made(aipc: Aipc) -> None:
    argv = ["prlimit", "--fsize=4000", *aipc.argv("init", "new/project", "--runtime", "openvino")]
    done = subprocess.run(argv, env=aipc.variables(), cwd=aipc.folder, capture_output=True, text=True, check=False)
    assert done.returncode == DISK
    assert done.stderr.startswith("aipc: ")
    assert "File too large" in done.stderr
    assert not (aipc.folder / "new").exists()


# TOML
PLAIN = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"])),
)
KEYS = st.from_regex(r"[a-z0-9_-]{1,8}", fullmatch=True)


@given(st.recursive(PLAIN, lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner), max_leaves=8))
@example('a\x7f"\\\n\t\x00é🙂')
def test_what_is_written_as_toml_is_read_as_it_was(value: Any) -> None:
    read = tomllib.loads(f"x = {_value(value)}\n")["x"]
    assert read == value
    assert not (isinstance(value, float) and not math.isclose(read, value))
