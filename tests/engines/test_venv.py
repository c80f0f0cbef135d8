"""How jobs of the venv engine end, what they see of the machine, and what is kept of them."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from aipc.engines import Limits, cage, install, interpreter
from aipc.engines.venv import VenvEngine
from aipc.errors import EngineError
from runtimes.contract import describe_exit
from tests.engines.wheelhouse import Bench, make_workspace


def test_a_job_runs_in_its_workspace_with_the_packages_of_its_environment(bench: Bench, either: bool) -> None:
    out = bench.run(
        "import os, sys, tinything\n"
        "(work / 'out' / 'made').write_text(tinything.VERSION)\n"
        "print('cwd', os.getcwd(), 'work', work, 'user', os.getuid())\n"
    )
    assert out.ended.code == 0
    assert (out.workspace / "out" / "made").read_text() == "1.0"
    seen = Path("/work") if either else out.workspace
    assert f"cwd {seen} work {seen} user {cage.USER if either else os.getuid()}" in out.log


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("code", [0, 1, 20, 21, 22, 23, 77])
def test_the_exit_code_is_the_workers_own(bench: Bench, code: int) -> None:
    assert bench.run(f"raise SystemExit({code})").ended.code == code


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("import ctypes; ctypes.string_at(0)", 139),
        ("import os; os.kill(os.getpid(), 11)", 139),
        ("import os; os.abort()", 134),
        ("import os; os.kill(os.getpid(), 9)", 137),
    ],
)
def test_a_death_by_a_signal_has_the_same_code_with_the_cage_and_without(bench: Bench, source: str, code: int) -> None:
    out = bench.run(f"print('before', flush=False)\n{source}")
    assert out.ended.code == code
    assert describe_exit(out.ended.code) == describe_exit(128 - code)
    assert not out.ended.timed_out
    # A kill that is not the kernel's for memory is not taken for one.
    assert not out.ended.out_of_memory


@pytest.mark.usefixtures("either")
def test_a_crash_keeps_the_end_of_the_log_and_says_where(bench: Bench) -> None:
    out = bench.run("import os, ctypes\nprint('the last words')\nos.write(2, b'of C')\nctypes.string_at(0)")
    assert "the last words\nof C" in out.log
    assert "Segmentation fault" in out.log
    assert '"job.py", line 4' in out.log


@pytest.mark.usefixtures("either")
def test_a_job_that_takes_too_long_is_killed_with_all_that_it_started(bench: Bench) -> None:
    began = time.monotonic()
    out = bench.run(
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    while True: (work / 'out' / 'beat').write_text(str(time.time())); time.sleep(0.02)\n"
        "print('started')\n"
        "time.sleep(60)\n",
        seconds=1,
    )
    assert out.ended.timed_out
    assert out.ended.code == 128 + signal.SIGKILL
    assert not out.ended.out_of_memory
    assert 1 <= out.ended.seconds < 5
    assert time.monotonic() - began < 5
    assert "started" in out.log
    assert beats(out.workspace) == []


def beats(workspace: Path) -> list[str]:
    """Return what the job's heartbeat says, if it still beats."""
    beat = workspace / "out" / "beat"
    before = beat.read_text()
    time.sleep(0.3)
    return [after for after in [beat.read_text()] if after != before]


@pytest.mark.usefixtures("either")
def test_what_a_job_leaves_running_ends_with_it(bench: Bench) -> None:
    out = bench.run(
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    while True: (work / 'out' / 'beat').write_text(str(time.time())); time.sleep(0.02)\n"
        "while not (work / 'out' / 'beat').exists(): time.sleep(0.01)\n"
    )
    assert out.ended.code == 0
    assert out.ended.seconds < 5
    assert beats(out.workspace) == []


@pytest.mark.usefixtures("with_cage")
def test_when_a_job_of_many_processes_was_killed_all_of_them_are_gone(bench: Bench) -> None:
    out = bench.run(
        "import os, time\n"
        "held = bytearray(50_000_000)\n"
        "for number in range(60):\n"
        "    if os.fork() == 0:\n"
        "        held[::4096] = bytes(len(held[::4096]))\n"
        "        time.sleep(60)\n"
        "time.sleep(60)\n",
        seconds=2,
    )
    left = processes_that_see(out.workspace)
    assert out.ended.timed_out
    assert left == []


def processes_that_see(workspace: Path) -> list[str]:
    """Return the processes of the machine that have `workspace` among their mounts."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if str(workspace) in (process / "mountinfo").read_text():
                found.append((process / "cmdline").read_text())
    return found


@pytest.mark.usefixtures("with_cage")
def test_in_the_cage_even_a_session_of_its_own_ends_with_the_job(bench: Bench) -> None:
    out = bench.run(
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    while True: (work / 'out' / 'beat').write_text(str(time.time())); time.sleep(0.02)\n"
        "while not (work / 'out' / 'beat').exists(): time.sleep(0.01)\n"
    )
    assert out.ended.code == 0
    assert beats(out.workspace) == []


@pytest.mark.usefixtures("either")
def test_a_job_that_takes_too_much_memory_is_told_no(bench: Bench) -> None:
    source = "size = 300_000_000\ntry:\n    bytearray(size)\nexcept MemoryError:\n    raise SystemExit(21)\n"
    assert bench.run(source, memory_bytes=200_000_000).ended.code == 21
    assert bench.run(source, memory_bytes=900_000_000).ended.code == 0


@pytest.mark.usefixtures("either")
def test_poll_is_called_about_five_times_a_second_and_the_end_is_not_waited_for(bench: Bench) -> None:
    polled: list[float] = []
    out = bench.run("import time; time.sleep(1.1)", poll=lambda: polled.append(time.monotonic()))
    assert 4 <= len(polled) <= 6
    # One round of polling is 0.2 s; a job that does nothing is over much sooner.
    quick = min(bench.run("pass", poll=lambda: polled.append(0)).ended.seconds for _ in range(5))
    assert quick < 0.15
    assert out.ended.seconds > 1


@pytest.mark.usefixtures("either")
def test_an_error_in_poll_ends_the_job_before_it_is_passed_on(bench: Bench) -> None:
    def stop() -> None:
        if (bench.folder / "job0" / "out" / "beat").exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bench.run(
            "import time\nwhile True: (work / 'out' / 'beat').write_text(str(time.time())); time.sleep(0.02)", poll=stop
        )
    assert beats(bench.folder / "job0") == []


@pytest.mark.usefixtures("either")
def test_a_job_gets_none_of_the_users_variables(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", "secret")
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    out = bench.run("import os; print(*sorted(os.environ))")
    venv = install.place(bench.cache, bench.environment)
    known = {*cage.variables(venv, out.workspace, out.workspace), "PWD", "LC_CTYPE"}
    assert set(out.log.split()) <= known
    assert {"HOME", "TMPDIR", "XDG_CACHE_HOME"} <= set(out.log.split())


@pytest.mark.usefixtures("either")
def test_home_and_temporary_files_of_a_job_lie_in_its_workspace(bench: Bench) -> None:
    out = bench.run(
        "import os, tempfile, pathlib\n"
        "for folder in (tempfile.gettempdir(), pathlib.Path.home(), os.environ['XDG_CACHE_HOME']):\n"
        "    print(pathlib.Path(folder).is_relative_to(work / 'tmp'))\n"
        "tempfile.NamedTemporaryFile().write(b'x')\n"
        "import getpass; print(getpass.getuser())\n"
    )
    assert out.log.split() == ["True", "True", "True", "aipc"]


@pytest.mark.usefixtures("either")
def test_the_log_is_added_to_and_never_cut(bench: Bench) -> None:
    out = bench.run("import os\nprint('one')\nos.system('echo two; echo three >&2')")
    assert out.log.split() == ["one", "two", "three"]


def test_what_is_not_caged_is_said(bench: Bench, either: bool) -> None:
    uncaged = bench.run("pass").ended.uncaged
    if either:
        assert uncaged == cage.not_kept()
        assert cage.PER_PROCESS in uncaged
        assert not {"network", "file system", "other processes"} & set(uncaged)
    else:
        assert uncaged == cage.UNCAGED
        assert {"network", "file system", "other processes"} <= set(uncaged)


@pytest.mark.usefixtures("without_cage")
def test_that_there_is_no_cage_is_reported_once(bench: Bench) -> None:
    lines: list[str] = []
    engine = VenvEngine(bench.cache, "test")
    engine.ensure(bench.environment, lines.append)
    engine.ensure(bench.environment, lines.append)
    assert lines == ["jobs of tiny run without a cage: bubblewrap is not installed (apt-get install bubblewrap)"]


@pytest.mark.usefixtures("with_cage")
def test_a_bubblewrap_that_does_not_work_is_noticed_by_trying_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "bin" / "bwrap"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{broken.parent}:{os.environ['PATH']}")
    assert cage.why_not() == "bubblewrap does not work here: bwrap: No permissions to create new namespace"
    out = bench.run("print('done')")
    assert out.ended.uncaged == cage.UNCAGED
    assert "done" in out.log


@pytest.mark.usefixtures("with_cage")
def test_a_cage_that_cannot_be_made_is_no_crash_of_the_job(bench: Bench) -> None:
    workspace = make_workspace(bench.folder / "job", "pass")
    shutil.rmtree(workspace / "in")
    limits = Limits(seconds=9, memory_bytes=10**9)
    with pytest.raises(EngineError, match=r"(?s)bubblewrap could not make the cage.*bwrap: .*job/in"):
        VenvEngine(bench.cache, "test").run(bench.environment, workspace, bench.folder, limits, lambda: None)


@pytest.mark.usefixtures("with_cage")
def test_a_bubblewrap_that_hangs_is_killed_when_the_time_is_over(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    engine = VenvEngine(bench.cache, "test")
    assert bench.run("pass", engine=engine).ended.code == 0  # this is when the engine finds that the cage works
    hanging = tmp_path / "bin" / "bwrap"
    hanging.parent.mkdir()
    hanging.write_text("#!/bin/sh\nexec sleep 20\n")
    hanging.chmod(0o755)
    monkeypatch.setenv("PATH", f"{hanging.parent}:{os.environ['PATH']}")
    polled: list[float] = []
    out = bench.run("pass", engine=engine, seconds=0.7, poll=lambda: polled.append(time.monotonic()))
    assert out.ended.timed_out
    assert out.ended.seconds < 5
    assert len(polled) == 3


def test_a_program_that_is_missing_is_named_with_its_package(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EngineError, match=r"setpriv is not installed; install it: apt-get install util-linux"):
        bench.run("pass")


def test_an_environment_that_is_not_built_is_no_crash_of_the_job(bench: Bench, tmp_path: Path) -> None:
    missing = replace(bench, cache=tmp_path / "empty")
    with pytest.raises(EngineError, match="environment tiny: it is not built"):
        missing.run("pass")


def test_identity_is_fast_and_names_the_actual_interpreter(bench: Bench, tmp_path: Path) -> None:
    engine = VenvEngine(bench.cache, "test")
    found = interpreter.find("3.11", print)
    began = time.monotonic()
    identity = engine.identity(bench.environment)
    assert time.monotonic() - began < 0.02
    assert (identity.engine, identity.environment, identity.base_image) == ("venv", "tiny", "")
    assert identity.digest == bench.environment.digest
    assert identity.interpreter == found.name
    # Before it is built it is the same one, or a result would be stored under another key than it is looked for.
    assert VenvEngine(tmp_path / "empty", "test").identity(bench.environment) == identity
    assert not (tmp_path / "empty").exists()


def test_identity_follows_an_interpreter_that_was_replaced(bench: Bench, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    folder = install.place(cache, bench.environment)
    shutil.copytree(install.place(bench.cache, bench.environment), folder, symlinks=True)
    marker = folder / install.MARKER
    marker.write_text(marker.read_text().replace(interpreter.find("3.11", print).name, "cpython-3.11.0"))
    engine = VenvEngine(cache, "test")
    assert engine.identity(bench.environment).interpreter == "cpython-3.11.0"
    done = install.complete(folder)
    assert done
    marker.write_text(marker.read_text().replace(done.stamp, "another file"))
    assert engine.identity(bench.environment).interpreter == interpreter.find("3.11", print).name
