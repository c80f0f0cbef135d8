"""Images: one for each environment and base, built without network, and what is left over of old ones."""

from __future__ import annotations

import contextlib
import hashlib
import re
import shutil
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from aipc import home
from aipc.engines import install, packages
from aipc.engines.base_image import Base, Daemon, tail
from aipc.engines.machine import OTHER_CACHE, OTHER_DAEMON_DATA, check_space, size_bytes
from aipc.engines.owner import PREFIX, Owner, current
from aipc.environment import Environment
from aipc.errors import EngineError

IMAGE_FACTOR = 11
"""Disk that a build takes at the daemon, in sizes of its wheels: sent 1, copied 1, installed 4, and 4 in the result."""
CHUNK_BYTES = 1 << 20
RELEASE_SECONDS = 10.0
"""How long the daemon may take to give up a build."""
_STEP = re.compile(r"(?:\[\d+/\d+\] )?step (\d+)/(\d+)", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Image:
    """An image of ours.

    Attributes:
        image: its id.
        names: its names, none for what a build left behind.
        kind: "environment", "base", or "builder" for the first stage of a build.
        environment: the environment's name, "" for a base or a builder.
        digest: the environment's content.
        base: the id of the image it is built on.
        checkout: the checkout that built it.
        owner: the process that builds it, of a builder.
        size_bytes: its size, with what it shares with others.
    """

    image: str
    names: tuple[str, ...]
    kind: str
    environment: str
    digest: str
    base: str
    checkout: str
    owner: Owner | None
    size_bytes: int


def tag(environment: Environment, base: Base) -> str:
    """Return the name of the image of `environment` on `base`."""
    whole = hashlib.sha256(f"{environment.digest} {base.image}".encode()).hexdigest()
    return f"aipc/{environment.name}:{whole[:16]}"


def ensure(daemon: Daemon, environment: Environment, base: Base, cache: Path, report: Callable[[str], None]) -> None:
    """Build the image of `environment` on `base` where it is missing; one build of it at a time.

    Raises:
        EngineError: the packages cannot be had, the disk is full, or the build fails.
        UsageError: the environment has no lock.
    """
    name = tag(environment, base)
    if daemon.find_image(name):
        return
    if not base.python.startswith(f"{environment.python}."):
        raise EngineError(
            f"{base.origin}: its Python is {base.python}, and the environment {environment.name} needs "
            f"{environment.python}; name another base image (--base-image)"
        )
    if not (environment.folder / "Dockerfile").is_file():
        raise EngineError(f"{environment.folder / 'Dockerfile'}: there is none; write one, or use --engine venv")
    place = cache / name.removeprefix("aipc/").replace(":", "-")
    with install.locked(place, exclusive=True, report=report) as lock:
        if daemon.find_image(name):
            return
        _build(daemon, environment, base, place, report, lock)


def copied_out(daemon: Daemon, name: str, inside: Path, cache: Path) -> Path:
    """Return the folder `inside` of the image `name` on the host, copied there once.

    Raises:
        EngineError: the daemon does not give it.
    """
    place = cache / f"{name.removeprefix('aipc/').replace(':', '-')}-beside"
    with install.locked(place, exclusive=True):
        if not place.is_dir():
            with tempfile.TemporaryDirectory(prefix="beside-", dir=cache) as scratch:
                tar = Path(scratch) / "tar"
                with tar.open("wb") as file:
                    for chunk in daemon.copy_out(name, inside):
                        file.write(chunk)
                with tarfile.open(tar) as archive:
                    archive.extractall(scratch, filter="tar")
                (Path(scratch) / inside.name).rename(place)
    return place


def _build(
    daemon: Daemon, environment: Environment, base: Base, place: Path, report: Callable[[str], None], lock: int
) -> None:
    """Build the image with the folder `place` for the wheels; the log beside it stays when the build fails."""
    name, log = tag(environment, base), Path(f"{place}.log")
    owner, whose = f"{current()} {name}", f"environment {environment.name}"
    shutil.rmtree(place, ignore_errors=True)
    log.unlink(missing_ok=True)
    _remove_abandoned(daemon)
    check_space(place.parent, install.needed_bytes(environment), whose, OTHER_CACHE)
    wheels = place / "wheels"
    try:
        pip = (sys.executable, "-I", "-m", "pip", "download")
        argv = (*pip, "--dest", str(wheels), *_wheel_options(environment, base))
        scratch = place / "scratch"
        packages.get(environment, packages.Call(argv=argv, scratch=scratch, log=log, report=report, lock=lock))
        size = size_bytes(wheels)
        check_space(daemon.data_folder, IMAGE_FACTOR * size + install.EMPTY_BYTES, whose, OTHER_DAEMON_DATA)
        report(f"{environment.name}: building the image out of {size / 1e6:.0f} MB of wheels")
        labels = {
            f"{PREFIX}environment": environment.name,
            f"{PREFIX}digest": environment.digest,
            f"{PREFIX}base": base.image,
            f"{PREFIX}checkout": str(home.HOME),
        }
        lines = daemon.build(_context(environment, wheels), name, {"BASE": base.image, "OWNER": owner}, labels)
        # Closing the stream is what makes the daemon give a build up.
        with log.open("a", encoding="utf-8") as file, contextlib.closing(lines):
            for line in lines:
                file.write(line)
                if step := _STEP.match(line):
                    report(f"{environment.name}: building the image, step {step[1]} of {step[2]}")
    finally:
        shutil.rmtree(place, ignore_errors=True)
        _remove_builders(daemon, owner)
    if daemon.find_image(name) is None:
        raise EngineError(f"{name}: the image could not be built (the whole log: {log})\n{tail(log)}")
    log.unlink()
    report(f"{environment.name}: the image {name} is ready")


def _wheel_options(environment: Environment, base: Base) -> tuple[str, ...]:
    """Return what makes pip take the wheels that the Python of `base` would take, whatever Python runs aipc."""
    abi = f"cp{environment.python.replace('.', '')}"
    platforms = (
        *(f"manylinux_2_{minor}" for minor in range(base.glibc, 4, -1)),
        *("manylinux2014", "manylinux2010", "manylinux1", "linux"),
    )
    return (
        *("--python-version", environment.python, "--implementation", "cp"),
        *(f"--abi={one}" for one in (abi, "abi3", "none")),
        *(f"--platform={one}_x86_64" for one in platforms),
    )


def _context(environment: Environment, wheels: Path) -> Iterator[bytes]:
    """Yield the build's context as a tar, piece by piece: the wheels may be larger than the memory."""
    files = {name: environment.folder / name for name in ("Dockerfile", "requirements.lock")}
    files |= {f"wheels/{path.name}": path for path in sorted(wheels.iterdir())}
    for name, path in files.items():
        header = tarfile.TarInfo(name)
        header.size, header.mode = path.stat().st_size, 0o644
        yield header.tobuf()
        with path.open("rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                yield chunk
        yield bytes(-header.size % tarfile.BLOCKSIZE)
    yield bytes(2 * tarfile.BLOCKSIZE)


def list_images(daemon: Daemon) -> tuple[Image, ...]:
    """Return all images of ours that the daemon has, of every checkout."""
    found = {}
    for kind in ("recipe", "environment", "builder"):  # an image has the labels of what it is built on, too
        for entry in daemon.list_images(PREFIX + kind):
            labels = entry.get("Labels") or {}
            found[entry["Id"]] = Image(
                image=entry["Id"],
                names=tuple(_plain(name) for name in entry.get("RepoTags") or () if name != "<none>:<none>"),
                kind="base" if kind == "recipe" else kind,
                environment=labels.get(f"{PREFIX}environment", ""),
                digest=labels.get(f"{PREFIX}digest", ""),
                base=labels.get(f"{PREFIX}base", ""),
                checkout=labels.get(f"{PREFIX}checkout", ""),
                owner=Owner.parse(labels.get(f"{PREFIX}builder", "")),
                size_bytes=entry["Size"],
            )
    return tuple(found.values())


def clean_images(daemon: Daemon, keep: Collection[str]) -> tuple[Image, ...]:
    """Remove what no one needs any more, and return it.

    That is: what builds left whose process is dead; images of environments, of this checkout or of one that is gone,
    whose name is not in `keep`; and bases that lost their name. One that is in use stays.
    """
    removed = []
    for image in list_images(daemon):
        if is_needed(image, keep):
            continue
        with contextlib.suppress(EngineError):
            for name in image.names or (image.image,):
                daemon.remove_image(name)
            removed.append(image)
    return tuple(removed)


def is_needed(image: Image, keep: Collection[str]) -> bool:
    """Return whether `clean_images` leaves `image` alone; `keep` are the names that are asked for."""
    if image.kind == "builder":
        return image.owner is None or not image.owner.is_dead()
    if image.kind == "base":
        return bool(image.names)
    return not home.may_clean(image.checkout) or bool(set(image.names) & set(keep))


def _plain(name: str) -> str:
    """Return the name of an image as we gave it: Podman writes a registry before it."""
    return name.removeprefix("docker.io/").removeprefix("localhost/")


def _remove_builders(daemon: Daemon, owner: str) -> None:
    """Remove the first stage of the build that `owner` names, which holds the wheels and all of the packages again."""
    deadline = time.monotonic() + RELEASE_SECONDS
    with contextlib.suppress(EngineError):
        while found := daemon.list_images(f"{PREFIX}builder={owner}"):
            # A build that was given up holds its image until its last step is dead.
            with contextlib.nullcontext() if time.monotonic() > deadline else contextlib.suppress(EngineError):
                for entry in found:
                    daemon.remove_image(entry["Id"])
            time.sleep(0.1)


def _remove_abandoned(daemon: Daemon) -> None:
    """Remove what builds left whose process was killed: it may be as large as an image."""
    for image in list_images(daemon):
        if image.kind == "builder" and not is_needed(image, ()):
            with contextlib.suppress(EngineError):
                daemon.remove_image(image.image)
