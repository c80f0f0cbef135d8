"""Gets the packages of a lock through pip: from where the user's pip looks, and single ones from the vendor's index."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from aipc.environment import Environment, Pin, normalise
from aipc.errors import EngineError

RETRIES = 2
WORDS_LINES = 12
_NO_NETWORK = re.compile(
    r"connection broken by|Could not fetch URL|name resolution|Name or service not known|Network is unreachable"
    r"|Connection refused|timed out|ProxyError|SSLError|Max retries exceeded"
)
_OTHER_FILE = re.compile(r"DO NOT MATCH THE HASHES")
_FULL_DISK = re.compile(r"No space left on device|Disk quota exceeded")
_NEXT = re.compile(r"(?:Collecting|Processing) (?:\S*/)?([A-Za-z0-9_.]+(?:-[A-Za-z_.][A-Za-z0-9_.]*)*)")
"""What pip prints before each package: its name, or its file's path."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """How pip is called for an environment.

    Attributes:
        argv: pip and its subcommand with its own options, such as `(python, "-I", "-m", "pip", "install")`.
        scratch: a folder for requirement files and for pip's temporary files, on the disk that has the space.
        log: the file that all of pip's words are added to.
        report: is told how far it is, in lines.
        lock: the open lock file of what is made. It is pip's standard input, which every child of pip inherits: so it
            stays locked until the last of them is gone, also when this process is killed.
    """

    argv: tuple[str, ...]
    scratch: Path
    log: Path
    report: Callable[[str], None]
    lock: int


def get(environment: Environment, call: Call) -> None:
    """Let pip get exactly the packages of the lock of `environment`: by hash, as wheels, with no resolving.

    A package that `indexes.toml` names is first looked for where the user's own pip looks, then in its index alone.

    Raises:
        EngineError: pip cannot have one of them; the message holds pip's own words.
        UsageError: the environment has no lock, or a wrong `indexes.toml`.
    """
    pins = environment.pins()
    indexes = environment.indexes()
    done = 0
    for pin in pins:
        if pin.name in indexes:
            _get_named(environment, call, pin, indexes[pin.name], (done, len(pins)))
            done += 1
    others = [pin for pin in pins if pin.name not in indexes]
    if others:
        words = _run_pip(environment, call, others, (done, len(pins)), ())
        if words is not None:
            raise EngineError(_explain(environment, call, words))


def _get_named(environment: Environment, call: Call, pin: Pin, index: str, counted: tuple[int, int]) -> None:
    """Get one package that has an index of its own."""
    words = _run_pip(environment, call, [pin], counted, ())
    if words is None:
        return
    call.report(f"{environment.name}: pip's configuration has no {pin.name} {pin.version}; asking {index}")
    named_words = _run_pip(environment, call, [pin], counted, ("--index-url", index))
    if named_words is not None:
        raise EngineError(
            f"environment {environment.name}: {pin.name} {pin.version} is neither where pip's configuration looks nor "
            f"at {index}; check the network, or put its wheel into a folder that pip's find-links names "
            f"(all of pip's words: {call.log})\n{words}\nand with that index:\n{named_words}"
        )


def _run_pip(
    environment: Environment, call: Call, pins: Iterable[Pin], counted: tuple[int, int], options: tuple[str, ...]
) -> str | None:
    """Run pip once for `pins`; return None when it did it, else its last words of trouble."""
    call.scratch.mkdir(parents=True, exist_ok=True)
    wanted = call.scratch / "requirements.txt"
    wanted.write_text("".join(pin.text for pin in pins), encoding="utf-8")
    argv = (
        *(*call.argv, "--require-hashes", "--no-deps", "--only-binary", ":all:", "--requirement", str(wanted)),
        *("--retries", str(RETRIES), *options),
    )
    done, total = counted
    lines = []

    def hear(line: str) -> None:
        nonlocal done
        lines.append(line)
        if match := _NEXT.match(line):
            done += 1
            call.report(f"{environment.name}: getting {normalise(match[1])} ({done} of {total})")
        elif line.startswith("Installing collected packages"):
            call.report(f"{environment.name}: installing")

    code = run_heard(argv, call.log, hear, variables=_variables(call.scratch), lock=call.lock)
    if code == 0:
        return None
    return _last_words(lines) or f"pip ended with exit code {code} and said nothing"


def _last_words(lines: list[str]) -> str:
    """Return what pip said of its trouble: its warnings, and all from its first error on."""
    first = next((number for number, line in enumerate(lines) if line.startswith("ERROR")), max(0, len(lines) - 5))
    warnings = [line for line in lines[:first] if line.startswith("WARNING")]
    return "\n".join(list(dict.fromkeys([*warnings, *lines[first:]]))[-WORDS_LINES:])


def _variables(scratch: Path) -> Mapping[str, str]:
    """Return the user's own variables, which configure pip, with what would send it elsewhere put right."""
    return {
        **os.environ,
        "TMPDIR": str(scratch),
        "PIP_USER": "0",  # a configuration with `user = true` makes pip refuse a virtual environment
        "PIP_NO_INPUT": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_PROGRESS_BAR": "off",
        "PIP_NO_COLOR": "1",
    }


def _explain(environment: Environment, call: Call, words: str) -> str:
    if _FULL_DISK.search(words):
        line = f"the disk of {call.scratch.parent} is full; free some space (aipc clean removes old environments)"
    elif _OTHER_FILE.search(words):
        line = "a file that was found is not the one of the lock; see where it comes from (pip config list)"
    elif _NO_NETWORK.search(words):
        line = "the package index cannot be reached; check the network and pip's configuration (pip config list)"
    else:
        line = "pip cannot get its packages; see why below"
    return f"environment {environment.name}: {line} (all of pip's words: {call.log})\n{words}"


def run_heard(
    argv: tuple[str, ...],
    log: Path,
    hear: Callable[[str], None],
    *,
    variables: Mapping[str, str],
    lock: int,
) -> int:
    """Run `argv` and return its exit code; each line that it prints goes to `log` and to `hear`.

    It does not outlive this process, neither an exception here (Ctrl-C) nor a kill; what it started may outlive a kill,
    but then holds `lock`, its standard input.
    """
    setpriv = shutil.which("setpriv")
    guard = (setpriv, "--pdeathsig", "KILL", "--") if setpriv else ()
    with (
        log.open("a", encoding="utf-8") as file,
        subprocess.Popen(
            (*guard, *argv),
            env=dict(variables),
            stdin=lock,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as process,
    ):
        try:
            for line in process.stdout or ():
                file.write(line)
                hear(line.rstrip())
            return process.wait()
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
