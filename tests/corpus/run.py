"""Take the corpus to runtimes, and write what became of each as a table in Markdown.

    python -m tests.corpus.run [--folder FOLDER] [--output FILE] [--only NAME]… RUNTIME…

Every model that is done is in aipc's store: the same command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.corpus import listing
from tests.corpus.listing import Entry

ROOT = listing.HERE.parent.parent
GREEN = "agrees"


@dataclass(frozen=True, kw_only=True)
class Row:
    """What became of one model on one runtime."""

    entry: Entry
    runtime: str
    verdict: str
    reason: str
    repairs: tuple[str, ...]
    seconds: float


def deploy(entry: Entry, runtime: str, folder: Path, runs: Path) -> Row:
    """Deploy one model on the venv engine, and read its report."""
    place = runs / runtime / entry.name
    began = time.monotonic()
    argv = [sys.executable, "-P", "-m", "aipc", "deploy", entry.argument(folder), "--runtime", runtime]
    argv += ["--engine", "venv", "--runs", str(place)]
    done = subprocess.run(argv, env=os.environ, cwd=ROOT, capture_output=True, text=True, check=False)
    seconds = time.monotonic() - began
    reports = sorted(place.rglob("report.json"), key=lambda path: path.stat().st_mtime)
    if not reports:
        said = done.stderr.strip().splitlines()
        return Row(
            entry=entry, runtime=runtime, verdict="error", reason=said[-1] if said else "", repairs=(), seconds=seconds
        )
    report: dict[str, Any] = json.loads(reports[-1].read_text(encoding="utf-8"))
    return Row(
        entry=entry,
        runtime=runtime,
        verdict=report["verdict"],
        reason="" if report["verdict"] == GREEN else "; ".join(report["reasons"]),
        repairs=tuple(each["rewrite"] for each in report["repairs"] if each["changed"]),
        seconds=seconds,
    )


def table(rows: list[Row], runtimes: list[str], commit: str, date: str) -> str:
    """Return the rows as Markdown: a line per model, a column per runtime, and below why one is not green."""
    lines = [f"Made from commit {commit} on {date}.", ""]
    for runtime in runtimes:
        counts = Counter(row.verdict for row in rows if row.runtime == runtime)
        total = sum(counts.values())
        told = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
        lines += [f"- {runtime}: {counts[GREEN]} of {total} agree ({100 * counts[GREEN] // max(total, 1)} %): {told}"]
    lines += ["", f"| model | kind | {' | '.join(runtimes)} |", f"|---|---|{'---|' * len(runtimes)}"]
    for entry in dict.fromkeys(row.entry for row in rows):
        cells = {row.runtime: _cell(row) for row in rows if row.entry is entry}
        lines += [f"| {entry.name} | {entry.kind} | {' | '.join(cells.get(name, '') for name in runtimes)} |"]
    reasons = [row for row in rows if row.reason]
    lines += ["", *(f"- {row.entry.name}, {row.runtime}: {_plain(row.reason)}" for row in reasons)]
    return "\n".join(lines) + "\n"


def _cell(row: Row) -> str:
    repairs = f", {', '.join(row.repairs)}" if row.repairs else ""
    return f"{row.verdict}{repairs}, {row.seconds:.0f} s"


def _plain(text: str) -> str:
    return " ".join(text.split())[:300]


def _git(*arguments: str) -> str:
    return subprocess.run(("git", *arguments), cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def main() -> int:
    """Run what is asked for; return 0 when all agree."""
    parser = argparse.ArgumentParser(description="take the corpus to runtimes")
    parser.add_argument("runtimes", nargs="+", metavar="RUNTIME")
    parser.add_argument("--folder", type=Path, default=listing.folder())
    parser.add_argument("--runs", type=Path, default=Path("runs", "corpus"))
    parser.add_argument("--output", type=Path, default=None)
    parser.add_argument("--only", action="append", default=[], metavar="NAME")
    asked = parser.parse_args()
    commit = _git("rev-parse", "--short", "HEAD") + (" with changes" if _git("status", "--porcelain") else "")
    rows: list[Row] = []
    for entry in listing.entries():
        if asked.only and entry.name not in asked.only:
            continue
        for runtime in asked.runtimes:
            row = deploy(entry, runtime, asked.folder.absolute(), asked.runs.absolute())
            rows.append(row)
            print(f"{entry.name}, {runtime}: {_cell(row)} {_plain(row.reason)}", flush=True)
            text = table(rows, asked.runtimes, commit, datetime.now(UTC).date().isoformat())
            if asked.output:
                asked.output.write_text(text, encoding="utf-8")
    return 0 if all(row.verdict == GREEN for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
