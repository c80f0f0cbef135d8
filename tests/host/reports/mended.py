"""What rewrites, a search for the first bad node and an agent leave in a report."""

from __future__ import annotations

from aipc.agent.deviations import Deviation, DeviationKind
from aipc.bisection import Bisection, CurvePoint
from aipc.deployment import AgentWork
from aipc.facts import NodeName
from aipc.repairs import Repair, Symptom
from runtimes.contract import Kind, Status, Step, Verdict

QNN_WORDS = (
    "This session contains graph nodes that are assigned to the default CPU EP, but fallback to CPU EP has been "
    "explicitly disabled by the user.\nUnsupported nodes in QNN EP: { name: /model.12/attn/Einsum, type: Einsum }"
)
EINSUM = Symptom(
    step=Step.CONVERT, kind=Kind.UNSUPPORTED_OP, op="Einsum", node="/model.12/attn/Einsum", message=QNN_WORDS
)
REPAIRS = (
    Repair(rewrite="fp16", options={"keep": ["Resize"]}, changed=("/model.0/conv", "/model.1/conv")),
    Repair(rewrite="lower_opset", symptom=EINSUM, status=Status.FAILED, problem="rewrite lower_opset: no such opset"),
    Repair(rewrite="fold_constants", symptom=EINSUM),
    Repair(rewrite="einsum_to_matmul", symptom=EINSUM, changed=("/model.12/attn/Einsum",), helped=True),
    Repair(
        rewrite="guard_silu",
        symptom=Symptom(step=Step.JUDGE, kind=None, message="cosine:scores is 0.9964"),
        changed=tuple(f"/model.{at}/act" for at in range(57)),
    ),
)


AGENT = AgentWork(
    mode="repair",
    model="qwen2.5-coder",
    model_sha256="c" * 64,
    synthetic=False,
    skills=True,
    ended="submitted",
    claim="agrees",
    summary="The Einsum is\nrewritten <b>now</b>",
    edits=(
        {"rewrite": "einsum_to_matmul", "options": {"keep": 1}, "code": ""},
        {"rewrite": "patch_graph", "options": {}, "code": "def patch(model):\n    return model"},
        {"path": "net/attention.py", "old": "a @ b", "new": "torch.matmul(a, b)"},
        {"opset": 17},
    ),
    steps=7,
    calls=8,
    tokens=9120,
    estimated=True,
    seconds=61.2,
    cost=0.03,
    seed=4711,
    verdict=Verdict.DISAGREES,
    reasons=("cosine",),
    deviations=(
        Deviation(
            kind=DeviationKind.STAGE_SKIPPED,
            step=7,
            note="submit though compare had not succeeded for the candidate as it was",
        ),
        Deviation(kind=DeviationKind.FALSE_SUCCESS, step=0, note="it claimed success; the judge: disagrees"),
        Deviation(kind=DeviationKind.WRITE_OUTSIDE, step=0, note="its code was refused: <i>[Errno 13]</i>"),
    ),
)


BISECTION = Bisection(
    sample="random-10.0",
    total=640,
    runs=14,
    first=NodeName(node="/model.12/attn/Sigmoid", op="Sigmoid"),
    index=311,
    nearest=310,
    curve=tuple(
        CurvePoint(index=25 * at, output=f"/model.{at}/out", cosine=1 - 1e-9 * 4**at, snr_db=96.0 - 4.5 * at)
        for at in range(20)
    ),
    piece=(NodeName(node="/model.12/conv", op="Conv"), NodeName(node="/model.12/attn/Sigmoid", op="Sigmoid")),
    notes=("the model with tensors inside as outputs is slower",),
)
