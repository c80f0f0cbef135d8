"""The step `export`: the ONNX file for every runtime, checked against the reference before anything else sees it."""

from __future__ import annotations

import collections
import dataclasses
import functools
import math
from collections.abc import Mapping
from pathlib import Path

import onnx

from runtimes.contract import Failure, Json, Kind
from runtimes.kit import tensors
from runtimes.kit.tensors import Array
from runtimes.kit.work import Failed, Work, fail
from runtimes.reference import exporters, foreign, gates, onnx_file, prepare, ranges, sessions, slices, structure
from runtimes.reference.inputs import Samples
from runtimes.reference.measures import SNR_CAP_DB, measure, rms
from runtimes.reference.models import Reference
from runtimes.reference.options import ExportOptions, Origin

COSINE = 0.9999
SNR_DB = 50.0
"""How near ONNX Runtime must come to the reference, in every output of every sample: both compute in float32."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tolerance:
    """The least cosine similarity and SNR that an answer must have.

    Attributes:
        cosine: of each output of each sample.
        snr_db: the same; in decibels.
        beside_strongest: whether the SNR is that beside the strongest sample of the output: the error of fixed point
            does not shrink with the signal.
    """

    cosine: float
    snr_db: float
    beside_strongest: bool = False


EXACT = Tolerance(cosine=COSINE, snr_db=SNR_DB)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Agreement:
    """How near ONNX Runtime comes to the reference: the worst over the samples, for one output."""

    cosine: float
    snr_db: float
    max_abs: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """What became of a comparison with the reference.

    Attributes:
        agreement: by output name; without an output that could not be measured.
        problems: what is wrong, one sentence each; () where all is near enough.
    """

    agreement: Mapping[str, Agreement]
    problems: tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Exported:
    """An ONNX file, and what it was made of.

    Attributes:
        model: what the file holds, data outside it not loaded.
        path: the file.
        options: what was asked for.
        kind: who made `golden`.
        samples: sample name to inputs by name.
        golden: sample name to the reference's outputs by name.
    """

    model: onnx.ModelProto
    path: Path
    options: ExportOptions
    kind: str
    samples: Samples
    golden: Samples

    @functools.cached_property
    def answers(self) -> Samples:
        """What ONNX Runtime makes of each sample.

        Raises:
            Failed: it does not open or run the file.
        """
        return answer(self.path, self.samples, self.golden)

    @functools.cached_property
    def comparison(self) -> Comparison:
        """How near that is to the reference."""
        return compare(self.golden, self.answers, self.kind)


def find_other_opset(made: Exported) -> list[str]:
    """Return an opset that was not asked for: an exporter may write another one without a word."""
    asked, opset = made.options.opset, structure.opset_of(made.model)
    if opset == asked:
        return []
    said = f"asked for opset {asked}, the {made.options.exporter} exporter wrote {opset} without a word"
    return [f"{said}; ask for opset {opset}, or for the other exporter"]


def find_other_values(made: Exported) -> list[str]:
    """Return inputs and outputs that are not those of the samples: an exporter may drop, rename or reshape one."""
    sample = next(iter(made.samples))
    values = {**made.samples[sample], **made.golden[sample]}
    asked = {name: list(array.shape) for name, array in values.items()}
    held = (*structure.inputs_of(made.model.graph), *made.model.graph.output)
    written = {value.name: structure.sizes_of(value) for value in held}
    if written == asked:
        return []
    return [f"the {made.options.exporter} exporter wrote inputs and outputs {_show(written)}, not {_show(asked)}"]


def find_overflow(made: Exported) -> list[str]:
    """Return what leaves the range of float16; see `ranges`."""
    return ranges.find_overflow(made.path, made.samples)


def find_disagreement(made: Exported) -> list[str]:
    """Return the outputs in which ONNX Runtime is too far from the reference."""
    return list(made.comparison.problems)


GATES: tuple[gates.Gate[[Exported]], ...] = (
    gates.Gate(name="asked_opset", stage=3, kind=Kind.UNSUPPORTED_OPSET, find=find_other_opset),
    gates.Gate(
        name="asked_values",
        stage=3,
        kind=Kind.TOOLCHAIN,
        find=find_other_values,
        hint="an input that nothing depends on is dropped: take it out of the model's inputs",
    ),
    gates.Gate(name="fp16_range", stage=4, kind=Kind.INVALID_MODEL, find=find_overflow),
    gates.Gate(
        name="agreement",
        stage=5,
        kind=Kind.TOOLCHAIN,
        find=find_disagreement,
        hint="the export changed the model: look for random numbers and for Python conditions on values; "
        "try the other exporter",
    ),
)
"""The gates behind `gates.ALL`: they look at what a file was made of too."""

ASKED = ("asked_opset", "asked_values")
"""Those that a file which is ONNX already need not pass: it keeps its own."""


def export(work: Work) -> dict[str, Json]:
    """Make `model`, a folder with `model.onnx`, and `cpu`, what ONNX Runtime makes of it; return the facts.

    Raises:
        Refused: the file given is ONNX already, and a gate does not let it through.
        Failed: the exporter gives up, or what it made is not what was asked for or does not agree with the reference.
    """
    options = work.options(ExportOptions)
    samples = tensors.load_samples(work.input("samples"))
    golden = tensors.load_samples(work.input("golden"))
    work.progress("loading the model")
    reference = prepare.load(work, options)
    folder = work.output("model")
    folder.mkdir()
    path = folder / "model.onnx"
    work.progress("exporting to ONNX")
    _make(reference, options, path, samples, golden)
    model = gates.parse(path)
    made = Exported(model=model, path=path, options=options, kind=reference.kind, samples=samples, golden=golden)
    work.progress("checking the ONNX file, and ONNX Runtime on every sample")
    results = gates.check(path)
    if all(results):
        results += gates.ask(gates.without(*(ASKED if reference.file else ()), of=GATES), made)
    _stop_unless(results, options)
    tensors.save_samples(work.output("cpu"), made.answers)
    return {
        "opset": structure.opset_of(model),
        "ir_version": model.ir_version,
        "nodes": dict(sorted(collections.Counter(node.op_type for node in structure.nodes_of(model)).items())),
        "gates": [{"name": result.name, "passed": result.passed, "detail": result.detail} for result in results],
        "agreement": {name: dataclasses.asdict(each) for name, each in made.comparison.agreement.items()},
        "size_bytes": sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()),
    }


def answer(path: Path, samples: Samples, golden: Samples, *, lean: bool = False) -> Samples:
    """Return what ONNX Runtime, as it comes (or `lean`: slice by slice, see `slices`), makes of each sample.

    Raises:
        Failed: it does not open or run the file.
    """
    where = "ONNX Runtime does not run the exported file"
    try:
        if lean:
            return slices.run(gates.parse(path), path.parent, samples, list(next(iter(golden.values()))))
        session = sessions.start(path)
        return {name: sessions.run(session, sample, list(golden[name])) for name, sample in samples.items()}
    except sessions.errors() as error:
        failure = Failure(kind=Kind.TOOLCHAIN, message=f"{where}: {error}")
        raise Failed(foreign.out_of_memory(error, where) or failure) from error


def compare(golden: Samples, answers: Samples, kind: str, tolerance: Tolerance = EXACT) -> Comparison:
    """Return how near `answers` come to `golden`, in the worst sample of each output.

    Args:
        golden: sample name to outputs by name.
        answers: the same, by ONNX Runtime.
        kind: who made `golden`.
        tolerance: how near it must come.
    """
    worst: dict[str, Agreement] = {}
    problems = []
    for sample, outputs in golden.items():
        for name, expected in outputs.items():
            strongest = max(rms(each[name]) for each in golden.values()) if tolerance.beside_strongest else 0.0
            found = _measure(expected, answers[sample][name], kind, tolerance, strongest)
            if isinstance(found, str):
                problems.append(f"output {name}, sample {sample}: ONNX Runtime {found}")
                continue
            before = worst.get(name, found)
            worst[name] = Agreement(
                cosine=min(before.cosine, found.cosine),
                snr_db=min(before.snr_db, found.snr_db),
                max_abs=max(before.max_abs, found.max_abs),
            )
    return Comparison(agreement=worst, problems=tuple(problems))


def _measure(expected: Array, found: Array, kind: str, tolerance: Tolerance, strongest: float) -> Agreement | str:
    """Return how near `found` is to `expected`, or what is wrong with it."""
    if expected.shape != found.shape or expected.dtype != found.dtype:
        return f"gives {found.dtype} {list(found.shape)}, {kind} {expected.dtype} {list(expected.shape)}"
    measured = measure(expected, found)
    cosine, snr_db, max_abs = measured.cosine, measured.snr_db, measured.max_abs
    if cosine is None or snr_db is None or max_abs is None:
        return f"gives {measured.nan} NaN and {measured.inf} infinite values, {kind} none"
    own = rms(expected) if strongest else 0.0
    if own and snr_db < SNR_CAP_DB:
        snr_db += 20.0 * math.log10(strongest / own)
    if cosine < tolerance.cosine or snr_db < tolerance.snr_db:
        return (
            f"does not agree with {kind}: cosine {cosine:.7f} (at least {tolerance.cosine}), "
            f"SNR {snr_db:.1f} dB (at least {tolerance.snr_db:g}), largest difference {max_abs:.3g}"
        )
    return Agreement(cosine=cosine, snr_db=snr_db, max_abs=max_abs)


def _make(reference: Reference, options: ExportOptions, path: Path, samples: Samples, golden: Samples) -> None:
    sample = next(iter(sorted(samples)))
    if reference.file is not None:
        shapes = {each.name: each.shape for each in reference.inputs}
        onnx_file.copy(reference.file, path.parent, shapes, golden[sample])
        return
    names = reference.name(len(golden[sample]))
    exporters.export(reference, names, samples[sample], path, options)
    exporters.strip(path)


def _show(sizes: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {size}" for name, size in sizes.items())


def _stop_unless(results: list[gates.GateResult], options: ExportOptions) -> None:
    wrong = next((result for result in results if not result), None)
    if wrong is None:
        return
    kind, said = wrong.kind or Kind.INVALID_MODEL, gates.describe(results)
    if options.source is not Origin.ONNX:
        hint = wrong.hint or "try the other exporter, or another opset"
        fail(kind, f"the {options.exporter} exporter made an ONNX file that does not hold: {said}", hint=hint)
    if wrong.name == "agreement":
        fail(kind, f"the ONNX file, as ONNX Runtime optimises it: {said}")
    onnx_file.refuse_unless(results, "the ONNX file")
