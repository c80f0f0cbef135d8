"""How the Python that an environment states is found. The version 3.99 is one that no machine has."""

from __future__ import annotations

import json
import os
import platform
import sys
from pathlib import Path

import pytest

from aipc.engines import interpreter
from aipc.errors import EngineError

FINE = {
    "name": "cpython-3.99.1",
    "minor": "3.99",
    "prefixes": ["/opt/python"],
    "platform": "linux-x86_64",
    "libc": "glibc",
    "threads": "locked",
    "makes_venvs": True,
}


def make_python(folder: Path, **facts: object) -> Path:
    """Write a program that says of itself what a Python 3.99 would say."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "python3.99"
    program.write_text(f"#!/bin/sh\necho '{json.dumps({**FINE, 'executable': str(program), **facts})}'\n")
    program.chmod(0o755)
    return program


@pytest.fixture
def nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without any Python, pyenv or uv; returns the folder that is its PATH."""
    for name in ("PYENV_ROOT", "XDG_DATA_HOME", "UV_PYTHON_INSTALL_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    # uv is looked for beside the running Python first; here it is nowhere.
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nowhere" / "python"))
    return tmp_path / "bin"


def test_the_running_python_is_taken_when_it_is_the_version() -> None:
    here = "{}.{}".format(*sys.version_info)
    found = interpreter.find(here, print)
    assert found.name == f"cpython-{platform.python_version()}"
    assert found.minor == here
    assert not found.executable.is_symlink()
    assert Path(sys.base_prefix).resolve() in {prefix.resolve() for prefix in found.prefixes}
    assert found.makes_venvs


def test_a_python_on_the_path_is_found(nothing: Path) -> None:
    program = make_python(nothing)
    assert interpreter.find("3.99", print).executable == program


def test_pyenvs_newest_release_of_the_version_is_found(nothing: Path) -> None:
    versions = nothing.parent / ".pyenv" / "versions"
    for release in ("3.99.9", "3.99.10", "3.98.11"):
        make_python(versions / release / "bin")
    assert interpreter.find("3.99", print).executable == versions / "3.99.10" / "bin" / "python3.99"


def test_a_python_that_uv_installed_is_found(nothing: Path) -> None:
    program = make_python(nothing.parent / ".local/share/uv/python/cpython-3.99.1-linux-x86_64-gnu/bin")
    assert interpreter.find("3.99", print).executable == program


def test_a_launcher_that_only_prints_a_hint_is_passed_over(nothing: Path) -> None:
    hint = make_python(nothing)
    hint.write_text("#!/bin/sh\necho 'pyenv: python3.99: command not found' >&2\nexit 127\n")
    program = make_python(nothing.parent / ".pyenv" / "versions" / "3.99.1" / "bin")
    assert interpreter.find("3.99", print).executable == program


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"makes_venvs": False}, "has no venv and ensurepip; apt-get install python3.99-venv"),
        ({"minor": "3.98"}, "is Python 3.98"),
        ({"name": "pypy-3.99.1"}, "is pypy-3.99.1"),
        ({"threads": "free"}, "free threads"),
        ({"libc": ""}, "glibc is needed"),
        ({"platform": "linux-i686"}, "is for linux-i686"),
    ],
)
def test_a_python_that_does_not_fit_is_passed_over_and_said_so(
    nothing: Path, facts: dict[str, object], why: str
) -> None:
    make_python(nothing, **facts)
    with pytest.raises(EngineError, match=f"Python 3.99: none was found.*/python3.99 .*{why}"):
        interpreter.find("3.99", print)
    fit = make_python(nothing.parent / ".pyenv" / "versions" / "3.99.1" / "bin")
    assert interpreter.find("3.99", print).executable == fit


@pytest.mark.usefixtures("nothing")
def test_where_there_is_none_it_says_what_to_install() -> None:
    with pytest.raises(EngineError) as caught:
        interpreter.find("3.99", print)
    first, *_ = str(caught.value).splitlines()
    for way in ("apt-get install python3.99 python3.99-venv", "pyenv install 3.99", "uv python install 3.99"):
        assert way in first
    assert caught.value.exit_code == 4


def test_uv_is_asked_for_one_and_its_words_are_kept(nothing: Path) -> None:
    nothing.mkdir()
    (nothing / "uv").write_text("#!/bin/sh\necho 'error: No download found' >&2\nexit 2\n")
    (nothing / "uv").chmod(0o755)
    lines: list[str] = []
    with pytest.raises(EngineError, match="uv was asked for it, and said: error: No download found"):
        interpreter.find("3.99", lines.append)
    assert lines == ["getting Python 3.99 through uv"]


def test_a_python_that_uv_gets_is_taken(nothing: Path) -> None:
    program = make_python(nothing.parent / "got")
    nothing.mkdir()
    (nothing / "uv").write_text(f'#!/bin/sh\n[ "$2" = find ] && echo {program}\nexit 0\n')
    (nothing / "uv").chmod(0o755)
    assert interpreter.find("3.99", print).executable == program


def test_another_machine_is_told_what_the_locks_are_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    with pytest.raises(EngineError, match="this machine is darwin-arm64, but the locks are made for linux-x86_64"):
        interpreter.find("3.11", print)


def test_a_stamp_changes_when_another_python_is_installed_over_it(tmp_path: Path) -> None:
    program = make_python(tmp_path)
    first = interpreter.stamp(program)
    assert interpreter.stamp(program) == first
    os.utime(program, ns=(1, 1))
    assert interpreter.stamp(program) != first
    program.unlink()
    assert interpreter.stamp(program) == ""
