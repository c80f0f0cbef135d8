"""Environments on the disk: whole or rebuilt, one build at a time, and pip's own words where it fails."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from aipc.engines import install
from aipc.environment import Environment
from aipc.errors import EngineError, UsageError
from tests.engines.conftest import offline
from tests.engines.wheelhouse import Bench, make_environment, make_wheel

BUILDER = """
import sys
from pathlib import Path
from aipc.engines import install
from aipc.environment import Environment

environment = Environment(name="tiny", folder=Path(sys.argv[1]), python="3.11")
install.ensure(Path(sys.argv[2]), environment, lambda line: print(line, flush=True))
"""


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Environment:
    """An environment of two packages that are in a folder of pip's find-links; there is no network."""
    wheels = [make_wheel(tmp_path / "wheels", name, "1.0") for name in ("tinything", "other_thing")]
    offline(monkeypatch, tmp_path / "wheels")
    return make_environment(tmp_path / "tiny", wheels)


@contextmanager
def builder(environment: Environment, cache: Path) -> Iterator[subprocess.Popen[str]]:
    argv = (sys.executable, "-c", BUILDER, str(environment.folder), str(cache))
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def versions(folder: Path) -> dict[str, str]:
    code = "import json, tinything, other_thing as o; print(json.dumps([tinything.VERSION, o.VERSION]))"
    done = subprocess.run((folder / "bin" / "python", "-I", "-c", code), capture_output=True, text=True, check=True)
    return dict(zip(("tinything", "other_thing"), json.loads(done.stdout), strict=True))


def test_an_environment_is_built_as_its_lock_says_and_then_found(
    tiny: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_USER", "1")  # as some systems configure it: pip refuses a virtual environment then
    lines: list[str] = []
    folder = install.ensure(tmp_path / "cache", tiny, lines.append)
    assert folder == tmp_path / "cache" / "environments" / f"tiny-{tiny.digest[:12]}"
    assert versions(folder) == {"tinything": "1.0", "other_thing": "1.0"}
    assert lines[0].startswith("tiny: making a virtual environment with cpython-3.11.")
    assert lines[1:4] == ["tiny: getting tinything (1 of 2)", "tiny: getting other-thing (2 of 2)", "tiny: installing"]
    assert lines[-1].startswith("tiny: ready, ")
    done = install.complete(folder)
    assert done
    assert done.digest == tiny.digest
    assert {"tinything": "1.0", "other-thing": "1.0"}.items() <= done.versions.items()
    assert done.size_bytes > 1_000_000
    # Compiled while installing, as jobs cannot write there.
    assert list(folder.glob("lib/python3.11/site-packages/__pycache__/tinything.*.pyc"))
    assert not (folder / ".scratch").exists()
    del lines[:]
    assert install.ensure(tmp_path / "cache", tiny, lines.append) == folder
    assert lines == []
    assert install.complete(folder) == done


@pytest.mark.parametrize("damage", ["no marker", "no interpreter", "a marker that is cut"])
def test_what_is_not_whole_is_not_taken_for_it(bench: Bench, tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(install.place(bench.cache, bench.environment), folder, symlinks=True)
    assert install.complete(folder)
    if damage == "no marker":
        (folder / install.MARKER).unlink()
    elif damage == "no interpreter":
        (folder / "bin" / "python").unlink()
        (folder / "bin" / "python").symlink_to(tmp_path / "removed")
    else:
        (folder / install.MARKER).write_text((folder / install.MARKER).read_text()[:-20])
    assert install.complete(folder) is None


@pytest.mark.parametrize(("stage", "seconds"), [("making a virtual environment", 0.3), ("installing", 0.0)])
def test_an_install_that_is_killed_is_done_by_the_next_one(
    tiny: Environment, tmp_path: Path, stage: str, seconds: float
) -> None:
    cache = tmp_path / "cache"
    with builder(tiny, cache) as process:
        assert process.stdout
        for line in process.stdout:
            if stage in line:
                break
        time.sleep(seconds)
        process.kill()
    folder = install.place(cache, tiny)
    assert install.complete(folder) is None
    (folder / "left.over").touch()
    install.ensure(cache, tiny, print)
    assert install.complete(folder)
    assert not (folder / "left.over").exists()
    assert versions(folder) == {"tinything": "1.0", "other_thing": "1.0"}


def test_two_that_need_an_environment_at_once_make_it_once(tiny: Environment, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with builder(tiny, cache) as one, builder(tiny, cache) as two:
        said = [process.communicate(timeout=100)[0] for process in (one, two)]
        assert (one.returncode, two.returncode) == (0, 0)
    assert sum("making a virtual environment" in text for text in said) == 1
    assert sum("waiting for another aipc that has tiny-" in text for text in said) == 1
    assert install.complete(install.place(cache, tiny))


LEAVER = """
import sys
from pathlib import Path
from aipc.engines import install, packages

folder = Path(sys.argv[1])
with install.locked(folder, exclusive=True) as lock:
    argv = ("sh", "-c", "echo started; sleep 5; true")
    variables = {"PATH": "/usr/bin:/bin"}
    hear = lambda line: print(line, flush=True)
    packages.run_heard(argv, folder.with_suffix(".log"), hear, variables=variables, lock=lock)
"""


def test_what_a_killed_install_left_running_holds_the_lock_until_it_ends(tmp_path: Path) -> None:
    folder = tmp_path / "tiny-0"
    with subprocess.Popen((sys.executable, "-c", LEAVER, str(folder)), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "started\n"
        process.kill()
    with install.locked_if_free(folder) as free:
        assert not free
    began = time.monotonic()
    with install.locked(folder, exclusive=True):
        assert 0.5 < time.monotonic() - began < 20


def test_without_a_network_it_says_so_in_one_line_and_keeps_pips_words(
    tiny: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offline(monkeypatch)
    with pytest.raises(EngineError) as caught:
        install.ensure(tmp_path / "cache", tiny, print)
    first, *words = str(caught.value).splitlines()
    log = Path(f"{install.place(tmp_path / 'cache', tiny)}.log")
    assert first == (
        "environment tiny: the package index cannot be reached; check the network and pip's configuration "
        f"(pip config list) (all of pip's words: {log})"
    )
    assert any("Connection refused" in line for line in words)
    assert words[-1] == "ERROR: No matching distribution found for tinything==1.0"
    assert caught.value.exit_code == 4
    assert words[-1] in log.read_text()
    assert not install.place(tmp_path / "cache", tiny).exists()


def test_an_install_that_lands_elsewhere_is_not_taken_for_whole(
    tiny: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_TARGET", str(tmp_path / "elsewhere"))
    with pytest.raises(EngineError, match="other-thing is missing, not 1.0; tinything is missing, not 1.0"):
        install.ensure(tmp_path / "cache", tiny, print)
    assert not install.place(tmp_path / "cache", tiny).exists()


def test_a_disk_without_space_is_noticed_before_anything_is_made(tmp_path: Path) -> None:
    environment = make_environment(
        tmp_path / "huge", [make_wheel(tmp_path / "wheels", "tinything", "1.0")], name="huge"
    )
    pin = environment.lock.read_text()
    environment.lock.write_text("".join(pin.replace("tinything", f"thing{number}") for number in range(50_000)))
    with pytest.raises(
        EngineError, match=r"environment huge: about 2500\.10 GB are needed in .*, and .* GB are free"
    ) as caught:
        install.ensure(tmp_path / "cache", environment, print)
    assert "aipc clean removes old environments" in str(caught.value)
    assert not install.place(tmp_path / "cache", environment).exists()


def test_an_environment_without_a_lock_says_how_to_make_it(tiny: Environment, tmp_path: Path) -> None:
    tiny.lock.unlink()
    with pytest.raises(UsageError, match=r"requirements\.lock: there is no lock; make it: aipc lock tiny"):
        install.ensure(tmp_path / "cache", tiny, print)


def test_a_cache_that_cannot_be_written_is_named(tiny: Environment, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EngineError, match=r"Not a directory.*AIPC_CACHE"):
        install.ensure(tmp_path / "file", tiny, print)


def test_a_changed_lock_is_another_environment(tiny: Environment, tmp_path: Path) -> None:
    before = install.place(tmp_path, tiny)
    tiny.lock.write_text(tiny.lock.read_text() + "\n")
    assert install.place(tmp_path, tiny) != before
    assert install.place(tmp_path, replace(tiny, python="3.12")) != install.place(tmp_path, tiny)


def test_packages_come_from_where_the_users_own_pip_looks(tmp_path: Path) -> None:
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "requirements.in").write_text("six==1.17.0\n")
    (folder / "requirements.lock").write_text(
        "six==1.17.0 --hash=sha256:4721f391ed90541fddacab5acf947aa0d3dc7d27b2e1e8eda2be8970586c3274\n"
    )
    install.ensure(tmp_path / "cache", Environment(name="tiny", folder=folder, python="3.11"), print)
