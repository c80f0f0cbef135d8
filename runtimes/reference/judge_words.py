"""A gate of the judge, and how it is put into words."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from runtimes.reference.judge_case import Case

PROBLEMS_TOLD = 3
"""So many problems of one gate are told; the rest is counted."""


@dataclass(frozen=True, kw_only=True)
class Gate:
    """One condition that the judge checked; it is true when it held.

    Attributes:
        name: the gate, and after a colon the group where there is one gate per group.
        passed: whether it held.
        measured: the number that decides, or None where there was none.
        threshold: what it was held against.
        detail: one sentence for people.
    """

    name: str
    passed: bool
    measured: float | None
    threshold: float | None
    detail: str

    def __bool__(self) -> bool:
        return self.passed


Check = Callable[[Case], Sequence[Gate]]
"""Looks at a case; gives no gate where it does not apply."""


def counted(name: str, problems: Sequence[str], fine: str, *, measured: float | None = None) -> Gate:
    """Return the gate that holds when there is no problem.

    Args:
        name: the gate's name.
        problems: each a clause; the first few are told.
        fine: what to say when there is none.
        measured: what was counted, held against 0; left out, the problems themselves.
    """
    return Gate(
        name=name,
        passed=not problems,
        measured=float(len(problems)) if measured is None else measured,
        threshold=0.0,
        detail=listed(problems, joint="; ") if problems else fine,
    )


def differences(left: Collection[str], right: Collection[str], only_left: str, only_right: str) -> list[str]:
    """Return what stands on one side only; the two templates hold `{}` for the name."""
    return [
        *(only_left.format(repr(name)) for name in sorted(set(left) - set(right))),
        *(only_right.format(repr(name)) for name in sorted(set(right) - set(left))),
    ]


def listed(words: Sequence[str], *, joint: str = ", ", most: int = PROBLEMS_TOLD) -> str:
    """Return words for a sentence: the first few, and how many more."""
    more = f"{joint}and {len(words) - most} more" if len(words) > most else ""
    return joint.join(words[:most]) + more


def quoted(names: Collection[str]) -> str:
    """Return names for a sentence, each in quotes and on one line, whatever they hold."""
    return listed([repr(name) for name in names])


def beside(value: float, threshold: float) -> str:
    """Return `value` with so many digits that rounding takes less than a tenth of its distance from `threshold`."""
    texts = (f"{value:.{digits}g}" for digits in range(4, 17))
    return next((text for text in texts if abs(float(text) - value) <= abs(value - threshold) / 10), repr(value))


def no_better(value: float, *, most: bool) -> str:
    """Return `value` with four digits, or so many more that it does not look better than it is.

    Args:
        value: what was measured.
        most: whether smaller is better.
    """
    texts = (f"{value:.{digits}g}" for digits in range(4, 17))
    return next((text for text in texts if (float(text) >= value if most else float(text) <= value)), repr(value))
