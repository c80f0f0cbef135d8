"""The marks select what they promise: without toolchains and containers, a test needs nothing but `.venv`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("tests/cells", "tests/engines", "tests/runtimes/test_reference_steps.py", "tests/test_layers.py")


@pytest.fixture(scope="module")
def selected() -> dict[str, set[str]]:
    """The tests of each selection, as `file::name`."""
    return {marks: select(marks) for marks in ("toolchain", "container", "not toolchain and not container")}


def select(marks: str) -> set[str]:
    argv = (sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-m", marks, *FOLDERS)
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True)
    lines = [line.partition("::") for line in done.stdout.splitlines() if "::" in line]
    return {f"{Path(file).name}::{name}" for file, _, name in lines}


def test_what_deploys_for_real_is_marked_by_the_fixtures_it_uses(selected: dict[str, set[str]]) -> None:
    files = {name.partition("::")[0] for name in selected["toolchain"]}
    assert {"test_deploy.py", "test_kills.py", "test_reruns.py", "test_faults.py", "test_layers.py"} <= files
    plain = {name.partition("::")[0] for name in selected["not toolchain and not container"]}
    assert not {"test_deploy.py", "test_kills.py", "test_faults.py", "test_reference_steps.py"} & plain


def test_what_needs_a_daemon_is_marked_also_when_only_one_of_its_cases_does(selected: dict[str, set[str]]) -> None:
    name = "test_faults.py::test_a_sixth_runtime_that_is_wrong_disagrees"
    assert f"{name}[docker]" in selected["container"]
    assert f"{name}[venv]" not in selected["container"]
    assert "test_commands.py::test_images_are_built_shown_and_cleaned" in selected["container"]
    assert not [name for name in selected["not toolchain and not container"] if name.startswith("test_docker_")]


def test_what_needs_neither_is_left(selected: dict[str, set[str]]) -> None:
    plain = selected["not toolchain and not container"]
    assert "test_commands.py::test_plan_shows_the_cells_of_the_matrix" in plain
    assert "test_bad_input.py::test_a_selection_of_nothing_is_an_error" in plain
    assert "test_venv.py::test_the_exit_code_is_the_workers_own[with_cage-0]" in plain
    assert not plain & (selected["toolchain"] | selected["container"])
