"""A vendor's SDK inside a job: read-only at one place, and nothing of it for a job that has none."""

from __future__ import annotations

from pathlib import Path

import pytest

from aipc.engines import Given, Limits
from aipc.engines.venv import VenvEngine
from aipc.sdk import Sdk
from tests.engines.wheelhouse import Bench, make_code, make_workspace

LOOKS = """
import os, pathlib
root = os.environ.get("A_SDK")
print("root", root)
if root:
    print("read", (pathlib.Path(root) / "sdk.yaml").read_text())
    try:
        (pathlib.Path(root) / "sdk.yaml").write_text("forged")
        print("written")
    except OSError as error:
        print("kept", error.strerror)
"""
LIMITS = Limits(seconds=60.0, memory_bytes=512_000_000, processes=64)


@pytest.fixture
def sdk(tmp_path: Path) -> Sdk:
    folder = tmp_path / "vendor"
    folder.mkdir()
    folder.chmod(0o755)
    (folder / "sdk.yaml").write_text("version: 7")
    return Sdk(variable="A_SDK", folder=folder)


def look(bench: Bench, sdk: Sdk | None) -> str:
    number = len(list(bench.folder.iterdir()))
    workspace = make_workspace(bench.folder / f"job{number}", LOOKS)
    code = make_code(bench.folder / f"code{number}")
    engine = VenvEngine(bench.cache, "test")
    ended = engine.run(bench.environment, workspace, code, LIMITS, lambda: None, Given(sdk=sdk))
    log = (workspace / "log.txt").read_text()
    assert ended.code == 0, log
    return log


@pytest.mark.usefixtures("with_cage")
def test_a_caged_job_sees_its_sdk_and_cannot_change_it(bench: Bench, sdk: Sdk) -> None:
    log = look(bench, sdk)
    assert "root /opt/sdk\nread version: 7\nkept Read-only file system" in log
    assert (sdk.folder / "sdk.yaml").read_text() == "version: 7"


@pytest.mark.usefixtures("without_cage")
def test_a_job_without_a_cage_sees_its_sdk_where_the_user_has_it(bench: Bench, sdk: Sdk) -> None:
    assert f"root {sdk.folder}\nread version: 7" in look(bench, sdk)


@pytest.mark.usefixtures("either")
def test_a_job_without_an_sdk_knows_of_none(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SDK", "/usr")
    assert look(bench, None) == "root None\n"
