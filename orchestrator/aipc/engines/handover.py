"""Handing a workspace over to the user that its job runs as, and taking it back whatever happened."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def handed_over(workspace: Path, code: Path, user: int | None) -> Iterator[None]:
    """Give the workspace, with all in it, to `user` (and the group of that number), and take it back in the end.

    What the job made is taken back too. Links are never followed: a job may have made one that leads out.

    Args:
        workspace: what the job may write.
        code: a copy that only has to be readable.
        user: a number; None hands nothing over.
    """
    if user is None:
        yield
        return
    before = workspace.lstat()
    _give(workspace, user, user)
    _make_readable(code)
    try:
        yield
    finally:
        _give(workspace, before.st_uid, before.st_gid)


def _give(folder: Path, user: int, group: int) -> None:
    os.chown(folder, user, group, follow_symlinks=False)
    for _, folders, names, handle in os.fwalk(folder, follow_symlinks=False):
        for name in (*folders, *names):
            # What a job that still dies removes meanwhile needs no owner.
            with contextlib.suppress(FileNotFoundError):
                os.chown(name, user, group, dir_fd=handle, follow_symlinks=False)


def _make_readable(folder: Path) -> None:
    """Let everybody read what is in `folder`, whatever umask it was written with."""
    folder.chmod(folder.stat().st_mode | 0o555)
    for _, folders, names, handle in os.fwalk(folder, follow_symlinks=False):
        for bits, found in ((0o555, folders), (0o444, names)):
            for name in found:
                os.chmod(name, os.stat(name, dir_fd=handle).st_mode | bits, dir_fd=handle)
