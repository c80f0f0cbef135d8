"""The commands beside `deploy`, as a person types them: what they say, what they remove, and what they leave alone."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from aipc.engines import image
from aipc.engines.docker import Daemon
from tests.cells.test_bad_input import NOTHING, USAGE, assert_one_line, model
from tests.command import ROOT, Aipc
from tests.engines.wheelhouse import make_environment, make_wheel

ENGINE = 4
RUNTIME = """
title = "Tiny"
steps = ["convert", "run"]
precisions = ["fp32"]
default_target = "cpu"

[targets.cpu]
devices = ["CPU"]
"""
BUILD = """
import sys
from pathlib import Path
from aipc import home
from aipc.engines import install
from aipc.environment import Environment
print(install.ensure(home.cache_folder(), Environment.load("tiny"), print))
"""


@pytest.fixture
def little(tmp_path: Path) -> Aipc:
    """The command in a checkout with one tiny environment, with a cache of its own, and without Docker or network."""
    home = tmp_path / "check[out]"
    (home / "runtimes" / "tiny").mkdir(parents=True)
    (home / "runtimes" / "tiny" / "runtime.toml").write_text(RUNTIME)
    (home / "matrix.toml").touch()
    wheel = make_wheel(tmp_path / "wheels", "tinything", "1.0")
    make_environment(home / "images" / "tiny", [wheel])
    shutil.copytree(ROOT / "images" / "base", home / "images" / "base")
    # Else the image of an earlier run of the tests could be taken for the one that is to be built.
    text = (ROOT / "images" / "reference" / "Dockerfile").read_text()
    (home / "images" / "tiny" / "Dockerfile").write_text(f"# {uuid.uuid4()}\n{text}")
    environ = {
        "AIPC_HOME": str(home),
        "AIPC_CACHE": str(tmp_path / "cache"),
        "DOCKER_HOST": f"unix://{tmp_path}/none.sock",
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(tmp_path / "wheels"),
    }
    return Aipc(tmp_path, environ)


@pytest.fixture
def little_with_docker(little: Aipc, docker_daemon: str) -> Iterator[Aipc]:
    """The same with a daemon; its images are removed in the end."""
    yield replace(little, environ={**little.environ, "DOCKER_HOST": docker_daemon})
    with contextlib.closing(Daemon(docker_daemon)) as daemon:
        for name in images_of(docker_daemon, little.environ["AIPC_HOME"]):
            daemon.remove_image(name)


def images_of(address: str, checkout: str) -> set[str]:
    """The names of the environments' images that a checkout has built; a new daemon also got its base from it."""
    with contextlib.closing(Daemon(address)) as daemon:
        mine = [each for each in image.list_images(daemon) if each.checkout == checkout and each.kind == "environment"]
    return {name for found in mine for name in found.names}


def images_folder(aipc: Aipc) -> Path:
    return Path(aipc.environ["AIPC_HOME"]) / "images" / "tiny"


def build_environment(aipc: Aipc) -> Path:
    """Build the tiny environment for the venv engine, and return its folder."""
    argv = (sys.executable, "-c", BUILD)
    done = subprocess.run(argv, env=aipc.variables(), capture_output=True, text=True, check=True)
    return Path(done.stdout.splitlines()[-1])


def change_environment(aipc: Aipc) -> None:
    """Ask for something else, as after an update of the checkout: what is built is old then."""
    with (images_folder(aipc) / "requirements.in").open("a") as file:
        file.write("# another one\n")


def lines_with(text: str, word: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines() if word in line]


# doctor, clean
def test_doctor_says_what_is_there_and_makes_nothing(little: Aipc) -> None:
    done = little("doctor")
    assert done.code == 0, done.error
    assert f"in {little.environ['AIPC_HOME']}" in done.out
    assert "venv is taken where none is named: no Docker or Podman daemon can be used" in done.out
    assert "GB free" in lines_with(done.out, "cache")[0]
    assert "nothing yet" in lines_with(done.out, "store")[0]
    assert lines_with(done.out, "Python ")[0].startswith("Python 3.11, /")
    assert lines_with(done.out, "not built yet")[0].startswith("tiny ")
    assert "none.sock: no such file or directory" in lines_with(done.out, "daemon ")[-1]
    assert not Path(little.environ["AIPC_CACHE"]).exists()
    assert not little.store.exists()


def test_doctor_says_where_there_is_no_cage_and_no_python(little: Aipc, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    toml = Path(little.environ["AIPC_HOME"]) / "runtimes" / "tiny" / "runtime.toml"
    toml.write_text('python = "3.99"\n' + toml.read_text())
    done = replace(little, environ={**little.environ, "PATH": str(tmp_path / "empty")})("doctor")
    assert done.code == 0, done.error
    assert lines_with(done.out, "cage ") == ["cage bubblewrap is not installed (apt-get install bubblewrap)"]
    assert "Python 3.99: none was found on this machine that fits" in done.out


def test_clean_removes_what_is_old_and_says_so_and_leaves_the_rest(little: Aipc) -> None:
    current = build_environment(little)
    old = current.with_name("tiny-0123456789ab")
    shutil.copytree(current, old, symlinks=True)
    shown = little("doctor").out
    assert lines_with(shown, "ready")[0].startswith("tiny ")
    assert lines_with(shown, "old; aipc clean removes it")[0].startswith("tiny 0123456789ab ")
    left = little.store / "tmp" / "work-of-a-killed-one"
    left.mkdir(parents=True)
    (left / "big").write_bytes(bytes(100_000))
    done = little("clean")
    assert done.code == 0, done.error
    lines = done.out.splitlines()
    assert lines[0].startswith(f"{old.name}: removed, ")
    assert lines[1].startswith("images are not looked at: docker: no Docker or Podman daemon can be used")
    assert lines[2].startswith("freed about ")
    assert (old.exists(), current.exists(), left.exists()) == (False, True, False)
    assert little("clean").out.splitlines()[1:] == ["there was nothing to remove"]


def test_clean_leaves_the_environments_of_another_checkout_which_doctor_names(little: Aipc, tmp_path: Path) -> None:
    built = build_environment(little)
    shutil.copytree(little.environ["AIPC_HOME"], tmp_path / "other")
    other = replace(little, environ={**little.environ, "AIPC_HOME": str(tmp_path / "other")})
    change_environment(other)
    (line,) = lines_with(other("doctor").out, built.name.partition("-")[2])
    assert line.endswith(f"of another checkout: {little.environ['AIPC_HOME']}")
    assert other("clean").out.splitlines()[1:] == ["there was nothing to remove"]
    assert built.exists()
    Path(little.environ["AIPC_HOME"]).rename(tmp_path / "moved")
    assert other("clean").out.startswith(f"{built.name}: removed, ")
    assert not built.exists()


def test_clean_forgets_results_only_when_it_is_told_to(little: Aipc) -> None:
    entry = little.store / "0123"
    entry.mkdir(parents=True)
    (entry / "entry.json").write_text("{}")
    assert little("clean").code == 0
    assert entry.exists()
    assert "results: 1 (2 B)" in lines_with(little("doctor").out, "store")[0]
    assert "results: 1 removed, 2 B" in little("clean", "--results").out
    assert not entry.exists()


# images build
@pytest.mark.timeout(300)
def test_images_are_built_shown_and_cleaned(little_with_docker: Aipc, docker_daemon: str) -> None:
    home = little_with_docker.environ["AIPC_HOME"]
    # No cell uses this one: it is built only where it is named.
    shutil.copytree(images_folder(little_with_docker), images_folder(little_with_docker).with_name("spare"))
    assert lines_with(little_with_docker("doctor").out, "not built yet")[-1].startswith("tiny ")
    done = little_with_docker("images", "build")
    assert done.code == 0, done.error
    (name,) = images_of(docker_daemon, home)
    assert done.out.splitlines()[-1] == f"tiny: the image {name} is ready"
    assert little_with_docker("images", "build", "tiny").out == f"tiny: the image {name} is there already\n"
    assert lines_with(little_with_docker("doctor").out, f"ready: {name}")
    # A cache that has never seen a daemon does not know what the image is built on; it is no rubbish for that.
    unknowing = replace(little_with_docker, environ={**little_with_docker.environ, "AIPC_CACHE": f"{home}/cache"})
    unknowing("clean")
    assert images_of(docker_daemon, home) == {name}
    change_environment(little_with_docker)
    (line,) = [line for line in lines_with(little_with_docker("doctor").out, "aipc clean") if line.startswith("tiny")]
    assert line.endswith("old; aipc clean removes it")
    assert f"image {name}: removed, " in little_with_docker("clean").out
    assert images_of(docker_daemon, home) == set()


def test_images_without_a_daemon_are_one_line(little: Aipc) -> None:
    assert_one_line(little("images", "build"), ENGINE, "docker: no Docker or Podman daemon can be used", "none.sock")


def test_an_unknown_environment_is_named_with_the_nearest_one(little: Aipc) -> None:
    for command in (("images", "build"), ("lock",), ("lock", "--check")):
        assert_one_line(little(*command, "tinny"), USAGE, "no environment 'tinny'; did you mean 'tiny'?")


# lock
def test_locks_are_made_checked_and_kept(little: Aipc, tmp_path: Path) -> None:
    lock = images_folder(little) / "requirements.lock"
    before = lock.read_text()
    lock.unlink()
    done = little("lock", "--check")
    assert "tiny: there is no lock; make it: aipc lock tiny" in done.out
    assert_one_line(done, USAGE, "tiny: the lock is not right", "aipc lock tiny")
    done = little("lock")
    assert done.out.splitlines()[-1] == "tiny: the lock has changed", done.error
    assert lock.read_text() == before
    assert little("lock", "tiny").out.splitlines()[-1] == "tiny: the lock is as it was"
    assert little("lock", "--check").out == "tiny: the lock is right\n"
    make_wheel(tmp_path / "wheels", "tinything", "2.0")
    (images_folder(little) / "requirements.in").write_text("tinything\n")
    assert little("lock").out.splitlines()[-1] == "tiny: the lock is as it was"
    assert little("lock", "--upgrade").out.splitlines()[-1] == "tiny: the lock has changed"
    assert "tinything==2.0" in lock.read_text()


def test_every_lock_that_is_wrong_is_named(little: Aipc) -> None:
    shutil.copytree(images_folder(little), images_folder(little).with_name("second"))
    for name in ("tiny", "second"):
        (images_folder(little).with_name(name) / "requirements.in").write_text("tinything==2.0\n")
    done = little("lock", "--check")
    assert_one_line(done, USAGE, "second tiny: the lock is not right")
    for name in ("second", "tiny"):
        assert f"{name}: tinything is 1.0, not 2.0 as in requirements.in" in done.out


# list, plan
def test_list_shows_the_models_of_the_matrix_and_the_runtimes(tmp_path: Path) -> None:
    done = Aipc(tmp_path)("list")
    assert done.code == 0, done.error
    for name in ("esrgan", "esrgan-anime", "esrgan-compact", "openvino"):
        assert lines_with(done.out, f"{name} ")
    assert lines_with(done.out, "openvino ")[0] == "openvino OpenVINO fp16, fp32, int8 cpu, gpu, npu"


def test_plan_shows_the_cells_of_the_matrix(tmp_path: Path) -> None:
    aipc = Aipc(tmp_path)
    done = aipc("plan")
    assert done.code == 0, done.error
    cells = done.out.split()
    assert {"esrgan/openvino/fp16@cpu", "esrgan-compact/openvino/fp32@cpu"} <= set(cells)
    chosen = [cell for cell in cells if cell.startswith("esrgan-anime/")]
    assert chosen
    assert aipc("plan", "esrgan-anime/*").out.split() == chosen
    found = json.loads(aipc("plan", "esrgan-anime/*", "--json").out)
    assert [each["cell"] for each in found] == chosen
    assert "openvino" in {each["runtime"] for each in found}


# inspect, report
def test_inspect_shows_what_is_in_a_file_and_its_gates(aipc: Aipc) -> None:
    model(aipc.folder / "small.onnx")
    done = aipc("inspect", "small.onnx", "--engine", "venv")
    assert done.code == 0, done.error
    assert lines_with(done.out, "image ") == ["image 1×3×8×10 float32"]
    assert lines_with(done.out, "checker") == ["✓ checker"]
    found = json.loads(aipc("inspect", "small.onnx", "--engine", "venv", "--json").out)
    assert found["inputs"] == [{"dtype": "float32", "name": "image", "shape": [1, 3, 8, 10]}]
    assert all(gate["passed"] for gate in found["gates"])
    model(aipc.folder / "open.onnx", shape=(1, 3, "h", "w"))
    shown = aipc("inspect", "open.onnx", "--engine", "venv")
    assert [line for line in lines_with(shown.out, "static_shapes") if line.startswith("✗")]
    assert shown.code == 1
    assert shown.error.strip().splitlines()[-1] == (
        "aipc: open.onnx: does not pass static_shapes; the lines above say why"
    )
    assert_one_line(aipc("inspect", "smal.onnx"), USAGE, "smal.onnx", "did you mean 'small.onnx'?")


def test_report_shows_the_last_deploy_again_and_writes_its_page_anew(aipc: Aipc) -> None:
    assert aipc.tiny().code == 0
    (page,) = aipc.runs.rglob("report.html")
    before = page.read_text()
    page.unlink()
    cell = aipc.report()["cell"]
    done = aipc("report", cell)
    assert done.code == 0, done.error
    assert "✓ agrees" in done.out
    assert cell in done.out
    # The rest are data whose order may differ.
    assert page.read_text().partition("Manifest")[0] == before.partition("Manifest")[0]
    assert json.loads(aipc("report", cell, "--json").out) == aipc.report()
    assert_one_line(aipc("report", cell.replace("fp16", "fp32")), NOTHING, "there is no report")
