"""Which environments the venv engine has on the disk (`aipc doctor`), and how old ones go (`aipc clean`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from aipc import home
from aipc.engines import install, machine
from aipc.environment import Environment

_FOLDER = re.compile(r"(?P<name>[a-z][a-z0-9]*)-(?P<digest>[0-9a-f]{12})")


@dataclass(frozen=True, kw_only=True)
class Built:
    """An environment on the disk.

    Attributes:
        name: its name.
        digest: the first 12 hex digits of its content's hash.
        folder: where it is.
        size_bytes: what it takes.
        whole: it was built to its end.
        current: it is what this checkout's `images/` describes now.
        checkout: the folder of the checkout that made it, "" where that is not known.
        busy: a job uses it, or it is being built.
    """

    name: str
    digest: str
    folder: Path
    size_bytes: int
    whole: bool
    current: bool
    checkout: str
    busy: bool

    @property
    def old(self) -> bool:
        """Whether nobody needs it: it is half-made, or this checkout (or one that is gone) made it and asks no more."""
        return not self.whole or (not self.current and home.may_clean(self.checkout))


def built(cache: Path, current: Iterable[Environment]) -> tuple[Built, ...]:
    """Return the environments below `cache`, by name.

    Args:
        cache: aipc's cache.
        current: the environments that this checkout describes.
    """
    wanted = {install.place(cache, environment) for environment in current}
    shelf = install.shelf(cache)
    found = []
    for folder in sorted(shelf.iterdir()) if shelf.is_dir() else ():
        match = _FOLDER.fullmatch(folder.name)
        if not match or not folder.is_dir():
            continue
        done = install.complete(folder)
        with install.locked_if_free(folder) as free:
            found.append(
                Built(
                    name=match["name"],
                    digest=match["digest"],
                    folder=folder,
                    size_bytes=done.size_bytes if done else machine.size_bytes(folder),
                    whole=done is not None,
                    current=folder in wanted,
                    checkout=done.checkout if done else "",
                    busy=not free,
                )
            )
    return tuple(found)


def clean(cache: Path, current: Iterable[Environment], report: Callable[[str], None]) -> int:
    """Remove the environments that are old and that no job uses; return how many bytes that freed."""
    freed = 0
    for old in (found for found in built(cache, current) if found.old):
        with install.locked_if_free(old.folder) as free:
            if not free:
                report(f"{old.folder.name}: kept, it is in use")
                continue
            install.remove(old.folder)
            Path(f"{old.folder}.log").unlink(missing_ok=True)
            report(f"{old.folder.name}: removed, {old.size_bytes / 1e6:.0f} MB")
            freed += old.size_bytes
    return freed
