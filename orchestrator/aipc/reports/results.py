"""What came of the cells of a matrix: one table, for the terminal, for people, for machines and for docs/."""

from __future__ import annotations

import collections
import os
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from aipc.reports import html, words
from runtimes import contract
from runtimes.contract import Verdict

RESULTS_SCHEMA = 1
"""The number of the form of matrix.json."""
FILE_NAME = "matrix.json"
PAGE_NAME = "index.html"
MARKS: Mapping[Verdict | None, str] = types.MappingProxyType(
    {
        Verdict.AGREES: "✓",
        Verdict.DISAGREES: "✗",
        Verdict.VACUOUS: "!",
        Verdict.REFUSED: "-",
        Verdict.FAILED: "✗",
        Verdict.UNTRIED: "-",
        None: "✗",
    }
)
HEADS = ("", "cell", "verdict", "cosine", "SNR dB", "rewrites", "ran on", "time", "made easier")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One cell.

    Attributes:
        cell: its name.
        verdict: what is believed, or null where it could not even be started.
        expected: what the matrix expects, or null where it says nothing.
        as_expected: whether that is so.
        cosine: the worst cosine similarity over all outputs and samples, or null.
        snr_db: the worst signal-to-noise ratio in dB, or null.
        rewrites: those that changed its graph.
        device: what ran the artefact, or "".
        simulated: what stood in for that device, or "".
        seconds: wall time of this cell.
        is_cached: whether every step was in the store already.
        loosened: how many tolerances are looser than the defaults.
        shrunk: how many inputs are smaller than the model declares.
        reason: why it is not green, or "".
        page: its report, relative to the table, or "".
    """

    cell: str
    verdict: Verdict | None
    expected: Verdict | None
    as_expected: bool
    cosine: float | None = None
    snr_db: float | None = None
    rewrites: tuple[str, ...] = ()
    device: str = ""
    simulated: str = ""
    seconds: float
    is_cached: bool = False
    loosened: int = 0
    shrunk: int = 0
    reason: str = ""
    page: str = ""

    @property
    def model(self) -> str:
        """The model, with its shape."""
        return self.cell.partition("/")[0]

    @property
    def how(self) -> str:
        """Runtime, precision and target."""
        return self.cell.partition("/")[2]

    @property
    def word(self) -> str:
        """The verdict, for people."""
        return "not started" if self.verdict is None else self.verdict.value

    @property
    def wanted(self) -> str:
        """The verdict that is expected, for people."""
        return "agrees" if self.expected is None else self.expected.value

    @property
    def ran_on(self) -> str:
        """The device, and whether it was the real one."""
        return f"{self.device} (simulated)" if self.simulated else self.device

    @property
    def easier(self) -> str:
        """What was made easier."""
        parts = ((self.loosened, "looser"), (self.shrunk, "smaller input"))
        return ", ".join(f"{amount} {what}" for amount, what in parts if amount)


@dataclass(frozen=True, kw_only=True)
class Results:
    """All cells of one run. It is true when every one was tried, and is as expected.

    Attributes:
        made: when it began, in ISO 8601 with a time zone.
        commit: that aipc ran from, `+` behind it where files differ from it; "" where there is none.
        engine: `docker` or `venv`.
        seconds: wall time so far.
        rows: the cells that were tried.
        missing: the cells that were not reached.
        results_schema: the number of this form.
    """

    made: str
    commit: str
    engine: str
    seconds: float = 0.0
    rows: tuple[Row, ...] = ()
    missing: tuple[str, ...] = ()
    results_schema: int = RESULTS_SCHEMA

    def __bool__(self) -> bool:
        return bool(self.rows) and not self.missing and all(row.as_expected for row in self.rows)

    @property
    def summary(self) -> str:
        """How many cells ended how, and how much was made easier, in one line."""
        counts = collections.Counter(row.word for row in self.rows)
        ended = ", ".join(f"{amount} {word}" for word, amount in counts.most_common())
        strange = sum(not row.as_expected for row in self.rows)
        more = f"; {len(self.missing)} not reached" if self.missing else ""
        simulated = sum(bool(row.simulated) for row in self.rows)
        return (
            f"{len(self.rows)} cells: {ended or 'none'}{more}; {strange} not as expected; {simulated} on a simulator; "
            f"{sum(row.loosened for row in self.rows)} tolerances loosened, "
            f"{sum(row.shrunk for row in self.rows)} inputs shrunk"
        )

    @property
    def hows(self) -> tuple[str, ...]:
        """The runtimes with precision and target, in the order in which they came."""
        return tuple(dict.fromkeys(row.how for row in self.rows))

    @property
    def models(self) -> tuple[str, ...]:
        """The models, without their shapes, in the order in which they came."""
        return tuple(dict.fromkeys(row.model.partition("#")[0] for row in self.rows))

    def at(self, model: str, how: str) -> tuple[Row, ...]:
        """Return the rows of a model, at any shape, and a runtime."""
        return tuple(row for row in self.rows if row.model.partition("#")[0] == model and row.how == how)


def write(found: Results, folder: Path) -> None:
    """Write the table for machines and for people into `folder`, each whole or not at all."""
    beside = folder / f".{PAGE_NAME}.{os.getpid()}"
    made = datetime.fromisoformat(found.made).astimezone(UTC)
    page = html.environment().get_template("matrix.html.j2").render(found=found, made=made, marks=MARKS)
    beside.write_text(page, encoding="utf-8", errors="replace")
    beside.replace(folder / PAGE_NAME)
    contract.write(found, folder / FILE_NAME)


def line(row: Row) -> str:
    """Return one cell on a line, as it is told when it has ended."""
    more = f": {row.reason}" if row.reason else ""
    strange = "" if row.as_expected else f" (expected: {row.wanted})"
    return words.plain(f"{MARKS[row.verdict]} {row.word}{strange}{more}")


def table(found: Results) -> Iterator[str]:
    """Give the table for a terminal, line by line."""
    rows = [HEADS, *(_columns(row) for row in found.rows)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADS))]
    for row in rows:
        yield "  ".join(f"{text:{width}}" for text, width in zip(row, widths, strict=True)).rstrip()
    yield ""
    yield f"{found.summary}; {words.duration(found.seconds)}"


def markdown(found: Results) -> str:
    """Return the table as Markdown, with the commit and the day that it was made."""
    commit = f"commit `{found.commit}`" if found.commit else "no commit"
    heads = ("model", "runtime", *HEADS[2:])
    lines = [
        "# Results",
        "",
        f"Made by `make matrix` from {commit} on {found.made[:10]}, on the {found.engine} engine. Cosine and SNR are",
        "the worst over all outputs and samples; the SNR of a quantised cell is beside the strongest sample.",
        "",
        f"| {' | '.join(heads)} |",
        f"|{'---|' * len(heads)}",
    ]
    for row in found.rows:
        columns = [text.replace("|", r"\|") for text in (row.model, row.how, *_columns(row)[2:])]
        lines.append(f"| {' | '.join(columns)} |")
    reasons = [f"- `{row.cell}`: {words.plain(row.reason)}" for row in found.rows if row.reason]
    return "\n".join([*lines, "", f"{found.summary}.", *(["", *reasons] if reasons else []), ""])


def _columns(row: Row) -> tuple[str, ...]:
    return (
        MARKS[row.verdict] if row.as_expected else "✗",
        row.cell,
        row.word if row.as_expected else f"{row.word}, not expected",
        words.cosine(row.cosine) if row.cosine is not None else "",
        words.snr(row.snr_db) if row.snr_db is not None else "",
        ", ".join(row.rewrites),
        row.ran_on,
        "cached" if row.is_cached else words.duration(row.seconds),
        row.easier,
    )
