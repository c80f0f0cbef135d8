"""An orchestrator that is killed or interrupted leaves no job behind; a kill for memory is known."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.engines.wheelhouse import Bench

ORCHESTRATOR = """
import sys
from pathlib import Path
from aipc.environment import Environment
from tests.engines.wheelhouse import Bench

cache, tiny, jobs, group = (Path(argument) for argument in sys.argv[1:5])
if group.is_dir():
    (group / "cgroup.procs").write_text("0")
bench = Bench(cache=cache, environment=Environment(name="tiny", folder=tiny, python="3.11"), folder=jobs)
try:
    ended = bench.run(sys.argv[5], seconds=60).ended
    print("ended", ended.code, ended.out_of_memory)
except KeyboardInterrupt:
    beat = jobs / "job0" / "out" / "beat"
    before = beat.read_text()
    import time; time.sleep(0.3)
    print("interrupted", beat.read_text() == before)
"""
BEATING = """
import os, time
for _ in range(2):
    os.fork()
while True:
    (work / "out" / f"beat{os.getpid()}").write_text(str(time.time()))
    (work / "out" / "beat").write_text(str(time.time()))
    time.sleep(0.02)
"""


@contextmanager
def orchestrator(bench: Bench, source: str, group: Path = Path("none")) -> Iterator[subprocess.Popen[str]]:
    places = (bench.cache, bench.environment.folder, bench.folder, group)
    argv = (sys.executable, "-c", ORCHESTRATOR, *map(str, places), source)
    root = Path(__file__).parents[2]
    with subprocess.Popen(argv, cwd=root, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for_beats(folder: Path) -> None:
    deadline = time.monotonic() + 20
    while len(list(folder.glob("beat?*"))) < 4:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def beats(folder: Path) -> set[str]:
    before = {path.name: path.read_text() for path in folder.iterdir()}
    time.sleep(0.4)
    return {name for name, text in before.items() if (folder / name).read_text() != text}


@pytest.mark.usefixtures("with_cage")
def test_an_orchestrator_that_is_killed_leaves_no_job_in_the_cage(bench: Bench) -> None:
    out = bench.folder / "job0" / "out"
    with orchestrator(bench, BEATING) as process:
        wait_for_beats(out)
        # Where the machine is busy not all of them beat in time.
        assert any(len(beats(out)) == 5 for _ in range(10))
        process.kill()
        process.wait()
    time.sleep(0.5)
    assert beats(out) == set()


@pytest.mark.usefixtures("without_cage")
def test_an_orchestrator_that_is_killed_leaves_no_worker_without_the_cage_either(bench: Bench) -> None:
    out = bench.folder / "job0" / "out"
    source = BEATING.replace("range(2)", "range(0)")
    with orchestrator(bench, source) as process:
        deadline = time.monotonic() + 20
        while not list(out.glob("beat?*")):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert beats(out)
        process.kill()
        process.wait()
    time.sleep(0.5)
    assert beats(out) == set()


@pytest.mark.usefixtures("either")
def test_ctrl_c_ends_the_whole_job_before_it_is_passed_on(bench: Bench) -> None:
    with orchestrator(bench, BEATING) as process:
        wait_for_beats(bench.folder / "job0" / "out")
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=20)
    assert output == "interrupted True\n"


@pytest.mark.usefixtures("either")
def test_a_kill_by_the_kernel_for_memory_is_known(bench: Bench, group: Path) -> None:
    hungry = "held = []\nwhile True: held.append(bytearray(5_000_000))"
    with orchestrator(bench, hungry, group) as process:
        output, _ = process.communicate(timeout=60)
    assert output == "ended 137 True\n"


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group that may use 150 MB of memory; the case is left out where none can be made."""
    root = Path("/sys/fs/cgroup")
    for parent, name in ((root / "memory", "memory.limit_in_bytes"), (root, "memory.max")):
        folder = parent / f"aipc-test-{os.getpid()}"
        try:
            folder.mkdir()
        except OSError:
            continue
        try:
            if (folder / name).exists():
                (folder / name).write_text("150000000")
                yield folder
                return
        finally:
            folder.rmdir()
    pytest.skip("no control group for memory can be made here")
