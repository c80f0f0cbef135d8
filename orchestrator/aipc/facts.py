"""What each step finds out: the facts of its result, as the host believes them.

A step that is done has these facts and outputs, or it is not believed to be done.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from runtimes.contract import Json, Step, Verdict


@dataclass(frozen=True, kw_only=True)
class Gate:
    """One condition that the judge checked.

    Attributes:
        name: what was checked, and after a colon the group where there is one gate per group: `snr:boxes`.
        passed: whether it held.
        measured: what was found, or null where the detail says it all.
        threshold: what was asked for, or null.
        detail: one sentence for people, or "".
    """

    name: str
    passed: bool
    measured: float | bool | str | None = None
    threshold: float | bool | str | None = None
    detail: str = ""

    def __bool__(self) -> bool:
        return self.passed


@dataclass(frozen=True, kw_only=True)
class Measure:
    """How far one output of the artefact is from the reference, for one sample.

    Attributes:
        group: the group of outputs that it is judged with.
        output: the output's name.
        sample: the sample's name.
        cosine: cosine similarity, or null where it is not defined.
        snr_db: signal-to-noise ratio in dB, at most 200, or null.
        max_abs: largest absolute difference, in the output's unit, or null.
        max_rel: largest relative difference, or null.
        nan: how many values are NaN.
        inf: how many values are infinite.
        equal: the share of equal values where the values are labels, which are held to it instead of cosine and SNR.
    """

    group: str
    output: str
    sample: str
    cosine: float | None
    snr_db: float | None
    max_abs: float | None
    max_rel: float | None
    nan: int = 0
    inf: int = 0
    equal: float | None = None


@dataclass(frozen=True, kw_only=True)
class PictureSet:
    """Four pictures (PNG) of one output for one sample; a path is relative to the run folder, or "".

    Attributes:
        output: the output's name.
        sample: the sample's name.
        input: the picture that went in.
        golden: the reference's answer.
        output_picture: the artefact's answer.
        error: the absolute difference of the two answers.
        scale: the difference that is drawn white, in the output's unit; 0 where there is none.
    """

    output: str
    sample: str
    input: str
    golden: str
    output_picture: str
    error: str
    scale: float


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What the judge says: the content of its `verdict.json`, which are also the facts of its job.

    Attributes:
        verdict: its word.
        reasons: why, each a sentence.
        gates: what it checked.
        measures: what it measured, one entry per output and sample.
        pictures: what it drew, paths relative to its `out/`.
    """

    verdict: Verdict
    reasons: tuple[str, ...]
    gates: tuple[Gate, ...]
    measures: tuple[Measure, ...]
    pictures: tuple[PictureSet, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Port:
    """One input or output of the artefact.

    Attributes:
        name: as the artefact's user must spell it.
        shape: its dimensions; a string names one that is free.
        dtype: for instance `float32`.
        layout: for instance `NCHW`, or "".
    """

    name: str
    shape: tuple[int | str, ...]
    dtype: str
    layout: str = ""


@dataclass(frozen=True, kw_only=True)
class IoContract:
    """What the artefact takes and gives.

    Attributes:
        inputs: in order.
        outputs: in order.
    """

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


@dataclass(frozen=True, kw_only=True)
class Placed:
    """Where one node of the artefact runs.

    Attributes:
        node: its name.
        op: its operator type.
        device: the device that runs it.
    """

    node: str
    op: str
    device: str


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """How near ONNX Runtime (CPU, FP32) is to the reference, over all samples; the worst of each.

    Attributes:
        cosine: cosine similarity, or null.
        snr_db: signal-to-noise ratio in dB, or null.
        max_abs: largest absolute difference, or null.
    """

    cosine: float | None
    snr_db: float | None
    max_abs: float | None


@dataclass(frozen=True, kw_only=True)
class ExportFacts:
    """The ONNX model between PyTorch and the toolchain: the facts of the export step.

    Attributes:
        opset: read back from the file.
        ir_version: of the file.
        nodes: operator type to how many.
        gates: what the exporter's checks found.
        agreement: output to how near ONNX Runtime is.
        size_bytes: of the model with its data.
    """

    opset: int
    ir_version: int
    nodes: Mapping[str, int]
    gates: tuple[Gate, ...] = ()
    agreement: Mapping[str, Agreement] = field(default_factory=dict)
    size_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class Fed:
    """One input or output of the model, as it was tried.

    Attributes:
        name: its name.
        shape: every size.
        dtype: for instance `float32`.
        content: of an input, what it was filled with.
        low: of an input, the smallest value; of a picture, what black becomes.
        high: the largest value; of a picture, what white becomes; of "normal", the standard deviation.
        mean: of a picture, subtracted after scaling: () for none, one number, or one per channel.
        std: of a picture, what divides afterwards.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    content: str = ""
    low: float = 0.0
    high: float = 1.0
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PrepareFacts:
    """What `prepare` finds out.

    Attributes:
        reference: who gave the golden outputs: `pytorch` or `onnxruntime`.
        inputs: in order.
        outputs: in order.
        sensitivity: output to input to the relative change of the golden output when that input changes.
        reaching: output to the only inputs that it can depend on, where the graph says that.
        parameters: how many the model has.
        notes: for people.
    """

    reference: str
    inputs: tuple[Fed, ...]
    outputs: tuple[Fed, ...]
    sensitivity: Mapping[str, Mapping[str, float | None]]
    reaching: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    parameters: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ConvertFacts:
    """What `convert` finds out.

    Attributes:
        io: what the artefact takes and gives.
        placement: which node runs where, as far as converting tells.
        device: what ran it, where converting also runs it.
        execution: hints in force then, as read back.
        notes: for people.
        simulated: what stood in for that device, or "" where it was the device itself.
    """

    io: IoContract
    placement: tuple[Placed, ...] = ()
    device: str = ""
    execution: Mapping[str, Json] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    simulated: str = ""


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """What `run` finds out.

    Attributes:
        device: what ran the artefact.
        execution: hints in force, as read back.
        placement: which node ran where, where running tells more than converting.
        notes: for people.
        simulated: what stood in for that device, or "" where it was the device itself.
    """

    device: str
    execution: Mapping[str, Json] = field(default_factory=dict)
    placement: tuple[Placed, ...] = ()
    notes: tuple[str, ...] = ()
    simulated: str = ""


@dataclass(frozen=True, kw_only=True)
class RewriteFacts(ExportFacts):
    """What `rewrite` finds out: the facts of the ONNX model that it made.

    Attributes:
        changed: rewrite to the nodes (or values) that it replaced; empty for one that found nothing to change.
    """

    changed: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, kw_only=True)
class CalibrateFacts:
    """What `calibrate` finds out.

    Attributes:
        samples: how many there are.
        ranges: input to the smallest and the largest value over all of them.
    """

    samples: int
    ranges: Mapping[str, tuple[float, ...]]


@dataclass(frozen=True, kw_only=True)
class NodeName:
    """One node of an ONNX model.

    Attributes:
        node: its name.
        op: its operator type.
    """

    node: str
    op: str


@dataclass(frozen=True, kw_only=True)
class Flowing:
    """One tensor that a piece of a model gives.

    Attributes:
        name: its name.
        shape: every size.
        dtype: for instance `float32`.
        index: of the node that gives it, among those that depend on an input, in topological order.
        final: whether it is an output of the whole model.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    index: int
    final: bool


@dataclass(frozen=True, kw_only=True)
class BisectMeasure:
    """How far one tensor lies from ONNX Runtime's; null where there is no number.

    Attributes:
        output: its name.
        cosine: cosine similarity.
        snr_db: SNR in dB.
        max_abs: largest absolute difference.
    """

    output: str
    cosine: float | None
    snr_db: float | None
    max_abs: float | None


@dataclass(frozen=True, kw_only=True)
class BisectFacts:
    """What `bisect` finds out: what a piece is made of, or how the runtime's answer to one compares.

    Attributes:
        total: how many nodes of the whole model depend on an input.
        nodes: of the piece, in topological order.
        inputs: what it takes.
        outputs: what it gives; () where nothing flows on from there.
        measures: of a comparison.
    """

    total: int = 0
    nodes: tuple[NodeName, ...] = ()
    inputs: tuple[Fed, ...] = ()
    outputs: tuple[Flowing, ...] = ()
    measures: tuple[BisectMeasure, ...] = ()


FACTS: Mapping[Step, type[Any]] = {
    Step.PREPARE: PrepareFacts,
    Step.EXPORT: ExportFacts,
    Step.REWRITE: RewriteFacts,
    Step.CALIBRATE: CalibrateFacts,
    Step.CONVERT: ConvertFacts,
    Step.QUANTIZE: ConvertFacts,
    Step.RUN: RunFacts,
    Step.JUDGE: Judgement,
    Step.BISECT: BisectFacts,
}
"""What the facts of each step are; those of other steps are free."""
