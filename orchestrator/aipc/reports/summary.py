"""What follows from a report: the worst numbers of each group, the rows that fail, and what was made easier."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from aipc.deployment import STAGES, outcome
from aipc.facts import Measure
from aipc.repairs import Repair
from aipc.reports import words
from aipc.reports.report import FailedStep, GroupTolerance, Report, Thresholds
from runtimes.contract import Json, Step, Verdict


@dataclass(frozen=True, kw_only=True)
class Number:
    """The worst of one kind of number beside its threshold; it is true when it holds.

    Attributes:
        name: `cosine`, `SNR`, `max abs` or `equal`.
        shown: the worst value, worded.
        asked: the threshold, worded, or "" for none.
        sample: where it was measured.
        output: of which output.
        good: whether it holds.
    """

    name: str
    shown: str
    asked: str
    sample: str
    output: str
    good: bool

    def __bool__(self) -> bool:
        return self.good


@dataclass(frozen=True, kw_only=True)
class GroupNumbers:
    """The worst numbers of one group over all its outputs and samples; it is true when all hold."""

    tolerance: GroupTolerance
    numbers: tuple[Number, ...]
    samples: int
    broken_values: int

    def __bool__(self) -> bool:
        return all(self.numbers) and not self.broken_values


@dataclass(frozen=True, kw_only=True)
class _Kind:
    """One kind of number: its field in a measure, its names, how it is worded and which way is good."""

    field: str
    gate: str
    name: str
    labels: bool | None
    say: Callable[[float | None], str]
    limit: Callable[[Thresholds], float | None]
    unit: str = ""
    most: bool = False

    def applies(self, measure: Measure) -> bool:
        """Say whether `measure` is held to this: labels to the share of equal values, all else to cosine and SNR."""
        return self.labels is None or self.labels == (measure.equal is not None)

    def held_to(self, report: Report, tolerance: GroupTolerance) -> float | None:
        """Return the threshold, or None where there is none or the judge has no such gate for the group.

        A group of labels only has no gates for cosine and SNR. The judge may have tightened the SNR that was asked for.
        """
        limit = self.limit(tolerance.applied)
        held = [gate.threshold for gate in report.gates if gate.name == f"{self.gate}:{tolerance.group}"]
        return max([limit, *(each for each in held if isinstance(each, float))]) if held and limit is not None else None

    def badness(self, measure: Measure) -> float:
        """Return what is larger for a worse measure."""
        value: float | None = getattr(measure, self.field)
        return math.inf if value is None else value if self.most else -value

    def holds(self, measure: Measure, limit: float | None) -> bool:
        """Say whether `measure` keeps to `limit`; None is no limit, and no value keeps to none."""
        value: float | None = getattr(measure, self.field)
        return value is not None and (limit is None or (value <= limit if self.most else value >= limit))


_KINDS = (
    _Kind(field="cosine", gate="cosine", name="cosine", labels=False, say=words.cosine, limit=lambda ask: ask.cosine),
    _Kind(
        field="snr_db", gate="snr", name="SNR", labels=False, say=words.snr, limit=lambda ask: ask.snr_db, unit=" dB"
    ),
    _Kind(field="equal", gate="equal", name="equal", labels=True, say=words.cosine, limit=lambda ask: ask.cosine),
    _Kind(
        field="max_abs",
        gate="max_abs",
        name="max abs",
        labels=None,
        say=words.difference,
        limit=lambda ask: ask.max_abs,
        most=True,
    ),
)


def group_numbers(report: Report) -> tuple[GroupNumbers, ...]:
    """Return the worst numbers of each group that was measured."""
    found = []
    for tolerance in report.tolerances:
        measures = [measure for measure in report.measures if measure.group == tolerance.group]
        if measures:
            found.append(
                GroupNumbers(
                    tolerance=tolerance,
                    numbers=tuple(
                        _number(report, kind, tolerance, measures)
                        for kind in _KINDS
                        if any(map(kind.applies, measures))
                    ),
                    samples=len({measure.sample for measure in measures}),
                    broken_values=sum(measure.nan + measure.inf for measure in measures),
                )
            )
    return tuple(found)


def _number(report: Report, kind: _Kind, tolerance: GroupTolerance, measures: Iterable[Measure]) -> Number:
    worst_one = max(filter(kind.applies, measures), key=kind.badness)
    limit = kind.held_to(report, tolerance)
    shown = kind.say(getattr(worst_one, kind.field))
    return Number(
        name=kind.name,
        shown=shown if shown == words.NO_VALUE else f"{shown}{kind.unit}",
        asked="" if limit is None else f"{'≤' if kind.most else '≥'} {words.exact(limit)}{kind.unit}",
        sample=worst_one.sample,
        output=worst_one.output,
        good=kind.holds(worst_one, limit),
    )


def failing(report: Report, tolerance: GroupTolerance, measure: Measure) -> frozenset[str]:
    """Return the names of the fields of `measure` that do not keep within the thresholds that the judge held it to."""
    off = {
        kind.field
        for kind in _KINDS
        if kind.applies(measure) and not kind.holds(measure, kind.held_to(report, tolerance))
    }
    return frozenset(off | {name for name in ("nan", "inf") if getattr(measure, name)})


def _lowest(value: float | None) -> float:
    return -math.inf if value is None else value


def worst(measures: Iterable[Measure]) -> Measure | None:
    """Return the measure that is furthest from the reference: broken values first, then by SNR, then by cosine."""
    return min(
        measures,
        key=lambda measure: (
            -(measure.nan + measure.inf),
            _lowest(measure.equal) if measure.snr_db is None else measure.snr_db,
            _lowest(measure.cosine),
        ),
        default=None,
    )


def caveats(report: Report) -> tuple[str, ...]:
    """Return what was made easier for this cell, each a sentence that stands beside the verdict."""
    return (*withheld(report), *loosened(report), *shrunk(report))


def withheld(report: Report) -> tuple[str, ...]:
    """Return that this was no normal deploy, where rules were taken out for it."""
    if not report.withheld:
        return ()
    return (f"Made harder on purpose: no rule was let try {', '.join(report.withheld)}. This is no normal deploy.",)


def loosened(report: Report) -> tuple[str, ...]:
    """Return which tolerances are looser than the defaults, a sentence each."""
    return tuple(
        f"Looser tolerance for {tolerance.group}: {what}."
        for tolerance in report.tolerances
        for what in _loosened(tolerance)
    )


def shrunk(report: Report) -> tuple[str, ...]:
    """Return which inputs are smaller than the model declares, a sentence each."""
    return tuple(
        f"Smaller input: {used.name} was tried at {words.shape(used.shape)}, "
        f"the model declares {words.shape(used.declared)}."
        for used in report.inputs
        if math.prod(used.shape) < math.prod(used.declared or used.shape)
    )


def _loosened(tolerance: GroupTolerance) -> list[str]:
    applied, default = tolerance.applied, tolerance.default
    found = []
    if applied.cosine < default.cosine:
        found.append(f"cosine ≥ {words.exact(applied.cosine)} instead of {words.exact(default.cosine)}")
    if applied.snr_db < default.snr_db:
        found.append(f"SNR ≥ {words.exact(applied.snr_db)} dB instead of {words.exact(default.snr_db)} dB")
    if default.max_abs is not None and (applied.max_abs is None or applied.max_abs > default.max_abs):
        asked = "no limit on max abs" if applied.max_abs is None else f"max abs ≤ {words.exact(applied.max_abs)}"
        found.append(f"{asked} instead of {words.exact(default.max_abs)}")
    return found


def repairs(report: Report) -> tuple[str, ...]:
    """Return what was rewritten or tried, a sentence each: what, what for and what came of it.

    One that always comes first and found nothing to change is nothing to tell.
    """
    told = [each for each in report.repairs if each.changed or each.problem or each.symptom or each.asked]
    return tuple(f"{each.rewrite} {cause(each)}: {outcome(each)}" for each in told)


def cause(repair: Repair) -> str:
    """Return what a rewrite was done for, for instance `for operator Einsum, node /attn (convert)`."""
    symptom = repair.symptom
    if symptom is None:
        return "before the first conversion" + (", as asked for" if repair.asked else "")
    if symptom.kind is None:
        return "for wrong numbers"
    places = [f"{word} {name}" for word, name in (("operator", symptom.op), ("node", symptom.node)) if name]
    return f"for {', '.join(places) or words.KINDS[symptom.kind]} ({stage_name(symptom.step)})"


def where(report: Report) -> str:
    """Return what ran the artefact, and what stood in for it: `HTP, simulated by the HTP emulator`."""
    return f"{report.device}, simulated by {report.simulated}" if report.simulated else report.device


def bisection(report: Report) -> tuple[str, ...]:
    """Return what was found of where the runtime goes wrong, a sentence each."""
    found = report.bisection
    if found is None:
        return ()
    said = []
    if found.first:
        said.append(
            f"The first bad node is {found.first.node or 'one without a name'} ({found.first.op}), "
            f"number {found.index + 1} of {found.total}."
        )
    if found.piece:
        amount = "1 node" if len(found.piece) == 1 else f"{len(found.piece)} nodes"
        said.append(f"The smallest piece that fails has {amount}: it lies in {report.piece_folder}/.")
    said += [f"{note[:1].upper()}{note[1:]}." for note in found.notes]
    return (*said, f"Sample {found.sample}; {found.runs} pieces were built and run.")


def agent(report: Report) -> tuple[str, ...]:
    """Return what an agent did, a sentence each, and what came of it; its own words are marked as such."""
    work = report.agent
    if work is None:
        return ()
    who = f"{work.model}, a person's answers" if work.synthetic else work.model
    about = "about " if work.estimated else ""
    cost = f", costing {work.cost:.2f}" if work.cost else ""
    did = (
        f"An agent ({who}) worked in the mode {work.mode}, {'with' if work.skills else 'without'} skills: "
        f"{work.steps} steps, {work.calls} calls, {about}{work.tokens} tokens, {work.seconds:.0f} s{cost}. "
        f"It ended: {work.ended}."
    )
    said = [did]
    if work.verdict is not None:
        stands = "" if work.taken else "; what the rules reached stands"
        said.append(
            f"Its candidate was built anew and judged on inputs drawn afterwards (seed {work.seed}): "
            f"{work.verdict.value}{stands}."
        )
    if "file system" in work.uncaged:
        said.append(
            "It worked without a cage: it could have changed what measures it. Install bubblewrap, or use docker."
        )
    if work.summary:
        said.append(f"In its own words: {' '.join(work.summary.split())}")
    return tuple(said)


def deviations(report: Report) -> tuple[str, ...]:
    """Return where an agent left its way, a sentence each."""
    found = report.agent.deviations if report.agent else ()
    steps = (f" at step {each.step}" if each.step else "" for each in found)
    return tuple(f"{words.DEVIATIONS[each.kind]}{step}: {each.note}" for each, step in zip(found, steps, strict=True))


def edit(of: Mapping[str, Json]) -> str:
    """Return in a few words what an edit of an agent's candidate is."""
    if "path" in of:
        return f"patch of {of['path']}"
    return f"opset {of['opset']}" if "opset" in of else str(of["rewrite"])


def reasons(report: Report) -> tuple[str, ...]:
    """Return why the verdict is what it is, on a line each; the vendor's whole words stand with the failure."""
    if report.failure is None:
        return report.reasons
    failed = report.failure
    others = [reason for reason in report.reasons if failed.failure.message not in reason]
    return f"{stage_name(failed.step)}: {words.headline(failed.failure.message)}", *map(words.headline, others)


def ending(report: Report, failed: FailedStep) -> str:
    """Return which stage ended the deploy and how, for instance `convert crashed`."""
    stage = stage_name(failed.step)
    if report.verdict is Verdict.UNTRIED:
        return f"{stage} was not tried"
    return f"{stage} {words.ENDINGS[failed.status]}"


def stage_name(step: Step) -> str:
    """Return the stage that people know, and which step of it where it has another name."""
    stage = STAGES.get(step, step.value)
    return stage if stage == step.value else f"{stage} ({step.value})"
