"""A kill at any moment loses at most the step that ran: the same command completes, and half a result is never used."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from aipc.store import Store
from tests.command import Aipc, tiny

DRIVER = """
import os, signal, sys
from pathlib import Path
import aipc.store, aipc.jobs, aipc.workspace, aipc.reports.publish
from aipc.cli import main

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

def die_after(target, name, step):
    whole = getattr(target, name)
    def dying(*arguments, **named):
        made = whole(*arguments, **named)
        if step is None or "convert" in repr(arguments):
            die()
        return made
    setattr(target, name, dying)

def die_before(target, name):
    whole = getattr(target, name)
    def dying(*arguments, **named):
        if "convert" in repr(arguments):
            die()
        return whole(*arguments, **named)
    setattr(target, name, dying)

point = sys.argv.pop(1)
if point == "the workspace is laid":
    die_after(aipc.workspace, "lay", "convert")
elif point == "the result is there, the store does not have it":
    die_before(aipc.store.Store, "put")
elif point == "half of the entry is written":
    whole = aipc.store.Store.put
    def put(self, record, key, out, log):
        if record.parts["step"] == "convert":
            aipc.store._flush = die
        return whole(self, record, key, out, log)
    aipc.store.Store.put = put
elif point == "the entry is in the store":
    die_after(aipc.store.Store, "put", "convert")
elif point == "half of the run folder is written":
    aipc.reports.publish.html.write = die
elif point == "between the two renames of the run folder":
    whole = Path.rename
    def rename(self, target):
        made = whole(self, target)
        if str(target).endswith(".old"):
            die()
        return made
    Path.rename = rename
sys.argv[0] = "aipc"
main()
"""
"""The command, which kills itself at the point that its first argument names."""

POINTS = [
    "the workspace is laid",
    "the result is there, the store does not have it",
    "half of the entry is written",
    "the entry is in the store",
    "half of the run folder is written",
]


def run_driver(aipc: Aipc, point: str) -> int:
    argv = [sys.executable, "-P", "-c", DRIVER, point, *aipc.deploy_argv(*tiny(), "--engine", "venv")[4:]]
    return subprocess.run(argv, env=aipc.variables(), capture_output=True, check=False).returncode


def assert_all_is_whole(aipc: Aipc) -> None:
    """What lies under a key is whole: `get` drops what is not, so nothing may go missing."""
    store = Store(aipc.store)
    for key in store.list_keys():
        assert store.get(key) is not None
    reports = list(aipc.runs.rglob("report.json"))
    for report in reports:
        if not report.parent.name.startswith("."):
            assert json.loads(report.read_text())["verdict"] == "agrees"


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_at_a_named_point_is_made_good_by_the_next_deploy(aipc: Aipc, point: str) -> None:
    assert run_driver(aipc, point) == -signal.SIGKILL
    assert_all_is_whole(aipc)
    before = aipc.steps_in_store()
    assert before.get("convert", 0) == (0 if POINTS.index(point) < 3 else 1)
    done = aipc.tiny()
    assert done.code == 0, done.out + done.error
    assert done.out.count("in the store") == sum(before.values())
    assert aipc.report()["verdict"] == "agrees"
    assert not list((aipc.store / "tmp").iterdir())
    assert not list(aipc.runs.rglob(".*"))


def test_a_kill_between_the_renames_of_a_run_folder_is_made_good(aipc: Aipc) -> None:
    assert aipc.tiny().code == 0
    (page,) = aipc.runs.rglob("report.html")
    page.unlink()
    assert run_driver(aipc, "between the two renames of the run folder") == -signal.SIGKILL
    assert aipc.tiny().code == 0
    assert page.exists()
    assert not list(aipc.runs.rglob(".*"))


@pytest.mark.timeout(600)
def test_kills_at_twenty_random_moments_lose_nothing_that_was_done(aipc: Aipc) -> None:
    began = time.monotonic()
    assert aipc.tiny().code == 0
    whole_seconds = time.monotonic() - began
    wanted = aipc.artifact()
    draw = random.Random(20)
    killed = 0
    rounds = 0
    while killed < 20:
        rounds += 1
        mine = Aipc(aipc.folder / f"round{rounds}")
        mine.folder.mkdir()
        for _ in range(4):
            argv = mine.deploy_argv(*tiny(), "--engine", "venv")
            process = subprocess.Popen(
                argv, env=mine.variables(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
            )
            try:
                process.wait(draw.uniform(0.0, whole_seconds * 0.8))
            except subprocess.TimeoutExpired:
                os.kill(process.pid, signal.SIGKILL)
                killed += 1
            process.wait()
            assert_all_is_whole(mine)
            if process.returncode == 0:
                break
        done = mine.tiny()
        assert done.code == 0, done.out + done.error
        assert mine.artifact() == wanted
    assert rounds <= 25


SLOWLY = """
    import time
    half = artifact / "half.bin"
    half.write_bytes(b"x" * 1000)
    time.sleep(2)
    half.write_bytes(b"x" * 2000)
    time.sleep(2)
"""
"""Goes into the sixth runtime's adapter: it writes one more file, slowly."""


@pytest.mark.parametrize(("size", "point"), [(1000, "mid-artefact"), (2000, "artefact without result")])
def test_a_kill_while_the_toolchain_works_ends_its_job_and_is_made_good(
    tmp_path: Path, sixth: Path, size: int, point: str
) -> None:
    adapter = sixth / "runtimes" / "sixth" / "adapter.py"
    adapter.write_text(adapter.read_text().replace("    artifact.mkdir()\n", f"    artifact.mkdir()\n{SLOWLY}", 1))
    aipc = Aipc(tmp_path, {"AIPC_HOME": str(sixth)})
    argv = aipc.deploy_argv(*tiny("sixth"), "--engine", "venv")
    process = subprocess.Popen(argv, env=aipc.variables(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline and size not in half_sizes(aipc):
        time.sleep(0.02)
    jobs = descendants(process.pid)
    process.kill()
    process.wait()
    assert size in half_sizes(aipc), point
    assert len(jobs) >= 2
    wait_until_gone(jobs)
    assert "convert" not in aipc.steps_in_store()
    assert_all_is_whole(aipc)
    done = aipc.tiny(runtime="sixth")
    assert done.code == 0, done.out + done.error
    sizes = {each["name"]: each["size_bytes"] for each in aipc.report()["artifact"]["components"]}
    assert sizes["half.bin"] == 2000
    assert not list((aipc.store / "tmp").iterdir())


def half_sizes(aipc: Aipc) -> list[int]:
    return [path.stat().st_size for path in aipc.store.glob("tmp/work-*/attempt/out/artifact/half.bin")]


def descendants(pid: int) -> list[int]:
    """Return the processes below `pid`, whatever they are called."""
    parents = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                parents[int(path.name)] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found = [pid]
    for parent in found:
        found += [child for child, of in parents.items() if of == parent]
    return found[1:]


def wait_until_gone(processes: list[int]) -> None:
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{each}").exists() for each in processes):
        assert time.monotonic() < deadline, processes
        time.sleep(0.05)


@pytest.mark.parametrize("step", ["prepare", "export", "convert", "run", "judge"])
def test_ctrl_c_ends_any_step_with_one_line_and_keeps_what_was_done(aipc: Aipc, step: str) -> None:
    argv = aipc.deploy_argv(*tiny(), "--engine", "venv")
    process = subprocess.Popen(
        argv, env=aipc.variables(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline and not is_running(aipc, step):
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert error.strip().splitlines()[-1].startswith("aipc: interrupted")
    assert "Traceback" not in error
    before = aipc.steps_in_store()
    assert step not in before
    assert not list((aipc.store / "tmp").iterdir())
    done = aipc.tiny()
    assert done.code == 0
    assert done.out.count("in the store") == sum(before.values())


def is_running(aipc: Aipc, step: str) -> bool:
    for path in aipc.store.glob("tmp/work-*/attempt/job.json"):
        try:
            if json.loads(path.read_text())["step"] == step:
                return True
        except (OSError, ValueError):
            continue
    return False
