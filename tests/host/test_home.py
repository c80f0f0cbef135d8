from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import aipc
from aipc import home

PACKAGE = Path(aipc.__file__).parent


def run(code: str, path: Path, **environment: str) -> str:
    """Return what `code` prints in a new Python that finds packages below `path` and nowhere else."""
    start = f"import sys; sys.path.insert(0, {str(path)!r}); {code}"
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("AIPC_", "PYTHON"))}
    command = (sys.executable, "-S", "-P", "-c", start)
    return subprocess.run(
        command, env={**clean, **environment}, capture_output=True, text=True, check=True
    ).stdout.strip()


def test_in_a_checkout_home_is_its_root() -> None:
    printed = run("from aipc import home; print(home.HOME)", PACKAGE.parent)
    assert Path(printed) == PACKAGE.parent.parent
    assert (Path(printed) / "runtimes" / "contract.py").is_file()


def test_in_a_wheel_home_is_inside_the_package_and_the_contract_is_found_there(tmp_path: Path) -> None:
    packed = tmp_path / "aipc" / "_home"
    shutil.copytree(
        PACKAGE.parent.parent / "runtimes", packed / "runtimes", ignore=shutil.ignore_patterns("__pycache__")
    )
    for name in ("__init__.py", "home.py"):
        shutil.copy(PACKAGE / name, tmp_path / "aipc" / name)
    printed = run("from aipc import home; import runtimes.contract as c; print(home.HOME, c.__file__)", tmp_path)
    assert printed == f"{packed} {packed / 'runtimes' / 'contract.py'}"


def test_a_variable_names_another_home(tmp_path: Path) -> None:
    printed = run("from aipc import home; print(home.matrix_file())", PACKAGE.parent, AIPC_HOME=str(tmp_path))
    assert Path(printed) == tmp_path / "matrix.toml"


def test_the_matrix_of_the_current_folder_comes_first(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (checkout / "matrix.toml").touch()
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    assert (home.matrix_here(), home.matrix_file()) == (None, checkout / "matrix.toml")
    (project / "matrix.toml").touch()
    assert home.matrix_here() == home.matrix_file() == Path("matrix.toml")
    assert home.own_matrix_file() == checkout / "matrix.toml"
    (project / "runtimes").mkdir()
    (project / "runtimes" / "contract.py").touch()
    assert (home.matrix_here(), home.matrix_file()) == (None, checkout / "matrix.toml")


def test_the_folders_follow_home(checkout: Path) -> None:
    assert home.runtimes_folder() == checkout / "runtimes"
    assert home.images_folder() == checkout / "images"
    assert home.matrix_file() == checkout / "matrix.toml"


def test_what_another_checkout_made_may_not_be_cleaned_until_it_is_gone(checkout: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    assert home.may_clean(str(checkout))
    assert home.may_clean("")
    assert not home.may_clean(str(other))
    other.rmdir()
    assert home.may_clean(str(other))


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"AIPC_CACHE": "/somewhere/else", "XDG_CACHE_HOME": "/shared"}, "/somewhere/else"),
        ({"XDG_CACHE_HOME": "/shared"}, "/shared/aipc"),
        ({"XDG_CACHE_HOME": "not/absolute"}, "/home/user/.cache/aipc"),
        ({}, "/home/user/.cache/aipc"),
    ],
)
def test_the_cache_is_where_the_user_says(
    variables: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AIPC_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/user")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert home.cache_folder() == Path(expected)
