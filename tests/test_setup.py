"""From a fresh checkout, or a wheel, to an aipc that runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SETUP = ROOT / "orchestrator" / "setup.sh"
FOLDERS = ("images", "orchestrator", "runtimes", "skills")
FILES = ("LICENSE", "Makefile", "README.md", "matrix.toml", "pyproject.toml")


def python_that_says(folder: Path, name: str, version: str, *, venv: bool = True) -> None:
    """Put a stand-in of another Python into `folder`; it answers the three questions that setup.sh asks."""
    old = tuple(map(int, version.split("."))) < (3, 11)
    script = f"""#!/bin/sh
        case "$2" in
        *"%d.%d"*) echo {version} ;;
        *version_info*) exit {int(old)} ;;
        *ensurepip*) exit {int(not venv)} ;;
        *) echo "would now make a venv with $0"; exit 9 ;;
        esac
    """
    (folder / name).write_text(script, encoding="utf-8")
    (folder / name).chmod(0o755)


@pytest.fixture
def only_tools(tmp_path: Path) -> Path:
    """A folder with the tools that setup.sh needs and no Python, to be the whole PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in ("date", "dirname", "sh"):
        found = shutil.which(tool)
        assert found
        (folder / tool).symlink_to(found)
    return folder


def set_up(path: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a copy of setup.sh with `path` as the whole PATH."""
    checkout = path.parent / "checkout" / "orchestrator"
    checkout.mkdir(parents=True, exist_ok=True)
    shutil.copy(SETUP, checkout)
    environment = {"PATH": str(path), **variables}
    command = ["/bin/sh", str(checkout / SETUP.name), "host"]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def test_without_any_python_one_line_says_what_to_do(only_tools: Path) -> None:
    done = set_up(only_tools)
    assert done.returncode == 4
    assert done.stderr.count("\n") == 1
    assert "none at all" in done.stderr
    assert "make PYTHON=" in done.stderr


def test_an_old_python_is_named_with_its_version(only_tools: Path) -> None:
    python_that_says(only_tools, "python3", "3.9.2")
    done = set_up(only_tools)
    assert done.returncode == 4
    assert done.stderr.count("\n") == 1
    assert "python3 is 3.9.2" in done.stderr


def test_a_python_without_its_venv_module_is_named(only_tools: Path) -> None:
    python_that_says(only_tools, "python3", "3.12.1", venv=False)
    done = set_up(only_tools)
    assert done.returncode == 4
    assert done.stderr.count("\n") == 1
    assert "python3 3.12.1 lacks its venv module" in done.stderr


def test_a_newer_python_beside_an_old_one_is_taken(only_tools: Path) -> None:
    python_that_says(only_tools, "python3", "3.9.2")
    python_that_says(only_tools, "python3.12", "3.12.1")
    done = set_up(only_tools)
    assert "with Python 3.12.1" in done.stderr
    assert "would now make a venv with" in done.stdout


def test_a_name_that_only_prints_a_hint_is_no_python(only_tools: Path) -> None:
    (only_tools / "python3.14").write_text("#!/bin/sh\necho command not found >&2\nexit 127\n", encoding="utf-8")
    (only_tools / "python3.14").chmod(0o755)
    python_that_says(only_tools, "python3.11", "3.11.2")
    assert "with Python 3.11.2" in set_up(only_tools).stderr


def test_the_python_that_was_named_is_taken_or_refused(only_tools: Path) -> None:
    python_that_says(only_tools, "python3", "3.12.1")
    python_that_says(only_tools, "mine", "3.13.0")
    assert "with Python 3.13.0" in set_up(only_tools, PYTHON="mine").stderr
    assert set_up(only_tools, PYTHON="missing").returncode == 4


@pytest.fixture(scope="session")
def fresh_checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree, without any .venv, at a path with a blank."""
    folder = tmp_path_factory.mktemp("fresh") / "a checkout"
    folder.mkdir()
    for name in FILES:
        shutil.copy(ROOT / name, folder)
    for name in FOLDERS:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def make(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "PYTHON"))}
    command = ["make", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=variables)


def test_make_alone_lists_the_commands(fresh_checkout: Path) -> None:
    done = make(fresh_checkout)
    assert done.returncode == 0
    assert "make deploy" in done.stdout
    assert not (fresh_checkout / ".venv").exists()


def test_deploying_nothing_says_how_to_deploy_something(fresh_checkout: Path) -> None:
    set_up_once = make(fresh_checkout, "deploy")
    assert set_up_once.returncode == 2
    assert "make deploy MODEL=esrgan RUNTIME=openvino" in set_up_once.stderr


def test_a_fresh_checkout_sets_itself_up_once(fresh_checkout: Path) -> None:
    make(fresh_checkout, "deploy")
    version = [".venv/bin/aipc", "--version"]
    assert "aipc" in subprocess.run(version, capture_output=True, text=True, check=True, cwd=fresh_checkout).stdout
    assert "setup:" not in make(fresh_checkout, "deploy").stderr
    lock = fresh_checkout / "orchestrator" / "requirements.lock"
    os.utime(lock)
    assert "orchestrator/setup.sh host" in make(fresh_checkout, "--dry-run", "deploy").stdout


def test_a_checkout_that_was_moved_makes_its_environment_anew(fresh_checkout: Path) -> None:
    make(fresh_checkout, "deploy")
    moved = fresh_checkout.rename(fresh_checkout.with_name("moved"))
    try:
        assert "orchestrator/setup.sh host" in make(moved, "--dry-run", "deploy").stdout
    finally:
        moved.rename(fresh_checkout)


@pytest.fixture(scope="session")
def unpacked_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, built without a network and unpacked."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "-qq", "--no-build-isolation", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--wheel-dir", str(folder), str(ROOT)], check=True)
    with zipfile.ZipFile(next(folder.glob("aipc-*.whl"))) as wheel:
        wheel.extractall(folder / "unpacked")
    return folder / "unpacked"


def test_a_wheel_brings_its_runtimes_and_images_along(unpacked_wheel: Path) -> None:
    home = unpacked_wheel / "aipc" / "_home"
    for name in ("matrix.toml", "runtimes/contract.py", "runtimes/kit/worker.py", "images/openvino/requirements.lock"):
        assert (home / name).is_file(), name
    assert {path.name for path in unpacked_wheel.iterdir() if not path.name.endswith(".dist-info")} == {"aipc"}


def test_an_installed_aipc_finds_its_home_and_the_contract(unpacked_wheel: Path) -> None:
    code = "from aipc import home; import runtimes.contract; print(home.HOME); print(runtimes.contract.__file__)"
    # Without site-packages, where this checkout is installed too.
    command = [sys.executable, "-S", "-P", "-c", code]
    environment = {"PYTHONPATH": str(unpacked_wheel)}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    home = unpacked_wheel / "aipc" / "_home"
    assert done.stdout.splitlines() == [str(home), str(home / "runtimes" / "contract.py")]


def outcome_without_a_daemon(folder: Path, **variables: str) -> str:
    """Return the last line of pytest over a test that needs a daemon, where none answers."""
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    (folder / "test_made_up.py").write_text("def test_made_up(docker_daemon):\n    pass\n", encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-p", "no:cacheprovider", str(folder)]
    environment = {**os.environ, "CI": "", "DOCKER_HOST": f"unix://{folder}/nobody.sock", **variables}
    done = subprocess.run(
        [*command, f"--rootdir={folder}", f"--config-file={folder / 'pytest.ini'}"],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        cwd=ROOT,
    )
    return done.stdout.strip().splitlines()[-1]


def test_a_missing_daemon_is_a_skip(tmp_path: Path) -> None:
    assert "1 skipped" in outcome_without_a_daemon(tmp_path)


def test_a_missing_daemon_is_a_failure_in_ci(tmp_path: Path) -> None:
    assert "1 error" in outcome_without_a_daemon(tmp_path, CI="true")
