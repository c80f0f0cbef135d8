"""Rules over the files of the project. Each is shown red on a made-up violation."""

from __future__ import annotations

import ast
import posixpath
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import click
import pytest

import aipc
from aipc import environment
from runtimes.contract import Verdict
from runtimes.reference import export, gates, judge

ROOT = Path(__file__).parent.parent
HIDDEN_BUT_OURS = frozenset({".ci", ".github"})
MADE_BY_TOOLS = frozenset({"__pycache__", "build", "dist", "runs"})

VAGUE_NAMES = frozenset({"base", "common", "helper", "helpers", "manager", "util", "utils"})
MOST_LINES = 400
MOST_FUNCTION_LINES = 50
LONG: Mapping[str, str] = {
    "tests/host/reports/conftest.py:_agrees": "one report, written out field by field",
}
"""Path, or `path:function`, of what is longer all the same, and why."""

# Put together here, so that this file does not hold what it forbids.
REGISTRY_HOSTS = ("pypi" + ".org", "python" + "hosted.org", "npmjs" + ".com")
MACHINE_PATH = re.compile(
    "/work/" + r"(main|shared|\.)|/opt/" + r"wheels|/root/" + r"[\w.]|/home/" + r"(?!(user|somebody)\b)\w"
)
BROAD = frozenset({"BaseException", "Exception"})
WALLS: Mapping[str, str] = {
    "runtimes/kit/worker.py": "whatever goes wrong in a job becomes a result",
    "runtimes/reference/foreign.py": "a model's own code may raise errors of types that nobody else knows, or exit",
}
"""The files that may catch everything, once each: they stand at a wall to foreign code."""


def tree() -> dict[str, str]:
    """Return the project's own text files: path to content."""
    found = {}
    for path in sorted(ROOT.rglob("*")):
        parts = path.relative_to(ROOT).parts
        hidden = any(part.startswith(".") and part not in HIDDEN_BUT_OURS for part in parts[:-1])
        if path.is_file() and not hidden and not MADE_BY_TOOLS & set(parts):
            found["/".join(parts)] = path.read_bytes().decode("utf-8", errors="replace")
    return found


def python(files: Mapping[str, str]) -> dict[str, str]:
    return {path: text for path, text in files.items() if path.endswith(".py")}


def locks(files: Mapping[str, str]) -> dict[str, str]:
    return {path: text for path, text in files.items() if path.endswith("requirements.lock")}


# The rules. Each returns what is wrong, in words.
def names_say_what_is_inside(files: Mapping[str, str]) -> Iterable[str]:
    # The folder images/base is no module: it is the image that the others are built on.
    parts = {path: Path(path).with_suffix("").parts for path in python(files)}
    return [f"{path}: a vague name" for path, names in parts.items() if VAGUE_NAMES & set(names)]


def locks_name_only_what_everyone_can_have(files: Mapping[str, str]) -> Iterable[str]:
    forbidden = ("nvidia-", "file:", "://", "telemetry", "--index", "--find-links")
    return [f"{path}: {word}" for path, text in locks(files).items() for word in forbidden if word in text]


def locks_have_hashes(files: Mapping[str, str]) -> Iterable[str]:
    for path, text in locks(files).items():
        pins = environment.parse_pins(text)
        if not pins:
            yield f"{path}: no package"
        for pin in pins:
            if "--hash=sha256:" not in pin.text:
                yield f"{path}: {pin.name} has no hash"


def nothing_belongs_to_one_machine(files: Mapping[str, str]) -> Iterable[str]:
    for path, text in files.items():
        for number, line in enumerate(text.splitlines(), 1):
            if any(host in line for host in REGISTRY_HOSTS) or MACHINE_PATH.search(line):
                yield f"{path}:{number}: {line.strip()[:100]}"


def files_are_short(files: Mapping[str, str]) -> Iterable[str]:
    lengths = {path: len(text.splitlines()) for path, text in python(files).items()}
    return [f"{path}: {lines} lines" for path, lines in lengths.items() if lines > MOST_LINES and path not in LONG]


def functions_are_short(files: Mapping[str, str]) -> Iterable[str]:
    for path, text in python(files).items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > MOST_FUNCTION_LINES and f"{path}:{node.name}" not in LONG:
                    yield f"{path}:{node.lineno}: {node.name} has {lines} lines"


def walls_alone_catch_everything(files: Mapping[str, str]) -> Iterable[str]:
    for path, text in python(files).items():
        caught = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ExceptHandler) and swallows(node)]
        if len(caught) > (path in WALLS):
            yield f"{path}:{caught[-1].lineno}: a broad except"


def swallows(handler: ast.ExceptHandler) -> bool:
    """Return whether it catches everything and does not raise it again as its last act."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    broad = any(kind is None or (isinstance(kind, ast.Name) and kind.id in BROAD) for kind in kinds)
    last = handler.body[-1]
    return broad and not (isinstance(last, ast.Raise) and last.exc is None)


def make_commands_exist(files: Mapping[str, str]) -> Iterable[str]:
    known = set(re.findall(r"^([a-z]+):", files["Makefile"], re.MULTILINE))
    said = [(path, name) for path, line in commands_said(files) for name in re.findall(r"^make ([a-z]+)", line)]
    return [f"{path}: make {name}" for path, name in said if name not in known]


def aipc_commands_exist(files: Mapping[str, str]) -> Iterable[str]:
    known = commands()
    said = [(path, name) for path, line in commands_said(files) for name in re.findall(r"^aipc ([a-z]+)", line)]
    said += [("Makefile", name) for name in re.findall(r"\$\(BIN\)/aipc ([a-z]+)", files.get("Makefile", ""))]
    return [f"{path}: aipc {name}" for path, name in said if name not in known]


def commands_said(files: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    """Return the command lines in the documents: those in fenced blocks, and `those in backticks`."""
    for path, text in files.items():
        if path.endswith(".md"):
            fenced = re.findall(r"^ *```\w*\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)
            lines = [line for block in fenced for line in block.splitlines()] + re.findall(r"`([^`\n]+)`", text)
            yield from [(path, line.strip().removeprefix(".venv/bin/")) for line in lines]


def commands() -> set[str]:
    from aipc.cli import main

    assert isinstance(main, click.Group)
    return set(main.commands)


def the_map_is_true(files: Mapping[str, str]) -> Iterable[str]:
    rows = [row.split("|")[1] for row in files["AGENTS.md"].splitlines() if row.startswith("| `")]
    for name in re.findall(r"`([^`]+)`", " ".join(rows)):
        inside = name.endswith("/") and any(path.startswith(name) for path in files)
        if name not in files and not inside:
            yield f"AGENTS.md: {name} is not there"


def links_lead_somewhere(files: Mapping[str, str]) -> Iterable[str]:
    for path, text in files.items():
        if path.endswith(".md"):
            for target in re.findall(r"\]\((?!https?:)([^)#]+)", text):
                if posixpath.normpath(Path(path).parent / target) not in files:
                    yield f"{path}: {target}"


def contributing_is_short(files: Mapping[str, str]) -> Iterable[str]:
    lines = len(files["CONTRIBUTING.md"].splitlines())
    return [f"CONTRIBUTING.md: {lines} lines"] if lines >= 100 else []


def the_version_is_in_the_changelog(files: Mapping[str, str]) -> Iterable[str]:
    version = tomllib.loads(files["pyproject.toml"])["project"]["version"]
    if version != aipc.__version__:
        yield f"pyproject.toml says {version}, aipc says {aipc.__version__}"
    if not re.search(rf"^## \[.*\b{re.escape(version)}\b", files["CHANGELOG.md"], re.MULTILINE):
        yield f"CHANGELOG.md: nothing on {version}"


def locks_agree(files: Mapping[str, str]) -> Iterable[str]:
    """What the tests import is at the version that the reference environment has, and that aipc runs on."""
    tests = versions(files["tests/requirements.lock"])
    for path in ("images/reference/requirements.lock", "orchestrator/requirements.lock"):
        for name, version in versions(files[path]).items():
            if tests.get(name, version) != version:
                yield f"tests/requirements.lock: {name} {tests[name]}, but {path} has {version}"


def versions(lock: str) -> dict[str, str]:
    return {pin.name: pin.version for pin in environment.parse_pins(lock)}


Rule = Callable[[Mapping[str, str]], Iterable[str]]
LONG_FUNCTION = "def f():\n" + "    pass\n" * MOST_FUNCTION_LINES
VIOLATIONS: Mapping[Rule, tuple[Mapping[str, str], ...]] = {
    names_say_what_is_inside: ({"runtimes/kit/utils.py": ""}, {"orchestrator/aipc/common/x.py": ""}),
    locks_name_only_what_everyone_can_have: (
        {"images/x/requirements.lock": "nvidia-cublas==1"},
        {"images/x/requirements.lock": "torch @ file:///tmp/torch.whl"},
        {"images/x/requirements.lock": "--index-url https://example.org/simple"},
        {"images/x/requirements.lock": "openvino-telemetry==1"},
    ),
    locks_have_hashes: (
        {"images/x/requirements.lock": "a==1 \\\n    --hash=sha256:00\nb==2\n"},
        {"images/x/requirements.lock": "\n"},
    ),
    nothing_belongs_to_one_machine: (
        {"README.md": f"https://{REGISTRY_HOSTS[0]}/simple"},
        {"docs/x.md": "cd /work/" + "main"},
        {"pyproject.toml": "find-links = '/opt/" + "wheels'"},
        {"tests/x.py": "'/root/" + ".cache'"},
    ),
    files_are_short: ({"aipc/x.py": "a = 1\n" * (MOST_LINES + 1)},),
    functions_are_short: ({"aipc/x.py": LONG_FUNCTION}, {"aipc/x.py": LONG_FUNCTION.replace("def", "async def")}),
    walls_alone_catch_everything: (
        {"aipc/x.py": "try:\n    f()\nexcept Exception:\n    pass"},
        {"aipc/x.py": "try:\n    f()\nexcept (OSError, BaseException) as error:\n    print(error)"},
        {"aipc/x.py": "try:\n    f()\nexcept:\n    raise ValueError"},
        {"runtimes/kit/worker.py": "try:\n    f()\nexcept Exception:\n    pass\n" * 2},
    ),
    make_commands_exist: ({"Makefile": "test:\n", "README.md": "```\nmake tests\n```"},),
    aipc_commands_exist: ({"README.md": "`aipc deployy x`"}, {"Makefile": "x:\n\t@$(BIN)/aipc no"}),
    the_map_is_true: ({"AGENTS.md": "| `orchestrator/aipc/gone.py` | x |"}, {"AGENTS.md": "| `gone/` | x |"}),
    links_lead_somewhere: ({"docs/a.md": "[b](b.md)", "b.md": ""},),
    contributing_is_short: ({"CONTRIBUTING.md": "x\n" * 100},),
    the_version_is_in_the_changelog: (
        {"pyproject.toml": '[project]\nversion = "9.9.9"', "CHANGELOG.md": "## [Unreleased] 9.9.9"},
        {"pyproject.toml": f'[project]\nversion = "{aipc.__version__}"', "CHANGELOG.md": "## [Unreleased] 9.9.9"},
    ),
    locks_agree: (
        {
            "tests/requirements.lock": "numpy==2.4.6",
            "images/reference/requirements.lock": "numpy==2.4.5",
            "orchestrator/requirements.lock": "rich==15.0.0",
        },
    ),
}
CASES = [(rule, files) for rule, made_up in VIOLATIONS.items() for files in made_up]


@pytest.mark.parametrize("rule", VIOLATIONS, ids=lambda rule: rule.__name__)
def test_the_tree_obeys(rule: Rule) -> None:
    assert list(rule(tree())) == []


@pytest.mark.parametrize(("rule", "files"), CASES, ids=[rule.__name__ for rule, _ in CASES])
def test_a_violation_is_seen(rule: Rule, files: Mapping[str, str]) -> None:
    assert list(rule(files))


def test_a_handler_that_cleans_up_and_raises_again_is_no_broad_except() -> None:
    text = "try:\n    f()\nexcept BaseException:\n    clean()\n    raise"
    assert list(walls_alone_catch_everything({"aipc/x.py": text})) == []


@pytest.mark.parametrize("path", WALLS)
def test_what_may_catch_everything_does(path: str) -> None:
    text = tree()[path]
    assert list(walls_alone_catch_everything({"aipc/elsewhere.py": text})), f"{path} is no wall: take it off the list"


def test_what_may_be_long_is_long() -> None:
    files = tree()
    listed = {name: (files[name.partition(":")[0]], name.partition(":")[2]) for name in LONG}
    for name, (text, function) in listed.items():
        found = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef) and n.name == function]
        lines = (found[0].end_lineno or 0) - found[0].lineno + 1 if function else len(text.splitlines())
        assert lines > (MOST_FUNCTION_LINES if function else MOST_LINES), f"{name} is short now: take it off the list"


def test_every_runtime_names_an_environment_that_is_there() -> None:
    for file in sorted((ROOT / "runtimes").glob("*/runtime.toml")):
        name = tomllib.loads(file.read_text(encoding="utf-8")).get("environment", file.parent.name)
        folder = ROOT / "images" / name
        assert {path.name for path in folder.iterdir()} >= {"Dockerfile", "requirements.in", "requirements.lock"}


def test_every_gate_is_explained() -> None:
    page = (ROOT / "docs" / "verdicts.md").read_text(encoding="utf-8")
    of_files, of_exports = (gate.name for gate in gates.ALL), (gate.name for gate in export.GATES)
    names = {*judge.GATES, *of_files, *of_exports, *(verdict.value for verdict in Verdict)}
    assert {name for name in names if f"`{name}`" not in page} == set()


def test_the_scripts_are_executable_and_parse() -> None:
    for script in (".ci/run", "orchestrator/setup.sh"):
        assert (ROOT / script).stat().st_mode & 0o111
        shell = (ROOT / script).read_text(encoding="utf-8").splitlines()[0].removeprefix("#!").split()
        subprocess.run([*shell, "-n", str(ROOT / script)], check=True)


def test_every_runtime_lives_with_the_banned_imports_of_a_container() -> None:
    code = "import docker\n"
    command = [sys.executable, "-m", "ruff", "check", "--quiet", "--select=TID251", "--stdin-filename"]
    done = subprocess.run(
        [*command, str(ROOT / "runtimes" / "kit" / "made_up.py"), "-"],
        input=code,
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert "a job cannot reach the daemon" in done.stdout
