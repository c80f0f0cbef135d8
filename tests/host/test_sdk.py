"""A vendor's SDK of the user's: where it is, and what tells two of them apart."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from aipc import runtime, sdk
from aipc.errors import UsageError

VARIABLE = "A_VENDORS_SDK_ROOT"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "sdk"
    (root / "bin").mkdir(parents=True)
    (root / "sdk.yaml").write_text("version: 1.0\n")
    (root / "bin" / "tool").write_text("a program\n")
    (root / "bin" / "link").symlink_to("tool")
    for path in (*root.rglob("*"), root):
        os.utime(path, ns=(1, 1), follow_symlinks=False)
    monkeypatch.setenv(VARIABLE, str(root))
    return root


def digest(folder: Path) -> str:
    """Return what an SDK in `folder` is, asked anew."""
    sdk._digest.cache_clear()
    return sdk.Sdk(variable=VARIABLE, folder=folder).digest


def test_where_nothing_is_said_of_an_sdk_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert sdk.find(VARIABLE) is None
    assert sdk.find("") is None
    monkeypatch.setenv(VARIABLE, "")
    assert sdk.find(VARIABLE) is None


def test_an_sdk_is_found_behind_a_link(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder.parent / "current").symlink_to(folder)
    monkeypatch.setenv(VARIABLE, str(folder.parent / "current"))
    assert sdk.find(VARIABLE) == sdk.Sdk(variable=VARIABLE, folder=folder)


def test_a_folder_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "nowhere"))
    with pytest.raises(UsageError, match=f"{VARIABLE}: .*nowhere' is no folder"):
        sdk.find(VARIABLE)


def replace_link(folder: Path) -> None:
    (folder / "bin" / "link").unlink()
    (folder / "bin" / "link").symlink_to("took")
    os.utime(folder / "bin" / "link", ns=(1, 1), follow_symlinks=False)


CHANGES: dict[str, Callable[[Path], object]] = {
    "the version, with no other size nor time": lambda folder: (folder / "sdk.yaml").write_text("version: 1.1\n"),
    "a size": lambda folder: (folder / "bin" / "tool").write_text("a longer program\n"),
    "a time": lambda folder: os.utime(folder / "bin" / "tool", ns=(2, 2)),
    "a name": lambda folder: (folder / "bin" / "tool").rename(folder / "bin" / "tool2"),
    "where a link leads": replace_link,
    "a new file": lambda folder: (folder / "new").touch(),
    "a new folder": lambda folder: (folder / "new").mkdir(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_makes_another_sdk_of_it(folder: Path, change: str) -> None:
    before = digest(folder)
    assert digest(folder) == before
    CHANGES[change](folder)
    for path in (folder, folder / "bin", folder / "sdk.yaml"):
        os.utime(path, ns=(1, 1))
    assert digest(folder) != before


def test_a_copy_at_another_place_is_the_same_sdk(folder: Path) -> None:
    before = digest(folder)
    folder.rename(folder.with_name("elsewhere"))
    assert digest(folder.with_name("elsewhere")) == before


@pytest.mark.usefixtures("checkout")
@pytest.mark.parametrize("name", ["sdk", "An_SDK", "1SDK", "SDK ROOT"])
def test_a_runtime_names_a_variable_or_nothing(checkout: Path, name: str) -> None:
    path = checkout / "runtimes" / "alpha" / "runtime.toml"
    path.write_text(f'sdk = "{name}"\n{path.read_text()}')
    with pytest.raises(UsageError, match="is no variable; write it like VENDOR_SDK_ROOT"):
        runtime.find("alpha")
    path.write_text(path.read_text().replace(f'"{name}"', f'"{VARIABLE}"'))
    assert runtime.find("alpha").sdk == VARIABLE
