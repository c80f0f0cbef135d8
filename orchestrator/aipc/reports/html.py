"""The report as one HTML file for people: no script, no network; the pictures lie inside it."""

from __future__ import annotations

import base64
import collections
import json
import os
import re
import shlex
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from aipc.deployment import outcome
from aipc.facts import Measure, Placed
from aipc.reports import summary, words
from aipc.reports.report import Report

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

FILE_NAME = "report.html"

SHOWN_CHARACTERS = 60_000
"""Of a longer message or log the page shows the two ends; report.json has the whole."""

_PNG = b"\x89PNG\r\n\x1a\n"


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A picture ready for the page; it is true when it can be shown.

    Attributes:
        uri: the PNG as a `data:` URI.
        width: in pixels.
        height: in pixels.
        problem: why it cannot be shown, or "".
    """

    uri: str = ""
    width: int = 0
    height: int = 0
    problem: str = ""

    def __bool__(self) -> bool:
        return not self.problem


def write(report: Report, folder: Path) -> Path:
    """Write the page into the run folder, whole or not at all.

    Args:
        report: what to show.
        folder: the run folder; the report's pictures lie in it.

    Returns:
        The path of the page.
    """
    page = folder / FILE_NAME
    beside = folder / f".{FILE_NAME}.{os.getpid()}"
    beside.write_text(render(report, folder), encoding="utf-8", errors="replace")
    beside.replace(page)
    return page


def render(report: Report, folder: Path) -> str:
    """Return the page as text; a picture that is missing leaves a note in its place."""
    return (
        environment()
        .get_template("page.html.j2")
        .render(
            report=report,
            made=datetime.fromisoformat(report.made).astimezone(UTC),
            reproduce=shlex.join(report.reproduce),
            picture=lambda name: load_picture(folder, name),
        )
    )


def load_picture(folder: Path, name: str) -> Picture:
    """Return the PNG called `name` in `folder`; nothing outside `folder` gets onto the page."""
    root, path = folder.resolve(), (folder / name).resolve()
    if not path.is_relative_to(root):
        return Picture(problem=f"{name} lies outside the run folder")
    try:
        content = path.read_bytes()
    except OSError as error:
        return Picture(problem=f"{name}: {error.strerror}")
    if not content.startswith(_PNG) or len(content) < 24:
        return Picture(problem=f"{name} is not a PNG")
    width, height = struct.unpack(">II", content[16:24])
    return Picture(uri=f"data:image/png;base64,{base64.b64encode(content).decode()}", width=width, height=height)


def environment() -> Environment:
    """Return jinja2 with our words; whatever a template prints is made plain text, then escaped."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        finalize=lambda value: (
            words.plain(value) if isinstance(value, str) and not isinstance(value, Markup) else value
        ),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals.update(words=words, summary=summary, outcome=outcome)
    made.filters.update(
        breakable=_breakable,
        by_output=_by_output,
        cosine=words.cosine,
        difference=words.difference,
        duration=words.duration,
        placed=_placed,
        pretty=lambda value: json.dumps(value, indent=2, ensure_ascii=False),
        shape=words.shape,
        shorten=_shorten,
        size=words.size,
        snr=words.snr,
    )
    return made


def _breakable(name: str) -> Markup:
    """Return `name` for the page, where its lines may break between its parts."""
    from markupsafe import Markup, escape

    return Markup("<wbr>").join(escape(part) for part in re.split(r"(?<=[/_@:#.])", words.plain(name)))


def _by_output(measures: Iterable[Measure]) -> dict[str, list[Measure]]:
    """Return the measures per output, in the order in which the outputs come."""
    outputs: dict[str, list[Measure]] = {}
    for measure in measures:
        outputs.setdefault(measure.output, []).append(measure)
    return outputs


def _placed(placement: Iterable[Placed]) -> list[tuple[str, int, list[tuple[str, int]]]]:
    """Return per device how many nodes run there and how many of each operator, the most frequent first."""
    devices: dict[str, collections.Counter[str]] = {}
    for placed in placement:
        devices.setdefault(placed.device, collections.Counter())[placed.op] += 1
    return [(device, ops.total(), ops.most_common()) for device, ops in sorted(devices.items())]


def _shorten(text: str) -> str:
    """Return `text` without hidden characters; of a very long one both ends, and how much was left out between."""
    text = words.plain(text).strip("\n")
    left_out = len(text) - SHOWN_CHARACTERS
    if left_out <= 0:
        return text
    half = SHOWN_CHARACTERS // 2
    return f"{text[:half]}\n\n[… {left_out} characters are left out here; report.json has them all …]\n\n{text[-half:]}"
