"""NVIDIA GPUs for a container: what a real daemon is asked for, and what it answers where it has none to give."""

from __future__ import annotations

from pathlib import Path

import pytest

from aipc.engines import NOTHING, Given
from aipc.engines.container import UNPRIVILEGED
from aipc.engines.docker import DockerEngine
from aipc.environment import Environment
from aipc.errors import EngineError
from aipc.gpu import Gpu
from tests.engines.docker.conftest import LIMITS, Lay

pytestmark = pytest.mark.container

GPU = Gpu(nodes=(Path("/dev/nvidia0"),), folders=(), words=())


@pytest.mark.parametrize("given", [Given(gpu=GPU), NOTHING], ids=["gpu", "none"])
def test_a_daemon_is_asked_for_all_gpus_where_a_job_gets_them_and_for_no_device_elsewhere(
    docker_engine: DockerEngine, tiny: Environment, lay: Lay, given: Given
) -> None:
    daemon = docker_engine.daemon
    made = daemon.create(docker_engine.tag(tiny), ("true",), *lay("pass"), LIMITS, given)
    try:
        config = daemon._api.inspect_container(made)["HostConfig"]
    finally:
        daemon.remove(made)
    asked = [(each["Driver"], each["Count"], each["Capabilities"]) for each in config["DeviceRequests"] or []]
    assert asked == ([("nvidia", -1, [["gpu"]])] if given.gpu else [])
    assert not config["Devices"]
    assert not config["Privileged"]


def test_a_daemon_that_cannot_hand_over_a_gpu_is_an_error_that_says_what_to_install(
    docker_engine: DockerEngine, tiny: Environment, lay: Lay
) -> None:
    if any(Path("/dev").glob("nvidia*")):
        pytest.skip("this machine has an NVIDIA GPU")
    workspace, code = lay("pass")
    with pytest.raises(EngineError) as caught:
        docker_engine.run(tiny, workspace, code, LIMITS, lambda: None, Given(gpu=GPU))
    words = str(caught.value)
    assert 'could not select device driver "nvidia" with capabilities: [[gpu]]' in words
    assert words.endswith(
        "install the NVIDIA Container Toolkit, by which it hands GPUs to containers, or use --engine venv"
    )
    assert "\n" not in words
    containers = docker_engine.daemon._api.containers(all=True, filters={"status": "created"})
    assert not [each for each in containers if each["Image"] == docker_engine.tag(tiny)]
    assert workspace.stat().st_uid != UNPRIVILEGED
