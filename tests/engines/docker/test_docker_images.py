"""Images: which base is taken, how an environment's image is built without network, and what is cleaned up."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
import threading
import time
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from aipc import home
from aipc.engines import base_image, image
from aipc.engines.docker import DockerEngine
from aipc.engines.owner import current
from aipc.environment import Environment
from aipc.errors import EngineError
from tests.engines.conftest import offline
from tests.engines.docker.conftest import Make

pytestmark = pytest.mark.container


@pytest.fixture(autouse=True)
def only_wheels(monkeypatch: pytest.MonkeyPatch, wheels: Path) -> None:
    """The packages come from a folder; no network takes part."""
    offline(monkeypatch, wheels)


class Usage(NamedTuple):
    """What shutil.disk_usage returns."""

    total: int
    used: int
    free: int


def names(engine: DockerEngine) -> set[str]:
    return {name for found in image.list_images(engine.daemon) for name in found.names}


def builders(engine: DockerEngine, pid: int) -> list[image.Image]:
    """What builds of the process `pid` have left."""
    return [found for found in image.list_images(engine.daemon) if found.owner and found.owner.pid == pid]


def steps(*lines: str) -> str:
    """A Dockerfile with our frame and `lines` in its first stage."""
    return "\n".join(["ARG BASE", "FROM ${BASE} AS builder", "ARG OWNER", 'LABEL aipc.builder="${OWNER}"', *lines,
                      "FROM ${BASE}", "COPY --from=builder /made /made"])  # fmt: skip


# The base image.
def test_the_base_is_known_by_the_id_that_the_daemon_gave_it(docker_engine: DockerEngine, tiny: Environment) -> None:
    identity = docker_engine.identity(tiny)
    found = docker_engine.daemon.find_image(identity.base_image)
    assert found is not None
    assert found["Id"] == identity.base_image
    assert identity.base_image.startswith("sha256:")
    assert identity.interpreter.startswith("cpython-3.11.")
    assert (identity.engine, identity.digest) == ("docker", tiny.digest)


def test_a_choice_stands_and_costs_nothing_the_next_time(
    docker_engine: DockerEngine, docker_cache: Path, tiny: Environment
) -> None:
    first = docker_engine.identity(tiny)
    before = time.monotonic()
    again = DockerEngine(docker_cache)
    again.report = pytest.fail
    try:
        assert again.identity(tiny) == first
    finally:
        again.close()
    assert time.monotonic() - before < 1


def test_an_image_that_the_user_names_is_taken(docker_engine: DockerEngine, tmp_path: Path, tiny: Environment) -> None:
    identifier = docker_engine.base().image
    docker_engine.daemon.tag_image(identifier, "aipc/mine", "1")
    try:
        for asked in ("aipc/mine:1", identifier):
            engine = DockerEngine(tmp_path, asked)
            assert engine.identity(tiny).base_image == identifier
            assert engine.base().origin == asked
            engine.close()
    finally:
        docker_engine.daemon.remove_image("aipc/mine:1")


def test_a_name_that_comes_to_mean_another_image_is_seen(
    docker_engine: DockerEngine, tmp_path: Path, tiny: Environment
) -> None:
    daemon, identifier = docker_engine.daemon, docker_engine.base().image
    other = daemon.find_image(docker_engine.tag(tiny))
    assert other is not None
    try:
        daemon.tag_image(identifier, "aipc/mine", "2")
        engine = DockerEngine(tmp_path, "aipc/mine:2")
        assert engine.base().image == identifier
        engine.close()
        daemon.tag_image(other["Id"], "aipc/mine", "2")
        engine = DockerEngine(tmp_path, "aipc/mine:2")
        assert engine.base().image == other["Id"]
        engine.close()
    finally:
        daemon.remove_image("aipc/mine:2")


@pytest.mark.parametrize("asked", ["sha256:" + "0" * 64, "registry.invalid/no/such:image"])
def test_a_named_image_that_cannot_be_had_is_an_error(docker_daemon: str, tmp_path: Path, asked: str) -> None:
    assert docker_daemon
    engine = DockerEngine(tmp_path, asked)
    try:
        with pytest.raises(EngineError, match="sha256:0000.*has no such image|pulling registry.invalid/no/such:image"):
            engine.base()
    finally:
        engine.close()
    assert not (tmp_path / "docker" / "base.json").exists()


def test_an_image_without_python_is_no_base(docker_engine: DockerEngine, tmp_path: Path) -> None:
    tar = tmp_path / "empty.tar"
    with tarfile.open(tar, "w") as file:
        file.addfile(tarfile.TarInfo("nothing"), io.BytesIO())
    docker_engine.daemon.import_tar(tar, "aipc/empty", "1", {"some": 'la"bel'})
    try:
        engine = DockerEngine(tmp_path, "aipc/empty:1")
        with pytest.raises(
            EngineError,
            match=r"base image aipc/empty:1: sha256:[0-9a-f]+: python3 does not work in this image \(.*\); name a base",
        ):
            engine.base()
        engine.close()
    finally:
        docker_engine.daemon.remove_image("aipc/empty:1")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ('{"python": "3.11.2", "libc": " ", "machine": "x86_64"}', "name a base image with glibc 2 on x86_64"),
        ('{"python": "3.11.2", "libc": "glibc 2.36", "machine": "aarch64"}', "it has glibc 2.36 on aarch64"),
        ("Traceback", "its python3 printed 'Traceback'"),
    ],
)
def test_a_base_that_cannot_hold_the_wheels_is_refused(said: str, words: str) -> None:
    with pytest.raises(EngineError, match=words):
        base_image._describe("sha256:1", "mine", said)


def test_a_base_with_another_python_is_refused(docker_engine: DockerEngine, tiny: Environment) -> None:
    other = Environment(name=tiny.name, folder=tiny.folder, python="3.12")
    with pytest.raises(EngineError, match=r"its Python is 3\.11\.\d+, and the environment tiny needs 3\.12"):
        docker_engine.ensure(other, pytest.fail)


@pytest.fixture
def other_recipe(docker_engine: DockerEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout whose own base image is made by another recipe, which only says why it fails."""
    if docker_engine.base().origin == base_image.DEFAULT_BASE:
        pytest.skip("a registry answers here, so no base image is made")
    checkout = tmp_path / "checkout"
    (checkout / "images" / "base").mkdir(parents=True)
    (checkout / "images" / "base" / "debian.sh").write_text("echo E: no mirror answers >&2; exit 25\n")
    monkeypatch.setattr(home, "HOME", checkout)
    return checkout


@pytest.mark.usefixtures("other_recipe")
def test_without_registry_and_tool_one_line_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    engine = DockerEngine(tmp_path)
    with pytest.raises(EngineError) as caught:
        engine.base()
    engine.close()
    text = str(caught.value)
    assert "mmdebstrap, which makes one, is not installed; install it (apt install mmdebstrap), name an image" in text
    assert "pulling python:3.11-slim-bookworm" in text
    assert "\n" not in text


@pytest.mark.skipif(not shutil.which("mmdebstrap"), reason="mmdebstrap is not installed")
@pytest.mark.usefixtures("other_recipe")
def test_a_changed_recipe_makes_another_base_and_its_failure_keeps_the_words(tmp_path: Path) -> None:
    engine = DockerEngine(tmp_path)
    with pytest.raises(EngineError, match="mmdebstrap cannot make one .*\nE: no mirror answers"):
        engine.base()
    engine.close()
    assert (tmp_path / "docker" / "base.log").read_text() == "E: no mirror answers\n"
    assert not list((tmp_path / "docker").glob("*.tar"))


# Building.
def test_what_is_built_says_what_it_is(docker_engine: DockerEngine, tiny: Environment) -> None:
    found = docker_engine.daemon.find_image(docker_engine.tag(tiny))
    assert found is not None
    labels = found["Config"]["Labels"]
    assert labels["aipc.environment"] == "tiny"
    assert labels["aipc.digest"] == tiny.digest
    assert labels["aipc.base"] == docker_engine.base().image
    assert labels["aipc.checkout"] == str(home.HOME)


def test_a_build_leaves_neither_wheels_nor_its_first_stage(docker_engine: DockerEngine, docker_cache: Path) -> None:
    assert builders(docker_engine, os.getpid()) == []
    assert not list(docker_cache.rglob("*.whl"))
    assert not list(docker_cache.rglob("tiny-*.log"))
    assert not list((docker_cache / "docker").glob("tiny-*/"))


def test_a_build_has_no_network(docker_engine: DockerEngine, make_environment: Make) -> None:
    said: list[str] = []
    environment = make_environment(
        "isolated",
        dockerfile=steps('RUN test "$(ls /sys/class/net)" = lo && ! getent hosts example.org && mkdir /made'),
    )
    docker_engine.ensure(environment, said.append)
    assert docker_engine.daemon.find_image(docker_engine.tag(environment)) is not None
    assert "isolated: building the image, step 5 of 11" in "\n".join(said)


def test_what_is_built_is_not_built_again(docker_engine: DockerEngine, tiny: Environment) -> None:
    docker_engine.ensure(tiny, pytest.fail)


def test_another_lock_or_another_base_is_another_image(docker_engine: DockerEngine, make_environment: Make) -> None:
    base = docker_engine.base()
    environment = make_environment("same")
    name = image.tag(environment, base)
    assert image.tag(environment, base) == name
    assert image.tag(environment, replace(base, image="sha256:2")) != name
    with environment.lock.open("a") as file:
        file.write("\n")
    assert image.tag(environment, base) != name


def test_a_failing_build_keeps_its_whole_log(
    docker_engine: DockerEngine, docker_cache: Path, make_environment: Make
) -> None:
    environment = make_environment(
        "failing", dockerfile=steps("RUN seq 1000 && echo the vendor said no && echo in red >&2; false")
    )
    with pytest.raises(
        EngineError, match=r"the image could not be built \(the whole log: .*\n(.*\n)*the vendor said no\n"
    ) as caught:
        docker_engine.ensure(environment, lambda _: None)
    log = next((docker_cache / "docker").glob("failing-*.log"))
    assert str(log) in str(caught.value)
    assert set(map(str, range(1, 1001))) < set(log.read_text().split())
    assert "\x1b" not in log.read_text()
    assert len(str(caught.value).splitlines()) < 30
    assert builders(docker_engine, os.getpid()) == []


def test_a_wheel_that_is_not_the_locked_one_is_refused(docker_engine: DockerEngine, make_environment: Make) -> None:
    environment = make_environment("forged")
    environment.lock.write_text("tinything==1.0 \\\n    --hash=sha256:" + "0" * 64 + "\n")
    with pytest.raises(EngineError, match=r"environment forged: (.*\n)*.*DO NOT MATCH THE HASHES"):
        docker_engine.ensure(environment, lambda _: None)
    assert docker_engine.daemon.find_image(docker_engine.tag(environment)) is None


def test_an_environment_without_a_dockerfile_is_refused(docker_engine: DockerEngine, make_environment: Make) -> None:
    environment = make_environment("plain")
    (environment.folder / "Dockerfile").unlink()
    with pytest.raises(EngineError, match="Dockerfile: there is none; write one, or use --engine venv"):
        docker_engine.ensure(environment, pytest.fail)


def test_a_full_disk_is_seen_before_a_build(
    docker_engine: DockerEngine, make_environment: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(total=10**9, used=10**9, free=10**7))
    with pytest.raises(EngineError, match=r"environment unlucky: about 0\.15 GB .*, and 0\.01 GB are free"):
        docker_engine.ensure(make_environment("unlucky"), pytest.fail)


def test_two_at_once_build_once(docker_cache: Path, make_environment: Make) -> None:
    environment = make_environment("shared", dockerfile=steps("RUN sleep 1 && mkdir /made"))
    said: list[list[str]] = [[], []]
    others = [DockerEngine(docker_cache) for _ in said]
    threads = [
        threading.Thread(target=other.ensure, args=(environment, words.append))
        for other, words in zip(others, said, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for other in others:
        other.close()
    built = [words for words in said if any("is ready" in word for word in words)]
    waited = [words for words in said if any("waiting for another aipc" in word for word in words)]
    assert (len(built), len(waited)) == (1, 1)


def test_wheels_are_sent_in_pieces(make_environment: Make, tmp_path: Path) -> None:
    big = tmp_path / "big.whl"
    with big.open("wb") as file:
        file.truncate(300_000_000)
    environment = make_environment("large")
    sent = 0
    tracemalloc.start()
    try:
        for piece in image._context(environment, tmp_path):
            sent += len(piece)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()
    assert sent > 300_000_000


def test_what_is_sent_is_a_tar_of_exactly_what_a_build_needs(make_environment: Make, tmp_path: Path) -> None:
    (tmp_path / "a-1-py3-none-any.whl").write_bytes(b"x" * 1000)
    environment = make_environment("exact")
    with tarfile.open(fileobj=io.BytesIO(b"".join(image._context(environment, tmp_path)))) as tar:
        assert tar.getnames() == ["Dockerfile", "requirements.lock", "wheels/a-1-py3-none-any.whl"]
        wheel = tar.extractfile("wheels/a-1-py3-none-any.whl")
        assert wheel is not None
        assert wheel.read() == b"x" * 1000


def test_wheels_are_those_that_the_base_takes(tiny: Environment) -> None:
    base = base_image.Base(image="sha256:1", python="3.11.2", glibc=31, origin="mine")
    options = image._wheel_options(tiny, base)
    done = subprocess.run(
        (sys.executable, "-m", "pip", "debug", "--verbose", *options), capture_output=True, text=True, check=True
    )
    taken = set(done.stdout.split("Compatible tags:")[1].split())
    assert {
        "cp311-cp311-manylinux_2_31_x86_64",
        "py3-none-any",
        "cp38-abi3-manylinux2014_x86_64",
        "cp311-none-manylinux1_x86_64",
    } <= taken
    assert not any("manylinux_2_32" in tag or "cp312" in tag for tag in taken)


# What is left over.
@pytest.fixture
def own_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout of the test's own, so that cleaning up never means anybody else's images."""
    checkout = tmp_path / "own"
    checkout.mkdir()
    monkeypatch.setattr(home, "HOME", checkout)
    return checkout


@pytest.mark.usefixtures("own_checkout")
def test_clean_removes_what_an_older_lock_built_and_nothing_else(
    docker_engine: DockerEngine, make_environment: Make, tiny: Environment
) -> None:
    dockerfiles = [steps(f"RUN echo {word} && mkdir /made") for word in ("old", "new")]
    old, new = (make_environment("aging", dockerfile=dockerfile) for dockerfile in dockerfiles)
    for environment in (old, new):
        docker_engine.ensure(environment, lambda _: None)
    assert {docker_engine.tag(old), docker_engine.tag(new)} < names(docker_engine)
    removed = image.clean_images(docker_engine.daemon, {docker_engine.tag(new)})
    assert docker_engine.tag(old) in {name for found in removed for name in found.names}
    assert docker_engine.tag(old) not in names(docker_engine)
    # The first is still asked for, the second belongs to another checkout, the third is what both are built on.
    base = docker_engine.daemon.find_image(docker_engine.base().image)
    assert base is not None
    assert {docker_engine.tag(new), docker_engine.tag(tiny)} < names(docker_engine)


def test_clean_leaves_the_images_of_another_checkout_until_it_is_gone(
    docker_engine: DockerEngine, make_environment: Make, own_checkout: Path
) -> None:
    environment = make_environment("foreign", dockerfile=steps("RUN mkdir /made"))
    docker_engine.ensure(environment, lambda _: None)
    name = docker_engine.tag(environment)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(home, "HOME", own_checkout.parent)
        image.clean_images(docker_engine.daemon, ())
        assert name in names(docker_engine)
        own_checkout.rmdir()
        image.clean_images(docker_engine.daemon, ())
        assert name not in names(docker_engine)


def test_clean_leaves_the_first_stage_of_a_build_that_runs() -> None:
    first = image.Image(
        image="sha256:1", names=(), kind="builder", owner=current(),
        environment="", digest="", base="", checkout="", size_bytes=1,
    )  # fmt: skip
    assert image.is_needed(first, ())
    assert not image.is_needed(replace(first, owner=replace(current(), started=1)), ())
    assert image.is_needed(replace(first, owner=replace(current(), started=1, boot="another machine's")), ())
