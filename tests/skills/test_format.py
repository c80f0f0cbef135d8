"""The skills are valid by the open Agent Skills format, short, and made of sections that stand alone."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from aipc import runtime
from tests.skills.mutations import Mutation, Rule, mutated
from tests.skills.skill import FOLDER, RUNTIMES, Files, body, load, mains, sections

SKILLS = sorted(path.name for path in FOLDER.iterdir() if path.is_dir())
MOST_LINES = 500
MOST_TOKENS = 5000
MOST_WORDS = 400
MOST_CHARACTERS = 1800
"""A section is one page for a small model: `PAGE_CHARACTERS` of runtimes/agent/skills.py."""
BYTES_PER_TOKEN = 3.2
"""An estimate for tables full of names in backticks; plain English has about 4."""


def bodies_are_short(files: Files) -> Iterable[str]:
    for skill, text in mains(files).items():
        lines, tokens = len(body(text).splitlines()), len(body(text).encode()) / BYTES_PER_TOKEN
        if lines >= MOST_LINES or tokens >= MOST_TOKENS:
            yield f"{skill}: {lines} lines, about {tokens:.0f} tokens"


def sections_are_short(files: Files) -> Iterable[str]:
    for each in sections(files):
        if len(each.text.split()) > MOST_WORDS:
            yield f"{each.name}: {len(each.text.split())} words"
        if len(each.title) + len(each.text) + len("## \n") > MOST_CHARACTERS:
            yield f"{each.name}: {len(each.text)} characters"


def sections_have_titles_of_their_own(files: Files) -> Iterable[str]:
    """A small model is given a section by its title."""
    for path in files:
        titles = [each.title for each in sections({path: files[path]})]
        yield from (f"{path}: {title} stands twice" for title in set(titles) if titles.count(title) > 1)


def every_skill_says_when_and_what_not(files: Files) -> Iterable[str]:
    for skill in mains(files):
        titles = {each.title for each in sections({f"{skill}/SKILL.md": mains(files)[skill]})}
        yield from (f"{skill}: {title}" for title in {"When to use it", "Commands", "What never to do"} - titles)


MUTATIONS = (
    Mutation(bodies_are_short, "ortqnn", "## When to use it", "word " * 3000 + "\n\n## When to use it"),
    Mutation(bodies_are_short, "aipc", "## When to use it", "\n" * MOST_LINES + "## When to use it"),
    Mutation(sections_are_short, "rknn", "## Commands", "word " * MOST_WORDS + "\n\n## Commands"),
    Mutation(sections_are_short, "rknn", "## Commands", "x" * MOST_CHARACTERS + "\n\n## Commands"),
    Mutation(sections_have_titles_of_their_own, "rknn", "## Commands", "## When to use it"),
    Mutation(every_skill_says_when_and_what_not, "openvino", "## What never to do", "## Sometimes"),
)
RULES = tuple(dict.fromkeys(each.rule for each in MUTATIONS))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_skills_obey(rule: Rule) -> None:
    assert list(rule(load())) == []


@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
def test_a_violation_is_seen(mutation: Mutation) -> None:
    assert list(mutation.rule(mutated(load(), mutation)))


def validate(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("agentskills")), "validate", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_there_is_a_skill_for_aipc_and_for_each_runtime() -> None:
    assert (
        set(SKILLS) == {"aipc", *RUNTIMES} == {"aipc", *(each.name for each in runtime.all_runtimes() if each.builds)}
    )


@pytest.mark.parametrize("skill", SKILLS)
def test_the_formats_own_validator_takes_each_skill(skill: str) -> None:
    done = validate(FOLDER / skill)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("name: rknn", "name: rknn2"),
        ("license: Apache-2.0", "licence: x"),
        ("description: ", "description: " + "x" * 1100),
    ],
)
def test_a_wrong_frontmatter_is_refused(tmp_path: Path, old: str, new: str) -> None:
    shutil.copytree(FOLDER / "rknn", tmp_path / "rknn")
    path = tmp_path / "rknn" / "SKILL.md"
    path.write_text(path.read_text(encoding="utf-8").replace(old, new, 1), encoding="utf-8")
    assert validate(tmp_path / "rknn").returncode == 1
