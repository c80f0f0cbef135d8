"""A vendor's SDK inside a container."""

from __future__ import annotations

from pathlib import Path

import pytest

from aipc.engines import Given
from aipc.engines.docker import DockerEngine
from aipc.environment import Environment
from aipc.sdk import Sdk
from tests.engines.docker.conftest import LIMITS, Lay
from tests.engines.test_sdk_mount import LOOKS

pytestmark = pytest.mark.container


def look(engine: DockerEngine, environment: Environment, lay: Lay, sdk: Sdk | None) -> str:
    workspace, code = lay(LOOKS)
    ended = engine.run(environment, workspace, code, LIMITS, lambda: None, Given(sdk=sdk))
    log = (workspace / "log.txt").read_text()
    assert ended.code == 0, log
    return log


def test_a_container_has_its_sdk_and_cannot_change_it(
    docker_engine: DockerEngine, tiny: Environment, lay: Lay, tmp_path: Path
) -> None:
    folder = tmp_path / "vendor"
    folder.mkdir()
    folder.chmod(0o755)
    (folder / "sdk.yaml").write_text("version: 7")
    log = look(docker_engine, tiny, lay, Sdk(variable="A_SDK", folder=folder))
    assert "root /opt/sdk\nread version: 7\nkept Read-only file system" in log


def test_a_container_without_an_sdk_knows_of_none(docker_engine: DockerEngine, tiny: Environment, lay: Lay) -> None:
    assert look(docker_engine, tiny, lay, None) == "root None\n"
