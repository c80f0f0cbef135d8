"""How a report is put into words: sentences of verdicts and gates, numbers that never flatter, text without tricks."""

from __future__ import annotations

import re
import types
from collections.abc import Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

from aipc.agent.deviations import DeviationKind
from runtimes.contract import Json, Kind, Status, Verdict

MEANINGS: Mapping[Verdict, str] = types.MappingProxyType(
    {
        Verdict.AGREES: "The artefact ran, and on every sample its outputs match those of {reference} "
        "within the tolerances.",
        Verdict.DISAGREES: "The artefact was built and ran, but what it gives is not what {reference} gives: "
        "do not ship it.",
        Verdict.VACUOUS: "This check proves nothing: with these samples and tolerances a broken artefact could pass "
        "it too, most often because what {reference} gives hardly depends on the input.",
        Verdict.REFUSED: "The toolchain says that it cannot do this, so there is nothing that could be compared "
        "with {reference}.",
        Verdict.FAILED: "A step crashed or gave up, so nothing is proved: neither that this model can be deployed "
        "here nor that it cannot.",
        Verdict.UNTRIED: "The artefact was not run, because the device that it needs is not here, so nothing is "
        "known of its outputs.",
    }
)
"""What each verdict means, in one sentence; `{reference}` is who gave the golden outputs."""

REFERENCES: Mapping[str, str] = types.MappingProxyType({"pytorch": "PyTorch", "onnxruntime": "ONNX Runtime FP32"})

ENDINGS: Mapping[Status, str] = types.MappingProxyType(
    {
        Status.DONE: "done",
        Status.REFUSED: "was refused by the toolchain",
        Status.FAILED: "gave up",
        Status.BROKEN: "broke: a bug in aipc's adapter",
        Status.MISUSED: "was given a job that it does not know",
        Status.CRASHED: "crashed",
    }
)

KINDS: Mapping[Kind, str] = types.MappingProxyType(
    {
        Kind.UNSUPPORTED_OP: "an operator is not supported",
        Kind.UNSUPPORTED_OPSET: "the opset is not supported",
        Kind.DYNAMIC_SHAPE: "the model has dynamic shapes",
        Kind.INVALID_MODEL: "the model is not valid",
        Kind.INVALID_WEIGHTS: "the weights are not valid",
        Kind.UNTRUSTED_WEIGHTS: "the weights need to be trusted first",
        Kind.MISSING_PACKAGE: "a package is missing",
        Kind.MISSING_RESULT: "it left no result",
        Kind.TOOLCHAIN: "the toolchain gave up",
        Kind.TIMEOUT: "it took too long",
        Kind.MEMORY: "it needed too much memory",
        Kind.DISK: "the disk is full or failed",
        Kind.CRASH: "the process died",
        Kind.ADAPTER: "a bug in aipc's adapter",
        Kind.OPTION: "an option cannot be met",
        Kind.NO_DEVICE: "the device is not here",
        Kind.REWRITE: "the graph could not be rewritten",
        Kind.PREREQUISITE: "what it builds on is not good",
    }
)

DEVIATIONS: Mapping[DeviationKind, str] = types.MappingProxyType(
    {
        DeviationKind.STAGE_SKIPPED: "a stage was skipped",
        DeviationKind.OUT_OF_ORDER: "stages were out of order",
        DeviationKind.FALSE_SUCCESS: "success was claimed, and the judge disagrees",
        DeviationKind.TOOLCHAIN_CHANGED: "the toolchain changed",
        DeviationKind.REPAIR_UNUSED: "a known repair was not used",
        DeviationKind.SKILL_UNREAD: "the skill was not read",
        DeviationKind.WRITE_OUTSIDE: "it wrote, or tried to, outside its workspace",
        DeviationKind.REPEATED_FAILURE: "what had failed was repeated",
        DeviationKind.CPU_AS_ACCELERATOR: "a CPU was passed off as the accelerator",
        DeviationKind.HELP_NEEDED: "it needs help",
    }
)

NO_VALUE = "n/a"

_ESCAPES = re.compile(r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b\[[0-?]*[ -/]*[@-~]|\x1b.?", re.DOTALL)
_EXCEPTION = re.compile(r"[A-Za-z_.]*(Error|Exception|Failure)\b.*[:!]")
# Control characters, and those that turn the direction of writing: a vendor's words must not hide what they say.
_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def plain(text: str) -> str:
    """Return `text` as a terminal would leave it: without escape sequences, overprinted lines and hidden characters."""
    lines = _ESCAPES.sub("", text).split("\n")
    return _HIDDEN.sub("", "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines))


def headline(text: str, limit: int = 240) -> str:
    """Return the line of `text` that says most, at most `limit` characters; `…` marks that there is more.

    It is the last line that names an exception (the vendor's traceback above it says less), else the first.
    """
    lines = [line.strip() for line in plain(text).splitlines() if line.strip()] or [""]
    line = next((line for line in reversed(lines) if _EXCEPTION.match(line)), lines[0])
    if len(line) > limit:
        return f"{line[: limit - 2].rstrip()} …"
    return f"{line} …" if len(lines) > 1 else line


def without_traceback(text: str) -> str:
    """Return `text` without Python's tracebacks, each with the exception that it ends in."""
    kept, inside = [], False
    for line in plain(text).splitlines():
        if line.startswith("Traceback (most recent call last)"):
            inside = True
        elif not inside and not line.startswith(("During handling of the above", "The above exception was")):
            kept.append(line)
        elif inside and line and not line.startswith(" "):
            inside = False  # the exception itself: the failure tells it
    return "\n".join(line for line in kept if line.strip())


def meaning(verdict: Verdict, reference: str) -> str:
    """Return in one sentence what `verdict` means; `reference` as in `ModelFacts.reference`."""
    return MEANINGS[verdict].format(reference=reference_name(reference))


def reference_name(reference: str) -> str:
    """Return the name of who gave the golden outputs."""
    return REFERENCES.get(reference, reference)


def cosine(value: float | None) -> str:
    """Return a cosine similarity, rounded down so that it never looks better than it is."""
    if value is None:
        return NO_VALUE
    decimal = Decimal(repr(value))
    missing = 1 - decimal
    if missing <= 0:
        return "1"
    digits = min(max(5, 1 - missing.adjusted()), 9)
    return format(decimal.quantize(Decimal(1).scaleb(-digits), ROUND_FLOOR), "f")


def snr(value: float | None) -> str:
    """Return a signal-to-noise ratio in dB without its unit, rounded down."""
    return NO_VALUE if value is None else str(Decimal(repr(value)).quantize(Decimal("0.1"), ROUND_FLOOR))


def difference(value: float | None) -> str:
    """Return a difference with three digits, rounded up."""
    if value is None:
        return NO_VALUE
    if value == 0:
        return "0"
    decimal = Decimal(repr(value))
    rounded = decimal.quantize(Decimal(1).scaleb(decimal.adjusted() - 2), ROUND_CEILING)
    if 1e-3 <= value < 1e4:
        return format(rounded.normalize(), "f")
    digits, exponent = f"{rounded:.2e}".split("e")
    return f"{digits}e{int(exponent)}"


def exact(value: float) -> str:
    """Return a threshold with all its digits."""
    return format(Decimal(repr(value)).normalize(), "f") if 1e-4 <= abs(value) < 1e6 else f"{value:g}"


_DECIBELS = ("snr", "local", "tightened")
_CALCULATED = ("sensitive", "tightened")
"""Gates by what their numbers are: levels; and limits that nobody wrote down, so that their last digits say nothing."""


def measured(value: float | bool | str | None, gate: str) -> str:
    """Return what the gate called `gate` measured."""
    if value is None:
        return "no value"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    say = {"cosine": cosine, "equal": cosine, "max_abs": difference, **dict.fromkeys(_DECIBELS, _level)}
    return say.get(gate.partition(":")[0], "{:.6g}".format)(value)


def _level(value: float) -> str:
    return f"{snr(value)} dB"


def asked(value: float | bool | str | None, gate: str) -> str:
    """Return what the gate called `gate` asks for."""
    if value is None or isinstance(value, (bool, str)):
        return "" if value is None else measured(value, gate)
    kind = gate.partition(":")[0]
    least = dict.fromkeys(("cosine", "equal", *_DECIBELS, "sensitive"), "≥ ")
    sign = {**least, "max_abs": "≤ ", "not_cpu_identical": "< "}.get(kind, "")
    shown = f"{value:.4g}" if kind in _CALCULATED else exact(value)
    return f"{sign}{shown}{' dB' if kind in _DECIBELS else ''}"


def size(size_bytes: int) -> str:
    """Return a size for people, in powers of 1000."""
    amount = float(size_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 999.95:
            return f"{amount:.0f} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def duration(seconds: float) -> str:
    """Return a duration for people."""
    if seconds < 99.95:
        return f"{seconds:.2f} s" if seconds < 9.995 else f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


def count(amount: int) -> str:
    """Return a large number for people: 16.7 M."""
    for unit, size_of in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if amount >= size_of:
            return f"{amount / size_of:.1f} {unit}"
    return str(amount)


def shape(dimensions: tuple[int | str, ...]) -> str:
    """Return a shape, for instance `1×3×64×64`; a scalar's is `scalar`."""
    return "×".join(str(dimension) for dimension in dimensions) or "scalar"


def value(item: Json) -> str:
    """Return any JSON value on one line."""
    if isinstance(item, Mapping):
        return ", ".join(f"{key}: {value(inner)}" for key, inner in item.items())
    if isinstance(item, (list, tuple)):
        return ", ".join(value(inner) for inner in item)
    if item is None or isinstance(item, bool):
        return "none" if item is None else measured(item, "")
    return plain(str(item))
