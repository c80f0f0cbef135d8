"""What the cage keeps from a job: what a job cannot do in it, it can without, or the case would prove nothing."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import aipc
from aipc.engines import cage, install
from tests.engines.wheelhouse import Bench

DONE = "it is done"


@dataclass(frozen=True)
class Machine:
    """What is on the host and not meant for a job."""

    secret: Path
    port: int
    name: str


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    home = tmp_path / "home"
    home.mkdir()
    (home / "secret").write_text("mine")
    name = f"aipc-test-{os.getpid()}"
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as bus:
        bus.bind(f"\0{name}")
        bus.listen()
        yield Machine(secret=home / "secret", port=server.getsockname()[1], name=name)


FORBIDDEN = {
    "write to its inputs": "(work / 'in' / 'forged').write_text('x')",
    "replace its inputs": "os.rename(work / 'in', work / 'old'); os.mkdir(work / 'in')",
    "reach the network": "socket.create_connection(('127.0.0.1', PORT), timeout=5)",
    "reach a service of the session": "socket.socket(socket.AF_UNIX).connect(chr(0) + NAME)",
    "read the home folder": "open(SECRET).read()",
    "write to its code": "(pathlib.Path(sys.path[0]) / 'runtimes' / 'kit' / 'more.py').write_text('x')",
    "write to its environment": "(pathlib.Path(sys.prefix) / 'more').write_text('x')",
    "see other processes": "open(f'/proc/{PID}/status')",
    "signal other processes": "os.kill(PID, 0)",
}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_a_job_cannot(what: str, bench: Bench, machine: Machine, either: bool) -> None:
    known = {"PORT": machine.port, "NAME": machine.name, "SECRET": str(machine.secret), "PID": os.getpid()}
    lines = [f"{name} = {value!r}" for name, value in known.items()]
    source = "\n".join(["import os, pathlib, socket, sys", *lines, FORBIDDEN[what], f"print({DONE!r})"])
    out = bench.run(source)
    if either:
        assert out.ended.code == 1, out.log
        assert "Error" in out.log
        assert DONE not in out.log
    else:
        assert DONE in out.log, out.log
    (install.place(bench.cache, bench.environment) / "more").unlink(missing_ok=True)


@pytest.mark.usefixtures("with_cage")
def test_a_job_can_write_only_into_its_workspace(bench: Bench) -> None:
    out = bench.run(
        "import os\n"
        "for parent, _, _ in os.walk('/'):\n"
        "    if not parent.startswith(('/proc', '/work', '/tmp', '/dev')) and os.access(parent, os.W_OK):\n"
        "        print(parent)\n"
    )
    assert out.log == ""


@pytest.mark.usefixtures("with_cage")
def test_a_job_has_no_capabilities_and_gets_none(bench: Bench) -> None:
    out = bench.run("print(*(line for line in open('/proc/self/status') if line.startswith(('Cap', 'NoNew'))))")
    values = [line.split()[1] for line in out.log.splitlines() if line.strip()]
    assert values == ["0" * 16] * 5 + ["1"]


@pytest.mark.usefixtures("with_cage")
def test_a_job_sees_no_name_of_the_machine_and_no_user_of_it(bench: Bench) -> None:
    out = bench.run(
        "import os, platform\nprint(platform.node(), os.getuid(), os.getgid(), os.path.exists('/etc/passwd'))"
    )
    assert out.log.split() == ["aipc", str(cage.USER), str(cage.USER), "False"]


@pytest.mark.usefixtures("with_cage")
def test_a_job_has_the_programs_and_folders_that_tools_take_for_granted(bench: Bench) -> None:
    out = bench.run(
        "import os, subprocess, tempfile, multiprocessing\n"
        "subprocess.run(['sh', '-c', 'echo shell; ls -d /bin/sh /usr/bin/env /dev/null /proc/cpuinfo'], check=True)\n"
        "open('/tmp/file', 'w').write('x'); open('/dev/shm/file', 'w').write('x')\n"
        "print(multiprocessing.Lock() is not None, os.cpu_count(), os.path.isdir('/sys/devices/system/cpu'))\n"
    )
    assert out.ended.code == 0, out.log
    assert out.log.split() == [
        "shell",
        "/bin/sh",
        "/dev/null",
        "/proc/cpuinfo",
        "/usr/bin/env",
        "True",
        str(os.cpu_count()),
        "True",
    ]
    # What is written to /tmp is on the disk, where it counts against no memory.
    assert (out.workspace / "tmp" / "file").read_text() == "x"


USER_SCRIPT = """
import os, sys
from pathlib import Path
from aipc.engines import install
from tests.engines.wheelhouse import Bench, make_environment, make_wheel

folder = Path(sys.argv[1])
(folder / "jobs").mkdir()
environment = make_environment(folder / "tiny", [make_wheel(folder / "wheels", "tinything", "1.0")])
bench = Bench(cache=folder / "cache", environment=environment, folder=folder / "jobs")
install.ensure(bench.cache, environment, print)
out = bench.run(Path(sys.argv[2]).read_text(), processes=50)
print(os.getuid(), out.ended.code, out.ended.uncaged, out.log)
"""
FORKING = """
import os, time
held = 0
try:
    while held < 200:
        if os.fork() == 0:
            time.sleep(30)
        held += 1
except BlockingIOError:
    print("stopped below 50", 10 < held < 50)
"""


@pytest.mark.usefixtures("with_cage")
def test_another_user_than_root_is_caged_too_and_the_processes_of_a_job_are_counted() -> None:
    python = "/usr/bin/python3.11"
    other = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--")
    if os.getuid() != 0:
        pytest.skip("only root can become another user")
    if subprocess.run((*other, python, "-c", "import ensurepip"), capture_output=True, check=False).returncode != 0:
        pytest.skip(f"{python} with its venv module is not installed")
    # Not below pytest's own folder, which is closed to other users.
    with tempfile.TemporaryDirectory(prefix="aipc-test-") as name:
        folder = Path(name)
        (folder / "job.py").write_text(FORKING)
        (folder / "script.py").write_text(USER_SCRIPT)
        os.chown(folder, 65534, 65534)
        root = Path(aipc.__file__).parents[2]
        variables = {
            "PATH": "/usr/bin:/bin",
            "HOME": name,
            "PYTHONPATH": f"{root / 'orchestrator'}:{root}",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": f"{name}/wheels",
        }
        argv = (*other, python, f"{name}/script.py", name, f"{name}/job.py")
        done = subprocess.run(argv, env=variables, cwd=name, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    last = done.stdout.strip().splitlines()[-1]
    assert last == f"65534 0 ('{cage.PER_PROCESS}',) stopped below 50 True", done.stdout
