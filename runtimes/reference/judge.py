"""The judge: it compares an artefact's outputs with the golden ones and gives a verdict. It made none of them.

| gate | when it fails, the cell | what it asks |
|---|---|---|
| `samples_complete` | disagrees | inputs, golden outputs and the artefact's outputs have the samples asked for |
| `outputs_named` | disagrees | golden, the artefact and the groups name the model's outputs, in every sample |
| `outputs_declared` | disagrees | the artefact declares the model's outputs in order, of the same size and kind |
| `shapes_match` | disagrees | every output has the golden shape |
| `dtypes_match` | disagrees | floating, integer and boolean stay so; the width may differ |
| `finite` | disagrees | no NaN or infinity where golden is finite |
| `cosine:<group>` | disagrees | each output of each sample, and a sample's outputs as one vector |
| `snr:<group>`, `max_abs:<group>` | disagrees | each output of each sample |
| `equal:<group>` | disagrees | the same for integers and booleans: the share of equal values |
| `local:<group>` | disagrees | in a picture, no tile of 8×8 is so wrong that only the rest of the picture hides it |
| `placed` | disagrees | for an accelerator: there is a list of nodes, all on accepted devices, some on the claimed |
| `not_cpu_identical` | disagrees | for an accelerator: no output has (almost) a CPU's very values, in whatever width |
| `golden_finite` | is vacuous | golden is finite |
| `sensitive:<group>` | is vacuous | an artefact that ignores one of the group's inputs would show |
| `sensitive` | is vacuous | where groups name their inputs: each input is named |
| `inputs_varied` | is vacuous | no input is constant only; floating inputs come in at least two magnitudes |
| `constant_fails` | is vacuous | the tolerances would not accept one and the same answer for every sample |
| `identity_fails` | is vacuous | the tolerances would not accept an input itself as an output of its shape |

Of an artefact in fixed point, `snr` and `local` are measured beside the strongest sample of each output, since its
error does not shrink with the signal; so is what `sensitive`, `constant_fails` and `identity_fails` hold against them.

Where a cell would be vacuous, the SNR asked of the groups concerned is raised towards what the artefact reaches
(`judge_nearer`), and if it agrees then, that counts; `tightened:<group>` tells the limit. No limit is ever lowered.

A gate that does not apply (no accelerator, no `max_abs`, no labels, no shape in common, nothing to tell devices apart
by) is not in the list. A job cannot leave out a gate.

A cell that fails gates of both kinds disagrees: weak evidence can hide a wrong answer, but it cannot make a right one
look wrong. All reasons are told, those of the verdict first.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from runtimes import contract
from runtimes.contract import Failure, Json, Kind, Verdict
from runtimes.kit import tensors
from runtimes.kit.work import Failed, Work
from runtimes.reference import judge_device, judge_evidence, judge_nearer, judge_numbers, judge_structure, pictures
from runtimes.reference.judge_case import Case, Options, Pair, Samples
from runtimes.reference.judge_words import Check, Gate
from runtimes.reference.measures import Measure

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
        "local": (Verdict.DISAGREES, judge_numbers.local),
        "placed": (Verdict.DISAGREES, judge_device.placed),
        "not_cpu_identical": (Verdict.DISAGREES, judge_device.not_cpu_identical),
        "golden_finite": (Verdict.VACUOUS, judge_evidence.golden_finite),
        "sensitive": (Verdict.VACUOUS, judge_evidence.sensitive),
        "inputs_varied": (Verdict.VACUOUS, judge_evidence.inputs_varied),
        "constant_fails": (Verdict.VACUOUS, judge_evidence.constant_fails),
        "identity_fails": (Verdict.VACUOUS, judge_evidence.identity_fails),
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
    (the facts) and `pictures`.

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
    decision = settle(case)
    work.progress("drawing the pictures")
    views = pictures.draw(case, work.output("pictures"))
    facts: Mapping[str, Json] = contract.encode(
        {
            "verdict": decision.verdict,
            "reasons": decision.reasons,
            "gates": decision.gates,
            "measures": [_row(case, pair) for pair in case.pairs],
            "pictures": views,
        }
    )
    contract.write(facts, work.output("verdict.json"))
    return facts


def settle(case: Case) -> Decision:
    """Return the verdict of a case: by the limits asked for, or where these prove nothing, by nearer ones that do."""
    decision = decide(case)
    if decision.verdict is not Verdict.VACUOUS:
        return decision
    nearer, limits = judge_nearer.tightened(case)
    again = decide(nearer)
    return replace(again, gates=(*again.gates, *limits)) if again else decision


def decide(case: Case, gates: Mapping[str, tuple[Verdict, Check]] = GATES) -> Decision:
    """Return the verdict of a case by the limits asked for.

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


def _row(case: Case, pair: Pair) -> Mapping[str, Json]:
    """Return the measure of one output in one sample; without numbers where there was nothing to compare."""
    found = pair.measure or Measure(cosine=None, snr_db=None, max_abs=None, max_rel=None, nan=0, inf=0)
    if pair.aligned is not None:
        found = replace(found, snr_db=case.snr_db(pair.output, pair.golden, pair.aligned, found))
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
