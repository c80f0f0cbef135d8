"""Cells one after the other: each deployed and published, and a table of what came of them all."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from aipc import asked as asking
from aipc import cell as cells
from aipc import config, home, materials, pipeline, sdk
from aipc import runtime as runtimes
from aipc.agent.settings import Mode
from aipc.asked import Asked
from aipc.cell import Cell
from aipc.config import Matrix, Model
from aipc.engines import Engine
from aipc.errors import AipcError, EngineGone, UsageError
from aipc.jobs import Session
from aipc.progress import Screen
from aipc.reports import html, results, summary, words
from aipc.reports.publish import Published, publish
from aipc.reports.report import Report
from aipc.reports.results import Results, Row
from aipc.store import Store
from aipc.tables import show as shown_path
from runtimes.contract import Verdict

if TYPE_CHECKING:
    from rich.console import Console

    from aipc.agent.session import Agent


TRANSCRIPTS = "transcripts"
"""The folder below that of the reports with what agents and their models said."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """What all deploys of one command share."""

    matrix: Matrix
    engine: Engine
    store: Store
    console: Console


def deploy(place: Place, asked: Asked, model: Model, cell: Cell) -> Published:
    """Deploy one cell, and write its report; of a quantised one also that of its cell in floating point.

    Raises:
        AipcError: a file that cannot be had, or an engine, disk or network that failed.
    """
    began = time.monotonic()
    if asked.calibration:
        _check_calibration(asked.calibration, asked.runs, cell)
    if asked.encodings:
        _check_encodings(asked.encodings, cell)
    wishes = asking.wished(asked, cell)
    place = replace(place, matrix=replace(place.matrix, withheld=asked.withheld))
    engine = place.engine
    with Screen(place.console) as screen:
        engine.report = lambda text: screen.progress(text, None)
        session = Session(engine=engine, store=place.store, cache=home.cache_folder(), listener=screen)
        helper = None if asking.is_quantized(cell) else _agent(place.matrix, asked, cell)
        if helper is None:
            done = pipeline.deploy(
                session, place.matrix, cell, model, asked.runs, asked.calibration, asked.encodings, wishes
            )
        else:
            from aipc.agent import session as agents

            done = agents.deploy(session, place.matrix, cell, model, asked.runs, helper, wishes)
    for each in (done.base, done):
        if each is not None:
            again = asking.reproduce(asked, each.cell, engine.name)
            published = publish(each, place.matrix, engine, asked.runs, time.monotonic() - began, again)
    return published


def _agent(matrix: Matrix, asked: Asked, cell: Cell) -> Agent | None:
    """Return the agent that is asked for, None where none is.

    Raises:
        UsageError: there is nobody who answers.
    """
    settings = replace(matrix.agent, mode=Mode(asked.agent)) if asked.agent else matrix.agent
    if asked.replay and not asked.agent and settings.mode is Mode.OFF:
        settings = replace(settings, mode=Mode.REPAIR)
    if settings.mode is Mode.OFF:
        return None
    # What speaks with a model's server takes its time to load, and most deploys ask nobody.
    from aipc.agent.key import read_key
    from aipc.agent.replay import Replay
    from aipc.agent.session import Agent
    from aipc.agent.upstream import Upstream

    key = read_key(settings.key_variable)
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
    folder = asked.runs / TRANSCRIPTS
    folder.mkdir(parents=True, exist_ok=True)
    return Agent(
        settings=settings,
        model=Replay(asked.replay) if asked.replay else Upstream(settings, key),
        key=key,
        skills=not asked.without_skills,
        transcript=folder / f"{str(cell).replace('/', '-')}-{now}.jsonl",
    )


def run(
    place: Place,
    chosen: Sequence[Cell],
    runs: Path,
    matrix_path: Path | None,
    base_image: str,
    markdown: Path | None,
) -> Results:
    """Deploy cells one after the other, going on past those that fail; the table is written after each.

    Args:
        place: engine, store, matrix and screen.
        chosen: the cells; those of one model follow each other, so that its export is used again.
        runs: the folder of the reports, and of the table.
        matrix_path: the matrix as the command line names it.
        base_image: as the command line names it.
        markdown: where to write the table as Markdown too.

    Raises:
        EngineGone: what runs the jobs is gone; what was done is kept, and the table says which cells were not reached.
        OSError: a report or the table cannot be written.
    """
    began = time.monotonic()
    found = Results(
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        commit=commit(),
        engine=place.engine.name,
        missing=tuple(map(str, chosen)),
    )
    try:
        for number, cell in enumerate(chosen, 1):
            place.console.print(f"\n[bold]{cell}[/]  [dim]{number} of {len(chosen)}[/]", highlight=False)
            row = _row(place, cell, runs, matrix_path, base_image)
            style = "" if row.as_expected else "red"
            place.console.print(results.line(row), style=style, highlight=False, markup=False)
            seconds = time.monotonic() - began
            found = replace(found, rows=(*found.rows, row), missing=found.missing[1:], seconds=seconds)
            results.write(found, runs)
    except EngineGone as error:
        kept = f"{len(found.rows)} of {len(chosen)} cells are done, and all that was made is kept"
        raise EngineGone(f"{error}; {kept}: the same command goes on with {found.missing[0]}") from error
    finally:
        place.console.print()
        for line in results.table(found):
            place.console.print(line, soft_wrap=True, highlight=False, markup=False)
        if markdown and found.rows:
            markdown.write_text(results.markdown(found), encoding="utf-8")
    return found


def unexpected(found: Results) -> str:
    """Return in one line which cells are not as expected."""
    names = [row.cell for row in found.rows if not row.as_expected]
    return f"{len(names)} of {len(found.rows)} cells are not as expected: {', '.join(names)}"


def _row(place: Place, cell: Cell, runs: Path, matrix_path: Path | None, base_image: str) -> Row:
    """Deploy one cell of the matrix; whatever is wrong with it is a row too.

    Raises:
        EngineGone: see `run`.
    """
    began = time.monotonic()
    wanted = cells.expected(place.matrix, cell)
    asked = Asked(
        model=cell.model,
        runtime=cell.runtime,
        precision=cell.precision,
        target=cell.target,
        shape="x".join(map(str, cell.shape)),
        source=None,
        trusted=False,
        runs=runs,
        matrix_path=matrix_path,
        engine=place.engine.name,
        base_image=base_image,
    )
    try:
        config.tolerance(place.matrix, runtimes.find(cell.runtime), cell.precision)
        model = cells.resolve_shape(config.find_model(place.matrix, cell.model), cell.shape)
        published = deploy(place, asked, model, cell)
    except EngineGone:
        raise
    except AipcError as error:
        return Row(
            cell=str(cell),
            verdict=None,
            expected=wanted,
            as_expected=False,
            seconds=time.monotonic() - began,
            reason=words.headline(str(error)),
        )
    return _told(published, cell, wanted, runs, time.monotonic() - began)


def _told(published: Published, cell: Cell, wanted: Verdict | None, runs: Path, seconds: float) -> Row:
    """Return the row of a cell that was deployed."""
    report = published.report
    reasons = summary.reasons(report)
    return Row(
        cell=str(cell),
        verdict=report.verdict,
        expected=wanted,
        as_expected=is_expected(report.verdict, wanted),
        cosine=_least(report, "cosine"),
        snr_db=_least(report, "snr_db"),
        rewrites=tuple(each.rewrite for each in report.repairs if each.is_kept),
        device=report.device,
        simulated=report.simulated,
        seconds=seconds,
        is_cached=published.is_cached,
        loosened=len(summary.loosened(report)),
        shrunk=len(summary.shrunk(report)),
        reason=reasons[0] if reasons and not report else "",
        page=(published.folder / html.FILE_NAME).relative_to(runs).as_posix(),
    )


def is_expected(verdict: Verdict, wanted: Verdict | None) -> bool:
    """Return whether a verdict is as the matrix expects it.

    Where it says nothing, `agrees` is expected, and `untried` is let pass: the artefact was built, and there is
    nothing here to run it on. It is counted apart, and never green.
    """
    return verdict in {Verdict.AGREES, Verdict.UNTRIED} if wanted is None else verdict is wanted


def _least(report: Report, field: str) -> float | None:
    values = [getattr(measure, field) for measure in report.measures]
    return min((value for value in values if value is not None), default=None)


def _check_calibration(folder: Path, runs: Path, cell: Cell) -> None:
    if not asking.is_quantized(cell):
        raise UsageError(f"--calibration: {cell.precision} of {cell.runtime} needs no calibration; leave it out")
    if not materials.of_folder(folder, runs, "--calibration").files:
        raise UsageError(f"--calibration: {shown_path(folder)} is no folder with files; name one")


def _check_encodings(file: Path, cell: Cell) -> None:
    found = runtimes.find(cell.runtime)
    if not found.encodings:
        takers = [each.name for each in runtimes.all_runtimes() if each.encodings]
        raise UsageError(
            f"--encodings: {found.name} takes none, only {', '.join(takers) or 'no runtime'}; leave it out"
        )
    if not asking.is_quantized(cell):
        raise UsageError(f"--encodings: {cell.precision} of {cell.runtime} is not quantised; leave it out")
    if found.sdk and sdk.find(found.sdk) is None:
        raise UsageError(
            f"--encodings: only the SDK's tools for {found.name} take them; name its folder in {found.sdk}"
        )
    if not file.is_file():
        raise UsageError(f"--encodings: {shown_path(file)} is no file; name one")


def commit() -> str:
    """Return the commit that aipc runs from, "+" behind it where files differ from it.

    It is "" where there is none: an aipc that was installed inside another repository is no part of that.
    """
    said = []
    for asked in (("rev-parse", "--show-prefix", "--short=12", "HEAD"), ("status", "--porcelain", "-uno")):
        try:
            done = subprocess.run(
                ("git", "-C", str(home.HOME), *asked), capture_output=True, text=True, check=False, timeout=30
            )
        except (OSError, subprocess.TimeoutExpired):
            return ""
        if done.returncode:
            return ""
        said.append(done.stdout)
    prefix, commit = said[0].splitlines()
    return "" if prefix else f"{commit}{'+' if said[1] else ''}"
