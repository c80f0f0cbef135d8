"""The hinge between the host and a toolchain's environment: what a job is, and what came of it.

Both sides import this module, so it needs the standard library only and works on Python 3.11 and later.
A job travels as files in a workspace (see `Layout`); nothing travels through stdout.
"""

from __future__ import annotations

import dataclasses
import difflib
import enum
import json
import os
import signal
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

SCHEMA = 1
"""The number of this contract; each side refuses any other."""

Json = Any
"""A value that `json` reads and writes."""

T = TypeVar("T")


class Misused(ValueError):
    """Data that does not fit its declaration: `<where>: <what is wrong, with the value>; <what to do>`."""


class Step(enum.StrEnum):
    """What a job does."""

    PREPARE = "prepare"
    EXPORT = "export"
    REWRITE = "rewrite"
    PATCH = "patch"
    CONVERT = "convert"
    RUN = "run"
    JUDGE = "judge"
    BISECT = "bisect"
    CALIBRATE = "calibrate"
    QUANTIZE = "quantize"
    INSPECT = "inspect"
    AGENT = "agent"


class Status(enum.StrEnum):
    """How a job ended."""

    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"
    BROKEN = "broken"
    MISUSED = "misused"
    CRASHED = "crashed"


EXIT_CODES: Mapping[Status, int] = types.MappingProxyType(
    {Status.DONE: 0, Status.REFUSED: 20, Status.FAILED: 21, Status.BROKEN: 22, Status.MISUSED: 23}
)
"""The exit code that a worker must end with; any other code, or one that contradicts its result, is a crash."""


class Verdict(enum.StrEnum):
    """What is believed of a cell; only `AGREES` is good."""

    AGREES = "agrees"
    DISAGREES = "disagrees"
    VACUOUS = "vacuous"
    REFUSED = "refused"
    FAILED = "failed"
    UNTRIED = "untried"

    def __bool__(self) -> bool:
        return self is Verdict.AGREES


class Kind(enum.StrEnum):
    """What sort of failure it was; repairs are chosen by it."""

    UNSUPPORTED_OP = "unsupported_op"
    UNSUPPORTED_OPSET = "unsupported_opset"
    DYNAMIC_SHAPE = "dynamic_shape"
    INVALID_MODEL = "invalid_model"
    INVALID_WEIGHTS = "invalid_weights"
    UNTRUSTED_WEIGHTS = "untrusted_weights"
    MISSING_PACKAGE = "missing_package"
    MISSING_RESULT = "missing_result"
    TOOLCHAIN = "toolchain"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    DISK = "disk"
    CRASH = "crash"
    ADAPTER = "adapter"
    OPTION = "option"
    NO_DEVICE = "no_device"
    REWRITE = "rewrite"
    PREREQUISITE = "prerequisite"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a job did not end well.

    Attributes:
        kind: what sort of failure.
        message: the vendor's own words, whole.
        hint: what a person can do, or "".
        op: the operator type it speaks of, or "".
        node: the node's name, or "".
    """

    kind: Kind
    message: str
    hint: str = ""
    op: str = ""
    node: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """One step of one cell.

    Attributes:
        step: what to do.
        runtime: the folder under `runtimes/` whose adapter does it.
        inputs: names under `in/`, each a file or a folder.
        options: the step's own options; each step decodes them into a dataclass of its own.
        schema: the contract's number.
    """

    step: Step
    runtime: str
    inputs: tuple[str, ...]
    options: Mapping[str, Json]
    schema: int = SCHEMA


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """What came of a job. It is true when the job is done.

    Attributes:
        status: how it ended.
        outputs: names under `out/`, each a file or a folder.
        facts: what the step found out, as JSON.
        versions: package name to version, of what did the work.
        failure: why it did not end well; None exactly when it is done.
        seconds: wall time of the step inside the environment.
        peak_memory_bytes: peak resident memory of the worker and its children.
        schema: the contract's number.
    """

    status: Status
    outputs: tuple[str, ...] = ()
    facts: Mapping[str, Json] = dataclasses.field(default_factory=dict)
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    failure: Failure | None = None
    seconds: float = 0.0
    peak_memory_bytes: int = 0
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        if (self.failure is None) != (self.status is Status.DONE):
            raise Misused(
                f"status {self.status} with failure {self.failure}; a job has one exactly when it is not done"
            )

    def __bool__(self) -> bool:
        return self.status is Status.DONE


@dataclasses.dataclass(frozen=True, kw_only=True)
class Component:
    """One file of an artefact: its name, its sha256 and its size."""

    name: str
    sha256: str
    size_bytes: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Artifact:
    """What is delivered: its files, and a manifest that says where they came from."""

    components: tuple[Component, ...]
    manifest: Mapping[str, Json]


@dataclasses.dataclass(frozen=True)
class Layout:
    """The workspace of one attempt, as both sides see it."""

    root: Path

    @property
    def job(self) -> Path:
        """The job, written by the host."""
        return self.root / "job.json"

    @property
    def inputs(self) -> Path:
        """What the job reads; mounted read-only."""
        return self.root / "in"

    @property
    def outputs(self) -> Path:
        """What the job makes."""
        return self.root / "out"

    @property
    def tmp(self) -> Path:
        """HOME, TMPDIR and caches of the job."""
        return self.root / "tmp"

    @property
    def events(self) -> Path:
        """Progress, one JSON object a line: `{"text": str, "fraction": float | null}`."""
        return self.root / "events.jsonl"

    @property
    def log(self) -> Path:
        """Everything that the job printed."""
        return self.root / "log.txt"

    @property
    def result(self) -> Path:
        """The result, renamed into place as the last thing the worker does."""
        return self.root / "result.json"


def suggest(name: str, known: typing.Iterable[str]) -> str:
    """Return `; did you mean 'x'?`, or the known names where none is near."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; known are {', '.join(names)}" if names else ""


def encode(value: object) -> Json:
    """Return `value` (a dataclass, an enum, a mapping, a sequence, a path or a scalar) as JSON data."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: encode(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    return value


def dumps(value: object) -> str:
    """Return `value` as canonical JSON: sorted keys, no spaces; equal values give equal bytes."""
    return json.dumps(encode(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def decode(cls: type[T], data: Json, where: str) -> T:
    """Return `data` as a `cls`, a dataclass; refuse what does not fit.

    Args:
        cls: a dataclass of scalars, enums, dataclasses, `tuple[X, ...]`, `Mapping[str, X]`, and unions of these.
        data: what JSON or TOML gave.
        where: named in the error, for instance `matrix.toml: models.esrgan`.

    Raises:
        Misused: an unknown key (with a suggestion), a missing one, or a value of the wrong type.
    """
    if not isinstance(data, Mapping):
        raise Misused(f"{where}: {data!r} is not a table; write key = value pairs")
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    schema = data.get("schema", SCHEMA) if "schema" in fields else SCHEMA
    if schema != SCHEMA:
        raise Misused(f"{where}: schema {schema!r} is not {SCHEMA}; the two sides come from different versions of aipc")
    for key in data:
        if key not in fields:
            raise Misused(f"{where}: unknown key {key!r}{suggest(str(key), fields)}")
    hints = typing.get_type_hints(cls)
    values = {}
    for name, field in fields.items():
        if name in data:
            values[name] = _decode_value(hints[name], data[name], f"{where}.{name}")
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise Misused(f"{where}: the key {name!r} is missing; add it")
    try:
        return cls(**values)
    except Misused as error:
        raise Misused(f"{where}: {error}") from error


def _decode_value(hint: Any, value: Json, where: str) -> Any:
    if hint is Any or hint is object:
        return value
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return _decode_union(typing.get_args(hint), value, where)
    if origin is tuple:
        if not isinstance(value, (list, tuple)):
            raise Misused(f"{where}: {value!r} is not a list; write [...]")
        inner = typing.get_args(hint)[0]
        return tuple(_decode_value(inner, item, f"{where}[{index}]") for index, item in enumerate(value))
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            raise Misused(f"{where}: {value!r} is not a table; write key = value pairs")
        inner = typing.get_args(hint)[1]
        return {str(key): _decode_value(inner, item, f"{where}.{key}") for key, item in value.items()}
    if dataclasses.is_dataclass(hint):
        return decode(typing.cast("type[Any]", hint), value, where)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        try:
            return hint(value)
        except ValueError as error:
            raise Misused(
                f"{where}: {value!r} is not allowed{suggest(str(value), [str(m.value) for m in hint])}"
            ) from error
    return _decode_scalar(hint, value, where)


def _decode_union(hints: tuple[Any, ...], value: Json, where: str) -> Any:
    if value is None and type(None) in hints:
        return None
    choices = [hint for hint in hints if hint is not type(None)]
    if len(choices) == 1:
        return _decode_value(choices[0], value, where)
    for hint in choices:
        try:
            return _decode_value(hint, value, where)
        except Misused:
            continue
    names = " or ".join(getattr(hint, "__name__", str(hint)) for hint in choices)
    raise Misused(f"{where}: {value!r} is not {names}")


def _decode_scalar(hint: Any, value: Json, where: str) -> Any:
    words = {str: "a string", int: "a whole number", float: "a number", bool: "true or false"}
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint in words and (not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool)):
        raise Misused(f"{where}: {value!r} is not {words[hint]}")
    return value


def read(cls: type[T], path: Path) -> T:
    """Return the JSON file at `path` as a `cls`.

    Raises:
        Misused: it is no JSON, or does not fit.
        FileNotFoundError: there is no such file.
    """
    return decode(cls, loads(path.read_bytes(), path.name), path.name)


def loads(content: bytes, where: str) -> Json:
    """Return the JSON in `content`; it can be written again.

    Raises:
        Misused: it is no JSON, holds NaN, an infinity or half a character, or nests too deep.
    """
    try:
        data = json.loads(content.decode("utf-8"), parse_constant=_refuse_constant)
        json.dumps(data, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as error:
        raise Misused(f"{where}: not JSON that can be used: {error}") from error
    return data


def _refuse_constant(word: str) -> Json:
    raise ValueError(f"{word} is no number of JSON")


def write(value: object, path: Path) -> None:
    """Write `value` as JSON to `path`: first beside it, flushed to disk, then renamed."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with beside.open("w", encoding="utf-8") as file:
        file.write(dumps(value))
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def describe_exit(code: int) -> str:
    """Say how a process ended, from a return code of 0…255, 128+N, or −N as `subprocess` gives it."""
    number = -code if code < 0 else code - 128 if code > 128 else 0
    if number:
        try:
            return f"was killed by {signal.Signals(number).name}"
        except ValueError:
            pass
    return f"ended with exit code {code}"
