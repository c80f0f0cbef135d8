"""The same engine on Podman, through the API that it shares with Docker."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from aipc.engines import Limits, image
from aipc.engines.docker import DockerEngine
from aipc.engines.ping import ping
from aipc.environment import Environment
from tests.engines.conftest import offline
from tests.engines.docker.conftest import LIMITS, Attempt, Lay
from tests.engines.docker.test_docker_daemon import copy_image, until

pytestmark = pytest.mark.container


@pytest.fixture(scope="module")
def podman(docker_engine: DockerEngine, wheels: Path, tiny: Environment) -> Iterator[DockerEngine]:
    """An engine on a Podman of the tests' own, which has built the tiny environment."""
    if not shutil.which("podman") or not shutil.which("catatonit") or os.getuid() != 0:
        pytest.skip("podman, catatonit or root is missing (apt-get install podman catatonit)")
    # crun refuses some machines with both versions of cgroups; runc takes them.
    runtime = ("--runtime", shutil.which("runc") or "crun")
    with (
        tempfile.TemporaryDirectory(prefix="aipc-", ignore_cleanup_errors=True) as short,
        pytest.MonkeyPatch.context() as patch,
    ):
        store = ("podman", *runtime, "--root", f"{short}/root", "--runroot", f"{short}/run")
        address = f"unix://{short}/p.sock"
        with (Path(short) / "log").open("w") as log:
            process = subprocess.Popen((*store, "system", "service", "--time", "0", address), stdout=log, stderr=log)
        try:
            until(lambda: not ping(address), "the start of podman", 60)
            patch.setenv("DOCKER_HOST", address)
            engine = DockerEngine(Path(short) / "cache", docker_engine.base().image)
            copy_image(docker_engine.base().image, docker_engine, engine)
            offline(patch, wheels)
            said: list[str] = []
            engine.ensure(tiny, said.append)
            assert any("building the image, step 1 of" in line for line in said)
            yield engine
            engine.close()
        finally:
            process.terminate()
            process.wait(30)
            subprocess.run((*store, "system", "reset", "--force"), check=False, capture_output=True)


def run(engine: DockerEngine, environment: Environment, lay: Lay, program: str, limits: Limits = LIMITS) -> Attempt:
    workspace, code = lay(program)
    return Attempt(ended=engine.run(environment, workspace, code, limits, lambda: None), workspace=workspace)


def test_podman_builds_and_runs_a_job_as_hardened_as_docker(podman: DockerEngine, tiny: Environment, lay: Lay) -> None:
    assert [found.names for found in image.list_images(podman.daemon) if found.environment] == [(podman.tag(tiny),)]
    done = run(
        podman,
        tiny,
        lay,
        """
import os, tinything
lines = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
print(os.getuid(), os.listdir("/sys/class/net"), lines["CapBnd"].strip("0"), lines["NoNewPrivs"])
for path in ("in", "in/model", "/x", "/aipc/x"):
    try:
        os.rename(path, "in2") if path == "in" else open(path, "w")
    except OSError as error:
        print(error.strerror)
""",
    )
    assert done.ended.code == 0, done.log
    assert done.log.splitlines() == [
        "65532 ['lo']  1",
        "Device or resource busy",
        *["Read-only file system"] * 3,
    ]
    assert {path.lstat().st_uid for path in done.workspace.rglob("*")} == {0}
    assert podman.daemon._api.containers(all=True) == []


@pytest.mark.parametrize(
    ("program", "limits", "end"),
    [
        ("import sys; sys.exit(21)", LIMITS, (21, False, False)),
        ("import ctypes; ctypes.string_at(0)", LIMITS, (128 + signal.SIGSEGV, False, False)),
        ("import time; time.sleep(60)", replace(LIMITS, seconds=1.0), (128 + signal.SIGKILL, True, False)),
        ("bytearray(600_000_000)", replace(LIMITS, memory_bytes=100_000_000), (128 + signal.SIGKILL, False, True)),
    ],
)
def test_podman_tells_the_same_ends(
    podman: DockerEngine, tiny: Environment, lay: Lay, program: str, limits: Limits, end: tuple[int, bool, bool]
) -> None:
    ended = run(podman, tiny, lay, program, limits).ended
    assert (ended.code, ended.timed_out, ended.out_of_memory) == end
