"""The skills that the model may read: Markdown cut at its headings, and long sections into pages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runtimes.contract import Misused, suggest

PAGE_CHARACTERS = 1800
"""A page fits the prompt beside everything else."""
GENERAL = "aipc"
"""The skill that is about every runtime."""
CUT_LEVEL = 3
"""Headings of a deeper level stay inside their section."""
_HEADING = re.compile(r"(#{1,6})\s+(.+?)\s*#*")
_FENCE = re.compile(r"\s*(```+|~~~+)")
_OPERATOR = re.compile(r"\b[A-Z][A-Za-z0-9]{2,}\b")
_NAMED = re.compile(r"`([A-Z][A-Za-z0-9]{2,})`")
_FRONTMATTER = re.compile(r"\A---\n.*?^---\n", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Section:
    """A piece of a skill under one heading.

    Attributes:
        name: `runtime#heading-slug`.
        text: the heading and what stands below it.
    """

    name: str
    text: str

    @property
    def pages(self) -> tuple[str, ...]:
        """The text in pieces of at most `PAGE_CHARACTERS`, cut between lines; together they are the text."""
        return tuple(_cut(self.text.splitlines(keepends=True)))


@dataclass(frozen=True, kw_only=True)
class Page:
    """What is read in one turn.

    Attributes:
        name: of its section.
        number: from 1.
        count: how many pages the section has.
        text: what stands there.
    """

    name: str
    number: int
    count: int
    text: str

    @property
    def title(self) -> str:
        """What it is, and how to read on."""
        if self.count == 1:
            return self.name
        following = f"; next: {self.name}/{self.number + 1}" if self.number < self.count else ""
        return f"{self.name}, page {self.number} of {self.count}{following}"


class UnknownSection(LookupError):
    """There is no such section or page; the message says what there is."""


@dataclass(frozen=True, kw_only=True)
class Library:
    """The sections that a session may read, by name; without any, nothing can be read."""

    sections: Mapping[str, Section]

    def __bool__(self) -> bool:
        return bool(self.sections)

    @property
    def skills(self) -> Mapping[str, tuple[str, ...]]:
        """Skill to the slugs of its sections, in order."""
        found: dict[str, tuple[str, ...]] = {}
        for name in self.sections:
            skill, _, slug = name.partition("#")
            found[skill] = (*found.get(skill, ()), slug)
        return found

    def read(self, asked: str) -> Page:
        """Return the page that `asked` names: `runtime#slug`, `runtime#slug/2`, or a skill for its list of sections.

        A slug alone, or a heading as it is written, is enough where only one section can be meant.

        Raises:
            UnknownSection: there is none.
        """
        named, number = asked.strip(), 1
        if match := re.fullmatch(r"(.+?)/(\d{1,4})", named):
            named, number = match[1], int(match[2])
        section = self._find(named)
        pages = section.pages
        if not 1 <= number <= len(pages):
            raise UnknownSection(f"{section.name} has {len(pages)} page(s), not a page {number}")
        return Page(name=section.name, number=number, count=len(pages), text=pages[number - 1])

    def naming(self, text: str) -> tuple[str, ...]:
        """Return the pages, as `read` takes them, that name in backticks an operator that stands in `text`.

        An operator is written as ONNX writes them: a capital first.
        """
        words = set(_OPERATOR.findall(text))
        return tuple(
            section.name if len(pages) == 1 else f"{section.name}/{number}"
            for section in self.sections.values()
            for pages in (section.pages,)
            for number, page in enumerate(pages, 1)
            if words & set(_NAMED.findall(page))
        )

    def _find(self, named: str) -> Section:
        skill, mark, rest = named.partition("#")
        if not mark and skill in self.skills:
            listed = "".join(f"{skill}#{slug}\n" for slug in self.skills[skill])
            return Section(name=skill, text=f"Sections of {skill}:\n{listed}")
        wanted = slug_of(rest if mark else named)
        fitting = [
            section
            for section in self.sections.values()
            for owner, _, slug in (section.name.partition("#"),)
            if slug == wanted and (not mark or owner == skill.strip().lower())
        ]
        if len(fitting) != 1:
            known = [section.name for section in fitting] or list(self.sections)
            raise UnknownSection(f"there is no section {named!r}{suggest(named, known)}")
        return fitting[0]


def load(folder: Path, runtime: str) -> Library:
    """Return the sections of the general skill and of the runtime's own.

    Args:
        folder: holds a folder per skill, each with SKILL.md and maybe references/*.md.
        runtime: whose skill.

    Raises:
        Misused: there is no such skill.
    """
    if not (folder / runtime / "SKILL.md").is_file():
        raise Misused(f"skills: {folder} holds no {runtime}/SKILL.md; mount the folder skills, or work without skills")
    sections: dict[str, Section] = {}
    for skill in dict.fromkeys((runtime, GENERAL)):
        for path in (folder / skill / "SKILL.md", *sorted((folder / skill / "references").glob("*.md"))):
            if path.is_file():
                for slug, text in _sections(path.read_text(encoding="utf-8", errors="replace")):
                    name = _free(f"{skill}#{slug}", sections)
                    sections[name] = Section(name=name, text=text)
    return Library(sections=sections)


def slug_of(heading: str) -> str:
    """Return a heading as a link to it is written: small letters and hyphens."""
    words = re.sub(r"[^\w\s-]", "", heading.lower())
    return re.sub(r"[\s-]+", "-", words).strip("-") or "section"


def _free(name: str, taken: Iterable[str]) -> str:
    number = 2
    free = name
    while free in taken:
        free = f"{name}-{number}"
        number += 1
    return free


def _sections(text: str) -> Iterator[tuple[str, str]]:
    """Return slug and text of each section that says anything below its heading."""
    slug, lines, fence = "about", list[str](), ""
    for line in _FRONTMATTER.sub("", text).splitlines(keepends=True):
        mark = _FENCE.match(line)
        if mark and (not fence or mark[1].startswith(fence)):
            fence = "" if fence else mark[1]
        heading = None if fence or mark else _HEADING.fullmatch(line.rstrip("\n"))
        if heading and len(heading[1]) <= CUT_LEVEL:
            yield from _whole(slug, lines)
            slug, lines = slug_of(heading[2]), [line]
        else:
            lines.append(line)
    yield from _whole(slug, lines)


def _whole(slug: str, lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    body = lines[1:] if lines and lines[0].startswith("#") else lines
    if any(line.strip() for line in body):
        yield slug, "".join(lines).strip("\n") + "\n"


def _cut(lines: Iterable[str]) -> Iterator[str]:
    page = ""
    for line in lines:
        if page and len(page) + len(line) > PAGE_CHARACTERS:
            yield page
            page = ""
        rest = line
        while len(rest) > PAGE_CHARACTERS:
            yield rest[:PAGE_CHARACTERS]
            rest = rest[PAGE_CHARACTERS:]
        page += rest
    if page:
        yield page
