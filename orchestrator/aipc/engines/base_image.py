"""The base image that all others are built on: the user's, the registry's, or our own of Debian packages.

No digest is written anywhere that nobody resolved: a base is known by the id that the daemon itself gave it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from aipc import home
from aipc.engines import install, packages
from aipc.engines.machine import OTHER_CACHE, OTHER_DAEMON_DATA, check_space
from aipc.engines.owner import PREFIX
from aipc.errors import EngineError
from runtimes import contract
from runtimes.contract import Json

DEFAULT_BASE = "python:3.11-slim-bookworm"
OWN_BASE = "aipc/base:bookworm"
BASE_BYTES = 1_000_000_000
"""Disk that making our own base takes, its tar and the daemon's temporary copy included: measured 0.7 GB."""
TAIL_LINES = 20
PROBE = """
import ensurepip, json, platform, venv
libc, version = platform.libc_ver()
print(json.dumps({"python": platform.python_version(), "libc": f"{libc} {version}", "machine": platform.machine()}))
"""


class Daemon(Protocol):
    """What has the images; each method raises EngineError when it does not answer."""

    key: str
    address: str
    data_folder: Path

    def find_image(self, name: str) -> Mapping[str, Json] | None:
        """Return what is known of the image `name`, a name or an id; None when there is none."""

    def list_images(self, label: str) -> tuple[Mapping[str, Json], ...]:
        """Return the images with the label `label`; of those without a name only the last of each chain."""

    def remove_image(self, name: str) -> None:
        """Remove an image by its name, or by its id where it has none; one in use is an EngineError."""

    def tag_image(self, identifier: str, repository: str, tag: str) -> None:
        """Give an image one more name."""

    def pull(self, name: str) -> None:
        """Get the image `name` from its registry."""

    def import_tar(self, tar: Path, repository: str, tag: str, labels: Mapping[str, str]) -> None:
        """Make an image out of the root file system in `tar`."""

    def build(
        self, context: Iterable[bytes], tag: str, arguments: Mapping[str, str], labels: Mapping[str, str]
    ) -> Generator[str]:
        """Build an image out of `context`, a stream of a tar, without network; yield its log."""

    def copy_out(self, image: str, path: Path) -> Iterable[bytes]:
        """Yield a folder of an image, as the bytes of a tar file."""


@dataclass(frozen=True, kw_only=True)
class Base:
    """An image to build on.

    Attributes:
        image: its id, as the daemon gave it.
        python: the version of its Python, such as "3.11.2".
        glibc: the second number of its C library's version: 36 for 2.36.
        origin: the name it was asked by, or the recipe it was made by.
    """

    image: str
    python: str
    glibc: int
    origin: str


@dataclass(frozen=True, kw_only=True)
class _Chosen:
    """Which base was chosen, by `<daemon> <asked name>`: a choice stands until its image is gone."""

    bases: Mapping[str, Base] = field(default_factory=dict)


def resolve(
    daemon: Daemon, cache: Path, asked: str, try_out: Callable[[str, str], str], report: Callable[[str], None]
) -> Base:
    """Return the base image: the one asked for, else the default of the registry, else our own.

    Args:
        daemon: who has it.
        cache: where the choice is remembered.
        asked: a name or an id, "" for the default.
        try_out: returns what a Python program prints in a container of an image.
        report: is told what takes long.

    Raises:
        EngineError: it cannot be had, or has no Python that environments can be built with.
    """
    key = f"{daemon.key} {asked}"
    known = chosen(cache).get(key)
    if known and _is_current(daemon, asked, known):
        return known
    cache.mkdir(parents=True, exist_ok=True)
    with install.locked(cache / "base", exclusive=True, report=report) as lock:
        known = chosen(cache).get(key)
        if known and _is_current(daemon, asked, known):  # another aipc was faster
            return known
        found, origin = _get_asked(daemon, asked, report) if asked else _get_default(daemon, cache, report, lock)
        if not found.get("RepoTags"):
            # Docker removes a nameless image together with the last image that was built on it.
            daemon.tag_image(found["Id"], "aipc/base", found["Id"].rpartition(":")[2][:16])
        try:
            base = _describe(found["Id"], origin, try_out(found["Id"], PROBE))
        except EngineError as error:
            raise type(error)(f"base image {origin}: {error}") from error
        contract.write(_Chosen(bases={**chosen(cache), key: base}), cache / "base.json")
        return base


def chosen(cache: Path) -> Mapping[str, Base]:
    """Return the bases that were taken so far, by the daemon and the name that was asked for."""
    try:
        return contract.read(_Chosen, cache / "base.json").bases
    except (FileNotFoundError, contract.Misused):
        return {}


def _is_current(daemon: Daemon, asked: str, known: Base) -> bool:
    found = daemon.find_image(asked or known.image)
    if found is None or found["Id"] != known.image:
        return False
    return bool(asked) or known.origin in {DEFAULT_BASE, _recipe()}


def _describe(identifier: str, origin: str, said: str) -> Base:
    """Return the base image `identifier`, of which the probe has said `said`."""
    try:
        facts = json.loads(said)
        libc, _, version = str(facts["libc"]).partition(" ")
        major, _, minor = version.partition(".")
    except (ValueError, KeyError, TypeError) as error:
        raise EngineError(f"{identifier}: its python3 printed {said!r}; name another base image") from error
    if (libc, major, facts["machine"]) != ("glibc", "2", "x86_64"):
        raise EngineError(
            f"{identifier}: it has {facts['libc']} on {facts['machine']}; name a base image with glibc 2 on x86_64, "
            "which the vendors' wheels are made for"
        )
    return Base(image=identifier, python=facts["python"], glibc=int(minor.partition(".")[0]), origin=origin)


def _get_asked(daemon: Daemon, asked: str, report: Callable[[str], None]) -> tuple[Mapping[str, Json], str]:
    found = daemon.find_image(asked)
    if found is None:
        if asked.startswith("sha256:"):
            raise EngineError(f"{asked}: the daemon at {daemon.address} has no such image; pull it, or name another")
        report(f"pulling the base image {asked}")
        daemon.pull(asked)
        found = daemon.find_image(asked)
    if found is None:
        raise EngineError(f"{asked}: the image was pulled and is not there; name it by its id")
    return found, asked


def _get_default(
    daemon: Daemon, cache: Path, report: Callable[[str], None], lock: int
) -> tuple[Mapping[str, Json], str]:
    """Return the default base image and where it comes from; that no registry answers is no error."""
    found = daemon.find_image(DEFAULT_BASE)
    if found:
        return found, DEFAULT_BASE
    report(f"pulling the base image {DEFAULT_BASE}")
    try:
        daemon.pull(DEFAULT_BASE)
    except EngineError as error:
        report(f"no registry gives {DEFAULT_BASE}")
        return _get_own(daemon, cache, str(error), report, lock), _recipe()
    found = daemon.find_image(DEFAULT_BASE)
    if found is None:
        raise EngineError(f"{DEFAULT_BASE}: the image was pulled and is not there; start again")
    return found, DEFAULT_BASE


def _get_own(daemon: Daemon, cache: Path, why: str, report: Callable[[str], None], lock: int) -> Mapping[str, Json]:
    """Return our own base image, made first where it is missing or its recipe is another."""
    own = daemon.find_image(OWN_BASE)
    if own and (own["Config"].get("Labels") or {}).get(f"{PREFIX}recipe") == _recipe():
        return own
    report("making a base image from Debian packages")
    _make_own(daemon, cache, why, lock)
    own = daemon.find_image(OWN_BASE)
    if own is None:
        raise EngineError(f"{OWN_BASE}: the image was imported and is not there; start again")
    return own


def _script() -> Path:
    return home.images_folder() / "base" / "debian.sh"


def _recipe() -> str:
    """Return which recipe our own base image is made by: its name and 16 hex digits of its content."""
    script = _script()
    content = script.read_bytes() if script.is_file() else b""
    return f"debian.sh {hashlib.sha256(content).hexdigest()[:16]}"


def _make_own(daemon: Daemon, cache: Path, why: str, lock: int) -> None:
    """Make our own base image from Debian packages; `why` says why no other could be had."""
    advice = "name an image that is here (--base-image), or use --engine venv"
    if not shutil.which("mmdebstrap"):
        raise EngineError(
            f"docker: there is no base image ({why}), and mmdebstrap, which makes one, is not installed; "
            f"install it (apt install mmdebstrap), {advice}"
        )
    check_space(cache, BASE_BYTES, "the base image", OTHER_CACHE)
    check_space(daemon.data_folder, BASE_BYTES, "the base image", OTHER_DAEMON_DATA)
    tar, log = cache / "base.tar", cache / "base.log"
    log.unlink(missing_ok=True)
    try:
        argv = ("sh", str(_script()), str(tar))
        variables = {**os.environ, "LC_ALL": "C.UTF-8"}
        code = packages.run_heard(argv, log, lambda _: None, variables=variables, lock=lock)
        if code != 0:
            raise EngineError(
                f"docker: there is no base image ({why}), and mmdebstrap cannot make one (all of its words: {log}); "
                f"run this as root with a Debian mirror in reach, {advice}\n{tail(log)}"
            )
        labels = {f"{PREFIX}recipe": _recipe(), f"{PREFIX}checkout": str(home.HOME)}
        repository, _, name = OWN_BASE.partition(":")
        daemon.import_tar(tar, repository, name, labels)
    finally:
        tar.unlink(missing_ok=True)
    log.unlink(missing_ok=True)


def tail(log: Path) -> str:
    """Return the last lines of the log of a build, "" where there is none."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.is_file() else []
    return "\n".join(lines[-TAIL_LINES:])
