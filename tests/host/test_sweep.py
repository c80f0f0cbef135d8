"""What a table of cells says of its own making."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from aipc import home, sweep


def git(folder: Path, *words: str) -> str:
    author = ("-c", "user.name=A", "-c", "user.email=a@example.com")
    done = subprocess.run(("git", "-C", str(folder), *author, *words), check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_the_commit_is_that_of_our_own_checkout_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home, "HOME", tmp_path)
    assert sweep.commit() == ""
    (tmp_path / "matrix.toml").write_text("seed = 1\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "matrix.toml")
    git(tmp_path, "commit", "--quiet", "--message", "one")
    commit = git(tmp_path, "rev-parse", "--short=12", "HEAD")
    assert sweep.commit() == commit
    (tmp_path / "untracked").touch()
    assert sweep.commit() == commit
    (tmp_path / "matrix.toml").write_text("seed = 2\n")
    assert sweep.commit() == f"{commit}+"
    (tmp_path / "installed").mkdir()
    monkeypatch.setattr(home, "HOME", tmp_path / "installed")
    assert sweep.commit() == ""
