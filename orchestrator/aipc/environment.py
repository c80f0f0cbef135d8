"""An environment: a pinned toolchain, read from its folder under `images/`, and what makes it the one it is.

The folder holds `requirements.in` (what is asked for), `overrides.txt` (what is left out or replaced; optional),
`requirements.lock` (machine-made: exact versions and hashes), `indexes.toml` (optional) and a `Dockerfile`.
`indexes.toml` names, for single packages, the vendor's own index that has the locked file:

    [packages]
    torch = "https://download.pytorch.org/whl/cpu"
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aipc import home
from aipc.errors import UsageError
from runtimes import contract

PLATFORM = "linux-x86_64"
"""What locks are made for; part of every environment's identity."""
NAME = re.compile(r"[a-z][a-z0-9]*")
FILES = ("Dockerfile", "requirements.in", "overrides.txt", "requirements.lock", "indexes.toml")
"""What an environment is made of, and what its identity is made from."""
_PIN = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)(\[[^]]*\])?==(?P<version>[^\s;\\]+)")


@dataclass(frozen=True, kw_only=True)
class Pin:
    """One package of a lock.

    Attributes:
        name: normalised: lower case, with `-` between words.
        version: exact, with its local part (`2.13.0+cpu`).
        text: its lines in the lock, with the hashes.
    """

    name: str
    version: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Environment:
    """A pinned toolchain.

    Attributes:
        name: its folder's name.
        folder: where its files are.
        python: the Python version it needs, such as "3.11".
    """

    name: str
    folder: Path
    python: str

    @classmethod
    def load(cls, name: str, python: str = "3.11") -> Environment:
        """Return the environment called `name` of this checkout.

        Raises:
            UsageError: there is no such folder.
        """
        images = home.images_folder()
        if not NAME.fullmatch(name) or not (images / name / "requirements.in").is_file():
            raise UsageError(f"{images}: there is no environment {name!r}{contract.suggest(name, names())}")
        return cls(name=name, folder=images / name, python=python)

    @property
    def digest(self) -> str:
        """What it is by content, as 64 hex digits: its files, the Python version and the platform."""
        contents = {
            name: hashlib.sha256((self.folder / name).read_bytes()).hexdigest()
            for name in FILES
            if (self.folder / name).is_file()
        }
        whole = contract.dumps({"files": contents, "python": self.python, "platform": PLATFORM})
        return hashlib.sha256(whole.encode()).hexdigest()

    @property
    def lock(self) -> Path:
        """The file with the exact versions and hashes."""
        return self.folder / "requirements.lock"

    def pins(self) -> tuple[Pin, ...]:
        """Return the packages of its lock.

        Raises:
            UsageError: it has no lock, or one without a package.
        """
        if not self.lock.is_file():
            raise UsageError(f"{self.lock}: there is no lock; make it: aipc lock {self.name}")
        pins = parse_pins(self.lock.read_text(encoding="utf-8"))
        if not pins:
            raise UsageError(f"{self.lock}: names no package; make it again: aipc lock {self.name}")
        return pins

    def indexes(self) -> Mapping[str, str]:
        """Return the packages that have an index of their own, with its URL.

        Raises:
            UsageError: `indexes.toml` is wrong.
        """
        path = self.folder / "indexes.toml"
        if not path.is_file():
            return {}
        try:
            declared = contract.decode(_Indexes, tomllib.loads(path.read_text(encoding="utf-8")), str(path))
        except tomllib.TOMLDecodeError as error:
            raise UsageError(f"{path}: no TOML: {error}; write [packages] and lines of name = URL") from error
        except contract.Misused as error:
            raise UsageError(str(error)) from error
        return {normalise(name): url for name, url in declared.packages.items()}


@dataclass(frozen=True, kw_only=True)
class _Indexes:
    packages: Mapping[str, str]


def names() -> tuple[str, ...]:
    """Return the names of all environments of this checkout."""
    images = home.images_folder()
    found = images.iterdir() if images.is_dir() else ()
    return tuple(sorted(path.name for path in found if (path / "requirements.in").is_file()))


def normalise(package: str) -> str:
    """Return the one spelling of a package's name: lower case, with `-` between words."""
    return re.sub(r"[-_.]+", "-", package).lower()


def parse_pins(text: str) -> tuple[Pin, ...]:
    """Return the packages of a lock's text, in its order; a line that belongs to no package goes to none."""
    lines = text.splitlines()
    starts = [(match, number) for number, line in enumerate(lines) if (match := _PIN.match(line))]
    ends = [number for _, number in starts[1:]] + [len(lines)] * bool(starts)
    return tuple(
        Pin(
            name=normalise(match["name"]),
            version=match["version"],
            text="\n".join(line for line in lines[start:end] if not line.lstrip().startswith("#")) + "\n",
        )
        for (match, start), end in zip(starts, ends, strict=True)
    )
