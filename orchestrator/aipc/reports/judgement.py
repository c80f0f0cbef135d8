"""What the judge says of a cell, and what it was held to; parts of a report."""

from __future__ import annotations

from dataclasses import dataclass

from runtimes.contract import Verdict


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
class Thresholds:
    """How near an output must be.

    Attributes:
        cosine: smallest cosine similarity.
        snr_db: smallest signal-to-noise ratio, in dB.
        max_abs: largest absolute difference, or null for no limit.
    """

    cosine: float
    snr_db: float
    max_abs: float | None = None


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """The thresholds of one group of outputs.

    Attributes:
        group: the group's name.
        outputs: the outputs in it.
        content: `tensor` or `picture`.
        applied: what the judge was told.
        default: what the precision has by default; where `applied` is looser, the report says so beside the verdict.
    """

    group: str
    outputs: tuple[str, ...]
    content: str
    applied: Thresholds
    default: Thresholds
