"""The locks of this project are right, and how `aipc lock` makes them."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from aipc import locks, uv
from aipc.environment import Environment, names
from aipc.errors import EngineError, UsageError
from tests.engines.conftest import offline
from tests.engines.wheelhouse import make_environment, make_index, make_wheel

HASH = f"--hash=sha256:{'0' * 64}"


@pytest.mark.parametrize("name", names())
def test_every_lock_is_right(name: str) -> None:
    assert locks.check(Environment.load(name)) == ()


def test_the_reference_lock_has_pytorchs_cpu_build() -> None:
    pins = {pin.name: pin for pin in Environment.load("reference").pins()}
    assert pins["torch"].version == "2.13.0+cpu"
    assert pins["torch"].text.count("--hash") == 1
    assert Environment.load("reference").indexes() == {"torch": "https://download.pytorch.org/whl/cpu"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f"plain==1 \\\n    {HASH}\nnvidia-cublas==13.1 \\\n    {HASH}\n", "nvidia-cublas is a part of a CUDA build"),
        (f"plain==1 \\\n    {HASH}\nopenvino-telemetry==1 \\\n    {HASH}\n", "openvino-telemetry sends data"),
        (f"plain @ file:///tmp/plain.whl \\\n    {HASH}\n", "'plain @ file:///tmp/plain.whl' is no part of a lock"),
        (f"--index-url https://example.org\nplain==1 \\\n    {HASH}\n", "'--index-url https://example.org' is no"),
        (f"plain==1 \\\n    {HASH} # https://example.org\n", "is no part of a lock"),
        ("plain==1\n", "plain has no hash"),
        (f"plain>=1 \\\n    {HASH}\n", "'plain>=1' is no part of a lock"),
        (f"other==1 \\\n    {HASH}\n", "plain of requirements.in is missing; make the lock again: aipc lock tiny"),
        (f"plain==2 \\\n    {HASH}\n", "plain is 2, not 1 as in requirements.in"),
        ("", "plain of requirements.in is missing"),
    ],
)
def test_a_lock_that_is_wrong_is_said_so(tmp_path: Path, text: str, problem: str) -> None:
    environment = make_environment(tmp_path / "tiny", [make_wheel(tmp_path, "plain", "1")])
    assert locks.check(environment) == ()
    environment.lock.write_text(text)
    assert problem in "; ".join(locks.check(environment))


def test_a_lock_that_is_missing_is_said_so(tmp_path: Path) -> None:
    environment = make_environment(tmp_path / "tiny", [])
    environment.lock.unlink()
    assert locks.check(environment) == ("there is no lock; make it: aipc lock tiny",)


def test_a_local_version_is_the_one_that_was_asked_for(tmp_path: Path) -> None:
    environment = make_environment(tmp_path / "tiny", [make_wheel(tmp_path, "plain", "1+cpu")])
    (environment.folder / "requirements.in").write_text("plain==1\n")
    assert locks.check(environment) == ()


def test_an_index_for_a_package_that_nobody_asks_for_is_said_so(tmp_path: Path) -> None:
    environment = make_environment(
        tmp_path / "tiny", [make_wheel(tmp_path, "plain", "1")], indexes='[packages]\ntroch = "https://example.org"\n'
    )
    assert locks.check(environment) == ("troch of indexes.toml is not in requirements.in; take it out, or ask for it",)


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Environment:
    """An environment without a lock, that asks for `plain`; what pip finds is in the folder `wheels`."""
    make_wheel(tmp_path / "wheels", "plain", "1", requires=["more"])
    make_wheel(tmp_path / "wheels", "more", "1")
    offline(monkeypatch, tmp_path / "wheels")
    monkeypatch.setenv("PIP_INDEX_URL", make_index(tmp_path / "empty", [make_wheel(tmp_path, "nothing", "1")]))
    environment = make_environment(tmp_path / "tiny", [])
    environment.lock.unlink()
    (environment.folder / "requirements.in").write_text("# why\nplain\n")
    return environment


def versions(environment: Environment) -> dict[str, str]:
    return {pin.name: pin.version for pin in environment.pins()}


def test_a_lock_is_made_from_where_the_users_own_pip_looks(tiny: Environment) -> None:
    assert locks.lock(tiny, print)
    assert versions(tiny) == {"more": "1", "plain": "1"}
    assert locks.check(tiny) == ()
    assert "://" not in tiny.lock.read_text()
    assert "#" not in tiny.lock.read_text()


def test_a_lock_that_still_fits_stays_as_it_is_unless_newer_ones_are_wanted(tiny: Environment, tmp_path: Path) -> None:
    locks.lock(tiny, print)
    before = tiny.lock.stat().st_mtime_ns
    make_wheel(tmp_path / "wheels", "more", "2")
    assert not locks.lock(tiny, print)
    assert tiny.lock.stat().st_mtime_ns == before
    assert locks.lock(tiny, print, upgrade=True)
    assert versions(tiny) == {"more": "2", "plain": "1"}


def test_overrides_leave_a_package_out(tiny: Environment) -> None:
    (tiny.folder / "overrides.txt").write_text("more ; sys_platform == 'never'\n")
    locks.lock(tiny, print)
    assert versions(tiny) == {"plain": "1"}


def test_a_wrong_lock_is_not_written(tiny: Environment, tmp_path: Path) -> None:
    make_wheel(tmp_path / "wheels", "more", "2", requires=["nvidia-cublas"])
    make_wheel(tmp_path / "wheels", "nvidia_cublas", "13")
    with pytest.raises(UsageError, match="not written, it would be wrong: nvidia-cublas is a part of a CUDA build"):
        locks.lock(tiny, print)
    assert not tiny.lock.exists()


def test_where_the_usual_build_is_wrong_the_named_index_is_asked_for_that_package(
    tiny: Environment, tmp_path: Path
) -> None:
    make_wheel(tmp_path / "wheels", "special", "2", requires=["nvidia-cublas", "more"])
    make_wheel(tmp_path / "wheels", "nvidia_cublas", "13")
    right = make_wheel(tmp_path / "vendor", "special", "2+cpu", requires=["more"])
    # Its index has newer ones of the others, which are not taken from there.
    url = make_index(tmp_path / "index", [right, make_wheel(tmp_path / "vendor", "more", "9")])
    (tiny.folder / "requirements.in").write_text("plain\nspecial==2\n")
    (tiny.folder / "indexes.toml").write_text(f'[packages]\nspecial = "{url}"\n')
    lines: list[str] = []
    assert locks.lock(tiny, lines.append)
    assert versions(tiny) == {"more": "1", "plain": "1", "special": "2+cpu"}
    assert lines[-1].endswith("asking the indexes that indexes.toml names")
    assert "://" not in tiny.lock.read_text()


def test_a_package_without_a_wheel_is_not_built(tiny: Environment, tmp_path: Path) -> None:
    (tmp_path / "wheels" / "more-1-py3-none-any.whl").unlink()
    (tmp_path / "more-1").mkdir()
    (tmp_path / "more-1" / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    (tmp_path / "more-1" / "backend.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    shutil.make_archive(str(tmp_path / "wheels" / "more-1"), "gztar", tmp_path, "more-1")
    with pytest.raises(UsageError, match=r"(?s)uv finds no set of packages that fits.*more"):
        locks.lock(tiny, print)
    assert not (tmp_path / "ran").exists()


def test_where_the_usual_package_has_no_wheel_the_named_index_is_asked(tiny: Environment, tmp_path: Path) -> None:
    (tmp_path / "special-2").mkdir()
    (tmp_path / "special-2" / "pyproject.toml").write_text("[build-system]\nrequires = []\n")
    shutil.make_archive(str(tmp_path / "wheels" / "special-2"), "gztar", tmp_path, "special-2")
    url = make_index(tmp_path / "index", [make_wheel(tmp_path / "vendor", "special", "2", requires=["more"])])
    (tiny.folder / "requirements.in").write_text("special==2\n")
    with pytest.raises(UsageError, match=r"special==2 has no usable wheels"):
        locks.lock(tiny, print)
    (tiny.folder / "indexes.toml").write_text(f'[packages]\nspecial = "{url}"\n')
    lines: list[str] = []
    assert locks.lock(tiny, lines.append)
    assert versions(tiny) == {"more": "1", "special": "2"}
    assert "special==2 has no usable wheels" in lines[-1]


def test_requirements_that_contradict_each_other_keep_uvs_words(tiny: Environment) -> None:
    (tiny.folder / "requirements.in").write_text("plain==7\n")
    with pytest.raises(
        UsageError, match=r"(?s)requirements\.in: uv finds no set.*there is no version of plain==7"
    ) as caught:
        locks.lock(tiny, print)
    assert caught.value.exit_code == 2


def test_without_a_network_it_is_the_networks_fault(tiny: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    with pytest.raises(EngineError, match=r"(?s)uv could not make the lock; check the network.*127\.0\.0\.1:9"):
        locks.lock(tiny, print)


def test_the_variables_of_pip_are_in_force_over_its_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    offline(monkeypatch, tmp_path / "second")
    (tmp_path / "pip.conf").write_text(
        "[global]\nindex-url = https://one.example\nfind-links =\n    first\n    second place\n"
        "[install]\ncert = /c.pem\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    settings = locks.pip_settings()
    assert settings["find-links"] == ("first", "second", "place", str(tmp_path / "second"))
    assert settings["index-url"][-1] == os.environ["PIP_INDEX_URL"]
    assert settings["cert"][-1] == "/c.pem"


def test_a_pip_in_the_current_folder_is_not_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "pip.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.chdir(tmp_path)
    locks.pip_settings()
    assert not (tmp_path / "ran").exists()


def test_uv_is_the_one_installed_with_aipc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert uv.find() == str(Path(sys.executable).with_name("uv"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EngineError, match="uv is not installed; install it beside aipc"):
        uv.find()
    (tmp_path / "uv").touch(mode=0o755)
    assert uv.find() == str(tmp_path / "uv")
