"""What a client gets of a command: data in the form of the command's own JSON, and a short text for who reads."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aipc import cell as cells
from aipc.errors import UsageError
from aipc.reports import report as reports
from aipc.reports import text
from aipc.serving.child import ERROR, Ended
from runtimes import contract
from runtimes.contract import Json, suggest

USUAL = (
    *("cell", "verdict", "reasons", "failure", "gates", "measures", "repairs", "device", "simulated"),
    *("tolerances", "notes", "uncaged", "reproduce"),
)
"""The keys of a report that a client gets where it names none: the whole would fill a model's context."""


class Problem(UsageError):
    """What a client is told in place of a result, in one line."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The result of a tool."""

    data: dict[str, Json]
    text: str


def answer(tool: str, ended: Ended, runs: Path, keys: Sequence[str]) -> Answer:
    """Return what a client gets of a command that has ended; one that is not green is an answer too.

    Args:
        tool: its name.
        ended: how it ended.
        runs: the folder of the reports.
        keys: those of a report that are asked for, () for the usual ones.

    Raises:
        Problem: the command gave no answer.
    """
    try:
        data = json.loads(ended.out)
    except ValueError as error:
        line = ended.last.removeprefix(ERROR).removeprefix("Error: ")
        raise Problem(line or f"aipc {tool} ended with exit code {ended.code}, without a word") from error
    if tool in {"deploy", "report"}:
        return _of_report(data, runs, keys or USUAL)
    if tool == "plan":
        return Answer(data={"cells": data}, text="\n".join(each["cell"] for each in data))
    if tool == "list":
        return Answer(data=data, text="\n".join(_listed(data)))
    return Answer(data=data, text="\n".join(line.text for line in text.fact_lines(data)))


def _of_report(data: Mapping[str, Json], runs: Path, keys: Sequence[str]) -> Answer:
    for key in keys:
        if key not in data:
            raise Problem(f"keys: a report has no {key!r}{suggest(key, data)}")
    report = contract.decode(reports.Report, data, reports.FILE_NAME)
    folder = runs / cells.parse(report.cell).folder
    told = {"verdict": report.verdict.value, "folder": str(folder), "report": {key: data[key] for key in keys}}
    return Answer(data=told, text=text.plain(report, folder).strip())


def _listed(data: Mapping[str, Json]) -> list[str]:
    models = [f"model {each['name']}" for each in data["models"]]
    runtimes = [
        f"runtime {each['name']} ({each['title']}): {', '.join(each['precisions'])}; for {', '.join(each['targets'])}"
        for each in data["runtimes"]
    ]
    return [*models, *runtimes]
