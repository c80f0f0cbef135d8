"""The step `export`: the ONNX file for every runtime, checked against the reference before anything else sees it."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping
from pathlib import Path

import onnx

from runtimes.contract import Failure, Json, Kind
from runtimes.kit import tensors
from runtimes.kit.tensors import Array
from runtimes.kit.work import Failed, Work, fail
from runtimes.reference import exporters, gates, onnx_file, prepare, ranges, sessions, structure
from runtimes.reference.inputs import Samples
from runtimes.reference.measures import measure
from runtimes.reference.models import Reference
from runtimes.reference.options import ExportOptions, Origin

COSINE = 0.9999
SNR_DB = 50.0
"""How near ONNX Runtime must come to the reference, in every output of every sample: both compute in float32."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Agreement:
    """How near ONNX Runtime comes to the reference: the worst over the samples, for one output."""

    cosine: float
    snr_db: float
    max_abs: float


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
    if options.source is not Origin.ONNX:
        _check_asked(model, options, samples, golden)
    work.progress("checking the ONNX file")
    results = gates.check(path)
    if all(results):
        results.append(ranges.check(path, samples))
    _stop_unless(results, options)
    work.progress("ONNX Runtime on every sample")
    answers = answer(path, samples, golden)
    tensors.save_samples(work.output("cpu"), answers)
    return {
        "opset": structure.opset_of(model),
        "ir_version": model.ir_version,
        "nodes": dict(sorted(collections.Counter(node.op_type for node in structure.nodes_of(model)).items())),
        "gates": [{"name": result.name, "passed": result.passed, "detail": result.detail} for result in results],
        "agreement": {
            name: dataclasses.asdict(each) for name, each in compare(golden, answers, reference.kind).items()
        },
        "size_bytes": sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()),
    }


def answer(path: Path, samples: Samples, golden: Samples) -> Samples:
    """Return what ONNX Runtime, as it comes, makes of each sample.

    Raises:
        Failed: it does not open or run the file.
    """
    try:
        session = sessions.start(path)
        return {name: sessions.run(session, sample, list(golden[name])) for name, sample in samples.items()}
    except sessions.errors() as error:
        raise Failed(
            Failure(kind=Kind.TOOLCHAIN, message=f"ONNX Runtime does not run the exported file: {error}")
        ) from error


def compare(golden: Samples, answers: Samples, kind: str) -> dict[str, Agreement]:
    """Return, per output, how near `answers` come to `golden` in the worst sample.

    Args:
        golden: sample name to outputs by name.
        answers: the same, by ONNX Runtime.
        kind: who made `golden`.

    Raises:
        Failed: an output is of another shape or type, or too far away.
    """
    worst: dict[str, Agreement] = {}
    for sample, outputs in golden.items():
        for name, expected in outputs.items():
            found = _measure(f"output {name}, sample {sample}", expected, answers[sample][name], kind)
            before = worst.get(name, found)
            worst[name] = Agreement(
                cosine=min(before.cosine, found.cosine),
                snr_db=min(before.snr_db, found.snr_db),
                max_abs=max(before.max_abs, found.max_abs),
            )
    return worst


def _measure(where: str, expected: Array, found: Array, kind: str) -> Agreement:
    if expected.shape != found.shape or expected.dtype != found.dtype:
        fail(
            Kind.TOOLCHAIN,
            f"{where}: ONNX Runtime gives {found.dtype} {list(found.shape)}, "
            f"{kind} {expected.dtype} {list(expected.shape)}",
            hint="the exporter did not keep the output; try the other exporter",
        )
    measured = measure(expected, found)
    cosine, snr_db, max_abs = measured.cosine, measured.snr_db, measured.max_abs
    if cosine is None or snr_db is None or max_abs is None:
        fail(
            Kind.TOOLCHAIN,
            f"{where}: ONNX Runtime gives {measured.nan} NaN and {measured.inf} infinite values, {kind} none",
        )
    if cosine < COSINE or snr_db < SNR_DB:
        fail(
            Kind.TOOLCHAIN,
            f"{where}: ONNX Runtime does not agree with {kind}: cosine {cosine:.7f} (at least {COSINE}), "
            f"SNR {snr_db:.1f} dB (at least {SNR_DB:g}), largest difference {max_abs:.3g}",
            hint="the export changed the model: look for random numbers and for Python conditions on values; "
            "try the other exporter",
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


def _check_asked(model: onnx.ModelProto, options: ExportOptions, samples: Samples, golden: Samples) -> None:
    """Refuse to go on with a file that has another opset, or other inputs and outputs, than it was asked for.

    Raises:
        Failed: it has.
    """
    opset = structure.opset_of(model)
    if opset != options.opset:
        fail(
            Kind.UNSUPPORTED_OPSET,
            f"asked for opset {options.opset}, the {options.exporter} exporter wrote {opset} without a word",
            hint=f"ask for opset {opset}, or for the other exporter",
        )
    sample = next(iter(samples))
    asked = {name: list(array.shape) for name, array in (*samples[sample].items(), *golden[sample].items())}
    values = (*structure.inputs_of(model.graph), *model.graph.output)
    written = {value.name: structure.sizes_of(value) for value in values}
    if written != asked:
        fail(
            Kind.TOOLCHAIN,
            f"the {options.exporter} exporter wrote inputs and outputs {_show(written)}, not {_show(asked)}",
            hint="an input that nothing depends on is dropped: take it out of the model's inputs",
        )


def _show(sizes: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {size}" for name, size in sizes.items())


def _stop_unless(results: list[gates.GateResult], options: ExportOptions) -> None:
    if options.source is Origin.ONNX:
        onnx_file.refuse_unless(results, "the ONNX file")
    for result in results:
        if not result:
            fail(
                result.kind or Kind.INVALID_MODEL,
                f"the {options.exporter} exporter made an ONNX file that is not sound: {gates.describe(results)}",
                hint="try the other exporter, or another opset",
            )
