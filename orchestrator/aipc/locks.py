"""Locks: made by uv from `requirements.in` and `overrides.txt`, and checked, as a resolver's answer can be a wrong one.

Without the CPU build of a package in reach a resolver silently takes the CUDA build and a dozen more packages with it.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from aipc import uv
from aipc.environment import Environment, Pin, normalise, parse_pins
from aipc.errors import EngineError, UsageError
from aipc.tables import one_line

WHEEL_PLATFORM = "x86_64-manylinux_2_35"
"""Wheels that need no newer C library than this one (2022) may be chosen."""
LOCK_SECONDS = 600.0
_HASH = re.compile(r"\s+--hash=sha256:[0-9a-f]{64}")
_REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)\s*(\[[^]]*\])?\s*(==\s*(?P<version>[^\s;,]+))?")


def lock(environment: Environment, report: Callable[[str], None], *, upgrade: bool = False) -> bool:
    """Make the lock of `environment`, and say whether it is another one than before.

    The packages are looked for where the user's own pip looks. Where the result would be wrong, those that
    `indexes.toml` names are taken from the index that it names for them.

    Args:
        environment: whose lock.
        report: is told what is done, in lines.
        upgrade: take the newest versions that fit, instead of keeping those that still do.

    Raises:
        UsageError: the requirements contradict each other, or the result is a wrong one.
        EngineError: no network, or no uv.
    """
    report(f"{environment.name}: resolving requirements.in for Python {environment.python}, {WHEEL_PLATFORM}")
    try:
        text = _compile(environment, environment.folder / "requirements.in", upgrade)
        wrong = problems(environment, text)
    except UsageError as error:
        if not environment.indexes():
            raise
        wrong = (one_line(str(error).rpartition("cause: ")[2]),)
    if wrong and environment.indexes():
        report(f"{environment.name}: {wrong[0]}; asking the indexes that indexes.toml names")
        with tempfile.TemporaryDirectory(prefix="aipc-lock-") as folder:
            text = _compile(environment, _write_project(environment, Path(folder)), upgrade)
        wrong = problems(environment, text)
    if wrong:
        raise UsageError(
            f"{environment.lock}: not written, it would be wrong: {'; '.join(wrong)}; "
            "name the right packages in requirements.in, leave others out in overrides.txt, "
            "or name the index that has the right build in indexes.toml"
        )
    if environment.lock.is_file() and environment.lock.read_text(encoding="utf-8") == text:
        return False
    beside = environment.lock.with_name(f".{environment.lock.name}.{os.getpid()}")
    beside.write_text(text, encoding="utf-8")
    beside.replace(environment.lock)
    return True


def check(environment: Environment) -> tuple[str, ...]:
    """Return what is wrong with the lock of `environment`, in words; it needs no network."""
    if not environment.lock.is_file():
        return (f"there is no lock; make it: aipc lock {environment.name}",)
    return problems(environment, environment.lock.read_text(encoding="utf-8"))


def problems(environment: Environment, text: str) -> tuple[str, ...]:
    """Return what is wrong with `text` as the lock of `environment`, in words."""
    found = [f"the line {line!r} is no part of a lock" for line in _foreign_lines(text)]
    pins = {pin.name: pin for pin in parse_pins(text)}
    found += [problem for pin in pins.values() for problem in _pin_problems(pin)]
    wanted = _requirements(environment.folder / "requirements.in")
    for name, version in wanted.items():
        if name not in pins:
            found.append(f"{name} of requirements.in is missing; make the lock again: aipc lock {environment.name}")
        elif version and version not in {pins[name].version, pins[name].version.partition("+")[0]}:
            found.append(f"{name} is {pins[name].version}, not {version} as in requirements.in")
    found += [
        f"{name} of indexes.toml is not in requirements.in; take it out, or ask for it"
        for name in environment.indexes()
        if name not in wanted
    ]
    return tuple(found)


def _pin_problems(pin: Pin) -> list[str]:
    found = []
    if "--hash=sha256:" not in pin.text:
        found.append(f"{pin.name} has no hash")
    if pin.name.startswith("nvidia-"):
        found.append(f"{pin.name} is a part of a CUDA build, which nothing here can use")
    if "telemetry" in pin.name:
        found.append(f"{pin.name} sends data about the user to its vendor")
    return found


def _foreign_lines(text: str) -> list[str]:
    """Return the lines that are neither a pin nor a hash: options, links, local paths."""
    lines = [line.removesuffix("\\").rstrip() for line in text.splitlines()]
    return [line for line in lines if line and not (_HASH.fullmatch(line) or (parse_pins(line) and " " not in line))]


def _requirements(path: Path) -> Mapping[str, str]:
    """Return the packages that a requirements.in names, with the version where it pins one exactly."""
    found = {}
    for requirement in _lines(path):
        match = _REQUIREMENT.match(requirement)
        if match and not requirement.startswith("-"):
            found[normalise(match["name"])] = match["version"] or ""
    return found


def _lines(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    lines = [re.sub(r"(^|\s)#.*", "", line).strip() for line in text.splitlines()]
    return [line for line in lines if line]


def _compile(environment: Environment, source: Path, upgrade: bool) -> str:
    """Return what uv makes of `source`, a requirements.in or a pyproject.toml."""
    settings = pip_settings()
    with tempfile.TemporaryDirectory(prefix="aipc-lock-") as folder:
        output = Path(folder) / "requirements.lock"
        if environment.lock.is_file():
            shutil.copyfile(environment.lock, output)  # uv keeps the versions that it finds there and that still fit
        overrides = environment.folder / "overrides.txt"
        argv = (
            *(uv.find(), "pip", "compile", str(source), "--output-file", str(output), "--quiet", "--no-config"),
            *("--generate-hashes", "--no-header", "--no-annotate", "--only-binary", ":all:"),
            *("--python-version", environment.python, "--python-platform", WHEEL_PLATFORM),
            *(("--override", str(overrides)) if overrides.is_file() else ()),
            *(("--upgrade",) if upgrade else ()),
            *(part for place in settings.get("find-links", ()) for part in ("--find-links", place)),
            *(part for place in settings.get("index-url", ())[-1:] for part in ("--default-index", place)),
            *(("--no-index",) if settings.get("no-index", ())[-1:] in {("1",), ("true",)} else ()),
        )
        certificates = settings.get("cert", ())[-1:]
        variables = {**os.environ, **({"SSL_CERT_FILE": certificates[0]} if certificates else {})}
        try:
            done = subprocess.run(
                argv, env=variables, capture_output=True, text=True, timeout=LOCK_SECONDS, check=False, errors="replace"
            )
        except subprocess.TimeoutExpired as error:
            raise EngineError(f"{environment.folder}: uv did not end in {LOCK_SECONDS:.0f} s; try again") from error
        if done.returncode == 1:
            raise UsageError(
                f"{environment.folder / 'requirements.in'}: uv finds no set of packages that fits; "
                f"change it or overrides.txt\n{done.stderr.strip()}"
            )
        if done.returncode != 0:
            raise EngineError(
                f"{environment.folder}: uv could not make the lock; check the network and pip's configuration\n"
                f"{done.stderr.strip()}"
            )
        return output.read_text(encoding="utf-8")


def _write_project(environment: Environment, folder: Path) -> Path:
    """Write a pyproject.toml that asks for the same packages, some of them from their own index alone."""
    project = ["[project]", 'name = "environment"', 'version = "0"', f'requires-python = "=={environment.python}.*"']
    project.append(f"dependencies = {json.dumps(_lines(environment.folder / 'requirements.in'))}")
    for number, (package, url) in enumerate(environment.indexes().items()):
        project += ["[[tool.uv.index]]", f'name = "index-{number}"', f'url = "{url}"', "explicit = true"]
        project += [f'[tool.uv.sources."{package}"]', f'index = "index-{number}"']
    path = folder / "pyproject.toml"
    path.write_text("\n".join(project) + "\n", encoding="utf-8")
    return path


def pip_settings() -> Mapping[str, tuple[str, ...]]:
    """Return the user's pip configuration that says where packages come from; the last value of a name is in force.

    Raises:
        EngineError: this Python has no pip.
    """
    argv = (sys.executable, "-P", "-m", "pip", "config", "list")  # -P: a pip.py in the current folder is not pip
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise EngineError(
            f"{sys.executable}: its pip does not tell its configuration; install pip there: "
            f"{sys.executable} -m ensurepip\n{done.stderr.strip()}"
        )
    found: dict[str, list[str]] = {}
    # The environment's variables (":env:") are in force over the files, so they come last.
    for line in sorted(done.stdout.splitlines(), key=lambda line: line.startswith(":env:")):
        key, _, quoted = line.partition("=")
        section, _, name = key.partition(".")
        if section in {"global", "install", "download", ":env:"} and quoted:
            value = str(ast.literal_eval(quoted))
            parts = value.split() if name in {"find-links", "extra-index-url"} else [value]
            found[name] = [*(part for part in found.get(name, []) if part not in parts), *parts]
    return {name: tuple(parts) for name, parts in found.items()}
