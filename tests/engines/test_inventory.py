"""What is on the disk, and what is cleaned away: never what a job uses."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest

from aipc import home
from aipc.engines import install, inventory
from aipc.environment import Environment
from runtimes import contract
from tests.engines.wheelhouse import Bench


def copy_roots(whole: Path, folder: Path) -> None:
    """Copy of an environment what makes it one, without its packages."""
    shutil.copytree(whole / "bin", folder / "bin", symlinks=True)
    for name in (install.MARKER, "pyvenv.cfg"):
        shutil.copyfile(whole / name, folder / name)


@pytest.fixture
def shelf(bench: Bench, tmp_path: Path) -> Bench:
    """A cache with the current environment, an old one and a half-made one."""
    cache = tmp_path / "cache"
    current = install.place(cache, bench.environment)
    for folder in (current, current.with_name("tiny-0123456789ab"), current.with_name("other-0123456789ab")):
        copy_roots(install.place(bench.cache, bench.environment), folder)
        Path(f"{folder}.log").touch()
    (current.with_name("other-0123456789ab") / install.MARKER).unlink()
    current.with_name("not an environment").mkdir()
    return replace(bench, cache=cache)


def test_the_list_says_what_is_old_half_made_or_busy(shelf: Bench) -> None:
    old = install.place(shelf.cache, shelf.environment).with_name("tiny-0123456789ab")
    with install.locked(old, exclusive=False):
        found = inventory.built(shelf.cache, [shelf.environment])
    facts = {(one.name, one.digest): (one.whole, one.current, one.busy) for one in found}
    assert facts == {
        ("other", "0123456789ab"): (False, False, False),
        ("tiny", "0123456789ab"): (True, False, True),
        ("tiny", shelf.environment.digest[:12]): (True, True, False),
    }
    assert all(one.size_bytes > 1_000_000 for one in found if one.whole)


def test_an_empty_cache_has_nothing(tmp_path: Path) -> None:
    assert inventory.built(tmp_path, []) == ()
    assert inventory.clean(tmp_path, [], print) == 0


def test_cleaning_removes_old_and_half_made_ones_and_leaves_the_current(shelf: Bench) -> None:
    lines: list[str] = []
    current = install.place(shelf.cache, shelf.environment)
    freed = inventory.clean(shelf.cache, [shelf.environment], lines.append)
    assert freed > 1_000_000
    assert [line.split(":")[0] for line in lines] == ["other-0123456789ab", "tiny-0123456789ab"]
    assert {path.name for path in current.parent.iterdir() if path.is_dir()} == {current.name, "not an environment"}
    assert {path.name for path in current.parent.glob("*.log")} == {f"{current.name}.log"}
    assert install.complete(current)


def test_cleaning_leaves_the_old_ones_of_another_checkout_until_it_is_gone(shelf: Bench, tmp_path: Path) -> None:
    other = tmp_path / "other checkout"
    other.mkdir()
    current = install.place(shelf.cache, shelf.environment)
    done = install.complete(current)
    assert done
    assert done.checkout == str(home.HOME)
    # Another lock of that checkout's, in the cache that both use.
    old = current.with_name("tiny-0123456789ab")
    contract.write(replace(done, checkout=str(other)), old / install.MARKER)
    (found,) = (one for one in inventory.built(shelf.cache, [shelf.environment]) if one.folder == old)
    assert (found.checkout, found.old, found.current) == (str(other), False, False)
    inventory.clean(shelf.cache, [shelf.environment], print)
    assert install.complete(old)
    other.rmdir()
    inventory.clean(shelf.cache, [shelf.environment], print)
    assert not old.exists()
    assert install.complete(current)


def test_cleaning_leaves_what_a_running_job_uses(shelf: Bench) -> None:
    current = install.place(shelf.cache, shelf.environment)
    kept: list[bool] = []
    lines: list[str] = []

    def clean() -> None:
        inventory.clean(shelf.cache, [], lines.append)
        kept.append(install.complete(current) is not None)

    out = shelf.run("import time; time.sleep(0.5)", poll=clean)
    assert out.ended.code == 0
    assert set(kept) == {True}
    assert f"{current.name}: kept, it is in use" in lines
    clean()
    assert kept[-1] is False


def test_cleaning_does_not_wait(shelf: Bench) -> None:
    began = time.monotonic()
    with install.locked(install.place(shelf.cache, shelf.environment), exclusive=True):
        inventory.clean(shelf.cache, [], print)
    assert time.monotonic() - began < 10


def test_an_environment_of_another_python_version_is_not_the_current_one(shelf: Bench) -> None:
    other = Environment(name="tiny", folder=shelf.environment.folder, python="3.12")
    assert not any(one.current for one in inventory.built(shelf.cache, [other]))
