"""The judge: it compares an artefact's outputs with the golden ones and gives a verdict. It made none of them.

| gate | when it fails, the cell | what it asks |
|---|---|---|
| `samples_complete` | disagrees | inputs, golden outputs and the artefact's outputs have the same samples |
| `outputs_named` | disagrees | golden, the artefact and the groups name the same outputs, in every sample |
| `outputs_declared` | disagrees | the artefact declares the model's outputs in order, of the same size and kind |
| `shapes_match` | disagrees | every output has the golden shape |
| `dtypes_match` | disagrees | floating, integer and boolean stay so; the width may differ |
| `finite` | disagrees | no NaN or infinity where golden is finite |
| `cosine:<group>` | disagrees | each output of each sample, and a sample's outputs as one vector |
| `snr:<group>`, `max_abs:<group>` | disagrees | each output of each sample |
| `equal:<group>` | disagrees | the same for integers and booleans: the share of equal values |
| `placed` | disagrees | for an accelerator: there is a list of nodes, all on accepted devices |
| `not_cpu_identical` | disagrees | for an accelerator: no output has a CPU's very values in every sample |
| `golden_finite` | is vacuous | golden is finite |
| `sensitive` | is vacuous | each golden output depends on each input (of its group); each input moves one |
| `inputs_varied` | is vacuous | no input is constant only; floating inputs come in at least two magnitudes |
| `constant_fails` | is vacuous | the tolerances would not accept one and the same answer for every sample |

A gate that does not apply (no accelerator, no `max_abs`, no labels) is not in the list. A job cannot leave out a gate.

A cell that fails gates of both kinds disagrees: weak evidence can hide a wrong answer, but it cannot make a right one
look wrong. All reasons are told, those of the verdict first.
"""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from runtimes import contract
from runtimes.contract import Failure, Json, Kind, Verdict
from runtimes.kit import tensors
from runtimes.kit.work import Failed, Work
from runtimes.reference import judge_evidence, judge_numbers, judge_structure, pictures
from runtimes.reference.judge_case import Case, Options, Pair, Samples
from runtimes.reference.judge_words import Check, Gate
from runtimes.reference.measures import Measure, statistics

GATES: Mapping[str, tuple[Verdict, Check]] = types.MappingProxyType(
    {
        "samples_complete": (Verdict.DISAGREES, judge_structure.samples_complete),
        "outputs_named": (Verdict.DISAGREES, judge_structure.outputs_named),
        "outputs_declared": (Verdict.DISAGREES, judge_structure.outputs_declared),
        "shapes_match": (Verdict.DISAGREES, judge_structure.shapes_match),
        "dtypes_match": (Verdict.DISAGREES, judge_structure.dtypes_match),
        "finite": (Verdict.DISAGREES, judge_numbers.finite),
        "cosine": (Verdict.DISAGREES, judge_numbers.cosine),
        "snr": (Verdict.DISAGREES, judge_numbers.snr),
        "max_abs": (Verdict.DISAGREES, judge_numbers.max_abs),
        "equal": (Verdict.DISAGREES, judge_numbers.equal),
        "placed": (Verdict.DISAGREES, judge_structure.placed),
        "not_cpu_identical": (Verdict.DISAGREES, judge_structure.not_cpu_identical),
        "golden_finite": (Verdict.VACUOUS, judge_evidence.golden_finite),
        "sensitive": (Verdict.VACUOUS, judge_evidence.sensitive),
        "inputs_varied": (Verdict.VACUOUS, judge_evidence.inputs_varied),
        "constant_fails": (Verdict.VACUOUS, judge_evidence.constant_fails),
    }
)
"""Each gate by name, with what a cell is when it fails. Only a test leaves one out."""


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What is believed of a case, and why. It is true when the artefact agrees.

    Attributes:
        verdict: agrees, disagrees or vacuous.
        reasons: one sentence for each gate that failed.
        gates: all gates that apply.
    """

    verdict: Verdict
    reasons: tuple[str, ...]
    gates: tuple[Gate, ...]

    def __bool__(self) -> bool:
        return bool(self.verdict)


def judge(work: Work) -> Mapping[str, Json]:
    """Compare `outputs` with `golden`, draw what is a picture, and say what is to be believed.

    In: `samples`, `golden`, `outputs`, and `cpu` where an accelerator is claimed, all sample sets. Out: `verdict.json`
    (the facts), `details.json` (for people: numbers of each group, statistics of each output) and `pictures`.

    Raises:
        Failed: a sample set cannot be read.
        Misused: the options do not fit.
    """
    options = work.options(Options)
    case = Case(
        options=options,
        samples=_load(work, "samples"),
        golden=_load(work, "golden"),
        outputs=_load(work, "outputs"),
        cpu=_load(work, "cpu") if options.accelerator else {},
    )
    work.progress("comparing the outputs with the golden ones")
    decision = decide(case)
    work.progress("drawing the pictures")
    views = pictures.draw(case, work.output("pictures"))
    facts: Mapping[str, Json] = contract.encode(
        {
            "verdict": decision.verdict,
            "reasons": decision.reasons,
            "gates": decision.gates,
            "measures": [_row(pair) for pair in case.pairs],
            "pictures": views,
        }
    )
    contract.write(facts, work.output("verdict.json"))
    contract.write(details(case), work.output("details.json"))
    return facts


def decide(case: Case, gates: Mapping[str, tuple[Verdict, Check]] = GATES) -> Decision:
    """Return the verdict of a case.

    Args:
        case: what there is to compare.
        gates: the gates to pass.
    """
    checked = [(verdict, gate) for verdict, check in gates.values() for gate in check(case)]
    failed = {
        kind: [gate.detail for verdict, gate in checked if verdict is kind and not gate]
        for kind in (Verdict.DISAGREES, Verdict.VACUOUS)
    }
    if not any(pair.measure for pair in case.pairs):
        failed[Verdict.VACUOUS].append("no value was compared with a golden one")
    verdict = next((kind for kind, reasons in failed.items() if reasons), Verdict.AGREES)
    reasons = tuple(reason for kind in failed.values() for reason in kind)
    return Decision(verdict=verdict, reasons=reasons, gates=tuple(gate for _, gate in checked))


def details(case: Case) -> Mapping[str, Json]:
    """Return what people ask after the verdict: the worst numbers of each group, and statistics of each output."""
    rows: list[Json] = []
    for pair in case.pairs:
        if pair.aligned is not None:
            found = statistics(pair.golden, pair.aligned)
            rows.append({"group": pair.group.name, "output": pair.output, "sample": pair.sample, **asdict(found)})
    groups = [
        _summary(group.name, [pair for pair in case.pairs if pair.group is group]) for group in case.options.groups
    ]
    return {"groups": groups, "statistics": rows}


def _summary(name: str, pairs: Sequence[Pair]) -> Mapping[str, Json]:
    """Return the worst numbers of one group over all samples and outputs, and where its SNR is worst."""
    measured = [(pair, pair.measure) for pair in pairs if pair.measure]

    def worst(values: list[float | None], *, largest: bool) -> float | None:
        known = [value for value in values if value is not None]
        if not known or len(known) < len(values):
            return None
        return max(known) if largest else min(known)

    lowest = min(measured, key=lambda item: -1e9 if item[1].snr_db is None else item[1].snr_db, default=None)
    return {
        "group": name,
        "cosine": worst([found.cosine for _, found in measured], largest=False),
        "snr_db": worst([found.snr_db for _, found in measured], largest=False),
        "max_abs": worst([found.max_abs for _, found in measured], largest=True),
        "max_rel": worst([found.max_rel for _, found in measured], largest=True),
        "equal": worst([pair.equal for pair in pairs], largest=False),
        "nan": sum(found.nan for _, found in measured),
        "inf": sum(found.inf for _, found in measured),
        "worst_output": lowest[0].output if lowest else "",
        "worst_sample": lowest[0].sample if lowest else "",
    }


def _row(pair: Pair) -> Mapping[str, Json]:
    """Return the measure of one output in one sample; without numbers where there was nothing to compare."""
    found = pair.measure or Measure(cosine=None, snr_db=None, max_abs=None, max_rel=None, nan=0, inf=0)
    equal = pair.equal if pair.exact else None
    return {"group": pair.group.name, "output": pair.output, "sample": pair.sample, **asdict(found), "equal": equal}


def _load(work: Work, name: str) -> Samples:
    path = work.input(name)
    try:
        return tensors.load_samples(path)
    except tensors.BadTensors as error:
        message = f"in/{name}: {error}"
        hint = "the step that made these tensors did not write them as it should; run it again"
        raise Failed(Failure(kind=Kind.MISSING_RESULT, message=message, hint=hint)) from error
