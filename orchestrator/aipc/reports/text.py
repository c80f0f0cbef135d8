"""The end of a deploy on the terminal: the verdict, the worst numbers, where things lie, and how to do it again."""

from __future__ import annotations

import shlex
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aipc.reports import html, summary, words
from aipc.reports.report import FailedStep, Report
from aipc.tables import show as shown_path
from runtimes.contract import Json, Status, Verdict

if TYPE_CHECKING:
    from rich.console import Console

MESSAGE_LINES = 16
"""Of a longer message or log the terminal shows the last lines; the page has the whole."""

LOG_LINES = 8

LISTED = 20
"""Of a longer list `aipc inspect` shows the first; `--json` has the whole."""

_STYLES: Mapping[Verdict, str] = types.MappingProxyType(
    {
        Verdict.AGREES: "bold green",
        Verdict.DISAGREES: "bold red",
        Verdict.VACUOUS: "bold yellow",
        Verdict.REFUSED: "bold cyan",
        Verdict.FAILED: "bold red",
        Verdict.UNTRIED: "bold cyan",
    }
)
_MARKS: Mapping[Verdict, str] = types.MappingProxyType(
    {
        Verdict.AGREES: "✓",
        Verdict.DISAGREES: "✗",
        Verdict.VACUOUS: "!",
        Verdict.REFUSED: "-",
        Verdict.FAILED: "✗",
        Verdict.UNTRIED: "-",
    }
)
_POOR = str.maketrans(
    {"✓": "+", "✗": "x", "≥": ">=", "≤": "<=", "×": "x", "…": "...", "−": "-", "“": '"', "”": '"', "’": "'"}
)
"""What stands for our signs where the terminal's encoding has no place for them."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of the summary.

    Attributes:
        parts: pieces of text, each with its rich style or "".
        indent: in characters; the lines of a broken one hang two deeper when `hang` is set.
        hang: whether it is an item of a list.
        whole: never to be broken, so that it can be copied.
    """

    parts: tuple[tuple[str, str], ...] = ()
    indent: int = 2
    hang: bool = False
    whole: bool = False

    @property
    def text(self) -> str:
        """The line without colours."""
        return (" " * self.indent + "".join(text for text, _ in self.clean)).rstrip()

    @property
    def clean(self) -> tuple[tuple[str, str], ...]:
        """The parts on one line, without what could play tricks on a terminal."""
        return tuple((" ".join(words.plain(text).splitlines()), style) for text, style in self.parts)


def show(report: Report, folder: Path, console: Console) -> None:
    """Print the summary: coloured and wrapped on a terminal, otherwise one plain line for each.

    Args:
        report: what to tell.
        folder: the run folder.
        console: where to.
    """
    _print(lines(report, folder), console)


def show_facts(facts: Mapping[str, Json], console: Console) -> None:
    """Print what `aipc inspect` found in a model file.

    Args:
        facts: of the step `inspect`.
        console: where to.
    """
    _print(fact_lines(facts), console)


def _print(told: Iterable[Line], console: Console) -> None:
    """Print lines: broken to the width of a terminal, elsewhere as they are."""
    from rich.text import Text

    for line in told:
        text = Text()
        for part, style in line.clean:
            text.append(_writable(part, console.encoding), style)
        hanging = line.indent + (2 if line.hang else 0)
        keep = line.whole or not console.is_terminal or not line.parts
        rows = [text] if keep else text.wrap(console, max(console.width - hanging, 20))
        for number, row in enumerate(rows):
            row.rstrip()
            margin = hanging if number else line.indent
            console.print(Text(" " * margin if line.parts else "") + row, soft_wrap=True)


def plain(report: Report, folder: Path) -> str:
    """Return the summary as plain text."""
    return "".join(f"{line.text}\n" for line in lines(report, folder))


def lines(report: Report, folder: Path) -> Iterator[Line]:
    """Give the summary line by line."""
    style = _STYLES[report.verdict]
    head = (f"{_MARKS[report.verdict]} {report.verdict.value}", style), ("  ", ""), (report.cell, "bold")
    yield Line()
    yield Line(parts=head, indent=0)
    yield Line(parts=((words.meaning(report.verdict, report.model.reference), ""),))
    told = report.failure is not None and len(report.failure.failure.message.splitlines()) <= MESSAGE_LINES
    for reason in summary.reasons(report)[1 if told else 0 :]:  # the whole words follow
        yield Line(parts=((f"- {reason}", ""),), hang=True)
    for caveat in summary.caveats(report):
        yield Line(parts=((f"! {caveat}", "yellow"),), hang=True)
    if report.uncaged:
        yield Line(parts=((f"! Not caged: {', '.join(report.uncaged)}.", "yellow"),), hang=True)
    if report.simulated:
        yield Line(parts=((f"! Not on the device itself: {summary.where(report)}.", "yellow"),), hang=True)
    for repair in summary.repairs(report):
        yield Line(parts=(("rewrite  ", "dim"), (repair, "")), hang=True)
    for sentence in summary.agent(report):
        yield Line(parts=(("agent    ", "dim"), (sentence, "")), hang=True)
    for deviation in summary.deviations(report):
        yield Line(parts=(("! ", "yellow"), (f"agent: {deviation}", "yellow")), hang=True)
    for finding in summary.bisection(report):
        yield Line(parts=((f"- {finding}", ""),), hang=True)
    for note in report.notes:
        yield Line(parts=((f"note: {note}", "dim"),), hang=True)
    yield from _numbers(report)
    if report.failure:
        yield from _failure(report, report.failure)
    yield Line()
    yield from _places(report, folder)


def _numbers(report: Report) -> Iterator[Line]:
    """Give the worst numbers of each group as a table."""
    rows = [
        (
            group.tolerance.group if number is group.numbers[0] else "",
            number.name,
            number.shown,
            number.asked or "no limit",
            number.sample,
            number.good,
        )
        for group in summary.group_numbers(report)
        for number in group.numbers
    ]
    if not rows:
        return
    heads = ("group", "", "worst", "asked for", "in sample", True)
    widths = [max(len(str(row[column])) for row in (heads, *rows)) for column in range(4)]
    yield Line()
    yield _row(heads, widths, "dim", "dim")
    for row in rows:
        yield _row(row, widths, "" if row[-1] else "bold red", "dim")


def _row(row: tuple[str, str, str, str, str, bool], widths: list[int], style: str, soft: str) -> Line:
    group, name, shown, asked, sample, good = row
    return Line(
        parts=(
            ("" if good else "✗ ", style),
            (f"{group:{widths[0]}}  ", soft if style == soft else "bold"),
            (f"{name:{widths[1]}}  ", soft if style == soft else ""),
            (f"{shown:{widths[2]}}  ", style),
            (f"{asked:{widths[3]}}  {sample}", soft),
        ),
        indent=2 if good else 0,
    )


def _failure(report: Report, failed: FailedStep) -> Iterator[Line]:
    """Give the vendor's own words, and the end of the log where the words may not be enough."""
    failure = failed.failure
    where = "".join(f", {kind} {name}" for kind, name in (("operator", failure.op), ("node", failure.node)) if name)
    yield Line()
    yield Line(
        parts=(
            (summary.ending(report, failed), "bold"),
            (f" ({failure.kind.value}: {words.KINDS[failure.kind]}{where})", "dim"),
        )
    )
    yield from _tail(failure.message, MESSAGE_LINES, "")
    if failure.hint:
        yield Line(parts=(("what to do: ", "bold"), (failure.hint, "")))
    log = _log(failed)
    if log:
        yield Line(parts=(("the end of its log", "bold"),))
        yield from _tail(log, LOG_LINES, "dim")


def _log(failed: FailedStep) -> str:
    """Return the log where the words above may not be enough: of a step that gave up, without our own traceback."""
    if failed.status is Status.REFUSED:
        return ""
    return words.without_traceback(failed.log_tail) if failed.status is Status.FAILED else failed.log_tail


def _tail(text: str, most: int, style: str) -> Iterator[Line]:
    """Give the last lines of `text`, and how many were left out."""
    rows = words.plain(text).strip("\n").splitlines()
    if len(rows) > most:
        yield Line(parts=((f"… {len(rows) - most} lines before this are in the report", "dim"),), indent=4)
    for row in rows[-most:]:
        yield Line(parts=((row, style),), indent=4)


def _places(report: Report, folder: Path) -> Iterator[Line]:
    """Give what a person wants to copy: paths and the command, each on one line."""
    if report.artifact:
        components = report.artifact.components
        size = words.size(sum(component.size_bytes for component in components))
        amount = "1 file" if len(components) == 1 else f"{len(components)} files"
        yield _place("artefact", shown_path(folder / report.artifact_folder), f"  {size}, {amount}")
    yield _place("report", shown_path(folder / html.FILE_NAME), "")
    yield _place("again", shlex.join(report.reproduce), "")


def _place(name: str, what: str, more: str) -> Line:
    return Line(parts=((f"{name:8}  ", "dim"), (what, "cyan"), (more, "dim")), whole=True)


def fact_lines(facts: Mapping[str, Json]) -> Iterator[Line]:
    """Give the facts of a model file line by line: short ones first, then each list under its name."""
    lists = {name: fact for name, fact in facts.items() if isinstance(fact, (list, dict)) and fact}
    for name, fact in facts.items():
        if name not in lists:
            say = {"size_bytes": words.size, "parameters": words.count}.get(name, words.value)
            yield Line(
                parts=((f"{name.removesuffix('_bytes'):14}  ", "dim"), (say(fact) or "none", "")), indent=0, hang=True
            )
    for name, fact in lists.items():
        yield Line()
        yield Line(parts=((name, "bold"), (f" ({len(fact)})", "dim")), indent=0)
        yield from _listed(name, fact)


def _listed(name: str, fact: Json) -> Iterator[Line]:
    """Give one list of facts: operators on one line, the most frequent first; else an item a line."""
    if name == "nodes" and isinstance(fact, Mapping):
        counted = sorted(fact.items(), key=lambda item: (-item[1], item[0]))
        yield Line(parts=((", ".join(f"{op} {amount}" for op, amount in counted), ""),))
        return
    items = list(fact.items()) if isinstance(fact, Mapping) else [("", item) for item in fact]
    for key, item in items[:LISTED]:
        yield _item(key, item)
    if len(items) > LISTED:
        yield Line(parts=((f"… and {len(items) - LISTED} more; --json shows them all", "dim"),))


def _item(key: str, item: Json) -> Line:
    """Return one item of a list: a check with its mark, a tensor with its shape, or whatever it is."""
    if isinstance(item, Mapping) and "passed" in item:
        mark, style = ("✓", "green") if item["passed"] else ("✗", "bold red")
        return Line(parts=((f"{mark} ", style), (item["name"], ""), (f"  {item['detail']}", "dim")), hang=True)
    if isinstance(item, Mapping) and "shape" in item:
        name = key or item.get("name", "")
        return Line(
            parts=((name, "bold"), (f"  {words.shape(tuple(item['shape']))} {item.get('dtype', '')}", "")), hang=True
        )
    return Line(parts=((f"{key}  " if key else "", "bold"), (words.value(item), "")), hang=True)


def _writable(text: str, encoding: str) -> str:
    """Return `text` with nothing in it that `encoding` cannot hold."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(_POOR).encode(encoding, "backslashreplace").decode(encoding)
    return text
