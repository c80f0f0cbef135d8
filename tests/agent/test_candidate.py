"""A candidate's changes of the PyTorch source: made in order, on copies, and only where they can mean one place."""

from __future__ import annotations

from pathlib import Path

import pytest

from aipc.agent.candidate import Replacement, patched
from aipc.store import Material, describe
from runtimes.contract import Misused


@pytest.fixture
def source(tmp_path: Path) -> Material:
    folder = tmp_path / "source"
    (folder / "net").mkdir(parents=True)
    (folder / "net" / "layers.py").write_text("a = 1\nb = 1\n")
    (folder / "weights.bin").write_bytes(b"\xff\xfe\x00")
    files = describe(folder, ["net/layers.py", "weights.bin"])
    return Material(files=files, places={file.path: folder / file.path for file in files})


def text(of: Material, path: str = "net/layers.py") -> str:
    return of.places[path].read_text()


def change(old: str, new: str, path: str = "net/layers.py") -> Replacement:
    return Replacement(path=path, old=old, new=new)


def test_changes_follow_each_other_and_the_source_stays(source: Material, tmp_path: Path) -> None:
    made = patched(source, (change("a = 1", "a = 2"), change("a = 2", "a = 3")), tmp_path / "made")
    assert (text(made), text(source)) == ("a = 3\nb = 1\n", "a = 1\nb = 1\n")
    assert made.digest != source.digest
    assert [file.path for file in made.files] == ["net/layers.py", "weights.bin"]


def test_a_file_that_was_emptied_stays_empty(source: Material, tmp_path: Path) -> None:
    emptied = change("a = 1\nb = 1\n", "")
    assert text(patched(source, (emptied,), tmp_path / "made")) == ""
    with pytest.raises(Misused, match="holds it 0 times"):
        patched(source, (emptied, change("b = 1", "b = 2")), tmp_path / "made")


def test_two_spellings_of_a_path_are_one_file(source: Material, tmp_path: Path) -> None:
    made = patched(source, (change("a = 1", "a = 2"), change("b = 1", "b = 2", "./net/layers.py")), tmp_path / "made")
    assert text(made) == "a = 2\nb = 2\n"
    assert [file.path for file in made.files] == ["net/layers.py", "weights.bin"]


@pytest.mark.parametrize(
    ("replacement", "words"),
    [
        (change("= 1", "= 2"), "holds it 2 times"),
        (change("c = 1", ""), "holds it 0 times"),
        (change("a", "b", "net/layer.py"), "did you mean 'net/layers.py'"),
        (change("a", "b", "../source/net/layers.py"), "no '../source/net/layers.py'"),
        (change("a", "b", "weights.bin"), "is no text"),
    ],
)
def test_what_means_no_one_place_is_refused(
    source: Material, tmp_path: Path, replacement: Replacement, words: str
) -> None:
    with pytest.raises(Misused, match=words):
        patched(source, (replacement,), tmp_path / "made")
