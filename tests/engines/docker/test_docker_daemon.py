"""The daemon and the owners of its containers: which daemon is taken, whose containers are removed, who may die."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from aipc.engines.container import uncaged
from aipc.engines.docker import DockerEngine
from aipc.engines.owner import Owner, current, start_of
from aipc.environment import Environment
from aipc.errors import EngineError
from tests.engines.conftest import offline
from tests.engines.docker.conftest import LIMITS, Lay, Make
from tests.engines.docker.test_docker_images import builders, steps

pytestmark = pytest.mark.container

ROOT = Path(__file__).parents[3]
OWNER = """
import sys
from pathlib import Path
from aipc.engines import Limits
from aipc.engines.docker import DockerEngine
from aipc.environment import Environment
cache, name, folder, workspace, code = sys.argv[1:]
environment = Environment(name=name, folder=Path(folder), python="3.11")
engine = DockerEngine(Path(cache))
engine.ensure(environment, lambda text: print(text, flush=True))
if workspace:
    limits = Limits(seconds=120.0, memory_bytes=256_000_000, processes=64)
    engine.run(environment, Path(workspace), Path(code), limits, lambda: None)
"""
LAST_WORDS = """
import os, time
print("the last words")
open("out/begun", "w").close()
while not os.path.exists("out/stop"): time.sleep(0.1)
"""
SLEEP = "import time\nopen('out/begun', 'w').close()\ntime.sleep(90)"


def until(condition: Callable[[], object], what: str, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen in {seconds} s"
        time.sleep(0.05)


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start_owner(docker_cache: Path) -> Iterator[Start]:
    """A function that starts another aipc: it builds an environment and, given a workspace, runs its job."""
    started: list[subprocess.Popen[str]] = []

    def start(environment: Environment, workspace: Path | str = "", code: Path | str = "") -> subprocess.Popen[str]:
        arguments = (docker_cache, environment.name, environment.folder, workspace, code)
        process = subprocess.Popen(
            (sys.executable, "-c", OWNER, *map(str, arguments)),
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'orchestrator'}:{ROOT}"},
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def containers_of(engine: DockerEngine, pid: int) -> list[str]:
    return [found["Id"] for found in engine.daemon._api.containers(all=True, filters={"label": f"aipc.owner={pid}"})]


def build_containers(engine: DockerEngine, pid: int) -> list[str]:
    """The containers in which the steps of a build of the process `pid` run."""
    found = engine.daemon._api.containers(all=True, filters={"label": "aipc.builder"})
    return [one["Id"] for one in found if one["Labels"]["aipc.builder"].startswith(f"{pid} ")]


# Owners.
def test_an_owner_is_dead_when_its_process_is() -> None:
    assert not current().is_dead()
    process = subprocess.Popen(("sleep", "60"))
    owner = replace(current(), pid=process.pid, started=start_of(process.pid) or 0)
    assert not owner.is_dead()
    process.kill()
    until(owner.is_dead, "the death of a process that nobody has waited for")
    process.wait()
    assert owner.is_dead()


def test_a_number_that_was_given_again_is_another_process() -> None:
    assert replace(current(), started=current().started - 1).is_dead()


def test_an_owner_on_another_machine_or_in_a_container_is_never_said_to_be_dead() -> None:
    dead = replace(current(), pid=2**22 + 1)
    assert dead.is_dead()
    assert not replace(dead, boot="another").is_dead()
    assert not replace(dead, namespace="pid:[1]").is_dead()


def test_an_owner_survives_its_labels_and_its_text() -> None:
    assert Owner.from_labels(current().labels()) == current()
    assert Owner.parse(f"{current()} aipc/tiny:1") == current()
    assert Owner.from_labels({"aipc.owner": "12"}) is None
    assert Owner.parse("") is None


# Which daemon.
@pytest.mark.parametrize("address", ["tcp://127.0.0.1:2375", "ssh://user@board", "http://127.0.0.1:1"])
def test_a_daemon_over_the_network_is_refused_in_a_line(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", address)
    with pytest.raises(EngineError, match=f"{address}: it is no unix:// socket") as caught:
        DockerEngine(tmp_path)
    assert "\n" not in str(caught.value)


def test_no_daemon_is_said_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with pytest.raises(EngineError, match="no such file or directory.*; start Docker or Podman"):
        DockerEngine(tmp_path)


def test_what_a_daemon_cannot_keep_from_a_job_is_told() -> None:
    good = {
        "MemoryLimit": True,
        "SwapLimit": True,
        "PidsLimit": True,
        "SecurityOptions": ["name=seccomp,profile=default"],
    }
    assert uncaged(good) == ()
    assert uncaged({**good, "SecurityOptions": ["name=seccomp,profile=unconfined"]}) == ("system calls",)
    assert uncaged({**good, "SecurityOptions": ["name=apparmor"]}) == ("system calls",)
    assert uncaged({**good, "MemoryLimit": False, "PidsLimit": False}) == ("memory", "processes")
    assert uncaged({**good, "SecurityOptions": ["name=seccomp", "name=selinux"]}) == ("selinux",)
    # What Podman says without root on the first version of cgroups: its limits are not in force.
    assert uncaged({**good, "Rootless": True, "CgroupVersion": "1"}) == ("memory", "swap", "processes")
    assert uncaged({**good, "Rootless": True, "CgroupVersion": "2"}) == ()


# Who dies when.
def test_only_containers_of_dead_owners_are_removed(
    docker_engine: DockerEngine, docker_cache: Path, tiny: Environment, lay: Lay, tmp_path: Path, start_owner: Start
) -> None:
    places = []
    for name in ("killed", "alive"):
        workspace, code = lay(SLEEP)
        places.append((workspace.rename(tmp_path / name), code.rename(tmp_path / f"{name}-code")))
    killed, alive = (start_owner(tiny, *place) for place in places)
    for workspace, _ in places:
        until((workspace / "out" / "begun").exists, "the start of a job")
    elsewhere = docker_engine.daemon._api.create_container(
        docker_engine.tag(tiny), "true", labels=replace(current(), pid=2**22 + 1, boot="another machine's").labels()
    )["Id"]
    try:
        killed.kill()
        killed.wait()
        assert len(containers_of(docker_engine, killed.pid)) == 1
        DockerEngine(docker_cache).close()
        assert containers_of(docker_engine, killed.pid) == []
        assert len(containers_of(docker_engine, alive.pid)) == 1
        assert alive.poll() is None
        assert elsewhere in containers_of(docker_engine, 2**22 + 1)
    finally:
        docker_engine.daemon.remove(elsewhere)
        alive.send_signal(signal.SIGINT)
        assert alive.wait(30) != 0
    assert containers_of(docker_engine, alive.pid) == []


def test_a_killed_build_leaves_nothing_that_is_not_removed_and_is_done_again(
    docker_engine: DockerEngine,
    make_environment: Make,
    wheels: Path,
    start_owner: Start,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    offline(monkeypatch, wheels)
    environment = make_environment("interrupted", dockerfile=steps("RUN sleep 5", "RUN mkdir /made"))
    process = start_owner(environment)
    assert process.stdout is not None
    for line in process.stdout:
        if "step 5 of" in line:
            break
    until(lambda: build_containers(docker_engine, process.pid), "the start of the step")
    process.kill()
    process.wait()
    name = docker_engine.tag(environment)
    assert docker_engine.daemon.find_image(name) is None
    assert len(builders(docker_engine, process.pid)) == 1
    until(lambda: not build_containers(docker_engine, process.pid), "the end of a build whose client is gone")
    docker_engine.ensure(environment, lambda _: None)
    assert docker_engine.daemon.find_image(name) is not None
    assert builders(docker_engine, process.pid) == []


def test_ctrl_c_ends_a_build(
    docker_engine: DockerEngine, make_environment: Make, wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offline(monkeypatch, wheels)
    environment = make_environment("stopped", dockerfile=steps("RUN sleep 50", "RUN mkdir /made"))

    def report(text: str) -> None:
        if "step 5 of" in text:
            raise KeyboardInterrupt

    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        docker_engine.ensure(environment, report)
    assert time.monotonic() - begun < 40
    until(lambda: not build_containers(docker_engine, os.getpid()), "the end of the build")
    assert builders(docker_engine, os.getpid()) == []
    assert docker_engine.daemon.find_image(docker_engine.tag(environment)) is None


Second = subprocess.Popen[bytes]


@pytest.fixture(scope="module")
def second_data() -> Iterator[Path]:
    """The folder of a second daemon, which keeps its images from case to case."""
    # A socket's path may be 107 bytes long at most.
    with tempfile.TemporaryDirectory(prefix="aipc-", ignore_cleanup_errors=True) as short:
        yield Path(short)
        _unmount(short)


@pytest.fixture
def second_daemon(docker_daemon: str, second_data: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Second]:
    """A Docker daemon of the tests' own, which they may kill, with the base image; aipc is pointed at it."""
    assert docker_daemon
    missing = "" if os.getuid() == 0 and shutil.which("dockerd") else "a second dockerd needs root, and dockerd"
    if missing:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(missing)
    run = Path(tempfile.mkdtemp(prefix="run-", dir=second_data))
    argv = ("dockerd", "--iptables=false", "--bridge=none", "--host", f"unix://{run}/d.sock", "--pidfile", f"{run}/pid")
    with (run / "log").open("w") as log:
        process = subprocess.Popen(
            (*argv, "--data-root", f"{second_data}/data", "--exec-root", f"{run}/exec"), stdout=log, stderr=log
        )
    try:
        until((run / "d.sock").exists, "the start of a second dockerd", 30)
        monkeypatch.setenv("DOCKER_HOST", f"unix://{run}/d.sock")
        yield process
    finally:
        helpers = _helpers(run)
        process.terminate()
        process.wait(30)
        for pid in helpers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _helpers(run: Path) -> list[int]:
    """What a daemon has started, all of it with its own folder in the command: it outlives a daemon that is killed."""
    found = subprocess.run(("pgrep", "--full", "--", f"{run}/exec"), capture_output=True, text=True, check=False).stdout
    return [int(pid) for pid in found.split()]


def _unmount(folder: str) -> None:
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for place in sorted((mount for mount in mounts if mount.startswith(f"{folder}/")), reverse=True):
        subprocess.run(("umount", "--lazy", place), check=False)


def copy_image(name: str, giver: DockerEngine, taker: DockerEngine) -> None:
    if taker.daemon.find_image(name) is None:
        with contextlib.closing(giver.daemon._api.get_image(name)) as tar:
            taker.daemon._api.load_image(tar)  # type: ignore[no-untyped-call]


def test_a_daemon_that_dies_in_the_middle_of_a_job_is_an_engine_error(
    docker_engine: DockerEngine, tiny: Environment, second_daemon: Second, lay: Lay, tmp_path: Path
) -> None:
    base = docker_engine.base().image
    engine = DockerEngine(tmp_path / "cache", base)
    for name in (base, docker_engine.tag(tiny)):
        copy_image(name, docker_engine, engine)
    workspace, code = lay(LAST_WORDS)

    def kill() -> None:
        if (workspace / "out" / "begun").exists():
            second_daemon.kill()

    begun = time.monotonic()
    with pytest.raises(
        EngineError, match="the job was running: .*; see whether the daemon still runs, then start again"
    ):
        engine.run(tiny, workspace, code, LIMITS, kill)
    assert time.monotonic() - begun < 30
    assert (workspace / "log.txt").read_text() == "the last words\n"
    assert {path.lstat().st_uid for path in (workspace, *workspace.rglob("*"))} == {os.getuid()}
    with pytest.raises(EngineError, match="start Docker or Podman"):
        DockerEngine(tmp_path / "cache")
    engine.close()
    (workspace / "out" / "stop").touch()


def test_a_build_that_loses_its_daemon_is_an_engine_error_with_the_log(
    docker_engine: DockerEngine,
    second_daemon: Second,
    make_environment: Make,
    wheels: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    offline(monkeypatch, wheels)
    base = docker_engine.base().image
    engine = DockerEngine(tmp_path / "cache", base)
    copy_image(base, docker_engine, engine)
    environment = make_environment("orphaned", dockerfile=steps("RUN sleep 10", "RUN mkdir /made"))

    def report(text: str) -> None:
        if "step 5 of" in text:
            second_daemon.kill()

    with pytest.raises(EngineError, match=r"docker: unix://.*d\.sock|the image could not be built"):
        engine.ensure(environment, report)
    engine.close()
    assert len(list((tmp_path / "cache" / "docker").glob("orphaned-*.log"))) == 1
    assert not list(tmp_path.rglob("*.whl"))
