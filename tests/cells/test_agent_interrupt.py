"""A person who interrupts while a job of the agent's runs: it ends too, and nothing of it stays."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aipc.engines.owner import PREFIX
from tests.cells.test_repairs import graph, save
from tests.cheats.scene import Scene

SPINS = "def patch(model):\n    import time\n    time.sleep(300)\n"
PATCH = {"thought": "own code", "action": "patch_graph", "code": SPINS}
GONE_SECONDS = 30


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder with a short path, for sockets and scratch."""
    with tempfile.TemporaryDirectory(prefix="cut-") as folder:
        yield Path(folder)


@pytest.fixture
def scene(tmp_path: Path, environment_python: Callable[[str], Path]) -> Scene:
    """A net with an Einsum, which ortqnn refuses, and no rule that mends it."""
    for name in ("reference", "ortqnn", "agent"):
        assert environment_python(name).exists()
    net = save(tmp_path / "net.onnx", graph())
    made = Scene(tmp_path, tmp_path / "store", (str(net), "--runtime", "ortqnn"))
    (made.checkout / "runtimes" / "ortqnn" / "repairs.toml").write_text("")
    return made


def runs_patch(scene: Scene) -> bool:
    """Return whether the job with the agent's code is there."""
    found = ""
    for path in scene.store.glob("tmp/*/attempt/job.json"):
        with contextlib.suppress(OSError):  # a job that ends takes it along
            found += path.read_text()
    return "time.sleep(300)" in found


def processes_of(scene: Scene) -> list[str]:
    """Return the command lines of processes that have to do with the scene's store."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        if str(scene.store) in words:
            found.append(words)
    return found


def containers_of(scene: Scene, daemon: str) -> list[str]:
    import docker

    client = docker.APIClient(base_url=daemon)
    try:
        label = f"{PREFIX}checkout={scene.checkout}"
        return [str(each["Id"]) for each in client.containers(all=True, filters={"label": label})]
    finally:
        client.close()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("engine", ["venv", "docker"])
def test_an_interruption_ends_the_job_that_the_agent_waits_for(
    scene: Scene, short: Path, engine: str, request: pytest.FixtureRequest
) -> None:
    daemon = str(request.getfixturevalue("docker_daemon")) if engine == "docker" else ""
    options = [*scene.options, *scene.replayed(PATCH), "--engine", engine]
    with (scene.folder / "said").open("wb") as said:
        process = subprocess.Popen(
            scene.aipc.deploy_argv(*options),
            env={**scene.aipc.variables(), "TMPDIR": str(short)},
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
        try:
            until = time.monotonic() + 100
            while not runs_patch(scene):
                assert process.poll() is None, (scene.folder / "said").read_text()
                assert time.monotonic() < until
                time.sleep(0.1)
            time.sleep(1.0)
            assert len(containers_of(scene, daemon) if daemon else processes_of(scene)) >= 2
            os.kill(process.pid, signal.SIGTERM if daemon else signal.SIGINT)
            assert process.wait(GONE_SECONDS) == 130, (scene.folder / "said").read_text()
        finally:
            process.kill()
            process.wait()
    assert processes_of(scene) == []
    assert not daemon or containers_of(scene, daemon) == []
    assert list((scene.store / "tmp").iterdir()) == []
    assert list(short.iterdir()) == []
    last = (scene.folder / "said").read_text().splitlines()[-1]
    assert last == "aipc: interrupted; finished steps are kept, the same command goes on from there"
