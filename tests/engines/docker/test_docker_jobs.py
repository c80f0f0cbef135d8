"""A job in a container: what it is told, what is kept from it, and how each of its ends is seen."""

from __future__ import annotations

import json
import os
import signal
import stat
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from aipc.engines import Limits
from aipc.engines.docker import DockerEngine
from aipc.engines.handover import handed_over
from aipc.engines.owner import current
from aipc.environment import Environment
from aipc.errors import EngineError
from tests.engines.docker.conftest import LIMITS, Lay, Make, Try

pytestmark = pytest.mark.container

REPORT = """
import json, pathlib
def report(**facts):
    pathlib.Path("out/facts").write_text(json.dumps(facts))
"""
TRIES = """
import pathlib
def tries(**attempts):
    said = {}
    for name, attempt in attempts.items():
        try:
            attempt()
            said[name] = "done"
        except OSError as error:
            said[name] = error.strerror or str(error)
    return said
"""


def facts(attempt: Try, program: str, limits: Limits = LIMITS) -> dict[str, object]:
    done = attempt(REPORT + TRIES + program, limits=limits)
    assert done.ended.code == 0, done.log
    read = json.loads((done.workspace / "out" / "facts").read_text())
    assert isinstance(read, dict)
    return read


def our_containers(engine: DockerEngine) -> list[str]:
    owner = f"aipc.owner={current().pid}"
    return [found["Id"] for found in engine.daemon._api.containers(all=True, filters={"label": owner})]


@pytest.fixture(autouse=True)
def nothing_stays(docker_engine: DockerEngine) -> Iterator[None]:
    """After every case, however it ended, no container of this process is left."""
    yield
    assert our_containers(docker_engine) == []


# What a job gets.
def test_a_job_gets_its_workspace_its_code_and_its_environment(attempt: Try) -> None:
    got = facts(
        attempt,
        """
import tinything, os, sys
report(argv=sys.argv[1:], cwd=os.getcwd(), read=open("in/model").read(), python=sys.version_info[:2],
       inside=tinything.__file__, prefix=sys.prefix, hash_seed=os.environ["PYTHONHASHSEED"])
""",
    )
    assert got["argv"] == ["/work"]
    assert got["cwd"] == "/work"
    assert got["read"] == "an input"
    assert got["python"] == [3, 11]
    assert str(got["inside"]).startswith("/opt/venv/")
    assert got["prefix"] == "/opt/venv"
    assert got["hash_seed"] == "0"


def test_an_image_holds_the_lock_and_nothing_else(attempt: Try) -> None:
    program = "import importlib.metadata as m\nreport(names=[found.metadata['Name'] for found in m.distributions()])"
    assert facts(attempt, program)["names"] == ["tinything"]


def test_all_that_a_job_prints_is_in_the_log_in_order(attempt: Try) -> None:
    done = attempt(
        "import os, sys\nprint('one')\nos.write(2, b'two\\n')\nos.write(1, b'three\\n')\nprint('four')\nsys.exit(21)"
    )
    assert done.ended.code == 21
    assert done.log == "one\ntwo\nthree\nfour\n"


def test_a_long_log_is_whole(attempt: Try) -> None:
    done = attempt("for number in range(500_000): print('a line of a vendor', number, flush=False)")
    assert done.log.splitlines()[-1] == "a line of a vendor 499999"
    assert len(done.log.splitlines()) == 500_000


def test_poll_is_called_while_a_job_runs(attempt: Try) -> None:
    called: list[float] = []
    attempt("import time; time.sleep(1)", poll=lambda: called.append(time.monotonic()))
    assert 3 <= len(called) <= 12


def test_home_and_temporary_files_are_in_the_workspace(attempt: Try) -> None:
    program = """
import getpass, tempfile
report(home=str(pathlib.Path.home()), tmp=tempfile.gettempdir(), user=getpass.getuser())
"""
    assert facts(attempt, program) == {"home": "/work/tmp", "tmp": "/work/tmp", "user": "aipc"}


# What is kept from a job.
def test_a_job_has_no_network(attempt: Try) -> None:
    program = """
import socket
devices = sorted(path.name for path in pathlib.Path("/sys/class/net").iterdir())
said = tries(connect=lambda: socket.create_connection(("192.0.2.1", 80), timeout=5),
             resolve=lambda: socket.getaddrinfo("example.org", 80))
report(devices=devices, **said)
"""
    got = facts(attempt, program)
    assert got["devices"] == ["lo"]
    assert got["connect"] == "Network is unreachable"
    assert got["resolve"] != "done"


def test_only_the_workspace_can_be_written(attempt: Try) -> None:
    program = """
def write(path): return lambda: pathlib.Path(path).write_text("x")
report(**tries(root=write("/x"), environment=write("/opt/venv/x"), code=write("/aipc/runtimes/x"),
               etc=write("/etc/passwd"), workspace=write("/work/x")))
"""
    read_only = "Read-only file system"
    assert facts(attempt, program) == {
        "root": read_only,
        "environment": read_only,
        "code": read_only,
        "etc": read_only,
        "workspace": "done",
    }


def test_a_job_cannot_forge_its_inputs(attempt: Try) -> None:
    program = """
import os, shutil
report(write=tries(it=lambda: pathlib.Path("in/model").write_text("forged"))["it"],
       add=tries(it=lambda: pathlib.Path("in/more").write_text("forged"))["it"],
       remove=tries(it=lambda: os.unlink("in/model"))["it"],
       rename=tries(it=lambda: os.rename("in", "in2"))["it"],
       chmod=tries(it=lambda: os.chmod("in/model", 0o777))["it"],
       link=tries(it=lambda: os.link("in/model", "out/model"))["it"])
"""
    read_only = "Read-only file system"
    assert facts(attempt, program) == {
        "write": read_only,
        "add": read_only,
        "remove": read_only,
        "rename": "Device or resource busy",
        "chmod": read_only,
        "link": "Invalid cross-device link",
    }


def test_a_job_is_an_ordinary_user_without_any_capability(attempt: Try) -> None:
    program = """
import os
lines = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
report(user=os.getuid(), group=os.getgid(), groups=os.getgroups(), privileges=lines["NoNewPrivs"],
       capabilities=[lines[name].strip("0") for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")])
"""
    got = facts(attempt, program)
    assert got["user"] == (os.getuid() or 65532)
    assert got["group"] == (os.getgid() or 65532)
    assert got["privileges"] == "1"
    assert got["capabilities"] == [""] * 5


def test_a_job_sees_nothing_of_the_user_s_own_environment(
    docker_engine: DockerEngine, docker_cache: Path, tiny: Environment, lay: Lay, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert docker_engine.name == "docker"
    monkeypatch.setenv("SECRET_TOKEN", "xyzzy")
    monkeypatch.setenv("DOCKER_CONFIG", str(docker_cache / "user"))
    (docker_cache / "user").mkdir()
    proxies = {"default": {"httpProxy": "http://user:xyzzy@127.0.0.1:3128"}}
    (docker_cache / "user" / "config.json").write_text(json.dumps({"proxies": proxies}))
    engine = DockerEngine(docker_cache)
    workspace, code = lay("import os\nprint(sorted(os.environ.items()))")
    assert engine.run(tiny, workspace, code, LIMITS, lambda: None).code == 0
    engine.close()
    said = (workspace / "log.txt").read_text()
    assert "PYTHONPATH" in said
    assert "xyzzy" not in said


def test_a_job_cannot_drop_its_memory_into_the_workspace(attempt: Try) -> None:
    program = "import resource\nreport(core=resource.getrlimit(resource.RLIMIT_CORE))"
    assert facts(attempt, program) == {"core": [0, 0]}


def test_processes_are_counted(attempt: Try) -> None:
    program = """
import subprocess, time
children = []
def start():
    for _ in range(60):
        children.append(subprocess.Popen(("sleep", "30")))
said = tries(start=start)
for child in children: child.kill()
report(started=len(children), **said)
"""
    got = facts(attempt, program, replace(LIMITS, processes=20))
    assert got["start"] == "Resource temporarily unavailable"
    assert int(str(got["started"])) < 20


def test_everything_is_caged(attempt: Try, docker_engine: DockerEngine) -> None:
    # Without swap accounting in the kernel a daemon says so itself; nothing else may be left out.
    assert set(attempt("").ended.uncaged) == set(docker_engine.daemon.uncaged) <= {"swap"}


# How a job ends.
def test_a_job_killed_for_memory_is_known_as_such(attempt: Try) -> None:
    done = attempt(
        "print('before')\nbytearray(600_000_000)\nprint('after')", limits=replace(LIMITS, memory_bytes=100_000_000)
    )
    assert done.ended.out_of_memory
    assert done.ended.code == 128 + signal.SIGKILL
    assert done.log == "before\n"


def test_a_job_that_kills_itself_was_not_killed_for_memory(attempt: Try) -> None:
    done = attempt("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
    assert (done.ended.code, done.ended.out_of_memory, done.ended.timed_out) == (128 + signal.SIGKILL, False, False)


def test_a_crash_keeps_its_signal_and_the_end_of_the_log(attempt: Try) -> None:
    done = attempt("import ctypes\nprint('the last words')\nctypes.string_at(0)")
    assert done.ended.code == 128 + signal.SIGSEGV
    assert done.log.startswith("the last words\n")
    assert "Segmentation fault" in done.log


def test_an_abort_keeps_its_signal(attempt: Try) -> None:
    assert attempt("import os; os.abort()").ended.code == 128 + signal.SIGABRT


def test_time_over_kills_all_that_a_job_started(attempt: Try) -> None:
    program = """
import signal, subprocess, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen(("sh", "-c", "trap '' TERM; while true; do date > /work/out/alive; sleep 0.1; done"))
print("begun")
time.sleep(60)
"""
    begun = time.monotonic()
    done = attempt(program, limits=replace(LIMITS, seconds=1.5))
    assert done.ended.timed_out
    assert done.ended.code == 128 + signal.SIGKILL
    assert done.log == "begun\n"
    assert time.monotonic() - begun < 10
    last = (done.workspace / "out" / "alive").stat().st_mtime_ns
    time.sleep(0.5)
    assert (done.workspace / "out" / "alive").stat().st_mtime_ns == last


def test_what_a_job_leaves_running_ends_with_it(attempt: Try) -> None:
    program = """
import subprocess, time
subprocess.Popen(("sh", "-c", "while true; do date > /work/out/alive; sleep 0.1; done"), start_new_session=True)
time.sleep(0.5)
"""
    alive = attempt(program).workspace / "out" / "alive"
    last = alive.stat().st_mtime_ns
    time.sleep(0.5)
    assert alive.stat().st_mtime_ns == last


def test_ctrl_c_ends_the_job_and_is_passed_on(attempt: Try, docker_engine: DockerEngine, tmp_path: Path) -> None:
    def interrupt() -> None:
        if (tmp_path / "attempt" / "out" / "begun").exists():
            os.kill(os.getpid(), signal.SIGINT)

    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        attempt("import time\nopen('out/begun', 'w')\ntime.sleep(60)", poll=interrupt)
    assert our_containers(docker_engine) == []
    assert (tmp_path / "attempt" / "out").stat().st_uid == os.getuid()
    assert time.monotonic() - begun < 10


def test_an_image_that_is_gone_is_said_in_a_line(
    docker_engine: DockerEngine,
    make_environment: Make,
    lay: Lay,
) -> None:
    with pytest.raises(EngineError, match=r"aipc/unbuilt:[0-9a-f]{16}: the image is gone from the daemon; start again"):
        docker_engine.run(make_environment("unbuilt"), *lay(""), LIMITS, lambda: None)


def test_a_workspace_without_inputs_is_refused(docker_engine: DockerEngine, tiny: Environment, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"making a container of .*; see what it says"):
        docker_engine.run(tiny, tmp_path, tmp_path, LIMITS, lambda: None)


# What a job leaves.
def test_what_a_job_made_belongs_to_the_user(attempt: Try, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.touch()
    os.chown(secret, os.getuid(), os.getgid())
    program = f"""
import os
os.makedirs("out/deep/er")
open("out/deep/er/file", "w").close()
os.symlink({str(secret)!r}, "out/link")
os.mkfifo("out/pipe")
os.chmod("out/deep", 0)
open("out/setuid", "w").close()
os.chmod("out/setuid", 0o4755)
"""
    done = attempt(program)
    assert done.ended.code == 0, done.log
    (done.workspace / "out" / "deep").chmod(0o700)
    found = [done.workspace, *done.workspace.rglob("*")]
    assert len(found) > 8
    assert {(path.lstat().st_uid, path.lstat().st_gid) for path in found} == {(os.getuid(), os.getgid())}


@pytest.mark.skipif(os.getuid() != 0, reason="only root can hand a workspace over")
def test_a_setuid_file_of_a_job_does_not_become_root_s(attempt: Try) -> None:
    done = attempt(
        "import os\nopen('out/setuid', 'w').close()\nos.chmod('out/setuid', 0o6755)\n"
        "assert os.stat('out/setuid').st_mode & 0o4000"
    )
    assert done.ended.code == 0, done.log
    assert not (done.workspace / "out" / "setuid").stat().st_mode & (stat.S_ISUID | stat.S_ISGID)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can hand a workspace over")
def test_a_workspace_is_taken_back_after_a_failure_and_no_link_is_followed(tmp_path: Path) -> None:
    workspace, outside = tmp_path / "attempt", tmp_path / "outside"
    for folder in (workspace, tmp_path / "code", outside):
        folder.mkdir()
    (outside / "file").touch()
    (workspace / "link").symlink_to(outside)
    (workspace / "file").touch()
    owners: list[int] = []

    def fail() -> None:
        with handed_over(workspace, tmp_path / "code", 65532):
            owners.extend(path.lstat().st_uid for path in (workspace / "file", workspace / "link", outside / "file"))
            raise EngineError("the daemon died")

    with pytest.raises(EngineError, match="died"):
        fail()
    assert owners == [65532, 65532, 0]
    assert {path.lstat().st_uid for path in (workspace, *workspace.iterdir())} == {0}


@pytest.mark.skipif(os.getuid() != 0, reason="only root hands a workspace over")
def test_a_strict_umask_does_not_keep_a_job_from_its_code_and_inputs(attempt: Try) -> None:
    before = os.umask(0o077)
    try:
        assert facts(attempt, "report(read=open('in/model').read())") == {"read": "an input"}
    finally:
        os.umask(before)
