"""Reads skills/: sections, fenced commands and tables of the Markdown files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "skills"
RUNTIMES = ("openvino", "tensorrt", "rknn", "ortqnn", "qairt")
VENDOR = "From the vendor's documentation, not measured here"
"""What a section says whose figures nobody could measure here."""

Files = Mapping[str, str]
_HEADING = re.compile(r"^(#{1,3}) (.+)$", re.MULTILINE)
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([^`\n]+)`")


@dataclass(frozen=True)
class Section:
    """A heading, and what stands below it up to the next one."""

    path: str
    title: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.path}: {self.title}"

    @property
    def prose(self) -> str:
        """All but the fenced blocks."""
        return _FENCE.sub("", self.text)


@dataclass(frozen=True)
class Row:
    """A line of a table whose heading has the columns `columns`."""

    where: str
    columns: tuple[str, ...]
    cells: tuple[str, ...]

    def cell(self, column: str) -> str:
        return self.cells[self.columns.index(column)]

    def codes(self, column: str) -> list[str]:
        return codes(self.cell(column))


def load() -> dict[str, str]:
    """Return the Markdown of all skills: path below skills/ to text."""
    return {path.relative_to(FOLDER).as_posix(): path.read_text(encoding="utf-8") for path in FOLDER.rglob("*.md")}


def skill_of(path: str) -> str:
    return path.partition("/")[0]


def mains(files: Files) -> dict[str, str]:
    """Return the SKILL.md of each skill by its name."""
    return {skill_of(path): text for path, text in files.items() if path.endswith("/SKILL.md")}


def codes(text: str) -> list[str]:
    """Return what stands in backticks."""
    return _CODE.findall(text)


def body(text: str) -> str:
    """Return a SKILL.md without its frontmatter."""
    return text.split("---\n", 2)[2] if text.startswith("---\n") else text


def sections(files: Files) -> Iterator[Section]:
    for path, text in files.items():
        bare = _FENCE.sub(lambda found: "\n" * found[0].count("\n"), body(text))
        plain = body(text)
        lines, starts = plain.splitlines(keepends=True), []
        for number, line in enumerate(bare.splitlines()):
            if found := _HEADING.match(line):
                starts.append((number, found[2]))
        for (start, title), (end, _) in zip(starts, [*starts[1:], (len(lines), "")], strict=True):
            yield Section(path, title, "".join(lines[start + 1 : end]))


def fenced(files: Files, language: str) -> Iterator[tuple[str, str]]:
    """Return the lines of the fenced blocks in `language`, each with its file."""
    for path, text in files.items():
        for kind, block in _FENCE.findall(text):
            if kind == language:
                yield from ((path, line) for line in block.splitlines() if line.strip())


def rows(files: Files, *columns: str) -> Iterator[Row]:
    """Return the lines of all tables that have these columns."""
    for section in sections(files):
        heading: tuple[str, ...] = ()
        for line in section.prose.splitlines():
            cells = tuple(cell.strip() for cell in line.strip().strip("|").split("|")) if line.startswith("|") else ()
            if not cells:
                heading = ()
            elif not heading:
                heading = cells
            elif set(columns) <= set(heading) and not set("".join(cells)) <= set("-: "):
                yield Row(section.name, heading, cells)


def of(files: Files, skill: str) -> dict[str, str]:
    """Return the files of one skill."""
    return {path: text for path, text in files.items() if skill_of(path) == skill}


def section_of(files: Files, path: str, title: str) -> Section:
    """Return a section by its file and title; an empty one where there is none."""
    found = (each for each in sections(of(files, skill_of(path))) if (each.path, each.title) == (path, title))
    return next(found, Section(path, title, ""))
