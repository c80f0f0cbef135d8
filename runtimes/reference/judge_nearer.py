"""Tolerances that could not tell a broken artefact are tightened, as far as the artefact itself carries it."""

from __future__ import annotations

import math
from dataclasses import replace

from runtimes.reference import judge_evidence
from runtimes.reference.judge_case import Case, Group
from runtimes.reference.judge_evidence import LEAST_CHANGE, MARGIN
from runtimes.reference.judge_words import Gate
from runtimes.reference.measures import SNR_CAP_DB

SPARE_DB = 20.0 * math.log10(MARGIN)
"""A nearer limit lies so far below what the artefact reaches: an error `MARGIN` times as large keeps within it."""

MOST_DB = math.floor(200.0 * math.log10(MARGIN / LEAST_CHANGE)) / 10.0
"""The highest limit that helps: with it the smallest change that counts as one is told from none."""


def tightened(case: Case) -> tuple[Case, tuple[Gate, ...]]:
    """Return a case with nearer limits where those asked for prove nothing, and a gate for each limit.

    A group is held to the SNR that its worst floating output reaches, less `SPARE_DB`. So a worthless answer must err
    at least four times as much as the artefact does. No limit becomes looser.

    Args:
        case: what there is to compare, with the limits asked for.
    """
    groups, gates = [], []
    for group in case.options.groups:
        reached = _reached(case, group)
        limit = min(MOST_DB, math.floor(10.0 * (reached - SPARE_DB)) / 10.0)
        if limit <= group.snr_db or not _proves_nothing(case, group):
            groups.append(group)
            continue
        groups.append(replace(group, snr_db=limit))
        detail = f"group {group.name!r} is held to {limit:.1f} dB: {group.snr_db:g} dB would prove nothing"
        gates.append(
            Gate(name=f"tightened:{group.name}", passed=True, measured=reached, threshold=limit, detail=detail)
        )
    return replace(case, options=replace(case.options, groups=tuple(groups))), tuple(gates)


def _reached(case: Case, group: Group) -> float:
    """Return the worst SNR in dB of a group's floating outputs; the least there is where one has none."""
    found = [
        case.snr_db(pair.output, pair.golden, pair.aligned, pair.measure)
        for pair in case.pairs
        if pair.group is group and not pair.exact and pair.measure and pair.aligned is not None
    ]
    return min((-SNR_CAP_DB if each is None else each for each in found), default=-SNR_CAP_DB)


def _proves_nothing(case: Case, group: Group) -> bool:
    """Return whether the limits asked of a group could not tell a worthless answer."""
    alone = replace(case, options=replace(case.options, groups=(group,)))
    evidence = (judge_evidence.sensitive, judge_evidence.constant_fails, judge_evidence.identity_fails)
    return not all(gate for check in evidence for gate in check(alone))
