"""Where the packages of a lock come from, and that no other file takes their place."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from aipc.engines import install, packages
from aipc.environment import Environment
from aipc.errors import EngineError
from tests.engines.conftest import offline
from tests.engines.wheelhouse import Bench, make_environment, make_index, make_wheel

NOWHERE = "http://127.0.0.1:9/simple"


class Getter:
    """Gets packages into a folder, with the pip of an environment that is built."""

    def __init__(self, bench: Bench, folder: Path) -> None:
        self.target = folder / "target"
        self.log = folder / "log"
        self.lines: list[str] = []
        self._folder = folder
        self._python = install.place(bench.cache, bench.environment) / "bin" / "python"

    def get(self, environment: Environment) -> Sequence[str]:
        argv = (str(self._python), "-I", "-m", "pip", "install", "--target", str(self.target))
        with install.locked(self._folder / "lock", exclusive=True) as lock:
            packages.get(
                environment,
                packages.Call(
                    argv=argv, scratch=self._folder / "scratch", log=self.log, report=self.lines.append, lock=lock
                ),
            )
        return [path.read_text().split("'")[1] for path in sorted(self.target.glob("*.py"))]


@pytest.fixture
def getter(bench: Bench, tmp_path: Path) -> Getter:
    return Getter(bench, tmp_path)


def named(url: str) -> str:
    return f'[packages]\nspecial = "{url}"\n'


def test_a_named_index_is_not_asked_for_what_the_users_pip_has(
    getter: Getter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheels = [
        make_wheel(tmp_path / "wheels", name, version) for name, version in (("plain", "1"), ("special", "2+cpu"))
    ]
    offline(monkeypatch, tmp_path / "wheels")
    environment = make_environment(tmp_path / "tiny", wheels, indexes=named(NOWHERE))
    assert getter.get(environment) == ["1", "2+cpu"]
    assert "9/simple" not in getter.log.read_text()
    assert not any("asking" in line for line in getter.lines)


def test_a_named_index_is_asked_for_its_package_alone(
    getter: Getter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = make_wheel(tmp_path / "wheels", "plain", "1")
    special = make_wheel(tmp_path / "vendor", "special", "2+cpu")
    # The vendor's index has a file of the same name for the other package, which must not be taken.
    forged = make_wheel(tmp_path / "forged", "plain", "1", content="forged = True")
    url = make_index(tmp_path / "index", [special, forged])
    offline(monkeypatch, tmp_path / "wheels")
    environment = make_environment(tmp_path / "tiny", [plain, special], indexes=named(url))
    assert getter.get(environment) == ["1", "2+cpu"]
    assert getter.lines == [
        f"tiny: pip's configuration has no special 2+cpu; asking {url}",
        "tiny: getting special (1 of 2)",
        "tiny: installing",
        "tiny: getting plain (2 of 2)",
        "tiny: installing",
    ]


def test_another_build_of_a_named_package_never_takes_its_place(
    getter: Getter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    special = make_wheel(tmp_path / "vendor", "special", "2+cpu")
    make_wheel(tmp_path / "wheels", "special", "2", content="cuda = True")
    make_wheel(tmp_path / "wheels", "special", "2+cpu", content="another = True")
    offline(monkeypatch, tmp_path / "wheels")
    environment = make_environment(tmp_path / "tiny", [special], indexes=named(NOWHERE))
    with pytest.raises(EngineError) as caught:
        getter.get(environment)
    first = str(caught.value).splitlines()[0]
    assert "special 2+cpu is neither where pip's configuration looks nor at http://127.0.0.1:9/simple" in first
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in str(caught.value)
    assert not getter.target.exists()


def test_a_file_that_is_not_the_locked_one_is_refused(
    getter: Getter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = make_environment(tmp_path / "tiny", [make_wheel(tmp_path / "wheels", "plain", "1")])
    make_wheel(tmp_path / "wheels", "plain", "1", content="forged = True")
    # An index that does not answer beside it must not be taken for the reason.
    offline(monkeypatch)
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    with pytest.raises(
        EngineError, match=r"(?s)a file that was found is not the one of the lock.*DO NOT MATCH THE HASHES"
    ):
        getter.get(environment)
    assert not getter.target.exists()


def test_nothing_is_built_from_source(getter: Getter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "plain-1"
    source.mkdir()
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    (source / "backend.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    (tmp_path / "wheels").mkdir()
    archive = shutil.make_archive(str(tmp_path / "wheels" / "plain-1"), "gztar", tmp_path, "plain-1")
    offline(monkeypatch, tmp_path / "wheels")
    environment = make_environment(tmp_path / "tiny", [])
    # Even where the lock has its hash.
    environment.lock.write_text(f"plain==1 --hash=sha256:{hashlib.sha256(Path(archive).read_bytes()).hexdigest()}\n")
    with pytest.raises(EngineError):
        getter.get(environment)
    assert not (tmp_path / "ran").exists()


def test_what_a_package_asks_for_is_not_got_unless_it_is_in_the_lock(
    getter: Getter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = make_wheel(tmp_path / "wheels", "plain", "1", requires=["more"])
    make_wheel(tmp_path / "wheels", "more", "1")
    offline(monkeypatch, tmp_path / "wheels")
    assert getter.get(make_environment(tmp_path / "tiny", [wheel])) == ["1"]


def test_a_full_disk_is_named(getter: Getter, tmp_path: Path) -> None:
    call = packages.Call(argv=(), scratch=tmp_path / "scratch", log=getter.log, report=print, lock=0)
    environment = Environment(name="tiny", folder=tmp_path, python="3.11")
    text = packages._explain(environment, call, "ERROR: Could not install: [Errno 28] No space left on device")
    assert text.startswith(f"environment tiny: the disk of {tmp_path} is full; free some space")
