"""A change of a skill that a rule must see."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tests.skills.skill import Files

Rule = Callable[[Files], Iterable[str]]


@dataclass(frozen=True)
class Mutation:
    """In the skill or file `where`, `old` becomes `new`; `rule` must say so."""

    rule: Rule
    where: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.rule.__name__}-{self.where}-{self.new.strip()[:30]}"

    @property
    def path(self) -> str:
        return self.where if "/" in self.where else f"{self.where}/SKILL.md"


def mutated(files: Files, mutation: Mutation) -> Files:
    """Return the files with the change in them."""
    text = files[mutation.path]
    assert mutation.old in text, f"{mutation.path} does not hold {mutation.old!r}"
    return {**files, mutation.path: text.replace(mutation.old, mutation.new, 1)}
