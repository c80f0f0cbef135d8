from __future__ import annotations

import hashlib
import io
import os
import sys
import tarfile
import threading
import time
import venv
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from aipc.errors import EngineError, UsageError
from aipc.fetch import fetch, hash_file
from aipc.model import Source

CONTENT = bytes(range(256)) * 4000
MEMBER = "tiny/weights.bin"
METADATA = "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\nRequires-Dist: no-such-package\n"
TAG = "cp311-cp311-manylinux_2_28_x86_64"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


SOURCE = Source(package="tiny==1.0", member=MEMBER, sha256=sha256(CONTENT))


def make_wheel(folder: Path, content: bytes = CONTENT, tag: str = TAG) -> Path:
    """Make the wheel of a package that holds `content`, not compressed."""
    path = folder / f"tiny-1.0-{tag}.whl"
    info = "tiny-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(MEMBER, content)
        archive.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\nRequires-Dist: no-such-package\n"
        )
        archive.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: false\nTag: {tag}\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the one folder in which pip looks for packages, as its own variables say."""
    folder = tmp_path / "shelf"
    folder.mkdir()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def refused(kind: type[Exception], source: Source, cache: Path) -> str:
    with pytest.raises(kind) as caught:
        fetch(source, cache, print)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def the_wheel(cache: Path) -> Path:
    (wheel,) = cache.glob("packages/tiny==1.0/*/*.whl")
    return wheel


def test_a_hash_is_that_of_the_whole_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(CONTENT)
    assert hash_file(tmp_path / "file") == sha256(CONTENT)


def test_a_member_comes_out_of_its_wheel_and_is_then_kept(shelf: Path, cache: Path) -> None:
    wheel = make_wheel(shelf)
    said: list[str] = []
    path = fetch(SOURCE, cache, said.append)
    assert path.read_bytes() == CONTENT
    assert path.name == "weights.bin"
    assert said == ["fetching tiny==1.0"]
    wheel.unlink()
    assert fetch(SOURCE, cache, said.append) == path
    assert len(said) == 1


def test_the_members_of_a_package_share_one_download(shelf: Path, cache: Path) -> None:
    with zipfile.ZipFile(make_wheel(shelf), "a") as archive:
        archive.writestr("tiny/other.bin", b"other")
    said: list[str] = []
    fetch(SOURCE, cache, said.append)
    other = fetch(Source(package="tiny==1.0", member="tiny/other.bin", sha256=sha256(b"other")), cache, said.append)
    assert other.read_bytes() == b"other"
    assert said == ["fetching tiny==1.0"]


def test_nothing_unfinished_stays_in_the_cache(shelf: Path, cache: Path) -> None:
    make_wheel(shelf)
    path = fetch(SOURCE, cache, print)
    files = {each.relative_to(cache).as_posix() for each in cache.rglob("*") if each.is_file()}
    wheel = the_wheel(cache)
    assert wheel.parent.name == hash_file(wheel)
    assert files == {path.relative_to(cache).as_posix(), wheel.relative_to(cache).as_posix(), "packages/tiny==1.0.lock"}


def test_what_a_killed_fetch_left_is_no_hindrance(shelf: Path, cache: Path) -> None:
    make_wheel(shelf)
    left = cache / "packages" / ".tiny==1.0.part"
    left.mkdir(parents=True)
    (left / "old-1.0-py3-none-any.whl").write_bytes(b"half of a wh")
    (cache / "packages" / "tiny==1.0.lock").touch()
    assert fetch(SOURCE, cache, print).read_bytes() == CONTENT
    assert not left.exists()


@pytest.mark.parametrize("change", [b"", CONTENT[:-1], b"!" + CONTENT[1:]], ids=["emptied", "truncated", "changed"])
def test_a_member_that_was_changed_in_the_cache_is_mended(shelf: Path, cache: Path, change: bytes) -> None:
    make_wheel(shelf)
    fetch(SOURCE, cache, print).write_bytes(change)
    said: list[str] = []
    path = fetch(SOURCE, cache, said.append)
    assert path.read_bytes() == CONTENT
    assert said == [f"{path} was changed; fetching it again"]


def test_a_wheel_that_was_changed_in_the_cache_is_fetched_again(shelf: Path, cache: Path) -> None:
    make_wheel(shelf)
    path = fetch(SOURCE, cache, print)
    forged = make_wheel(the_wheel(cache).parent, b"forged")
    path.unlink()
    said: list[str] = []
    assert fetch(SOURCE, cache, said.append).read_bytes() == CONTENT
    assert said == [f"{forged} was changed; fetching it again", "fetching tiny==1.0"]


def test_a_cache_that_was_changed_and_cannot_be_mended_is_an_error(shelf: Path, cache: Path) -> None:
    wheel = make_wheel(shelf)
    path = fetch(SOURCE, cache, print)
    path.write_bytes(b"forged")
    the_wheel(cache).write_bytes(b"forged too")
    wheel.unlink()
    make_wheel(shelf, b"another release under the same name")
    text = refused(UsageError, SOURCE, cache)
    assert f"its sha256 is {sha256(b'another release under the same name')}, not {SOURCE.sha256}" in text
    assert not (path.exists() and path.read_bytes() == b"another release under the same name")


def test_a_wrong_sha256_names_both_and_leaves_no_file(shelf: Path, cache: Path) -> None:
    make_wheel(shelf)
    wrong = replace(SOURCE, sha256="0" * 64)
    text = refused(UsageError, wrong, cache)
    assert text == (
        f"tiny==1.0: {MEMBER}: its sha256 is {sha256(CONTENT)}, not {'0' * 64}; "
        "get the right file, or correct the sha256 if this one is right"
    )
    assert not list(cache.glob("members/*/*"))
    # The wheel is whole: to ask for it again would give the same.
    said: list[str] = []
    with pytest.raises(UsageError):
        fetch(wrong, cache, said.append)
    assert said == []


def test_a_member_that_the_wheel_lacks_is_answered_with_the_nearest(shelf: Path, cache: Path) -> None:
    make_wheel(shelf)
    text = refused(UsageError, replace(SOURCE, member="tiny/wieghts.bin"), cache)
    assert text == f"tiny==1.0: tiny/wieghts.bin: no such member; did you mean '{MEMBER}'?"


def test_a_broken_wheel_is_not_kept(shelf: Path, cache: Path) -> None:
    wheel = make_wheel(shelf)
    whole = wheel.read_bytes()
    wheel.write_bytes(whole.replace(CONTENT, b"!" + CONTENT[1:]))
    text = refused(EngineError, SOURCE, cache)
    assert text == f"{wheel.name}: not a whole wheel: Bad CRC-32 for file '{MEMBER}'; try again"
    wheel.write_bytes(whole)
    assert fetch(SOURCE, cache, print).read_bytes() == CONTENT


def test_a_package_that_is_nowhere_is_answered_with_pips_last_words(shelf: Path, cache: Path) -> None:
    make_wheel(shelf)
    text = refused(EngineError, replace(SOURCE, package="tiny==2.0"), cache)
    assert text.startswith("tiny==2.0: pip cannot download it: Could not find a version")
    assert "No matching distribution found for tiny==2.0; check the name, the network" in text


def test_no_network_is_answered_with_pips_last_words(shelf: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(shelf.iterdir()) == []
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    text = refused(EngineError, SOURCE, cache)
    assert (
        "No matching distribution found for tiny==1.0; check the name, the network and pip's own configuration" in text
    )


def test_a_python_without_pip_is_named(
    shelf: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_wheel(shelf)
    venv.create(tmp_path / "bare", with_pip=False)
    python = tmp_path / "bare" / "bin" / "python"
    monkeypatch.setattr(sys, "executable", str(python))
    assert refused(EngineError, SOURCE, cache).endswith("No module named pip; install pip there")


def test_a_pip_that_brings_nothing_is_no_success(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 0\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    assert refused(EngineError, SOURCE, cache) == "tiny==1.0: pip downloaded [], not one wheel; try again"


def test_no_code_of_a_package_runs(shelf: Path, cache: Path, tmp_path: Path) -> None:
    files = {
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
        "backend.py": f"open({str(tmp_path / 'ran')!r}, 'w').close()\n",
    }
    with tarfile.open(shelf / "tiny-1.0.tar.gz", "w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"tiny-1.0/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    assert "No matching distribution" in refused(EngineError, SOURCE, cache)
    assert not (tmp_path / "ran").exists()


def test_a_pip_in_the_current_folder_is_not_run(shelf: Path, cache: Path, tmp_path: Path) -> None:
    make_wheel(shelf)
    (tmp_path / "pip.py").write_text("raise SystemExit('I am not pip')\n")
    assert fetch(SOURCE, cache, print).read_bytes() == CONTENT


@pytest.mark.parametrize(
    "tag",
    [
        "py3-none-any",
        "cp311-none-manylinux1_x86_64",
        "cp311-none-manylinux2014_x86_64",
        "cp39-abi3-manylinux_2_17_x86_64",
        "cp311-cp311-manylinux_2_24_x86_64",
        "cp311-cp311-linux_x86_64",
    ],
)
def test_any_wheel_for_an_ordinary_linux_will_do(shelf: Path, cache: Path, tag: str) -> None:
    make_wheel(shelf, tag=tag)
    assert fetch(SOURCE, cache, print).read_bytes() == CONTENT


@pytest.mark.parametrize("tag", ["cp312-cp312-manylinux_2_28_x86_64", "cp311-cp311-manylinux_2_28_aarch64"])
def test_the_wheel_is_the_same_on_every_host(shelf: Path, cache: Path, tag: str) -> None:
    make_wheel(shelf, b"for another Python or machine", tag=tag)
    refused(EngineError, SOURCE, cache)


def test_fetches_at_the_same_time_download_once(shelf: Path, cache: Path) -> None:
    make_wheel(shelf)
    said: list[str] = []
    together = threading.Barrier(4)

    def one() -> bytes:
        together.wait()
        return fetch(SOURCE, cache, said.append).read_bytes()

    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(one) for _ in range(4)]
        assert [future.result() for future in futures] == [CONTENT] * 4
    assert sorted(said) == ["fetching tiny==1.0", *["waiting for another fetch of tiny==1.0"] * 3]


def test_a_cache_that_cannot_be_written_is_named(shelf: Path, cache: Path) -> None:
    make_wheel(shelf)
    cache.write_text("a file")
    text = refused(EngineError, SOURCE, cache)
    assert str(cache) in text
    assert text.endswith("make room, or set AIPC_CACHE to another folder")


def test_a_path_is_used_where_it_lies(tmp_path: Path, cache: Path) -> None:
    file = tmp_path / "weights.pth"
    file.write_bytes(CONTENT)
    assert fetch(Source(path=str(file)), cache, print) == file
    assert fetch(Source(path=str(file), sha256=sha256(CONTENT)), cache, print) == file
    assert not cache.exists()


def test_a_path_with_another_sha256_names_both(shelf: Path, tmp_path: Path, cache: Path) -> None:
    assert shelf.exists()
    file = tmp_path / "weights.pth"
    file.write_bytes(CONTENT)
    text = refused(UsageError, Source(path=str(file), sha256="0" * 64), cache)
    assert text.startswith(f"weights.pth: its sha256 is {sha256(CONTENT)}, not {'0' * 64}; get the right file")


def test_a_path_that_is_no_file_is_answered_with_the_nearest(shelf: Path, tmp_path: Path, cache: Path) -> None:
    (shelf / "weights.pth").touch()
    text = refused(UsageError, Source(path=str(shelf / "wieghts.pth")), cache)
    assert text == "shelf/wieghts.pth: no such file; did you mean 'weights.pth'?"
    assert refused(UsageError, Source(path=str(shelf)), cache) == "shelf: not a file; name one file"
    os.mkfifo(tmp_path / "pipe")
    assert refused(UsageError, Source(path="pipe"), cache) == "pipe: not a file; name one file"
    text = refused(UsageError, Source(path=str(shelf / "weights.pth" / "x")), cache)
    assert text.startswith("shelf/weights.pth/x: cannot be read: Not a directory; check")


def test_a_path_that_may_not_be_read_says_so(forbidden_file: Path, cache: Path) -> None:
    text = refused(UsageError, Source(path=str(forbidden_file)), cache)
    assert text.endswith("cannot be read: Permission denied; check who may read it")


def test_a_large_file_is_checked_in_a_moment(tmp_path: Path, cache: Path) -> None:
    file = tmp_path / "large.pth"
    with file.open("wb") as opened:
        opened.truncate(67_000_000)
    start = time.monotonic()
    fetch(Source(path=str(file)), cache, print)
    assert time.monotonic() - start < 2


@pytest.mark.toolchain
def test_a_package_comes_from_where_pip_looks(cache: Path) -> None:
    six = "c51c91f703d3d4b3696c923cb5fec213e05e75d9215393befac7f2fa6a3904df"
    path = fetch(Source(package="six==1.17.0", member="six.py", sha256=six), cache, print)
    assert b"Utilities for writing code that runs on Python 2 and 3" in path.read_bytes()
