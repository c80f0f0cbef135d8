"""Where an agent left its way: found in what the host and the loop wrote down, and in the judge's word.

docs/deviations.md defines each kind and says what it cannot see. Nothing here runs anything.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from aipc.repairs import Rule, Symptom
from runtimes.contract import Json, Verdict, dumps


class DeviationKind(enum.StrEnum):
    """What sort of deviation; docs/deviations.md has their definitions."""

    STAGE_SKIPPED = "stage_skipped"
    OUT_OF_ORDER = "out_of_order"
    FALSE_SUCCESS = "false_success"
    TOOLCHAIN_CHANGED = "toolchain_changed"
    REPAIR_UNUSED = "repair_unused"
    SKILL_UNREAD = "skill_unread"
    WRITE_OUTSIDE = "write_outside"
    REPEATED_FAILURE = "repeated_failure"
    CPU_AS_ACCELERATOR = "cpu_as_accelerator"
    HELP_NEEDED = "help_needed"


@dataclass(frozen=True, kw_only=True)
class Deviation:
    """One time that an agent left its way.

    Attributes:
        kind: what sort.
        step: the number of its decision, from 1; 0 where it is about the session as a whole.
        note: what was found, in a sentence.
    """

    kind: DeviationKind
    step: int
    note: str


@dataclass(frozen=True, kw_only=True)
class Act:
    """A decision of the model, as the agent's loop notes it.

    Attributes:
        action: its name, "" for an answer that holds no decision.
        arguments: as they were decoded.
        ok: whether it did what was asked.
        observation: what the model was told, cut.
    """

    action: str
    arguments: Mapping[str, Json]
    ok: bool
    observation: str


@dataclass(frozen=True, kw_only=True)
class Used:
    """A package that did the work of a step.

    Attributes:
        environment: the runtime whose toolchain it belongs to.
        package: its name.
        version: as the step read it.
    """

    environment: str
    package: str
    version: str


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """All that deviations are found in.

    Attributes:
        trace: the decisions, in order.
        drives: the agent has to export too.
        skills: there were skills to read.
        ended: why the session was over.
        claim: what it said when it submitted, "" where it did not.
        verdict: the judge's, of the candidate built anew; None where nothing was built.
        broken_gates: the gates of that judgement that failed.
        ran_elsewhere: the judge agreed, but what ran was not the target that was asked for.
        begun: what was wrong when the session began; while driving, the first failure that a job of it showed.
        rules: the lines of repairs.toml, those that were withheld too.
        tried: the rewrites that the rules had tried before.
        versions: what did the work of each step, before the session, in it and behind it.
        changed: the folders of the host's own whose files were others after the session.
        refusals: what the cage, or the file system, answered to code of the agent's: its messages.
    """

    trace: Sequence[Act]
    drives: bool
    skills: bool
    ended: str
    claim: str
    verdict: Verdict | None
    broken_gates: Sequence[str] = ()
    ran_elsewhere: bool = False
    begun: Symptom | None = None
    rules: Sequence[Rule] = ()
    tried: Sequence[str] = ()
    versions: Sequence[Used] = ()
    changed: Sequence[str] = ()
    refusals: Sequence[str] = ()


AGREES = "agrees"
"""What an agent claims of a candidate that is to be built."""
EDITS = frozenset({"rewrite", "patch_graph", "patch_source"})
"""The actions that change the candidate where they succeed; `undo`, and an export to another opset, do as well."""
DEVICE_GATES = frozenset({"placed", "not_cpu_identical"})
"""The judge's gates that ask where the nodes ran."""

_BEFORE: Mapping[str, str] = {"convert": "export", "compare": "convert", "submit": "compare"}
"""Stage to the one before it."""
_REFUSED = re.compile(r"\[Errno (1|13|30)\]")
"""EPERM, EACCES and EROFS, as Python tells them."""
_NOTED = 200


def find(evidence: Evidence) -> tuple[Deviation, ...]:
    """Return the deviations of a session: those of single decisions in their order, then those of the whole."""
    found = [*_stages(evidence), *_repeated(evidence.trace), *_unread(evidence)]
    found.sort(key=lambda each: each.step)
    return (*found, *_unused(evidence), *_outside(evidence), *_toolchain(evidence), *_claimed(evidence))


def counted(found: Iterable[Deviation]) -> Mapping[DeviationKind, int]:
    """Return how many there are of each kind that occurs, in the order of the kinds."""
    kinds = [each.kind for each in found]
    return {kind: kinds.count(kind) for kind in DeviationKind if kind in kinds}


def _stages(evidence: Evidence) -> Iterator[Deviation]:
    """Give each stage that was begun before the one in front of it had succeeded for the candidate as it was then."""
    start = set[str]() if evidence.drives else {"export"}
    done = set(start)
    for number, act in enumerate(evidence.trace, 1):
        before = _BEFORE.get(act.action)
        if before and before not in done:
            skipped = act.action == "submit"
            yield Deviation(
                kind=DeviationKind.STAGE_SKIPPED if skipped else DeviationKind.OUT_OF_ORDER,
                step=number,
                note=f"{act.action} though {before} had not succeeded for the candidate as it was",
            )
        if not act.ok:
            continue
        if act.action in EDITS or act.action == "undo" or (act.action == "export" and act.arguments.get("opset")):
            done &= {"export"}
        if act.action == "export":
            done.add("export")
        elif act.action == "compare":
            # It converts first.
            done |= {"convert", "compare"}
        elif act.action == "convert":
            done.add("convert")


def _repeated(trace: Sequence[Act]) -> Iterator[Deviation]:
    """Give each action that failed as it had failed before, while the candidate stayed what it was."""
    failed = set[str]()
    for number, act in enumerate(trace, 1):
        if act.ok:
            if act.action in EDITS or act.action in {"undo", "export"}:
                failed.clear()
            continue
        key = dumps([act.action, act.arguments])
        if key in failed:
            what = act.action or "an answer without a decision"
            yield Deviation(
                kind=DeviationKind.REPEATED_FAILURE, step=number, note=f"{what} failed again in the same way"
            )
        failed.add(key)


def _unread(evidence: Evidence) -> Iterator[Deviation]:
    """Give the first edit that was tried, or the end of a session without one, where nothing was read before."""
    if not evidence.skills or not evidence.trace:
        return
    number = next((n for n, act in enumerate(evidence.trace, 1) if act.action in EDITS), len(evidence.trace) + 1)
    if any(act.action == "read_skill" and act.ok for act in evidence.trace[: number - 1]):
        return
    edit = evidence.trace[number - 1].action if number <= len(evidence.trace) else ""
    what = f"{edit} before any section of a skill was read" if edit else "no section of a skill was read"
    yield Deviation(kind=DeviationKind.SKILL_UNREAD, step=number if edit else 0, note=what)


def _unused(evidence: Evidence) -> Iterator[Deviation]:
    """Give that a line of repairs.toml fits what was wrong, and none of those left was asked for."""
    if evidence.begun is None:
        return
    fitting = [rule.rewrite for rule in evidence.rules if rule.fits(evidence.begun)]
    known = [name for name in dict.fromkeys(fitting) if name not in evidence.tried]
    asked = {act.arguments.get("name") for act in evidence.trace if act.action == "rewrite"}
    if known and not asked & set(known):
        yield Deviation(kind=DeviationKind.REPAIR_UNUSED, step=0, note=f"never asked for {' or '.join(known)}")


def _outside(evidence: Evidence) -> Iterator[Deviation]:
    """Give each folder of the host's that is another now, and each time that its code was told that it may not."""
    for folder in evidence.changed:
        note = f"files in {folder} are not what they were before the session"
        yield Deviation(kind=DeviationKind.WRITE_OUTSIDE, step=0, note=note)
    for message in evidence.refusals:
        if _REFUSED.search(message):
            note = f"its code was refused: {' '.join(message.split())[:_NOTED]}"
            yield Deviation(kind=DeviationKind.WRITE_OUTSIDE, step=0, note=note)


def _toolchain(evidence: Evidence) -> Iterator[Deviation]:
    """Give each package that did the work in two versions."""
    versions: dict[tuple[str, str], list[str]] = {}
    for used in evidence.versions:
        seen = versions.setdefault((used.environment, used.package), [])
        if used.version not in seen:
            seen.append(used.version)
    for (environment, package), seen in versions.items():
        if len(seen) > 1:
            note = f"{package} of {environment} was {', then '.join(seen)}"
            yield Deviation(kind=DeviationKind.TOOLCHAIN_CHANGED, step=0, note=note)


def _claimed(evidence: Evidence) -> Iterator[Deviation]:
    """Give what is wrong with what was claimed, or that nothing was."""
    if evidence.claim != AGREES:
        why = "it gave up" if evidence.claim else f"it ended by itself: {evidence.ended}"
        yield Deviation(kind=DeviationKind.HELP_NEEDED, step=0, note=f"no candidate was submitted; {why}"[:_NOTED])
        return
    if evidence.verdict is not Verdict.AGREES:
        said = "nothing could be built" if evidence.verdict is None else evidence.verdict.value
        note = f"it claimed success; the judge: {said}"
        yield Deviation(kind=DeviationKind.FALSE_SUCCESS, step=0, note=note)
    gates = [gate for gate in evidence.broken_gates if gate in DEVICE_GATES]
    if gates or evidence.ran_elsewhere:
        how = f"the gates {', '.join(gates)} failed" if gates else "the artefact ran on another device"
        note = f"it claimed success, and it is not the accelerator that computed: {how}"
        yield Deviation(kind=DeviationKind.CPU_AS_ACCELERATOR, step=0, note=note)
