"""What an environment is by content."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aipc import environment, home
from aipc.environment import Environment, parse_pins
from aipc.errors import UsageError
from tests.engines.wheelhouse import make_environment, make_wheel


@pytest.fixture
def tiny(tmp_path: Path) -> Environment:
    made = make_environment(tmp_path / "tiny", [make_wheel(tmp_path, "plain", "1")])
    for name in environment.FILES:
        (made.folder / name).touch()
    return made


@pytest.mark.parametrize("name", environment.FILES)
def test_one_byte_of_any_of_its_files_makes_it_another(tiny: Environment, name: str) -> None:
    before = tiny.digest
    assert tiny.digest == before
    (tiny.folder / name).write_bytes((tiny.folder / name).read_bytes() + b"\n")
    changed = tiny.digest
    assert changed != before
    (tiny.folder / name).unlink()
    assert tiny.digest not in {before, changed}


def test_its_python_version_belongs_to_it_and_a_readme_or_its_place_does_not(tiny: Environment, tmp_path: Path) -> None:
    (tiny.folder / "README.md").touch()
    before = tiny.digest
    (tiny.folder / "README.md").write_text("more")
    assert tiny.digest == before
    assert replace(tiny, folder=tiny.folder.rename(tmp_path / "moved")).digest == before
    assert replace(tiny, folder=tmp_path / "moved", python="3.12").digest != before


def test_contents_that_change_places_are_another_environment(tiny: Environment) -> None:
    (tiny.folder / "Dockerfile").write_text("x")
    one = tiny.digest
    (tiny.folder / "Dockerfile").write_text("")
    (tiny.folder / "overrides.txt").write_text("x")
    assert tiny.digest != one


def test_an_environment_is_found_by_its_folder(monkeypatch: pytest.MonkeyPatch, tiny: Environment) -> None:
    home_folder = tiny.folder.parent
    tiny.folder.rename(home_folder / "images-tiny")
    (home_folder / "images").mkdir()
    (home_folder / "images-tiny").rename(home_folder / "images" / "tiny")
    (home_folder / "images" / "base").mkdir()
    monkeypatch.setattr(home, "HOME", home_folder)
    assert environment.names() == ("tiny",)
    assert Environment.load("tiny", "3.12").folder == home_folder / "images" / "tiny"
    with pytest.raises(UsageError, match="there is no environment 'tinny'; did you mean 'tiny'?"):
        Environment.load("tinny")
    with pytest.raises(UsageError, match=r"there is no environment '\.\./images/tiny'"):
        Environment.load("../images/tiny")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[packages\n", "no TOML"),
        ('[package]\ntorch = "https://x"\n', "unknown key 'package'; did you mean 'packages'?"),
        ("[packages]\ntorch = 1\n", "packages.torch: 1 is not a string"),
    ],
)
def test_a_wrong_indexes_file_is_named(tiny: Environment, text: str, problem: str) -> None:
    (tiny.folder / "indexes.toml").write_text(text)
    with pytest.raises(UsageError, match="indexes.toml") as caught:
        tiny.indexes()
    assert problem in str(caught.value)


def test_pins_are_read_with_their_hashes_and_one_spelling_of_their_names() -> None:
    first, second = parse_pins(
        "# made\nMarkdown_It.Py==4.3.0 \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb\n    # via rich\n"
        "torch==2.13.0+cpu\n"
    )
    assert (first.name, first.version) == ("markdown-it-py", "4.3.0")
    assert first.text == "Markdown_It.Py==4.3.0 \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb\n"
    assert (second.name, second.version, second.text) == ("torch", "2.13.0+cpu", "torch==2.13.0+cpu\n")


@pytest.mark.parametrize("text", ["", "# nothing\n", "garbage ==\n"])
def test_a_lock_that_names_no_package_is_not_installed(tmp_path: Path, text: str) -> None:
    (tmp_path / "requirements.lock").write_text(text)
    with pytest.raises(UsageError, match="names no package.*aipc lock tiny"):
        Environment(name="tiny", folder=tmp_path, python="3.11").pins()
